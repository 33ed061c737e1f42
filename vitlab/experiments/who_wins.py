"""ViT against ResNet by what tells the classes and by the number of images: where do the curves cross? (§4.3)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling, scaling
from vitlab.experiments.scaling import MIXED, RunConfig, planned_run, run_one
from vitlab.experiments.scaling_statistics import differences_by_family
from vitlab.sweep import presets, runner
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class StudyConfig:
    """One preset: a ViT and the ResNet of equal compute in several worlds, on sets that contain the smaller ones."""

    run: RunConfig
    pair: tuple[str, str]
    worlds: tuple[tuple[str, int], ...]  # what tells the classes, and how many there are
    sizes: tuple[int, ...]  # training images
    n_seeds: int


# Not 1,000 classes: `world_classes` has shown that twice as many steps are too few for them.
_WORLDS = (("texture", 10), ("contour", 10), ("arrangement", 10), (MIXED, 10), (MIXED, 100))
CONFIGS = {
    "smoke": StudyConfig(
        scaling.SMOKE,
        ("Lab-Ti/4", "BiT-Lab-Ti/4"),
        (("contour", 4), (MIXED, 4)),
        (16, 64),
        n_seeds=2,
    ),
    "full": StudyConfig(
        RunConfig(
            Recipe(steps=1_000, batch_size=128, warmup_steps=100, eval_every=100, precision="bf16"),
            n_validation=1_000,
            n_test=2_000,
            n_frozen=500,
            difficulty=0.5,
            real="digits",
        ),
        ("Lab-Ti/8", "BiT-Lab-Ti/8"),
        _WORLDS,
        (1_000, 8_000, 64_000),
        n_seeds=5,
    ),
}


def who_wins(preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Train both models in every world, on every number of images, with every seed; rows as of `scaling.run_one`.

    The recipe is one for all; learning rates and weight decays are those of `data_scaling`.
    """
    folder = folder or runner.run_folder("scaling", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study, the large sets first.

    >>> len(planned_runs("smoke"))
    16
    """
    config = presets.choose(CONFIGS, preset)
    shared = data_scaling.assumed_hyperparameters(preset)
    seeds = range(100 * seed, 100 * seed + config.n_seeds)
    return [
        planned_run(scaling.in_world(config.run, cue, n_classes), model, shared[model], size, s)
        for s, size, (cue, n_classes), model in itertools.product(
            seeds, reversed(config.sizes), config.worlds, config.pair
        )
    ]


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """`scaling.accuracies` with a column that tells the world in words: what tells its classes, and how many."""
    runs = scaling.accuracies(table)
    return runs.assign(world=runs["cue"] + ", " + runs["n_classes"].astype(int).map("{:,} classes".format))


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """ViT − ResNet on held-out images, paired by seed, of `accuracies`: world, n_train, seed, difference (0…1)."""
    return differences_by_family(runs, "world")
