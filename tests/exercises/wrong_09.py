"""Mistakes in notebook 09: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "spread over the other tokens only"): "return (1 - 0.5**n_blocks) / (n_tokens - 1)",
    (1, "what stays, not what has been mixed"): "return 0.5**n_blocks / n_tokens",
    (2, "no keepdim"): """\
mixed = fused + torch.eye(fused.shape[-1])
return mixed / mixed.sum(-1)""",
    (2, "columns"): """\
mixed = fused + torch.eye(fused.shape[-1])
return mixed / mixed.sum(-2, keepdim=True)""",
    (2, "half and half, whatever the rows sum to"): "return 0.5 * fused + 0.5 * torch.eye(fused.shape[-1])",
    (2, "normalised before the identity is added"): """\
fused = fused / fused.sum(-1, keepdim=True).clamp(min=1e-9)
return (fused + torch.eye(fused.shape[-1])) / 2""",
    (3, "first block first"): """\
identity = torch.eye(maps[0].shape[-1])
row = identity[:1].repeat(len(maps[0]), 1, 1)
for attn in maps:
    row = row @ ((attn.mean(1) + identity) / 2)
return row[:, 0]""",
    (3, "whole matrices"): """\
rolled = torch.eye(maps[0].shape[-1])
for attn in maps:
    rolled = (attn.mean(1) + torch.eye(attn.shape[-1])) / 2 @ rolled
return rolled[:, 0]""",
    (3, "no identity"): """\
row = torch.eye(maps[0].shape[-1])[:1].repeat(len(maps[0]), 1, 1)
for attn in reversed(maps):
    row = row @ attn.mean(1)
return row[:, 0]""",
    (3, "one image of the batch for all"): """\
identity = torch.eye(maps[0].shape[-1])
row = identity[:1]
for attn in reversed(maps):
    row = row @ ((attn[0].mean(0) + identity) / 2)
return row.repeat(len(maps[0]), 1)""",
    (4, "the last blocks, not the first"): """\
depths = range(1, len(maps) + 1)
return [mass_inside(open_rollout(maps[-k:], grid, n_prefix)[1], masks).mean().item() for k in depths]""",
    (4, "one block at a time"): """\
return [mass_inside(open_rollout([attn], grid, n_prefix)[1], masks).mean().item() for attn in maps]""",
    (4, "begins with no block"): """\
depths = range(1, len(maps))
return [mass_inside(open_rollout(maps[:k], grid, n_prefix)[1], masks).mean().item() for k in depths]""",
    (5, "the first image only, with everybody's entries"): """\
flat = fused.flatten(1).clone()
lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
flat[0, lowest] = 0
return flat.view_as(fused)""",
    (5, "in place"): """\
flat = fused.view(len(fused), -1)
lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
flat.scatter_(1, lowest, 0.0)
return fused""",
    (5, "the smallest of the whole batch"): """\
flat = fused.flatten()
lowest = flat.topk(int(ratio * len(flat)), largest=False).indices
return flat.scatter(0, lowest, 0.0).view_as(fused)""",
}
