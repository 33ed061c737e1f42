"""What determines a result, as hashes: code, configuration, torch, device. No section of the paper."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
_COMPUTING = ("data", "models", "training", "evaluation", "analysis")
# Modules of this folder that store, count or describe results but do not compute them.
_MACHINERY = {"__init__", "claims", "cluster", "identity", "intervals", "ledger"}
_MACHINERY |= {"plan", "presets", "report", "runner", "scaling_statistics", "workers"}
_SEEN = {path: path.stat().st_mtime_ns for path in _PACKAGE.rglob("*.py")}  # as this process began


def code_hash(function: Callable[..., Any] | None = None) -> str:
    """First 16 hexadecimal digits of a hash over the code that computes.

    It covers vitlab's data, models, training, evaluation and analysis, and the module of `function` with the
    experiment modules which that imports. Comments, docstrings and formatting do not count.

    >>> len(code_hash()), code_hash() == code_hash()
    (16, True)
    """
    digest = hashlib.sha256()
    for path in _computing_files(function):
        name = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.name)
        state = path.stat()
        digest.update(f"{name.as_posix()}\0{_module_hash(path, state.st_mtime_ns, state.st_size)}\0".encode())
    return digest.hexdigest()[:16]


def changed_since_import(function: Callable[..., Any]) -> list[str]:
    """Files of computing code that were edited after this process started: what it has imported is older.

    A result computed here now would be stored under the name of code that did not compute it.

    >>> changed_since_import(code_hash)
    []
    """
    paths = _computing_files(function)
    return [path.name for path in paths if path in _SEEN and path.stat().st_mtime_ns != _SEEN[path]]


def _computing_files(function: Callable[..., Any] | None = None) -> list[Path]:
    paths = {path for room in _COMPUTING for path in (_PACKAGE / room).rglob("*.py")}
    if function is not None:
        paths.update(_own_modules(Path(inspect.getfile(inspect.unwrap(function))).resolve()))
    return sorted(paths)


def _own_modules(path: Path) -> Iterator[Path]:
    """The file of an experiment and the computing modules beside it that it imports, each once."""
    seen, queue = set(), [path]
    while queue:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
            stems = {name.rpartition(".")[2] for name in names}
            beside = (_PACKAGE / "experiments" / f"{stem}.py" for stem in sorted(stems - _MACHINERY) if stem)
            queue += [other for other in beside if other.exists()]


@functools.lru_cache(maxsize=512)
def _module_hash(path: Path, mtime_ns: int, size: int) -> str:
    return source_hash(path.read_text(encoding="utf-8"))


def source_hash(source: str) -> str:
    """Hash of Python source with its comments, docstrings and formatting taken out; the same on every Python.

    >>> source_hash("x = 1  # one") == source_hash("'''A module.'''\\n\\nx = (1)")
    True
    >>> source_hash("x = 1") == source_hash("x = 2")
    False
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        may_have = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if may_have and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(json.dumps(_outline(tree)).encode()).hexdigest()


def _outline(node: Any) -> Any:
    """A syntax tree as nested lists, without what is empty: later Pythons have more fields, and unparse otherwise."""
    if isinstance(node, list):
        return [_outline(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty pieces in some
        node = ast.JoinedStr([part for part in node.values if getattr(part, "value", None) != ""])
    fields = [(name, value) for name, value in ast.iter_fields(node) if value is not None and value != []]
    return [type(node).__name__, *([name, _outline(value)] for name, value in fields if name != "kind")]


def made_by(function: Callable[..., Any] | None = None) -> dict[str, str]:
    """What of this process determines the results it computes: code, torch, device, as `run_key` takes them.

    >>> sorted(made_by())
    ['code', 'device', 'torch']
    """
    return {"code": code_hash(function), "torch": torch_minor(), "device": device_type()}


def run_key(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    code: str | None = None,
    torch: str | None = None,
    device: str | None = None,
) -> str:
    """Name of a run: 20 hexadecimal digits made from everything that determines its result.

    That is the function's qualified name, the configuration, `code_hash(function)`, torch's minor version
    and the device's type; the last three are this process's where they are not given (see `made_by`). Wall
    time and the number of workers have no part in it.

    Raises:
        ValueError: a configuration value is not a finite number, a string, a boolean or None.

    >>> run_key(len, {"a": 1, "b": 2}, code="") == run_key(len, {"b": 2, "a": 1}, code="")
    True
    """
    identity = {
        "function": f"{function.__module__}.{function.__qualname__}",
        "config": _checked(config),
        "code": code_hash(function) if code is None else code,
        "torch": torch_minor() if torch is None else torch,
        "device": device_type() if device is None else device,
    }
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in config.items():
        scalar = value is None or isinstance(value, str | bool | int | float)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not (isinstance(name, str) and scalar and finite):
            raise ValueError(
                f"configuration {name} = {value!r}: a run's configuration holds finite numbers, strings, "
                "booleans and None only, because its result is stored under a name made from them"
            )
    return dict(config)


def torch_minor() -> str:
    """Version of torch up to the minor number: `$VITLAB_TORCH`, or this Python's, read without importing torch.

    With VITLAB_TORCH=2.11 the results of that version are found where there is another, as with VITLAB_DEVICE.

    >>> torch_minor().count(".")
    1
    """
    return os.environ.get("VITLAB_TORCH") or _installed_torch()


def _installed_torch() -> str:
    return ".".join(importlib.metadata.version("torch").split(".")[:2])


def device_type() -> str:
    """`$VITLAB_DEVICE`, or `"cuda"` where torch sees a GPU, else `"cpu"`.

    With VITLAB_DEVICE=cuda the results of a GPU are found on a machine without one (of another torch with VITLAB_TORCH
    too): tables and figures are made from them there. What is missing cannot be computed there, see `check_device`.

    Raises:
        ValueError: `$VITLAB_DEVICE` is neither.

    >>> device_type() in ("cpu", "cuda")
    True
    """
    given = os.environ.get("VITLAB_DEVICE")
    if given and given not in ("cpu", "cuda"):
        raise ValueError(f"VITLAB_DEVICE={given!r}: expected cpu or cuda")
    return given or ("cuda" if _sees_gpu() else "cpu")


def check_device() -> None:
    """Raise RuntimeError where results would be stored as a GPU's, or another torch's, that this process computes.

    >>> check_device()
    """
    if device_type() == "cuda" and not _sees_gpu():
        raise RuntimeError(
            "VITLAB_DEVICE=cuda, but torch sees no GPU here: a GPU's finished results can be read on this machine, "
            "missing ones not computed. Compute them where there is a GPU, or unset VITLAB_DEVICE"
        )
    if torch_minor() != _installed_torch():
        raise RuntimeError(
            f"VITLAB_TORCH={torch_minor()}, but torch here is {_installed_torch()}: another version's finished results "
            "can be read, missing ones not computed. Compute them with that version, or unset VITLAB_TORCH"
        )


@functools.lru_cache(maxsize=1)
def _sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def cpu_count() -> int:
    """Processors this process may use.

    >>> cpu_count() >= 1
    True
    """
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
