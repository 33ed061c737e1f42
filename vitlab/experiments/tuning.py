"""The choice of the scaling studies' hyper-parameters from trials (§4.3: the baselines are tuned as the ViT is)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pandas as pd

from vitlab.experiments.scaling import Hyperparameters

_NAMES = [field.name for field in dataclasses.fields(Hyperparameters)]


def scores(trials: pd.DataFrame, by: Sequence[str], value: str = "validation_accuracy") -> pd.Series:
    """Mean minus standard deviation of `value` over the seeds, for each setting in the columns `by`: high and steady.

    One seed has no spread: its value.

    >>> trials = pd.DataFrame({"rate": [1, 1, 2, 2, 4], "validation_accuracy": [0.6, 0.6, 0.9, 0.5, 0.3]})
    >>> scores(trials, ["rate"]).round(2).to_dict()
    {1: 0.6, 2: 0.42, 4: 0.3}
    """
    values = trials.groupby(list(by), sort=False)[value]
    return values.mean() - values.std().fillna(0.0)


def best_hyperparameters(trials: pd.DataFrame) -> dict[str, Hyperparameters]:
    """For every model those of its best trials: the highest of the `scores`, the first of equals.

    Of settings that were tried with fewer seeds than others none is chosen: one seed shows no spread.

    `trials`: columns model, validation_accuracy, and any of the fields of `Hyperparameters`; a row for each seed.

    >>> trials = pd.DataFrame({"model": "a", "learning_rate": [1e-3, 2e-3], "validation_accuracy": [0.5, 0.6]})
    >>> best_hyperparameters(trials)
    {'a': Hyperparameters(learning_rate=0.002, weight_decay=0.1, label_smoothing=0.0)}
    """
    names = [name for name in _NAMES if name in trials]
    found = scores(in_all_rounds(trials), ["model", *names])
    best = {model: rows.idxmax()[1:] for model, rows in found.groupby(level=0, sort=False)}
    return {
        model: Hyperparameters(**dict(zip(names, map(float, values), strict=True))) for model, values in best.items()
    }


def in_all_rounds(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials of the settings that were tried with as many seeds as any other of their model.

    >>> tried = {"learning_rate": [1e-3, 2e-3, 2e-3], "validation_accuracy": [0.9, 0.6, 0.5]}
    >>> trials = pd.DataFrame({"model": "a"} | tried)
    >>> in_all_rounds(trials)["learning_rate"].tolist()
    [0.002, 0.002]
    """
    setting = ["model", *(name for name in _NAMES if name in trials)]
    n_seeds = trials.groupby(setting)["validation_accuracy"].transform("size")
    return trials[n_seeds == n_seeds.groupby(trials["model"]).transform("max")]


def finalists(trials: pd.DataFrame, n: int) -> pd.DataFrame:
    """The `n` best settings of each model by validation accuracy, of trials with one seed; the first of equals.

    Columns: model, and those of the fields of `Hyperparameters` that `trials` has.

    >>> tried = {"learning_rate": [1e-3, 2e-3, 4e-3], "validation_accuracy": [0.5, 0.7, 0.6]}
    >>> trials = pd.DataFrame({"model": "a"} | tried)
    >>> finalists(trials, 2)["learning_rate"].tolist()
    [0.002, 0.004]
    """
    ranked = trials.sort_values("validation_accuracy", ascending=False, kind="stable").groupby("model", sort=False)
    return ranked.head(n)[["model", *(name for name in _NAMES if name in trials)]]
