"""Folders that memory cannot hold: the same batches for any number of workers, and no worker left behind."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.data import datasets, folders, loader
from vitlab.data.augment import Augmentation, boxes, draw
from vitlab.data.folders import batches, open_folder

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
    return open_folder(root, image_size=16)


def equal(found, wanted) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


# ---- the set ----


@pytest.mark.parametrize("split", ["train", "test"])
def test_chunks_are_the_set_that_memory_would_hold(root, split):
    folder, whole = open_folder(root, split, image_size=16), datasets.load(root, split, image_size=16)
    assert (folder.classes, len(folder)) == (whole.classes, len(whole)) == (("a", "b", "c"), len(whole))
    assert torch.equal(folder.labels, whole.labels)
    found = list(folder.chunks(4))
    assert [len(images) for images, _ in found] == {"train": [4, 4, 2], "test": [3]}[split]
    assert equal([torch.cat(part) for part in zip(*found, strict=True)], (whole.images, whole.labels))


def test_a_folder_by_its_name(root, monkeypatch):
    monkeypatch.setenv("VITLAB_DATA", str(root.parent))
    assert open_folder(root.name, image_size=8).paths == open_folder(root, image_size=8).paths


def test_what_is_missing_or_empty_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no folder nowhere: looked for .*VITLAB_DATA"):
        open_folder("nowhere", image_size=8)
    write(tmp_path / "mine/train/a/1.png", (8, 8))
    with pytest.raises(FileNotFoundError, match="no such test/"):
        open_folder("mine", "test", image_size=8)
    (tmp_path / "mine/train/b").mkdir()
    with pytest.raises(ValueError, match=r"no image in .*mine/train/b"):
        open_folder("mine", image_size=8)
    with pytest.raises(ValueError, match="'train' or 'test'"):
        open_folder("mine", "validation", image_size=8)
    with pytest.raises(ValueError, match="image_size is 0"):
        open_folder("mine", image_size=0)


def test_batches_that_mean_nothing_are_refused(folder):
    with pytest.raises(ValueError, match="batch_size is 0"):
        batches(folder, 0, seed=0)
    with pytest.raises(ValueError, match="batch_size is -1"):
        folder.chunks(-1)
    with pytest.raises(ValueError, match="workers is -1"):
        batches(folder, 4, seed=0, workers=-1)
    with pytest.raises(ValueError, match="pad is 16 but the images have 16×16"):
        batches(folder, 4, seed=0, augmentation=Augmentation(crop="pad", pad=16))
    with pytest.raises(ValueError, match="a batch of 4; expected"):
        batches(folder, 4, seed=0, workers=0)(0, 2, 5)


# ---- in this process ----


KINDS = [
    None,
    Augmentation(crop="pad", pad=3, flip=True, mixup=0.3),
    Augmentation(flip=True),
]


@pytest.mark.parametrize("kind", KINDS)
def test_without_inception_crops_a_folder_gives_what_memory_gives(root, folder, kind):
    held = loader.batches(datasets.load(root, image_size=16), 4, seed=5, augmentation=kind)
    streamed = batches(folder, 4, seed=5, augmentation=kind, workers=0)
    for step in (0, 1, 2, 7):
        assert equal(streamed(step), held(step))
        assert equal(streamed(step, 1, 3), held(step, 1, 3))


def test_inception_crops_are_cut_from_the_file(folder):
    kind = Augmentation(crop="inception", flip=True)
    images, labels = batches(folder, 6, seed=2, augmentation=kind, workers=0)(3)
    numbers, drawn = loader.shuffled(10, 6, seed=2)(3), draw(kind, 6, 2, 3)
    assert torch.equal(labels, folder.labels[numbers])
    for row, number in enumerate(numbers):
        with Image.open(folder.paths[number]) as image:
            top, left, height, width = boxes(drawn[row : row + 1], image.height, image.width)[0].tolist()
            pixels = np.asarray(image)[top : top + height, left : left + width]
        wanted = torch.from_numpy(np.array(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BILINEAR)))
        wanted = loader.to_float(wanted.permute(2, 0, 1))
        assert torch.equal(images[row], wanted.flip(-1) if drawn.flip[row] else wanted)


def test_every_image_is_seen_once_before_any_is_seen_again(root, folder):
    streamed = batches(folder, 4, seed=0, workers=0)
    seen = torch.cat([streamed(step)[0] for step in range(5)]).flatten(1)
    everything = loader.to_float(datasets.load(root, image_size=16).images).flatten(1)
    for epoch in seen.split(10):
        which = (epoch[:, None] == everything).all(-1)
        assert torch.equal(which.sum(0), torch.ones(10, dtype=torch.int64))


@pytest.mark.parametrize("cuts", [(0, 4, 8), (0, 1, 3, 8)])
def test_slices_are_the_batch_cut_up(folder, cuts):
    streamed = batches(folder, 8, seed=0, augmentation=CROPS, workers=0)
    parts = [streamed(3, *ends) for ends in zip(cuts, cuts[1:], strict=False)]
    assert equal([torch.cat(part) for part in zip(*parts, strict=True)], streamed(3))


def test_an_unreadable_file_is_named(tmp_path):
    write(tmp_path / "a/whole.png", (20, 20))
    (tmp_path / "a/cut.png").write_bytes((tmp_path / "a/whole.png").read_bytes()[:60])
    folder = open_folder(tmp_path, image_size=8)
    for kind in (None, CROPS):
        with pytest.raises(ValueError, match=r"cut\.png cannot be read .*replace or remove it"):
            batches(folder, 2, seed=0, augmentation=kind, workers=0)(0)
    with pytest.raises(ValueError, match=r"cut\.png cannot be read"):
        list(folder.chunks(2))


def test_headers_are_checked_before_anything_is_decoded(tmp_path):
    for name in ("one", "two", "three"):
        write(tmp_path / f"a/{name}.png", (20, 20))
    folders.check_headers(open_folder(tmp_path, image_size=8))
    (tmp_path / "a/one.png").write_bytes(b"no image")
    (tmp_path / "a/two.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"one\.png cannot be read .* \(and 1 more of 3\); replace or remove it"):
        folders.check_headers(open_folder(tmp_path, image_size=8))


def test_a_pipe_among_the_images_is_named_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "1.png")
    folder = folders.FolderSet((str(tmp_path / "1.png"),), torch.tensor([0]), ("a",), image_size=8)
    with pytest.raises(ValueError, match=r"1\.png cannot be read \(it is no regular file.*replace or remove it"):
        folders.check_headers(folder)


def test_a_folder_is_known_by_its_contents(tmp_path):
    def hashed(name):
        return folders.content_hash(open_folder(tmp_path / name, image_size=8))

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


# ---- worker processes ----


def requests(plan, last, first=0):
    """What a training that reaches step `last` asks for."""
    return [(step, *window) for step in range(first, last) for window in plan]


@pytest.mark.slow
def test_two_workers_give_what_this_process_gives(folder):
    """Whole batches, jumps back and forth, a resumed run's, accumulation's slices, and one process's share."""
    inline, streamed = (batches(folder, 6, seed=1, augmentation=CROPS, workers=workers) for workers in (0, 2))
    asked = [*requests([(0, 6)], 4), (9,), (2,), *requests([(0, 6)], 10, first=7)]
    asked += [*requests([(0, 2), (2, 4), (4, 6)], 3), *requests([(3, 6)], 4, first=2), (3, 3, 6)]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert all(equal(streamed(*request), inline(*request)) for request in asked)
    assert torch.equal(torch.get_rng_state(), state)  # dropout draws from it
    assert len(multiprocessing.active_children()) == 2
    del streamed
    patience = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < patience:
        time.sleep(0.05)
    assert multiprocessing.active_children() == []


