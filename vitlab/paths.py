"""Where things are on disk, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent  # the checkout, where vitlab runs from one
_CHOICE = "VITLAB_FIGURES=FOLDER, or the option of the command"


def shipped() -> Path:
    """Return the folder of what comes with vitlab besides its code: the checkout, or `share` in the package."""
    return ROOT if (ROOT / "pyproject.toml").exists() else Path(__file__).resolve().parent / "share"


def home() -> Path:
    """Return the folder that notebooks are run from: the checkout.

    Where vitlab was installed without one, the copy of the notebooks (`vitlab copy`) that the working directory is
    in, or the working directory: nothing is written among installed packages.
    """
    if (ROOT / "pyproject.toml").exists():
        return ROOT
    here, first = Path.cwd(), "notebooks/00_start_here.ipynb"
    return next((folder for folder in (here, *here.parents) if (folder / first).is_file()), here)


def figures_dir() -> Path:
    """Return the folder that every run writes to: `$VITLAB_FIGURES`, or `figures/out` in `home()`."""
    given = os.environ.get("VITLAB_FIGURES")
    return Path(given).expanduser().resolve() if given else home() / "figures" / "out"


def out_dir(preset: str) -> Path:
    """Return the folder of a preset's results: a folder for each notebook, REPORT.md, live runs."""
    return figures_dir() / preset


def evidence_dir() -> Path:
    """Return the folder of the committed evidence; `$VITLAB_FIGURES` does not move it."""
    return shipped() / "figures" / "evidence"


def reference_dir(name: str) -> Path:
    """Return the folder of a notebook's committed results, or "imagenet"; `$VITLAB_FIGURES` does not move it."""
    return shipped() / "figures" / "reference" / name


def data_dir() -> Path:
    """Return the folder of the user's own data sets: `$VITLAB_DATA`, or `data/downloads` in `home()`."""
    given = os.environ.get("VITLAB_DATA")
    return Path(given).expanduser().resolve() if given else home() / "data" / "downloads"


def bundled_dir() -> Path:
    """Return the folder of the small weights that come with vitlab, and their model cards."""
    return shipped() / "data"


@contextlib.contextmanager
def writing(path: Path | str, folder: bool = False) -> Iterator[Path]:
    """Write a file, or a `folder` of files, whole or not at all: yields a temporary path, put in its place at the end.

    Folders above are made. When the body raises, what it wrote is removed and an older `path` stays as it was. Raises
    OSError, with what to do, where the disk is full, the folder is closed, or something of another kind is at `path`.
    """
    path = Path(path)
    temporary, old = (path.with_name(f".partial-{secrets.token_hex(6)}-{path.name}") for _ in range(2))
    with explained(path):
        if path.exists() and path.is_dir() != folder:
            raise OSError(f"{path} is no {'folder' if folder else 'file'}, and one is to be written there")
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(".partial-*"):  # by a writer that was killed
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > 24 * 3600:
                    _remove(left)
        try:
            if folder:
                temporary.mkdir()
            yield temporary
            for file in temporary.iterdir() if folder else [temporary]:
                with open(file, "rb+") as handle:
                    os.fsync(handle.fileno())
            if folder and path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
        finally:
            _remove(temporary)
            _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what reports a full disk, or a folder that cannot be written into, into one clear error.

    Libraries in C++ report a full disk in their own types, with the system's words.
    """
    full = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}
    closed = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if getattr(cause, "errno", None) in full or any(os.strerror(number) in str(cause) for number in full):
                words = f"disk full while writing {path}: free space and run again; finished results are kept"
                raise OSError(errno.ENOSPC, words) from error
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, OSError) and error.errno in closed and isinstance(error.filename, str | os.PathLike):
            name = Path(error.filename)
            if path.parent in (name, name.parent) or name in path.parents:
                raise _not_writable(path.parent, error) from error
        raise


def _not_writable(folder: Path, error: OSError, choice: str = _CHOICE) -> OSError:
    why = os.strerror(error.errno or 0)
    return OSError(error.errno, f"cannot write into {folder} ({why}): choose another folder with {choice}")


def check_writable(folder: Path | str, choice: str = _CHOICE) -> None:
    """Raise OSError, with `choice` as what to do, where no file can be written into `folder` or what it would be in."""
    folder = Path(folder).absolute()
    try:
        with tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())):
            pass
    except OSError as error:
        raise _not_writable(folder, error, choice) from error


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


def file_hash(path: Path | str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a file: the identity of weights or data."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


@contextlib.contextmanager
def lock(folder: Path | str, name: str = "", wait: bool = True) -> Iterator[bool]:
    """Hold `folder` (or the thing called `name` in it) against other processes; yields whether it is held.

    With `wait`, says once on stderr what is waited for, and yields True in the end; without, yields False at once
    when it is taken. The operating system lets go of the lock when its holder dies, however it dies.
    """
    import filelock

    path = Path(folder) / f".{name or 'vitlab'}.lock"
    guard = filelock.FileLock(path)  # the kernel's lock (flock), not the mere presence of a file
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            guard.acquire(timeout=0)
        except filelock.Timeout:
            if wait:
                what = f"{name} in {folder}" if name else folder
                print(f"vitlab: waiting for another process that works on {what}", file=sys.stderr, flush=True)
                guard.acquire(poll_interval=0.2)
    try:
        yield guard.is_locked
    finally:
        if guard.is_locked:  # removed while held: who waits on it sees that it has no name, and starts over
            path.unlink(missing_ok=True)
            guard.release()
