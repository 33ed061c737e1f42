"""`vitlab exercises check`: what is solved is said to be, what is not is not, and no code harms the machine."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from vitlab import notebooks, paths
from vitlab.cli import main as cli
from vitlab.exercises import cells, check, confine, needs, watch
from vitlab.publish.source import exercise, from_source

pytestmark = pytest.mark.slow  # each check starts the process in which the answers run

SOURCE = """\
# %% [markdown]
# # 01 · Sums

# %% tags=["parameters"]
PRESET = "quick"

# %%
import math, sys
from pathlib import Path

slow = 1 / 0 if PRESET == "quick" else 5
unused = 1 / 0

# %% [markdown]
# ## Exercises
#
# ### 1 · Add (★, 5 minutes)
#
# <details><summary>Hint</summary>+</details>

# %%
def total(a, b):
    ### BEGIN SOLUTION
    return a + b
    ### END SOLUTION


known = math.fsum([2, 3])
assert total(2, 3) == known
assert total(slow, -1) == 4

# %% [markdown]
# ### Exercise 2 · A number (★★, 10 min)
#
# ```python
# # ## no heading
# ```
# <details><summary>Hint</summary>6 · 7</details>

# %%
answer = None
### BEGIN SOLUTION
answer = 42
### END SOLUTION

# %% [markdown]
# Text between an exercise and its checks.

# %%
assert answer == 6 * 7

# %% [markdown]
# ## Summary
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "notebooks"
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "01_sums.py").write_text(SOURCE)
    (folder / "source" / "02_other.py").write_text("# %% [markdown]\n# # 02 · Other\n")
    monkeypatch.setattr(notebooks, "notebooks_dir", lambda: folder)
    monkeypatch.setattr(notebooks, "sources_dir", lambda: folder / "source")
    return folder


STUB = "### BEGIN SOLUTION\n    return a + b\n    ### END SOLUTION"
NUMBER = "### BEGIN SOLUTION\nanswer = 42\n### END SOLUTION"


def student(folder: Path, add: str = "return a + b", number: str = "answer = 42", **changes: str) -> Path:
    """A student's copy of the notebook with these solutions, and texts replaced."""
    text = SOURCE.replace(STUB, add).replace(NUMBER, number)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    source = folder.parent / "student.py"
    source.write_text(text)
    path = folder.parent / "mine.ipynb"
    nbformat.write(from_source(source), path)
    return path


