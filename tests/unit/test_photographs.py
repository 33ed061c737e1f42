"""Crops of the photographs that come with the dependencies: pure, of the right sizes, and none of what is held out."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.data import photographs


def test_a_batch_is_a_function_of_its_step_and_slices_are_cut_from_it():
    first, other = photographs.stream(32, 8, seed=1), photographs.stream(32, 8, seed=2)
    images, labels = first(5)
    assert images.shape == (8, 3, 32, 32) and -1 <= images.min() < images.max() <= 1
    assert torch.equal(first(5)[0], images) and not torch.equal(first(6)[0], images)
    assert not torch.equal(other(5)[0], images)
    for k, whole in enumerate((images, labels)):
        assert torch.equal(torch.cat([first(5, 0, 3)[k], first(5, 3)[k]]), whole)
    assert set(torch.cat([first(step)[1] for step in range(8)]).tolist()) == {0, 1, 2}


def test_no_training_crop_has_a_pixel_that_is_held_out(monkeypatch):
    """Photographs whose pixels say where they are: black to train on, white to test on."""
    width = 400
    columns = np.where(np.arange(width) < 0.75 * width, 0, 255).astype(np.uint8)
    picture = Image.fromarray(np.broadcast_to(columns[None, :, None], (300, width, 3)).copy())
    monkeypatch.setattr(photographs, "_photographs", lambda: (("made up", picture),))
    assert photographs.image_set(200, 32, "train").images.max() == 0
    assert photographs.image_set(200, 32, "test").images.min() == 255
    assert all(photographs.stream(32, 50)(step)[0].max() == -1 for step in range(4))


def test_crops_by_hand(monkeypatch):
    """A photograph that rises by one grey level a pixel from left to right: a crop shows its own place and size."""
    ramp = np.broadcast_to(np.arange(200, dtype=np.uint8)[None, :, None], (160, 200, 3)).copy()
    part = Image.fromarray(ramp)
    row = np.array([[0.0, 0.0, 0.5, 0.5, 0.9]])  # the smallest crop, in the middle, not flipped: columns 80 … 119
    images, labels = photographs._crops([part], 40, row)
    assert images[0, 0, 0].tolist() == list(range(80, 120)) and labels.tolist() == [0]
    flipped, _ = photographs._crops([part], 40, row - [[0, 0, 0, 0, 0.8]])
    assert flipped[0, 0, 0].tolist() == list(range(119, 79, -1))
    largest, _ = photographs._crops([part], 40, np.array([[0.0, 1.0, 0.5, 0.0, 0.9]]))  # columns 0 … 119, a third
    assert largest[0, 0, 0].int().diff().float().mean() == pytest.approx(3, abs=0.02)


def test_every_second_crop_is_flipped_and_places_are_uniform(monkeypatch):
    ramp = np.broadcast_to(np.arange(200, dtype=np.uint8)[None, :, None], (160, 200, 3)).copy()
    draws = np.random.default_rng(0).random((600, 5))
    images, _ = photographs._crops([Image.fromarray(ramp)], 40, draws)
    steps = images[:, 0, 0, -1].int() - images[:, 0, 0, 0].int()
    assert (steps < 0).float().mean() == pytest.approx(0.5, abs=0.08)
    assert images[:, 0].float().mean() == pytest.approx(99.5, abs=4)  # the middle of the ramp
    assert steps.abs().min() < 45 and steps.abs().max() > 110  # crops 40 to 120 pixels wide


@pytest.mark.parametrize("size", [0, -3, 129, 1000])
def test_a_crop_larger_than_a_photograph_is_refused(size):
    with pytest.raises(ValueError, match=rf"image_size is {size}, but the test part of the photograph .* at most"):
        photographs.image_set(2, size)


def test_other_arguments_are_refused():
    with pytest.raises(ValueError, match="split is 'all'"):
        photographs.image_set(2, 32, "all")
    with pytest.raises(ValueError, match="batch_size is 0"):
        photographs.stream(32, 0)
