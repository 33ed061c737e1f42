"""A training watched from a notebook: a chart that grows with it, and the time left; it can be stopped (§4.1)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.display import DisplayHandle
from matplotlib.figure import Figure
from torch import nn
from tqdm import tqdm

from vitlab.data.loader import Batches
from vitlab.plots.style import COLOURS, accuracy_axis, as_png, in_notebook, show_still, still, style
from vitlab.training.loop import Stopped, train
from vitlab.training.recipe import Recipe
from vitlab.training.session import progress
from vitlab.widgets.controls import somebody_is_there


def watch(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    epoch: int | None = None,
    **options: Any,
) -> list[dict]:
    """Train (`loop.train`, with its `options`) with something to look at; returns its rows, all so far where stopped.

    In a notebook with a person before it a chart follows the rows, with the time left above it. Under papermill,
    nbconvert or in a script there is a plain line for every `epoch` images instead (None: for every row). Where the
    notebook's stop button (■) or Ctrl-C stops it, the step that runs is ended and its checkpoint is written to
    `folder`: the same call again resumes there, to the same bits.
    """
    if epoch is not None and epoch < 1:
        raise ValueError(f"epoch is {epoch}; expected the number of training images, 1 or more, or None")
    log = None if folder is None else folder / "log.jsonl"  # of a training that was stopped in this folder
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.is_file() else []
    watched, line, chart_below, due, drawn, said = somebody_is_there(), DisplayHandle(), DisplayHandle(), 0.0, False, 0

    def say(text: str, last: bool = False) -> None:
        nonlocal due, drawn, said
        words = f"Loss and accuracy while training. {text}"
        if not watched:
            count = rows[-1]["samples"] // epoch if rows and epoch else len(rows)
            if last or count > said:
                print(text, flush=True)
            said = count
            if last and rows and in_notebook():
                show_still(draw_png(rows, recipe.steps), words)
            return
        line.update({"text/plain": text}, raw=True)
        start = time.perf_counter()
        if rows and (last or start >= due):
            data, metadata = still(draw_png(rows, recipe.steps), words)
            (chart_below.update if drawn else chart_below.display)(data, raw=True, metadata=metadata)
            now, drawn = time.perf_counter(), True
            due = now + max(0.5, 10 * (now - start))  # seconds; the training has ten times what a drawing takes

    def report(row: dict) -> None:
        rows[:] = [*(old for old in rows if old["step"] < row["step"]), row]
        if row["step"] < recipe.steps:  # of the last row the line after the training speaks
            say(progress(row, recipe.steps))

    if watched:
        line.display({"text/plain": f"step 0 of {recipe.steps:,}; the notebook's stop button (■) stops it"}, raw=True)
    try:
        rows = train(model, batches, recipe, folder=folder, report=report, **options)
        end = f"{progress(rows[-1], rows[-1]['step'])}, trained for {tqdm.format_interval(rows[-1]['seconds'])}"
    except Stopped as stopped:
        rows, way = stopped.rows, "run the cell again to resume" if folder else "without a folder it cannot resume"
        end = f"stopped at step {stopped.step:,} of {recipe.steps:,}; {way}"
    say(end, last=True)
    return rows


def draw_png(rows: Sequence[dict], steps: int) -> bytes:
    """Draw `chart` as a PNG in the house style."""
    with style():
        return as_png(chart(rows, steps))


def chart(rows: Sequence[dict], steps: int) -> Figure:
    """Draw loss by step and, where there is a validation set, accuracy next to it; `rows` are those of `loop.train`."""
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
