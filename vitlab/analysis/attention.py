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
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.models.variants import AxialAttention

CACHE_BYTES = 2**21  # attention formed at once on a CPU: it stays in a core's cache until it has been reduced
_ROW_SUM = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-8}  # tolerance
_PLAIN = (
    "expected a ViT whose tokens are one grid of patches and, before them, any number of prefix tokens (class token, "
    "registers); give such a model, or the part of this one that is a ViT"
)
# Two captures of one model would see each other's hooks and modes, whatever the thread: these blocks are busy.
_busy: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_busy_lock = threading.Lock()


# --- capture ----------------------------------------------------------------------------------------------------------
def attention_maps(model: nn.Module, images: Tensor) -> list[Float[Tensor, "B H T T"]]:
    """Collect the attention of every block, in block order: a list of [batch, heads, query, key].

    `model` is any ViT with `.blocks`: ours, or timm's vit, deit, beit, eva, CLIP, SigLIP, DINO, hybrids …; `images`
    [B 3 H W] are normalised as it expects. Axial attention (App. D.6) is 0 between patches of different rows, or
    columns. 128 images through ViT-B/16 at 224 px are 2.9 GB: for more than a few use `reduce_attention`.

    Raises ValueError for a model or images whose attention cannot be had; the message says why.

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

    A reducer is a function of (block, attn [B H T T]), called in block order; the lists over blocks of what each
    returned come back. One that works in place changes what the reducers after it see, never what the model computes.
    `by_heads` gives a few heads at a time, [B h T T], small enough for the cache; faster. What a reducer returns for
    the heads of a block is then joined along dimension 1 when it is a tensor.

    Raises ValueError as `attention_maps`. Whatever a reducer raises comes through; the model is restored.
    """
    parts: dict[str, list[list]] = {name: [] for name in reducers}

    def consume(block: int, heads: slice, attn: Tensor) -> None:
        for name, reducer in reducers.items():
            if heads.start == 0:
                parts[name].append([])
            parts[name][block].append(reducer(block, attn))

    def join(found: list) -> Any:
        if len(found) == 1 or all(part is None for part in found):
            return found[0]
        return torch.cat(found, dim=1) if all(isinstance(part, Tensor) for part in found) else found

    stream_attention(model, images, consume, by_heads=by_heads)
    return {name: [join(of_block) for of_block in blocks] for name, blocks in parts.items()}


