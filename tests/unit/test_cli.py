"""The command line checks before it begins, says what went wrong in one line, and exits accordingly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from test_notebooks_runner import folder, make

from vitlab import cli, experiments, files, notebooks

__all__ = ["folder"]  # a fixture: used by name


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=files.ROOT,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


def lab(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return python("-m", "vitlab.cli", *arguments, **environment)


def test_the_command_line_answers_without_importing_the_heavy_packages():
    code = (
        "import sys, vitlab.cli\n"
        "vitlab.cli.main(['run', '--preset', 'huge'])\n"
        "heavy = ('torch', 'pandas', 'matplotlib', 'papermill', 'timm')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = python("-c", code)
    assert done.stdout == "[]\n"
    assert done.stderr == "vitlab: unknown preset 'huge': choose one of smoke, quick, rehearsal, full, paper\n"


def test_notebooks_run_the_report_is_written_and_its_path_printed(folder, figures, capsys):
    record = (
        "from vitlab.experiments import ledger\nstudy = ledger.study('01_a', PRESET, SEED)\n"
        "ledger.record(study, claim='C01', metric='parameters', value=86567656, interval=None, n=1, "
        "verdict='reproduced')"
    )
    make(folder, "01_a", record)
    make(folder, "02_b", "print(SEED)")
    assert cli.main(["run", "--preset", "smoke", "--set", "SEED=3", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("01_a: ") and lines[1].startswith("02_b: ")
    assert lines[2] == str(figures / "smoke" / "REPORT.md")
    text = (figures / "smoke" / "REPORT.md").read_text()
    assert "| C01 |" in text and "`seed = 3`" in text
    assert "- **02_b**: no result.json" in text


def test_a_failure_among_three_gives_status_one_and_a_report(folder, figures, capsys):
    for number in (1, 2, 3):
        make(folder, f"0{number}_n", "assert SEED != 2, 'two is bad'" if number == 2 else "print(SEED)")
    assert cli.main(["run", "3", "1", "2", "02", "--preset", "smoke", "--set", "seed=2"]) == 1
    printed = capsys.readouterr()
    assert [line[:4] for line in printed.out.splitlines()[:3]] == [
        "03_n",
        "01_n",
        "02_n",
    ]  # as asked, once each
    assert "1 of 3 notebooks failed:\n  02_n stopped in cell [3]" in printed.err
    assert "AssertionError: two is bad" in printed.err
    assert printed.out.splitlines()[-1] == str(figures / "smoke" / "REPORT.md")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "77"], "unknown notebook '77': choose from 01_a"),
        (["run", "--preset", "quik"], "unknown preset 'quik': choose one of smoke, quick, rehearsal, full, paper"),
        (["run", "--preset", "paper"], "preset 'paper' is not run from here: it needs the paper's data"),
        (
            ["run", "--set", "SEEED=1"],
            "no chosen notebook has a parameter SEEED. There are 01_a: PRESET, SEED",
        ),
        (["run", "--set", "SEED=one"], "SEED=one: expected a whole number"),
        (["run", "--set", "SEED"], "--set SEED: expected KEY=VALUE"),
        (["run", "--set", "preset=smoke"], "choose the preset with --preset"),
        (["run", "--jobs", "0"], "--jobs 0: expected the number of worker processes"),
        (["run", "--scheduler", "host:8786"], "scheduler 'host:8786': expected its address, such as tcp://host:8786"),
        (["experiment", "data_scaling", "--scheduler", ""], "scheduler '': expected its address"),
        (["report", "--preset", "huge"], "unknown preset 'huge'"),
        (["experiment", "nothing"], "unknown experiment 'nothing': choose one of "),
        (["experiment", "nothing", "--preset", "paper"], "preset 'paper' is not run from here"),
    ],
)
def test_bad_input_is_one_line_and_status_two_before_anything_is_written(folder, figures, capsys, arguments, message):
    make(folder, "01_a", "print(SEED)")
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert printed.err.startswith("vitlab: ") and message in printed.err
    assert not figures.exists()


RUN = (
    "import sys; from pathlib import Path; from vitlab import cli, notebooks\n"
    "notebooks.notebooks_dir = lambda: Path(sys.argv[1])\n"
    "sys.exit(cli.main(['run', '--preset', 'smoke', '--jobs', '2']))"
)
SWEEP = """\
import sys
sys.path.insert(0, {here!r})
import sweeps
from vitlab.experiments import ledger, runner
VERDICT = "reproduced"
study = ledger.study("01_a", PRESET, SEED)
configs = [{{"size": size, "log": {log!r}, "seconds": 0.5}} for size in range(8)]
table = runner.run_all(sweeps.logged, configs, runner.run_folder("sweeps", PRESET))
ledger.record(study, claim="C03", metric="runs", value=len(table), interval=None, n=8, verdict=VERDICT)"""


def test_a_killed_run_leaves_no_process_and_goes_on_where_it_stopped(folder, figures, tmp_path):
    log, here = tmp_path / "log", str(Path(__file__).parent)
    make(folder, "01_a", SWEEP.format(here=here, log=str(log)))
    command = [sys.executable, "-c", RUN, str(folder)]
    process = subprocess.Popen(command, cwd=files.ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("  [1/8] sweeps size=")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the kernel and its two workers
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert psutil.wait_procs(family, timeout=20)[1] == []
    before = len(log.read_text().splitlines())
    assert before < 8
    done = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finished = sorted(int(line) for line in log.read_text().splitlines())
    assert set(finished) == set(range(8)) and len(finished) <= 8 + 2  # the two under way, at most
    assert sorted(path.name for path in (figures / "smoke" / "01_a").iterdir()) == [
        "notebook.ipynb",
        "result.json",
    ]
    assert sorted(path.name for path in (figures / "smoke").iterdir()) == ["01_a", "REPORT.md", "runs"]
    assert len(list((figures / "smoke" / "runs" / "sweeps").iterdir())) == 8


def test_errors_that_are_not_ours_and_debugging_show_the_traceback(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(notebooks, "all_notebooks", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cli.main(["run"])
    monkeypatch.setenv("VITLAB_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown preset"):
        cli.main(["run", "--preset", "huge"])


def test_the_process_exits_with_the_status():
    done = lab("report", "--preset", "huge")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vitlab: unknown preset 'huge': choose one of smoke, quick, rehearsal, full, paper\n"
    assert "Traceback" in lab("report", "--preset", "huge", VITLAB_DEBUG="1").stderr
    assert lab("run", "--help").returncode == 0
    assert lab("--version").stdout.startswith("vitlab 0")
    assert lab("dance").returncode == 2


def sums(preset="quick", seed=0, jobs=None, folder=None, size=3, rate=0.5):
    """An experiment: one row per number."""
    rows = [{"number": number, "value": seed + number * rate} for number in range(size)]
    return pd.DataFrame(rows)


def loose(preset="quick", seed=0, jobs=None, folder=None, **settings):
    """An experiment that judges its settings itself."""
    return pd.DataFrame([settings])


def test_an_experiment_runs_without_jupyter(figures, monkeypatch, capsys):
    monkeypatch.setattr(experiments, "find", lambda name: {"sums": sums, "loose": loose}[name])
    command = [
        "experiment",
        "sums",
        "--preset",
        "smoke",
        "--seed",
        "10",
        "--set",
        "size=2",
        "--set",
        "rate=2",
    ]
    assert cli.main(command) == 0
    path = figures / "smoke" / "experiments" / "sums.csv"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(path) and lines[1].split() == ["0", "10.0"]
    assert pd.read_csv(path)["value"].tolist() == [10.0, 12.0]
    assert cli.main(["experiment", "sums", "--set", "sizes=2"]) == 2
    assert capsys.readouterr().err == ("vitlab: --set sizes: sums has no such setting. There are: size, rate\n")
    assert cli.main(["experiment", "sums", "--set", "size=two"]) == 2
    assert cli.main(["experiment", "loose", "--preset", "smoke", "--set", "depth=2", "--set", "model=a"]) == 0
    loosely = pd.read_csv(figures / "smoke" / "experiments" / "loose.csv")
    assert loosely.to_dict("records") == [{"depth": 2, "model": "a"}]


def test_where_runs_are_done_travels_to_the_runner(folder, figures, monkeypatch, capsys):
    monkeypatch.setenv("VITLAB_SCHEDULER", "tcp://other:1")
    monkeypatch.setenv("VITLAB_JOBS", "1")
    monkeypatch.setattr(experiments, "find", lambda name: sums)
    assert cli.main(["experiment", "sums", "--preset", "smoke", "--scheduler", "tcp://host:8786"]) == 0
    assert os.environ["VITLAB_SCHEDULER"] == "tcp://host:8786"
    assert cli.main(["experiment", "sums", "--preset", "smoke", "--jobs", "2"]) == 0
    assert (os.environ["VITLAB_SCHEDULER"], os.environ["VITLAB_JOBS"]) == ("", "2")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["experiment", "sums", "--jobs", "2", "--scheduler", "tcp://host:8786"])
    assert "not allowed with argument --jobs" in capsys.readouterr().err


def test_experiments_are_the_modules_with_a_function_of_their_name(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "sums.py").write_text("def sums():\n    pass\n")
    (tmp_path / "parts.py").write_text("def whole():\n    pass\n")
    assert experiments.names() == ("sums",)


def test_the_doctor_says_what_is_there(monkeypatch, tmp_path, capsys):
    (tmp_path / "cifar10").mkdir()
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"cifar10    found in {tmp_path}" in text and "pets       not found, looked at" in text
    for word in ("python 3.", "torch 2.", "processors", "GiB free", "smoke", "paper     not run from here"):
        assert word in text
