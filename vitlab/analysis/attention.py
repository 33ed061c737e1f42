"""See every block's attention in any plain ViT, and how the model cuts an image into tokens (§3.1, §4.5).

Fused attention never forms softmax(q kᵀ / √D_h), so hooks have nothing to see. A torch function mode watches the
forward: for a fused call the matrix is formed from the very q, k, mask and scale passed; in open code it is the softmax
that multiplies v. The model's own calls run unchanged, so its output is that of a plain forward, bit for bit. Each
block's attention [batch, heads, query, key] goes to reducers, in block order, a few heads at a time, and is dropped.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CACHE_BYTES = 2**21  # attention formed at once on a CPU: it stays in a core's cache until it has been reduced


# --- capture ----------------------------------------------------------------------------------------------------------
def attention_maps(model: nn.Module, images: Tensor) -> list[Float[Tensor, "B H T T"]]:
    """Collect the attention of every block, in block order: a list of [batch, heads, query, key].

    `model` is any ViT with `.blocks`: ours, or timm's vit, deit, beit, eva, CLIP, SigLIP, DINO, hybrids …; `images`
    [B 3 H W] are normalised as it expects. 128 images through ViT-B/16 at 224 px are 2.9 GB: for more than a few use
    `reduce_attention`. Raises ValueError, saying why, for a model or images whose attention cannot be had.
    """
    return reduce_attention(model, images, {"maps": lambda block, attn: attn})["maps"]


def reduce_attention(
    model: nn.Module, images: Tensor, reducers: Mapping[str, Callable[[int, Tensor], Any]], *, by_heads: bool = False
) -> dict[str, list]:
    """Give each block's attention to every reducer in turn and drop it: one forward, one block in memory.

    A reducer is a function of (block, attn [B H T T]), called in block order, in evaluation mode, without gradients;
    attn is float32 (float64 in a float64 model). One that works in place changes what those after it see, never the
    model. `by_heads` gives a few heads at a time, [B h T T], small enough for the cache; faster. What a reducer
    returns, a tensor or None, is then joined along dimension 1. The lists over blocks come back, by name.
    """
    n_tokens = count_tokens(model, images)
    found: dict[str, list] = {name: [] for name in reducers}
    limit = CACHE_BYTES if images.device.type == "cpu" else 2**28  # accelerators: few large kernels are quicker

    def see(block: int, n_heads: int, rows: Callable[..., Tensor]) -> None:
        step = max(1, limit // (4 * len(images) * n_tokens**2)) if by_heads else n_heads
        parts: dict[str, list] = {name: [] for name in reducers}
        for start in range(0, n_heads, step):
            attn = rows(heads=slice(start, start + step))
            check_rows(attn, f"block {block}")
            attn = widen(attn)
            for name, reducer in reducers.items():
                parts[name].append(reducer(block, attn))
        for name, each in parts.items():
            found[name].append(each[0] if len(each) == 1 or each[0] is None else torch.cat(each, dim=1))

    with torch.no_grad():
        _run(model, images, n_tokens, see)
    return found


def _run(model: nn.Module, images: Tensor, n_tokens: int, see: Callable[..., None]) -> None:
    """Run a forward in evaluation mode under a tap, with hooks that tell it which block runs; undo all of it."""
    tap, handles = _Tap(len(images), n_tokens, see), []
    modes = [(module, module.training) for module in model.modules()]
    compiled = any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m, _ in modes)
    try:
        model.eval()
        for number, block in enumerate(model.blocks):
            handles.append(block.register_forward_pre_hook(functools.partial(tap.enter, number)))
            handles.append(block.register_forward_hook(tap.leave))
        with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext(), tap:  # to see calls
            model(images)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:  # each its own again: a model may be frozen in parts
            module.training = training
    if tap.n_done != len(model.blocks):
        raise ValueError(
            f"cannot capture: {tap.n_done} of the {len(model.blocks)} blocks of {type(model).__name__} were seen "
            "to run; a compiled or traced model hides them"
        )


class _Tap(TorchFunctionMode):
    """See every torch call; show the attention of the block that is running, once, to `see(block, n_heads, rows)`.

    `rows(heads=slice)` forms the attention of some heads.
    """

    def __init__(self, batch: int, n_tokens: int, see: Callable[..., None]) -> None:
        super().__init__()
        self.batch, self.n_tokens, self.see = batch, n_tokens, see
        self.block: int | None = None  # the one that is running
        self.n_done = 0  # blocks that have run
        self.seen = False  # the running block's attention
        self.softmaxes: list[Tensor] = []  # results of softmax in it that no product has used yet

    def enter(self, number: int, block: nn.Module, args: tuple) -> None:
        if self.block is not None or number != self.n_done:
            raise ValueError(
                f"cannot capture: block {number} runs out of turn; either blocks are shared, or the model is being "
                "captured already: give one capture several reducers"
            )
        self.block, self.seen = number, False

    def leave(self, block: nn.Module, args: tuple, output: Any) -> None:
        if not self.seen:
            hint = "changes its softmax before using it" if self.softmaxes else "computes none that torch shows"
            raise ValueError(f"cannot capture: no attention matrix was seen in block {self.block}: it {hint}")
        self.block, self.n_done = None, self.n_done + 1
        self.softmaxes.clear()

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.block is None:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._fused(*args, **kwargs)
        product = func in (torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm)
        if product and args and any(args[0] is each for each in self.softmaxes):
            self.softmaxes.clear()
            softmax = args[0]
            self._show(softmax.shape, softmax.device, lambda heads: softmax[:, heads].clone())
        result = func(*args, **kwargs)
        if func in (torch.softmax, Tensor.softmax, F.softmax):
            self.softmaxes.append(result)
        return result

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> Tensor:
        device = query.device.type
        # Under autocast the fused kernel rounds its inputs first, so the matrix is formed from rounded ones.
        rounded = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        rows = functools.partial(softmax_rows, query, key, value, *others, **options, rounded=rounded)
        self._show((*query.shape[:-1], key.shape[-2]), query.device, rows)
        return F.scaled_dot_product_attention(query, key, value, *others, **options)

    def _show(self, shape: tuple[int, ...], device: torch.device, rows: Callable[..., Tensor]) -> None:
        if self.seen:
            raise ValueError(
                f"cannot capture: block {self.block} computes attention more than once (parallel, differential or "
                "mixed attention), so it has no single attention matrix"
            )
        n = self.n_tokens
        if len(shape) != 4 or (shape[0], *shape[2:]) != (self.batch, n, n):
            raise ValueError(
                f"cannot capture: attention in block {self.block} has shape {list(shape)}, expected [{self.batch}, "
                f"heads, {n}, {n}]; it is between channels, pooled tokens or the tokens of a window, not all tokens"
            )
        self.seen = True
        with torch.autocast(device.type, enabled=False):
            self.see(self.block, shape[1], rows)


def softmax_rows(
    query: Float[Tensor, "B H Q d"],
    key: Float[Tensor, "B K T d"],
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    heads: slice,
    rounded: torch.dtype | None = None,
) -> Float[Tensor, "B h Q T"]:
    """Compute softmax(q kᵀ · scale + mask) of a fused call for some heads, in float32 or better, as it does (Eq. 6)."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    if attn_mask is not None and attn_mask.ndim > 2 and attn_mask.shape[-3] > 1:
        attn_mask = attn_mask[..., heads, :, :]
    q, k = query[:, heads], key[:, heads]
    if rounded is not None:
        q, k = q.to(rounded), k.to(rounded)
    exact = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q.to(exact) * scale) @ k.to(exact).transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + (attn_mask if rounded is None else attn_mask.to(rounded)).to(exact)
    return scores.softmax(dim=-1)


