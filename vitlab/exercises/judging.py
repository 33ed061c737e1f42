"""What a student's cells come to, judged by the original's checks, in words for the student (all sections)."""

from __future__ import annotations

import ast
import contextlib
import difflib
import errno
import traceback
from types import TracebackType
from typing import Any

from vitlab.exercises.guard import FILE_LIMIT, Refused

_CHECKS = "<checks>"
_UNSOLVED = ((), ("exercise not solved yet",))  # what nbgrader's copies raise, and ours
_DENIED = ("ermission denied", "peration not permitted", "ross-device link")  # in the words of the operating system


def judge(job: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Run a student's cells, take the values of the names asked for, run the original's checks on them.

    Nothing else of the student's comes into the checks: whatever was deleted from or written into their copies in the
    student's cells, the originals decide.
    """
    mine, checked = dict(base), dict(base)
    try:
        for number, text in enumerate(job["cells"]):
            exec(compile(_without_asserts(text, number), _cell(number), "exec"), mine)
        if any(name not in mine for name in job["expected"]):
            return _undefined(job, mine, base)
        exec(compile(job["before"], _CHECKS, "exec"), checked)
        checked.update({name: mine[name] for name in job["asked"] if name in mine})
        exec(compile(job["checks"], _CHECKS, "exec"), checked)
    except BaseException as error:
        try:
            if isinstance(error, NameError) and error.name in job["expected"] and error.name not in mine:
                return _undefined(job, mine, base)  # the student's own copies of the checks read it already
            return _outcome(error, job, checked)
        except BaseException as another:  # what the error holds is the student's too, and may raise when it is shown
            words = f"{type(error).__name__}, of which no more can be shown: {type(another).__name__}"
            return {"status": "wrong", "message": words, "line": ""}
    return {"status": "solved", "message": "", "line": ""}


def _undefined(job: dict[str, Any], mine: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """What is said of cells that leave out a name the checks read."""
    missing = {name: words for name, words in job["expected"].items() if name not in mine}
    message = f"defines no {' and no '.join(f'`{name}`' for name in missing)}: expected {', '.join(missing.values())}"
    own = [name for name in mine if name not in base]
    close = [each for name in missing for each in difflib.get_close_matches(name, own, n=1)]
    message += f" (there is {', '.join(f'`{name}`' for name in close)})" if close else ""
    return {"status": "not solved yet", "message": message, "line": ""}


def _cell(number: int) -> str:
    return f"<cell {number}>"


class _WithoutAsserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        name = getattr(getattr(node.value, "func", None), "attr", "")
        return ast.copy_location(ast.Pass(), node) if name.startswith("assert_") else node

    def visit_FunctionDef(self, node: ast.stmt) -> ast.stmt:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef


def _without_asserts(text: str, number: int) -> ast.Module:
    """A cell without its own checks, which may have been edited, and without IPython's commands."""
    try:
        tree = ast.parse(text, _cell(number))
    except SyntaxError:
        plain = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")]
        tree = ast.parse("\n".join(plain), _cell(number))
    except MemoryError:  # of Python's parser, whatever memory there is
        raise SyntaxError("nested deeper than Python can read", (_cell(number), 1, None, None)) from None
    return ast.fix_missing_locations(_WithoutAsserts().visit(tree))


def _outcome(error: BaseException, job: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    frames = _frames(error.__traceback__)
    cells = {_cell(number): text for number, text in enumerate(job["cells"])}
    if isinstance(error, SyntaxError) and error.filename in cells:
        frames = [(error.filename, error.lineno or 1)]
    line = next((_line(cells[name], number) for name, number in reversed(frames) if name in cells), "")
    status, message = _words(error)
    ours = [frame for frame in frames if frame[0] in (_CHECKS, *cells)]  # not those inside a library
    if status == "wrong" and ours and ours[-1][0] == _CHECKS:
        test = _statement_at(job["checks"], ours[-1][1])
        names = sorted({node.id for node in ast.walk(test) if isinstance(node, ast.Name)} & set(job["asked"]))
        words = ast.unparse(test.test if isinstance(test, ast.Assert) else test)
        message = f"does not hold: {words}" if isinstance(error, AssertionError) else f"{message}, in the check {words}"
        shown = [f"{name} = {values[name]!r}" for name in names if name in values and _plain(values[name])]
        message += f" ({', '.join(shown)})" if shown else ""
        line = next((bound for text in cells.values() for name in names if (bound := _binding(text, name))), line)
    return {"status": status, "message": " ".join(message.split())[:400], "line": line if message else ""}


def _words(error: BaseException) -> tuple[str, str]:
    """Status and message of what ended a student's code."""
    if isinstance(error, NotImplementedError) and error.args in _UNSOLVED:
        return "not solved yet", ""
    if isinstance(error, Refused):
        return "stopped", error.args[0]
    if isinstance(error, SystemExit):
        return "stopped", "called exit(), which would end the notebook's kernel"
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "raised KeyboardInterrupt"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "stopped", "took more memory than a check may have"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "stopped", f"printed or wrote more than {FILE_LIMIT // 2**20} MB"
    words = str(error).split("\n(")[0] if not isinstance(error, SyntaxError) else error.msg
    if any(denied in words for denied in _DENIED):
        words += " (an answer may write in its working folder only, and use no network and no other process)"
    return "wrong", f"{type(error).__name__}: {words}".rstrip(": ")


def _frames(trace: TracebackType | None) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(trace)]


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return f"line {number}: {lines[number - 1].strip()[:200]}" if number <= len(lines) else f"line {number}"


def _statement_at(text: str, number: int) -> ast.stmt:
    every = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
    return max((n for n in every if n.lineno <= number <= (n.end_lineno or 0)), key=lambda node: node.lineno)


def _binding(text: str, name: str) -> str:
    """The last line of a student's cell that gives a name its value."""
    with contextlib.suppress(SyntaxError):
        for node in reversed(list(ast.walk(ast.parse(text)))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                return _line(text, node.lineno)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                return _line(text, node.lineno)
    return ""


def _plain(value: Any) -> bool:
    kinds = bool | int | float | complex | str | None
    plain = isinstance(value, kinds) or isinstance(value, list | tuple) and all(isinstance(x, kinds) for x in value)
    with contextlib.suppress(ValueError):  # an integer of more digits than Python writes
        return plain and len(repr(value)) <= 80
    return False
