"""Our ViT against the paper: parameter, token and FLOP counts; logits against timm and Eq. 1–8 (§3.1, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import torch
from jaxtyping import Float
from torch import Tensor

from vitlab.models import weights, zoo
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
ARCHITECTURES = {  # whose logits are compared
    "plain": ViTConfig(32, 8, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10),
    "odd sizes": ViTConfig(36, 12, dim=60, depth=3, n_heads=3, mlp_dim=100, n_classes=7),
    "tanh head": ViTConfig(32, 8, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10, head="tanh"),
    "mean over patches": ViTConfig(32, 4, dim=64, depth=4, n_heads=4, mlp_dim=256, n_classes=10, pool="gap"),
    "Ti/16 at 224 px": ViTConfig(dim=192, n_heads=3, mlp_dim=768),
    "B/16 at 224 px": ViTConfig(),
}
SIZES = {  # preset: models counted, architectures compared, draws of weights and images for each, images in each draw
    "smoke": (("ViT-B/16", "ViT-L/16", "ViT-H/14"), ("plain", "tanh head"), 1, 1),
    "quick": (tuple(PAPER_TRAINING), tuple(ARCHITECTURES)[:5], 3, 1),
    "full": (tuple(PAPER_TRAINING), tuple(ARCHITECTURES), 10, 4),
}
# Other readings of Eq. 1–8, which are other models: the control.
DEVIATIONS = ("LayerNorm ε 1e-5", "GELU by tanh", "scores / √D", "no positions", "norm after the sum")


def model_checks(preset: str = "quick", seed: int = 0) -> pd.DataFrame:
    """Compare our ViT with the paper, timm and plain numpy; a row for each comparison.

    `check`: "parameters", "tokens", "FLOPs", "logits", "deviation"; `part`: which deviation. Of logits, `ours` and
    `theirs` are the largest absolute values, `difference` is the largest of any logit.
    """
    counted, compared, n_seeds, n_images = SIZES[preset]
    rows = [row for name in counted for row in count_rows(name)]
    for name, check in [*((name, "logits") for name in compared), ("plain", "deviation")]:
        for number in range(seed, seed + n_seeds):
            model = randomise(ViT(ARCHITECTURES[name]).eval(), number)
            shape = (n_images if check == "logits" else 8, 3, model.config.image_size, model.config.image_size)
            images = torch.rand(shape, generator=torch.Generator().manual_seed(number)) * 2 - 1
            for against, part, ours, theirs in compare_logits(model, images, check):
                largest = [each.abs().max().item() for each in (ours, theirs, ours - theirs)]
                rows.append([check, name, part, against, number, *largest, "logit"])
    columns = ["check", "model", "part", "against", "draw", "ours", "theirs", "difference", "unit"]
    return pd.DataFrame(rows, columns=columns).astype({"draw": "Int64"})


def count_rows(name: str) -> list[list[Any]]:
    """Count on the meta device, which knows shapes and holds no numbers: ViT-H/14 costs no memory."""
    import timm

    size, patch = name.split("/")
    timms = {"ViT-B": "vit_base", "ViT-L": "vit_large", "ViT-H": "vit_huge"}[size]
    with torch.device("meta"):
        images, model = torch.empty(1, 3, 224, 224), zoo.create(name)
        # timm leaves the head out of some models unless told; §4's counts need it
        theirs = timm.create_model(f"{timms}_patch{patch}_224", num_classes=1000)
        tokens = model.forward_features(images).shape[1]
    ours = sum(p.numel() for p in model.parameters())
    epochs, exaflops = PAPER_TRAINING[name]
    gflops = exaflops * 1e9 / (3 * epochs * JFT_IMAGES)  # a step: a forward pass, a backward one of twice its work
    totals = {"formula": sum(parameter_parts(model.config).values())}
    totals["timm"] = sum(p.numel() for p in theirs.parameters())
    totals["paper"] = PAPER_MILLIONS[size] * 10**6
    found: list[tuple[str, str, str, float, float, str]] = [
        *(("parameters", "", against, ours, total, "parameters") for against, total in totals.items()),
        ("tokens", "", "formula", tokens, (224 // int(patch)) ** 2 + 1, "tokens"),
        ("FLOPs", "", "paper", zoo.forward_flops(model, images) / 1e9, gflops, "GFLOP"),
    ]
    return [[check, name, part, against, None, a, b, abs(a - b), unit] for check, part, against, a, b, unit in found]


@torch.no_grad()
def compare_logits(model: ViT, images: Tensor, check: str) -> list[tuple[str, str, Tensor, Tensor]]:
    """Compute logits in pairs, (against, part, ours, theirs): the paper's reading ("logits"), or the control's."""
    state = {name: value.numpy().copy() for name, value in model.state_dict().items()}

    def plain(deviation: str = "") -> Tensor:
        return torch.from_numpy(equations(state, images.numpy(), model.config.n_heads, deviation))

    ours = model(images).double()
    if check == "deviation":
        return [("equations", deviation, ours, plain(deviation)) for deviation in DEVIATIONS]
    theirs = plain()
    pairs = [("equations", "", ours, theirs)]
    if model.config.head == "linear":  # timm no longer has the tanh head
        pairs.insert(0, ("timm", "", ours, weights.as_timm(model)(images).double()))
    return [*pairs, ("equations, ours in float64", "", model.double()(images.double()), theirs)]


def randomise(model: ViT, seed: int) -> ViT:
    """Fill every parameter with random numbers, in place: a fresh ViT's head is zero, and all models agree on zeros."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, std = 0.0, 0.2
            if name in ("pos_embed", "cls_token"):
                std = 0.5
            elif parameter.ndim > 1:
                std = parameter[0].numel() ** -0.5
            elif "norm" in name and name.endswith("weight"):
                mean = 1.0
            parameter.normal_(mean, std, generator=generator)
    return model