# --- how a model cuts an image into tokens ----------------------------------------------------------------------------
def n_prefix_tokens(model: nn.Module) -> int:
    """Count the tokens before the patches: 0, 1 (class), 2 (class and distillation), or more (registers)."""
    if not isinstance(count := getattr(model, "num_prefix_tokens", None), int):
        raise _no_plain_vit(model, "`.num_prefix_tokens`")
    return count


def reads_class_token(model: nn.Module) -> bool:
    """Tell whether the head reads the class token and not the patches: BEiT, EVA-02 … have one that it ignores.

    A head without a pooling, as ours, reads it. So does a distilled DeiT's, and the distillation token as well.
    """
    holders = (model, getattr(model, "embeds", None))  # the latter in timm's NaFlexViT
    has_one = n_prefix_tokens(model) > 0 and any(getattr(each, "cls_token", None) is not None for each in holders)
    return has_one and getattr(model, "global_pool", None) in (None, "", "token")


def read_weights(model: nn.Module, images: Tensor) -> Float[Tensor, "B T"]:
    """Give the share with which the head reads each of the last block's tokens: its pooling; every row sums to 1.

    An attention pool's (SigLIP) is its attention, a mean over its heads, for which the model runs once more.
    """
    weights = widen(torch.zeros(len(images), count_tokens(model, images), dtype=images.dtype, device=images.device))
    if isinstance(pool := getattr(model, "attn_pool", None), nn.Module):
        tap, given = _Pool(), list[Tensor]()
        handle = pool.register_forward_pre_hook(lambda _, args: given.append(args[0]))
        try:
            reduce_attention(model, images, {})  # in evaluation mode
        finally:
            handle.remove()
        with torch.no_grad(), tap:
            pool(given[0])
        if tap.attn is None:
            raise ValueError(f"the attention of {type(pool).__name__}, which pools the tokens, was not seen")
        weights[:, -tap.attn.shape[-1] :] = tap.attn.mean((1, 2))  # prefix tokens, at the front, may not be among them
    elif reads_class_token(model):
        weights[:, : 1 + (getattr(model, "dist_token", None) is not None)] = 1
    else:
        weights[:, 0 if getattr(model, "pool_include_prefix", False) else n_prefix_tokens(model) :] = 1
    return weights / weights.sum(1, keepdim=True)


