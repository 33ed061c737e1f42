"""The one look of all figures, used through a context manager so that nobody's own settings change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitlab.plots.png import in_notebook, show_still

# Okabe & Ito's palette, told apart by every common form of colour blindness and in grey print.
COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
}
MUTED = "#7F7F7F"  # the paper's values, references, controls

_SETTINGS = {
    "figure.figsize": (6.4, 4.0),
    "figure.constrained_layout.use": True,
    "figure.dpi": 96,
    "savefig.dpi": 120,
    "axes.prop_cycle": cycler(color=list(COLOURS.values())),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.8,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "image.cmap": "viridis",
    "image.interpolation": "nearest",
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Figures made inside look alike; outside, matplotlib is as it was.

    >>> with style():
    ...     mpl.rcParams["axes.spines.top"]
    False
    """
    with mpl.rc_context(_SETTINGS):
        try:
            yield
        finally:
            # The first figure of a notebook switches pyplot to interactive, which is how cells come to show figures.
            # That has to outlast this block, or no later cell shows any.
            interactive = mpl.is_interactive()
    mpl.interactive(interactive)


@runtime_checkable
class Saves(Protocol):
    """What keeps figures: a notebook's study."""

    def save(self, fig: Figure, name: str, alt: str) -> Any:
        """Write `fig` under a name, with words for those who cannot see it; returns the path of its PNG."""


@contextlib.contextmanager
def figure(
    study: Saves, name: str, *shape: int, alt: str, mosaic: Sequence[Sequence[str]] = (), **options: Any
) -> Iterator[Any]:
    """A figure in the one style: yields its axes, then saves it under `name` and shows it.

    `shape` is rows and columns; a `mosaic` of names in its place gives axes of several cells, by their names.
    `options` are those of `plt.subplots` or `plt.subplot_mosaic`. What fails inside is neither saved nor shown. A
    notebook's cell shows the file that was saved, with `alt` as its words.

    >>> class Folder:
    ...     def save(self, fig, name, alt):
    ...         print(f"{name}: {alt}")
    >>> with figure(Folder(), "lines", 1, 2, alt="Two lines.", figsize=(6, 2)) as (left, right):
    ...     lines = left.plot([0, 1]), right.plot([1, 0])
    lines: Two lines.
    """
    with style():
        fig, axes = plt.subplot_mosaic(mosaic, **options) if mosaic else plt.subplots(*shape, **options)
        try:
            yield axes
            path = study.save(fig, name, alt)
            if in_notebook():  # the picture that was saved: to draw it once more takes as long as to save it
                show_still(path.read_bytes(), alt, round(fig.dpi * fig.get_figwidth()))
            elif mpl.get_backend().lower() != "agg":  # a program without a screen
                plt.show()
        finally:
            plt.close(fig)


def axes(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure."""
    return plt.subplots()[1] if ax is None else ax


def accuracy_axis(ax: Axes, label: str = "test accuracy (%)", *, cut: bool = False) -> None:
    """The y axis of an accuracy (0…1), in per cent; a label says all digits of its tick.

    `cut`: at 0 and 100 %; an interval of few seeds may reach beyond, an accuracy does not.

    >>> ax = Figure().subplots()
    >>> lines = ax.plot([0.9, 1.4])
    >>> accuracy_axis(ax, cut=True)
    >>> float(ax.get_ylim()[1])
    1.03
    >>> ax.yaxis.get_major_formatter().format_ticks([0.325, 0.35])
    ['32.5', '35']
    """
    if cut:
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0.0), min(high, 1.03), auto=None)  # a panel that shares the axis may still widen it
    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.6g}")


def paper_line(ax: Axes, value: float, label: str, *, vertical: bool = False) -> None:
    """The paper's value as a dashed grey line with its label, in data coordinates."""
    draw = ax.axvline if vertical else ax.axhline
    draw(value, color=MUTED, linestyle="--", linewidth=1.2, label=label, zorder=1)
