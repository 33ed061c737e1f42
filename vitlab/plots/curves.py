"""Curves of training and of scaling with data, with bands over seeds (Table 3, Fig. 3, 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from vitlab.plots.families import FAMILIES, family, labels
from vitlab.plots.lines import name_ends, over_seeds, size_axis
from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes

_X_LABELS = {"samples": "training images seen (thousands)", "seconds": "training time (s)"}


def plot_training_curves(table: pd.DataFrame, ax: Axes | None = None, x: str = "samples") -> Axes:
    """Accuracy while training: a line for each model (mean of the seeds), a band for its 95 % interval.

    Each line is named at its right end. `table` has a row per evaluation: model, seed, step, test_accuracy (0…1), and
    samples or seconds as `x` says.

    Raises:
        ValueError: `x` is neither "samples" nor "seconds".
    """
    if x not in _X_LABELS:
        raise ValueError(f"x={x!r}: expected one of {', '.join(_X_LABELS)}")
    ax = axes(ax)
    named = labels(table["model"])
    scale, ends = 1000 if x == "samples" else 1, {}
    for model, rows in table.groupby("model", sort=False):
        name, marker = FAMILIES[family(model)]
        colour, at = COLOURS[name], over_seeds(rows, "step", "test_accuracy", bounds=(0, 1))
        where = rows.groupby("step")[x].mean() / scale
        ax.plot(where, at["mean"], marker=marker, markersize=4, color=colour)
        ax.fill_between(where, at["low"], at["high"], color=colour, alpha=0.2, linewidth=0)
        ends[named[model]] = (at["mean"].iloc[-1], colour)
    ax.set(xlabel=_X_LABELS[x], xlim=(0, None))
    accuracy_axis(ax)
    name_ends(ax, ends)
    return ax


def plot_accuracy_by_hours(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Accuracy against hours of one core: a line for each arm and seed, named at its right end by its arm and accuracy.

    `table` has a row per evaluation: arm, seed, core_hours, test_accuracy (0…1).
    """
    ax, ends = axes(ax), {}
    colours: dict[str, str] = {}
    for (arm, _), rows in table.groupby(["arm", "seed"], sort=False):
        colour = colours.setdefault(arm, list(COLOURS.values())[len(colours) % len(COLOURS)])
        ax.plot(rows["core_hours"], rows["test_accuracy"], marker="o", markersize=4, color=colour)
        last = rows["test_accuracy"].iloc[-1]
        ends[f"{arm}: {100 * last:.1f} %"] = (last, colour)
    ax.set(xlabel="hours of one core, pre-training included", xlim=(0, None))
    accuracy_axis(ax)
    name_ends(ax, ends)
    return ax


def plot_schedules(schedules: Mapping[str, Callable[[int], float]], n_steps: int, ax: Axes | None = None) -> Axes:
    """Learning rate at every step 0 … n_steps−1, a line for each schedule by name."""
    ax = axes(ax)
    for (name, rate), line in zip(schedules.items(), ("-", "--", ":", "-."), strict=False):
        ax.plot(range(n_steps), [rate(step) for step in range(n_steps)], line, label=name)
    ax.set(xlabel="training step", ylabel="learning rate", xlim=(0, n_steps), ylim=(0, None))
    ax.legend()
    return ax


def plot_confusion(counts: np.ndarray, classes: Sequence[str], ax: Axes | None = None) -> Axes:
    """Confusion matrix: rows are the true classes, columns the predicted ones; shares of each row in %.

    `counts` [true, predicted] are numbers of images. The diagonal is left pale: the mistakes are what is to be seen.
    """
    ax = axes(ax)
    shares = 100 * counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    wrong = np.where(np.eye(len(counts), dtype=bool), 0.0, shares)
    ax.imshow(wrong, cmap="Oranges", vmin=0, vmax=max(1.0, 1.6 * wrong.max()))
    for (row, column), share in np.ndenumerate(shares):
        if round(share):
            colour = MUTED if row == column else "black"
            ax.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=9, color=colour)
    ticks = range(len(classes))
    ax.set_xticks(ticks, classes)
    ax.set_yticks(ticks, classes)
    ax.grid(False)
    ax.set(xlabel="predicted class", ylabel="true class (rows sum to 100 %)")
    return ax


