"""Statistics of runs against hand values, simulation and invariants."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from vitlab.studies.statistics import (
    advantages,
    compute_factor,
    coverage,
    crossing,
    crossing_interval,
    failed_pairs,
    fit_frontier,
    frontier,
    paired,
    summary,
)

SIZES = [100, 1_000, 10_000]


# ---- compute frontiers ----


def test_the_frontier_is_what_no_other_point_beats():
    x = np.array([1.0, 2, 2, 3, 4, 4])
    y = np.array([0.1, 0.3, 0.2, 0.3, 0.5, 0.4])
    assert frontier(x, y).tolist() == [True, True, False, False, True, False]


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


def test_a_crossing_does_not_depend_on_the_unit_of_the_difference_and_scales_with_the_sizes():
    base = crossing(SIZES, [-0.2, -0.05, 0.15])
    assert crossing(SIZES, [-20, -5, 15]) == pytest.approx(base)
    assert crossing([7 * size for size in SIZES], [-0.2, -0.05, 0.15]) == pytest.approx(7 * base)


@pytest.mark.parametrize(
    "shared, size, share", [([-0.1, -0.1, 0.1], 10**3.5, 1), ([-0.3, -0.2, -0.1], math.inf, 0), ([0.3, 0.2, 0.1], 0, 0)]
)
def test_the_interval_of_what_all_seeds_share_is_a_point(shared, size, share):
    interval, found = crossing_interval(SIZES, np.tile(shared, (3, 1)))
    assert found == share and interval == pytest.approx((size, size))
    nearly = np.array([[-0.1, -0.1, -0.1], [-0.1, -0.1, -0.1 + 1e-15]])
    assert crossing_interval(SIZES, nearly)[1] == 0.0  # and nothing warns


def test_the_interval_of_a_crossing_is_open_where_some_draws_have_none():
    seeds = np.array([[-0.10, 0.02, 0.10], [-0.12, -0.05, -0.02], [-0.11, -0.02, 0.05]])
    (low, high), share = crossing_interval(SIZES, seeds)
    assert SIZES[0] < low < crossing(SIZES, seeds.mean(axis=0)) and high == math.inf and 0.5 < share < 0.97
    assert crossing_interval(SIZES, seeds) == ((low, high), share)  # a seed is a result


@pytest.mark.parametrize("n", [3, 10])
def test_the_interval_of_a_crossing_covers_as_often_as_it_says(n):
    mean = np.array([-0.1, -0.02, 0.06])
    truth = crossing(SIZES, mean)

    def seeds(generator):
        shared = 0.02 * generator.normal(size=(n, 1))  # of a seed's runs of all sizes, which see the same images
        return mean + shared + 0.02 * generator.normal(size=(n, len(SIZES)))

    found = coverage(lambda values: crossing_interval(SIZES, values, draws=400)[0], seeds, truth, 500)
    assert 0.915 < found < 0.985  # the bootstrap over the seeds: 0.75 and 0.90


@pytest.mark.parametrize(
    "call",
    [
        *(lambda s=s: crossing(s, [-0.1, 0.0, 0.1]) for s in ([100, 1000], [1000, 100, 10], [9, 9, 90], [0, 10, 100])),
        lambda: crossing(SIZES, [-1, 1, math.nan]),
        lambda: crossing_interval(SIZES, np.array([[-0.1, 0.0, 0.1]])),
        lambda: crossing_interval(SIZES, np.array([[-0.1, 0.0, 0.1], [-0.1, math.nan, 0.1]])),
        lambda: frontier([1e9, 1e10], [0.5, math.nan]),
    ],
)
def test_statistics_of_what_is_no_number_are_refused(call):
    with pytest.raises(ValueError, match="expected"):
        call()


def test_slopes_by_hand():
    assert slope_per_decade([1, 10, 100], [0.2, 0.3, 0.4]) == pytest.approx(0.1)
    assert slope_per_decade([10, 100], [0.5, 0.5]) == 0
    sizes, accuracy = [300, 1000, 5000, 30000], [0.2, 0.35, 0.3, 0.6]
    assert slope_per_decade(sizes, accuracy) == pytest.approx(scipy.stats.linregress(np.log10(sizes), accuracy).slope)


def test_pairs_of_which_a_run_never_left_chance_while_others_did_are_counted():
    def failed(first, second):
        rows = [("a", seed, each) for seed, each in enumerate(first)] + [
            ("b", seed, each) for seed, each in enumerate(second)
        ]
        return failed_pairs(
            pd.DataFrame(rows, columns=["model", "seed", "test_accuracy"]), "model", "a", "b", 2000, 0.1
        )

    assert failed([0.5, 0.1, 0.52], [0.4, 0.41, 0.4]) == 1
    assert failed([0.6, 0.6, 0.7], [0.1, 0.11, 0.1]) == 0  # b never starts: that is no lottery


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
