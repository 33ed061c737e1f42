"""Notebooks are found, checked and executed; one that fails harms nothing but itself."""

import json
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from vitlab import notebooks, paths
from vitlab.cli import execute


def make(folder: Path, name: str, *cells: str, parameters: str = 'PRESET = "quick"\nSEED = 0') -> Path:
    """A small notebook: the cell of parameters, then the given ones."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [nbformat.v4.new_markdown_cell(f"# {name}")]
    if parameters:
        notebook.cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    notebook.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(notebooks, "notebooks_dir", lambda: folder)
    return folder


def tagged(path: Path, tag: str) -> Path:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].metadata.tags = [tag]
    nbformat.write(notebook, path)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def outputs(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(out.get("text", "") for cell in cells for out in cell.get("outputs", ()))


def test_notebooks_are_found_by_number_and_by_name(folder):
    eight, ten = make(folder, "08_attention_distance"), make(folder, "10_masked_patches")
    make(folder, "draft")
    for which in ("08", "8", 8, "08_attention_distance", "attention_distance", "08_attention_distance.ipynb"):
        assert notebooks.find(which) == eight
    assert notebooks.all_notebooks() == [eight, ten]
    for which in ("1", "80", "attention", ""):
        with pytest.raises(ValueError, match=r"choose from 08_attention_distance, 10_masked_patches"):
            notebooks.find(which)


def test_a_folder_without_notebooks_says_so(folder):
    with pytest.raises(FileNotFoundError, match="vitlab copy FOLDER"):
        notebooks.find("08")


def test_parameters_are_read_with_their_types(folder):
    text = 'PRESET = "quick"  # which size\nSEED: int = 0\nRATE = -1e-3\nRETRAIN = False\nSIZE = None'
    path = make(folder, "01_a", parameters=text)
    expected = {"PRESET": "quick", "SEED": 0, "RATE": -1e-3, "RETRAIN": False, "SIZE": None}
    assert notebooks.parameters(path) == expected
    assert notebooks.parameters(make(folder, "02_b", parameters="")) == {}
    with pytest.raises(ValueError, match="parameter SIZES must be set to a plain number"):
        notebooks.parameters(make(folder, "03_c", parameters="SIZES = [1, 2]"))
    (folder / "04_d.ipynb").write_text("no notebook")
    with pytest.raises(ValueError, match="04_d.ipynb is not valid JSON"):
        notebooks.parameters(folder / "04_d.ipynb")


@pytest.mark.parametrize("text", ["[]", '{"cells": [1]}', '{"cells": [{"metadata": {"tags": ["parameters"]}}]}'])
def test_a_file_that_is_no_notebook_is_named(folder, text):
    path = folder / "01_a.ipynb"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"01_a.ipynb is no notebook: expected cells with a source"):
        notebooks.parameters(path)


def test_parameters_that_are_no_plain_python_are_refused_by_file_and_line(folder):
    with pytest.raises(ValueError, match=r"01_a.ipynb: .* parameters .*line 2.*: expected .*, such as SEED = 0"):
        notebooks.parameters(make(folder, "01_a", parameters="SEED = 0\n%matplotlib inline"))
    with pytest.raises(ValueError, match="parameter SIZES must be set to a plain number"):
        notebooks.parameters(make(folder, "02_b", parameters="SIZES = {[]: 1}"))


@pytest.mark.parametrize(
    "text, default, value",
    [
        ("3", 0, 3),
        ("3", 0.5, 3.0),
        ("3", "lab", "3"),
        ("True", False, True),
        ("no", True, False),
        ("3", None, 3),
        ("lab", None, "lab"),
        ("{[]: 1}", None, "{[]: 1}"),  # nothing that Python can make a value of
        ("(" * 1000, None, "(" * 1000),
        ("a=b", "", "a=b"),
    ],
)
def test_values_take_the_type_of_their_default(text, default, value):
    found = notebooks.parse("NAME", text, default)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text, default", [("1.5", 0), ("x", 0.5), ("maybe", True), ("", 1)])
def test_values_of_another_type_are_refused(text, default):
    with pytest.raises(ValueError, match=f"NAME={text}: expected .* as its default {default}"):
        notebooks.parse("NAME", text, default)


def test_settings_go_to_the_notebooks_that_have_them(folder):
    one = make(folder, "01_a", parameters='PRESET = "quick"\nSEED = 0\nWEIGHTS = "lab"')
    two = make(folder, "02_b")
    found = notebooks.check_settings([one, two], {"weights": "timm", "SEED": "4"})
    assert found == {one: {"WEIGHTS": "timm", "SEED": 4}, two: {"SEED": 4}}
    with pytest.raises(ValueError, match=r"WEIGHT. There are 01_a: PRESET, SEED, WEIGHTS; 02_b: PRESET, SEED"):
        notebooks.check_settings([one, two], {"WEIGHT": "timm"})


@pytest.mark.parametrize(
    "output, bar",
    [
        ({"output_type": "display_data", "data": {"text/plain": "  0%|          | 0/3 [00:00<?]"}}, True),
        ({"output_type": "display_data", "data": {"text/plain": "epoch:  10%|#   | 0/3 [00:00<?]"}}, True),
        ({"output_type": "stream", "name": "stderr", "text": "100%|####| 3/3"}, True),
        ({"output_type": "stream", "name": "stdout", "text": "100%| of them"}, False),
        ({"output_type": "stream", "name": "stderr", "text": "50 % of them | more"}, False),
        ({"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": ""}}, False),
    ],
)
def test_progress_bars_are_told_from_results(output, bar):
    assert execute._is_bar(output) is bar


@pytest.mark.slow
def test_execution_is_in_this_python_in_the_notebooks_folder_and_leaves_no_trace_of_itself(
    folder, tmp_path, monkeypatch
):
    other = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"  # another Python's, the user's own
    other.parent.mkdir(parents=True)
    other.write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    make(folder, "01_a", "import os, sys, vitlab\nprint(sys.executable, os.getcwd(), PRESET, SEED)")
    make(folder, "02_b", "from tqdm.auto import tqdm\nfor _ in tqdm(range(3), 'epoch'): pass\nprint('end')")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    out = tmp_path / "out" / "notebook.ipynb"
    execute.execute(folder / "01_a.ipynb", {"PRESET": "smoke", "SEED": 7}, out)
    assert outputs(out) == f"{sys.executable} {folder} smoke 7\n"
    execute.execute(folder / "02_b.ipynb", {}, out)
    assert outputs(out) == "end\n"
    text = out.read_text()
    assert "papermill" not in text and "iopub" not in text and "%|" not in text
    assert "widgets" not in json.loads(text)["metadata"]
    assert json.loads(text)["metadata"]["kernelspec"]["name"] == "python3"
    assert names(out.parent) == ["notebook.ipynb"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_a_failing_notebook_is_named_the_others_go_on_and_what_was_good_stays(folder, figures, capsys):
    make(folder, "01_a", "print('one')")
    make(folder, "02_b", "print('two')")
    make(folder, "03_c", "print('three')")
    paths = notebooks.all_notebooks()
    assert execute.run(paths, "smoke", {}) == {}
    good = figures / "smoke" / "02_b" / "notebook.ipynb"
    before = good.read_bytes()
    make(
        folder,
        "02_b",
        "print('half')",
        "import math\n\ndef f():\n    raise ValueError('loss became\\nNaN')\n\nf()\nf()",
    )
    capsys.readouterr()
    failures = execute.run(paths, "smoke", {})
    printed = capsys.readouterr()
    assert list(failures) == ["02_b"] and failures["02_b"] in printed.err
    expected = "02_b stopped in cell [4], line 6 (f()): ValueError: loss became NaN; as far as it came: "
    assert failures["02_b"] == f"{expected}{good.with_name('notebook.failed.ipynb')}"
    lines = printed.out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["01_a", "02_b", "03_c"] and ": failed after" in lines[1]
    assert good.read_bytes() == before
    failed = good.with_name("notebook.failed.ipynb")
    assert "half" in outputs(failed) and "papermill" not in json.loads(failed.read_text())["metadata"]
    make(folder, "02_b", "print('mended')")
    assert execute.run([paths[1]], "smoke", {}) == {}
    assert names(good.parent) == ["notebook.ipynb"] and "mended" in outputs(good)


@pytest.mark.slow
def test_a_killed_kernel_is_named(folder, figures):
    make(folder, "01_a", "print('before')", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    failures = execute.run(notebooks.all_notebooks(), "smoke", {})
    assert list(failures) == ["01_a"] and "01_a stopped: its kernel was killed" in failures["01_a"]
    assert names(figures / "smoke" / "01_a") == ["notebook.failed.ipynb"]


MEETS = """\
import os, time
from pathlib import Path
Path("{mine}").touch()
until = time.monotonic() + 60
while not Path("{other}").exists() and time.monotonic() < until:
    time.sleep(0.05)
