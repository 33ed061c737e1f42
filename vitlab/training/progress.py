"""What is said of a training while it runs: a line for each evaluation, and the time left. No section of the paper."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from vitlab.data.loader import Batches

_UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}  # in seconds
_PAUSES = {True: 0.5, False: 30.0}  # seconds between two lines at least, evaluations apart; True: on a terminal
Watch = Callable[[Batches], Batches]


def progress(row: dict, steps: int, left: float | None = None) -> str:
    """One line about a row of `loop.train`, or about what is known of one; `left` is in seconds.

    >>> row = {"step": 30, "train_loss": 1.25, "val_accuracy": 0.5, "images_per_second": 2345.6}
    >>> progress(row, 1200, left=78)
    'step 30 of 1,200: loss 1.250, accuracy 50.0 %, 2,346 images/s, about 78 seconds left'
    """
    parts = [f"loss {row['train_loss']:.3f}"] if "train_loss" in row else []
    if "val_accuracy" in row:
        parts.append(f"accuracy {100 * row['val_accuracy']:.1f} %")
    parts.append(f"{row['images_per_second']:,.0f} images/s")
    if left is not None:
        parts.append(f"about {in_words(left)} left")
    return f"step {row['step']:,} of {steps:,}: {', '.join(parts)}"


def seconds_left(marks: Sequence[tuple[int, float]], steps: int) -> float | None:
    """Time to the last step at the pace so far, evaluations and drawing included; None before there is a pace.

    `marks` are (step, seconds on a clock).

    >>> seconds_left([(100, 7.0)], 400), seconds_left([(100, 7.0), (150, 8.0), (200, 9.0)], 400)
    (None, 4.0)
    """
    (first, start), (step, now) = marks[0], marks[-1]
    return (now - start) / (step - first) * (steps - step) if step > first else None


def in_words(seconds: float) -> str:
    """A time in its largest fitting unit, rounded.

    >>> [in_words(seconds) for seconds in (0.2, 1, 89, 90, 5_399, 5_400, 200_000)]
    ['1 second', '1 second', '89 seconds', '2 minutes', '90 minutes', '2 hours', '2 days']
    """
    name, size = next((unit for unit in _UNITS.items() if seconds >= 1.5 * unit[1]), ("second", 1))
    count = max(1, round(seconds / size))
    return f"{count} {name}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def in_lines(steps: int, batch_size: int, pause: float | None = None) -> Iterator[tuple[Watch, Callable[[dict], None]]]:
    """Two functions for `loop.train`: one to pass its batches through, one as its `report`. They print.

    Each evaluation is a line. Between two evaluations a line says how far the training is: on a terminal one that is
    written over, elsewhere one every 30 seconds; `pause` is in seconds.

    >>> with in_lines(steps=4, batch_size=16) as (watch, report):
    ...     for step in range(4):
    ...         batch = watch(lambda step: step)(step)
    ...     report({"step": 4, "train_loss": 1.5, "images_per_second": 800.0})
    step 4 of 4: loss 1.500, 800 images/s
    """
    stream = sys.stdout
    on_terminal, open_line = stream.isatty(), ""  # the line that is to be written over
    pause = _PAUSES[on_terminal] if pause is None else pause
    first = begun = (0, 0.0)  # where the training, and what follows its last evaluation, began: step, seconds
    current, said = -1, time.perf_counter()

    def say(line: str, stays: bool) -> None:
        nonlocal open_line, said
        shown = line if stays or not on_terminal else line[: shutil.get_terminal_size().columns - 1]
        ending = "\n" if stays or not on_terminal else ""
        stream.write(f"{chr(13) if open_line else ''}{shown.ljust(len(open_line))}{ending}")
        stream.flush()
        open_line, said = "" if ending else shown, time.perf_counter()

    def begins(step: int) -> None:
        nonlocal first, begun, current
        now = time.perf_counter()
        if current < 0:
            first = begun = (step, now)
            if step:
                say(f"going on after step {step:,} of {steps:,}", True)
        elif now - said >= pause and step > begun[0]:
            row = {"step": step, "images_per_second": (step - begun[0]) * batch_size / (now - begun[1])}
            say(progress(row, steps, seconds_left([first, (step, now)], steps)), False)
        current = step

    def watch(batches: Batches) -> Batches:
        def watched(step: int, *part: int | None):
            if step > current:
                begins(step)
            return batches(step, *part)

        return watched

    def report(row: dict) -> None:
        nonlocal begun
        begun = (row["step"], time.perf_counter())
        say(progress(row, steps, seconds_left([first, begun], steps) if row["step"] < steps else None), True)

    try:
        yield watch, report
    finally:
        if open_line:
            stream.write("\n")
            stream.flush()
