"""Mean attention distance of every head of a trained ViT and of untrained controls (§4.5, Fig. 7 right, App. D.7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitlab.analysis.capture import grid_size, n_prefix_tokens, patch_stride, reduce_attention
from vitlab.analysis.distance import depth_trend, distance_reducer, head_spread, mass_reducer, pixel_distances
from vitlab.experiments.subjects import image_source, load_pictures, pictures_hash, weights_hash
from vitlab.ledger.intervals import mean_interval
from vitlab.models import zoo
from vitlab.models.zoo import Pretrained
from vitlab.sweep import presets, runner
from vitlab.training.processes import default_device


@dataclass(frozen=True)
class StudyConfig:
    """One preset: numbers of images and of untrained control models."""

    n_images: int  # the paper averages over 128
    n_controls: int
    batch_size: int = 32


CONFIGS = {"smoke": StudyConfig(8, 1), "quick": StudyConfig(128, 2), "full": StudyConfig(512, 5)}
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
        jobs: worker processes; None: in this process, because a run takes less time than starting a worker.
        weights: whatever `zoo.load` takes.
        images: "crops": many small ones of three photographs; "world": held-out images at the model's size;
            "photographs": those of `datasets.photographs`, each once; the name or folder of a data set; "auto": as
            `subjects.image_source` says, for lab models crops or the world, as each was trained, else photographs. No
            more than the preset's number, and fewer where there are fewer.

    Returns:
        One row per model ("trained", "untrained"), `model_seed`, `image`, `block` and `head` (both from 1), with
        `distance_px` and `renormalized_px` in pixels of the model's input, and `prefix_mass`, 0…1.

    Raises:
        ValueError: an unknown preset, weights that cannot be used, or a model whose attention cannot be had.
    """
    config = presets.choose(CONFIGS, preset)
    pretrained = zoo.load(weights)
    images = image_source(pretrained) if images == "auto" else images
    pictures = load_pictures(pretrained, images, config.n_images, seed)
    common = {
        "weights": weights,
        "weights_hash": weights_hash(weights),
        "images": images,
        "data_hash": pictures_hash(pictures),
        "n_images": config.n_images,
        "batch_size": config.batch_size,
        "seed": seed,
    }
    models = [("trained", seed), *(("untrained", seed + k) for k in range(config.n_controls))]
    configs = [{**common, "model": model, "model_seed": model_seed} for model, model_seed in models]
    folder = folder or runner.run_folder("attention_distances", preset)
    return runner.run_all(run_one, configs, folder, 1 if jobs is None else jobs)


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Attention distances of one model on all images."""
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
        by_quantity = reduce_attention(model, part, {**reducers, "prefix_mass": mass_reducer(n_prefix)}, by_heads=True)
        for name, blocks in by_quantity.items():
            parts.setdefault(name, []).append(torch.stack(blocks, dim=1).cpu())  # [B L H]
    return _rows({name: torch.cat(values).numpy() for name, values in parts.items()})


def _rows(values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Arrays [images, blocks, heads] → one row for every element."""
    shape = next(iter(values.values())).shape
    return [
        {"image": b, "block": block + 1, "head": head + 1}
        | {name: round(float(array[b, block, head]), 5) for name, array in values.items()}
        for b, block, head in np.ndindex(shape)
    ]


def uniform_distance(pretrained: Pretrained) -> float:
    """Distance of a head that attends to all patches of this model's images equally, in pixels.

    It is the mean over queries and patches, mode "renormalized": 116.49 px for 14 × 14 patches of 16 px. With a class
    token it is shorter in mode "paper": 115.90 px.
    """
    blank = torch.zeros(1, 3, *pretrained.image_size)
    return pixel_distances(grid_size(pretrained.model, blank), patch_stride(pretrained.model)).mean().item()


def head_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The dots of Fig. 7 right: each head's mean over images in both modes, with Student's 95 % interval of the first.

    One row per model, `model_seed`, `block` and `head`; `low` and `high` belong to `distance_px` and equal the mean
    where there is a single image.
    """
    rows = []
    for key, group in table.groupby(["model", "model_seed", "block", "head"], sort=False):
        mean = group[[*COLUMNS.values(), "prefix_mass"]].mean()
        low, high = mean_interval(group["distance_px"].to_numpy()) or (mean["distance_px"],) * 2
        rows.append(dict(zip(["model", "model_seed", "block", "head"], key, strict=True)) | dict(mean))
        rows[-1] |= {"low": low, "high": high, "n": len(group)}
    return pd.DataFrame(rows)


def image_statistics(table: pd.DataFrame, mode: str = "paper") -> pd.DataFrame:
    """Per model and image: Spearman's correlation of distance with depth, and the spread of heads in the end blocks.

    Columns `trend` (−1…1; 0 where all blocks are equal), `spread_first` and `spread_last` (largest minus smallest
    head of the first and the last block, pixels). Untrained controls are averaged: one row per model and image.
    """
    rows = []
    for (model, model_seed), group in table.groupby(["model", "model_seed"], sort=False):
        ordered = group.sort_values(["image", "block", "head"])
        shape = tuple(ordered[name].nunique() for name in ("image", "block", "head"))
        distances = torch.tensor(ordered[COLUMNS[mode]].to_numpy(float)).reshape(shape)
        trends, spreads = depth_trend(distances).nan_to_num(0.0), head_spread(distances)
        for image in range(shape[0]):
            row = {"model": model, "model_seed": model_seed, "image": image, "trend": trends[image].item()}
            rows.append(row | {"spread_first": spreads[image, 0].item(), "spread_last": spreads[image, -1].item()})
    statistics = pd.DataFrame(rows).drop(columns="model_seed")
    return statistics.groupby(["model", "image"], sort=False, as_index=False).mean()


def contrasts(table: pd.DataFrame, mode: str = "paper") -> pd.DataFrame:
    """What decides claim C12, a row per image: trend and spread (px), and their differences to controls and last block.

    Columns: "trend", "trend − untrained", "spread, first" (block), "spread, first − last" and
    "spread, first − untrained"; of the trained model, with the untrained ones averaged and subtracted image by image.
    """
    of = image_statistics(table, mode).pivot(index="image", columns="model")
    trend, first, last = of["trend"], of["spread_first"], of["spread_last"]
    return pd.DataFrame(
        {
            "trend": trend["trained"],
            "trend − untrained": trend["trained"] - trend["untrained"],
            "spread, first": first["trained"],
            "spread, first − last": first["trained"] - last["trained"],
            "spread, first − untrained": first["trained"] - first["untrained"],
        }
    )


def local_share_in_low_blocks(table: pd.DataFrame, limit_px: float) -> pd.Series:
    """Share (0…1) of the trained model's heads below a distance in the lowest third of its blocks, per image (C13).

    >>> row = {"model": "trained", "image": 0, "head": 1}
    >>> table = pd.DataFrame([row | {"block": b, "distance_px": d} for b, d in enumerate((9.0, 30.0, 9.0, 9.0), 1)])
    >>> local_share_in_low_blocks(table, 10.0).tolist()  # blocks 1 and 2 of 4
    [0.5]
    """
    trained = table[table["model"] == "trained"]
    low = trained[trained["block"] <= math.ceil(trained["block"].max() / 3)]
    return (low["distance_px"] < limit_px).groupby(low["image"]).mean()
