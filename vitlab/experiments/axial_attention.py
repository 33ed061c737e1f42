"""Axial attention against full attention: same depth, equal parameters, equal FLOPs, and time (App. D.6; C19)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from vitlab import settings
from vitlab.experiments import design_runs
from vitlab.experiments.design_runs import Config, Task, Training, run_one
from vitlab.models.zoo import forward_flops
from vitlab.sweep import presets

AXIAL, PLAIN = "axial", "full, same depth"  # Fig. 13: each block of the second is two of the first
PARAMETERS, FLOPS = "full, equal parameters", "full, equal FLOPs"
_GAP = {"pool": "gap"}  # of all arms: axial attention has no class token here


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    task: Task
    training: Training
    model: str
    depths: Mapping[str, int]  # arm → blocks; an axial one is a pair, rows then columns
    rates: tuple[float, ...]  # learning rates that are tried for every arm
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        Task("contour"),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=20, image_size=16),
        "Lab-Mu/4",
        {AXIAL: 1, PLAIN: 1, PARAMETERS: 2, FLOPS: 2},
        rates=(4e-3,),
        n_seeds=2,
    ),
    "full": StudyConfig(
        Task("mixed", 0.3, n_classes=100),
        # In pilots axial attention was 18 points behind after 400 steps and 0.2 points after 2,000.
        Training(steps=2_000, batch_size=128, n_train=51_200, n_validation=1_000, n_test=2_000, precision="bf16"),
        "Lab-Mu/4",
        {AXIAL: 2, PLAIN: 2, PARAMETERS: 4, FLOPS: 3},
        rates=(2e-3, 6e-3),
        n_seeds=5,
    ),
}


def axial_attention(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every arm with every learning rate and seed; rows as of `design_runs.trained`."""
    return design_runs.run_study("axial_attention", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("smoke"))
    8
    """
    config = presets.choose(CONFIGS, preset)
    cases = itertools.product(design_runs.seeds(seed, config.n_seeds), config.depths, config.rates)
    return [
        design_runs.planned(config.training, config.task, arm, config.model, rate, s, options_of(arm, config.depths))
        for s, arm, rate in cases
    ]


def options_of(arm: str, depths: Mapping[str, int]) -> dict[str, str | int]:
    """An arm as options of a ViT.

    >>> options_of("axial", {"axial": 2})
    {'pool': 'gap', 'depth': 2, 'attention': 'axial'}
    """
    return {**_GAP, "depth": depths[arm], "attention": "axial" if arm == AXIAL else "full"}


@torch.inference_mode()
def forward_times(preset: str, sides: tuple[int, ...], n_images: int = 8, n_rounds: int = 9) -> pd.DataFrame:
    """Milliseconds of a forward pass, on one thread, of axial and of full attention with equal parameters.

    Both take turns, so that a slow moment of the machine meets both; the fastest of the rounds counts. The patches stay
    and the images grow with `sides`, the patches along a side. Rows: arm, tokens (along a side), milliseconds, flops
    (for one image).

    >>> sorted(forward_times("smoke", (2,), n_images=1, n_rounds=1)["arm"])
    ['axial', 'full, equal parameters']
    """
    config, rows = presets.choose(CONFIGS, preset), []
    patch = int(config.model.partition("/")[2])
    for side in sides:
        shape = {"model": config.model, "n_classes": 10, "image_size": side * patch, "seed": 0}
        arms = {arm: shape | options_of(arm, config.depths) for arm in (AXIAL, PARAMETERS)}
        models = {arm: design_runs.model_of(run).eval() for arm, run in arms.items()}
        images = torch.zeros(n_images, 3, side * patch, side * patch)
        taken: dict[str, list[float]] = {arm: [] for arm in arms}
        with settings.one_thread():
            for number, (arm, model) in itertools.product(range(n_rounds + 1), models.items()):
                started = time.perf_counter()
                model(images)
                if number:  # the first pass chooses kernels
                    taken[arm].append(1e3 * (time.perf_counter() - started))
        rows += [
            {"arm": arm, "tokens": side, "milliseconds": min(taken[arm])}
            | {"flops": forward_flops(models[arm], images[:1])}
            for arm in arms
        ]
    return pd.DataFrame(rows)
