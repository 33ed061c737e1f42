"""Statistics of runs: intervals, paired differences, crossings, frontiers (Table 2 has mean ± std of three)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
import scipy.special
from jaxtyping import Bool, Float

Interval = tuple[float, float]
Numbers: TypeAlias = Sequence[float] | np.ndarray | pd.Series


def mean_interval(values: Numbers) -> Interval | None:
    """Compute Student's t interval, 95 %, of the mean of independent values (seeds, images) [n]; None for a single one.

    It covers the mean of normal values 95 times in 100 for any n, of log-normal ones 82 to 84 for n from 3 to 10; a
    percentile bootstrap of three normal ones 74, of twenty 92. Raises ValueError for values that are not finite.

    >>> [round(bound, 2) for bound in mean_interval([0.5, 0.6, 0.7])]
    [0.35, 0.85]
    """
    values = _checked(values)
    if len(values) == 1:
        return None
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def failed_starts(accuracies: Numbers, n_images: int, chance: float) -> Bool[np.ndarray, " n"]:
    """Tell which runs of one setting never left chance while others did; none where all did or none did.

    A run is at chance where guessing would be right as often on `n_images` once in a thousand times or more; the
    others count as started where their median is three times as far above chance as that bound. A t interval of the
    mean of such a mixture covers it half of the time. Accuracies are shares, 0…1.

    >>> failed_starts([0.71, 0.10, 0.69], n_images=2000, chance=0.1).tolist()
    [False, True, False]
    """
    values = _checked(accuracies)
    bound = np.ceil(scipy.special.bdtrik(1 - 1e-3, n_images, chance)) / n_images
    at_chance = values <= bound
    if at_chance.all() or np.median(values[~at_chance]) - chance < 3 * (bound - chance):
        return np.zeros(len(values), dtype=bool)
    return at_chance


def _checked(values: Numbers) -> Float[np.ndarray, " n"]:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"{values!r:.80}: expected a list of one or more finite numbers, one a run or an image")
    return values


def paired(
    rows: pd.DataFrame, by: str, first: str, second: str, value: str = "test_accuracy", at: Sequence[str] = ()
) -> pd.Series:
    """Subtract `value` where column `by` is `second` from where it is `first`, seed by seed.

    Over seed and columns `at`; a seed that lacks one of the two is left out. Raises ValueError for a cell of two rows.
    """
    wide = rows[rows[by].isin((first, second))].pivot(index=[*at, "seed"], columns=by, values=value)
    wide = wide.reindex(columns=[first, second])
    return (wide[first] - wide[second]).dropna().rename("difference")


def summary(rows: pd.DataFrame, by: Sequence[str], value: str = "test_accuracy") -> pd.DataFrame:
    """Average `value` over seeds: the columns `by`, mean, low, high (95 % t interval; the mean for one seed), n."""
    found = []
    for at, values in rows.groupby(list(by), sort=False)[value]:
        mean = float(values.mean())
        low, high = mean_interval(values.to_numpy()) or (mean, mean)
        found.append((*at, mean, low, high, len(values)))
    return pd.DataFrame(found, columns=[*by, "mean", "low", "high", "n"])


def crossing(sizes: Numbers, difference: Numbers) -> float | None:
    """Find the size from which `difference` is above zero and stays so, by straight lines over the sizes' logarithm.

    None where it ends at zero or below, or is never below zero before. Raises ValueError for sizes that are not
    positive and rising, or not as many as finite differences.

    >>> round(crossing([100, 10_000], [-0.1, 0.1]), 6)
    1000.0
    """
    x, d = np.asarray(sizes, dtype=float), _checked(difference)
    if x.shape != d.shape or not (x > 0).all() or not (np.diff(x) > 0).all():
        raise ValueError(f"sizes {sizes!r:.80}: expected as many as differences, above zero and rising")
    if d[-1] <= 0 or not (d < 0).any():
        return None
    last = np.flatnonzero(d <= 0)[-1]  # where it is behind for the last time
    share = d[last] / (d[last] - d[last + 1])  # of the way to the next size where the line is zero
    return float(x[last] * (x[last + 1] / x[last]) ** share)


def frontier(flops: Numbers, accuracy: Numbers) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Find the Pareto frontier: log10(FLOPs) and accuracies of runs that no other reaches with as much compute or less.

    Both rise, so that `np.interp` reads off it the accuracy for a compute, or the compute for an accuracy.
    """
    x, y = _checked(flops), _checked(accuracy)
    order = np.lexsort((-y, x))
    best = np.maximum.accumulate(y[order])
    kept = np.diff(best, prepend=-np.inf) > 0
    return np.log10(x[order][kept]), best[kept]
