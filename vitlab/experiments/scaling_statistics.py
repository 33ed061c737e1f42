"""Statistics of scaling curves: who is ahead, where curves cross, slopes, frontiers, gaps (§4.3, §4.4, Fig. 3 to 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.special
from jaxtyping import Bool, Float

from vitlab.ledger.intervals import Interval, mean_interval


def differences(runs: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Test accuracy of model `first` minus that of `second`, for every size and seed.

    Rows: n_train, seed, difference (0…1), and the 95 % t interval low, high of that size's mean over the seeds
    (the mean itself where there is one seed).

    >>> runs = pd.DataFrame({"model": ["a", "b"], "n_train": 10, "seed": 0, "test_accuracy": [0.5, 0.4]})
    >>> differences(runs, "a", "b").round(3).to_dict("records")
    [{'n_train': 10, 'seed': 0, 'difference': 0.1, 'low': 0.1, 'high': 0.1}]
    """
    wide = runs.pivot(index=["n_train", "seed"], columns="model", values="test_accuracy")
    paired = (wide[first] - wide[second]).rename("difference").reset_index()
    groups = {size: rows.to_numpy() for size, rows in paired.groupby("n_train")["difference"]}
    intervals = {size: mean_interval(group) or (group.mean(), group.mean()) for size, group in groups.items()}
    paired["low"] = paired["n_train"].map(lambda size: intervals[size][0])
    paired["high"] = paired["n_train"].map(lambda size: intervals[size][1])
    return paired


def crossing(sizes: Sequence[float] | np.ndarray, difference: Sequence[float] | np.ndarray) -> float | None:
    """The size from which `difference` is above zero and stays so, by straight lines over the sizes' logarithm.

    None where there is no such crossing: it ends at zero or below, or is never below zero before.

    Raises:
        ValueError: sizes that are not positive and rising, or not as many as differences.

    >>> round(crossing([100, 10_000], [-0.1, 0.1]), 6)
    1000.0
    >>> crossing([100, 1000], [-0.1, -0.05]) is None
    True
    """
    x, d = np.asarray(sizes, dtype=float), np.asarray(difference, dtype=float)
    if x.shape != d.shape or x.ndim != 1 or (x <= 0).any() or (np.diff(x) <= 0).any():
        raise ValueError(f"sizes {sizes!r:.80}, differences {difference!r:.80}: expected as many; sizes > 0, rising")
    behind = np.flatnonzero(d <= 0)
    if len(behind) == 0 or behind[-1] == len(d) - 1 or not (d < 0).any():
        return None
    i = behind[-1]
    share = d[i] / (d[i] - d[i + 1])  # of the way from size i to the next where the line is zero
    return float(math.exp(math.log(x[i]) + share * (math.log(x[i + 1]) - math.log(x[i]))))


def crossing_interval(
    sizes: Sequence[float] | np.ndarray,
    difference: Float[np.ndarray, "seeds sizes"],
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[Interval | None, float]:
    """Bootstrap over the seeds: the interval of the crossings found, and the share of resamples that have one.

    The interval is None where no resample crosses. With a handful of seeds it is too narrow.

    >>> crossing_interval([100, 10_000], np.array([[-0.1, 0.1], [-0.1, 0.1]]))[1]
    1.0
    """
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(difference), size=(resamples, len(difference)))
    crossings = [size for draw in draws if (size := crossing(sizes, difference[draw].mean(axis=0))) is not None]
    if not crossings:
        return None, 0.0
    low, high = np.quantile(crossings, [(1 - level) / 2, (1 + level) / 2])
    return (float(low), float(high)), len(crossings) / resamples


def slope_per_decade(sizes: Sequence[float] | np.ndarray, accuracy: Sequence[float] | np.ndarray) -> float:
    """Least-squares slope of accuracy against log10(size): what ten times the data bring.

    >>> round(slope_per_decade([10, 100, 1000], [0.1, 0.3, 0.5]), 6)
    0.2
    """
    x = np.log10(np.asarray(sizes, dtype=float))
    y = np.asarray(accuracy, dtype=float)
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


