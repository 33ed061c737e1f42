"""Checks a student's copy of a notebook by the notebook's own exercises."""

from __future__ import annotations

import ast
import json
import re
import symtable
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab import notebooks, paths

MARKER = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*$", re.M)  # nbgrader's
NOT_SOLVED = "exercise not solved yet"
_HEADING = re.compile(r"^### (?:Exercise )?(\d+) · (.+?) \(★+, \d+ min(?:utes)?\)[ \t]*$", re.M)
Cells = list[tuple[str, str]]  # "markdown" or "code", and the text


def read_cells(path: Path) -> Cells:
    """Read the cells of a notebook; raises ValueError where it is none."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [(cell["cell_type"], "".join(cell.get("source", ""))) for cell in cells]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a Jupyter notebook (format 4), with a list of cells") from error


def exercises(cells: Cells) -> dict[int, dict[str, Any]]:
    """Find the exercises: each has everything from its heading ("### 1 · Title (★★, 5 minutes)") to the next heading.

    Returns number → title, code (its code cells), earlier (the code cells before it).
    """
    found: dict[int, dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    code: list[str] = []
    for kind, text in cells:
        if kind == "code":
            if current is not None:
                current["code"].append(text)
            code.append(text)
        elif heading := _HEADING.search(text):
            fresh: dict[str, Any] = {"title": heading[2], "code": [], "earlier": list(code)}
            current = found.setdefault(int(heading[1]), fresh)  # of a section that was duplicated, one
        elif re.search(r"^#{1,3} ", text, re.M):
            current = None
    return found


def source_of(path: Path, cells: Cells) -> Path:
    """Find the notebook that a copy is of, by its title ("# 08 · …") or else its file's name; ValueError if neither."""
    texts = "\n\n".join(text for kind, text in cells if kind == "markdown")
    number = re.search(r"^# (\w+) · ", texts, re.M) or re.search(r"(?<!\d)(\d\d)_", path.name)
    found = sorted((paths.shipped() / "notebooks").glob(f"{number[1]}_*.ipynb")) if number else []
    if not found:
        expected = "expected its title ('# 08 · …') in a text cell, or its number in the file's name (08_….ipynb)"
        raise ValueError(f"{path}: cannot tell which notebook this is a copy of: {expected}")
    return found[0]


def check(path: Path, seconds: float = 60.0) -> list[dict[str, Any]]:
    """Judge the exercises of a student's copy by the checks of the notebook it is a copy of.

    Of the student's only the cells under an exercise's heading run; of the notebook's the checks, and those earlier
    statements that the exercise needs; in a kernel, in a temporary folder, at most `seconds` for one exercise.
    Strangers' code belongs in a container all the same.

    Returns for each exercise: exercise (number), title, status ("solved", "not solved yet", "wrong" or "stopped"),
    message (why). Raises ValueError for a file that is not a copy of ours.
    """
    handed_in = read_cells(path)
    original, mine = exercises(read_cells(source_of(path, handed_in))), exercises(handed_in)
    original = {number: each for number, each in original.items() if MARKER.search("\n".join(each["code"]))}
    for each in mine.values():  # a blank copy of a cell would undo the solved one
        sets = {cell: {name for text in _statements(cell) for name in _names(text)[1]} for cell in each["code"]}
        solved = {name for cell, names in sets.items() if NOT_SOLVED not in cell for name in names}
        each["left out"] = [cell for cell, names in sets.items() if NOT_SOLVED in cell and names & solved]
        each["code"] = [cell for cell in each["code"] if cell not in each["left out"]]
    results = _judge_all({n: job_of(original[n], mine[n]["code"]) for n in original if n in mine}, seconds)
    for n in results:
        results[n]["message"] += "; a blank copy of the cell does not count" if mine[n]["left out"] else ""
    missing = {"status": "not solved yet", "message": "its heading is not in the file, or was another one"}
    return [{"exercise": n, "title": each["title"]} | results.get(n, missing) for n, each in original.items()]


