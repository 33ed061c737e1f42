"""Tables: what the rows of runs say, tidy, for figures and rules."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from vitlab import paths
from vitlab.studies import store, table

_SCALING = ["model", "n_classes", "cue", "n_train", "seed", "learning_rate", "weight_decay", "label_smoothing", "steps"]
_CURVES = ["data", "model", "seed", "learning_rate", "weight_decay"]
_TRANSFER = ["model", "source", "target", "seed", "arm"]
_HEADS = ["objective", "data", "n_train", "target", "share", "image_size", "patch_size", "seed"]
_COUNTS = ("n_train", "steps", "step", "best_step", "last_step", "samples", "epoch", "side", "shots", "block", "head")


def _part(rows: pd.DataFrame, kind: str, columns: Sequence[str]) -> pd.DataFrame:
    """Select the rows of a kind and these columns of theirs, numbers of things as integers."""
    found = rows.loc[rows["kind"] == kind, list(columns)].reset_index(drop=True)
    return found.astype({name: int for name in _COUNTS if name in columns})


def evidence(study: str) -> pd.DataFrame:
    """Read the committed rows of a study, of its kind's version and all seeds; an empty frame where there are none."""
    kind, mine = table.study(study).kind, store.about(study)
    found = store.of_keys(kind, mine.loc[mine["version"] == table.VERSION[kind], "key"])
    return found.dropna(axis=1, how="all").drop(columns="key").reset_index(drop=True) if len(found) else pd.DataFrame()


def about(study: str) -> str:
    """Tell in a sentence which committed runs of a study there are: for captions."""
    mine = store.about(study)
    counts = (f"{n:,} {word}{'s' * (n != 1)}" for word, n in {"run": len(mine), "seed": mine["seed"].nunique()}.items())
    return f"{study}: {', '.join(counts)}, {mine['date'].max()}" if len(mine) else ""


def trials(study: str) -> pd.DataFrame:
    """Read the trials by which a study's hyper-parameters were chosen, one row each; their seeds are of no study."""
    found = pd.read_csv(paths.evidence_dir() / "trials.csv")
    return found[found["study"] == study].drop(columns="study").dropna(axis=1, how="all").reset_index(drop=True)


# --- choices ----------------------------------------------------------------------------------------------------------
def chosen(rows: pd.DataFrame, by: Sequence[str] = ("task", "arm"), setting: Sequence[str] = ("learning_rate",)):
    """Select, in every cell `by`, the runs at its best `setting`, high and steady; the first of equals.

    That is by the mean minus the standard deviation of validation accuracy over the seeds. A setting tried with
    fewer seeds than another of its cell is not chosen: few seeds show no spread.
    """
    keys, names = list(by), list(setting)
    n_seeds = rows.groupby(keys + names)["validation_accuracy"].transform("size")
    whole = rows[n_seeds == n_seeds.groupby([rows[key] for key in keys]).transform("max")]
    values = whole.groupby(keys + names, sort=False)["validation_accuracy"]
    wanted = set((values.mean() - values.std().fillna(0.0)).groupby(level=keys, sort=False).idxmax())
    return rows[[key in wanted for key in rows[keys + names].itertuples(index=False, name=None)]].reset_index(drop=True)


# --- scaling ----------------------------------------------------------------------------------------------------------
def transfers(rows: pd.DataFrame) -> pd.DataFrame:
    """Outcomes of scaling runs, one row each: hyper-parameters, steps, flops (of the training), accuracies (0…1).

    `transfer` is 10-shot accuracy on the world's sets of ten other classes, `transfer, 100 classes` on those of as
    many, means of sets and draws; of real sets `cifar10` is 10-shot, `cifar10, fine-tuned` what it says, and so on.
    """
    measured = ("test_accuracy", "validation_accuracy", "train_accuracy", "best_step", "last_step", "flops", "seconds")
    shots, tuned = (_part(rows, kind, (*_SCALING, "target", "accuracy")) for kind in ("few shot", "fine-tuned"))
    shots["target"] = shots["target"].str.replace(r"^world(-\d+)?", "transfer", regex=True)
    both = pd.concat([shots, tuned.assign(target=tuned["target"] + ", fine-tuned")])
    means = both.pivot_table("accuracy", _SCALING, "target")
    return _part(rows, "outcome", (*_SCALING, *measured)).join(means, on=_SCALING)


# --- design -----------------------------------------------------------------------------------------------------------
def slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Percentage points that a doubling of FLOPs brings along each dimension of `vit_shapes`: the least-squares slope
    of test accuracy over log2(FLOPs) through the base and the shapes of that dimension, by dimension and seed."""
    found, base = [], rows["dimension"] == "base"
    for (dimension, seed), each in rows[~base].groupby(["dimension", "seed"], sort=False):
        line = pd.concat([rows[base & (rows["seed"] == seed)], each])
        if line["flops"].nunique() > 1:
            slope = np.polyfit(np.log2(line["flops"].astype(float)), 100 * line["test_accuracy"], 1)[0]
            found.append({"dimension": dimension, "seed": seed, "slope": float(slope)})
    return pd.DataFrame(found, columns=["dimension", "seed", "slope"])


def position_maps(rows: pd.DataFrame, task: str) -> dict[str, np.ndarray]:
    """Similarity maps of position embeddings, of the first seed of each arm on one task: arm → map."""
    kept = rows[(rows["task"] == task) & rows["map"].notna()].drop_duplicates("arm")
    levels = {row.arm: _levels(row.map) for row in kept.itertuples()}
    return {arm: each.reshape((round(len(each) ** 0.25),) * 4) for arm, each in levels.items()}


def _levels(text: str) -> np.ndarray:
    """Read similarities, −1…1, from base64 of a byte each."""
    return np.frombuffer(base64.b64decode(text), np.uint8) / 127.5 - 1


# --- training from scratch --------------------------------------------------------------------------------------------
def curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of `training_curves`; train_loss (nats) is the mean since the row before, none at step 0."""
    return _part(rows, "curve", (*_CURVES, "step", "samples", "seconds", "train_loss", "test_loss", "test_accuracy"))


