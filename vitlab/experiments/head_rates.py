"""Class token and global average pooling over the same learning rates, in short and longer trainings (Fig. 9; C16)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from vitlab.experiments import design_runs
from vitlab.experiments.design_runs import Config, Task, Training, run_one
from vitlab.ledger.estimate import Estimate
from vitlab.sweep import presets

HEADS = {"class token": "class", "GAP": "gap"}  # arm → option `pool` of `zoo.create`


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    task: Task
    training: Training  # of the longest; the others differ in their steps alone
    model: str
    rates: Mapping[int, tuple[float, ...]]  # steps of a training → learning rates, the same for both heads
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        Task("mixed"),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=20, image_size=16),
        "Lab-Mu/4",
        rates={2: (1e-3, 4e-3), 3: (1e-3, 4e-3)},
        n_seeds=2,
    ),
    "full": StudyConfig(
        Task("mixed", n_classes=100),
        Training(steps=2_000, batch_size=128, n_train=64_000, n_validation=1_000, n_test=2_000, precision="bf16"),
        "Lab-Ti/8",
        rates={500: (4e-3, 8e-3, 16e-3), 2_000: (2e-3, 4e-3, 8e-3)},
        n_seeds=8,  # after five, C16 was undecided, and the ledger said that about seven would decide
    ),
}


def head_rates(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train with both heads for every length, at its learning rates, with every seed; rows: `design_runs.trained`."""
    return design_runs.run_study("head_rates", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("smoke"))
    16
    """
    config = presets.choose(CONFIGS, preset)
    trainings = [
        (replace(config.training, steps=steps), rate) for steps, rates in config.rates.items() for rate in rates
    ]
    cases = itertools.product(design_runs.seeds(seed, config.n_seeds), HEADS, trainings)
    return [
        design_runs.planned(training, config.task, arm, config.model, rate, s, {"pool": HEADS[arm]})
        for s, arm, (training, rate) in cases
    ]


def leads(table: pd.DataFrame) -> dict[int, Estimate]:
    """Class token − GAP in points, each at its best rate, by the steps of the trainings; the longest is the last.

    >>> rows = {"task": "t", "arm": list(HEADS), "learning_rate": 0.1, "seed": 0, "n_test": 100, "n_classes": 2}
    >>> table = pd.DataFrame(rows | {"steps": 9, "validation_accuracy": 0.5, "test_accuracy": [0.75, 0.5]})
    >>> {steps: lead.value for steps, lead in leads(table).items()}
    {9: 25.0}
    """
    found = {steps: design_runs.difference(design_runs.chosen(rows), *HEADS) for steps, rows in table.groupby("steps")}
    return {steps: lead for steps, lead in found.items() if lead}


def longest(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the longest trainings, by which the claim is judged.

    >>> longest(pd.DataFrame({"steps": [2, 9, 9], "seed": [0, 0, 1]}))["seed"].tolist()
    [0, 1]
    """
    return table[table["steps"] == table["steps"].max()].reset_index(drop=True)


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
