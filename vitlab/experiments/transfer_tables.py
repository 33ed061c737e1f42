"""What the rows of `transfer` say: accuracies, trials, few-shot and probe, paired differences (§4.1, Table 2)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from vitlab.experiments.transfer_runs import SCRATCH
from vitlab.experiments.trials import TRIAL_SEED, stored_trials
from vitlab.ledger.intervals import mean_interval

_FINETUNING = ["model", "source", "target", "seed", "arm"]


def evaluations(table: pd.DataFrame) -> pd.DataFrame:
    """One row for every evaluation of every fine-tuning: model, source ("scratch" for the control), target, seed, arm,
    image_size, learning_rate, epoch, test_accuracy, seconds, and share: of the accuracy after the last epoch."""
    rows = table[table["kind"] == "evaluation"].astype({"epoch": int, "side": int})
    rows = rows.drop(columns=["image_size", "learning_rate"])  # of the pre-training
    rows = rows.rename(columns={"side": "image_size", "rate": "learning_rate"})
    rows = rows.assign(source=rows["source"].where(rows["arm"] != SCRATCH, SCRATCH))
    columns = [*_FINETUNING, "image_size", "learning_rate", "epoch", "test_accuracy", "seconds"]
    last = rows.groupby(_FINETUNING)["test_accuracy"].transform("last")
    return rows[columns].assign(share=rows["test_accuracy"] / last).reset_index(drop=True)


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of `evaluations` for every fine-tuning."""
    return evaluations(table).groupby(_FINETUNING, sort=False).tail(1).reset_index(drop=True)


def of_pair(rows: pd.DataFrame, source: str, target: str) -> pd.DataFrame:
    """The rows of one source and one target, with the control from scratch on that target.

    >>> rows = pd.DataFrame({"source": ["world", "scratch", "imagenette"], "target": "digits"})
    >>> of_pair(rows, "world", "digits")["source"].tolist()
    ['world', 'scratch']
    """
    return rows[rows["source"].isin([source, SCRATCH]) & (rows["target"] == target)].reset_index(drop=True)


def trials(table: pd.DataFrame, preset: str = "quick") -> pd.DataFrame:
    """One row for every learning rate tried: model, source, target, arm, seed, learning_rate, held_out_accuracy; the
    stored trials of the preset, or of `quick`, where the runs tried one rate only."""
    columns = ["model", "source", "target", "arm", "seed", "learning_rate", "held_out_accuracy"]
    rows = table[table["kind"] == "trial"]
    if rows.empty:
        stored = stored_trials("transfer", "full" if preset == "full" else "trials")
        return stored.assign(seed=stored.get("seed", TRIAL_SEED))[columns]
    rows = rows.drop(columns="learning_rate").rename(columns={"rate": "learning_rate"})
    return rows[columns].reset_index(drop=True)


def few_shots(table: pd.DataFrame) -> pd.DataFrame:
    """Few-shot accuracy, the mean of the draws: target, model, source, seed, weights, shots, accuracy."""
    rows = table[table["kind"] == "few shot"].astype({"shots": int})
    columns = ["target", "model", "source", "seed", "weights", "shots"]
    return rows.groupby(columns, sort=False)["accuracy"].mean().reset_index()


def probes(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the linear probe: target, model, source, seed, weights, accuracy."""
    rows = table[table["kind"] == "probe"]
    return rows[["target", "model", "source", "seed", "weights", "accuracy"]].reset_index(drop=True)


def differences(rows: pd.DataFrame, by: str, first: str, second: str, value: str = "test_accuracy") -> pd.Series:
    """`value` where the column `by` is `first`, minus where it is `second`, paired by seed; seeds that have both.

    >>> rows = pd.DataFrame({"seed": [0, 0, 1], "arm": ["1x", "2x", "1x"], "test_accuracy": [0.5, 0.75, 0.5]})
    >>> differences(rows, "arm", "2x", "1x").to_dict()
    {0: 0.25}
    """
    wide = rows.pivot(index="seed", columns=by, values=value).reindex(columns=[first, second])
    return (wide[first] - wide[second]).dropna()


def summary(rows: pd.DataFrame, by: Sequence[str], value: str = "test_accuracy") -> pd.DataFrame:
    """Mean of `value` over the seeds and its 95 % t interval (the mean itself for one seed): `by`, mean, low, high, n.

    >>> rows = pd.DataFrame({"model": "a", "test_accuracy": [0.5, 0.6, 0.7]})
    >>> summary(rows, ["model"]).round(2).to_dict("records")
    [{'model': 'a', 'mean': 0.6, 'low': 0.35, 'high': 0.85, 'n': 3}]
    """
    means = []
    for key, values in rows.groupby(list(by), sort=False)[value]:
        mean = float(values.mean())
        low, high = mean_interval(values.to_numpy()) or (mean, mean)
        means.append((*key, mean, low, high, len(values)))
    return pd.DataFrame(means, columns=[*by, "mean", "low", "high", "n"])
