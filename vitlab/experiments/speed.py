"""Images per second and largest batch against input size, ViT beside ResNet (BiT) and hybrid (App. D.5, Fig. 12)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from vitlab.experiments import largest_batch
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.sweep.identity import device_type
from vitlab.training.processes import default_device


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    models: tuple[str, ...]  # for each size a ViT first, then what is compared with it
    image_sizes: tuple[int, ...]  # pixels
    batches: tuple[int, ...]  # tried for speed; the fastest counts, as in the paper
    n_rounds: int  # of timing, all models in turn, so that a slow moment of the machine affects all of them
    seconds: float  # of timing for each model and batch in a round, at least
    megabytes: int  # memory for a batch on a CPU; on a GPU all of the device's counts


CONFIGS = {
    "smoke": StudyConfig(("Lab-Mu/8", "BiT-Lab-Mu/8"), (16, 32), (4,), n_rounds=2, seconds=0.001, megabytes=4),
    "quick": StudyConfig(
        ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"), (32, 64, 128), (8, 64), n_rounds=5, seconds=0.05, megabytes=32
    ),
    "full": StudyConfig(
        ("Lab-S/8", "BiT-Lab-S/8", "R+Lab-S/8"), (32, 64, 128), (8, 64), n_rounds=5, seconds=0.1, megabytes=32
    ),
    # Written for one large GPU; not run yet. R50 and R152 are timm's ResNets (BiT).
    "gpu": StudyConfig(
        ("ViT-B/16", "ViT-L/16", "resnetv2_50x1_bit", "resnetv2_152x2_bit", "vit_base_r50_s16_224"),
        (64, 128, 224, 384, 512),
        (8, 64, 512),
        n_rounds=5,
        seconds=0.5,
        megabytes=0,
    ),
}


def speed(preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Time inference and find the largest batch of every model at every input size, on this device.

    Rows of two kinds: `speeds`, `batches`. One run at a time, whatever `jobs`: two would slow each other down. `seed`
    is that of the weights, on which neither depends.
    """
    config = presets.choose(CONFIGS, preset)
    folder = folder or runner.run_folder("speed", preset)
    return runner.run_all(run_one, _planned_runs(config, seed), folder, jobs=1)


def _planned_runs(config: StudyConfig, seed: int) -> list[dict[str, Any]]:
    shared = {"models": " ".join(config.models), "seed": seed}
    timed = {
        "batches": " ".join(map(str, config.batches)),
        "n_rounds": config.n_rounds,
        "seconds": config.seconds,
    }
    speeds = [{"kind": "speed", "sides": str(size)} | timed | shared for size in config.image_sizes]
    sides, memory = " ".join(map(str, config.image_sizes)), {"kind": "batch", "megabytes": config.megabytes}
    if device_type() == "cuda":  # a run for each search: all together take many minutes
        pairs = itertools.product(config.models, config.image_sizes)
        return [*speeds, *(memory | {"sides": str(size), "models": name, "seed": seed} for name, size in pairs)]
    return [*speeds, memory | {"sides": sides} | shared]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Time all models at one image size, or search their largest batches."""
    models, sides = config["models"].split(), [int(side) for side in config["sides"].split()]
    if config["kind"] == "speed":
        return _timed(models, sides[0], config)
    if device_type() == "cuda":
        largest = {(name, side): largest_batch.on_gpu(name, side) for name, side in itertools.product(models, sides)}
    else:
        largest = largest_batch.on_cpu(models, sides, config["megabytes"])
    rows = [{"model": name, "image_size": side, "largest_batch": size} for (name, side), size in largest.items()]
    return rows or [{"largest_batch": None}]  # where it cannot be measured


def _timed(names: Sequence[str], side: int, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows: model, round, images_per_second, the best of the batches, all models by turns."""
    device, batches = default_device(), [int(batch) for batch in config["batches"].split()]
    models = {name: zoo.create(name, image_size=side, seed=config["seed"]).to(device).eval() for name in names}
    images = torch.zeros(max(batches), 3, side, side, device=device)
    for model, batch in itertools.product(models.values(), batches):
        images_per_second(model, images[:batch], seconds=0.0)  # the first pass chooses and loads kernels
    rows = []
    for number in range(config["n_rounds"]):
        for name, model in models.items():
            fastest = max(images_per_second(model, images[:batch], config["seconds"]) for batch in batches)
            rows.append({"model": name, "image_size": side, "round": number, "images_per_second": fastest})
    return rows


@torch.inference_mode()
def images_per_second(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Speed of the forward pass, measured for at least `seconds` and at least one pass; on a GPU in bfloat16.

    >>> images_per_second(nn.Flatten(), torch.zeros(2, 3, 8, 8), 0.0) > 0
    True
    """
    kind = images.device.type
    passes, started = 0, time.perf_counter()
    while True:
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            model(images)
        passes += 1
        if kind == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - started
        if taken >= seconds:
            return passes * len(images) / taken


def speeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each model, input size and round: model, image_size (pixels), round, images_per_second."""
    rows = table[table["kind"] == "speed"].astype({"round": int, "image_size": int})
    return rows[["model", "image_size", "round", "images_per_second"]].reset_index(drop=True)


def batches(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each model and input size: model, image_size (pixels), largest_batch; none where not measured."""
    rows = table[table["kind"] == "batch"].dropna(subset=["largest_batch"])
    rows = rows.astype({"largest_batch": int, "image_size": int})
    return rows[["model", "image_size", "largest_batch"]].reset_index(drop=True)
