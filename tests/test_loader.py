"""Batches: every image once an epoch, the same batch for the same step, bytes to −1…1; the same from files."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from vitlab.data import datasets
from vitlab.data.augment import Augmentation, boxes, draw
from vitlab.data.loader import ImageSet, batch_indices, batches, content_hash, to_float
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


def test_images_and_labels_stay_together():
    images, labels = batches(numbered(50), 8, seed=0)(11)
    assert images.shape == (8, 3, 2, 2)
    torch.testing.assert_close(images[:, 0, 0, 0], labels / 127.5 - 1)
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1).expand(3, 3, 1, 1)
    torch.testing.assert_close(to_float(pixels)[:, 0, 0, 0], torch.tensor([-1.0, -0.6, 1.0]))
    with pytest.raises((ValueError, TypeError), match="float32|f32"):
        to_float(pixels / 255)
    assert pixels.unique().tolist() == [0, 51, 255]  # the bytes are left as they are


def test_what_means_nothing_is_refused(folder):
    made = object.__new__(ImageSet)  # as a user makes it, whose annotations nobody checks
    for n, labels in ((3, 2), (0, 0)):
        object.__setattr__(made, "images", torch.zeros(n, 3, 2, 2, dtype=torch.uint8))
        object.__setattr__(made, "labels", torch.zeros(labels, dtype=torch.int64))
        with pytest.raises(ValueError, match=f"{n} images, {labels} labels; expected one for each, at least one"):
            made.__post_init__()
    with pytest.raises(ValueError, match="pad is 7 but the images have 7×7 pixels"):
        batches(noisy(3), 2, seed=0, augmentation=Augmentation(crop="pad", pad=7))
    for images, kind in ((noisy(40), None), (folder, None), (folder, CROPS)):
        with pytest.raises(ValueError, match="image_size is 5 but the images have .* pixels: only inception crops"):
            batches(images, 8, seed=0, image_size=5, augmentation=kind)


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
def test_slices_are_the_batch_cut_up(kind):
    batch, other = (batches(noisy(21), 16, seed=0, augmentation=kind) for _ in range(2))  # the other: another process
    cuts = (0, 1, 3, 13, 16)
    for step in (0, 1, 9):
        parts = [other(step, *ends) for ends in reversed(list(zip(cuts, cuts[1:], strict=False)))][::-1]
        assert equal([torch.cat(part) for part in zip(*parts, strict=True)], batch(step))


def test_a_slice_lies_within_its_batch():
    for feed in (lambda size: batches(noisy(21), size, seed=0), lambda size: stream(World(image_size=8), size)):
        for start, stop in [(0, 9), (-1, 3), (3, 3), (5, 2), (8, None)]:
            with pytest.raises(ValueError, match="a batch of 8; expected 0 ≤ start < stop ≤ 8"):
                feed(8)(0, start, stop)
        with pytest.raises(ValueError, match="a batch of 0; expected"):
            feed(0)(0)


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_depends_on_seed_and_step_alone(kind):
    forwards, backwards = (batches(noisy(10), 4, seed=3, augmentation=kind) for _ in range(2))
    state = torch.get_rng_state()
    wanted = [forwards(step) for step in range(6)]
    assert all(equal(backwards(step), wanted[step]) for step in reversed(range(6)))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(batches(noisy(10), 4, seed=4, augmentation=kind)(0)[0], wanted[0][0])


def test_inception_crops_come_at_another_size_and_nothing_else_does():
    crops = Augmentation(crop="inception", area=(1.0, 1.0), aspect=(1.0, 1.0))
    images, labels = batches(noisy(40), 8, seed=0, augmentation=crops, image_size=5)(3)
    whole, same = batches(noisy(40), 8, seed=0)(3)
    assert torch.equal(labels, same)
    wanted = F.interpolate(whole, (5, 5), mode="bilinear", align_corners=False)
    torch.testing.assert_close(images, wanted, rtol=0, atol=1e-4)
    assert batches(noisy(40), 8, seed=0, image_size=7)(3)[0].shape == (8, 3, 7, 7)


# ---- from files ----

CROPS = Augmentation(crop="inception", flip=True, mixup=0.4)


def write(path, size, seed=0):
    """Smooth noise, so that a resized image still shows which one it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Ten images of three classes in train/ and three of two in test/, of several sizes."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(10):
        write(root / f"train/{'abc'[i % 3]}/{i}.png", (20 + 3 * i, 40 - 2 * i), seed=i)
    for i in range(3):
        write(root / f"test/{'ac'[i % 2]}/{i}.jpg", (24, 30), seed=100 + i)
    return root


