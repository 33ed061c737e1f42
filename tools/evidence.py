"""For maintainers: moves finished live runs into the committed evidence, and plans how many seeds a study has.

python -m tools.evidence KIND [PRESET]    of a kind of run, at `full` unless told otherwise
"""

from __future__ import annotations

import bisect
import lzma
import math
import sys

import pandas as pd
from scipy.special import stdtrit

from vitlab import paths
from vitlab.studies import store


def seeds_to_decide(sd: float, distance: float, least: int = 2) -> int:
    """Count the fewest seeds whose 95 % t interval leaves out a bound `distance` away from the truth, 4 times in 5.

    Both in one unit; `sd` is the spread of a pilot. As many as make the interval's half-width `distance` would leave
    the bound out only about every other time: half of all means lie nearer to it than the truth.
    """

    def decide(n: int) -> bool:
        return bool(stdtrit(n - 1, (0.975, 0.8)).sum() * sd / math.sqrt(n) <= distance)

    return bisect.bisect_left(range(10**9), True, lo=least, key=decide)


def publish(kind: str, preset: str = "full") -> int:
    """Move the live runs of a kind into the committed evidence; returns how many were new."""
    there = set(store.runs(kind)["key"])
    new = [run for run in store.live(kind, preset).values() if run["key"] not in there]
    if not new:
        return 0
    said = pd.DataFrame([run | {"seed": run["config"].get("seed", 0)} for run in new])[store.ABOUT]
    with paths.writing(paths.evidence_dir() / f"{kind}.csv.xz") as temporary:
        whole = pd.concat([store.rows(kind), store.table_of(new)], ignore_index=True)
        whole.to_csv(temporary, index=False, compression={"method": "xz", "preset": 9 | lzma.PRESET_EXTREME})
    with paths.writing(paths.evidence_dir() / f"{kind}.runs.csv") as temporary:
        pd.concat([store.runs(kind), said], ignore_index=True).to_csv(temporary, index=False)
    store.runs.cache_clear()
    store.rows.cache_clear()
    return len(new)


if __name__ == "__main__":
    print(f"{publish(*sys.argv[1:])} new runs")
