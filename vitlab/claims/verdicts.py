"""Verdicts on the paper's claims by three-valued rules: a condition holds, fails, or is undecided by its interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vitlab.claims.estimate import Estimate, counting, finite, seeds_to_decide

LEAST = 5  # seeds below which an interval decides nothing: three that happen to agree make a narrow one
_MANY = 1_000  # seeds that nobody will run
_TOLD = 10  # numbers in a verdict's line


class Verdict(StrEnum):
    """What a run says of a claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTABLE = "not testable at this scale"


class Answer(StrEnum):
    """What an interval says of a condition (Kleene's three truth values)."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "is undecided"


@dataclass(frozen=True)
class Condition:
    """One part of a decision rule with its answer; made by `above`, `below`, `within`, `given`, `all_of`, `any_of`."""

    answer: Answer
    name: str = ""
    needed: int | None = None  # observations that would decide it, where it is undecided
    counted: str = "seeds"  # what `needed` counts
    too_few: bool = False  # undecided only because a rule does not look at fewer
    failed: int = 0  # observations of runs that never started to learn, because of which there is no interval


@dataclass(frozen=True)
class Ruling:
    """A verdict with its reasons; made by `judge` and `not_testable`."""

    verdict: Verdict
    reason: str = ""  # which parts hold, or why it cannot be tested
    needed: int | None = None  # observations that would decide, where the verdict is inconclusive
    advice: str = ""  # the same in words

    def __str__(self) -> str:
        return f"{self.verdict} ({self.reason})" if self.reason else str(self.verdict)


def above(
    estimate: Estimate, bound: float = 0.0, *, margin: float = 0.0, name: str = "", least: int = LEAST
) -> Condition:
    """Whether a quantity lies above `bound`: holds if its whole interval does, fails if none of it does.

    With a `margin`, an excess smaller than that is no difference: the condition also fails where the whole interval
    lies below bound + margin. Fewer than `least` observations decide nothing, unless the number is exact.

    Raises:
        ValueError: a bound that is not finite, a margin below 0.

    >>> above(Estimate(2.0, 1.0, 3.0, n=5)).answer.value, above(Estimate(2.0, -1.0, 5.0, n=5)).answer.value
    ('holds', 'is undecided')
    """
    finite("bound", bound)
    if finite("margin", margin) < 0:
        raise ValueError(f"margin = {margin!r}: expected a finite number, 0 or more")
    low, high = _bounds(estimate, least)
    fails = high <= bound or high < bound + margin
    answer = Answer.FAILS if fails else Answer.HOLDS if low > bound else Answer.UNDECIDED
    # It is decided when the interval leaves the bound, or falls below what matters.
    edge = bound if estimate.value >= bound + margin / 2 else bound + margin
    return _condition(answer, estimate, abs(estimate.value - edge), name, least)


def below(
    estimate: Estimate, bound: float = 0.0, *, margin: float = 0.0, name: str = "", least: int = LEAST
) -> Condition:
    """Whether a quantity lies below `bound`: the mirror image of `above`.

    >>> below(Estimate(2.0, 1.0, 3.0, n=5)).answer.value
    'fails'
    """
    return above(_mirrored(estimate), -finite("bound", bound), margin=margin, name=name, least=least)


def within(estimate: Estimate, margin: float, *, name: str = "", least: int = LEAST) -> Condition:
    """Whether a difference is none: holds if its whole interval lies between −margin and margin.

    Fails if the interval lies wholly outside, on one side. An interval that spans 0 and is wider than the margin is
    undecided: not to have found a difference is not to have found that there is none.

    Raises:
        ValueError: a margin that is not above 0.

    >>> [within(Estimate(0.1, low, 0.4, n=5), margin=0.5).answer.value for low in (-0.2, -0.7)]
    ['holds', 'is undecided']
    """
    if finite("margin", margin) <= 0:
        raise ValueError(f"margin = {margin!r}: expected a finite number above 0")
    low, high = _bounds(estimate, least)
    outside = low >= margin or high <= -margin
    answer = Answer.FAILS if outside else Answer.HOLDS if -margin < low and high < margin else Answer.UNDECIDED
    return _condition(answer, estimate, abs(margin - abs(estimate.value)), name, least)


def given(holds: bool, name: str = "") -> Condition:
    """A condition that is known without an interval.

    >>> given(2 + 2 == 4).answer.value
    'holds'
    """
    return Condition(Answer.HOLDS if holds else Answer.FAILS, name)


def all_of(*conditions: Condition, name: str = "") -> Condition:
    """Kleene's *and*: fails if one fails, holds if all hold, else undecided.

    >>> all_of(given(True), given(False)).answer.value
    'fails'
    """
    return _combined(conditions, Answer.FAILS, Answer.HOLDS, name)


def any_of(*conditions: Condition, name: str = "") -> Condition:
    """Kleene's *or*: holds if one holds, fails if all fail, else undecided.

    >>> any_of(given(True), given(False)).answer.value
    'holds'
    """
    return _combined(conditions, Answer.HOLDS, Answer.FAILS, name)


def judge(*conditions: Condition, must: Sequence[Condition] = ()) -> Ruling:
    """The verdict of a rule: all conditions hold, reproduced; some, partly; none, not reproduced.

    A condition in `must` is one without which the rest says nothing: where it fails, the claim is not reproduced.
    An undecided condition might hold or fail. Where every way of deciding gives one verdict, this is the verdict;
    otherwise it is inconclusive, and `advice` says how many seeds would decide at this spread.

    =========== =========== ============ ===================  =======================================
    some hold   some fail   undecided    verdict              because
    =========== =========== ============ ===================  =======================================
    yes         no          none         reproduced
    no          yes         none         not reproduced
    yes         yes         none or any  partly reproduced    whatever the undecided would say
    yes         no          some         inconclusive         reproduced or partly
    no          yes         some         inconclusive         partly or not
    no          no          all          inconclusive         anything
    =========== =========== ============ ===================  =======================================

    and with conditions in `must`:

    =========== =================== ===================
    in `must`   others              verdict
    =========== =================== ===================
    one fails   any                 not reproduced
    undecided   any                 inconclusive
    all hold    all hold            reproduced
    all hold    one fails           partly reproduced
    all hold    undecided, no fail  inconclusive
    =========== =================== ===================

    Raises:
        ValueError: there is no condition.

    >>> print(judge(given(True, "growth"), given(False, "variety")))
    partly reproduced (growth holds, variety fails)
    """
    parts = (*must, *conditions)
    if not parts:
        raise ValueError("no condition to judge by: give one or more")
    open_to = [_OPEN[part.answer] for part in parts]
    verdicts = {_two_valued(case[: len(must)], case[len(must) :]) for case in itertools.product(*open_to)}
    named = len(parts) > 1 and all(part.name for part in parts)
    alike = len({part.answer for part in parts}) == 1 and parts[0].answer is not Answer.UNDECIDED
    reason = ", ".join(f"{part.name} {part.answer}" for part in parts) if named and not alike else ""
    if len(verdicts) == 1:
        return Ruling(verdicts.pop(), reason)
    undecided = [part for part in parts if part.answer is Answer.UNDECIDED]
    last = max(undecided, key=_hardest)
    return Ruling(Verdict.INCONCLUSIVE, reason, last.needed, _advice(last))


def not_testable(reason: str) -> Ruling:
    """The verdict on a claim that this run cannot put to the test, with the reason.

    Raises:
        ValueError: the reason is empty.

    >>> print(not_testable("one hour is too short"))
    not testable at this scale (one hour is too short)
    """
    if not reason.strip():
        raise ValueError("a claim that is not testable needs a reason: say why")
    return Ruling(Verdict.NOT_TESTABLE, reason)


def line(claim: str, ruling: Ruling, numbers: Mapping[str, Estimate], note: str = "") -> str:
    """The verdict on a claim with its numbers by name, what would decide it, and a note: one line of Markdown.

    Of many numbers the first are told, and how many more there are.

    >>> line("C01", judge(given(True)), {"tokens": Estimate.exact(197)})
    '**C01: reproduced.** Tokens: 197.'
    """
    reason = f"** ({ruling.reason})." if ruling.reason else ".**"
    told = [f"{metric}: {estimate}" for metric, estimate in numbers.items()]
    if len(told) > _TOLD:
        told[_TOLD - 1 :] = [f"and {len(told) - _TOLD + 1} more numbers, in result.json"]
    words = "; ".join(told)
    sentences = (text[0].upper() + text[1:].removesuffix(".") + "." for text in (words, ruling.advice, note) if text)
    return " ".join([f"**{claim}: {ruling.verdict}{reason}", *sentences])


_OPEN = {Answer.HOLDS: (True,), Answer.FAILS: (False,), Answer.UNDECIDED: (True, False)}


def _two_valued(must: Sequence[bool], others: Sequence[bool]) -> Verdict:
    if not all(must):
        return Verdict.NOT
    if all(others):
        return Verdict.REPRODUCED
    return Verdict.PARTLY if must or any(others) else Verdict.NOT


def _bounds(estimate: Estimate, least: int) -> tuple[float, float]:
    """The interval on which a rule decides: everything, where there are too few observations."""
    if estimate.low is None or estimate.high is None or (estimate.n < least and not estimate.is_exact):
        return -math.inf, math.inf
    return estimate.low, estimate.high


def _mirrored(estimate: Estimate) -> Estimate:
    low = None if estimate.high is None else -estimate.high
    high = None if estimate.low is None else -estimate.low
    return Estimate(-estimate.value, low, high, estimate.n, estimate.unit, estimate.counted, estimate.failed)


def _condition(answer: Answer, estimate: Estimate, distance: float, name: str, least: int) -> Condition:
    """Adds how many observations would decide, four times in five, at the measured `distance` from value to bound."""
    if answer is not Answer.UNDECIDED:
        return Condition(answer, name, counted=estimate.counted)
    needed = _needed(estimate, distance, least)
    return Condition(answer, name, needed, estimate.counted, needed == least, estimate.failed)


def _needed(estimate: Estimate, distance: float, least: int) -> int:
    if estimate.n < 2 or not 0 < estimate.half_width < math.inf:
        return least
    smallest = estimate.sd / _MANY  # an effect too small to be of use
    return seeds_to_decide(estimate.sd, max(distance, smallest), least=least)


def _hardest(part: Condition) -> tuple[int, int]:
    return part.failed, part.needed or 0


def _advice(part: Condition) -> str:
    needed = part.needed or LEAST
    if part.failed:
        return "more seeds decide nothing as long as runs do not start to learn: mend the recipe first"
    if part.too_few:
        return f"at least {counting(needed, part.counted)} are needed"
    if needed > _MANY:
        return f"more than {counting(_MANY, part.counted)} would be needed at this spread"
    return f"about {counting(needed, part.counted)} would decide four times in five at this spread"


def _combined(conditions: Sequence[Condition], decisive: Answer, otherwise: Answer, name: str) -> Condition:
    if not conditions:
        raise ValueError("no condition to combine: give one or more")
    answers = {part.answer for part in conditions}
    if decisive in answers or answers == {otherwise}:
        return Condition(decisive if decisive in answers else otherwise, name)
    undecided = [part for part in conditions if part.answer is Answer.UNDECIDED]
    last = max(undecided, key=_hardest)
    return Condition(Answer.UNDECIDED, name, last.needed, last.counted, last.too_few, last.failed)
