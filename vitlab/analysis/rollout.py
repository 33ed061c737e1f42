"""Attention rollout: which patches the head draws on through all blocks (§4.5, Fig. 6, 14, App. D.8).

Abnar & Zuidema (2020): each block's attention, averaged over heads, is mixed half and half with the identity for the
skip connection, and the blocks are multiplied. Only one row of the product is wanted, so a row vector is carried
from the last block down: T² a block in place of T³.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.analysis.attention import grid_size, n_prefix_tokens, read_weights, reduce_attention

_FUSIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {  # of heads, of groups of heads
    "mean": (torch.sum, torch.add),  # divided last
    "max": (torch.amax, torch.maximum),
    "min": (torch.amin, torch.minimum),
}


def attention_rollout(
    model: nn.Module, images: Tensor, *, head_fusion: str = "mean", discard_ratio: float = 0.0
) -> Float[Tensor, "B rows cols"]:
    """Roll attention out from where the head reads to every patch, in one pass over the images.

    That is the class token's row, as in the paper, or the mean of the rows of all that the head reads, weighted as an
    attention pool does (`read_weights`). With what stays on prefix tokens values sum to 1; `overlay` makes the paper's
    picture.

    `head_fusion`: over heads, "mean" (the paper), "max" or "min". `discard_ratio`: share of each image's smallest fused
    attention to patches set to 0 in each block; paper: 0.
    """
    grid, n_prefix, start = grid_size(model, images), n_prefix_tokens(model), read_weights(model, images)
    update, finish = rollout_reducer(grid, n_prefix, start, head_fusion, discard_ratio)
    reduce_attention(model, images, {"rollout": update}, by_heads=True)
    return finish()


def rollout_reducer(
    grid: tuple[int, int], n_prefix: int, start: Tensor, head_fusion: str = "mean", discard_ratio: float = 0.0
) -> tuple[Callable[[int, Tensor], None], Callable[[], Float[Tensor, "B rows cols"]]]:
    """Make rollout a reducer for `reduce_attention`: (update, finish) serve one pass; finish() gives the map.

    `start` [B T] are the shares with which the head reads the last block's tokens, as `read_weights` gives them. This
    row vector starts at the last block, the forward at the first, so head-fused blocks wait, at most as many as a block
    has heads: together one block's attention. In a deeper model the oldest two are multiplied into one.
    """
    if head_fusion not in _FUSIONS:
        raise ValueError(f"head_fusion {head_fusion!r} given, expected one of {', '.join(_FUSIONS)}")
    if not 0 <= discard_ratio < 1:
        raise ValueError(f"discard_ratio {discard_ratio} given, expected a share from 0 up to, not including, 1")
    fuse, combine = _FUSIONS[head_fusion]
    waiting: list[Tensor] = []
    current: list[Tensor] = []  # the block coming in: its heads fused so far
    n_heads = block_now = 0

    def update(block: int, attn: Tensor) -> None:
        nonlocal n_heads, block_now
        if block != block_now:
            close()
            block_now, n_heads = block, 0
        n_heads += attn.shape[1]
        part = fuse(attn, dim=1)
        current[:] = [combine(current[0], part) if current else part]

    def close() -> None:
        fused = current.pop() / n_heads if head_fusion == "mean" else current.pop()
        to_patches = fused[..., n_prefix:].flatten(1)
        if count := int(discard_ratio * to_patches.shape[1]):  # prefix columns stay
            lowest = to_patches.topk(count, dim=1, largest=False, sorted=False).indices
            kept = to_patches.scatter(1, lowest, 0.0).unflatten(1, (fused.shape[1], -1))
            fused = torch.cat([fused[..., :n_prefix], kept], dim=-1)
        waiting.append(_with_skip(fused))
        if len(waiting) > n_heads:
            waiting[:2] = [_product(waiting[1], waiting[0])]

    def finish() -> Tensor:
        close()
        row = start[:, None].to(waiting[0])
        for block in reversed(waiting):
            row = _product(row, block)
        return row[:, 0, n_prefix:].unflatten(-1, grid)

    return update, finish


def rollout_matrix(maps: Sequence[Float[Tensor, "B H T T"]]) -> Float[Tensor, "B T T"]:
    """Multiply the textbook product R = Â_L ··· Â_1 with Â = rows of (mean over heads + I) normalised to 1."""
    product = torch.eye(maps[0].shape[-1]).to(maps[0])
    for attn in maps:
        product = _product(_with_skip(attn.mean(1)), product)
    return product


def overlay(
    rollout: Float[Tensor, "B rows cols"], size: tuple[int, int], smooth: bool = True, stride: Sequence[int] = ()
) -> Float[Tensor, "B height width"]:
    """Divide rollout by its maximum, then enlarge it to (height, width) pixels, to multiply the image with (Fig. 6).

    `smooth`: bilinear, as the paper's picture; False gives the exact patch grid, one value a patch. With the `stride`
    of patches, what lies beyond the image, where a model pads it, is cut off.
    """
    whole = tuple(side * step for side, step in zip(rollout.shape[1:], stride, strict=True)) if stride else size
    weights = rollout / rollout.amax((1, 2), keepdim=True).clamp_min(torch.finfo(rollout.dtype).tiny)
    enlarged = F.interpolate(weights[:, None], whole, mode="bilinear" if smooth else "nearest-exact")
    return enlarged[:, 0, : size[0], : size[1]]


def _product(left: Float[Tensor, "... S T"], right: Float[Tensor, "... T U"]) -> Float[Tensor, "... S U"]:
    """Multiply in the operands' own precision: the caller's autocast would round it, block after block."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def _with_skip(fused: Float[Tensor, "B T T"]) -> Float[Tensor, "B T T"]:
    """Add the identity, for the skip connection, and make every row sum to 1; for a mean that is half and half."""
    mixed = fused + torch.eye(fused.shape[-1], dtype=fused.dtype, device=fused.device)
    return mixed.div_(mixed.sum(-1, keepdim=True))
