"""A measured number with its 95 % interval (Table 2 has mean ± std)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vitlab.studies.statistics import Interval, Numbers, mean_interval


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval, and the independent observations that it rests on.

    `low` and `high` are None where there is no interval, as for a single observation: no rule decides on that.
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

    def __post_init__(self) -> None:
        low, high = (self.value if bound is None else bound for bound in (self.low, self.high))
        if not all(map(math.isfinite, (self.value, low, high))):
            raise ValueError(f"value {self.value}, interval ({self.low}, {self.high}): expected finite numbers")
        slack = 1e-9 * max(abs(low), abs(high))  # rounding of a mean
        if not low - slack <= self.value <= high + slack:
            raise ValueError(f"value {self.value} lies outside its interval ({low}, {high})")

    @classmethod
    def of(cls, values: Numbers, unit: str = "", counted: str = "seeds") -> Estimate:
        """Average independent observations, with Student's t interval."""
        low, high = mean_interval(values) or (None, None)
        return cls(float(np.mean(values)), low, high, len(values), unit, counted)

    @classmethod
    def exact(cls, value: float, unit: str = "") -> Estimate:
        """Take a number that is counted or computed, with nothing left to chance: its interval has no width."""
        return cls(float(value), float(value), float(value), 1, unit)

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
        value, *bounds = (format(x, f"z{spec}").replace("-", "−") for x in numbers)  # z: no −0
        sign = "+" if self.unit == "points" and self.value > 0 and value.strip("0.,") else ""
        words = f"{sign}{value} {self.unit}".strip() + (f" [{', '.join(bounds)}]" if bounds else "")
        if not self.is_exact:
            words += f", n = {self.n:,} {self.counted.removesuffix('s') if self.n == 1 else self.counted}"
        return words if self.n == 1 or self.low is not None else f"{words}, no interval"
