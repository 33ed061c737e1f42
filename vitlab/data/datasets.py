"""Real images: scikit-learn's digits, CIFAR, Flowers, Pets, any image folder, and photographs to look at (§4.1)."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageFile, UnidentifiedImageError
from torch import Tensor

from vitlab import files
from vitlab.data.loader import ImageSet

Split = str  # "train" or "test"
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
# name → torchvision's class and its split's spelling; what `download=True` fetches
TORCHVISION = {
    "cifar10": ("CIFAR10", {"train": {"train": True}, "test": {"train": False}}),
    "cifar100": ("CIFAR100", {"train": {"train": True}, "test": {"train": False}}),
    "flowers102": ("Flowers102", {"train": {"split": "train"}, "test": {"split": "test"}}),
    "pets": ("OxfordIIITPet", {"train": {"split": "trainval"}, "test": {"split": "test"}}),
}
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
    """A labelled set in memory: "digits", "cifar10", "cifar100", "flowers102", "pets", or a folder of class folders.

    A named set other than the digits is looked for under `$VITLAB_DATA` as <name>/<split>/<class>/<image>, then in
    torchvision's own layout; `download=True` fetches it there. `image_size` (pixels) resizes the shorter side and
    crops the centre; sets whose images differ in size need it. `skip_broken` leaves unreadable images out, with a
    warning that names them.

    Raises FileNotFoundError where a set is missing (which path was looked at, which variable sets it, what would
    download it), ValueError for an unknown name or split, an unreadable image, or images of several sizes.

    >>> digits = load("digits", "test")
    >>> digits.images.shape, digits.classes[3]
    (torch.Size([360, 3, 8, 8]), '3')
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it is 'train' or 'test'")
    if name == "digits":
        return _resized(_digits(split), image_size)
    if name not in TORCHVISION:
        if not Path(name).is_dir():
            near = difflib.get_close_matches(str(name), NAMES, 1, 0.6)
            raise ValueError(
                f"unknown data set {str(name)!r}{f'; did you mean {near[0]!r}?' if near else ''}; "
                f"it is one of {', '.join(NAMES)}, or an existing folder with one sub-folder a class"
            )
        folder = Path(name)
        return image_folder(folder / split if (folder / split).is_dir() else folder, image_size, skip_broken)
    folder = files.data_dir() / name / split
    if folder.is_dir():
        return image_folder(folder, image_size, skip_broken)
    return _from_torchvision(str(name), split, image_size, download)


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
    import torchvision.datasets

    kind, spelling = TORCHVISION[name]
    root = files.data_dir()
    try:
        found = getattr(torchvision.datasets, kind)(root, download=download, **spelling[split])
    except (RuntimeError, FileNotFoundError) as error:
        raise FileNotFoundError(
            f"{name} ({split}) is not here: looked for {root / name / split} with a folder a class, and for "
            f"torchvision's own files in {root}. Set VITLAB_DATA to the folder that holds {name}/, or download it "
            f'where there is a network: python -c "from vitlab.data import datasets; '
            f"datasets.load('{name}', '{split}', image_size={image_size}, download=True)\""
        ) from error
    pictures, labels = [], []
    for i in range(len(found)):  # decoded once: the whole sequence is never held as PIL images
        image, label = found[i]
        pictures.append(_fitted(image.convert("RGB"), image_size))
        labels.append(int(label))
    classes = tuple(getattr(found, "classes", map(str, range(max(labels) + 1))))
    return ImageSet(_stacked(pictures, [str(i) for i in range(len(pictures))]), torch.tensor(labels), classes)


def image_folder(folder: Path, image_size: int | None = None, skip_broken: bool = False) -> ImageSet:
    """Images of a folder with one sub-folder a class; classes in alphabetical order.

    Raises as `load` does.
    """
    classes = tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))
    if not classes:
        raise ValueError(f"{folder} has no sub-folders; expected one folder a class with images in it")
    paths, labels = [], []
    for label, name in enumerate(classes):
        own = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in ENDINGS)
        paths += own
        labels += [label] * len(own)
    if not paths:
        raise ValueError(f"no image in the class folders of {folder}; expected files ending in {', '.join(ENDINGS)}")
    pictures = _read_all(paths, image_size, skip_broken)
    kept = [i for i, picture in enumerate(pictures) if picture is not None]
    if not kept:
        raise ValueError(f"none of the {len(paths)} images in {folder} can be read; expected whole image files")
    images = _stacked([pictures[i] for i in kept], [str(paths[i]) for i in kept])
    return ImageSet(images, torch.tensor([labels[i] for i in kept]), classes)


