"""The images of transfer: a source to pre-train on, and targets that share no image with it (§4.1, Table 2)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.images import fitted
from vitlab.data.loader import Batches, ImageSet, batches, epoch_order
from vitlab.data.world import HELD_OUT, image_set, stream, with_difficulty
from vitlab.experiments import frozen
from vitlab.training.processes import default_device
from vitlab.training.sources import world_named
from vitlab.training.splits import DRAW, subset, world_splits

CROPPED = Augmentation(crop="inception", area=(0.35, 1.0), flip=True)  # of photographs in pre-training
_STORED_ALIKE = ("cifar10", "imagenette")  # real sets whose images have one size: drawn as they are, then resized


@dataclass(frozen=True)
class Source:
    """What a model is pre-trained on."""

    feed: Batches
    test: ImageSet  # never trained on
    n_classes: int


def source(config: dict[str, Any]) -> Source:
    """The images of a run's pre-training, the same in the same order for every model with this seed.

    `config` is that of a run of `transfer`. A world with n_source 0 is endless, and every seed sees images of its own;
    else it has so many images. Of a real set all training images are taken but the `n_train` that `target` gives.

    >>> pretraining = {"source": "world-20", "image_size": 16, "batch_size": 4, "seed": 0, "n_source": 0}
    >>> images = source(pretraining | {"difficulty": 0.5, "n_near": 30, "n_train": 0, "n_test": 0})
    >>> images.feed(0)[0].shape, images.n_classes, len(images.test)
    (torch.Size([4, 3, 16, 16]), 20, 30)
    """
    side, batch_size, seed, device = config["image_size"], config["batch_size"], config["seed"], default_device()
    if painted := world_named(config["source"], side):
        world = with_difficulty(painted, config["difficulty"])
        if config["n_source"]:
            feed = batches(world_splits(world, config["n_source"], 0, 1).train, batch_size, seed, device)
        else:
            feed = stream(world, batch_size, device, start=seed * DRAW % HELD_OUT)
        return Source(feed, image_set(world, config["n_near"], HELD_OUT, device), world.n_classes)
    images = others(config["source"], config["n_train"], side)
    how = (CROPPED, side) if augmentation(config["source"], side) else ()
    test = target(config["source"], "test", side, config["n_test"])
    return Source(batches(images, batch_size, seed, device, *how), test, len(images.classes))


@functools.lru_cache(maxsize=12)
def target(data: str, split: str, image_size: int, count: int) -> ImageSet:
    """At most `count` images of a target set, the same ones at every size (pixels), for every seed and model.

    `data` is any set that `datasets.load` knows, or "world": images in the world's style, of other classes.

    >>> target("digits", "test", 32, count=100).images.shape
    torch.Size([100, 3, 32, 32])
    """
    if data in _STORED_ALIKE:  # a large set is never held whole at a size that its images are enlarged to
        return resized(_drawn(data, split, count), image_size)
    return frozen.target(data, split, image_size, count)


@functools.lru_cache(maxsize=4)
def _drawn(data: str, split: str, count: int) -> ImageSet:
    return first(datasets.load(data, split), count)


@functools.lru_cache(maxsize=2)
def others(data: str, count: int, image_size: int) -> ImageSet:
    """The training images of a real set that are not among the `count` images of `target`, for pre-training.

    Sets that are cut out of larger files are held larger than `image_size` by 1.4, for the crops.

    >>> len(others("digits", 400, 16)) + len(target("digits", "train", 16, 400))
    1437
    """
    stored = datasets.SIDES.get(data)
    images = datasets.load(data, "train", image_size=min(stored, round(1.4 * image_size)) if stored else image_size)
    return subset(images, _order(images)[count:].sort().values)


def first(images: ImageSet, count: int) -> ImageSet:
    """The images of a set that `frozen.target` draws: at most `count`, in the order of the set.

    >>> len(first(target("digits", "test", 8, 360), 10))
    10
    """
    return subset(images, _order(images)[:count].sort().values)


def _order(images: ImageSet) -> torch.Tensor:
    return epoch_order(len(images), seed=0, epoch=0)


def resized(images: ImageSet, image_size: int) -> ImageSet:
    """The same images at another size (pixels), antialiased bicubic, as they are read at that size.

    >>> resized(target("digits", "test", 8, 10), 16).images.shape
    torch.Size([10, 3, 16, 16])
    """
    if images.images.shape[-1] == image_size:
        return images
    pictures = np.empty((len(images), 3, image_size, image_size), np.uint8)
    for i, image in enumerate(images.images.permute(0, 2, 3, 1).numpy()):
        pictures[i] = fitted(Image.fromarray(image), image_size).transpose(2, 0, 1)
    return ImageSet(torch.from_numpy(pictures), images.labels, images.classes)


def augmentation(data: str, image_size: int) -> Augmentation | None:
    """How the images of a target are augmented in fine-tuning: photographs shifted by an eighth at most, and mirrored.

    Nothing is resized, so an image has all the detail of its size. None for the digits, the world and a user's folder.

    >>> augmentation("imagenette", 96).pad, augmentation("digits", 32) is None
    (12, True)
    """
    return Augmentation(crop="pad", pad=image_size // 8, flip=True) if data in datasets.TORCHVISION else None
