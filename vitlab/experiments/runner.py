"""Runs an experiment's configurations, each once, and keeps every result (paper §4: many runs)."""

from __future__ import annotations

import errno
import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vitlab import files
from vitlab.experiments import workers
from vitlab.experiments.identity import (
    changed_since_import,
    code_hash,
    cpu_count,
    device_type,
    run_key,
    torch_minor,
)

_SCHEMA = 1
Run = Callable[[dict[str, Any]], list[dict[str, Any]]]


def run_folder(experiment: str, preset: str) -> Path:
    """Where the finished runs of an experiment are kept, for the notebook and the command line alike.

    >>> run_folder("data_scaling", "quick").parts[-3:]
    ('quick', 'runs', 'data_scaling')
    """
    return files.figures_dir() / preset / "runs" / experiment


def default_jobs() -> int:
    """Worker processes where none were asked for: `$VITLAB_JOBS`, or one per processor.

    Raises:
        ValueError: `$VITLAB_JOBS` is not a whole number above 0.

    >>> default_jobs() >= 1
    True
    """
    given = os.environ.get("VITLAB_JOBS")
    if not given:
        return cpu_count()
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"VITLAB_JOBS={given!r}: expected a whole number of worker processes, 1 or more")
    return int(given)


def run_all(
    function: Run, configs: Sequence[Mapping[str, Any]], folder: Path | str, jobs: int | None = None
) -> pd.DataFrame:
    """Run `function` once for every configuration that has no stored result yet; return all results.

    `function` is defined at the top of a module and takes a configuration (a dictionary of finite numbers,
    strings, booleans and None) to a list of rows of the same kind. A run's result is one file in `folder`,
    named by `identity.run_key`, written whole or not at all: an interrupted sweep goes on where it stopped, a
    changed configuration or a change in the code that computes makes a new result. Processes that share a
    folder share the work. A run whose worker is killed is repeated once.

    Returns the configuration's columns, then the rows'; in the order of `configs`. `.attrs["wall_s"]` is the
    time in seconds that the runs took, whenever that was.

    Raises:
        ValueError: configurations that are empty, repeated or no scalars; `jobs` below 1; a function that
            worker processes cannot import.
        RuntimeError: runs have failed, named by their configurations. The other runs are finished and stored.
    """
    jobs = default_jobs() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: expected the number of worker processes, 1 or more")
    _check_importable(function)
    folder, code = Path(folder), code_hash(function)
    paths = {folder / f"{run_key(function, config, code)}.json": dict(config) for config in configs}
    if not configs or len(paths) < len(configs):
        raise ValueError(f"{len(configs)} configurations, {len(paths)} distinct: expected ≥ 1, no repeats")
    results = {path: found for path, config in paths.items() if (found := _stored(path, config))}
    _compute(function, paths, results, jobs)
    return _table([(config, results[path]) for path, config in paths.items()])


def _check_importable(function: Run) -> None:
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or getattr(importlib.import_module(module), name, None) is not function:
        raise ValueError(
            f"{module}.{name} cannot be imported by worker processes: expected a function defined at the top "
            "of a module (a file), not in a notebook, a script or another function"
        )


def _compute(function: Run, paths: dict[Path, dict[str, Any]], results: dict[Path, Any], jobs: int) -> None:
    """Fill `results` with the runs that are missing in it; raises at the end if any has failed."""
    name, label = function.__module__.rpartition(".")[2], _labels(list(paths.values()))
    tasks = [(path, config) for path, config in paths.items() if path not in results]
    if results:
        print(f"{name}: {len(results)} of {len(paths)} runs were finished before", flush=True)
    if jobs == 1 and tasks and (changed := changed_since_import(function)):
        raise RuntimeError(
            f"{', '.join(changed)} changed after this process had started: restart it (in a notebook: Kernel,"
            " Restart), or results would be stored under the name of code that did not compute them"
        )
    failures = []
    for (path, config), (word, message) in workers.outcomes(
        partial(_work, function), tasks, min(jobs, max(len(tasks), 1))
    ):
        if word == "done" and (found := _stored(path, config)):
            results[path] = found
            print(f"[{len(results)}/{len(paths)}] {name} {label(config)}: {message}", flush=True)
        else:
            failures.append(f"{name} {label(config, whole=True)}: {message}")
            print(f"vitlab: failed: {failures[-1]}", file=sys.stderr, flush=True)
            if f"[Errno {errno.ENOSPC}]" in message:
                break  # nothing that follows could be stored
    if failures:
        more = f" (and {len(failures) - 1} more, named above)" if len(failures) > 1 else ""
        raise RuntimeError(
            f"{len(failures)} of {len(paths)} runs failed: {failures[0]}{more}; the {len(results)} finished "
            "ones are stored, running again goes on from them"
        )


def _work(function: Run, task: tuple[Path, dict[str, Any]], patient: bool) -> workers.Outcome:
    """One run, in whatever process: computed and stored, unless somebody else has done or is doing it."""
    path, config = task
    with files.lock(path.parent, path.stem, wait=patient) as held:
        if not held:
            return "busy", ""
        if path.exists() and _stored(path, config):
            return "done", "finished by another process"
        started = time.perf_counter()
        rows = _checked_rows(function(dict(config)), config)
        wall = time.perf_counter() - started
        result = {
            "schema": _SCHEMA,
            "function": f"{function.__module__}.{function.__qualname__}",
            "config": config,
            "rows": rows,
            "columns": list(dict.fromkeys(key for row in rows for key in row)),  # JSON keys are sorted
            "wall_s": round(wall, 3),
            "torch": torch_minor(),
            "device": device_type(),
        }
        files.write_json(path, result)
    return "done", f"{wall:.1f} s"


def _checked_rows(rows: Any, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(f"a run returns a list of one or more rows (dictionaries), got {rows!r:.80}")
    plain = []
    for row in rows:
        plain.append({key: _plain(key, value) for key, value in row.items()})
        for key, value in plain[-1].items():
            if key in config and config[key] != value:
                raise ValueError(f"row value {key} = {value!r}: the configuration says {config[key]!r}")
    return plain


def _plain(key: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | bool | int | float):
        raise TypeError(f"row value {key} = {value!r:.80}: expected a number, string, boolean or None")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"row value {key} = {value}: a result must be finite; None says there is none")
    return value


def _stored(path: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The finished run at `path`, or None; a file that is not one is moved aside, with a word."""
    try:
        result = files.read_json(path)
        if (
            result["schema"] == _SCHEMA
            and result["config"] == config
            and result["rows"]
            and result["columns"]
        ):
            return result
        problem = "it does not hold the run its name says"
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        problem = str(error)
    os.replace(path, path.with_suffix(".corrupt"))
    print(f"vitlab: {path} is corrupt, moved aside and run again: {problem}", file=sys.stderr)
    return None


def _labels(configs: list[dict[str, Any]]) -> Callable[..., str]:
    """How to name a run in a line: by what sets it apart from the others, or by everything."""
    first = configs[0]
    varying = [key for key in first if any(other.get(key) != first[key] for other in configs)]

    def label(config: dict[str, Any], whole: bool = False) -> str:
        keys = list(config) if whole or not varying else varying
        return " ".join(f"{key}={config[key]}" for key in keys if key in config)

    return label


def _table(results: list[tuple[dict[str, Any], dict[str, Any]]]) -> pd.DataFrame:
    rows = [
        config | {column: row[column] for column in result["columns"] if column in row}
        for config, result in results
        for row in result["rows"]
    ]
    table = pd.DataFrame(rows)
    table.attrs["wall_s"] = round(sum(result["wall_s"] for _, result in results), 3)
    return table
