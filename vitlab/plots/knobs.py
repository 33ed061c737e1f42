"""What the notebooks' knobs turn: patches, their cost, learning, answers with patches hidden (§3.1, §4.3, §4.5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes

from vitlab.plots.families import FAMILIES, family, labels
from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes


def plot_grid(image: UInt8[np.ndarray, "H W 3"], n_patches: int, ax: Axes | None = None) -> Axes:
    """The image under the lines along which it is cut, `n_patches` patches a side (§3.1)."""
    ax = axes(ax)
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    options = {"color": "white", "linewidth": min(1.0, 12 / n_patches)}
    ax.vlines(np.linspace(0, width, n_patches + 1)[1:-1], 0, height, **options)
    ax.hlines(np.linspace(0, height, n_patches + 1)[1:-1], 0, width, **options)
    ax.set_axis_off()
    return ax


def plot_patch_costs(table: pd.DataFrame, patch_size: int, ax: Axes | None = None) -> Axes:
    """Multiply-adds of one image for each patch size, in billions, with the tokens above; one patch size in colour.

    `table` has columns patch_size (px), tokens, dense and attention (multiply-adds).

    >>> table = pd.DataFrame({"patch_size": [16], "tokens": [197], "dense": [17e9], "attention": [1e9]})
    >>> [text.get_text() for text in plot_patch_costs(table, 16).texts]
    ['197 tokens']
    """
    ax = axes(ax)
    places = np.arange(len(table))
    dense, attention = (table[name].to_numpy() / 1e9 for name in ("dense", "attention"))
    alpha = np.where(table["patch_size"] == patch_size, 1.0, 0.35)
    stacked = (("dense layers", "blue", dense, 0), ("attention", "orange", attention, dense))
    for label, colour, height, bottom in stacked:
        bars = ax.bar(places, height, 0.7, bottom, color=COLOURS[colour], label=label)
        for bar, opacity in zip(bars, alpha, strict=True):
            bar.set_alpha(opacity)
    for place, tokens, height in zip(places, table["tokens"], dense + attention, strict=True):
        ax.text(place, height, f"{tokens:,}{'' if place else ' tokens'}", ha="center", va="bottom", fontsize=9)
    ax.set_xticks(places, [str(size) for size in table["patch_size"]])
    ax.set(xlabel="patch size P (px)", ylabel="billion multiply-adds")
    ax.margins(y=0.12)
    ax.grid(axis="x", visible=False)
    ax.legend()
    return ax


def plot_learning(table: pd.DataFrame, ax: Axes | None = None, y: str = "val_accuracy") -> Axes:
    """Runs on one training set: a thin line for each seed, the mean over seeds in full, by model.

    `table` has a row per evaluation: model, seed, step, and `y`: val_accuracy (0…1) or train_loss (nats).
    """
    ax = axes(ax)
    styles, named = ("-", "--", ":", "-."), labels(table["model"])
    for number, (model, rows) in enumerate(table.dropna(subset=[y]).groupby("model", sort=False)):
        colour, line = COLOURS[FAMILIES[family(model)][0]], styles[number % len(styles)]
        for _, one in rows.groupby("seed"):
            ax.plot(one["step"], one[y], line, color=colour, linewidth=0.7, alpha=0.5)
        mean = rows.groupby("step")[y].mean()
        ax.plot(mean.index, mean, line, color=colour, label=named[model])
    ax.set(xlabel="training step", xlim=(0, None), ylim=(0, None))
    if y == "val_accuracy":
        accuracy_axis(ax, "validation accuracy (%)")
    else:
        ax.set_ylabel("training loss (nats)")
    ax.legend(fontsize=9)
    return ax


def plot_mass_and_distance(heads: pd.DataFrame, column: str, ax: Axes | None = None) -> Axes:
    """A dot with its number for each head: its distance over the share of its attention that goes to prefix tokens.

    `heads` has columns head, prefix_mass (0…1) and the distance's (px).
    """
    ax = axes(ax)
    ax.scatter(100 * heads["prefix_mass"], heads[column], s=26, color=COLOURS["blue"])
    for x, y, head in zip(100 * heads["prefix_mass"], heads[column], heads["head"], strict=True):
        ax.annotate(str(head), (x, y), (5, 3), textcoords="offset points", fontsize=9)
    ax.set(xlabel="attention to the class token (%)", ylabel="mean attention distance (px)")
    ax.set_xlim(0, max(5.0, 130 * heads["prefix_mass"].max()))
    return ax


def plot_probabilities(
    names: Sequence[str], seen: Float[np.ndarray, " K"], left: Float[np.ndarray, " K"], ax: Axes | None = None
) -> Axes:
    """A model's probabilities (0…1) with the whole picture and with patches hidden, two bars a class."""
    ax = axes(ax)
    heights = np.arange(len(names))[::-1]
    for offset, values, colour, label in (
        (0.2, seen, MUTED, "everything seen"),
        (-0.2, left, COLOURS["blue"], "patches hidden"),
    ):
        bars = ax.barh(heights + offset, 100 * values, 0.36, color=colour, label=label)
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    ax.set_yticks(heights, names)
    ax.set(xlabel="probability (%)", xlim=(0, 118))
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
    return ax
