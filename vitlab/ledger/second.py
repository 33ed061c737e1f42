"""Do the verdicts stand when notebooks and studies are drawn a second time, with other seeds? (§4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vitlab.ledger import pooling
from vitlab.ledger.claims import CLAIMS
from vitlab.ledger.entries import Entries, by_claim, estimate, verdicts_of
from vitlab.ledger.estimate import Estimate, counting, seeds_needed
from vitlab.ledger.study import FULL, TOGETHER
from vitlab.ledger.verdicts import Verdict

FOLDER = "second"  # in figures/reference, beside the presets: the result.json files of the second draw
ANEW = "drawn_anew"  # what such a file says beside its entries: claim → what has other seeds in it
_OPEN = (str(Verdict.INCONCLUSIVE), str(Verdict.NOT_TESTABLE))
_NONE = "No verdict was drawn a second time yet."
_COUNTED = ("seeds", "trainings")  # what n counts, of numbers that other seeds measure anew, independently
NO_NUMBER = "–"


@dataclass(frozen=True)
class Number:
    """A number that both draws have measured."""

    metric: str
    first: Estimate
    second: Estimate

    @property
    def both(self) -> Estimate | None:
        """That of both draws as one sample; None where it is not one of trainings, see `pooling.as_one`."""
        return pooling.as_one(self.first, self.second) if self._of_trainings else None

    @property
    def differs(self) -> bool | None:
        """Whether the draws differ by more than the spread of their trainings allows; None as for `both`."""
        return pooling.differ(self.first, self.second) if self._of_trainings else None

    @property
    def _of_trainings(self) -> bool:
        return self.first.counted in _COUNTED


@dataclass(frozen=True)
class Drawn:
    """A claim that has a verdict from both draws."""

    claim: str
    first: str  # verdict
    second: str
    number: str  # the first number of the second draw
    anew: str  # what was drawn anew: "trainings", or "images" of the same models
    together: str = ""  # the verdict of all draws judged as one, which decides; kept where it is not `settled`
    numbers: tuple[Number, ...] = ()  # those that both draws have
    by_all: Mapping[str, Estimate] = field(default_factory=dict)  # metric → the number of all draws judged as one
    advice: str = ""  # how many seeds would decide, by all draws, where they leave the claim open

    def of_all(self, metric: str) -> Estimate | None:
        """A number of all draws: as judged, else that of both draws as one sample; None where there is none."""
        if metric.endswith(FULL) and metric.removesuffix(FULL) in self.by_all:
            return self.by_all[metric.removesuffix(FULL)]
        return next((each.both for each in self.numbers if each.metric == metric), None)

    @property
    def first_of_all(self) -> tuple[str, Estimate] | None:
        """Name and number that come first of all draws judged as one."""
        return next(iter(self.by_all.items()), None)

    @property
    def stands(self) -> bool:
        """Whether both verdicts are one."""
        return self.first == self.second

    @property
    def is_open(self) -> bool:
        """Whether the first draw had left the claim undecided."""
        return self.first in _OPEN

    @property
    def settled(self) -> bool:
        """Whether both draws have one verdict, and it leaves nothing open."""
        return self.stands and not self.is_open


def drawn(first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]) -> dict[str, Drawn]:
    """The claims that were drawn twice, from the results by notebook of both draws, those of one preset.

    >>> entry = {"claim": "C16", "metric": "lead", "value": 1.0, "interval": None, "n": 2, "unit": "", "counted": ""}
    >>> first = {"11_a": {"preset": "quick", "seed": 0, "results": [entry | {"verdict": "reproduced"}]}}
    >>> second = {"11_a": first["11_a"] | {"seed": 1, "drawn_anew": {"C16": "trainings"}}}
    >>> drawn(first, second)["C16"].stands, drawn(first, {})
    (True, {})
    """
    same = {name: there for name, there in second.items() if name in first and _alike(there, first[name])}
    before, after = by_claim(first), by_claim(same)
    anew = {claim: what for there in same.values() for claim, what in there.get(ANEW, {}).items()}
    together = {claim: said for name in same for claim, said in first[name].get(TOGETHER, {}).items()}
    return {
        claim: _twice(claim, before[claim], entries, anew[claim], together.get(claim))
        for claim, entries in after.items()
        if entries and before[claim] and claim in anew
    }


def _twice(claim: str, before: Entries, after: Entries, anew: str, together: Mapping[str, Any] | None) -> Drawn:
    """A claim with its entries of both draws, and what all draws say `together`, which decides where they do not."""
    second = {entry["metric"]: estimate(entry) for _, entry in after}
    numbers = tuple(
        Number(entry["metric"], estimate(entry), second[entry["metric"]])
        for _, entry in before
        if entry["metric"] in second
    )
    first_verdict, second_verdict = ("; ".join(verdicts_of(entries)) for entries in (before, after))
    metric, number = next(iter(second.items()))
    drawn = Drawn(claim, first_verdict, second_verdict, f"{metric}: {number}", anew, numbers=numbers)
    if together is None:
        return drawn
    kept = [each for each in together["numbers"] if "value" in each]  # an earlier version kept them as text
    by_all = {each["metric"]: estimate(each) for each in kept}
    if drawn.settled:
        return replace(drawn, by_all=by_all)
    return replace(drawn, together=together["verdict"], by_all=by_all, advice=together.get("advice", ""))


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two results of a notebook differ in nothing but their seeds, and in these."""
    return first.get("seed") != second.get("seed") and all(
        first.get(name) == second.get(name) for name in ("preset", "parameters")
    )


