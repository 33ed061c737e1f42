"""Intervals around a number: how much of it is chance (the paper gives mean ± std of three runs, Table 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.special
from jaxtyping import Bool, Float

Interval = tuple[float, float]


def mean_interval(values: Sequence | np.ndarray) -> Interval | None:
    """95 % Student's t interval of the mean of `values` [n]; None for a single observation.

    The values are the independent units (seeds, images), not what is measured within one. It covers the mean of normal
    values 95 times in 100 for any n, and of skewed ones nearly as often; a percentile bootstrap of three seeds does so
    74 times in 100, of twenty 92. Where some runs never started to learn, no interval of the mean does: see
    `failed_starts`.

    Raises:
        ValueError: no values, one that is not finite, or values that are no list of numbers.

    >>> [round(bound, 2) for bound in mean_interval([0.5, 0.6, 0.7])]
    [0.35, 0.85]
    """
    values = _checked(values)
    if len(values) == 1:
        return None
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def jackknife_interval(whole: float, left_out: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """95 % interval of a statistic, from its values with one group of samples left out at a time.

    The delete-a-group jackknife, with Student's t. It suits principal components, where the bootstrap's repeated
    samples would count as variance explained.

    Raises:
        ValueError: fewer than two groups, or a value that is not finite.

    >>> [round(bound, 2) for bound in jackknife_interval(0.6, [0.55, 0.6, 0.65])]  # as of 0.5, 0.6, 0.7
    [0.35, 0.85]
    """
    _checked([whole])
    values = _checked(left_out)
    if len(values) < 2:
        raise ValueError(f"{len(values)} groups left out, expected 2 or more to see a spread")
    error = math.sqrt((len(values) - 1) * values.var())
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * error
    return float(whole - half), float(whole + half)


def failed_starts(accuracies: Sequence[float] | np.ndarray, n_images: int, chance: float) -> Bool[np.ndarray, " n"]:
    """Which runs of one setting never left chance while others did; none where all did or none did.

    A run is at chance where guessing would be right as often on `n_images` once in a thousand times or more; the
    others count as started where their median is three times as far above chance as that bound. Accuracies are shares,
    0…1. Values of such a mixture lie in two heaps: a t interval of their mean covers it half of the time.

    >>> failed_starts([0.71, 0.10, 0.69], n_images=2000, chance=0.1).tolist()
    [False, True, False]
    >>> failed_starts([0.11, 0.10, 0.125], n_images=2000, chance=0.1).any()  # none has left chance
    np.False_
    """
    values = _checked(accuracies)
    bound = np.ceil(scipy.special.bdtrik(1 - 1e-3, n_images, chance)) / n_images
    at_chance = values <= bound
    if at_chance.all() or np.median(values[~at_chance]) - chance < 3 * (bound - chance):
        return np.zeros(len(values), dtype=bool)
    return at_chance


def coverage(
    interval: Callable[[np.ndarray], Interval | None],
    sample: Callable[[np.random.Generator], np.ndarray],
    truth: float,
    repeats: int = 2000,
    seed: int = 0,
) -> float:
    """The share of samples whose interval holds the truth, by simulation; 0.95 is what a 95 % interval promises.

    Samples that are given no interval do not count.

    Raises:
        ValueError: no sample was given an interval, as for `repeats` below 1.

    >>> round(coverage(mean_interval, lambda generator: generator.normal(size=3), truth=0.0), 2)
    0.95
    """
    generator = np.random.default_rng(seed)
    found = [bounds for _ in range(repeats) if (bounds := interval(sample(generator))) is not None]
    if not found:
        raise ValueError(f"none of {repeats} samples was given an interval: there is nothing to count")
    return float(np.mean([low <= truth <= high for low, high in found]))


def _checked(values: Sequence | np.ndarray) -> Float[np.ndarray, " n"]:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"cannot make an interval of {values!r:.80}: expected a list of one or more finite numbers, one for each "
            "independent unit"
        )
    return values
