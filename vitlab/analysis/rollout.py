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

from vitlab.analysis.capture import attention_gradients, grid_size, n_prefix_tokens, reduce_attention
from vitlab.analysis.geometry import (
    check_attention,
    check_model,
    check_shape,
    has_class_token,
    image_batches,
    reads_class_token,
)

_REDUCE: dict[str, Callable[..., Tensor]] = {
    "mean": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}  # over the heads of a block; a mean is divided last
# of groups of heads
_COMBINE: dict[str, Callable[..., Tensor]] = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}


def attention_rollout(
    model: nn.Module,
    images: Tensor,
    *,
    start: str | None = None,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    batch_size: int | None = None,
) -> Float[Tensor, "B rows cols"]:
    """Rollout from where the head reads to every patch, in one pass over the images.

    Values are the row of the product itself: they sum to 1 together with what stays on prefix tokens. For the paper's
    picture divide by the maximum (`overlay`).

    Args:
        model: any ViT that `capture` sees into.
        images: [B 3 H W], normalised as the model expects.
        start: "class": the row of the class token, as in the paper; "patches": the mean over the rows of all patches.
            None: where the head reads, by the model's pooling: "class" for the class token ("token" in timm, and where
            nothing else is said), "patches" for "avg", "max", "avgmax" and attention pooling, also where there is a
            class token that the head does not read (BEiT, EVA-02, DINOv3 in timm). Registers are no class token.
        head_fusion: over heads, "mean" (the paper), "max" or "min".
        discard_ratio: share of each image's smallest fused attention to patches set to 0 in each block; paper: 0.
        batch_size: images per forward; None takes all at once.

    Raises:
        ValueError: as `capture.reduce_attention`, for an unknown head_fusion, a discard_ratio outside [0, 1), a
            batch size below 1, and a start that the model does not have.

    >>> import timm
    >>> attention_rollout(timm.create_model("test_vit"), torch.zeros(2, 3, 160, 160)).shape
    torch.Size([2, 10, 10])
    """
    maps, from_class = [], _from_class(model, start)
    for part in image_batches(model, images, batch_size):
        update, finish = rollout_reducer(
            grid_size(model, part), n_prefix_tokens(model), from_class, head_fusion, discard_ratio
        )
        reduce_attention(model, part, {"rollout": update}, by_heads=True)
        maps.append(finish())
    return torch.cat(maps)


def rollout_from_maps(
    maps: Sequence[Float[Tensor, "B H T T"]],
    grid: tuple[int, int],
    n_prefix: int = 1,
    *,
    class_token: bool | None = None,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
) -> Float[Tensor, "B rows cols"]:
    """`attention_rollout` of attention maps at hand, first block first.

    Args:
        class_token: start from token 0, the class token, and not from all patches alike, for a head that reads it;
            None does so where there is any prefix token.

    Raises:
        ValueError: when there are no maps, or one does not fit grid and n_prefix.

    >>> uniform = torch.full((1, 2, 5, 5), 1 / 5)
    >>> rollout_from_maps([uniform], (2, 2))
    tensor([[[0.1000, 0.1000],
             [0.1000, 0.1000]]])
    """
    if len(maps) == 0:
        raise ValueError("no attention maps given, expected one per block")
    from_class = n_prefix > 0 if class_token is None else class_token
    update, finish = rollout_reducer(grid, n_prefix, from_class, head_fusion, discard_ratio)
    for block, attn in enumerate(maps):
        check_attention(attn, grid, n_prefix)
        update(block, _precise(attn))
    return finish()


def rollout_reducer(
    grid: tuple[int, int],
    n_prefix: int,
    class_token: bool,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
) -> tuple[Callable[[int, Tensor], None], Callable[[], Float[Tensor, "B rows cols"]]]:
    """Rollout for `capture.reduce_attention`: (update, finish). One pair serves one pass; finish() gives the map.

    The row vector starts at the last block, the forward at the first, so head-fused blocks wait, at most as many as
    a block has heads: together one block's attention. In a deeper model the oldest two are multiplied into one.

    >>> update, finish = rollout_reducer((2, 2), 1, class_token=True)
    >>> update(0, torch.eye(5)[None, None])
    >>> finish().sum()
    tensor(0.)
    """
    _check_options(head_fusion, discard_ratio)
    waiting: list[Tensor] = []
    current: list[Tensor] = []  # the block coming in: its heads fused so far
    n_heads = block_now = 0

    def update(block: int, attn: Tensor) -> None:
        nonlocal n_heads, block_now
        if block != block_now:
            close()
            block_now, n_heads = block, 0
        n_heads += attn.shape[1]
        part = _REDUCE[head_fusion](attn, dim=1)
        current[:] = [_COMBINE[head_fusion](current[0], part) if current else part]

    def close() -> None:
        fused = current.pop() / n_heads if head_fusion == "mean" else current.pop()
        waiting.append(_with_skip(_discard_lowest(fused, discard_ratio, n_prefix)))
        if len(waiting) > n_heads:
            waiting[:2] = [_product(waiting[1], waiting[0])]

    def finish() -> Tensor:
        close()
        row = _start(waiting[0], n_prefix, class_token)
        for block in reversed(waiting):
            row = _product(row, block)
        return row[:, 0, n_prefix:].unflatten(-1, grid)

    return update, finish


