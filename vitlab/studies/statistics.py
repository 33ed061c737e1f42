"""Statistics of runs: intervals, paired differences, crossings, frontiers (Table 2 has mean ± std of three)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.special
from jaxtyping import Bool, Float

Interval = tuple[float, float]
Numbers = Sequence[float] | np.ndarray


def mean_interval(values: Numbers) -> Interval | None:
    """Compute Student's t interval, 95 %, of the mean of independent values (seeds, images) [n]; None for a single one.

    It covers the mean of normal values 95 times in 100 for any n, and of skewed ones nearly as often; a percentile
    bootstrap of three seeds does so 74 times in 100, of twenty 92. Where some runs never started to learn, none does:
    see `failed_starts`. Raises ValueError where the values are not finite numbers, one or more.

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


def coverage(
    interval: Callable[[np.ndarray], Interval | None],
    sample: Callable[[np.random.Generator], np.ndarray],
    truth: float,
    repeats: int = 2000,
    seed: int = 0,
) -> float:
    """Simulate in what share of samples an interval holds the truth; of samples without one none is counted."""
    generator = np.random.default_rng(seed)
    found = [bounds for _ in range(repeats) if (bounds := interval(sample(generator))) is not None]
    return float(np.mean([low <= truth <= high for low, high in found]))


def _checked(values: Numbers) -> Float[np.ndarray, " n"]:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"{values!r:.80}: expected a list of one or more finite numbers, one a run or an image")
    return values


def paired(
    rows: pd.DataFrame, by: str, first: str, second: str, value: str = "test_accuracy", at: Sequence[str] = ()
) -> pd.Series:
    """Subtract `value` where column `by` is `second` from where it is `first`, seed by seed.

    Over seed, or over (*at, seed) where columns `at` tell further cells apart; a seed that lacks one of the two is left
    out. Raises ValueError where a cell has two rows.
    """
    wide = rows[rows[by].isin((first, second))].pivot(index=[*at, "seed"], columns=by, values=value)
    wide = wide.reindex(columns=[first, second])
    return (wide[first] - wide[second]).dropna().rename("difference")


