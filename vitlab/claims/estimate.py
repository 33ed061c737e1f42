"""A measured number with its 95 % interval (Table 2's mean ± std), and how many seeds a decision takes."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

from vitlab.studies.statistics import Interval, mean_interval


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval, and the independent observations that it rests on.

    `low` and `high` are None where there is no interval, as for a single observation: no rule decides on that. An
    exact number, such as a parameter count, comes from `exact`; its interval has no width. Of runs of which some never
    started to learn, `failed` says how many: then there is no interval.

    Raises ValueError for a number that is not finite, or lies outside its interval.

    >>> print(Estimate.of([0.0, 10.0, 5.0], "points"))
    +5 points [−7, 17], n = 3 seeds
    """

    value: float
    low: float | None
    high: float | None
    n: int
    unit: str = ""  # "points" are a difference of percentages, and print with their sign
    counted: str = "seeds"  # what n counts, in the plural
    failed: int = 0  # of the n runs, those that never left chance, see `statistics.failed_starts`

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", finite("value", self.value))
        if self.low is not None and self.high is not None:
            low, high = finite("interval bound", self.low), finite("interval bound", self.high)
            slack = 1e-9 * max(abs(low), abs(high))  # rounding of a mean
            if not low - slack <= self.value <= high + slack:
                raise ValueError(f"value {self.value} lies outside its interval ({low}, {high})")
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)

    @classmethod
    def of(
        cls, values: Sequence[float] | np.ndarray | pd.Series, unit: str = "", counted: str = "seeds", failed: int = 0
    ) -> Estimate:
        """Average independent observations, with Student's t interval, or without where some have `failed` to start.

        Raises ValueError for no values, or one that is not finite.
        """
        values = np.asarray(values, dtype=float)
        interval = mean_interval(values)
        low, high = (None, None) if interval is None or failed else interval
        return cls(float(values.mean()), low, high, len(values), unit, counted, failed)

    @classmethod
    def exact(cls, value: float, unit: str = "") -> Estimate:
        """Take a number that is counted or computed, with nothing left to chance."""
        return cls(value, value, value, 1, unit)

    @property
    def is_exact(self) -> bool:
        """Whether nothing is left to chance: made by `exact`."""
        return self.n == 1 and self.low is not None and self.low == self.high

    @property
    def interval(self) -> Interval | None:
        """(low, high); None where there is none, and for an exact number."""
        return None if self.low is None or self.high is None or self.is_exact else (self.low, self.high)

    @property
    def half_width(self) -> float:
        """Half of the interval, in the estimate's unit: 0 for an exact number, infinite without an interval."""
        return math.inf if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def sd(self) -> float:
        """Standard deviation of the n observations whose mean has this t interval; 0 or infinite as `half_width`."""
        return self.half_width if self.n < 2 else self.half_width * math.sqrt(self.n) / _t(self.n, 0.975)

    def __str__(self) -> str:
        """Print value and interval with two figures of the half-width, unit and n."""
        numbers = [self.value, *(self.interval or ())]
        largest = max(map(abs, numbers))
        if 0 < self.half_width < math.inf and largest >= 1e-3:
            figures = math.floor(math.log10(float(f"{self.half_width:.1e}")))  # of 0.0999…, rounding left, as of 0.1
            spec = f",.{max(0, 1 - figures)}f"
        elif all(float(x).is_integer() for x in numbers):
            spec = ",.0f"
        else:
            spec = ".2g" if largest < 1e-3 else ",.4g"

        def show(x: float) -> str:
            text = format(x, spec)
            return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")

        sign = "+" if self.unit == "points" and self.value > 0 and show(self.value).strip("0.,") else ""
        words = f"{sign}{show(self.value)} {self.unit}".strip()
        if self.is_exact:
            return words
        if self.interval is not None:
            words += f" [{show(self.interval[0])}, {show(self.interval[1])}]"
        words += f", n = {counting(self.n, self.counted)}"
        return f"{words}, of which {self.failed} never started to learn: no interval" if self.failed else words


def counting(n: int, counted: str) -> str:
    """Write a count with its noun.

    >>> counting(1, "seeds"), counting(1200, "images")
    ('1 seed', '1,200 images')
    """
    return f"{n:,} {counted.removesuffix('s') if n == 1 else counted}"


def finite(what: str, value: Any) -> float | int:
    """Take a plain Python number of any number; raises ValueError where it is none, or not finite."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise ValueError(f"{what} = {value!r}: expected a finite number")
    return plain


def seeds_to_decide(sd: float, distance: float, least: int = 2) -> int:
    """Count the fewest seeds whose 95 % t interval leaves out a bound `distance` away from the truth, 4 times in 5.

    Both in one unit; `sd` is the spread of a pilot. As many as make the interval's half-width `distance` would leave
    the bound out only about every other time: half of all means lie nearer to it than the truth.

    >>> seeds_to_decide(sd=1.0, distance=1.0)  # power 0.8 of a two-sided test at 5 %: 10 seeds by the usual tables
    10
    """

    def decide(n: int) -> bool:
        return (_t(n, 0.975) + _t(n, 0.8)) * sd / math.sqrt(n) <= distance

    return bisect.bisect_left(range(10**9), True, lo=least, key=decide)


def _t(n: int, quantile: float) -> float:
    """Look up that quantile of Student's t for the mean of n."""
    return float(scipy.special.stdtrit(n - 1, quantile))