def edited(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """The notebook with its cells changed as plain data, also to what nbformat would not write."""
    notebook = json.loads(path.read_text())
    change(notebook["cells"])
    path.write_text(json.dumps(notebook))
    return path


def cell_of(found: list[dict[str, Any]], words: str) -> dict[str, Any]:
    return next(cell for cell in found if cell["cell_type"] == "code" and words in "".join(cell["source"]))


def outcomes(path: Path, **limits):
    return check.check(check.hand_in(path), **limits)


def statuses(path: Path, **limits) -> list[str]:
    return [outcome.status for outcome in outcomes(path, **limits)]


def test_source_stripped_and_wrong(folder, capsys):
    path = student(folder)
    assert cli.main(["exercises", "check", str(path)]) == 0
    assert (
        capsys.readouterr().out == "mine.ipynb, a copy of 01_sums\n1  Add: solved\n2  A number: solved\n2 of 2 solved\n"
    )
    stripped = folder.parent / "stripped.ipynb"
    nbformat.write(exercise(folder / "source" / "01_sums.py"), stripped)
    assert cli.main(["exercises", "check", str(stripped)]) == 1
    assert "1  Add: not solved yet\n2  A number: not solved yet\n0 of 2 solved\n" in capsys.readouterr().out
    wrong = student(folder, add="return a - b", number="answer = 41")
    assert cli.main(["exercises", "check", str(wrong)]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1  Add: wrong: does not hold: total(2, 3) == known",
        "     your line 1: def total(a, b):",
        "2  A number: wrong: does not hold: answer == 6 * 7 (answer = 41)",
        "     your line 2: answer = 41",
        "0 of 2 solved",
    ]


def test_the_placeholder_of_nbgrader_is_no_solution(folder):
    assert statuses(student(folder, add="raise NotImplementedError()")) == ["not solved yet", "solved"]
    (first, _) = outcomes(student(folder, add='raise NotImplementedError("for this dtype")'))
    assert first.status == "wrong" and "for this dtype" in first.message


@pytest.mark.parametrize(
    "add, message, line",
    [
        ("return a + c", "NameError: name 'c' is not defined", "line 2: return a + c"),
        ("return a +", "SyntaxError: invalid syntax", "line 2: return a +"),
        ("return total(a, b)", "RecursionError: maximum recursion depth exceeded", "line 2: return total(a, b)"),
        ("assert a == b", "AssertionError", "line 2: assert a == b"),
        ("pass", "does not hold: total(2, 3) == known", "line 1: def total(a, b):"),
    ],
)
def test_errors_are_said_in_one_line_with_the_students_own(folder, add, message, line):
    first, second = outcomes(student(folder, add=add))
    assert first.status == "wrong" and message in first.message and "\n" not in first.message
    assert first.line == line and second.status == "solved"


EXPECTED = "defines no `total`: expected a function total(a, b)"


@pytest.mark.parametrize("text", ["", "# later", "pass", "%matplotlib inline"])
def test_an_empty_cell_is_told_what_it_has_to_define(folder, text):
    path = edited(student(folder), lambda cells: cell_of(cells, "def total").update(source=text))
    first, second = outcomes(path)
    assert (first.status, first.message, first.line, second.status) == ("not solved yet", EXPECTED, "", "solved")
    edited(path, lambda cells: cell_of(cells, "answer = 42").update(source=text))
    assert [outcome.message for outcome in outcomes(path)] == [EXPECTED, "defines no `answer`: expected a value"]


def test_a_cell_that_was_deleted_is_told_like_an_empty_one(folder):
    path = edited(student(folder), lambda cells: cells.remove(cell_of(cells, "def total")))
    first, second = outcomes(path)
    assert (first.status, first.message, second.status) == ("not solved yet", EXPECTED, "solved")


def test_a_misspelt_name_is_told_with_the_one_expected(folder):
    path = student(folder, number="anwser = 42")
    edited(
        path,
        lambda cells: cell_of(cells, "def total").update(source="def totla(a, b):\n    return a + b\n\ntotal(1, 2)"),
    )
    first, second = outcomes(path)
    assert str(first) == f"1  Add: not solved yet: {EXPECTED} (there is `totla`)"
    edited(path, lambda cells: cell_of(cells, "answer = None").update(source="anwser = 42"))
    first, second = outcomes(path)
    assert str(second) == "2  A number: not solved yet: defines no `answer`: expected a value (there is `anwser`)"


@pytest.mark.parametrize(
    "text, words",
    [
        ("def total(a, a):\n    return a", "SyntaxError: duplicate argument 'a' in function definition"),
        ("def total(a, b):\n    nonlocal c\n    return a", "SyntaxError: no binding for nonlocal 'c' found"),
        ("def total(a, b):\n    a = 1\n    global a", "SyntaxError: name 'a' is parameter and global"),
        ("name = '\udc80'", "UnicodeEncodeError: 'utf-8' codec can't encode character"),
        ("name = '\0'", "null bytes"),
        ("(" * 5000, "SyntaxError: too many nested parentheses"),
        ("x = " + "-" * 100_000 + "1", "SyntaxError: nested deeper than Python can read"),
        ("x = " + "+".join("1" * 50_000), "RecursionError"),
        ("raise ValueError('\\udc80 \\x1b[2J')", r"ValueError: \udc80 \x1b[2J"),
        (
            "class E(Exception):\n    def __str__(self):\n        raise E\nraise E",
            "E, of which no more can be shown: E",
        ),
    ],
    ids=["argument", "nonlocal", "global", "surrogate", "null", "brackets", "signs", "sum", "escapes", "message"],
)
def test_a_cell_that_is_no_python_ends_its_own_exercise_only(folder, text, words, capsys):
    path = edited(student(folder), lambda cells: cell_of(cells, "def total").update(source=text))
    first, second = outcomes(path)
    assert first.status == "wrong" and words in first.message and first.message.isprintable()
    assert second.status == "solved"
    assert cli.main(["exercises", "check", str(path)]) == 1
    capsys.readouterr().out.encode()


def test_a_number_too_long_to_write_is_wrong_all_the_same(folder):
    first, second = outcomes(student(folder, number="answer = 10**5000"))
    assert (second.status, second.message) == ("wrong", "does not hold: answer == 6 * 7")


def test_whoever_edits_the_checks_is_judged_by_the_originals(folder):
    deleted = student(folder, add="return 0", **{"assert total(2, 3) == known\nassert total(slow, -1) == 4\n": ""})
    assert statuses(deleted) == ["wrong", "solved"]
    weakened = student(folder, number="answer = 41", **{"assert answer == 6 * 7": "assert answer"})
    assert statuses(weakened) == ["solved", "wrong"]
    helped = student(folder, add="return 0", **{"known = math.fsum([2, 3])": "known = 0"})
    assert statuses(helped) == ["wrong", "solved"]
    broken = student(folder, **{"assert answer == 6 * 7": "assert answer == 0"})  # and the other way round
    assert statuses(broken) == ["solved", "solved"]


def test_students_may_use_cells_and_commands_of_their_own(folder):
    path = student(folder, add="return helper(a, b)")
    notebook = nbformat.read(path, as_version=4)
    at = next(k for k, cell in enumerate(notebook.cells) if "def total" in cell.source)
    notebook.cells[at].source = "%matplotlib inline\n!echo hello\n" + notebook.cells[at].source
    notebook.cells.insert(at, nbformat.v4.new_code_cell("def helper(a, b):\n    return math.fsum([a, b])"))
    notebook.cells.insert(at + 2, nbformat.v4.new_code_cell("total(slow, known)"))
    nbformat.write(notebook, path)
    assert statuses(path) == ["solved", "solved"]


def test_a_missing_exercise_is_said_to_be_missing(folder):
    path = student(folder)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "answer" not in cell.source and "A number" not in cell.source]
    nbformat.write(notebook, path)
    first, second = outcomes(path)
    assert (first.status, second.status) == ("solved", "not solved yet") and "not in the file" in second.message


