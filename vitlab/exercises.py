"""Checks a student's copy of a notebook by the notebook's own exercises, and takes the solutions out of a copy."""

from __future__ import annotations

import ast
import difflib
import json
import re
import symtable
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitlab import notebooks, paths

MARKER = re.compile(r"^([ \t]*)### (BEGIN|END) SOLUTION[ \t]*$")
_HEADING = re.compile(r"^### (?:Exercise )?(\d+) · (.+?) \((★+), (\d+) min(?:utes)?\)[ \t]*$", re.M)
_ALWAYS = ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom  # set their names
_RESULT = "application/x-vitlab-exercise+json"
Cells = list[tuple[str, str]]  # "markdown" or "code", and the text


def without_solution(text: str, where: str = "cell") -> str:
    """Take what stands between the two SOLUTION lines out of a cell's text.

    >>> print(without_solution("def f(x):\\n    ### BEGIN SOLUTION\\n    return x\\n    ### END SOLUTION"))
    def f(x):
        # YOUR CODE HERE
        raise NotImplementedError("exercise not solved yet")
    """
    kept, inside = [], False
    for line in text.split("\n"):
        if edge := MARKER.match(line):
            if (edge[2] == "BEGIN") is inside:
                raise ValueError(f"{where}: {line.strip()} does not match the lines before it")
            inside = not inside
            if inside:
                words = ("# YOUR CODE HERE", 'raise NotImplementedError("exercise not solved yet")')
                kept += [edge[1] + each for each in words]
        elif not inside:
            kept.append(line)
    if inside:
        raise ValueError(f"{where}: ### BEGIN SOLUTION has no ### END SOLUTION")
    return "\n".join(kept)


