"""Pictures and bars: images and their patches, the model, its cost, mistakes, verdicts, saved figures (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from vitlab.plots.curves import log_ticks, plot_curves
from vitlab.plots.style import (
    COLOURS,
    MUTED,
    bare,
    drawn,
    encode,
    in_notebook,
    legend_above,
    paper_line,
    show_still,
    style,
)

Picture = UInt8[np.ndarray, "height width 3"]
# verdict → colour and marker: the shape says it too
VERDICTS = {
    "reproduced": (COLOURS["green"], "o"),
    "partly reproduced": (COLOURS["orange"], "^"),
    "not reproduced": (COLOURS["vermilion"], "X"),
    "inconclusive": (COLOURS["purple"], "D"),
    "not yet": ("#B5B5B5", "o"),
}


def tile(tiles: np.ndarray, gap: int, fill: float = 255) -> np.ndarray:
    """Lay tiles [rows, columns, H, W, …] out as one picture [H2, W2, …], `gap` pixels of `fill` between them."""
    padding = [(0, 0), (0, 0), (0, gap), (0, gap)] + [(0, 0)] * (tiles.ndim - 4)
    padded = np.moveaxis(np.pad(tiles, padding, constant_values=fill), 2, 1)
    rows, height, columns, width = padded.shape[:4]
    whole = padded.reshape(rows * height, columns * width, *padded.shape[4:])
    return whole[: rows * height - gap, : columns * width - gap]


def spread_patches(image: Picture, patch_size: int, gap: int) -> UInt8[np.ndarray, "H2 W2 3"]:
    """Return the image with `gap` white pixels between its patches; what does not fill a patch is cut off."""
    rows, cols = (side // patch_size for side in image.shape[:2])
    whole = image[: rows * patch_size, : cols * patch_size]
    return tile(whole.reshape(rows, patch_size, cols, patch_size, 3).swapaxes(1, 2), gap)


def plot_patches(image: Picture, patch_size: int, ax: Axes) -> Axes:
    """Draw the image cut into patches, each with its place in the sequence: row by row (§3.1)."""
    gap = max(1, patch_size // 8)
    ax.imshow(spread_patches(image, patch_size, gap))
    rows, cols = (side // patch_size for side in image.shape[:2])
    for n in range(rows * cols):
        x, y = (k * (patch_size + gap) for k in (n % cols, n // cols))
        label = ax.text(x + 0.08 * patch_size, y + 0.08 * patch_size, n + 1, fontsize=9, ha="left", va="top")
        label.set_bbox(dict(facecolor="white", alpha=0.75, edgecolor="none", pad=1))
    ax.set_axis_off()
    return ax


def plot_grid(image: Picture, n_patches: int, ax: Axes) -> Axes:
    """Draw the image under the lines along which it is cut, `n_patches` patches a side (§3.1)."""
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    look = {"color": "white", "linewidth": min(1.0, 12 / n_patches)}
    ax.vlines(np.linspace(0, width, n_patches + 1)[1:-1], 0, height, **look)
    ax.hlines(np.linspace(0, height, n_patches + 1)[1:-1], 0, width, **look)
    ax.set_axis_off()
    return ax


def plot_corruption(picture: Picture, plan: Int[np.ndarray, " N"], ax: Axes, legend: bool = False) -> Axes:
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
            corner = (column * side - 0.5, row * side - 0.5)
            ax.add_patch(Rectangle(corner, side, side, fill=False, color=colour, linewidth=2))
    if legend:
        ax.plot([], [], color=MUTED, marker="s", linestyle="", markersize=9, label="mask")
        ax.plot([], [], color=COLOURS["vermilion"], label="another patch")
        ax.plot([], [], color=COLOURS["sky"], label="itself")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=9)
    ax.set_axis_off()
    return ax


def plot_pictures(rows: Mapping[str, Sequence[Picture]], ax: Axes, captions: Sequence[str] = ()) -> Axes:
    """Draw rows of small pictures of one size in one axes, each row with its name at the left, captions below."""
    side, across = next(iter(rows.values()))[0].shape[0], max(map(len, rows.values()))
    gap = max(1, side // 8)
    sheet = np.full((len(rows), across, side, side, 3), 255, np.uint8)
    for down, pictures in enumerate(rows.values()):
        sheet[down, : len(pictures)] = pictures
    ax.imshow(tile(sheet, gap))
    bare(ax)
    ax.set_yticks([down * (side + gap) + (side - 1) / 2 for down in range(len(rows))], list(rows))
    ax.set_xticks([i * (side + gap) + (side - 1) / 2 for i in range(len(captions))], captions)
    return ax


def plot_scenes(
    images: UInt8[np.ndarray, "R C H W 3"], masks: Bool[np.ndarray, "R C H W"], row_labels: Sequence[str], ax: Axes
) -> Axes:
    """Draw rows of images, the labelled object of each outlined by its mask."""
    gap = max(1, images.shape[2] // 16)
    ax.imshow(tile(images, gap))
    outlines = tile(masks.astype(np.uint8), gap, 0)
    ax.contour(outlines, levels=[0.5], colors="white", linewidths=2.2)
    ax.contour(outlines, levels=[0.5], colors="black", linewidths=0.9)
    bare(ax)
    step = images.shape[2] + gap
    ax.set_yticks([step * row + images.shape[2] / 2 for row in range(len(images))], row_labels)
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
    spread = spread_patches(image, patch_size, gap=max(1, patch_size // 6))
    ax.imshow(spread, extent=(0, 2.5, 0.05, 2.55))
    ax.text(1.25, -0.15, f"{count} patches", ha="center", va="top")
    arrow((2.65, 0.55), (4.9, 0.55))
    for n in range(count):
        y, x = (k * patch_size for k in divmod(n, image.shape[1] // patch_size))
        extent = (at[n + 1] - 0.39, at[n + 1] + 0.39, 0.15, 0.93)
        ax.imshow(image[y : y + patch_size, x : x + patch_size], extent=extent)
        arrow((at[n + 1], 1.0), (at[n + 1], 1.45))
    limit = np.abs(tokens).max()
    for n, token in enumerate(tokens):
        extent = (at[n] - 0.17, at[n] + 0.17, 1.55, 2.75)
        ax.imshow(token[:, None], extent=extent, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        arrow((at[n], 2.8), (at[n], 3.3))
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


def plot_parameter_shares(data: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the share of each part in a model's parameters, a bar per model. Columns: model, part, parameters."""
    wide = data.pivot_table(index="model", columns="part", values="parameters", sort=False)
    totals, left = wide.sum(axis=1), np.zeros(len(wide))
    for colour, part in zip(("green", "orange", "vermilion", "blue", "black", "purple"), wide.columns, strict=True):
        share = 100 * (wide[part] / totals).to_numpy()
        bars = ax.barh(wide.index, share, left=left, color=COLOURS[colour], label=part, height=0.62)
        words = [f"{width:.0f} %" if width > 8 else "" for width in share]
        ax.bar_label(bars, words, label_type="center", color="white")
        left = left + share
    ax.set_yticks(range(len(wide)), [f"{name}\n{total / 1e6:.1f} M" for name, total in totals.items()])
    ax.set(xlabel="share of the parameters (%)", xlim=(0, 100))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    legend_above(ax)
    return ax


