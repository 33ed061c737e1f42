"""Mistakes in notebook 07: (exercise, what is wrong) → what stands in place of the solution."""

WRONG = {
    (1, "neighbours in the table, across the picture's edge"): """\
N = S.shape[0] * S.shape[1]
table = S.reshape(N, N)
return table.diagonal(1).mean().item(), table.diagonal(S.shape[1]).mean().item()""",
    (1, "row and column swapped"): """\
along_row = torch.einsum("ijij->ij", S[:, :-1, :, 1:])
along_column = torch.einsum("ijij->ij", S[:-1, :, 1:, :])
return along_column.mean().item(), along_row.mean().item()""",
    (1, "every pair of the two slices"): "return S[:, :-1, :, 1:].mean().item(), S[:-1, :, 1:, :].mean().item()",
    (2, "the last row dropped, not the class token's"): """\
pos = stored[:-1]
pos = pos / pos.norm(dim=1, keepdim=True)
return (pos @ pos.T).reshape(*grid, *grid)""",
    (2, "the dot product"): """\
pos = stored[1:]
return (pos @ pos.T).reshape(*grid, *grid)""",
    (2, "the dot product divided by its largest value"): """\
pos = stored[1:]
S = pos @ pos.T
return (S / S.max()).reshape(*grid, *grid)""",
    (2, "normalised along the wrong axis"): """\
pos = stored[1:]
pos = pos / pos.norm(dim=0, keepdim=True)
return (pos @ pos.T).reshape(*grid, *grid)""",
    (3, "the cross: row and column codes"): """\
row_code = torch.eye(height).repeat_interleave(width, dim=0)
bumps = torch.cat([row_code, torch.eye(width).repeat(height, 1)], dim=1)""",
    (3, "bumps cut off at the picture's edge"): """\
y = torch.arange(height).repeat_interleave(width)[:, None].float()
x = torch.arange(width).repeat(height)[:, None].float()
bumps = torch.exp(-((y - y.T) ** 2 + (x - x.T) ** 2) / (2 * 2.0**2))""",
    (4, "corners not on corners"): """\
place = (torch.arange(new) + 0.5) * old / new - 0.5
return (1 - (place[:, None] - torch.arange(old)).abs()).clamp(min=0)""",
    (4, "negative shares for far places"): """\
place = torch.linspace(0, old - 1, new)
return 1 - (place[:, None] - torch.arange(old)).abs()""",
    (4, "transposed"): """\
place = torch.linspace(0, old - 1, new)
return (1 - (place - torch.arange(old)[:, None]).abs()).clamp(min=0)""",
}
