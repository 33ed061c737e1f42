"""Weight files: every dialect read here under timm's names, nothing unpickled; saving; where the hub keeps them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import threading
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

HEAD_DIM = 64  # D_h of every model in Table 1, and of nearly every published ViT
HUB_PREFIXES, FOLDER_PREFIX = ("hf-hub:", "hf_hub:"), "local-dir:"
PREFIXES = (*HUB_PREFIXES, FOLDER_PREFIX)
# The paper's own weights (§4.1), pre-trained on ImageNet-21k: name → timm's name for them
PAPERS_OWN = {
    "ViT-B/16": "vit_base_patch16_224.orig_in21k",
    "ViT-B/32": "vit_base_patch32_224.orig_in21k",
    "ViT-L/16": "vit_large_patch16_224.orig_in21k",
    "ViT-L/32": "vit_large_patch32_224.orig_in21k",
    "ViT-H/14": "vit_huge_patch14_224.orig_in21k",
}
# What an .npz may unpack to, in bytes, by its size on disk: trained weights hardly compress, and little is no danger.
MAX_EXPANSION, SMALL = 16, 2**28
# The authors' released weights (google-research/vision_transformer): their layers → timm's
RELEASED = (
    (r"embedding", "patch_embed.proj"),
    (r"head", "head"),
    (r"pre_logits", "pre_logits.fc"),
    (r"Transformer/encoder_norm", "norm"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_0", r"blocks.\1.norm1"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_2", r"blocks.\1.norm2"),
    (r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_1/(query|key|value)", r"blocks.\1.attn.\2"),
    (r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_1/out", r"blocks.\1.attn.proj"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_3/Dense_0", r"blocks.\1.mlp.fc1"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_3/Dense_1", r"blocks.\1.mlp.fc2"),
    (r"conv_root", "patch_embed.backbone.stem.conv"),  # from here on a hybrid's ResNet
    (r"gn_root", "patch_embed.backbone.stem.norm"),
    (r"block(\d+)/unit(\d+)/conv_proj", r"stages.\1.blocks.\2.downsample.conv"),
    (r"block(\d+)/unit(\d+)/gn_proj", r"stages.\1.blocks.\2.downsample.norm"),
    (r"block(\d+)/unit(\d+)/conv([123])", r"stages.\1.blocks.\2.conv\3"),
    (r"block(\d+)/unit(\d+)/gn([123])", r"stages.\1.blocks.\2.norm\3"),
)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file, or of an .npz of the authors'.

    An .npz's tensors come under timm's names; its metadata are {"n_heads": …}.

    Raises FileNotFoundError, and ValueError for a file that is corrupt, truncated, a pickle or of another format, or
    holds tensors without a number in them, whose shapes nothing in the file bears out.
    """
    if not os.path.isfile(path):  # unlike pathlib's, False for a name that is too long
        raise FileNotFoundError(f"there is no file {str(path):.300}; give the path of a .safetensors or .npz file")
    if path.suffix.lower() == ".npz":
        try:
            state, n_heads = from_release(read_npz(path))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as weights of the authors' release: {error}") from error
        metadata = {"n_heads": str(n_heads)}
    else:
        try:
            with safe_open(path, framework="pt") as file:
                state, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except SafetensorError as error:
            with path.open("rb") as opened:
                start = opened.read(24)
            why = f"it is corrupt, cut short or of another format ({error}); copy or download it again"
            if (start[:1] == b"\x80" and start[1:2] <= b"\x05") or start[:4] == b"PK\x03\x04":
                why = (
                    "it looks like a pickle (.pt, .pth, .bin) or a zip; pickles can run code and are "
                    "never opened here; look for a .safetensors file of the same model, or convert it once with "
                    "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
                )
            elif start.startswith(b"version https://git-lfs"):
                why = "it is a Git LFS pointer, not the weights; run `git lfs pull` where it comes from"
            raise ValueError(f"{path} cannot be read as safetensors: {why}") from error
    if empty := [f"{key} {list(value.shape)}" for key, value in state.items() if value.numel() == 0]:
        raise ValueError(f"{path} holds tensors without a number in them, {name_some(empty)}: no model's weights")
    return state, metadata


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz; raise ValueError where it is damaged, holds other things, or unpacks to too much."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                total = sum(info.file_size for info in archive.infolist())
                most = max(SMALL, MAX_EXPANSION * path.stat().st_size)
                if any(info.comment for info in archive.infolist()):  # numpy writes none: a damaged list of entries
                    raise zipfile.BadZipFile("its list of entries is damaged")
                if total > most:
                    raise OverflowError(
                        f"it would unpack to {total:,} bytes, more than {most:,} ({MAX_EXPANSION} times its size, or "
                        f"{SMALL:,} where that is more); trained weights do not compress like that: look where it "
                        "comes from"
                    )
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise ValueError(f"it is corrupt or cut short ({error}); copy or download it again") from error
    except OverflowError as error:
        raise ValueError(str(error)) from error
    except (TypeError, ValueError) as error:  # a pickle, an array of Python objects, one bare array, a broken header
        raise ValueError(
            "it is corrupt, no archive of arrays, or it holds pickles, which can run code and are never opened here; "
            "copy or download it again"
        ) from error
    if strangers := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"it is a zip of other things than arrays ({strangers[0]} …)")
    return arrays


