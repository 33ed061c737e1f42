"""Stream every block's attention out of a Vision Transformer, a few heads at a time (§4.5, App. D.7 and D.8).

One forward hands each block's attention [batch, heads, query, key] to reducers, in block order, and drops it. The
model's own computation is not touched: its output is that of a plain forward, bit for bit (see `tap`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.analysis.geometry import (
    check_images,
    check_model,
    check_rows,
    grid_size,
    n_prefix_tokens,
    patch_stride,
)
from vitlab.analysis.tap import Tap, softmax_rows
from vitlab.models.variants import AxialAttention

__all__ = [
    "attention_gradients",
    "attention_maps",
    "grid_size",
    "n_prefix_tokens",
    "patch_stride",
    "reduce_attention",
    "stream_attention",
]

_CACHE_BYTES = 2**21  # attention formed at once on a CPU: it stays in a core's cache until it has been reduced
_DEVICE_BYTES = 2**28  # and on an accelerator, where few large kernels are quicker

# Two captures of one model would see each other's hooks and mode flags: which models are busy is the process's
# business, whatever the thread, so it is the one thing kept here.
_busy: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_busy_lock = threading.Lock()


def attention_maps(model: nn.Module, images: Tensor) -> list[Float[Tensor, "B H T T"]]:
    """Attention of every block, in block order: a list of [batch, heads, query, key].

    Axial attention (App. D.6) is that between all patches, 0 where they are in different rows, or columns; a model
    with it has two blocks, one within rows and one within columns, in place of each.

    All blocks are kept: 128 images through ViT-B/16 at 224 px are 2.9 GB. For more than a few images use
    `reduce_attention`.

    Args:
        model: any ViT with `.blocks`: ours, or timm's vit, deit, beit, eva, CLIP, SigLIP, DINO, hybrids …
        images: [B 3 H W], normalised as the model expects.

    Raises:
        ValueError: for a model or images whose attention cannot be had; the message says why.

    >>> import timm
    >>> model = timm.create_model("test_vit", num_classes=10)
    >>> [tuple(a.shape) for a in attention_maps(model, torch.zeros(1, 3, 160, 160))][:2]
    [(1, 2, 101, 101), (1, 2, 101, 101)]
    """
    return reduce_attention(model, images, {"maps": lambda block, attn: attn})["maps"]


def reduce_attention(
    model: nn.Module,
    images: Tensor,
    reducers: Mapping[str, Callable[[int, Tensor], Any]],
    *,
    by_heads: bool = False,
) -> dict[str, list]:
    """Give each block's attention to every reducer in turn and drop it: one forward, one block in memory.

    Args:
        model, images: as for `attention_maps`.
        reducers: name → function of (block, attn [B H T T]), called in block order. What it returns is kept. One
            that works in place changes what the reducers after it see, never what the model computes.
        by_heads: give the reducers a few heads at a time, [B h T T], small enough for the cache; faster. What a
            reducer returns for the heads of a block is joined along dimension 1 when it is a tensor.

    Returns:
        name → list over blocks of what the reducer returned.

    Raises:
        ValueError: as for `attention_maps`. Whatever a reducer raises comes through; the model is restored.

    >>> import timm
    >>> model = timm.create_model("test_vit", num_classes=10)
    >>> to_class = {"on class token": lambda block, attn: attn[..., 0].mean()}
    >>> len(reduce_attention(model, torch.zeros(1, 3, 160, 160), to_class)["on class token"])
    6
    """
    parts: dict[str, list[list]] = {name: [] for name in reducers}

    def consume(block: int, heads: slice, attn: Tensor) -> None:
        for name, reducer in reducers.items():
            if heads.start == 0:
                parts[name].append([])
            parts[name][block].append(reducer(block, attn))

    stream_attention(model, images, consume, by_heads=by_heads)
    return {name: [_join(of_block) for of_block in blocks] for name, blocks in parts.items()}


def stream_attention(
    model: nn.Module,
    images: Tensor,
    consume: Callable[[int, slice, Tensor], object],
    *,
    by_heads: bool = False,
) -> Any:
    """Run the model on the images in evaluation mode, without gradients; hand all attention to `consume`.

    `consume(block, heads, attn)` is called in block order with attn [B h T T], the heads of that slice, after the
    softmax, float32 (float64 in a float64 model). Without `by_heads` a block comes whole.

    Returns:
        What the model returned, equal to the last bit to what it returns without capture.

    Raises:
        ValueError: as for `attention_maps`.
    """

    def fused(block: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> None:
        for heads in _head_groups(q, k.shape[2], by_heads, n_lines(block)):
            deliver(block, heads, softmax_rows(q, k, heads, **options))

    def open_coded(block: int, attn: Tensor) -> None:
        for heads in _head_groups(attn, attn.shape[3], by_heads, n_lines(block)):
            deliver(block, heads, attn[:, heads].clone())  # a reducer may work in place; the model's own goes on to v

    def n_lines(block: int) -> int:
        axial = _axial(model.blocks[block])
        return axial.n_lines if axial else 1

    def deliver(block: int, heads: slice, attn: Tensor) -> None:
        check_rows(attn, f"block {block}", strict=True)
        attn = _between_all(model, block, attn)
        consume(block, heads, attn.to(torch.promote_types(attn.dtype, torch.float32)))

    with torch.no_grad():
        return _run(model, images, fused, open_coded)


def attention_gradients(
    model: nn.Module, images: Tensor, targets: Tensor | None = None
) -> tuple[list[Float[Tensor, "B H T T"]], list[Float[Tensor, "B H T T"]]]:
    """Attention of every block, and the gradient of one logit per image with respect to it (for Chefer et al. 2021).

    The gradient needs the matrix inside the computation, so fused calls are replaced by open-coded ones; logits
    then agree to rounding only. All blocks and the graph are kept: for a few images. No parameter's `.grad` is touched.

    Args:
        targets: [B] class of each image; None takes the class with the largest logit.

    Raises:
        ValueError: as for `attention_maps`; also in inference mode, for a model that checkpoints its activations or
            returns no logits, and for targets that are no classes of it.

    >>> import timm
    >>> model = timm.create_model("test_vit", num_classes=10)
    >>> attn, grads = attention_gradients(model, torch.zeros(1, 3, 160, 160))
    >>> attn[0].shape == grads[0].shape
    True
    """
    check_model(model)
    check_images(model, images)
    if torch.is_inference_mode_enabled() or images.is_inference():
        raise ValueError("gradients cannot be had in torch.inference_mode; leave it, and clone images made in it")
    if getattr(model, "grad_checkpointing", False):
        raise ValueError("the model recomputes its blocks; call model.set_grad_checkpointing(False) first")
    if getattr(model, "num_classes", None) == 0 or isinstance(getattr(model, "head", None), nn.Identity):
        raise ValueError(
            f"{type(model).__name__} has no classifier: it returns features, no logits; give one with classes"
        )
    maps: list[Tensor] = []

    def keep(attn: Tensor) -> Tensor:
        attn = attn if attn.requires_grad else attn.requires_grad_()
        maps.append(attn)
        return attn

    def fused(block: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        attn = keep(softmax_rows(q, k, slice(None), **options))
        check_rows(attn, f"block {block}", strict=True)
        return (attn @ v.to(attn.dtype)).to(v.dtype)

    def open_coded(block: int, attn: Tensor) -> None:
        check_rows(keep(attn), f"block {block}", strict=True)

    with torch.enable_grad():
        logits = _run(model, images, fused, open_coded)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"{type(model).__name__} returned no logits [batch, classes]; give a model with a classifier")
    chosen = logits.argmax(1) if targets is None else _classes(targets, *logits.shape).to(logits.device)
    score = logits.gather(1, chosen[:, None]).sum()  # one image's logit does not depend on another's attention
    grads = torch.autograd.grad(score, maps)
    both = ([attn.detach() for attn in maps], list(grads))
    maps, of_maps = ([_between_all(model, block, each) for block, each in enumerate(all_of)] for all_of in both)
    return maps, of_maps


def _classes(targets: Tensor, count: int, n_classes: int) -> Tensor:
    """One class of the model for each image, as the index of its logit."""
    whole = isinstance(targets, Tensor) and torch.can_cast(targets.dtype, torch.int64) and targets.dtype != torch.bool
    classes = targets.long() if whole else None
    if classes is None or classes.shape != (count,) or not ((classes >= 0) & (classes < n_classes)).all():
        given = targets.tolist() if isinstance(targets, Tensor) else f"{targets!r} ({type(targets).__name__})"
        raise ValueError(
            f"targets {given} given, expected {count} classes from 0 to {n_classes - 1}, integers in a tensor"
        )
    return classes


def _run(
    model: nn.Module,
    images: Tensor,
    fused: Callable[..., Tensor | None],
    open_coded: Callable[[int, Tensor], None],
) -> Any:
    """Forward in evaluation mode under a tap, with hooks that tell it which block runs; all undone again."""
    check_model(model)
    check_images(model, images)
    rows, cols = grid_size(model, images)
    tap = Tap(fused, open_coded, n_prefix_tokens(model) + rows * cols)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone(model))
        stack.enter_context(_evaluation(model))
        if any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))  # compiled code would hide its calls
        for number, block in enumerate(model.blocks):
            for handle in _hooks(block, number, tap):
                stack.callback(handle.remove)
        with tap:
            output = model(images)
    if len(tap.done) != len(model.blocks):
        raise ValueError(
            f"cannot capture: {len(tap.done)} of the {len(model.blocks)} blocks of {type(model).__name__} were seen "
            "to run; a compiled or traced model hides them"
        )
    return output


def _hooks(block: nn.Module, number: int, tap: Tap) -> Iterator[Any]:
    """Tell the tap when its own thread enters and leaves the block; other threads may use the model meanwhile."""

    def before(module: nn.Module, args: tuple, kwargs: dict) -> None:
        if threading.get_ident() == tap.thread:
            axial = _axial(module)
            lines = (axial.n_lines, axial.line_length) if axial else None
            tap.enter(number, args[0] if args else next(iter(kwargs.values()), None), lines)

    def after(module: nn.Module, args: tuple, output: Any) -> None:
        if threading.get_ident() == tap.thread:
            tap.leave()

    yield block.register_forward_pre_hook(before, with_kwargs=True)
    yield block.register_forward_hook(after)


def _axial(block: nn.Module) -> AxialAttention | None:
    """The attention of a block within rows or columns, if that is what it has."""
    attention = getattr(block, "attn", None)
    return attention if isinstance(attention, AxialAttention) else None


def _between_all(model: nn.Module, block: int, attn: Tensor) -> Tensor:
    """The attention of a block between all tokens: axial attention is 0 between different lines of the grid."""
    axial = _axial(model.blocks[block])
    return axial.spread(attn) if axial else attn


@contextlib.contextmanager
def _alone(model: nn.Module) -> Iterator[None]:
    """Refuse a second capture of a model, nested or from another thread, while the first runs."""
    blocks = list(model.blocks)
    with _busy_lock:
        if any(block in _busy for block in blocks):
            raise ValueError(
                f"this {type(model).__name__} is being captured already, by a reducer of its own or by another "
                "thread; capture once with several reducers, or copy the model"
            )
        _busy.update(blocks)
    try:
        yield
    finally:
        with _busy_lock:
            _busy.difference_update(blocks)


@contextlib.contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module's own mode again: a model may be frozen in parts."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training


def _head_groups(q: Tensor, n_keys: int, by_heads: bool, n_lines: int = 1) -> list[slice]:
    """Cut a block's heads into groups whose attention, spread over all lines of a grid, fits the cache, or do not."""
    batch, n_heads, n_queries = q.shape[:3]
    step = n_heads
    if by_heads:
        limit = _CACHE_BYTES if q.device.type == "cpu" else _DEVICE_BYTES
        step = max(1, limit // (4 * batch * n_queries * n_keys * n_lines))
    return [slice(start, min(start + step, n_heads)) for start in range(0, n_heads, step)]


def _join(parts: list) -> Any:
    """What a reducer returned for the groups of heads of one block, as one."""
    if len(parts) == 1 or all(part is None for part in parts):
        return parts[0]
    return torch.cat(parts, dim=1) if all(isinstance(part, Tensor) for part in parts) else parts
