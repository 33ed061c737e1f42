"""Real images: digits, CIFAR, Flowers, Pets, Imagenette, any image folder, and photographs to look at (§4.1)."""

from __future__ import annotations

import difflib
import itertools
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageFile
from torch import Tensor

from vitlab import paths
from vitlab.data.images import check_image_size, fitted, read_image, upright
from vitlab.data.loader import ImageSet

Split = str  # "train" or "test"
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
# name → torchvision's class, the folder it keeps its files in, and its spelling of the splits
TORCHVISION: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py", {"train": {"train": True}, "test": {"train": False}}),
    "cifar100": ("CIFAR100", "cifar-100-python", {"train": {"train": True}, "test": {"train": False}}),
    "flowers102": ("Flowers102", "flowers-102", {"train": {"split": "train"}, "test": {"split": "test"}}),
    "pets": ("OxfordIIITPet", "oxford-iiit-pet", {"train": {"split": "trainval"}, "test": {"split": "test"}}),
    "imagenette": (
        "Imagenette",
        "imagenette2-160",
        {"train": {"split": "train", "size": "160px"}, "test": {"split": "val", "size": "160px"}},
    ),
}
SIDES = {"imagenette": 128}  # pixels, of squares cut from the middle: of sets whose images differ in size
_OTHER_FOLDERS = {"imagenette": "imagenette-128"}  # where a set of folders may lie as well, as its size is in the name
NAMES = ("digits", *TORCHVISION)
_DIGITS_TEST = 360  # of 1,797


def load(
    name: str | Path,
    split: Split = "train",
    *,
    image_size: int | None = None,
    download: bool = False,
    skip_broken: bool = False,
) -> ImageSet:
    """A labelled set in memory: "digits", one of torchvision's (see `NAMES`), or a folder of class folders.

    A named set other than the digits is looked for under `$VITLAB_DATA` as <name>/<split>/<class>/<image>, then in
    torchvision's own layout; `download=True` fetches it there. A folder is a path or a name under `$VITLAB_DATA`;
    with train/ and test/ in it, labels count the classes of both, so they mean the same in either; without, it is
    one set, whole under any `split`. `image_size` (pixels) resizes the shorter side and crops the centre; sets
    whose images differ in size need it, but for "imagenette", which comes as squares of 128. `skip_broken` leaves
    unreadable images out, with a warning that names them.

    Raises FileNotFoundError where a set or its split is missing (which path was looked at, which variable sets it,
    what would download it), ValueError for an unknown name or split, an unreadable image, images of several sizes or
    larger than `images.MAX_PIXELS`, MemoryError where the set at `image_size` is larger than the free memory.

    >>> digits = load("digits", "test")
    >>> digits.images.shape, digits.classes[3]
    (torch.Size([360, 3, 8, 8]), '3')
    """
    _check_split(split)
    if image_size is not None:
        check_image_size(image_size)
    if name == "digits":
        return _resized(_digits(split), image_size)
    local = _local(name)
    if name in TORCHVISION:
        if (local / split).is_dir():
            return _split_folder(local, split, image_size or SIDES.get(str(name)), skip_broken)
        return _from_torchvision(str(name), split, image_size, download)
    for folder in (Path(name), local):
        if os.path.isdir(folder):  # unlike pathlib's, False for a name that is too long
            return _split_folder(folder, split, image_size, skip_broken)
    near = difflib.get_close_matches(str(name), NAMES, 1, 0.6)
    raise ValueError(
        f"unknown data set {str(name)!r:.300}{f'; did you mean {near[0]!r}?' if near else ''}; it is one of "
        f"{', '.join(NAMES)}, or a folder with one sub-folder a class; there is no folder {str(local):.300} either"
    )


def present(name: str) -> bool:
    """Whether a named set can be loaded without a download.

    Raises:
        ValueError: there is no set of that name.

    >>> present("digits")
    True
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(NAMES)}")
    return name == "digits" or any(each.is_dir() for each in (_local(name), paths.data_dir() / TORCHVISION[name][1]))


def _local(name: str | Path) -> Path:
    """The folder <name>/<split>/<class>/<image> of a set under `$VITLAB_DATA`, whether it is there or not."""
    usual, other = paths.data_dir() / name, paths.data_dir() / _OTHER_FOLDERS.get(str(name), name)
    return usual if os.path.isdir(usual) or not os.path.isdir(other) else other  # pathlib's fails for long names


def _digits(split: Split) -> ImageSet:
    """1,797 scans of handwritten digits, 8×8 grey (UCI, bundled with scikit-learn), as RGB bytes.

    The split is stratified and fixed. Writers are not told apart in this set, so a test image may be by a writer
    who is in the training set too.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    scans = load_digits()
    index = np.arange(len(scans.target))
    train, test = train_test_split(index, test_size=_DIGITS_TEST, stratify=scans.target, random_state=0)
    chosen = np.sort(train if split == "train" else test)
    grey = torch.from_numpy(np.round(scans.images[chosen] * (255 / 16)).astype(np.uint8))
    return ImageSet(
        grey[:, None].expand(-1, 3, -1, -1).contiguous(),
        torch.from_numpy(scans.target[chosen]).long(),
        tuple("0123456789"),
    )


