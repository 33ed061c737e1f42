"""Runs an experiment's configurations, each once, and keeps every result (paper §4: many runs)."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import files, threads
from vitlab.experiments import cluster, identity, results, workers
from vitlab.training import saving

_ON_A_GPU = 4  # that share one: each has a context, data and activations of its own there
_UNFINISHED = ".unfinished"  # ending of the folder of a run's checkpoints, which goes when its result is there
_FORGOTTEN = 7 * 24 * 3600  # seconds after which nobody will go on with such a run: its code has changed, most likely
Run = Callable[[dict[str, Any]], list[dict[str, Any]]]
Task = tuple[Path, dict[str, Any]]  # where a run's result goes, and its configuration


def run_folder(experiment: str, preset: str) -> Path:
    """Where the finished runs of an experiment are kept, for the notebook and the command line alike.

    >>> run_folder("data_scaling", "quick").parts[-3:]
    ('quick', 'runs', 'data_scaling')
    """
    return files.figures_dir() / preset / "runs" / experiment


def default_jobs() -> int:
    """Worker processes where none were asked for: `$VITLAB_JOBS`, or one per processor, on a GPU four at most.

    Raises:
        ValueError: `$VITLAB_JOBS` is not a whole number above 0.

    >>> default_jobs() >= 1
    True
    """
    given = os.environ.get("VITLAB_JOBS")
    if not given:
        return min(identity.cpu_count(), _ON_A_GPU) if identity.device_type() == "cuda" else identity.cpu_count()
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"VITLAB_JOBS={given!r}: expected a whole number of worker processes, 1 or more")
    return int(given)


def run_all(
    function: Run, configs: Sequence[Mapping[str, Any]], folder: Path | str, jobs: int | None = None
) -> pd.DataFrame:
    """Run `function` once for every configuration that has no stored result yet; return all results.

    `function` is defined at the top of a module and takes a configuration (a dictionary of finite numbers, strings,
    booleans and None) to a list of rows of the same kind. A run's result is one file in `folder`, named by
    `identity.run_key`, written whole or not at all: an interrupted sweep goes on where it stopped, a changed
    configuration or a change in the code that computes makes a new result. Processes that share a folder share the
    work. A run whose worker is killed is repeated once. The trainings of a killed run go on from their checkpoints, to
    the same bits on a CPU, whoever runs it next (see `saving.within`).

    Runs happen in this process (`jobs=1`), in `jobs` processes, or on the workers of the dask scheduler whose address
    is in `$VITLAB_SCHEDULER`: what those compute is stored here. Every run has one thread, wherever it is, so the
    table is the same to the bit for each of the three (but for times that a run has measured).

    Returns the configuration's columns, then the rows'; in the order of `configs`. `.attrs["wall_s"]` is the time in
    seconds that the runs took, whenever that was.

    Raises:
        ValueError: configurations that are empty, repeated or no scalars; `jobs` below 1; a function that worker
            processes cannot import.
        RuntimeError: runs have failed, named by their configurations. The other runs are finished and stored.
        ConnectionError: the scheduler does not answer, or is gone. What was finished by then is stored.
    """
    jobs = default_jobs() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: expected the number of worker processes, 1 or more")
    _check_importable(function)
    with cluster.connected(function) as there:
        paths = paths_of(function, configs, folder, there.made_by if there else None)
        done = {path: found for path, config in paths.items() if (found := results.read(path, config))}
        _compute(function, paths, done, jobs, there)
    return results.table([(config, done[path]) for path, config in paths.items()])


def stored(function: Run, configs: Sequence[Mapping[str, Any]], folder: Path | str) -> pd.DataFrame:
    """The table of `run_all` of the runs that are finished so far; without rows and columns where none is.

    Nothing is computed: a sweep that goes on elsewhere can be looked at and plotted at any time. Results of a
    GPU are found on a machine without one by VITLAB_DEVICE=cuda.

    >>> stored(run_folder, [{"size": 1}], "nowhere").empty
    True
    """
    with cluster.connected(function) as there:
        paths = paths_of(function, configs, folder, there.made_by if there else None)
    found = [(config, result) for path, config in paths.items() if (result := results.read(path, config))]
    return results.table(found)


def paths_of(
    function: Run,
    configs: Sequence[Mapping[str, Any]],
    folder: Path | str,
    made_by: Mapping[str, str] | None = None,
) -> dict[Path, dict[str, Any]]:
    """The file of each run's result, finished or not, with its configuration; `made_by` as in `identity`, or ours.

    Raises:
        ValueError: configurations that are empty, repeated or no scalars.

    >>> [path.suffix for path in paths_of(run_folder, [{"size": 1}, {"size": 2}], "runs")]
    ['.json', '.json']
    """
    made_by = made_by or identity.made_by(function)
    keys = {identity.run_key(function, config, **made_by): dict(config) for config in configs}
    if not configs or len(keys) < len(configs):
        raise ValueError(f"{len(configs)} configurations, {len(keys)} distinct: expected ≥ 1, no repeats")
    return {Path(folder) / f"{key}.json": config for key, config in keys.items()}


def _check_importable(function: Run) -> None:
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or getattr(importlib.import_module(module), name, None) is not function:
        raise ValueError(
            f"{module}.{name} cannot be imported by worker processes: expected a function defined at the top "
            "of a module (a file), not in a notebook, a script or another function"
        )


def _compute(
    function: Run,
    paths: dict[Path, dict[str, Any]],
    done: dict[Path, Any],
    jobs: int,
    there: cluster.Cluster | None,
) -> None:
    """Fill `done` with the runs that are missing in it; raises at the end if any has failed."""
    name, label = function.__module__.rpartition(".")[2], _labels(list(paths.values()))
    tasks = [(path, config) for path, config in paths.items() if path not in done]
    if done:
        print(f"{name}: {len(done)} of {len(paths)} runs were finished before", flush=True)
    if not tasks:
        return
    _say_what_is_not_used(name, tasks)
    _forget(tasks[0][0].parent)
    failures = []
    for (path, config), (word, message) in _outcomes(function, tasks, jobs, there):
        if word == "done" and (found := results.read(path, config)):
            done[path] = found
            print(f"[{len(done)}/{len(paths)}] {name} {label(config)}: {message}", flush=True)
        else:
            failures.append(f"{name} {label(config, whole=True)}: {message}")
            print(f"vitlab: failed: {failures[-1]}", file=sys.stderr, flush=True)
            if f"[Errno {errno.ENOSPC}]" in message:
                break  # nothing that follows could be stored
    if failures:
        more = f" (and {len(failures) - 1} more, named above)" if len(failures) > 1 else ""
        raise RuntimeError(
            f"{len(failures)} of {len(paths)} runs failed: {failures[0]}{more}; the {len(done)} finished "
            "ones are stored, running again goes on from them"
        )


def _outcomes(
    function: Run, tasks: Sequence[Task], jobs: int, there: cluster.Cluster | None
) -> Iterator[tuple[Task, workers.Outcome]]:
    """What becomes of the tasks, wherever they are done."""
    if there is not None:
        return _outcomes_on(there, function, tasks)
    identity.check_device()
    jobs = min(jobs, len(tasks))
    if jobs == 1 and (changed := identity.changed_since_import(function)):
        raise RuntimeError(
            f"{', '.join(changed)} changed after this process had started: restart it (in a notebook: Kernel,"
            " Restart), or results would be stored under the name of code that did not compute them"
        )
    return workers.outcomes(partial(_work, function), tasks, jobs)


def _outcomes_on(
    there: cluster.Cluster, function: Run, tasks: Sequence[Task]
) -> Iterator[tuple[Task, workers.Outcome]]:
    """The same, computed on a cluster and stored here; no worker sees our folder."""
    name = function.__module__.rpartition(".")[2]  # before the key: the dashboard groups by it
    named = {f"{name}-{path.stem}": (path, config) for path, config in tasks}

    def keep(key: str, result: dict[str, Any]) -> workers.Outcome:
        path, config = named[key]
        if results.read(path, config) is None:  # or another client was first
            files.write_json(path, result)
        return "done", f"{result['wall_s']:.1f} s"

    sent = {key: config for key, (_, config) in named.items()}
    for key, outcome in cluster.outcomes(there, partial(_result, function), keep, sent):
        yield named[key], outcome


def _say_what_is_not_used(name: str, tasks: Sequence[Task]) -> None:
    """Tell that runs to be done were done before, in another way: why a sweep that was finished begins anew."""
    wanted, folder = [config for _, config in tasks], tasks[0][0].parent
    others = set(folder.glob("*.json")) - {path for path, _ in tasks}
    found = 0
    for path in others:
        with contextlib.suppress(ValueError, KeyError, TypeError, FileNotFoundError):
            found += files.read_json(path)["config"] in wanted
    if found:
        print(f"{name}: {found} finished runs of other code, torch or device are kept and not used", flush=True)


def _forget(folder: Path) -> None:
    """Remove the checkpoints of killed runs that nothing has been added to for a week."""
    for unfinished in folder.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(OSError):  # its run has ended this moment
            newest = max(path.stat().st_mtime for path in (unfinished, *unfinished.rglob("*")))
            if time.time() - newest > _FORGOTTEN:
                shutil.rmtree(unfinished, ignore_errors=True)


def _work(function: Run, task: Task, patient: bool) -> workers.Outcome:
    """One run, in a process of this machine: computed and stored, unless somebody else has done or is doing it."""
    path, config = task
    with files.lock(path.parent, path.stem, wait=patient) as held:
        if not held:
            return "busy", ""
        if path.exists() and results.read(path, config):
            return "done", "finished by another process"
        with saving.within(path.with_suffix(_UNFINISHED)):
            result = _result(function, config)
        files.write_json(path, result)
        shutil.rmtree(path.with_suffix(_UNFINISHED), ignore_errors=True)
    return "done", f"{result['wall_s']:.1f} s"


def _result(function: Run, config: dict[str, Any]) -> dict[str, Any]:
    """One run, in whatever process: what its file is to hold."""
    started = time.perf_counter()
    with threads.one_thread():
        rows = results.checked(function(dict(config)), config)
    return results.result(function, config, rows, time.perf_counter() - started)


def _labels(configs: list[dict[str, Any]]) -> Callable[..., str]:
    """How to name a run in a line: by what sets it apart from the others, or by everything."""
    first = configs[0]
    varying = [key for key in first if any(other.get(key) != first[key] for other in configs)]

    def label(config: dict[str, Any], whole: bool = False) -> str:
        keys = list(config) if whole or not varying else varying
        return " ".join(f"{key}={config[key]}" for key in keys if key in config)

    return label
