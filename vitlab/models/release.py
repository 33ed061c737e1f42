"""The authors' released weights (google-research/vision_transformer): their arrays under timm's names (§3.1)."""

import re
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_PREFIXES = ("opt/target/", "params/")  # of files that hold a training state, not weights alone
_WHOLE = {"cls": "cls_token", "Transformer/posembed_input/pos_embedding": "pos_embed"}
_LAYERS = {
    "embedding": "patch_embed.proj",
    "Transformer/encoder_norm": "norm",
    "pre_logits": "pre_logits.fc",
    "head": "head",
    "conv_root": "patch_embed.backbone.stem.conv",  # from here on a hybrid's ResNet
    "gn_root": "patch_embed.backbone.stem.norm",
}
_IN_BLOCK = {
    "LayerNorm_0": "norm1",
    "MultiHeadDotProductAttention_1/query": "attn.query",
    "MultiHeadDotProductAttention_1/key": "attn.key",
    "MultiHeadDotProductAttention_1/value": "attn.value",
    "MultiHeadDotProductAttention_1/out": "attn.proj",
    "LayerNorm_2": "norm2",
    "MlpBlock_3/Dense_0": "mlp.fc1",
    "MlpBlock_3/Dense_1": "mlp.fc2",
}
_IN_UNIT = {"conv_proj": "downsample.conv", "gn_proj": "downsample.norm"} | {
    f"{theirs}{i}": f"{ours}{i}" for theirs, ours in (("conv", "conv"), ("gn", "norm")) for i in (1, 2, 3)
}
_ENDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}
_QKV = ("query", "key", "value")  # three layers in the release, one in timm


def state_dict(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Tensor], int]:
    """A ViT's or a hybrid's weights under timm's names, float32, and its number of attention heads.

    Unlike timm's, the release's attention kernels [D, heads, D_h] show the heads. Layers may be missing: whether
    the weights fit a model is for the model to say.

    Raises:
        ValueError: for arrays that are not those of a released ViT; the message names the first.

    >>> attention = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1"
    >>> arrays = {f"{attention}/{part}/kernel": np.zeros((12, 3, 4)) for part in ("query", "key", "value")}
    >>> state, heads = state_dict(arrays | {"embedding/kernel": np.zeros((8, 8, 3, 12))})
    >>> heads, {key: tuple(value.shape) for key, value in state.items()}
    (3, {'patch_embed.proj.weight': (12, 3, 8, 8), 'blocks.0.attn.qkv.weight': (36, 12)})
    """
    prefix = next((prefix for prefix in _PREFIXES if f"{prefix}embedding/kernel" in arrays), "")
    weights = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    if "embedding/kernel" not in weights:
        found = ", ".join(sorted(arrays)[:4]) or "nothing"
        raise ValueError(f"no ViT under the names of the authors' release: no embedding/kernel; found {found}")
    heads = {a.shape[1] for name, a in weights.items() if name.endswith("/query/kernel") and a.ndim == 3}
    if len(heads) != 1:
        raise ValueError(f"attention of {sorted(heads) or 'no'} heads, where one number for all blocks is expected")
    state = {timm_key(name): _tensor(name, a) for name, a in weights.items()}
    if not any(key.startswith("patch_embed.backbone.stages.") for key in state):  # timm then has no `stem` around it
        state = {key.replace(".backbone.stem.", ".backbone."): value for key, value in state.items()}
    return _with_joint_qkv(state), heads.pop()


def timm_key(name: str) -> str:
    """timm's name for an array of the release; query, key and value are still apart.

    Raises:
        ValueError: for a name that no released ViT or hybrid has.

    >>> timm_key("Transformer/encoderblock_3/MlpBlock_3/Dense_0/kernel")
    'blocks.3.mlp.fc1.weight'
    >>> timm_key("block1/unit02/gn3/scale")
    'patch_embed.backbone.stages.0.blocks.1.norm3.weight'
    """
    if name in _WHOLE:
        return _WHOLE[name]
    layer, _, end = name.rpartition("/")
    try:
        if block := re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", layer):
            return f"blocks.{block[1]}.{_IN_BLOCK[block[2]]}.{_ENDS[end]}"
        if unit := re.fullmatch(r"block(\d+)/unit(\d+)/(.+)", layer):  # counted from 1
            place = f"patch_embed.backbone.stages.{int(unit[1]) - 1}.blocks.{int(unit[2]) - 1}"
            return f"{place}.{_IN_UNIT[unit[3]]}.{_ENDS[end]}"
        return f"{_LAYERS[layer]}.{_ENDS[end]}"
    except KeyError:
        raise ValueError(f"{name!r} is no name of the authors' released ViTs and hybrids") from None


def _tensor(name: str, array: np.ndarray) -> Tensor:
    """One array in timm's layout: outputs before inputs, channels before rows and columns, heads side by side."""
    if array.dtype.kind != "f":
        raise ValueError(f"{name} holds {array.dtype}, not floating-point numbers")
    tensor = torch.from_numpy(array.astype(np.float32))
    layer, _, end = name.rpartition("/")
    if name in _WHOLE:
        return tensor
    if end != "kernel":
        return tensor.flatten()  # a bias [heads, D_h], or a GroupNorm's scale [1, 1, 1, C]
    part, convolves = layer.rpartition("/")[2], layer == "embedding" or "conv" in layer
    ndim = 4 if convolves else 3 if part in (*_QKV, "out") else 2
    if tensor.ndim != ndim:
        raise ValueError(f"{name} has shape {list(array.shape)}, where {ndim} dimensions are expected")
    if convolves:
        return tensor.permute(3, 2, 0, 1).contiguous()  # [P P C D] -> [D C P P]
    if part in _QKV:
        tensor = tensor.flatten(1)  # [D heads D_h] -> [D D]
    elif part == "out":
        tensor = tensor.flatten(0, 1)  # [heads D_h D] -> [D D]
    return tensor.T.contiguous()


def _with_joint_qkv(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The three layers of each block's attention as one, q above k above v."""
    joint = {key: value for key, value in state.items() if not re.search(r"\.attn\.(query|key|value)\.", key)}
    for key in state:
        if ".attn.query." in key:
            parts = [key.replace(".query.", f".{part}.") for part in _QKV]
            missing = [part for part in parts if part not in state]
            if missing:
                raise ValueError(f"{missing[0]} is missing beside {key}")
            joint[key.replace(".query.", ".qkv.")] = torch.cat([state[part] for part in parts])
    return joint