def test_the_notebook_is_known_by_its_title_then_by_its_name(folder):
    path = student(folder)
    assert check.hand_in(path).original.stem == "01_sums"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source = "# My solutions"
    for name, stem in {"alice-01_sums (2).ipynb": "01_sums", "02_x-Copy1.ipynb": "02_other"}.items():
        nbformat.write(notebook, path.with_name(name))
        assert check.hand_in(path.with_name(name)).original.stem == stem
    notebook.cells[0].source = "# 41 · Of no notebook"
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=f"{path.name}: unknown notebook '41': choose from 01_sums"):
        check.hand_in(path)


def test_a_file_that_cannot_be_checked_ends_with_a_line_and_the_others_are_checked(folder, tmp_path, capsys):
    good, bad = str(student(folder)), tmp_path / "bad"
    bad.mkdir()
    title = {"cell_type": "markdown", "source": "# 01 · Sums", "metadata": {}}
    (bad / "bytes.ipynb").write_bytes(b"\xff\xfe\0")
    os.mkfifo(bad / "pipe.ipynb")
    for name, text, words in [
        ("mine2.ipynb", '{"cells": []}', "cannot tell which notebook this is a copy of"),
        ("07_x.ipynb", '{"cells": []}', "unknown notebook '07': choose from 01_sums, 02_other"),
        ("text.ipynb", "def f(): pass", "expected a Jupyter notebook"),
        ("empty.ipynb", "", "expected a Jupyter notebook"),
        ("list.ipynb", "[1]", "expected a Jupyter notebook"),
        ("deep.ipynb", "[" * 100_000, "expected a Jupyter notebook"),
        ("cells.ipynb", json.dumps({"cells": [title, 3]}), "expected a Jupyter notebook"),
        ("kinds.ipynb", json.dumps({"cells": [title, {"source": "x"}]}), "expected a Jupyter notebook"),
        ("numbers.ipynb", json.dumps({"cells": [title, {"cell_type": "code", "source": [1]}]}), "expected a Jupyter"),
        ("bytes.ipynb", None, "expected a Jupyter notebook"),
        ("pipe.ipynb", None, "there is no file"),
        ("none.ipynb", None, "there is no file"),
        ("n" * 300, None, "there is no file"),
    ]:
        if text is not None:
            (bad / name).write_text(text)
        assert cli.main(["exercises", "check", str(bad / name)]) == 2
        captured = capsys.readouterr()
        assert words in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert cli.main(["exercises", "check", str(bad / "07_x.ipynb"), good, ""]) == 2
    captured = capsys.readouterr()
    assert captured.out.endswith("2 of 2 solved\n") and captured.err.count("\n") == 2
    assert "an empty name ''" in captured.err
    assert cli.main(["exercises", "check", good, "--seconds", "0"]) == 2
    assert not capsys.readouterr().out


