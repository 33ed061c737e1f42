"""More seeds of 1-D position embeddings against none, whose difference two draws leave imprecise (App. D.4; C09)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vitlab.experiments import design_runs, longer_positions, position_variants
from vitlab.experiments.design_runs import CLASSES, Config
from vitlab.experiments.position_variants import BASE, NONE
from vitlab.experiments.position_variants import run_one as run_one  # what does one of `planned_runs`
from vitlab.sweep import presets


@dataclass(frozen=True)
class StudyConfig:
    """One preset, by task. Trainings are those by which C09 is judged, see `longer_positions.judged`."""

    n_seeds: Mapping[str, int]
    rates: Mapping[str, Mapping[str, float]]  # arm → learning rate, as the first draw has chosen them


CONFIGS = {
    "smoke": StudyConfig({"arrangement": 2}, {"arrangement": {NONE: 4e-3, BASE: 4e-3}}),
    # ±1 point, the margin of C09, takes 73 seeds in either task of the world, by the spread of 40 and more, and 12 on
    # CIFAR-10. With those of two draws there are 78, 78 and 16.
    "full": StudyConfig(
        {"arrangement": 68, "contour": 68, "cifar10": 6},
        {
            "arrangement": {NONE: 3e-3, BASE: 3e-3},
            "contour": {NONE: 3e-3, BASE: 3e-3},
            "cifar10": {NONE: 1e-2, BASE: 3e-3},
        },
    ),
}


def more_positions(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train two arms with further seeds; rows as of `position_variants.run_one`, without maps."""
    return design_runs.run_study("more_positions", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study, a seed of all its tasks after the other. `seed` other than 0 moves all by thousands.

    >>> len(planned_runs("smoke"))  # two arms, two seeds
    4
    """
    config = presets.choose(CONFIGS, preset)
    photographs = [run for run in position_variants.planned_runs(preset) if run["task"] in CLASSES]
    cells = [
        run
        for run in (*longer_positions.planned_runs(preset), *photographs)
        if run["seed"] == 0 and config.rates[run["task"]].get(run["arm"]) == run["learning_rate"]
    ]
    seeds = design_runs.seeds(10 * seed + 2, max(config.n_seeds.values()))  # two draws have those of 0 and 1
    return [
        run | {"seed": s, "keeps_map": False}
        for number, s in enumerate(seeds)
        for run in cells
        if number < config.n_seeds[run["task"]]
    ]
