"""Batches: every image once an epoch, the same batch for the same step, bytes to −1…1."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from vitlab.data.augment import Augmentation, boxes, draw, mixed
from vitlab.data.loader import ImageSet, batches, epoch_order, rows_of, to_float
from vitlab.data.world import World, stream


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


def test_chunks_are_the_set_in_order():
    found = list(numbered(10).chunks(4))
    assert [len(images) for images, _ in found] == [4, 4, 2]
    assert torch.cat([images for images, _ in found]).equal(numbered(10).images)
    assert torch.cat([labels for _, labels in found]).equal(numbered(10).labels)
    with pytest.raises(ValueError, match="batch_size is 0"):
        numbered(10).chunks(0)


# ---- slices ----

KINDS = [
    None,
    Augmentation(crop="pad", pad=3, flip=True),
    Augmentation(crop="inception", flip=True),
    Augmentation(crop="pad", pad=2, mixup=0.4),
    Augmentation(crop="inception", flip=True, mixup=0.4),
]


def noisy(n: int) -> ImageSet:
    generator = torch.Generator().manual_seed(n)
    images = torch.randint(0, 256, (n, 3, 7, 7), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(n) % 5, tuple("abcde"))


def equal(found, wanted) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [(0, 8, 16), (0, 4, 8, 12, 16), (0, 1, 3, 13, 16)])
def test_slices_are_the_batch_cut_up(kind, cuts):
    batch = batches(noisy(21), 16, seed=0, augmentation=kind)
    other = batches(noisy(21), 16, seed=0, augmentation=kind)  # another process
    for step in (0, 1, 9):
        parts = [other(step, *ends) for ends in reversed(list(zip(cuts, cuts[1:], strict=False)))][::-1]
        assert equal([torch.cat(part) for part in zip(*parts, strict=True)], batch(step))


@pytest.mark.parametrize("size", [9, 32, 33])
def test_slices_of_the_world_are_the_batch_cut_up(size):
    """At 32 and 33 pixels a few bytes depend on how many images are painted at once (14, 15, 38 to 41 and 91)."""
    batch = stream(World(image_size=size), 100)
    images, labels = batch(0)
    for start, stop in [(15, 16), (14, 16), (91, 98), (39, 40), (0, 50), (50, 100), (99, 100)]:
        assert equal(batch(0, start, stop), (images[start:stop], labels[start:stop]))
    later = stream(World(image_size=size), 100, start=100)
    assert equal(later(0, 30, 40), batch(1, 30, 40))


def test_a_slice_takes_one_image_more_for_its_last_partner():
    assert rows_of(8, 2, 5, Augmentation()).tolist() == [2, 3, 4]
    assert rows_of(8, 2, 5, Augmentation(mixup=1.0)).tolist() == [2, 3, 4, 5]
    assert rows_of(8, 5, None, Augmentation(mixup=1.0)).tolist() == [5, 6, 7, 0]


@pytest.mark.parametrize("start, stop", [(0, 9), (-1, 3), (3, 3), (5, 2), (8, None)])
def test_a_slice_lies_within_its_batch(start, stop):
    for batch in (batches(noisy(21), 8, seed=0), stream(World(image_size=8), 8)):
        with pytest.raises(ValueError, match="a batch of 8; expected 0 ≤ start < stop ≤ 8"):
            batch(0, start, stop)


# ---- augmentation ----


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_augmented_batch_is_what_a_loop_over_its_images_makes(kind):
    """In float64, from the numbers drawn: crop, flip, then mix with the next image of the batch."""
    data, step = noisy(50), 4
    images, labels = batches(data, 16, seed=7, augmentation=kind)(step)
    plain = batches(data, 16, seed=7)(step)
    drawn = draw(kind, 16, 7, step)
    made = []
    for i, image in enumerate(plain[0].double()):
        if kind.crop == "pad":
            top, left = (drawn.position[i] * (2 * kind.pad + 1)).long().tolist()
            image = F.pad(image, (kind.pad,) * 4, mode="reflect")[:, top : top + 7, left : left + 7]
        else:
            top, left, height, width = boxes(drawn[i : i + 1], 7, 7)[0].tolist()
            crop = image[None, :, top : top + height, left : left + width]
            image = F.interpolate(crop, (7, 7), mode="bilinear")[0]
        made.append(image.flip(-1) if drawn.flip[i] else image)
    wanted = [drawn.weight * made[i] + (1 - drawn.weight) * made[(i + 1) % 16] for i in range(16)]
    torch.testing.assert_close(images.double(), torch.stack(wanted), rtol=0, atol=1e-5)
    if not kind.mixup:
        assert torch.equal(labels, plain[1])
        return
    one_hot = torch.eye(5)[plain[1]]
    torch.testing.assert_close(labels, drawn.weight * one_hot + (1 - drawn.weight) * one_hot.roll(-1, 0))


@pytest.mark.parametrize("kind", KINDS[3:])
def test_mixed_last_of_all(kind):
    """The images are cropped before they are mixed."""
    data, step = noisy(50), 4
    images, labels = batches(data, 16, seed=7, augmentation=kind)(step)
    cropped = dataclasses.replace(kind, mixup=0.0)
    plain, classes = batches(data, 16, seed=7, augmentation=cropped)(step)
    drawn = draw(kind, 16, 7, step)
    there = torch.arange(17) % 16
    assert equal((images, labels), mixed(plain[there], classes[there], drawn, 5)) and not torch.equal(images, plain)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_augmented_batch_depends_on_seed_and_step_alone(kind):
    forwards, backwards = (batches(noisy(10), 4, seed=3, augmentation=kind) for _ in range(2))
    state = torch.get_rng_state()
    wanted = [forwards(step) for step in range(6)]
    assert all(equal(backwards(step), wanted[step]) for step in reversed(range(6)))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(batches(noisy(10), 4, seed=4, augmentation=kind)(0)[0], wanted[0][0])


def test_an_image_is_augmented_otherwise_each_epoch():
    kind = Augmentation(crop="pad", pad=3)
    batch = batches(noisy(1), 1, seed=0, augmentation=kind)
    assert len({tuple(batch(step)[0].flatten().tolist()) for step in range(10)}) > 5


def test_a_pad_as_large_as_the_image_is_refused_at_once():
    with pytest.raises(ValueError, match="pad is 7 but the images have 7×7 pixels"):
        batches(noisy(3), 2, seed=0, augmentation=Augmentation(crop="pad", pad=7))


def test_a_batch_of_one_is_its_own_partner():
    data = noisy(3)
    images, labels = batches(data, 1, seed=0, augmentation=Augmentation(mixup=0.4))(0)
    plain = batches(data, 1, seed=0)(0)
    torch.testing.assert_close(images, plain[0])
    torch.testing.assert_close(labels, torch.eye(5)[plain[1]])


def test_inception_crops_come_at_another_size_and_nothing_else_does():
    crops = Augmentation(crop="inception", area=(1.0, 1.0), aspect=(1.0, 1.0))
    images, labels = batches(noisy(40), 8, seed=0, augmentation=crops, image_size=5)(3)
    whole, same = batches(noisy(40), 8, seed=0)(3)
    assert torch.equal(labels, same)
    wanted = F.interpolate(whole, (5, 5), mode="bilinear", align_corners=False)
    torch.testing.assert_close(images, wanted, rtol=0, atol=1e-4)
    assert batches(noisy(40), 8, seed=0, image_size=7)(3)[0].shape == (8, 3, 7, 7)
    with pytest.raises(ValueError, match="image_size is 5 but the images have 7×7 pixels: only inception crops"):
        batches(noisy(40), 8, seed=0, image_size=5)
