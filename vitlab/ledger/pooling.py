"""Two independent samples of one number: as one estimate, and whether they differ by more than their spread (§4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy.special

from vitlab.ledger.estimate import Estimate

RATIO = "×"  # the unit of ratios, whose intervals are made of their logarithms
_SLACK = 1e-6  # of the half-width: how far from the middle of its interval a mean may lie, by rounding


@dataclass(frozen=True)
class _Sample:
    """Mean, variance and size of a sample."""

    mean: float
    variance: float
    n: int


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
    mean = (one.n * one.mean + two.n * two.mean) / n
    squares = sum((each.n - 1) * each.variance + each.n * (each.mean - mean) ** 2 for each in samples)
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
    one, two = samples
    errors = [each.variance / each.n for each in samples]
    if not sum(errors):
        return one.mean != two.mean
    freedom = sum(errors) ** 2 / sum(error**2 / (each.n - 1) for error, each in zip(errors, samples, strict=True))
    return abs(one.mean - two.mean) > float(scipy.special.stdtrit(freedom, 0.975)) * math.sqrt(sum(errors))


def _samples(first: Estimate, second: Estimate) -> tuple[_Sample, _Sample] | None:
    """Both as samples, of logarithms if they are ratios."""
    if (first.unit, first.counted) != (second.unit, second.counted):
        return None
    one, two = _sample(first), _sample(second)
    return None if one is None or two is None else (one, two)


def _sample(estimate: Estimate) -> _Sample | None:
    if estimate.n < 2 or estimate.low is None or estimate.high is None:
        return None
    mean, low, high = estimate.value, estimate.low, estimate.high
    if estimate.unit == RATIO:
        if low <= 0:
            return None
        mean, low, high = math.log(mean), math.log(low), math.log(high)
    half = (high - low) / 2
    if abs((low + high) / 2 - mean) > _SLACK * max(half, abs(mean) * _SLACK):
        return None
    error = half / float(scipy.special.stdtrit(estimate.n - 1, 0.975))
    return _Sample(mean, estimate.n * error**2, estimate.n)


def _back(x: float, unit: str) -> float:
    return math.exp(x) if unit == RATIO else x
