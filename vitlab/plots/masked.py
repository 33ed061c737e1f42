"""Masked patch prediction drawn: corrupted pictures, heads by block, distances and local heads by views (§4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int, UInt8
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vitlab.plots.style import COLOURS, MUTED, accuracy_axis, axes, paper_line

_BLOCKS = (("blue", "o"), ("vermilion", "s"), ("green", "^"), ("purple", "D"), ("orange", "v"), ("sky", "P"))
_KINDS = (("another patch", "vermilion"), ("itself", "sky"))  # of what takes a corrupted patch's place, beside the mask
_ARMS = {"masked": ("blue", "o"), "labels": ("vermilion", "s")}


def plot_corruption(
    picture: UInt8[np.ndarray, "H W 3"], plan: Int[np.ndarray, " N"], ax: Axes | None = None, legend: bool = False
) -> Axes:
    """A picture with patches framed that were corrupted, but not by the mask: another's in their place, or their own.

    `plan` has a number for each patch, row by row: −1 where it is kept, N for the mask, else of the patch in its place.

    >>> ax = plot_corruption(np.zeros((8, 8, 3), np.uint8), np.array([-1, 4, 2, 1]))  # kept, mask, itself, another
    >>> len(ax.patches)
    2
    """
    ax = axes(ax)
    height, width = picture.shape[:2]
    side = round((height * width / len(plan)) ** 0.5)
    ax.imshow(picture)
    for number, source in enumerate(plan):
        if source in (-1, len(plan)):
            continue
        row, column = divmod(number, width // side)
        colour = COLOURS[_KINDS[int(source == number)][1]]
        corner = (column * side - 0.5, row * side - 0.5)
        ax.add_patch(Rectangle(corner, side, side, fill=False, color=colour, linewidth=2))
    if legend:
        marks = [Line2D([], [], color=COLOURS[colour], label=name) for name, colour in _KINDS]
        grey = Line2D([], [], color=MUTED, marker="s", linestyle="", markersize=9, label="mask")
        ax.legend(handles=[grey, *marks], loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=9)
    ax.set_axis_off()
    return ax


def plot_heads(
    heads: pd.DataFrame, ax: Axes | None = None, *, uniform: float, limit: float, image_px: int, jitter: float = 0.12
) -> Axes:
    """A dot for each head over its block's number, as in Fig. 7 right; below the dotted line a head is local.

    `heads` has columns block and head (from 1) and distance_px; `uniform` is uniform attention's distance (px), `limit`
    that below which a head is local.

    >>> heads = pd.DataFrame({"block": [1, 1], "head": [1, 2], "distance_px": [9.0, 4.0]})
    >>> plot_heads(heads, uniform=16.0, limit=8.0, image_px=32).get_ylabel()
    'attention distance (px of 32)'
    """
    ax = _with_limits(axes(ax), uniform, limit, image_px)
    for block, rows in heads.groupby("block"):
        colour, marker = _BLOCKS[(int(block) - 1) % len(_BLOCKS)]
        spread = np.linspace(-jitter, jitter, len(rows)) if len(rows) > 1 else 0.0
        ax.scatter(block + spread, rows["distance_px"], s=26, color=COLOURS[colour], marker=marker, zorder=3)
    ax.set_xlabel("block (1 = first)")
    ax.set_xlim(0.5, heads["block"].max() + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def _with_limits(ax: Axes, uniform: float, limit: float, image_px: int) -> Axes:
    """An axis of distances, with lines at uniform attention's and at that below which a head is local (px)."""
    paper_line(ax, uniform, "uniform attention")
    ax.axhline(limit, color=MUTED, linestyle=":", linewidth=1.2, label="limit of local heads")
    ax.set_ylabel(f"attention distance (px of {image_px})")
    ax.set_ylim(0, 1.25 * uniform)
    return ax


