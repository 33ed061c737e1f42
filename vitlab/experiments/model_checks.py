"""Our ViT against the paper: parameter, token and FLOP counts; logits against timm and Eq. 1–8 (§3.1, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vitlab.experiments.plain_vit import DEVIATIONS, Reading, equations
from vitlab.models import zoo
from vitlab.models.sizes import forward_flops
from vitlab.models.vit import ViT, ViTConfig
from vitlab.sweep import presets, runner

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
COLUMNS = ["check", "model", "part", "against", "seed", "ours", "theirs", "difference", "unit"]


@dataclass(frozen=True)
class StudyConfig:
    """One preset: the models that are counted, and those whose logits are compared."""

    counted: tuple[str, ...]  # models of Table 1
    compared: tuple[str, ...]  # keys of ARCHITECTURES
    n_seeds: int  # draws of weights and images for each
    n_images: int  # in each draw
    n_control_images: int = 8  # in each draw, for the controls


CONFIGS = {
    "smoke": StudyConfig(("ViT-B/16", "ViT-L/16", "ViT-H/14"), ("plain", "tanh head"), n_seeds=1, n_images=1),
    "quick": StudyConfig(tuple(PAPER_TRAINING), tuple(ARCHITECTURES)[:5], n_seeds=3, n_images=1),
    "full": StudyConfig(tuple(PAPER_TRAINING), tuple(ARCHITECTURES), n_seeds=10, n_images=4),
}


def model_checks(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Every comparison of our ViT with something else, a row each.

    Columns: `check` ("parameters", "part", "tokens", "FLOPs", "logits", "deviation"), `model`, `part` (which
    part, or which deviation), `against` (what is compared with), `seed`, `ours`, `theirs`, `difference`,
    `unit`. Of logits, `ours` and `theirs` are the largest absolute values, `difference` is the largest
    absolute difference of any logit. `jobs` defaults to 1: a run takes less time than starting a process.

    Raises:
        ValueError: a preset that there is not, or that does not run here.
    """
    config = presets.choose(CONFIGS, preset)
    draws = {"first_seed": seed, "n_seeds": config.n_seeds, "n_images": config.n_images}
    configs: list[dict[str, Any]] = [{"task": "count", "model": name} for name in config.counted]
    configs += [{"task": "compare", "model": name, **draws} for name in config.compared]
    configs += [{"task": "deviate", "model": "plain", **draws, "n_images": config.n_control_images}]
    table = runner.run_all(run_one, configs, folder or runner.run_folder("model_checks", preset), jobs if jobs else 1)
    return table[COLUMNS].astype({"seed": "Int64"})


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """All checks of one model: its counts, or its logits for every seed."""
    if config["task"] == "count":
        return [*_counts(config["model"])]
    rows = []
    for seed in range(config["first_seed"], config["first_seed"] + config["n_seeds"]):
        model = randomise(ViT(ARCHITECTURES[config["model"]]).eval(), seed)
        size = model.config.image_size
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(config["n_images"], 3, size, size, generator=generator) * 2 - 1
        compare = _comparisons if config["task"] == "compare" else _deviations
        rows += [{**row, "seed": seed} for row in compare(model, images)]
    return rows


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


# Counting


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
    row = {"check": check, "model": model, "part": part, "against": against, "seed": None}
    return {**row, "ours": ours, "theirs": theirs, "difference": abs(ours - theirs), "unit": unit}


# Comparing logits


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