def plot_cost(data: pd.DataFrame, ax: Axes, y: str = "gflops") -> Axes:
    """Draw one image's `y`, gflops or tokens, by patch_size (px), a line for each size of model; paper's in grey."""
    plot_curves(data.assign(size=data["model"]), ax, x="patch_size", y=y, hue="size")
    if y == "gflops":
        known = data.dropna(subset="paper")
        ax.plot(known["patch_size"], known["paper"], "x", color=MUTED, ms=11, mew=2, label="paper, Table 6")
        ax.legend()
    ax.set_yscale("log")
    log_ticks(ax, data["patch_size"])
    if y == "tokens":
        ax.set_yticks(data["tokens"], [str(count) for count in data["tokens"]])
    words = {"gflops": "work for one image (GFLOP)", "tokens": "tokens in the sequence"}
    ax.set(xlabel="patch size P (px)", ylabel=words[y])
    return ax


def plot_patch_costs(table: pd.DataFrame, patch_size: int, ax: Axes) -> Axes:
    """Draw multiply-adds of one image, dense and attention, by patch_size (px), tokens above; one size in colour."""
    places, bottom = np.arange(len(table)), np.zeros(len(table))
    for name, label, colour in (("dense", "dense layers", "blue"), ("attention", "attention", "orange")):
        bars = ax.bar(places, table[name] / 1e9, 0.7, bottom, color=COLOURS[colour], label=label)
        bottom = bottom + table[name].to_numpy() / 1e9
        for bar, size in zip(bars, table["patch_size"], strict=True):
            bar.set_alpha(1.0 if size == patch_size else 0.35)
    ax.bar_label(bars, [f"{n:,}{'' if i else ' tokens'}" for i, n in enumerate(table["tokens"])], fontsize=9)
    ax.set_xticks(places, [str(size) for size in table["patch_size"]])
    ax.set(xlabel="patch size P (px)", ylabel="billion multiply-adds")
    ax.margins(y=0.12)
    ax.grid(axis="x", visible=False)
    ax.legend()
    return ax


