"""Ctrl-C while training: the step is finished and a checkpoint written before the training stops. No section."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from vitlab.training.processes import Group


class Stopped(KeyboardInterrupt):
    """An interrupt stopped the training at the end of a step: `step` updates are done, `rows` are the rows so far.

    >>> print(Stopped(7, [], saved="step_00000007"))
    stopped after step 7; its checkpoint is step_00000007: run the same again to go on
    """

    def __init__(self, step: int, rows: list[dict], saved: str | None) -> None:
        saved_as = f"its checkpoint is {saved}: run the same again to go on"
        unsaved = "there is no folder, so nothing was saved"
        super().__init__(f"stopped after step {step}; {saved_as if saved else unsaved}")
        self.step, self.rows = step, rows


@contextlib.contextmanager
def waiting(group: Group) -> Iterator[threading.Event]:
    """In the body, the first interrupt (SIGINT) sets the event that is given; a second one raises KeyboardInterrupt.

    Where the event is set and the body ends all the same without an exception, KeyboardInterrupt is raised after it.
    Outside the main thread, which alone receives signals, and in a group of several processes, of which none can stop
    without the others, the event is never set and interrupts are handled as before.

    >>> from vitlab.training import processes
    >>> with waiting(processes.group()) as asked:
    ...     asked.is_set()
    False
    """
    asked, usual = threading.Event(), signal.getsignal(signal.SIGINT)
    if group.size > 1 or threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield asked
        return

    def wait(number, frame) -> None:
        asked.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, wait)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, usual)
    if asked.is_set():
        raise KeyboardInterrupt
