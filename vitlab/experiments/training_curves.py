"""Training curves of ViT, ResNet (BiT) and hybrid on the digits and the world, at equal budgets (§4.1, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from vitlab.data.loader import ImageSet, to_float
from vitlab.data.world import World
from vitlab.experiments import presets, runner
from vitlab.training.pretrain import Splits, digits_splits, pretrain, world_splits
from vitlab.training.recipe import Recipe

# Validation accuracy of every trial made to choose learning rate and weight decay: all families the same trials, on
# the same images, with the recipe of "quick" and a seed that no experiment uses. `sweep` makes these tables again.
Rates = tuple[float, float]  # learning rate, weight decay
SWEEP: dict[tuple[str, str], dict[Rates, float]] = {
    ("digits", "Lab-Ti/2"): {
        (1e-3, 0.1): 0.934,
        (2e-3, 0.1): 0.958,
        (4e-3, 0.1): 0.979,
        (8e-3, 0.1): 0.948,
        (1e-3, 1.0): 0.958,
        (2e-3, 1.0): 0.972,
        (4e-3, 1.0): 0.983,
        (8e-3, 1.0): 0.969,
    },
    ("digits", "BiT-Lab-Ti/2"): {
        (1e-3, 0.1): 0.979,
        (2e-3, 0.1): 0.979,
        (4e-3, 0.1): 0.979,
        (8e-3, 0.1): 0.979,
        (1e-3, 1.0): 0.972,
        (2e-3, 1.0): 0.976,
        (4e-3, 1.0): 0.990,
        (8e-3, 1.0): 0.979,
    },
    ("digits", "R+Lab-Ti/2"): {
        (1e-3, 0.1): 0.955,
        (2e-3, 0.1): 0.979,
        (4e-3, 0.1): 0.972,
        (8e-3, 0.1): 0.969,
        (1e-3, 1.0): 0.958,
        (2e-3, 1.0): 0.962,
        (4e-3, 1.0): 0.983,
        (8e-3, 1.0): 0.976,
    },
    ("world", "Lab-Ti/8"): {
        (1e-3, 0.1): 0.448,
        (2e-3, 0.1): 0.490,
        (4e-3, 0.1): 0.492,
        (8e-3, 0.1): 0.395,
        (16e-3, 0.1): 0.297,
        (32e-3, 0.1): 0.152,
    },
    ("world", "BiT-Lab-Ti/8"): {
        (1e-3, 0.1): 0.398,
        (2e-3, 0.1): 0.552,
        (4e-3, 0.1): 0.504,
        (8e-3, 0.1): 0.575,
        (16e-3, 0.1): 0.636,
        (32e-3, 0.1): 0.635,
    },
    ("world", "R+Lab-Ti/8"): {
        (1e-3, 0.1): 0.420,
        (2e-3, 0.1): 0.320,
        (4e-3, 0.1): 0.466,
        (8e-3, 0.1): 0.451,
        (16e-3, 0.1): 0.306,
        (32e-3, 0.1): 0.104,
    },
}
_SWEEP_SEED = 9_999
_N_MISTAKES = 30  # that are kept of a run, to be looked at


@dataclass(frozen=True)
class Task:
    """One data set and how everything is trained on it; learning rate and weight decay alone are each model's own."""

    data: str  # "digits" or "world"
    models: dict[str, Rates]
    recipe: Recipe
    n_train: int  # images; of the digits there are 1437
    n_test: int  # images of the world; the digits' test set has 360
    image_size: int  # pixels


@dataclass(frozen=True)
class Settings:
    """One preset."""

    tasks: tuple[Task, ...]
    n_seeds: int  # each with weights and order of its own


def tuned(data: str) -> dict[str, Rates]:
    """The models for a data set, each with the learning rate and weight decay that were best in `SWEEP`.

    A ViT, the ResNet that matches its compute, and of the hybrids of its size the one whose compute is nearest.

    >>> list(tuned("digits"))
    ['Lab-Ti/2', 'BiT-Lab-Ti/2', 'R+Lab-Ti/2']
    """
    return {model: max(trials, key=trials.get) for (name, model), trials in SWEEP.items() if name == data}


_DIGITS = Task(
    "digits",
    tuned("digits"),
    Recipe(steps=600, batch_size=64, warmup_steps=60, eval_every=50),
    n_train=1437,
    n_test=360,
    image_size=8,
)
_WORLD = Task(
    "world",
    tuned("world"),
    Recipe(steps=450, batch_size=128, warmup_steps=45, eval_every=45),
    n_train=30_000,
    n_test=2_000,
    image_size=32,
)
_GPU_WORLD = Task(
    "world",
    dict.fromkeys(("Lab-S/4", "BiT-Lab-S/4", "R+Lab-S/4"), (1e-3, 0.1)),  # not swept: one usual rate for all
    Recipe(steps=20_000, batch_size=256, warmup_steps=1_000, eval_every=1_000, precision="bf16"),
    n_train=1_000_000,
    n_test=20_000,
    image_size=32,
)
_FEW = Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=3)
SETTINGS = {
    "smoke": Settings(
        (
            Task("digits", tuned("digits"), _FEW, n_train=64, n_test=360, image_size=8),
            Task("world", tuned("world"), _FEW, n_train=64, n_test=60, image_size=32),
        ),
        n_seeds=2,
    ),
    "quick": Settings((_DIGITS, _WORLD), n_seeds=3),
    "full": Settings((_DIGITS, _GPU_WORLD), n_seeds=5),
}


