"""Which exercises of a student's notebook are solved, found out where it can do no harm (all sections of the paper)."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vitlab import notebooks
from vitlab.exercises import cells, host, needs, watch

SECONDS = 60.0  # for one exercise
MEMORY = 4 * 2**30  # bytes


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
    """One exercise to judge: the code it needs, the student's cells, the original's code around the solution.

    The names `asked` for are taken from the student; those `expected`, with what they are, are read by the checks.
    """

    index: int
    name: str
    setup: str
    cells: tuple[str, ...]
    before: str
    checks: str
    asked: tuple[str, ...]
    expected: dict[str, str]


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
        return (
            f"{what}. There are no exercise notebooks in {folder} either: `vitlab copy FOLDER` puts them into a folder"
        )
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
        memory: bytes, for each exercise.

    Returns:
        An outcome for each exercise of the source, in its order.

    Raises:
        RuntimeError: what an exercise needs of its notebook does not run: the fault is not the student's.
    """
    exercises = handed_in.original.exercises
    there = [each for each in exercises if each.number in handed_in.code]
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


def checked(path: Path | str, seconds: float = SECONDS, memory: int = MEMORY) -> tuple[str, int]:
    """What is said of a file, and a status: 0 all is solved, 1 not all, 2 it cannot be checked, which ends no others.

    >>> checked("nowhere.ipynb")[1]
    2
    """
    try:
        handed_in = hand_in(path)
        outcomes = check(handed_in, seconds, memory)
    except (FileNotFoundError, ValueError, RuntimeError) as error:
        if os.environ.get("VITLAB_DEBUG"):
            raise
        return f"vitlab: {' '.join(str(error).split())}", 2
    return describe(handed_in, outcomes), int(any(outcome.status != "solved" for outcome in outcomes))


def judge(
    work: Sequence[tuple[cells.Section, tuple[str, ...]]], seconds: float = SECONDS, memory: int = MEMORY
) -> list[Outcome]:
    """Judge cells handed in for exercises, each in a process of its own.

    An outcome is "broken" where what the exercise needs of its notebook does not run.
    """
    jobs = {index: job(index, section, given) for index, (section, given) in enumerate(work)}
    results: dict[int, dict[str, str]] = {}
    while left := [each for index, each in jobs.items() if index not in results]:
        results |= watch.run([asdict(each) for each in (left if host.FORKS else left[:1])], seconds, memory)
    said = [{name: _printable(text) for name, text in results[index].items()} for index in sorted(results)]
    return [Outcome(section.number, section.title, **words) for (section, _), words in zip(work, said, strict=True)]


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
        _expected(parts, checks),
    )


def _expected(parts: cells.Parts, checks: Sequence[needs.Statement]) -> dict[str, str]:
    """What the checks read of the solution, in the words of a message: "a function f(x)", "a value"."""
    read: set[str] = set()
    bound: set[str] = set()
    for each in checks:
        read |= (each.now | each.later) - bound
        bound |= each.binds
    nodes = [node for text in parts.solution for node in ast.parse(text).body]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    defined = {node.name: f"a function {node.name}({ast.unparse(node.args)})" for node in functions}
    return {name: defined.get(name, "a value") for name in sorted(parts.asked & read)}


def at_smoke(text: str) -> str:
    """A cell with its preset, if it sets one, set to the quickest.

    >>> at_smoke('PRESET = "quick"')
    'PRESET = "smoke"'
    """
    return re.sub(r"^PRESET = .*$", 'PRESET = "smoke"', text, flags=re.M)


def _printable(text: str) -> str:
    """Text without what a terminal would obey or cannot show: escape sequences, halves of characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
    head = f"{_printable(handed_in.name)}, a copy of {handed_in.original.stem}"
    return "\n".join([head, *map(str, outcomes), f"{solved} of {len(outcomes)} solved"])