@dataclass(frozen=True)
class Line:
    """A frontier: logit(accuracy) = intercept + slope · log10(FLOPs) over its points' range, and constant beyond."""

    slope: float
    intercept: float
    flops: tuple[float, float]  # smallest and largest of the frontier's points
    accuracy: tuple[float, float]  # of the line at these
    spent: float  # FLOPs of the most expensive run, on the frontier or not: up to there the line is known

    def at(self, flops: float) -> float:
        """Accuracy (0…1) for so much compute: of the line, and beyond its last point that of the point."""
        within = min(flops, self.flops[1])
        return float(scipy.special.expit(self.intercept + self.slope * math.log10(within)))

    def log10_flops(self, accuracy: float) -> float:
        """log10 of the compute at which the line reaches an accuracy (0…1)."""
        return float((scipy.special.logit(accuracy) - self.intercept) / self.slope)


def frontier(flops: Sequence[float] | np.ndarray, accuracy: Sequence[float] | np.ndarray) -> Bool[np.ndarray, " n"]:
    """The Pareto frontier: points for which no other is more accurate at equal or less compute, or as accurate at less.

    >>> frontier([1, 2, 3, 3], [0.2, 0.1, 0.4, 0.3]).tolist()
    [True, False, True, False]
    """
    x, y = np.asarray(flops, dtype=float), np.asarray(accuracy, dtype=float)
    cheaper, better = x[None] <= x[:, None], y[None] >= y[:, None]
    strictly = (x[None] < x[:, None]) | (y[None] > y[:, None])
    return ~np.any(cheaper & better & strictly, axis=1)


def fitted_frontier(flops: Sequence[float] | np.ndarray, accuracy: Sequence[float] | np.ndarray) -> Line:
    """The least-squares line through the points of the frontier, in logit(accuracy) over log10(FLOPs).

    A logit, for an accuracy cannot pass 1; accuracies of 0 and 1 are taken as half a per mille from it. Through a
    single point the line is constant.

    Raises:
        ValueError: there are no points.

    >>> line = fitted_frontier([1e9, 1e10, 1e11], [0.2, 0.5, 0.8])
    >>> round(line.at(1e10), 6), round(line.log10_flops(0.8), 6)
    (0.5, 11.0)
    """
    x, y = np.asarray(flops, dtype=float), np.asarray(accuracy, dtype=float)
    if len(x) == 0:
        raise ValueError("no runs: expected the compute and accuracy of at least one")
    kept = frontier(x, y)
    log, value = np.log10(x[kept]), scipy.special.logit(np.clip(y[kept], 0.0005, 0.9995))
    slope, intercept = np.polyfit(log, value, 1) if len(np.unique(log)) > 1 else (0.0, value.mean())
    ends = scipy.special.expit(intercept + slope * np.array([log.min(), log.max()]))
    return Line(float(slope), float(intercept), (x[kept].min(), x[kept].max()), tuple(ends.tolist()), x.max())


def compute_factor(first: Line, second: Line) -> float | None:
    """How many times the compute of `first` the second needs for equal accuracy: 2 means twice as much.

    The horizontal distance between the lines, averaged (as a logarithm) over the accuracies that both reach within
    their points; None where there are none, or a line does not rise.

    >>> slow, fast = (fitted_frontier([c * 1e9, c * 1e11], [0.2, 0.8]) for c in (3, 1))
    >>> round(compute_factor(fast, slow), 6)
    3.0
    """
    low, high = (f(a, b) for f, a, b in zip((max, min), first.accuracy, second.accuracy, strict=True))
    if low >= high or min(first.slope, second.slope) <= 0:
        return None
    # In logits the distance is a straight line too: its mean is that of its ends.
    gaps = [second.log10_flops(accuracy) - first.log10_flops(accuracy) for accuracy in (low, high)]
    return float(10 ** np.mean(gaps))


def advantages(first: Line, second: Line) -> tuple[float, float] | None:
    """Accuracy of `first` minus that of `second`, by their lines, at the least and at the most compute both spent.

    None where the runs of the one all cost less than those of the other.

    >>> ahead, level = fitted_frontier([1e9, 1e11], [0.4, 0.8]), fitted_frontier([1e9, 1e11], [0.2, 0.8])
    >>> [round(difference, 6) for difference in advantages(ahead, level)]
    [0.2, 0.0]
    """
    low, high = max(first.flops[0], second.flops[0]), min(first.spent, second.spent)
    if low >= high:
        return None
    return first.at(low) - second.at(low), first.at(high) - second.at(high)