def stream_attention(
    model: nn.Module, images: Tensor, consume: Callable[[int, slice, Tensor], object], *, by_heads: bool = False
) -> Any:
    """Run the model in evaluation mode, without gradients; hand all attention to `consume`, return the model's output.

    `consume(block, heads, attn)` is called in block order with attn [B h T T], the heads of that slice, after the
    softmax, float32 (float64 in a float64 model). Without `by_heads` a block comes whole. The output is equal to the
    last bit to that without capture. Raises ValueError as `attention_maps`.
    """

    def see(block: int, source: Tensor, n_keys: int, rows: Callable[[slice], Tensor]) -> None:
        batch, n_heads, n_queries = source.shape[:3]
        axial = _axial(model.blocks[block])
        limit = CACHE_BYTES if source.device.type == "cpu" else 2**28  # accelerators: few large kernels are quicker
        size = 4 * batch * n_queries * n_keys * (axial.n_lines if axial else 1)  # of one head, between all tokens
        step = max(1, limit // size) if by_heads else n_heads
        for start in range(0, n_heads, step):
            heads = slice(start, min(start + step, n_heads))
            attn = rows(heads)
            check_rows(attn, f"block {block}", strict=True)
            attn = axial.spread(attn) if axial else attn
            consume(block, heads, widen(attn))

    def fused(block: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> None:
        see(block, q, k.shape[2], lambda heads: softmax_rows(q, k, heads, **options))

    def open_coded(block: int, attn: Tensor) -> None:
        see(block, attn, attn.shape[3], lambda heads: attn[:, heads].clone())  # reducers may work in place

    with torch.no_grad():
        return _run(model, images, fused, open_coded)


def attention_gradients(
    model: nn.Module, images: Tensor, targets: Tensor | None = None
) -> tuple[list[Float[Tensor, "B H T T"]], list[Float[Tensor, "B H T T"]]]:
    """Collect every block's attention and the gradient of one logit per image with respect to it (Chefer et al. 2021).

    The gradient needs the matrix inside the computation, so fused calls are replaced by open-coded ones; logits then
    agree to rounding only. All blocks and the graph are kept: for a few images. No parameter's `.grad` is touched.
    `targets` [B] are classes; None takes the class with the largest logit.

    Raises ValueError as `attention_maps`; also in inference mode, for a model that checkpoints its activations or
    returns no logits, and for targets that are no classes of it.
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

    def open_coded(block: int, attn: Tensor) -> None:
        maps.append(attn if attn.requires_grad else attn.requires_grad_())
        check_rows(attn, f"block {block}", strict=True)

    def fused(block: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        attn = softmax_rows(q, k, slice(None), **options)
        open_coded(block, attn)
        return (attn @ v.to(attn.dtype)).to(v.dtype)

    with torch.enable_grad():
        logits = _run(model, images, fused, open_coded)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"{type(model).__name__} returned no logits [batch, classes]; give a model with a classifier")
    count, n_classes = logits.shape
    if targets is None:
        targets = logits.argmax(1)
    whole = isinstance(targets, Tensor) and torch.can_cast(targets.dtype, torch.int64) and targets.dtype != torch.bool
    if not whole or targets.shape != (count,) or not ((targets >= 0) & (targets < n_classes)).all():
        given = targets.tolist() if isinstance(targets, Tensor) else f"{targets!r} ({type(targets).__name__})"
        raise ValueError(
            f"targets {given} given, expected {count} classes from 0 to {n_classes - 1}, integers in a tensor"
        )
    score = logits.gather(1, targets.long().to(logits.device)[:, None]).sum()  # images do not depend on each other
    grads = list(torch.autograd.grad(score, maps))
    for each in (maps, grads):
        for block, attn in enumerate(each):
            axial = _axial(model.blocks[block])
            each[block] = axial.spread(attn.detach()) if axial else attn.detach()
    return maps, grads


def _axial(block: nn.Module) -> AxialAttention | None:
    """Return the attention of a block within rows or columns, if that is what it has."""
    attention = getattr(block, "attn", None)
    return attention if isinstance(attention, AxialAttention) else None


def _run(
    model: nn.Module,
    images: Tensor,
    fused: Callable[..., Tensor | None],
    open_coded: Callable[[int, Tensor], None],
) -> Any:
    """Run a forward in evaluation mode under a tap, with hooks that tell it which block runs; undo all of it."""
    check_model(model)
    check_images(model, images)
    rows, cols = grid_size(model, images)
    tap = _Tap(fused, open_coded, n_prefix_tokens(model) + rows * cols)
    blocks, modes = list(model.blocks), [(module, module.training) for module in model.modules()]
    compiled = any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m, _ in modes)
    with _busy_lock:
        if any(block in _busy for block in blocks):
            raise ValueError(
                f"this {type(model).__name__} is being captured already, by a reducer of its own or by another "
                "thread; capture once with several reducers, or copy the model"
            )
        _busy.update(blocks)
    handles = []
    try:
        for module, _ in modes:
            module.training = False
        for number, block in enumerate(blocks):
            handles.append(block.register_forward_pre_hook(functools.partial(tap.enter, number), with_kwargs=True))
            handles.append(block.register_forward_hook(tap.leave))
        # Compiled code would hide its calls.
        with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext(), tap:
            output = model(images)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:  # each its own again: a model may be frozen in parts
            module.training = training
        with _busy_lock:
            _busy.difference_update(blocks)
    if tap.n_done != len(blocks):
        raise ValueError(
            f"cannot capture: {tap.n_done} of the {len(blocks)} blocks of {type(model).__name__} were seen "
            "to run; a compiled or traced model hides them"
        )
    return output


class _Tap(TorchFunctionMode):
    """See every torch call of this thread, act on the attention of the block that is running.

    `fused(block, q, k, v, **options)` is called at a fused call; what it returns, unless None, becomes the call's
    result. `open_coded(block, attn)` is called where a softmax is about to multiply v.
    """

    def __init__(self, fused: Callable, open_coded: Callable[[int, Tensor], None], n_tokens: int) -> None:
        super().__init__()
        self.fused, self.open_coded, self.n_tokens = fused, open_coded, n_tokens
        self.thread = threading.get_ident()  # others may use the model meanwhile
        self.block: int | None = None  # the block that is running
        self.n_done = 0  # blocks that have run
        self.expected = (0, 0)  # of its attention: how many sequences, how many tokens in each
        self.count = 0  # attention matrices seen in it
        self.softmaxes: list[Tensor] = []  # results of softmax in it that no product has used yet

    def enter(self, number: int, block: nn.Module, args: tuple, kwargs: dict) -> None:
        if threading.get_ident() != self.thread:
            return
        if self.block is not None or number != self.n_done:
            raise ValueError(f"cannot capture: block {number} runs where block {self.n_done} was expected")
        tokens = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(tokens, Tensor) or tokens.ndim != 3 or tokens.shape[1] != self.n_tokens:
            shape = list(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(
                f"cannot capture: block {number} is given {shape}, expected [batch, {self.n_tokens}, dim]: the prefix "
                "tokens and all patches"
            )
        axial = _axial(block)
        n_lines, length = (axial.n_lines, axial.line_length) if axial else (1, self.n_tokens)
        self.block, self.count, self.expected = number, 0, (tokens.shape[0] * n_lines, length)

    def leave(self, block: nn.Module, args: tuple, output: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        if self.count == 0:
            hint = "changes its softmax before using it" if self.softmaxes else "computes none that torch shows"
            raise ValueError(f"cannot capture: no attention matrix was seen in block {self.block}: it {hint}")
        self.block, self.n_done = None, self.n_done + 1
        self.softmaxes.clear()

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.block is None:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._sdpa(*args, **kwargs)
        if (
            func in (torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm)
            and args
            and any(args[0] is s for s in self.softmaxes)
        ):
            self.softmaxes.clear()
            self._check(tuple(args[0].shape))
            with torch.autocast(args[0].device.type, enabled=False):
                self.open_coded(self.block, args[0])
        result = func(*args, **kwargs)
        if func in (torch.softmax, Tensor.softmax, F.softmax):
            self.softmaxes.append(result)
        return result

    def _sdpa(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        self._check((*query.shape[:-1], key.shape[-2]))
        device = query.device.type
        # Under autocast the fused kernel rounds its inputs first, so the matrix is formed from rounded ones.
        rounded = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        of_rows = {"attn_mask": attn_mask, "is_causal": is_causal, "rounded": rounded, **options}
        with torch.autocast(device, enabled=False):
            replaced = self.fused(self.block, query, key, value, **of_rows)
        if replaced is not None:
            return replaced
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)

    def _check(self, shape: tuple[int, ...]) -> None:
        self.count += 1
        if self.count > 1:
            raise ValueError(
                f"cannot capture: block {self.block} computes attention more than once (parallel, differential or "
                "mixed attention), so it has no single attention matrix"
            )
        batch, n = self.expected
        if len(shape) != 4 or shape[0] != batch or shape[2:] != (n, n):
            raise ValueError(
                f"cannot capture: attention in block {self.block} has shape {list(shape)}, expected [{batch}, "
                f"heads, {n}, {n}]; it is between channels, pooled tokens or the tokens of a window, not all tokens"
            )


def softmax_rows(
    q: Float[Tensor, "B H T d"],
    k: Float[Tensor, "B K T d"],
    heads: slice,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    rounded: torch.dtype | None = None,
) -> Float[Tensor, "B h T T"]:
    """Compute softmax(q kᵀ · scale + mask) for some heads, in float32 or better, as the fused kernel does (Eq. 6)."""
    if enable_gqa:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    if attn_mask is not None and attn_mask.ndim > 2 and attn_mask.shape[-3] > 1:
        attn_mask = attn_mask[..., heads, :, :]
    q, k = q[:, heads], k[:, heads]
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
    """Count the tokens before the patches: 0, 1 (class), 2 (class and distillation), or more (registers).

    Raises ValueError for a model that does not say.
    """
    check_module(model)
    count = getattr(model, "num_prefix_tokens", None)
    if not isinstance(count, int):
        reason = "it has no `num_prefix_tokens`, so its patch tokens cannot be told from others"
        blocks = getattr(model, "blocks", None)
        if not isinstance(blocks, nn.Sequential | nn.ModuleList) or len(blocks) == 0:
            reason = _NO_BLOCKS
        raise ValueError(
            f"cannot capture the attention of {type(model).__name__}: it is no plain ViT: {reason}; {_PLAIN}"
        )
    return count


def has_class_token(model: nn.Module) -> bool:
    """Tell whether the first token is a class token; registers alone are none."""
    holders = (model, getattr(model, "embeds", None))  # the latter in timm's NaFlexViT
    return n_prefix_tokens(model) > 0 and any(getattr(holder, "cls_token", None) is not None for holder in holders)


def reads_class_token(model: nn.Module) -> bool:
    """Tell whether the head reads the class token and not the patches: BEiT, EVA-02 … have one that it ignores.

    Pooling of timm's (`global_pool`) by "token" reads it, and so does a head without a pooling, as ours; "avg", "max",
    "avgmax" and attention pooling read the patches. A distilled DeiT counts as reading the class token, although its
    head reads the distillation token as well.
    """
    return has_class_token(model) and getattr(model, "global_pool", None) in (None, "", "token")


def patch_stride(model: nn.Module) -> tuple[int, int]:
    """Return the input pixels from one patch to the next, (down, across); for a hybrid the total stride.

    Raises ValueError for a model with no patch embedding.
    """
    embed = patch_embedding(model)
    stride = embed.feat_ratio(as_scalar=False) if hasattr(embed, "feat_ratio") else embed.patch_size
    down, across = (stride, stride) if isinstance(stride, int) else stride
    return int(down), int(across)


def grid_size(model: nn.Module, images: Tensor) -> tuple[int, int]:
    """Return the rows and columns of patches that the model makes of these images [B C H W].

    Raises ValueError for a model with no patch embedding, and images that are no tensor.
    """
    embed = patch_embedding(model)
    if not isinstance(images, Tensor):
        raise ValueError(f"images are {type(images).__name__}, expected a tensor [batch, channels, height, width]")
    height, width = images.shape[-2:]
    if hasattr(embed, "dynamic_feat_size"):  # timm's own rule, with its padding
        rows, cols = embed.dynamic_feat_size((height, width))
    else:
        down, across = patch_stride(model)
        rows, cols = height // down, width // across
    return int(rows), int(cols)


def patch_embedding(model: nn.Module) -> nn.Module:
    """Find the module that turns images into patch tokens; raise ValueError when there is none."""
    check_module(model)
    embed = getattr(model, "patch_embed", None) or getattr(model, "embeds", None)  # the latter in timm's NaFlexViT
    if not isinstance(embed, nn.Module) or not hasattr(embed, "patch_size"):
        raise ValueError(
            f"{type(model).__name__} has no patch embedding of one patch size, so it is no plain ViT; expected a ViT "
            "whose tokens are one grid of patches; give such a model, or the part of this one that is a ViT"
        )
    return embed


# --- checks -----------------------------------------------------------------------------------------------------------
_NO_BLOCKS = (
    "it has no `.blocks`, one sequence of transformer blocks; windowed, pyramid and convolutional networks "
    "(Swin, MaxViT, ResNet …) have no attention between all patches"
)


def check_module(model: nn.Module) -> None:
    """Refuse what is no module (TypeError), and a module around the model, which hides what is asked (ValueError)."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is {type(model).__name__}, expected a torch.nn.Module; a name or weights alone are none "
            "(vitlab.models.zoo.load(name).model is one)"
        )
    if isinstance(getattr(model, "module", None), nn.Module):
        raise ValueError(f"model is {type(model).__name__}: it wraps a model; give `model.module`")


def check_model(model: nn.Module) -> None:
    """Refuse what is not one sequence of transformer blocks over patch tokens: ValueError, with the reason."""
    check_module(model)
    refusal = f"cannot capture the attention of {type(model).__name__}: "
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(f"{refusal}TorchScript hides its calls; give the model it was made from")
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList) or len(blocks) == 0:
        raise ValueError(f"{refusal}it is no plain ViT: {_NO_BLOCKS}; {_PLAIN}")
    n_prefix_tokens(model)
    patch_embedding(model)


