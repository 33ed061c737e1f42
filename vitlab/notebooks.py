"""Which notebooks there are, and the parameters that each one takes (every section of the paper)."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab import paths

_NAME = re.compile(r"(\d\d)_[a-z0-9_]+\.ipynb")
_NO_LITERAL = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)  # as `ast.literal_eval` raises them


def notebooks_dir() -> Path:
    """Folder of the notebooks that are run: in the checkout, or in the copy of them that we are in (see `paths.home`).

    >>> notebooks_dir().name
    'notebooks'
    """
    return paths.home() / "notebooks"


def sources_dir() -> Path:
    """Folder of the notebooks' sources, which hold the checks of the exercises: of those that come with vitlab.

    >>> sources_dir().name
    'source'
    """
    return paths.shipped() / "notebooks" / "source"


def all_notebooks() -> list[Path]:
    """Every notebook, in the order of the numbers.

    >>> all(path.suffix == ".ipynb" for path in all_notebooks())
    True
    """
    return sorted(path for path in notebooks_dir().glob("*.ipynb") if _NAME.fullmatch(path.name))


def find(which: str | int) -> Path:
    """The notebook with a number ("08", "8", 8) or a name ("08_attention_distance", "attention_distance").

    Raises:
        ValueError: there is no such notebook; the message lists those there are.
        FileNotFoundError: there are no notebooks in or above the working directory.
    """
    known = all_notebooks()
    if not known:
        raise FileNotFoundError(
            f"no notebooks in {notebooks_dir()}: `vitlab copy FOLDER` puts them into a folder; run vitlab there"
        )
    wanted = str(which).removesuffix(".ipynb")
    for path in known:
        number, _, slug = path.stem.partition("_")
        if wanted in (path.stem, slug) or wanted.isdecimal() and int(wanted) == int(number):
            return path
    raise ValueError(f"unknown notebook {str(which)!r}: choose from {', '.join(path.stem for path in known)}")


def parameters(path: Path | str) -> dict[str, Any]:
    """Names and default values that a notebook's cell tagged `parameters` sets; empty without such a cell.

    Raises:
        ValueError: the file is no notebook, or a parameter is not set to a plain number, string or boolean.
    """
    values = {}
    for node in _statements(path):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            values[target.id] = _literal(node.value, target.id, path)
    return values


def has_cell(path: Path | str, tag: str) -> bool:
    """Whether a notebook has a cell with this tag.

    `vitlab run` knows two: a cell tagged `long` trains for a minute or more at `quick`; one tagged `timed` measures how
    fast this machine is.

    Raises:
        ValueError: the file is no notebook.
    """
    return bool(_tagged(path, tag))


def _tagged(path: Path | str, tag: str) -> list[str]:
    """The sources of a notebook's cells with this tag."""
    notebook = paths.read_json(path)
    try:
        tags = [(cell, cell.get("metadata", {}).get("tags", ())) for cell in notebook.get("cells", ())]
        return ["".join(cell["source"]) for cell, given in tags if tag in given]
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"{path} is no notebook: expected cells with a source and metadata (nbformat 4)") from None


def _statements(path: Path | str) -> list[ast.stmt]:
    """What stands in a notebook's cells tagged `parameters`."""
    try:
        return [node for source in _tagged(path, "parameters") for node in ast.parse(source, "cell").body]
    except _NO_LITERAL as error:
        raise ValueError(
            f"{path}: the cell tagged parameters is no plain Python, {error}: expected assignments, such as SEED = 0"
        ) from None


def _literal(node: ast.expr, name: str, path: Path | str) -> Any:
    with contextlib.suppress(*_NO_LITERAL):
        value = ast.literal_eval(node)
        if value is None or isinstance(value, str | bool | int | float):
            return value
    raise ValueError(f"{path}: parameter {name} must be set to a plain number, string, boolean or None")


def parse(name: str, text: str, default: Any) -> Any:
    """A value given on the command line, as the type of its default.

    Raises:
        ValueError: the text is no such value.

    >>> parse("SEED", "3", 0), parse("RATE", "1e-3", 0.1), parse("RETRAIN", "yes", False)
    (3, 0.001, True)
    >>> parse("SEED", "three", 0)
    Traceback (most recent call last):
    ValueError: SEED=three: expected a whole number, as its default 0
    """
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    kind = next((kind for kind in (bool, int, float, str) if isinstance(default, kind)), None)
    try:
        if kind is bool:
            return words[text.lower()]
        if kind is not None:
            return kind(text)
    except (KeyError, ValueError):
        expected: dict[type | None, str] = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ValueError(f"{name}={text}: expected {expected[kind]}, as its default {default!r}") from None
    with contextlib.suppress(*_NO_LITERAL):  # a default of None says nothing about the type
        return ast.literal_eval(text)
    return text


def check_settings(paths: Sequence[Path], settings: Mapping[str, str]) -> dict[Path, dict[str, Any]]:
    """What to set in each notebook, from the texts given for all of them; checked before anything runs.

    A key may be written in lower case; a notebook that does not have it runs without.

    Raises:
        ValueError: a key that none of the notebooks has (the message lists what each has), or a value that
            does not fit the default's type.
    """
    known = {path: parameters(path) for path in paths}
    chosen: dict[Path, dict[str, Any]] = {path: {} for path in paths}
    for key, text in settings.items():
        name = key.upper()
        having = [path for path in paths if name in known[path]]
        if not having:
            there = "; ".join(f"{path.stem}: {', '.join(known[path]) or 'none'}" for path in paths)
            raise ValueError(f"--set {key}={text}: no chosen notebook has a parameter {name}. There are {there}")
        for path in having:
            chosen[path][name] = parse(name, text, known[path][name])
    return chosen
