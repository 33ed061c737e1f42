"""Which exercises of a student's notebook are solved, found out where it can do no harm (all sections of the paper)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from vitlab import files, notebooks
from vitlab.exercises import cells, needs

SECONDS = 60.0  # for one exercise
MEMORY = 4 * 2**30  # bytes
_SETUP_SECONDS = 600.0  # for what the exercises need of their notebook; ours, so only a very slow machine needs it
_MOST_PROCESSES = 16
_POLL = 0.05  # seconds


@dataclass(frozen=True)
class Outcome:
    """What became of an exercise: solved, not solved yet, wrong or stopped; why; and the line of the student's code."""

    number: int
    title: str
    status: str
    message: str = ""
    line: str = ""

    def __str__(self) -> str:
        words = ": ".join(filter(None, [self.status, self.message]))
        return f"{self.number}  {self.title}: {words}" + (f"\n     your {self.line}" if self.line else "")


@dataclass(frozen=True)
class Job:
    """One exercise to judge: the code it needs, the student's cells, the original's code around the solution."""

    index: int
    name: str
    setup: str
    cells: tuple[str, ...]
    before: str
    checks: str
    asked: tuple[str, ...]


@dataclass(frozen=True)
class HandIn:
    """A student's file: its name, the source it is a copy of, and the code cells under each exercise's heading."""

    name: str
    original: cells.Original
    code: dict[int, tuple[str, ...]]


def hand_in(path: Path | str) -> HandIn:
    """Read a student's copy of a notebook.

    Raises:
        FileNotFoundError: there is no such file; the message says which exercise notebooks there are to copy.
        ValueError: the file's name is empty, or it is no notebook, or not a copy of one of ours.
    """
    if not str(path):
        raise ValueError("an empty name '' was given as a file: expected a notebook in which you solved exercises")
    if not os.path.isfile(path):  # nor is a pipe, which would be waited for, or a name too long for a file
        raise FileNotFoundError(_no_file(Path(path)))
    handed_in = cells.of_notebook(path)
    original = cells.original_of(Path(path), handed_in)
    return HandIn(Path(path).name, original, {each.number: each.code for each in cells.sections(handed_in)})


def _no_file(path: Path) -> str:
    """Why there is nothing to check, and how to begin."""
    what = f"{path} is a folder: name the notebooks in it" if os.path.isdir(path) else f"there is no file {path}"
    folder = notebooks.notebooks_dir() / "exercises"
    there = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not there:
        return f"{what}. There are no exercise notebooks in {folder} either: they come with a checkout"
    number = re.search(r"(?<!\d)(\d\d)_", path.name)
    first = next((each for each in there if number and each.name.startswith(number[1])), there[0])
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return (
        f"{what}. Exercise notebooks are in {folder}: {', '.join(each.stem for each in there)}. Copy one, solve its "
        f"exercises and check the copy: cp {folder / first.name} my_{first.name}"
    )


def check(handed_in: HandIn, seconds: float = SECONDS, memory: int = MEMORY) -> list[Outcome]:
    """Judge the exercises of a student's notebook by the checks of the source it is a copy of.

    Args:
        handed_in: what `hand_in` read.
        seconds: for each exercise.
        memory: bytes, for all processes of an exercise together.

    Returns:
        An outcome for each exercise of the source, in its order.

    Raises:
        RuntimeError: what an exercise needs of its notebook does not run: the fault is not the student's.
    """
    exercises = handed_in.original.exercises
    there = [each for each in exercises if handed_in.code.get(each.number)]
    outcomes = judge([(each, handed_in.code[each.number]) for each in there], seconds, memory)
    by_number = {outcome.number: outcome for outcome in outcomes}
    if broken := [outcome.message for outcome in outcomes if outcome.status == "broken"]:
        raise RuntimeError(broken[0])
    for each in exercises:
        missing = Outcome(
            each.number,
            each.title,
            "not solved yet",
            "its heading is not in the file, or the file is of an older version",
        )
        by_number.setdefault(each.number, missing)
    return [by_number[each.number] for each in exercises]


def judge(
    work: Sequence[tuple[cells.Section, tuple[str, ...]]], seconds: float = SECONDS, memory: int = MEMORY
) -> list[Outcome]:
    """Judge cells handed in for exercises: one process for all, and a fresh one after each that had to be stopped.

    An outcome is "broken" where what the exercise needs of its notebook does not run.
    """
    jobs = {index: job(index, section, given) for index, (section, given) in enumerate(work)}
    results: dict[int, dict[str, str]] = {}
    while left := [each for index, each in jobs.items() if index not in results]:
        results |= _run(left, seconds, memory)
    return [Outcome(section.number, section.title, **results[index]) for index, (section, _) in enumerate(work)]


def job(index: int, section: cells.Section, given: tuple[str, ...]) -> Job:
    """What has to run, in which order, to judge cells handed in for an exercise."""
    parts = section.parts
    earlier = [each for text in section.earlier for each in needs.statements(at_smoke(text))]
    mine = [each for text in given for each in needs.statements(text)]
    before, checks = (needs.statements("\n".join(texts)) for texts in (parts.before, parts.checks))
    # The names asked for come from the student, so the checks do not want them of the notebook.
    provided = needs.Statement("", frozenset(), frozenset(), parts.asked, frozenset())
    taken = needs.needed(earlier, mine) | needs.needed(earlier, [*before, provided, *checks])
    return Job(
        index,
        f"exercise {section.number}, {section.title}",
        "\n".join(earlier[k].text for k in sorted(taken)),
        given,
        "\n".join(parts.before),
        "\n".join(parts.checks),
        tuple(sorted(parts.asked)),
    )