def test_a_cell_without_a_source_is_an_empty_one(folder):
    first, second = outcomes(edited(student(folder), lambda cells: cell_of(cells, "def total").pop("source")))
    assert (first.status, first.message, second.status) == ("not solved yet", EXPECTED, "solved")


def test_of_a_file_that_is_not_there_the_exercise_notebooks_are_named(folder, tmp_path, capsys, monkeypatch):
    exercises = notebooks.notebooks_dir() / "exercises"

    def said(name: str) -> str:
        assert cli.main(["exercises", "check", name]) == 2
        assert (captured := capsys.readouterr()).out == ""
        return captured.err

    none = f"vitlab: there is no file nope.ipynb. There are no exercise notebooks in {exercises} either: `vitlab copy"
    assert said("nope.ipynb").startswith(none)
    exercises.mkdir()
    for stem in ("01_sums", "02_other"):
        nbformat.write(nbformat.v4.new_notebook(), exercises / f"{stem}.ipynb")
    there = (
        f"Exercise notebooks are in {exercises}: 01_sums, 02_other. Copy one, solve its exercises and check the copy: "
    )
    copy = "cp {0}/{1}.ipynb my_{1}.ipynb\n"
    missing = f"vitlab: there is no file nope.ipynb. {there}"
    assert said("nope.ipynb") == f"{missing}{copy.format(exercises, '01_sums')}"
    assert said("my_02_x.ipynb").endswith(copy.format(exercises, "02_other"))
    assert said(str(exercises)).startswith(f"vitlab: {exercises} is a folder: name the notebooks in it. {there}")
    monkeypatch.chdir(exercises.parent)
    assert said("nope.ipynb").endswith(copy.format("exercises", "01_sums"))


def test_a_fault_of_the_notebook_is_not_the_students(folder):
    source = folder / "source" / "01_sums.py"
    source.write_text(SOURCE.replace('1 / 0 if PRESET == "quick" else 5', "1 / 0"))
    with pytest.raises(RuntimeError, match=r"exercise 1, Add needs of its notebook fails: ZeroDivisionError"):
        outcomes(student(folder))


def stopped(path: Path, words: str, **limits) -> None:
    """The first exercise was stopped for this, the second was judged all the same."""
    first, second = outcomes(path, **limits)
    assert first.status == "stopped" and words in first.message, first
    assert second.status == "solved"


SCRIBBLE = """import contextlib, os
    for descriptor in range(3, 40):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"7\\n")"""


