"""Checks of settings: whether a value is a number in its range, and what is expected in words. No section."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

Expectation = tuple[bool, str]  # whether a value is as expected, and what is expected


def whole(value: Any, least: int = 0, most: int = 10**15) -> Expectation:
    """Whether a value is a whole number in a range; True and False are none.

    >>> whole(3, 1)[0], whole(True), whole(0.5, 1)[0]
    (True, (False, 'a whole number from 0 to 1,000,000,000,000,000'), False)
    """
    good = _is_a(numbers.Integral, value) and least <= value <= most
    return good, f"a whole number from {least:,} to {most:,}"


def number(value: Any, least: float = 0.0, below: float = math.inf) -> Expectation:
    """Whether a value is a finite number, at least `least` and less than `below`; True and False are none.

    >>> number(0.5, below=1), number(math.nan)
    ((True, 'a number of at least 0, less than 1'), (False, 'a finite number of at least 0'))
    """
    good = _is_a(numbers.Real, value) and least <= value < below
    return good, (
        f"a number of at least {least:g}, less than {below:g}"
        if below < math.inf
        else f"a finite number of at least {least:g}"
    )


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def pair(values: Any, least: float = 0.0, below: float = math.inf) -> Expectation:
    """Whether a value is a tuple of two numbers as `number` takes them.

    >>> pair((0.9, 0.999), below=1)[0], pair("x")
    (True, (False, 'a tuple of two numbers, each a finite number of at least 0'))
    """
    good = isinstance(values, tuple) and len(values) == 2 and all(number(each, least, below)[0] for each in values)
    return good, f"a tuple of two numbers, each {number(0, least, below)[1]}"


def one_of(value: Any, known: tuple[Any, ...]) -> Expectation:
    """Whether a value is one of those known.

    >>> one_of("adam", ("adam", "sgd"))
    (True, "one of 'adam', 'sgd'")
    """
    return value in known, f"one of {', '.join(map(repr, known))}"


def check(settings: object, expected: Mapping[str, Expectation]) -> None:
    """Raise ValueError for the first attribute of `settings` that is not as expected, naming it and its value.

    >>> check(1 + 2j, {"imag": number(2.0), "real": whole(1.0)})
    Traceback (most recent call last):
    ValueError: real is 1.0; expected a whole number from 0 to 1,000,000,000,000,000
    """
    for name, (good, words) in expected.items():
        if not good:
            raise ValueError(f"{name} is {getattr(settings, name)!r:.80}; expected {words}")
