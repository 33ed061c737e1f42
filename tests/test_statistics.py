"""Statistics of runs against hand values, simulation and invariants."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from vitlab import claims
from vitlab.studies.statistics import (
    crossing,
    failed_starts,
    frontier,
    mean_interval,
    paired,
    summary,
)

SIZES = [100, 1_000, 10_000]


# ---- compute frontiers ----


def test_the_frontier_is_what_no_other_point_beats_in_order():
    x, y = [1e1, 1e2, 1e2, 1e4, 1e5, 1e5, 1e3], [0.1, 0.3, 0.2, 0.3, 0.5, 0.4, 0.25]
    log, best = frontier(np.array(x), np.array(y))
    assert log.tolist() == pytest.approx([1, 2, 5]) and best.tolist() == [0.1, 0.3, 0.5]


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
        return None if failed_starts(values, 2000, 0.1).any() else mean_interval(values)

    assert coverage(mean_interval, runs, 0.85 * 0.7 + 0.15 * 0.1, repeats=500) < naive
    assert 0.93 < coverage(careful, runs, 0.7, repeats=1000) < 0.97


@pytest.mark.parametrize("n", [2, 5, 200])
def test_the_t_interval_is_scipys(n):
    values = np.random.default_rng(n).normal(size=n)
    theirs = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
    assert mean_interval(values) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01, 1 / 300])
@pytest.mark.parametrize("n_images", [200, 2000, 10_000])
def test_chance_ends_where_guessing_is_right_as_often_once_in_a_thousand(n_images, chance):
    bound = scipy.stats.binom.isf(1e-3, n_images, chance) / n_images
    accuracies = [1.0, bound, bound + 1 / n_images, 1.0]
    assert failed_starts(accuracies, n_images, chance).tolist() == [False, True, False, False]


@pytest.mark.parametrize("accuracies", [[0.7, 0.3], [0.1, 0.11]])  # all started; none did: no mixture
def test_no_start_failed_where_all_runs_are_alike(accuracies):
    assert not failed_starts(accuracies, 2000, 0.1).any()


@pytest.mark.parametrize("values", [[], [1.0, math.nan], np.ones((2, 2))])
@pytest.mark.parametrize("make", [mean_interval, claims.Estimate.of])
def test_an_interval_of_what_is_no_list_of_numbers_is_refused(make, values):
    with pytest.raises(ValueError, match="expected a list of one or more finite numbers"):
        make(values)
