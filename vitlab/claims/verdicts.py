"""Verdicts on the paper's claims by three-valued rules: a condition holds, fails, or is undecided by its interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vitlab.claims.estimate import Estimate

LEAST = 5  # seeds below which an interval decides nothing: three that happen to agree make a narrow one


class Verdict(StrEnum):
    """What the evidence says of a claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT = "not reproduced"
    INCONCLUSIVE = "inconclusive"


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


@dataclass(frozen=True)
class Ruling:
    """A verdict with its reasons; made by `judge`."""

    verdict: Verdict
    reason: str = ""  # which parts hold


def above(estimate: Estimate, bound: float = 0.0, *, margin: float = 0.0, name: str = "") -> Condition:
    """Ask whether a quantity lies above `bound`: holds if its whole interval does, fails if none of it does.

    With a `margin`, an excess smaller than that is no difference: the condition also fails where the whole interval
    lies below bound + margin. Fewer than `LEAST` observations decide nothing, unless the number is exact.

    >>> above(Estimate(2.0, 1.0, 3.0, n=5)).answer.value, above(Estimate(2.0, -1.0, 5.0, n=5)).answer.value
    ('holds', 'is undecided')
    """
    low, high = _bounds(estimate)
    fails = bool(high <= bound or high < bound + margin)
    return _condition(bool(low > bound) and not fails, fails, name)


def below(estimate: Estimate, bound: float = 0.0, *, margin: float = 0.0, name: str = "") -> Condition:
    """Ask whether a quantity lies below `bound`: the mirror image of `above`."""
    low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
    return above(replace(estimate, value=-estimate.value, low=low, high=high), -bound, margin=margin, name=name)


def within(estimate: Estimate, margin: float, *, name: str = "") -> Condition:
    """Ask whether a difference is none: holds if its whole interval lies between −margin and margin.

    Fails if the interval lies wholly outside, on one side. An interval that spans 0 and is wider than the margin is
    undecided: not to have found a difference is not to have found that there is none.
    """
    low, high = _bounds(estimate)
    holds, fails = -margin < low and high < margin, low >= margin or high <= -margin
    return _condition(bool(holds), bool(fails), name)


def given(holds: bool, name: str = "") -> Condition:
    """State a condition that is known without an interval."""
    return Condition(Answer.HOLDS if holds else Answer.FAILS, name)


def _bounds(estimate: Estimate) -> tuple[float, float]:
    """Take the interval on which a rule decides: everything, where there are too few observations."""
    if estimate.low is None or estimate.high is None or (estimate.n < LEAST and not estimate.is_exact):
        return -math.inf, math.inf
    return estimate.low, estimate.high


def _condition(holds: bool, fails: bool, name: str) -> Condition:
    return given(holds, name) if holds or fails else Condition(Answer.UNDECIDED, name)


def all_of(*conditions: Condition, name: str = "") -> Condition:
    """Combine by Kleene's *and*: fails if one fails, holds if all hold; else, and where there is none, undecided."""
    answers = [part.answer for part in conditions] or [Answer.UNDECIDED]
    return Condition(next((each for each in (Answer.FAILS, Answer.UNDECIDED) if each in answers), Answer.HOLDS), name)


def any_of(*conditions: Condition, name: str = "") -> Condition:
    """Combine by Kleene's *or*: holds if one holds, fails if all fail, else undecided."""
    opposite = {Answer.HOLDS: Answer.FAILS, Answer.FAILS: Answer.HOLDS, Answer.UNDECIDED: Answer.UNDECIDED}
    found = all_of(*(replace(part, answer=opposite[part.answer]) for part in conditions), name=name)
    return replace(found, answer=opposite[found.answer])


def judge(*conditions: Condition, must: Sequence[Condition] = ()) -> Ruling:
    """Judge by a rule: all conditions hold, reproduced; some, partly; none, not reproduced.

    Without a condition in `must` the rest says nothing: where one fails, the claim is not reproduced; where they alone
    hold, partly. Where every way of deciding what is undecided gives one verdict, it is that; else it is inconclusive.

    >>> judge(given(True, "growth"), given(False, "variety")).reason
    'growth holds, variety fails'
    """

    def two_valued(case: Sequence[bool]) -> Verdict:
        musts, others = case[: len(must)], case[len(must) :]
        if all(case):
            return Verdict.REPRODUCED
        return Verdict.PARTLY if all(musts) and (musts or any(others)) else Verdict.NOT

    parts, answers = (*must, *conditions), [part.answer for part in (*must, *conditions)]
    open_to = [(True, False) if each is Answer.UNDECIDED else (each is Answer.HOLDS,) for each in answers]
    verdicts = {two_valued(case) for case in itertools.product(*open_to)}
    told = (
        len(parts) > 1 and (Answer.UNDECIDED in answers or len(set(answers)) > 1) and all(part.name for part in parts)
    )
    reason = ", ".join(f"{part.name} {part.answer}" for part in parts) if told else ""
    return Ruling(verdicts.pop() if len(verdicts) == 1 else Verdict.INCONCLUSIVE, reason)


def line(claim: str, ruling: Ruling, numbers: Mapping[str, Estimate], note: str = "") -> str:
    """Write the verdict on a claim, its numbers (of more than ten the first nine) and a note as Markdown."""
    told = [f"{metric}: {estimate}" for metric, estimate in numbers.items()]
    if len(told) > 10:
        told[9:] = [f"and {len(told) - 9} more numbers, in result.json"]
    texts = filter(None, ("; ".join(told), note))
    sentences = [f"{text[0].upper()}{text[1:].removesuffix('.')}." for text in texts]
    reason = f"** ({ruling.reason})." if ruling.reason else ".**"
    return " ".join([f"**{claim}: {ruling.verdict}{reason}", *sentences])