def training_curves(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train the three families on both data sets with every seed.

    Rows are of three kinds: `curves`, `confusion` and `mistakes` take them apart. Nothing is chosen by the test set: no
    run stops early, and the learning rates are those of `SWEEP`.
    """
    folder = folder or runner.run_folder("training_curves", preset)
    settings = presets.choose(SETTINGS, preset)
    seeds = [100 * seed + s for s in range(settings.n_seeds)]
    configs = [
        _config(task, model, rates, s)
        for task in reversed(settings.tasks)  # the long runs first
        for s in seeds
        for model, rates in task.models.items()
    ]
    return runner.run_all(_run_one, configs, folder, jobs)


def sweep(data: str, jobs: int | None = None, folder: Path | None = None, preset: str = "quick") -> pd.DataFrame:
    """The trials behind `SWEEP`: validation accuracy, a row per learning rate and weight decay, a column per model.

    The validation images are every fifth training image (digits), or held-out ones that are not the test's (world).
    """
    folder = folder or runner.run_folder("training_curves_sweep", preset)
    task = next(task for task in presets.choose(SETTINGS, preset).tasks if task.data == data)
    trials = [(model, rates) for (name, model), trials in SWEEP.items() if name == data for rates in trials]
    configs = [_config(task, model, rates, _SWEEP_SEED, tuning=True) for model, rates in trials]
    last = finals(runner.run_all(_run_one, configs, folder, jobs))
    return last.pivot(index=["learning_rate", "weight_decay"], columns="model", values="test_accuracy")


def _config(task: Task, model: str, rates: Rates, seed: int, tuning: bool = False) -> dict[str, Any]:
    recipe = task.recipe
    return {
        "data": task.data,
        "model": model,
        "seed": seed,
        "learning_rate": rates[0],
        "weight_decay": rates[1],
        "steps": recipe.steps,
        "batch_size": recipe.batch_size,
        "warmup_steps": recipe.warmup_steps,
        "eval_every": recipe.eval_every,
        "precision": recipe.precision,
        "n_train": task.n_train,
        "n_test": task.n_test,
        "image_size": task.image_size,
        "tuning": tuning,
    }


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    splits = _splits(config)
    names = ("steps", "batch_size", "learning_rate", "warmup_steps", "weight_decay", "eval_every", "precision")
    recipe = Recipe(**{name: config[name] for name in names})
    watch = splits.validation if config["tuning"] else splits.test
    model, rows = pretrain(config["model"], splits.train, recipe, seed=config["seed"], watch=watch)
    kept = {
        "step": "step",
        "samples": "samples",
        "seconds": "seconds",
        "train_loss": "train_loss",
        "val_loss": "test_loss",
        "val_accuracy": "test_accuracy",
    }
    found = [{"kind": "curve"} | {new: row[old] for old, new in kept.items() if old in row} for row in rows]
    predicted = predictions(model, watch)
    return found + list(_confusion_rows(watch, predicted)) + list(_mistake_rows(watch, predicted))


def _splits(config: dict[str, Any]) -> Splits:
    if config["data"] == "digits":
        return digits_splits(config["n_train"], hold_out=config["tuning"])
    world = World(image_size=config["image_size"])
    return world_splits(world, config["n_train"], config["n_test"] if config["tuning"] else 0, config["n_test"])


@torch.inference_mode()
def predictions(model: nn.Module, images: ImageSet, batch_size: int = 500) -> np.ndarray:
    """The most probable class of every image, [N]."""
    device = next(model.parameters()).device
    chunks = images.images.split(batch_size)
    return torch.cat([model(to_float(chunk.to(device))).argmax(-1) for chunk in chunks]).cpu().numpy()


def _confusion_rows(images: ImageSet, predicted: np.ndarray) -> Iterator[dict[str, Any]]:
    pairs, counts = np.unique(np.stack([images.labels.cpu().numpy(), predicted], 1), axis=0, return_counts=True)
    for (label, guess), count in zip(pairs, counts, strict=True):
        yield {"kind": "confusion", "label": int(label), "predicted": int(guess), "count": int(count)}


def _mistake_rows(images: ImageSet, predicted: np.ndarray) -> Iterator[dict[str, Any]]:
    labels = images.labels.cpu().numpy()
    for i in np.flatnonzero(labels != predicted)[:_N_MISTAKES]:
        yield {"kind": "mistake", "image": int(i), "label": int(labels[i]), "predicted": int(predicted[i])}


_RUN = ["data", "model", "seed", "learning_rate", "weight_decay"]
_CURVE = ("samples", "seconds", "train_loss", "test_loss", "test_accuracy")


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """One row for every evaluation of every run: data, model, seed, step, samples, seconds (of training), train_loss
    (nats, mean since the row before; none at step 0), test_loss, test_accuracy (0…1)."""
    rows = table[table["kind"] == "curve"].astype({"step": int, "samples": int})
    return rows[[*_RUN, "step", *_CURVE]].reset_index(drop=True)


def finals(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of `curves` for every run."""
    return curves(table).groupby(_RUN, sort=False).tail(1).reset_index(drop=True)


def confusion(table: pd.DataFrame, data: str, model: str, n_classes: int = 10) -> np.ndarray:
    """Numbers of test images [true class, predicted class], summed over the seeds."""
    chosen = (table["kind"] == "confusion") & (table["data"] == data) & (table["model"] == model)
    counts = np.zeros((n_classes, n_classes), dtype=int)
    for row in table[chosen].itertuples():
        counts[int(row.label), int(row.predicted)] += int(row.count)
    return counts


def mistakes(table: pd.DataFrame, data: str, model: str) -> pd.DataFrame:
    """Test images that a model got wrong (the first thirty of every seed): seed, image (index), label, predicted."""
    chosen = (table["kind"] == "mistake") & (table["data"] == data) & (table["model"] == model)
    columns = ["seed", "image", "label", "predicted"]
    return table.reindex(columns=columns)[chosen].astype(int).reset_index(drop=True)
