"""CIFAR-10 from scratch within a stated budget, ViT beside ResNet (BiT), on real images (§4.1)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import ImageSet, batches
from vitlab.experiments.trials import TRIAL_SEED, stored_trials
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.sweep.identity import device_type
from vitlab.training.evaluate import untrained_row
from vitlab.training.finetune import split
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import subset

HELD_OUT = 0.02  # of the training set, for trials: Table 4's share for CIFAR
BATCH = 128
# Images per second of a training step, augmentation included, on one core of the machine that the budget is for.
SPEED = {"Lab-Ti/8": 2384, "BiT-Lab-Ti/8": 2486, "Lab-Ti/4": 592, "BiT-Lab-Ti/4": 726}
Choice = tuple[str, float]  # model, learning rate


@dataclass(frozen=True)
class StudyConfig:
    """One preset: models that are trained for equal times on the same device."""

    steps: dict[Choice, int]
    budget: str  # in words
    n_seeds: int
    batch_size: int = BATCH
    weight_decay: float = 0.1
    label_smoothing: float = 0.1
    mixup: float = 0.0
    precision: str = "fp32"
    n_train: int | None = None  # the first so many images; None: all
    n_test: int | None = None


def steps_in(seconds: float, model: str) -> int:
    """Training steps of `BATCH` images that a model takes in `seconds` on one core.

    >>> steps_in(600, "Lab-Ti/8")
    11175
    """
    return int(seconds * SPEED[model] / BATCH)


def best() -> tuple[Choice, Choice]:
    """The ViT and the ResNet of the best trials in cifar10_trials.json, each with its learning rate."""
    trials = stored_trials("cifar10")
    rows = trials.loc[trials.groupby(trials["model"].str.startswith("BiT"))["held_out_accuracy"].idxmax()]
    vit, bit = zip(rows["model"], map(float, rows["learning_rate"]), strict=True)
    return vit, bit


_QUICK = StudyConfig({choice: steps_in(590, choice[0]) for choice in best()}, "10 minutes on one CPU core", n_seeds=1)
CONFIGS = {
    "smoke": StudyConfig(
        {("Lab-Ti/8", 2e-3): 4, ("BiT-Lab-Ti/8", 8e-3): 4},
        "4 steps",
        n_seeds=1,
        batch_size=16,
        mixup=0.5,
        n_train=60,
        n_test=40,
    ),
    "quick": _QUICK,
    "full": dataclasses.replace(_QUICK, n_seeds=5),
    "gpu": StudyConfig(  # not run yet: models of 3.6 million parameters for some 300 epochs
        {("Lab-B/4", 1e-3): 30_000, ("BiT-Lab-B/4", 4e-3): 30_000},
        "10 minutes on one GPU",
        n_seeds=1,
        batch_size=512,
        mixup=0.5,
        precision="bf16",
    ),
}


def cifar10(preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Train both families within the preset's budget; a row for every evaluation, ten in a run.

    Needs CIFAR-10, see `datasets.load`. Nothing is chosen by the test set.

    Raises FileNotFoundError where CIFAR-10 is not there.
    """
    if device_type() == "cuda":
        jobs = 1  # the budget is a time, and two would share the device
    return runner.run_all(run_one, _planned_runs(preset, seed), folder or runner.run_folder("cifar10", preset), jobs)


def finished(preset: str = "quick", seed: int = 0, folder: Path | None = None) -> pd.DataFrame:
    """What of `cifar10` is stored; without rows where nothing is. Needs no images, and computes nothing.

    >>> finished("smoke", folder=Path("nowhere")).empty
    True
    """
    return runner.stored(run_one, _planned_runs(preset, seed), folder or runner.run_folder("cifar10", preset))


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Make the trials of cifar10_trials.json again: two patch sizes, three learning rates, a minute for each trial."""
    folder, config = folder or runner.run_folder("cifar10_sweep", "quick"), CONFIGS["quick"]
    choices = zip(*(stored_trials("cifar10")[name] for name in ("model", "learning_rate")), strict=True)
    runs = [_planned_run(config, choice, steps_in(60, choice[0]), TRIAL_SEED, tuning=True) for choice in choices]
    return runner.run_all(run_one, runs, folder, jobs).groupby(["model", "learning_rate"], sort=False).tail(1)


def _planned_runs(preset: str, seed: int) -> list[dict[str, Any]]:
    config = presets.choose(CONFIGS, preset)
    return [
        _planned_run(config, choice, steps, s)
        for s in range(100 * seed, 100 * seed + config.n_seeds)
        for choice, steps in config.steps.items()
    ]


def _planned_run(config: StudyConfig, choice: Choice, steps: int, seed: int, tuning: bool = False) -> dict[str, Any]:
    model, rate = choice
    shared = {name: value for name, value in vars(config).items() if name not in ("steps", "budget", "n_seeds")}
    return {"model": model, "learning_rate": rate, "steps": steps, "seed": seed, "tuning": tuning} | shared


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model; a row for every evaluation on the test set, or in trials on held-out images."""
    images, watched = (_first(datasets.load("cifar10", part), config[f"n_{part}"]) for part in ("train", "test"))
    if config["tuning"]:
        images, watched = split(images, HELD_OUT, config["seed"])
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "label_smoothing", "precision", "seed")
    phases = {"warmup_steps": config["steps"] // 20, "eval_every": math.ceil(config["steps"] / 10)}
    recipe, device = Recipe(**{name: config[name] for name in names}, **phases), default_device()
    augmentation = Augmentation(crop="pad", pad=4, flip=True, mixup=config["mixup"])
    model = zoo.create(config["model"], n_classes=len(images.classes), image_size=32, seed=recipe.seed).to(device)
    rows = [untrained_row(model, watched)]
    feed = batches(images, recipe.batch_size, recipe.seed, device, augmentation)
    rows += train(model, feed, recipe, validation=watched)
    kept = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy", "flops")
    new = {"val_loss": "test_loss", "val_accuracy": "test_accuracy"}
    return [{new.get(name, name): row[name] for name in kept if name in row} for row in rows]


def _first(images: ImageSet, n: int | None) -> ImageSet:
    return images if n is None else subset(images, torch.arange(n))
