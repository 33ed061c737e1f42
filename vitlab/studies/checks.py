"""Checks of our ViT: parameter, token and FLOP counts; logits against timm and Eq. 1–8 in numpy (§3.1, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.models import zoo
from vitlab.models.sizes import forward_flops
from vitlab.models.vit import ViT, ViTConfig

PAPER_MILLIONS = {"ViT-B": 86, "ViT-L": 307, "ViT-H": 632}  # parameters, Table 1
PAPER_TRAINING = {  # epochs on JFT-300M, exaFLOPs of the whole pre-training: Table 6
    "ViT-B/32": (7, 55),
    "ViT-B/16": (7, 224),
    "ViT-L/32": (7, 196),
    "ViT-L/16": (7, 783),
    "ViT-H/14": (14, 4262),
}
JFT_IMAGES = 303e6  # §4.1
TIMM = {"ViT-B": "vit_base", "ViT-L": "vit_large", "ViT-H": "vit_huge"}
ARCHITECTURES = {  # whose logits are compared
    "plain": ViTConfig(32, 8, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10),
    "odd sizes": ViTConfig(36, 12, dim=60, depth=3, n_heads=3, mlp_dim=100, n_classes=7),
    "tanh head": ViTConfig(32, 8, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10, head="tanh"),
    "mean over patches": ViTConfig(32, 4, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10, pool="gap"),
    "Ti/16 at 224 px": ViTConfig(dim=192, n_heads=3, mlp_dim=768),
    "B/16 at 224 px": ViTConfig(),
}


# --- Eq. 1–8 in float64 numpy -----------------------------------------------------------------------------------------
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


SIZES = {  # preset → models of Table 1 that are counted, those whose logits are compared, draws, images in each
    "smoke": (("ViT-B/16", "ViT-L/16", "ViT-H/14"), ("plain", "tanh head"), 1, 1),
    "quick": (tuple(PAPER_TRAINING), tuple(ARCHITECTURES)[:5], 3, 1),
    "full": (tuple(PAPER_TRAINING), tuple(ARCHITECTURES), 10, 4),
}


def model_checks(preset: str = "quick", seed: int = 0) -> pd.DataFrame:
    """Compare our ViT with the paper's counts, timm's class and the equations, a row each.

    Columns: check ("parameters", "part", "tokens", "FLOPs", "logits", "deviation"), model, part (or deviation),
    against, draw, ours, theirs, difference, unit. Of logits, ours and theirs are the largest absolute values,
    difference the largest of any logit. Raises ValueError for an unknown preset.
    """
    if preset not in SIZES:
        raise ValueError(f"preset {preset!r}: choose one of {', '.join(SIZES)}")
    counted, compared, n_draws, n_images = SIZES[preset]
    rows = [row for name in counted for row in _counts(name)]
    each = [(_comparisons, name, n_images) for name in compared] + [(_deviations, "plain", 8)]
    for compare, name, count in each:
        for draw in range(seed, seed + n_draws):
            model = randomise(ViT(ARCHITECTURES[name]).eval(), draw)
            size = model.config.image_size
            images = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(draw)) * 2 - 1
            rows += [row | {"draw": draw} for row in compare(model, images)]
    columns = ["check", "model", "part", "against", "draw", "ours", "theirs", "difference", "unit"]
    return pd.DataFrame(rows)[columns].astype({"draw": "Int64"})


def randomise(model: ViT, seed: int) -> ViT:
    """Fill every parameter with random numbers, in place, so that every part of the model affects the logits.

    A fresh ViT's head is zero: all models, right or wrong, agree on its logits. Matrices get variance
    1 / fan-in, gains 1 ± 0.2, biases ± 0.2, position embeddings and class token ± 0.5 (standard deviations).

    >>> model = randomise(ViT(ARCHITECTURES["plain"]), seed=0)
    >>> bool((model.head.weight == 0).any())
    False
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in ("pos_embed", "cls_token"):
                parameter.normal_(std=0.5, generator=generator)
            elif parameter.ndim > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5, generator=generator)
            else:
                mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
                parameter.normal_(mean, 0.2, generator=generator)
    return model


def parameter_parts(config: ViTConfig) -> dict[str, int]:
    """Parameters of each part of a ViT, from its configuration alone (Eq. 1–8).

    >>> sum(parameter_parts(ViTConfig()).values())  # ViT-B/16
    86567656
    """
    D, M, L, P, K = config.dim, config.mlp_dim, config.depth, config.patch_size, config.n_classes
    class_token = int(config.pool == "class")
    return {
        "patch embedding": 3 * P**2 * D + D,
        "class token, positions": (class_token + config.n_patches + class_token) * D,
        "attention": L * (4 * D**2 + 4 * D),
        "MLP": L * (2 * D * M + M + D),
        "LayerNorm": (2 * L + 1) * 2 * D,
        "head": D * K + K + (D**2 + D if config.head == "tanh" else 0),
    }


