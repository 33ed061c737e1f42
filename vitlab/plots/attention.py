"""Attention: its distance by block and while training, on its image, of all heads, as rollout (Fig. 6, 7 right, 14)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vitlab.plots.curves import plot_curves
from vitlab.plots.pictures import tile
from vitlab.plots.style import COLOURS, LOOKS, MUTED, REFERENCE, accuracy_axis, bare

MODELS = {  # model → colour, marker, offset from the block's number, order of drawing
    "trained": (COLOURS["blue"], "o", -0.12, 3),
    "untrained": (MUTED, "x", 0.24, 2),
}
OBJECTIVES = {"masked": (COLOURS["blue"], "o"), "labels": (COLOURS["vermilion"], "s")}
Picture = Float[np.ndarray, "height width 3"]  # 0…1
Patch = tuple[int, int]  # row and column


def plot_attention_distances(
    data: pd.DataFrame,
    ax: Axes,
    *,
    column: str = "distance_px",
    image_px: int,
    uniform: float,
    local: float | None = None,
) -> Axes:
    """Draw a dot per head, its mean attention distance in pixels (of `image_px`), over its block (Fig. 7 right).

    A row for each `model` ("trained", "untrained"), `block` and `head`; `low` and `high` are intervals of the trained
    dots of "distance_px". Lines: the distance of `uniform` attention, and that below which a head is called `local`.
    """
    shown = [*data[column], uniform]
    ax.axhline(uniform, label="uniform attention", **REFERENCE)
    if local is not None:
        ax.axhline(local, color=COLOURS["green"], linestyle=":", linewidth=1.6, label="local: below this", zorder=1)
    trained, (colour, _, offset, _) = data[data["model"] == "trained"], MODELS["trained"]
    if column == "distance_px" and "low" in data:
        shown += [*trained["low"], *trained["high"]]
        ax.vlines(_places(trained), trained["low"], trained["high"], colour, linewidth=1, alpha=0.6)
    plot_by_block(data, column, ax)
    means = trained.groupby("block")[column].mean()
    ax.plot(means.index + offset, means, color=colour, linewidth=1.2, alpha=0.5, label="mean of the trained heads")
    ax.set_ylabel(f"mean attention distance (px of {image_px})")
    ax.set_ylim(0, max(1.08 * max(shown), ax.get_ylim()[1]))  # axes that share it show what both need
    return ax


def plot_by_block(data: pd.DataFrame, column: str, ax: Axes) -> Axes:
    """Draw a dot per head, its `column`, over its block's number: a row for each `model`, `block` and `head`."""
    for model, group in data.groupby("model", sort=False):
        colour, marker, _, order = MODELS[model]
        look = {"color": colour, "marker": marker, "linewidth": 1, "s": 26, "zorder": order}
        ax.scatter(_places(group), group[column], label=f"{model} head", **look)
    ax.set_xlabel("block (1 = first)")
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    return ax


def _places(group: pd.DataFrame) -> pd.Series:
    """Return where a model's dots stand on the axis of blocks: heads side by side, so that none hides another."""
    heads = group["head"]
    within = (heads - heads.min()) / max(1, heads.max() - heads.min()) - 0.5
    return group["block"] + group["model"].map({model: look[2] for model, look in MODELS.items()}) + 0.2 * within


def plot_heads(
    heads: pd.DataFrame, ax: Axes, *, uniform: float, limit: float, image_px: int, at: float | None = None
) -> Axes:
    """Draw heads by their `distance_px`, a colour for each block: a dot over the block's number, as in Fig. 7 right.

    With several values of samples it is a line over the images seen, where `at` marks a moment. Lines show `uniform`
    attention's distance and the `limit` below which a head is local (px).
    """
    ax.axhline(uniform, label="uniform attention", **REFERENCE)
    ax.axhline(limit, color=MUTED, linestyle=":", linewidth=1.2, label="limit of local heads")
    ax.set(ylabel=f"attention distance (px of {image_px})", ylim=(0, 1.25 * uniform))
    blocks = list(zip(heads.groupby("block"), cycle(LOOKS)))
    if "samples" not in heads or heads["samples"].nunique() == 1:
        for (block, rows), (colour, marker) in blocks:
            spread = np.linspace(-0.12, 0.12, len(rows))
            ax.scatter(block + spread, rows["distance_px"], s=26, color=colour, marker=marker, zorder=3)
        ax.set(xlabel="block (1 = first)", xlim=(0.5, heads["block"].max() + 0.5))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        return ax
    for (block, rows), (colour, marker) in blocks:
        lines = rows.pivot(index="samples", columns="head", values="distance_px")
        look = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 1.2}
        ax.plot(lines.index / 1000, lines, **look, label=[f"block {block:.0f}"] + [None] * (lines.shape[1] - 1))
    if at is not None:
        ax.axvline(at / 1000, color=COLOURS["black"], linewidth=1)
    ax.set(xlabel="training images seen (thousands)", xlim=(0, heads["samples"].max() / 1000))
    ax.legend(fontsize=9, loc="lower left", ncols=2, frameon=True, framealpha=0.9, edgecolor="none")
    return ax


def plot_by_samples(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the share of "local" heads (0…1) by images seen (samples), for each objective (§4.6)."""
    rows = table.assign(thousands=table["samples"] / 1000)
    plot_curves(rows, ax, x="thousands", y="local", hue="objective", looks=OBJECTIVES, bounds=(0, np.inf))
    ax.set(xlabel="training images seen (thousands)", xlim=(0, rows["thousands"].max()))
    ax.set_ylim(-0.02, min(1.02, max(0.3, 1.25 * table["local"].max())))
    accuracy_axis(ax, "local heads (% of all)")
    ax.legend(fontsize=9)
    return ax


def mark_patch(ax: Axes, patch: Patch, size=(1.0, 1.0)) -> None:
    """Frame a patch, `size` pixels wide and high, in white and red."""
    corner = (patch[1] * size[0] - 0.5, patch[0] * size[1] - 0.5)
    for colour, width in (("white", 3.6), (COLOURS["vermilion"], 1.8)):
        ax.add_patch(Rectangle(corner, *size, fill=False, color=colour, linewidth=width, clip_on=False, zorder=4))


def plot_head_maps(
    maps: Float[np.ndarray, "heads blocks rows cols"],
    ax: Axes,
    *,
    query: Patch | None = None,
    blocks: Sequence[int] = (),
    aspect: float = 1.0,
) -> Axes:
    """Draw the attention from `query`, which is framed, in every head: `blocks` across, heads down (Fig. 6).

    Every map has its own maximum; colours follow the square root of attention, without a query attention itself.
    """
    n_heads, n_blocks, rows, cols = maps.shape
    gap = max(1, min(rows, cols) // 8)
    shares = maps / maps.max(axis=(2, 3), keepdims=True).clip(1e-12)
    colours = shares if query is None else np.sqrt(shares)
    ax.imshow(tile(colours, gap, np.nan), vmin=0, vmax=1, cmap="viridis", aspect=aspect)
    bare(ax)
    if query is not None:
        for head, block in np.ndindex(n_heads, n_blocks):
            corner = (block * (cols + gap) + query[1] - 0.5, head * (rows + gap) + query[0] - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, fill=False, color=COLOURS["vermilion"], linewidth=1))
        ax.set_xticks((cols + gap) * np.arange(n_blocks) + (cols - 1) / 2, blocks)
        ax.set_yticks((rows + gap) * np.arange(n_heads) + (rows - 1) / 2, range(1, n_heads + 1))
        ax.set(xlabel="block", ylabel="head")
    return ax