def parameter_parts(config: ViTConfig) -> dict[str, int]:
    """Count the parameters of each part of a ViT from its configuration alone (Eq. 1–8)."""
    D, M, L, P, K = config.dim, config.mlp_dim, config.depth, config.patch_size, config.n_classes
    class_token = int(config.pool == "class")
    return {
        "patch embedding": 3 * P**2 * D + D,
        "class token, positions": (config.n_patches + 2 * class_token) * D,
        "attention": L * (4 * D**2 + 4 * D),
        "MLP": L * (2 * D * M + M + D),
        "LayerNorm": (2 * L + 1) * 2 * D,
        "head": D * K + K + (D**2 + D if config.head == "tanh" else 0),
    }


def equations(
    weights: Mapping[str, np.ndarray], images: Float[np.ndarray, "B 3 H W"], n_heads: int, deviation: str = ""
) -> Float[np.ndarray, "B K"]:
    """Compute Eq. 1–8 (§3.1, App. A), or one of `DEVIATIONS`, in plain float64 numpy; `weights` are a state dict."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        epsilon = 1e-5 if deviation == "LayerNorm ε 1e-5" else 1e-6  # the latter is that of the authors' code
        return centred / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def attend(x: np.ndarray, block: str) -> np.ndarray:
        q, k, v = np.split(dense(x, f"{block}.attn.qkv"), 3, axis=-1)
        heads = []
        for columns in np.split(np.arange(x.shape[-1]), n_heads):
            scores = q[..., columns] @ k[..., columns].swapaxes(1, 2)
            scaled = scores / np.sqrt(x.shape[-1] if deviation == "scores / √D" else len(columns))
            heads.append(scipy.special.softmax(scaled, axis=-1) @ v[..., columns])
        return dense(np.concatenate(heads, axis=-1), f"{block}.attn.proj")

    def mlp(x: np.ndarray, block: str) -> np.ndarray:
        x = dense(x, f"{block}.mlp.fc1")
        if deviation == "GELU by tanh":
            x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        else:
            x = x * scipy.special.ndtr(x)
        return dense(x, f"{block}.mlp.fc2")

    E = w["patch_embed.proj.weight"]  # [D 3 P P]
    B, P = len(images), E.shape[-1]
    rows = images.astype(np.float64).reshape(B, 3, -1, P, images.shape[3] // P, P)
    z = rows.transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, E[0].size) @ E.reshape(len(E), -1).T
    z = z + w["patch_embed.proj.bias"]
    if "cls_token" in w:
        z = np.concatenate([np.repeat(w["cls_token"], len(z), axis=0), z], axis=1)
    z = z + w["pos_embed"] * (deviation != "no positions")  # Eq. 1
    for block in (name.removesuffix(".attn.qkv.weight") for name in w if name.endswith(".attn.qkv.weight")):
        for number, layer in enumerate((attend, mlp), 1):  # Eq. 2, Eq. 3
            name = f"{block}.norm{number}"
            post_norm = deviation == "norm after the sum"  # as in the first Transformer
            z = norm(z + layer(z, block), name) if post_norm else z + layer(norm(z, name), block)
    z = norm(z, "norm")  # Eq. 4
    y = z[:, 0] if "cls_token" in w else z.mean(axis=1)
    if "pre_logits.fc.weight" in w:
        y = np.tanh(dense(y, "pre_logits.fc"))
    return dense(y, "head")
