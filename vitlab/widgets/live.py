"""A training watched from a notebook: a chart that grows with it, the time left, a button that stops it (§4.1)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import nn

from vitlab.data.loader import Batches
from vitlab.plots.png import as_png, in_notebook, show_still, still
from vitlab.plots.style import COLOURS, accuracy_axis, style
from vitlab.training.interrupts import Stopped
from vitlab.training.loop import train
from vitlab.training.progress import in_words, progress, seconds_left
from vitlab.training.recipe import Recipe
from vitlab.widgets.knobs import somebody_is_there

_PAUSE = 0.5  # seconds between two drawings, at least
_SHARE = 10  # times what a drawing takes is left to the training before the next one
Say = Callable[[list[dict], str, bool], None]  # the rows so far, a line about them, whether it is the last


def watched(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    epoch: int | None = None,
    **options: Any,
) -> list[dict]:
    """`loop.train` with something to look at; returns its rows, those so far where the training was stopped.

    In a notebook with a person before it a chart follows the rows, with the speed, the time left and a button that
    stops; its last state stays as a picture. Under papermill, nbconvert or in a script there is a plain line for every
    `epoch` images instead (None: for every row).

    The button, the notebook's own stop button and Ctrl-C are one: the step that runs is ended, its checkpoint is
    written to `folder`, and this returns. The same call again goes on from there, to the same bits. A second interrupt
    does not wait, and is raised. `options` are those of `loop.train` but for `report`.

    Raises ValueError for an `epoch` of no images, and what `loop.train` raises.

    >>> from vitlab.data.world import World, stream
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> recipe = Recipe(steps=4, batch_size=16, eval_every=2)
    >>> rows = watched(model, stream(World(image_size=8), 16), recipe)  # doctest: +ELLIPSIS
    step 2 of 4: loss 2..., ... images/s
    step 4 of 4: loss 2..., ... images/s, trained for ...
    """
    if epoch is not None and epoch < 1:
        raise ValueError(f"epoch is {epoch}; expected the number of training images, 1 or more, or None")
    rows, marks = _logged(folder), []

    def report(row: dict) -> None:
        rows[:] = [*(old for old in rows if old["step"] < row["step"]), row]
        marks.append((row["step"], time.perf_counter()))
        if row["step"] < recipe.steps:  # of the last row the line after the training speaks
            say(rows, progress(row, recipe.steps, seconds_left(marks, recipe.steps)), False)

    with _on_screen(recipe.steps) if somebody_is_there() else _in_lines(recipe.steps, epoch) as say:
        try:
            rows = train(model, batches, recipe, folder=folder, report=report, **options)
            last = f"{progress(rows[-1], recipe.steps)}, trained for {in_words(rows[-1]['seconds'])}"
        except Stopped as stopped:
            rows, way = stopped.rows, "run the cell again to go on" if folder else "without a folder it cannot go on"
            last = f"stopped at step {stopped.step:,} of {recipe.steps:,}; {way}"
        say(rows, last, True)
    return rows


def chart(rows: Sequence[dict], steps: int) -> Figure:
    """Loss by step and, where there is a validation set, accuracy beside it; `rows` are those of `loop.train`.

    >>> figure = chart([{"step": 10, "train_loss": 2.0}, {"step": 20, "train_loss": 1.0}], steps=50)
    >>> figure.axes[0].lines[0].get_xydata().tolist()
    [[10.0, 2.0], [20.0, 1.0]]
    """
    evaluated = "val_accuracy" in rows[-1]
    width, left, right = (8.4, 0.08, 0.96) if evaluated else (4.4, 0.15, 0.93)
    # Fixed margins: finding them takes as long as all the rest, and the axes would wander while the curves grow.
    figure = Figure(figsize=(width, 2.8), layout="none")
    figure.subplots_adjust(left=left, right=right, bottom=0.19, top=0.95, wspace=0.25)
    axes = figure.subplots(1, 1 + evaluated, squeeze=False)[0]
    at = [row["step"] for row in rows]
    axes[0].plot(at, [row["train_loss"] for row in rows], marker=".", color=COLOURS["blue"], label="training")
    if evaluated:
        held_out = {"marker": ".", "linestyle": "--", "color": COLOURS["vermilion"], "label": "held out"}
        axes[0].plot(at, [row["val_loss"] for row in rows], **held_out)
        axes[0].legend()
        axes[1].plot(at, [row["val_accuracy"] for row in rows], **held_out)
        axes[1].set_ylim(0, 1)
        accuracy_axis(axes[1], "held-out accuracy (%)")
    axes[0].set(ylabel="loss (nats)", ylim=(0, None))
    for ax in axes:
        ax.set(xlabel="training step", xlim=(0, steps))
    return figure


def _logged(folder: Path | None) -> list[dict]:
    """The rows of a training that was stopped in this folder."""
    log = None if folder is None else folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log and log.is_file() else []


@contextlib.contextmanager
def _in_lines(steps: int, epoch: int | None) -> Iterator[Say]:
    """Says things line by line, and leaves the chart where there is a notebook to keep it."""
    said = 0

    def say(rows: list[dict], line: str, last: bool) -> None:
        nonlocal said
        count = rows[-1]["samples"] // epoch if rows and epoch else len(rows)
        if last or count > said:
            print(line, flush=True)
        said = count
        if last and rows and in_notebook():
            show_still(*_picture(rows, steps, line))

    yield say


@contextlib.contextmanager
def _on_screen(steps: int) -> Iterator[Say]:
    """Shows things in the cell while the body runs; chart and line stay, the button goes."""
    from IPython.display import DisplayHandle

    from vitlab.widgets.stop import StopButton

    button, above, below = StopButton(says=f"step 0 of {steps:,}"), DisplayHandle(), DisplayHandle()
    due, shown = 0.0, False

    def say(rows: list[dict], line: str, last: bool) -> None:
        nonlocal due, shown
        start = time.perf_counter()
        button.says = line
        if not rows or (start < due and not last):
            return
        data, metadata = still(*_picture(rows, steps, line))
        (below.update if shown else below.display)(data, raw=True, metadata=metadata)
        due, shown = time.perf_counter() + max(_PAUSE, _SHARE * (time.perf_counter() - start)), True

    above.display(button)
    try:
        yield say
    except BaseException:
        button.says = f"broken off; before that: {button.says}"
        raise
    finally:
        above.update({"text/plain": button.says}, raw=True)
        button.close()


def _picture(rows: list[dict], steps: int, line: str) -> tuple[bytes, str]:
    """The chart (PNG), and the words for those who do not see it."""
    with style():
        return as_png(chart(rows, steps)), f"Loss and accuracy while training. {line}"