class Interrupted:
    def result(self):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_one_worker_is_at_what_is_asked_for_next(folder, monkeypatch):
    """Slices are learnt within one step; nothing is started anew but for a jump, or after an interruption."""
    starts = []
    go_to = folders.FolderBatches._go_to
    monkeypatch.setattr(folders.FolderBatches, "_go_to", lambda self, *at: (starts.append(at), go_to(self, *at)))
    inline, streamed = (batches(folder, 6, seed=1, augmentation=CROPS, workers=workers) for workers in (0, 1))
    for request in requests([(0, 3), (3, 6)], 6, first=2):
        assert equal(streamed(*request), inline(*request))
    assert starts == [(2, (0, 3)), (2, (3, 6))]
    for request in requests([(3, 6)], 12, first=8):
        assert equal(streamed(*request), inline(*request))
    assert starts[2:] == [(8, (3, 6))]
    streamed._ahead[0] = (streamed._ahead[0][0], Interrupted())
    with pytest.raises(KeyboardInterrupt):
        streamed(12, 3, 6)
    for request in requests([(3, 6)], 15, first=12):
        assert equal(streamed(*request), inline(*request))
    streamed.close()
    assert multiprocessing.active_children() == []
    streamed.close()  # once more does no harm


@pytest.mark.slow
def test_workers_name_an_unreadable_file_and_say_when_they_die(tmp_path):
    for i in range(4):
        write(tmp_path / f"a/{i}.png", (20, 20), seed=i)
    folder = open_folder(tmp_path, image_size=8)
    streamed = batches(folder, 4, seed=0, workers=1)
    wanted = streamed(0)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"a worker died by step \d+, reading .*a/0\.png"):
        for step in range(1, 20):
            streamed(step)
    assert multiprocessing.active_children() == []
    assert equal(streamed(0), wanted)  # new workers
    (tmp_path / "a/2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"2\.png cannot be read") as raised:
        streamed(50)
    assert raised.value.__cause__ is None  # the worker's traceback, which says nothing more
    write(tmp_path / "a/2.png", (20, 20), seed=2)
    assert equal(streamed(0), wanted)
    streamed.close()


def test_no_worker_is_started_before_it_is_needed(folder):
    batches(folder, 4, seed=0, augmentation=CROPS, workers=2)
    batches(folder, 4, seed=0, augmentation=CROPS, workers=0)(0)
    assert multiprocessing.active_children() == []