@pytest.fixture
def folder(root):
    return datasets.open_folder(root, image_size=16)


@pytest.mark.parametrize("split", ["train", "test"])
def test_chunks_are_the_set_that_memory_would_hold(root, split):
    folder, whole = datasets.open_folder(root, split, image_size=16), datasets.load(root, split, image_size=16)
    assert (folder.classes, len(folder)) == (whole.classes, len(whole)) == (("a", "b", "c"), len(whole))
    assert torch.equal(folder.labels, whole.labels)
    found = list(folder.chunks(4))
    assert [len(images) for images, _ in found] == {"train": [4, 4, 2], "test": [3]}[split]
    assert equal([torch.cat(part) for part in zip(*found, strict=True)], (whole.images, whole.labels))


@pytest.mark.parametrize("kind", [None, KINDS[1], Augmentation(crop="pad", pad=3, flip=True, mixup=0.3)])
def test_without_inception_crops_a_folder_gives_what_memory_gives(root, folder, kind):
    held = batches(datasets.load(root, image_size=16), 4, seed=5, augmentation=kind)
    streamed = batches(folder, 4, seed=5, augmentation=kind, workers=0)
    for request in ((0,), (1,), (7,), (2, 1, 3)):
        assert equal(streamed(*request), held(*request))


def test_inception_crops_are_cut_from_the_file(folder):
    kind = Augmentation(crop="inception", flip=True)
    images, labels = batches(folder, 6, seed=2, augmentation=kind, workers=0)(3)
    numbers, drawn = batch_indices(10, 6, seed=2)(3), draw(kind, 6, 2, 3)
    assert torch.equal(labels, folder.labels[numbers])
    for row, number in enumerate(numbers):
        with Image.open(folder.paths[number]) as image:
            top, left, height, width = boxes(drawn[row : row + 1], image.height, image.width)[0].tolist()
            pixels = np.asarray(image)[top : top + height, left : left + width]
        wanted = torch.from_numpy(np.array(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BILINEAR)))
        wanted = to_float(wanted.permute(2, 0, 1))
        assert torch.equal(images[row], wanted.flip(-1) if drawn.flip[row] else wanted)


def test_an_unreadable_file_is_named(tmp_path):
    write(tmp_path / "a/whole.png", (20, 20))
    (tmp_path / "a/cut.png").write_bytes((tmp_path / "a/whole.png").read_bytes()[:60])
    folder = datasets.open_folder(tmp_path, image_size=8)  # whose headers are whole
    for kind, workers in ((None, 0), (CROPS, 2)):
        with pytest.raises(ValueError, match=r"cut\.png cannot be read .*replace or remove it"):
            batches(folder, 2, seed=0, augmentation=kind, workers=workers)(0)
    with pytest.raises(ValueError, match=r"cut\.png cannot be read"):
        list(folder.chunks(2))
    (tmp_path / "a/one.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"one\.png cannot be read .*; replace or remove it"):
        datasets.open_folder(tmp_path, image_size=8)


def test_a_folder_is_known_by_its_contents(tmp_path):
    def hashed(name):
        return content_hash(datasets.open_folder(tmp_path / name, image_size=8))

    for name in ("here", "there"):
        write(tmp_path / name / "a/1.bmp", (90, 60))
    assert hashed("here") == hashed("there")
    path = tmp_path / "there/a/1.bmp"
    whole = path.read_bytes()
    assert len(whole) > 3 * 4096
    for changed in (whole[:-1] + b"!", whole[:60] + b"!" + whole[61:], whole + b"!"):
        path.write_bytes(changed)
        assert hashed("here") != hashed("there")
    path.write_bytes(whole)
    path.rename(path.with_name("2.bmp"))
    assert hashed("here") != hashed("there")


def test_decoding_ahead_gives_what_decoding_when_asked_gives(folder):
    """Whole batches, jumps back and forth, a resumed run's, accumulation's slices, and one process's share."""
    inline, streamed = (batches(folder, 6, seed=1, augmentation=CROPS, workers=workers) for workers in (0, 2))
    asked = [(0, 0, 6), (1, 0, 6), (2, 0, 6), (9, 0, 6), (2, 0, 6), (2, 0, 6), (3, 0, 6)]
    asked += [(step, *window) for step in (4, 5) for window in ((0, 2), (2, 6))] + [(7, 3, 6), (8, 3, 6)]
    state = torch.get_rng_state()
    assert all(equal(streamed(*request), inline(*request)) for request in asked)
    assert torch.equal(torch.get_rng_state(), state)  # dropout draws from it
