"""Real images come in as they are, and what is missing or broken is said at once."""

import contextlib
import os
import struct
import threading
import time
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab import paths
from vitlab.data import datasets, loader
from vitlab.data.world import HELD_OUT, World, image_set


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    return tmp_path


def picture(path, colour, size=(6, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def test_known_answers_digits_are_scikit_learns_scans():
    from sklearn.datasets import load_digits

    train, test = datasets.load("digits"), datasets.load("digits", "test")
    assert (len(train), len(test)) == (1437, 360)
    both = torch.cat([train.images, test.images])[:, 0].flatten(1)
    scans = torch.from_numpy(np.round(load_digits().data * (255 / 16))).to(torch.uint8)
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, scans.tolist()))
    assert torch.bincount(test.labels).tolist() == [36, 36, 35, 37, 36, 37, 36, 36, 35, 36]
    assert torch.equal(datasets.load("digits").labels, train.labels)


def test_known_answers_folder_layout(data):
    picture(data / "cifar10/test/dog/b.png", (1, 2, 3))
    picture(data / "cifar10/test/dog/a.webp", (0, 0, 0))
    picture(data / "cifar10/test/cat/deep/x.PNG", (9, 9, 9))
    found = datasets.load("cifar10", "test")
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 1, 1]
    assert found.images[:, :, 0, 0].tolist() == [[9, 9, 9], [0, 0, 0], [1, 2, 3]]


def test_images_of_several_sizes_need_one(data):
    picture(data / "s/a/1.png", (1, 1, 1), (6, 6))
    picture(data / "s/a/2.png", (5, 5, 5), (12, 8))
    with pytest.raises(ValueError, match=r"2\.png has 12×8 pixels, the first image 6×6; give image_size"):
        datasets.load(data / "s")
    assert datasets.load(data / "s", image_size=4).images.shape == (2, 3, 4, 4)


def test_centre_crop_is_the_centre():
    strip = np.zeros((8, 24, 3), np.uint8)
    strip[:, 8:16] = 200
    assert (loader.resize_and_crop(Image.fromarray(strip), 8)[:, 2:-2] == 200).all()


@pytest.mark.parametrize("name", sorted(datasets.TORCHVISION))
def test_missing_set_says_where_which_variable_and_how_within_a_second(data, name):
    start = time.perf_counter()
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name, "test")
    assert time.perf_counter() - start < 1
    own = data / datasets.TORCHVISION[name][1]
    for part in (str(data / name / "test"), str(own), "VITLAB_DATA", f"load('{name}', 'test', download=True)"):
        assert part in str(error.value)


def test_truncated_image_is_named_or_left_out(data):
    whole = picture(data / "t/a/whole.png", (1, 1, 1), (40, 40))
    cut = data / "t/a/cut.png"
    cut.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cut\.png cannot be read"):
        datasets.load(data / "t")
    with pytest.warns(UserWarning, match=r"left out 1 of 2 images, unreadable: .*cut\.png"):
        assert len(datasets.load(data / "t", skip_broken=True)) == 1


