"""Statistics of runs against hand values, simulation and invariants."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from vitlab import claims
from vitlab.claims.verdicts import Verdict
from vitlab.studies.statistics import (
    advantages,
    compute_factor,
    crossing,
    failed_starts,
    fit_frontier,
    frontier,
    jackknife_interval,
    mean_interval,
    paired,
    summary,
)

SIZES = [100, 1_000, 10_000]


# ---- compute frontiers ----


def test_the_frontier_is_what_no_other_point_beats():
    x = np.array([1.0, 2, 2, 3, 4, 4])
    assert frontier(x, np.array([0.1, 0.3, 0.2, 0.3, 0.5, 0.4])).tolist() == [True, True, False, False, True, False]


def test_a_line_in_logits_is_found_again():
    flops = np.array([1e9, 3e9, 1e10, 1e11])
    accuracy = scipy.special.expit(-11 + 1.1 * np.log10(flops))
    line = fit_frontier(flops, accuracy)
    assert (line.slope, line.intercept) == pytest.approx((1.1, -11))
    assert line.at(3e9) == pytest.approx(accuracy[1]) and line.flops == (1e9, 1e11)


def test_compute_that_bought_nothing_leaves_the_frontier_level():
    rising = fit_frontier([1e9, 1e10, 1e11], [0.2, 0.5, 0.4])  # the most expensive run is worse
    assert rising.flops == (1e9, 1e10) and rising.spent == 1e11
    assert rising.at(1e9) == pytest.approx(0.2) and rising.at(1e10) == rising.at(1e11) == pytest.approx(0.5)
    single = fit_frontier([1e10, 1e11], [0.3, 0.25])
    assert [single.at(flops) for flops in (1e10, 5e10, 1e11)] == pytest.approx([0.3] * 3)
    # From 1e10, where the second begins, to 1e11, where both end: what was found by then, 0.5 against 0.3.
    assert advantages(single, rising) == pytest.approx((-0.2, -0.2))
    assert compute_factor(single, rising) is None  # a level line has no compute at which it reaches an accuracy


@pytest.mark.parametrize("factor", [1.0, 2.7])
def test_a_family_that_needs_more_compute_everywhere_needs_that_factor(factor):
    flops = np.array([1e9, 1e10, 1e11])
    accuracy = scipy.special.expit(-9.5 + np.log10(flops))
    first, second = fit_frontier(flops, accuracy), fit_frontier(factor * flops, accuracy)
    assert compute_factor(first, second) == pytest.approx(factor)
    assert compute_factor(second, first) == pytest.approx(1 / factor)


def test_the_mean_distance_is_over_logits_and_not_over_accuracies():
    """By hand: as much at logit 0, 100 times as much at 4: ten times over the logits (4.22 over the accuracies)."""
    accuracy = scipy.special.expit(np.array([0.0, 4.0]))
    first, second = fit_frontier([1e9, 1e10], accuracy), fit_frontier([1e9, 1e12], accuracy)
    assert compute_factor(first, second) == pytest.approx(10)


def test_what_cannot_be_compared_has_no_number():
    low, high = fit_frontier([1e9, 1e10], [0.1, 0.2]), fit_frontier([1e9, 1e10], [0.5, 0.6])
    assert compute_factor(low, high) is None  # no accuracy that both reach
    early, late = fit_frontier([1e6, 1e7], [0.1, 0.2]), fit_frontier([1e9, 1e10], [0.1, 0.2])
    assert advantages(early, late) is None  # no compute that both had
    assert advantages(high, low) == pytest.approx((0.4, 0.4))


# ---- crossing ----


@pytest.mark.parametrize(
    "difference, size",
    [
        ([-0.1, -0.1, 0.1], 10**3.5),  # half way, on a logarithmic axis
        ([-0.3, 0.1, 0.2], 100 * 10**0.75),
        ([-0.2, 0.0, 0.2], 1_000),  # exactly at a size that was measured
        ([0.1, -0.1, 0.1], 10**3.5),  # the last crossing: from there it stays above
        ([-0.1, 0.1, -0.1], None),  # does not stay
        ([-0.3, -0.2, -0.1], None),
        ([0.1, 0.2, 0.3], None),  # nothing was overtaken
        ([0.0, 0.1, 0.2], None),  # never behind
        ([-0.1, -0.1, 0.0], None),  # equal is not ahead
    ],
)
def test_crossings_by_hand(difference, size):
    found = crossing(SIZES, difference)
    assert found is None if size is None else found == pytest.approx(size)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda s=s: crossing(s, [-0.1, 0.0, 0.1]) for s in ([100, 1000], [1000, 100, 10], [9, 9, 90], [0, 10, 100])),
        lambda: crossing(SIZES, [-1, 1, math.nan]),
        lambda: frontier([1e9, 1e10], [0.5, math.nan]),
    ],
)
def test_statistics_of_what_is_no_number_are_refused(call):
    with pytest.raises(ValueError, match="expected"):
        call()


def test_pairs_leave_out_seeds_that_lack_one_and_refuse_two_rows_of_a_cell():
    rows = pd.DataFrame({"arm": ["a", "b", "a", "a"], "seed": [0, 0, 1, 2], "test_accuracy": [0.75, 0.5, 0.9, 0.1]})
    assert paired(rows, "arm", "a", "b").to_dict() == {0: 0.25}
    assert paired(rows, "arm", "b", "a").to_dict() == {0: -0.25}
    assert paired(rows, "arm", "a", "c").empty
    with pytest.raises(ValueError, match="duplicate"):
        paired(pd.concat([rows, rows]), "arm", "a", "b")


def test_a_summary_is_student_s_interval():
    rows = pd.DataFrame({"arm": ["a"] * 3 + ["b"], "test_accuracy": [0.5, 0.6, 0.7, 0.4]})
    a, b = summary(rows, ["arm"]).to_dict("records")
    wanted = scipy.stats.t.interval(0.95, 2, 0.6, scipy.stats.sem([0.5, 0.6, 0.7]))
    assert (a["low"], a["high"]) == pytest.approx(wanted) and a["n"] == 3
    assert b == {"arm": "b", "mean": 0.4, "low": 0.4, "high": 0.4, "n": 1}


# ---- intervals ----


def coverage(interval, sample, truth, repeats):
    """Simulate in what share of samples an interval holds the truth; of samples without one none is counted."""
    generator = np.random.default_rng(0)
    found = [bounds for _ in range(repeats) if (bounds := interval(sample(generator))) is not None]
    return np.mean([low <= truth <= high for low, high in found])


@pytest.mark.parametrize("n, naive", [(3, 0.5), (10, 0.85)])
def test_where_runs_fail_to_start_no_interval_is_given(n, naive):
    """Of such a mixture a t interval covers the mean half of the time; what is left covers that of the started runs."""

    def runs(generator):
        learned = generator.normal(0.7, 0.02, size=n)
        return np.where(generator.random(n) < 0.15, generator.normal(0.1, 0.005, size=n), learned)

    def careful(values):
        return claims.Estimate.of(values, failed=int(failed_starts(values, 2000, 0.1).sum())).interval

    assert coverage(mean_interval, runs, 0.85 * 0.7 + 0.15 * 0.1, repeats=500) < naive
    assert 0.93 < coverage(careful, runs, 0.7, repeats=1000) < 0.97


@pytest.mark.parametrize("n", [2, 5, 200])
def test_the_t_interval_is_scipys(n):
    values = np.random.default_rng(n).normal(size=n)
    theirs = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
    assert mean_interval(values) == pytest.approx(theirs, rel=1e-12)
    left_out = (values.sum() - values) / (n - 1)
    assert jackknife_interval(values.mean(), left_out) == pytest.approx(theirs, rel=1e-9)  # of a mean: the same


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01, 1 / 300])
@pytest.mark.parametrize("n_images", [200, 2000, 10_000])
def test_chance_ends_where_guessing_is_right_as_often_once_in_a_thousand(n_images, chance):
    bound = scipy.stats.binom.isf(1e-3, n_images, chance) / n_images
    accuracies = [1.0, bound, bound + 1 / n_images, 1.0]
    assert failed_starts(accuracies, n_images, chance).tolist() == [False, True, False, False]


@pytest.mark.parametrize("accuracies", [[0.7, 0.3], [0.1, 0.11]])  # all started; none did: no mixture
def test_no_start_failed_where_all_runs_are_alike(accuracies):
    assert not failed_starts(accuracies, 2000, 0.1).any()


def test_runs_that_failed_to_start_decide_nothing_and_are_named():
    values = [70.0, 10.0, 69.0, 71.0, 70.0]
    failed = int(failed_starts(np.array(values) / 100, 2000, 0.1).sum())
    estimate = claims.Estimate.of(values, "%", failed=failed)
    assert str(estimate) == "58 %, n = 5 seeds, of which 1 never started to learn: no interval"
    ruling = claims.judge(claims.above(estimate, 50))
    assert ruling.verdict is Verdict.INCONCLUSIVE and "do not start to learn" in ruling.advice


@pytest.mark.parametrize("values", [[], [1.0, math.nan], np.ones((2, 2))])
@pytest.mark.parametrize("make", [mean_interval, lambda values: jackknife_interval(0.5, values), claims.Estimate.of])
def test_an_interval_of_what_is_no_list_of_numbers_is_refused(make, values):
    with pytest.raises(ValueError, match="expected a list of one or more finite numbers"):
        make(values)
