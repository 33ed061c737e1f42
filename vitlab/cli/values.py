"""The values of notebooks' parameters, checked before a kernel starts (every section of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitlab import notebooks, paths

_MOST = 2**32 - 1  # the largest seed of numpy and scikit-learn
Values = Mapping[str, Any]  # of a notebook's parameters, by name


def checked(chosen: Mapping[Path, Values], elsewhere: bool = False) -> dict[Path, dict[str, Any]]:
    """What to set in each notebook, with files and folders by their whole path, for a kernel has another folder.

    Weights are loaded, and data looked for. `elsewhere`: kernels run on other machines, whose files are not seen here.

    Raises:
        ValueError: a value that the notebook would refuse; the message names the parameter and says why.

    >>> checked({Path("08.ipynb"): {"SEED": 3, "IMAGES": "world"}})
    {PosixPath('08.ipynb'): {'SEED': 3, 'IMAGES': 'world'}}
    """
    pairs = {(name, value) for values in chosen.values() for name, value in values.items()}
    usable = {(name, value): _checked(name, value, elsewhere) for name, value in pairs}
    return {path: {name: usable[name, value] for name, value in values.items()} for path, values in chosen.items()}


def _checked(name: str, value: Any, elsewhere: bool) -> Any:
    check = _CHECKS.get(name)
    if check is None:
        return value
    try:
        return check(value)
    except OSError as error:  # a file that is not here, or a hub that is not reached from here
        if elsewhere:
            return value
        raise ValueError(f"--set {name}={value}: {error}") from error
    except ValueError as error:
        raise ValueError(f"--set {name}={value}: {error}") from error


def _seed(value: int) -> int:
    if not 0 <= value <= _MOST:
        raise ValueError(f"expected a whole number from 0 to {_MOST:,}")
    return value


def _weights(value: str) -> str:
    from vitlab.models import zoo  # brings torch

    if value.lower() not in zoo.BUNDLED:
        name, at, file = value.partition("@")
        whole = _whole(value)
        value = f"{name}@{_whole(file)}" if at and whole == value else whole
    zoo.load(value)  # what it takes to know: the name, the file, what is in it
    return value


def _hybrid(value: str) -> str:
    return value if value in ("", "auto") else _weights(value)


def _images(value: str) -> str:
    return value if value in ("auto", "photographs", "crops") else _target(value)


def _target(value: str) -> str:
    from vitlab.data import datasets

    if value == "world" or (value in datasets.NAMES and datasets.present(value)):
        return value
    for each in (_whole(value), str(paths.data_dir() / value)):
        if value not in datasets.NAMES and Path(each).is_dir():
            datasets.listing(Path(each), "test")
            return each
    datasets.load(value, "test", image_size=1)  # raises: it is unknown, or not there
    return value


def _real(value: str) -> str:
    for name in value.split():
        _target(name)
    return value


def _whole(text: str) -> str:
    """The whole path of a file or folder, looked for here and then where the kernels run; any other text as it is.

    >>> _whole("no such file")
    'no such file'
    """
    paths = (folder / Path(text).expanduser() for folder in (Path.cwd(), notebooks.notebooks_dir()))
    return next((str(path) for path in paths if text and path.exists()), text)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "SEED": _seed,
    "WEIGHTS": _weights,
    "HYBRID": _hybrid,
    "IMAGES": _images,
    "DATA": _target,
    "REAL": _real,
}
