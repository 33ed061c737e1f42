"""Attention distance per head and depth, and one query's attention drawn on its image (Fig. 7 right, 11)."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vitlab.plots.style import COLOURS, MUTED, paper_line

_GLOW = "#F0E442"  # the palette's yellow: too light for lines, good over grey
_DIMMED = 0.45  # brightness of the image under a glow: a glow over a bright sky could not be seen
MODELS = {  # model → colour, marker, offset from the block's number, order of drawing
    "trained": (COLOURS["blue"], "o", -0.12, 3),
    "untrained": (MUTED, "x", 0.24, 2),
}
_SPREAD = 0.2  # of a block's heads along the axis of blocks, so that heads as far apart do not hide each other


def plot_attention_distances(
    data: pd.DataFrame,
    ax: Axes | None = None,
    *,
    column: str = "distance_px",
    uniform: float | None = None,
    image_px: int | None = None,
    local: float | None = None,
    legend: bool = True,
) -> Axes:
    """Fig. 7 right: one dot per head, its mean attention distance in pixels over the number of its block.

    A line joins the means of the trained model's blocks. The axis begins at 0, unless all distances lie in the upper
    half of what it would show; then it shows where they lie. Axes that share it show what all of them need.

    Args:
        data: one row per `model` ("trained", "untrained"), `block` and `head`; with `low` and `high` the first
            model's dots of "distance_px" carry their interval.
        column: which distance.
        uniform: distance of a head that looks everywhere alike, drawn as a dashed grey line.
        image_px: side of the images, for the label of the axis.
        local: distance below which a head is called local, drawn as a dotted line.
        legend: whether it stands above the axes.

    Raises:
        ValueError: it is of another model than "trained" and "untrained".

    >>> rows = [{"model": "trained", "block": k, "head": 1, "distance_px": 9.0 * k} for k in (1, 2)]
    >>> plot_attention_distances(pd.DataFrame(rows), image_px=64).get_ylabel()
    'mean attention distance (px of 64)'
    """
    if not set(data["model"]) <= set(MODELS):
        raise ValueError(f"data is of model {sorted(set(data['model']))}, expected {' or '.join(MODELS)}")
    ax = ax or plt.gca()
    shown = [*data[column], *(line for line in (uniform, local) if line is not None)]
    if uniform is not None:
        paper_line(ax, uniform, "uniform attention")
    if local is not None:
        ax.axhline(local, color=COLOURS["green"], linestyle=":", linewidth=1.6, label="local: below this", zorder=1)
    for model, group in data.groupby("model", sort=False):
        colour, marker, _, order = MODELS[model]
        x = _places(group, model)
        if model == "trained" and column == "distance_px" and "low" in group:
            shown += [*group["low"], *group["high"]]
            ax.vlines(x, group["low"], group["high"], color=colour, linewidth=1, alpha=0.6, zorder=order)
        dots = {"s": 26, "color": colour, "marker": marker, "linewidth": 1, "label": f"{model} head", "zorder": order}
        ax.scatter(x, group[column], **dots)
    means = data[data["model"] == "trained"].groupby("block")[column].mean()
    if len(means) > 1:
        x = means.index + MODELS["trained"][2]
        ax.plot(
            x, means, color=MODELS["trained"][0], linewidth=1.2, alpha=0.5, label="mean of the trained heads", zorder=2
        )
    ax.set(xlabel="block (1 = first)", ylabel="mean attention distance" + _of_pixels(image_px))
    ax.set_ylim(*_limits(ax, shown))
    _block_ticks(ax, data["block"].max())
    if legend:
        legend_above(ax)
    return ax


def plot_prefix_mass(data: pd.DataFrame, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Share of the patches' attention that goes to prefix tokens (the class token), per head and block.

    Args:
        data: one row per `model`, `block` and `head` with `prefix_mass`, 0…1.
        legend: whether it stands above the axes.

    >>> rows = [{"model": "trained", "block": 1, "head": 1, "prefix_mass": 0.1}]
    >>> plot_prefix_mass(pd.DataFrame(rows)).get_ylabel()
    'attention to the class token'
    """
    ax = ax or plt.gca()
    for model, group in data.groupby("model", sort=False):
        colour, marker, _, order = MODELS[model]
        x, label = _places(group, model), f"{model} head"
        ax.scatter(x, group["prefix_mass"], s=26, color=colour, marker=marker, linewidth=1, label=label, zorder=order)
    ax.set(xlabel="block (1 = first)", ylabel="attention to the class token")
    ax.set_ylim(bottom=0)
    _block_ticks(ax, data["block"].max())
    if legend:
        legend_above(ax)
    return ax


