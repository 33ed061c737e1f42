"""Real images: digits, CIFAR, Flowers, Pets, Imagenette, image folders, photographs; and what is trained on (§4.1)."""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Tensor

from vitlab import paths
from vitlab.data.augment import Augmentation
from vitlab.data.loader import (
    Batches,
    FolderSet,
    ImageSet,
    batches,
    content_hash,
    epoch_order,
    read_image,
    resize_and_crop,
    slice_of,
    to_float,
    to_rgb,
)
from vitlab.data.world import HELD_OUT, World, image_set, scene, stream
from vitlab.settings import default_device, mapped

ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".avif", ".tif", ".tiff")
SECOND = ("test", "val", "valid", "validation")  # folders that hold the second part
# name → torchvision's class, the folder it keeps its files in, the argument that names a split, its train and its test
TORCHVISION: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py", "train", {"train": True, "test": False}),
    "cifar100": ("CIFAR100", "cifar-100-python", "train", {"train": True, "test": False}),
    "flowers102": ("Flowers102", "flowers-102", "split", {"train": "train", "test": "test"}),
    "pets": ("OxfordIIITPet", "oxford-iiit-pet", "split", {"train": "trainval", "test": "test"}),
    "imagenette": ("Imagenette", "imagenette2-160", "split", {"train": "train", "test": "val"}),
}
SIDES = {"imagenette": 128}  # pixels, of squares cut from the middle: of sets whose images differ in size
NAMES = ("digits", *TORCHVISION)
DRAW = 2**24  # training images that a draw of the world can have
N_PHOTOGRAPHS = 3  # that come with the dependencies


def pictures(images: Any) -> Iterator[UInt8[Tensor, "B 3 H W"]]:
    """Yield what is in a file, a folder, a PIL image, bytes [H W 3] or [B H W 3] of NumPy, or a list of such."""
    if isinstance(images, str | Path):
        path = paths.own(images)
        if not (files := _image_files(path) if path.is_dir() else [path]):
            raise FileNotFoundError(f"no image in {path}; expected {', '.join(ENDINGS)}")
        images = [read_image(file, None) for file in files]
    if isinstance(images, list | tuple):
        for each in images:
            yield from pictures(each)
        return
    array = np.array(to_rgb(images) if isinstance(images, Image.Image) else images)
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3:
        raise ValueError(
            f"images are {type(images).__name__}, {array.dtype} {list(array.shape)}: expected a path, a PIL image, "
            "bytes [H, W, 3] or [B, H, W, 3] with values 0 to 255, a uint8 tensor [B, 3, H, W], or a list of such"
        )
    yield torch.from_numpy(array).reshape(-1, *array.shape[-3:]).permute(0, 3, 1, 2)


# ---- named sets and folders ----


def load(name: str | Path, split: str = "train", *, image_size: int | None = None, download: bool = False) -> ImageSet:
    """Load a labelled set into memory: "digits", one of torchvision's (see `NAMES`), or a folder of class folders.

    A named set other than the digits is looked for under `$VITLAB_DATA` as <name>/<split>/<class>/<image>, then in
    torchvision's own layout; `download=True` fetches it there. For folders, see `open_folder`. `image_size` (pixels)
    resizes the shorter side and crops the centre; sets of several sizes need it, but "imagenette" (squares of 128).

    Raises FileNotFoundError where a set or its split is missing, ValueError for an unreadable image or images of
    several sizes, MemoryError where the set is larger than the free memory.
    """
    _check(split, image_size)
    if name == "digits":
        return _digits(split, image_size)
    image_size = image_size or SIDES.get(str(name))
    if name in TORCHVISION and not (_local(name) / split).is_dir():
        return _from_torchvision(str(name), split, image_size, download)
    files, labels, classes = _listing(name, split)
    return ImageSet(_read_all(lambda i: read_image(files[i], image_size), files), labels, classes)


def present(name: str) -> bool:
    """Tell whether a named set can be loaded without a download."""
    return name == "digits" or any(map(Path.is_dir, (_local(name) / "train", paths.data_dir() / TORCHVISION[name][1])))