@pytest.mark.parametrize(
    "add, words",
    [
        ("exit()", "called exit()"),
        ("sys.exit(3)", "called exit()"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "ended, with exit status 0"),
        ("import os; os._exit(7)", "ended, with exit status 7"),
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("return input('a + b? ')", "asked for input()"),
        (SCRIBBLE, "wrote to a file that belongs to the check"),
        ("import os; os.closerange(3, 100)", "ended, with exit status"),
        ("import os; os.fork()", "tried to start another process"),
        ("import subprocess; subprocess.run(['true'])", "tried to start another process"),
        ("import os; os.system('true')", "tried to start another process"),
        ("import os; os.kill(os.getppid(), 9)", "tried to end a process"),
        ("import urllib.request; urllib.request.urlopen('http://192.0.2.1/')", "URLError"),
        ("import socket; socket.create_connection(('192.0.2.1', 80))", "tried to use the network"),
    ],
)
def test_what_would_end_or_leave_the_process(folder, add, words):
    path = student(folder, add=add)
    if "URLError" in words:  # the library turns the refusal into an error of its own, which says the reason
        first, _ = outcomes(path)
        assert first.status == "wrong" and "tried to use the network" in first.message
    else:
        stopped(path, words)


def test_a_loop_without_end_is_ended_in_time(folder):
    started = time.monotonic()
    stopped(student(folder, add="while True:\n        pass"), "took longer than 1 seconds", seconds=1)
    obstinate = "while True:\n        try:\n            sys.exit()\n        except BaseException:\n            pass"
    stopped(student(folder, add=obstinate), "took longer than 1 seconds", seconds=1)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("add", ["while True:\n        print('x' * 1000)", "print('x' * 10**8)"])
def test_a_flood_of_output_is_cut(folder, add):
    before = psutil.Process().memory_info().rss
    stopped(student(folder, add=add), "printed or wrote more than 10 MB")
    assert psutil.Process().memory_info().rss - before < 100 * 2**20


def test_output_within_the_limit_is_nobodys_business(folder):
    assert statuses(student(folder, add="print('x' * 10**6)\n    return a + b")) == ["solved", "solved"]


@pytest.mark.parametrize("add", ["return [0] * 10**9", "x = []\n    while True:\n        x.append(bytearray(10**6))"])
def test_too_much_memory_is_refused(folder, add):
    stopped(student(folder, add=add), "took more memory than a check may have", memory=2**29)


@pytest.mark.parametrize(
    "add",
    [
        "import os; os.remove({path!r})",
        "import shutil; shutil.rmtree({folder!r})",
        "import os; os.rename({path!r}, 'mine')",
        "import os; os.link({path!r}, 'mine')",
        "import os; os.truncate({path!r}, 0)",
        "open({path!r}, 'w')",
        "Path({path!r}).write_text('gone')",
        "Path({path!r}).unlink()",
        "import os; os.chmod({path!r}, 0)",
        "import os; os.symlink({folder!r}, 'link'); os.remove('link/precious')",
        "import os; os.chdir({folder!r}); os.remove('precious')",
        "import os; d = os.open({folder!r}, os.O_RDONLY); os.remove('precious', dir_fd=d)",
        "import sqlite3; sqlite3.connect({path!r})",
        "try:\n        open({path!r}, 'a').write('x')\n    except ValueError:\n        pass",
    ],
)
def test_nothing_outside_the_working_folder_is_touched(folder, tmp_path, add):
    precious = tmp_path / "keep" / "precious"
    precious.parent.mkdir()
    precious.write_text("data")
    stopped(
        student(folder, add=add.format(path=str(precious), folder=str(precious.parent))), "outside its working folder"
    )
    assert precious.read_text() == "data" and [p.name for p in precious.parent.iterdir()] == ["precious"]