def rollout_matrix(maps: Sequence[Float[Tensor, "B H T T"]], head_fusion: str = "mean") -> Float[Tensor, "B T T"]:
    """The textbook product R = Â_L ··· Â_1 with Â = rows of (mean over heads + I) normalised to 1; for teaching.

    Raises:
        ValueError: when there are no maps, or one is no attention.

    >>> rollout_matrix([torch.eye(3)[None, None]] * 4)[0].equal(torch.eye(3))
    True
    """
    _check_options(head_fusion, 0.0)
    for attn in maps:
        check_shape(attn, "attn", "batch", "heads", "queries", "keys")
        if not (attn.isfinite() & (attn >= 0)).all():  # rows need not sum to 1: they are normalised below
            raise ValueError("attn holds NaN, infinity or a negative number, expected attention after the softmax")
    if len(maps) == 0:
        raise ValueError("no attention maps given, expected one per block")
    product = torch.eye(maps[0].shape[-1]).to(maps[0])
    for attn in maps:
        product = _product(_with_skip(_fuse(attn, head_fusion)), product)
    return product


def class_attention(
    attn: Float[Tensor, "B H T T"],
    grid: tuple[int, int],
    n_prefix: int = 1,
    *,
    class_token: bool | None = None,
    head_fusion: str = "mean",
) -> Float[Tensor, "B rows cols"]:
    """One block's raw attention from the class token to the patches (mean over query patches if there is none).

    >>> class_attention(torch.full((1, 2, 5, 5), 1 / 5), (2, 2)).sum()
    tensor(0.8000)
    """
    check_attention(attn, grid, n_prefix)
    _check_options(head_fusion, 0.0)
    fused = _fuse(attn, head_fusion)
    start = _start(fused, n_prefix, n_prefix > 0 if class_token is None else class_token)
    row = _product(start, fused)
    return row[:, 0, n_prefix:].unflatten(-1, grid)


def last_block_attention(
    model: nn.Module, images: Tensor, *, start: str | None = None, head_fusion: str = "mean"
) -> Float[Tensor, "B rows cols"]:
    """`class_attention` of the last block, which rollout is often compared with; `start` as for `attention_rollout`.

    >>> import timm
    >>> last_block_attention(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160)).shape
    torch.Size([1, 10, 10])
    """
    from_class, grid, n_prefix = _from_class(model, start), grid_size(model, images), n_prefix_tokens(model)

    def last_only(block: int, attn: Tensor) -> Tensor | None:
        if block < len(model.blocks) - 1:
            return None
        return class_attention(attn, grid, n_prefix, class_token=from_class, head_fusion=head_fusion)

    return reduce_attention(model, images, {"last": last_only})["last"][-1]


def gradient_rollout(
    model: nn.Module, images: Tensor, targets: Tensor | None = None, *, start: str | None = None
) -> Float[Tensor, "B rows cols"]:
    """Gradient-weighted rollout of Chefer et al. (ICCV 2021), specific to a class: not the paper's, for comparison.

    R = (I + Ē_L) ··· (I + Ē_1), where Ē is the mean over heads of the positive part of attention times the gradient
    of the class's logit. Each block is paired with its own gradient. Rows are not normalised.

    Args:
        targets: [B] classes; None takes each image's highest logit.
        start: as for `attention_rollout`. From a class token that the head does not read no gradient comes back.

    Raises:
        ValueError: as `capture.attention_gradients`, and for a start that the model does not have.

    >>> import timm
    >>> gradient_rollout(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160)).shape
    torch.Size([1, 10, 10])
    """
    from_class, n_prefix = _from_class(model, start), n_prefix_tokens(model)
    maps, grads = attention_gradients(model, images, targets)
    row = _start(_precise(maps[-1][:, 0]), n_prefix, from_class)
    for attn, grad in zip(reversed(maps), reversed(grads), strict=True):
        row = row + _product(row, (_precise(attn) * _precise(grad)).clamp_min(0).mean(1))
    return row[:, 0, n_prefix:].unflatten(-1, grid_size(model, images))


