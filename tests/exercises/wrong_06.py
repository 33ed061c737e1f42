"""Mistakes in notebook 06: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "singular values, not their squares"): "enough = int(((s / s.sum()).cumsum(0) < 0.9).sum()) + 1",
    (1, "one too few"): "enough = int(((s**2 / (s**2).sum()).cumsum(0) < 0.9).sum())",
    (2, "the transpose: pixels as samples"): """\
E = weights.flatten(1).T
E = E - E.mean(dim=0)
U, S, _ = torch.linalg.svd(E, full_matrices=False)
return (U * S)[:, :count].T.unflatten(1, weights.shape[1:])""",
    (2, "the mean filter stays"): """\
axes = torch.linalg.svd(weights.flatten(1), full_matrices=False)[2]
return axes[:count].unflatten(1, weights.shape[1:])""",
    (2, "scaled by the variance"): """\
rows = weights.flatten(1)
_, S, axes = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False)
return (S[:, None] * axes)[:count].unflatten(1, weights.shape[1:])""",
    (3, "the mean's energy is not three channels'"): """\
return components.mean(dim=1).square().sum((1, 2)) / components.square().sum((1, 2, 3))""",
    (3, "one share for all components together"): """\
share = 3 * components.mean(dim=1).square().sum() / components.square().sum()
return share.expand(len(components))""",
    (3, "the mean over pixels, not over channels"): """\
grey = components.mean(dim=(2, 3))
return 64 * grey.square().sum(1) / components.square().sum((1, 2, 3))""",
    (4, "the mean filter is not put back"): """\
centre = samples - samples.mean(dim=0)
basis = torch.linalg.svd(centre, full_matrices=False)[2][:count]
return centre @ basis.T @ basis""",
    (4, "nothing is centred"): """\
basis = torch.linalg.svd(samples, full_matrices=False)[2][:count]
return samples @ basis.T @ basis""",
}
