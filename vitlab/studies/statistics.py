"""Statistics of runs: intervals, paired differences, crossings, frontiers (Table 2 has mean ± std of three)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


def jackknife_interval(whole: float, left_out: Numbers) -> Interval:
    """Compute a statistic's 95 % interval from its values with one of two or more groups of samples left out at a time.

    The delete-a-group jackknife, with Student's t. It suits principal components, where the bootstrap's repeated
    samples would count as variance explained.
    """
    values = _checked(left_out)
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * math.sqrt((len(values) - 1) * values.var())
    return float(whole - half), float(whole + half)


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


@dataclass(frozen=True)
class Line:
    """A frontier: logit(accuracy) = intercept + slope · log10(FLOPs) over its points' range, and constant beyond."""

    slope: float
    intercept: float
    flops: tuple[float, float]  # smallest and largest of the frontier's points
    spent: float  # FLOPs of the most expensive run, on the frontier or not: up to there the line is known

    def at(self, flops: float) -> float:
        """Read the accuracy (0…1) for so much compute: of the line, and beyond its last point that of the point."""
        return float(scipy.special.expit(self.logit_at(flops)))

    def logit_at(self, flops: float) -> float:
        """Read the logit of the accuracy for so much compute."""
        return self.intercept + self.slope * math.log10(min(flops, self.flops[1]))


def frontier(flops: Numbers, accuracy: Numbers) -> Bool[np.ndarray, " n"]:
    """Find the Pareto frontier: no other point is more accurate at equal or less compute, or as accurate at less."""
    x, y = _checked(flops), _checked(accuracy)
    cheaper, better = x[None] <= x[:, None], y[None] >= y[:, None]
    return ~np.any(cheaper & better & ((x[None] < x[:, None]) | (y[None] > y[:, None])), axis=1)


def fit_frontier(flops: Numbers, accuracy: Numbers) -> Line:
    """Fit logit(accuracy), at most ±7.6, over log10(FLOPs) by least squares to the frontier; one point: a constant."""
    x, y = np.asarray(flops, dtype=float), np.asarray(accuracy, dtype=float)
    kept = frontier(x, y)
    log, value = np.log10(x[kept]), scipy.special.logit(np.clip(y[kept], 0.0005, 0.9995))
    slope, intercept = np.polyfit(log, value, 1) if len(np.unique(log)) > 1 else (0.0, value.mean())
    return Line(float(slope), float(intercept), (x[kept].min(), x[kept].max()), x.max())


def compute_factor(first: Line, second: Line) -> float | None:
    """Compute how many times the compute of `first` the second needs for equal accuracy: 2 means twice as much.

    The horizontal distance between the lines, as a logarithm, averaged over the logits of the accuracies that both
    reach within their points. None where there are no such accuracies, or a line does not rise.
    """
    low = max(line.logit_at(line.flops[0]) for line in (first, second))
    high = min(line.logit_at(line.flops[1]) for line in (first, second))
    if low >= high or min(first.slope, second.slope) <= 0:
        return None
    middle = (low + high) / 2  # in logits the distance is a straight line too: its mean is that in the middle
    logs = [(middle - line.intercept) / line.slope for line in (first, second)]
    return float(10 ** (logs[1] - logs[0]))


def advantages(first: Line, second: Line) -> tuple[float, float] | None:
    """Subtract the second line's accuracy from the first's, at the least and the most compute both spent, if any."""
    low, high = max(first.flops[0], second.flops[0]), min(first.spent, second.spent)
    if low >= high:
        return None
    return first.at(low) - second.at(low), first.at(high) - second.at(high)
