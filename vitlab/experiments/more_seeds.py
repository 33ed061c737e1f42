"""More seeds of `data_scaling` on its fewest and its most images, where two draws are not enough (§4.3; C03, C04)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling
from vitlab.experiments.scaling import planned_run
from vitlab.experiments.scaling import run_one as run_one  # what does one of `planned_runs`
from vitlab.sweep import presets, runner


@dataclass(frozen=True)
class StudyConfig:
    """One preset. Models, images and recipe are those of `data_scaling`."""

    first_seed: int  # of both draws of `data_scaling` none has it, or a later one
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(first_seed=200, n_seeds=2),
    # Ten of two draws left ±2.4 points (C03) and ±2.6 (C04), and the margin is 1: by their spread it takes 47 and 52.
    "full": StudyConfig(first_seed=200, n_seeds=44),
}


def more_seeds(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train the compared pair and the second ViT with further seeds; rows as of `scaling.run_one`.

    Trainings are those of `data_scaling` but for the seed; their models are not evaluated on real images.
    """
    folder = folder or runner.run_folder("scaling", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study: all three models on the fewest images, then both ViTs on the most.

    >>> len(planned_runs("full"))
    220
    """
    seeds = presets.choose(CONFIGS, preset)
    config = data_scaling.configured(preset, "digits")
    run = dataclasses.replace(config.run, finetuning=None)
    vits = [model for model in config.models if not model.startswith(("BiT", "R+"))]
    fewest, *_, most = config.sizes
    first = seeds.first_seed + 1_000 * seed
    each = [
        *itertools.product([fewest], range(first, first + seeds.n_seeds), [*vits, config.pair[1]]),
        *itertools.product([most], range(first, first + seeds.n_seeds), vits),
    ]
    return [planned_run(run, model, config.assumed[model], size, s) for size, s, model in each]
