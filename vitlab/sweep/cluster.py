"""Runs tasks on the workers of a dask scheduler, on many machines, and keeps what they return here (no section)."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import queue
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.sweep import identity, scheduler
from vitlab.sweep.workers import Outcome, attempted

_FIRST_WORKER, _LOOK = 30.0, 20.0  # seconds: for a first worker, between looks at the rest
# Runs seed torch's own generator and set its threads: in one process they go one after the other.
_ALONE = threading.Lock()


@dataclass(frozen=True)
class Cluster:
    """A connection to a scheduler whose workers all have the code of this process."""

    address: str
    client: Any  # distributed.Client
    n_slots: int  # runs that can go on at once
    resources: dict[str, float] | None  # what each task asks of its worker
    function: Callable[..., Any] | None  # what runs, beside vitlab itself
    made_by: dict[str, str]  # code, torch and device of the workers, as `identity.run_key` takes them


@contextlib.contextmanager
def connected(function: Callable[..., Any] | None = None) -> Iterator[Cluster | None]:
    """Connect to the scheduler at `scheduler.address()`, whose workers are to compute `function`; None without one.

    Where workers declare a resource GPU, each task asks for one, and workers without do not take part.

    Raises:
        ModuleNotFoundError: dask.distributed is not installed.
        ConnectionError: no scheduler answers at the address.
        RuntimeError: no worker came, or the workers differ from this code or among themselves.

    >>> with connected() as machines:
    ...     machines is None
    True
    """
    at = scheduler.address()
    if at is None:
        yield None
        return
    client = scheduler.client(at)
    with _quiet(), contextlib.closing(client):
        infos = _taking_part(_workers(client, at))
        resources = {"GPU": 1.0} if any(info["resources"].get("GPU") for info in infos.values()) else None
        many = sorted(worker for worker, info in infos.items() if info["nthreads"] > 1)
        if many and not resources:
            print(
                f"vitlab: {', '.join(many)} with several threads: its runs go one after the other all the same; "
                "start workers with --nthreads 1, one for each core or GPU",
                file=sys.stderr,
                flush=True,
            )
        n_slots = int(sum(info["resources"]["GPU"] for info in infos.values())) if resources else len(infos)
        made_by = _made_by(client, function, sorted(infos))
        yield Cluster(at, client, n_slots, resources, function, made_by)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the page that dask logs of a lost connection, which is said here in a line."""
    logger = logging.getLogger("distributed.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _workers(client: Any, at: str) -> dict[str, Any]:
    """What the scheduler knows of each worker; waits for a first one."""
    if not _workers_now(client):
        print(f"vitlab: no worker at {at} yet, waiting {_FIRST_WORKER:.0f} s for one", file=sys.stderr, flush=True)
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_FIRST_WORKER)
    if workers := _workers_now(client):
        return workers
    raise RuntimeError(f"no worker at {at}: start some (dask worker {at} --nthreads 1), then run again")