def _from_torchvision(name: str, split: Split, image_size: int | None, download: bool) -> ImageSet:
    kind, folder, spelling = TORCHVISION[name]
    root = paths.data_dir()
    try:
        if not download and not (root / folder).is_dir():
            raise FileNotFoundError("it is not there")  # said before torchvision is imported, which takes seconds
        import torchvision.datasets

        dataset = getattr(torchvision.datasets, kind)(root, download=download, **spelling[split])
    except (RuntimeError, OSError) as error:
        sized = "" if image_size is None else f", image_size={image_size}"
        raise FileNotFoundError(
            f"no {name} ({split}): looked for {root / name / split} with a folder a class, and for torchvision's "
            f"own files in {root / folder} ({error}). Set VITLAB_DATA to the folder that holds {name}/, or download "
            f'it where there is a network: python -c "from vitlab.data import datasets; '
            f"datasets.load('{name}', '{split}'{sized}, download=True)\""
        ) from error
    image_size = image_size or SIDES.get(name)
    _check_memory(len(dataset), image_size)
    labels = torch.zeros(len(dataset), dtype=torch.int64)

    def read(i: int) -> np.ndarray:
        image, labels[i] = dataset[i]
        return fitted(upright(image), image_size)

    images, _ = _gathered(read, [f"image {i} of {name} ({split}) in {root}" for i in range(len(dataset))])
    found = getattr(dataset, "classes", range(int(labels.max()) + 1))
    classes = tuple(each[0] if isinstance(each, tuple) else str(each) for each in found)  # of synonyms the first
    return ImageSet(images, labels, classes)


def _split_folder(folder: Path, split: Split, image_size: int | None, skip_broken: bool) -> ImageSet:
    paths, labels, classes = listing(folder, split)
    _check_memory(len(paths), image_size)
    images, kept = _gathered(lambda i: read_image(paths[i], image_size), [str(path) for path in paths], skip_broken)
    return ImageSet(images, torch.tensor(labels)[kept], classes)


def listing(folder: Path, split: Split) -> tuple[list[Path], list[int], tuple[str, ...]]:
    """Image files of one split, their labels, and the classes, in alphabetical order.

    Of a folder that has train/ and test/, labels count the classes of both; else the folder is one set, whole.

    Raises as `load` does.
    """
    _check_split(split)
    parts = {part: _class_folders(folder / part) for part in ("train", "test")}
    if any(parts.values()):
        if not parts[split]:
            other = "test" if split == "train" else "train"
            raise FileNotFoundError(
                f"{folder} has {other}/ with class folders but no such {split}/; add it, or name {folder / other} "
                "itself"
            )
        folder, classes = folder / split, sorted({*parts["train"], *parts["test"]})
    else:
        classes = _class_folders(folder)
    if not classes:
        raise ValueError(f"{folder} has no sub-folders; expected one folder a class with images in it")
    pairs = [(path, label) for label, name in enumerate(classes) for path in _image_files(folder / name)]
    if not pairs:
        raise ValueError(f"no image in the class folders of {folder}; expected files ending in {', '.join(ENDINGS)}")
    return [path for path, _ in pairs], [label for _, label in pairs], tuple(classes)


def _check_split(split: str) -> None:
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it is 'train' or 'test'")


def _class_folders(folder: Path) -> list[str]:
    """Names of the sub-folders, sorted; not those that systems and editors hide (.ipynb_checkpoints, __MACOSX)."""
    if not folder.is_dir():
        return []
    return sorted(e.name for e in folder.iterdir() if e.is_dir() and not e.name.startswith((".", "__")))


