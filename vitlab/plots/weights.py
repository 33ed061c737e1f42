"""What a model's weights look like: embedding filters and position embeddings (§4.5, Fig. 7 left and centre)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from vitlab.plots.attention import mark_patch
from vitlab.plots.style import COLOURS, MUTED, axes

_TRAINED = COLOURS["blue"]
_RELATIONS = (  # of two patches: colour and marker, so that grey print tells them apart too
    ("same row", COLOURS["blue"], "o"),
    ("same column", COLOURS["vermilion"], "s"),
    ("neither", COLOURS["green"], "^"),
)


def plot_filter_grid(
    tiles: Float[np.ndarray, "n P Q channels"], ax: Axes | None = None, columns: int = 7, first: int = 1
) -> Axes:
    """Colour tiles in rows of `columns`, as Fig. 7 left has 28; `tiles` hold 0…1, in any number.

    `first` is the number of the first tile; each row begins with the number of its first tile.

    Raises:
        ValueError: the channels are not last, as in what `filters.filter_tiles` returns.

    >>> plot_filter_grid(np.zeros((10, 8, 8, 3)), columns=5).get_xlabel()
    'Components 1–10, row by row'
    """
    if tiles.ndim != 4 or tiles.shape[3] != 3:
        raise ValueError(
            f"tiles are {list(tiles.shape)}, expected [n, height, width, 3]: "
            "filter_tiles(…).permute(0, 2, 3, 1).numpy() has the channels last"
        )
    ax = axes(ax)
    count, height, width = tiles.shape[:3]
    rows = -(-count // columns)
    padded = np.ones((rows * columns, height, width, 3))
    padded[:count] = tiles
    gap = max(1, height // 12)
    ax.imshow(_mosaic(padded.reshape(rows, columns, height, width, 3), gap, 1.0), vmin=0, vmax=1)
    _bare(ax)
    middles = [gap + row * (height + gap) + (height - 1) / 2 for row in range(rows)]
    ax.set_yticks(middles, [str(first + row * columns) for row in range(rows)])
    ax.set_xlabel(f"Components {first}–{first + count - 1}, row by row")
    return ax


def plot_explained_variance(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Variance explained by the first components together: trained, and the range of the untrained models.

    `table` has a row for each `model`, `replicate` and `component`, with `explained` (0…1).
    """
    ax = axes(ax)
    _against_control(table.sort_values("component"), "explained", ax, cumulative=True)
    ax.set_ylabel("Variance explained,\ncumulative (%)")
    _legend_above(ax)
    return ax


def plot_low_frequencies(table: pd.DataFrame, white_noise: float, ax: Axes | None = None) -> Axes:
    """Share of each component's energy in low spatial frequencies, with what white noise would have, 0…1.

    `table` has a row for each `model`, `replicate` and `component`, with `low_frequency` (0…1).
    """
    ax = axes(ax)
    _against_control(table, "low_frequency", ax)
    ax.axhline(100 * white_noise, color=COLOURS["black"], linestyle=":", linewidth=1.2, label="white noise")
    ax.set_ylabel("Energy up to\n¼ cycle/pixel (%)")
    ax.set_ylim(0, 102)
    _legend_above(ax)
    return ax


