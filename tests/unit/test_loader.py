"""Batches: every image once an epoch, the same batch for the same step, bytes to −1…1."""

import pytest
import torch

from vitlab.data.loader import ImageSet, batches, epoch_order, to_float


def numbered(n: int) -> ImageSet:
    """Image i is filled with the grey level i, and so is its label."""
    images = torch.arange(n, dtype=torch.uint8).reshape(n, 1, 1, 1).expand(n, 3, 2, 2).contiguous()
    return ImageSet(images, torch.arange(n), tuple(str(i) for i in range(n)))


def labels_of(feed, steps) -> list[int]:
    return [label for step in steps for label in feed(step)[1].tolist()]


@pytest.mark.parametrize("n, batch_size", [(12, 4), (10, 4), (7, 3), (5, 8), (3, 10), (1, 2)])
def test_every_image_is_seen_once_before_any_is_seen_again(n, batch_size):
    seen = labels_of(batches(numbered(n), batch_size, seed=0), range(3 * n))
    epochs = [seen[i : i + n] for i in range(0, len(seen), n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
    if n > 4:
        assert len({tuple(epoch) for epoch in epochs}) > 1  # another order each time


def test_a_batch_depends_on_seed_and_step_alone():
    forwards, backwards = (batches(numbered(10), 4, seed=3) for _ in range(2))
    wanted = [forwards(step)[1].tolist() for step in range(20)]
    assert [backwards(step)[1].tolist() for step in reversed(range(20))] == wanted[::-1]
    assert wanted[17] == batches(numbered(10), 4, seed=3)(17)[1].tolist()  # asked for first
    assert labels_of(batches(numbered(10), 4, seed=4), range(20)) != [x for batch in wanted for x in batch]


def test_images_and_labels_stay_together():
    images, labels = batches(numbered(50), 8, seed=0)(11)
    assert images.shape == (8, 3, 2, 2)
    torch.testing.assert_close(images[:, 0, 0, 0], labels / 127.5 - 1)


def test_orders_of_neighbouring_seeds_and_epochs_differ():
    orders = {tuple(epoch_order(20, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_global_random_state_has_no_part_in_it():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = batches(numbered(10), 4, seed=0)(0)[1]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(batches(numbered(10), 4, seed=0)(0)[1], first)


def test_bytes_to_floats_by_hand():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1).expand(3, 3, 1, 1)
    found = to_float(pixels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[:, 0, 0, 0], torch.tensor([-1.0, -0.6, 1.0]))
    assert pixels.unique().tolist() == [0, 51, 255]  # the bytes are left as they are


@pytest.mark.parametrize("batch_size", [0, -3])
def test_an_empty_batch_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch_size is {batch_size}"):
        batches(numbered(4), batch_size, seed=0)


def unchecked(images, labels) -> ImageSet:
    """As a user makes it, whose annotations nobody checks."""
    made = object.__new__(ImageSet)
    for name, value in dict(images=images, labels=labels, classes=("a",), masks=None).items():
        object.__setattr__(made, name, value)
    made.__post_init__()
    return made


def test_a_set_needs_an_image_and_a_label_for_each():
    images = torch.zeros(3, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match="3 images but 2 labels"):
        unchecked(images, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="empty"):
        unchecked(images[:0], torch.zeros(0, dtype=torch.int64))
