"""Pictures of transfer: resolution, few-shot accuracy, learning rates, epochs of fine-tuning (§3.2, §4.1, Fig. 4)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from vitlab.plots.families import FAMILIES, family, labels
from vitlab.plots.lines import over_seeds
from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes

_LINES = ("-", "--")
_ARMS = {"scratch": "--", "1.5x": "-.", "2x": ":"}  # lines of fine-tunings, in every panel the same


def plot_resolutions(runs: pd.DataFrame, means: pd.DataFrame, ax: Axes | None = None, patch_size: int = 8) -> Axes:
    """Accuracy by side of the image: a thin line for every seed, the mean with its interval beside it.

    `runs` has a row per run: model, seed, image_size (pixels), test_accuracy (0…1); `means` one per model and
    image_size: mean, low, high. Below each side stands the number of patches of `patch_size` pixels.
    """
    ax, named = axes(ax), labels(means["model"])
    for (_, model), rows in runs.sort_values("image_size").groupby(["seed", "model"]):
        colour, marker = FAMILIES[family(model)]
        ax.plot(rows["image_size"], rows["test_accuracy"], color=COLOURS[colour], marker=marker, markersize=4,
                linewidth=0.8, alpha=0.6)  # fmt: skip
    for i, (model, rows) in enumerate(means.groupby("model", sort=False), 1):
        colour, marker = FAMILIES[family(model)]
        errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
        beside = 0.025 * i * runs["image_size"].max()
        ax.errorbar(rows["image_size"] + beside, rows["mean"], yerr=errors, color=COLOURS[colour], marker=marker,
                    capsize=4, linestyle="none", markersize=7, label=named[model])  # fmt: skip
    sides = sorted(means["image_size"].unique())
    ax.set_xticks(sides, [f"{side} px\n{(side // patch_size) ** 2} patches" for side in sides])
    ax.set_xlabel("image side in fine-tuning")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best")
    return ax


def plot_few_shots(means: pd.DataFrame, ax: Axes | None = None, chance: float | None = None) -> Axes:
    """Few-shot accuracy by images per class, with intervals; untrained weights dashed, chance in grey.

    `means` has a row per model, weights ("pre-trained" or another word) and shots: mean, low, high (0…1).
    """
    ax, named = axes(ax), labels(means["model"])
    for i, ((model, weights), rows) in enumerate(means.groupby(["model", "weights"], sort=False)):
        colour, marker = FAMILIES[family(model)]
        errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
        dashed = weights != "pre-trained"
        ax.errorbar(rows["shots"] * 1.04 ** (i - 1.5), rows["mean"], yerr=errors, color=COLOURS[colour], capsize=3,
                    marker=marker, linestyle=_LINES[dashed], fillstyle="none" if dashed else "full",
                    label=f"{named[model]}, {weights}")  # fmt: skip
    if chance is not None:
        ax.axhline(chance, color=MUTED, linewidth=1.0, zorder=1)
    shots = sorted(means["shots"].unique())
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(shots, [str(n) for n in shots])
    ax.set_xlabel("images per class (number, log scale)")
    accuracy_axis(ax, "few-shot accuracy (%)", cut=True)
    ax.legend(loc="upper left", fontsize=9)
    return ax


def plot_pretrainings(means: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Accuracy on a real set by what the weights were pre-trained on: mean and interval, a colour for each family.

    `means` has a row per model and weights ("untrained" first, as in the table): mean, low, high (0…1).

    >>> rows = {"model": "Lab-Ti/8", "weights": ["untrained", "10 classes"], "mean": 0.5, "low": 0.4, "high": 0.6}
    >>> plot_pretrainings(pd.DataFrame(rows)).get_ylabel()
    'accuracy (%)'
    """
    ax, named = axes(ax), labels(means["model"])
    places = {weights: place for place, weights in enumerate(dict.fromkeys(means["weights"]))}
    for i, (model, rows) in enumerate(means.groupby("model", sort=False)):
        colour, marker = FAMILIES[family(model)]
        errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
        x = rows["weights"].map(places) + 0.12 * (i - 0.5)
        ax.errorbar(x, rows["mean"], yerr=errors, color=COLOURS[colour], marker=marker, capsize=4, linestyle="none",
                    markersize=7, label=named[model])  # fmt: skip
    ax.set_xticks(range(len(places)), list(places))
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.set_xlabel("pre-training")
    accuracy_axis(ax, "accuracy (%)", cut=True)
    ax.legend(loc="best")
    return ax


def plot_rates(trials: pd.DataFrame, ax: Axes | None = None, published: tuple[float, float] | None = None) -> Axes:
    """Held-out accuracy by learning rate, a line per model and arm (mean of the seeds); the best of each is ringed.

    Each arm has a line of its own, the same whatever other arms there are; scratch is dashed with hollow markers.

    `trials` has a row per trial: model, arm, learning_rate, held_out_accuracy (0…1). `published` (lowest, highest) is
    shaded: the learning rates of the paper.
    """
    ax, named = axes(ax), labels(trials["model"])
    if published is not None:
        ax.axvspan(*published, color=MUTED, alpha=0.2, linewidth=0, label="Table 4's learning rates")
    for (model, arm), rows in trials.groupby(["model", "arm"], sort=False):
        colour, marker = FAMILIES[family(model)]
        mean = rows.groupby("learning_rate")["held_out_accuracy"].mean()
        ax.plot(mean.index, mean, _ARMS.get(arm, "-"), color=COLOURS[colour], marker=marker, markersize=4,
                fillstyle="none" if arm == "scratch" else "full", label=f"{named[model]}, {arm}")  # fmt: skip
        ax.plot(mean.idxmax(), mean.max(), "o", color=COLOURS[colour], markersize=11, fillstyle="none")
    ax.set_xscale("log")
    ax.set_xlabel("learning rate for a batch of 512 (log scale)")
    accuracy_axis(ax, "held-out accuracy (%)")
    ax.legend(fontsize=8, handlelength=4)
    return ax


def plot_epochs(rows: pd.DataFrame, ax: Axes | None = None, y: str = "test_accuracy") -> Axes:
    """Accuracy by epoch of fine-tuning: mean of the seeds, a band for its 95 % interval; from scratch dashed.

    `rows` has a row per evaluation: model, arm ("scratch" or another word), seed, epoch, and `y`, test_accuracy or
    share (both 0…1).
    """
    ax, named = axes(ax), labels(rows["model"])
    for (model, arm), evaluations in rows.groupby(["model", "arm"], sort=False):
        colour, marker = FAMILIES[family(model)]
        at = over_seeds(evaluations, "epoch", y, bounds=(0, 1) if y == "test_accuracy" else (0, np.inf))
        dashed = arm == "scratch"
        name = f"{named[model]}, from scratch" if dashed else named[model]
        ax.plot(at.index, at["mean"], _LINES[dashed], color=COLOURS[colour], marker=marker, markersize=4,
                fillstyle="none" if dashed else "full", label=name)  # fmt: skip
        ax.fill_between(at.index, at["low"], at["high"], color=COLOURS[colour], alpha=0.12, linewidth=0)
    ax.set_xlabel("epochs of fine-tuning")
    ax.set_xticks(np.unique(rows["epoch"]))
    accuracy_axis(ax, "test accuracy (%)" if y == "test_accuracy" else "share of the final accuracy (%)")
    ax.legend(loc="lower right", fontsize=9)
    return ax
