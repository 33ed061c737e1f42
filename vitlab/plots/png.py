"""A figure as PNG bytes with its words: what a cell shows where nothing runs (all sections)."""

from __future__ import annotations

import base64
import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


def as_png(figure: Figure, colours: int | None = None) -> bytes:
    """A figure as the bytes of a PNG file, drawn once; with a palette of so many `colours` it is a third as large.

    >>> as_png(Figure(figsize=(1, 1)))[1:4]
    b'PNG'
    """
    canvas, file = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()  # once; savefig draws twice where the layout is constrained, and a knob is not to wait
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    if colours is not None:
        image = image.quantize(colours)
    image.save(file, "PNG", compress_level=3 if colours is None else 9)
    return file.getvalue()


def with_palette(image: Image.Image, colours: int = 256) -> bytes:
    """A picture as the bytes of a PNG file with so many colours, dithered: smooth shades stay smooth, without edges.

    >>> with_palette(Image.new("RGB", (2, 2), "red"))[1:4]
    b'PNG'
    """
    file, plain = io.BytesIO(), image.convert("RGB")
    palette = plain.quantize(colours, method=Image.Quantize.MAXCOVERAGE)
    plain.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True)
    return file.getvalue()


def still(png: bytes, alt: str) -> tuple[dict, dict]:
    """What a cell shows of a picture, data and metadata: the picture, and the words for those who do not see it.

    >>> still(b"", "Nothing.")[1]
    {'image/png': {'alt': 'Nothing.'}}
    """
    return {"image/png": base64.b64encode(png).decode(), "text/plain": alt}, {"image/png": {"alt": alt}}
