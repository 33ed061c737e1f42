"""The images that a training is on, by name: the world, crops of photographs, named sets and folders (§4.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from vitlab.data import datasets, folders, loader, photographs
from vitlab.data.augment import Augmentation
from vitlab.data.folders import FolderSet
from vitlab.data.loader import Batches, ImageSet
from vitlab.data.world import HELD_OUT, World, image_set, stream

_WORLD = re.compile(r"world(?:-(\d{1,7}))?")
_WORLD_TEST = 2_000  # held-out images of the world
_PHOTOGRAPHS_TEST = 500  # crops of what is held out of each photograph


@dataclass(frozen=True)
class Source:
    """Training batches and test images of one set of images."""

    feed: Batches
    test: ImageSet | FolderSet
    n_classes: int
    content: dict[str, Any]  # what tells these images from others


def endless(data: str) -> bool:
    """Whether no image is seen twice, so that there is nothing to augment.

    >>> endless("world-300"), endless("photographs"), endless("digits")
    (True, True, False)
    """
    return data == "photographs" or _WORLD.fullmatch(data) is not None


def world_named(data: str, image_size: int) -> World | None:
    """The world of a name, "world" with its ten classes or "world-300" with so many; None for another name.

    >>> world_named("world-300", 32).n_classes, world_named("digits", 32)
    (300, None)
    """
    found = _WORLD.fullmatch(data)
    if found is None:
        return None
    return World(int(found[1]), image_size) if found[1] else World(image_size=image_size)


def opened(
    data: str,
    image_size: int,
    batch_size: int,
    seed: int,
    device: torch.device,
    augmentation: Augmentation = Augmentation(),  # noqa: B008 - frozen
    workers: int = 2,
) -> Source:
    """The images called `data`, at `image_size` pixels.

    `data` is "world" or "world-300", "photographs", a name of `datasets.load`, or a folder with train/ and test/ in it,
    whose images so many `workers` decode. Raises what the data sets raise: one that is not there, a file that is no
    image; and ValueError for a world of fewer than two classes.

    >>> source = opened("world-20", 16, batch_size=4, seed=0, device=torch.device("cpu"))
    >>> source.feed(0)[0].shape, source.n_classes
    (torch.Size([4, 3, 16, 16]), 20)
    """
    if world := world_named(data, image_size):
        test = image_set(world, _WORLD_TEST, HELD_OUT, device)
        return Source(stream(world, batch_size, device), test, world.n_classes, _content(str(world)))
    if data == "photographs":
        crops = photographs.image_set(_PHOTOGRAPHS_TEST, image_size)
        feed = photographs.stream(image_size, batch_size, seed, device)
        told = loader.content_hash(crops)  # a change of the photographs shows there too
        return Source(feed, crops, len(photographs.names()), _content(told))
    how = (batch_size, seed, device, augmentation)
    if data in datasets.NAMES:
        cropped = augmentation.crop == "inception"  # from images as large as they are kept
        kept = max(image_size, datasets.SIDES.get(data, image_size)) if cropped else image_size
        sides = {"train": kept, "test": image_size}
        held, tests = (datasets.load(data, split, image_size=side) for split, side in sides.items())
        content = [loader.content_hash(each) for each in (held, tests)]
        return Source(loader.batches(held, *how, image_size), tests, len(held.classes), _content(*content))
    read, unread = (folders.open_folder(data, split, image_size=image_size) for split in ("train", "test"))
    for each in (read, unread):
        folders.check_headers(each)
    content = [folders.content_hash(each) for each in (read, unread)]
    return Source(folders.batches(read, *how, workers=workers), unread, len(read.classes), _content(*content))


def _content(*told: str) -> dict[str, str]:
    return dict(zip(("images", "test images"), told, strict=False))
