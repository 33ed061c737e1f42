"""CIFAR-10 from scratch within a stated budget, ViT beside ResNet (BiT), on real images (§4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import ImageSet
from vitlab.experiments import presets, runner
from vitlab.experiments.identity import device_type
from vitlab.training.finetune import split
from vitlab.training.pretrain import pretrain, subset
from vitlab.training.recipe import Recipe

HELD_OUT = 0.02  # of the training set, to choose by: Table 4's share for CIFAR
BATCH = 128
# Images per second of a training step, augmentation included, on one core of the machine that the budget is for.
SPEED = {"Lab-Ti/8": 2384, "BiT-Lab-Ti/8": 2486, "Lab-Ti/4": 592, "BiT-Lab-Ti/4": 726}
# Held-out accuracy after a tenth of the budget: both families the same trials. `sweep` makes the table again.
Choice = tuple[str, float]  # model, learning rate
SWEEP: dict[Choice, float] = {
    ("Lab-Ti/8", 1e-3): 0.477,
    ("Lab-Ti/8", 3e-3): 0.490,
    ("Lab-Ti/8", 9e-3): 0.340,
    ("Lab-Ti/4", 1e-3): 0.366,
    ("Lab-Ti/4", 3e-3): 0.391,
    ("Lab-Ti/4", 9e-3): 0.328,
    ("BiT-Lab-Ti/8", 1e-3): 0.565,
    ("BiT-Lab-Ti/8", 3e-3): 0.634,
    ("BiT-Lab-Ti/8", 9e-3): 0.652,
    ("BiT-Lab-Ti/4", 1e-3): 0.389,
    ("BiT-Lab-Ti/4", 3e-3): 0.461,
    ("BiT-Lab-Ti/4", 9e-3): 0.421,
}
_SWEEP_SEED = 9_999


@dataclass(frozen=True)
class Settings:
    """One preset: what is trained on how much, all in the same time on the same device."""

    steps: dict[Choice, int]
    budget: str  # in words
    n_seeds: int
    batch_size: int = BATCH
    weight_decay: float = 0.1
    label_smoothing: float = 0.1
    mixup: float = 0.0
    cutmix: float = 0.0
    trivial: bool = False
    drop_path: float = 0.0  # of ViTs
    average: float | None = None
    precision: str = "fp32"
    n_train: int | None = None  # the first so many images; None: all
    n_test: int | None = None


def steps_in(seconds: float, model: str) -> int:
    """Steps of `BATCH` images that a model does in a time on one core.

    >>> steps_in(600, "Lab-Ti/8")
    11175
    """
    return int(seconds * SPEED[model] / BATCH)


def best() -> tuple[Choice, Choice]:
    """The ViT and the ResNet that were best in `SWEEP`, each with its learning rate."""
    families = [[choice for choice in SWEEP if choice[0].startswith("BiT") == bit] for bit in (False, True)]
    return tuple(max(family, key=SWEEP.get) for family in families)


SETTINGS = {
    "smoke": Settings(
        {("Lab-Ti/8", 2e-3): 4, ("BiT-Lab-Ti/8", 8e-3): 4},
        "4 steps",
        n_seeds=1,
        batch_size=16,
        mixup=0.8,
        cutmix=1.0,
        trivial=True,
        drop_path=0.1,
        average=0.9,
        n_train=60,
        n_test=40,
    ),
    "quick": Settings(
        {choice: steps_in(590, choice[0]) for choice in best()},
        "10 minutes on one CPU core",
        n_seeds=1,
    ),
    # Written for one large GPU and not yet run there: a model of 3.6 million parameters for some 300 epochs.
    "full": Settings(
        {("Lab-B/4", 1e-3): 30_000, ("BiT-Lab-B/4", 4e-3): 30_000},
        "10 minutes on one GPU",
        n_seeds=1,
        batch_size=512,
        mixup=0.8,
        cutmix=1.0,
        trivial=True,
        drop_path=0.1,
        average=0.9998,
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
    return runner.run_all(_run_one, _configs(preset, seed), folder or runner.run_folder("cifar10", preset), jobs)


def finished(preset: str = "quick", seed: int = 0, folder: Path | None = None) -> pd.DataFrame:
    """What of `cifar10` is stored; without rows where nothing is. Needs no images, and computes nothing.

    >>> finished("smoke", folder=Path("nowhere")).empty
    True
    """
    return runner.stored(_run_one, _configs(preset, seed), folder or runner.run_folder("cifar10", preset))


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """The trials behind `SWEEP`: two patch sizes and three learning rates for each family, a minute each."""
    folder = folder or runner.run_folder("cifar10_sweep", "quick")
    trials = [(model, rate) for model in SPEED for rate in (1e-3, 3e-3, 9e-3)]
    configs = [
        _config(SETTINGS["quick"], choice, steps_in(60, choice[0]), _SWEEP_SEED, tuning=True) for choice in trials
    ]
    return runner.run_all(_run_one, configs, folder, jobs).groupby(["model", "learning_rate"], sort=False).tail(1)


def _configs(preset: str, seed: int) -> list[dict[str, Any]]:
    settings = presets.choose(SETTINGS, preset)
    return [
        _config(settings, choice, steps, 100 * seed + s)
        for s in range(settings.n_seeds)
        for choice, steps in settings.steps.items()
    ]


def _config(settings: Settings, choice: Choice, steps: int, seed: int, tuning: bool = False) -> dict[str, Any]:
    model, rate = choice
    shared = {name: value for name, value in vars(settings).items() if name not in ("steps", "budget", "n_seeds")}
    return {"model": model, "learning_rate": rate, "steps": steps, "seed": seed, "tuning": tuning} | shared


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    learn, test = (_some(datasets.load("cifar10", part), config[f"n_{part}"]) for part in ("train", "test"))
    if config["tuning"]:
        learn, test = split(learn, HELD_OUT, config["seed"])
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "label_smoothing", "average", "precision")
    phases = {"warmup_steps": config["steps"] // 20, "eval_every": math.ceil(config["steps"] / 10)}
    recipe = Recipe(**{name: config[name] for name in names}, **phases)
    chosen = {name: config[name] for name in ("mixup", "cutmix", "trivial")}
    augmentation = Augmentation(crop="pad", pad=4, flip=True, **chosen)
    options = {} if config["model"].startswith("BiT") else {"drop_path": config["drop_path"]}
    _, rows = pretrain(
        config["model"], learn, recipe, seed=config["seed"], watch=test, augmentation=augmentation, **options
    )
    kept = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy", "flops")
    new = {"val_loss": "test_loss", "val_accuracy": "test_accuracy"}
    return [{new.get(name, name): row[name] for name in kept if name in row} for row in rows]


def _some(images: ImageSet, n: int | None) -> ImageSet:
    return images if n is None else subset(images, torch.arange(n))
