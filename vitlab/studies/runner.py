"""Does what is missing of a study, through any `concurrent.futures.Executor`, and keeps each run as it ends."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import paths, settings
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
    the workers of the dask scheduler in `$VITLAB_SCHEDULER`, or by `executor`; each on one thread, so that its rows
    are the same to the bit. A finished run is a line of figures/out/<preset>/<kind>.jsonl; a killed one is missing,
    and the next call does it. After `minutes` no further run is begun. `settings` replace some of every configuration.

    `.attrs` has the numbers of runs "done" and "planned". Raises RuntimeError where runs failed, once others are kept.
    """
    study, end = table.study(name), None if minutes is None else time.monotonic() + 60 * minutes
    planned = _planned(name, preset, seed, settings)
    done = finished(study.kind, preset, planned)
    missing = {key: config for key, config in planned.items() if key not in done}
    if missing and preset == "full":
        absent = [each for each in study.needs if not datasets.present(each)]
        left = {k for k, c in missing.items() if set(absent) & set(" ".join(map(str, c.values())).split())}
        missing = {key: config for key, config in missing.items() if key not in left}
        if left:
            print(f"{name}: {len(left)} runs need {', '.join(absent)}, not found: left out (see docs/install.md)")
    failed = []
    with _executor(executor, jobs, len(missing)) as pool:
        folder = paths.out_dir(preset) / "unfinished"
        for key, outcome in _outcomes(pool, study.kind, missing, end, jobs or cpu_count(), folder):
            if isinstance(outcome, Exception):
                failed.append((key, outcome))
            else:
                store.append(study.kind, preset, name, planned[key], outcome)
    if failed:
        key, error = failed[0]
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, concurrent.futures.BrokenExecutor):
            why = "a worker process was killed, perhaps for want of memory"
        raise RuntimeError(
            f"{len(failed)} of {len(planned)} runs of {name} failed; the first: {planned[key]}: {why}. "
            "The finished ones are kept, and running again does the others"
        ) from error
    return read(name, preset, seed, settings)


def _planned(name: str, preset: str, seed: int, settings: Config | None = None) -> dict[str, Config]:
    """List the runs of a study by their keys."""
    configs = (config | (settings or {}) for config in table.runs(name, preset, seed))
    return {store.key(table.study(name).kind, config): config for config in configs}


def finished(kind: str, preset: str, planned: dict[str, Config]) -> set[str]:
    """Tell which of the planned runs, by key, are committed (at `full`) or live."""
    about = store.runs(kind)
    committed = set(about.loc[about["version"] == table.VERSION[kind], "key"]) if preset == "full" else set()
    return planned.keys() & (committed | store.live(kind, preset).keys())


def read(name: str, preset: str = "quick", seed: int = 0, settings: Config | None = None) -> pd.DataFrame:
    """Tabulate the finished runs of a study, committed (at `full`) or live, in the order in which they are planned."""
    kind, planned = table.study(name).kind, list(_planned(name, preset, seed, settings))
    live = store.live(kind, preset)
    committed = store.of_keys(kind, set(planned) - live.keys() if preset == "full" else ())
    parts = [part for part in (committed, store.table_of(live[key] for key in planned if key in live)) if len(part)]
    if not parts:
        return pd.DataFrame()
    rows = pd.concat(parts, ignore_index=True)
    place = {key: number for number, key in enumerate(planned)}
    rows = rows.sort_values("key", key=lambda keys: keys.map(place), kind="stable", ignore_index=True)
    found = rows.drop(columns="key").dropna(axis=1, how="all")
    found.attrs |= {"done": rows["key"].nunique(), "planned": len(planned)}
    return found


def plan(names: Sequence[str], preset: str = "full", seed: int = 0) -> pd.DataFrame:
    """Tell what studies would take: study, runs, done, todo, hours (of one core, by model and steps of past runs)."""
    rows = []
    for name in names:
        study = table.study(name)
        planned = _planned(name, preset, seed) if preset in study.presets else {}
        done = finished(study.kind, preset, planned)
        todo, took = [planned[key] for key in planned if key not in done], store.about(name).set_index("key")["seconds"]
        hours = len(todo) * took.mean() / 3600 if preset == "full" else float("nan")
        if study.kind == "scaling" and not len(took):
            hours = _timed(todo)
        elif len(took) and todo and preset == "full" and {"model", "steps"} <= todo[0].keys():
            ran = store.of_keys(study.kind, took.index).drop_duplicates("key").set_index("key")
            a_step = (took / ran["steps"]).groupby(ran["model"]).mean()
            hours = sum(each["steps"] * a_step.get(each["model"], a_step.mean()) for each in todo) / 3600
        rows.append((name, len(planned), len(done), len(todo), hours if todo else 0.0))
    return pd.DataFrame(rows, columns=["study", "runs", "done", "todo", "hours"])


