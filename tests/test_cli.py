"""The command line checks before it begins, says what went wrong in one line, and exits accordingly."""

import os
import signal
import subprocess
import sys
import time

import nbformat
import pandas as pd
import psutil
import pytest
import timm
from safetensors.torch import save_file

from vitlab import cli, notebooks, paths
from vitlab.studies import runner, table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of notebooks, and a function that makes one."""
    there = tmp_path / "notebooks"
    there.mkdir()
    monkeypatch.setattr(notebooks, "notebooks_dir", lambda: there)
    return there


def make(folder, name, *cells, tags=()):
    first = nbformat.v4.new_code_cell('PRESET = "quick"\nSEED = 0', metadata={"tags": ["parameters"]})
    others = [nbformat.v4.new_code_cell(cell, metadata={"tags": list(tags)}) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=[first, *others]), folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def lab(*arguments, **environment):
    command = [sys.executable, "-m", "vitlab.cli", *arguments]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, env=os.environ | environment)


def test_help_and_mistakes_import_nothing_that_takes_long():
    code = (
        "import sys\nfrom vitlab.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(main(['run', '--preset', 'huge']))\n"
        "heavy = ('torch', 'numpy', 'pandas', 'timm', 'matplotlib', 'papermill')\n"
        "print([name for name in sys.modules if name in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == ["2", "[]"]
    assert done.stderr == "vitlab: unknown preset 'huge': choose one of smoke, quick, full\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "08", "--set", "SEED"], "--set SEED: expected KEY=VALUE"),
        (["run", "08", "--set", "SEED=x"], "SEED=x: expected a whole number, as its default 0"),
        (["run", "08", "--set", "SIZE=1"], "no chosen notebook has a parameter SIZE"),
        (["run", "08", "--set", "PRESET=full"], "choose the preset with --preset"),
        (["run", "99"], "unknown notebook '99': choose from 08_a"),
        (["run", "08", "--jobs", "0"], "--jobs 0: expected a whole number, 1 or more"),
        (["report", "--preset", "gpu"], "unknown preset 'gpu'"),
        (["study", "none"], "there is no study 'none': choose one of data_scaling"),
        (["study", "transfer", "--minutes", "nan"], "--minutes nan: expected a number above 0"),
        (["train", "Lab-Ti/8", "nowhere", "--plan"], "nowhere"),
        (["exercises", "check", "x.ipynb", "--seconds", "0"], "--seconds 0: expected a number above 0"),
    ],
)
def test_bad_input_is_one_line_and_status_two_before_anything_is_written(folder, figures, capsys, arguments, message):
    make(folder, "08_a")
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("vitlab: ") and message in said and len(said.splitlines()) == 1
    assert not figures.exists()


def test_weights_that_a_chapter_cannot_use_are_refused_before_a_kernel_starts(tmp_path, figures, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "run", lambda *arguments: pytest.fail("a kernel has started"))
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "cnn.safetensors")
    for setting in (f"WEIGHTS=test_resnet@{tmp_path}/cnn.safetensors", "WEIGHTS=no_such_vit"):
        assert cli.main(["run", "08", "--preset", "smoke", "--set", setting]) == 2
        said = capsys.readouterr().err
        assert said.startswith("vitlab: ") and len(said.splitlines()) == 1
        assert ("is not for chapter 08: it needs attention" in said) == ("cnn" in setting)


def test_a_folder_that_cannot_be_written_into_is_said_before_anything_begins(folder, tmp_path, monkeypatch, capsys):
    make(folder, "08_a")
    (tmp_path / "file").touch()
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "file"))
    for arguments in (["run"], ["report"], ["study", "local_heads"], ["train", "Lab-Ti/8", "world"]):
        assert cli.main(arguments) == 2
        assert "cannot write into" in capsys.readouterr().err


def test_recipes_and_doctor_say_what_is_there(figures, capsys):
    assert cli.main(["recipes"]) == 0
    said = capsys.readouterr().out
    assert "Table 3" in said and "93,836" in said and "Table 4" in said and "(0.001, 0.003, 0.01, 0.03)" in said
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for words in ("torch ", "memory ", "cifar10 not found", "VITLAB_FIGURES="):
        assert words in said


@pytest.mark.slow
def test_the_process_exits_with_the_status_and_in_silence_where_nobody_reads():
    assert lab("--version").stdout.startswith("vitlab 0") and lab("dance").returncode == 2
    assert "Traceback" in lab("report", "--preset", "huge", VITLAB_DEBUG="1").stderr
    reading, writing = os.pipe()
    os.close(reading)  # as in `vitlab recipes | head -1`
    command = [sys.executable, "-m", "vitlab.cli", "recipes"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_study_is_planned_done_in_pieces_and_complete(figures, monkeypatch, capsys):
    assert cli.main(["study", "data_scaling", "--preset", "full", "--plan"]) == 0
    assert "0 of 60 runs to do" in capsys.readouterr().out
    assert cli.main(["study", "data_scaling", "--scale", "large", "--preset", "smoke"]) == 0
    assert "4 of 4 runs to do" in (said := capsys.readouterr().out) and "data_scaling_large: 4 of 4 runs done" in said
    planned = len(table.runs("transfer", "smoke"))

    def run(name, preset, seed, jobs, minutes):
        assert (name, preset, seed, jobs) == ("transfer", "smoke", 3, 2) and 0 < minutes <= 1
        rows = pd.DataFrame()
        rows.attrs["done"] = done
        return rows

    monkeypatch.setattr(runner, "run", run)
    for done, status in ((planned - 1, 3), (planned, 0)):
        arguments = ["study", "transfer", "--preset", "smoke", "--seed", "3", "--jobs", "2", "--minutes", "1"]
        assert cli.main(arguments) == status
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"transfer: {done} of {planned} runs done"
        assert said[1] == ("1 runs left: the same command does them" if status else "complete")


def test_a_copy_has_the_notebooks_and_exercises_and_no_sources(tmp_path, capsys):
    assert cli.main(["copy", str(tmp_path / "new")]) == 0
    made = tmp_path / "new" / "notebooks"
    assert len(list(made.glob("*.ipynb"))) >= 12 and (made / "exercises").is_dir() and not (made / "source").exists()
    assert "12 notebooks are in" in capsys.readouterr().out or len(list(made.glob("*.ipynb"))) > 12
    assert cli.main(["copy", str(tmp_path / "new")]) == 2
    assert "is there already: remove it, or give another folder" in capsys.readouterr().err


@pytest.mark.slow
def test_notebooks_run_and_failures_are_told(folder, figures, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("vitlab.claims.report.write", lambda preset: f"the report of {preset}")
    log = tmp_path / "log"
    note = f"print(SEED, PRESET); open({str(log)!r}, 'a').write('{{}} ')"
    make(folder, "01_a", note.format("timed"), tags=["timed"])
    make(folder, "02_b", "x = 1\ny = x / 0")
    make(folder, "03_c", note.format("long"), tags=["long"])
    make(folder, "04_d", "import os; os._exit(1)")
    (folder / "notes.ipynb").write_text("{}")
    assert cli.main(["run", "--preset", "smoke", "--set", "seed=7", "--jobs", "1"]) == 1
    said = capsys.readouterr()
    assert "02_b stopped in cell [3]: ZeroDivisionError: division by zero; as far as" in said.err
    assert "04_d stopped: its kernel was killed" in said.err
    assert "vitlab: 2 of 4 notebooks failed: " in said.err and "the report of smoke" in said.out
    assert log.read_text() == "long timed "
    out = figures / "smoke"
    assert (out / "02_b" / "notebook.failed.ipynb").exists() and not (out / "02_b" / "notebook.ipynb").exists()
    assert nbformat.read(out / "01_a" / "notebook.ipynb", as_version=4).cells[-1].outputs[0].text == "7 smoke\n"
    make(folder, "02_b", "1")
    make(folder, "03_c", note.format("again"))
    assert cli.main(["run", "--preset", "smoke", "--set", "seed=7"]) == 1
    assert "unchanged: 01_a (run by number" in capsys.readouterr().out and log.read_text() == "long timed again "
    assert cli.main(["run", "02", "--preset", "smoke"]) == 0
    assert [path.name for path in (out / "02_b").iterdir()] == ["notebook.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_ends_early_leaves_no_process(folder, figures, tmp_path, number):
    for name in ("01_a", "02_b"):
        make(folder, name, f"open({str(tmp_path)!r} + '/{name}', 'w')\nimport time; time.sleep(300)")
    code = (
        "import sys; from pathlib import Path; from vitlab import notebooks, cli\n"
        "notebooks.notebooks_dir = lambda: Path(sys.argv[1])\n"
        "if __name__ == '__main__': sys.exit(cli.main(['run', '--preset', 'smoke', '--jobs', '2']))\n"
    )
    (tmp_path / "run.py").write_text(code)
    with subprocess.Popen(
        [sys.executable, tmp_path / "run.py", folder], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(paths.ROOT)},
    ) as process:  # fmt: skip
        while not ((tmp_path / "01_a").exists() and (tmp_path / "02_b").exists()):
            assert process.poll() is None
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
        said = process.communicate(timeout=60)[1]
    if number == signal.SIGINT:
        assert (process.returncode, said) == (130, "vitlab: stopped; finished results are kept\n")
    assert len(family) >= 2 and psutil.wait_procs(family, timeout=20)[1] == []
    assert not list(figures.rglob("notebook.ipynb"))
