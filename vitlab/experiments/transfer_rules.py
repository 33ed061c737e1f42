"""The decision rules of C08 and C21, for the live run and the committed runs of `full` alike (§3.2, Table 4)."""

from __future__ import annotations

import pandas as pd

from vitlab.experiments.transfer_tables import differences
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.verdicts import Ruling, above, judge

NO_LOSS = -1.0  # percentage points: a smaller loss is no difference
EARLY = 2  # epochs
SHARE = 90.0  # % of the final accuracy
Judged = tuple[Ruling, dict[str, Estimate]]


def resolution_rule(runs: pd.DataFrame, model: str) -> Judged | None:
    """C08: the ruling, and accuracy at the larger sides − at that of pre-training in points; None without a whole seed.

    `runs` is `transfer_tables.accuracies` of one source and one target. (a), which must hold: at twice the side the
    difference is above 0. (b): at one and a half times it is above −1 point.

    >>> rows = [("a", s, arm, 0.5 + gain) for s in range(5) for arm, gain in (("1x", 0), ("1.5x", 0.1), ("2x", 0.2))]
    >>> print(resolution_rule(pd.DataFrame(rows, columns=["model", "seed", "arm", "test_accuracy"]), "a")[0])
    reproduced
    """
    rows = runs[runs["model"] == model]
    between, twice = (100 * differences(rows, "arm", arm, "1x") for arm in ("1.5x", "2x"))
    if between.empty or twice.empty:
        return None
    of_between, of_twice = (Estimate.of(each, "points") for each in (between, twice))
    gain = above(of_twice, name="gain")
    ruling = judge(above(of_between, NO_LOSS, name="no loss between"), must=[gain])
    metric = "ViT's accuracy at {} the resolution − at 1x"
    return ruling, {metric.format("2x"): of_twice, metric.format("1.5x"): of_between}


def epochs_rule(curves: pd.DataFrame, vit: str, bit: str) -> Judged | None:
    """C21: the ruling, and the share of the final accuracy that is reached after two epochs in %; None without a pair.

    `curves` is `transfer_tables.evaluations` of one source and one target. (a): the ViT's share is above 90 %. (b): it
    is above BiT's − 1 point.

    >>> rows = [(m, s, "1x", 2, share) for s in range(5) for m, share in (("a", 0.95), ("b", 0.7))]
    >>> curves = pd.DataFrame(rows, columns=["model", "seed", "arm", "epoch", "share"])
    >>> print(epochs_rule(curves, "a", "b")[0])
    reproduced
    """
    second = curves[(curves["epoch"] == EARLY) & (curves["arm"] == "1x")]
    lead = 100 * differences(second, "model", vit, bit, "share")
    if lead.empty:
        return None
    reached = Estimate.of(100 * second.loc[second["model"] == vit, "share"], "%")
    difference = Estimate.of(lead, "points")
    few_epochs = above(reached, SHARE, name="few epochs")
    no_slower = above(difference, NO_LOSS, name="no slower than BiT")
    numbers = {
        "share of ViT's final accuracy reached after 2 epochs": reached,
        "the same share, ViT − BiT": difference,
    }
    return judge(few_epochs, no_slower), numbers