def _image_files(folder: Path) -> list[Path]:
    """Image files in a folder and the folders in it, in alphabetical order."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    return sorted(path for path in paths if not path.name.startswith("."))


def _gathered(
    read: Callable[[int], np.ndarray], names: Sequence[str], skip_broken: bool = False
) -> tuple[UInt8[Tensor, "N 3 H W"], list[int]]:
    """Images 0, 1, … decoded in threads (the decoders leave the interpreter free), and which of them were readable."""
    broken: dict[int, str] = {}

    def attempt(i: int) -> np.ndarray | None:
        try:
            return read(i)
        except Exception as error:  # decoders raise what they like on bytes that are no image
            if not skip_broken:
                raise ValueError(
                    f"{names[i]} cannot be read ({error}); replace or remove it, or pass skip_broken=True"
                ) from error
            broken[i] = names[i]
            return None

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, which would hide truncated images; set it to False"
        )
    with ThreadPoolExecutor() as pool:
        attempts = enumerate(pool.map(attempt, range(len(names))))
        pictures = {i: picture for i, picture in attempts if picture is not None}
    kept = list(pictures)
    left_out = ", ".join(broken[i] for i in sorted(broken)[:5])
    if not kept:
        raise ValueError(f"none of the {len(names)} images can be read ({left_out}); expected whole image files")
    if broken:
        warnings.warn(f"left out {len(broken)} of {len(names)} images, unreadable: {left_out}", stacklevel=4)
    return _stacked(list(pictures.values()), [names[i] for i in kept]), kept


def _check_memory(count: int, image_size: int | None) -> None:
    """Raises MemoryError where so many images of this size, once apart and once as one array, are too many."""
    import psutil

    needed, free = 2 * count * 3 * (image_size or 0) ** 2, psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(
            f"{count:,} images of {image_size} x {image_size} pixels take {needed / 1e9:,.1f} GB in memory, "
            f"{free / 1e9:,.1f} GB are free; give a smaller image_size, or a folder, which a training reads bit by bit"
        )


def _stacked(pictures: Sequence[np.ndarray], names: Sequence[str]) -> UInt8[Tensor, "N 3 H W"]:
    height, width = pictures[0].shape[:2]
    images = np.empty((len(pictures), 3, height, width), np.uint8)
    for i, picture in enumerate(pictures):
        if picture.shape != (height, width, 3):
            raise ValueError(
                f"{names[i]} has {picture.shape[1]}×{picture.shape[0]} pixels, the first image {width}×{height}; "
                "give image_size to bring them to one size"
            )
        images[i] = picture.transpose(2, 0, 1)
    return torch.from_numpy(images)


def _resized(images: ImageSet, image_size: int | None) -> ImageSet:
    if image_size is None or images.images.shape[-1] == image_size:
        return images
    _check_memory(len(images), image_size)
    pictures = [fitted(Image.fromarray(p), image_size) for p in images.images.permute(0, 2, 3, 1).numpy()]
    return ImageSet(_stacked(pictures, [""] * len(pictures)), images.labels, images.classes)


def photographs(
    image_size: int | None = None, limit: int | None = None, sample: bool = True
) -> list[tuple[str, UInt8[Tensor, "3 H W"]]]:
    """Real photographs (name, picture): three that come with the dependencies, then those under `$VITLAB_DATA`.

    The three: a Chinese temple and a flower (scikit-learn), Grace Hopper (matplotlib). Then every image of
    $VITLAB_DATA/photos in alphabetical order, and of $VITLAB_DATA/imagenette-sample, whose classes take turns.
    `limit` keeps the first so many; without `sample` those of imagenette-sample are left out.

    Raises ValueError where an image cannot be read; the message names it. Raises ModuleNotFoundError without matplotlib
    (the extra `lab`).

    >>> [name for name, _ in photographs(image_size=32, limit=3)]
    ['china', 'flower', 'grace hopper']
    """
    from sklearn.datasets import load_sample_images

    try:
        import matplotlib.cbook
    except ModuleNotFoundError as error:
        words = 'photographs: one comes with matplotlib, which is not installed: pip install "vitlab[lab]"'
        raise ModuleNotFoundError(words, name="matplotlib") from error
    scenes = load_sample_images()
    pictures = [
        (Path(name).stem, Image.fromarray(image)) for name, image in zip(scenes.filenames, scenes.images, strict=True)
    ]
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as handle:
        pictures.append(("grace hopper", Image.open(handle).convert("RGB")))
    chosen = [(name, fitted(image, image_size)) for name, image in pictures][:limit]
    own = _image_files(paths.data_dir() / "photos")
    own += _taking_turns(paths.data_dir() / "imagenette-sample") if sample else []
    for path in own[: None if limit is None else max(0, limit - len(chosen))]:
        try:
            chosen.append((path.stem.replace("_", " "), read_image(path, image_size)))
        except Exception as error:
            raise ValueError(f"{path} cannot be read ({error}); replace or remove it") from error
    return [(name, torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()) for name, picture in chosen]


def _taking_turns(folder: Path) -> list[Path]:
    """The first image of every class folder, then the second of every one, and so on."""
    columns = (_image_files(folder / name) for name in _class_folders(folder))
    return [path for row in itertools.zip_longest(*columns) for path in row if path is not None]