def failed_pairs(
    rows: pd.DataFrame, by: str, first: str, second: str, n_images: int, chance: float, value: str = "test_accuracy"
) -> int:
    """Count the seeds of `paired` of which either run never left chance while others did (see `failed_starts`)."""
    wide = rows[rows[by].isin((first, second))].pivot(index="seed", columns=by, values=value).dropna()
    failed = [failed_starts(wide[each].to_numpy(), n_images, chance) for each in (first, second)]
    return int(np.logical_or(*failed).sum())


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

    None where there is no such crossing: it ends at zero or below, or is never below zero before. Raises ValueError for
    sizes that are not positive and rising, or not as many as finite differences.

    >>> round(crossing([100, 10_000], [-0.1, 0.1]), 6)
    1000.0
    """
    size = float(_crossings(sizes, np.asarray(difference, dtype=float)[None])[0])
    return size if 0 < size < math.inf else None


def _crossings(sizes: Numbers, differences: Float[np.ndarray, "n sizes"]) -> Float[np.ndarray, " n"]:
    """Find where each row crosses: 0 if it is never below zero and ends above, infinite if it does not end above."""
    x, d = np.asarray(sizes, dtype=float), np.asarray(differences, dtype=float)
    if x.shape != d.shape[1:] or not (x > 0).all() or not (np.diff(x) > 0).all() or not np.isfinite(d).all():
        raise ValueError(f"sizes {sizes!r:.80}, differences {d!r:.80}: expected as many, finite; sizes > 0, rising")
    last = d.shape[1] - 1 - (d <= 0)[:, ::-1].argmax(1)  # where it is behind for the last time
    at = np.minimum(last, len(x) - 2)[:, None]
    before, after = (np.take_along_axis(d, k, 1)[:, 0] for k in (at, at + 1))
    log = np.log(x)
    with np.errstate(all="ignore"):  # of rows that do not cross, which are not asked for what comes out
        share = before / (before - after)  # of the way to the next size where the line is zero
        crossed = np.exp(log[at[:, 0]] + share * (log[at[:, 0] + 1] - log[at[:, 0]]))
    return np.where(d[:, -1] <= 0, math.inf, np.where((d < 0).any(1), crossed, 0.0))


def crossing_interval(
    sizes: Numbers, difference: Float[np.ndarray, "seeds sizes"], seed: int = 0, draws: int = 2000
) -> tuple[Interval, float]:
    """Compute the 95 % interval of where the mean over the seeds crosses, and in what share of the draws it does.

    The mean of the seeds is drawn from a multivariate t distribution, with the seeds' own spread and correlation from
    size to size, and every draw is asked where it crosses. The lower bound is 0 where the first may have been ahead
    from the smallest size on; the upper one is infinite where it may never be ahead. Raises ValueError as `crossing`,
    and for a single seed.
    """
    values = np.asarray(difference, dtype=float)
    if values.ndim != 2 or len(values) < 2:
        raise ValueError(f"differences of shape {values.shape}: expected [seeds, sizes], of two seeds or more")
    generator, n = np.random.default_rng(seed), len(values)
    residuals = (values - values.mean(axis=0)) / math.sqrt(n * (n - 1))
    # Normal weights on the residuals have their covariance; over a chi-squared they are Student's t.
    scale = np.sqrt((n - 1) / generator.chisquare(n - 1, size=(draws, 1)))
    means = values.mean(axis=0) + scale * (generator.normal(size=(draws, n)) @ residuals)
    found = np.sort(_crossings(sizes, means))
    low, high = found[int(0.025 * draws)], found[math.ceil(0.975 * draws) - 1]
    return (float(low), float(high)), float(np.mean((found > 0) & (found < math.inf)))


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
    strictly = (x[None] < x[:, None]) | (y[None] > y[:, None])
    return ~np.any(cheaper & better & strictly, axis=1)


def fit_frontier(flops: Numbers, accuracy: Numbers) -> Line:
    """Fit the least-squares line through the points of the frontier, in logit(accuracy) over log10(FLOPs).

    A logit, for an accuracy cannot pass 1; accuracies of 0 and 1 are taken as half a per mille from it. Through a
    single point the line is constant.
    """
    x, y = np.asarray(flops, dtype=float), np.asarray(accuracy, dtype=float)
    kept = frontier(x, y)
    log, value = np.log10(x[kept]), scipy.special.logit(np.clip(y[kept], 0.0005, 0.9995))
    slope, intercept = np.polyfit(log, value, 1) if len(np.unique(log)) > 1 else (0.0, value.mean())
    return Line(float(slope), float(intercept), (x[kept].min(), x[kept].max()), x.max())


def compute_factor(first: Line, second: Line) -> float | None:
    """Compute how many times the compute of `first` the second needs for equal accuracy: 2 means twice as much.

    The horizontal distance between the lines, as a logarithm, averaged over the logits of the accuracies that both
    reach within their points: from 0.5 to 0.73 counts as much as from 0.95 to 0.98. None where there are no such
    accuracies, or a line does not rise.
    """
    low = max(line.logit_at(line.flops[0]) for line in (first, second))
    high = min(line.logit_at(line.flops[1]) for line in (first, second))
    if low >= high or min(first.slope, second.slope) <= 0:
        return None
    middle = (low + high) / 2  # in logits the distance is a straight line too: its mean is that in the middle
    logs = [(middle - line.intercept) / line.slope for line in (first, second)]
    return float(10 ** (logs[1] - logs[0]))


def advantages(first: Line, second: Line) -> tuple[float, float] | None:
    """Subtract the second line's accuracy from the first's, at the least and at the most compute both spent.

    None where the runs of the one all cost less than those of the other.
    """
    low, high = max(first.flops[0], second.flops[0]), min(first.spent, second.spent)
    if low >= high:
        return None
    return first.at(low) - second.at(low), first.at(high) - second.at(high)