def at_smoke(text: str) -> str:
    """A cell with its preset, if it sets one, set to the quickest.

    >>> at_smoke('PRESET = "quick"')
    'PRESET = "smoke"'
    """
    return re.sub(r"^PRESET = .*$", 'PRESET = "smoke"', text, flags=re.M)


def _run(jobs: Sequence[Job], seconds: float, memory: int) -> dict[int, dict[str, str]]:
    """Outcomes of the first jobs, up to one that had to be stopped, by index; at least one."""
    with tempfile.TemporaryDirectory(prefix="vitlab-check-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        work, results = folder / "work", folder / "results"
        work.mkdir()
        results.touch()
        (folder / "jobs").write_text(json.dumps([asdict(each) for each in jobs]), encoding="utf-8")
        arguments = [folder / "jobs", results, work, memory]
        command = [sys.executable, "-P", "-m", "vitlab.exercises.guard", *map(str, arguments)]
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
            try:
                return _watch(process, results, seconds, memory)
            finally:
                _end(process)


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(files.ROOT), os.environ.get("PYTHONPATH")]))
    changes = {name: str(folder) for name in ("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "VITLAB_FIGURES")}
    changes |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8:replace"}
    changes["PYTHONUSERBASE"] = site.getuserbase()  # would be looked for at HOME
    changes |= {
        "MPLBACKEND": "agg",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "VITLAB_JOBS": "1",
        "VITLAB_SCHEDULER": "",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {**kept, **changes, "MPLCONFIGDIR": str(folder)}


def _watch(process: subprocess.Popen[bytes], results: Path, seconds: float, memory: int) -> dict[int, dict[str, str]]:
    """Read the results as they come; stop what takes too long, too much memory or too many processes."""
    outcomes: dict[int, dict[str, str]] = {}
    current, deadline, read = None, time.monotonic() + _SETUP_SECONDS, 0
    while True:
        over = process.poll() is not None  # before the file is read: what it wrote is then all there
        lines = results.read_bytes().split(b"\n")[read:-1]
        read += len(lines)
        for line in map(json.loads, lines):
            if "begins" in line:
                current, deadline = line["begins"], time.monotonic() + seconds
            else:
                outcomes[line.pop("ends")] = line
                current, deadline = None, time.monotonic() + seconds
        why = _gone(process.returncode) if over else _too_much(process.pid, deadline, seconds, memory)
        if why and current is None and not (over and outcomes):
            raise RuntimeError(f"the exercises could not be prepared: {why}")
        if why:
            stopped = {current: {"status": "stopped", "message": why, "line": ""}} if current is not None else {}
            return outcomes | stopped
        time.sleep(_POLL)


def _gone(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the Python process was ended by {signal.Signals(-status).name}: a crash, or too little memory"
    return f"the Python process ended, with exit status {status}: os._exit or the like"


def _too_much(process_id: int, deadline: float, seconds: float, memory: int) -> str:
    if time.monotonic() > deadline:
        return f"took longer than {seconds:g} seconds"
    family = _family(process_id)
    if len(family) > _MOST_PROCESSES:
        return f"started {len(family)} processes"
    resident = 0
    for each in family:
        with contextlib.suppress(psutil.Error):
            resident += each.memory_info().rss
    return f"took more memory than a check may have ({memory / 2**30:.3g} GB)" if resident > memory else ""


def _family(process_id: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(process_id)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _copies(process: subprocess.Popen[Any]) -> list[psutil.Process]:
    """Forks of the process, wherever they are by now: they have its command line, which names a folder of its own."""
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == process.args]


def _end(process: subprocess.Popen[Any]) -> None:
    """End the process with all its descendants, those too that left its group; halted first, they start no more."""
    halted: set[psutil.Process] = set()
    while new := {*_family(process.pid), *_copies(process)} - halted:
        halted |= new
        for each in new:
            with contextlib.suppress(psutil.Error):
                each.suspend()
    if hasattr(os, "killpg"):  # also those whose parent has gone
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for each in halted:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()


def describe(handed_in: HandIn, outcomes: Sequence[Outcome]) -> str:
    """What a student reads: a line for each exercise, and how many are solved.

    >>> mine = HandIn("mine.ipynb", cells.Original("01_sums", "Sums", ()), {})
    >>> print(describe(mine, [Outcome(1, "Add", "wrong", "does not hold: x == 3", "line 2: x = 4")]))
    mine.ipynb, a copy of 01_sums
    1  Add: wrong: does not hold: x == 3
         your line 2: x = 4
    0 of 1 solved
    """
    solved = sum(outcome.status == "solved" for outcome in outcomes)
    head = f"{handed_in.name}, a copy of {handed_in.original.stem}"
    return "\n".join([head, *map(str, outcomes), f"{solved} of {len(outcomes)} solved"])
