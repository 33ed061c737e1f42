"""A figure as PNG bytes with its words: what a cell shows where nothing runs (all sections)."""

from __future__ import annotations

import base64
import html
import io
import sys

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

_PALETTE_SIDES = 400, 400  # at most, of what a palette is chosen from; from all of a large picture it takes seconds


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
    few = plain.copy()
    few.thumbnail(_PALETTE_SIDES, Image.Resampling.NEAREST)
    palette = few.quantize(colours, method=Image.Quantize.MAXCOVERAGE)
    plain.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True)
    return file.getvalue()


def still(png: bytes, alt: str, width: int | None = None) -> tuple[dict, dict]:
    """What a cell shows of a picture, data and metadata: the picture, and the words for those who do not see it.

    `width`: in pixels of the page, where the picture has more than are to be seen on most screens.

    >>> still(b"", "Nothing.")[1]
    {'image/png': {'alt': 'Nothing.'}}
    """
    about = {"alt": alt} if width is None else {"alt": alt, "width": width}
    return {"image/png": base64.b64encode(png).decode(), "text/plain": alt}, {"image/png": about}


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this; IPython is asked only where it runs already.

    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def show_still(png: bytes, alt: str, width: int | None = None) -> None:
    """Show a picture with its words in the cell that runs; see `still` and `in_notebook`."""
    from IPython.display import publish_display_data

    publish_display_data(*still(png, alt, width))


def framed(page: str, png: bytes, alt: str, *, title: str, height: int, hint: str, text: str) -> tuple[dict, dict]:
    """What a cell shows of an HTML page: the page in a frame, and a still of it where scripts do not run.

    Front ends take HTML or PNG, and may clean the HTML: a notebook that is not trusted loses the frame and the style
    from it, and keeps the still. `hint` says below how to tell, `text` is for a terminal; `height` in pixels.

    >>> sorted(framed("<p>", b"", "Nothing.", title="A page", height=100, hint="A still?", text="Page()")[0])
    ['image/png', 'text/html', 'text/plain']
    """
    data, metadata = still(png, alt)
    whole = (
        "<style>img.vitlab-still:has(+ iframe) { display: none }</style>"
        f'<img class="vitlab-still" alt="{html.escape(alt, quote=True)}" '
        f'src="data:image/png;base64,{data["image/png"]}">'
        f'<iframe title="{html.escape(title, quote=True)}" style="width: 100%; height: {height}px; border: 0" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
        f'<p style="font-size: 85%; margin: 0">{hint}</p>'
    )
    return data | {"text/html": whole, "text/plain": text}, metadata
