"""What a disk refuses, in words: a folder that cannot be written into, and a disk that is full. No section."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


def check_writable(folder: Path | str, choice: str = "VITLAB_FIGURES=FOLDER") -> None:
    """Raise where no file can be written into `folder`, or into the one that it would be made in; it is not made.

    `choice`: how the user chooses another folder, for the message.

    Raises:
        OSError: as the system says, mostly PermissionError or NotADirectoryError; the message names the folder.

    >>> check_writable(__file__)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotADirectoryError: [Errno 20] cannot write into .../disk.py (Not a directory): choose another folder ...
    """
    folder = Path(folder).absolute()
    try:
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise _not_writable(folder, error, choice) from error


def _not_writable(folder: Path, error: OSError, choice: str) -> OSError:
    return OSError(
        error.errno,
        f"cannot write into {folder} ({os.strerror(error.errno or 0)}): choose another folder with {choice}",
    )


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn whatever reports a full disk, or a folder that cannot be written into, into one clear error.

    In the body `path` is written. What it raises for other reasons passes through.

    >>> with explained(Path("a.txt")):
    ...     raise RuntimeError("No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] disk full while writing a.txt: free space and run again; finished results are kept
    """
    try:
        yield
    except Exception as error:
        if _says_full(error):
            raise OSError(
                errno.ENOSPC,
                f"disk full while writing {path}: free space and run again; finished results are kept",
            ) from error
        if isinstance(error, OSError) and error.errno in _NOT_WRITABLE and _is_at(error.filename, path.parent):
            raise _not_writable(path.parent, error, "VITLAB_FIGURES=FOLDER, or the option of the command") from error
        raise


def _says_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it followed, says that the disk is full: C++ libraries do it in their own words."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL or any(os.strerror(n) in str(error) for n in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_at(name: Any, folder: Path) -> bool:
    """Whether a file that an error names is in `folder`, or is it, or one that it is in."""
    path = Path(name) if isinstance(name, str | os.PathLike) else None
    return path is not None and (path.parent == folder or path in (folder, *folder.parents))