def plot_differences(data: pd.DataFrame, tolerance: float, ax: Axes) -> Axes:
    """Draw largest logit differences, a row per label, in another colour where the model is another (control)."""
    least = 1e-17  # where a difference of exactly zero is drawn on a logarithmic axis
    names = list(data["label"].unique())
    looks = {False: ("same model", "o", COLOURS["blue"]), True: ("one thing changed", "D", COLOURS["vermilion"])}
    for control, (name, marker, colour) in looks.items():
        rows = data[data["control"] == control]
        look = {"color": colour, "alpha": 0.7, "markersize": 6, "mec": "white", "clip_on": False, "label": name}
        ax.plot(rows["difference"].clip(lower=least), [names.index(label) for label in rows["label"]], marker, **look)
    paper_line(ax, tolerance, f"tolerance {tolerance:.0e}".replace("e-0", "e-"), vertical=True)
    ax.set(xscale="log", xlim=(least, 10), xlabel="largest difference of any logit")
    powers = range(-15, 1, 3)
    ax.set_xticks([least, *(10.0**k for k in powers)], ["0", *(f"$10^{{{k}}}$" for k in powers)])
    ax.minorticks_off()
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    legend_above(ax)
    return ax


def plot_probabilities(
    names: Sequence[str], seen: Float[np.ndarray, " K"], left: Float[np.ndarray, " K"], ax: Axes
) -> Axes:
    """Draw a model's probabilities (0…1) with the whole picture and with patches hidden, two bars a class."""
    heights = np.arange(len(names))[::-1]
    ax.barh(heights + 0.2, 100 * seen, 0.36, color=MUTED, label="everything seen")
    ax.barh(heights - 0.2, 100 * left, 0.36, color=COLOURS["blue"], label="patches hidden")
    for bars in ax.containers:
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    ax.set_yticks(heights, names)
    ax.set(xlabel="probability (%)", xlim=(0, 118))
    ax.grid(axis="y", visible=False)
    legend_above(ax)
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


def show_pictures(pictures: Mapping[str, Path], under: bool = False) -> None:
    """Show picture files in a notebook, each under its title: equally high, or `under` each other, equally wide."""
    if not pictures or not in_notebook():
        return
    arrays = {title: np.asarray(Image.open(path).convert("RGB")) for title, path in pictures.items()}
    ratios = [array.shape[1] / array.shape[0] for array in arrays.values()]
    width = min(9.0, *(array.shape[1] / 120 for array in arrays.values())) if under else 12.0  # inches
    heights = [width / ratio for ratio in ratios] if under else [width / sum(ratios)]
    ratio, shape = ("height_ratios", (len(ratios), 1)) if under else ("width_ratios", (1, len(ratios)))
    with style():
        figure = Figure(figsize=(width, sum(heights) + 0.4 * len(heights)))
        axes = figure.subplots(*shape, squeeze=False, **{ratio: heights if under else ratios})
        for ax, (title, array) in zip(axes.flat, arrays.items(), strict=True):
            ax.imshow(array, interpolation="lanczos")
            ax.set_title(title, fontweight="bold")
            ax.set_axis_off()
        picture = encode(drawn(figure))
    show_still(picture, f"{'Above and below' if under else 'Left and right'}: {', and '.join(pictures)}.")