def from_release(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Tensor], int]:
    """Bring a released ViT's or hybrid's arrays under timm's names, float32; also tell its number of heads.

    Layers may be missing. Raises ValueError for the first array that no released ViT has.
    """
    of_states = ("opt/target/", "params/")  # in files of a training's whole state
    prefix = next((p for p in of_states if f"{p}embedding/kernel" in arrays), "")
    weights = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    if "embedding/kernel" not in weights:
        found = ", ".join(sorted(arrays)[:4]) or "nothing"
        raise ValueError(f"no ViT under the names of the authors' release: no embedding/kernel; found {found}")
    heads = {a.shape[1] for name, a in weights.items() if name.endswith("/query/kernel") and a.ndim == 3}
    if len(heads) != 1:
        raise ValueError(f"attention of {sorted(heads) or 'no'} heads, where one number for all blocks is expected")
    state = {}
    for name, array in weights.items():
        if array.dtype.kind != "f":
            raise ValueError(f"{name} holds {array.dtype}, not floating-point numbers")
        tensor = torch.from_numpy(array.astype(np.float32))
        if name in ("cls", "Transformer/posembed_input/pos_embedding"):
            state["cls_token" if name == "cls" else "pos_embed"] = tensor
            continue
        layer, _, end = name.rpartition("/")
        key = next((m.expand(ours) for theirs, ours in RELEASED if (m := re.fullmatch(theirs, layer))), "")
        if not key or end not in ("kernel", "scale", "bias"):
            raise ValueError(f"{name!r} is no name of the authors' released ViTs and hybrids")
        if unit := re.match(r"stages\.(\d+)\.blocks\.(\d+)(.+)", key):  # counted from 1 there
            key = f"patch_embed.backbone.stages.{int(unit[1]) - 1}.blocks.{int(unit[2]) - 1}{unit[3]}"
        if end == "kernel":  # outputs before inputs, channels before rows and columns, heads side by side
            convolves, per_head = layer == "embedding" or "conv" in layer, "MultiHead" in layer
            ndim = 4 if convolves else 3 if per_head else 2
            if tensor.ndim != ndim:
                raise ValueError(f"{name} has shape {list(array.shape)}, where {ndim} dimensions are expected")
            if convolves:
                tensor = tensor.permute(3, 2, 0, 1)  # [P P C D] -> [D C P P]
            else:  # [D heads D_h] -> [D D], and of the output [heads D_h D] -> [D D]
                tensor = (tensor.flatten(*((0, 1) if layer.endswith("/out") else (1, 2))) if per_head else tensor).T
        else:
            tensor = tensor.flatten()  # a bias [heads, D_h], or a GroupNorm's scale [1, 1, 1, C]
        state[f"{key}.{'bias' if end == 'bias' else 'weight'}"] = tensor.contiguous()
    if not any(key.startswith("patch_embed.backbone.stages.") for key in state):  # timm then has no `stem` around it
        state = {key.replace(".backbone.stem.", ".backbone."): value for key, value in state.items()}
    for key in [key for key in state if ".attn.query." in key]:  # three layers in the release, one in timm
        parts = [key.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if missing := [part for part in parts if part not in state]:
            raise ValueError(f"{missing[0]} is missing next to {key}")
        state[key.replace(".query.", ".qkv.")] = torch.cat([state.pop(part) for part in parts])
    return state, heads.pop()


def difference(model: nn.Module, state: Mapping[str, Tensor], n_heads: str | None = None) -> str:
    """Say how a state dict differs from a model's in keys, shapes and heads; "" when it does not."""
    wanted = model.state_dict()
    kinds = {
        "missing": [key for key in wanted if key not in state],
        "not expected": [key for key in state if key not in wanted],
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


def name_some(keys: list[str], count: int = 4) -> str:
    """Name the first of the keys, and say how many more there are."""
    more = f" and {len(keys) - count} more" if len(keys) > count else ""
    return ", ".join(keys[:count]) + more


def values_hash(state: Mapping[str, Tensor]) -> str:
    """Hash all names and values: what weights are, wherever they lie; 16 hexadecimal digits of the SHA-256."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode() + state[key].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def vit_config(state: Mapping[str, Tensor], path: Path, n_heads: str | None = None) -> ViTConfig:
    """Tell a timm-keyed ViT's architecture from its shapes; unless `n_heads` is known, heads are taken to be 64 wide.

    Raises ValueError when the file is no plain ViT, or the shapes leave its architecture open.
    """
    hint = f"name its architecture with NAME@{path}, where NAME is timm's or this project's"
    if any(key.startswith("patch_embed.backbone.") for key in state):
        raise ValueError(
            f"{path} is a hybrid, a ResNet and a ViT; {hint}: 'R+Lab-Ti/8', 'vit_base_r50_s16_224', "
            "'vit_small_r26_s32_224' …"
        )
    dimensions = {"patch_embed.proj.weight": 4, "pos_embed": 3, "head.weight": 2}
    dimensions |= {"blocks.0.attn.qkv.weight": 2, "blocks.0.mlp.fc1.weight": 2}
    if wrong := [key for key, ndim in dimensions.items() if key not in state or state[key].ndim != ndim]:
        raise ValueError(
            f"{path} holds no ViT under timm's names: no {name_some(wrong)}; found {name_some(list(state))}; {hint}"
        )
    dim, _, patch_size, _ = state["patch_embed.proj.weight"].shape
    if n_heads is None and dim % HEAD_DIM:
        raise ValueError(
            f"{path} is a ViT of dim {dim}, which is not a multiple of {HEAD_DIM}, so its number of heads "
            f"cannot be told from the shapes; {hint}"
        )
    if (grid := grid_side(state)) is None:
        raise ValueError(
            f"{path} has {state['pos_embed'].shape[1]} position embeddings, which is no square grid"
            f"{' and a class token' if 'cls_token' in state else ''} (register tokens? other proportions?); {hint}"
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
        pool="class" if "cls_token" in state else "gap",
    )


def grid_side(state: Mapping[str, Tensor]) -> int | None:
    """Count patches per side of a square image, from the number of position embeddings; None when it is no square."""
    if "pos_embed" not in state or state["pos_embed"].ndim != 3:
        return None
    n_patches = state["pos_embed"].shape[1] - ("cls_token" in state)
    side = math.isqrt(max(n_patches, 0))
    return side if side > 0 and side**2 == n_patches else None


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
    """Make timm's model with the same weights: the same logits to the bit.

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
        raise ValueError(
            "timm's ViT has no hidden layer before its head (head='tanh'); put a new head on with "
            "models.adapt.with_new_head, or export after fine-tuning"
        )
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


def save_for_hf(folder: Path | str, model: ViT) -> Path:
    """Write the folder (config.json, model.safetensors) that timm and hubs read, whole or not at all.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` and `zoo.load("FOLDER")` give the model back. Raises as
    `as_timm`.
    """
    from timm.models import save_for_hf as timms

    theirs, side = as_timm(model), model.config.image_size
    data = {"input_size": (3, side, side), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
    with paths.writing(folder, folder=True) as temporary:
        timms(theirs, str(temporary), model_args=timm_arguments(model), data_config=data, safe_serialization=True)
    return Path(folder)


def read_folder(folder: Path, with_weights: bool = True) -> dict[str, Any]:
    """Read the config.json of a folder as timm's `save_for_hf` writes it, next to a model.safetensors.

    Raises FileNotFoundError where one of them is not there, ValueError where it names no architecture of timm's.
    """
    import timm

    config, weights = folder / "config.json", folder / "model.safetensors"
    if not os.path.isdir(folder):  # unlike pathlib's, False for a name that is too long
        raise FileNotFoundError(
            f"there is no folder {str(folder):.300}; give one with config.json and model.safetensors"
        )
    if with_weights and not weights.is_file():
        raise FileNotFoundError(
            f"there is no model.safetensors in {folder}; pickles (.bin) are never opened: save the model again with "
            "timm.models.save_for_hf(model, FOLDER, safe_serialization=True)"
        )
    instead = f"give {weights} by its own path, or with its architecture's name, NAME@{weights}"
    if not config.is_file():
        raise FileNotFoundError(f"there is no config.json, as timm's save_for_hf writes it, in {folder}; {instead}")
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
        known = timm.is_model(found["architecture"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{config} is no description of a model that timm wrote; {instead}") from error
    if not known:
        raise ValueError(f"{config} names the architecture {found['architecture']!r}, which timm has not; {instead}")
    return found


def find(name: str, asked: str = "") -> tuple[str, Path, str]:
    """Find the weights of timm's under a name, "hf-hub:OWNER/MODEL" or "local-dir:FOLDER": build name, file, source.

    `asked` is what errors call the model. Raises FileNotFoundError for a folder or file that is not there,
    ConnectionError as `hub_file`, ValueError for a name without published weights, or a folder that is not timm's.
    """
    from timm.models import get_pretrained_cfg, list_pretrained

    if name.startswith(PREFIXES):
        folder = folder_of(name, ("config.json", "model.safetensors"))
        read_folder(folder)
        path = folder / "model.safetensors"
        source = str(path) if name.startswith(FOLDER_PREFIX) else f"{parse_hub(name)[0]} on the Hugging Face hub"
        return f"{FOLDER_PREFIX}{folder}", path, source
    try:
        known = get_pretrained_cfg(name)
    except RuntimeError as error:  # an unknown tag
        architecture = name.partition(".")[0]
        tags = sorted(list_pretrained(architecture + ".*"), key=lambda tag: ".orig_in21k" not in tag)  # the paper's
        raise ValueError(
            f"timm has no weights {name}; for {architecture} it has {', '.join(tags) or 'none'}"
        ) from error
    if known is None or not known.hf_hub_id:
        raise ValueError(f"timm has no weights for {name}; give a local file, {name}@FILE, or use untrained=True")
    path = hub_file(known.hf_hub_id, known.hf_hub_filename or "model.safetensors", asked or name)
    return name, path, f"{known.hf_hub_id} on the Hugging Face hub"


def folder_of(name: str, files: tuple[str, ...]) -> Path:
    """Give the folder of "local-dir:FOLDER", or of "hf-hub:OWNER/MODEL" in the cache, which then has these files."""
    if name.startswith(FOLDER_PREFIX):
        return Path(os.path.expanduser(name.removeprefix(FOLDER_PREFIX)))
    repo_id, revision = parse_hub(name)
    return [hub_file(repo_id, file, name, revision) for file in files][0].parent


def parse_hub(name: str) -> tuple[str, str | None]:
    """Split "hf-hub:OWNER/MODEL@REVISION" into repository and revision."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repo_id, _, revision = name.partition(":")[2].partition("@")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"model {name!r:.80} names no repository: expected hf-hub:OWNER/MODEL ({error})") from error
    return repo_id, revision or None


def hub_file(repo_id: str, filename: str, name: str, revision: str | None = None) -> Path:
    """Get a file of a Hugging Face repository: from the local cache if it is there, else downloaded.

    Raises ConnectionError within three seconds (huggingface_hub: half a minute), and ValueError for no such file.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    cached = try_to_load_from_cache(repo_id, filename, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    instead = f"or give a local file: {name}@FILE"
    if name.startswith(HUB_PREFIXES):
        instead = "or give a local folder with its config.json and model.safetensors, or NAME@FILE with timm's NAME"
    if constants.HF_HUB_OFFLINE or not is_reachable(constants.ENDPOINT):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
        raise ConnectionError(
            f"the weights of {name} ({repo_id}) are not in the local cache {constants.HF_HUB_CACHE}, "
            f"and {why}; go online without HF_HUB_OFFLINE, point HF_HOME at a cache that has them or "
            f"HF_ENDPOINT at a mirror, {instead}"
        )
    try:
        return Path(hf_hub_download(repo_id, filename, revision=revision))
    except (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ValueError(f"{repo_id} at {constants.ENDPOINT} has no {filename} for {name}; {instead}") from error


def is_reachable(address: str, seconds: float = 2.0) -> bool:
    """Tell whether a server answers at all. In a thread, as the look-up of a name takes no time-out."""
    answers = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=seconds).close()
            answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # it refused, so it is there
        except (OSError, ValueError, HTTPException):  # no answer, no address, no HTTP
            answers.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers and answers[0])