class _Pool(TorchFunctionMode):
    """See the first attention of a pool, [B heads queries keys]."""

    attn: Tensor | None = None

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.attn is None and func is F.scaled_dot_product_attention:
            self.attn = softmax_rows(*args, **(kwargs or {}), heads=slice(None))
        elif self.attn is None and func in (torch.softmax, Tensor.softmax, F.softmax):
            self.attn = result
        return result


def patch_stride(model: nn.Module) -> tuple[int, int]:
    """Return the input pixels from one patch to the next, (down, across); for a hybrid the total stride."""
    embed = patch_embedding(model)
    stride = embed.feat_ratio(as_scalar=False) if hasattr(embed, "feat_ratio") else embed.patch_size
    down, across = (stride, stride) if isinstance(stride, int) else stride
    return int(down), int(across)


def grid_size(model: nn.Module, images: Tensor) -> tuple[int, int]:
    """Return the rows and columns of patches that the model makes of these images [B C H W]."""
    embed = patch_embedding(model)
    if not isinstance(images, Tensor) or images.ndim != 4 or len(images) == 0:
        shape = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images are {shape}, expected a tensor [batch, channels, height, width], not empty")
    height, width = images.shape[-2:]
    if hasattr(embed, "dynamic_feat_size"):  # timm's own rule, with its padding
        rows, cols = embed.dynamic_feat_size((height, width))
    else:
        down, across = patch_stride(model)
        rows, cols = height // down, width // across
    return int(rows), int(cols)


def patch_embedding(model: nn.Module) -> nn.Module:
    """Find the module that turns images into patch tokens; raise ValueError when there is none."""
    embed = getattr(model, "patch_embed", None) or getattr(model, "embeds", None)  # the latter in timm's NaFlexViT
    if not isinstance(embed, nn.Module) or not hasattr(embed, "patch_size"):
        raise _no_plain_vit(model, "patch embedding of one patch size")
    return embed


def count_tokens(model: nn.Module, images: Tensor) -> int:
    """Count the tokens of one image; refuse what is no sequence of blocks over patches, and images it cannot take."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList) or len(blocks) == 0:
        raise _no_plain_vit(model, "`.blocks`")
    n_tokens, embed = n_prefix_tokens(model) + math.prod(grid_size(model, images)), patch_embedding(model)
    channels = next((m.in_channels for m in embed.modules() if isinstance(m, nn.Conv2d)), images.shape[1])
    fixed = getattr(embed, "img_size", None) is not None and getattr(embed, "strict_img_size", True)
    expected = (channels, *(embed.img_size if fixed else images.shape[2:]))
    if tuple(images.shape[1:]) != expected:
        raise ValueError(
            f"images are {list(images.shape)}, expected {['batch', *expected]}; convert or resize them, or build the "
            "model for another size (timm: img_size=…, or dynamic_img_size=True for any)"
        )
    extreme = images.detach().abs().amax().item()
    if not images.is_floating_point() or not extreme < 64:  # also true of NaN
        raise ValueError(
            f"images are {images.dtype} up to {extreme:g}, expected floating point, about -3…3, normalised as the "
            "model was trained (vitlab.models.zoo.load(name).prepare makes bytes ready)"
        )
    return n_tokens


def _no_plain_vit(model: Any, missing: str) -> ValueError:
    return ValueError(
        f"{type(model).__name__} is no plain ViT: it has no {missing}; expected a sequence of transformer blocks over "
        "prefix tokens (class token, registers) and one grid of patches; windowed, pyramid and convolutional networks "
        "(Swin, MaxViT, ResNet …) have no such attention; give the part of this model that is a ViT, if there is one"
    )


# --- attention that is given ------------------------------------------------------------------------------------------
def check_attention(attn: Tensor, grid: tuple[int, int], n_prefix: int) -> None:
    """Refuse what is not attention [batch, heads, query, key] over prefix tokens and the patches of this grid."""
    rows, cols = grid
    n_tokens = n_prefix + rows * cols
    if attn.ndim != 4 or tuple(attn.shape[2:]) != (n_tokens, n_tokens) or 0 in attn.shape:
        raise ValueError(
            f"attn has shape {list(attn.shape)}, expected [batch, heads, {n_tokens}, {n_tokens}] for {n_prefix} "
            f"prefix tokens + {rows} x {cols} patches; check the grid and the number of prefix tokens"
        )
    check_rows(attn, "attn")


def check_rows(attn: Tensor, name: str) -> None:
    """Refuse attention that holds NaN or has rows that do not sum to 1, as far as its precision goes."""
    worst = (attn.detach().sum(-1, dtype=torch.promote_types(attn.dtype, torch.float32)) - 1).abs().amax().item()
    if not worst <= (1e-2 if attn.dtype.itemsize < 4 else 1e-4):  # also true of NaN
        problem = "holds NaN" if math.isnan(worst) else f"has a row whose sum differs from 1 by {worst:.3g}"
        raise ValueError(
            f"attention of {name} {problem}, expected rows that sum to 1, to rounding in {attn.dtype}; look for NaN or "
            "infinity in weights and images, or for a matrix that was cut, not normalised, or rounded to another type"
        )


def widen(values: Tensor) -> Tensor:
    """Convert to float32, or keep what is finer: sums over hundreds of tokens are no business of half precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
