"""Weight files: every dialect read here under timm's names, nothing unpickled; saving; where the hub keeps them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vitlab import paths
from vitlab.models.vit import ViT, ViTConfig

FOLDER_PREFIX = "local-dir:"
PREFIXES = ("hf-hub:", FOLDER_PREFIX)
DAMAGED = (zipfile.BadZipFile, zlib.error)  # what unpacking raises
# The paper's own weights (§4.1), pre-trained on ImageNet-21k: name → timm's name for them
PAPERS_OWN = {
    "ViT-B/16": "vit_base_patch16_224.orig_in21k",
    "ViT-B/32": "vit_base_patch32_224.orig_in21k",
    "ViT-L/16": "vit_large_patch16_224.orig_in21k",
    "ViT-L/32": "vit_large_patch32_224.orig_in21k",
    "ViT-H/14": "vit_huge_patch14_224.orig_in21k",
}


# Takes whole training checkpoints too, {"model": …, "args": …}; `weights_only` runs no code of the file.
CONVERT = (
    "import argparse, torch, safetensors.torch; torch.serialization.add_safe_globals([argparse.Namespace]); "
    "found = torch.load(FILE, map_location='cpu', weights_only=True); "
    "found = next((found[key] for key in ('model_ema', 'model', 'state_dict', 'teacher') if key in found), found); "
    "safetensors.torch.save_file({key: value.clone() for key, value in found.items()}, 'model.safetensors')"
)
PATCHES = "patch_embed.proj.weight"
TRANSFORMERS = {  # names of transformers' ViT, DeiT and DINOv2 → timm's, replaced in this order
    r"^(vit|deit|dinov2)\.": "",
    r"^embeddings\.(cls_token|mask_token)": r"\1",
    r"^embeddings\.distillation_token": "dist_token",
    r"^embeddings\.register_tokens": "reg_token",
    r"^embeddings\.position_embeddings": "pos_embed",
    r"^embeddings\.patch_embeddings\.projection": "patch_embed.proj",
    r"^encoder\.layer\.": "blocks.",
    r"\.attention\.output\.dense": ".attn.proj",
    r"\.intermediate\.dense": ".mlp.fc1",
    r"\.output\.dense": ".mlp.fc2",
    r"\.layernorm_before": ".norm1",
    r"\.layernorm_after": ".norm2",
    r"^layernorm": "norm",
    r"layer_scale(\d)\.lambda1": r"ls\1.gamma",
    r"^(cls_)?classifier": "head",
    r"^distillation_classifier": "head_dist",
}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file, or of an .npz file of the authors' release.

    Raises FileNotFoundError, and ValueError for a file that is corrupt, truncated, a pickle or of another format.
    """
    if not os.path.isfile(path):  # unlike pathlib's, False for a name that is too long
        raise FileNotFoundError(f"there is no file {str(path):.300}; give the path of a .safetensors or .npz file")
    if path.suffix.lower() == ".npz":
        return read_release(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        with path.open("rb") as opened:
            start = opened.read(24)
        why = f"it is corrupt, cut short or of another format ({error}); copy or download it again"
        if start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[1:2] <= b"\x05"):
            why = (
                "it looks like a pickle (.pt, .pth, .bin) or a zip; pickles can run code and are never opened here; "
                f"look for a .safetensors file of the same model, or convert it once with {CONVERT}"
            )
        elif start.startswith(b"version https://git-lfs"):
            why = "it is a Git LFS pointer, not the weights; run `git lfs pull` where it comes from"
        raise ValueError(f"{path} cannot be read as safetensors: {why}") from error


