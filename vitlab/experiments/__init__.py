"""Experiments: a preset goes in, a tidy table comes out (paper §4); the same from a notebook or a shell."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitlab.sweep import identity


def names() -> tuple[str, ...]:
    """Every experiment there is: the modules of this folder that define a function of their own name.

    >>> "runner" in names()
    False
    """
    return tuple(path.stem for path in sorted(Path(__file__).parent.glob("*.py")) if identity.defines(path, path.stem))


def find(name: str) -> Callable[..., Any]:
    """The function of an experiment: `preset, seed, jobs, folder` and its own settings → tidy DataFrame.

    Raises:
        ValueError: there is no such experiment; the message lists those there are.

    >>> find("data_scalling")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown experiment 'data_scalling': choose one of ...
    """
    known = names()
    if name not in known:
        raise ValueError(f"unknown experiment {name!r}: choose one of {', '.join(known) or '(none here)'}")
    return getattr(importlib.import_module(f"{__name__}.{name}"), name)
