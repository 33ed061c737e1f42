"""Patch size → length of the sequence and work for one image (§3.1, Table 1, Eq. 1–8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from jaxtyping import UInt8
from matplotlib.figure import Figure
from torch import Tensor

from vitlab import plots
from vitlab.models import zoo
from vitlab.models.vit import ViTConfig
from vitlab.widgets.knobs import Knob, Knobs, knobs

PATCH_SIZES = (7, 8, 14, 16, 28, 32, 56)


@dataclass(frozen=True)
class Cost:
    """What one image costs; a multiplication and the addition that follows count as one."""

    tokens: int  # class token included
    dense: int  # multiply-adds of patch embedding, q, k, v, mixing, MLPs and head: linear in the tokens
    attention: int  # of q kᵀ and A v: quadratic

    @property
    def multiply_adds(self) -> int:
        """All of them."""
        return self.dense + self.attention


def cost(config: ViTConfig) -> Cost:
    """Tokens and multiply-adds of one image, by formula: matrix products only.

    >>> vit_b = cost(ViTConfig(image_size=224, patch_size=16))
    >>> vit_b.tokens, round(vit_b.multiply_adds / 1e9, 2)
    (197, 17.56)
    """
    n_tokens = config.n_patches + (config.pool == "class")
    embedding = config.n_patches * 3 * config.patch_size**2 * config.dim
    block = n_tokens * (4 * config.dim**2 + 2 * config.dim * config.mlp_dim)
    head = config.dim * config.n_classes + (config.dim**2 if config.head == "tanh" else 0)
    return Cost(n_tokens, embedding + config.depth * block + head, config.depth * 2 * n_tokens**2 * config.dim)


def patch_sizes(picture: UInt8[Tensor, "3 H W"], models: tuple[str, ...] = ("ViT-B", "ViT-L", "ViT-H")) -> Knobs:
    """Knobs: model, size of the image and of its patches → the patches, their number, the work.

    Args:
        picture: what is cut; it is drawn as it is, whatever the size of the image that is reckoned with.
        models: sizes of the zoo.

    >>> import torch
    >>> patch_sizes(torch.zeros(3, 32, 32, dtype=torch.uint8)).picture(patch_size=32)[1].split(":")[0]
    '224 px in patches of 32 px'
    """
    pixels = picture.permute(1, 2, 0).numpy()

    def draw(model: str, image_size: int, patch_size: int) -> tuple[Figure, str]:
        settings: dict[str, Any] = {**zoo.VIT_SIZES[model], "image_size": image_size}
        chosen = cost(ViTConfig(patch_size=patch_size, **settings))  # refuses a size that leaves a remainder
        fitting = [size for size in PATCH_SIZES if image_size % size == 0]
        costs = {size: cost(ViTConfig(patch_size=size, **settings)) for size in fitting}
        table = pd.DataFrame([{"patch_size": size, **vars(of_size)} for size, of_size in costs.items()])
        figure = Figure(figsize=(9, 3.6))
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.5])
        plots.plot_grid(pixels, image_size // patch_size, left)
        plots.plot_patch_costs(table, patch_size, right).set_title(f"{model} at {image_size} px")
        side = image_size // patch_size
        return figure, (
            f"{image_size} px in patches of {patch_size} px: {side} × {side} patches and the class token are "
            f"{chosen.tokens:,} tokens. {model}/{patch_size} does {chosen.multiply_adds / 1e9:.2f} billion "
            f"multiply-adds for an image (2 FLOPs each), {chosen.attention / chosen.multiply_adds:.1%} of them in the "
            "attention matrices."
        )

    return knobs(
        draw,
        "Patch size, tokens and work",
        model=Knob("model", models, models[0]),
        image_size=Knob("image size (px)", (112, 224, 336, 384, 448), 224),
        patch_size=Knob("patch size (px)", PATCH_SIZES, 16),
    )
