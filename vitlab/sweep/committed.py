"""Finished runs that are committed: one zip a study and draw, so that no finished run depends on one machine (§4).

Every member is the file of a run as `runner` stores it, under the same name: what is in an archive is never run again,
as long as the code, torch and device that would compute it are the same.
"""

from __future__ import annotations

import contextlib
import functools
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vitlab import files
from vitlab.sweep.checksums import is_whole
from vitlab.sweep.presets import PRESETS

_NO_DATE = (1980, 1, 1, 0, 0, 0)  # of a member: the same runs give the same bytes, whenever they are packed


def archive(study: str, preset: str, seed: int = 0) -> Path:
    """Where the finished runs of a study at a preset are committed; a draw with another `seed` has its own archive.

    >>> archive("who_wins", "full").parts[-3:], archive("who_wins", "full", seed=1).name
    (('full', 'runs', 'who_wins.zip'), 'who_wins-seed-1.zip')
    """
    draw = f"-seed-{seed}" if seed else ""
    return files.reference_dir(preset) / "runs" / f"{study}{draw}.zip"


def draws(study: str, preset: str) -> list[int]:
    """The seeds of a study at a preset of which runs are committed, the first draw's 0 before others.

    >>> draws("nothing of this name", "full")
    []
    """
    others = archive(study, preset).parent.glob(f"{study}-seed-*.zip")
    seeds = sorted(int(path.stem.rpartition("-")[2]) for path in others)
    return [seed for seed in (0, *seeds) if archive(study, preset, seed).exists()]


def write(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Pack results of runs, by the names of their files, in this order; the same bytes for the same results.

    >>> import tempfile
    >>> from vitlab.sweep.checksums import with_checksum
    >>> path = Path(tempfile.mkdtemp()) / "two.zip"
    >>> write(path, {"b.json": with_checksum({"rows": [1]}), "a.json": with_checksum({"rows": [2]})})
    >>> list(read(path))
    ['b.json', 'a.json']
    """
    with files.writing(path) as temporary, zipfile.ZipFile(temporary, "w") as packed:
        for name, result in results.items():
            member = zipfile.ZipInfo(name, _NO_DATE)
            text = json.dumps(result, separators=(",", ":"), allow_nan=False)
            packed.writestr(member, text, zipfile.ZIP_DEFLATED, compresslevel=9)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The results in an archive by their names, in the order in which they were packed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such archive, or damaged, or the checksum of a result does not fit; the message names it,
            and the result.
    """
    with _opened(path) as packed:
        return {name: _result(packed, name) for name in packed.namelist()}


def find(name: str) -> dict[str, Any] | None:
    """The result of this name in whichever archive of the project has it, or None.

    Raises:
        ValueError: an archive is damaged, or the result's checksum does not fit.

    >>> find("0000.json") is None
    True
    """
    for path in archives():
        if name in _names(path):
            with _opened(path) as packed:
                return _result(packed, name)
    return None


def names() -> set[str]:
    """The names of the results in all archives of the project.

    >>> "0000.json" in names()
    False
    """
    return {name for path in archives() for name in _names(path)}


def archives() -> list[Path]:
    """The archives of all studies at all presets.

    >>> all(path.suffix == ".zip" for path in archives())
    True
    """
    return [path for preset in PRESETS for path in sorted((files.reference_dir(preset) / "runs").glob("*.zip"))]


def _result(packed: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """One result of an opened archive; verdicts rest on it, so that it has to be what was computed."""
    result = json.loads(packed.read(name))
    if not (isinstance(result, dict) and is_whole(result)):
        raise ValueError(f"{name}: its checksum does not fit what it holds")
    return result


def _names(path: Path) -> tuple[str, ...]:
    status = path.stat()
    return _names_of(path, status.st_mtime_ns, status.st_size)


@functools.cache
def _names_of(path: Path, changed: int, size: int) -> tuple[str, ...]:
    with _opened(path) as packed:
        return tuple(packed.namelist())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive to read; whatever is wrong with it is said as a ValueError that names it."""
    try:
        with zipfile.ZipFile(path) as packed:
            yield packed
    except (zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): restore the committed file, or remove it and run again"
        ) from error
