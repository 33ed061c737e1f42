"""Finished runs that are committed: one .tar.xz a study and draw, so that no run depends on one machine (§4).

Every member is the file of a run as `runner` stores it, under the same name: what is in an archive is never run again,
as long as the code, torch and device that would compute it are the same. Runs of a study are much alike, so they are
compressed together.
"""

from __future__ import annotations

import functools
import io
import json
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitlab import paths
from vitlab.sweep.checksums import is_whole
from vitlab.sweep.presets import PRESETS

_SUFFIX = ".txz"  # short for .tar.xz


def archive(study: str, preset: str, seed: int = 0) -> Path:
    """Where the finished runs of a study at a preset are committed; a draw with another `seed` has its own archive.

    >>> archive("who_wins", "full").parts[-3:], archive("who_wins", "full", seed=1).name
    (('full', 'runs', 'who_wins.txz'), 'who_wins-seed-1.txz')
    """
    draw = f"-seed-{seed}" if seed else ""
    return paths.reference_dir(preset) / "runs" / f"{study}{draw}{_SUFFIX}"


def draws(study: str, preset: str) -> list[int]:
    """The seeds of a study at a preset of which runs are committed, the first draw's 0 before others.

    >>> draws("nothing of this name", "full")
    []
    """
    others = archive(study, preset).parent.glob(f"{study}-seed-*{_SUFFIX}")
    seeds = sorted(int(path.stem.rpartition("-")[2]) for path in others)
    return [seed for seed in (0, *seeds) if archive(study, preset, seed).exists()]


def write(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Pack results of runs, by the names of their files, in this order; the same bytes for the same results.

    >>> import tempfile
    >>> from vitlab.sweep.checksums import with_checksum
    >>> path = Path(tempfile.mkdtemp()) / "two.txz"
    >>> write(path, {"b.json": with_checksum({"rows": [1]}), "a.json": with_checksum({"rows": [2]})})
    >>> list(read(path))
    ['b.json', 'a.json']
    """
    with paths.writing(path) as temporary, tarfile.open(temporary, "w:xz") as packed:
        for name, result in results.items():
            text = json.dumps(result, separators=(",", ":"), allow_nan=False).encode()
            member = tarfile.TarInfo(name)  # without a date and an owner
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text))


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The results in an archive by their names, in the order in which they were packed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such archive, or damaged, or the checksum of a result does not fit; the message names it,
            and the result.
    """
    return {name: _result(path, name, text) for name, text in _texts(path).items()}


def find(name: str) -> dict[str, Any] | None:
    """The result of this name in whichever archive of the project has it, or None.

    Raises:
        ValueError: an archive is damaged, or the result's checksum does not fit.

    >>> find("0000.json") is None
    True
    """
    for path in archives():
        if (text := _texts(path).get(name)) is not None:
            return _result(path, name, text)
    return None


def names() -> set[str]:
    """The names of the results in all archives of the project.

    >>> "0000.json" in names()
    False
    """
    return {name for path in archives() for name in _texts(path)}


def archives() -> list[Path]:
    """The archives of all studies at all presets.

    >>> all(path.suffix == ".txz" for path in archives())
    True
    """
    return [path for preset in PRESETS for path in sorted((paths.reference_dir(preset) / "runs").glob(f"*{_SUFFIX}"))]


def _result(path: Path, name: str, text: bytes) -> dict[str, Any]:
    """One result of an archive from its text; verdicts rest on it, so that it has to be what was computed."""
    try:
        result = json.loads(text)
        if not (isinstance(result, dict) and is_whole(result)):
            raise ValueError("its checksum does not fit what it holds")
    except ValueError as error:
        raise _damaged(path, f"{name}: {error}") from error
    return result


def _texts(path: Path) -> Mapping[str, bytes]:
    """What is in an archive, by name: unpacked once, for runs are asked for one by one."""
    status = path.stat()
    return _texts_of(path, status.st_mtime_ns, status.st_size)


@functools.cache
def _texts_of(path: Path, changed: int, size: int) -> Mapping[str, bytes]:
    try:
        unpacked = lzma.decompress(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as packed:
            return {each.name: unpacked[each.offset_data : each.offset_data + each.size] for each in packed}
    except (lzma.LZMAError, tarfile.TarError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> ValueError:
    return ValueError(f"{path} is damaged ({why}): restore the committed file, or remove it and run again")
