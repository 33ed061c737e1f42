"""Weights in safetensors and .npz files: reading them safely, and telling from its shapes what ViT a file holds."""

import hashlib
import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vitlab.models import limits, release
from vitlab.models.vit import ViTConfig

HEAD_DIM = 64  # D_h of every model in Table 1, and of nearly every published ViT
# What makes a file a ViT: keys that must be there, with the number of dimensions each has.
_VIT_KEYS = {
    "patch_embed.proj.weight": 4,
    "pos_embed": 3,
    "blocks.0.attn.qkv.weight": 2,
    "blocks.0.mlp.fc1.weight": 2,
    "head.weight": 2,
}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file, or of an .npz of the authors'; nothing is ever unpickled.

    An .npz's tensors come under timm's names; its metadata are {"n_heads": …}.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is corrupt, truncated, a pickle or of another format, or holds tensors without a number
            in them, whose shapes nothing in the file bears out.
    """
    if not os.path.isfile(path):  # unlike pathlib's, False for a name that is too long
        raise FileNotFoundError(f"there is no file {str(path):.300}; give the path of a .safetensors or .npz file")
    if path.suffix.lower() == ".npz":
        try:
            state, n_heads = release.state_dict(_arrays(path))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as weights of the authors' release: {error}") from error
        metadata = {"n_heads": str(n_heads)}
    else:
        try:
            with safe_open(path, framework="pt") as file:
                state, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path} cannot be read as safetensors: {_diagnosis(path, error)}") from error
    if empty := [f"{key} {list(value.shape)}" for key, value in state.items() if value.numel() == 0]:
        raise ValueError(f"{path} holds tensors without a number in them, {_first(empty)}: no model's weights")
    return state, metadata


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        limits.check_archive(path)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"it is corrupt or cut short ({error}); copy or download it again") from error
    except OverflowError as error:
        raise ValueError(str(error)) from error
    except (TypeError, ValueError) as error:  # a pickle, an array of Python objects, one bare array, a broken header
        raise ValueError(
            "it is corrupt, no archive of arrays, or it holds pickles, which can run code and are never opened here; "
            "copy or download it again"
        ) from error
    strangers = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strangers:
        raise ValueError(f"it is a zip of other things than arrays ({strangers[0]} …)")
    return arrays


def _diagnosis(path: Path, error: SafetensorError) -> str:
    """What an unreadable file probably is, and what to do about it."""
    with path.open("rb") as file:
        start = file.read(24)
    is_pickle = start[:1] == b"\x80" and start[1:2] <= b"\x05"  # the opening of pickle's protocols 2 to 5
    if is_pickle or start[:4] == b"PK\x03\x04":
        return (
            "it looks like a pickle (.pt, .pth, .bin) or a zip; pickles can run code and are "
            "never opened here; look for a .safetensors file of the same model, or convert it once with "
            "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
        )
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the weights; run `git lfs pull` where it comes from"
    return f"it is corrupt, cut short or of another format ({error}); copy or download it again"


def difference(model: nn.Module, state: dict[str, Tensor], n_heads: str | None = None) -> str:
    """How a state dict differs from a model's in keys, shapes and heads, in words; empty when it does not."""
    wanted = model.state_dict()
    shapes = [
        f"{key} {tuple(state[key].shape)}, not {tuple(wanted[key].shape)}"
        for key in wanted
        if key in state and state[key].shape != wanted[key].shape
    ]
    kinds = {
        "missing": [key for key in wanted if key not in state],
        "not expected": [key for key in state if key not in wanted],
        "of another shape": shapes,
    }
    words = "; ".join(f"{kind}: {_first(keys)}" for kind, keys in kinds.items() if keys)
    if not words and n_heads and int(n_heads) != model.blocks[0].attn.num_heads:  # the shapes do not show it
        return f"it was made for {n_heads} heads, not {model.blocks[0].attn.num_heads}"
    return words


def values_hash(state: dict[str, Tensor]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of all names and values: what weights are, wherever they lie.

    >>> import torch
    >>> one, other = ({"head.bias": torch.full((2,), value)} for value in (0.0, 1.0))
    >>> values_hash(one) == values_hash(dict(one)), values_hash(one) == values_hash(other)
    (True, False)
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode() + state[key].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def without_pre_logits(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights without the tanh layer of the pre-training head, which timm's models have not.

    Raises:
        ValueError: when the logits would change: the head after it is not zero, as it is in the authors' files.
    """
    if "head.weight" not in state or state["head.weight"].any():
        raise ValueError(
            f"{path} has the tanh layer of a pre-training head (pre_logits) and a head that goes with it, but timm's "
            f"models have no such layer; name it as a model of this project: ViT-B/16@{path} …"
        )
    return {key: value for key, value in state.items() if not key.startswith("pre_logits.")}


def _first(keys: list[str], count: int = 4) -> str:
    more = f" and {len(keys) - count} more" if len(keys) > count else ""
    return ", ".join(keys[:count]) + more


def vit_config(state: dict[str, Tensor], path: Path, n_heads: str | None = None) -> ViTConfig:
    """The architecture of a foreign, timm-keyed ViT, from its shapes; unless `n_heads` is known, heads are 64 wide.

    Raises:
        ValueError: when the file is no plain ViT, or the shapes leave its architecture open.
    """
    hint = named_hint(path)
    if any(key.startswith("patch_embed.backbone.") for key in state):
        raise ValueError(
            f"{path} is a hybrid, a ResNet and a ViT; {hint}: 'R+Lab-Ti/8', 'vit_base_r50_s16_224', "
            "'vit_small_r26_s32_224' …"
        )
    wrong = [key for key, ndim in _VIT_KEYS.items() if key not in state or state[key].ndim != ndim]
    if wrong:
        raise ValueError(
            f"{path} holds no ViT under timm's names: no {_first(wrong)}; found {_first(list(state))}; {hint}"
        )
    dim, _, patch_size, _ = state["patch_embed.proj.weight"].shape
    if n_heads is None and dim % HEAD_DIM:
        raise ValueError(
            f"{path} is a ViT of dim {dim}, which is not a multiple of {HEAD_DIM}, so its number of heads "
            f"cannot be told from the shapes; {hint}"
        )
    has_class_token = "cls_token" in state
    grid = grid_side(state)
    if grid is None:
        raise ValueError(
            f"{path} has {state['pos_embed'].shape[1]} position embeddings, which is no square grid"
            f"{' and a class token' if has_class_token else ''} (register tokens? other proportions?); {hint}"
        )
    return ViTConfig(
        image_size=grid * patch_size,
        patch_size=patch_size,
        dim=dim,
        depth=sum(key.startswith("blocks.") and key.endswith(".attn.qkv.weight") for key in state),
        n_heads=int(n_heads or dim // HEAD_DIM),
        mlp_dim=state["blocks.0.mlp.fc1.weight"].shape[0],
        n_classes=state["head.weight"].shape[0],
        head="tanh" if "pre_logits.fc.weight" in state else "linear",
        pool="class" if has_class_token else "gap",
    )


def named_hint(path: Path) -> str:
    """What to do with a file whose architecture cannot be told from it."""
    return f"name its architecture with NAME@{path}, where NAME is timm's or this project's"


def grid_side(state: dict[str, Tensor]) -> int | None:
    """Patches per side of a square image, from the number of position embeddings; None when there is none."""
    if "pos_embed" not in state or state["pos_embed"].ndim != 3:
        return None
    n_patches = state["pos_embed"].shape[1] - ("cls_token" in state)
    side = math.isqrt(n_patches)
    return side if side > 0 and side**2 == n_patches else None
