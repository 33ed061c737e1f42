"""Every run is computed once and kept, whoever is killed meanwhile."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sweeps

from vitlab import paths
from vitlab.sweep import identity, results, runner

HERE = Path(__file__).parent
SWEEP = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); import sweeps\n"
    "from vitlab.sweep import runner\n"
    "if __name__ == '__main__':\n"
    "    configs = json.loads(sys.argv[3])\n"
    "    print(runner.run_all(sweeps.logged, configs, sys.argv[2], jobs=int(sys.argv[4])).to_json())"
)


@pytest.fixture(autouse=True)
def _nobody_edits_the_package(monkeypatch):
    """Somebody may, while the tests run; only the test of that case is about it."""
    monkeypatch.setattr(identity, "_SEEN", {})


def configs(folder: Path, count: int = 3, **more) -> list[dict]:
    return [{"size": size, "log": str(folder / "log")} | more for size in range(1, count + 1)]


def log(folder: Path) -> list[int]:
    path = folder / "log"
    return sorted(int(line) for line in path.read_text().split()) if path.exists() else []


def sweep(folder: Path, wanted: list[dict], jobs: int) -> subprocess.Popen:
    import json

    command = [sys.executable, "-c", SWEEP, str(HERE), str(folder / "runs"), json.dumps(wanted), str(jobs)]
    return subprocess.Popen(
        command,
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_sweep_gives_a_tidy_table_in_the_order_of_its_configurations(tmp_path, capsys):
    wanted = configs(tmp_path)[::-1]
    table = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert list(table.columns) == ["size", "log", "step", "accuracy"]
    assert table["size"].tolist() == [3, 3, 2, 2, 1, 1]
    assert table["accuracy"].tolist() == [3.0, 1.5, 2.0, 1.0, 1.0, 0.5]
    assert table.attrs["wall_s"] >= 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(":", 1)[0] for line in lines] == [
        "[1/3] sweeps size=3",
        "[2/3] sweeps size=2",
        "[3/3] sweeps size=1",
    ]
    assert all(path.suffix == ".json" for path in (tmp_path / "runs").iterdir())


def test_finished_runs_are_not_computed_again(tmp_path, capsys):
    first = runner.run_all(sweeps.logged, configs(tmp_path, 2), tmp_path / "runs", jobs=1)
    capsys.readouterr()
    started = time.perf_counter()
    more = runner.run_all(sweeps.logged, configs(tmp_path, 3), tmp_path / "runs", jobs=1)
    assert time.perf_counter() - started < 1.0
    assert log(tmp_path) == [1, 2, 3]
    assert more[more["size"] < 3].equals(first)
    assert capsys.readouterr().out.splitlines()[0] == "sweeps: 2 of 3 runs were finished before"


def test_a_lock_that_a_killed_process_left_beside_its_finished_run_is_removed(tmp_path):
    wanted, folder = configs(tmp_path, 2), tmp_path / "runs"
    runner.run_all(sweeps.logged, wanted, folder, jobs=1)
    first, *_ = runner.paths_of(sweeps.logged, wanted, folder)
    with paths.lock(folder, first.stem):
        (lock,) = folder.glob(".*.lock")
    lock.touch()  # as a process does that is killed after its result has been written
    runner.run_all(sweeps.logged, wanted, folder, jobs=1)
    assert {path.suffix for path in folder.iterdir()} == {".json"}


@pytest.mark.slow
def test_processes_give_the_table_that_one_process_gives(tmp_path):
    alone = runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "alone", jobs=1)
    together = runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "together", jobs=2)
    assert together.equals(alone)
    assert log(tmp_path) == [1, 1, 2, 2, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_run_is_named_after_the_others_are_stored(tmp_path, capsys, jobs):
    wanted = configs(tmp_path, bad=1)
    with pytest.raises(RuntimeError, match=r"1 of 3 runs failed: sweeps size=1 .*loss became NaN at step 3"):
        runner.run_all(sweeps.failing, wanted, tmp_path / "runs", jobs=jobs)
    assert log(tmp_path) == [2, 3]
    assert len(list((tmp_path / "runs").glob("*.json"))) == 2
    assert "failed: sweeps size=1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_the_first_time(tmp_path, capsys):
    lives = tmp_path / "lives"
    lives.write_bytes(b"1")
    table = runner.run_all(sweeps.dying, configs(tmp_path, bad=2, lives=str(lives)), tmp_path / "runs", jobs=2)
    assert table["size"].tolist() == [1, 1, 2, 2, 3, 3]
    assert log(tmp_path) == [1, 2, 3]
    assert "killed by SIGKILL" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_kills_its_worker_twice_is_named(tmp_path):
    lives = tmp_path / "lives"
    lives.write_bytes(b"1234")
    wanted = configs(tmp_path, bad=2, lives=str(lives))
    with pytest.raises(RuntimeError, match=r"1 of 3 runs failed: sweeps size=2 .*killed by SIGKILL"):
        runner.run_all(sweeps.dying, wanted, tmp_path / "runs", jobs=2)
    assert lives.read_bytes() == b"34" and log(tmp_path) == [1, 3]


@pytest.mark.parametrize(
    "kind, message",
    [
        ("nan", "accuracy = nan: a result must be finite"),
        ("empty", "one or more rows"),
        ("bare", r"row 1 has no column: expected what the run has measured"),
        ("list", r"accuracy = \[1, 2\]: expected a number"),
        ("number", "row value 3 = 0.5: expected a name"),
        ("contradiction", "kind = 'other': the configuration says 'contradiction'"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, kind, message):
    with pytest.raises(RuntimeError, match=message):
        runner.run_all(sweeps.odd, [{"kind": kind}], tmp_path, jobs=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1, "config": {"size": 9}, "rows": [{}]}'])
def test_a_corrupt_result_is_moved_aside_and_computed_again(tmp_path, capsys, content):
    wanted = configs(tmp_path, 2)
    expected = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    broken = tmp_path / "runs" / f"{identity.run_key(sweeps.logged, wanted[0])}.json"
    broken.write_text(content)
    capsys.readouterr()
    assert runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1).equals(expected)
    assert log(tmp_path) == [1, 1, 2]
    assert "is corrupt, moved aside" in capsys.readouterr().err
    assert broken.with_suffix(".corrupt").read_text() == content


def test_every_flipped_bit_of_a_stored_result_is_noticed(tmp_path, capsys):
    wanted = configs(tmp_path, 1)[0]
    runner.run_all(sweeps.logged, [wanted], tmp_path / "runs", jobs=1)
    (path,) = (tmp_path / "runs").iterdir()
    good, written = path.read_bytes(), results.read(path, wanted)
    n_bits, n_noticed = 8 * len(good), 0
    for bit in range(0, n_bits, 7):
        content = bytearray(good)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        read = results.read(path, wanted)
        assert read is None or read == written, f"bit {bit}"  # 1e-05 may be written 1E-05
        n_noticed += read is None
    assert n_noticed > 0.99 * n_bits / 7


@pytest.mark.parametrize("meanwhile", ["stored", "moved aside"])
def test_what_another_process_did_to_a_corrupt_result_is_left_as_it_is(tmp_path, monkeypatch, capsys, meanwhile):
    wanted = configs(tmp_path, 1)[0]
    runner.run_all(sweeps.logged, [wanted], tmp_path / "runs", jobs=1)
    (path,) = (tmp_path / "runs").iterdir()
    good, written, read_json = path.read_bytes(), results.read(path, wanted), paths.read_json
    path.write_text("{}")

    def read_and_overtaken(path):
        content = read_json(path)
        path.write_bytes(good) if meanwhile == "stored" else path.unlink()
        return content

    monkeypatch.setattr(paths, "read_json", read_and_overtaken)
    assert results.read(path, wanted) == (written if meanwhile == "stored" else None)
    assert [each.read_bytes() for each in (tmp_path / "runs").iterdir()] == [good] * (meanwhile == "stored")
    assert capsys.readouterr().err == ""


def test_a_corrupt_result_that_is_gone_when_it_is_to_be_moved_is_no_error(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.json"
    monkeypatch.setattr(paths, "read_json", lambda path: {})  # as both looks found it
    assert results.read(path, {"size": 1}) is None
    assert capsys.readouterr().err == ""


def test_results_without_a_checksum_are_kept_and_not_used(tmp_path, monkeypatch, capsys):
    wanted = configs(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "SCHEMA", 1)
        runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    (old,) = (tmp_path / "runs").iterdir()
    paths.write_json(old, {name: value for name, value in paths.read_json(old).items() if name != "sha256"})
    before = old.read_bytes()
    capsys.readouterr()
    runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert log(tmp_path) == [1, 1] and old.read_bytes() == before
    assert len(list((tmp_path / "runs").glob("*.json"))) == 2
    said = capsys.readouterr().out.splitlines()[0]
    assert said == "sweeps: 1 finished runs of other code, torch or device are kept and not used"


def test_a_full_disk_stops_the_sweep_and_keeps_what_is_finished(tmp_path, monkeypatch):
    sweeps.disk_full_at_the_second_file(monkeypatch)
    with pytest.raises(RuntimeError, match="disk full while writing .*free space and run again"):
        runner.run_all(sweeps.logged, configs(tmp_path, 4), tmp_path / "runs", jobs=1)
    assert log(tmp_path) == [1, 2]  # not the third: it could not be stored either
    assert len(list((tmp_path / "runs").iterdir())) == 1
    runner.run_all(sweeps.logged, configs(tmp_path, 4), tmp_path / "runs", jobs=1)
    assert log(tmp_path) == [1, 2, 2, 3, 4]


def alive(group: int) -> bool:
    import psutil

    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return False


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path, jobs):
    wanted = configs(tmp_path, 6, seconds=0.3)
    process = sweep(tmp_path, wanted, jobs)
    process.stdout.readline(), process.stdout.readline()  # two runs are finished, others are under way
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 10
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(process.pid), "a worker outlives its killed parent"
    finished = len(list((tmp_path / "runs").glob("*.json")))
    assert 2 <= finished < 6
    table = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert table["size"].tolist() == [size for size in range(1, 7) for _ in range(2)]
    done = log(tmp_path)
    assert len(done) - len(set(done)) <= jobs  # only what was under way is done again
    assert set(done) == set(range(1, 7))
    assert all(path.suffix == ".json" for path in (tmp_path / "runs").iterdir()), "something is left over"
    assert len(list((tmp_path / "runs").iterdir())) == 6


@pytest.mark.slow
def test_workers_do_not_compute_on_for_a_parent_that_was_killed(tmp_path):
    process = sweep(tmp_path, configs(tmp_path, 2, seconds=60), jobs=2)
    deadline = time.monotonic() + 60
    while log(tmp_path) != [1, 2] and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)  # the workers hold its pipes: ends when they end
    assert log(tmp_path) == [1, 2]


@pytest.mark.slow
def test_an_interrupt_of_a_sweep_is_told_by_its_process_alone(tmp_path):
    process = sweep(tmp_path, configs(tmp_path, 6, seconds=2), jobs=2)
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to the workers too
    _, said = process.communicate(timeout=60)
    assert said.count("Traceback") == 1 and said.endswith("KeyboardInterrupt\n") and "SpawnProcess" not in said


@pytest.mark.slow
def test_two_sweeps_at_once_share_the_work(tmp_path):
    wanted = configs(tmp_path, 6, seconds=0.2)
    processes = [sweep(tmp_path, wanted, 1), sweep(tmp_path, wanted[::-1], 2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert log(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert len(list((tmp_path / "runs").iterdir())) == 6


@pytest.mark.slow
def test_a_key_covers_what_determines_a_result_and_nothing_else():
    key = identity.run_key(sweeps.logged, {"size": 1, "rate": 0.1})
    assert key == identity.run_key(sweeps.logged, {"rate": 0.1, "size": 1})
    others = [
        identity.run_key(sweeps.logged, {"size": 2, "rate": 0.1}),
        identity.run_key(sweeps.logged, {"size": 1, "rate": 0.1, "seed": 0}),
        identity.run_key(sweeps.failing, {"size": 1, "rate": 0.1}),
        identity.run_key(sweeps.logged, {"size": 1, "rate": 0.1}, code="other"),
    ]
    assert len({key, *others}) == 5


@pytest.mark.slow
def test_results_of_another_torch_are_read_and_not_computed(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_TORCH", "2.0")
    keys = [identity.run_key(sweeps.logged, {"size": 1}, torch=torch) for torch in (None, "2.0")]
    assert keys[0] == keys[1] != identity.run_key(sweeps.logged, {"size": 1}, torch=identity._installed_torch())
    with pytest.raises(RuntimeError, match=r"VITLAB_TORCH=2\.0, but torch here is .*unset VITLAB_TORCH"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs", jobs=1)
    assert log(tmp_path) == []


def test_code_edited_under_a_running_process_is_not_mixed_with_what_it_computes(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_SEEN", {path: 0 for path in identity._files(None)})
    with pytest.raises(RuntimeError, match=r"changed after this process had started: restart it"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs", jobs=1)
    assert log(tmp_path) == []


EDITING = """
import os, signal
from pathlib import Path

