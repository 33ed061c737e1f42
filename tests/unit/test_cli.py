"""The command line checks before it begins, says what went wrong in one line, and exits accordingly."""

import importlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from PIL import Image
from test_notebooks_runner import folder, make

from vitlab import experiments, notebooks, paths
from vitlab.cli import doctor, execute, full, values
from vitlab.cli import main as cli
from vitlab.data import datasets
from vitlab.models import zoo
from vitlab.sweep import identity, results
from vitlab.training import session

__all__ = ["folder"]  # a fixture: used by name


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


def lab(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return python("-m", "vitlab.cli.main", *arguments, **environment)


def test_the_command_line_answers_without_importing_the_heavy_packages():
    code = (
        "import sys, vitlab.cli.main\n"
        "vitlab.cli.main.main(['run', '--preset', 'huge'])\n"
        "heavy = ('torch', 'pandas', 'matplotlib', 'papermill', 'timm')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = python("-c", code)
    assert done.stdout == "[]\n"
    assert done.stderr == "vitlab: unknown preset 'huge': choose one of smoke, quick, full, gpu, paper\n"


def test_help_imports_nothing_that_takes_long():
    code = (
        "import sys\nfrom vitlab.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('torch', 'numpy', 'pandas', 'timm', 'matplotlib', 'json', 'inspect', 'importlib.metadata')\n"
        "print([name for name in sys.modules if name in heavy or name.startswith('vitlab.')])"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "['vitlab.cli', 'vitlab.cli.main']"


@pytest.mark.slow
def test_notebooks_run_the_report_is_written_and_its_path_printed(folder, figures, capsys):
    record = (
        "from vitlab import ledger\nstudy = ledger.begin('01_a', PRESET, SEED)\n"
        "parameters = {'parameters': ledger.Estimate.exact(86567656)}\n"
        "ledger.conclude(study, 'C01', ledger.judge(ledger.given(True)), parameters)"
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


@pytest.mark.slow
def test_a_failure_among_three_gives_status_one_and_a_report(folder, figures, capsys):
    for number in (1, 2, 3):
        make(folder, f"0{number}_n", "assert SEED != 2, 'two is bad'" if number == 2 else "print(SEED)")
    assert cli.main(["run", "3", "1", "2", "02", "--preset", "smoke", "--set", "seed=2"]) == 1
    printed = capsys.readouterr()
    ended = [line[:4] for line in printed.out.splitlines()[:3]]
    assert sorted(ended) == ["01_n", "02_n", "03_n"]  # once each, as they end
    first, last = printed.err.splitlines()
    assert "02_n stopped in cell [3], line 1 (assert SEED != 2, 'two is bad'): AssertionError: two is bad" in first
    assert last == "vitlab: 1 of 3 notebooks failed: 02_n"
    assert printed.out.splitlines()[-1] == str(figures / "smoke" / "REPORT.md")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "77"], "unknown notebook '77': choose from 01_a"),
        (["run", "--preset", "quik"], "unknown preset 'quik': choose one of smoke, quick, full, gpu, paper"),
        (["run", "--preset", "paper"], "preset 'paper' is not run from here: it needs the paper's data"),
        (
            ["run", "--set", "SEEED=1"],
            "no chosen notebook has a parameter SEEED. There are 01_a: PRESET, SEED",
        ),
        (["run", "--set", "SEED=one"], "SEED=one: expected a whole number"),
        (["run", "--set", "SEED"], "--set SEED: expected KEY=VALUE"),
        (["run", "--set", "preset=smoke"], "choose the preset with --preset"),
        (["run", "--jobs", "0"], "--jobs 0: expected the number of worker processes"),
        (["experiment", "data_scaling", "--jobs", "-1"], "--jobs -1: expected the number of worker processes"),
        (["full", "speed", "--jobs", "0"], "--jobs 0: expected the number of worker processes, 1 or more"),
        (["full", "--plan", "--minutes", "0"], "--minutes 0: expected a number above 0, at most 1,000,000"),
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


@pytest.mark.parametrize(
    "arguments, below, choice",
    [
        (["run", "--preset", "smoke"], "smoke", "VITLAB_FIGURES=FOLDER"),
        (["report"], "quick", "VITLAB_FIGURES=FOLDER"),
        (["experiment", "sums", "--preset", "smoke"], "smoke/experiments", "VITLAB_FIGURES=FOLDER"),
        (["full", "speed", "--preset", "smoke"], "smoke/runs", "VITLAB_FIGURES=FOLDER"),
        (["train", "Lab-Ti/8", "digits"], "training/Lab-Ti_8-digits", "--out FOLDER or VITLAB_FIGURES=FOLDER"),
        (["train", "Lab-Ti/8", "digits", "--out", "{figures}/mine"], "mine", "--out FOLDER"),
    ],
)
def test_a_folder_that_cannot_be_written_into_is_said_before_anything_begins(
    folder, figures, capsys, monkeypatch, arguments, below, choice
):
    def begun(*given, **more):
        pytest.fail("it began")

    make(folder, "01_a", "print(SEED)")
    monkeypatch.setattr(execute, "execute", begun)
    monkeypatch.setattr(full, "piece", begun)
    monkeypatch.setattr(session, "run", begun)
    monkeypatch.setattr(experiments, "find", lambda name: begun)
    figures.write_text("a file where the folder should be")
    assert cli.main([each.format(figures=figures) for each in arguments]) == 2
    printed = capsys.readouterr()
    wanted = f"vitlab: cannot write into {figures / below} (Not a directory): choose another folder with {choice}\n"
    assert (printed.out, printed.err) == ("", wanted)


def test_numbers_beyond_clocks_and_limits_are_refused(figures, capsys):
    for command in (["exercises", "check", "mine.ipynb", "--memory"], ["full", "--minutes"]):
        for value in ("1e300", "inf", "nan", "0"):
            assert cli.main([*command, value]) == 2
            name, number = command[-1], f"{float(value):g}"
            wanted = f"vitlab: {name} {number}: expected a number above 0, at most 1,000,000\n"
            assert capsys.readouterr().err == wanted


def test_a_terminal_of_ascii_shows_question_marks(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii", errors="strict"))
    assert cli.main(["recipes"]) == 0
    sys.stdout.flush()
    assert b"Adam ? = (0.9, 0.999)" in printed.getvalue()


PARAMETERS = 'PRESET = "quick"\nSEED = 0\nWEIGHTS = "lab"\nIMAGES = "auto"\nHYBRID = "auto"\nDATA = "digits"\nREAL = ""'


@pytest.mark.parametrize(
    "setting, message",
    [
        ("WEIGHTS=wrong", "--set WEIGHTS=wrong: model 'wrong' is unknown; "),
        ("weights=none.safetensors", "--set WEIGHTS=none.safetensors: there is no file none.safetensors"),
        ("WEIGHTS=vit_base_patch16_224@none.npz", "there is no file none.npz"),
        ("WEIGHTS=Lab-Ti/8", "there are no published weights for Lab-Ti/8"),
        ("HYBRID=wrong", "--set HYBRID=wrong: model 'wrong' is unknown"),
        ("IMAGES=wrong", "--set IMAGES=wrong: unknown data set 'wrong'"),
        ("DATA=digit", "--set DATA=digit: unknown data set 'digit'; did you mean 'digits'?"),
        ("REAL=digits pets", "--set REAL=digits pets: no pets (test): looked for"),
        ("SEED=-1", "--set SEED=-1: expected a whole number from 0 to 4,294,967,295"),
    ],
)
def test_a_value_that_a_notebook_would_refuse_is_refused_before_its_kernel_starts(
    folder, figures, capsys, tmp_path, monkeypatch, setting, message
):
    make(folder, "08_a", parameters=PARAMETERS)
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    monkeypatch.setattr(execute, "execute", lambda *given: pytest.fail("a kernel was started"))
    assert cli.main(["run", "08", "--set", setting]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1 and message in printed.err
    assert not figures.exists()


def test_values_that_can_be_used_are_passed_on_files_by_their_whole_path(folder, tmp_path, monkeypatch):
    one, two = make(folder, "08_a", parameters=PARAMETERS), make(folder, "09_b")
    monkeypatch.chdir(tmp_path)
    zoo.save("mine.safetensors", zoo.create("Lab-Mu/8"), "Lab-Mu/8", {})
    for split in ("train", "test"):
        (tmp_path / "pictures" / split / "cats").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / split / "cats" / "one.png")
    chosen = {"WEIGHTS": "mine.safetensors", "HYBRID": "Lab-Mu/8@mine.safetensors", "IMAGES": "pictures", "SEED": 7}
    whole = str(tmp_path / "mine.safetensors")
    expected = {"WEIGHTS": whole, "HYBRID": f"Lab-Mu/8@{whole}", "IMAGES": str(tmp_path / "pictures"), "SEED": 7}
    assert values.checked({one: chosen, two: {"SEED": 7}}) == {one: expected, two: {"SEED": 7}}
    as_they_are = {"WEIGHTS": "LAB", "HYBRID": "", "IMAGES": "photographs", "DATA": "world", "REAL": "digits"}
    assert values.checked({one: as_they_are}) == {one: as_they_are}


def test_files_of_other_machines_are_not_asked_for_here(folder):
    path = make(folder, "08_a", parameters=PARAMETERS)
    there = {path: {"WEIGHTS": "/theirs/model.safetensors"}}
    assert values.checked(there, elsewhere=True) == there
    with pytest.raises(ValueError, match="model 'wrong' is unknown"):
        values.checked({path: {"WEIGHTS": "wrong"}}, elsewhere=True)


RUN = (
    "import sys; from pathlib import Path; from vitlab import notebooks; from vitlab.cli import main as cli\n"
    "notebooks.notebooks_dir = lambda: Path(sys.argv[1])\n"
    "sys.exit(cli.main(['run', '--preset', 'smoke', '--jobs', '2']))"
)
SWEEP = """\
import sys
sys.path.insert(0, {here!r})
import sweeps
from vitlab import ledger
from vitlab.sweep import runner
study = ledger.begin("01_a", PRESET, SEED)
configs = [{{"size": size, "log": {log!r}, "seconds": 0.5}} for size in range(8)]
table = runner.run_all(sweeps.logged, configs, runner.run_folder("sweeps", PRESET))
runs = {{"runs": ledger.Estimate.exact(len(table))}}
ledger.conclude(study, "C03", ledger.judge(ledger.given(True)), runs)"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_goes_on_where_it_stopped(folder, figures, tmp_path):
    log, here = tmp_path / "log", str(Path(__file__).parent)
    make(folder, "01_a", SWEEP.format(here=here, log=str(log)))
    command = [sys.executable, "-c", RUN, str(folder)]
    process = subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("  [1/8] sweeps size=")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the kernel and its two workers
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert psutil.wait_procs(family, timeout=20)[1] == []
    before = len(log.read_text().splitlines())
    assert before < 8
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finished = sorted(int(line) for line in log.read_text().splitlines())
    assert set(finished) == set(range(8)) and len(finished) <= 8 + 2  # the two under way, at most
    assert sorted(path.name for path in (figures / "smoke" / "01_a").iterdir()) == [
        "notebook.ipynb",
        "result.json",
    ]
    assert sorted(path.name for path in (figures / "smoke").iterdir()) == ["01_a", "REPORT.md", "runs"]
    assert len(list((figures / "smoke" / "runs" / "sweeps").iterdir())) == 8


@pytest.mark.slow
@pytest.mark.parametrize("names", [["01_a"], ["01_a", "02_b"]])  # two are side by side
def test_an_interrupted_run_says_so_in_one_line_and_leaves_nothing(folder, figures, tmp_path, names):
    log, here = tmp_path / "log", str(Path(__file__).parent)
    # The second run ends well after the first, at which the interrupt comes: it is not being written then.
    text = SWEEP.format(here=here, log=str(log)).replace('"seconds": 0.5', '"seconds": 3 + 9 * (size % 2)')
    for name in names:
        make(folder, name, text)
    command = [sys.executable, "-c", RUN, str(folder)]
    with subprocess.Popen(
        command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline().startswith("  [1/8] sweeps size=")
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "vitlab: stopped; finished results are kept\n")
    assert len(family) >= 3 and psutil.wait_procs(family, timeout=20)[1] == []
    assert not list(figures.rglob(".partial-*")) and not list(figures.rglob("*.ipynb"))


@pytest.mark.parametrize("preset, wanted", [("quick", execute.side_by_side), ("full", None)])
def test_notebooks_that_may_take_hours_have_all_processors(folder, figures, monkeypatch, preset, wanted):
    def looked_at(paths, name, settings, executor):
        assert (name, executor) == (preset, wanted)
        return {}

    make(folder, "01_a")
    monkeypatch.setattr(execute, "run", looked_at)
    assert cli.main(["run", "--preset", preset]) == 0


def test_another_pipe_that_breaks_is_no_reader_that_has_gone(monkeypatch):
    def broken():
        raise BrokenPipeError("a worker's")

    monkeypatch.setattr(doctor, "describe", broken)
    with pytest.raises(BrokenPipeError, match="a worker's"):
        cli.main(["doctor"])


def test_errors_that_are_not_ours_and_debugging_show_the_traceback(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(notebooks, "all_notebooks", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cli.main(["run"])
    monkeypatch.setenv("VITLAB_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown preset"):
        cli.main(["run", "--preset", "huge"])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["recipes"], ["doctor"]])
def test_a_reader_that_has_gone_ends_it_without_a_word(arguments):
    """As in `vitlab recipes | head -1`: the pipe is closed before anything is written into it."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vitlab.cli.main", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_the_process_exits_with_the_status():
    done = lab("report", "--preset", "huge")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vitlab: unknown preset 'huge': choose one of smoke, quick, full, gpu, paper\n"
    assert "Traceback" in lab("report", "--preset", "huge", VITLAB_DEBUG="1").stderr
    assert lab("run", "--help").returncode == 0
    assert lab("--version").stdout.startswith("vitlab 0")
    assert lab("dance").returncode == 2


def sums(preset="quick", seed=0, jobs=None, folder=None, size=3, rate=0.5):
    """An experiment: one row per number."""
    rows = [{"number": number, "value": seed + number * rate} for number in range(size)]
    return pd.DataFrame(rows)


def test_an_experiment_runs_without_jupyter(figures, monkeypatch, capsys):
    monkeypatch.setattr(experiments, "find", lambda name: sums)
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


def test_a_plan_says_which_settings_it_does_not_take(figures, capsys):
    assert cli.main(["experiment", "data_scaling", "--plan", "--set", "real=digits"]) == 2
    wanted = "vitlab: --set real: data_scaling has this setting, but --plan does not take it. It takes: none\n"
    assert capsys.readouterr().err == wanted
    assert cli.main(["experiment", "local_heads", "--plan", "--set", "parts=2"]) == 2
    wanted = "vitlab: --set parts: local_heads has no such setting. There are: target, share\n"
    assert capsys.readouterr().err == wanted


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
    assert f"cifar10    found in {tmp_path}\n" in text and f"pets       not found in {tmp_path}\n" in text
    for word in ("python 3.", "torch 2.", "processors", "GiB free", "smoke", "paper     not run from here"):
        assert word in text


def test_the_doctor_finds_every_set_that_can_be_loaded_wherever_it_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    for layout in ("cifar-10-batches-py", "flowers-102", "imagenette-128"):
        (tmp_path / layout).mkdir()
    lines = [line.split() for line in doctor.describe().splitlines()]
    found = {line[0] for line in lines if line[1:3] == ["found", "in"]}
    missing = {line[0] for line in lines if line[1:3] == ["not", "found"] or line[1:3] == ["not", "found,"]}
    assert found == {"cifar10", "flowers102", "imagenette"} and missing == {"cifar100", "pets", "photos"}
    assert found | missing == {*datasets.TORCHVISION, "photos"}


def test_the_doctor_counts_stored_runs_and_those_of_older_code(figures, monkeypatch):
    assert f"stored runs\n  none in {figures}\n" in doctor.describe()
    function, folder = paths.file_hash, figures / "smoke" / "runs" / "sweep"

    def store(size: int, **made_by: str) -> Path:
        config = {"size": size}
        result = results.result(function, config, [{"accuracy": 0.5}], 1.0) | made_by
        key = identity.run_key(function, config, **made_by)
        path = folder / f"{key}.json"
        paths.write_json(path, results.with_checksum({name: result[name] for name in result if name != "code"}))
        return path

    store(1), store(2)
    in_folder = f"in {figures / 'smoke' / 'runs'}, 0.0 MiB"
    assert f"\n  2 {in_folder}\n" in doctor.describe()
    store(3, code="before"), store(4, code="before", torch="1.0"), store(5, torch="1.0")
    gone = store(6)
    changed = paths.read_json(gone) | {"function": "vitlab.experiments.gone._run_one"}
    paths.write_json(gone, results.with_checksum(changed))
    (folder / "damaged.json").write_text("{")
    edited = store(7)
    edited.write_text(edited.read_text().replace('"accuracy": 0.5', '"accuracy": 0.7'))
    old = {name: value for name, value in changed.items() if name != "sha256"} | {"schema": 1}
    paths.write_json(folder / "old.json", old)
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    unused = "4 of older code, 1 of another torch or device, 2 that cannot be read (kept, not used)"
    assert f"\n  9 {in_folder}: {unused}\n" in doctor.describe()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_doctor_looks_on_while_runs_are_written_and_removed(figures, monkeypatch):
    folder = figures / "smoke" / "runs" / "sweep"
    folder.mkdir(parents=True)
    paths.partial(folder / "a.json").write_text("{")  # of a sweep that goes on
    assert f"\n  0 in {figures / 'smoke' / 'runs'}, 0.0 MiB\n" in doctor.describe()
    for name in ("a.json", "b.json"):
        (folder / name).write_text("{")
    known = doctor._content

    def removed_meanwhile(path):
        (folder / "b.json").unlink(missing_ok=True)
        return known(path)

    monkeypatch.setattr(doctor, "_content", removed_meanwhile)
    assert f"\n  1 in {figures / 'smoke' / 'runs'}, 0.0 MiB: 1 that cannot be read" in doctor.describe()
