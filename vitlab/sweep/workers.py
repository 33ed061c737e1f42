"""Runs tasks in worker processes that may die without taking the others along. No section of the paper."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

# What became of a task: "busy" (another process holds it), "failed" or "died", or a word of the work's own;
# with a message.
Outcome = tuple[str, str]
Work = Callable[[Any, bool], Outcome]
_ATTEMPTS = 2  # a task whose worker was killed is repeated once
_GRACE = 5.0  # seconds between asking a worker to end and killing it


def completed(work: Work, tasks: Sequence[Any], jobs: int) -> Iterator[tuple[Any, Outcome]]:
    """Yield every task with what became of it, in the order in which they end, from up to `jobs` processes.

    `work(task, wait)` is called with `wait=False` first; a task found busy comes again, last of all and with
    `wait=True`. A task whose process was killed is repeated once.
    """
    context = multiprocessing.get_context("spawn")  # forking a process that has used torch's threads may hang
    queue = deque((task, False, 1) for task in tasks)
    idle: list[tuple[Any, Connection]] = []
    busy: dict[Connection, tuple[Any, tuple[Any, bool, int]]] = {}
    try:
        while queue or busy:
            while queue and len(busy) < jobs:
                process, pipe = idle.pop() if idle else _start(context)
                item = queue.popleft()
                busy[pipe] = (process, item)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # read as a death below
                    pipe.send((work, item[0], item[1]))
            ended = wait(list(busy))
            for pipe in [each for each in busy if each in ended]:
                process, (task, patient, attempt) = busy.pop(pipe)
                try:
                    outcome = pipe.recv()
                    idle.append((process, pipe))
                except (EOFError, ConnectionResetError):
                    outcome = ("died", _death(process))
                    pipe.close()
                if outcome[0] == "busy":
                    queue.append((task, True, attempt))
                elif outcome[0] == "died" and attempt < _ATTEMPTS:
                    print(f"vitlab: a worker {outcome[1]}; its run is repeated", file=sys.stderr, flush=True)
                    queue.appendleft((task, patient, attempt + 1))
                else:
                    yield task, outcome
    finally:
        _stop([*idle, *((process, pipe) for pipe, (process, _) in busy.items())])


def _start(context: Any) -> tuple[Any, Connection]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,))
    process.start()
    theirs.close()  # or the death of the worker would not close the pipe
    return process, ours


def _stop(workers: list[tuple[Any, Connection]]) -> None:
    # What a worker has finished is on disk, and half-written files are recognised: ending it at once loses nothing.
    # Work that handles SIGTERM, as the execution of a notebook does, has time to end what it has started.
    for process, pipe in workers:
        pipe.close()
        process.terminate()
    for process, _ in workers:
        process.join(_GRACE)
        process.kill()
        process.join()


def _death(process: Any) -> str:
    process.join()
    code = process.exitcode
    if code < 0:
        return f"was killed by {signal.Signals(-code).name} (out of memory, or stopped from outside)"
    return (
        f"ended with exit status {code} (a script that runs experiments in several processes must do so "
        'under `if __name__ == "__main__":`)'
    )


def _serve(pipe: Connection) -> None:
    """Life of a worker: one thread, one task after the other, until the parent hangs up or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its workers
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # read when torch is imported, with the task
    threading.Thread(target=follow_parent, daemon=True).start()
    while True:
        try:
            work, task, patient = pipe.recv()
        except EOFError:
            return
        except Exception:  # noqa: BLE001 (the task's module may fail to import here, in any way)
            outcome = ("failed", traceback.format_exc(limit=-3))
        else:
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            outcome = attempted(work, task, patient)
        pipe.send(outcome)


def follow_parent() -> None:
    """Wait until the process that started this one ends, however it does, and end this one then. For a thread.

    A parent killed outright cannot stop its workers: they would compute on, for nobody.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def attempted(work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns for `arguments`, or the outcome "failed" with the exception it raised.

    >>> attempted(lambda x: 1 / x, 0)
    ('failed', 'ZeroDivisionError: division by zero')
    """
    try:
        return work(*arguments)
    except Exception as error:  # noqa: BLE001 (whatever a run raises is that run's outcome)
        return failed(error)


def failed(error: Exception) -> Outcome:
    """The outcome of a run that raised `error`; with VITLAB_DEBUG its traceback is printed.

    >>> failed(ValueError("no"))
    ('failed', 'ValueError: no')
    """
    if os.environ.get("VITLAB_DEBUG"):
        traceback.print_exception(error)
    return "failed", f"{type(error).__name__}: {error}"
