"""Mean attention distance of every head of a trained ViT and of untrained controls (§4.5, Fig. 7 right, App. D.7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitlab.analysis.capture import grid_size, n_prefix_tokens, patch_stride, reduce_attention
from vitlab.analysis.distance import depth_trend, distance_reducer, head_spread, mass_reducer, pixel_distances
from vitlab.experiments import presets, runner
from vitlab.experiments.intervals import mean_interval
from vitlab.experiments.subjects import image_source, load_pictures, pictures_hash, weights_hash
from vitlab.models import zoo
from vitlab.models.pretrained import Pretrained
from vitlab.training.processes import default_device


@dataclass(frozen=True)
class Settings:
    """One preset: how many images, and how many untrained models beside the trained one."""

    n_images: int  # the paper averages over 128
    n_controls: int
    batch_size: int = 32


SETTINGS = {"smoke": Settings(8, 1), "quick": Settings(128, 2), "full": Settings(512, 5)}
COLUMNS = {"paper": "distance_px", "renormalized": "renormalized_px"}  # mode → its column of the table


def attention_distances(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    *,
    weights: str = "lab",
    images: str = "auto",
) -> pd.DataFrame:
    """Attention distance in both modes and mass on prefix tokens, per model, image, block and head.

    Args:
        seed: which held-out images of the world, and of the untrained controls' fresh weights.
        jobs: worker processes; None computes here: a run is shorter than the start of a worker.
        weights: whatever `zoo.load` takes.
        images: "world": held-out images at the model's size; "photographs": those of `datasets.photographs`, each
            once; the name or folder of a data set; "auto": the world for lab models, which were trained on it, else
            photographs. No more than the preset's number, and fewer where there are fewer.

    Returns:
        One row per model ("trained", "untrained"), `model_seed`, `image`, `layer` and `head` (both from 1), with
        `distance_px` and `renormalized_px` in pixels of the model's input, and `prefix_mass`, 0…1.

    Raises:
        ValueError: an unknown preset, weights that cannot be used, or a model whose attention cannot be had.
    """
    settings = presets.choose(SETTINGS, preset)
    pretrained = zoo.load(weights)
    images = image_source(pretrained) if images == "auto" else images
    pictures = load_pictures(pretrained, images, settings.n_images, seed)
    common = {
        "weights": weights,
        "weights_hash": weights_hash(weights),
        "images": images,
        "data_hash": pictures_hash(pictures),
        "n_images": settings.n_images,
        "batch_size": settings.batch_size,
        "seed": seed,
    }
    models = [("trained", seed), *(("untrained", seed + k) for k in range(settings.n_controls))]
    configs = [{**common, "model": model, "model_seed": model_seed} for model, model_seed in models]
    folder = folder or runner.run_folder("attention_distances", preset)
    return runner.run_all(_run_one, configs, folder, 1 if jobs is None else jobs)


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    untrained = config["model"] == "untrained"
    pretrained = zoo.load(config["weights"], untrained=untrained, seed=config["model_seed"])
    pictures = load_pictures(pretrained, config["images"], config["n_images"], config["seed"])
    model = pretrained.model.to(default_device())
    prepared = torch.cat([pretrained.prepare(picture[None]) for picture in pictures])
    parts: dict[str, list[Tensor]] = {}
    for part in prepared.split(config["batch_size"]):
        part = part.to(default_device())
        grid, stride, n_prefix = grid_size(model, part), patch_stride(model), n_prefix_tokens(model)
        reducers = {name: distance_reducer(grid, stride, n_prefix, mode) for mode, name in COLUMNS.items()}
        found = reduce_attention(model, part, {**reducers, "prefix_mass": mass_reducer(n_prefix)}, by_heads=True)
        for name, layers in found.items():
            parts.setdefault(name, []).append(torch.stack(layers, dim=1).cpu())  # [B L H]
    return _rows({name: torch.cat(values).numpy() for name, values in parts.items()})


def _rows(values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Arrays [images, layers, heads] → one row for every element."""
    shape = next(iter(values.values())).shape
    return [
        {"image": b, "layer": layer + 1, "head": head + 1}
        | {name: round(float(array[b, layer, head]), 5) for name, array in values.items()}
        for b, layer, head in np.ndindex(shape)
    ]


def uniform_distance(pretrained: Pretrained) -> float:
    """Distance of a head that looks at every patch of this model's images alike, in pixels.

    It is the mean over queries and patches: 116.5 px for 14 × 14 patches of 16 px.
    """
    blank = torch.zeros(1, 3, *pretrained.image_size)
    return pixel_distances(grid_size(pretrained.model, blank), patch_stride(pretrained.model)).mean().item()


def head_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The dots of Fig. 7 right: each head's mean over images in both modes, with Student's 95 % interval of the first.

    One row per model, `model_seed`, `layer` and `head`; `low` and `high` belong to `distance_px` and equal the mean
    where there is a single image.
    """
    rows = []
    for key, group in table.groupby(["model", "model_seed", "layer", "head"], sort=False):
        mean = group[[*COLUMNS.values(), "prefix_mass"]].mean()
        low, high = mean_interval(group["distance_px"].to_numpy()) or (mean["distance_px"],) * 2
        rows.append(dict(zip(["model", "model_seed", "layer", "head"], key, strict=True)) | dict(mean))
        rows[-1] |= {"low": low, "high": high, "n": len(group)}
    return pd.DataFrame(rows)


def image_statistics(table: pd.DataFrame, mode: str = "paper") -> pd.DataFrame:
    """Per model and image: Spearman's correlation of distance with depth, and the spread of heads in the end blocks.

    Columns `trend` (−1…1; 0 where all blocks are alike), `spread_first` and `spread_last` (largest minus smallest
    head of the first and the last block, pixels). Untrained controls are averaged: one row per model and image.
    """
    rows = []
    for (model, model_seed), group in table.groupby(["model", "model_seed"], sort=False):
        ordered = group.sort_values(["image", "layer", "head"])
        shape = tuple(ordered[name].nunique() for name in ("image", "layer", "head"))
        distances = torch.tensor(ordered[COLUMNS[mode]].to_numpy(float)).reshape(shape)
        trends, spreads = depth_trend(distances).nan_to_num(0.0), head_spread(distances)
        for image in range(shape[0]):
            row = {"model": model, "model_seed": model_seed, "image": image, "trend": trends[image].item()}
            rows.append(row | {"spread_first": spreads[image, 0].item(), "spread_last": spreads[image, -1].item()})
    found = pd.DataFrame(rows).drop(columns="model_seed")
    return found.groupby(["model", "image"], sort=False, as_index=False).mean()
