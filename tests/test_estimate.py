"""A number with its interval: made from seeds, checked, printed."""

import math

import numpy as np
import pytest

from vitlab.claims.estimate import Estimate


def test_three_seeds_by_hand():
    found = Estimate.of([0.0, 10.0, 5.0], "points")  # sd 5, t2 = 4.303: ± 12.42
    assert (found.value, found.n, found.unit) == (5.0, 3, "points")
    assert found.interval == pytest.approx((-7.42, 17.42), abs=0.01)
    assert found.half_width == pytest.approx(12.42, abs=0.01)
    assert Estimate.of(np.array([2.0, 2.0])).interval == (2.0, 2.0)
    assert Estimate.of([2.0]).interval is None and Estimate.of([2.0]).half_width == math.inf
    assert Estimate.exact(3).interval is None and Estimate.exact(3).half_width == 0


@pytest.mark.parametrize(
    "estimate, text",
    [
        (Estimate(5.2, -1.9, 12.3, 3, "points"), "+5.2 points [−1.9, 12.3], n = 3 seeds"),
        (Estimate(-1.7, -63.26, 59.86, 3, "points"), "−2 points [−63, 60], n = 3 seeds"),
        (Estimate(0.0533, 0.0388, 0.0679, 96, counted="filters"), "0.053 [0.039, 0.068], n = 96 filters"),
        (Estimate(3.014, 2.7718, 3.253, 128, "px", "images"), "3.01 px [2.77, 3.25], n = 128 images"),
        (Estimate(1.54e-6, 1.91e-7, 1.54e-6, 15, counted="draws"), "1.5e−06 [1.9e−07, 1.5e−06], n = 15 draws"),
        (Estimate(12_345.6, 11_000, 13_000, 1_200, "images"), "12,346 images [11,000, 13,000], n = 1,200 seeds"),
        (Estimate(0.0, 0.0, 0.0, 128, "", "images"), "0 [0, 0], n = 128 images"),
        (Estimate(-0.04, -9.0, 9.0, 3, "points"), "0.0 points [−9.0, 9.0], n = 3 seeds"),
        (Estimate(9.0, 9 - 0.1, 9 + 0.1, 5), "9.00 [8.90, 9.10], n = 5 seeds"),  # 9 + 0.1 − 9 is not 0.1
        (Estimate.of([0.5], "points"), "+0.5 points, n = 1 seed"),
        (Estimate(-1.1e-16, None, None, 2, "points"), "−1.1e−16 points, n = 2 seeds, no interval"),
        (Estimate.exact(86_567_656), "86,567,656"),
        (Estimate.exact(0.125, "s"), "0.125 s"),
    ],
)
def test_it_prints_itself(estimate, text):
    assert str(estimate) == text


@pytest.mark.parametrize(
    "fields, message",
    [
        ((math.nan, 0, 1, 3), "value nan, .* expected finite numbers"),
        ((0.5, 0, math.inf, 3), "expected finite numbers"),
        ((math.nan, None, None, 3), "expected finite numbers"),
        ((0.5, 2.0, 1.0, 3), r"value 0.5 lies outside its interval \(2.0, 1.0\)"),
        ((5, 0, 1, 3), r"value 5 lies outside its interval \(0, 1\)"),
    ],
)
def test_what_is_no_estimate_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Estimate(*fields)
