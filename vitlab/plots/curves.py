"""Accuracy against data, compute, time, learning rate and design: mean over seeds, 95 % interval from five seeds on.

Accuracies and shares are 0…1. `means` have the columns mean, low and high, NaN where there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

import numpy as np
import pandas as pd
import scipy.special
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from vitlab.plots.style import COLOURS, FAMILIES, LOOKS, MUTED, REFERENCE, accuracy_axis, family, labels

FEWEST = 5  # seeds that have an interval; fewer are drawn as dots


def t_interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float]:
    """Return the 95 % Student's t interval of the mean; NaN for fewer than five values."""
    if len(values) < FEWEST:
        return math.nan, math.nan
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def plot_curves(
    data: pd.DataFrame,
    ax: Axes,
    *,
    x: str,
    y: str,
    hue: str = "model",
    looks: Mapping | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    **options,
) -> Axes:
    """Draw the mean of `y` over the rows (seeds) at each `x`, a line for each `hue` (`seaborn.lineplot`, `options`).

    From five rows on, a band is the 95 % t interval of the mean, cut at `bounds`; of fewer each row is a dot. `looks`
    are colour, marker and, where the line is not solid, dashes of each `hue`.
    """
    groups = list(dict.fromkeys(data[hue]))
    named = labels(groups) if hue == "model" else {group: str(group) for group in groups}
    if hue == "model":
        looks = {}
        for group in groups:
            before = sum(family(other) == family(group) for other in looks)
            looks[group] = (*FAMILIES[family(group)], ("", (4, 2), (1, 1.5))[before % 3])
    looks = looks or dict(zip(groups, cycle(LOOKS)))
    before = len(ax.lines)
    options = {"errorbar": lambda values: np.clip(t_interval(values), *bounds), "markersize": 5, **options}
    sns.lineplot(
        data, x=x, y=y, hue=hue, hue_order=groups, style=hue, style_order=groups, ax=ax, legend=False,
        palette={group: looks[group][0] for group in groups}, markers={group: looks[group][1] for group in groups},
        dashes={group: looks[group][2] if len(looks[group]) > 2 else "" for group in groups},
        err_kws={"alpha": 0.18, "linewidth": 0}, **options,
    )  # fmt: skip
    for group, line in zip(groups, ax.lines[before:], strict=True):
        line.set_label(named[group])
    count = data.groupby([hue, x])[y].transform("count")
    few = data[(count > 1) & (count < FEWEST)]
    if len(few):
        ax.scatter(few[x], few[y], s=9, c=[looks[group][0] for group in few[hue]], alpha=0.6, zorder=3, linewidth=0)
    return ax


def plot_points(ax: Axes, x: pd.Series, means: pd.DataFrame, look: tuple[str, str], label: str, **options) -> None:
    """Draw means with their intervals; without where they are of fewer than five seeds (column n, if there is one)."""
    of_few = means["n"] < FEWEST if "n" in means else pd.Series(False, means.index)
    errors = [(means["mean"] - means["low"]).mask(of_few), (means["high"] - means["mean"]).mask(of_few)]
    has = bool(errors[0].notna().any())
    options = {"linestyle": "none", "markersize": 6, "capsize": 4 if has else 0} | options
    ax.errorbar(x, means["mean"], errors if has else None, color=look[0], marker=look[1], label=label, **options)


def log_ticks(ax: Axes, values: Sequence[float] | pd.Series, words: Sequence[str] | None = None) -> None:
    """Make the x axis logarithmic, with a tick for each value that was measured."""
    ticks = sorted(set(values))
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(ticks, words or [f"{value:g}" for value in ticks])


