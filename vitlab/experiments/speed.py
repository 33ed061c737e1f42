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

from vitlab.experiments import largest_batch, presets, runner
from vitlab.experiments.identity import device_type
from vitlab.models import zoo
from vitlab.training.processes import default_device


@dataclass(frozen=True)
class Settings:
    """One preset."""

    models: tuple[str, ...]  # for each size a ViT first, then what is compared with it
    image_sizes: tuple[int, ...]  # pixels
    batches: tuple[int, ...]  # tried for speed; the fastest counts, as in the paper
    n_rounds: int  # of timing, all models in turn, so that a slow moment of the machine is everybody's
    seconds: float  # that a model is timed in a round, at least, for each batch
    megabytes: int  # that a batch may need on a CPU; on a GPU it is what the device has


SETTINGS = {
    "smoke": Settings(("Lab-Mu/8", "BiT-Lab-Mu/8"), (16, 32), (4,), n_rounds=2, seconds=0.001, megabytes=4),
    "quick": Settings(
        ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"), (32, 64, 128), (8, 64), n_rounds=5, seconds=0.05, megabytes=32
    ),
    "rehearsal": Settings(
        ("Lab-S/8", "BiT-Lab-S/8", "R+Lab-S/8"), (32, 64, 128), (8, 64), n_rounds=5, seconds=0.1, megabytes=32
    ),
    # Written for one large GPU and not yet run there. R50 and R152 are timm's ResNets (BiT).
    "full": Settings(
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
    settings = presets.choose(SETTINGS, preset)
    folder = folder or runner.run_folder("speed", preset)
    return runner.run_all(_run_one, _configs(settings, seed), folder, jobs=1)


def _configs(settings: Settings, seed: int) -> list[dict[str, Any]]:
    shared = {"models": " ".join(settings.models), "seed": seed}
    timed = {
        "batches": " ".join(map(str, settings.batches)),
        "n_rounds": settings.n_rounds,
        "seconds": settings.seconds,
    }
    speeds = [{"kind": "speed", "sides": str(size)} | timed | shared for size in settings.image_sizes]
    sides, memory = " ".join(map(str, settings.image_sizes)), {"kind": "batch", "megabytes": settings.megabytes}
    if device_type() == "cuda":  # a search at a time, stored when it is done: all together take many minutes
        pairs = itertools.product(settings.models, settings.image_sizes)
        return [*speeds, *(memory | {"sides": str(size), "models": name, "seed": seed} for name, size in pairs)]
    return [*speeds, memory | {"sides": sides} | shared]


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    models, sides = config["models"].split(), [int(side) for side in config["sides"].split()]
    if config["kind"] == "speed":
        return _timed(models, sides[0], config)
    if device_type() == "cuda":
        found = {(name, side): largest_batch.on_gpu(name, side) for name, side in itertools.product(models, sides)}
    else:
        found = largest_batch.on_cpu(models, sides, config["megabytes"])
    rows = [{"model": name, "image_size": side, "largest_batch": size} for (name, side), size in found.items()]
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
            found = [images_per_second(model, images[:batch], config["seconds"]) for batch in batches]
            rows.append({"model": name, "image_size": side, "round": number, "images_per_second": max(found)})
    return rows


@torch.inference_mode()
def images_per_second(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Speed of the forward pass over at least so many seconds, and once at least; on a GPU in bfloat16.

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
