"""Accuracy against the size of the training set, ViT beside ResNet (BiT) at equal compute (§4.3, Fig. 3, 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from vitlab.data.world import World
from vitlab.experiments import presets, runner
from vitlab.experiments.intervals import Interval, mean_interval
from vitlab.training.evaluate import evaluate
from vitlab.training.pretrain import pretrain, subset, world_splits
from vitlab.training.recipe import Recipe

# Validation accuracy of every trial made to choose learning rate and weight decay: both families the same trials, on
# the same 3,000 images (a middle size, for one recipe serves all), with the recipe of "quick" and a seed that no
# experiment uses. `sweep` makes the table again.
Rates = tuple[float, float]  # learning rate, weight decay
SWEEP: dict[str, dict[Rates, float]] = {
    "Lab-Ti/8": {
        (1e-3, 0.1): 0.353,
        (2e-3, 0.1): 0.423,
        (4e-3, 0.1): 0.399,
        (8e-3, 0.1): 0.317,
        (16e-3, 0.1): 0.215,
        (1e-3, 1.0): 0.370,
        (2e-3, 1.0): 0.418,
        (4e-3, 1.0): 0.452,
        (8e-3, 1.0): 0.412,
        (16e-3, 1.0): 0.352,
    },
    "BiT-Lab-Ti/8": {
        (1e-3, 0.1): 0.322,
        (2e-3, 0.1): 0.398,
        (4e-3, 0.1): 0.437,
        (8e-3, 0.1): 0.514,
        (16e-3, 0.1): 0.543,
        (1e-3, 1.0): 0.315,
        (2e-3, 1.0): 0.452,
        (4e-3, 1.0): 0.549,
        (8e-3, 1.0): 0.574,
        (16e-3, 1.0): 0.569,
    },
}
_SWEEP_SEED, _SWEEP_SIZE = 9_999, 3_000


@dataclass(frozen=True)
class Settings:
    """One preset: which models, on how many images, for how long. All sizes are trained by the same recipe."""

    models: dict[str, Rates]
    sizes: tuple[int, ...]  # training images; each set contains the smaller ones
    n_seeds: int  # each with weights, order and training images of its own
    recipe: Recipe  # steps are the most; training ends early where the validation accuracy has stopped rising
    n_validation: int
    n_test: int
    image_size: int = 32  # pixels


SETTINGS = {
    "smoke": Settings(
        models={"Lab-Ti/4": (2e-3, 0.1), "BiT-Lab-Ti/4": (2e-3, 0.1)},
        sizes=(16, 32, 64),
        n_seeds=2,
        recipe=Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=2, patience=2),
        n_validation=32,
        n_test=64,
        image_size=16,
    ),
    "quick": Settings(
        models={name: max(trials, key=trials.get) for name, trials in SWEEP.items()},
        sizes=(300, 1_000, 3_000, 10_000),
        n_seeds=3,
        recipe=Recipe(steps=400, batch_size=128, warmup_steps=40, eval_every=25, patience=4),
        n_validation=1_000,
        n_test=2_000,
    ),
    "full": Settings(
        models=dict.fromkeys(("Lab-Ti/4", "Lab-S/4", "BiT-Lab-Ti/4", "BiT-Lab-S/4"), (1e-3, 0.1)),  # not swept
        sizes=(1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
        n_seeds=3,
        recipe=Recipe(steps=10_000, batch_size=256, warmup_steps=1_000, eval_every=500, patience=5),
        n_validation=5_000,
        n_test=20_000,
    ),
}


def data_scaling(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every model on every size with every seed; rows of two kinds, see `outcomes` and `histories`.

    Within a seed both families see the same images, and the smaller sets are parts of the larger ones.
    """
    presets.check_runnable(preset)
    folder = folder or runner.run_folder("data_scaling", preset)
    return runner.run_all(_run_one, _configs(SETTINGS[preset], seed), folder, jobs)


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """The trials behind `SWEEP`: validation accuracy, a row per learning rate and weight decay, a column per model."""
    folder = folder or runner.run_folder("data_scaling_sweep", "quick")
    trials = [(model, rates) for model, found in SWEEP.items() for rates in found]
    configs = [_config(SETTINGS["quick"], model, rates, _SWEEP_SIZE, _SWEEP_SEED) for model, rates in trials]
    table = runner.run_all(_run_one, configs, folder, jobs)
    return table[table["kind"] == "outcome"].pivot(
        index=["learning_rate", "weight_decay"], columns="model", values="validation_accuracy"
    )


def _configs(settings: Settings, seed: int) -> list[dict[str, Any]]:
    # Large sets first within a seed: the long runs do not come last, and both families find the images painted.
    runs = itertools.product(range(settings.n_seeds), reversed(settings.sizes), settings.models.items())
    return [_config(settings, model, rates, size, 100 * seed + s) for s, size, (model, rates) in runs]


