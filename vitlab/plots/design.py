"""Design choices: position embeddings, heads, optimisers, shapes, axial attention (App. D, Fig. 8, 9, 13)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes

_RING = MappingProxyType({"marker": "o", "markersize": 13, "fillstyle": "none", "linestyle": "none"})
_MARKS = (("blue", "o"), ("vermilion", "s"), ("green", "^"), ("purple", "D"), ("orange", "v"), ("sky", "P"))


def plot_cell_differences(table: pd.DataFrame, reference: str, ax: Axes | None = None, colour: str = "blue") -> Axes:
    """Differences from the arm `reference` in points, one line under the other: a dot with its interval for each.

    `table` has a row for each cell: arm, difference, low, high (points; low and high NaN where there is no interval).
    `colour` is one of `COLOURS`, or "grey": the paper's.

    >>> from matplotlib.figure import Figure
    >>> rows = {"arm": ["none", "2-D"], "difference": [-3.0, 0.1], "low": [-4.0, np.nan], "high": [-2.0, np.nan]}
    >>> ax = plot_cell_differences(pd.DataFrame(rows), "1-D", Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()], ax.get_xlabel()
    (['none', '2-D'], 'difference from 1-D\\n(percentage points)')
    """
    ax, drawn = axes(ax), COLOURS.get(colour, MUTED)
    ax.axvline(0, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    places = np.arange(len(table))
    with_interval = table["low"].notna().to_numpy()
    rows = table[with_interval]
    errors = [rows["difference"] - rows["low"], rows["high"] - rows["difference"]]
    ax.errorbar(rows["difference"], places[with_interval], xerr=errors, color=drawn, linestyle="none", capsize=4)
    ax.plot(table["difference"], places, linestyle="none", marker="o" if colour in COLOURS else "D", color=drawn)
    ax.set_yticks(places, list(table["arm"]))
    ax.set(ylim=(max(len(table), 1) - 0.5, -0.5), xlabel=f"difference from {reference}\n(percentage points)")
    ax.grid(axis="y", visible=False)
    return ax


def plot_head_rates(means: pd.DataFrame, ax: Axes | None = None, at: float | None = None) -> Axes:
    """Fig. 9: accuracy by learning rate, a line with intervals for each head; the chosen rate of each is ringed.

    `means` has a row for each arm and learning_rate: mean, low, high (0…1), and chosen, whether it is the best on
    validation images. `at`: a learning rate to mark.

    >>> from matplotlib.figure import Figure
    >>> rows = {"arm": "GAP", "learning_rate": [1e-3, 4e-3], "mean": [0.5, 0.6], "low": 0.4, "high": 0.7}
    >>> ax = plot_head_rates(pd.DataFrame(rows | {"chosen": [True, False]}), Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['chosen on validation images', 'GAP']
    """
    ax = axes(ax)
    arms = list(dict.fromkeys(means["arm"]))
    for number, arm in enumerate(arms):
        rows = means[means["arm"] == arm].sort_values("learning_rate")
        colour, marker = _MARKS[number % len(_MARKS)]
        x = rows["learning_rate"] * 1.03 ** (number - (len(arms) - 1) / 2)  # so that no interval hides another
        _with_intervals(ax, x, rows, COLOURS[colour], marker, arm, line="-")
        best = rows["chosen"].to_numpy(dtype=bool)
        ax.plot(x[best], rows["mean"][best], color=COLOURS[colour], **_RING)
    ax.plot([], [], color=MUTED, label="chosen on validation images", **_RING)
    if at is not None:
        ax.axvline(at, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    rates = sorted(means["learning_rate"].unique())
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.set_xlabel("learning rate (log scale)")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best")
    return ax


def plot_heads_by_length(means: pd.DataFrame, panels: np.ndarray, at: float | None = None) -> None:
    """`plot_head_rates` in a panel for each length of training, the shortest first; the first names the axis of all.

    `means` has the steps of the training besides: steps, arm, learning_rate, mean, low, high (0…1), chosen.

    >>> from matplotlib.figure import Figure
    >>> rows = {"steps": [9, 5], "arm": "GAP", "learning_rate": 1e-3, "mean": [0.6, 0.5], "low": 0.4, "high": 0.7}
    >>> panels = Figure().subplots(1, 2, sharey=True)
    >>> plot_heads_by_length(pd.DataFrame(rows | {"chosen": True}), panels)
    >>> [(ax.get_title(), ax.get_ylabel()) for ax in panels]
    [('5 steps', 'test accuracy (%)'), ('9 steps', '')]
    """
    for ax, (steps, rows) in zip(panels, means.groupby("steps"), strict=True):
        plot_head_rates(rows, ax, at).set_title(f"{steps:,} steps")
    for ax in panels[1:]:
        ax.set_ylabel("")


def plot_optimizers(means: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Table 7: accuracy after fine-tuning by what a ResNet was pre-trained with, side by side for each case.

    `means` has a row for each case (a label: model and data set) and optimizer: mean, low, high (0…1; low and high NaN
    where there is no interval).

    >>> from matplotlib.figure import Figure
    >>> rows = {"case": "R50\\nPets", "optimizer": ["Adam", "SGD"], "mean": [0.9, 0.8], "low": 0.7, "high": 0.95}
    >>> [text.get_text() for text in plot_optimizers(pd.DataFrame(rows), Figure().subplots()).get_legend().get_texts()]
    ['Adam', 'SGD']
    """
    ax = axes(ax)
    cases = {case: place for place, case in enumerate(dict.fromkeys(means["case"]))}
    names = list(dict.fromkeys(means["optimizer"]))
    for number, name in enumerate(names):
        rows = means[means["optimizer"] == name]
        colour, marker = _MARKS[number % len(_MARKS)]
        x = rows["case"].map(cases) + 0.2 * (number - (len(names) - 1) / 2)
        _with_intervals(ax, x, rows, COLOURS[colour], marker, name)
    ax.set_xticks(range(len(cases)), list(cases))
    ax.set_xlim(-0.5, len(cases) - 0.5)
    ax.grid(axis="x", visible=False)
    accuracy_axis(ax, "fine-tuned accuracy (%)", cut=True)
    ax.legend(loc="best")
    return ax


def plot_shapes(means: pd.DataFrame, ax: Axes | None = None, base: str = "base") -> Axes:
    """Fig. 8: accuracy against the FLOPs of a forward pass, a line from the base model along each dimension.

    `means` has a row for each shape: dimension, flops (of a forward pass for one image), mean, low, high (0…1).

    >>> from matplotlib.figure import Figure
    >>> rows = {"dimension": ["base", "depth"], "flops": [1e6, 4e6], "mean": [0.5, 0.6], "low": 0.4, "high": 0.7}
    >>> [text.get_text() for text in plot_shapes(pd.DataFrame(rows), Figure().subplots()).get_legend().get_texts()]
    ['depth', 'base']
    """
    ax = axes(ax)
    start = means[means["dimension"] == base]
    others = [name for name in dict.fromkeys(means["dimension"]) if name != base]
    for number, name in enumerate(others):
        colour, marker = _MARKS[number % len(_MARKS)]
        own = means[means["dimension"] == name].sort_values("flops")
        line = pd.concat([start, own])
        ax.plot(line["flops"], line["mean"], color=COLOURS[colour], linewidth=1.5)
        _with_intervals(ax, own["flops"], own, COLOURS[colour], marker, name)
    _with_intervals(ax, start["flops"], start, COLOURS["black"], "*", base)
    _flops_axis(ax)
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_accuracy_flops(means: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Fig. 13 left: accuracy against the FLOPs of a forward pass, a mark with its interval for each arm.

    `means` has a row for each arm: flops, mean, low, high (0…1).

    >>> from matplotlib.figure import Figure
    >>> rows = {"arm": ["axial", "full"], "flops": [2e6, 1e6], "mean": [0.6, 0.5], "low": 0.4, "high": 0.7}
    >>> plot_accuracy_flops(pd.DataFrame(rows), Figure().subplots()).get_xlabel()
    'FLOPs of a forward pass (millions, log scale)'
    """
    ax = axes(ax)
    for number, (arm, rows) in enumerate(means.groupby("arm", sort=False)):
        colour, marker = _MARKS[number % len(_MARKS)]
        _with_intervals(ax, rows["flops"], rows, COLOURS[colour], marker, str(arm))
    _flops_axis(ax)
    accuracy_axis(ax, cut=True)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.25 * (high - low))  # room for the legend: intervals take the whole height
    ax.legend(loc="upper center", fontsize=9, ncols=2)
    return ax


def plot_forward_times(times: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Fig. 13 right's question: milliseconds of a forward pass by the tokens along a side, a line for each arm.

    `times` has a row for each arm and tokens (along a side): milliseconds.

    >>> from matplotlib.figure import Figure
    >>> rows = {"arm": "axial", "tokens": [8, 16], "milliseconds": [1.0, 5.0]}
    >>> plot_forward_times(pd.DataFrame(rows), Figure().subplots()).get_yscale()
    'log'
    """
    ax = axes(ax)
    for number, (arm, rows) in enumerate(times.groupby("arm", sort=False)):
        colour, marker = _MARKS[number % len(_MARKS)]
        ax.plot(rows["tokens"], rows["milliseconds"], color=COLOURS[colour], marker=marker, label=str(arm))
    sides = sorted(times["tokens"].unique().tolist())
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sides, [f"{side} × {side}" for side in sides])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(xlabel="grid of patches (log scale)", ylabel="forward pass (ms, log scale)")
    ax.legend(loc="best", fontsize=9)
    return ax


def _with_intervals(
    ax: Axes, x: pd.Series, rows: pd.DataFrame, colour: str, marker: str, label: str, line: str = "none"
) -> None:
    errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]] if rows["low"].notna().any() else None
    options = {"color": colour, "marker": marker, "markersize": 6, "capsize": 4, "linestyle": line}
    ax.errorbar(x, rows["mean"], yerr=errors, label=label, **options)


def _flops_axis(ax: Axes) -> None:
    """In millions, for one image, on a log scale with plain numbers."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("FLOPs of a forward pass (millions, log scale)")
