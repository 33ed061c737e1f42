"""Accuracy against training compute, with its frontiers; speed and largest batch against input size (Fig. 5, 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator, StrMethodFormatter

from vitlab.plots.families import FAMILIES, family, labels
from vitlab.plots.lines import name_ends, over_seeds, size_axis
from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes

# A frontier: accuracy (0…1) for a compute in FLOPs, and the range of computes it was fitted on.
_LINES = (("blue", "o"), ("vermilion", "s"), ("green", "^"), ("purple", "D"), ("orange", "v"), ("sky", "P"))
Frontier = tuple[Callable[[float], float], tuple[float, float]]


def plot_compute_scaling(
    table: pd.DataFrame, frontiers: Mapping[str, Sequence[Frontier]], ax: Axes | None = None, y: str = "few_shot"
) -> Axes:
    """Accuracy against training compute: runs as small points, means of the seeds large, a band for every frontier.

    `table` has a row per run: model, seed, steps, flops, and `y` (0…1). `frontiers` holds, for every family as
    `family` names it, one frontier per seed: their mean is the line, the band goes from the lowest to the highest.
    A family without runs is left out. Of a family's models the largest has filled marks, the others hollow ones.
    """
    ax, named = axes(ax), labels(table["model"])
    for name, fits in frontiers.items():
        colour, marker = FAMILIES[name]
        rows = table[table["model"].map(family) == name]
        ax.scatter(rows["flops"], rows[y], s=8, color=COLOURS[colour], alpha=0.6, zorder=3)
        cost = rows.groupby("model")["flops"].max().sort_values()
        for model in cost.index:
            mean = rows[rows["model"] == model].groupby("steps")[["flops", y]].mean()
            face = COLOURS[colour] if model == cost.index[-1] else "white"
            look = {"marker": marker, "facecolor": face, "edgecolor": COLOURS[colour], "linewidth": 1.5, "zorder": 4}
            ax.scatter(mean["flops"], mean[y], s=45, label=named[model], **look)
        if fits:
            x = np.geomspace(min(low for _, (low, _) in fits), max(high for _, (_, high) in fits), 40)
            drawn = np.array([[at(flops) for flops in x] for at, _ in fits])
            ax.plot(x, drawn.mean(axis=0), color=COLOURS[colour], linewidth=1.5)
            ax.fill_between(x, drawn.min(axis=0), drawn.max(axis=0), color=COLOURS[colour], alpha=0.15, linewidth=0)
    ax.set_xscale("log")
    wide = table["flops"].max() > 50 * table["flops"].min()  # so many decades that their labels alone have room
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(3, 3)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("training compute (FLOPs, log scale)")
    accuracy_axis(ax, "accuracy (%)")
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_who_wins(table: pd.DataFrame, ax: Axes | None = None, by: str = "world") -> Axes:
    """ViT − ResNet in percentage points against the number of images, a line for each world: mean and 95 % interval.

    `table` has a row per world (or another column `by`), n_train and seed: difference (0…1). Each line is named at its
    right end: one that ends before the others there, the others beside the axes.

    >>> rows = {"world": "texture", "n_train": [9, 9, 99, 99], "seed": [0, 1, 0, 1], "difference": [-0.1, 0, 0.1, 0.2]}
    >>> plot_who_wins(pd.DataFrame(rows)).get_xscale()
    'log'
    """
    ax = axes(ax)
    ax.axhline(0, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    names = list(dict.fromkeys(table[by]))
    ends = {}
    for number, name in enumerate(names):
        colour, marker = _LINES[number % len(_LINES)]
        at = 100 * over_seeds(table[table[by] == name], "n_train", "difference")
        x = at.index * 1.03 ** (number - len(names) / 2)  # side by side, so that no interval hides another
        errors = [at["mean"] - at["low"], at["high"] - at["mean"]]
        ax.errorbar(x, at["mean"], yerr=errors, color=COLOURS[colour], marker=marker, markersize=5, capsize=3)
        y, its_colour = at["mean"].iloc[-1], COLOURS[colour]
        if at.index[-1] == table["n_train"].max():
            ends[name] = (y, its_colour)
        else:
            halo = [withStroke(linewidth=3, foreground="white")]  # other lines may pass behind it
            beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            ax.annotate(str(name), (x[-1], y), color=its_colour, path_effects=halo, zorder=5, **beside)
    size_axis(ax, sorted(table["n_train"].unique().tolist()))
    ax.set_ylabel("ViT − ResNet (percentage points)")
    name_ends(ax, ends)
    return ax


def plot_speeds(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Images per second against input size: median of the rounds, a band from the slowest to the fastest.

    `table` has a row per round: model, image_size (pixels), round, images_per_second.
    """
    ax, named = axes(ax), labels(table["model"])
    for model, rows in table.groupby("model", sort=False):
        colour, marker = FAMILIES[family(model)]
        at = rows.groupby("image_size")["images_per_second"]
        ax.plot(at.median().index, at.median(), color=COLOURS[colour], marker=marker, markersize=5, label=named[model])
        ax.fill_between(at.min().index, at.min(), at.max(), color=COLOURS[colour], alpha=0.2, linewidth=0)
    _input_sizes(ax, table["image_size"])
    ax.set_ylabel("inference (images per second, log scale)")
    return ax


def plot_largest_batches(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Largest batch against input size, a line for each model. `table`: model, image_size (pixels), largest_batch."""
    ax, named = axes(ax), labels(table["model"])
    for model, rows in table.groupby("model", sort=False):
        colour, marker = FAMILIES[family(model)]
        ax.plot(rows["image_size"], rows["largest_batch"], color=COLOURS[colour], marker=marker, label=named[model])
    if table.empty:
        ax.text(0.5, 0.5, "not measured on this system", ha="center", color=MUTED, transform=ax.transAxes)
    else:
        _input_sizes(ax, table["image_size"])
    ax.set_ylabel("largest batch (images, log scale)")
    return ax


def _input_sizes(ax: Axes, sizes: pd.Series) -> None:
    ticks = sorted(sizes.unique().tolist())
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xticks(ticks, [str(size) for size in ticks])
    ax.set_xlabel("input size (pixels a side, log scale)")
    ax.legend()
