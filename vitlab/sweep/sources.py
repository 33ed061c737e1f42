"""What is read of a module's source: a hash of its code, what it imports, what it defines. No section of the paper."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vitlab import paths

_PARSING = threading.Lock()  # Python 3.11's parser counts the depth of two threads as one, and raises SystemError
_OWN = Path(__file__).resolve()
_KEPT = _OWN.parent / "__pycache__" / "sources.json"  # where Python keeps what it compiled of these modules
_MOST = 1_000  # modules that are kept: some versions of each


class Module(NamedTuple):
    """What is read of a module's source."""

    hash: str  # see `source_hash`
    imports: tuple[str, ...]  # see `imported`
    functions: tuple[str, ...]  # defined at its top


def read(path: Path, package: Sequence[str] = ()) -> Module:
    """What a module's source holds; `package`: the parts of the package that it is in, for relative imports.

    To parse all of vitlab takes a second, so what was read of its own modules is kept, by a hash of the source, for
    the next process (see `keep`).

    >>> read(_OWN).functions[0]
    'read'
    """
    state = path.stat()
    return _read(path, tuple(package), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=512)
def _read(path: Path, package: tuple[str, ...], mtime_ns: int, size: int) -> Module:
    source = path.read_bytes()
    key = hashlib.sha256("/".join(package).encode() + b"\0" + source).hexdigest()
    if key in _kept():
        return _kept()[key]
    module = _parsed(source.decode("utf-8"), package)
    if path.is_relative_to(_OWN.parent.parent):
        _NEW[key] = module
    return module


def _parsed(source: str, package: Sequence[str]) -> Module:
    tree = _tree(source)
    functions = tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return Module(imports=tuple(sorted(imported(tree, package))), functions=functions, hash=source_hash(tree))


_NEW: dict[str, Module] = {}  # what this process has parsed and nobody kept


def keep() -> None:
    """Keep what this process has parsed, where Python may keep what it compiles; where nothing can be written, nothing.

    >>> keep()
    """
    if not _NEW or sys.dont_write_bytecode:
        return
    known = _kept() | _NEW
    kept = _NEW if len(known) > _MOST else known
    with contextlib.suppress(OSError):
        paths.write_json(_KEPT, {"by": _reader(), "modules": kept})
    _kept().update(_NEW)
    _NEW.clear()


@functools.cache
def _kept() -> dict[str, Module]:
    """What earlier processes kept; nothing where it is damaged, or was read by another version of this module."""
    try:
        found = paths.read_json(_KEPT)
        if found["by"] != _reader():
            return {}
        return {key: Module(sha, tuple(names), tuple(tops)) for key, (sha, names, tops) in found["modules"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _reader() -> str:
    return hashlib.sha256(_OWN.read_bytes()).hexdigest()


def imported(source: str | ast.Module, package: Sequence[str] = ()) -> set[str]:
    """The dotted names of vitlab that a module, its source or syntax tree, imports anywhere, with the packages above.

    `package`: the parts of the package that the module is in, for relative imports. Of `from a import b` both a and
    a.b are named, for b may be a module.

    >>> sorted(imported("def f():\\n    from vitlab.data import world"))
    ['vitlab', 'vitlab.data', 'vitlab.data.world']
    """
    names: set[str] = set()
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = list(package[: len(package) - node.level + 1]) if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names.update(f"{base}.{alias.name}" for alias in node.names)
    parts = [name.split(".") for name in names]
    return {".".join(each[:n]) for each in parts if each[0] == "vitlab" for n in range(1, len(each) + 1)}


def source_hash(source: str | ast.Module) -> str:
    """Hash of Python source with its comments, docstrings and formatting taken out; the same on every Python.

    Of a syntax tree, which may be given in its place, the docstrings are taken out for good.

    >>> source_hash("x = 1  # one") == source_hash("'''A module.'''\\n\\nx = (1)")
    True
    >>> source_hash("x = 1") == source_hash("x = 2")
    False
    """
    tree = _tree(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(json.dumps(_outline(tree)).encode()).hexdigest()


def _tree(source: str | ast.Module) -> ast.Module:
    if isinstance(source, ast.Module):
        return source
    with _PARSING:
        return ast.parse(source)


def _outline(node: Any) -> Any:
    """A syntax tree as nested lists, without what is empty: later Pythons have more fields, and unparse otherwise."""
    if isinstance(node, list):
        return [_outline(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty pieces in some
        node = ast.JoinedStr([part for part in node.values if getattr(part, "value", None) != ""])
    outline: list[Any] = [type(node).__name__]
    for name in node._fields:
        value = getattr(node, name, None)
        if name != "kind" and value is not None and value != []:
            outline.append([name, _outline(value)])
    return outline
