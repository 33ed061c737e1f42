"""A training frame by frame: a slider over pictures that are all there, so that it needs no kernel (§4.5, §4.6)."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy import ndarray

from vitlab import paths, plots
from vitlab.plots.png import as_png, framed

_COLOURS = 64  # of a frame's palette: a film of twenty has half a megabyte
_MILLISECONDS = 500  # of a frame, when it plays
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>
html { background: #fff } body { margin: 0; font: 14px/1.4 system-ui, sans-serif; color: #222 }
form { display: flex; gap: 1em; align-items: center; margin: 4px 8px } input { flex: 1; max-width: 30em }
img { display: block; max-width: 100% } p { margin: 4px 8px }
</style>
</head>
<body>
<form><button type="button" id="play">Play</button><label for="frame">$slider</label>
<input type="range" id="frame" min="0" max="$last" value="$last"><output id="at" for="frame"></output></form>
<img id="picture" alt=""><p id="words" role="status"></p>
<noscript>This film is shown by JavaScript, which is switched off here.</noscript>
<script>
const frames = $frames, get = (id) => document.getElementById(id);
const slider = get("frame"), play = get("play");
let timer = 0;
function show() {
  const frame = frames[slider.value];
  get("picture").src = "data:image/png;base64," + frame.png;
  get("picture").alt = get("words").textContent = frame.words;
  get("at").textContent = frame.at;
  slider.setAttribute("aria-valuetext", frame.at);
}
function stop() { clearInterval(timer); timer = 0; play.textContent = "Play"; }
function next() { if (+slider.value < frames.length - 1) { slider.value++; show(); } else { stop(); } }
play.addEventListener("click", () => {
  if (timer) { stop(); return; }
  if (+slider.value === frames.length - 1) { slider.value = 0; show(); }
  timer = setInterval(next, $pause);
  play.textContent = "Stop";
});
slider.addEventListener("input", () => { stop(); show(); });
slider.addEventListener("keydown", (event) => event.stopPropagation());
show();
</script>
</body>
</html>
""")


@dataclass(frozen=True)
class Frame:
    """One picture of a film."""

    at: str  # what the slider says of it
    png: bytes
    words: str  # for those who do not see it


@dataclass(frozen=True)
class Film:
    """Frames and a slider through them; the last line of a cell shows it, at its last frame. Made by `film`.

    >>> one = Film("A square", "side", (Frame("1 cm", b"", "Its area is 1 cm²."),))
    >>> one
    Film('A square', 1 frame)
    """

    title: str
    slider: str  # what the slider moves, in plain words
    frames: tuple[Frame, ...]

    def page(self) -> str:
        """The film as a page of its own, which needs nothing else."""
        shown = [
            {"at": each.at, "png": base64.b64encode(each.png).decode(), "words": each.words} for each in self.frames
        ]
        return _PAGE.substitute(
            title=html.escape(self.title),
            slider=html.escape(self.slider),
            last=len(self.frames) - 1,
            pause=_MILLISECONDS,
            frames=json.dumps(shown).replace("<", "\\u003c"),  # so that no word can end the script
        )

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, whole or not at all; opens in any browser. Returns the path."""
        with paths.writing(path) as temporary:
            temporary.write_text(self.page(), encoding="utf-8")
        return Path(path)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """The film, and its last frame where scripts do not run, as the attention viewer does it."""
        last = self.frames[-1]
        hint = (
            "No slider above? Then this is the last frame, which notebooks show in the film's place until they are "
            "trusted: run the cell."
        )
        return framed(self.page(), last.png, last.words, title=self.title, height=390, hint=hint, text=repr(self))

    def __repr__(self) -> str:
        count = len(self.frames)
        return f"Film({self.title!r}, {count} frame{'s' * (count > 1)})"


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
    """Every head's attention distance and the position map of one training, at every evaluation.

    Args:
        heads: a row for each evaluation and head: samples, block, head, distance_px.
        maps: samples → position map, for each evaluation.
        uniform: distance of uniform attention (px).
        limit: distance below which a head is local (px).
        image_px: side of the images.
        pictures: samples → what the model makes of some pictures, shown in a column; None: without.

    Raises:
        ValueError: no evaluation, or a map is missing for one.

    >>> import numpy as np
    >>> rows = [{"samples": n, "block": 1, "head": 1, "distance_px": px} for n, px in ((0, 16.0), (800, 6.0))]
    >>> film = training_film(pd.DataFrame(rows), dict.fromkeys((0, 800), np.ones((2, 2, 2, 2))), uniform=16.5,
    ...                      limit=8.2, image_px=32)
    >>> film.frames[-1].words
    'After 800 images 1 of 1 head is local, in block 1; the shortest distance is 6.0 px.'
    """
    moments = sorted(heads["samples"].unique().tolist())
    if not moments or set(moments) - set(maps):
        missing = sorted(set(moments) - set(maps))
        raise ValueError(f"{len(moments)} evaluations given, without a position map at {missing}; give one for each")
    frames, scale = [], {"uniform": uniform, "limit": limit, "image_px": image_px}
    places: list[Bbox] = []  # of the axes, the same in every frame: nothing but what changes is to move
    for samples in moments:
        seen = heads[heads["samples"] == samples]
        sheet = (pictures or {}).get(samples)
        with plots.style():
            figure = _drawn(heads, seen, maps[samples], samples, sheet, scale)
            places = _placed(figure, places)
            frames.append(Frame(f"{samples:,} images", as_png(figure, _COLOURS), _words(seen, samples, limit)))
    return Film(title, "training images seen", tuple(frames))


def _drawn(
    heads: pd.DataFrame, seen: pd.DataFrame, similarity: ndarray, samples: int, sheet: Any, scale: dict[str, Any]
) -> Figure:
    widths = [3.0, 3.3, 4.0, *([1.1] if sheet is not None else [])]
    figure = Figure(figsize=(sum(widths), 3.6), dpi=80, layout="constrained")
    axes = figure.subplots(1, len(widths), width_ratios=widths)
    plots.plot_heads(seen, axes[0], **scale).set_title(f"{samples:,} images", fontsize=11)
    plots.plot_similarity_grid(similarity, axes[1], colorbar=False).set_title("position map", fontsize=11)
    plots.plot_distances_by_views(heads, axes[2], at=samples, **scale)
    if sheet is not None:
        plots.plot_pictures({str(k): [picture] for k, picture in enumerate(sheet)}, axes[3])
        axes[3].set_yticks([])
        axes[3].set_title("predicted", fontsize=11)
    return figure


def _placed(figure: Figure, places: list[Bbox]) -> list[Bbox]:
    """Put the axes to `places`, or where there are none let them be laid out; returns where they are."""
    if places:
        figure.set_layout_engine("none")
        for ax, place in zip(figure.axes, places, strict=True):
            ax.set_position(place)
        return places
    figure.draw_without_rendering()
    return [ax.get_position(original=True) for ax in figure.axes]


def _words(seen: pd.DataFrame, samples: int, limit: float) -> str:
    local = seen[seen["distance_px"] < limit]
    blocks = ", ".join(f"{block:.0f}" for block in sorted(local["block"].unique()))
    where = f", in block{'s' * (local['block'].nunique() > 1)} {blocks}" if len(local) else ""
    verb = "is" if len(local) == 1 else "are"
    return (
        f"After {samples:,} images {len(local)} of {len(seen)} head{'s' * (len(seen) > 1)} {verb} local{where}; the "
        f"shortest distance is {seen['distance_px'].min():.1f} px."
    )