def overlay(
    rollout: Float[Tensor, "B rows cols"], size: tuple[int, int], smooth: bool = True
) -> Float[Tensor, "B height width"]:
    """Rollout divided by its maximum, enlarged to the image, to multiply the image with (Fig. 6).

    The map is divided before it is enlarged, as by the authors: a lone bright patch loses some height to the blur.

    Args:
        size: height and width in pixels.
        smooth: bilinear, as the paper's picture; False gives the exact patch grid, one value a patch.

    >>> overlay(torch.tensor([[[1.0, 2.0]]]), (1, 4), smooth=False)
    tensor([[[0.5000, 0.5000, 1.0000, 1.0000]]])
    """
    check_shape(rollout, "rollout", "batch", "rows", "columns")
    weights = rollout / rollout.amax((1, 2), keepdim=True).clamp_min(torch.finfo(rollout.dtype).tiny)
    if smooth:
        return F.interpolate(weights[:, None], size, mode="bilinear", align_corners=False)[:, 0]
    return F.interpolate(weights[:, None], size, mode="nearest-exact")[:, 0]


def _precise(maps: Tensor) -> Tensor:
    """In float32, or what is finer and given: the rounding of half precision would pile up over blocks."""
    return maps.to(torch.promote_types(maps.dtype, torch.float32))


def _product(left: Float[Tensor, "... S T"], right: Float[Tensor, "... T U"]) -> Float[Tensor, "... S U"]:
    """Their product in their own precision: the caller's autocast would round it, block after block."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def _fuse(attn: Float[Tensor, "B H T T"], head_fusion: str) -> Float[Tensor, "B T T"]:
    return attn.mean(1) if head_fusion == "mean" else _REDUCE[head_fusion](attn, dim=1)


def _with_skip(fused: Float[Tensor, "B T T"]) -> Float[Tensor, "B T T"]:
    """Add the identity, for the skip connection, and make every row sum to 1; for a mean that is half and half."""
    mixed = fused + torch.eye(fused.shape[-1], dtype=fused.dtype, device=fused.device)
    return mixed.div_(mixed.sum(-1, keepdim=True))


def _discard_lowest(fused: Float[Tensor, "B T T"], ratio: float, n_prefix: int) -> Float[Tensor, "B T T"]:
    """Set each image's smallest entries to 0, a share `ratio` of those in patch columns; prefix columns stay."""
    to_patches = fused[..., n_prefix:].flatten(1)
    count = int(ratio * to_patches.shape[1])
    if count == 0:
        return fused
    lowest = to_patches.topk(count, dim=1, largest=False, sorted=False).indices
    kept = to_patches.scatter(1, lowest, 0.0).unflatten(1, (fused.shape[1], -1))
    return torch.cat([fused[..., :n_prefix], kept], dim=-1)


def _start(like: Float[Tensor, "B T T"], n_prefix: int, class_token: bool) -> Float[Tensor, "B 1 T"]:
    """The query whose row is wanted: the class token, or every patch with equal weight."""
    row = torch.zeros_like(like[:, :1])
    if class_token:
        row[..., 0] = 1
    else:
        row[..., n_prefix:] = 1 / (row.shape[-1] - n_prefix)
    return row


def _from_class(model: nn.Module, start: str | None) -> bool:
    """Whether rollout of a model starts from its class token, and not from all patches alike."""
    check_model(model)
    if start not in ("class", "patches", None):
        raise ValueError(f"start {start!r} given, expected 'class', 'patches' or None (where the model's head reads)")
    if start == "class" and not has_class_token(model):
        raise ValueError(f"start 'class' given, but {type(model).__name__} has no class token; give 'patches'")
    return reads_class_token(model) if start is None else start == "class"


def _check_options(head_fusion: str, discard_ratio: float) -> None:
    if head_fusion not in _REDUCE:
        raise ValueError(f"head_fusion {head_fusion!r} given, expected one of {', '.join(_REDUCE)}")
    if not 0 <= discard_ratio < 1:
        raise ValueError(f"discard_ratio {discard_ratio} given, expected a share from 0 up to, not including, 1")
