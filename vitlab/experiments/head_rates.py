"""Class token and global average pooling over the same grid of learning rates (App. D.3, Fig. 9; C16)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vitlab.experiments import design_runs
from vitlab.experiments.design_runs import Config, Task, Training, run_one
from vitlab.sweep import presets

HEADS = {"class token": "class", "GAP": "gap"}  # arm → option `pool` of `zoo.create`


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    task: Task
    training: Training
    model: str
    rates: tuple[float, ...]  # learning rates, the same for both heads
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        Task("mixed"),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=20, image_size=16),
        "Lab-Mu/4",
        rates=(1e-3, 4e-3),
        n_seeds=2,
    ),
    "full": StudyConfig(
        Task("mixed", n_classes=100),
        Training(steps=500, batch_size=128, n_train=64_000, n_validation=1_000, n_test=2_000, precision="bf16"),
        "Lab-Ti/8",
        rates=(5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3),
        n_seeds=5,
    ),
}


def head_rates(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train with both heads at every learning rate with every seed; rows as of `design_runs.trained`."""
    return design_runs.run_study("head_rates", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("smoke"))
    8
    """
    config = presets.choose(CONFIGS, preset)
    cases = itertools.product(design_runs.seeds(seed, config.n_seeds), HEADS, config.rates)
    return [
        design_runs.planned(config.training, config.task, arm, config.model, rate, s, {"pool": HEADS[arm]})
        for s, arm, rate in cases
    ]


def at_other_rate(table: pd.DataFrame, arm: str, other: str) -> pd.DataFrame:
    """The runs of `arm` at the learning rate that is best for `other`, and those of `other`: the unfair comparison.

    >>> rows = [{"task": "t", "arm": arm, "learning_rate": rate, "validation_accuracy": rate if arm == "b" else -rate}
    ...         for arm in "ab" for rate in (1, 2)]
    >>> at_other_rate(pd.DataFrame(rows), "a", "b")[["arm", "learning_rate"]].values.tolist()
    [['a', 2], ['b', 2]]
    """
    best = design_runs.chosen(table[table["arm"] == other])["learning_rate"].iloc[0]
    rows = table[table["arm"].isin((arm, other)) & (table["learning_rate"] == best)]
    return rows.reset_index(drop=True)