def job_of(original: dict[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Gather what has to run to judge cells handed in for an exercise: the arguments of `judge`."""
    before, solution, checks = list[str](), list[str](), list[str]()
    for text in original["code"]:
        numbers = [text.count("\n", 0, edge.start()) + 1 for edge in MARKER.finditer(text)]
        inside = {line for begin, end in zip(numbers[::2], numbers[1::2], strict=True) for line in range(begin, end)}
        for node in ast.parse(text).body:
            solves = inside & set(range(node.lineno, (node.end_lineno or 0) + 1))
            (solution if solves else checks if solution else before).append(ast.unparse(node))
    names, needed = set[str](), list[str]()
    for text in reversed([text for cell in (*before, *given, *checks) for text in _statements(cell)]):
        reads, sets = _names(text)
        names = names - sets | reads
    earlier = re.sub(r"^PRESET = .*$", 'PRESET = "smoke"', "\n".join(original["earlier"]), flags=re.M)
    for text in reversed(_statements(earlier)):  # what sets a name that is still wanted
        reads, sets = _names(text)
        if names & sets:
            needed.append(text)
            names = names - sets | reads
    asked = sorted({name for text in solution for name in _names(text)[1]})
    setup = "\n".join([*reversed(needed), *before])
    return {"setup": setup, "cells": list(given), "checks": "\n".join(checks), "asked": asked}


def _statements(text: str) -> list[str]:
    """List the statements of a cell; none if it is no Python."""
    try:
        return [ast.unparse(node) for node in ast.parse(text).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _names(text: str) -> tuple[set[str], set[str]]:
    """Find the global names that a statement reads, in its functions too, and those that it sets."""
    top = symtable.symtable(text, "cell", "exec")
    reads, tables = set[str](), [top]
    for table in tables:
        tables += table.get_children()
        found = (each for each in table.get_symbols() if each.is_referenced() and (table is top or each.is_global()))
        reads |= {each.get_name() for each in found}
    return reads, {each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_imported()}


def _judge_all(jobs: dict[int, dict[str, Any]], seconds: float) -> dict[int, dict[str, str]]:
    """Run jobs in kernels, a new one after each that takes too long or ends its own; returns results by their keys."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from nbformat import v4

    results: dict[int, dict[str, str]] = {}
    while left := [key for key in jobs if key not in results]:
        codes = ["import torch\nfrom vitlab.exercises import judge", *(f"judge(**{jobs[key]!r})" for key in left)]
        notebook, why = v4.new_notebook(cells=[v4.new_code_cell(code) for code in codes]), "did not come to an end"
        limits = {"timeout_func": lambda cell: seconds if cell.source.startswith("judge") else None}  # not the imports
        with tempfile.TemporaryDirectory(prefix="vitlab-") as folder:
            try:
                notebooks.run_cells(notebook, folder, {"MPLBACKEND": "agg"}, shutdown_kernel="immediate", **limits)
            except CellTimeoutError:
                why = f"took longer than {seconds:g} seconds"
            except DeadKernelError:
                why = "ended the process it ran in: exit(), or too little memory"
        for key, cell in zip(left, notebook.cells[1:], strict=True):
            found = [each["data"]["text/plain"] for each in cell.outputs if each["output_type"] == "execute_result"]
            results[key] = ast.literal_eval(found[0]) if found else {"status": "stopped", "message": why}
            if not found:
                break
    return results


def judge(setup: str, cells: list[str], checks: str, asked: list[str]) -> dict[str, str]:
    """Run a student's cells and the notebook's checks in this process; returns status and message."""
    from IPython import get_ipython
    from IPython.core.inputtransformer2 import TransformerManager

    base: dict[str, Any] = {"__name__": "__main__", "get_ipython": get_ipython, "display": lambda *_, **__: None}
    yours, node, status = dict[str, list[str]](), None, "stopped"  # if the notebook's own code fails
    try:
        exec(setup, base)
        mine, status = dict(base), "wrong"
        for cell in cells:
            name, code = f"<your cell {len(yours)}>", TransformerManager().transform_cell(cell)
            yours[name], tree = code.split("\n"), ast.parse(code, name)
            tree.body = [each for each in tree.body if not isinstance(each, ast.Assert)]  # the notebook's count
            exec(compile(tree, name, "exec"), mine)
        checked = mine | base | {name: mine[name] for name in asked if name in mine}  # all else is the notebook's
        for node in ast.parse(checks).body:
            exec(compile(ast.Module([node], []), "<checks>", "exec"), checked)
        return {"status": "solved", "message": ""}
    except BaseException as error:  # noqa: BLE001 (whatever a student's code raises is what is told)
        if isinstance(error, NotImplementedError) and str(error) in ("", NOT_SOLVED):
            return {"status": "not solved yet", "message": ""}
        message = " ".join("".join(traceback.format_exception_only(error)).split())
        if isinstance(error, AssertionError) and isinstance(node, ast.Assert):
            message = f"does not hold: {ast.unparse(node.test)}"
        message = message[:400]
        places: list[Any] = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        places += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
        for file, line in [(file, line) for file, line in places if file in yours and line][-1:]:
            message += f"\n     your line {line}: {yours[file][line - 1].strip()[:200]}"
        unnamed = isinstance(error, NameError) and error.name in asked
        return {"status": "not solved yet" if unnamed else status, "message": message}


def check_all(files: Sequence[str], seconds: float = 60.0, csv: str | None = None) -> int:
    """Print what became of the exercises in files and folders of hand-ins, and a table of several; `csv` is its file.

    Returns 0 where all is solved, 1 where not, 2 where a file cannot be checked.
    """
    import pandas as pd

    given, status, rows = [Path(file) for file in files], 0, list[dict[str, str]]()
    expanded = [path for each in given for path in (sorted(each.rglob("*.ipynb")) if each.is_dir() else [each])]
    if not expanded:
        raise FileNotFoundError(f"no notebooks in {', '.join(files)}: name notebooks, or a folder with them")
    for file in expanded:
        rows.append({"file": str(file)})
        try:
            outcomes = check(file, seconds)
        except (OSError, ValueError) as error:
            print(f"vitlab: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            status = 2
            continue
        solved = sum(each["status"] == "solved" for each in outcomes)
        status = max(status, int(solved < len(outcomes)))
        rows[-1] |= {str(each["exercise"]): each["status"] for each in outcomes} | {"solved": str(solved)}
        print(f"{file}, a copy of {source_of(file, read_cells(file)).stem}")
        for each in outcomes:
            why = f": {each['message']}" if each["message"] else ""
            print(f"{each['exercise']}  {each['title']}: {each['status']}{why}")
        print(f"{solved} of {len(outcomes)} solved", flush=True)
    columns = {name for row in rows for name in row} - {"file", "solved"}
    table = pd.DataFrame(rows, columns=["file", *sorted(columns, key=int), "solved"])
    if len(rows) > 1:
        print(table.astype("string").fillna("").to_string(index=False), flush=True)
    if csv is not None:
        with paths.writing(csv) as temporary:
            table.to_csv(temporary, index=False)
    return status