def check_images(model: nn.Module, images: Tensor) -> None:
    """Refuse images that this model cannot take, before it fails somewhere inside: ValueError, with what to do."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        shape = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images are {shape}, expected a tensor [batch, channels, height, width]")
    if len(images) == 0:
        raise ValueError(f"images are {list(images.shape)}: an empty batch; give at least one image")
    scales = (
        "vitlab.data.loader.to_float scales 0…255 to -1…1, for models of ours; for others, such as those of timm, "
        "vitlab.models.zoo.load(name).prepare or vitlab.models.zoo.Pretrained.of(…).prepare"
    )
    if not images.is_floating_point():
        raise ValueError(
            f"images are {images.dtype}, expected floating point, normalised as the model was trained ({scales})"
        )
    extreme = images.detach().abs().amax().item()
    if not extreme < 64:  # also true of NaN
        raise ValueError(
            f"images hold values up to {extreme:g}, expected about -3…3: not finite, or 0…255 not scaled yet ({scales})"
        )
    embed = patch_embedding(model)
    weights = [p.dtype for p in embed.parameters() if p.is_floating_point()]
    # Images are of the type of the weights that read them, or autocast makes them; float64 it leaves alone.
    cast = torch.is_autocast_enabled(images.device.type) and torch.float64 not in (images.dtype, *weights)
    if weights and images.dtype not in weights and not cast:
        raise ValueError(f"images are {images.dtype}, the model is {weights[0]}; give images.to({weights[0]})")
    convolution = next((m for m in embed.modules() if isinstance(m, nn.Conv2d)), None)
    channels, given = images.shape[1], tuple(images.shape[-2:])
    if convolution is not None and channels != convolution.in_channels:
        raise ValueError(f"images have {channels} channels, expected {convolution.in_channels}")
    size = getattr(embed, "img_size", None)
    if size is not None and getattr(embed, "strict_img_size", True) and given != tuple(size):
        raise ValueError(
            f"images are {given[0]} x {given[1]} pixels, expected {size[0]} x {size[1]}; resize them, or build the "
            "model with another image size (timm: img_size=…, or dynamic_img_size=True for any)"
        )
    down, across = patch_stride(model)
    if not getattr(embed, "dynamic_img_pad", False) and (given[0] % down or given[1] % across):
        raise ValueError(
            f"images are {given[0]} x {given[1]} pixels, expected multiples of the patch stride {down} x {across}; "
            "crop or resize them"
        )


def image_batches(model: nn.Module, images: Tensor, batch_size: int | None = None) -> tuple[Tensor, ...]:
    """Split images into batches of `batch_size`, or none for None; model and images are checked before."""
    check_model(model)
    check_images(model, images)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size {batch_size} given, expected 1 or more images per forward, or None for all")
    return images.split(batch_size or len(images))


def check_shape(tensor: Tensor, name: str, *sizes: str) -> None:
    """Refuse a tensor with other dimensions than these, which are named, or with nothing in one but the first."""
    if tensor.ndim != len(sizes) or 0 in tensor.shape[1:]:
        raise ValueError(
            f"{name} has shape {list(tensor.shape)}, expected [{', '.join(sizes)}] with one or more of each"
        )


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


def check_rows(attn: Tensor, name: str, *, strict: bool = False) -> None:
    """Refuse attention that holds NaN or has rows that do not sum to 1, naming the largest deviation.

    Rows may be rounded to half precision, whatever the dtype is now; not where strict, as for what a model computes.
    """
    if not attn.is_floating_point():
        raise ValueError(f"attention of {name} is {attn.dtype}, expected floating point")
    sums = attn.detach().sum(-1, dtype=torch.promote_types(attn.dtype, torch.float32))
    worst = (sums - 1).abs().amax().item()
    # Where every weight was rounded to bfloat16, to within 2**-8 of it, so is the sum.
    tolerance = _ROW_SUM[attn.dtype] if strict else max(_ROW_SUM[attn.dtype], 2**-8 + 1e-4)
    if not worst <= tolerance:  # also true of NaN
        problem = "holds NaN" if math.isnan(worst) else f"has a row whose sum differs from 1 by {worst:.3g}"
        raise ValueError(
            f"attention of {name} {problem}, expected rows that sum to 1 (attention after the softmax, or rounded "
            "to half precision); look for NaN or infinity in weights and images, or for a matrix that was cut or not "
            "normalised"
        )


def widen(values: Tensor) -> Tensor:
    """Convert to float32, or keep what is finer: sums over hundreds of tokens are no business of half precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
