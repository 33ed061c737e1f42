"""Two independent samples of one number: as one estimate, and whether they differ by more than their spread (§4)."""

from __future__ import annotations

import math
from dataclasses import replace

import scipy.special

from vitlab.ledger.estimate import Estimate

RATIO = "×"  # the unit of ratios, whose intervals are made of their logarithms
_SLACK = 1e-6  # of the half-width: how far from the middle of its interval a mean may lie, by rounding


def as_one(first: Estimate, second: Estimate) -> Estimate | None:
    """The estimate from the observations of both, as if they had been averaged as one; None where that is not known.

    Exact, without the observations: mean, t interval and n of a sample give its mean and variance. Ratios (unit ×) are
    pooled by their logarithms. Not known where one has no interval, or one that is not a t interval of the mean, or
    where unit or what n counts differ.

    >>> print(as_one(Estimate.of([1.0, 2.0, 3.0]), Estimate.of([4.0, 5.0, 6.0])), "|", Estimate.of([1, 2, 3, 4, 5, 6]))
    3.5 [1.5, 5.5], n = 6 seeds | 3.5 [1.5, 5.5], n = 6 seeds
    """
    samples = _samples(first, second)
    if samples is None:
        return None
    one, two = samples
    n = one.n + two.n
    mean = (one.n * one.value + two.n * two.value) / n
    squares = sum((each.n - 1) * each.sd**2 + each.n * (each.value - mean) ** 2 for each in samples)
    half = float(scipy.special.stdtrit(n - 1, 0.975)) * math.sqrt(squares / (n - 1) / n)
    value, low, high = (_back(x, first.unit) for x in (mean, mean - half, mean + half))
    return Estimate(value, low, high, n, first.unit, first.counted)


def differ(first: Estimate, second: Estimate) -> bool | None:
    """Whether two means lie farther apart than those of one population do 19 times in 20; None where that is not known.

    Welch's t test at 5 %, which does not take the spreads to be equal. Known for what `as_one` is known for.

    >>> differ(Estimate.of([1.0, 2.0, 3.0]), Estimate.of([2.0, 3.0, 4.0]))
    False
    """
    samples = _samples(first, second)
    if samples is None:
        return None
    from scipy.stats import ttest_ind_from_stats  # takes a second

    one, two = samples
    test = ttest_ind_from_stats(one.value, one.sd, one.n, two.value, two.sd, two.n, equal_var=False)
    return bool(test.pvalue < 0.05)


def _samples(first: Estimate, second: Estimate) -> tuple[Estimate, Estimate] | None:
    """Both, of logarithms if they are ratios; None where one is no mean with its t interval, or they count unlike."""
    if (first.unit, first.counted) != (second.unit, second.counted):
        return None
    one, two = _sample(first), _sample(second)
    return None if one is None or two is None else (one, two)


def _sample(estimate: Estimate) -> Estimate | None:
    if estimate.interval is None:
        return None
    low, high = estimate.interval
    if estimate.unit == RATIO:
        if low <= 0:
            return None
        low, high = math.log(low), math.log(high)
        estimate = replace(estimate, value=math.log(estimate.value), low=low, high=high)
    off = abs((low + high) / 2 - estimate.value)
    return None if off > _SLACK * max(estimate.half_width, abs(estimate.value) * _SLACK) else estimate


def _back(x: float, unit: str) -> float:
    return math.exp(x) if unit == RATIO else x
