"""The decision rules of the claims on design choices, C09 and C16 to C19, and their margins (App. D)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vitlab.ledger.estimate import Estimate
from vitlab.ledger.verdicts import Condition, Ruling, above, all_of, below, given, judge, within

# Percentage points of accuracy, stated before any run.
AHEAD = 1.0  # a smaller lead is none
EQUAL = (
    2.0  # a difference is none where its whole interval is smaller: Table 8's tables differ by 0.3, its "none" by 2.8
)
Estimates = Mapping[str, Estimate | None]  # None: the runs are not there, which leaves a condition undecided


def positions_rule(over_none: Estimates, kinds: Estimates, places: Estimates) -> Ruling:
    """C09 (Table 8), from differences in points, by names: no position embedding is worse; the others are equal.

    Must: 1-D − none is above 0 in every task (`over_none`). Then: other kinds − 1-D (`kinds`), and other places − the
    stem (`places`), are none: within ± EQUAL.

    >>> lead, none = Estimate(19.0, 15.0, 23.0, n=5), Estimate(0.1, -0.5, 0.7, n=5)
    >>> print(positions_rule({"contour": lead}, {"2-D": none}, {"shared": none}))
    reproduced
    >>> print(positions_rule({"contour": lead}, {"2-D": none}, {"shared": lead}))  # doctest: +ELLIPSIS
    partly reproduced (1-D is ahead of none holds, kinds are equal holds, places are equal fails)
    """
    return judge(
        _all(map(_equal, kinds.values()), "kinds are equal"),
        _all(map(_equal, places.values()), "places are equal"),
        must=[_all(map(_ahead, over_none.values()), "1-D is ahead of none")],
    )


def heads_rule(difference: Estimate | None) -> Ruling:
    """C16 (Fig. 9): class token − GAP, each at its own best learning rate, in points, is none: within ± EQUAL.

    >>> print(heads_rule(Estimate(0.1, -0.5, 0.7, n=5))), print(heads_rule(Estimate(5.0, 4.0, 6.0, n=5)))
    reproduced
    not reproduced
    (None, None)
    """
    return judge(_equal(difference, "equal"))


def optimizers_rule(differences: Estimates) -> Ruling:
    """C17 (Table 7): of every ResNet, Adam − SGD after fine-tuning, in points, is above −AHEAD: Adam is no worse.

    >>> print(optimizers_rule({"R50": Estimate(0.5, -0.2, 1.2, n=5), "R152": Estimate(-3.0, -4.0, -2.0, n=5)}))
    partly reproduced (R50: Adam is no worse holds, R152: Adam is no worse fails)
    """
    return judge(*(_above(each, f"{model}: Adam is no worse", -AHEAD) for model, each in differences.items()))


def shapes_rule(depth_over: Estimates, width_over: Estimates, patch: Estimate | None) -> Ruling:
    """C18 (Fig. 8), from slopes in points a doubling of FLOPs, and their differences from those of other dimensions.

    Depth's slope is above each other's (`depth_over`), width's below each other's (`width_over`), and the patch's above
    0: smaller patches help.

    >>> more, less = Estimate(2.0, 1.0, 3.0, n=5), Estimate(-2.0, -3.0, -1.0, n=5)
    >>> print(shapes_rule({"width": more}, {"depth": less}, more))
    reproduced
    >>> print(shapes_rule({"width": less}, {"depth": more}, more))
    partly reproduced (depth is best fails, width is least fails, smaller patches help holds)
    """
    return judge(
        _all(map(_above, depth_over.values()), "depth is best"),
        _all(map(_below, width_over.values()), "width is least"),
        _above(patch, "smaller patches help"),
    )


def axial_rule(gain: Estimate | None, flops_ratio: float | None) -> Ruling:
    """C19 (Fig. 13): axial − full attention of the same depth, in points, is above 0, and it costs more FLOPs.

    >>> print(axial_rule(Estimate(3.0, 2.0, 4.0, n=5), 1.7)), print(axial_rule(Estimate(-3.0, -4.0, -2.0, n=5), 1.7))
    reproduced
    partly reproduced (more accurate fails, costs more holds)
    (None, None)
    """
    cost = _unknown("costs more") if flops_ratio is None else given(flops_ratio > 1, "costs more")
    return judge(_ahead(gain, "more accurate"), cost)


def _ahead(lead: Estimate | None, name: str = "") -> Condition:
    return _unknown(name) if lead is None else above(lead, margin=AHEAD, name=name)


def _above(value: Estimate | None, name: str = "", bound: float = 0.0) -> Condition:
    return _unknown(name) if value is None else above(value, bound, name=name)


def _equal(difference: Estimate | None, name: str = "") -> Condition:
    return _unknown(name) if difference is None else within(difference, EQUAL, name=name)


def _below(value: Estimate | None) -> Condition:
    return _unknown() if value is None else below(value)


def _all(conditions: Iterable[Condition], name: str) -> Condition:
    """All of them; undecided where there is none."""
    return all_of(*list(conditions) or [_unknown()], name=name)


def _unknown(name: str = "") -> Condition:
    """What was not run: an observation without an interval decides nothing."""
    return above(Estimate(0.0, None, None, n=1), name=name)
