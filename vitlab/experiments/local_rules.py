"""The decision rules of L01 and L02, on which trainings make heads local (after §4.5, Fig. 7 right)."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from vitlab.experiments.local_heads import CROPS, heads
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.verdicts import Ruling, above, all_of, below, judge

MARGIN = 5.0  # percentage points of the heads, as in the rule of C13: fewer are none
FEW = (300, 1_000)  # photographs
Judged = tuple[Ruling, dict[str, Estimate]]


def low_shares(table: pd.DataFrame) -> pd.DataFrame:
    """The share of local heads in the lower half of the blocks at the end of each training on photographs, `local`.

    `table` is that of `local_heads`. Columns: objective, n_train, seed, local (0…1).
    """
    rows = heads(table[table["data"] != CROPS])
    if rows.empty:
        return pd.DataFrame(columns=["objective", "n_train", "seed", "local"])
    low = rows[(rows["block"] <= rows["block"].max() / 2) & (rows["samples"] == rows["samples"].max())]
    return low.groupby(["objective", "n_train", "seed"], sort=False)["local"].mean().reset_index()


def labels_rule(shares: pd.DataFrame) -> Judged | None:
    """L01: the ruling, and the share of local heads after training with few labels in %; None without such trainings.

    `shares` is that of `low_shares`. Of 300 and of 1,000 photographs with labels the share is below 5 %.

    >>> rows = [("labels", n, seed, 0.0) for n in (300, 1_000) for seed in range(5)]
    >>> print(labels_rule(pd.DataFrame(rows, columns=["objective", "n_train", "seed", "local"]))[0])
    reproduced
    """
    labels = _wide(shares, "labels")
    found = {n: Estimate.of(100 * labels[n].dropna(), "%") for n in FEW if n in labels and labels[n].notna().any()}
    if len(found) < len(FEW):
        return None
    numbers = {f"local heads in the lower blocks, labels of {n:,} photographs": each for n, each in found.items()}
    return judge(all_of(*(below(each, MARGIN) for each in found.values()))), numbers


def masked_rule(shares: pd.DataFrame) -> Judged | None:
    """L02: the ruling, and the share of local heads after masked prediction − after labels in points, on equal images.

    `shares` is that of `low_shares`; seeds are paired. For each number of photographs the difference is above 0, and
    fewer than 5 points are none. None without a pair.

    >>> rows = [(how, 300, seed, local) for how, local in (("masked", 0.5), ("labels", 0.0)) for seed in range(5)]
    >>> print(masked_rule(pd.DataFrame(rows, columns=["objective", "n_train", "seed", "local"]))[0])
    reproduced
    """
    found = dict(_differences(shares))
    if not found:
        return None
    parts = [above(each, margin=MARGIN, name=f"{n:,} photographs") for n, each in found.items()]
    return judge(*parts), {f"masked − labels, {n:,} photographs": each for n, each in found.items()}


def _differences(shares: pd.DataFrame) -> Iterator[tuple[int, Estimate]]:
    masked, labels = _wide(shares, "masked"), _wide(shares, "labels")
    for n in masked.columns.intersection(labels.columns):
        paired = (masked[n] - labels[n]).dropna()
        if len(paired):
            yield int(n), Estimate.of(100 * paired, "points")


def _wide(shares: pd.DataFrame, objective: str) -> pd.DataFrame:
    """A row for each seed, a column for each number of photographs."""
    return shares[shares["objective"] == objective].pivot(index="seed", columns="n_train", values="local")
