"""The choice of the scaling studies' hyper-parameters from trials (§4.3: the baselines are tuned as the ViT is)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pandas as pd

from vitlab.experiments.scaling import Hyperparameters

_NAMES = [field.name for field in dataclasses.fields(Hyperparameters)]


def best_hyperparameters(trials: pd.DataFrame) -> dict[str, Hyperparameters]:
    """For every model those of its best trial: the highest mean validation accuracy, the first of equals.

    `trials`: columns model, validation_accuracy, and any of the fields of `Hyperparameters`.

    >>> trials = pd.DataFrame({"model": "a", "learning_rate": [1e-3, 2e-3], "validation_accuracy": [0.5, 0.6]})
    >>> best_hyperparameters(trials)
    {'a': Hyperparameters(learning_rate=0.002, weight_decay=0.1, label_smoothing=0.0)}
    """
    names = [name for name in _NAMES if name in trials]
    mean = trials.groupby(["model", *names], sort=False)["validation_accuracy"].mean()
    best = {model: rows.idxmax()[1:] for model, rows in mean.groupby(level=0, sort=False)}
    return {
        model: Hyperparameters(**dict(zip(names, map(float, values), strict=True))) for model, values in best.items()
    }


def regularisation_by_size(
    trials: pd.DataFrame, shared: Mapping[str, Hyperparameters], noise: float = 0.02
) -> dict[tuple[str, int], Hyperparameters]:
    """For every model and size the regularisation of its best trial, at the learning rate that all sizes share.

    The shared hyper-parameters stay where the best trial is no more than `noise` better than theirs: by default one
    standard error of an accuracy on 500 images, for a lead within it is as likely due to chance.

    `trials`: columns model, n_train, weight_decay, label_smoothing, validation_accuracy.

    >>> trials = pd.DataFrame({"model": "a", "n_train": [9, 9, 99, 99], "weight_decay": [0.1, 1.0] * 2,
    ...                        "label_smoothing": 0.0, "validation_accuracy": [0.5, 0.6, 0.5, 0.51]})
    >>> [each.weight_decay for each in regularisation_by_size(trials, {"a": Hyperparameters(1e-3, 0.1)}).values()]
    [1.0, 0.1]
    """
    chosen = {}
    for (model, n_train), rows in trials.groupby(["model", "n_train"], sort=False):
        rate = shared[model].learning_rate
        keys = zip(rows["weight_decay"], rows["label_smoothing"], strict=True)
        scores = dict(zip((Hyperparameters(rate, *key) for key in keys), rows["validation_accuracy"], strict=True))
        best = max(scores, key=scores.__getitem__)
        lead = scores[best] > scores.get(shared[model], 0.0) + noise
        chosen[model, int(n_train)] = best if lead else shared[model]
    return chosen
