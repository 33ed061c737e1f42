"""Where things are on disk, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent  # the checkout, where vitlab runs from one


def shipped() -> Path:
    """Return the folder of what comes with vitlab next to its code: the checkout, or `share` in the package."""
    return ROOT if (ROOT / "pyproject.toml").exists() else Path(__file__).resolve().parent / "share"


def home() -> Path:
    """Return the folder that notebooks are run from: the checkout, the copy (`vitlab copy`) we are in, or this one."""
    if shipped() == ROOT:
        return ROOT
    here, first = Path.cwd(), "notebooks/00_start_here.ipynb"
    return next((folder for folder in (here, *here.parents) if (folder / first).is_file()), here)


def own(path: Path | str) -> Path:
    """Resolve a path that a user gave; a ~ of nobody, or a link in a circle, stays as it is."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def figures_dir() -> Path:
    """Return the folder that every run writes to: `$VITLAB_FIGURES`, or `figures/out` in `home()`."""
    return own(os.environ.get("VITLAB_FIGURES") or home() / "figures" / "out")


def out_dir(preset: str) -> Path:
    """Return the folder of a preset's results: a folder for each notebook, REPORT.md, live runs."""
    return figures_dir() / preset


def evidence_dir() -> Path:
    """Return the folder of the committed evidence; `$VITLAB_FIGURES` does not move it."""
    return shipped() / "figures" / "evidence"


def data_dir() -> Path:
    """Return the folder of the user's own data sets: `$VITLAB_DATA`, or `data/downloads` in `home()`."""
    return own(os.environ.get("VITLAB_DATA") or home() / "data" / "downloads")


def bundled_dir() -> Path:
    """Return the folder of the small weights that come with vitlab, and their model cards."""
    return shipped() / "data"


@contextlib.contextmanager
def writing(path: Path | str, folder: bool = False) -> Iterator[Path]:
    """Write a file, or a `folder` of files, whole or not at all: yields a temporary path, put in its place at the end.

    When the body raises, what it wrote is removed and an older `path` stays as it was. Of a full disk it is said so.
    """
    path = Path(path)
    temporary, old = (path.with_name(f".partial-{secrets.token_hex(6)}-{path.name}") for _ in range(2))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            temporary.mkdir()
        yield temporary
        for file in temporary.iterdir() if folder else [temporary]:
            with open(file, "rb+") as handle:
                os.fsync(handle.fileno())
        if folder and path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
    except Exception as error:
        told = "".join(traceback.format_exception(error))  # libraries in C++ raise errors of their own from the first
        if any(os.strerror(number) in told for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
            words = f"disk full while writing {path}: free space and run again; finished results are kept"
            raise OSError(errno.ENOSPC, words) from error
        raise
    finally:
        if not folder:
            temporary.unlink(missing_ok=True)
        for left in (temporary, old):
            shutil.rmtree(left, ignore_errors=True)


def check_writable(folder: Path | str, choice: str = "VITLAB_FIGURES=FOLDER") -> None:
    """Raise OSError, with `choice` as what to do, where no file can be written into `folder` or what it would be in."""
    folder = Path(folder).absolute()
    try:
        with tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())):
            pass
    except OSError as error:
        words = f"cannot write into {folder} ({error.strerror}): choose another folder with {choice}"
        raise OSError(error.errno, words) from error


def write_json(path: Path | str, obj: Any) -> None:
    """Write `obj` as JSON, keys sorted; raises as `json.dumps` for NaN and for what has no JSON form."""
    text = json.dumps(obj, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    with writing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path | str) -> Any:
    """Read a JSON file; raises FileNotFoundError or ValueError with its name."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}): remove the file and run again") from error


@contextlib.contextmanager
def lock(folder: Path | str, name: str = "", wait: bool = True) -> Iterator[bool]:
    """Hold `folder` (or the thing called `name` in it) against other processes; yields whether it is held.

    Where it is taken, `wait` says so on stderr and waits; without, False is yielded at once.
    """
    import filelock

    path = Path(folder) / f".{name or 'vitlab'}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    guard = filelock.FileLock(path)  # the kernel's lock (flock), gone when its holder dies
    try:
        guard.acquire(timeout=0)
    except filelock.Timeout:
        if wait:
            print(f"vitlab: waiting for another process that works on {folder} {name}", file=sys.stderr, flush=True)
            guard.acquire(poll_interval=0.2)
    try:
        yield guard.is_locked
    finally:
        if guard.is_locked:  # removed while held: who waits on it sees that it has no name, and starts over
            path.unlink(missing_ok=True)
            guard.release()
