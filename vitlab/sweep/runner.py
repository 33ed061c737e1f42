"""Runs an experiment's configurations, each once, and keeps every result (paper §4: many runs)."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import paths, settings
from vitlab.sweep import cluster, committed, identity, results, workers
from vitlab.sweep.progress import Sweep, Task
from vitlab.training.checkpoint_plan import checkpoints_in

_ON_A_GPU = 4  # that share one: each has a context, data and activations of its own there
_UNFINISHED = ".unfinished"  # ending of the folder of a run's checkpoints, which goes when its result is there
_ABANDONED = 7 * 24 * 3600  # seconds after which nobody will go on with such a run: its code has changed, most likely
Run = Callable[[dict[str, Any]], list[dict[str, Any]]]


def run_folder(experiment: str, preset: str) -> Path:
    """Where the finished runs of an experiment are kept, for the notebook and the command line alike.

    >>> run_folder("data_scaling", "quick").parts[-3:]
    ('quick', 'runs', 'data_scaling')
    """
    return paths.figures_dir() / preset / "runs" / experiment


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
    the same bits on a CPU, whoever runs it next (see `checkpoint_plan.checkpoints_in`).

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
    with cluster.connected(function) as machines:
        made_by = machines.made_by if machines else identity.made_by(function)
        sweep = _begun(function, paths_of(function, configs, folder, made_by))
        if machines is not None:
            for task, outcome in _completed_on(machines, function, sweep.missing):
                sweep.enter(task, outcome)
        elif sweep.missing:
            identity.check_code(function, made_by["code"])
            attempt = partial(_attempt, function, code=made_by["code"])
            if min(jobs, len(sweep.missing)) > 1:
                for task, outcome in workers.completed(attempt, sweep.missing, jobs):
                    sweep.enter(task, outcome)
            else:
                for wait in (False, True):  # what another process is computing comes last
                    for task in sweep.missing:
                        sweep.enter(task, attempt(task, wait))
    sweep.check()
    return results.table([(config, sweep.done[path]) for path, config in sweep.paths.items()])


def stored(function: Run, configs: Sequence[Mapping[str, Any]], folder: Path | str) -> pd.DataFrame:
    """The table of `run_all` of the runs that are finished so far; without rows and columns where none is.

    Nothing is computed: a sweep that goes on elsewhere can be looked at and plotted at any time. Results of a
    GPU are found on a machine without one by VITLAB_DEVICE=cuda.

    >>> stored(run_folder, [{"size": 1}], "nowhere").empty
    True
    """
    with cluster.connected(function) as machines:
        paths = paths_of(function, configs, folder, machines.made_by if machines else None)
    return results.table([(paths[path], result) for path, result in finished(paths).items()])


def finished(paths: Mapping[Path, Mapping[str, Any]]) -> dict[Path, dict[str, Any]]:
    """The results of the runs that are stored or committed, of those that `paths_of` gave, in their order.

    >>> finished(paths_of(run_folder, [{"size": 1}], "nowhere"))
    {}
    """
    return {path: result for path, config in paths.items() if (result := results.read(path, config))}


def finished_of_preset(
    function: Run, configs: Sequence[Mapping[str, Any]], preset: str, made_by: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The results that are stored in the folder of any experiment of a preset, for some share theirs, or committed.

    By the names of their files, in the order of `configs`; `made_by` as in `paths_of`.

    >>> finished_of_preset(run_folder, [{"size": 1}], "smoke")
    {}
    """
    runs = run_folder("", preset)
    stored_at = {path.name: path for path in runs.glob("*/*.json")}
    paths = {
        stored_at.get(path.name, path): config for path, config in paths_of(function, configs, runs, made_by).items()
    }
    return {path.name: result for path, result in finished(paths).items()}


