"""What weights look like: embedding filters' components and position embeddings (§4.5, App. D.4, Fig. 7 centre, 10)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

from vitlab.plots.attention import OBJECTIVES, mark_patch
from vitlab.plots.pictures import tile
from vitlab.plots.style import COLOURS, MUTED, bare, legend_above


def plot_components(table: pd.DataFrame, column: str, ax: Axes, white_noise: float | None = None) -> Axes:
    """Draw the trained weights' principal components over the range of the untrained models', in per cent.

    `column`, 0…1, is "explained", the variance, drawn cumulatively, or "low_frequency", the share of energy there.
    """
    values = 100 * table.pivot(index="component", columns=["model", "replicate"], values=column)
    if column == "explained":
        values = values.cumsum()
        ax.set(xlabel="Principal component (up to this one)", ylabel="Variance explained,\ncumulative (%)")
    else:
        ax.set(xlabel="Principal component", ylabel="Energy up to\n¼ cycle/pixel (%)", ylim=(0, 102))
    control = values["untrained"]
    ax.fill_between(values.index, control.min(axis=1), control.max(axis=1), label="untrained, range and mean",
                    color=MUTED, alpha=0.35, linewidth=0)  # fmt: skip
    ax.plot(values.index, control.mean(axis=1), color=MUTED, linewidth=1.2)
    ax.plot(values.index, values["trained"][0], color=COLOURS["blue"], marker="o", markersize=4, label="trained")
    if white_noise is not None:
        ax.axhline(100 * white_noise, color=COLOURS["black"], linestyle=":", linewidth=1.2, label="white noise")
    legend_above(ax, ncols=2)
    return ax


def plot_similarity_grid(
    similarity: Float[np.ndarray, "rows cols rows2 cols2"], ax: Axes, colorbar: bool = True
) -> Axes:
    """Draw a grid of grids (Fig. 7 centre): tile (i, j) is the map of cosine similarities to that patch, −1…1."""
    rows, cols = similarity.shape[:2]
    gap = 1 + max(rows, cols) // 10  # in maps of many patches a gap of one could not be told from a patch
    image = ax.imshow(tile(similarity, gap, np.nan), vmin=-1, vmax=1, cmap="viridis")
    bare(ax)
    for axis, count in ((ax.xaxis, cols), (ax.yaxis, rows)):
        shown = range(0, count, -(-count // 14))  # at most fourteen numbers fit
        axis.set_ticks([i * (count + gap) + (count - 1) / 2 for i in shown], [str(i + 1) for i in shown])
    ax.set(xlabel="Input patch column", ylabel="Input patch row")
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, fraction=0.04, pad=0.02, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.set_label("Cosine similarity")
        bar.outline.set_visible(False)
    return ax


def plot_measure_by_photographs(trainings: pd.DataFrame, ax: Axes) -> Axes:
    """Draw one measure (value) by n_train: a dot for each training, the means; grey is the controls' range."""
    counts = sorted(trainings["n_train"].unique())
    for number, (objective, (colour, marker)) in enumerate(OBJECTIVES.items()):
        mine = trainings[trainings["objective"] == objective]
        place = mine["n_train"].map(counts.index) + (number - 0.5) * 0.36
        controls = mine.groupby(place).agg({"control_low": "min", "control_high": "max"})
        ax.bar(controls.index, controls["control_high"] - controls["control_low"], 0.3, controls["control_low"],
               color=MUTED, alpha=0.35, zorder=1, label="controls' range")  # fmt: skip
        ax.scatter(place, mine["value"], s=18, color=colour, alpha=0.5, zorder=2)
        means = mine.groupby(place)["value"].mean()
        ax.plot(means.index, means, color=colour, marker=marker, label=f"{objective}, mean of the seeds")
    ax.axhline(0, color=COLOURS["black"], linewidth=0.8, zorder=1)
    ax.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
    ax.set_xlabel("training photographs")
    ax.grid(axis="x", visible=False)
    return ax


def plot_maps(maps: Mapping[str, Float[np.ndarray, "rows cols"]], ax: Axes, cmap: str, patch: tuple[int, int]) -> Axes:
    """Draw maps side by side on one colour scale around 0, `patch` (row, column) framed in each."""
    sheet = np.stack(list(maps.values()))
    limit, step = np.abs(sheet).max(), sheet.shape[2] + 1
    ax.imshow(tile(sheet[None], 1, np.nan), vmin=-limit, vmax=limit, cmap=cmap)
    bare(ax)
    for number in range(len(maps)):
        mark_patch(ax, (patch[0], patch[1] + step * number))
    ax.set_xticks(step * np.arange(len(maps)) + (step - 2) / 2, list(maps))
    return ax
