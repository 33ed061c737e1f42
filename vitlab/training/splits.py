"""The three sets of a study, to learn from, to choose by and to report: of the world and of the digits (§4.1)."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from vitlab.data import datasets
from vitlab.data.loader import ImageSet, epoch_order
from vitlab.data.world import HELD_OUT, World, class_names, image_set, scene
from vitlab.training.processes import default_device

DRAW = 2**24  # training images that a draw of the world can have


@dataclass(frozen=True)
class Splits:
    """Three sets that share no image: to learn from, to choose by (where anything is chosen), and to report."""

    train: ImageSet
    validation: ImageSet | None
    test: ImageSet


def world_splits(
    world: World, n_train: int, n_validation: int, n_test: int, draw: int = 0, n_seen: int | None = None
) -> Splits:
    """Images of a world. Each `draw` has training images of its own; smaller sets are the head of larger ones.

    Validation and test images are the same for every draw and every size, and never trained on. There are 65,536
    draws; they begin anew after that. Where a training is too short to see all `n_train` images, `n_seen` says how
    many it sees: only these are painted, chosen at random from all.

    Raises ValueError for more training images than a draw has.

    >>> splits = world_splits(World(image_size=8), n_train=30, n_validation=10, n_test=20)
    >>> len(splits.train), len(splits.validation), len(splits.test)
    (30, 10, 20)
    >>> len(world_splits(World(image_size=8), n_train=1_000_000, n_validation=10, n_test=20, n_seen=50).train)
    50
    """
    if n_train > DRAW:
        raise ValueError(f"n_train is {n_train}; a draw of the world has {DRAW} images")
    start = draw * DRAW % HELD_OUT
    seen = n_train if n_seen is None else min(n_seen, n_train)
    return Splits(
        train=_painted(world, n_train, start) if seen == n_train else _chosen(world, n_train, start, seen),
        validation=_painted(world, n_validation, HELD_OUT + DRAW) if n_validation else None,
        test=_painted(world, n_test, HELD_OUT),
    )


@functools.lru_cache(maxsize=3)
def _painted(world: World, count: int, start: int) -> ImageSet:
    # Kept, for a worker process trains many models on the same images.
    painted = image_set(world, count, start, default_device())
    return dataclasses.replace(painted, masks=None)  # no training looks at them


@functools.lru_cache(maxsize=2)
def _chosen(world: World, count: int, start: int, n_seen: int) -> ImageSet:
    numbers = start + epoch_order(count, seed=start, epoch=0)[:n_seen]
    images, labels, _ = scene(world, numbers, default_device())
    return ImageSet(images, labels, class_names(world))


def digits_splits(n_train: int | None = None, hold_out: bool = False) -> Splits:
    """scikit-learn's scanned digits, 8 × 8 pixels; with `hold_out` every fifth training image is set apart.

    `n_train`: the first so many training images only.

    >>> splits = digits_splits(hold_out=True)
    >>> len(splits.train), len(splits.validation), len(splits.test)
    (1150, 287, 360)
    """
    everything, test = datasets.load("digits", "train"), datasets.load("digits", "test")
    number = torch.arange(len(everything))
    apart = (number % 5 == 4) & hold_out
    validation = subset(everything, number[apart]) if hold_out else None
    return Splits(subset(everything, number[~apart][:n_train]), validation, test)


def subset(images: ImageSet, index: Int64[Tensor, "M"]) -> ImageSet:
    """The images of a set with these numbers, in this order.

    >>> splits = world_splits(World(image_size=8), 10, 4, 4)
    >>> subset(splits.train, torch.tensor([7, 2])).labels.tolist()
    [7, 2]
    """
    masks = None if images.masks is None else images.masks[index]
    return ImageSet(images.images[index], images.labels[index], images.classes, masks)