def plot_distances_by_views(
    heads: pd.DataFrame,
    ax: Axes | None = None,
    *,
    uniform: float,
    limit: float,
    image_px: int,
    at: float | None = None,
) -> Axes:
    """A line for each head of one training: its distance over the views, a colour for each block.

    `heads` has columns samples, block, head and distance_px; `uniform` and `limit` as for `plot_heads`; `at` marks a
    moment (views).
    """
    ax = _with_limits(axes(ax), uniform, limit, image_px)
    for block, rows in heads.groupby("block"):
        colour, marker = _BLOCKS[(int(block) - 1) % len(_BLOCKS)]
        for number, (_, line) in enumerate(rows.groupby("head")):
            label = f"block {block:.0f}" if number == 0 else None
            options = {"color": COLOURS[colour], "marker": marker, "markersize": 3, "linewidth": 1.2}
            ax.plot(line["samples"] / 1000, line["distance_px"], label=label, **options)
    if at is not None:
        ax.axvline(at / 1000, color=COLOURS["black"], linewidth=1)
    ax.set_xlabel("training images seen (thousands)")
    ax.set_xlim(0, heads["samples"].max() / 1000)
    ax.legend(fontsize=9, loc="lower left", ncols=2, frameon=True, framealpha=0.9, edgecolor="none")
    return ax


def plot_local_shares(table: pd.DataFrame, ax: Axes | None = None, by: str = "objective") -> Axes:
    """Share of local heads over the views: a thin line for each seed, the mean over the seeds in full.

    `table` has columns samples, seed, local (0…1) and the one named `by`, for each of whose values there is a colour.

    >>> rows = pd.DataFrame({"samples": [0, 9], "seed": 0, "local": [0.0, 0.5], "objective": "masked"})
    >>> len(plot_local_shares(rows).lines)
    2
    """
    ax = axes(ax)
    for number, (name, rows) in enumerate(table.groupby(by, sort=False)):
        colour, marker = _ARMS.get(str(name), _BLOCKS[number % len(_BLOCKS)])
        _seeds_and_mean(ax, rows, "local", COLOURS[colour], marker, f"{name}, mean of the seeds")
    ax.set_xlabel("training images seen (thousands)")
    ax.set_ylim(-0.02, min(1.02, max(0.3, 1.25 * table["local"].max())))
    ax.set_xlim(0, table["samples"].max() / 1000)
    accuracy_axis(ax, "local heads (% of all)")
    ax.legend(fontsize=9)
    return ax


