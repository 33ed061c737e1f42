"""What the studies of design choices share: one training of a named arm, tuning, paired differences (App. D)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from vitlab.data import datasets
from vitlab.data.loader import batches
from vitlab.data.world import World, with_cues, with_difficulty
from vitlab.experiments import real_subsets, scaling
from vitlab.experiments.tuning import scores
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.intervals import failed_starts
from vitlab.models import variants, zoo
from vitlab.sweep import runner
from vitlab.sweep.runner import Run
from vitlab.training.evaluate import evaluate
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import Splits, world_splits

OPTIONS = ("pool", "positions", "placed", "attention", "dim", "depth", "n_heads", "mlp_dim")  # of a ViT
CLASSES = {"cifar10": 10, "digits": 10}  # of the real sets that a task may name
_ALL_CUES = "mixed"
Config = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Images to classify: the world, its classes told by one cue alone or by all ("mixed"), or a real set."""

    name: str  # a cue of the world, "mixed", or a set that `datasets.load` knows
    difficulty: float = 0.5  # of the world
    n_classes: int = 10  # of the world


@dataclass(frozen=True)
class Training:
    """What all trainings of a study share."""

    steps: int
    batch_size: int
    n_train: int  # images; each seed draws its own
    n_validation: int  # by which learning rates are chosen
    n_test: int  # of the reported accuracy
    image_size: int = 32  # pixels
    optimizer: str = "adam"
    weight_decay: float = 0.1  # decoupled for Adam; of SGD a term of the gradient, as in BiT
    precision: str = "fp32"


