"""Speed and the largest batch: every model at every size has its numbers, and memory is what a hand counts."""

import pytest
import torch
from torch import nn

from vitlab.studies import speed

SIZES = speed.SIZES["smoke"]


@pytest.fixture(scope="module")
def table():
    return speed.measure(**SIZES)


def test_every_model_is_timed_at_every_size_in_every_round(table):
    found = table[table["kind"] == "speed"]
    counts = found.groupby(["model", "image_size"]).size()
    assert len(counts) == len(SIZES["models"]) * len(SIZES["sides"]) and set(counts) == {SIZES["n_rounds"]}
    assert (found["images_per_second"] > 0).all()


def test_a_smaller_image_leaves_room_for_a_larger_batch(table):
    found = table.pivot_table(index="model", columns="image_size", values="largest_batch")
    assert (found > 0).all(axis=None) and (found[16] > 2 * found[32]).all()


def test_memory_is_that_of_the_two_results_that_are_alive_together():
    model = nn.Sequential(nn.Linear(10, 1000), nn.Linear(1000, 300), nn.Linear(300, 1000), nn.Flatten())
    # 8 images in float32: 1000 and 300 numbers at a time; a view, as Flatten's, takes nothing
    assert speed.activation_bytes(model.eval(), torch.zeros(8, 10)) == 8 * 4 * (1000 + 300)
