"""Checks of settings, and on what a computation runs: its device, and how many threads it has."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import threadpoolctl
import torch

Expectation = tuple[bool, str]  # whether a value is as expected, and what is expected


def whole(value: Any, least: int = 0, most: int = 10**15) -> Expectation:
    """Expect a whole number from `least` to `most`; True and False are none."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_whole and least <= value <= most, f"a whole number from {least:,} to {most:,}"


def number(value: Any, least: float = 0.0, below: float = math.inf) -> Expectation:
    """Expect a finite number, at least `least` and less than `below`; True and False are none."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and least <= float(value) < below
    words = f"number of at least {least:g}"
    return good, f"a {words}, less than {below:g}" if below < math.inf else f"a finite {words}"


def pair(values: Any, least: float = 0.0, below: float = math.inf) -> Expectation:
    """Expect a tuple of two numbers as `number` takes them."""
    good = isinstance(values, tuple) and len(values) == 2 and all(number(each, least, below)[0] for each in values)
    return good, f"a tuple of two numbers, each {number(0, least, below)[1]}"


def one_of(value: Any, known: tuple[Any, ...]) -> Expectation:
    """Expect one of the values known."""
    return value in known, f"one of {', '.join(map(repr, known))}"


def check(settings: object, expected: Mapping[str, Expectation]) -> None:
    """Raise ValueError for the first attribute of `settings` that is not as expected, with its name and value."""
    for name, (good, words) in expected.items():
        if not good:
            raise ValueError(f"{name} is {getattr(settings, name)!r:.80}; expected {words}")


def default_device() -> torch.device:
    """Choose VITLAB_DEVICE, cpu or cuda, or else this process's own GPU where there is one; ValueError without it."""
    asked = os.environ.get("VITLAB_DEVICE", "")
    if asked not in ("", "cpu", "cuda") or asked == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"VITLAB_DEVICE is {asked!r}: expected cpu, or cuda where torch finds a GPU; leave it out")
    if asked == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and the numerical libraries use one thread: with more, sums are taken in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def mapped(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Map `function` over `items` in as many threads as torch may use, at most eight; BLAS has one thread meanwhile."""
    n_threads = min(torch.get_num_threads(), len(items), 8)
    if n_threads < 2:
        return [function(item) for item in items]
    with threadpoolctl.threadpool_limits(1, "blas"), ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, items))
