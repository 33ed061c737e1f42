"""For maintainers: moves finished live runs into the committed evidence.

python -m tools.evidence KIND [PRESET]    of a kind of run, at `full` unless told otherwise
"""

from __future__ import annotations

import lzma
import sys

import pandas as pd

from vitlab import paths
from vitlab.studies import store


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
