"""How a model cuts an image into tokens: grid, stride, prefix tokens, and which images it takes (§3.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_ROW_SUM = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-8}  # tolerance
_ROUNDED = 2**-8 + 1e-4  # the same where every weight was rounded to bfloat16: to within 2**-8 of it, and so is the sum

_SCALES = (
    "vitlab.data.loader.to_float scales 0…255 to -1…1, for models of ours; for others, such as those of timm, "
    "vitlab.models.zoo.load(name).prepare or vitlab.models.zoo.Pretrained.of(…).prepare"
)


def n_prefix_tokens(model: nn.Module) -> int:
    """Number of tokens before the patches: 0, 1 (class), 2 (class and distillation), or more (registers).

    Raises:
        ValueError: for a model that does not say.

    >>> import timm
    >>> n_prefix_tokens(timm.create_model("test_vit"))
    1
    """
    check_module(model)
    count = getattr(model, "num_prefix_tokens", None)
    if not isinstance(count, int):
        _check_blocks(model)
        raise _no_plain_vit(model, "it has no `num_prefix_tokens`, so its patch tokens cannot be told from others")
    return count


def has_class_token(model: nn.Module) -> bool:
    """Whether the first token is a class token; registers alone are none.

    >>> import timm
    >>> has_class_token(timm.create_model("test_vit"))
    True
    """
    holders = (model, getattr(model, "embeds", None))  # the latter in timm's NaFlexViT
    return n_prefix_tokens(model) > 0 and any(getattr(holder, "cls_token", None) is not None for holder in holders)


def reads_class_token(model: nn.Module) -> bool:
    """Whether the head reads the class token and not the patches: BEiT, EVA-02 and others have one that it ignores.

    Pooling of timm's (`global_pool`) by "token" reads it, and so does a head without a pooling, as ours; "avg", "max",
    "avgmax" and attention pooling read the patches. A distilled DeiT counts as reading the class token, although its
    head reads the distillation token as well.

    >>> import timm
    >>> [reads_class_token(timm.create_model("test_vit", global_pool=pool)) for pool in ("token", "avg")]
    [True, False]
    """
    return has_class_token(model) and getattr(model, "global_pool", None) in (None, "", "token")


def patch_stride(model: nn.Module) -> tuple[int, int]:
    """Input pixels from one patch to the next, (down, across); for a hybrid the total stride.

    Raises:
        ValueError: for a model with no patch embedding.

    >>> import timm
    >>> patch_stride(timm.create_model("test_vit"))
    (16, 16)
    """
    embed = patch_embedding(model)
    stride = embed.feat_ratio(as_scalar=False) if hasattr(embed, "feat_ratio") else embed.patch_size
    down, across = (stride, stride) if isinstance(stride, int) else stride
    return int(down), int(across)


def grid_size(model: nn.Module, images: Tensor) -> tuple[int, int]:
    """Rows and columns of patches that the model makes of these images [B C H W].

    Raises:
        ValueError: for a model with no patch embedding, and images that are no tensor.

    >>> import timm
    >>> grid_size(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160))
    (10, 10)
    """
    embed = patch_embedding(model)
    if not isinstance(images, Tensor):
        raise _no_images(images)
    height, width = images.shape[-2:]
    if hasattr(embed, "dynamic_feat_size"):  # timm's own rule, with its padding
        rows, cols = embed.dynamic_feat_size((height, width))
    else:
        down, across = patch_stride(model)
        rows, cols = height // down, width // across
    return int(rows), int(cols)


def patch_embedding(model: nn.Module) -> nn.Module:
    """The module that turns images into patch tokens.

    Raises:
        ValueError: when there is none.

    >>> import timm
    >>> type(patch_embedding(timm.create_model("test_vit"))).__name__
    'PatchEmbed'
    """
    check_module(model)
    embed = getattr(model, "patch_embed", None) or getattr(model, "embeds", None)  # the latter in timm's NaFlexViT
    if not isinstance(embed, nn.Module) or not hasattr(embed, "patch_size"):
        raise ValueError(
            f"{type(model).__name__} has no patch embedding of one patch size, so it is no plain ViT; expected a ViT "
            "whose tokens are one grid of patches; give such a model, or the part of this one that is a ViT"
        )
    return embed


def check_module(model: nn.Module) -> None:
    """Refuse what is no module, and a module around the model, which hides what is asked of it.

    Raises:
        TypeError: for a name, a dictionary of weights or the like.
        ValueError: for a wrapper, such as nn.DataParallel.

    >>> import timm
    >>> check_module(timm.create_model("test_vit"))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is {type(model).__name__}, expected a torch.nn.Module; a name or weights alone are none "
            "(vitlab.models.zoo.load(name).model is one)"
        )
    if isinstance(getattr(model, "module", None), nn.Module):
        raise ValueError(f"model is {type(model).__name__}: it wraps a model; give `model.module`")


