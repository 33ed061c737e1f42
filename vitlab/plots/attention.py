"""Attention distance per head and depth, attention drawn on images, and mass on objects (Fig. 6, 7 right, 11, 14)."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vitlab.plots.style import COLOURS, MUTED, paper_line

_GLOW = "#F0E442"  # the palette's yellow: too light for lines, good over grey
_MODELS = {  # model → colour, marker, offset from the block's number, order of drawing
    "trained": (COLOURS["blue"], "o", -0.12, 3),
    "untrained": (MUTED, "x", 0.18, 2),
}


def plot_attention_distances(
    data: pd.DataFrame,
    ax: Axes | None = None,
    *,
    column: str = "distance_px",
    uniform: float | None = None,
    image_px: int | None = None,
) -> Axes:
    """Fig. 7 right: one dot per head, its mean attention distance in pixels over the number of its block.

    Args:
        data: one row per `model` ("trained", "untrained"), `block` and `head`; with `low` and `high` the first
            model's dots of "distance_px" carry their interval.
        column: which distance.
        uniform: distance of a head that looks everywhere alike, drawn as a dashed grey line.
        image_px: side of the images, for the label of the axis.

    >>> rows = [{"model": "trained", "block": k, "head": 1, "distance_px": 9.0 * k} for k in (1, 2)]
    >>> plot_attention_distances(pd.DataFrame(rows), image_px=64).get_ylabel()
    'mean attention distance (px of 64)'
    """
    ax = ax or plt.gca()
    if uniform is not None:
        paper_line(ax, uniform, "uniform attention")
    largest = data[column].max()
    for model, group in data.groupby("model", sort=False):
        colour, marker, offset, order = _MODELS[model]
        x = group["block"] + offset
        if model == "trained" and column == "distance_px" and "low" in group:
            largest = max(largest, group["high"].max())
            ax.vlines(x, group["low"], group["high"], color=colour, linewidth=1, alpha=0.6, zorder=order)
        ax.scatter(x, group[column], s=26, color=colour, marker=marker, linewidth=1, label=model, zorder=order)
    ax.set(xlabel="block (1 = first)", ylabel="mean attention distance" + _of_pixels(image_px))
    ax.set_ylim(bottom=0, top=_upper_limit(largest, uniform))
    _block_ticks(ax, data["block"].max())
    _legend_above(ax)
    return ax


def plot_prefix_mass(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Share of the patches' attention that goes to prefix tokens (the class token), per head and block.

    Args:
        data: one row per `model`, `block` and `head` with `prefix_mass`, 0…1.

    >>> rows = [{"model": "trained", "block": 1, "head": 1, "prefix_mass": 0.1}]
    >>> plot_prefix_mass(pd.DataFrame(rows)).get_ylabel()
    'attention to the class token'
    """
    ax = ax or plt.gca()
    for model, group in data.groupby("model", sort=False):
        colour, marker, offset, order = _MODELS[model]
        x = group["block"] + offset
        ax.scatter(x, group["prefix_mass"], s=26, color=colour, marker=marker, linewidth=1, label=model, zorder=order)
    ax.set(xlabel="block (1 = first)", ylabel="attention to the class token")
    ax.set_ylim(bottom=0)
    _block_ticks(ax, data["block"].max())
    _legend_above(ax)
    return ax


def plot_query_attention(
    image: Float[np.ndarray, "height width 3"],
    attention: Float[np.ndarray, "rows cols"] | None = None,
    query: tuple[int, int] = (0, 0),
    ax: Axes | None = None,
    *,
    grid: tuple[int, int] | None = None,
) -> Axes:
    """One head's attention of one query patch, as a glow over the greyed image; the query is framed.

    The glow's opacity is the square root of attention over its maximum, so that weak attention shows too.

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
        ax.imshow(0.7 * image.mean(-1), cmap="gray", vmin=0, vmax=1)
        glow = np.empty((rows, cols, 4))
        glow[..., :3] = to_rgb(_GLOW)
        glow[..., 3] = np.sqrt(attention / max(float(attention.max()), 1e-12))
        ax.imshow(glow, extent=(-0.5, width - 0.5, height - 0.5, -0.5), interpolation="nearest")
    corner = (query[1] * width / cols - 0.5, query[0] * height / rows - 0.5)
    ax.add_patch(Rectangle(corner, width / cols, height / rows, fill=False, color=COLOURS["vermilion"], linewidth=2))
    ax.set_axis_off()
    return ax


def plot_overlay(
    image: Float[np.ndarray, "height width 3"],
    weight: Float[np.ndarray, "height width"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Fig. 6: the image multiplied by a weight 0…1 per pixel, so that what is not attended to is dark.

    >>> ax = plot_overlay(np.ones((2, 2, 3)), np.full((2, 2), 0.5), plt.figure().gca())
    >>> ax.images[0].get_array().max().item()
    0.5
    """
    ax = ax or plt.gca()
    ax.imshow(np.clip(image if weight is None else image * weight[..., None], 0, 1), interpolation="nearest")
    ax.set_axis_off()
    return ax


