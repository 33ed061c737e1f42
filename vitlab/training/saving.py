"""Where and when a training keeps checkpoints: in its own folder, or in that of the run it is part of. No section."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

EACH = 60.0  # seconds between the checkpoints of a training that is part of a run
WORTH = 10.0  # seconds since the last one after which such a training's end is kept too
_run: ContextVar[Iterator[Path] | None] = ContextVar("_run", default=None)  # the folders of its trainings to come


@dataclass
class Saves:
    """The checkpoints of one training.

    >>> [Saves(Path("checkpoints"), every=500).due(step, last=False) for step in (499, 500)]
    [False, True]
    >>> Saves(Path("checkpoints")).due(500, last=True)  # a moment after the training began
    False
    """

    folder: Path | None  # None: there are none
    every: int | None = None  # steps; None: by the clock
    _since: float = field(default_factory=lambda: time.monotonic(), init=False)

    def due(self, step: int, last: bool) -> bool:
        """Whether one is to be written after this step, which may be the training's last."""
        if self.folder is None:
            return False
        if self.every is not None:
            return last or step % self.every == 0
        now = time.monotonic()
        due = now - self._since >= (WORTH if last else EACH)
        self._since = now if due else self._since
        return due


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Trainings of the body that are given no folder keep their checkpoints in `folder`, each in one of its own.

    They are told apart by their order. A body that does the same each time, run again after it was killed, so goes
    on where it was: a training that had ended is not done again, the one that was under way loses a minute at most.
    What takes seconds leaves nothing. Whoever calls this removes `folder` when the body is done.
    """
    token = _run.set(folder / str(number) for number in itertools.count())
    try:
        yield
    finally:
        _run.reset(token)


def chosen(folder: Path | None, every: int, alone: bool) -> Saves:
    """How a training is saved that was given `folder` and `every`; `alone`: it does not share its batches out.

    >>> chosen(None, 500, alone=True).folder is None
    True
    >>> with within(Path("run")):
    ...     [chosen(Path("own"), 500, alone=True).folder, *(chosen(None, 500, alone=True).folder for _ in range(2))]
    [PosixPath('own/checkpoints'), PosixPath('run/0'), PosixPath('run/1')]
    """
    if folder is not None:
        return Saves(folder / "checkpoints", every)
    folders = _run.get()
    return Saves(next(folders) if folders is not None and alone else None)
