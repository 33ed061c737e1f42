"""Eq. 1–8 (§3.1, App. A) in plain float64 numpy: nothing shared with the model it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float


@dataclass(frozen=True)
class Reading:
    """An interpretation of Eq. 1–8. The defaults are the paper's (ε is its code's); other values are other models."""

    epsilon: float = 1e-6  # in LayerNorm
    exact_gelu: bool = True  # False: the tanh approximation
    head_scale: bool = True  # scores / √D_h; False: / √D
    pre_norm: bool = True  # False: LayerNorm after the sum, as in the first Transformer
    positions: bool = True  # False: none added


DEVIATIONS = {
    "LayerNorm ε 1e-5": Reading(epsilon=1e-5),
    "GELU by tanh": Reading(exact_gelu=False),
    "scores / √D": Reading(head_scale=False),
    "no positions": Reading(positions=False),
    "norm after the sum": Reading(pre_norm=False),
}


def equations(
    weights: Mapping[str, np.ndarray],
    images: Float[np.ndarray, "B 3 H W"],
    n_heads: int,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
) -> Float[np.ndarray, "B K"]:
    """Eq. 1–8 in plain float64 numpy, one head after the other: no torch.

    `weights` go by the names of the model's state dict; their shapes say the rest.

    >>> from vitlab.models.vit import ViT, ViTConfig
    >>> model = ViT(ViTConfig(32, 8, dim=64, depth=2, n_heads=4, mlp_dim=256, n_classes=10))
    >>> weights = {name: value.numpy() for name, value in model.state_dict().items()}
    >>> equations(weights, np.zeros((1, 3, 32, 32)), n_heads=4).shape
    (1, 10)
    """
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    E = w["patch_embed.proj.weight"]
    P = E.shape[-1]
    starts = [(i, j) for i in range(0, images.shape[2], P) for j in range(0, images.shape[3], P)]
    patches = np.stack([images[:, :, i : i + P, j : j + P].reshape(len(images), -1) for i, j in starts], 1)
    z = patches.astype(np.float64) @ E.reshape(len(E), -1).T + w["patch_embed.proj.bias"]
    if "cls_token" in w:
        z = np.concatenate([np.repeat(w["cls_token"], len(z), axis=0), z], axis=1)
    z = z + w["pos_embed"] * reading.positions  # Eq. 1
    depth = sum(name.endswith(".attn.qkv.weight") for name in w)
    for block in range(depth):
        mine = {name: w[key] for key in w for name in [key.removeprefix(f"blocks.{block}.")] if name != key}
        z = _block(z, mine, n_heads, reading)
    z = _norm(z, w["norm.weight"], w["norm.bias"], reading)  # Eq. 4
    y = z[:, 0] if "cls_token" in w else z.mean(axis=1)
    if "pre_logits.fc.weight" in w:
        y = np.tanh(y @ w["pre_logits.fc.weight"].T + w["pre_logits.fc.bias"])
    return y @ w["head.weight"].T + w["head.bias"]


def _block(z: np.ndarray, w: Mapping[str, np.ndarray], n_heads: int, reading: Reading) -> np.ndarray:
    def norm(x: np.ndarray, which: str) -> np.ndarray:
        return _norm(x, w[f"{which}.weight"], w[f"{which}.bias"], reading)

    if reading.pre_norm:
        z = z + _attention(norm(z, "norm1"), w, n_heads, reading)  # Eq. 2
        return z + _mlp(norm(z, "norm2"), w, reading)  # Eq. 3
    z = norm(z + _attention(z, w, n_heads, reading), "norm1")
    return norm(z + _mlp(z, w, reading), "norm2")


def _norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, reading: Reading) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + reading.epsilon) * gain + bias


def _attention(x: np.ndarray, w: Mapping[str, np.ndarray], n_heads: int, reading: Reading) -> np.ndarray:
    D = x.shape[-1]
    q, k, v = np.split(x @ w["attn.qkv.weight"].T + w["attn.qkv.bias"], 3, axis=-1)
    heads = []
    for columns in np.split(np.arange(D), n_heads):
        scores = q[..., columns] @ k[..., columns].swapaxes(1, 2)
        scores = scores / np.sqrt(len(columns) if reading.head_scale else D)
        heads.append(scipy.special.softmax(scores, axis=-1) @ v[..., columns])
    return np.concatenate(heads, axis=-1) @ w["attn.proj.weight"].T + w["attn.proj.bias"]


def _mlp(x: np.ndarray, w: Mapping[str, np.ndarray], reading: Reading) -> np.ndarray:
    x = x @ w["mlp.fc1.weight"].T + w["mlp.fc1.bias"]
    approximate = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    x = x * scipy.special.ndtr(x) if reading.exact_gelu else approximate
    return x @ w["mlp.fc2.weight"].T + w["mlp.fc2.bias"]
