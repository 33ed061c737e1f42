"""Pictures of the model: patches and tokens, parameters, cost, equality (Fig. 1, Table 1)."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from vitlab.plots.style import COLOURS, MUTED, paper_line

_PALE = {"sky": "#D6EAF8", "orange": "#FBE5B8"}
_PARTS = ("green", "orange", "vermilion", "blue", "black", "purple")  # of a model, in the order of parts
_ZERO = 1e-17  # where a difference of exactly zero is drawn on a logarithmic axis


def spread_patches(image: UInt8[np.ndarray, "H W 3"], patch_size: int, gap: int) -> UInt8[np.ndarray, "H2 W2 3"]:
    """The image with `gap` white pixels between its patches.

    Raises:
        ValueError: when not one patch fits into the image, or the gap is negative.

    >>> spread_patches(np.zeros((32, 32, 3), np.uint8), patch_size=16, gap=4).shape
    (36, 36, 3)
    """
    if not 1 <= patch_size <= min(image.shape[:2]) or gap < 0:
        raise ValueError(f"patches of {patch_size} px, {gap} px apart, of an image of shape {list(image.shape)}")
    rows, cols = (side // patch_size for side in image.shape[:2])
    step = patch_size + gap
    spread = np.full((rows * step - gap, cols * step - gap, 3), 255, np.uint8)
    for i in range(rows):
        for j in range(cols):
            patch = image[i * patch_size : (i + 1) * patch_size, j * patch_size : (j + 1) * patch_size]
            spread[i * step : i * step + patch_size, j * step : j * step + patch_size] = patch
    return spread


def plot_patches(
    image: UInt8[np.ndarray, "H W 3"], patch_size: int, ax: Axes | None = None, numbers: bool = True
) -> Axes:
    """The image cut into patches, each with its place in the sequence: row by row (§3.1)."""
    ax = ax or plt.gca()
    gap = max(1, patch_size // 8)
    ax.imshow(spread_patches(image, patch_size, gap), interpolation="nearest")
    rows, cols = (side // patch_size for side in image.shape[:2])
    for n in range(rows * cols if numbers else 0):
        x, y = (k * (patch_size + gap) for k in (n % cols, n // cols))
        label = ax.text(x + 0.08 * patch_size, y + 0.08 * patch_size, n + 1, fontsize=9, ha="left", va="top")
        label.set_bbox(dict(facecolor="white", alpha=0.75, edgecolor="none", pad=1))
    ax.set_axis_off()
    return ax


def plot_model(
    image: UInt8[np.ndarray, "H W 3"],
    patch_size: int,
    tokens: Float[np.ndarray, "T d"],
    answer: str,
    ax: Axes | None = None,
) -> Axes:
    """The whole model, after Fig. 1: image, patches, tokens (class token first, as colours), encoder, answer.

    `tokens` are what enters the encoder; the first `d` of their dimensions are drawn. Room for ≤ 16 patches.
    """
    ax = ax or plt.gca()
    count = len(tokens) - 1
    at = 4.6 + 0.95 * np.arange(count + 1)  # the places of the tokens along the x axis
    side = 0.78
    ax.imshow(image, extent=(0, 2.4, 3.1, 5.5), interpolation="nearest")
    ax.text(2.55, 5.5, "image", va="top")
    _arrow(ax, (1.2, 3.0), (1.2, 2.65))
    spread = spread_patches(image, patch_size, gap=max(1, patch_size // 6))
    ax.imshow(spread, extent=(0, 2.5, 0.05, 2.55), interpolation="nearest")
    ax.text(1.25, -0.15, f"{count} patches", ha="center", va="top")
    _arrow(ax, (2.65, 0.55), (4.9, 0.55))
    cols = image.shape[1] // patch_size
    for n in range(count):
        y, x = (k * patch_size for k in divmod(n, cols))
        patch, left = image[y : y + patch_size, x : x + patch_size], at[n + 1] - side / 2
        ax.imshow(patch, extent=(left, left + side, 0.15, 0.15 + side), interpolation="nearest")
        _arrow(ax, (at[n + 1], 1.0), (at[n + 1], 1.45))
    limit = np.abs(tokens).max()
    for n, token in enumerate(tokens):
        extent = (at[n] - 0.17, at[n] + 0.17, 1.55, 2.75)
        ax.imshow(token[:, None], extent=extent, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        _arrow(ax, (at[n], 2.8), (at[n], 3.3))
    ax.text(at[0] - 0.35, 2.15, "class\ntoken", ha="right", va="center")
    centre = (at[0] + at[-1]) / 2
    ax.text(at[1] - 0.4, -0.15, "row by row; above, their tokens: E · patch + position", va="top")
    _box(ax, (at[0] - 0.5, 3.35, at[-1] - at[0] + 1.0, 1.0), _PALE["sky"])
    block = "encoder, L times:   z + attention(norm z)   →   z + MLP(norm z)"
    ax.text(centre, 3.85, block, ha="center", va="center")
    _arrow(ax, (at[0], 4.4), (at[0], 4.85))
    _box(ax, (at[0] - 0.5, 4.9, 1.6, 0.62), _PALE["orange"])
    ax.text(at[0] + 0.3, 5.21, "head", ha="center", va="center")
    _arrow(ax, (at[0] + 1.15, 5.21), (at[0] + 1.75, 5.21))
    ax.text(at[0] + 1.9, 5.21, answer, va="center", weight="bold")
    ax.set(xlim=(-0.1, at[-1] + 0.6), ylim=(-0.7, 5.6), aspect="equal")
    ax.set_axis_off()
    return ax


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color="#444444", lw=1.1))


def _box(ax: Axes, bounds: tuple[float, float, float, float], colour: str) -> None:
    x, y, width, height = bounds
    style = "round,pad=0,rounding_size=0.15"
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, edgecolor="#888888"))


def plot_parameter_shares(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Share of each part in a model's parameters, a bar per model. Columns: model, part, parameters."""
    ax = ax or plt.gca()
    wide = data.pivot_table(index="model", columns="part", values="parameters", sort=False)
    totals = wide.sum(axis=1)
    left = np.zeros(len(wide))
    for colour, part in zip(_PARTS, wide.columns, strict=True):
        share = 100 * (wide[part] / totals).to_numpy()
        ax.barh(wide.index, share, left=left, color=COLOURS[colour], label=part, height=0.62)
        for y, (start, width) in enumerate(zip(left, share, strict=True)):
            if width > 8:
                ax.text(start + width / 2, y, f"{width:.0f} %", ha="center", va="center", color="white")
        left = left + share
    ax.set_yticks(range(len(wide)), [f"{name}\n{total / 1e6:.1f} M" for name, total in totals.items()])
    ax.set(xlabel="share of the parameters (%)", xlim=(0, 100))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0), handlelength=1.0, columnspacing=1.2)
    return ax


