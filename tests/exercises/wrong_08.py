"""Mistakes in notebook 08: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "the modes are swapped"): "return uniform_over_patches, uniform_over_patches / 2",
    (1, "the class token counts in both modes"): "return uniform_over_patches / 2, uniform_over_patches / 2",
    (2, "the order of the names"): "return sorted(names)",
    (2, "the number compared as text"): 'return sorted(names, key=lambda name: name.split(".")[1])',
    (2, "only the first digit"): "return sorted(names, key=lambda name: int(name[7]))",
    (2, "only two digits"): 'return sorted(names, key=lambda name: int(name[7:9].strip(".")))',
    (3, "wraps round to the next row"): """\
patch = torch.arange(rows * cols)
return torch.eye(rows * cols)[(patch + 1) % (rows * cols)][None, None]""",
    (3, "rows for columns"): """\
patch = torch.arange(rows * cols)
return torch.eye(rows * cols)[torch.where(patch % rows == rows - 1, patch, patch + 1)][None, None]""",
    (3, "keys for queries"): """\
patch = torch.arange(rows * cols)
neighbour = torch.where(patch % cols == cols - 1, patch, patch + 1)
return torch.eye(rows * cols)[neighbour].T[None, None]""",
    (3, "to the left"): """\
patch = torch.arange(rows * cols)
return torch.eye(rows * cols)[torch.where(patch % cols == 0, patch, patch - 1)][None, None]""",
    (4, "untrained models are counted in"): """\
return (heads[column] < limit).groupby(heads["block"]).mean().tolist()""",
    (4, "heads counted, no share"): """\
trained = heads[heads["model"] == "trained"]
return (trained[column] < limit).groupby(trained["block"]).sum().tolist()""",
    (4, "always the same column"): """\
trained = heads[heads["model"] == "trained"]
return (trained["distance_px"] < limit).groupby(trained["block"]).mean().tolist()""",
    (5, "the class token dropped from the wrong end"): """\
number = torch.arange(grid[0] * grid[1])
place = torch.stack([number // grid[1], number % grid[1]], dim=1) * float(patch)
return (attn[..., :-1, :-1] * torch.cdist(place, place)).sum(-1).mean(-1)""",
    (5, "renormalised"): """\
between = attn[..., 1:, 1:]
between = between / between.sum(-1, keepdim=True)
number = torch.arange(grid[0] * grid[1])
place = torch.stack([number // grid[1], number % grid[1]], dim=1) * float(patch)
return (between * torch.cdist(place, place)).sum(-1).mean(-1)""",
    (5, "rows for columns"): """\
number = torch.arange(grid[0] * grid[1])
place = torch.stack([number // grid[0], number % grid[0]], dim=1) * float(patch)
return (attn[..., 1:, 1:] * torch.cdist(place, place)).sum(-1).mean(-1)""",
}
