"""What curves over sizes share: the axis of sizes, mean and interval over seeds, names at the ends of lines (§4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import scipy.special
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression

_NUMBER = 0.05  # of the axis: the room that a number of images takes


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis whose ticks are the numbers of training images that were measured, in rising order.

    A number that would touch the one before it is not written.
    """
    nearest = _NUMBER * math.log(sizes[-1] / sizes[0])
    labels, written = [], 0.0
    for size in sizes:
        fits = not written or math.log(size / written) > nearest
        written = size if fits else written
        labels.append(f"{size:,}" if fits else "")
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(sizes, labels)
    ax.set_xlabel("training images (number, log scale)")


def over_seeds(table: pd.DataFrame, x: str, y: str, bounds: tuple[float, float] | None = None) -> pd.DataFrame:
    """Mean of `y` and its 95 % t interval for every `x`, over the rows of the table: columns mean, low, high.

    The interval is cut at `bounds`, as accuracies are at 0 and 1; it is NaN where there is one row.

    >>> runs = pd.DataFrame({"n": [5, 5], "accuracy": [0.98, 1.0]})
    >>> over_seeds(runs, "n", "accuracy", bounds=(0, 1)).round(2).to_dict("records")
    [{'mean': 0.99, 'low': 0.86, 'high': 1.0}]
    """
    at = table.groupby(x)[y].agg(["mean", "sem", "count"])
    half = scipy.special.stdtrit((at["count"] - 1).clip(lower=1), 0.975) * at["sem"]
    low, high = bounds or (-np.inf, np.inf)
    ends = {"low": (at["mean"] - half).clip(lower=low), "high": (at["mean"] + half).clip(upper=high)}
    return at[["mean"]].assign(**ends)


def name_ends(ax: Axes, ends: Mapping[str, tuple[float, str]]) -> None:
    """Write the name of every line to the right of the axes, at the height where it ends, none over another.

    `ends`: name → height in data units, colour. Called last, when the axes have their limits.
    """
    for name, height in _apart({name: y for name, (y, _) in ends.items()}, ax.get_ylim()).items():
        ax.annotate(
            str(name), (1.01, height), xycoords=ax.get_yaxis_transform(), color=ends[name][1], va="center", fontsize=9
        )


def _apart(heights: Mapping[str, float], limits: tuple[float, float], lines: float = 16) -> dict[str, float]:
    """Heights of labels as near to their lines as can be, a `lines`-th of the axis apart, none beyond the axis.

    >>> _apart({"a": 9.0, "b": 9.5, "c": 2.0}, (0.0, 10.0), lines=10)
    {'c': 2.0, 'a': 8.75, 'b': 9.75}
    """
    step, names = (limits[1] - limits[0]) / lines, sorted(heights, key=heights.__getitem__)
    stacked = step * np.arange(len(names))
    # Labels that touch share the mean of their distances: the least squares under the order.
    placed = isotonic_regression(np.array([heights[name] for name in names]) - stacked).x + stacked
    placed = placed.clip(limits[0] + stacked, limits[1] - stacked[::-1])
    return dict(zip(names, placed.tolist(), strict=True))