def header(path, width, height):
    """A PNG of which there is nothing but the header."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    path.write_bytes(start + struct.pack(">I", 8) + b"IDAT" + bytes(12))
    return path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_of_too_many_pixels_are_refused_by_their_headers(data):
    header(data / "t/a/1.png", 12_000, 12_000)
    with pytest.raises(
        ValueError, match=r"1\.png cannot be read \(it has 12,000 x 12,000 pixels, expected at most 134"
    ):
        datasets.load(data / "t", image_size=8)


def test_images_that_would_be_too_large_before_they_are_cropped_are_refused(data):
    picture(data / "t/a/1.png", (1, 1, 1), (30_000, 1))
    words = r"with its shorter side at 224 pixels it would have 6,720,000 x 224 pixels, expected at most 134,217,728"
    with pytest.raises(ValueError, match=rf"1\.png cannot be read \({words} in all; crop it\)"):
        datasets.load(data / "t", image_size=224)
    with pytest.raises(ValueError, match=words):
        next(datasets.open_folder(data / "t", image_size=224).chunks(1))
    assert datasets.load(data / "t", image_size=8).images.shape == (1, 3, 8, 8)  # 240,000 x 8


@pytest.mark.parametrize("size", [0, -3, 11_586, 99999999999999999999])
def test_sizes_that_no_image_has(data, size):
    picture(data / "t/a/1.png", (1, 1, 1))
    for load in (datasets.load, datasets.open_folder):
        with pytest.raises(
            ValueError, match=f"image_size is {size}; it is a number of pixels a side, from 1 to 11,585"
        ):
            load(data / "t", image_size=size)
    with pytest.raises(ValueError, match=f"image_size is {size}"):
        datasets.load("digits", image_size=size)


def test_a_set_that_memory_cannot_hold_is_refused_before_it_is_read(data):
    with pytest.raises(
        MemoryError, match=r"1,437 images of 11000 x 11000 pixels take 1,0[0-9.]* GB in memory, .* are free"
    ):
        datasets.load("digits", image_size=11_000)
    for i in range(300):
        header(data / f"t/a/{i}.png", 10, 10)
    with pytest.raises(MemoryError, match="300 images of 11000 x 11000 pixels"):
        datasets.load(data / "t", image_size=11_000)


def test_a_pipe_is_not_waited_for(data):
    """Were it opened, nobody would write to it: after a second somebody does, so that this test ends either way."""
    picture(data / "t/a/1.png", (1, 1, 1))
    pipe = data / "t/a/2.png"
    os.mkfifo(pipe)

    def write_nothing():
        with contextlib.suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    timers = [threading.Timer(delay, write_nothing) for delay in (1.0, 2.0)]
    for timer in timers:
        timer.start()
    try:
        with pytest.raises(ValueError, match=r"2\.png cannot be read \(it is no regular file: a folder, a pipe or"):
            datasets.load(data / "t", image_size=8)
        with pytest.raises(ValueError, match=r"2\.png cannot be read \(it is no regular file"):
            list(datasets.open_folder(data / "t", image_size=8).chunks(4))
    finally:
        for timer in timers:
            timer.cancel()


def test_no_readable_image_and_no_image_at_all(data):
    for name in ("1.png", "2.webp"):
        picture(data / "t/a" / name, (1, 1, 1)).write_bytes(b"nothing that is an image")
    with pytest.raises(ValueError, match="none of the 2 images can be read"):
        datasets.load(data / "t", skip_broken=True)


def test_labels_mean_the_same_in_both_splits(data):
    picture(data / "mine/train/ant/1.png", (1, 1, 1))
    picture(data / "mine/train/bee/1.png", (1, 1, 1))
    picture(data / "mine/test/bee/1.png", (2, 2, 2))
    picture(data / "mine/.ipynb_checkpoints/1.png", (3, 3, 3))
    picture(data / "mine/test/__MACOSX/1.png", (3, 3, 3))
    picture(data / "mine/test/bee/._1.png", (3, 3, 3))
    test = datasets.load("mine", "test")  # by its name in VITLAB_DATA
    assert (test.classes, test.labels.tolist()) == (("ant", "bee"), [1])


def test_sixteen_bits_and_the_camera_held_upright(data):
    (data / "s/a").mkdir(parents=True)
    Image.fromarray(np.full((4, 6), 40_000, np.uint16)).save(data / "s/a/1.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90°
    Image.fromarray(np.full((6, 4, 3), 7, np.uint8)).save(data / "s/a/2.png", exif=exif)
    found = datasets.load(data / "s")
    assert found.images.shape == (2, 3, 4, 6)
    assert found.images[:, 0, 0, 0].tolist() == [40_000 >> 8, 7]


def test_torchvisions_own_layout(data):
    """A CIFAR-100 as its makers pack it; torchvision's check of the files is told to expect these."""
    import hashlib
    import pickle

    import torchvision.datasets

    folder = data / "cifar-100-python"
    folder.mkdir()
    batches = {
        "train": {"data": np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072), "fine_labels": [1, 0]},
        "test": {"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1]},
        "meta": {"fine_label_names": ["apple", "bear"]},
    }
    sums = {}
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch))
        sums[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        kind = torchvision.datasets.CIFAR100
        patch.setattr(kind, "train_list", [["train", sums["train"]]])
        patch.setattr(kind, "test_list", [["test", sums["test"]]])
        patch.setattr(kind, "meta", {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]})
        found = datasets.load("cifar100")
        assert (found.labels.tolist(), found.classes) == ([1, 0], ("apple", "bear"))
        assert torch.equal(found.images.flatten(), torch.arange(2 * 3072).to(torch.uint8))
        (folder / "test").write_bytes(b"cut")
        with pytest.raises(FileNotFoundError, match="not found or corrupted.*VITLAB_DATA"):
            datasets.load("cifar100", "test")


def test_photographs(data):
    picture(data / "photos/my_cat.png", (7, 7, 7))
    found = datasets.photographs(image_size=24)
    assert [name for name, _ in found] == ["china", "flower", "grace hopper", "my cat"]
    assert all(image.shape == (3, 24, 24) and image.dtype == torch.uint8 for _, image in found)
    assert datasets.photographs()[0][1].shape == (3, 427, 640)


