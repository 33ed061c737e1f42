"""Intervals around a number: how much of it is chance (the paper gives mean ± std of three runs, Table 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.stats

Interval = tuple[float, float]


def bootstrap_interval(
    values: Sequence | np.ndarray, seed: int | np.random.Generator = 0, resamples: int = 2000
) -> Interval | None:
    """95 % percentile bootstrap interval of the mean; None for a single observation.

    `values` [n] are the independent units (images, seeds), not what is measured within one. With fewer than about
    ten units it is too narrow: see `mean_interval`.

    Raises:
        ValueError: no values, or one that is not finite.

    >>> low, high = bootstrap_interval([1.0, 2.0, 3.0, 4.0, 5.0] * 20)
    >>> low < 3.0 < high
    True
    >>> bootstrap_interval([1.0]) is None
    True
    """
    values = _checked(values)
    if len(values) == 1:
        return None
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(values), size=(resamples, len(values)))
    means = np.array([float(np.mean(values[draw])) for draw in draws])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def mean_interval(values: Sequence | np.ndarray) -> Interval | None:
    """95 % Student's t interval of the mean: for a handful of seeds; None for a single observation.

    Raises:
        ValueError: no values, or one that is not finite.

    >>> [round(bound, 2) for bound in mean_interval([0.5, 0.6, 0.7])]
    [0.35, 0.85]
    """
    values = _checked(values).astype(float)
    if len(values) == 1:
        return None
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def images_interval(values: Sequence | np.ndarray | pd.Series, seed: int = 0) -> Interval | None:
    """95 % interval of a mean over images: bootstrap, or Student's for fewer than ten; None for one image.

    >>> images_interval([1.0])
    """
    values = np.asarray(values, dtype=float)
    return bootstrap_interval(values, seed) if len(values) >= 10 else mean_interval(values)


def jackknife_interval(whole: float, left_out: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """95 % interval of a statistic, from its values with one group of samples left out at a time.

    The delete-a-group jackknife, with Student's t. It suits principal components, where the bootstrap's repeated
    samples would count as variance explained.

    Raises:
        ValueError: fewer than two groups.

    >>> [round(bound, 2) for bound in jackknife_interval(0.6, [0.55, 0.6, 0.65])]  # as of 0.5, 0.6, 0.7
    [0.35, 0.85]
    """
    values = np.asarray(left_out, dtype=float)
    if len(values) < 2:
        raise ValueError(f"{len(values)} groups left out, expected 2 or more to see a spread")
    error = math.sqrt((len(values) - 1) * values.var())
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * error
    return float(whole - half), float(whole + half)


def _checked(values: Sequence | np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim == 0 or len(values) == 0 or not np.isfinite(values.astype(float)).all():
        raise ValueError(f"cannot make an interval of {values!r:.80}: expected one or more finite values")
    return values
