"""Does what is missing of a study, through any `concurrent.futures.Executor`, and keeps each run as it ends."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from vitlab import settings
from vitlab.data import datasets
from vitlab.studies import store, table

Config = dict[str, Any]


def run(
    name: str,
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    minutes: float | None = None,
    executor: concurrent.futures.Executor | None = None,
    settings: Config | None = None,
) -> pd.DataFrame:
    """Do the runs of a study that are neither committed evidence nor finished live; return the rows of all its runs.

    Runs are done in this process (`jobs=1`), in `jobs` processes (default: `$VITLAB_JOBS`, or one a processor), by
    the workers of the dask scheduler in `$VITLAB_SCHEDULER`, or by `executor`. Each has one thread, so that its rows
    are the same to the bit wherever it is done. A finished run is a line of figures/out/<preset>/<kind>.jsonl; a
    killed one is missing, and the next call does it. After `minutes` no further run is begun, and what is there is
    returned.

    `settings` replace some of every run's configuration: other runs, kept under names of their own.

    Rows: the run's configuration, then what it measured; see `tables`. `.attrs` has "done" and "planned" (numbers of
    runs). Runs that need a real data set that is not here are left out, with a line that says so.

    Raises ValueError for an unknown study, preset or number of jobs; RuntimeError where runs have failed, with the
    first one's configuration and error, when the others are finished and kept.
    """
    kind, end = table.study(name).kind, None if minutes is None else time.monotonic() + 60 * minutes
    planned = {store.key(kind, config): config for config in _configs(name, preset, seed, settings)}
    done = finished(kind, preset, planned)
    missing = {key: config for key, config in planned.items() if key not in done}
    if absent := [
        each for each in table.study(name).needs if preset == "full" and missing and not datasets.present(each)
    ]:
        words = set(absent)
        left = {k: c for k, c in missing.items() if words & set(" ".join(map(str, c.values())).split())}
        missing = {key: config for key, config in missing.items() if key not in left}
        if left:
            print(f"{name}: {len(left)} runs need {', '.join(absent)}, not found: left out (see docs/install.md)")
    failed = []
    with _executor(executor, jobs, len(missing)) as pool:
        for key, outcome in _outcomes(pool, kind, missing, end, jobs or cpu_count()):
            if isinstance(outcome, Exception):
                failed.append((key, outcome))
            else:
                store.append(kind, preset, name, planned[key], outcome)
    if failed:
        (key, error), n = failed[0], len(failed)
        broken = isinstance(error, concurrent.futures.BrokenExecutor)
        why = (
            "a worker process was killed, perhaps for want of memory" if broken else f"{type(error).__name__}: {error}"
        )
        raise RuntimeError(
            f"{n} of {len(planned)} runs of {name} failed; the first: {planned[key]}: {why}. "
            "The finished ones are kept, and running again does the others"
        ) from error
    return read(name, preset, seed, settings)


def _configs(name: str, preset: str, seed: int, settings: Config | None) -> list[Config]:
    return [config | (settings or {}) for config in table.runs(name, preset, seed)]


def finished(kind: str, preset: str, planned: dict[str, Config]) -> set[str]:
    """Tell which of the planned runs, by key, are committed (at `full`) or live."""
    about = store.runs(kind)
    committed = set(about.loc[about["version"] == table.VERSION[kind], "key"]) if preset == "full" else set()
    return planned.keys() & (committed | store.live(kind, preset).keys())


def read(name: str, preset: str = "quick", seed: int = 0, settings: Config | None = None) -> pd.DataFrame:
    """Tabulate the finished runs of a study, committed (at `full`) or live, in the order in which they are planned."""
    kind = table.study(name).kind
    planned = [store.key(kind, config) for config in _configs(name, preset, seed, settings)]
    live = store.live(kind, preset)
    found = [store.table_of([live[key] for key in planned if key in live], with_key=True)]
    if preset == "full":
        found.insert(0, store.of_keys(kind, set(planned) - live.keys()))
    found = [each for each in found if len(each)]
    if not found:
        return pd.DataFrame()
    rows = pd.concat(found, ignore_index=True) if len(found) > 1 else found[0]
    place = {key: number for number, key in enumerate(planned)}
    rows = rows.sort_values("key", key=lambda keys: keys.map(place), kind="stable", ignore_index=True)
    done = rows["key"].nunique()
    rows = rows.drop(columns="key").dropna(axis=1, how="all")
    rows.attrs |= {"done": done, "planned": len(planned)}
    return rows


def plan(names: Sequence[str], preset: str = "full", seed: int = 0) -> pd.DataFrame:
    """Tell what studies would take: study, runs, done, todo, hours (of one core, by runs of the study that are there).

    `hours` is None where no run of the study has been timed.
    """
    rows = []
    for name in names:
        kind, planned = table.study(name).kind, {}
        if preset in table.study(name).presets:
            planned = {store.key(kind, config): config for config in table.runs(name, preset, seed)}
        done = len(finished(kind, preset, planned))
        about = store.runs(kind)
        took = about.loc[about["study"].str.split().map(lambda words: name in words), "seconds"]  # noqa: B023
        hours = (len(planned) - done) * took.mean() / 3600 if preset == "full" and len(took) else None
        todo = len(planned) - done
        rows.append({"study": name, "runs": len(planned), "done": done, "todo": todo, "hours": hours if todo else 0.0})
    return pd.DataFrame(rows, columns=["study", "runs", "done", "todo", "hours"])


def compute(kind: str, config: Config) -> dict[str, Any]:
    """Do one run on one thread; returns its `rows`, the `seconds` it took, and what it was made by."""
    from vitlab.studies import run as functions  # slow to import

    start = time.perf_counter()
    with settings.one_thread():
        rows = functions.RUNS[kind](dict(config))
    return {"rows": rows, "seconds": round(time.perf_counter() - start, 3), **store.made_by()}


def cpu_count() -> int:
    """Count the processors this process may use, or read `$VITLAB_JOBS`.

    Raises ValueError where that is no whole number above 0.
    """
    given = os.environ.get("VITLAB_JOBS")
    if given and (not given.isdecimal() or int(given) < 1):
        raise ValueError(f"VITLAB_JOBS={given!r}: expected a whole number of worker processes, 1 or more")
    return int(given) if given else len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextlib.contextmanager
def _executor(
    given: concurrent.futures.Executor | None, jobs: int | None, n: int
) -> Iterator[concurrent.futures.Executor | None]:
    """The executor of a call; None: this process."""
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs}: expected the number of worker processes, 1 or more")
    address, jobs = os.environ.get("VITLAB_SCHEDULER"), jobs or cpu_count()
    if given is not None or n == 0:
        yield given
    elif address:
        try:
            from distributed import Client
        except ImportError:
            raise ImportError(
                "VITLAB_SCHEDULER is set, and dask is not installed: pip install vitlab[cluster]"
            ) from None
        try:
            client = Client(address, timeout=10)
        except OSError as error:
            raise ConnectionError(
                f"no dask scheduler answers at {address}: start one, or unset VITLAB_SCHEDULER"
            ) from error
        with client:
            yield client.get_executor()
    elif min(jobs, n) == 1:
        yield None
    else:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(min(jobs, n), context) as pool:
            try:
                yield pool
            except BaseException:  # an interrupt does not wait for what runs or has not begun
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in multiprocessing.active_children():
                    worker.terminate()
                raise


def _outcomes(
    pool: concurrent.futures.Executor | None, kind: str, missing: dict[str, Config], end: float | None, at_once: int
) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
    """Each run's result, or what it raised, as it ends; none is begun after `end`."""
    waiting = list(missing)
    running: dict[concurrent.futures.Future, str] = {}
    at_once = len(waiting) if end is None else at_once  # where time is short, nothing waits in the executor's queue
    while waiting or running:
        if end is not None and time.monotonic() > end:
            waiting.clear()
        if pool is None:
            if waiting:
                key = waiting.pop(0)
                try:
                    yield key, compute(kind, missing[key])
                except Exception as error:  # noqa: BLE001 (whatever a run raises is that run's outcome)
                    yield key, error
            continue
        while waiting and len(running) < at_once:
            key = waiting.pop(0)
            try:
                running[pool.submit(compute, kind, missing[key])] = key
            except concurrent.futures.BrokenExecutor as error:
                yield key, error
        done, _ = (
            concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED) if running else ((), ())
        )
        for future in done:
            failure = future.exception()
            yield running.pop(future), failure if isinstance(failure, Exception) else future.result()