def test_a_refusal_that_is_caught_still_refuses(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("data")
    add = f"import shutil; shutil.rmtree({str(tmp_path)!r}, ignore_errors=True)\n    return a + b"
    outcomes(student(folder, add=add))
    assert precious.read_text() == "data"


def test_the_working_folder_is_empty_writable_home_and_gone_afterwards(folder, tmp_path):
    add = """import os, tempfile
    assert os.listdir() == [] and Path.home() == Path.cwd() and Path(tempfile.gettempdir()) == Path.cwd()
    Path("a").mkdir()
    Path("a/b").write_text("x")
    with tempfile.TemporaryDirectory() as t:
        Path(t, "c").write_text("y")
    Path("a/b").rename("d")
    Path("d").unlink()
    raise ValueError(os.getcwd())"""
    first, _ = outcomes(student(folder, add=add))
    work = Path(first.message.removeprefix("ValueError: ").partition(",")[0])
    assert work.name == "work" and "vitlab-check-" in str(work), first
    assert not work.parent.exists()


confined = pytest.mark.skipif(not all(confine.kernel().values()), reason="this kernel cannot confine a process")


def untouched(folder: Path, tmp_path: Path, add: str) -> check.Outcome:
    """What becomes of an answer that tries to change what lies outside its working folder, and cannot."""
    precious = tmp_path / "keep" / "precious"
    precious.parent.mkdir()
    precious.write_text("data")
    path = student(folder, add=add.format(path=str(precious), folder=str(precious.parent)))
    first, second = outcomes(path)
    assert precious.read_text() == "data" and [p.name for p in precious.parent.iterdir()] == ["precious"]
    assert precious.stat().st_nlink == 1 and second.status == "solved"
    return first


IN_C = """import ctypes, os
    library = ctypes.CDLL(None, use_errno=True)
    if library.{call}:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"""


@confined
@pytest.mark.parametrize(
    "add",
    [
        "import os; d = os.open({folder!r}, os.O_RDONLY); os.open('precious', os.O_WRONLY | os.O_TRUNC, dir_fd=d)",
        "import os; os.mkfifo({path!r} + '2')",
        IN_C.replace("{call}", "unlink({path!r}.encode())"),
        IN_C.replace("{call}", "truncate({path!r}.encode(), 0)"),
        IN_C.replace("{call}", "link({path!r}.encode(), b'mine')"),
    ],
    ids=["open", "mkfifo", "unlink", "truncate", "link"],
)
def test_what_python_does_not_announce_the_kernel_refuses(folder, tmp_path, add):
    outcome = untouched(folder, tmp_path, add)
    assert outcome.status == "wrong" and "may write in its working folder only" in outcome.message, outcome


@confined
def test_libraries_in_c_write_nothing_outside(folder, tmp_path):
    add = """import torch
    from safetensors.torch import save_file
    profile = torch.profiler.profile()
    with profile:
        torch.ones(2) + 1
    kept = str(Path({folder!r}))
    for write in (
        lambda name: torch.save({{}}, name),
        lambda name: save_file({{"a": torch.zeros(1)}}, name),
        profile.export_chrome_trace,
        lambda name: torch.from_file(name, shared=True, size=1),
        lambda name: torch.UntypedStorage.from_file(name, True, 8),
    ):
        for name in (kept + "/new", {path!r}):
            try:
                write(name)
            except Exception:
                pass
    torch.save({{}}, "mine")
    return a + b if Path("mine").exists() else 0"""
    assert untouched(folder, tmp_path, add).status == "solved"


@pytest.fixture(params=["confined", "unconfined"])
def kernels(request, monkeypatch) -> str:
    """With what this system's kernel refuses, and without, as on other systems."""
    if request.param == "unconfined":
        without = "import sys\nfrom vitlab.exercises import confine, host\nconfine.to = lambda folder: None\n"
        monkeypatch.setattr(watch, "_HOST", ("-c", f"{without}host.main(*sys.argv[1:])"))
    elif not all(confine.kernel().values()):
        pytest.skip("this kernel cannot confine a process")
    return request.param


BOMB = """import ctypes, os, time
    start = ctypes.PyDLL(None).fork
    first = os.getpid()
    for _ in range(6):
        start()
    {leave}
    time.sleep(60)"""
SPAWN = """import multiprocessing, time
    context = multiprocessing.get_context("spawn")
    for target, argument in ((__import__("shutil").rmtree, {outside!r}), (time.sleep, 3600)):
        process = context.Process(target=target, args=(argument,), daemon=True)
        process.start()
    {wait}
    return a + b"""


def ended(find: Callable[[], list[psutil.Process]]) -> bool:
    """Whether the processes found are gone within ten seconds, or wait only for somebody to read their status."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = []
        for process in find():
            with contextlib.suppress(psutil.NoSuchProcess):
                left += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        if not left:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    "add",
    [
        BOMB.format(leave="pass"),
        BOMB.format(leave="os.getpid() == first or os.setsid()"),
        SPAWN.replace("{wait}", "pass"),
        SPAWN.replace("{wait}", "process.join()"),
    ],
    ids=["bomb", "own sessions", "spawned", "spawned and waited for"],
)
def test_no_process_outlives_the_check_and_none_is_solved_that_starts_one(folder, tmp_path, kernels, add):
    outside = tmp_path / "outside"
    outside.mkdir()
    before = {process.pid for process in psutil.process_iter()}
    started = time.monotonic()
    stopped(student(folder, add=add.replace("{outside!r}", repr(str(outside)))), "start another process", seconds=20)
    assert time.monotonic() - started < 20
    assert outside.exists() or kernels == "unconfined"
    words = ("vitlab-check-", "multiprocessing")
    assert ended(
        lambda: [
            process
            for process in psutil.process_iter(["cmdline"])
            if process.pid not in before and any(word in " ".join(process.info["cmdline"] or ()) for word in words)
        ]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a process with its parent")
def test_a_check_that_is_killed_leaves_no_answer_running(folder, tmp_path):
    path = student(folder, add="Path('here').touch()\n    while True:\n        pass")
    program = f"""from pathlib import Path
from vitlab import notebooks
from vitlab.cli import main
notebooks.sources_dir = lambda: Path({str(folder / "source")!r})
main.main(["exercises", "check", {str(path)!r}])"""
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch"), "PYTHONPATH": str(paths.ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        try:
            deadline = time.monotonic() + 60
            while not list(tmp_path.glob("scratch/*/work/here")):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            family = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()
    assert len(family) == 2
    assert ended(lambda: [each for each in family if each.is_running()])


@confined
@pytest.mark.parametrize(
    "add, words",
    [
        ("import os, signal; ctypes.CDLL(None).kill(os.getppid(), 9)", ""),
        ("import socket; socket.socket()", "use no network"),
        ("assert ctypes.CDLL(None).shmget(4711, 4096, 0o1600) < 0", ""),
    ],
)
def test_what_the_kernel_refuses_besides(folder, add, words):
    first, second = outcomes(student(folder, add=f"import ctypes\n    {add}\n    return a + b"))
    assert (first.status, second.status) == ("wrong" if words else "solved", "solved") and words in first.message


@pytest.mark.parametrize(
    "add, words",
    [
        ("Path(str(n)).write_bytes(bytes(10**7))", "wrote more than 100 MB in all"),
        ("f = open('x', 'wb'); f.write(bytes(10**7)); f.flush(); files.append(f); os.remove('x')", "more than 100 MB"),
        ("Path(str(n)).touch()", "made more than 1000 files and folders"),
        ("os.mkdir('d'); os.chdir('d')", "made more than 1000 files and folders"),
        ("Path(str(n)).mkdir(mode=0); time.sleep(0.01)", "cannot look into"),
    ],
    ids=["files", "removed files", "many", "deep", "hidden"],
)
def test_a_disk_is_not_filled(folder, tmp_path, monkeypatch, add, words):
    if "look into" in words and not os.geteuid():
        pytest.skip("there is nothing that root cannot look into")
    if "removed" in add and not Path("/proc").is_dir():
        pytest.skip("what has no name any more is found where there is /proc")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    loop = f"import itertools, os, time\n    files = []\n    for n in itertools.count():\n        {add}"
    stopped(student(folder, add=loop), words)
    assert list(scratch.iterdir()) == []


def test_an_exercise_begins_as_if_it_were_the_only_one(folder):
    change = "math.tau = 0; sys.setrecursionlimit(99); Path('mine').touch()\n    return a + b"
    seen = """import math, sys
from pathlib import Path
answer = 42 if math.tau > 6 and sys.getrecursionlimit() > 99 and not Path("mine").exists() else 0"""
    assert statuses(student(folder, add=change, number=seen)) == ["solved", "solved"]


def test_torch_is_as_after_its_import_and_has_one_thread(folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (folder / "source" / "01_sums.py").write_text(
        SOURCE.replace("import math, sys\n", "import math, sys\nimport torch\n")
    )
    change = """torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.manual_seed(7)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    return a + b"""
    seen = """x = torch.ones(2, requires_grad=True) * 1
as_new = x.dtype == torch.float32 and x.device.type == "cpu" and x.requires_grad and torch.initial_seed() != 7
answer = 42 if as_new and torch.get_num_threads() == 1 and not torch.are_deterministic_algorithms_enabled() else 0"""
    assert statuses(student(folder, add=change, number=seen)) == ["solved", "solved"]


def test_threads_left_behind_do_not_keep_the_check_waiting(folder):
    add = "import threading, time\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    return a + b"
    started = time.monotonic()
    assert statuses(student(folder, add=add)) == ["solved", "solved"]
    assert time.monotonic() - started < 30


def test_the_parents_own_settings_stay(folder):
    before = os.getcwd(), dict(os.environ)
    outcomes(student(folder))
    assert (os.getcwd(), dict(os.environ)) == before


@pytest.mark.parametrize(
    "before, wanted, expected",
    [
        ("a = 1\nb = 2", "print(a)", ["a = 1"]),
        ("a = 1\na = 2", "a", ["a = 2"]),  # the last value only
        ("a = [1]\na.append(2)\na[0] = 3", "a", ["a = [1]", "a.append(2)", "a[0] = 3"]),
        ("a = 1\na += 1", "a", ["a = 1", "a += 1"]),
        ("import os, sys\nos.getcwd()", "os.sep", ["import os"]),  # calls on a module change nothing of ours
        ("a = 1\nfor i in []:\n    a = i", "a", ["a = 1", "for i in []:\n    a = i"]),  # may run or not
        ("c = 3\ndef f(x):\n    return x + c", "f(1)", ["c = 3", "def f(x):\n    return x + c"]),
        ("def f():\n    return c\nc = 3", "f()", ["def f():\n    return c", "c = 3"]),  # read when called
        ("x = 9\ny = [x for x in range(3)]", "y", ["y = [x for x in range(3)]"]),  # names of its own
        ("x = 9", "x = 1\nprint(x)", []),  # the wanted code sets it itself
        ("with open('f') as f:\n    t = f.read()", "t", ["with open('f') as f:\n    t = f.read()"]),
        ("@property\ndef f(s):\n    return 1", "f", ["@property\ndef f(s):\n    return 1"]),
    ],
)
def test_what_is_needed_of_earlier_cells(before, wanted, expected):
    earlier = needs.statements(before)
    assert [earlier[k].text for k in sorted(needs.needed(earlier, needs.statements(wanted)))] == expected


def test_exercises_are_found_with_their_words(folder):
    first, second = cells.original(1).exercises
    assert (first.number, first.title, first.stars, first.minutes) == (1, "Add", 1, 5)
    assert (second.number, second.title, second.stars, second.minutes) == (2, "A number", 2, 10)
    assert second.parts.before == ("answer = None",) and second.parts.solution == ("answer = 42",)
    assert second.parts.checks == ("assert answer == 6 * 7",) and second.parts.asked == {"answer"}
    assert first.parts.asked == {"total"} and len(first.parts.checks) == 3
