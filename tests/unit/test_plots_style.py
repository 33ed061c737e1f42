"""The style changes what is drawn inside it, and nothing else."""

import base64
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from vitlab import plots
from vitlab.plots.style import accuracy_axis


@pytest.fixture(autouse=True)
def none_open():
    """Examples in docstrings leave their figures open; whether they ran before, in this process, is chance."""
    plt.close("all")


def test_settings_come_back():
    before = dict(mpl.rcParams)
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert dict(mpl.rcParams) == before


def test_interactive_switched_on_inside_stays_on():
    """As the inline backend does with the first figure: without it no later cell of a notebook shows one."""
    before = mpl.is_interactive()
    try:
        mpl.interactive(False)
        with plots.style():
            mpl.interactive(True)
        assert mpl.is_interactive()
    finally:
        mpl.interactive(before)


class Kept:
    def __init__(self):
        self.saved = []

    def save(self, fig, name, alt):
        self.saved.append((name, alt, fig.get_size_inches().tolist(), mpl.rcParams["axes.spines.top"]))


def test_a_figure_is_styled_saved_and_closed():
    kept, before = Kept(), dict(mpl.rcParams)
    with plots.figure(kept, "lines", 1, 2, alt="Two lines.", figsize=(6, 2)) as (left, right):
        left.plot([0, 1])
        right.plot([1, 0])
        assert kept.saved == []
    assert kept.saved == [("lines", "Two lines.", [6.0, 2.0], False)]
    assert dict(mpl.rcParams) == before and plt.get_fignums() == []


class Folder:
    def __init__(self, folder):
        self.folder = folder

    def save(self, fig, name, alt):
        fig.savefig(self.folder / f"{name}.png")
        return self.folder / f"{name}.png"


def test_a_cell_shows_the_file_that_was_saved_with_its_words(tmp_path, monkeypatch):
    """As wide as matplotlib would show the figure, though the file has more pixels."""
    shown = []
    monkeypatch.setattr(sys.modules["vitlab.plots.style"], "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.publish_display_data", lambda *bundle: shown.append(bundle))
    with plots.figure(Folder(tmp_path), "line", alt="A line.", figsize=(5, 2)) as ax:
        ax.plot([0, 1])
    [(data, metadata)] = shown
    assert base64.b64decode(data["image/png"]) == (tmp_path / "line.png").read_bytes()
    assert data["text/plain"] == "A line." and metadata == {"image/png": {"alt": "A line.", "width": 480}}
    assert plt.get_fignums() == []


def test_what_fails_is_not_saved():
    kept = Kept()
    with pytest.raises(ZeroDivisionError), plots.figure(kept, "lines", alt="A line.") as ax:
        ax.plot([1 / 0])
    assert kept.saved == [] and plt.get_fignums() == []


def test_a_mosaic_gives_axes_by_name():
    kept = Kept()
    with plots.figure(kept, "cells", mosaic=[["large", "a"], ["large", "b"]], alt="Three.", figsize=(6, 2)) as axes:
        assert set(axes) == {"large", "a", "b"}
    assert [name for name, *_ in kept.saved] == ["cells"]


def test_an_axis_that_is_cut_hides_nothing_of_another_that_shares_it():
    """Bounds of one panel must not stay when the next is drawn: a line would lie outside of what is shown."""
    _, axes = plt.subplots(1, 2, sharey=True)
    for ax, accuracies in zip(axes, ([-0.2, 0.4], [0.8, 1.4]), strict=True):
        ax.plot(accuracies)
        accuracy_axis(ax, cut=True)
    low, high = axes[0].get_ylim()
    assert low == 0 and high == pytest.approx(1.03) and axes[1].get_ylim() == (low, high)
    axes[0].figure.draw_without_rendering()
    assert axes[0].get_ylim() == (low, high)
