"""Real images come in as they are, and what is missing or broken is said at once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab import settings
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


def test_what_cannot_be_loaded_is_said(data):
    (data / "none").mkdir()
    (data / "empty/a").mkdir(parents=True)
    picture(data / "mine/train/a/1.png", (1, 1, 1))
    picture(data / "sizes/a/1.png", (1, 1, 1), (6, 6))
    picture(data / "sizes/a/2.png", (5, 5, 5), (12, 8))
    size = "image_size is {}; it is a number of pixels a side, from 1 to 10,000"
    for name, options, error, message in [
        ("none", {}, ValueError, "has no sub-folders"),
        ("empty", {}, ValueError, "no image in .*empty/a"),
        ("mine", {"split": "test"}, FileNotFoundError, "has train/ or test/ with class folders but no such test/"),
        ("digit", {}, FileNotFoundError, "no data set or folder digit: expected one of digits, cifar10.* VITLAB_DATA"),
        ("x" * 5000, {}, FileNotFoundError, "no data set or folder xxx"),
        ("digits", {"split": "validation"}, ValueError, "split is 'validation'; it is 'train' or 'test'"),
        ("digits", {"image_size": 0}, ValueError, size.format(0)),
        ("digits", {"image_size": 9_000}, MemoryError, "1,437 images of 9000×9000 pixels take 349.2 GB in memory"),
        ("sizes", {}, ValueError, r"2\.png has 12×8 pixels, the first image 6×6; give image_size"),
    ]:
        with pytest.raises(error, match=message):
            datasets.load(name, **options)
    with pytest.raises(ValueError, match=size.format(-3)):
        datasets.open_folder("mine", image_size=-3)
    for name in datasets.TORCHVISION:
        with pytest.raises(FileNotFoundError) as raised:
            datasets.load(name, "test")
        own = data / datasets.TORCHVISION[name][1]
        for part in (str(data / name / "test"), str(own), "VITLAB_DATA", f"load('{name}', 'test', "):
            assert part in str(raised.value)


def test_sizes_are_brought_to_one_and_the_centre_crop_is_the_centre(data):
    picture(data / "s/a/1.png", (1, 1, 1), (6, 6))
    picture(data / "s/a/2.png", (5, 5, 5), (12, 8))
    assert datasets.load(data / "s", image_size=4).images.shape == (2, 3, 4, 4)
    strip = np.zeros((8, 24, 3), np.uint8)
    strip[:, 8:16] = 200
    assert (loader.resize_and_crop(Image.fromarray(strip), 8)[:, 2:-2] == 200).all()


def test_labels_mean_the_same_in_both_splits(data):
    picture(data / "mine/train/ant/1.png", (1, 1, 1))
    picture(data / "mine/train/bee/1.png", (1, 1, 1))
    picture(data / "mine/test/bee/1.png", (2, 2, 2))
    picture(data / "mine/.ipynb_checkpoints/1.png", (3, 3, 3))
    picture(data / "mine/test/__MACOSX/1.png", (3, 3, 3))
    picture(data / "mine/test/bee/._1.png", (3, 3, 3))
    picture(data / "mine/test/bee/.ipynb_checkpoints/1.png", (3, 3, 3))
    test = datasets.load("mine", "test")  # by its name in VITLAB_DATA
    assert (test.classes, test.labels.tolist()) == (("ant", "bee"), [1])


def test_folders_as_people_have_them(data, capsys):
    for number in range(20):
        picture(data / f"flat/a/{number:02}.jfif", (number,) * 3)
        picture(data / f"more/{number:02}.gif", (200 + number,) * 3)
    links = {"flat/b": "more", "more/x": "more", "only/train": "flat", "val/train": "flat", "val/valid": "flat"}
    for link, to in links.items():
        (data / link).parent.mkdir(exist_ok=True)
        (data / link).symlink_to(data / to)
    assert len(datasets.load("flat")) == len(datasets.load("val", "test")) == 40
    for name in ("flat", "only"):
        feed = datasets.open_source(name, 6, 4, 0, torch.device("cpu"))
        assert f"{name} has no test/: 10% of every class, 4 images, are held out" in capsys.readouterr().out
        assert feed.test.labels.tolist() == [0, 0, 1, 1]
        train, test = (datasets.open_folder(name, part, image_size=6, held_out=0.1) for part in ("train", "test"))
        assert len(train) == 36 and not {*train.paths} & {*test.paths}
    capsys.readouterr()
    assert len(datasets.open_source("val", 6, 4, 0, torch.device("cpu")).test) == 40
    assert capsys.readouterr().out == ""


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    for asked in ("tpu", "CUDA") + ("cuda",) * (not torch.cuda.is_available()):
        monkeypatch.setenv("VITLAB_DEVICE", asked)
        with pytest.raises(ValueError, match=f"VITLAB_DEVICE is '{asked}': expected cpu, or cuda where"):
            settings.default_device()


def test_sixteen_bits_and_the_camera_held_upright(data):
    (data / "s/a").mkdir(parents=True)
    Image.fromarray(np.full((4, 6), 40_000, np.uint16)).save(data / "s/a/1.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90°
    Image.fromarray(np.full((6, 4, 3), 7, np.uint8)).save(data / "s/a/2.png", exif=exif)
    found = datasets.load(data / "s")
    assert found.images.shape == (2, 3, 4, 6)
    assert found.images[:, 0, 0, 0].tolist() == [40_000 >> 8, 7]


def test_torchvisions_own_layout(data, monkeypatch):
    """A CIFAR-100 as its makers pack it, but for the sums that torchvision checks."""
    import pickle

    folder = data / "cifar-100-python"
    folder.mkdir()
    batches = {
        "train": {"data": np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072), "fine_labels": [1, 0]},
        "test": {"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1]},
        "meta": {"fine_label_names": ["apple", "bear"]},
    }
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch))
    module = "torchvision.datasets.cifar"
    monkeypatch.setattr(f"{module}.check_integrity", lambda path, md5: Path(path).stat().st_size > 10)
    found = datasets.load("cifar100")
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("apple", "bear"))
    assert torch.equal(found.images.flatten(), torch.arange(2 * 3072).to(torch.uint8))
    (folder / "test").write_bytes(b"cut")
    with pytest.raises(FileNotFoundError, match="not found or corrupted.*VITLAB_DATA"):
        datasets.load("cifar100", "test")


def test_photographs_come_with_the_package_and_those_of_several_classes_take_turns(data):
    assert datasets.photographs()[0][1].shape == (3, 427, 640)
    picture(data / "photos/my_cat.png", (7, 7, 7))
    for name, colour in (("b/1", 1), ("b/2", 2), ("a/3", 3), ("c/4", 4)):
        picture(data / f"imagenette-sample/{name}.png", (colour,) * 3)
    found = datasets.photographs(image_size=24, limit=7)
    assert [name for name, _ in found] == ["china", "flower", "grace hopper", "my cat", "3", "1", "4"]
    assert all(image.shape == (3, 24, 24) and image.dtype == torch.uint8 for _, image in found)
    assert len(datasets.photographs(image_size=8, sample=False)) == 4


@pytest.mark.parametrize("folder", ["imagenette", "imagenette-128"])
def test_imagenette_is_squares_of_128_pixels_unless_told_otherwise(data, folder):
    picture(data / folder / "train/n01440764/a.webp", (5, 6, 7), (180, 128))
    picture(data / folder / "train/n01440764/b.webp", (5, 6, 7), (128, 150))
    assert datasets.present("imagenette")
    assert datasets.load("imagenette").images.shape == (2, 3, 128, 128)
    assert datasets.load("imagenette", image_size=64).images.shape == (2, 3, 64, 64)
    assert datasets.load("imagenette").classes == ("n01440764",)


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
    for size in (0, 161):
        with pytest.raises(ValueError, match=rf"image_size is {size}, but the train part of .* at most 160"):
            datasets.photograph_set(2, size, "train")


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
        source = datasets.open_source(name, 8, batch_size=4, seed=1, device=torch.device("cpu"), workers=0)
        images, labels = source.feed(0)
        assert images.shape == (4, 3, 8, 8) and all(source.content.values())
        assert (len(source.test.classes), len(source.test), datasets.endless(name)) == (n_classes, n_test, endless)
        if name == "world-20":  # of any seed: committed runs and those that are resumed rely on it
            assert labels.tolist() == [0, 1, 2, 3]