def plot_tokens(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Length of the sequence over the patch size. Columns: patch_size (px), tokens."""
    ax = ax or plt.gca()
    data = data.sort_values("patch_size")
    ax.plot(data.patch_size, data.tokens, marker="o", color=COLOURS["black"])
    _log_axes(ax, data.patch_size)
    ax.set_yticks(data.tokens, [str(count) for count in data.tokens])
    ax.set(xlabel="patch size P (px)", ylabel="tokens in the sequence")
    return ax


def plot_flops(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Work for one image over the patch size, a line per model. Columns: model, patch_size, gflops, paper.

    `paper` (NaN where there is none) is drawn as grey crosses; "model" is the size alone: "ViT-B".
    """
    ax = ax or plt.gca()
    for colour, (model, rows) in zip(COLOURS.values(), data.groupby("model", sort=False), strict=False):
        rows = rows.sort_values("patch_size")
        ax.plot(rows.patch_size, rows.gflops, marker="o", markersize=4, color=colour, label=model)
    known = data.dropna(subset="paper")
    ax.plot(known.patch_size, known.paper, "x", color=MUTED, ms=11, mew=2, label="paper, Table 6")
    _log_axes(ax, data.patch_size)
    ax.set(xlabel="patch size P (px)", ylabel="work for one image (GFLOP)")
    ax.legend()
    return ax


def _log_axes(ax: Axes, patch_sizes: pd.Series) -> None:
    ax.set(xscale="log", yscale="log")
    ticks = sorted(set(patch_sizes))
    ax.set_xticks(ticks, [str(size) for size in ticks])
    ax.minorticks_off()


def plot_differences(data: pd.DataFrame, tolerance: float, ax: Axes | None = None) -> Axes:
    """Largest logit differences, a row per comparison, a dot per draw. Columns: label, control, difference.

    Rows where `control` is true (another model: the difference must show) are drawn in another colour.
    """
    ax = ax or plt.gca()
    labels = list(dict.fromkeys(data.label))
    for control, colour, marker in ((False, COLOURS["blue"], "o"), (True, COLOURS["vermilion"], "D")):
        rows = data[data.control == control]
        x, y = rows.difference.clip(lower=_ZERO), [labels.index(label) for label in rows.label]
        ax.plot(x, y, marker, color=colour, alpha=0.7, ms=6, mec="white", ls="", clip_on=False)
    words = f"tolerance {tolerance:.0e}".replace("e-0", "e-")
    paper_line(ax, tolerance, words, vertical=True)
    ax.set(xscale="log", xlim=(_ZERO, 10), xlabel="largest difference of any logit")
    ax.set_xticks([_ZERO, *(10.0**k for k in range(-15, 1, 3))])
    ax.set_xticklabels(["0", *(f"$10^{{{k}}}$" for k in range(-15, 1, 3))])
    ax.minorticks_off()
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    kinds = [("same model", COLOURS["blue"], "o"), ("one thing changed", COLOURS["vermilion"], "D")]
    handles = [Line2D([], [], color=c, marker=m, ls="", label=name) for name, c, m in kinds]
    handles.append(Line2D([], [], color=MUTED, ls="--", lw=1.2, label=words))
    ax.legend(handles=handles, ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0), handletextpad=0.4)
    return ax