def test_photographs_of_several_classes_take_turns(data):
    for name, colour in (("b/1", 1), ("b/2", 2), ("a/3", 3), ("c/4", 4)):
        picture(data / f"imagenette-sample/{name}.png", (colour,) * 3)
    found = datasets.photographs(image_size=8, limit=6)
    assert [name for name, _ in found] == ["china", "flower", "grace hopper", "3", "1", "4"]
    assert len(datasets.photographs(image_size=8, sample=False)) == 3  # of photos/, where there are none
    (data / "imagenette-sample/a/3.png").write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"3\.png cannot be read"):
        datasets.photographs(image_size=8)


@pytest.mark.skipif("VITLAB_DATA" not in os.environ, reason="VITLAB_DATA is not set: no local data sets to read")
def test_real_cifar10():
    if not (paths.data_dir() / "cifar10" / "test").is_dir():
        pytest.skip("no CIFAR-10 in VITLAB_DATA")
    test = datasets.load("cifar10", "test")
    assert test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(test.labels).tolist() == [1000] * 10


@pytest.mark.parametrize("folder", ["imagenette", "imagenette-128"])
def test_imagenette_is_squares_of_128_pixels_unless_told_otherwise(data, folder):
    picture(data / folder / "train/n01440764/a.webp", (5, 6, 7), (180, 128))
    picture(data / folder / "train/n01440764/b.webp", (5, 6, 7), (128, 150))
    assert datasets.present("imagenette")
    assert datasets.load("imagenette").images.shape == (2, 3, 128, 128)
    assert datasets.load("imagenette", image_size=64).images.shape == (2, 3, 64, 64)
    assert datasets.load("imagenette").classes == ("n01440764",)


def test_torchvisions_imagenette_takes_the_first_of_each_classs_names(data, monkeypatch):
    import torchvision.datasets

    class Imagenette(list):
        classes = (("tench", "Tinca tinca"), ("English springer",))

        def __init__(self, root, split, size, download):
            assert (split, size) == ("val", "160px")
            super().__init__((Image.new("RGB", (200 + 10 * k, 160)), k) for k in range(2))

    monkeypatch.setattr(torchvision.datasets, "Imagenette", Imagenette)
    (data / "imagenette2-160").mkdir(parents=True)
    found = datasets.load("imagenette", "test")
    assert found.classes == ("tench", "English springer") and found.images.shape == (2, 3, 128, 128)


def test_folders_and_names_that_mean_nothing_are_refused(data):
    (data / "none").mkdir()
    (data / "empty/a").mkdir(parents=True)
    picture(data / "mine/train/a/1.png", (1, 1, 1))
    (data / "mine/train/b").mkdir()
    for call, error, message in [
        (lambda: datasets.load("none"), ValueError, "has no sub-folders"),
        (lambda: datasets.load("empty"), ValueError, "no image in the class folders"),
        (lambda: datasets.load("mine", "test"), FileNotFoundError, "has train/ with class folders but no such test/"),
        (lambda: datasets.load("digit"), ValueError, "did you mean 'digits'"),
        (lambda: datasets.load("digits", "validation"), ValueError, "split is 'validation'; it is 'train' or 'test'"),
        (lambda: datasets.load("x" * 5000), ValueError, "unknown data set 'xxx"),
        (lambda: datasets.open_folder("x" * 5000, image_size=8), FileNotFoundError, "no folder xxx"),
        (lambda: datasets.open_folder("nowhere", image_size=8), FileNotFoundError, "no folder nowhere.*VITLAB_DATA"),
        (lambda: datasets.open_folder("mine", image_size=8), ValueError, r"no image in .*mine/train/b"),
        (lambda: datasets.open_folder("mine", "", image_size=8), ValueError, "split is ''"),
    ]:
        with pytest.raises(error, match=message):
            call()


# ---- photographs to train on ----


def made_up(monkeypatch, columns: np.ndarray, height: int) -> None:
    """Let one photograph with these grey levels, left to right, stand for the three."""
    pixels = torch.from_numpy(columns.astype(np.uint8)).expand(3, height, -1).contiguous()
    monkeypatch.setattr(datasets, "photographs", lambda limit: [("made up", pixels)])
    monkeypatch.setattr(datasets, "_photograph_parts", datasets._photograph_parts.__wrapped__)


def test_crops_are_functions_of_the_step_and_slices_are_cut_from_them():
    first, other = (datasets.photograph_batches(32, 8, seed=seed) for seed in (1, 2))
    images, labels = first(5)
    assert images.shape == (8, 3, 32, 32) and -1 <= images.min() < images.max() <= 1
    assert torch.equal(first(5)[0], images) and not torch.equal(first(6)[0], images)
    assert not torch.equal(other(5)[0], images)
    for k, whole in enumerate((images, labels)):
        assert torch.equal(torch.cat([first(5, 0, 3)[k], first(5, 3)[k]]), whole)
    assert set(torch.cat([first(step)[1] for step in range(8)]).tolist()) == {0, 1, 2}
    assert datasets.photograph_set(2, 32).classes == ("china", "flower", "grace hopper")


