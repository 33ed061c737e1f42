"""Two samples of one number: the pooled estimate is that of all observations, and a difference is Welch's."""

import math

import numpy as np
import pytest
import scipy.stats

from vitlab import paths
from vitlab.ledger import pooling, report, second
from vitlab.ledger.entries import estimate
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.study import TOGETHER

ONE, TWO = [3.1, 4.0, 5.6, 2.2, 4.4], [6.0, 4.9, 5.5]


def test_pooling_gives_what_all_observations_give():
    pooled, wanted = pooling.as_one(Estimate.of(ONE, "points"), Estimate.of(TWO, "points")), Estimate.of(ONE + TWO)
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx((wanted.value, wanted.low, wanted.high), rel=1e-12)
    assert (pooled.n, pooled.unit, pooled.counted) == (8, "points", "seeds")


def ratio(factors):
    """A geometric mean with its interval."""
    of_logs = Estimate.of(np.log(factors))
    return Estimate(*map(math.exp, (of_logs.value, of_logs.low, of_logs.high)), len(factors), "×")


def test_ratios_are_pooled_by_their_logarithms():
    pooled, wanted = pooling.as_one(ratio(ONE), ratio(TWO)), ratio(ONE + TWO)
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx((wanted.value, wanted.low, wanted.high), rel=1e-12)


def test_samples_without_spread_keep_their_own_difference():
    pooled = pooling.as_one(Estimate.of([100.0] * 5), Estimate.of([90.0] * 5))
    wanted = Estimate.of([100.0] * 5 + [90.0] * 5)
    assert (pooled.low, pooled.high) == pytest.approx((wanted.low, wanted.high), rel=1e-12)
    assert pooling.as_one(Estimate.of([0.0] * 5), Estimate.of([0.0] * 5)).half_width == 0


@pytest.mark.parametrize(
    "other",
    [
        Estimate.of([1.0]),  # no interval
        Estimate.exact(3.0),
        Estimate.of([1.0, 2.0, 3.0], failed=1),
        Estimate.of(TWO, "%"),
        Estimate.of(TWO, counted="images"),
        Estimate(5.0, 4.0, 7.0, 3),  # not a t interval of the mean
    ],
    ids=str,
)
def test_what_cannot_be_pooled_is_not(other):
    assert pooling.as_one(Estimate.of(ONE), other) is None and pooling.as_one(other, Estimate.of(ONE)) is None
    assert pooling.differ(Estimate.of(ONE), other) is None


def test_a_ratio_whose_interval_is_not_of_logarithms_is_not_pooled():
    assert pooling.as_one(ratio(ONE), Estimate(2.0, 1.0, 3.0, 3, "×")) is None
    assert pooling.as_one(ratio(ONE), Estimate(1.0, -1.0, 3.0, 3, "×")) is None


@pytest.mark.parametrize("shift", np.linspace(-4, 4, 33))
def test_a_difference_is_welchs(shift):
    moved = [x + shift for x in TWO]
    wanted = scipy.stats.ttest_ind(ONE, moved, equal_var=False).pvalue < 0.05
    assert pooling.differ(Estimate.of(ONE), Estimate.of(moved)) == wanted


def test_samples_without_spread_differ_if_they_are_not_equal():
    assert pooling.differ(Estimate.of([1.0] * 3), Estimate.of([2.0] * 3))
    assert pooling.differ(Estimate.of([1.0] * 3), Estimate.of([1.0] * 5)) is False


def test_two_samples_of_one_population_differ_one_time_in_twenty():
    generator = np.random.default_rng(0)
    found = [
        pooling.differ(Estimate.of(generator.normal(size=5)), Estimate.of(generator.normal(size=9)))
        for _ in range(2000)
    ]
    assert 0.035 < np.mean(found) < 0.065


def test_pooled_numbers_are_those_that_the_notebooks_made_of_the_runs_of_both_draws():
    """Notebooks judge the runs of both draws of some claims as one: another way to the number."""
    first, again = (report.read_results(paths.reference_dir(name))[0] for name in ("quick", second.FOLDER))
    twice = second.drawn(first, again)
    compared = 0
    for notebook, claim, runs in (("04_data_scaling", "C05", 10), ("11_design_choices", "C17", 18)):
        judged = first[notebook][TOGETHER][claim]["numbers"]
        by_all = {each["metric"]: str(estimate(each)) for each in judged}
        for number in twice[claim].numbers:
            metric = number.metric.removesuffix(", full")
            if metric != number.metric and metric in by_all:
                assert str(number.both) == by_all[metric], (claim, metric)
                assert number.both.n <= runs
                compared += 1
    assert compared == 6
