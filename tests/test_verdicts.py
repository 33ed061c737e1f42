"""The rules of a verdict, worked out by hand: every cell of the truth table, and the seeds that would decide."""

import itertools
import math

import numpy as np
import pytest

from tools.evidence import seeds_to_decide
from vitlab.claims import verdicts
from vitlab.claims.estimate import Estimate
from vitlab.claims.verdicts import Answer, above, below, given, judge, within

HOLDS, FAILS, UNDECIDED = Answer.HOLDS, Answer.FAILS, Answer.UNDECIDED


def of(low, high, n=5):
    return Estimate((low + high) / 2, low, high, n, "points")


@pytest.mark.parametrize(
    "answer, intervals",
    [(HOLDS, [(1, 3)]), (FAILS, [(-3, -1), (-2, 0), (0, 0)]), (UNDECIDED, [(-1, 3), (-3, 1), (0, 2)])],
)
def test_above_and_below_zero_mirror_each_other(answer, intervals):
    for low, high in intervals:
        assert above(of(low, high)).answer is answer
        assert below(of(-high, -low)).answer is answer
        assert above(of(low + 7, high + 7), 7).answer is answer
        assert below(of(7 - high, 7 - low), 7).answer is answer


@pytest.mark.parametrize(
    "answer, intervals",
    [
        (HOLDS, [(0.2, 3)]),  # above 0, and may matter
        (UNDECIDED, [(-1, 3), (-1, 1.5)]),
        (FAILS, [(-1, 0.9), (-0.5, 0.5), (-3, -2)]),  # even the most favourable value is no difference
        (FAILS, [(0.2, 0.9)]),  # surely above 0, surely smaller than what was called a difference beforehand
    ],
)
def test_a_gain_smaller_than_the_margin_is_none(answer, intervals):
    for low, high in intervals:
        assert above(of(low, high), margin=1).answer is answer
        assert below(of(-high, -low), margin=1).answer is answer


@pytest.mark.parametrize(
    "answer, intervals",
    [
        (HOLDS, [(-0.9, 0.9), (0.2, 0.8)]),  # not 0, yet within the margin
        (UNDECIDED, [(-1, 0.5), (-2, 2), (0.5, 1.5)]),  # the margin itself is a difference; a wide one knows nothing
        (FAILS, [(1.1, 3), (1, 3), (-3, -1.1)]),
    ],
)
def test_only_an_interval_inside_the_margin_says_no_difference(answer, intervals):
    assert [within(of(*interval), 1).answer for interval in intervals] == [answer] * len(intervals)


def test_an_exact_number_decides_and_a_single_or_a_few_observations_do_not():
    assert above(Estimate.exact(86, "million")).answer is HOLDS
    assert above(Estimate.of([3.0])).answer is UNDECIDED  # no spread
    assert above(of(1, 3, n=4)).answer is UNDECIDED and above(of(1, 3, n=5)).answer is HOLDS
    assert below(of(1, 3, n=4)).answer is UNDECIDED  # nor do they refute


def answers(letters):
    of_letter = {"H": HOLDS, "F": FAILS, "U": UNDECIDED}
    return [verdicts.Condition(of_letter[letter], f"part {i}") for i, letter in enumerate(letters)]


OF_THREE = {  # verdict → the answers of three conditions, in any order
    "reproduced": ["HHH"],
    "partly reproduced": ["HHF", "HFF", "HFU"],  # the last whatever the third would say
    "not reproduced": ["FFF"],
    "inconclusive": ["HHU", "FFU", "HUU", "FUU", "UUU"],
}
MUST = {  # verdict → the answer of a condition without which nothing holds, and of another
    "reproduced": ["HH"],
    "partly reproduced": ["HF"],
    "not reproduced": ["FH", "FF", "FU"],
    "inconclusive": ["HU", "UH", "UF", "UU"],
}


