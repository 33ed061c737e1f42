"""Pictures and bars: images and their patches, the model, its cost, mistakes, verdicts, saved figures (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from vitlab.plots.style import COLOURS, MUTED, bare, in_notebook, legend_above, show_still

Picture = UInt8[np.ndarray, "height width 3"]
VERDICTS = {  # verdict → colour and marker: the shape says it too
    "reproduced": (COLOURS["green"], "o"),
    "partly reproduced": (COLOURS["orange"], "^"),
    "not reproduced": (COLOURS["vermilion"], "X"),
    "inconclusive": (COLOURS["purple"], "D"),
}


def tile(tiles: np.ndarray, gap: int, fill: float = 255) -> np.ndarray:
    """Lay tiles [rows, columns, H, W, …] out as one picture [H2, W2, …], `gap` pixels of `fill` between them."""
    padding = [(0, 0), (0, 0), (0, gap), (0, gap)] + [(0, 0)] * (tiles.ndim - 4)
    padded = np.moveaxis(np.pad(tiles, padding, constant_values=fill), 2, 1)
    rows, height, columns, width = padded.shape[:4]
    whole = padded.reshape(rows * height, columns * width, *padded.shape[4:])
    return whole[: rows * height - gap, : columns * width - gap]


def plot_grid(image: Picture, n_patches: int, ax: Axes, numbered: bool = False) -> Axes:
    """Draw the image and the lines that cut it, `n_patches` patches a side; their places in the sequence (§3.1)."""
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    look = {"color": "white", "linewidth": min(1.0, 12 / n_patches)}
    ax.vlines(np.linspace(0, width, n_patches + 1)[1:-1], 0, height, **look)
    ax.hlines(np.linspace(0, height, n_patches + 1)[1:-1], 0, width, **look)
    if numbered:
        for n, (row, column) in enumerate(np.ndindex(n_patches, n_patches), 1):
            x, y = (column + 0.1) * width / n_patches, (row + 0.1) * height / n_patches
            ax.text(x, y, n, fontsize=9, va="top", bbox=dict(facecolor="white", alpha=0.75, edgecolor="none", pad=1))
    ax.set_axis_off()
    return ax


def plot_corruption(picture: Picture, plan: Int[np.ndarray, " N"], ax: Axes) -> Axes:
    """Draw a picture whose patches that were corrupted, but not by the mask, are framed (App. B.1.2).

    `plan` has a number for each patch, row by row: −1 where it is kept, N for the mask, else of the patch in its place.
    """
    height, width = picture.shape[:2]
    side = round((height * width / len(plan)) ** 0.5)
    ax.imshow(picture)
    for number, source in enumerate(plan):
        if source not in (-1, len(plan)):
            row, column = divmod(number, width // side)
            colour = COLOURS["sky" if source == number else "vermilion"]
            ax.add_patch(Rectangle((column * side - 0.5, row * side - 0.5), side, side, fill=False, color=colour, lw=2))
    ax.plot([], [], color=MUTED, marker="s", linestyle="", markersize=9, label="mask")
    ax.plot([], [], color=COLOURS["vermilion"], label="another patch")
    ax.plot([], [], color=COLOURS["sky"], label="itself")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=9)
    ax.set_axis_off()
    return ax


def plot_pictures(rows: Mapping[str, Sequence[Picture] | np.ndarray], ax: Axes) -> Axes:
    """Draw rows of small pictures of one size in one axes, each row with its name at the left."""
    height, width = next(iter(rows.values()))[0].shape[:2]
    gap = max(1, height // 8)
    sheet = np.full((len(rows), max(map(len, rows.values())), height, width, 3), 255, np.uint8)
    for down, pictures in enumerate(rows.values()):
        sheet[down, : len(pictures)] = pictures
    ax.imshow(tile(sheet, gap))
    bare(ax)
    ax.set_yticks((height + gap) * np.arange(len(rows)) + (height - 1) / 2, list(rows))
    return ax


def plot_scenes(
    images: UInt8[np.ndarray, "R C H W 3"], masks: Bool[np.ndarray, "R C H W"], row_labels: Sequence[str], ax: Axes
) -> Axes:
    """Draw rows of images, the labelled object of each outlined by its mask."""
    plot_pictures(dict(zip(row_labels, images, strict=True)), ax)
    outlines = tile(masks.astype(np.uint8), max(1, images.shape[2] // 8), 0)
    ax.contour(outlines, levels=[0.5], colors="white", linewidths=2.2)
    ax.contour(outlines, levels=[0.5], colors="black", linewidths=0.9)
    return ax


def plot_model(image: Picture, patch_size: int, tokens: Float[np.ndarray, "T d"], answer: str, ax: Axes) -> Axes:
    """Draw the whole model, after Fig. 1: image, ≤ 16 patches, what enters the encoder as colours, answer."""
    count = len(tokens) - 1
    at = 4.6 + 0.95 * np.arange(count + 1)  # the places of the tokens along the x axis

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        ax.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color="#444444", lw=1.1))

    def box(x: float, y: float, width: float, height: float, colour: str) -> None:
        shape = "round,pad=0,rounding_size=0.15"
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor=colour, edgecolor="#888888"))

    ax.imshow(image, extent=(0, 2.4, 3.1, 5.5))
    ax.text(2.55, 5.5, "image", va="top")
    arrow((1.2, 3.0), (1.2, 2.65))
    rows, cols = (side // patch_size for side in image.shape[:2])
    patches = image.reshape(rows, patch_size, cols, patch_size, 3).swapaxes(1, 2)
    ax.imshow(tile(patches, gap=max(1, patch_size // 6)), extent=(0, 2.5, 0.05, 2.55))
    ax.text(1.25, -0.15, f"{count} patches", ha="center", va="top")
    arrow((2.65, 0.55), (4.9, 0.55))
    for x, patch in zip(at[1:], patches.reshape(count, patch_size, patch_size, 3), strict=True):
        ax.imshow(patch, extent=(x - 0.39, x + 0.39, 0.15, 0.93))
        arrow((x, 1.0), (x, 1.45))
    limit = np.abs(tokens).max()
    for x, token in zip(at, tokens, strict=True):
        extent = (x - 0.17, x + 0.17, 1.55, 2.75)
        ax.imshow(token[:, None], extent=extent, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        arrow((x, 2.8), (x, 3.3))
    ax.text(at[0] - 0.35, 2.15, "class\ntoken", ha="right", va="center")
    ax.text(at[1] - 0.4, -0.15, "row by row; above, their tokens: E · patch + position", va="top")
    box(at[0] - 0.5, 3.35, at[-1] - at[0] + 1.0, 1.0, "#D6EAF8")
    block = "encoder, L times:   z + attention(norm z)   →   z + MLP(norm z)"
    ax.text((at[0] + at[-1]) / 2, 3.85, block, ha="center", va="center")
    arrow((at[0], 4.4), (at[0], 4.85))
    box(at[0] - 0.5, 4.9, 1.6, 0.62, "#FBE5B8")
    ax.text(at[0] + 0.3, 5.21, "head", ha="center", va="center")
    arrow((at[0] + 1.15, 5.21), (at[0] + 1.75, 5.21))
    ax.text(at[0] + 1.9, 5.21, answer, va="center", weight="bold")
    ax.set(xlim=(-0.1, at[-1] + 0.6), ylim=(-0.7, 5.6), aspect="equal")
    ax.set_axis_off()
    return ax


def plot_verdicts(data: pd.DataFrame, ax: Axes, n_columns: int = 3) -> Axes:
    """Draw a square for each claim in its verdict's colour, its name next to it. Columns: claim, short, verdict."""
    n_rows = -(-len(data) // n_columns)
    column, row = np.divmod(np.arange(len(data)), n_rows)
    for verdict, (colour, marker) in VERDICTS.items():
        here = (data["verdict"] == verdict).to_numpy()
        ax.plot(column[here], row[here], "s", color=colour, ms=13, label=verdict if here.any() else None)
        ax.plot(column[here], row[here], marker, color="white", ms=5)
    for x, y, claim, short in zip(column, row, data["claim"], data["short"], strict=True):
        ax.text(x + 0.06, y, f"{claim} {short}", va="center", fontsize=8.5)
    ax.set(xlim=(-0.1, n_columns), ylim=(n_rows - 0.5, -0.5))
    ax.set_axis_off()
    ax.legend(ncols=len(VERDICTS), loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.2)
    return ax


def plot_probabilities(
    names: Sequence[str], seen: Float[np.ndarray, " K"], left: Float[np.ndarray, " K"], ax: Axes
) -> Axes:
    """Draw a model's probabilities (0…1) with the whole picture and with patches hidden, two bars a class."""
    shares = pd.DataFrame({"everything seen": 100 * seen, "patches hidden": 100 * left}, index=names)
    shares.plot.barh(ax=ax, width=0.76, color=[MUTED, COLOURS["blue"]])
    for bars in ax.containers:
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    ax.set(xlabel="probability (%)", xlim=(0, 118))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    legend_above(ax)
    return ax


def show_pictures(pictures: Mapping[str, Path]) -> None:
    """Show picture files in a notebook, one under the other, each under its title."""
    if in_notebook():
        from IPython.display import Markdown, display

        for title, path in pictures.items():
            display(Markdown(f"**{title}**"))
            show_still(path.read_bytes(), title)