def committed_with(
    function: Run, configs: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The same runs, each with these settings where the run with them is committed: it needs neither data nor time.

    >>> committed_with(run_folder, [{"size": 1}], {"size": 2})
    [{'size': 1}]
    """
    others = [{**config, **settings} for config in configs]
    paths, there = paths_of(function, others, ""), committed.names()
    return [
        other if path.name in there else dict(config)
        for config, other, path in zip(configs, others, paths, strict=True)
    ]


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


def _begun(function: Run, paths: dict[Path, dict[str, Any]]) -> Sweep:
    """The sweep with what is stored of it; says what was finished before, and what is stored but not used."""
    done = finished(paths)
    for path in done:  # of a run that was killed just after its result had been written
        shutil.rmtree(path.with_suffix(_UNFINISHED), ignore_errors=True)
        with contextlib.suppress(OSError):
            path.with_name(f".{path.stem}.lock").unlink(missing_ok=True)  # as `paths.lock` names it
    sweep = Sweep(function.__module__.rpartition(".")[2], paths, done)
    if done:
        print(f"{sweep.name}: {len(done)} of {len(paths)} runs were finished before", flush=True)
    if sweep.missing:
        _say_what_is_not_used(sweep.name, sweep.missing)
        _remove_old_checkpoints(next(iter(paths)).parent)
    return sweep


def _completed_on(
    machines: cluster.Cluster, function: Run, tasks: Sequence[Task]
) -> Iterator[tuple[Task, workers.Outcome]]:
    """The tasks as they end on a cluster's workers, stored here; no worker sees our folder."""
    name = function.__module__.rpartition(".")[2]  # before the key: the dashboard groups by it
    named = {f"{name}-{path.stem}": (path, config) for path, config in tasks}

    def keep(key: str, result: dict[str, Any]) -> workers.Outcome:
        path, config = named[key]
        if results.read(path, config) is None:  # or another client was first
            paths.write_json(path, result)
        return "done", f"{result['wall_s']:.1f} s"

    sent = {key: config for key, (_, config) in named.items()}
    for key, outcome in cluster.completed(machines, partial(_computed, function), keep, sent):
        yield named[key], outcome


def _say_what_is_not_used(name: str, tasks: Sequence[Task]) -> None:
    """Tell that runs to be done were done before, in another way: why a sweep that was finished begins anew."""
    wanted, folder = [config for _, config in tasks], tasks[0][0].parent
    others = set(folder.glob("*.json")) - {path for path, _ in tasks}
    count = 0
    for path in others:
        with contextlib.suppress(ValueError, KeyError, TypeError, FileNotFoundError):
            count += paths.read_json(path)["config"] in wanted
    if count:
        print(f"{name}: {count} finished runs of other code, torch or device are kept and not used", flush=True)


def _remove_old_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of killed runs that nothing has been added to for a week."""
    for unfinished in folder.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(OSError):  # its run has ended this moment
            newest = max(path.stat().st_mtime for path in (unfinished, *unfinished.rglob("*")))
            if time.time() - newest > _ABANDONED:
                shutil.rmtree(unfinished, ignore_errors=True)


def _attempt(function: Run, task: Task, wait: bool, code: str) -> workers.Outcome:
    """One run, in a process of this machine: computed and stored, unless somebody else has done or is doing it.

    `code` is the hash in the name of its result: a process that has other code computes nothing.
    """
    path, config = task
    try:
        with paths.lock(path.parent, path.stem, wait=wait) as held:
            if not held:
                return "busy", ""
            if path.exists() and results.read(path, config):
                return "done", "finished by another process"
            identity.check_code(function, code)
            started = time.perf_counter()
            with checkpoints_in(path.with_suffix(_UNFINISHED)), settings.one_thread():
                rows = function(dict(config))
            seconds = time.perf_counter() - started
            paths.write_json(path, results.result(function, config, rows, seconds))
            shutil.rmtree(path.with_suffix(_UNFINISHED), ignore_errors=True)
        return "done", f"{seconds:.1f} s"
    except Exception as error:  # noqa: BLE001 (whatever a run raises is that run's outcome)
        return workers.failed(error)


def _computed(function: Run, config: dict[str, Any]) -> dict[str, Any]:
    """One run on a cluster's worker, which sees no folder of ours: what its file is to hold."""
    started = time.perf_counter()
    with settings.one_thread():
        rows = function(dict(config))
    return results.result(function, config, rows, time.perf_counter() - started)