def _workers_now(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker: all of them, where some versions of distributed tell of five."""
    asked = {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
    return client.scheduler_info(**asked)["workers"]


def _taking_part(infos: dict[str, Any]) -> dict[str, Any]:
    """The workers that get tasks: those that declare a GPU, or all where none does."""
    return {worker: info for worker, info in infos.items() if info["resources"].get("GPU")} or infos


def _made_by(client: Any, function: Callable[..., Any] | None, workers: list[str]) -> dict[str, str]:
    """What determines the results of all `workers`: the same for each, and the code that this process has."""
    answers = client.run(identity.made_by, function, workers=workers, on_error="return")
    code, first = identity.code_hash(function), workers[0]
    for worker in workers:
        theirs = answers[worker]
        if isinstance(theirs, Exception):
            raise RuntimeError(
                f"worker {worker} cannot say which code it has ({type(theirs).__name__}: {theirs}): install there what "
                "is installed here, and restart it"
            )
        if theirs["code"] != code:
            raise RuntimeError(
                f"worker {worker} has other code ({theirs['code']}) than this process ({code}): bring both to the "
                "same revision and restart the worker"
            )
        for name in ("torch", "device"):
            if theirs[name] != answers[first][name]:
                raise RuntimeError(
                    f"workers differ in {name}: {first} has {answers[first][name]}, {worker} has {theirs[name]}; "
                    "results of both would be mixed: let only workers of one kind join this scheduler"
                )
    return answers[first]


def completed(
    cluster: Cluster,
    compute: Callable[[Any], Any],
    store: Callable[[str, Any], Outcome],
    tasks: Mapping[str, Any],
) -> Iterator[tuple[str, Outcome]]:
    """Yield the key of every task with what became of it, in the order in which they end, as `workers.completed` does.

    `compute(task)` is called on a worker; `store(key, its value)` here, and gives the outcome. The keys name tasks on
    the scheduler too: what another client has submitted under the same key is computed once for both. A task whose
    worker dies is computed by another one, as often as the scheduler allows (`allowed-failures`).

    Raises:
        ConnectionError: the scheduler is gone. What has been yielded is stored.
        RuntimeError: a worker that joined later has other code.
    """
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    waiting = {}  # the scheduler drops what no future asks for
    for key, task in tasks.items():
        waiting[key] = cluster.client.submit(
            _there, compute, task, cluster.function, cluster.made_by, key=key, resources=cluster.resources
        )
        waiting[key].add_done_callback(ended.put)
    while waiting:
        try:
            future = ended.get(timeout=_LOOK)
        except queue.Empty:
            if cluster.client.status == "running" and not _workers_now(cluster.client):
                print(f"vitlab: no worker is left at {cluster.address}, waiting for one", file=sys.stderr, flush=True)
            continue
        del waiting[future.key]
        yield future.key, _outcome(cluster, future, store)


def completed_in_folder(
    cluster: Cluster,
    folder: Path,
    paths: Sequence[Path],
    work: Callable[[Any], Outcome],
    tasks: Sequence[Any],
) -> Iterator[tuple[Any, Outcome]]:
    """As `completed`, for work that reads the files `paths` and writes into `folder`, which all machines must share.

    Raises:
        RuntimeError: a worker does not see them; nothing has begun.
    """
    token, text = folder / f".partial-{secrets.token_hex(4)}", secrets.token_hex()
    folder.mkdir(parents=True, exist_ok=True)
    token.write_text(text)
    try:
        workers = sorted(_taking_part(_workers_now(cluster.client)))
        unseen = cluster.client.run(_unseen, token, text, list(paths), workers=workers)
    finally:
        token.unlink()
    for worker, missing in unseen.items():
        if missing:
            raise RuntimeError(
                f"worker {worker} does not see {', '.join(missing)}: notebooks are read and their figures written "
                "there, so put the checkout (or VITLAB_FIGURES) on a file system that all machines share. Experiments "
                "(vitlab experiment) need none"
            )
    keys = [hashlib.sha256(repr((task, cluster.made_by)).encode()).hexdigest()[:20] for task in tasks]
    named = {f"notebook-{key}": task for key, task in zip(keys, tasks, strict=True)}
    return ((named[key], outcome) for key, outcome in completed(cluster, work, lambda _, outcome: outcome, named))


def _unseen(token: Path, text: str, paths: list[Path]) -> list[str]:
    """Which of the files this process does not see; of the token also where it is another one."""
    seen = token.exists() and token.read_text() == text
    return [*([] if seen else [str(token.parent)]), *(str(path) for path in paths if not path.exists())]


def _there(
    compute: Callable[[Any], Any], task: Any, function: Callable[..., Any] | None, expected: dict[str, str]
) -> tuple[str, Any]:
    """One task on its worker, which may have joined after the others were asked for their code."""
    from distributed import get_worker

    with _ALONE:
        made_by, here = identity.made_by(function), f"worker {get_worker().address}"
        if different := [name for name in expected if made_by[name] != expected[name]]:
            values = ", ".join(f"{name} {made_by[name]} where the others have {expected[name]}" for name in different)
            return "other", f"{here} joined with {values}"
        if changed := identity.changed_since_import(function or _there):
            return "other", f"{here} runs code that was edited after it had started ({', '.join(changed)})"
        identity.check_device()
        return attempted(lambda: ("computed", compute(task)))


def abandonment() -> Callable[[], bool]:
    """Called in a task on a worker: what says, at any time, whether nobody waits for its result any more.

    So it is where the client was interrupted or killed. Dask cannot end the task; it can end itself.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    return lambda: (task := worker.state.tasks.get(key)) is None or task.state == "cancelled"


def _outcome(cluster: Cluster, future: Any, store: Callable[[str, Any], Outcome]) -> Outcome:
    from distributed import KilledWorker

    try:
        word, value = future.result()
    except KilledWorker as error:
        return "died", (
            f"{error.allowed_failures + 1} workers were killed while they had it, {error.last_worker.address} last "
            "(out of memory, or stopped from outside)"
        )
    except Exception as error:
        if future.status == "cancelled" or cluster.client.status != "running":
            raise ConnectionError(
                f"the scheduler at {cluster.address} is gone: what is finished is stored; start the scheduler and its "
                "workers again, and run again to go on"
            ) from error
        return "failed", f"{type(error).__name__}: {error}"
    if word == "other":
        raise RuntimeError(f"{value}: bring it to the same revision, restart it and run again; nothing of it is kept")
    return attempted(store, future.key, value) if word == "computed" else (word, value)