def in_words(claims: Mapping[str, Drawn]) -> str:
    """How many of the paper's claims that the first draw had decided have the same verdict again, and which have not.

    Then the verdicts of all draws together, of claims that two draws have left open too.

    >>> in_words({})
    'No verdict was drawn a second time yet.'
    >>> in_words({"C16": Drawn("C16", "reproduced", "inconclusive", "lead: 1", "trainings")})
    'On a second draw, with other seeds, 0 of 1 decided verdicts are the same; C16 is reproduced, then inconclusive.'
    """
    papers = [each for each in claims.values() if each.claim in CLAIMS]
    decided = [each for each in papers if not each.is_open]
    if not decided:
        return _NONE
    others = [each for each in decided if not each.stands]
    same = f"{len(decided) - len(others)} of {len(decided)} decided verdicts are the same"
    told = [f"On a second draw, with other seeds, {same}"]
    told += [f"{each.claim} is {each.first}, then {each.second}" for each in others if not each.together]
    judged = [each for each in papers if each.together]
    by_all = []
    for verdict in dict.fromkeys(each.together for each in judged):
        *names, last = (each.claim for each in judged if each.together == verdict)
        by_all.append(f"{', '.join(names)} and {last} are {verdict}" if names else f"{last} is {verdict}")
    told += [f"by the seeds of all draws, {', and '.join(by_all)}"] if by_all else []
    return "; ".join(told) + "."


def spread_in_words(claims: Iterable[Drawn]) -> str:
    """How many numbers of trainings differ between two draws by more than the spread within each lets one expect.

    >>> spread_in_words([])
    ''
    """
    compared = [each.differs for drawn in claims for each in drawn.numbers if each.differs is not None]
    if not compared:
        return ""
    n = len(compared)
    return (
        f"{n} numbers of trainings were measured in both draws. In {sum(compared)} of them the draws lie farther apart "
        "than the spread between the trainings of a draw explains (Welch's test at 5 %); by chance that is to be "
        f"expected in {n / 20:.0f}, if the intervals are right. Numbers of the same runs are not independent of each "
        "other."
    )


def precision_in_words(drawn: Drawn) -> str:
    """How wide the widest interval is over all draws, of the larger runs' numbers in points, and what ±1 would take.

    '' where there is no such number.

    >>> first, second = (Estimate.of([mean - 2.0, mean, mean + 2.0], "points") for mean in (4.0, 6.0))
    >>> lead = Number("lead, full", first, second)
    >>> precision_in_words(Drawn("C16", "reproduced", "reproduced", "", "trainings", numbers=(lead,)))
    'the widest interval of full over all draws is ±2.2 points (lead, n = 6 seeds); ±1 would take 20'
    """
    pooled = ((each.metric, drawn.of_all(each.metric)) for each in drawn.numbers if each.metric.endswith(FULL))
    known = [
        (metric, of_all) for metric, of_all in pooled if of_all and of_all.interval and of_all.unit.startswith("points")
    ]
    if not known:
        return ""
    metric, widest = max(known, key=lambda each: each[1].half_width)
    if widest.half_width <= 1:
        return f"every interval of full over all draws is within ±1 {widest.unit.replace('points', 'point')}"
    of_what = f"{metric.removesuffix(FULL)}, n = {counting(widest.n, widest.counted)}"
    size = f"±{widest.half_width:.1f} {widest.unit} ({of_what})"
    return f"the widest interval of full over all draws is {size}; ±1 would take {seeds_needed(widest.sd, 1.0)}"


def rows(claims: Mapping[str, Drawn]) -> Sequence[dict[str, str]]:
    """For a table: claim, both verdicts, the number of the second draw, what was drawn anew, and the verdict of all
    draws together where two differ or leave the claim open, and all seeds were judged as one.

    >>> rows({"C16": Drawn("C16", "reproduced", "inconclusive", "lead: 1", "trainings")})[0]["second draw"]
    'inconclusive'
    """
    return [
        {
            "claim": each.claim,
            "verdict": each.first,
            "second draw": each.second,
            "number of the second draw": each.number,
            "drawn anew": each.anew,
            "all together": each.together or NO_NUMBER,
        }
        for each in claims.values()
    ]
