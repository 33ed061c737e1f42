"""CIFAR-10 by the best small ViT in an hour of one core: plain and pre-trained, or hybrid (§3.1, §4.1, §4.6)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments.cifar10_runs import MASKED, SCRATCH, WORLD, run_one
from vitlab.experiments.trials import TRIAL_SEED
from vitlab.sweep import presets, runner

BUDGET = 3600  # seconds of one core
TRIAL = 525  # seconds of one core
_PRETRAINING = 1 / 2  # of the steps of an arm that is pre-trained
# Images per second of a training step in bfloat16, augmentation included, on one core of the machine of the budget.
SPEED = {"Lab-M/4": 561, "R+Lab-M/8": 1150}


@dataclass(frozen=True)
class Arm:
    """A model, how it is pre-trained, and what the trials chose between."""

    model: str
    pretraining: str  # SCRATCH, MASKED or WORLD
    learning_rate: float  # of the training with CIFAR-10's labels
    batch_size: int = 64
    mixup: float = 0.0


@dataclass(frozen=True)
class StudyConfig:
    """One preset: arms that have equal times on the same kind of core."""

    arms: tuple[Arm, ...]
    data: str = "cifar10"
    image_size: int = 32
    steps: int | None = None  # in all; None: those that `BUDGET` allows
    pretraining_rate: float = 1.5e-3
    weight_decay: float = 0.1
    label_smoothing: float = 0.1
    precision: str = "bf16"
    n_train: int | None = None  # None: all images
    n_test: int | None = None


TRIALS = (
    Arm("Lab-M/4", MASKED, 1e-3),
    Arm("Lab-M/4", MASKED, 2e-3, batch_size=128),
    Arm("R+Lab-M/8", SCRATCH, 1e-3),
    Arm("R+Lab-M/8", SCRATCH, 3e-3),
)
CONFIGS = {
    "smoke": StudyConfig(
        tuple(Arm("Lab-Mu/8", how, 1e-3, batch_size=16, mixup=0.5) for how in (SCRATCH, MASKED, WORLD)),
        "digits",
        steps=4,
        precision="fp32",
        n_train=60,
        n_test=40,
    ),
    "full": StudyConfig((Arm("R+Lab-M/8", SCRATCH, 1e-3), Arm("Lab-M/4", MASKED, 1e-3))),
}


def cifar10_best(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every arm for the budget; a row for every evaluation on the test images, by which nothing is chosen.

    Raises ValueError for an unknown preset, FileNotFoundError where the images are not there.
    """
    folder = folder or runner.run_folder("cifar10_best", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study.

    >>> [run["steps"] + run["pretraining_steps"] for run in planned_runs("full")]
    [64687, 31556]
    """
    config = presets.choose(CONFIGS, preset)
    return [_planned_run(config, arm, 100 * seed) for arm in config.arms]


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Make the trials of cifar10_best_trials.json again: each of the same time, on held-out training images."""
    runs = [_planned_run(CONFIGS["full"], arm, TRIAL_SEED, tuning=True) for arm in TRIALS]
    rows = runner.run_all(run_one, runs, folder or runner.run_folder("cifar10_best_sweep", "full"), jobs)
    return accuracies(rows)


def _planned_run(config: StudyConfig, arm: Arm, seed: int, tuning: bool = False) -> dict[str, Any]:
    steps = config.steps or int((TRIAL if tuning else BUDGET) * SPEED[arm.model] / arm.batch_size)
    before = 0 if arm.pretraining == SCRATCH else int(_PRETRAINING * steps)
    shared = {name: value for name, value in vars(config).items() if name not in ("arms", "steps")}
    return vars(arm) | {"pretraining_steps": before, "steps": steps - before, "seed": seed, "tuning": tuning} | shared


def trainings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The trainings of one run, as `vitlab experiment cifar10_best --plan` counts them.

    >>> [[each["steps"] for each in trainings(run)] for run in planned_runs("smoke")]
    [[4], [2, 2], [2, 2]]
    """
    shared = {name: config[name] for name in ("model", "image_size", "batch_size")}
    return [shared | {"steps": config[name]} for name in ("pretraining_steps", "steps") if config[name]]


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each evaluation: the arm's name, seed, core_hours (pre-training included), test_accuracy (0…1)."""
    runs = []
    for (model, pretraining, seed), rows in table.groupby(["model", "pretraining", "seed"], sort=False):
        before = rows.loc[rows["kind"] == "pre-training", "seconds"].sum()
        after = rows[rows["kind"] == "evaluation"]
        hours = (before + after["seconds"]) / 3600
        runs.append(after.assign(arm=f"{model}, {pretraining}", seed=seed, core_hours=hours))
    return pd.concat(runs)[["arm", "model", "pretraining", "seed", "core_hours", "samples", "test_accuracy"]]


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """The last evaluation of each run."""
    by = ["model", "pretraining", "learning_rate", "batch_size", "mixup", "seed"]
    return table[table["kind"] == "evaluation"].groupby(by, sort=False).tail(1).reset_index(drop=True)