def plot_query_attention(
    image: Float[np.ndarray, "height width 3"],
    attention: Float[np.ndarray, "rows cols"] | None = None,
    query: tuple[int, int] = (0, 0),
    ax: Axes | None = None,
    *,
    grid: tuple[int, int] | None = None,
) -> Axes:
    """One head's attention of one query patch, as a glow over the dark grey image; the query is framed twice.

    The glow's opacity is the square root of attention over its maximum, so that weak attention shows too. The frames
    are white and red, so that one of them shows on every image.

    Args:
        image: 0…1.
        attention: of the query to every patch; None shows the image itself, cut by `grid`.
        query: row and column of the query patch.

    >>> ax = plot_query_attention(np.zeros((4, 4, 3)), np.ones((2, 2)) / 4, (1, 0), plt.figure().gca())
    >>> ax.patches[0].get_xy()
    (-0.5, 1.5)
    """
    ax = ax or plt.gca()
    height, width = image.shape[:2]
    rows, cols = attention.shape if attention is not None else grid or (1, 1)
    if attention is None:
        ax.imshow(image)
    else:
        ax.imshow(_DIMMED * image.mean(-1), cmap="gray", vmin=0, vmax=1)
        glow = np.empty((rows, cols, 4))
        glow[..., :3] = to_rgb(_GLOW)
        glow[..., 3] = np.sqrt(attention / max(float(attention.max()), 1e-12))
        ax.imshow(glow, extent=(-0.5, width - 0.5, height - 0.5, -0.5), interpolation="nearest")
    mark_patch(ax, query, (width / cols, height / rows))
    ax.set_axis_off()
    return ax


def mark_patch(
    ax: Axes,
    patch: tuple[int, int],
    size: tuple[float, float] = (1.0, 1.0),
    origin: tuple[float, float] = (-0.5, -0.5),
) -> None:
    """A white and a red frame around a patch (row, column) of an image whose patches are `size` wide and high.

    `origin` is where the image begins: for `imshow` half a pixel before 0.
    """
    corner = (origin[0] + patch[1] * size[0], origin[1] + patch[0] * size[1])
    for colour, width in (("white", 3.6), (COLOURS["vermilion"], 1.8)):
        frame = Rectangle(corner, *size, fill=False, color=colour, linewidth=width, clip_on=False, zorder=4)
        ax.add_patch(frame)


def legend_above(ax: Axes) -> None:
    """A legend over the axes, where no dot can lie under it."""
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, handletextpad=0.3, columnspacing=1)


def legend_below(axes: Sequence[Axes] | np.ndarray) -> None:
    """One legend under a figure, with every line and marker that any of its axes has."""
    entries: dict[str, Artist] = {}
    for ax in np.ravel(np.asarray(axes, dtype=object)):
        entries |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    options = {"loc": "outside lower center", "ncols": 5, "handletextpad": 0.4, "columnspacing": 1.4}
    figure.legend(list(entries.values()), list(entries), **options)


def _places(group: pd.DataFrame, model: str) -> pd.Series:
    """Where the dots of a model stand on the axis of blocks: heads side by side, in the order of their numbers."""
    heads = group["head"]
    within = (heads - heads.min()) / max(1, heads.max() - heads.min()) - 0.5
    return group["block"] + MODELS[model][2] + _SPREAD * within


def _of_pixels(image_px: int | None) -> str:
    return " (px)" if image_px is None else f" (px of {image_px})"


def _block_ticks(ax: Axes, depth: int | np.integer) -> None:
    """Every block's number where there is room for it."""
    if depth <= 12:
        ax.set_xticks(range(1, depth + 1))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _limits(ax: Axes, shown: Sequence[float]) -> tuple[float, float]:
    """From 0, or where everything lies in the upper half, from a little below it; with what shares the axis."""
    low, high = min(shown), max(shown)
    bottom = 0.0 if low < high / 2 else max(0.0, low - 0.2 * (high - low) - 0.01 * high)
    top = high + 0.08 * (high - bottom)
    others = [other for other in ax.get_shared_y_axes().get_siblings(ax) if other is not ax and other.has_data()]
    return min([bottom, *(other.get_ylim()[0] for other in others)]), max([top, *(o.get_ylim()[1] for o in others)])