def plot_similarity_grid(
    similarity: Float[np.ndarray, "rows cols rows2 cols2"], ax: Axes | None = None, colorbar: bool = True
) -> Axes:
    """Grid of grids, as Fig. 7 centre: tile (i, j) is the map of cosine similarities to that patch, −1…1.

    >>> plot_similarity_grid(np.zeros((2, 3, 2, 3))).get_xlabel()
    'Input patch column'
    """
    ax = axes(ax)
    rows, cols = similarity.shape[:2]
    gap = 1 + max(rows, cols) // 10  # in maps of many patches a gap of one could not be told from a patch
    image = ax.imshow(_mosaic(similarity[..., None], gap, np.nan)[..., 0], vmin=-1, vmax=1, cmap="viridis")
    _bare(ax)
    for axis, count in ((ax.xaxis, cols), (ax.yaxis, rows)):
        size = count + gap
        shown = [i for i in range(count) if i % -(-count // 14) == 0]  # at most fourteen numbers fit
        axis.set_ticks([gap + i * size + (count - 1) / 2 for i in shown], [str(i + 1) for i in shown])
    ax.set(xlabel="Input patch column", ylabel="Input patch row")
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, fraction=0.04, pad=0.02, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.set_label("Cosine similarity")
        bar.outline.set_visible(False)
    return ax


def plot_similarity_curves(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Mean similarity against the distance of two patches: in one row, one column, or neither.

    `table` has a row for each `model`, `replicate`, `quantity` and `distance` (in patches), with a `value`. Grey is
    the range of the untrained tables, of all three kinds of pair.
    """
    ax = axes(ax)
    table = table[table["quantity"].isin([name for name, _, _ in _RELATIONS])]
    control = table[table["model"] == "untrained"].groupby("distance")["value"]
    low, high = control.min(), control.max()
    ax.fill_between(low.index, low, high, color=MUTED, alpha=0.35, linewidth=0, label="untrained")
    trained = table[(table["model"] == "trained") & (table["replicate"] == 0)]
    for name, colour, marker in _RELATIONS:
        curve = trained[trained["quantity"] == name].sort_values("distance")
        ax.plot(curve["distance"], curve["value"], color=colour, marker=marker, markersize=5, label=name)
    ax.axhline(0, color=COLOURS["black"], linewidth=0.8, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="Distance between patches (patches)", ylabel="Mean cosine similarity")
    _legend_above(ax)
    return ax


def plot_measures(measures: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Each measure's value with its interval, beside the range of its controls.

    `measures` is indexed by name, with `value`, `low`, `high`, `control_low` and `control_high`; where it has `limit`
    too, that is what the whole interval has to lie above.
    """
    ax = axes(ax)
    heights = np.arange(len(measures))[::-1]
    span = measures["control_high"] - measures["control_low"]
    ax.barh(heights, span, 0.5, measures["control_low"], color=MUTED, alpha=0.35, label="controls' range")
    if "limit" in measures:
        limits = {"color": COLOURS["black"], "linestyle": "--", "linewidth": 1.4, "label": "limit of the rule"}
        ax.vlines(measures["limit"], heights - 0.35, heights + 0.35, **limits)
    error = np.abs(measures[["low", "high"]].to_numpy().T - measures["value"].to_numpy())
    style = {"fmt": "o", "color": _TRAINED, "capsize": 4, "label": "trained, 95 % interval"}
    ax.errorbar(measures["value"].to_numpy(), heights, xerr=error, **style)
    ax.axvline(0, color=COLOURS["black"], linewidth=0.8, zorder=1)
    ax.set_yticks(heights, list(measures.index))
    ax.set_ylim(-0.6, len(measures) - 0.4)
    ends = measures[["low", "high", "control_low", "control_high", *measures.columns.intersection(["limit"])]]
    low, high = min(0.0, ends.min(axis=None)), max(0.0, ends.max(axis=None))
    ax.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))  # bars alone would end at the edge
    ax.grid(axis="y", visible=False)
    _legend_above(ax)
    return ax


def plot_maps(
    maps: Mapping[str, Float[np.ndarray, "_ _"]],
    ax: Axes | None = None,
    cmap: str = "PuOr",
    patch: tuple[int, int] | None = None,
) -> Axes:
    """Maps [rows cols], of any sizes, side by side, each under its name, on one colour scale around 0.

    `patch` (row, column from the top left) is framed in every map.
    """
    ax = axes(ax)
    limit = max(float(np.abs(values).max()) for values in maps.values())
    left, ticks = 0.0, []
    for values in maps.values():  # each fills a unit square, whatever its grid
        box = (left, left + 1, 0, 1)
        ax.imshow(values, extent=box, vmin=-limit, vmax=limit, cmap=cmap, aspect="equal")
        if patch is not None:
            _frame(ax, patch, values.shape, left)
        ticks.append(left + 0.5)
        left += 1.12
    _bare(ax)
    ax.set_xlim(0, left - 0.12)
    ax.set_xticks(ticks, list(maps))
    return ax


def _frame(ax: Axes, patch: tuple[int, int], grid: tuple[int, ...], left: float) -> None:
    """A frame around a patch of a map that fills the unit square from `left`; rows count from the top."""
    down, across = 1 / grid[0], 1 / grid[1]
    mark_patch(ax, (0, 0), (across, down), (left + patch[1] * across, 1 - (patch[0] + 1) * down))


def plot_resize_differences(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How far each convention of resizing is from the paper's: relative L2 difference, for each kind of table.

    `table` has columns `convention`, `positions` (what was resized) and `difference` (0…1).
    """
    ax = axes(ax)
    wide = table.pivot(index="convention", columns="positions", values="difference")
    wide = wide.loc[table["convention"].unique(), table["positions"].unique()]
    heights, thickness = np.arange(len(wide))[::-1], 0.8 / len(wide.columns)
    for number, name in enumerate(wide.columns):
        offset = 0.4 - thickness * (number + 0.5)
        bars = ax.barh(heights + offset, 100 * wide[name], thickness * 0.9, label=name)
        ax.bar_label(bars, fmt="%.0f", padding=3, fontsize=9)
    ax.set_yticks(heights, list(wide.index))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("Difference from the paper's resizing (relative L2, %)")
    _legend_above(ax)
    return ax


def _against_control(table: pd.DataFrame, column: str, ax: Axes, cumulative: bool = False) -> None:
    """The trained weights' line over the untrained models' range, in per cent, by component."""
    values = table.pivot(index="component", columns=["model", "replicate"], values=column) * 100
    values = values.cumsum() if cumulative else values
    control = values["untrained"]
    band = {"color": MUTED, "alpha": 0.35, "linewidth": 0}
    ax.fill_between(values.index, control.min(axis=1), control.max(axis=1), label="untrained, range and mean", **band)
    ax.plot(values.index, control.mean(axis=1), color=MUTED, linewidth=1.2)
    ax.plot(values.index, values["trained"][0], color=_TRAINED, marker="o", markersize=4, label="trained")
    ax.set_xlabel("Principal component" + (" (up to this one)" if cumulative else ""))


def _mosaic(tiles: Float[np.ndarray, "rows cols h w c"], gap: int, fill: float) -> np.ndarray:
    """All tiles in one picture with `gap` pixels of `fill` between and around them."""
    rows, cols, height, width, channels = tiles.shape
    picture = np.full((rows * (height + gap) + gap, cols * (width + gap) + gap, channels), fill)
    for i in range(rows):
        for j in range(cols):
            top, left = gap + i * (height + gap), gap + j * (width + gap)
            picture[top : top + height, left : left + width] = tiles[i, j]
    return picture


def _legend_above(ax: Axes) -> None:
    """Where it hides no data, whatever the data."""
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _bare(ax: Axes) -> None:
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(length=0)
