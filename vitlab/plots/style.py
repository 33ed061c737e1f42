"""One look for all figures: palette, families' colours and names, axes, legends; how a figure is saved and shown."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter
from PIL import Image

COLOURS = {  # Okabe & Ito's palette, told apart by every common form of colour blindness and in grey print
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
}
MUTED = "#7F7F7F"  # the paper's values, references, controls
REFERENCE = {"color": MUTED, "linestyle": "--", "linewidth": 1.2, "zorder": 1}  # a line to compare with
LOOKS = tuple(zip(COLOURS.values(), ("o", "s", "^", "D", "v", "P", "X"), strict=True))  # colour, marker of no family
FAMILIES = {"ViT": (COLOURS["blue"], "o"), "ResNet": (COLOURS["vermilion"], "s"), "hybrid": (COLOURS["black"], "^")}
FAMILIES["convolutional stem"] = (COLOURS["sky"], "D")

_SETTINGS = {
    "figure.figsize": (6.4, 4.0),
    "figure.constrained_layout.use": True,
    "figure.dpi": 96,
    "axes.prop_cycle": cycler(color=list(COLOURS.values())),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.8,
    "font.size": 11,
    "axes.titlesize": 12,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "image.interpolation": "nearest",
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Make figures inside look alike; outside, matplotlib stays as it was."""
    with mpl.rc_context(_SETTINGS):
        try:
            yield
        finally:
            # A first figure makes pyplot interactive, by which a notebook's cells show any: it must outlast this block.
            interactive = mpl.is_interactive()
    mpl.interactive(interactive)


@contextlib.contextmanager
def figure(
    study: Any, name: str, *shape: int, alt: str, mosaic: Sequence[Sequence[str]] = (), **options: Any
) -> Iterator[Any]:
    """Yield the axes of a figure in the one style, then save it as `study.save(picture, name, alt)` and show it.

    `shape` (rows, columns) and `options` are those of `plt.subplots`; a `mosaic` of names gives axes by their names.
    What fails inside is neither saved nor shown. A notebook's cell shows the file that was saved, and has `alt`.
    """
    with style():
        fig, axes = plt.subplot_mosaic(mosaic, **options) if mosaic else plt.subplots(*shape, **options)
        try:
            yield axes
            width = round(fig.dpi * fig.get_figwidth())  # pixels, as it is shown
            fig.savefig(file := io.BytesIO(), dpi=120, pil_kwargs={"compress_level": 1})
            picture = encode(Image.open(file).convert("RGB"), width)
            study.save(picture, name, alt)
            if in_notebook():  # the picture that was saved: to draw it once more takes as long as to save it
                show_still(picture, alt, width)
            elif mpl.get_backend().lower() != "agg":  # a program without a screen
                plt.show()
        finally:
            plt.close(fig)


def family(model: str) -> str:
    """Return a model's family, one of `FAMILIES`, by its name, the zoo's or timm's.

    >>> family("BiT-Lab-Ti/8"), family("R+Lab-Ti/8"), family("vit_base_r50_s16_224"), family("Lab-Ti/8")
    ('ResNet', 'hybrid', 'hybrid', 'ViT')
    """
    if model.startswith("BiT") or "resnet" in model.lower():
        return "ResNet"
    if model.startswith("C+"):
        return "convolutional stem"
    return "hybrid" if re.match(r"R\d*\+|vit_[a-z]+_r\d*_s\d+", model) else "ViT"


def labels(models: Iterable[str]) -> dict[str, str]:
    """Name models for a legend: a lab's ResNet or hybrid by its family, with its size where it is not alone.

    >>> labels(["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"])
    {'Lab-Ti/8': 'Lab-Ti/8', 'BiT-Lab-Ti/8': 'ResNet', 'R+Lab-Ti/8': 'hybrid'}
    """
    names, made = list(dict.fromkeys(models)), {}
    for name in names:
        kind, lab = family(name), re.fullmatch(r"(?:BiT-|[RC]\+)(?:Lab-)?(.+)", name)
        alone = sum(family(other) == kind for other in names) == 1
        made[name] = name if lab is None else kind if alone else f"{kind}-{lab[1]}"
    return made


def accuracy_axis(ax: Axes, label: str = "test accuracy (%)", *, cut: bool = False) -> None:
    """Write the y axis of an accuracy (0…1) in per cent; `cut` ends it at 0 and 100 %, where intervals may not."""
    if cut:
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0.0), min(high, 1.03), auto=None)  # a panel that shares the axis may still widen it
    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.6g}")


def bare(ax: Axes) -> None:
    """Take ticks, grid and frame away: axes of a picture."""
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])
    ax.tick_params(length=0)


def legend_above(ax: Axes, ncols: int = 3) -> None:
    """Put a legend over the axes, where it hides no data."""
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=ncols, borderaxespad=0.2, handletextpad=0.4,
              columnspacing=1)  # fmt: skip


def legend_below(axes: Sequence[Axes] | np.ndarray) -> None:
    """Put one legend under a figure, with every line and marker that any of its axes has."""
    entries: dict[str, Artist] = {}
    panels = np.ravel(np.asarray(axes, dtype=object))
    for ax in panels:
        entries |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    options = {"loc": "outside lower center", "ncols": 5, "handletextpad": 0.4, "columnspacing": 1.4}
    panels[0].figure.legend(list(entries.values()), list(entries), **options)


def drawn(figure: Figure) -> Image.Image:
    """Draw a figure, once: savefig draws twice where the layout is constrained, and a control is not to wait."""
    for text in figure.findobj(Text):  # names of files and classes are no formulas
        text.set_parse_math(False)
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatter):  # its numbers are
            for label in axis.get_ticklabels(which="both"):
                label.set_parse_math(True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def as_png(figure: Figure, colours: int = 256) -> bytes:
    """Draw a figure as the bytes of a PNG file with a palette of so many `colours`."""
    return written(drawn(figure).quantize(colours), "PNG", optimize=True)


def encode(image: Image.Image, width: int | None = None) -> bytes:
    """Write a picture as a PNG file, with a palette where that hardly changes its colours, or as a JPEG if smaller.

    A JPEG, of photographs as a rule, has no more pixels than are shown: `width`, where that is given.
    """
    few = image.quantize(256)
    if np.abs(np.asarray(few.convert("RGB"), dtype=int) - np.asarray(image)).mean() < 0.2:
        return written(few, "PNG", optimize=True)
    size = (width, round(image.height * width / image.width)) if width else image.size
    jpeg = written(image.resize(size, Image.Resampling.LANCZOS), "JPEG", quality=70, progressive=True, optimize=True)
    return min(written(image, "PNG", compress_level=3), jpeg, key=len)


def written(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Write a picture as the bytes of a file of this kind."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def in_notebook() -> bool:
    """Tell whether a notebook's kernel runs this; IPython is asked only where it runs already."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def still(picture: bytes, alt: str, width: int | None = None) -> tuple[dict, dict]:
    """Return what a cell shows of a PNG or JPEG, `width` pixels wide: data and metadata; `alt` says what is seen."""
    kind = "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"
    about = {"alt": alt} if width is None else {"alt": alt, "width": width}
    return {kind: base64.b64encode(picture).decode(), "text/plain": alt}, {kind: about}


def show_still(picture: bytes, alt: str, width: int | None = None) -> None:
    """Show a picture with its words in the cell that runs; see `still` and `in_notebook`."""
    from IPython.display import publish_display_data

    publish_display_data(*still(picture, alt, width))