def test_the_truth_table_cell_by_cell():
    for cell in map("".join, itertools.product("HFU", repeat=3)):
        expected = next(v for v, cells in OF_THREE.items() if sorted(cell) in map(sorted, cells))
        assert judge(*answers(cell)).verdict == expected, cell
    for (first, second), verdict in ((cell, verdict) for verdict, cells in MUST.items() for cell in cells):
        assert judge(*answers(second), must=answers(first)).verdict == verdict, (first, second)
    assert [judge(*answers(letter)).verdict for letter in "HFU"] == ["reproduced", "not reproduced", "inconclusive"]


def test_kleenes_and_and_or():
    expected_and = {"HH": HOLDS, "HU": UNDECIDED, "UU": UNDECIDED}
    expected_or = {"FF": FAILS, "FU": UNDECIDED, "UU": UNDECIDED}
    for cell in map("".join, itertools.product("HFU", repeat=2)):
        key = "".join(sorted(cell, key="HFU".index))
        assert verdicts.all_of(*answers(cell)).answer is expected_and.get(key, FAILS), cell
        assert verdicts.any_of(*answers(cell)).answer is expected_or.get(key, HOLDS), cell
    assert verdicts.all_of().answer is UNDECIDED  # nothing could be tested


def test_a_verdict_names_its_parts():
    parts = judge(above(of(1, 3), name="growth"), above(of(-3, -1), name="variety"))
    assert (parts.verdict, parts.reason) == ("partly reproduced", "growth holds, variety fails")
    assert judge(given(True, "growth"), given(True, "variety")).reason == ""  # which hold goes without saying
    assert judge(given(True, "variety"), must=[given(False, "growth")]).reason == "growth fails, variety holds"
    wide = Estimate.of([0.5 + x / math.sqrt(2.5) for x in (-2, -1, 0, 1, 2)], "points")
    assert judge(above(wide, name="growth")).verdict == "inconclusive"
    assert judge(above(of(1, 3, n=3))).verdict == judge(above(Estimate.of([3.0]))).verdict == "inconclusive"


@pytest.mark.parametrize(
    "sd, distance, n",
    [
        (1, 1, 10),  # t9 = 2.262 + 0.883 (of 0.8), / √10 = 0.995; t8 = 2.306 + 0.889, / √9 = 1.065
        (1, 0.5, 34),  # t33 = 2.035 + 0.853, / √34 = 0.495; t32 = 2.037 + 0.853, / √33 = 0.503
        (10, 1, 787),  # the normal's (1.960 + 0.842)² · 100 = 784.9, and a few for the spread's being estimated
    ],
)
def test_seeds_to_decide_by_hand(sd, distance, n):
    assert seeds_to_decide(sd, distance) == n
    assert seeds_to_decide(1000 * sd, 1000 * distance) == n
    assert seeds_to_decide(sd, distance, least=12) == max(12, n)
    assert seeds_to_decide(0, distance) == 2


def test_as_many_seeds_as_planned_decide_four_times_in_five():
    draws = np.random.default_rng(0).normal(0.8, 1.0, (500, seeds_to_decide(1, 0.8)))
    assert 0.75 < np.mean([above(Estimate.of(draw)).answer is Answer.HOLDS for draw in draws]) < 0.85


def test_a_verdict_in_one_line():
    ruling = judge(above(Estimate(5.2, -1.9, 12.3, 3, "points"), name="growth"), given(True, "start"))
    growth = {"growth of A − B": Estimate(5.2, -1.9, 12.3, 3, "points"), "start": Estimate.exact(2)}
    assert verdicts.line("C04", ruling, growth, "held-out images") == (
        "**C04: inconclusive** (growth is undecided, start holds). "
        "Growth of A − B: +5.2 points [−1.9, 12.3], n = 3 seeds; start: 2. "
        "Held-out images."
    )
    for count, last in ((10, "number 9: 9."), (28, "and 19 more numbers, in result.json.")):
        words = verdicts.line("C09", judge(given(True)), {f"number {n}": Estimate.exact(n) for n in range(count)})
        assert words.endswith(f"; number 8: 8; {last}")
