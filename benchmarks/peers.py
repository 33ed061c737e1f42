"""The attention analyses as others compute them, for `analysis.py`: Hugging Face transformers, and vit-explain.

Neither is a dependency of the project. `pip install transformers` (5 or later) gives the first; the second is on no
registry: clone github.com/jacobgil/vit-explain and `pip install opencv-python-headless`, which it imports.
"""

from __future__ import annotations

import copy
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn


def hf_twin(model: nn.Module) -> nn.Module:
    """Hugging Face's ViTModel with the weights of a plain timm ViT with a class token, its attention open-coded.

    Raises:
        ImportError: saying what to install.
        RuntimeError: from torch, where a key or a shape does not fit: the model is no plain ViT.
    """
    try:
        from transformers import ViTConfig, ViTModel
    except ImportError as error:
        raise ImportError("not installed: pip install transformers") from error
    config = ViTConfig(
        hidden_size=model.embed_dim,
        num_hidden_layers=len(model.blocks),
        num_attention_heads=model.blocks[0].attn.num_heads,
        intermediate_size=model.blocks[0].mlp.fc1.out_features,
        image_size=model.patch_embed.img_size[0],
        patch_size=model.patch_embed.patch_size[0],
        layer_norm_eps=model.norm.eps,
        attn_implementation="eager",
    )
    twin = ViTModel(config, add_pooling_layer=False).eval()
    twin.load_state_dict(hf_keys(model.state_dict()))
    return twin


def hf_keys(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A timm ViT's weights under Hugging Face's names; the classifier is left out.

    >>> sorted(hf_keys({"blocks.0.attn.qkv.bias": torch.zeros(6), "head.bias": torch.zeros(2)}))[0]
    'layers.0.attention.k_proj.bias'
    """
    names = {
        "cls_token": "embeddings.cls_token",
        "pos_embed": "embeddings.position_embeddings",
        "patch_embed.proj.": "embeddings.patch_embeddings.projection.",
        "norm.": "layernorm.",
        "blocks.": "layers.",
    }
    inside = {
        ".attn.proj.": ".attention.o_proj.",
        ".norm1.": ".layernorm_before.",
        ".norm2.": ".layernorm_after.",
    }
    found = {}
    for key, value in state.items():
        if key.startswith("head."):
            continue
        start = next(start for start in names if key.startswith(start))
        name = names[start] + key[len(start) :]
        for ours, theirs in inside.items():
            name = name.replace(ours, theirs)
        if ".attn.qkv." in name:
            for part, rows in zip("qkv", value.chunk(3), strict=True):
                found[name.replace(".attn.qkv.", f".attention.{part}_proj.")] = rows
        else:
            found[name] = value
    return found


def hf_maps(twin: nn.Module, images: Tensor) -> tuple[Tensor, ...]:
    """All layers' attention [B H T T] from one forward."""
    with torch.no_grad():
        return twin(pixel_values=images, output_attentions=True).attentions


def usual_rollout(maps: Sequence[Tensor], grid: tuple[int, int], n_prefix: int) -> Tensor:
    """Rollout [B rows cols] as a product of whole matrices."""
    identity = torch.eye(maps[0].shape[-1])
    product = identity
    for attn in maps:
        mixed = attn.mean(1) + identity
        product = (mixed / mixed.sum(-1, keepdim=True)) @ product
    return product[:, 0, n_prefix:].unflatten(-1, grid)


def usual_distance(maps: Sequence[Tensor], grid: tuple[int, int], stride: int, n_prefix: int) -> Tensor:
    """Mean attention distance [B L H] in pixels, from all maps at once; rows are left as they are."""
    places = torch.cartesian_prod(*(stride * torch.arange(side, dtype=torch.float32) for side in grid))
    pixels = torch.cdist(places, places)
    between_patches = torch.stack(tuple(maps), dim=1)[..., n_prefix:, n_prefix:]
    return (between_patches * pixels).sum(-1).mean(-1)


def vit_explain(model: nn.Module, folder: Path, head_fusion: str = "mean", discard_ratio: float = 0.0) -> Callable:
    """VITAttentionRollout of a clone of vit-explain, on a copy of the model: its hooks stay for good.

    Raises:
        ImportError: when the folder holds no such clone, or a package that it imports is missing.
    """
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module("vit_rollout")
    except ImportError as error:
        raise ImportError(f"no vit-explain in {folder}: {error}; see the head of benchmarks/peers.py") from error
    finally:
        sys.path.remove(str(folder))
    hooked = copy.deepcopy(model)
    for block in hooked.blocks:
        block.attn.fused_attn = False  # with fused attention its hooks see nothing
    return module.VITAttentionRollout(hooked, head_fusion=head_fusion, discard_ratio=discard_ratio)


def one_by_one(explain: Callable, images: Tensor) -> Tensor:
    """vit-explain's pictures [B rows cols], each divided by its maximum; it takes one image at a time."""
    return torch.stack([torch.from_numpy(explain(image[None])) for image in images])


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Between two sets of pictures [B rows cols], each divided by its maximum."""
    a, b = (pictures / pictures.amax((1, 2), keepdim=True) for pictures in (a, b))
    return (a - b).abs().max().item()


def what_it_says(call: Callable[[], object]) -> str:
    """The error that a call ends with, in one line, or that it ends with none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the peer raises is the finding
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "no error"


def relative(found: Tensor, wanted: Tensor) -> float:
    """Largest difference over the largest value."""
    return ((found - wanted).abs().max() / wanted.abs().max()).item() if wanted.any() else math.nan