def plot_measure_by_photographs(trainings: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """One measure of position maps by number of training photographs: a dot for each training, and the means.

    `trainings` has columns objective, n_train, value, control_low and control_high; grey is the range of the controls.

    >>> kinds = pd.DataFrame({"objective": ["masked", "labels"], "n_train": 300, "value": [0.5, 0.1]})
    >>> ax = plot_measure_by_photographs(kinds.assign(control_low=-0.1, control_high=0.1))
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['300']
    """
    ax = axes(ax)
    counts = sorted(trainings["n_train"].unique())
    grey = "controls' range"
    for number, (objective, (colour, marker)) in enumerate(_ARMS.items()):
        mine, means = trainings[trainings["objective"] == objective], []
        for n_train, rows in mine.groupby("n_train"):
            place = counts.index(n_train) + (number - 0.5) * 0.36
            low, high = rows["control_low"].min(), rows["control_high"].max()
            ax.bar(place, high - low, 0.3, low, color=MUTED, alpha=0.35, zorder=1, label=grey)
            ax.scatter(np.full(len(rows), place), rows["value"], s=18, color=COLOURS[colour], alpha=0.5, zorder=2)
            means.append((place, rows["value"].mean()))
            grey = ""  # one entry in the legend
        line = {"color": COLOURS[colour], "marker": marker, "label": f"{objective}, mean of the seeds"}
        if means:
            ax.plot(*zip(*means, strict=True), **line)
    ax.axhline(0, color=COLOURS["black"], linewidth=0.8, zorder=1)
    ax.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
    ax.set_xlabel("training photographs")
    ax.grid(axis="x", visible=False)
    return ax


def plot_losses_by_views(table: pd.DataFrame, ax: Axes | None = None, known: Mapping[str, float] | None = None) -> Axes:
    """Loss on held-out images over the views: a thin line for each seed, their mean, and known losses by name.

    `table` has columns samples, seed and loss.

    >>> rows = pd.DataFrame({"samples": [0, 9], "seed": 0, "loss": [6.2, 3.0]})
    >>> len(plot_losses_by_views(rows, known={"ln 512": 6.24}).lines)
    3
    """
    ax = axes(ax)
    for (name, value), line in zip((known or {}).items(), ("--", ":", "-."), strict=False):
        ax.axhline(value, color=MUTED, linestyle=line, linewidth=1.2, label=name, zorder=1)
    _seeds_and_mean(ax, table, "loss", COLOURS["blue"], "o", "mean of the seeds")
    ax.set(xlabel="training images seen (thousands)", ylabel="loss on held-out images")
    ax.set_ylim(0, None)
    ax.set_xlim(0, table["samples"].max() / 1000)
    ax.legend(fontsize=9)
    return ax


def _seeds_and_mean(ax: Axes, rows: pd.DataFrame, column: str, colour: str, marker: str, label: str) -> None:
    """A thin line for each seed over the views, and their mean in full."""
    for _, run in rows.groupby("seed"):
        ax.plot(run["samples"] / 1000, run[column], color=colour, linewidth=0.8, alpha=0.5)
    mean = rows.groupby("samples")[column].mean()
    ax.plot(mean.index / 1000, mean, color=colour, marker=marker, markersize=4, label=label)


def plot_pictures(
    rows: Mapping[str, Sequence[UInt8[np.ndarray, "H W 3"]]], ax: Axes | None = None, gap: int = 0
) -> Axes:
    """Rows of small pictures of one size in one axes, each row under its name at the left.

    >>> ax = plot_pictures({"seen": [np.zeros((8, 8, 3), np.uint8)] * 3})
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['seen']
    """
    ax = axes(ax)
    side = next(iter(rows.values()))[0].shape[0]
    gap = gap or max(1, side // 8)
    step, across = side + gap, max(map(len, rows.values()))
    sheet = np.full((len(rows) * step - gap, across * step - gap, 3), 255, np.uint8)
    for down, pictures in enumerate(rows.values()):
        for right, picture in enumerate(pictures):
            sheet[down * step : down * step + side, right * step : right * step + side] = picture
    ax.imshow(sheet)
    ax.set_xticks([])
    ax.set_yticks([down * step + (side - 1) / 2 for down in range(len(rows))], list(rows))
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def plot_arms(finals: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Test accuracy after fine-tuning: a dot for each seed and the mean of each arm, one line under the other.

    `finals` has columns arm, seed and test_accuracy (0…1).

    >>> ax = plot_arms(pd.DataFrame({"arm": ["scratch", "masked"], "seed": 0, "test_accuracy": [0.5, 0.6]}))
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['scratch', 'masked']
    """
    ax = axes(ax)
    arms = list(dict.fromkeys(finals["arm"]))
    for place, arm in enumerate(arms):
        values = 100 * finals.loc[finals["arm"] == arm, "test_accuracy"]
        colour = COLOURS["blue" if arm.startswith("masked") else "vermilion" if arm != "scratch" else "black"]
        ax.scatter(values, np.full(len(values), place), s=20, color=colour, alpha=0.5)
        ax.plot([values.mean()] * 2, [place - 0.28, place + 0.28], color=colour, linewidth=2.5)
    ax.set_yticks(range(len(arms)), arms)
    ax.set(xlabel="test accuracy after fine-tuning (%)", ylim=(len(arms) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    return ax