def plot_overlay_rows(
    images: Float[np.ndarray, "B height width 3"],
    rows: dict[str, Float[np.ndarray, "B height width"]],
    axes: np.ndarray,
    masks: Bool[np.ndarray, "B height width"] | None = None,
) -> np.ndarray:
    """Fig. 14: the images in the first row of axes, below them one row of overlays per entry of `rows`.

    Args:
        axes: [1 + rows, B], as of `plt.subplots(..., squeeze=False)`.
        masks: objects to be outlined in the first row.

    >>> _, axes = plt.subplots(2, 1, squeeze=False)
    >>> plot_overlay_rows(np.ones((1, 2, 2, 3)), {"rollout": np.ones((1, 2, 2))}, axes).shape
    (2, 1)
    """
    for row, (label, weights) in enumerate({"input": None, **rows}.items()):
        for column, image in enumerate(images):
            ax = plot_overlay(image, None if weights is None else weights[column], axes[row, column])
            if row == 0 and masks is not None and masks[column].any() and not masks[column].all():
                ax.contour(masks[column], levels=[0.5], colors="white", linewidths=1.5)
        first = axes[row, 0]
        first.text(-0.06, 0.5, label, transform=first.transAxes, rotation=90, ha="right", va="center")
    return axes


def plot_overlays_beside(
    images: Float[np.ndarray, "B height width 3"],
    methods: dict[str, Float[np.ndarray, "B height width"]],
    axes: np.ndarray,
) -> np.ndarray:
    """Fig. 6: each image in a row of its own, and beside it one overlay per method, named above the first row.

    Args:
        axes: [B, 1 + methods], as of `plt.subplots(..., squeeze=False)`.

    >>> _, axes = plt.subplots(1, 2, squeeze=False)
    >>> plot_overlays_beside(np.ones((1, 2, 2, 3)), {"rollout": np.ones((1, 2, 2))}, axes)[0, 1].get_title()
    'rollout'
    """
    for column, (label, weights) in enumerate({"input": None, **methods}.items()):
        for row, image in enumerate(images):
            plot_overlay(image, None if weights is None else weights[row], axes[row, column])
        axes[0, column].set_title(label, fontsize=10)
    return axes


def plot_maps_compared(
    right: Float[np.ndarray, "rows cols"], wrong: Float[np.ndarray, "rows cols"], axes: np.ndarray
) -> np.ndarray:
    """Two maps over patches, each divided by its maximum, and their difference on a scale around 0.

    Args:
        axes: three in a row.

    >>> _, axes = plt.subplots(1, 3)
    >>> plot_maps_compared(np.eye(2), np.ones((2, 2)), axes)[2].get_title()
    'difference ±1.00'
    """
    right, wrong = right / right.max(), wrong / wrong.max()
    largest = max(float(np.abs(wrong - right).max()), 1e-6)
    axes[0].imshow(right, vmin=0, vmax=1)
    axes[1].imshow(wrong, vmin=0, vmax=1)
    axes[2].imshow(wrong - right, cmap="RdBu_r", vmin=-largest, vmax=largest)
    for ax, title in zip(axes, ("right", "wrong", f"difference ±{largest:.2f}"), strict=True):
        ax.set_title(title)
        ax.set_axis_off()
    return axes


def plot_mass_against_area(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Share of a map's mass inside the object over the object's share of the image, one dot per image.

    On the dashed line lie maps that know nothing of the object.

    Args:
        data: one row per `model` and image, with `mass` and `area`, 0…1.

    >>> rows = [{"model": "trained", "mass": 0.5, "area": 0.2}]
    >>> plot_mass_against_area(pd.DataFrame(rows)).get_xlabel()
    'share of the image that is object'
    """
    ax = ax or plt.gca()
    right, top = 1.05 * data["area"].max(), 1.05 * max(data["mass"].max(), data["area"].max())
    ax.plot([0, right], [0, right], color=MUTED, linestyle="--", linewidth=1.2, label="mass = area")
    for model, group in list(data.groupby("model", sort=False))[::-1]:
        colour, marker, _, order = _MODELS[model]
        ax.scatter(
            group["area"], group["mass"], s=14, color=colour, marker=marker, linewidth=0.8, alpha=0.6,
            label=model, zorder=order,
        )  # fmt: skip
    ax.set(xlabel="share of the image that is object", ylabel="share of rollout mass on it")
    ax.set(xlim=(0, right), ylim=(0, top))
    _legend_above(ax)
    return ax


def plot_comparisons(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Means with their intervals, one line each from the top down; on the zero line there is no difference.

    Args:
        data: `what`, `mean`, `low`, `high`, in shares; drawn in percentage points.

    >>> rows = [{"what": "trained", "mean": 0.1, "low": 0.05, "high": 0.15}]
    >>> [label.get_text() for label in plot_comparisons(pd.DataFrame(rows)).get_yticklabels()]
    ['trained']
    """
    ax = ax or plt.gca()
    y = np.arange(len(data))[::-1]
    mean = 100 * data["mean"].to_numpy()
    sides = np.abs(100 * data[["low", "high"]].to_numpy().T - mean)
    ax.axvline(0, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    ax.errorbar(mean, y, xerr=sides, fmt="o", color=COLOURS["blue"], capsize=3, linewidth=1.6, zorder=3)
    ax.set_yticks(y, data["what"])
    ax.set_ylim(-0.6, len(data) - 0.4)
    ax.set_xlabel("mass − area (percentage points)")
    return ax


def _of_pixels(image_px: int | None) -> str:
    return " (px)" if image_px is None else f" (px of {image_px})"


def _block_ticks(ax: Axes, depth: int | np.integer) -> None:
    """Every block's number where there is room for it."""
    if depth <= 12:
        ax.set_xticks(range(1, depth + 1))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _upper_limit(largest: float, uniform: float | None) -> float:
    return 1.08 * max(largest, uniform or 0.0)


def _legend_above(ax: Axes) -> None:
    """A legend over the axes, where no dot can lie under it."""
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, handletextpad=0.3, columnspacing=1)