FACTOR = 1


def run(config):
    if FACTOR == 1:
        text = Path(__file__).read_text()
        Path(__file__).write_text(text.replace("FACTOR = 1\\n", "FACTOR = 2000\\n"))
        if config["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)
    return [{"accuracy": FACTOR * config["size"]}]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's module whose first run edits it; with `killed`, its process dies then."""
    (tmp_path / "own_study.py").write_text(EDITING)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_study")
    del sys.modules["own_study"]


@pytest.mark.slow
def test_a_worker_that_begins_after_an_edit_computes_nothing_under_the_older_codes_name(tmp_path, own):
    wanted = [{"size": size, "killed": True} for size in (1, 2)]
    with pytest.raises(
        RuntimeError, match=r"2 of 2 runs failed: own_study size=.*own_study\.run was edited after this sweep had"
    ):
        runner.run_all(own.run, wanted, tmp_path / "runs", jobs=2)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_after_an_edit_is_refused_and_the_earlier_ones_are_stored(tmp_path, own):
    wanted = [{"size": size, "killed": False} for size in (1, 2)]
    with pytest.raises(RuntimeError, match=r"1 of 2 runs failed: own_study size=2 .*: restart it"):
        runner.run_all(own.run, wanted, tmp_path / "runs", jobs=1)
    (path,) = (tmp_path / "runs").glob("*.json")
    assert paths.read_json(path)["rows"] == [{"accuracy": 1}]


def test_an_edit_of_a_users_module_between_two_sweeps_is_noticed_until_it_is_imported_anew(tmp_path, own):
    def accuracies(size: int) -> list[int]:
        return runner.run_all(own.run, [{"size": size, "killed": False}], tmp_path / "runs", jobs=1)[
            "accuracy"
        ].tolist()

    assert accuracies(1) == [1]  # and edits it
    with pytest.raises(RuntimeError, match=r"own_study\.py changed after this process had started: restart it"):
        accuracies(2)
    importlib.reload(own)
    assert accuracies(2) == [4000]


@pytest.mark.parametrize("value", [float("nan"), [1], (1, 2), {"a": 1}, Path("x")])
def test_a_configuration_holds_scalars(tmp_path, value):
    with pytest.raises(ValueError, match="configuration size = "):
        runner.run_all(sweeps.logged, [{"size": value}], tmp_path, jobs=1)


def test_sweeps_that_cannot_be(tmp_path, monkeypatch):
    def local(config):
        return [{}]

    with pytest.raises(ValueError, match="cannot be imported by worker processes"):
        runner.run_all(local, [{"size": 1}], tmp_path, jobs=1)
    for wanted in ([], [{"size": 1}, {"size": 1}]):
        with pytest.raises(ValueError, match="expected ≥ 1, no repeats"):
            runner.run_all(sweeps.logged, wanted, tmp_path, jobs=1)
    with pytest.raises(ValueError, match="jobs=0"):
        runner.run_all(sweeps.logged, [{"size": 1}], tmp_path, jobs=0)
    monkeypatch.setenv("VITLAB_JOBS", "many")
    with pytest.raises(ValueError, match="VITLAB_JOBS='many'"):
        runner.default_jobs()


def threads(config: dict) -> list[dict]:
    """How many threads torch and the numerical libraries have in a run."""
    import threadpoolctl
    import torch

    pools = max(pool["num_threads"] for pool in threadpoolctl.threadpool_info())
    return [{"torch": torch.get_num_threads(), "pools": pools}]


def test_processes_that_share_a_gpu_are_few(monkeypatch):
    monkeypatch.delenv("VITLAB_JOBS", raising=False)
    monkeypatch.setattr(identity, "cpu_count", lambda: 16)
    monkeypatch.setattr(identity, "device_type", lambda: "cpu")
    assert runner.default_jobs() == 16
    monkeypatch.setattr(identity, "device_type", lambda: "cuda")
    assert runner.default_jobs() == 4
    monkeypatch.setenv("VITLAB_JOBS", "7")
    assert runner.default_jobs() == 7


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_has_one_thread_wherever_it_is(tmp_path, jobs):
    import torch

    torch.set_num_threads(2)
    try:
        table = runner.run_all(threads, [{"size": 1}, {"size": 2}], tmp_path, jobs=jobs)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert table["torch"].tolist() == table["pools"].tolist() == [1, 1]


def test_what_is_finished_can_be_looked_at_any_time(tmp_path):
    wanted = configs(tmp_path, 3)
    empty = runner.stored(sweeps.logged, wanted, tmp_path / "runs")
    assert empty.empty and empty.attrs["wall_s"] == 0
    runner.run_all(sweeps.logged, wanted[2:], tmp_path / "runs", jobs=1)
    some = runner.stored(sweeps.logged, wanted, tmp_path / "runs")
    assert some["size"].tolist() == [3, 3] and log(tmp_path) == [3]
    whole = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert runner.stored(sweeps.logged, wanted, tmp_path / "runs").equals(whole)


def test_results_of_other_code_are_kept_named_and_not_used(tmp_path, monkeypatch, capsys):
    wanted = configs(tmp_path, 3)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "code_hash", lambda function=None: "other")
        runner.run_all(sweeps.logged, wanted[:2], tmp_path / "runs", jobs=1)
    (tmp_path / "runs" / "note.json").write_text("[]")
    capsys.readouterr()
    table = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert log(tmp_path) == [1, 1, 2, 2, 3] and len(table) == 6
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "sweeps: 2 finished runs of other code, torch or device are kept and not used"
    assert len(list((tmp_path / "runs").glob("*.json"))) == 2 + 3 + 1
    more = [config | {"rate": 0.1} for config in wanted]  # other settings: other runs, and nothing to tell
    runner.run_all(sweeps.logged, more, tmp_path / "runs", jobs=1)
    assert capsys.readouterr().out.startswith("[1/3] sweeps size=1: ")


