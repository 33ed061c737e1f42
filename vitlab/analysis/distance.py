"""Mean attention distance: how far, in pixels, each head looks (§4.5, Fig. 7 right, Fig. 11, App. D.7)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor, nn

from vitlab.analysis.attention import check_attention, grid_size, n_prefix_tokens, patch_stride, reduce_attention, widen

DISTANCE_COLUMNS = {"paper": "distance_px", "renormalized": "renormalized_px"}  # mode → its name in tables


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
    return distance_reducer(grid, stride, n_prefix, mode)(0, widen(attn))


def distance_reducer(
    grid: tuple[int, int], stride: int | tuple[int, int], n_prefix: int, mode: str = "paper"
) -> Callable[[int, Tensor], Tensor]:
    """Make `attention_distance` a reducer for `reduce_attention`: of any group of heads, unchecked."""
    if mode not in DISTANCE_COLUMNS:
        raise ValueError(f"mode {mode!r} given, expected 'paper' or 'renormalized'")
    distances = pixel_distances(grid, stride, torch.float64)
    n_patches = len(distances)
    weights = torch.zeros(n_prefix + n_patches, n_prefix + n_patches, dtype=torch.float64)
    weights[n_prefix:, n_prefix:] = distances / n_patches  # zero for prefix tokens: no slice of attn is copied

    def reduce(block: int, attn: Tensor) -> Tensor:
        nonlocal weights
        weights = weights.to(attn)  # rounded once, in a copy that is kept
        if mode == "paper":
            return (attn * weights).sum((-2, -1))  # not a product with a long vector: that rounds too much
        on_patches = attn[..., n_prefix:, n_prefix:].sum(-1)
        return ((attn * weights).sum(-1)[..., n_prefix:] / on_patches.clamp_min(torch.finfo(attn.dtype).tiny)).sum(-1)

    return reduce


def mass_reducer(n_prefix: int) -> Callable[[int, Tensor], Tensor]:
    """Make a reducer of the attention that query patches pay to prefix tokens, [B h], averaged over them; 0…1."""
    return lambda block, attn: attn[..., n_prefix:, :n_prefix].sum(-1).mean(-1)


def head_reducers(model: nn.Module, images: Tensor) -> dict[str, Callable[[int, Tensor], Tensor]]:
    """Make reducers of every head's distance_px, renormalized_px (the two modes, in pixels) and prefix_mass (0…1)."""
    about = grid_size(model, images), patch_stride(model), n_prefix_tokens(model)
    distances = {name: distance_reducer(*about, mode) for mode, name in DISTANCE_COLUMNS.items()}
    return distances | {"prefix_mass": mass_reducer(about[2])}


def mean_attention_distance(model: nn.Module, images: Tensor, mode: str = "paper") -> Float[Tensor, "B L H"]:
    """Compute `attention_distance` of every image, block and head, in input pixels; the paper averages 128 images."""
    return distance_and_mass(model, images, mode)[0]


def distance_and_mass(
    model: nn.Module, images: Tensor, mode: str = "paper"
) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L H"]]:
    """Compute `mean_attention_distance` and the mass on prefix tokens from one pass."""
    about = grid_size(model, images), patch_stride(model), n_prefix_tokens(model)
    reducers = {"distance": distance_reducer(*about, mode), "mass": mass_reducer(about[2])}
    found = reduce_attention(model, images, reducers, by_heads=True)
    return torch.stack(found["distance"], dim=1), torch.stack(found["mass"], dim=1)


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


def local_share(distances: Float[Tensor, "B L H"], below: float) -> Float[Tensor, "B L"]:
    """Compute the share of a block's heads whose distance is below a limit in pixels (C13: fewer in hybrids)."""
    return (distances < below).float().mean(-1)
