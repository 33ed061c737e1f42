"""Speed and the largest batch: every model at every size has its numbers, and a batch too large is survived."""

import sys

import pytest

from vitlab.studies import speed

pytestmark = pytest.mark.slow
SIZES = speed.SIZES["smoke"] | {"models": ("Lab-Mu/8",)}  # a process to try batches takes seconds to start


@pytest.fixture(scope="module")
def table():
    return speed.measure(**SIZES)


def test_every_model_is_timed_at_every_size_in_every_round(table):
    found = speed.select(table, "images_per_second")
    counts = found.groupby(["model", "image_size"]).size()
    assert len(counts) == len(SIZES["models"]) * len(SIZES["sides"]) and set(counts) == {SIZES["n_rounds"]}
    assert (found["images_per_second"] > 0).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to a limit")
def test_a_smaller_image_leaves_room_for_a_larger_batch(table):
    found = speed.select(table, "largest_batch").pivot(index="model", columns="image_size", values="largest_batch")
    assert (found > 0).all(axis=None) and (found[16] > 2 * found[32]).all()


@pytest.mark.parametrize("limit", [0, 1, 22, 100, 12_345])
def test_the_largest_that_fits_is_found_to_a_sixteenth(limit):
    assert limit / (1 + 1 / 16) <= speed.largest(lambda batch: batch <= limit) <= limit