def plot_captioned(images: Sequence[np.ndarray], captions: Sequence[str], ax: Axes | None = None) -> Axes:
    """A row of small pictures [H, W, 3], each with its caption below, in one axes."""
    ax = axes(ax)
    side = images[0].shape[0]
    gap = max(1, side // 8)
    strip = np.full((side, len(images) * (side + gap) - gap, 3), 255, dtype=np.uint8)
    for i, image in enumerate(images):
        strip[:, i * (side + gap) : i * (side + gap) + side] = image
    ax.imshow(strip)
    centres = [i * (side + gap) + (side - 1) / 2 for i in range(len(images))]
    ax.set_xticks(centres, captions)
    ax.tick_params(length=0)
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return ax


def plot_histories(table: pd.DataFrame, ax: Axes | None = None, y: str = "val_accuracy") -> Axes:
    """One run per training-set size, pale to dark from few to many images; its best evaluation is marked.

    `table` has a row per evaluation of a single model and seed: n_train, step, and `y`: val_accuracy (0…1) or
    train_loss (nats).
    """
    ax = axes(ax)
    sizes = sorted(table["n_train"].unique())
    for size, shade in zip(sizes, np.linspace(0.25, 0.95, len(sizes)), strict=True):
        rows = table[table["n_train"] == size].dropna(subset=[y])
        colour = plt.get_cmap("viridis_r")(shade)
        ax.plot(rows["step"], rows[y], color=colour, label=f"{size:,}")
        if y == "val_accuracy":
            best = rows.loc[rows[y].idxmax()]
            ax.plot(best["step"], best[y], "o", color=colour, markersize=7)
    ax.set(xlabel="training step", xlim=(0, None))
    if y == "val_accuracy":
        accuracy_axis(ax, "validation accuracy (%)")
    else:
        ax.set(ylabel="training loss (nats)", ylim=(0, None))
    ax.legend(title="training images", fontsize=9, title_fontsize=9)
    return ax


def plot_data_scaling(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Test accuracy against the number of training images: mean line, 95 % interval as a band, every seed a point.

    `table` has a row per run: model, n_train, seed, test_accuracy (0…1). A family has one colour; its first model's
    line is solid, its second's dashed with open marks. Each line is named at its right end.
    """
    ax = axes(ax)
    models, named, ends = list(table["model"].unique()), labels(table["model"]), {}
    before = {model: sum(family(other) == family(model) for other in models[:i]) for i, model in enumerate(models)}
    for model, rows in table.groupby("model", sort=False):
        name, marker = FAMILIES[family(model)]
        colour, at = COLOURS[name], over_seeds(rows, "n_train", "test_accuracy", bounds=(0, 1))
        look = {"linestyle": ("-", "--", ":")[before[model] % 3], "markerfacecolor": "white" if before[model] else None}
        ax.plot(at.index, at["mean"], color=colour, marker=marker, markersize=5, **look)
        ax.fill_between(at.index, at["low"], at["high"], color=colour, alpha=0.15, linewidth=0)
        ax.scatter(rows["n_train"], rows["test_accuracy"], s=8, color=colour, alpha=0.7, zorder=3)
        ends[named[model]] = (at["mean"].iloc[-1], colour)
    size_axis(ax, sorted(table["n_train"].unique().tolist()))
    accuracy_axis(ax)
    name_ends(ax, ends)
    return ax


def plot_family_difference(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """ViT − ResNet in percentage points at each size: mean and interval, zero as a dashed line, seeds as points.

    `table` has a row per size and seed: n_train, seed, difference (0…1), low and high (the interval of the mean of
    that size, the same in all its rows).
    """
    ax = axes(ax)
    at = 100 * table.groupby("n_train")[["difference", "low", "high"]].mean()
    errors = [at["difference"] - at["low"], at["high"] - at["difference"]]
    ax.axhline(0, color=MUTED, linestyle="--", linewidth=1.2, label="equal", zorder=1)
    ax.errorbar(at.index, at["difference"], yerr=errors, color="black", marker="D", markersize=5, capsize=4,
                label="mean, 95 % interval")  # fmt: skip
    ax.scatter(table["n_train"], 100 * table["difference"], s=12, color=COLOURS["green"], zorder=3, label="each seed")
    size_axis(ax, sorted(table["n_train"].unique().tolist()))
    ax.set_ylabel("ViT − ResNet (percentage points)")
    ax.legend(loc="best")
    return ax