def test_a_gpus_results_are_read_without_one_and_what_is_missing_is_not_computed(tmp_path, monkeypatch):
    wanted = configs(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "_sees_gpu", lambda: True)
        there = runner.run_all(sweeps.logged, wanted[:1], tmp_path / "runs", jobs=1)
    monkeypatch.setattr(identity, "_sees_gpu", lambda: False)
    assert runner.stored(sweeps.logged, wanted, tmp_path / "runs").empty
    monkeypatch.setenv("VITLAB_DEVICE", "cuda")
    assert runner.run_all(sweeps.logged, wanted[:1], tmp_path / "runs", jobs=1).equals(there)
    with pytest.raises(RuntimeError, match=r"VITLAB_DEVICE=cuda, but torch sees no GPU here: .*unset VITLAB_DEVICE"):
        runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert log(tmp_path) == [1]
    monkeypatch.setenv("VITLAB_DEVICE", "tpu")
    with pytest.raises(ValueError, match="VITLAB_DEVICE='tpu': expected cpu or cuda"):
        identity.device_type()


def test_a_machine_with_a_gpu_can_be_told_to_compute_without(monkeypatch):
    import torch

    from vitlab.training.processes import default_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device().type == "cuda"
    monkeypatch.setenv("VITLAB_DEVICE", "cpu")
    assert default_device().type == identity.device_type() == "cpu"
