"""Pictures of the collection: what the world looks like, and which claims have which verdict."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Bool, UInt8
from matplotlib.axes import Axes

from vitlab.plots.style import COLOURS

# verdict → colour and marker: the shape says it too
VERDICTS = {
    "reproduced": (COLOURS["green"], "o"),
    "partly reproduced": (COLOURS["orange"], "^"),
    "not reproduced": (COLOURS["vermilion"], "X"),
    "inconclusive": (COLOURS["purple"], "D"),
    "not testable at this scale": (COLOURS["sky"], "s"),
    "not yet": ("#B5B5B5", "o"),
}
_TALLEST = 9  # marks of one claim


def mosaic(images: UInt8[np.ndarray, "R C H W 3"], gap: int) -> UInt8[np.ndarray, "H2 W2 3"]:
    """Rows and columns of images as one image, `gap` white pixels between them.

    >>> mosaic(np.zeros((2, 3, 8, 8, 3), np.uint8), gap=1).shape
    (17, 26, 3)
    """
    padded = np.pad(images, ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0)), constant_values=255)
    rows, cols, height, width, _ = padded.shape
    whole = padded.transpose(0, 2, 1, 3, 4).reshape(rows * height, cols * width, 3)
    return whole[: rows * height - gap, : cols * width - gap]


def plot_scenes(
    images: UInt8[np.ndarray, "R C H W 3"],
    masks: Bool[np.ndarray, "R C H W"],
    row_labels: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """Rows of images, the labelled object of each outlined by its mask."""
    ax = ax or plt.gca()
    gap = max(1, images.shape[2] // 16)
    ax.imshow(mosaic(images, gap), interpolation="nearest")
    outlines = mosaic(np.repeat(masks[..., None], 3, axis=-1).astype(np.uint8), gap)[..., 0]
    outlines[outlines > 1] = 0  # the white between the images is no object
    ax.contour(outlines, levels=[0.5], colors="white", linewidths=2.2)
    ax.contour(outlines, levels=[0.5], colors="black", linewidths=0.9)
    step = images.shape[2] + gap
    ax.set_yticks([step * row + images.shape[2] / 2 for row in range(len(images))], row_labels)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    return ax


def plot_verdicts(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Every claim's verdicts, a mark for each number, of more than nine their count too. Columns: claim, verdict."""
    ax = ax or plt.gca()
    claims = list(dict.fromkeys(data.claim))
    place = (data.groupby("claim").cumcount() + 1).where(data.verdict != "not yet", 0)
    for claim, count in place.groupby(data.claim).max().items():
        if count > _TALLEST:
            ax.annotate(f"{count}", (claims.index(claim), _TALLEST), (0, 9), textcoords="offset points", ha="center")
    for verdict, (colour, marker) in VERDICTS.items():
        rows = data[(data.verdict == verdict) & (place <= _TALLEST)]
        x, y = [claims.index(claim) for claim in rows.claim], place[rows.index]
        size = 5 if verdict == "not yet" else 11
        ax.plot(x, y, marker, color=colour, ms=size, mec="white", label=verdict if len(x) else None)
    ax.set_xticks(range(len(claims)), [claim.removeprefix("C") for claim in claims])
    tallest = min(int(place.max()), _TALLEST)
    ax.set_yticks(range(tallest + 1))
    ax.set(xlabel="claim (01 to 21: C…, of the paper; L…: of later work)", ylabel="numbers measured")
    ax.set_ylim(-0.6, tallest + (2.2 if place.max() > _TALLEST else 0.6))
    ax.set_xlim(-0.7, len(claims) - 0.3)
    ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.2)
    return ax