def log_axis(ax: Axes, name: str, subs=(1.0, 2.0, 5.0), words: Callable | None = None) -> None:
    """Make the axis x or y logarithmic, with ticks at these multiples of powers of ten, which `words` writes."""
    ax.set(**{f"{name}scale": "log"})
    axis = ax.xaxis if name == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(words or (lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def size_axis(ax: Axes, sizes: Sequence[int] | pd.Series) -> None:
    """Make the x axis that of training images; a number that would touch the one before it is not written."""
    sizes = sorted(set(sizes))
    words, written = [], 0.0
    for size in sizes:
        fits = not written or math.log(size / written) > 0.05 * math.log(sizes[-1] / sizes[0])
        written = size if fits else written
        words.append(f"{size:,}" if fits else "")
    log_ticks(ax, sizes, words)
    ax.set_xlabel("training images (number, log scale)")


def plot_accuracy(table: pd.DataFrame, ax: Axes, x: str) -> Axes:
    """Draw test_accuracy of each model by `x`: samples seen while training, or n_train, training images (Fig. 3, 4)."""
    unit = 1000 if x == "samples" else 1
    plot_curves(table.assign(**{x: table[x] / unit}), ax, x=x, y="test_accuracy", bounds=(0, 1))
    if x == "samples":
        ax.set(xlabel="training images seen (thousands)", xlim=(0, None))
    else:
        size_axis(ax, table[x])
    accuracy_axis(ax)
    ax.legend(fontsize=9)
    return ax


def plot_compute_scaling(
    table: pd.DataFrame, frontiers: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]], ax: Axes, y: str = "transfer"
) -> Axes:
    """Draw accuracy against training compute: runs small, means large, filled for the largest model (Fig. 5).

    `frontiers` has log10(FLOPs) and accuracies, one pair a seed, for each family: their mean is the line, the band goes
    from the lowest to the highest.
    """
    named = labels(table["model"])
    for name, fits in frontiers.items():
        colour, marker = FAMILIES[name]
        rows = table[table["model"].map(family) == name]
        ax.scatter(rows["flops"], rows[y], s=8, color=colour, alpha=0.6, zorder=3)
        models = rows.groupby("model")["flops"].max().sort_values().index
        for model in models:
            mean = rows[rows["model"] == model].groupby("steps")[["flops", y]].mean()
            face = colour if model == models[-1] else "white"
            ax.scatter(mean["flops"], mean[y], s=45, label=named[model], marker=marker, facecolor=face,
                       edgecolor=colour, linewidth=1.5, zorder=4)  # fmt: skip
        if fits:
            log = np.linspace(min(x[0] for x, _ in fits), max(x[-1] for x, _ in fits), 40)
            x, drawn = 10**log, np.array([np.interp(log, *each) for each in fits])
            ax.plot(x, drawn.mean(axis=0), color=colour, linewidth=1.5)
            ax.fill_between(x, drawn.min(axis=0), drawn.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    ax.set(xscale="log", xlabel="training compute (FLOPs, log scale)")
    accuracy_axis(ax, "accuracy (%)")
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_speeds(table: pd.DataFrame, ax: Axes, y: str = "images_per_second") -> Axes:
    """Draw medians of rounds by image_size (px), a band from slowest to fastest (Fig. 12), or of `y` largest_batch."""
    names = {"images_per_second": "inference (images per second, log scale)", "largest_batch": "largest batch (images)"}
    ax.set_ylabel(names[y])
    plot_curves(table, ax, x="image_size", y=y, estimator="median", errorbar=("pi", 100))
    log_ticks(ax, table["image_size"])
    log_axis(ax, "y")
    ax.set_xlabel("input size (pixels a side, log scale)")
    ax.legend()
    return ax


def plot_epochs(rows: pd.DataFrame, ax: Axes, y: str = "test_accuracy") -> Axes:
    """Draw `y`, test_accuracy or share (of the final one), by epoch, for each model; of arm "scratch" dashed."""
    scratch = rows["arm"].map({"scratch": ", from scratch"}).fillna("")
    rows = rows.assign(line=rows["model"].map(labels(rows["model"])) + scratch)
    each = zip(rows["line"], rows["model"], scratch, strict=True)
    looks = {line: (*FAMILIES[family(model)], (4, 2) if dashed else "") for line, model, dashed in each}
    plot_curves(rows, ax, x="epoch", y=y, hue="line", looks=looks, bounds=(0, 1 if y == "test_accuracy" else 9))
    ax.set(xlabel="epochs of fine-tuning", xticks=np.unique(rows["epoch"]))
    accuracy_axis(ax, "test accuracy (%)" if y == "test_accuracy" else "share of the final accuracy (%)")
    ax.legend(loc="lower right", fontsize=9)
    return ax


def plot_rates(runs: pd.DataFrame, chosen: pd.DataFrame, ax: Axes) -> Axes:
    """Draw test_accuracy by learning_rate, a line for each arm, a ring around the mean of `chosen` runs (Fig. 9)."""
    plot_curves(runs, ax, x="learning_rate", y="test_accuracy", hue="arm", bounds=(0, 1))
    best = chosen.groupby("arm")[["learning_rate", "test_accuracy"]].mean()
    ax.plot(*best.to_numpy().T, "o", ms=12, mfc="none", color=MUTED, label="chosen on validation images")  # a ring
    log_ticks(ax, runs["learning_rate"])
    ax.set_xlabel("learning rate (log scale)")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best")
    return ax


def plot_shapes(means: pd.DataFrame, ax: Axes, base: str | None = "base", by: str = "dimension") -> Axes:
    """Draw accuracy by FLOPs of one image (Fig. 8, 13), a line from `base`, if there is one, for each value of `by`."""
    start, others = means[means[by] == base], means[means[by] != base]
    for (name, own), look in zip(others.groupby(by, sort=False), cycle(LOOKS)):
        own = own.sort_values("flops")
        if base is not None:
            line = pd.concat([start, own])
            ax.plot(line["flops"], line["mean"], color=look[0], linewidth=1.5)
        plot_points(ax, own["flops"], own, look, str(name))
    if len(start):
        plot_points(ax, start["flops"], start, (COLOURS["black"], "*"), str(base), markersize=9)
    log_axis(ax, "x", (1.0, 2.0, 3.0, 5.0), lambda value, _: f"{value / 1e6:g}")
    ax.set_xlabel("FLOPs of a forward pass (millions, log scale)")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_comparisons(data: pd.DataFrame, xlabel: str, ax: Axes, colour: str = "blue") -> Axes:
    """Draw differences from zero (mean, low, high, in points), from the top down by index; "grey" is the paper's."""
    drawn, places = COLOURS.get(colour, MUTED), np.arange(len(data))
    ax.axvline(0, **REFERENCE)
    errors = np.abs(data[["low", "high"]].to_numpy(dtype=float).T - data["mean"].to_numpy())
    marker = "D" if drawn == MUTED else "o"
    ax.errorbar(data["mean"], places, xerr=errors, color=drawn, linestyle="none", marker=marker, capsize=4)
    ax.set_yticks(places, list(data.index))
    ax.set(ylim=(max(len(data), 1) - 0.5, -0.5), xlabel=xlabel)
    ax.grid(axis="y", visible=False)
    return ax
