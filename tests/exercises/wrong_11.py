"""Mistakes in notebook 11: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "positions added after dropout"): "return drop(x) + pos",
    (1, "dropped twice"): "return drop(drop(x) + pos)",
    (1, "no dropout"): "return x + pos",
    (2, "the class token last, with a patch's position"): """\
return torch.cat([patches, cls.expand(len(patches), -1, -1)], dim=1) + pos_table""",
    (2, "the class token first, with the last patch's position"): """\
return torch.cat([cls.expand(len(patches), -1, -1), patches], dim=1) + pos_table.roll(-1, dims=1)""",
    (2, "no position for the class token"): """\
return torch.cat([cls.expand(len(patches), -1, -1), patches + pos_table[:, 1:]], dim=1)""",
    (3, "GAP including the class token"): "return tokens.mean(dim=1)",
    (3, "the class token left out of the sum alone"): "return tokens[:, n_prefix:].sum(dim=1) / tokens.shape[1]",
    (3, "the last token left out"): "return tokens[:, : tokens.shape[1] - n_prefix].mean(dim=1)",
    (4, "a learning rate tuned for one arm only"): """\
best = validation[0].mean(axis=1).argmax()
return float(test[0, best].mean() - test[1, best].mean())""",
    (4, "chosen by the test images"): """\
best = test.mean(axis=2).argmax(axis=1)
return float(test[0, best[0]].mean() - test[1, best[1]].mean())""",
    (4, "the best seed in place of the mean"): """\
best = validation.max(axis=2).argmax(axis=1)
return float(test[0, best[0]].mean() - test[1, best[1]].mean())""",
    (4, "validation accuracies reported"): """\
return float(validation[0].mean(axis=1).max() - validation[1].mean(axis=1).max())""",
    (5, "the softmax over the queries"): """\
q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))
logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
return (logits.softmax(dim=1) @ v).flatten(0, 1)""",
    (5, "the softmax over the rows"): """\
q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))
logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
return (logits.softmax(dim=0) @ v).flatten(0, 1)""",
    (5, "columns in place of rows"): """\
q, k, v = (each.reshape(*grid, -1).transpose(0, 1) for each in (q, k, v))
logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
return (logits.softmax(dim=-1) @ v).transpose(0, 1).flatten(0, 1)""",
    (5, "not scaled"): """\
q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))
return ((q @ k.transpose(1, 2)).softmax(dim=-1) @ v).flatten(0, 1)""",
    (5, "over all patches"): """\
return ((q @ k.T / q.shape[-1] ** 0.5).softmax(dim=-1) @ v)""",
}