print(Path("{other}").exists(), os.environ["VITLAB_JOBS"], os.environ["OMP_NUM_THREADS"])
"""
COUNTS = """\
import os, psutil
beside = psutil.Process().parent().children(recursive=True)
print(sum("ipykernel" in " ".join(each.cmdline()) for each in beside), os.environ["VITLAB_JOBS"])
"""


def tasks(paths: list[Path]) -> list[execute.Task]:
    return [execute._task(path, "smoke", {}) for path in paths]


@pytest.mark.slow
def test_notebooks_go_side_by_side_the_long_ones_first_and_what_is_timed_alone(folder, figures, monkeypatch):
    monkeypatch.setenv("VITLAB_JOBS", "4")
    paths = [
        tagged(make(folder, "01_a", COUNTS), "timed"),
        make(folder, "02_b", "from pathlib import Path\nprint(len(list(Path().glob('*.begun'))))"),
        tagged(make(folder, "03_c", MEETS.format(mine="c.begun", other="d.begun")), "long"),
        tagged(make(folder, "04_d", MEETS.format(mine="d.begun", other="c.begun")), "long"),
    ]
    ended = [path.stem for (path, _, _), _ in execute.side_by_side(execute.executed, tasks(paths))]
    assert sorted(ended[:2]) == ["03_c", "04_d"] and ended[2:] == ["02_b", "01_a"]
    said = [outputs(figures / "smoke" / path.stem / "notebook.ipynb") for path in paths]
    assert said == ["1 4\n", "2\n", "True 2 2\n", "True 2 2\n"]


@pytest.mark.slow
def test_where_runs_are_done_one_at_a_time_so_are_notebooks(folder, figures, monkeypatch):
    monkeypatch.setenv("VITLAB_JOBS", "1")
    paths = [make(folder, name, "import os\nprint(os.environ['VITLAB_JOBS'])") for name in ("01_a", "02_b")]
    found = list(execute.side_by_side(lambda task: execute.executed(task), tasks(paths)))  # not sent to a process
    assert [(path, word) for (path, _, _), (word, _) in found] == [(path, "done") for path in paths]


def test_progress_of_runs_is_shown_and_nothing_else(folder, figures, capsys):
    make(folder, "01_a", "print('[1/2] sweep size=1: 0.1 s\\nhello')")
    assert execute.run(notebooks.all_notebooks(), "smoke", {}) == {}
    assert capsys.readouterr().out.splitlines()[0] == "  [1/2] sweep size=1: 0.1 s"
    assert "hello" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_second_process_waits_for_the_notebooks_folder(folder, figures, capfd):
    make(folder, "01_a", "print('one')")
    code = (
        "import sys, time; from vitlab import paths\n"
        "with paths.lock(sys.argv[1]): print('held', flush=True); time.sleep(1)"
    )
    place = figures / "smoke" / "01_a"
    command = [sys.executable, "-c", code, str(place)]
    with subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        started = time.perf_counter()
        assert execute.run(notebooks.all_notebooks(), "smoke", {}) == {}
        assert time.perf_counter() - started > 0.8
    assert f"waiting for another process that works on {place}" in capfd.readouterr().err
    assert names(place) == ["notebook.ipynb"]