def _timed(configs: Sequence[Config]) -> float:
    """Estimate the hours of trainings on the world from a few steps of each model, timed on this device."""
    from vitlab.studies import run as functions  # slow to import

    seconds: dict[str, float] = {}  # a step
    for config in configs:
        if config["model"] not in seconds:
            short = {"steps": 4, "warmup_steps": 1, "eval_every": 2, "n_train": config["batch_size"], "n_sets": 1}
            history = [row for row in functions.scaling(config | short) if row["kind"] == "history"]
            seconds[config["model"]] = (history[-1]["seconds"] - history[-2]["seconds"]) / 2
    return sum(config["steps"] * seconds[config["model"]] for config in configs) / 3600


def compute(kind: str, config: Config, folder: Path | None = None) -> dict[str, Any]:
    """Do one run on one thread; returns its `rows`, the `seconds` it took, and what it was made by.

    Long trainings keep a checkpoint a minute in `folder`, resume there, and remove it once the run is done.
    """
    from vitlab.studies import run as functions  # slow to import

    start = time.perf_counter()
    if folder is not None:
        functions.TRAININGS.set(folder / str(number) for number in itertools.count())
    with settings.one_thread():
        rows = functions.RUNS[kind](dict(config))
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return {"rows": rows, "seconds": round(time.perf_counter() - start, 3), **store.made_by()}


def cpu_count() -> int:
    """Count the processors this process may use, or read `$VITLAB_JOBS`; raises ValueError where that is no count."""
    given = os.environ.get("VITLAB_JOBS")
    if given and (not given.isdecimal() or int(given) < 1):
        raise ValueError(f"VITLAB_JOBS={given!r}: expected a whole number of worker processes, 1 or more")
    return int(given) if given else len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextlib.contextmanager
def _executor(
    given: concurrent.futures.Executor | None, jobs: int | None, n: int
) -> Iterator[concurrent.futures.Executor | None]:
    """Yield the executor of a call; None: this process."""
    address, jobs = os.environ.get("VITLAB_SCHEDULER"), jobs or cpu_count()
    if given is not None or n == 0:
        yield given
    elif address:
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            words = 'VITLAB_SCHEDULER is set, and dask is not installed: add the extra "cluster" (docs/install.md)'
            raise ModuleNotFoundError(words, name="distributed") from error
        with Client(address, timeout=10) as client:
            yield client.get_executor()
    elif min(jobs, n) == 1:
        yield None
    else:
        with concurrent.futures.ProcessPoolExecutor(min(jobs, n), multiprocessing.get_context("spawn")) as pool:
            try:
                yield pool
            except BaseException:  # an interrupt does not wait for what runs or has not begun
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in multiprocessing.active_children():
                    worker.terminate()
                raise


def _outcomes(
    pool: concurrent.futures.Executor | None,
    kind: str,
    missing: dict[str, Config],
    end: float | None,
    at_once: int,
    folder: Path,
) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
    """Yield each run's result, or what it raised, as it ends; none is begun after `end`."""
    waiting = list(missing)
    if pool is None:
        while waiting and (end is None or time.monotonic() <= end):
            key = waiting.pop(0)
            try:
                outcome: dict[str, Any] | Exception = compute(kind, missing[key], folder / key)
            except Exception as error:  # noqa: BLE001 (whatever a run raises is that run's outcome)
                outcome = error
            yield key, outcome
        return
    running: dict[concurrent.futures.Future[dict[str, Any]], str] = {}
    at_once = len(waiting) if end is None else at_once  # where time is short, nothing waits in the executor's queue
    while waiting or running:
        if end is not None and time.monotonic() > end:
            waiting.clear()
        while waiting and len(running) < at_once:
            key = waiting.pop(0)
            try:
                running[pool.submit(compute, kind, missing[key], folder / key)] = key
            except concurrent.futures.BrokenExecutor as broken:
                yield key, broken
        for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
            failure = future.exception()
            yield running.pop(future), failure if isinstance(failure, Exception) else future.result()