def _local(name: str | Path) -> Path:
    """Give the folder of a set under `$VITLAB_DATA`, whether it is there or not."""
    usual, other = paths.data_dir() / name, paths.data_dir() / "imagenette-128"
    return other if name == "imagenette" and other.is_dir() and not usual.is_dir() else usual


def _digits(split: str, image_size: int | None) -> ImageSet:
    """Load scans of handwritten digits, 8×8 grey (UCI, bundled with scikit-learn), as RGB bytes; the split is fixed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    scans = load_digits()
    train, test = train_test_split(np.arange(len(scans.target)), test_size=360, stratify=scans.target, random_state=0)
    chosen = np.sort(train if split == "train" else test)
    grey = [Image.fromarray(each) for each in np.round(scans.images[chosen] * (255 / 16)).astype(np.uint8)]
    images = _read_all(lambda i: resize_and_crop(grey[i].convert("RGB"), image_size), ["the digits"] * len(grey))
    return ImageSet(images, torch.from_numpy(scans.target[chosen]).long(), tuple("0123456789"))


def _from_torchvision(name: str, split: str, image_size: int | None, download: bool) -> ImageSet:
    kind, folder, argument, values = TORCHVISION[name]
    root, options = paths.data_dir(), {"size": "160px"} if name == "imagenette" else {}
    try:
        import torchvision.datasets

        dataset = getattr(torchvision.datasets, kind)(root, download=download, **{argument: values[split]}, **options)
    except (RuntimeError, OSError) as error:
        raise FileNotFoundError(
            f"no {name} ({split}): looked for {root / name / split} with a folder a class, and for torchvision's files "
            f"in {root / folder} ({error}). Set VITLAB_DATA to the folder that holds {name}/, or download it: "
            f"vitlab.data.datasets.load('{name}', '{split}', image_size={image_size}, download=True)"
        ) from error
    labels = torch.zeros(len(dataset), dtype=torch.int64)

    def read(i: int) -> np.ndarray:
        image, labels[i] = dataset[i]
        return resize_and_crop(to_rgb(image), image_size)

    images = _read_all(read, [f"image {i} of {name} ({split}) in {root}" for i in range(len(dataset))])
    found = getattr(dataset, "classes", range(int(labels.max()) + 1))
    classes = tuple(each[0] if isinstance(each, tuple) else str(each) for each in found)  # of synonyms the first
    return ImageSet(images, labels, classes)


def _check(split: str, image_size: int | None) -> None:
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it is 'train' or 'test'")
    if image_size is not None and not 1 <= image_size <= 10_000:
        raise ValueError(f"image_size is {image_size}; it is a number of pixels a side, from 1 to 10,000")


def _class_folders(folder: Path) -> list[str]:
    """Name the sub-folders, sorted; not those that systems and editors hide (.ipynb_checkpoints, __MACOSX)."""
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(each.name for each in inside if each.is_dir() and not each.name.startswith((".", "__")))


def _image_files(folder: Path) -> list[Path]:
    """List image files in a folder and in folders in it, linked ones too and hidden ones not, in alphabetical order."""
    found, seen = list[Path](), set[str]()
    for at, inside, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(at)) in seen:  # a link in a circle
            inside.clear()
            continue
        seen.add(real)
        inside[:] = [each for each in inside if not each.startswith((".", "__"))]
        found += [Path(at, name) for name in names if name[0] != "." and Path(name).suffix.lower() in ENDINGS]
    return sorted(found)


def _listing(
    name: str | Path, split: str, held_out: float = 0.0
) -> tuple[tuple[str, ...], Int64[Tensor, " N"], tuple[str, ...]]:
    """List the image files of one split, their labels, and the classes, in alphabetical order.

    Where there is no second part, a share `held_out` of each class of the first is taken for it.
    """
    root = next((place for place in (Path(name), _local(name)) if os.path.isdir(place)), None)
    if root is None:
        raise FileNotFoundError(
            f"there is no data set or folder {str(name):.300}: expected one of {', '.join(NAMES)}, or a folder with "
            f"one sub-folder a class, by its path or its name in {paths.data_dir()}, which VITLAB_DATA sets"
        )
    second = next((name for name in SECOND if _class_folders(root / name)), "test")
    parts = {"train": _class_folders(root / "train"), "test": _class_folders(root / second)}
    held_out = 0.0 if parts["test"] else held_out
    folder = root / ("train" if held_out or split == "train" else second)
    if (classes := sorted({*parts["train"], *parts["test"]})) and not held_out and not parts[split]:
        words = f"no such {split}/; add it, or name the other itself"
        raise FileNotFoundError(f"{root} has train/ or test/ with class folders but {words}")
    if not classes:
        classes, folder = _class_folders(root), root
    files, labels = list[str](), list[int]()
    for label, each in enumerate(classes):
        found = _image_files(folder / each)
        if not found and (folder / each).is_dir():
            raise ValueError(f"no image in {folder / each}; expected {', '.join(ENDINGS)}: add some, or remove it")
        if held_out:
            taken = epoch_order(len(found), seed=label, epoch=0)[: max(1, round(held_out * len(found)))].tolist()
            found = [file for number, file in enumerate(found) if (number in taken) == (split == "test")]
        files += map(str, found)
        labels += [label] * len(found)
    if not files:
        raise ValueError(f"{folder} has no sub-folders; expected one folder a class with images in it")
    if held_out and split == "test":
        print(f"{root} has no test/: {held_out:.0%} of every class, {len(files):,} images, are held out to test on")
    return tuple(files), torch.tensor(labels), tuple(classes)


def _read_all(read: Callable[[int], np.ndarray], names: Sequence[str]) -> UInt8[Tensor, "N 3 H W"]:
    """Decode images 0, 1, … in threads (the decoders leave the interpreter free) into one array."""
    height, width, _ = read(0).shape
    needed, free = len(names) * 3 * height * width, psutil.virtual_memory().available
    if needed > free:
        words = f"{len(names):,} images of {width}×{height} pixels take {needed / 1e9:,.1f} GB in memory"
        raise MemoryError(f"{words}, {free / 1e9:,.1f} GB are free; give a smaller image_size, or a folder")
    images = np.empty((len(names), 3, height, width), np.uint8)

    def fill(i: int) -> None:
        picture = read(i)
        if picture.shape != (height, width, 3):
            size = f"{picture.shape[1]}×{picture.shape[0]} pixels, the first image {width}×{height}"
            raise ValueError(f"{names[i]} has {size}; give image_size to bring them to one size")
        images[i] = picture.transpose(2, 0, 1)

    mapped(fill, range(len(names)))
    return torch.from_numpy(images)


def open_folder(name: str | Path, split: str = "train", *, image_size: int, held_out: float = 0.0) -> FolderSet:
    """List the images of a folder <root>/<split>/<class>/<file>, which are decoded when asked for.

    `name`: a path, or a name under `$VITLAB_DATA`. A folder without train/ and test/ (or val/, valid/, validation/) is
    one set, whole under any `split`; with them, labels count the classes of both, so they mean the same in either.
    Without the second, `held_out` takes such a share of each class for it.

    Raises FileNotFoundError where the folder or its split is missing, ValueError where a class folder is empty or a
    file's header is no image's. An image that is cut off in the middle is found when it is decoded.
    """
    _check(split, image_size)
    folder = FolderSet(*_listing(name, split, held_out), image_size)

    def check_header(path: str) -> None:
        try:
            Image.open(path).close()
        except Exception as error:  # decoders raise what they like on bytes that are no image
            raise ValueError(f"{path} cannot be read ({error}); replace or remove it") from error

    mapped(check_header, folder.paths)
    return folder


# ---- photographs ----


def photographs(
    image_size: int | None = None, limit: int | None = None, sample: bool = True
) -> list[tuple[str, UInt8[Tensor, "3 H W"]]]:
    """Give real photographs (name, picture): three that come with the dependencies, then those under `$VITLAB_DATA`.

    Then: every image of $VITLAB_DATA/photos in alphabetical order, and of $VITLAB_DATA/imagenette-sample, whose classes
    take turns; these are left out without `sample`. `limit` keeps the first so many.
    """
    import matplotlib.cbook
    from sklearn.datasets import load_sample_images

    scenes = load_sample_images()
    pictures = [(Path(file).stem, Image.fromarray(scenes.images[i])) for i, file in enumerate(scenes.filenames)]
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as handle:
        pictures.append(("grace hopper", Image.open(handle).convert("RGB")))
    chosen = [(name, resize_and_crop(image, image_size)) for name, image in pictures][:limit]
    own = _image_files(paths.data_dir() / "photos")
    if sample:  # the first image of every class folder, then the second of every one, and so on
        folder = paths.data_dir() / "imagenette-sample"
        rows = itertools.zip_longest(*(_image_files(folder / name) for name in _class_folders(folder)))
        own += [path for row in rows for path in row if path is not None]
    for path in own[: None if limit is None else max(0, limit - len(chosen))]:
        chosen.append((path.stem.replace("_", " "), read_image(path, image_size)))
    return [(name, torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()) for name, picture in chosen]


@functools.cache
def _photograph_parts(split: str, image_size: int) -> tuple[tuple[str, ...], list[Image.Image]]:
    """Cut the training or the test part out of each bundled photograph: three quarters and the right quarter."""
    found, parts = photographs(limit=N_PHOTOGRAPHS), []
    for name, picture in found:
        border = round(0.75 * picture.shape[2])
        pixels = picture[..., :border] if split == "train" else picture[..., border:]
        part = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        if not 1 <= image_size <= min(part.size):
            words = f"the {split} part of the photograph {name} has room for at most {min(part.size)}"
            raise ValueError(f"image_size is {image_size}, but {words}")
        parts.append(part)
    return tuple(name for name, _ in found), parts


def _photograph_crops(split: str, image_size: int, draws: np.ndarray) -> ImageSet:
    """Cut a crop for each row of five uniform numbers, labelled by its photograph."""
    names, parts = _photograph_parts(split, image_size)
    crops = np.empty((len(draws), image_size, image_size, 3), np.uint8)
    labels = (draws[:, 0] * len(parts)).astype(np.int64)
    for row, (_, size, down, right, flip) in enumerate(draws):
        part = parts[labels[row]]
        largest = min(3.0 * image_size, *part.size)
        side = image_size * math.exp(size * math.log(largest / image_size))  # uniform in its logarithm
        left, top = right * (part.width - side), down * (part.height - side)
        resized = part.resize((image_size,) * 2, Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        crops[row] = np.asarray(resized)[:, :: -1 if flip < 0.5 else 1]
    return ImageSet(torch.from_numpy(crops).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels), names)


def photograph_batches(image_size: int, batch_size: int, seed: int = 0, device: torch.device | str = "cpu") -> Batches:
    """Give endless training batches of random crops of the three bundled photographs, labelled by their numbers.

    One image with strong augmentation goes far for a network's lowest layers (Asano et al., ICLR 2020). A crop is 1 to
    3 times as wide as the `image_size` (pixels) to which it is resized, and every second one is flipped. The right
    quarter of each photograph is for tests. Raises ValueError where the crop is larger than a photograph's part.
    """
    _photograph_parts("train", image_size)

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        start, stop = slice_of(batch_size, start, stop)
        draws = np.random.default_rng([seed, step]).random((batch_size, 5))
        crops = _photograph_crops("train", image_size, draws[start:stop])
        return to_float(crops.images.to(device)), crops.labels.to(device)

    return batch


def photograph_set(count: int, image_size: int, split: str = "test", seed: int = 0) -> ImageSet:
    """Cut so many crops of the test or the training parts of the photographs; raises as `photograph_batches`."""
    draws = np.random.default_rng([seed, 2**31 + (split == "test")]).random((count, 5))
    return _photograph_crops(split, image_size, draws)


# ---- what a study or a training is on ----


@dataclass(frozen=True)
class Splits:
    """Three sets that share no image: to learn from, to choose by (where anything is chosen), and to report."""

    train: ImageSet
    validation: ImageSet | None
    test: ImageSet


def first_image(draw: int) -> int:
    """Number of the first training image of a draw of the world; after 65,536 they begin anew."""
    return draw * DRAW % HELD_OUT


def world_splits(
    world: World, n_train: int, n_validation: int, n_test: int, draw: int = 0, n_seen: int | None = None
) -> Splits:
    """Render three sets of a world. Each `draw` has training images of its own; smaller sets are heads of larger ones.

    Validation and test images are the same for every draw, and never trained on. Where a training is too short to see
    all `n_train` images, only the `n_seen` that it sees are rendered, chosen at random.
    """
    if n_train > DRAW:
        raise ValueError(f"n_train is {n_train}; a draw of the world has {DRAW} images")
    train = _rendered(world, n_train, first_image(draw), n_train if n_seen is None else min(n_seen, n_train))
    validation = _rendered(world, n_validation, HELD_OUT + DRAW, n_validation) if n_validation else None
    return Splits(train, validation, _rendered(world, n_test, HELD_OUT, n_test))


@functools.lru_cache(maxsize=4)  # for a worker process trains many models on the same images
def _rendered(world: World, count: int, start: int, n_seen: int) -> ImageSet:
    """Render images start … start+count−1, or `n_seen` of them, without masks."""
    order = torch.arange(count) if n_seen == count else epoch_order(count, seed=start, epoch=0)[:n_seen]
    images, labels, _ = scene(world, start + order, default_device())
    return ImageSet(images, labels, world.classes)


def subset(images: ImageSet, index: Int64[Tensor, " M"]) -> ImageSet:
    """Take the images of a set with these numbers, in this order."""
    masks = None if images.masks is None else images.masks[index]
    return ImageSet(images.images[index], images.labels[index], images.classes, masks)


@dataclass(frozen=True)
class Source:
    """Training batches and test images of one set of images."""

    feed: Batches
    test: ImageSet | FolderSet
    content: dict[str, Any]  # what tells these images from others


def world_named(data: str, image_size: int) -> World | None:
    """Make the world of a name, "world" with its ten classes or "world-300" with so many; None for another name."""
    found = re.fullmatch(r"world(?:-(\d{1,7}))?", data)
    return World(int(found[1] or 10), image_size) if found else None


def endless(data: str) -> bool:
    """Tell whether no image of this name is seen twice, so that there is nothing to augment."""
    return data == "photographs" or world_named(data, 32) is not None


def count(data: str) -> int:
    """Count the training images of a set or folder; ValueError for one without an end."""
    if endless(data):
        raise ValueError(f"{data} has no epochs, for no image comes twice; give steps")
    return len(load(data, image_size=32)) if data in NAMES else len(_listing(data, "train", 0.1)[0])


def open_source(
    data: str,
    image_size: int,
    batch_size: int,
    seed: int,
    device: torch.device,
    augmentation: Augmentation = Augmentation(),  # noqa: B008 - frozen
    workers: int = 2,
) -> Source:
    """Open the images called `data`, at `image_size` pixels.

    `data` is "world" or "world-300", "photographs", a name of `load`, or a folder with train/ and test/ in it, whose
    images so many `workers` decode; without a second part, a tenth of each class is held out to test on.
    """
    if world := world_named(data, image_size):
        unseen = image_set(world, 2_000, HELD_OUT, device)
        return Source(stream(world, batch_size, device), unseen, {"images": str(world)})
    if data == "photographs":
        crops, feed = photograph_set(500, image_size), photograph_batches(image_size, batch_size, seed, device)
        return Source(feed, crops, {"images": content_hash(crops)})  # their change shows there too
    opened = load if data in NAMES else functools.partial(open_folder, held_out=0.1)
    kept = max(image_size, SIDES.get(data, 0)) if augmentation.crop == "inception" else image_size
    train, test = opened(data, "train", image_size=kept), opened(data, "test", image_size=image_size)
    feed = batches(train, batch_size, seed, device, augmentation, image_size, workers)
    return Source(feed, test, {"images": content_hash(train), "test images": content_hash(test)})
