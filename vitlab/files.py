"""Where things are on disk, and writing them whole: no section of the paper, all of its results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitlab import disk

_PACKAGE = Path(__file__).resolve().parent
ROOT = _PACKAGE.parent  # the checkout, where vitlab runs from one
_SHARE = _PACKAGE / "share"  # what an installed vitlab has of the checkout (see setup.py)

NOTEBOOKS, FIRST = "notebooks", "00_start_here.ipynb"  # by which a copy of the notebooks is known

# A file being written is called .partial-<host>-<pid>-<random>-<final name>: the name keeps its ending
# (papermill looks at it) and says whose it is, so that what a killed writer left behind can be told.
_PARTIAL = re.compile(r"\.partial-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}-(?P<name>.+)")
_FOREIGN_AGE = 24 * 3600  # seconds after which a partial file of another machine is taken for abandoned
_CLOCKS_APART = 3600  # seconds that the clocks of this machine and of a file server may differ, at most


def figures_dir() -> Path:
    """Folder every run writes to: `$VITLAB_FIGURES`, or `figures/` in `home()`.

    >>> figures_dir().is_absolute()
    True
    """
    return _folder("VITLAB_FIGURES", home() / "figures")


def data_dir() -> Path:
    """Folder of the user's own data sets: `$VITLAB_DATA`, or `data/downloads/` in `home()`.

    >>> data_dir().is_absolute()
    True
    """
    return _folder("VITLAB_DATA", home() / "data" / "downloads")


def bundled_dir() -> Path:
    """Folder of what comes with vitlab: small weights and their model cards.

    >>> bundled_dir().name
    'data'
    """
    return shipped() / "data"


def reference_dir(preset: str) -> Path:
    """Folder of the committed reference results of a preset; `$VITLAB_FIGURES` does not move it.

    >>> reference_dir("quick").relative_to(shipped()).as_posix()
    'figures/reference/quick'
    """
    return shipped() / "figures" / "reference" / preset


def shipped() -> Path:
    """Folder of all that is shipped with vitlab besides its code: the checkout, or a part of the installed package.

    >>> (shipped() / "notebooks").is_dir()
    True
    """
    return ROOT if _in_checkout() else _SHARE


def home() -> Path:
    """Folder that notebooks are run from and results are written to: the checkout.

    Where vitlab was installed without one, the copy of the notebooks (`vitlab copy`) that the working directory is in,
    or the working directory: nothing is written among installed packages.

    >>> home().is_absolute()
    True
    """
    if _in_checkout():
        return ROOT
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / NOTEBOOKS / FIRST).is_file()), here)


def _in_checkout() -> bool:
    return (ROOT / "pyproject.toml").exists()


def _folder(variable: str, default: Path) -> Path:
    given = os.environ.get(variable)
    return Path(given).expanduser().resolve() if given else default


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[Path]:
    """Write a file whole or not at all: yields a temporary path beside `path`, put in its place at the end.

    The folder is made where it is missing. The temporary name ends like `path`. When the body raises, the
    temporary file is removed and an older `path` stays as it was.

    Raises:
        OSError: the disk is full (ENOSPC), or the folder cannot be written into, with the path and what to do; there
            is something else than a file at `path`, such as a device; or the body wrote nothing.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a" / "note.txt"
    >>> with writing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text(), [p.name for p in target.parent.iterdir()]
    ('whole', ['note.txt'])
    """
    path = Path(path)
    temporary = beside(path)
    with disk.explained(path):
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is no file, and one is to be written there: give another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        try:
            yield temporary
            if not temporary.exists():
                raise OSError(f"nothing written for {path}: the body of `with writing` makes the file")
            with open(temporary, "rb+") as handle:
                os.fsync(handle.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def writing_folder(path: Path | str) -> Iterator[Path]:
    """Write a folder of files whole or not at all: yields a temporary folder, put in the place of `path` at the end.

    Raises:
        OSError: the disk is full (ENOSPC), with the path and what to do; or there is something else than a folder at
            `path`.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "pair"
    >>> with writing_folder(target) as temporary:
    ...     _ = (temporary / "a").write_text("1")
    >>> [p.name for p in target.iterdir()]
    ['a']
    """
    path = Path(path)
    temporary, old = beside(path), beside(path)
    with disk.explained(path):
        if path.exists() and not path.is_dir():
            raise OSError(f"{path} is no folder, and one is to be written there: give another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        try:
            temporary.mkdir()
            yield temporary
            for file in temporary.iterdir():
                with open(file, "rb+") as handle:
                    os.fsync(handle.fileno())
            if path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def beside(path: Path) -> Path:
    """A temporary name beside `path` that ends like it, and that `sweep` knows for this process's.

    >>> beside(Path("figures/plot.png")).suffix
    '.png'
    """
    return path.with_name(f".partial-{_host()}-{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


def sweep(folder: Path | str) -> list[Path]:
    """Remove the partial files and folders in `folder` whose writer is dead; returns what was removed.

    A writer on this machine is dead when its process is gone (or its number was given to a younger process);
    a file of another machine sharing the folder is left alone for a day.

    >>> import tempfile
    >>> sweep(tempfile.mkdtemp())
    []
    """
    removed = []
    for entry in Path(folder).glob(".partial-*"):
        match = _PARTIAL.fullmatch(entry.name)
        if match and _is_abandoned(entry, match["host"], int(match["pid"])):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                removed.append(entry)
    return removed


def _is_abandoned(entry: Path, host: str, pid: int) -> bool:
    import psutil  # here, because a partial file is rare

    try:
        written = entry.stat().st_mtime
        if host != _host():
            return time.time() - written > _FOREIGN_AGE
        process = psutil.Process(pid)
        # The time of the file is the server's. A file left longer than it need be does less harm than one that is lost.
        return process.status() == psutil.STATUS_ZOMBIE or process.create_time() > written + _CLOCKS_APART
    except FileNotFoundError:
        return False  # its writer finished meanwhile
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def write_json(path: Path | str, obj: Any) -> None:
    """Write `obj` as JSON, whole or not at all: sorted keys, one space of indent, a final newline.

    Raises:
        ValueError: a number is NaN or infinite, or a value has no JSON form.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "x.json"
    >>> write_json(target, {"b": 1, "a": [0.5, None]})
    >>> read_json(target)
    {'a': [0.5, None], 'b': 1}
    """
    try:
        text = json.dumps(obj, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"cannot write {path}: {error}; results must be finite numbers, strings, booleans, lists and "
            "dictionaries (None stands for a number that is missing)"
        ) from error
    with writing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path | str) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not JSON; the message names it.

    >>> read_json("nowhere.json")
    Traceback (most recent call last):
    FileNotFoundError: no file nowhere.json: run what writes it first
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}: run what writes it first") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors
        raise ValueError(f"{path} is not valid JSON ({error}): remove the file and run again") from error


def file_hash(path: Path | str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a file's content: the identity of weights or data.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "empty"
    >>> target.touch()
    >>> file_hash(target)
    'e3b0c44298fc1c14'
    """
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


