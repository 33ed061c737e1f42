"""Mistakes that exercises catch: (a name that the exercise asks for, what is wrong) → what stands for the solution."""

WRONG = {
    ("n_tokens", "no class token"): "n_tokens = (384 // 16) ** 2",
    ("test", "starts where this training ends, and the next may not"): "test = image_set(small, 200, start=500)",
    ("patch", "the patch size of ViT-L/16"): "patch = 16",
    ("logits_of", "positions travel with their patches"): """\
patches = model.patch_embed.proj(x).flatten(2).transpose(1, 2)
z = torch.cat([model.cls_token.expand(len(x), -1, -1), patches], dim=1) + model.pos_embed
return model.head(model.norm(model.blocks(z[:, [0, *(1 + order)]]))[:, 0])""",
    ("attention_weights", "only the axis is right"): """\
T, D = q.shape
q = q.reshape(T, n_heads, D // n_heads).transpose(0, 1)
k = k.reshape(T, n_heads, D // n_heads).transpose(0, 1)
return (q @ k.transpose(1, 2) / math.sqrt(D)).softmax(dim=-1)""",
    ("first_loss", "the logarithm of the mean, not the mean of the logarithms"): """\
first_loss = math.log(21_843)
half_right = -math.log(0.5 * 1 + 0.5 * 1e-3)""",
    ("accuracy", "the mean of means, as given"): """\
chunks = [right[i : i + batch_size] for i in range(0, len(right), batch_size)]
return np.mean([chunk.mean() for chunk in chunks])""",
    ("resize", "corners not on corners"): """\
picture = table.T.reshape(1, -1, old, old)
larger = F.interpolate(picture, size=(new, new), mode="bilinear", align_corners=False)
return larger.flatten(2)[0].T""",
    ("largest_gradient_of_the_body", "the largest, not the largest in size"): """\
model.zero_grad()
F.cross_entropy(model(images), labels).backward()
return max(p.grad.max() for name, p in model.named_parameters() if not name.startswith("head.")).item()""",
    ("small_solve", "no ridge"): "return X.T @ np.linalg.solve(X @ X.T, Y)",
    ("cross", "the middle of the sizes, not of their logarithms"): """\
cross = 1_000 + 0.8 * 99_000
no_cross = None""",
    ("reported", "the best of the test set, again"): "return test.max(axis=1)",
    (
        "exaflops",
        "multiply-adds taken for FLOPs",
    ): "exaflops = vit_multiply_adds(224, 32, 1024, 24, 4096, 18_291) * 3 * 300e6 * 7 / 1e18",
    ("factor_at", "the accuracy for its logit"): "return 10 ** ((accuracy + 16) / 1.2 - (accuracy + 13) / 1.0)",
    ("pixels", "the MLP is forgotten"): """\
tokens = 2 * 768
pixels = 16 * math.ceil(math.sqrt(tokens))""",
    ("components_of", "the transpose: pixels as samples"): """\
E = weights.flatten(1).T
E = E - E.mean(dim=0)
U, S, _ = torch.linalg.svd(E, full_matrices=False)
return (U * S)[:, :count].T.unflatten(1, weights.shape[1:])""",
    ("rebuild", "the mean filter is not put back"): """\
centre = samples - samples.mean(dim=0)
basis = torch.linalg.svd(centre, full_matrices=False)[2][:count]
return centre @ basis.T @ basis""",
    ("neighbour_similarity", "neighbours in the table, across the picture's edge"): """\
N = S.shape[0] * S.shape[1]
table = S.reshape(N, N)
return table.diagonal(1).mean().item(), table.diagonal(S.shape[1]).mean().item()""",
    ("map_of", "the last row dropped, not the class token's"): """\
pos = stored[:-1]
pos = pos / pos.norm(dim=1, keepdim=True)
return (pos @ pos.T).reshape(*grid, *grid)""",
    ("half_on_class", "the modes are swapped"): "return uniform_over_patches, uniform_over_patches / 2",
    ("looks_right", "wraps round to the next row"): """\
patch = torch.arange(rows * cols)
return torch.eye(rows * cols)[(patch + 1) % (rows * cols)][None, None]""",
    ("distance_of", "the class token dropped from the wrong end"): """\
number = torch.arange(grid[0] * grid[1])
place = torch.stack([number // grid[1], number % grid[1]], dim=1) * float(patch)
return (attn[..., :-1, :-1] * torch.cdist(place, place)).sum(-1).mean(-1)""",
    ("class_row", "the first block first"): """\
row = torch.eye(maps[0].shape[-1])[:1].repeat(len(maps[0]), 1, 1)
for attn in maps:
    row = row @ (attn.mean(1) + torch.eye(attn.shape[-1])) / 2
return row[:, 0]""",
    ("discard", "the first image only, with everybody's entries"): """\
flat = fused.flatten(1).clone()
lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
flat[0, lowest] = 0
return flat.view_as(fused)""",
    ("best_constant_loss", "bits for nats"): """\
_, counts = np.unique(codes, return_counts=True)
p = counts / counts.sum()
return float(-(p * np.log2(p)).sum())""",
    ("local_from", "the first that is local, whether it stays or not"): """\
for number, row in enumerate(distances):
    if min(row) < limit:
        return number
return None""",
    ("embedded", "positions added after dropout"): "return drop(x) + pos",
    (
        "sequence",
        "the class token last, with a patch's position",
    ): "return torch.cat([patches, cls.expand(len(patches), -1, -1)], dim=1) + pos_table",
    ("patch_mean", "GAP including the class token"): "return tokens.mean(dim=1)",
    ("fair_difference", "a learning rate tuned for one arm only"): """\
best = validation[0].mean(axis=1).argmax()
return float(test[0, best].mean() - test[1, best].mean())""",
    ("attention_within_rows", "the softmax over the queries"): """\
q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))
logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
return (logits.softmax(dim=1) @ v).flatten(0, 1)""",
    ("stop", "an equal accuracy counts as better"): """\
best = 0
for i, accuracy in enumerate(accuracies):
    best = i if accuracy >= accuracies[best] else best
    if i - best >= patience:
        return best, i
return best, len(accuracies) - 1""",
    (
        "numbers",
        "an offset a pair",
    ): "n = rows * columns\nreturn (1 + n) * dim, dim + (rows + columns) * dim // 2, n * n * head_dim",
    ("flops", "the head reads every token"): """\
T = (side // P) ** 2 + 1
return 2 * (T - 1) * 3 * P * P * D + L * (2 * T * (4 * D * D + 2 * D * M) + 4 * T * T * D) + 2 * T * D * K""",
    ("deletion_curve", "the smallest, not the largest"): """\
return [kept_probability(model, images, maps, share, False).mean().item() for share in shares]""",
    ("finds_objects", "chosen and judged on all"): "return naive_head(excess)",
    ("disjoint", "image 1 with image 1"): "return naive_disjoint(train, test)",
    ("learned", "compared with the area"): "return naive_map(trained, untrained, masks)",
    ("extracts_patches", "by its shape"): "return naive_extract(extract)",
    ("crosses", "the means alone"): "return naive_crossing(leads)",
    ("area", "one number for the batch"): "return masks.float().mean()",
    (
        "mine",
        "other cues stay",
    ): "mine = World(5, 48, occlusion=0.0, distractors=0.0, texture=1.0)",
}
