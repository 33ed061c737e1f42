"""An interrupt that waits for the end of a training step, so that what it leaves is whole. No section of the paper."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from vitlab.training.processes import Group


class Stopped(KeyboardInterrupt):
    """A training that an interrupt ended after a whole step: `step` are done, `rows` are those of `train` so far.

    >>> print(Stopped(7, [], saved="step_00000007"))
    stopped after step 7; its checkpoint is step_00000007: run the same again to go on
    """

    def __init__(self, step: int, rows: list[dict], saved: str | None) -> None:
        way = f"its checkpoint is {saved}: run the same again to go on"
        super().__init__(f"stopped after step {step}; {way if saved else 'there is no folder, so nothing was saved'}")
        self.step, self.rows = step, rows


@contextlib.contextmanager
def waiting(group: Group) -> Iterator[threading.Event]:
    """An event that the first interrupt (SIGINT) sets instead of raising; the second is raised at once.

    An interrupt that the body did not end by is raised when it has ended. Interrupts reach the main thread alone, and
    of several processes none can stop without the others: there the event is never set, and an interrupt does what it
    always did.

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