def counted_parts(model: nn.Module) -> dict[str, int]:
    """The same parts, counted in a model: every parameter is in exactly one.

    >>> model = ViT(ARCHITECTURES["tanh head"])
    >>> counted_parts(model) == parameter_parts(model.config)
    True
    """
    marks = {  # the first that a parameter's name contains
        "patch_embed.": "patch embedding",
        "cls_token": "class token, positions",
        "pos_embed": "class token, positions",
        ".attn.": "attention",
        ".mlp.": "MLP",
        "norm": "LayerNorm",
        "pre_logits.": "head",
        "head.": "head",
    }
    parts = dict.fromkeys(marks.values(), 0)
    for name, parameter in model.named_parameters():
        parts[next(part for mark, part in marks.items() if mark in name)] += parameter.numel()
    return parts


def _counts(name: str) -> Iterator[dict[str, Any]]:
    """On the meta device, which knows shapes and holds no numbers: ViT-H/14 costs no memory."""
    import timm

    size, patch = name.split("/")
    with torch.device("meta"):
        model = zoo.create(name)
        # timm leaves the head out of some models unless told; §4's counts need it
        theirs = timm.create_model(f"{TIMM[size]}_patch{patch}_224", num_classes=1000)
        tokens = model.forward_features(torch.empty(1, 3, 224, 224)).shape[1]
    ours, formula = counted_parts(model), parameter_parts(model.config)
    for part in ours:
        yield _row("part", name, "formula", ours[part], formula[part], "parameters", part)
    total = sum(parameter.numel() for parameter in model.parameters())
    yield _row("parameters", name, "formula", total, sum(formula.values()), "parameters")
    yield _row("parameters", name, "timm", total, sum(p.numel() for p in theirs.parameters()), "parameters")
    yield _row("parameters", name, "paper", total, PAPER_MILLIONS[size] * 10**6, "parameters")
    yield _row("tokens", name, "formula", tokens, (224 // int(patch)) ** 2 + 1, "tokens")
    epochs, exaflops = PAPER_TRAINING[name]
    # A training step is a forward pass and a backward one of twice its work.
    paper = exaflops * 1e18 / (3 * epochs * JFT_IMAGES)
    yield _row(
        "FLOPs",
        name,
        "paper",
        forward_flops(model, torch.empty(1, 3, 224, 224, device="meta")) / 1e9,
        paper / 1e9,
        "GFLOP",
    )


def _row(check: str, model: str, against: str, ours: float, theirs: float, unit: str, part: str = "") -> dict[str, Any]:
    row = {"check": check, "model": model, "part": part, "against": against, "draw": None}
    return {**row, "ours": ours, "theirs": theirs, "difference": abs(ours - theirs), "unit": unit}


def _comparisons(model: ViT, images: Tensor) -> Iterator[dict[str, Any]]:
    name = next(name for name, config in ARCHITECTURES.items() if config == model.config)
    with torch.no_grad():
        ours = model(images).double()
        if (theirs := _timm_twin(model)) is not None:
            yield _logit_row("logits", name, "timm", ours, theirs(images).double())
        bare = _bare(model, images)
        yield _logit_row("logits", name, "equations", ours, bare)
        ours = model.double()(images.double())
        yield _logit_row("logits", name, "equations, ours in float64", ours, bare)


def _deviations(model: ViT, images: Tensor) -> Iterator[dict[str, Any]]:
    """The control: logits against equations that deviate from the paper's in one respect."""
    with torch.no_grad():
        ours = model(images).double()
    for part, reading in DEVIATIONS.items():
        yield _logit_row("deviation", "plain", "equations", ours, _bare(model, images, reading), part)


def _bare(model: ViT, images: Tensor, reading: Reading = Reading()) -> Tensor:  # noqa: B008 (frozen)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return torch.from_numpy(equations(weights, images.numpy(), model.config.n_heads, reading))


def _timm_twin(model: ViT) -> nn.Module | None:
    """timm's own class with this model's weights; None for the tanh head, which timm no longer has."""
    from timm.models.vision_transformer import VisionTransformer

    config = model.config
    if config.head == "tanh":
        return None
    class_token = config.pool == "class"
    twin = VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        num_classes=config.n_classes,
        embed_dim=config.dim,
        depth=config.depth,
        num_heads=config.n_heads,
        mlp_ratio=config.mlp_dim / config.dim,
        class_token=class_token,
        global_pool="token" if class_token else "avg",
        fc_norm=False,
    )
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def _logit_row(check: str, model: str, against: str, ours: Tensor, theirs: Tensor, part: str = "") -> dict[str, Any]:
    row = _row(check, model, against, ours.abs().max().item(), theirs.abs().max().item(), "logit", part)
    return {**row, "difference": (ours - theirs).abs().max().item()}
