"""The notebooks and exercises that come with vitlab, put into a folder of the user's (every section of the paper)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vitlab import paths

_LEFT_OUT = shutil.ignore_patterns("source", "colab", "__pycache__", ".*")  # sources are for maintainers


def copy(folder: Path | str) -> Path:
    """Copy the notebooks that come with vitlab, and the exercises, into `folder`/notebooks; returns that folder.

    Raises:
        ValueError: no folder is named.
        FileExistsError: there is something of this name already.
        OSError: it cannot be written there.
        FileNotFoundError: this vitlab came without notebooks.

    >>> import tempfile
    >>> [path.name for path in sorted(copy(tempfile.mkdtemp()).iterdir())][:2]
    ['00_start_here.ipynb', '01_vit_from_scratch.ipynb']
    """
    if not str(folder):
        raise ValueError("no folder is given: `.` is this one")
    paths.check_writable(Path(folder).expanduser(), "vitlab copy FOLDER")
    source, target = paths.shipped() / "notebooks", Path(folder).expanduser().resolve() / "notebooks"
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} is there already: remove it, or give another folder")
    if not (source / "00_start_here.ipynb").is_file():
        raise FileNotFoundError(f"no notebooks in {source}: install vitlab's wheel, or clone the repository")
    with paths.explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = paths.partial(target)
        try:
            shutil.copytree(source, temporary, ignore=_LEFT_OUT)
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target
