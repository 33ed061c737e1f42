"""Training curves of ViT, ResNet (BiT) and hybrid on the digits and the world, at equal budgets (§4.1, Table 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from vitlab.data.loader import ImageSet, batches, to_float
from vitlab.data.world import World
from vitlab.experiments.trials import TRIAL_SEED, stored_trials
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.training.evaluate import untrained_row
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import Splits, digits_splits, world_splits

_N_MISTAKES = 30  # wrongly classified images that are stored for each run


@dataclass(frozen=True)
class Task:
    """One data set and how everything is trained on it; only learning rate and weight decay differ between models."""

    data: str  # "digits" or "world"
    models: dict[str, tuple[float, float]]  # learning rate, weight decay
    recipe: Recipe
    n_train: int  # images; of the digits there are 1437
    n_test: int  # images of the world; the digits' test set has 360
    image_size: int  # pixels


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    tasks: tuple[Task, ...]
    n_seeds: int  # each with weights and order of its own


def tuned(data: str) -> dict[str, tuple[float, float]]:
    """The models for a data set, each with learning rate and weight decay of its best trial in training_curves_trials.

    A ViT, the ResNet that matches its compute, and of the hybrids of its size the one whose compute is nearest.

    >>> list(tuned("digits"))
    ['Lab-Ti/2', 'BiT-Lab-Ti/2', 'R+Lab-Ti/2']
    """
    trials = stored_trials("training_curves")
    best = trials[trials["data"] == data].groupby("model", sort=False)["validation_accuracy"].idxmax()
    chosen = trials.loc[best, ["learning_rate", "weight_decay"]]
    pairs = zip(best.index, chosen.to_numpy(), strict=True)
    return {model: (float(learning_rate), float(weight_decay)) for model, (learning_rate, weight_decay) in pairs}


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
    dict.fromkeys(("Lab-S/4", "BiT-Lab-S/4", "R+Lab-S/4"), (1e-3, 0.1)),  # not tuned
    Recipe(steps=20_000, batch_size=256, warmup_steps=1_000, eval_every=1_000, precision="bf16"),
    n_train=1_000_000,
    n_test=20_000,
    image_size=32,
)
_FEW = Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=3)
CONFIGS = {
    "smoke": StudyConfig(
        (
            Task("digits", tuned("digits"), _FEW, n_train=64, n_test=360, image_size=8),
            Task("world", tuned("world"), _FEW, n_train=64, n_test=60, image_size=32),
        ),
        n_seeds=2,
    ),
    "quick": StudyConfig(
        (
            dataclasses.replace(_DIGITS, recipe=dataclasses.replace(_DIGITS.recipe, steps=400, warmup_steps=40)),
            dataclasses.replace(
                _WORLD, recipe=dataclasses.replace(_WORLD.recipe, steps=270, warmup_steps=27, eval_every=27)
            ),
        ),
        n_seeds=3,
    ),
    "full": StudyConfig((_DIGITS, _WORLD), n_seeds=5),
    "gpu": StudyConfig((_DIGITS, _GPU_WORLD), n_seeds=5),  # not run yet
}


def training_curves(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train the three families on both data sets with every seed.

    Rows are of three kinds: `curves`, `confusion` and `mistakes` take them apart. Nothing is chosen by the test set: no
    run stops early, and learning rates and weight decays are those of `tuned`.
    """
    folder = folder or runner.run_folder("training_curves", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def sweep(data: str, jobs: int | None = None, folder: Path | None = None, preset: str = "quick") -> pd.DataFrame:
    """Make the trials of training_curves_trials.json again: one row for each, with the accuracy as test_accuracy.

    It is measured on validation images: every fifth training image (digits), or held-out ones that are not the test's
    (world).
    """
    folder = folder or runner.run_folder("training_curves_sweep", preset)
    task = next(task for task in presets.choose(CONFIGS, preset).tasks if task.data == data)
    rows = stored_trials("training_curves").query("data == @data").itertuples()
    runs = [_planned_run(task, row.model, (row.learning_rate, row.weight_decay), TRIAL_SEED, True) for row in rows]
    return finals(runner.run_all(run_one, runs, folder, jobs))


def planned_runs(preset: str = "quick", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study, the long ones first.

    >>> len(planned_runs("quick"))
    18
    """
    config = presets.choose(CONFIGS, preset)
    return [
        _planned_run(task, model, values, s)
        for task in reversed(config.tasks)
        for s in range(100 * seed, 100 * seed + config.n_seeds)
        for model, values in task.models.items()
    ]


def _planned_run(
    task: Task, model: str, values: tuple[float, float], seed: int, tuning: bool = False
) -> dict[str, Any]:
    recipe = task.recipe
    return {
        "data": task.data,
        "model": model,
        "seed": seed,
        "learning_rate": values[0],
        "weight_decay": values[1],
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


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model on one data set; rows of its curve, and of its confusions and mistakes after training."""
    splits, device = _splits(config), default_device()
    names = ("steps", "batch_size", "learning_rate", "warmup_steps", "weight_decay", "eval_every", "precision", "seed")
    recipe = Recipe(**{name: config[name] for name in names})
    watched = splits.validation or splits.test  # there is a validation set when tuning
    n_classes, side = len(splits.train.classes), splits.train.images.shape[-1]
    model = zoo.create(config["model"], n_classes=n_classes, image_size=side, seed=config["seed"]).to(device)
    rows = [untrained_row(model, watched)]
    rows += train(model, batches(splits.train, recipe.batch_size, recipe.seed, device), recipe, validation=watched)
    kept = {
        "step": "step",
        "samples": "samples",
        "seconds": "seconds",
        "train_loss": "train_loss",
        "val_loss": "test_loss",
        "val_accuracy": "test_accuracy",
    }
    curve = [{"kind": "curve"} | {new: row[old] for old, new in kept.items() if old in row} for row in rows]
    predicted = predictions(model, watched)
    return [*curve, *_confusion_rows(watched, predicted), *_mistake_rows(watched, predicted)]


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
