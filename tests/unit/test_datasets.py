"""Real images come in as they are, and what is missing or broken is said at once."""

import os
import time

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.data import datasets


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


def test_folder_with_splits_and_without(data):
    picture(data / "mine/train/a/1.png", (1, 1, 1))
    picture(data / "mine/test/a/1.png", (2, 2, 2))
    picture(data / "flat/a/1.png", (3, 3, 3))
    assert [int(datasets.load(data / "mine", s).images[0, 0, 0, 0]) for s in ("train", "test")] == [1, 2]
    assert int(datasets.load(str(data / "flat")).images[0, 0, 0, 0]) == 3


def test_images_of_several_sizes_need_one(data):
    picture(data / "s/a/1.png", (1, 1, 1), (6, 6))
    picture(data / "s/a/2.png", (5, 5, 5), (12, 8))
    with pytest.raises(ValueError, match=r"2\.png has 12×8 pixels, the first image 6×6; give image_size"):
        datasets.load(data / "s")
    assert datasets.load(data / "s", image_size=4).images.shape == (2, 3, 4, 4)


def test_centre_crop_is_the_centre():
    strip = np.zeros((8, 24, 3), np.uint8)
    strip[:, 8:16] = 200
    assert (datasets._fitted(Image.fromarray(strip), 8)[:, 2:-2] == 200).all()


@pytest.mark.parametrize("name", sorted(datasets.TORCHVISION))
def test_missing_set_says_where_which_variable_and_how_within_a_second(data, name):
    import torchvision.datasets  # its import is not what is timed

    assert torchvision.datasets
    start = time.perf_counter()
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name, "test")
    assert time.perf_counter() - start < 1
    for part in (str(data / name / "test"), "VITLAB_DATA", "download=True"):
        assert part in str(error.value)


def test_truncated_image_is_named_or_left_out(data):
    whole = picture(data / "t/a/whole.png", (1, 1, 1), (40, 40))
    cut = data / "t/a/cut.png"
    cut.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cut\.png cannot be read"):
        datasets.load(data / "t")
    with pytest.warns(UserWarning, match=r"left out 1 unreadable images: cut\.png"):
        assert len(datasets.load(data / "t", skip_broken=True)) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: (d / "empty").mkdir(), "has no sub-folders"),
        (lambda d: (d / "empty/a").mkdir(parents=True), "no image in the class folders"),
    ],
)
def test_empty_folders(data, make, message):
    make(data)
    with pytest.raises(ValueError, match=message):
        datasets.load(data / "empty")


def test_unknown_names():
    with pytest.raises(ValueError, match="did you mean 'digits'"):
        datasets.load("digit")
    with pytest.raises(ValueError, match="'train' or 'test'"):
        datasets.load("digits", "validation")


def test_photographs(data):
    picture(data / "photos/my_cat.png", (7, 7, 7))
    found = datasets.photographs(image_size=24)
    assert [name for name, _ in found] == ["china", "flower", "grace hopper", "my cat"]
    assert all(image.shape == (3, 24, 24) and image.dtype == torch.uint8 for _, image in found)
    assert datasets.photographs()[0][1].shape == (3, 427, 640)


@pytest.mark.skipif("VITLAB_DATA" not in os.environ, reason="VITLAB_DATA is not set: no local data sets to read")
def test_real_cifar10():
    if not (datasets.files.data_dir() / "cifar10" / "test").is_dir():
        pytest.skip("no CIFAR-10 in VITLAB_DATA")
    test = datasets.load("cifar10", "test")
    assert test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(test.labels).tolist() == [1000] * 10
