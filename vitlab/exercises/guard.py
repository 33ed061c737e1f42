"""The process in which a student's code runs, with what keeps its accidents from the machine (no section of the paper).

This is protection against accidents, not a jail. An audit hook refuses what plain Python announces: writing, renaming
and deleting outside the working folder, starting and killing processes, the network. Code that sets out to get round
it, for example through ctypes or a library written in C, can. What grows (memory, files, time, processes) is stopped
by limits of the operating system set here, and by the parent (`vitlab.exercises.check`), which watches and ends the
whole process group.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import errno
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

FILE_LIMIT = 10 * 2**20  # bytes, of every file it writes and of what it prints
_CHECKS = "<checks>"
_UNSOLVED = ((), ("exercise not solved yet",))  # what nbgrader's copies raise, and ours

# Audit events that change what a path names: where among the arguments the paths stand, and their folders' descriptors.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "shutil.rmtree": ((0, 1),),
    "sqlite3.connect": ((0, None),),
}
_PROCESSES = {"os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile"}
_PROCESSES |= {"subprocess.Popen", "pty.spawn"}
_NETWORK = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"}
_NETWORK |= {"socket.gethostbyname", "socket.gethostbyaddr"}


class Refused(PermissionError):
    """What a student's code may not do here; the words say what it tried."""


class Guard:
    """The audit hook: refuses while `armed`; writing is allowed in `folder` only."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.armed = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                self.check(path, "write to")
        elif event in _CHANGES:
            for place, descriptor in _CHANGES[event]:
                folder = arguments[descriptor] if descriptor is not None else -1
                verb = "delete" if event.endswith(("remove", "rmdir", "rmtree")) else "change"
                self.check(arguments[place], verb, folder)
        elif event in _PROCESSES:
            raise Refused("tried to start another process")
        elif event in ("os.kill", "os.killpg"):
            raise Refused("tried to end a process")
        elif event in _NETWORK:
            raise Refused("tried to use the network")

    def check(self, path: Any, verb: str, descriptor: int = -1) -> None:
        """Raise Refused if a path lies outside the folder."""
        if isinstance(path, int) or path == os.devnull:
            return
        name = os.fsdecode(path)
        with contextlib.suppress(OSError):  # no /proc: then the name is taken as it is
            name = name if descriptor == -1 else os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name)
        if not Path(os.path.realpath(name)).is_relative_to(self.folder):
            raise Refused(f"tried to {verb} {name}, outside its working folder")


def limit(memory: int) -> None:
    """Set what the operating system will stop: bytes of memory, bytes of a file. On Windows only the parent watches."""
    with contextlib.suppress(ImportError):
        import resource

        limits = {resource.RLIMIT_DATA: memory, resource.RLIMIT_FSIZE: FILE_LIMIT, resource.RLIMIT_CORE: 0}
        for which, most in limits.items():
            with contextlib.suppress(ValueError, OSError):  # a system that does not have this limit
                resource.setrlimit(which, (most, resource.getrlimit(which)[1]))


def judge(job: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Run a student's cells, take the values of the names asked for, run the original's checks on them.

    Nothing else of the student's comes into the checks: whatever was deleted from or written into their copies in the
    student's cells, the originals decide.
    """
    mine, checked = dict(base), dict(base)
    try:
        for number, text in enumerate(job["cells"]):
            exec(compile(_without_asserts(text, number), _cell(number), "exec"), mine)
        exec(compile(job["before"], _CHECKS, "exec"), checked)
        checked.update({name: mine[name] for name in job["asked"] if name in mine})
        exec(compile(job["checks"], _CHECKS, "exec"), checked)
    except BaseException as error:
        return _outcome(error, job, checked)
    return {"status": "solved", "message": "", "line": ""}


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
        shown = [f"{name} = {values[name]!r}" for name in names if _plain(values.get(name))]
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
    return "wrong", f"{type(error).__name__}: {words}".rstrip(": ")


def _frames(trace: TracebackType | None) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(trace)]


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return f"line {number}: {lines[number - 1].strip()}" if number <= len(lines) else f"line {number}"


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
    return plain and len(repr(value)) <= 80


def _no_input(*_: object) -> str:
    raise Refused("asked for input(), which nobody can answer here")


def main(jobs_file: str, results_file: str, folder: str, memory: str) -> None:
    """Run what the jobs of a file need, then the jobs; a line of results when each begins, and one when it ends."""
    jobs = json.loads(Path(jobs_file).read_text(encoding="utf-8"))
    results = os.open(results_file, os.O_WRONLY | os.O_APPEND)
    guard = Guard(folder)
    sys.addaudithook(guard)
    builtins.input = _no_input
    limit(int(memory))

    def report(**what: Any) -> None:
        os.write(results, (json.dumps(what) + "\n").encode())

    bases: dict[str, dict[str, Any]] = {}
    broken: dict[str, str] = {}
    for job in jobs:
        os.chdir(folder)
        if job["setup"] in bases:
            continue
        bases[job["setup"]] = base = {"__name__": "__main__"}
        try:
            exec(compile(job["setup"], "<notebook>", "exec"), base)
        except Exception as error:
            broken[job["setup"]] = f"what {job['name']} needs of its notebook fails: {type(error).__name__}: {error}"
    guard.armed = True  # for good: a student's thread may outlive its exercise
    for job in jobs:
        if job["setup"] in broken:
            report(ends=job["index"], status="broken", message=broken[job["setup"]])
            continue
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        _empty_output()
        report(begins=job["index"])
        outcome = judge(job, bases[job["setup"]])
        if outcome["status"] == "stopped":
            gc.collect()  # perhaps for its memory
        _empty_output()
        report(ends=job["index"], **outcome)
    os._exit(0)  # not by the usual way, where a student's threads and exit handlers would have another turn


def _empty_output() -> None:
    """Forget what was printed, so that the limit is each exercise's own."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        for _ in range(2):  # what waits to be written has no room before, and is not wanted after
            os.ftruncate(stream.fileno(), 0)
            os.lseek(stream.fileno(), 0, os.SEEK_SET)
            stream.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