def _config(settings: Settings, model: str, rates: Rates, n_train: int, seed: int) -> dict[str, Any]:
    recipe = settings.recipe
    return {
        "model": model,
        "n_train": n_train,
        "seed": seed,
        "learning_rate": rates[0],
        "weight_decay": rates[1],
        "steps": recipe.steps,
        "batch_size": recipe.batch_size,
        "warmup_steps": recipe.warmup_steps,
        "eval_every": recipe.eval_every,
        "patience": recipe.patience,
        "n_validation": settings.n_validation,
        "n_test": settings.n_test,
        "image_size": settings.image_size,
    }


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    world = World(image_size=config["image_size"])
    splits = world_splits(world, config["n_train"], config["n_validation"], config["n_test"], draw=config["seed"])
    names = ("steps", "batch_size", "learning_rate", "warmup_steps", "weight_decay", "eval_every", "patience")
    recipe = Recipe(**{name: config[name] for name in names})
    model, rows = pretrain(config["model"], splits.train, recipe, seed=config["seed"], watch=splits.validation)
    best = max(rows[1:], key=lambda row: row["val_accuracy"])  # the first, where several are equal
    some = subset(splits.train, torch.arange(min(len(splits.train), config["n_test"])))
    test, train = evaluate(model, splits.test), evaluate(model, some)
    outcome = {
        "kind": "outcome",
        "test_accuracy": test["accuracy"],
        "validation_accuracy": best["val_accuracy"],
        "train_accuracy": train["accuracy"],  # of the kept weights, on at most n_test training images
        "best_step": best["step"],
        "last_step": rows[-1]["step"],
        "seconds": rows[-1]["seconds"],
    }
    kept = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy")
    return [outcome, *({"kind": "history"} | {k: row[k] for k in kept if k in row} for row in rows)]


def pair(preset: str) -> tuple[str, str]:
    """The ViT and the ResNet of a preset that are compared: the first of each, equal in compute.

    >>> pair("quick")
    ('Lab-Ti/8', 'BiT-Lab-Ti/8')
    """
    models = list(SETTINGS[presets.check_runnable(preset).name].models)
    is_bit = [model.startswith("BiT") for model in models]
    return models[is_bit.index(False)], models[is_bit.index(True)]


def outcomes(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: model, n_train, seed, test_accuracy, train_accuracy (0…1), best_step, last_step."""
    rows = table[table["kind"] == "outcome"]
    columns = ["model", "n_train", "seed", "test_accuracy", "train_accuracy"]
    steps = rows[["best_step", "last_step"]].astype(int)
    return pd.concat([rows[columns], steps, rows[["seconds"]]], axis=1).reset_index(drop=True)


def histories(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each evaluation of each run: model, n_train, seed, step, train_loss, val_loss, val_accuracy."""
    rows = table[table["kind"] == "history"]
    columns = ["model", "n_train", "seed", "step", "samples", "train_loss", "val_loss", "val_accuracy"]
    return rows[columns].astype({"step": int, "samples": int}).reset_index(drop=True)


def differences(runs: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Test accuracy of model `first` minus that of `second`, for every size and seed.

    Rows: n_train, seed, difference (0…1), and the 95 % t interval low, high of that size's mean over the seeds
    (the mean itself where there is one seed).

    >>> runs = pd.DataFrame({"model": ["a", "b"], "n_train": 10, "seed": 0, "test_accuracy": [0.5, 0.4]})
    >>> differences(runs, "a", "b").round(3).to_dict("records")
    [{'n_train': 10, 'seed': 0, 'difference': 0.1, 'low': 0.1, 'high': 0.1}]
    """
    wide = runs.pivot(index=["n_train", "seed"], columns="model", values="test_accuracy")
    found = (wide[first] - wide[second]).rename("difference").reset_index()
    groups = {size: rows.to_numpy() for size, rows in found.groupby("n_train")["difference"]}
    intervals = {size: mean_interval(group) or (group.mean(), group.mean()) for size, group in groups.items()}
    found["low"] = found["n_train"].map(lambda size: intervals[size][0])
    found["high"] = found["n_train"].map(lambda size: intervals[size][1])
    return found


def crossing(sizes: Sequence[float] | np.ndarray, difference: Sequence[float] | np.ndarray) -> float | None:
    """The size from which `difference` is above zero and stays so, by straight lines over the sizes' logarithm.

    None where there is no such crossing: it ends at zero or below, or is never below zero before.

    Raises:
        ValueError: sizes that are not positive and rising, or not as many as differences.

    >>> round(crossing([100, 10_000], [-0.1, 0.1]), 6)
    1000.0
    >>> crossing([100, 1000], [-0.1, -0.05]) is None
    True
    """
    x, d = np.asarray(sizes, dtype=float), np.asarray(difference, dtype=float)
    if x.shape != d.shape or x.ndim != 1 or (x <= 0).any() or (np.diff(x) <= 0).any():
        raise ValueError(f"sizes {sizes!r:.80}, differences {difference!r:.80}: expected as many; sizes > 0, rising")
    behind = np.flatnonzero(d <= 0)
    if len(behind) == 0 or behind[-1] == len(d) - 1 or not (d < 0).any():
        return None
    i = behind[-1]
    share = d[i] / (d[i] - d[i + 1])  # of the way from size i to the next where the line is zero
    return float(math.exp(math.log(x[i]) + share * (math.log(x[i + 1]) - math.log(x[i]))))


def crossing_interval(
    sizes: Sequence[float] | np.ndarray,
    difference: Float[np.ndarray, "seeds sizes"],
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[Interval | None, float]:
    """Bootstrap over the seeds: the interval of the crossings found, and the share of resamples that have one.

    The interval is None where no resample crosses. With a handful of seeds it is too narrow.

    >>> crossing_interval([100, 10_000], np.array([[-0.1, 0.1], [-0.1, 0.1]]))[1]
    1.0
    """
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(difference), size=(resamples, len(difference)))
    found = [size for draw in draws if (size := crossing(sizes, difference[draw].mean(axis=0))) is not None]
    if not found:
        return None, 0.0
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return (float(low), float(high)), len(found) / resamples


def slope_per_decade(sizes: Sequence[float] | np.ndarray, accuracy: Sequence[float] | np.ndarray) -> float:
    """Least-squares slope of accuracy against log10(size): what ten times the data bring.

    >>> round(slope_per_decade([10, 100, 1000], [0.1, 0.3, 0.5]), 6)
    0.2
    """
    x = np.log10(np.asarray(sizes, dtype=float))
    y = np.asarray(accuracy, dtype=float)
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