def planned(
    training: Training,
    task: Task,
    arm: str,
    model: str,
    rate: float,
    seed: int,
    options: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of one run: of an arm, whose `model` has these `options` of a ViT (see `OPTIONS`).

    >>> run = planned(Training(9, 4, 50, 10, 10), Task("contour"), "no positions", "Lab-Ti/8", 1e-3, 0,
    ...               {"positions": "none"})
    >>> run["arm"], run["positions"], run["n_classes"]
    ('no positions', 'none', 10)
    """
    real = task.name in CLASSES
    about = {
        "difficulty": 0.0 if real else task.difficulty,
        "n_classes": CLASSES[task.name] if real else task.n_classes,
    }
    return (
        {"task": task.name, "arm": arm, "model": model, "learning_rate": rate, "seed": seed}
        | dict(options or {})
        | about
        | {name: getattr(training, name) for name in Training.__dataclass_fields__}
    )


def seeds(seed: int, n: int) -> range:
    """The seeds of a study's runs: other ones for every `seed` of the study.

    >>> list(seeds(2, 3))
    [200, 201, 202]
    """
    return range(100 * seed, 100 * seed + n)


def present(tasks: Iterable[Task]) -> list[Task]:
    """Those whose images are here.

    >>> [task.name for task in present([Task("contour"), Task("digits")])]
    ['contour', 'digits']
    """
    return [task for task in tasks if task.name not in CLASSES or datasets.present(task.name)]


def run_study(
    name: str, run: Run, runs: Sequence[Config], preset: str, jobs: int | None, folder: Path | None
) -> pd.DataFrame:
    """`runner.run_all` of a study's runs, in its folder; at `smoke` in this process: a worker's start is longer."""
    jobs = 1 if jobs is None and preset == "smoke" else jobs
    return runner.run_all(run, runs, folder or runner.run_folder(name, preset), jobs)


def model_of(config: Config) -> nn.Module:
    """The model of a run with fresh weights: the zoo's, for a ViT with the options that the run has.

    >>> model_of({"model": "Lab-Mu/4", "n_classes": 3, "image_size": 16, "seed": 0, "depth": 5}).config.depth
    5
    """
    shape = {name: config[name] for name in ("n_classes", "image_size")}
    size, _, patch = config["model"].partition("/")
    if size not in zoo.VIT_SIZES:
        return zoo.create(config["model"], **shape, seed=config["seed"])
    options = {name: config[name] for name in OPTIONS if name in config}
    return variants.build({"patch_size": int(patch)} | zoo.VIT_SIZES[size] | shape | options, config["seed"])


def run_one(config: Config) -> list[dict[str, Any]]:
    """Train the model of one run and evaluate it; one row, as `trained` has it."""
    return [trained(config)[1]]


def trained(config: Config) -> tuple[nn.Module, dict[str, Any]]:
    """A model, trained as its run says, and its row.

    Row: validation_accuracy and test_accuracy (0…1) of the last weights, train_loss (nats), parameters, flops (of a
    forward pass for one image, a multiply-add as two) and seconds (of the training).
    """
    splits, device, seed = splits_of(config), default_device(), config["seed"]
    model = model_of(config).to(device)
    recipe = Recipe(
        steps=config["steps"],
        batch_size=config["batch_size"],
        optimizer=config["optimizer"],
        learning_rate=config["learning_rate"],
        weight_decay=config["weight_decay"],
        warmup_steps=config["steps"] // 10,
        precision=config["precision"],
        seed=seed,
    )
    real = config["task"] in CLASSES
    augmentation = scaling.augmentation(config["task"], config["image_size"]) if real else None
    feed = batches(splits.train, recipe.batch_size, seed, device, augmentation)
    last = train(model, feed, recipe, validation=splits.validation)[-1]
    image = splits.test.images[:1].to(device).float()
    return model, {
        "validation_accuracy": last["val_accuracy"],
        "test_accuracy": evaluate(model, splits.test)["accuracy"],
        "train_loss": last["train_loss"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "flops": zoo.forward_flops(model, image),
        "seconds": last["seconds"],
    }


def splits_of(config: Config) -> Splits:
    """The images of a run: within a seed all arms have the same ones, and every seed has training images of its own.

    >>> task = planned(Training(9, 4, 50, 10, 20, image_size=16), Task("contour"), "", "Lab-Mu/4", 1e-3, seed=3)
    >>> [len(part) for part in (splits_of(task).train, splits_of(task).validation, splits_of(task).test)]
    [36, 10, 20]
    """
    n_train, n_validation, n_test = (config[name] for name in ("n_train", "n_validation", "n_test"))
    if config["task"] in CLASSES:
        sizes = n_train, n_validation, n_test
        return real_subsets.splits_of(config["task"], config["image_size"], *sizes, config["seed"])
    world = World(n_classes=config["n_classes"], image_size=config["image_size"])
    world = world if config["task"] == _ALL_CUES else with_cues(world, config["task"])
    seen = config["steps"] * config["batch_size"]
    world = with_difficulty(world, config["difficulty"])
    return world_splits(world, n_train, n_validation, n_test, draw=config["seed"], n_seen=seen)


def chosen(table: pd.DataFrame, by: Sequence[str] = ("task", "arm")) -> pd.DataFrame:
    """The runs of every arm at its best learning rate, by `tuning.scores` of the validation accuracy.

    All arms of a study are tried with equally many rates, so that none is tuned more than another.

    >>> table = pd.DataFrame({"task": "t", "arm": "a", "learning_rate": [1, 2], "validation_accuracy": [0.5, 0.6]})
    >>> chosen(table)["learning_rate"].tolist()
    [2]
    """
    keys = list(by)
    best = scores(table, [*keys, "learning_rate"]).groupby(level=keys, sort=False).idxmax()
    rates = {key[:-1]: key[-1] for key in best}
    wanted = [rates[arm] for arm in table[keys].itertuples(index=False, name=None)]
    return table[table["learning_rate"] == wanted].reset_index(drop=True)


def difference(runs: pd.DataFrame, first: str, second: str, column: str = "test_accuracy") -> Estimate | None:
    """Accuracy of one arm minus another's in percentage points, paired by seed; None where no seed has both.

    `runs` has a row for each run of one task: arm, seed, n_test, n_classes, and `column` (0…1). Where some seeds of an
    arm never left chance while others did, there is no interval (see `intervals.failed_starts`).

    >>> runs = pd.DataFrame({"arm": ["a", "b"] * 2, "seed": [0, 0, 1, 1], "n_test": 100, "n_classes": 2})
    >>> print(difference(runs.assign(test_accuracy=[0.9, 0.8, 0.8, 0.75]), "a", "b"))
    +8 points [−24, 39], n = 2 seeds
    """
    wide = runs[runs["arm"].isin((first, second))].pivot(index="seed", columns="arm", values=column)
    wide = wide.reindex(columns=[first, second]).dropna()
    if wide.empty:
        return None
    n_test, chance = int(runs["n_test"].iloc[0]), 1 / int(runs["n_classes"].iloc[0])
    failed = np.logical_or(*(failed_starts(wide[arm].to_numpy(), n_test, chance) for arm in (first, second)))
    return Estimate.of(100 * (wide[first] - wide[second]), "points", failed=int(failed.sum()))


def summary(runs: pd.DataFrame, by: Sequence[str], column: str = "test_accuracy") -> pd.DataFrame:
    """Mean of `column` over the seeds with its 95 % interval: the columns `by`, mean, low, high, n.

    Without an interval, as for one seed, low and high are the mean.

    >>> runs = pd.DataFrame({"arm": "a", "seed": [0, 1, 2], "test_accuracy": [0.5, 0.6, 0.7]})
    >>> summary(runs, ["arm"]).round(2).to_dict("records")
    [{'arm': 'a', 'mean': 0.6, 'low': 0.35, 'high': 0.85, 'n': 3}]
    """
    rows = []
    for key, group in runs.groupby(list(by), sort=False):
        estimate = Estimate.of(group[column])
        low, high = estimate.interval or (estimate.value, estimate.value)
        rows.append(
            dict(zip(by, key, strict=True)) | {"mean": estimate.value, "low": low, "high": high, "n": estimate.n}
        )
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n"])
