"""What determines a result, as hashes: the code it imports, configuration, torch, device. No section of the paper."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab.sweep import sources

_PACKAGE = Path(__file__).resolve().parent.parent
# Packages that store, count and describe what runs return; no run computes with them.
_KEEPS_RESULTS = ("vitlab.sweep", "vitlab.ledger")
SCHEMA = 2  # of the files of results; those of an older schema are kept and not used, as those of older code are
_SEEN = {path: path.stat().st_mtime_ns for path in _PACKAGE.rglob("*.py")}  # as this process began

# Of other modules, as their code was hashed first: the import they are of, and the time of the file.
_SEEN_OUTSIDE: dict[Path, tuple[Any, int]] = {}


def code_hash(function: Callable[..., Any] | None = None) -> str:
    """First 16 hexadecimal digits of a hash over the code that computes what `function` returns; None: all of vitlab.

    It covers the files of `import_closure(function)`. Comments, docstrings and formatting do not count.

    >>> len(code_hash()), code_hash() == code_hash()
    (16, True)
    """
    paths = _files(function)
    if function is not None:
        _seen_outside(function)
    return _hash_of(paths)


def code_hash_of(name: str) -> str | None:
    """`code_hash` of a function of vitlab by its whole name, read without an import; None where there is no such one.

    >>> code_hash_of("vitlab.sweep.identity.code_hash") == code_hash(code_hash)
    True
    >>> code_hash_of("vitlab.sweep.gone.run_one") is None
    True
    """
    module, _, function = name.rpartition(".")
    path = _file_of(module) if module.startswith("vitlab.") else None
    return _hash_of(_closure(path)) if path is not None and defines(path, function) else None


def defines(path: Path, name: str) -> bool:
    """Whether a module defines a function of this name at its top; read, for an import may take seconds.

    >>> defines(Path(__file__), "defines"), defines(Path(__file__), "undefined")
    (True, False)
    """
    return name in _read(path).functions


def _hash_of(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        name = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.name)
        digest.update(f"{name.as_posix()}\0{_read(path).hash}\0".encode())
    sources.keep()
    return digest.hexdigest()[:16]


def import_closure(function: Callable[..., Any]) -> list[Path]:
    """The module of `function` and the modules of vitlab that it imports, directly or by way of others, sorted.

    Found in the syntax trees, so an import inside a function counts as one at the top does. Left out are vitlab.sweep
    and vitlab.ledger, which keep and describe results, and vitlab/__init__.py, which holds the version alone.

    >>> from vitlab.training.loop import train
    >>> names = [path.name for path in import_closure(train)]
    >>> "optim.py" in names, "rollout.py" in names
    (True, False)
    """
    return _closure(_own_file(function))


def _own_file(function: Callable[..., Any]) -> Path:
    return Path(inspect.getfile(inspect.unwrap(function))).resolve()


def _closure(start: Path) -> list[Path]:
    closure, queue = {start}, [start]
    while queue:
        for name in _read(queue.pop()).imports:
            path = None if name.startswith(_KEEPS_RESULTS) else _file_of(name)
            if path is not None and path not in closure:
                closure.add(path)
                queue.append(path)
    return sorted(closure)


def changed_since_import(function: Callable[..., Any]) -> list[str]:
    """Files of the function's code that were edited after this process started: what it has imported is older.

    Of a module outside of vitlab: after its code was hashed first, which the first sweep does. A reload is an import.

    A result computed here now would be stored under the name of code that did not compute it.

    >>> changed_since_import(code_hash)
    []
    """
    paths, seen = import_closure(function), _SEEN | _seen_outside(function)
    return [path.name for path in paths if path in seen and path.stat().st_mtime_ns != seen[path]]


def _seen_outside(function: Callable[..., Any]) -> dict[Path, int]:
    """The file of the function's own module, where it is none of vitlab, with its time when this was asked first."""
    path = _own_file(function)
    if path.is_relative_to(_PACKAGE):
        return {}
    spec = getattr(sys.modules.get(inspect.unwrap(function).__module__), "__spec__", None)  # a reload makes another
    if path not in _SEEN_OUTSIDE or _SEEN_OUTSIDE[path][0] is not spec:
        _SEEN_OUTSIDE[path] = spec, path.stat().st_mtime_ns
    return {path: _SEEN_OUTSIDE[path][1]}


def check_code(function: Callable[..., Any], code: str) -> None:
    """Raise RuntimeError where what this process computes would be stored under the name of another code, or device.

    `code`: the `code_hash` in the names of the results. A process that began after an edit has code of its own.

    >>> check_code(code_hash, code_hash(code_hash))
    """
    check_device()
    if changed := changed_since_import(function):
        raise RuntimeError(
            f"{', '.join(changed)} changed after this process had started: restart it (in a notebook: Kernel,"
            " Restart), or results would be stored under the name of code that did not compute them"
        )
    if (here := code_hash(function)) != code:
        raise RuntimeError(
            f"the code of {function.__module__}.{function.__qualname__} was edited after this sweep had begun (it was"
            f" {code}, is {here}): restart it (in a notebook: Kernel, Restart); nothing was computed with it"
        )


def _files(function: Callable[..., Any] | None) -> list[Path]:
    return sorted(_PACKAGE.rglob("*.py")) if function is None else import_closure(function)


def _read(path: Path) -> sources.Module:
    package = ["vitlab", *path.parent.relative_to(_PACKAGE).parts] if path.is_relative_to(_PACKAGE) else []
    return sources.read(path, package)


def _file_of(name: str) -> Path | None:
    """The file of a module of vitlab; None for vitlab itself and for names that are no modules."""
    base = _PACKAGE.joinpath(*name.split(".")[1:])
    if base == _PACKAGE:
        return None
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


def made_by(function: Callable[..., Any] | None = None) -> dict[str, str]:
    """What of this process determines the results it computes: code, torch, device, as `run_key` takes them.

    >>> sorted(made_by())
    ['code', 'device', 'torch']
    """
    return {"code": code_hash(function), "torch": torch_minor(), "device": device_type()}


def run_key(
    function: Callable[..., Any] | str,
    config: Mapping[str, Any],
    code: str | None = None,
    torch: str | None = None,
    device: str | None = None,
) -> str:
    """Name of a run: 20 hexadecimal digits made from everything that determines its result.

    That is the function's qualified name, the configuration, `code_hash(function)`, torch's minor version
    and the device's type; the last three are this process's where they are not given (see `made_by`). Wall
    time and the number of workers have no part in it. A function of vitlab may be given by its whole name.

    Raises:
        ValueError: a configuration value is not a finite number, a string, a boolean or None.

    >>> run_key(len, {"a": 1, "b": 2}, code="") == run_key(len, {"b": 2, "a": 1}, code="")
    True
    """
    name = function if isinstance(function, str) else f"{function.__module__}.{function.__qualname__}"
    if code is None:
        code = code_hash_of(name) if isinstance(function, str) else code_hash(function)
    identity = {
        "schema": SCHEMA,
        "function": name,
        "config": _checked(config),
        "code": code,
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
