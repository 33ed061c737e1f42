"""Intervals: how often they cover, by simulation; runs that never started; what is refused."""

import math

import numpy as np
import pytest
import scipy.stats

from vitlab import claims
from vitlab.claims.verdicts import Verdict
from vitlab.studies.statistics import coverage, failed_starts, jackknife_interval, mean_interval

KINDS = {  # a sample of n, and the mean of what it is drawn from
    "normal": (lambda generator, n: generator.normal(size=n), 0.0),
    "share of right answers": (lambda generator, n: generator.binomial(2000, 0.7, size=n) / 2000, 0.7),
    "overlap of masks": (lambda generator, n: generator.beta(2, 3, size=n), 0.4),
    "skewed": (lambda generator, n: generator.exponential(size=n), 1.0),
}


@pytest.mark.parametrize("n", [3, 10, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_the_t_interval_covers_as_often_as_it_says(kind, n):
    sample, truth = KINDS[kind]
    least = 0.86 if kind == "skewed" and n < 30 else 0.92  # no interval of three values knows their skewness
    assert least < coverage(mean_interval, lambda generator: sample(generator, n), truth, repeats=1000) < 0.97


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
