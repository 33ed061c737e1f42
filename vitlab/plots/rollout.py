"""Rollout drawn on images, variants and mistakes side by side, and the mass on objects (Fig. 6, 14, App. D.8)."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from vitlab.plots.attention import MODELS, legend_above, mark_patch
from vitlab.plots.style import COLOURS, MUTED


def plot_overlay(
    image: Float[np.ndarray, "height width 3"],
    weight: Float[np.ndarray, "height width"] | None = None,
    ax: Axes | None = None,
    floor: float = 0.0,
) -> Axes:
    """Fig. 6: the image multiplied by a weight 0…1 per pixel, so that what is not attended to is dark.

    `floor` is the brightness that is left where the weight is 0: the paper's is 0; with more, what is in the dark can
    still be recognized.

    >>> ax = plot_overlay(np.ones((2, 2, 3)), np.full((2, 2), 0.5), plt.figure().gca())
    >>> ax.images[0].get_array().max().item()
    0.5
    """
    ax = ax or plt.gca()
    lit = image if weight is None else image * (floor + (1 - floor) * weight[..., None])
    ax.imshow(np.clip(lit, 0, 1), interpolation="nearest")
    ax.set_axis_off()
    return ax


def plot_overlay_rows(
    images: Float[np.ndarray, "B height width 3"],
    rows: dict[str, Float[np.ndarray, "B height width"]],
    axes: np.ndarray,
    masks: Bool[np.ndarray, "B height width"] | None = None,
    floor: float = 0.0,
) -> np.ndarray:
    """Fig. 14: the images in the first row of axes, below them one row of overlays per entry of `rows`.

    Args:
        axes: [1 + rows, B], as of `plt.subplots(..., squeeze=False)`.
        masks: objects to be outlined in every row: where the light should fall.
        floor: brightness of what is not attended to (see `plot_overlay`).

    >>> _, axes = plt.subplots(2, 1, squeeze=False)
    >>> plot_overlay_rows(np.ones((1, 2, 2, 3)), {"rollout": np.ones((1, 2, 2))}, axes).shape
    (2, 1)
    """
    for row, (label, weights) in enumerate({"input": None, **rows}.items()):
        for column, image in enumerate(images):
            ax = plot_overlay(image, None if weights is None else weights[column], axes[row, column], floor)
            if masks is not None and masks[column].any() and not masks[column].all():
                ax.contour(masks[column], levels=[0.5], colors="white", linewidths=1.5 if row == 0 else 0.8)
        first = axes[row, 0]
        first.text(-0.06, 0.5, label, transform=first.transAxes, rotation=90, ha="right", va="center")
    return axes


def plot_overlays_beside(
    images: Float[np.ndarray, "B height width 3"],
    methods: dict[str, Float[np.ndarray, "B height width"]],
    axes: np.ndarray,
    floor: float = 0.0,
) -> np.ndarray:
    """Fig. 6: each image in a row of its own, and beside it one overlay per method, named above the first row.

    Args:
        axes: [B, 1 + methods], as of `plt.subplots(..., squeeze=False)`.
        floor: brightness of what is not attended to (see `plot_overlay`).

    >>> _, axes = plt.subplots(1, 2, squeeze=False)
    >>> plot_overlays_beside(np.ones((1, 2, 2, 3)), {"rollout": np.ones((1, 2, 2))}, axes)[0, 1].get_title()
    'rollout'
    """
    for column, (label, weights) in enumerate({"input": None, **methods}.items()):
        for row, image in enumerate(images):
            plot_overlay(image, None if weights is None else weights[row], axes[row, column], floor)
        axes[0, column].set_title(label, fontsize=10)
    return axes


def plot_maps_compared(
    right: Float[np.ndarray, "rows cols"], wrong: Float[np.ndarray, "rows cols"], axes: np.ndarray
) -> np.ndarray:
    """Two maps over patches, each divided by its maximum, and their difference on a scale around 0.

    The patch where they differ most is framed in all three.

    Args:
        axes: three in a row.

    >>> _, axes = plt.subplots(1, 3)
    >>> plot_maps_compared(np.eye(2), np.ones((2, 2)), axes)[2].get_title()
    'difference ±1.00'
    """
    right, wrong = right / right.max(), wrong / wrong.max()
    difference = np.abs(wrong - right)
    largest, place = max(float(difference.max()), 1e-6), divmod(int(difference.argmax()), difference.shape[1])
    axes[0].imshow(right, vmin=0, vmax=1)
    axes[1].imshow(wrong, vmin=0, vmax=1)
    axes[2].imshow(wrong - right, cmap="RdBu_r", vmin=-largest, vmax=largest)
    for ax, title in zip(axes, ("right", "wrong", f"difference ±{largest:.2f}"), strict=True):
        mark_patch(ax, place)
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
        colour, marker, _, order = MODELS[model]
        ax.scatter(
            group["area"], group["mass"], s=14, color=colour, marker=marker, linewidth=0.8, alpha=0.6,
            label=model, zorder=order,
        )  # fmt: skip
    ax.set(xlabel="share of the image that is object", ylabel="share of rollout mass on it")
    ax.set(xlim=(0, right), ylim=(0, top))
    legend_above(ax)
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
