"""A dask scheduler's workers give the table that this process gives, whoever dies meanwhile."""

import contextlib
import dataclasses
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import dask
import pandas as pd
import psutil
import pytest
import sweeps
import torch
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker, get_worker
from test_notebooks_runner import folder, make, names, outputs
from test_runner import configs, log

from vitlab import paths
from vitlab.cli import main as cli
from vitlab.experiments import data_scaling
from vitlab.sweep import cluster, identity, runner
from vitlab.sweep import scheduler as scheduler_module

pytestmark = pytest.mark.slow

__all__ = ["folder"]  # a fixture: used by name
QUIET = {"dashboard_address": ":0", "silence_logs": 60}


@pytest.fixture(autouse=True)
def _nobody_edits_the_package(monkeypatch):
    """Somebody may, while the tests run; only the test of that case is about it."""
    monkeypatch.setattr(identity, "_SEEN", {})


@pytest.fixture(scope="module")
def two_workers():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),  # tried twice, as in processes
        LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as found,
    ):
        yield found.scheduler_address


@pytest.fixture
def scheduler(two_workers, monkeypatch):
    """The address of two worker processes, where runs go in this test."""
    with Client(two_workers, set_as_default=False) as client:
        client.wait_for_workers(2)  # one that a test has killed comes again
        client.run(lambda: identity._SEEN.clear())
    monkeypatch.setenv("VITLAB_SCHEDULER", two_workers)
    return two_workers


@pytest.fixture
def threads(monkeypatch):
    """A scheduler and a worker in this process: what is patched here is patched there."""
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **QUIET) as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        yield found


