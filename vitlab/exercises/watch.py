"""Answers watched from outside: what takes too much is ended, with all it started (no section of the paper)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import site
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from vitlab import paths
from vitlab.exercises.host import answers, remove

FOLDER_LIMIT = 100 * 2**20  # bytes of all files of an exercise together
_MOST_FILES = 1000
_SETUP_SECONDS = 600.0  # for what the exercises need of their notebook; ours, so only a very slow machine needs it
_POLL = 0.05  # seconds
_HOST = ("-m", "vitlab.exercises.host")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_STATUSES = ("solved", "not solved yet", "wrong", "stopped")  # of an answer; "broken" where none could begin

Verdict = dict[str, str]  # status, message, line


def run(jobs: Sequence[dict[str, Any]], seconds: float, memory: int) -> dict[int, Verdict]:
    """Outcomes of the first jobs, by index; at least one.

    Raises:
        RuntimeError: what a job needs of its notebook could not be prepared.
    """
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="vitlab-check-")))
    try:
        work, results = folder / "work", folder / "results"
        work.mkdir()
        results.touch()
        (folder / "jobs").write_text(json.dumps(jobs), encoding="utf-8")
        command = [sys.executable, "-P", *_HOST, *map(str, (folder / "jobs", results, work, memory))]
        with (
            (folder / "output").open("wb") as output,
            (folder / "errors").open("wb") as errors,
            subprocess.Popen(
                command,
                cwd=work,
                env=_environment(work),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,  # so that all it started can be ended with it
            ) as process,
        ):
            first = psutil.Process(process.pid)
            try:
                return _Watch(process, work, results, len(jobs), seconds, memory).until_all_ended()
            finally:
                _end(process, first)
    finally:
        with contextlib.suppress(OSError):
            remove(folder)


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
    changes = {name: str(folder) for name in ("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "VITLAB_FIGURES")}
    changes |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8:replace"}
    changes["PYTHONUSERBASE"] = site.getuserbase()  # would be looked for at HOME
    changes |= dict.fromkeys(_THREADS, "1")  # many checks at a time would fight for the processors, and time out
    changes |= {
        "MPLBACKEND": "agg",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "VITLAB_JOBS": "1",
        "VITLAB_SCHEDULER": "",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {**kept, **changes, "MPLCONFIGDIR": str(folder)}


@dataclass
class _Watch:
    """A host at work: what is known of its jobs, and of the one that runs."""

    host: subprocess.Popen[bytes]
    work: Path
    results: Path
    n_jobs: int
    seconds: float
    memory: int
    outcomes: dict[int, Verdict] = field(default_factory=dict)
    index: int | None = None  # of the job that runs
    process: psutil.Process | None = None  # in which it runs
    begun: bool = False  # the student's part of it
    since: float = 0.0  # when what goes on now began
    n_read: dict[Path, int] = field(default_factory=dict)  # lines of each file of results

    def until_all_ended(self) -> dict[int, Verdict]:
        """Read the results as they come; stop what takes too much."""
        self.since, pause = time.monotonic(), _POLL
        while len(self.outcomes) < self.n_jobs:
            over = self.host.poll() is not None  # before its file is read: what it wrote is then all there
            for said in self._new_lines(self.results):
                pause = _POLL / 20  # most answers take less
                if "starts" in said:
                    self._start(said["starts"], said["process"])
                self._listen()
                if "gone" in said and said["gone"] == self.index:
                    self._stop(_gone(said["code"]))
            self._listen()
            if over:
                if self.index is not None or not self.outcomes:
                    self._stop(_gone(self.host.returncode))
                break  # the jobs that are left get another host
            if why := self._too_much():
                self._stop(why)
            time.sleep(pause := min(2 * pause, _POLL))
        return self.outcomes

    def _new_lines(self, path: Path) -> list[Any]:
        lines = path.read_bytes().split(b"\n")[self.n_read.get(path, 0) : -1] if path.exists() else []
        self.n_read[path] = self.n_read.get(path, 0) + len(lines)
        return [json.loads(line) for line in lines]

    def _start(self, index: int, process: int) -> None:
        self.index, self.begun, self.since = index, False, time.monotonic()
        with contextlib.suppress(psutil.Error):
            self.process = psutil.Process(process)

    def _listen(self) -> None:
        """What the job that runs says of itself: in a file of its own, since a student's code can write there too."""
        if self.index is None:
            return
        try:
            for said in self._new_lines(answers(self.results, self.index)):
                if said["begins"] and not self.begun:
                    self.begun, self.since = True, time.monotonic()
                elif not said["begins"]:
                    if (said["status"] in _STATUSES) is not self.begun:
                        raise ValueError(f"no status of an answer: {said['status']!r}")
                    outcome = {name: str(said[name]) for name in ("status", "message", "line")}
                    return self._close(outcome, self._too_much())  # one that leaves a process is not solved
        except (ValueError, TypeError, LookupError, RecursionError):
            self._stop("wrote to a file that belongs to the check")

    def _stop(self, why: str) -> None:
        if self.index is None or not self.begun:
            raise RuntimeError(f"the exercises could not be prepared: {why}")
        self._close({}, why)

    def _close(self, outcome: Verdict, why: str) -> None:
        """End the process of the job that runs, and keep what came of it."""
        assert self.index is not None
        self.outcomes[self.index] = {"status": "stopped", "message": why, "line": ""} if why else outcome
        if self.process:
            _kill(self.process)
        self.index, self.process, self.begun, self.since = None, None, False, time.monotonic()

    def _too_much(self) -> str:
        seconds = self.seconds if self.begun else _SETUP_SECONDS
        if time.monotonic() - self.since > seconds:
            return f"took longer than {seconds:g} seconds"
        if self.process is None:
            return ""
        with contextlib.suppress(psutil.Error):
            if self.process.memory_info().rss > self.memory:
                return f"took more memory than a check may have ({self.memory / 2**30:.3g} GB)"
            if self.begun and self.process.children():
                return "tried to start another process"
        return _too_many_files(self.work, self.process.pid) if self.begun else ""


