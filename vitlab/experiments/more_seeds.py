"""More seeds of trainings whose spread over two draws leaves C03, C04, C06 and C07 open or imprecise (§4.3, §4.4)."""

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
    """One preset: the seeds, by what is trained with them. Models, images and recipe are those of the two studies."""

    fewest: tuple[int, ...]  # `data_scaling`'s compared pair and second ViT on its fewest images
    middle: tuple[int, ...]  # its compared pair on its middle number of images
    growth: tuple[int, ...]  # its two ViTs on its fewest and its most images
    resnets: tuple[int, ...]  # `compute_scaling`'s ViTs and ResNets on the most images, at every length
    hybrids: tuple[int, ...]  # its ViTs and hybrids likewise


_OF_COMPUTE = (*range(5, 9), *range(105, 109))  # with these `compute_scaling` has the most images
_WITH_RESNETS = (*range(200, 210), *range(222, 224), *range(228, 240))
_WITHOUT_RESNETS = tuple(range(224, 228))
CONFIGS = {
    "smoke": StudyConfig((200, 201), (200, 201), (202, 203), (200, 201), (201, 202)),
    # The margin of C03, C04 and C06 is 1 point. Of two draws C03 has ±2.4 on the fewest images and ±1.4 on 16,000, C04
    # ±2.0 on the fewest and ±2.6 in its growth, and C06 ±2.3 at the least compute. C07 leaves open on which side of 2
    # its factor lies.
    "full": StudyConfig(
        fewest=(*_OF_COMPUTE, *_WITH_RESNETS, *_WITHOUT_RESNETS),
        middle=_OF_COMPUTE,
        growth=(*_WITHOUT_RESNETS, *range(240, 266)),
        resnets=_WITH_RESNETS,
        hybrids=(*_WITH_RESNETS, *_WITHOUT_RESNETS, *range(240, 312)),
    ),
}


def more_seeds(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train ViTs, ResNets and hybrids with further seeds; rows as of `scaling.run_one`.

    Trainings are those of `data_scaling` and `compute_scaling` but for the seed; their models are not evaluated on real
    images. The longest on the most images are of both.
    """
    folder = folder or runner.run_folder("scaling", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study, by number of images; the last are those of every length.

    `seed` other than 0 moves all seeds by thousands.

    >>> len(planned_runs("smoke"))
    44
    """
    config, of_data = presets.choose(CONFIGS, preset), data_scaling.in_world_alone(preset)
    families = _families(config)
    vits, resnet = of_data.vits, of_data.pair[1]
    fewest, middle, most = of_data.sizes[0], of_data.middle, of_data.sizes[-1]
    cases = [
        *itertools.product([fewest], vits, dict.fromkeys((*config.fewest, *config.growth))),
        *itertools.product([fewest], [resnet], config.fewest),
        *itertools.product([middle], of_data.pair, config.middle),
        *itertools.product([most], vits, [s for s in config.growth if s not in families]),
    ]
    runs = [
        planned_run(of_data.run, model, of_data.assumed[model], n_images, 1_000 * seed + s)
        for n_images, model, s in cases
    ]
    return runs + [run for s in families for run in compute_scaling.of_seed(preset, 1_000 * seed + s, families[s])]


def _families(config: StudyConfig) -> dict[int, list[str]]:
    """What is trained at every length, by seed."""
    behind = {"ResNet": config.resnets, "hybrid": config.hybrids}
    seeds = dict.fromkeys((*config.resnets, *config.hybrids))
    return {s: ["ViT", *(family for family, its_seeds in behind.items() if s in its_seeds)] for s in seeds}