# --- transfer and masked prediction -----------------------------------------------------------------------------------
def evaluations(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of the fine-tunings of `transfer`; share is of the accuracy after the last epoch."""
    columns = (*_TRANSFER, "side", "rate", "epoch", "test_accuracy", "seconds")
    found = _part(rows, "evaluation", columns).rename(columns={"side": "image_size", "rate": "learning_rate"})
    found["source"] = found["source"].where(found["arm"] != "scratch", "scratch")
    return found.assign(share=found["test_accuracy"] / found.groupby(_TRANSFER)["test_accuracy"].transform("last"))


def finals(rows: pd.DataFrame) -> pd.DataFrame:
    """The last of `evaluations` for every fine-tuning."""
    return evaluations(rows).groupby(_TRANSFER, sort=False).tail(1).reset_index(drop=True)


def of_pair(rows: pd.DataFrame, source: str, target: str) -> pd.DataFrame:
    """The rows of one source and one target, with the control from scratch on that target."""
    return rows[rows["source"].isin([source, "scratch"]) & (rows["target"] == target)].reset_index(drop=True)


def masked_finals(rows: pd.DataFrame) -> pd.DataFrame:
    """Last evaluations of `masked_pretraining`'s fine-tunings: arm, seed, samples, rate, test_accuracy (0…1)."""
    found = _part(rows, "evaluation", ("arm", "seed", "samples", "rate", "test_accuracy"))
    return found.groupby(["arm", "seed"], sort=False).tail(1).reset_index(drop=True)


# --- local heads ------------------------------------------------------------------------------------------------------
def heads(rows: pd.DataFrame) -> pd.DataFrame:
    """Heads at each evaluation of `local_heads`: samples, block and head (from 1), distance_px, prefix_mass (0…1,
    attention to the class token, which counts as distance 0), local: below half of uniform attention's distance."""
    found = _part(rows, "head", (*_HEADS, "samples", "block", "head", "distance_px", "prefix_mass"))
    limits = [uniform_px(*grid) / 2 for grid in zip(found["image_size"], found["patch_size"], strict=True)]
    return found.assign(local=found["distance_px"] < limits)


@functools.cache
def uniform_px(image_size: int, patch_size: int) -> float:
    """Distance in pixels of a head that attends to all patches of a square image equally.

    >>> round(uniform_px(224, 16), 2)  # the paper's grid
    116.49
    """
    side = int(image_size) // int(patch_size)
    apart = np.subtract.outer(np.arange(side), np.arange(side))
    return float(patch_size * np.hypot(apart[:, None, :, None], apart[None, :, None, :]).mean())


def looks(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of `local_heads` from step 0 on, with local, the share of heads that are."""
    key = [*_HEADS, "samples"]
    local = heads(rows).groupby(key, sort=False)["local"].mean().reset_index()
    found = rows[rows["kind"] == "evaluation"].drop(columns=["kind", "block", "head", "distance_px", "prefix_mass"])
    return found.merge(local, on=key)


def low_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of heads that are local in the lower half of the blocks at the end of trainings on many photographs."""
    found = heads(rows[rows["data"] != "photographs"])
    low = found[(found["block"] <= found["block"].max() / 2) & (found["samples"] == found["samples"].max())]
    return low.groupby(["objective", "n_train", "seed"], sort=False)["local"].mean().reset_index()


def low_heads() -> pd.DataFrame:
    """`heads` of the lowest third of masked ViTs' and hybrids' blocks, in the end; patches_px: less the class token."""
    ends = []
    for arm, study in (("ViT", "local_heads"), ("hybrid", "hybrid_heads")):
        found = heads(evidence(study)).query("objective == 'masked' and n_train == 9_469 and samples == samples.max()")
        ends.append(found[found["block"] <= math.ceil(found["block"].max() / 3)].assign(arm=arm))
    both = pd.concat(ends)
    return both.assign(patches_px=both["distance_px"] / (1 - both["prefix_mass"]))


def position_map(text: str) -> np.ndarray:
    """Read a position map [rows, cols, rows, cols] of a square grid from the column `similarity`; −1…1."""
    levels = _levels(text)
    n = math.isqrt(2 * len(levels))  # of n (n + 1) / 2 pairs
    whole = np.zeros((n, n))
    whole[np.tril_indices(n)] = levels
    return (whole + np.tril(whole, -1).T).reshape((math.isqrt(n),) * 4)


def guessed(text: str, n: int) -> np.ndarray:
    """Read the `n` predicted patches [n, side, side, 3] (bytes) of an evaluation from the column `guesses`."""
    values = np.frombuffer(base64.b64decode(text), np.uint8)
    side = math.isqrt(len(values) // (3 * n))
    return values.reshape(n, side, side, 3)