@contextlib.contextmanager
def lock(folder: Path | str, name: str = "", wait: bool = True) -> Iterator[bool]:
    """Hold `folder` (or the thing called `name` in it) against other processes; yields whether it is held.

    The operating system lets go of the lock when its holder dies, however it dies. With `wait`, says once on
    stderr what is waited for, and yields True in the end; without, yields False at once when it is taken.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with lock(folder) as held:
    ...     held
    True
    >>> list(Path(folder).iterdir())
    []
    """
    import filelock

    folder = Path(folder)
    path = folder / f".{name or 'vitlab'}.lock"
    guard = filelock.FileLock(path)  # the kernel's lock (flock), not the mere presence of a file
    with disk.explained(path):
        folder.mkdir(parents=True, exist_ok=True)
        held = _acquire(guard, wait, f"{name} in {folder}" if name else str(folder))
    if not held:
        yield False
        return
    try:
        yield True
    finally:
        # Removed while held: who waits on the removed file sees that it has no name left and starts over.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        guard.release()


def _acquire(guard: Any, wait: bool, what: str) -> bool:
    import filelock

    try:
        guard.acquire(timeout=0)
        return True
    except filelock.Timeout:
        if not wait:
            return False
    print(f"vitlab: waiting for another process that works on {what}", file=sys.stderr, flush=True)
    guard.acquire(poll_interval=0.2)
    return True
