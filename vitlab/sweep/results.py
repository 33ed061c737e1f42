"""A run's result as a file: what it holds, and tables made of many. No section of the paper."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vitlab import paths
from vitlab.sweep import committed, identity
from vitlab.sweep.checksums import is_whole, with_checksum

_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)  # what reading a damaged file may raise


def result(function: Callable[..., Any], config: dict[str, Any], rows: Any, wall_s: float) -> dict[str, Any]:
    """What the file of a run holds whose function returned `rows` after `wall_s` seconds in this process.

    Raises:
        TypeError, ValueError: as `checked`.

    >>> result(table, {"size": 1}, [{"b": 1}, {"a": 2}], 0.5)["columns"]
    ['b', 'a']
    """
    rows = checked(rows, config)
    return with_checksum(
        {
            "schema": identity.SCHEMA,
            "function": f"{function.__module__}.{function.__qualname__}",
            "config": config,
            "rows": rows,
            "columns": list(dict.fromkeys(key for row in rows for key in row)),  # JSON keys are sorted
            "wall_s": round(wall_s, 3),
            "torch": identity.torch_minor(),
            "device": identity.device_type(),
        }
    )


def checked(rows: Any, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that a run returned, as plain Python values.

    Raises:
        TypeError: they are no list of dictionaries of scalars.
        ValueError: a row has no column, a number is not finite, or a row contradicts the configuration.

    >>> import numpy as np
    >>> checked([{"accuracy": np.float64(0.5)}], {"size": 1})
    [{'accuracy': 0.5}]
    """
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(f"a run returns a list of one or more rows (dictionaries), got {rows!r:.80}")
    plain = []
    for number, row in enumerate(rows):
        if not row:
            raise ValueError(f"row {number} has no column: expected what the run has measured, by name")
        plain.append({key: _plain(key, value) for key, value in row.items()})
        for key, value in plain[-1].items():
            if key in config and config[key] != value:
                raise ValueError(f"row value {key} = {value!r}: the configuration says {config[key]!r}")
    return plain


def _plain(key: Any, value: Any) -> Any:
    if not isinstance(key, str):
        raise TypeError(f"row value {key!r:.80} = {value!r:.80}: expected a name, which is a string")
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | bool | int | float):
        raise TypeError(f"row value {key} = {value!r:.80}: expected a number, string, boolean or None")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"row value {key} = {value}: a result must be finite; None says there is none")
    return value


def read(path: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The finished run at `path`, or the committed one of its name, or None.

    A file that is no finished run is moved aside, with a word.

    Raises:
        ValueError: as `committed.find`.

    >>> read(Path("nowhere.json"), {}) is None
    True
    """
    for last in (False, True):  # looked at twice: another process may have stored the run meanwhile
        try:
            return _stored(path, config)
        except FileNotFoundError:
            break
        except _DAMAGE as error:
            if last:
                _move_aside(path, error)
    there = committed.find(path.name)
    return there if there and there["config"] == config else None


def _stored(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The finished run in a file; one of `_DAMAGE` is raised where it holds something else."""
    found = paths.read_json(path)
    if not is_whole(found):
        raise ValueError("its checksum differs")
    if not (found["config"] == config and found["rows"] and found["columns"]):
        raise ValueError("it does not hold the run its name says")
    return found


def _move_aside(path: Path, problem: Exception) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process has done so
        os.replace(path, path.with_suffix(".corrupt"))
        print(f"vitlab: {path} is corrupt, moved aside: {problem}", file=sys.stderr)


def unseeded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run: all of its configuration but the seed, equal for the runs that repeat each other.

    >>> unseeded({"model": "Lab-Ti/8", "seed": 3})
    {'model': 'Lab-Ti/8'}
    """
    return {name: value for name, value in config.items() if name != "seed"}


def table(results: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> pd.DataFrame:
    """Configurations and their results as one table; `.attrs["wall_s"]` is the time in seconds that they took.

    >>> table([({"size": 1}, {"rows": [{"accuracy": 0.5}], "columns": ["accuracy"], "wall_s": 2.0})])
       size  accuracy
    0     1       0.5
    """
    rows = [
        dict(config) | {column: row[column] for column in result["columns"] if column in row}
        for config, result in results
        for row in result["rows"]
    ]
    frame = pd.DataFrame(rows)
    frame.attrs["wall_s"] = round(sum(result["wall_s"] for _, result in results), 3)
    return frame