def read_cells(path: Path) -> Cells:
    """Read the cells of a notebook, or of a source in the percent format; raises ValueError where it is neither."""
    if path.suffix == ".py":
        found: list[tuple[str, list[str]]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# %%"):
                found.append(("markdown" if "[markdown]" in line else "code", []))
            elif found:
                text = found[-1][0] == "markdown"
                found[-1][1].append(line.removeprefix("#").removeprefix(" ") if text else line)
        return [(kind, "\n".join(lines).strip("\n")) for kind, lines in found]
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [(cell["cell_type"], "".join(cell.get("source", ""))) for cell in cells]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a Jupyter notebook (format 4), with a list of cells") from error


def exercises(cells: Cells) -> dict[int, dict[str, Any]]:
    """Find the exercises: each has everything from its heading ("### 1 · Title (★★, 5 minutes)") to the next heading.

    Returns number → title, stars, minutes, text, code (its code cells), earlier (the code cells before it).
    """
    found: dict[int, dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    code: list[str] = []
    for kind, text in cells:
        bare = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        if kind == "code":
            if current is not None:
                current["code"].append(text)
            code.append(text)
        elif heading := _HEADING.search(bare):
            number, title, stars, minutes = heading.groups()
            current = {"title": title, "stars": len(stars), "minutes": int(minutes), "text": text, "code": []}
            found[int(number)] = current | {"earlier": list(code)}
            current = found[int(number)]
        elif re.search(r"^#{1,3} ", bare, re.M):
            current = None
        elif current is not None:
            current["text"] += "\n\n" + text
    return found


def check(path: Path | str, seconds: float = 60.0) -> list[dict[str, Any]]:
    """Judge the exercises of a student's copy by the checks of the notebook it is a copy of.

    Of the student's only the cells under an exercise's heading run; their asserts do not count, the notebook's do. Of
    the notebook's earlier cells those statements run that the exercise needs. Cells run in one kernel, in a temporary
    folder; after `seconds` for one exercise it is ended, and another goes on with the next.

    This is no protection against strangers' code, which belongs in a container.

    Returns for each exercise: exercise (number), title, status ("solved", "not solved yet", "wrong" or "stopped"),
    message (why), line (the student's line to begin at).

    Raises FileNotFoundError where there is no such file; ValueError where it is no notebook or not a copy of ours;
    RuntimeError where the notebook's own code does not run, which is not the student's fault.
    """
    path = Path(path)
    if not path.is_file():
        folder = notebooks.notebooks_dir() / "exercises"
        there = ", ".join(each.stem for each in sorted(folder.glob("*.ipynb"))) or "none: `vitlab copy` brings them"
        raise FileNotFoundError(
            f"there is no file {path}. Copy an exercise notebook from {folder} ({there}) and solve it"
        )
    handed_in = read_cells(path)
    source = source_of(path, handed_in)
    original, mine = exercises(read_cells(source)), exercises(handed_in)
    original = {number: each for number, each in original.items() if any(map(_has_solution, each["code"]))}
    missing = "its heading is not in the file, or the file is of an older version"
    results = {number: {"status": "not solved yet", "message": missing} for number in original if number not in mine}
    jobs = {number: job_of(each, mine[number]["code"]) for number, each in original.items() if number in mine}
    while left := [number for number in jobs if number not in results]:
        results |= judged({number: jobs[number] for number in left}, seconds)
    if broken := [f"exercise {n}: {r['message']}" for n, r in results.items() if r["status"] == "broken"]:
        raise RuntimeError(f"{source.stem}, {broken[0]}: the fault is the notebook's, not yours")
    plain = {"message": "", "line": ""}
    return [{"exercise": n, "title": each["title"]} | plain | results[n] for n, each in original.items()]


def source_of(path: Path, cells: Cells) -> Path:
    """Find the source that a copy is of, by its title ("# 08 · …") or else the file's name; ValueError if neither."""
    texts = "\n\n".join(text for kind, text in cells if kind == "markdown")
    title = re.search(r"^# (\w+) · ", texts, re.M)
    number = title or re.search(r"(?<!\d)(\d\d)_", path.name)
    folder = paths.shipped() / "notebooks" / "source"
    if number and (found := sorted(folder.glob(f"{number[1]}_*.py"))):
        return found[0]
    known = ", ".join(each.stem for each in sorted(folder.glob("*_*.py")))
    raise ValueError(
        f"{path}: cannot tell which notebook this is a copy of: expected its title ('# 08 · …') in a text cell, or its "
        f"number in the file's name (08_….ipynb), of one of {known}"
    )


def _has_solution(text: str) -> bool:
    return any(MARKER.match(line) for line in text.split("\n"))


def job_of(original: dict[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """What has to run to judge cells handed in for an exercise."""
    parts: dict[str, list[str]] = {"before": [], "solution": [], "checks": []}
    for text in original["code"]:
        inside, opened = set[int](), 0
        for number, line in enumerate(text.split("\n"), 1):
            if edge := MARKER.match(line):
                inside |= set() if edge[2] == "BEGIN" else set(range(opened, number))
                opened = number
        for node, words in _statements(text):
            solves = inside & set(range(node.lineno, (node.end_lineno or 0) + 1))
            parts["solution" if solves else "checks" if parts["solution"] else "before"].append(words)
    asked = {name for words in parts["solution"] for name in _names(words)[2]}
    functions = {
        node.name: f"a function {node.name}({ast.unparse(node.args)})"
        for node in ast.parse("\n".join(parts["solution"])).body
        if isinstance(node, ast.FunctionDef)
    }
    read = {name for words in parts["checks"] for name in _names(words)[0]}
    earlier = re.sub(r"^PRESET = .*$", 'PRESET = "smoke"', "\n".join(original["earlier"]), flags=re.M)
    taken = _needed(earlier, ["\n".join(parts["before"]), "\n".join(parts["checks"])], asked)
    taken |= _needed(earlier, given, set())
    statements = _statements(earlier)
    return {
        "setup": "\n".join(statements[index][1] for index in sorted(taken)),
        "cells": list(given),
        **{name: "\n".join(parts[name]) for name in ("before", "checks")},
        "asked": sorted(asked),
        "expected": {name: functions.get(name, "a value") for name in sorted(asked & read)},
    }


def _statements(text: str) -> list[tuple[ast.stmt, str]]:
    """The statements of a cell and their text; an import of several names as several; none if it is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = text.split("\n")
    found: list[tuple[ast.stmt, str]] = []
    for node in body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found.append((node, ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]}))))
        else:
            found.append((node, "\n".join(lines[first - 1 : node.end_lineno])))
    return found


def _names(text: str) -> tuple[set[str], set[str], set[str]]:
    """The global names that code reads, those of them that functions read later, and those that it sets."""
    try:
        top = symtable.symtable(text, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(), set(), set()
    later, tables = set[str](), list(top.get_children())
    while tables:
        table = tables.pop()
        later |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global()}
        tables += table.get_children()
    now = {each.get_name() for each in top.get_symbols() if each.is_referenced()}
    sets = {each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_imported()}
    return now | later, later, sets


def _needed(earlier: str, wanted: Sequence[str], given: set[str]) -> set[int]:
    """Indices of the earlier statements that must run before code can: what sets or changes a name still wanted.

    Found by names, from the last statement to the first. Names `given` from elsewhere are set before the last of
    `wanted`. What functions read when they are called is wanted at the end as well.
    """
    before = _statements(earlier)
    imports = [text for node, text in before if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {name for text in imports for name in _names(text)[2]}
    at_end: set[str] = set()
    while True:
        names, later, taken = set(at_end), set(at_end), set()
        for index, text in reversed(list(enumerate(wanted))):
            for node, each in reversed(_statements(text)):
                reads, more, sets = _names(each)
                names, later = (names - sets if isinstance(node, _ALWAYS) else names) | reads, later | more
            names -= given if index == len(wanted) - 1 else set()
        for index, (node, text) in reversed(list(enumerate(before))):
            reads, more, sets = _names(text)
            changes = set()
            for part in ast.walk(node) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
                target: ast.AST | None = None  # of x[0] = 1, x.a = 1, x.append(1): x
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
                    target = part.value.func if isinstance(part.value.func, ast.Attribute) else None
                elif isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(part.ctx, ast.Load):
                    target = part
                while isinstance(target, ast.Subscript | ast.Attribute):
                    target = target.value
                changes |= {target.id} if isinstance(target, ast.Name) else set()
            if names & (sets | (changes - modules)):
                taken.add(index)
                names, later = (names - sets if isinstance(node, _ALWAYS) else names) | reads, later | more
        if later == at_end:
            return taken
        at_end = later


def judged(jobs: dict[Any, dict[str, Any]], seconds: float) -> dict[Any, dict[str, Any]]:
    """Results of exercises, by the keys of `jobs`, up to one that ends the kernel or is out of time."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from nbformat import v4

    first = "import torch\n" if any("torch" in job["setup"] for job in jobs.values()) else ""  # which takes seconds
    codes = [f"{first}from vitlab.exercises import judge", *(f"judge({job!r})" for job in jobs.values())]
    notebook, results = v4.new_notebook(cells=[v4.new_code_cell(code) for code in codes]), {}
    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder:
        client = notebooks.client(notebook, folder, shutdown_kernel="immediate", allow_errors=True)
        with client.setup_kernel(cleanup_kc=True, env=notebooks.kernel_environment({"MPLBACKEND": "agg"})):
            client.execute_cell(notebook.cells[0], 0)
            client.timeout = seconds
            for number, cell in zip(jobs, notebook.cells[1:], strict=True):
                stopped = {"status": "stopped"}
                try:
                    client.execute_cell(cell, list(jobs).index(number) + 1)
                    data = [each["data"] for each in cell.outputs if _RESULT in each.get("data", ())]
                    results[number] = data[-1][_RESULT] if data else stopped | {"message": "did not come to an end"}
                except CellTimeoutError:
                    return results | {number: stopped | {"message": f"took longer than {seconds:g} seconds"}}
                except DeadKernelError:
                    message = "ended the process it ran in: exit(), or too little memory"
                    return results | {number: stopped | {"message": message}}
    return results


def judge(job: dict[str, Any]) -> None:
    """Run a student's cells and the notebook's checks in this kernel, and display the result for `check`."""
    from IPython import get_ipython
    from IPython.display import publish_display_data

    shell = get_ipython()
    base: dict[str, Any] = {"__name__": "__main__", "get_ipython": get_ipython, "display": lambda *_, **__: None}
    try:
        exec(job["setup"], base)
    except BaseException as error:  # noqa: BLE001 (said to be the notebook's fault)
        publish_display_data({_RESULT: {"status": "broken", "message": f"{type(error).__name__}: {error}"}})
        return
    mine, checked = dict(base), dict(base)
    result: dict[str, str] = {"status": "solved"}
    cell = node = None
    try:
        for cell in job["cells"]:
            tree = ast.parse(shell.transform_cell(cell))
            for node in ast.walk(tree):  # the notebook's own asserts count
                if isinstance(node, ast.If | ast.For | ast.With | ast.Module):
                    node.body = [ast.Pass(lineno=1, col_offset=0) if _is_check(each) else each for each in node.body]
            exec(compile(tree, "<cell>", "exec"), mine)
        cell = node = None
        exec(job["before"], checked)
        checked |= {name: mine[name] for name in job["asked"] if name in mine}
        if missing := {name: words for name, words in job["expected"].items() if name not in mine}:
            raise NameError
        for node in ast.parse(job["checks"]).body:
            exec(compile(ast.Module([node], []), "<checks>", "exec"), checked)
    except BaseException as error:  # noqa: BLE001 (whatever a student's code raises is what is told)
        missing = {name: words for name, words in job["expected"].items() if name not in mine}
        trace, line = error.__traceback__, getattr(error, "lineno", None) if cell else None
        while trace is not None:  # the innermost line of the student's
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<cell>" else line
            trace = trace.tb_next
        message = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        result = {"status": "wrong", "message": message}
        if isinstance(error, NotImplementedError) and error.args in ((), ("exercise not solved yet",)):
            result = {"status": "not solved yet"}
        elif isinstance(error, SystemExit | KeyboardInterrupt):
            result = {"status": "stopped", "message": f"called exit(), or raised {type(error).__name__}"}
        elif isinstance(error, NameError) and missing:
            own = [name for name in mine if name not in base]
            close = sorted({each for name in missing for each in difflib.get_close_matches(name, own, n=1)})
            message = (
                f"defines no {' and no '.join(map('`{}`'.format, missing))}: expected {', '.join(missing.values())}"
            )
            message += f" (there is {', '.join(map('`{}`'.format, close))})" if close else ""
            result, line = {"status": "not solved yet", "message": message}, None
        elif cell is None and node is not None:
            tested = next((each for each in ast.walk(node) if isinstance(each, ast.Assert)), node)
            text = ast.unparse(getattr(tested, "test", tested))
            names = {each.id for each in ast.walk(tested) if isinstance(each, ast.Name)} & set(job["asked"])
            values = [
                f"{name} = {checked[name]!r}" for name in sorted(names) if isinstance(checked.get(name), int | float)
            ]
            result["message"] = (
                f"does not hold: {text}" if isinstance(error, AssertionError) else f"{message}, in {text}"
            )
            result["message"] += f" ({', '.join(values)})" if values else ""
        lines = (cell or "\n".join(job["cells"])).split("\n")
        if line and line <= len(lines):
            result["line"] = f"line {line}: {lines[line - 1].strip()[:200]}"
        result["message"] = result.get("message", "")[:400]
    publish_display_data({_RESULT: result})


def _is_check(node: ast.stmt) -> bool:
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(node, ast.Assert) or getattr(called, "attr", "").startswith("assert_")


def check_all(files: Sequence[Path | str], seconds: float = 60.0, csv: Path | str | None = None) -> int:
    """Print what became of each file's exercises, or one table for folders of hand-ins: a row a file.

    With `csv`, the table is written there too, ready for grades. Returns 0 where all is solved, 1 where not, 2 where a
    file cannot be checked, which does not keep the others from it.
    """
    import pandas as pd

    status, rows = 0, []
    as_table = csv is not None or any(Path(each).is_dir() for each in files)
    expanded = [
        file for each in files for file in (sorted(Path(each).rglob("*.ipynb")) if Path(each).is_dir() else [each])
    ]
    if not expanded:
        raise FileNotFoundError(f"no notebooks in {', '.join(map(str, files))}: name notebooks, or a folder with them")
    for file in expanded:
        try:
            outcomes = check(file, seconds)
        except (OSError, ValueError, RuntimeError) as error:
            print(f"vitlab: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            status = 2
            rows.append({"file": str(file), "solved": ""})
            continue
        solved = sum(each["status"] == "solved" for each in outcomes)
        status = max(status, int(solved < len(outcomes)))
        rows.append({"file": str(file), **{str(o["exercise"]): o["status"] for o in outcomes}, "solved": solved})
        if not as_table:
            print(f"{Path(file).name}, a copy of {source_of(Path(file), read_cells(Path(file))).stem}")
            for each in outcomes:
                words = ": ".join(filter(None, (each["status"], each["message"])))
                print(
                    f"{each['exercise']}  {each['title']}: {words}"
                    + (f"\n     your {each['line']}" if each["line"] else "")
                )
            print(f"{solved} of {len(outcomes)} solved", flush=True)
    table = pd.DataFrame(rows)
    table = table[["file", *sorted(set(table) - {"file", "solved"}, key=int), "solved"]].fillna("")
    if as_table:
        print(table.to_string(index=False))
    if csv is not None:
        with paths.writing(csv) as temporary:
            table.to_csv(temporary, index=False)
    return status
