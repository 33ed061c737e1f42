"""Times of calls that take turns, so that other load on the machine meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

Call = Callable[[], object]

_PAUSE = 0.2  # seconds between calls: by then no thread of the library that was called before waits actively for work


def seconds(call: Call) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: Sequence[Call], rounds: int) -> list[list[float]]:
    """Wall times of several calls, a list for each; every other round goes backwards, and each starts on idle cores."""
    times: list[list[float]] = [[] for _ in calls]
    for i in range(rounds):
        for k in range(len(calls))[:: -1 if i % 2 else 1]:
            time.sleep(_PAUSE)
            times[k].append(seconds(calls[k]))
    return times


def paired(first: Call, second: Call, pairs: int) -> tuple[float, float, float]:
    """Medians over interleaved pairs: seconds of each, and the ratio second / first within a pair."""
    first(), second()  # warm up
    a, b = interleaved((first, second), pairs)
    ratios = [y / x for x, y in zip(a, b, strict=True)]
    return statistics.median(a), statistics.median(b), statistics.median(ratios)
