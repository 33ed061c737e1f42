"""A training frame by frame: a slider over pictures that are all there, so that it needs no kernel (§4.5, §4.6)."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any, NamedTuple

import pandas as pd
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from numpy import ndarray

from vitlab import plots
from vitlab.plots.style import as_png, still

BODY, CSS = ((resources.files(__package__) / f"film.{kind}").read_text(encoding="utf-8") for kind in ("html", "css"))
COLOURS = 64  # of a frame's palette: a film of twenty has half a megabyte


class Page:
    """An HTML page that asks nothing of any network, and a still of it where scripts do not run; a cell's last line."""

    title: str
    css: str
    height: int  # px
    hint: str  # how to tell page from still
    body: Callable[[], str]
    still: Callable[[], tuple[bytes, str]]

    def page(self) -> str:
        """Return the page; its own policy forbids it to load anything."""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
            f'<link rel="icon" href="data:,">\n<title>{html.escape(self.title)}</title>\n'
            f"<style>\nhtml {{ background: #fff }}\nbody {{ margin: 0 }}\n{self.css}\n</style>\n</head>\n"
            f"<body>\n{self.body()}\n</body>\n</html>\n"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """Return the page in a frame, and the still, which is all that a notebook keeps until it is trusted."""
        png, words = self.still()
        data, metadata = still(png, words)
        whole = (
            "<style>img.vitlab-still:has(+ iframe) { display: none }</style>"
            f'<img class="vitlab-still" alt="{html.escape(words)}" src="data:image/png;base64,{data["image/png"]}">'
            f'<iframe title="{html.escape(self.title)}" style="width: 100%; height: {self.height}px; border: 0" '
            f'srcdoc="{html.escape(self.page())}"></iframe><p style="font-size: 85%; margin: 0">{self.hint}</p>'
        )
        return data | {"text/html": whole, "text/plain": repr(self)}, metadata


def script_json(value: Any) -> str:
    """Write a value as JSON that no text in it can end the script it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


class Frame(NamedTuple):
    """One picture of a film."""

    at: str  # what the slider says of it
    png: bytes
    words: str  # for those who do not see it


class Film(Page):
    """Frames and a slider through them, which moves what `slider` says; shown from its first frame."""

    css = CSS
    height = 390
    hint = (
        "No slider above? Then this is the last frame, which notebooks show in the film's place until they are "
        "trusted: run the cell."
    )

    def __init__(self, title: str, slider: str, frames: Sequence[Frame]) -> None:
        self.title, self.slider, self.frames = title, slider, tuple(frames)

    def body(self) -> str:
        """Return the slider, the pictures and what moves them, as HTML."""
        shown = [frame._asdict() | {"png": base64.b64encode(frame.png).decode()} for frame in self.frames]
        last = len(self.frames) - 1
        return Template(BODY).substitute(slider=html.escape(self.slider), last=last, frames=script_json(shown))

    def still(self) -> tuple[bytes, str]:
        """Return the last frame and its words."""
        return self.frames[-1].png, self.frames[-1].words

    def __repr__(self) -> str:
        return f"Film({self.title!r}, {len(self.frames)} frames)"


def training_film(
    heads: pd.DataFrame,
    maps: Mapping[int, Float[ndarray, "rows cols rows2 cols2"]],
    *,
    uniform: float,
    limit: float,
    image_px: int,
    pictures: Mapping[int, Sequence[UInt8[ndarray, "H W 3"]]] | None = None,
    title: str = "A training",
) -> Film:
    """Draw every head's attention distance (`plots.plot_heads`) and the position map of one training, by samples.

    `pictures` are what the model makes of some pictures, by samples, shown in a column.
    """
    scale: dict[str, Any] = {"uniform": uniform, "limit": limit, "image_px": image_px}
    widths = [3.0, 3.3, 4.0, *([1.1] if pictures else [])]
    frames = []
    places: list[Any] = []  # of the axes, the same in every frame: nothing but what changes is to move
    for samples, seen in heads.groupby("samples"):
        with plots.style():
            figure = Figure(figsize=(sum(widths), 3.6), dpi=80, layout="constrained")
            axes = figure.subplots(1, len(widths), width_ratios=widths)
            plots.plot_heads(seen, axes[0], **scale).set_title(f"{samples:,} images", fontsize=11)
            plots.plot_similarity_grid(maps[samples], axes[1], colorbar=False).set_title("position map", fontsize=11)
            plots.plot_heads(heads, axes[2], at=samples, **scale)
            if pictures:
                column = {str(k): [picture] for k, picture in enumerate(pictures[samples])}
                plots.plot_pictures(column, axes[3]).set_title("predicted", fontsize=11)
                axes[3].set_yticks([])
            if not places:
                figure.draw_without_rendering()
                places = [ax.get_position(original=True) for ax in figure.axes]
            else:
                figure.set_layout_engine("none")
                for ax, place in zip(figure.axes, places, strict=True):
                    ax.set_position(place)
            png = as_png(figure, COLOURS)
        local = seen[seen["distance_px"] < limit]
        blocks = ", ".join(f"{block:.0f}" for block in sorted(local["block"].unique()))
        words = f"Local heads after {samples:,} images: {len(local)} of {len(seen)}"
        words += f", in block {blocks}" if blocks else ""
        words += f"; the shortest distance is {seen['distance_px'].min():.1f} px."
        frames.append(Frame(f"{samples:,} images", png, words))
    return Film(title, "training images seen", frames)
