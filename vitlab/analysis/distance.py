"""Mean attention distance: how far, in pixels, each head looks (§4.5, Fig. 7 right, Fig. 11, App. D.7)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor, nn

from vitlab.analysis.capture import grid_size, n_prefix_tokens, patch_stride, reduce_attention
from vitlab.analysis.geometry import check_attention, check_rows, check_shape, image_batches


def pixel_distances(
    grid: tuple[int, int], stride: int | tuple[int, int], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "N N"]:
    """Euclidean distance in input pixels between the centres of every two patches, row by row.

    Args:
        grid: rows and columns of patches.
        stride: pixels from one patch to the next; (down, across) when they differ. For a hybrid the total stride.

    Raises:
        ValueError: when a size is below 1.

    >>> pixel_distances((1, 3), 16)
    tensor([[ 0., 16., 32.],
            [16.,  0., 16.],
            [32., 16.,  0.]])
    """
    rows, cols = grid
    down, across = (stride, stride) if isinstance(stride, int) else stride
    if min(rows, cols, down, across) < 1:
        raise ValueError(f"grid {grid} and stride {stride} given, expected sizes of at least 1")
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
    """Attention-weighted distance between query and key patches, averaged over query patches; in input pixels.

    Prefix tokens are dropped as queries and as keys. What happens to the mass that was on them is the mode:
    "paper" leaves the rows as they are, as the authors' code does, so that this mass counts as distance 0;
    "renormalized" makes each row sum to 1 again (a row with no mass on patches counts 0). Show `prefix_mass` beside.

    Args:
        attn: after the softmax, [batch, heads, query, key].
        grid, stride: as for `pixel_distances`.
        n_prefix: tokens before the patches.

    Raises:
        ValueError: when attn does not fit grid and n_prefix, holds NaN, or has rows that do not sum to 1.

    >>> uniform = torch.full((1, 1, 197, 197), 1 / 197)
    >>> attention_distance(uniform, (14, 14), 16, n_prefix=1)
    tensor([[115.9009]])
    >>> attention_distance(uniform, (14, 14), 16, n_prefix=1, mode="renormalized")
    tensor([[116.4922]])
    """
    check_attention(attn, grid, n_prefix)
    return distance_reducer(grid, stride, n_prefix, mode)(0, _wide(attn))


def prefix_mass(attn: Float[Tensor, "B H T T"], n_prefix: int) -> Float[Tensor, "B H"]:
    """Attention that query patches pay to prefix tokens, averaged over query patches; 0…1.

    Raises:
        ValueError: when there are no patches besides the prefix, or rows do not sum to 1.

    >>> prefix_mass(torch.full((1, 1, 5, 5), 1 / 5), n_prefix=1)
    tensor([[0.2000]])
    """
    check_shape(attn, "attn", "batch", "heads", "queries", "keys")
    if not 0 <= n_prefix < attn.shape[-1]:
        raise ValueError(f"n_prefix {n_prefix} given, expected 0…{attn.shape[-1] - 1} for {attn.shape[-1]} tokens")
    check_rows(attn, "attn")
    return mass_reducer(n_prefix)(0, _wide(attn))


def distance_reducer(
    grid: tuple[int, int], stride: int | tuple[int, int], n_prefix: int, mode: str = "paper"
) -> Callable[[int, Tensor], Tensor]:
    """`attention_distance` as a reducer for `capture.reduce_attention`; any group of heads, unchecked.

    >>> distance_reducer((2, 2), 16, 1)(0, torch.eye(5)[None, None])
    tensor([[0.]])
    """
    if mode not in ("paper", "renormalized"):
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
        numerator = (attn * weights).sum(-1)[..., n_prefix:]
        on_patches = attn[..., n_prefix:, n_prefix:].sum(-1)
        return (numerator / on_patches.clamp_min(torch.finfo(attn.dtype).tiny)).sum(-1)

    return reduce


def mass_reducer(n_prefix: int) -> Callable[[int, Tensor], Tensor]:
    """`prefix_mass` as a reducer for `capture.reduce_attention`; any group of heads, unchecked.

    >>> mass_reducer(1)(0, torch.full((1, 1, 5, 5), 1 / 5))
    tensor([[0.2000]])
    """
    return lambda block, attn: attn[..., n_prefix:, :n_prefix].sum(-1).mean(-1)


def mean_attention_distance(
    model: nn.Module, images: Tensor, mode: str = "paper", *, batch_size: int | None = None
) -> Float[Tensor, "B L H"]:
    """`attention_distance` of every image, block and head, in input pixels; the paper averages 128 images.

    Args:
        model: any ViT that `capture` sees into.
        images: [B 3 H W], normalised as the model expects.
        batch_size: images per forward; None takes all at once.

    Raises:
        ValueError: as `capture.reduce_attention`, for an unknown mode, and a batch size below 1.

    >>> import timm
    >>> mean_attention_distance(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160)).shape
    torch.Size([1, 6, 2])
    """
    return distance_and_mass(model, images, mode, batch_size=batch_size)[0]


def distance_and_mass(
    model: nn.Module, images: Tensor, mode: str = "paper", *, batch_size: int | None = None
) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L H"]]:
    """`mean_attention_distance` and the mass on prefix tokens, from one pass.

    >>> import timm
    >>> distance, mass = distance_and_mass(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160))
    >>> distance.shape == mass.shape
    True
    """
    batches, n_prefix = image_batches(model, images, batch_size), n_prefix_tokens(model)
    reducers = {
        "distance": distance_reducer(grid_size(model, images), patch_stride(model), n_prefix, mode),
        "mass": mass_reducer(n_prefix),
    }
    parts = [reduce_attention(model, part, reducers, by_heads=True) for part in batches]
    distance, mass = (torch.cat([torch.stack(part[name], dim=1) for part in parts]) for name in reducers)
    return distance, mass


def depth_trend(distances: Float[Tensor, "B L H"]) -> Float[Tensor, " B"]:
    """Spearman's rank correlation between a block's number and its mean distance over heads, per image (C12).

    1 when distance grows from every block to the next, -1 when it falls, NaN when it is the same in all.

    Raises:
        ValueError: when the distances are not [batch, blocks, heads].

    >>> depth_trend(torch.tensor([[[1.0, 3.0], [2.0, 4.0], [9.0, 9.0]]]))
    tensor([1.])
    """
    check_shape(distances, "distances", "batch", "blocks", "heads")
    numbers = list(range(distances.shape[1]))
    return torch.tensor([_spearman(numbers, image.mean(-1).tolist()) for image in distances])


def head_spread(distances: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
    """Largest minus smallest distance among a block's heads, in the unit of the distances (C12).

    >>> head_spread(torch.tensor([[[10.0, 51.0, 80.0]]]))
    tensor([[70.]])
    """
    check_shape(distances, "distances", "batch", "blocks", "heads")
    return distances.amax(-1) - distances.amin(-1)


def local_share(distances: Float[Tensor, "B L H"], below: float) -> Float[Tensor, "B L"]:
    """Share of a block's heads whose distance is below a limit in pixels (C13: local heads, fewer in hybrids).

    >>> local_share(torch.tensor([[[10.0, 51.0, 80.0, 90.0]]]), below=60)
    tensor([[0.5000]])
    """
    check_shape(distances, "distances", "batch", "blocks", "heads")
    return (distances < below).float().mean(-1)


def _wide(attn: Tensor) -> Tensor:
    """At least float32: sums over hundreds of tokens are no business of half precision."""
    return attn.to(torch.promote_types(attn.dtype, torch.float32))


def _spearman(a: list, b: list) -> float:
    return float("nan") if len(set(b)) < 2 else float(stats.spearmanr(a, b).statistic)
