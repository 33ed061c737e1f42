"""Figures that were saved, drawn once more beside or under each other, to be compared (Fig. 6, 7, 10, 11, 14)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitlab.plots.png import as_png, in_notebook, show_still, with_palette
from vitlab.plots.style import style

_WIDTH = {False: 12.0, True: 9.0}  # inches, of pictures side by side and under each other


def side_by_side(pictures: Mapping[str, Path], under: bool = False) -> Figure:
    """A figure of PNG files, each under its title: side by side and equally high, or `under` each other, equally wide.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "wide.png"
    >>> Image.new("RGB", (40, 10)).save(path)
    >>> len({ax.get_position().y0 for ax in side_by_side({"one": path, "two": path}, under=True).axes})
    2
    """
    arrays = {title: np.asarray(Image.open(path).convert("RGB")) for title, path in pictures.items()}
    ratios = [array.shape[1] / array.shape[0] for array in arrays.values()]
    heights = [_WIDTH[under] / ratio for ratio in ratios] if under else [_WIDTH[under] / sum(ratios)]
    shape = (len(arrays), 1) if under else (1, len(arrays))
    sizes = {"height_ratios": heights} if under else {"width_ratios": ratios}
    fig, axes = plt.subplots(*shape, figsize=(_WIDTH[under], sum(heights) + 0.4 * len(heights)), squeeze=False, **sizes)
    for ax, (title, array) in zip(axes.flat, arrays.items(), strict=True):
        ax.imshow(array, interpolation="lanczos")
        ax.set_title(title, fontweight="bold")
        ax.set_axis_off()
    return fig


def show_pictures(pictures: Mapping[str, Path], under: bool = False) -> None:
    """Show `side_by_side` in a notebook, without saving it; nothing where there are none, or there is no notebook."""
    if not pictures or not in_notebook():
        return
    with style():
        fig = side_by_side(pictures, under)
        png = with_palette(Image.open(io.BytesIO(as_png(fig))))
        plt.close(fig)
    words = f"{'Above and below' if under else 'Left and right'}: {', and '.join(pictures)}."
    show_still(png, words)
