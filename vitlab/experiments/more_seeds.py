"""More seeds of trainings whose spread over two draws leaves C03, C04 and C07 open or imprecise (§4.3, §4.4)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import compute_scaling, data_scaling
from vitlab.experiments.scaling import planned_run
from vitlab.experiments.scaling import run_one as run_one  # what does one of `planned_runs`
from vitlab.sweep import presets, runner


@dataclass(frozen=True)
class StudyConfig:
    """One preset. Models, images and recipe are those of `data_scaling` and `compute_scaling`."""

    fewest: tuple[int, ...]  # seeds of `data_scaling`'s compared pair and second ViT on its fewest images
    lengths: tuple[int, ...]  # seeds of `compute_scaling`'s ViTs and ResNets on the most images, at every length


_OF_COMPUTE = (*range(5, 9), *range(105, 109))  # with these `compute_scaling` has the most images
_FURTHER = (*range(200, 210), *range(222, 240))
CONFIGS = {
    "smoke": StudyConfig((200, 201), (200, 201)),
    # Of two draws C03 has ±2.4 points on the fewest images and C04 ±2.0, where the margin is 1, and C07 leaves open on
    # which side of 2 its factor lies.
    "full": StudyConfig((*_OF_COMPUTE, *_FURTHER), tuple(seed for seed in _FURTHER if seed not in range(224, 228))),
}


def more_seeds(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train ViTs and ResNets with further seeds; rows as of `scaling.run_one`.

    Trainings are those of `data_scaling` and `compute_scaling` but for the seed; their models are not evaluated on real
    images. The longest on the most images are of both.
    """
    folder = folder or runner.run_folder("scaling", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study: three models on the fewest images, four at every length on the most.

    `seed` other than 0 moves all seeds by thousands.

    >>> len(planned_runs("smoke"))  # two seeds; two lengths
    22
    """
    config, of_data = presets.choose(CONFIGS, preset), data_scaling.in_world_alone(preset)
    fewest, lengths = ([1_000 * seed + s for s in seeds] for seeds in (config.fewest, config.lengths))
    few = [
        planned_run(of_data.run, model, of_data.assumed[model], of_data.sizes[0], s)
        for s, model in itertools.product(fewest, [*of_data.vits, of_data.pair[1]])
    ]
    return few + [run for s in lengths for run in compute_scaling.without_hybrids(preset, s)]
