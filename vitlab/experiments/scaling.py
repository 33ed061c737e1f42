"""One training of the scaling studies, and everything that is measured of it (§4.3, §4.4, Fig. 3 to 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from vitlab.data import datasets
from vitlab.data.world import World, with_difficulty
from vitlab.evaluation.fewshot import FewShot
from vitlab.evaluation.probe import Probe
from vitlab.experiments import frozen
from vitlab.training.evaluate import evaluate
from vitlab.training.pretrain import pretrain, subset, world_splits
from vitlab.training.recipe import Recipe

SHOTS = 10  # images a class of the few-shot accuracy
_FEW_SHOT = FewShot(shots=(SHOTS,))
_PROBE = Probe(inverse_penalties=(1e-3, 1e-2, 0.1), max_steps=5_000)
_RECIPE = ("steps", "batch_size", "learning_rate", "warmup_steps", "weight_decay", "label_smoothing")
_RECIPE += ("eval_every", "patience", "precision")


@dataclass(frozen=True)
class Rates:
    """What is tuned of a recipe, for a model or for a model and a size."""

    learning_rate: float
    weight_decay: float = 0.1
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share: the recipe but for its `Rates`, the world, and what is measured on how much."""

    recipe: Recipe
    n_validation: int  # images of the world, to stop and to choose by
    n_test: int  # images of the world, to report
    n_frozen: int  # images of each set on which frozen features are evaluated, to learn from and as many to test on
    difficulty: float = 1.0  # of the world, see `with_difficulty`
    image_size: int = 32  # pixels


def config(setting: Setting, model: str, rates: Rates, n_train: int, seed: int, real: str) -> dict[str, Any]:
    """The configuration of a run. `real`: the real sets, a blank between, on which frozen features are evaluated too.

    >>> setting = Setting(Recipe(steps=9), n_validation=10, n_test=10, n_frozen=100)
    >>> config(setting, "Lab-Ti/8", Rates(1e-3), 500, 0, "digits")["learning_rate"]
    0.001
    """
    recipe = dataclasses.replace(setting.recipe, **dataclasses.asdict(rates))
    found = {"model": model, "n_train": n_train, "seed": seed} | {name: getattr(recipe, name) for name in _RECIPE}
    shared = {
        name: getattr(setting, name) for name in ("n_validation", "n_test", "n_frozen", "difficulty", "image_size")
    }
    return found | shared | {"real": real}


def real_sets() -> str:
    """The real sets there are to evaluate on, a blank between: the digits, and CIFAR-10 when present.

    >>> real_sets().split()[0]
    'digits'
    """
    return "digits cifar10" if datasets.present("cifar10") else "digits"


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model on one set, evaluate it; rows of four kinds: `outcomes`, `histories`, `few_shots`, `probes`."""
    world = dataclasses.replace(with_difficulty(World(), config["difficulty"]), image_size=config["image_size"])
    recipe = Recipe(**{name: config[name] for name in _RECIPE})
    sizes = (config["n_train"], config["n_validation"], config["n_test"])
    splits = world_splits(world, *sizes, draw=config["seed"], n_seen=recipe.samples)
    model, rows = pretrain(config["model"], splits.train, recipe, seed=config["seed"], watch=splits.validation)
    best = max(rows[1:], key=lambda row: row["val_accuracy"])  # the first, where several are equal
    some = subset(splits.train, torch.arange(min(len(splits.train), config["n_validation"])))
    # Without patience nothing is chosen, and the last weights are the model.
    kept = rows[-1] if recipe.patience is None else best
    outcome = {
        "kind": "outcome",
        "test_accuracy": evaluate(model, splits.test)["accuracy"],
        "validation_accuracy": kept["val_accuracy"],
        "train_accuracy": evaluate(model, some)["accuracy"],  # of the kept weights, on at most n_validation images
        "best_step": kept["step"],
        "last_step": rows[-1]["step"],
        "flops": rows[-1]["flops"],  # of the training, up to its end
        "seconds": rows[-1]["seconds"],
    }
    names = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy")
    history = [{"kind": "history"} | {name: row[name] for name in names if name in row} for row in rows]
    targets = dict.fromkeys((frozen.NEAR, *config["real"].split()), (config["n_frozen"],) * 2)
    options = {"settings": _FEW_SHOT, "probe": _PROBE, "difficulty": config["difficulty"]}
    measured = frozen.evaluations(model, targets, config["image_size"], config["seed"], **options)
    return [outcome, *history, *measured]


_RUN = ["model", "n_train", "seed", "learning_rate", "weight_decay", "label_smoothing", "steps"]


def outcomes(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: model, n_train, seed, the rates, steps (at most), test_accuracy, validation_accuracy and
    train_accuracy (0…1), best_step, last_step, flops (of the training), seconds."""
    rows = table[table["kind"] == "outcome"].astype({"best_step": int, "last_step": int})
    measured = ["test_accuracy", "validation_accuracy", "train_accuracy", "best_step", "last_step", "flops", "seconds"]
    return rows[[*_RUN, *measured]].reset_index(drop=True)


def histories(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each evaluation of each run: the run's columns, step, samples, train_loss, val_loss, val_accuracy."""
    rows = table[table["kind"] == "history"].astype({"step": int, "samples": int})
    return rows[[*_RUN, "step", "samples", "train_loss", "val_loss", "val_accuracy"]].reset_index(drop=True)


def few_shots(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and target: the run's columns, target, shots, accuracy (0…1, the mean of the draws)."""
    rows = table[table["kind"] == "few shot"].astype({"shots": int})
    columns = [*_RUN, "target", "shots"]
    return rows.groupby(columns, sort=False)["accuracy"].mean().reset_index()


def probes(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and target: the run's columns, target, accuracy (0…1) of the linear probe."""
    return table[table["kind"] == "probe"][[*_RUN, "target", "accuracy"]].reset_index(drop=True)


def best_rates(table: pd.DataFrame) -> dict[str, Rates]:
    """For every model the rates of its best trial: the highest mean validation accuracy, the first of equals.

    >>> trials = pd.DataFrame({"model": "a", "learning_rate": [1e-3, 2e-3], "weight_decay": 0.1, "label_smoothing": 0.0,
    ...                        "validation_accuracy": [0.5, 0.6]})
    >>> best_rates(trials)
    {'a': Rates(learning_rate=0.002, weight_decay=0.1, label_smoothing=0.0)}
    """
    names = [field.name for field in dataclasses.fields(Rates)]
    mean = table.groupby(["model", *names], sort=False)["validation_accuracy"].mean()
    return {model: Rates(*map(float, trials.idxmax()[1:])) for model, trials in mean.groupby(level=0, sort=False)}


def finer_rates(shared: Rates, trials: Mapping[Rates, float], noise: float = 0.02) -> Rates:
    """The best of a size's own trials; the shared rates where it is no more than `noise` better than theirs.

    By default one standard error of an accuracy on 500 images: a lead within it is luck as likely as not.

    >>> shared, other = Rates(1e-3, 0.1), Rates(1e-3, 1.0)
    >>> [finer_rates(shared, {shared: 0.50, other: score}) == shared for score in (0.51, 0.6)]
    [True, False]
    """
    best = max(trials, key=trials.get)
    return best if trials[best] > trials.get(shared, 0.0) + noise else shared