def _read_all(paths: Sequence[Path], image_size: int | None, skip_broken: bool) -> list[np.ndarray | None]:
    """Decode in threads (the decoders leave the interpreter free); None where a broken image was let go."""
    broken: list[str] = []

    def read(path: Path) -> np.ndarray | None:
        try:
            with Image.open(path) as image:
                return _fitted(image.convert("RGB"), image_size)
        except (OSError, UnidentifiedImageError, SyntaxError) as error:
            if not skip_broken:
                raise ValueError(
                    f"{path} cannot be read ({error}); replace or remove it, or pass skip_broken=True"
                ) from error
            broken.append(path.name)
            return None

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, which would hide truncated images; set it to False"
        )
    with ThreadPoolExecutor() as pool:
        pictures = list(pool.map(read, paths))
    if broken:
        warnings.warn(f"left out {len(broken)} unreadable images: {', '.join(sorted(broken)[:5])}", stacklevel=3)
    return pictures


def _fitted(image: Image.Image, image_size: int | None) -> np.ndarray:
    """Shorter side to `image_size` (antialiased bicubic), centre crop; as it is where that is None."""
    if image_size is not None and image.size != (image_size, image_size):
        scale = image_size / min(image.size)
        width, height = (max(image_size, round(side * scale)) for side in image.size)
        left, top = (width - image_size) // 2, (height - image_size) // 2
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + image_size, top + image_size))
    return np.asarray(image)


def _stacked(pictures: Sequence[np.ndarray], names: Sequence[str]) -> UInt8[Tensor, "N 3 H W"]:
    first = pictures[0].shape
    for picture, name in zip(pictures, names, strict=True):
        if picture.shape != first:
            raise ValueError(
                f"{name} has {picture.shape[1]}×{picture.shape[0]} pixels, the first image {first[1]}×{first[0]}; "
                "give image_size to bring them to one size"
            )
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


def _resized(images: ImageSet, image_size: int | None) -> ImageSet:
    if image_size is None or images.images.shape[-1] == image_size:
        return images
    pictures = [_fitted(Image.fromarray(p), image_size) for p in images.images.permute(0, 2, 3, 1).numpy()]
    return ImageSet(_stacked(pictures, [""] * len(pictures)), images.labels, images.classes)


def photographs(image_size: int | None = None, limit: int | None = None) -> list[tuple[str, UInt8[Tensor, "3 H W"]]]:
    """Real photographs (name, picture): three that come with the dependencies, then those under `$VITLAB_DATA`.

    The three: a Chinese temple and a flower (scikit-learn), Grace Hopper (matplotlib). Then every image of
    $VITLAB_DATA/photos and $VITLAB_DATA/imagenette-sample, in alphabetical order. `limit` keeps the first so many.

    >>> [name for name, _ in photographs(image_size=32, limit=3)]
    ['china', 'flower', 'grace hopper']
    """
    import matplotlib.cbook
    from sklearn.datasets import load_sample_images

    sample = load_sample_images()
    found = [
        (Path(name).stem, Image.fromarray(image)) for name, image in zip(sample.filenames, sample.images, strict=True)
    ]
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as handle:
        found.append(("grace hopper", Image.open(handle).convert("RGB")))
    chosen = [(name, _fitted(image, image_size)) for name, image in found][:limit]
    own = [
        path
        for folder in ("photos", "imagenette-sample")
        for path in sorted((files.data_dir() / folder).rglob("*"))
        if path.suffix.lower() in ENDINGS
    ]
    own = own[: None if limit is None else max(0, limit - len(chosen))]
    pictures = _read_all(own, image_size, skip_broken=False)
    chosen += [(path.stem.replace("_", " "), picture) for path, picture in zip(own, pictures, strict=True)]
    return [(name, torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()) for name, picture in chosen]