def check_model(model: nn.Module) -> None:
    """Refuse what is not one sequence of transformer blocks over patch tokens.

    Raises:
        ValueError: with the reason.

    >>> import timm
    >>> check_model(timm.create_model("test_vit"))
    """
    check_module(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise _refusal(model, "TorchScript hides its calls; give the model it was made from")
    _check_blocks(model)
    n_prefix_tokens(model)
    patch_embedding(model)


def check_images(model: nn.Module, images: Tensor) -> None:
    """Refuse images that this model cannot take, before it fails somewhere inside.

    Raises:
        ValueError: naming what was given, what was expected, and what to do.

    >>> import timm
    >>> check_images(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160))
    """
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise _no_images(images)
    if len(images) == 0:
        raise ValueError(f"images are {list(images.shape)}: an empty batch; give at least one image")
    if not images.is_floating_point():
        raise ValueError(
            f"images are {images.dtype}, expected floating point, normalised as the model was trained ({_SCALES})"
        )
    extreme = images.detach().abs().amax().item()
    if not extreme < 64:  # also true of NaN
        raise ValueError(
            f"images hold values up to {extreme:g}, expected about -3…3: not finite, or 0…255 not scaled yet "
            f"({_SCALES})"
        )
    _check_dtype(model, images)
    _check_size(model, images)


def image_batches(model: nn.Module, images: Tensor, batch_size: int | None = None) -> tuple[Tensor, ...]:
    """Images in batches of `batch_size`, in order, or all in one for None; model and images are checked before.

    Raises:
        ValueError: as `check_model` and `check_images`, and for a batch size below 1.

    >>> import timm
    >>> [len(part) for part in image_batches(timm.create_model("test_vit"), torch.zeros(3, 3, 160, 160), 2)]
    [2, 1]
    """
    check_model(model)
    check_images(model, images)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size {batch_size} given, expected 1 or more images per forward, or None for all")
    return images.split(batch_size or len(images))


def check_shape(tensor: Tensor, name: str, *sizes: str) -> None:
    """Refuse a tensor with other dimensions than these, which are named, or with nothing in one but the first.

    Raises:
        ValueError: naming the shape that was given and the one expected.

    >>> check_shape(torch.zeros(2, 3), "maps", "batch", "rows", "columns")
    Traceback (most recent call last):
    ValueError: maps has shape [2, 3], expected [batch, rows, columns] with one or more of each
    """
    if tensor.ndim != len(sizes) or 0 in tensor.shape[1:]:
        raise ValueError(
            f"{name} has shape {list(tensor.shape)}, expected [{', '.join(sizes)}] with one or more of each"
        )


def check_attention(attn: Tensor, grid: tuple[int, int], n_prefix: int) -> None:
    """Refuse what is not attention [batch, heads, query, key] over prefix tokens and the patches of this grid.

    Raises:
        ValueError: when the shape does not fit, or as `check_rows`.

    >>> check_attention(torch.full((1, 2, 5, 5), 1 / 5), (2, 2), 1)
    """
    rows, cols = grid
    n_tokens = n_prefix + rows * cols
    if attn.ndim != 4 or tuple(attn.shape[2:]) != (n_tokens, n_tokens) or 0 in attn.shape:
        raise ValueError(
            f"attn has shape {list(attn.shape)}, expected [batch, heads, {n_tokens}, {n_tokens}] for {n_prefix} "
            f"prefix tokens + {rows} x {cols} patches; check the grid and the number of prefix tokens"
        )
    check_rows(attn, "attn")


def check_rows(attn: Tensor, name: str, *, strict: bool = False) -> None:
    """Attention is a distribution over keys: refuse NaN and rows that do not sum to 1.

    Rows may be rounded to half precision, whatever the dtype is now; not where strict, as for what a model computes.

    Raises:
        ValueError: naming the largest deviation.

    >>> check_rows(torch.full((1, 2, 5, 5), 1 / 5), "attn")
    """
    if not attn.is_floating_point():
        raise ValueError(f"attention of {name} is {attn.dtype}, expected floating point")
    sums = attn.detach().sum(-1, dtype=torch.promote_types(attn.dtype, torch.float32))
    worst = (sums - 1).abs().amax().item()
    tolerance = _ROW_SUM[attn.dtype] if strict else max(_ROW_SUM[attn.dtype], _ROUNDED)
    if not worst <= tolerance:  # also true of NaN
        problem = "holds NaN" if math.isnan(worst) else f"has a row whose sum differs from 1 by {worst:.3g}"
        raise ValueError(
            f"attention of {name} {problem}, expected rows that sum to 1 (attention after the softmax, or rounded "
            "to half precision); look for NaN or infinity in weights and images, or for a matrix that was cut or not "
            "normalised"
        )


def _no_images(images: object) -> ValueError:
    given = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
    return ValueError(f"images are {given}, expected a tensor [batch, channels, height, width]")


def _check_dtype(model: nn.Module, images: Tensor) -> None:
    """Images are of the type of the weights that read them, or autocast makes them; float64 it leaves alone."""
    weights = [p.dtype for p in patch_embedding(model).parameters() if p.is_floating_point()]
    cast = torch.is_autocast_enabled(images.device.type) and torch.float64 not in (images.dtype, *weights)
    if weights and images.dtype not in weights and not cast:
        raise ValueError(f"images are {images.dtype}, the model is {weights[0]}; give images.to({weights[0]})")


def _check_size(model: nn.Module, images: Tensor) -> None:
    embed = patch_embedding(model)
    convolution = next((m for m in embed.modules() if isinstance(m, nn.Conv2d)), None)
    channels = images.shape[1]
    if convolution is not None and channels != convolution.in_channels:
        raise ValueError(f"images have {channels} channels, expected {convolution.in_channels}")
    size, fixed = getattr(embed, "img_size", None), getattr(embed, "strict_img_size", True)
    given = tuple(images.shape[-2:])
    if size is not None and fixed and given != tuple(size):
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


def _check_blocks(model: nn.Module) -> None:
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList) or len(blocks) == 0:
        raise _no_plain_vit(
            model,
            "it has no `.blocks`, one sequence of transformer blocks; windowed, pyramid and convolutional networks "
            "(Swin, MaxViT, ResNet …) have no attention between all patches",
        )


def _no_plain_vit(model: nn.Module, reason: str) -> ValueError:
    return _refusal(
        model,
        f"it is no plain ViT: {reason}; expected a ViT whose tokens are one grid of patches and, before them, any "
        "number of prefix tokens (class token, registers); give such a model, or the part of this one that is a ViT",
    )


def _refusal(model: nn.Module, reason: str) -> ValueError:
    return ValueError(f"cannot capture the attention of {type(model).__name__}: {reason}")
