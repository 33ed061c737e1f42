"""The tasks of `position_variants` that need positions, trained until every seed has left chance (App. D.4; C09)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from vitlab.experiments import design_runs, position_variants
from vitlab.experiments.design_runs import Config
from vitlab.experiments.position_variants import run_one as run_one  # what does one of `planned_runs`

# After 400 steps single trainings without positions are at chance, and seeds of one cell lie up to 40 points apart. In
# a pilot of 1,600 steps, one seed, all eight trainings had started; those with 1-D or 2-D embeddings were above 97 %.
LONGER = 4  # times as many steps
CONFIGS = {preset: position_variants.CONFIGS[preset] for preset in ("smoke", "full")}


def longer_positions(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every arm of `position_variants` on its tasks of the world for four times as long; rows as there."""
    return design_runs.run_study("longer_positions", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("full"))  # two tasks, eight arms, two learning rates, five seeds
    160
    """
    runs = position_variants.planned_runs(preset, seed)
    return [run | {"steps": LONGER * run["steps"]} for run in runs if run["task"] not in design_runs.CLASSES]


def judged(longer: pd.DataFrame, shorter: pd.DataFrame) -> pd.DataFrame:
    """The runs by which C09 is judged: of the world the longer ones, and those of `position_variants` on photographs.

    `shorter` may have no rows, as where none are published: then photographs are not among them.

    >>> longer = pd.DataFrame({"task": ["contour", "cifar10"], "steps": 1_600})
    >>> judged(longer, pd.DataFrame({"task": ["contour", "cifar10"], "steps": 400})).values.tolist()
    [['contour', 1600], ['cifar10', 400]]
    """
    of_world = longer[~_on_photographs(longer)]
    photographs = [shorter[_on_photographs(shorter)]] if len(shorter) else []
    return pd.concat([of_world, *photographs], ignore_index=True)


def _on_photographs(runs: pd.DataFrame) -> pd.Series[bool]:
    return runs["task"].isin(list(design_runs.CLASSES))
