"""Mean attention distance: how far, in pixels, each head looks (§4.5, Fig. 7 right, Fig. 11, App. D.7)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor, nn

from vitlab.analysis.attention import check_attention, grid_size, n_prefix_tokens, patch_stride, reduce_attention, widen

DISTANCE_COLUMNS = {"paper": "distance_px", "renormalized": "renormalized_px"}  # mode → its name in tables
HEAD_COLUMNS = (*DISTANCE_COLUMNS.values(), "prefix_mass")  # pixels, pixels, 0…1


def pixel_distances(
    grid: tuple[int, int], stride: int | tuple[int, int], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "N N"]:
    """Compute the Euclidean distance in input pixels between the centres of every two patches, row by row.

    `stride`: pixels from one patch to the next; (down, across) when they differ. For a hybrid the total stride.
    """
    rows, cols = grid
    down, across = (stride, stride) if isinstance(stride, int) else stride
    y = torch.arange(rows, dtype=torch.float64).repeat_interleave(cols) * down
    x = torch.arange(cols, dtype=torch.float64).repeat(rows) * across
    return torch.hypot(y[:, None] - y, x[:, None] - x).to(dtype)


def attention_distance(
    attn: Float[Tensor, "B H T T"],
    grid: tuple[int, int],
    stride: int | tuple[int, int],
    n_prefix: int,
    mode: str = "paper",
) -> Float[Tensor, "B H"]:
    """Average the attention-weighted distance between query and key patches over query patches; in input pixels.

    Prefix tokens are dropped as queries and keys. Mode "paper" leaves rows as they are, as the authors' code does: mass
    on them counts as distance 0; "renormalized" makes rows sum to 1 again (one with no mass on patches counts 0).
    """
    check_attention(attn, grid, n_prefix)
    return head_reducer(grid, stride, n_prefix)(0, widen(attn))[..., column(mode)]


def column(mode: str) -> int:
    """Find the column of a mode's distance among `HEAD_COLUMNS`."""
    if mode not in DISTANCE_COLUMNS:
        raise ValueError(f"mode {mode!r} given, expected 'paper' or 'renormalized'")
    return HEAD_COLUMNS.index(DISTANCE_COLUMNS[mode])


def head_reducer(
    grid: tuple[int, int], stride: int | tuple[int, int], n_prefix: int
) -> Callable[[int, Tensor], Float[Tensor, "B h 3"]]:
    """Make a reducer for `reduce_attention`, of any group of heads, unchecked, of the `HEAD_COLUMNS` of each head.

    That is its `attention_distance` in both modes and the attention that query patches pay to prefix tokens.
    """
    distances = pixel_distances(grid, stride, torch.float64)
    weights = nn.functional.pad(distances / len(distances), (n_prefix, 0, n_prefix, 0))  # no slice of attn is copied

    def reduce(block: int, attn: Tensor) -> Tensor:
        nonlocal weights
        weights = weights.to(attn)  # rounded once, in a copy that is kept
        far = (attn * weights).sum(-1)[..., n_prefix:]  # of each query; a product with a long vector rounds too much
        on_patches, mass = attn[..., n_prefix:, n_prefix:].sum(-1), attn[..., n_prefix:, :n_prefix].sum(-1).mean(-1)
        renormalized = far / on_patches.clamp_min(torch.finfo(attn.dtype).tiny)
        return torch.stack([far.sum(-1), renormalized.sum(-1), mass], -1)

    return reduce


def mean_attention_distance(model: nn.Module, images: Tensor, mode: str = "paper") -> Float[Tensor, "B L H"]:
    """Compute `attention_distance` of every image, block and head, in input pixels; the paper averages 128 images."""
    return distance_and_mass(model, images, mode)[0]


def distance_and_mass(
    model: nn.Module, images: Tensor, mode: str = "paper"
) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L H"]]:
    """Compute `mean_attention_distance` and the mass on prefix tokens from one pass."""
    wanted = column(mode)
    reducer = head_reducer(grid_size(model, images), patch_stride(model), n_prefix_tokens(model))
    found = torch.stack(reduce_attention(model, images, {"heads": reducer}, by_heads=True)["heads"], 1)
    return found[..., wanted], found[..., -1]


def depth_trend(distances: Float[Tensor, "B L H"]) -> Float[Tensor, " B"]:
    """Compute Spearman's rank correlation of a block's number with its mean distance over heads, per image (C12).

    1 when distance grows from every block to the next, -1 when it falls, NaN when it is the same in all.
    """
    trends = []
    for means in distances.mean(-1).tolist():
        trends.append(torch.nan if len(set(means)) < 2 else float(stats.spearmanr(range(len(means)), means).statistic))
    return torch.tensor(trends)


def head_spread(distances: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
    """Subtract the smallest distance among a block's heads from the largest, in the unit of the distances (C12)."""
    return distances.amax(-1) - distances.amin(-1)
