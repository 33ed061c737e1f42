"""More seeds of `data_scaling` on its fewest images, where those of two draws lie far apart (§4.3; C03, C04)."""

from __future__ import annotations

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

    seeds: tuple[int, ...]  # none of them in the first or the second draw of `data_scaling`


CONFIGS = {
    "smoke": StudyConfig((200, 201)),
    # The ten of two draws left ±2.4 points (C03) and ±2.0 (C04), and the margin is 1.
    "full": StudyConfig((*range(200, 210), *range(222, 230))),
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
    """Every run of the study: three models on the fewest images. `seed` other than 0 moves all seeds by thousands.

    >>> len(planned_runs("smoke"))
    6
    """
    config = data_scaling.in_world_alone(preset)
    seeds = [1_000 * seed + s for s in presets.choose(CONFIGS, preset).seeds]
    each = itertools.product(seeds, [*config.vits, config.pair[1]])
    return [planned_run(config.run, model, config.assumed[model], config.sizes[0], s) for s, model in each]