def _gone(status: int) -> str:
    if status == -getattr(signal, "SIGSYS", 0) != 0:
        return "tried to start another process"  # the only thing for which `confine` has a process ended
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the Python process was ended by {signal.Signals(-status).name}: a crash, or too little memory"
    return f"the Python process ended, with exit status {status}, before the checks were through: os._exit or the like"


def _too_many_files(folder: Path, process: int) -> str:
    """What is wrong with the files of an exercise, those too that have no name any more but are open."""
    n_files, size, left = 0, 0, [str(folder)]
    while left and n_files <= _MOST_FILES:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    n_files += 1
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
        except PermissionError:
            return "made a folder that the check cannot look into"
        except OSError:  # gone meanwhile
            continue
    with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as descriptors:
        for entry in descriptors:
            with contextlib.suppress(OSError):
                opened = os.stat(entry.path)
                size += opened.st_size if stat.S_ISREG(opened.st_mode) and not opened.st_nlink else 0
    if n_files > _MOST_FILES:
        return f"made more than {_MOST_FILES} files and folders"
    return f"wrote more than {FOLDER_LIMIT // 2**20} MB in all" if size > FOLDER_LIMIT else ""


def _family(first: psutil.Process) -> list[psutil.Process]:
    try:
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _copies(arguments: Any) -> list[psutil.Process]:
    """Forks of the host, wherever they are by now: they have its command line, which names a folder of its own."""
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == arguments]


def _kill(first: psutil.Process, arguments: Any = None) -> None:
    """End a process with its descendants, and its copies if asked; halted first, they start no more."""
    halted: set[psutil.Process] = set()
    while new := {*_family(first), *(_copies(arguments) if arguments else ())} - halted:
        halted |= new
        for each in new:
            with contextlib.suppress(psutil.Error):
                each.suspend()
    for each in halted:
        with contextlib.suppress(psutil.Error):
            each.kill()


def _end(host: subprocess.Popen[Any], first: psutil.Process) -> None:
    """End the host with all its descendants, those too that left its group."""
    _kill(first, host.args)
    if hasattr(os, "killpg"):  # also those whose parent has gone
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(host.pid, signal.SIGKILL)
    host.wait()