def test_no_training_crop_has_a_pixel_that_is_held_out(monkeypatch):
    """A photograph whose pixels say where they are: black to train on, white to test on."""
    made_up(monkeypatch, np.where(np.arange(400) < 300, 0, 255), height=300)
    assert datasets.photograph_set(200, 32, "train").images.max() == 0
    assert datasets.photograph_set(200, 32, "test").images.min() == 255
    assert all(datasets.photograph_batches(32, 50)(step)[0].max() == -1 for step in range(4))


def test_crops_are_of_one_to_three_sides_anywhere_and_half_of_them_flipped(monkeypatch):
    """A photograph that rises by one grey level a pixel from left to right: a crop shows its own place and size."""
    made_up(monkeypatch, np.minimum(np.arange(266), 199), height=160)
    images = datasets.photograph_set(600, 40, "train").images
    steps = images[:, 0, 0, -1].int() - images[:, 0, 0, 0].int()
    assert (steps < 0).float().mean() == pytest.approx(0.5, abs=0.08)
    assert images[:, 0].float().mean() == pytest.approx(99.5, abs=4)  # the middle of the ramp
    assert 38 <= steps.abs().min() < 45 and 110 < steps.abs().max() < 120  # crops 40 to 120 pixels wide


def test_crops_that_cannot_be_are_refused():
    for size in (0, -3, 129, 1000):
        words = rf"image_size is {size}, but the test part of the photograph .* at most"
        with pytest.raises(ValueError, match=words):
            datasets.photograph_set(2, size)
    with pytest.raises(ValueError, match="split is 'all'"):
        datasets.photograph_set(2, 32, "all")
    with pytest.raises(ValueError, match="batch_size is 0"):
        datasets.photograph_batches(32, 0)


# ---- splits and sources ----


def test_splits_of_the_world_share_no_image_and_smaller_ones_are_heads_of_larger_ones():
    tiny = World(image_size=8)
    small, large = (datasets.world_splits(tiny, n, 10, 10) for n in (20, 40))
    assert torch.equal(large.train.images[:20], small.train.images)
    assert torch.equal(large.test.images, small.test.images)
    assert torch.equal(large.test.images, image_set(tiny, 10, HELD_OUT).images)
    every = torch.cat([part.images.flatten(1) for part in (large.train, large.validation, large.test)])
    assert len(every.unique(dim=0)) == len(every)
    other = datasets.world_splits(tiny, 20, 0, 10, draw=1)
    assert not torch.equal(other.train.images, small.train.images) and other.validation is None
    assert torch.equal(other.test.images, small.test.images)
    assert len(datasets.world_splits(tiny, 1_000_000, 0, 10, n_seen=50).train) == 50
    with pytest.raises(ValueError, match="n_train is 16777217"):
        datasets.world_splits(tiny, datasets.DRAW + 1, 0, 10)


def test_held_out_digits_are_neither_trained_on_nor_tested_on():
    tuning, whole = datasets.digits_splits(hold_out=True), datasets.digits_splits()
    assert (len(tuning.train), len(tuning.validation), len(whole.train)) == (1150, 287, 1437)
    assert whole.validation is None and torch.equal(whole.test.images, tuning.test.images)
    seen = {image.numpy().tobytes() for image in tuning.train.images}
    assert not seen & {image.numpy().tobytes() for image in tuning.validation.images}
    assert torch.equal(datasets.digits_splits(n_train=20).train.images, whole.train.images[:20])


def test_a_subset_keeps_labels_classes_and_masks():
    images = image_set(World(image_size=8), 20)
    part = datasets.subset(images, torch.arange(5, 9))
    assert torch.equal(part.labels, images.labels[5:9]) and part.classes == images.classes
    assert torch.equal(part.masks, images.masks[5:9])


def test_sources_by_name(data):
    for split in ("train", "test"):
        for name in "ab":
            picture(data / f"mine/{split}/{name}/1.png", (1, 2, 3), (20, 20))
    for name, n_classes, n_test, endless in [
        ("world-20", 20, 2000, True),
        ("photographs", 3, 500, True),
        ("digits", 10, 360, False),
        ("mine", 2, 2, False),
    ]:
        source = datasets.open_source(name, 16, batch_size=4, seed=0, device=torch.device("cpu"), workers=0)
        assert source.feed(0)[0].shape == (4, 3, 16, 16)
        assert (source.n_classes, len(source.test), datasets.endless(name)) == (n_classes, n_test, endless)
        assert all(source.content.values())
    (data / "mine/test/a/1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"1\.png cannot be read"):
        datasets.open_source("mine", 16, 4, 0, torch.device("cpu"))
