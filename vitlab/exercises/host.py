"""The program in which students' answers run, each in a process of its own (no section of the paper).

On Linux the imports are done once, and every exercise begins as a fork of what they leave: no setting, seed, thread
or changed value of one answer reaches the next. Elsewhere, where a fork of a process that has loaded such libraries
is not safe, the program is started for each exercise anew.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab.exercises import confine, judging, needs
from vitlab.exercises.guard import Guard, Refused, limit

FORKS = sys.platform == "linux"


def main(jobs_file: str, results_file: str, folder: str, memory: str) -> None:
    """Run the jobs of a file, one after the other; lines of results say which process has which, and which is gone."""
    jobs = json.loads(Path(jobs_file).read_text(encoding="utf-8"))
    results = os.open(results_file, os.O_WRONLY | os.O_APPEND)
    confine.end_with_parent()
    if not FORKS:
        (job,) = jobs
        _say(results, starts=job["index"], process=os.getpid())
        _run(job, answers(Path(results_file), job["index"]), folder, int(memory))
    _import_what_is_needed(jobs)
    gc.freeze()  # or the first collection of every fork copies all pages of what was imported
    for job in jobs:
        _empty(folder)
        process = os.fork()
        if not process:
            try:
                os.close(results)
                confine.end_with_parent()
                _run(job, answers(Path(results_file), job["index"]), folder, int(memory))
            finally:
                os._exit(1)
        _say(results, starts=job["index"], process=process)
        _, status = os.waitpid(process, 0)
        _say(results, gone=job["index"], code=os.waitstatus_to_exitcode(status))


def answers(results: Path, index: int) -> Path:
    """The file in which a job says that the student's part begins, and what came of it.

    >>> answers(Path("results"), 3).name
    'results-3'
    """
    return results.with_name(f"{results.name}-{index}")


def _import_what_is_needed(jobs: Sequence[dict[str, Any]]) -> None:
    """Do the imports of our code, most of the time of a check, before anything is forked."""
    ours = {job[name] for job in jobs for name in ("setup", "before", "checks")}
    statements = {each.text for text in ours for each in needs.statements(text)}
    for text in sorted(each for each in statements if each.startswith(("import ", "from "))):
        with contextlib.suppress(Exception):  # then the exercise that needs it says so
            exec(text, {})


def _empty(folder: str) -> None:
    """Make the working folder anew."""
    with contextlib.suppress(FileNotFoundError):
        remove(folder)
    os.mkdir(folder)


def remove(folder: str | Path) -> None:
    """Remove a folder however deep it is: what lies deeper is moved up first, so that no path is too long.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> os.makedirs(os.path.join(folder, "a", "b"))
    >>> remove(folder)
    >>> os.path.exists(folder)
    False
    """
    os.chmod(folder, 0o700)
    n_moved = 0
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for inner in os.scandir(entry.path):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)
                    n_moved += 1
                    os.rename(inner.path, os.path.join(folder, f".moved-{os.getpid()}-{n_moved}"))
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
    os.rmdir(folder)


def _run(job: dict[str, Any], answers_file: Path, folder: str, memory: int) -> None:
    """Run one job to its end, and wait to be ended: nothing of the student's has another turn."""
    os.chdir(folder)
    answer = os.open(answers_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    guard = Guard(folder)
    sys.addaudithook(guard)
    base: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(job["setup"], "<notebook>", "exec"), base)
    except Exception as error:
        why = f"what {job['name']} needs of its notebook fails: {type(error).__name__}: {error}"
        _say(answer, begins=False, status="broken", message=why, line="")
    else:
        builtins.input = _no_input
        _empty_output()
        limit(memory)
        confine.to(folder)
        guard.armed = True
        _say(answer, begins=True)
        _say(answer, begins=False, **judging.judge(job, base))
    while True:
        time.sleep(1)


def _say(file: int, **what: Any) -> None:
    os.write(file, (json.dumps(what) + "\n").encode())


def _no_input(*_: object) -> str:
    raise Refused("asked for input(), which nobody can answer here")


def _empty_output() -> None:
    """Forget what was printed, so that the limit is each exercise's own."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        stream.flush()
        os.ftruncate(stream.fileno(), 0)
        os.lseek(stream.fileno(), 0, os.SEEK_SET)


if __name__ == "__main__":
    main(*sys.argv[1:])
