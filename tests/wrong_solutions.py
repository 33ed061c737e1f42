"""Mistakes that exercises catch: (a name that the exercise asks for, what is wrong) → what stands for the solution."""

WRONG = {
    ("n_tokens", "no class token"): "n_tokens = (384 // 16) ** 2",
    ("alone", "the order of the batch is forgotten"): """\
alone = scene(small, torch.tensor([1234]))[0][0]
batch = scene(small, torch.arange(1230, 1240))[0][4]
reversed_batch = scene(small, torch.arange(1239, 1229, -1))[0][4]
label = 1234 % 7""",
    ("test", "starts where this training ends, and the next may not"): "test = image_set(small, 200, start=500)",
    ("answer", "no last LayerNorm"): """\
D = 384
answer = (768 * D + D) + D + 197 * D + 12 * (12 * D**2 + 13 * D) + (1000 * D + 1000)""",
    ("patch", "the patch size of ViT-L/16"): "patch = 16",
    ("logits_of", "positions travel with their patches"): """\
z = torch.cat([class_token, embedded], dim=1) + w["pos_embed"] * positions
z = torch.cat([z[:, :1], z[:, 1:][:, order]], dim=1)
return model.head(model.norm(model.blocks(z))[:, 0])""",
    ("attention_weights", "only the axis is right"): """\
T, D = q.shape
q = q.reshape(T, n_heads, D // n_heads).transpose(0, 1)
k = k.reshape(T, n_heads, D // n_heads).transpose(0, 1)
return (q @ k.transpose(1, 2) / math.sqrt(D)).softmax(dim=-1)""",
    ("extra", "no bias"): """\
return D * D
---
first_logit = 0.0""",
    ("first_loss", "the logarithm of the mean, not the mean of the logarithms"): """\
first_loss = math.log(21_843)
half_right = -math.log(0.5 * 1 + 0.5 * 1e-3)""",
    ("accuracy", "the mean of means, as given"): """\
chunks = [right[i : i + batch_size] for i in range(0, len(right), batch_size)]
return np.mean([chunk.mean() for chunk in chunks])""",
    ("with_warmup", "the rate changes too"): """\
without = Recipe(steps=5, batch_size=32, learning_rate=2e-2, decay="constant")
with_warmup = Recipe(steps=5, batch_size=32, learning_rate=1e-2, decay="constant", warmup_steps=3)""",
    ("factor", "no class token"): """\
tokens_224, tokens_384 = (224 // 16) ** 2, (384 // 16) ** 2
factor = (tokens_384 / tokens_224) ** 2""",
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
    (
        "compute_ratio",
        "the ViT's FLOPs doubled, not the ResNet's",
    ): "return 2 * vit_flops * epochs_vit / (resnet_published * epochs_resnet)",
    ("factor_at", "the accuracy for its logit"): "return 10 ** ((accuracy + 16) / 1.2 - (accuracy + 13) / 1.0)",
    ("pixels", "the MLP is forgotten"): """\
tokens = 2 * 768
pixels = 16 * math.ceil(math.sqrt(tokens))""",
    ("enough", "singular values, not their squares"): "enough = int(((s / s.sum()).cumsum(0) < 0.9).sum()) + 1",
    ("components_of", "the transpose: pixels as samples"): """\
E = weights.flatten(1).T
E = E - E.mean(dim=0)
U, S, _ = torch.linalg.svd(E, full_matrices=False)
return (U * S)[:, :count].T.unflatten(1, weights.shape[1:])""",
    (
        "brightness_share",
        "the mean's energy is not three channels'",
    ): "return components.mean(dim=1).square().sum((1, 2)) / components.square().sum((1, 2, 3))",
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
    ("bumps", "the cross: row and column codes"): """\
row_code = torch.eye(height).repeat_interleave(width, dim=0)
bumps = torch.cat([row_code, torch.eye(width).repeat(height, 1)], dim=1)""",
    ("weights", "corners not on corners"): """\
place = (torch.arange(new) + 0.5) * old / new - 0.5
return (1 - (place[:, None] - torch.arange(old)).abs()).clamp(min=0)""",
    ("half_on_class", "the modes are swapped"): "return uniform_over_patches, uniform_over_patches / 2",
    ("in_block_order", "the order of the names"): "return sorted(names)",
    ("looks_right", "wraps round to the next row"): """\
patch = torch.arange(rows * cols)
return torch.eye(rows * cols)[(patch + 1) % (rows * cols)][None, None]""",
    (
        "share_local",
        "untrained models are counted in",
    ): 'return (heads[column] < limit).groupby(heads["block"]).mean().tolist()',
    ("distance_of", "the class token dropped from the wrong end"): """\
number = torch.arange(grid[0] * grid[1])
place = torch.stack([number // grid[1], number % grid[1]], dim=1) * float(patch)
return (attn[..., :-1, :-1] * torch.cdist(place, place)).sum(-1).mean(-1)""",
    ("uniform_rollout", "spread over the other tokens only"): "return (1 - 0.5**n_blocks) / (n_tokens - 1)",
    ("with_skip", "no keepdim"): """\
mixed = fused + torch.eye(fused.shape[-1])
return mixed / mixed.sum(-1)""",
    ("class_row", "whole matrices"): """\
rolled = torch.eye(maps[0].shape[-1])
for attn in maps:
    rolled = (attn.mean(1) + torch.eye(attn.shape[-1])) / 2 @ rolled
return rolled[:, 0]""",
    ("mass_by_depth", "the last blocks, not the first"): """\
depths = range(1, len(maps) + 1)
return [mass_inside(open_rollout(maps[-k:], grid, n_prefix)[1], masks).mean().item() for k in depths]""",
    ("discard", "the first image only, with everybody's entries"): """\
flat = fused.flatten(1).clone()
lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
flat[0, lowest] = 0
return flat.view_as(fused)""",
    ("best_constant_loss", "bits for nats"): """\
_, counts = np.unique(codes, return_counts=True)
p = counts / counts.sum()
return float(-(p * np.log2(p)).sum())""",
    ("colour", "the lower end of the range"): """\
red, rest = divmod(code, 64)
green, blue = divmod(rest, 8)
return tuple(32 * level for level in (red, green, blue))""",
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
}
