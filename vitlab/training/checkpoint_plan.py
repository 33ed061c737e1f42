"""When a training writes checkpoints, and into which folder: its own, or that of the experiment it is part of."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

SECONDS_BETWEEN = 60.0  # the checkpoints of a training that is part of an experiment
SECONDS_AT_END = 10.0  # such a training's last step is kept where its last checkpoint is older than this
_folders: ContextVar[Iterator[Path] | None] = ContextVar("_folders", default=None)  # of the trainings still to come


@dataclass
class CheckpointPlan:
    """When and where one training writes its checkpoints.

    >>> [CheckpointPlan(Path("checkpoints"), every=500).due(step, last=False) for step in (499, 500)]
    [False, True]
    >>> CheckpointPlan(Path("checkpoints")).due(500, last=True)  # a moment after the training began
    False
    """

    folder: Path | None  # None: none are written
    every: int | None = None  # steps; None: by the clock, see `SECONDS_BETWEEN`
    _since: float = field(default_factory=lambda: time.monotonic(), init=False)

    def __post_init__(self):
        if self.every is not None and self.every < 1:
            raise ValueError(f"a checkpoint every {self.every} steps: expected a number of steps, 1 or more")

    def due(self, step: int, last: bool) -> bool:
        """Whether one is to be written after this step, which may be the training's last."""
        if self.folder is None:
            return False
        if self.every is not None:
            return last or step % self.every == 0
        now = time.monotonic()
        due = now - self._since >= (SECONDS_AT_END if last else SECONDS_BETWEEN)
        self._since = now if due else self._since
        return due


@contextlib.contextmanager
def checkpoints_in(folder: Path) -> Iterator[None]:
    """Trainings in the body that are given no folder write checkpoints below `folder`: the first into 0, the next 1.

    A body that calls `train` in the same order each time can therefore be run again after it was killed: trainings that
    had ended are not repeated, and the one that was under way loses a minute at most. A training of a few seconds
    writes none. The caller removes `folder` when the body is done.
    """
    token = _folders.set(folder / str(number) for number in itertools.count())
    try:
        yield
    finally:
        _folders.reset(token)


def checkpoint_plan(folder: Path | None, every: int, one_process: bool) -> CheckpointPlan:
    """The plan of a training that was given `folder` and `every`.

    `one_process`: whether it trains alone. Of several processes that train together, each would take the next folder.

    >>> checkpoint_plan(None, 500, one_process=True).folder is None
    True
    >>> with checkpoints_in(Path("run")):
    ...     for folder in (Path("own"), None, None):
    ...         print(checkpoint_plan(folder, 500, one_process=True).folder.as_posix())
    own/checkpoints
    run/0
    run/1
    """
    if folder is not None:
        return CheckpointPlan(folder / "checkpoints", every)
    folders = _folders.get()
    return CheckpointPlan(next(folders) if folders is not None and one_process else None)