def test_runs_on_a_cluster_are_stored_and_reported_as_they_end(tmp_path, scheduler, capsys):
    wanted = configs(tmp_path, 4, seconds=0.1)
    assert runner.stored(sweeps.logged, wanted, tmp_path / "runs").empty
    runner.run_all(sweeps.logged, wanted[:2], tmp_path / "runs")
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.rpartition(" size=")[0] for line in lines) == ["[1/2] sweeps", "[2/2] sweeps"]
    some = runner.stored(sweeps.logged, wanted, tmp_path / "runs")
    assert some["size"].tolist() == [1, 1, 2, 2]
    table = runner.run_all(sweeps.logged, wanted, tmp_path / "runs")
    assert log(tmp_path) == [1, 2, 3, 4]
    assert capsys.readouterr().out.startswith("sweeps: 2 of 4 runs were finished before\n[3/4] sweeps ")
    assert table["size"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all(path.suffix == ".json" for path in (tmp_path / "runs").iterdir())


def test_a_failing_run_is_named_in_the_words_of_this_process_and_not_repeated(tmp_path, scheduler, monkeypatch):
    wanted, said = configs(tmp_path, bad=1), []
    for place in (scheduler, ""):
        monkeypatch.setenv("VITLAB_SCHEDULER", place)
        with pytest.raises(RuntimeError, match=r"1 of 3 runs failed: sweeps size=1 .*loss became NaN") as caught:
            runner.run_all(sweeps.failing, wanted, tmp_path / f"runs {bool(place)}", jobs=1)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert log(tmp_path) == [2, 2, 3, 3]


def test_two_clients_with_the_same_sweep_compute_it_once(tmp_path, scheduler):
    wanted, tables = configs(tmp_path, 4, seconds=0.5), []

    def client(name: str) -> None:
        tables.append(runner.run_all(sweeps.logged, wanted, tmp_path / name))

    clients = [threading.Thread(target=client, args=(name,), daemon=True) for name in ("one", "other")]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert log(tmp_path) == [1, 2, 3, 4]
    assert tables[0].equals(tables[1])
    assert names(tmp_path / "one") == names(tmp_path / "other") and len(names(tmp_path / "one")) == 4


SCHEDULER = (
    "import sys, time; from distributed import LocalCluster\n"
    "options = {'protocol': 'tcp', 'dashboard_address': ':0'}\n"
    "with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **options) as found:\n"
    "    print(found.scheduler_address, flush=True); sys.stdin.read()"
)


def test_a_scheduler_that_is_killed_loses_nothing_that_is_finished(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(scheduler_module, "_CONNECT", 1.0)
    command = [sys.executable, "-c", SCHEDULER]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    wanted = configs(tmp_path, 3, seconds=0.5)
    with subprocess.Popen(
        command, cwd=paths.ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        monkeypatch.setenv("VITLAB_SCHEDULER", address)

        def kill() -> None:
            while len(list((tmp_path / "runs").glob("*.json"))) == 0:
                time.sleep(0.02)
            process.kill()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with pytest.raises(ConnectionError, match=f"the scheduler at {address} is gone: what is finished is stored"):
            runner.run_all(sweeps.logged, wanted, tmp_path / "runs")
        killer.join()
    finished = len(list((tmp_path / "runs").iterdir()))
    assert 1 <= finished < 3
    assert not any("Traceback" in record.getMessage() or record.exc_info for record in caplog.records)
    monkeypatch.delenv("VITLAB_SCHEDULER")
    table = runner.run_all(sweeps.logged, wanted, tmp_path / "runs", jobs=1)
    assert table["size"].tolist() == [1, 1, 2, 2, 3, 3] and len(list((tmp_path / "runs").iterdir())) == 3


def test_a_full_disk_at_the_client_stops_the_sweep_and_keeps_what_is_finished(tmp_path, threads, monkeypatch):
    sweeps.disk_full_at_the_second_file(monkeypatch)
    with pytest.raises(RuntimeError, match="disk full while writing .*free space and run again"):
        runner.run_all(sweeps.logged, configs(tmp_path, 4, seconds=0.1), tmp_path / "runs")
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert len(runner.run_all(sweeps.logged, configs(tmp_path, 4, seconds=0.1), tmp_path / "runs")) == 8


def test_all_workers_are_asked_whatever_a_version_of_distributed_tells_of_by_default():
    workers = {f"tcp://w{number}": {"resources": {}} for number in range(7)}

    class Earlier:
        def scheduler_info(self, **kwargs):
            assert not kwargs  # handed on to the scheduler, which may not know it
            return {"workers": workers}

    class OfFive:
        def scheduler_info(self, n_workers: int = 5, **kwargs):
            return {"workers": dict(list(workers.items())[: n_workers if n_workers >= 0 else None])}

    for client in (Earlier(), OfFive()):
        assert cluster._workers(client, "tcp://scheduler:1") == workers
    assert cluster._workers_now(OfFive()) == workers


def test_workers_of_other_code_are_refused_before_anything_runs(tmp_path, scheduler, monkeypatch):
    theirs = identity.code_hash(sweeps.logged)
    monkeypatch.setattr(identity, "code_hash", lambda function=None: "0" * 16)
    with pytest.raises(RuntimeError, match=f"worker tcp://.* has other code \\({theirs}\\) than this process \\(0000"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs")
    assert log(tmp_path) == []


def test_workers_that_differ_among_themselves_are_refused(monkeypatch):
    class Answers:
        def run(self, made_by, function, workers, on_error):
            same = {"code": identity.code_hash(function), "device": "cpu"}
            return {"a": same | {"torch": "2.14"}, "b": same | {"torch": "2.15"}}

    with pytest.raises(RuntimeError, match=r"differ in torch: a has 2.14, b has 2.15; .*mixed"):
        cluster._made_by(Answers(), None, ["a", "b"])
    monkeypatch.setattr(Answers, "run", lambda *arguments, **more: {"a": ModuleNotFoundError("no vitlab")})
    with pytest.raises(RuntimeError, match=r"worker a cannot say .*ModuleNotFoundError: no vitlab.*: install there"):
        cluster._made_by(Answers(), None, ["a"])


def test_a_worker_that_joins_later_with_other_code_ends_the_sweep(tmp_path, threads):
    with cluster.connected(sweeps.logged) as there:
        late = dataclasses.replace(there, made_by=there.made_by | {"torch": "1.0"})
        with pytest.raises(RuntimeError, match=r"worker \S+ joined with torch 2\.\d+ where the others have 1.0: bring"):
            list(cluster.completed(late, len, lambda key, value: ("done", ""), {"a": "task"}))


def test_a_worker_whose_code_was_edited_under_it_ends_the_sweep(tmp_path, threads, monkeypatch):
    monkeypatch.setattr(identity, "_SEEN", {path: 0 for path in identity._files(None)})
    with pytest.raises(RuntimeError, match=r"worker \S+ runs code that was edited after it had started .*restart it"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs")
    assert log(tmp_path) == []


def place(config: dict) -> list[dict]:
    """The worker a run is on."""
    return [{"worker": get_worker().name}]


def test_a_run_takes_a_gpu_slot_where_there_are_any(tmp_path, monkeypatch):
    workers = {
        "gpu": {"cls": Worker, "options": {"nthreads": 4, "resources": {"GPU": 2}}},
        "none": {"cls": Worker, "options": {"nthreads": 1}},
    }
    options = {"cls": Scheduler, "options": {"dashboard": False, "port": 0}}
    with SpecCluster(workers=workers, scheduler=options, silence_logs=60) as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        table = runner.run_all(place, [{"size": size} for size in range(4)], tmp_path)
        with cluster.connected(place) as there:
            assert (there.n_slots, there.resources) == (2, {"GPU": 1.0})
    assert set(table["worker"]) == {"gpu"}


def test_a_worker_of_several_threads_does_one_run_at_a_time(tmp_path, monkeypatch, capsys):
    with LocalCluster(n_workers=1, threads_per_worker=3, processes=False, **QUIET) as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        started = time.perf_counter()
        runner.run_all(sweeps.logged, configs(tmp_path, 3, seconds=0.2), tmp_path / "runs")
        assert time.perf_counter() - started > 0.6
    assert "with several threads: its runs go one after the other all the same" in capsys.readouterr().err


def test_a_scheduler_without_workers_is_waited_for_and_then_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "_FIRST_WORKER", 0.2)
    with LocalCluster(n_workers=0, processes=False, **QUIET) as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        with pytest.raises(RuntimeError, match=f"no worker at {found.scheduler_address}: start some"):
            runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs")
    assert f"no worker at {found.scheduler_address} yet, waiting" in capsys.readouterr().err


def test_an_address_where_nothing_answers_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler_module, "_CONNECT", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("VITLAB_SCHEDULER", address)
    with pytest.raises(ConnectionError, match=rf"no scheduler answers at {address} \(no answer within 0\.5 s\)"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs")


@pytest.mark.parametrize(
    "given", ["host:8786", "tcp://host", "tls://", "tcp://host:many", "tcp://:8786", "tcp://h:70000"]
)
def test_what_is_no_address_of_a_scheduler_is_refused(monkeypatch, given):
    monkeypatch.setenv("VITLAB_SCHEDULER", given)
    with pytest.raises(ValueError, match=f"scheduler '{given}': expected its address, such as tcp://host:8786"):
        scheduler_module.address()


@pytest.mark.parametrize(
    "greeting, words",
    [
        (None, "no answer within 1 s"),  # accepts the connection, and says nothing
        (b"SSH-2.0-OpenSSH_9.6\r\n", "what answers there is no dask scheduler"),  # read as the size of a message
        (b"HTTP/1.1 400 Bad Request\r\n", "what answers there is no dask scheduler"),
        (bytes(64), "what answers there is no dask scheduler"),
        (b"", "(before comm was established|no answer within 1 s)"),  # hangs up, and is tried again until time is up
    ],
    ids=["silent", "ssh", "http", "zeros", "closing"],
)
def test_what_is_no_scheduler_is_named_within_seconds(monkeypatch, greeting, words):
    monkeypatch.setattr(scheduler_module, "_CONNECT", 1.0)
    accepted = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                accepted.append(server.accept()[0])
                if greeting is not None:
                    accepted[-1].sendall(greeting)
                if greeting == b"":
                    accepted[-1].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("VITLAB_SCHEDULER", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        started = time.perf_counter()
        with pytest.raises(ConnectionError, match=f"no scheduler answers at tcp://.*{words}.*or correct the address"):
            connect_or_give_up(seconds=10)
        assert time.perf_counter() - started < 3
        server.shutdown(socket.SHUT_RDWR)
    for each in accepted:
        each.close()


def connect_or_give_up(seconds: float) -> None:
    """Connect in a thread that is left alone where it hangs, so that the test ends all the same."""
    outcome = queue.SimpleQueue()

    def connect() -> None:
        try:
            with cluster.connected():
                outcome.put(None)
        except Exception as error:
            outcome.put(error)

    threading.Thread(target=connect, daemon=True).start()
    if error := outcome.get(timeout=seconds):
        raise error


def test_a_worker_is_no_scheduler_and_tls_needs_certificates(threads, monkeypatch):
    worker = next(iter(threads.scheduler_info["workers"]))
    monkeypatch.setenv("VITLAB_SCHEDULER", worker)
    with pytest.raises(ConnectionError, match=f"no scheduler answers at {worker} .*the address of dask's Worker"):
        runner.stored(sweeps.logged, [{"size": 1}], "nowhere")
    monkeypatch.setenv("VITLAB_SCHEDULER", "tls://127.0.0.1:8786")
    with pytest.raises(ConnectionError, match=r"dask has no certificates for tls:// here: set distributed\.comm\.tls"):
        runner.stored(sweeps.logged, [{"size": 1}], "nowhere")


def test_without_dask_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_SCHEDULER", "tcp://host:8786")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'vitlab\[cluster\]'"):
        runner.run_all(sweeps.logged, configs(tmp_path), tmp_path / "runs")


def test_notebooks_go_side_by_side_on_workers(folder, figures, scheduler, monkeypatch, capsys):
    monkeypatch.setenv("VITLAB_SCHEDULER", "")  # what the command line sets is taken back after the test
    there = folder.parent / "there"
    there.mkdir()
    # each waits for the other: neither ends where they go one after the other
    meet = (
        "import os, time; from pathlib import Path\n"
        "Path({there!r}, {me!r}).touch()\n"
        "while not Path({there!r}, {other!r}).exists(): time.sleep(0.05)\n"
        "print(os.environ['VITLAB_JOBS'], repr(os.environ['VITLAB_SCHEDULER']), SEED)"
    )
    make(folder, "01_a", meet.format(there=str(there), me="a", other="b"))
    make(folder, "02_b", meet.format(there=str(there), me="b", other="a"), "raise ValueError('no')")
    assert cli.main(["run", "--preset", "smoke", "--set", "SEED=3", "--scheduler", scheduler]) == 1
    printed = capsys.readouterr()
    lines = sorted(printed.out.splitlines()[:2])
    assert lines[0].startswith("01_a: ") and lines[1].startswith("02_b: failed after ")
    assert "vitlab: 02_b stopped in cell [4]" in printed.err
    assert printed.err.endswith("vitlab: 1 of 2 notebooks failed: 02_b\n")
    assert outputs(figures / "smoke" / "01_a" / "notebook.ipynb") == "1 '' 3\n"
    assert names(figures / "smoke" / "02_b") == ["notebook.failed.ipynb"]
    assert names(figures) == ["smoke"]


RUN = (
    "import sys; from pathlib import Path; from vitlab import notebooks; from vitlab.cli import main as cli\n"
    "notebooks.notebooks_dir = lambda: Path(sys.argv[1])\n"
    "sys.exit(cli.main(['run', '--preset', 'smoke', '--scheduler', sys.argv[2]]))"
)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_client_leaves_no_kernel_on_a_worker(folder, figures, scheduler, tmp_path, kind):
    pid = tmp_path / "pid"
    make(folder, "01_a", f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)")
    command = [sys.executable, "-c", RUN, str(folder), scheduler]
    with subprocess.Popen(command, cwd=paths.ROOT, stderr=subprocess.PIPE, text=True) as client:
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        kernel = psutil.Process(int(pid.read_text()))
        client.send_signal(kind)
        said = client.communicate(timeout=30)[1]
    assert said == ("vitlab: stopped; finished results are kept\n" if kind == signal.SIGINT else "")
    assert psutil.wait_procs([kernel], timeout=20)[1] == []


def test_notebooks_need_a_folder_that_the_workers_see(folder, figures, threads, monkeypatch):
    path = make(folder, "01_a", "print(1)")
    monkeypatch.setattr(cluster, "_unseen", lambda token, text, paths: [str(token.parent)])
    with (
        cluster.connected() as there,
        pytest.raises(RuntimeError, match=f"does not see {figures}: .*a file system that all machines share"),
    ):
        cluster.completed_in_folder(there, figures, [path], len, [])
    assert names(figures) == []


def test_a_worker_sees_a_folder_by_what_is_in_it(tmp_path):
    token = tmp_path / "token"
    assert cluster._unseen(token, "1", [tmp_path]) == [str(tmp_path)]
    token.write_text("1")
    assert cluster._unseen(token, "1", [token, tmp_path / "no"]) == [str(tmp_path / "no")]
    assert cluster._unseen(token, "2", []) == [str(tmp_path)]


def kill_a_busy_worker(address: str, killed: list[int]) -> None:
    """Kill a worker process that has begun a run."""
    with Client(address, set_as_default=False) as client:
        pids, deadline = client.run(os.getpid), time.monotonic() + 60
        while time.monotonic() < deadline:
            for worker, keys in client.processing().items():
                if keys:
                    os.kill(pids[worker], signal.SIGKILL)
                    killed.append(pids[worker])
                    return
            time.sleep(0.01)


def test_the_table_is_the_same_to_the_bit_here_in_processes_and_on_a_cluster_with_a_killed_worker(
    tmp_path, scheduler, monkeypatch
):
    wanted = data_scaling.planned_runs("smoke")[:3]

    def table(name: str, jobs: int = 1) -> pd.DataFrame:
        return runner.run_all(data_scaling.run_one, wanted, tmp_path / name, jobs).drop(columns="seconds")

    killed: list[int] = []
    killer = threading.Thread(target=kill_a_busy_worker, args=(scheduler, killed), daemon=True)
    killer.start()
    there = table("there")
    killer.join()
    assert len(killed) == 1
    monkeypatch.delenv("VITLAB_SCHEDULER")
    torch.set_num_threads(2)
    try:
        here = table("here")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert here.equals(table("processes", jobs=2))
    assert here.equals(there)


def test_a_run_that_kills_its_worker_each_time_is_named(tmp_path, scheduler):
    lives = tmp_path / "lives"
    lives.write_bytes(b"1234")
    wanted = configs(tmp_path, 2, bad=1, lives=str(lives))
    with pytest.raises(RuntimeError, match=r"1 of 2 runs failed: sweeps size=1 .*: 2 workers were killed while"):
        runner.run_all(sweeps.dying, wanted, tmp_path / "runs")
    assert lives.read_bytes() == b"34"
    assert set(log(tmp_path)) == {2}  # once more where the killed worker took its result with it