def plain(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give a ViT's tensors timm's names where they are transformers', or inside a module (`module.`, `backbone.` …).

    What only pre-training used (MAE's decoder, DINO's projection, mask tokens) is left out.
    """
    if any("embeddings.patch_embeddings.projection" in key for key in state):
        for theirs, timms in TRANSFORMERS.items():
            state = {re.sub(theirs, timms, key): value for key, value in state.items()}
        for key in [key for key in state if ".attention.attention.query." in key]:
            three = [state.pop(key.replace("query", part)) for part in ("query", "key", "value")]
            state[key.replace("attention.attention.query", "attn.qkv")] = torch.cat(three)
    inside = [key.removesuffix(PATCHES) for key in state if key.endswith(PATCHES)]
    if len(inside) != 1:
        return state
    extra = re.compile(r"decoder|predictor|mask_token$|head\.(mlp|last_layer)\b")
    found = {key.removeprefix(inside[0]): value for key, value in state.items()}
    if inside[0].endswith("visual.trunk."):  # OpenCLIP: the projection is the head, as in timm; the text's part goes
        found = {key.removeprefix(inside[0]): value for key, value in state.items() if key.startswith(inside[0])}
        if (head := state.get(inside[0].replace("trunk.", "head.proj.weight"))) is not None:
            found |= {"head.weight": head, "head.bias": head.new_zeros(len(head))}
    return {key: value for key, value in found.items() if not extra.match(key)}


def timm_options(state: Mapping[str, Tensor], shapes: nn.Module) -> dict[str, Any]:
    """Tell what a file's tensors say of timm's VisionTransformer that its name does not: arguments that make it."""
    wanted = shapes.state_dict()
    if type(shapes).__name__ != "VisionTransformer":
        return {}
    options: dict[str, Any] = {} if "blocks.0.ls1.gamma" not in state.keys() - wanted else {"init_values": 1e-5}
    if "reg_token" in state.keys() - wanted:
        options["reg_tokens"] = state["reg_token"].shape[1]
    if "cls_token" in wanted.keys() - state:
        options |= {"class_token": False, "global_pool": "avg", "fc_norm": "fc_norm.weight" in state}
    return options if "fc_norm.weight" not in state.keys() - wanted else {"global_pool": "avg"} | options


def image_side(state: Mapping[str, Tensor], shapes: nn.Module) -> int:
    """Tell for which square images, in pixels, a file's position embeddings or tables of relative positions are made.

    0 where they are the model's (its `shapes`), or no square. How many belong to other tokens is the model's to say.
    """
    embed: Any = getattr(shapes, "patch_embed", None)
    rows, cols = getattr(embed, "grid_size", None) or (0, 0)
    for key, its in shapes.state_dict().items() if rows else ():
        table = state.get(key, state.get("visual.positional_embedding") if key == "pos_embed" else None)
        if table is None or not key.endswith(("pos_embed", "relative_position_bias_table")) or its.ndim > 3:
            continue
        if its.ndim == 3:  # of OpenCLIP, without the first dimension
            side = math.isqrt(max(table.shape[-2] - its.shape[1] + rows * cols, 0))
        else:
            side = (math.isqrt(max(len(table) - len(its) + (2 * rows - 1) * (2 * cols - 1), 0)) + 1) // 2
        return 0 if table.shape[-2] == its.shape[-2] else side * embed.img_size[0] // rows
    return 0


def big_vision_classes(path: Path) -> int | None:
    """Count the classes of an .npz file of google-research/big_vision, 0 without a head; None for another file."""
    if path.suffix.lower() != ".npz" or not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            heads = [file[name] for name in file.files if name.endswith("head/bias")]
            return (len(heads[0]) if heads else 0) if any(name.startswith("params/") for name in file.files) else None
    except (EOFError, OSError, ValueError, *DAMAGED):
        return None


def read_release(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a ViT of the authors' release (google-research/vision_transformer) by timm's loader, under timm's names.

    The metadata are {"n_heads": …}, which no shape of timm's tells.
    """
    from timm.models.vision_transformer import VisionTransformer

    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            prefix = "opt/target/" if "opt/target/embedding/kernel" in file.files else ""  # of a training's whole state
            arrays = {name.removeprefix(prefix): file[name] for name in file.files}
        if "conv_root/kernel" in arrays:
            raise ValueError("it is a hybrid's: timm has those by name, such as vit_base_r50_s16_224.orig_in21k")
        if "embedding/kernel" not in arrays:
            raise ValueError(f"no embedding/kernel; found {name_some(sorted(arrays))}")
        patch_size, _, _, dim = arrays["embedding/kernel"].shape
        n_patches = arrays["Transformer/posembed_input/pos_embedding"].shape[1] - 1
        block = "Transformer/encoderblock_0"
        n_heads = arrays[f"{block}/MultiHeadDotProductAttention_1/query/kernel"].shape[1]
        with torch.random.fork_rng(devices=[]):  # the constructor draws; those draws are thrown away
            model = VisionTransformer(
                img_size=patch_size * math.isqrt(n_patches),
                patch_size=patch_size,
                embed_dim=dim,
                depth=sum(name.endswith("/LayerNorm_0/scale") for name in arrays),
                num_heads=n_heads,
                mlp_ratio=len(arrays[f"{block}/MlpBlock_3/Dense_0/bias"]) / dim,
                num_classes=len(arrays.get("head/bias", ())),
            )
        model.load_pretrained(str(path))
        state = model.state_dict()
        if "pre_logits/kernel" in arrays:  # timm has no hidden layer before the head
            state["pre_logits.fc.weight"] = torch.from_numpy(arrays["pre_logits/kernel"].T)
            state["pre_logits.fc.bias"] = torch.from_numpy(arrays["pre_logits/bias"])
    except (AttributeError, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, *DAMAGED) as error:
        raise ValueError(
            f"{path} cannot be read as a ViT of the authors' release ({error}); pickles are never opened here: look "
            "where it comes from, copy or download it again"
        ) from error
    return state, {"n_heads": str(n_heads)}


def difference(model: nn.Module, state: Mapping[str, Tensor], n_heads: str | None = None) -> str:
    """Say how a state dict differs from a model's in keys, shapes and heads; "" when it does not."""
    wanted = model.state_dict()
    kinds = {
        "missing": [key for key in wanted if key not in state],
        "not expected": [key for key in state if key not in wanted],
        "no finite floating-point numbers": [
            key
            for key in wanted
            if key in state
            and wanted[key].is_floating_point()
            and not (state[key].is_floating_point() and (state[key].is_meta or state[key].isfinite().all()))
        ],
        "of another shape": [
            f"{key} {tuple(state[key].shape)}, not {tuple(wanted[key].shape)}"
            for key in wanted
            if key in state and state[key].shape != wanted[key].shape
        ],
    }
    words = "; ".join(f"{kind}: {name_some(keys)}" for kind, keys in kinds.items() if keys)
    if not words and n_heads and int(n_heads) != model.blocks[0].attn.num_heads:  # the shapes do not show it
        return f"it was made for {n_heads} heads, not {model.blocks[0].attn.num_heads}"
    return words


def name_some(keys: list[str]) -> str:
    """Name the first four of the keys, and say how many more there are."""
    return ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def values_hash(state: Mapping[str, Tensor]) -> str:
    """Hash all names and values: what weights are, wherever they lie; 16 hexadecimal digits of the SHA-256."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode() + state[key].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def vit_config(state: Mapping[str, Tensor], n_heads: int) -> ViTConfig:
    """Tell the architecture of a ViT of the authors' release from its shapes."""
    dim, _, patch_size, _ = state["patch_embed.proj.weight"].shape
    return ViTConfig(
        image_size=math.isqrt(state["pos_embed"].shape[1] - 1) * patch_size,
        patch_size=patch_size,
        dim=dim,
        depth=sum(key.startswith("blocks.") and key.endswith(".attn.qkv.weight") for key in state),
        n_heads=n_heads,
        mlp_dim=state["blocks.0.mlp.fc1.weight"].shape[0],
        n_classes=state["head.weight"].shape[0],
        head="tanh" if "pre_logits.fc.weight" in state else "linear",
    )


def check_plain(model: nn.Module, images: Tensor) -> None:
    """Raise ValueError for a model that is not Eq. 1–4 with a linear head: a `ViT` of its weights is, to the bit."""
    state, kind = model.state_dict(), type(model).__name__
    needed = ("cls_token", "pos_embed", PATCHES, "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "head.weight")
    if missing := [key for key in needed if key not in state]:
        raise ValueError(f"this {kind} has no {name_some(missing)}")
    ours: Any = ViT(dataclasses.replace(vit_config(state, model.blocks[0].attn.num_heads), head="linear")).eval()
    if unlike := difference(ours, state):
        raise ValueError(f"the tensors of this {kind} do not fit, {unlike}")
    ours.load_state_dict(state)
    pairs = (ours.forward_features(images), model.forward_features(images)), (ours(images), model(images))
    if not all(torch.equal(*pair) for pair in pairs):
        raise ValueError(f"this {kind} computes something else with the same tensors")


def save(path: Path | str, model: nn.Module, name: str, about: Mapping[str, Any]) -> None:
    """Write a model's weights with what `zoo.load` needs to build it again, whole or not at all.

    `name` is what `zoo.create` made it from; `about` is anything of JSON's worth telling about the weights.
    """
    from safetensors.torch import save as to_bytes

    config: Any = getattr(model, "config", None)
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        kind, settings = type(model).__name__, dataclasses.asdict(config)
    else:
        size = getattr(getattr(model, "patch_embed", None), "img_size", None)
        kind, settings = "timm", {"n_classes": model.num_classes} | ({"image_size": tuple(size)} if size else {})
    record = {"model": name, "class": kind, "config": settings, "about": dict(about)}
    tensors = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    with paths.writing(path) as temporary:
        temporary.write_bytes(to_bytes(tensors, {"vitlab": json.dumps(record, sort_keys=True)}))


# timm's models, and folders as timm and hubs have them


def as_timm(model: ViT) -> nn.Module:
    """Make timm's model with the same weights, the same logits to the bit; timm's `save_for_hf` shares it.

    Raises ValueError for a model that timm's class cannot be: a hybrid, a variant, or one with a tanh head.
    """
    import timm

    theirs = timm.create_model("vit_base_patch16_224", **timm_arguments(model))  # any plain ViT: every size is given
    theirs.load_state_dict(model.state_dict())
    return theirs.train(model.training)


def timm_arguments(model: ViT) -> dict[str, Any]:
    """Give what makes timm's plain VisionTransformer the architecture of `model`; raises as `as_timm`."""
    if type(model) is not ViT:
        raise ValueError(f"a {type(model).__name__} has no counterpart in timm; only the plain ViT can be exported")
    config = model.config
    if config.head != "linear":
        raise ValueError("timm's ViT has no hidden layer before its head (head='tanh'); export it after fine-tuning")
    return {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.n_heads,
        "mlp_ratio": config.mlp_dim / config.dim,
        "num_classes": config.n_classes,
        "class_token": config.pool == "class",
        "global_pool": "token" if config.pool == "class" else "avg",
        "fc_norm": False,
    }


def find(name: str) -> tuple[str, Path, str]:
    """Find the weights of timm's under a name, "hf-hub:OWNER/MODEL" or "local-dir:FOLDER": build name, file, source."""
    from timm.models import get_pretrained_cfg, list_pretrained

    if name.startswith(PREFIXES):
        folder, path = folder_of(name), file_of(name, "model.safetensors")
        source = str(path) if name.startswith(FOLDER_PREFIX) else f"{name.partition(':')[2]} on the Hugging Face hub"
        return f"{FOLDER_PREFIX}{folder}", path, source
    try:
        known = get_pretrained_cfg(name)
    except RuntimeError as error:  # an unknown tag
        architecture = name.partition(".")[0]
        tags = ", ".join(list_pretrained(f"{architecture}.*")) or "none"
        raise ValueError(f"timm has no weights {name}; for {architecture} it has {tags}") from error
    if known is None or not known.hf_hub_id:
        raise ValueError(f"timm has no weights for {name}; give a local file, {name}@FILE, or use untrained=True")
    path = hub_file(known.hf_hub_id, known.hf_hub_filename or "model.safetensors")
    return name, path, f"{known.hf_hub_id} on the Hugging Face hub"


def folder_of(name: str) -> Path:
    """Find the folder of "local-dir:FOLDER", or of "hf-hub:OWNER/MODEL" in the cache, whose config.json is timm's."""
    import timm

    config = file_of(name, "config.json")
    try:
        known = timm.is_model(json.loads(config.read_text(encoding="utf-8"))["architecture"])
    except (AttributeError, KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise ValueError(
            f"{config} names no architecture of timm's; give the weights with their architecture's name, as "
            f"NAME@{config.parent}/model.safetensors"
        )
    return config.parent


def file_of(name: str, file: str) -> Path:
    """Find a file of "local-dir:FOLDER", or of "hf-hub:OWNER/MODEL@REVISION" in the cache or on the hub."""
    place = name.partition(":")[2]
    if not name.startswith(FOLDER_PREFIX):
        repo_id, _, revision = place.partition("@")
        return hub_file(repo_id, file, revision or None)
    path = Path(os.path.expanduser(place)) / file
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"there is no {str(path):.300}: a folder has config.json and model.safetensors, as timm writes them by "
            "save_for_hf(model, FOLDER, safe_serialization=True); give weights alone as NAME@FILE with their "
            "architecture's name; pickles (.bin) are never opened"
        )
    return path


def hub_file(repo_id: str, filename: str, revision: str | None = None) -> Path:
    """Get a file of a Hugging Face repository: from the local cache if it is there, else downloaded.

    Raises ConnectionError where the hub does not answer in two seconds; huggingface_hub tries for half a minute.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(repo_id, filename, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else ""
    if not why:
        try:
            urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=2).close()
        except urllib.error.HTTPError:
            pass  # it refused, so it is there
        except (OSError, ValueError, HTTPException):  # no answer, no address, no HTTP
            why = f"{constants.ENDPOINT} cannot be reached"
    if why:
        raise ConnectionError(
            f"{filename} of {repo_id} is not in the local cache {constants.HF_HUB_CACHE}, and {why}; go online without "
            "HF_HUB_OFFLINE, point HF_HOME at a cache that has it or HF_ENDPOINT at a mirror, or give a local file, as "
            "NAME@FILE, or a local folder with config.json and model.safetensors"
        )
    return Path(hf_hub_download(repo_id, filename, revision=revision))
