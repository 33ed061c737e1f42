"""Random crops of the photographs that come with the dependencies: real images without a network (§4.6).

One image with strong augmentation goes far for a network's lowest layers (Asano et al., ICLR 2020). Three are here; the
right quarter of each is for tests, and no training crop has a pixel of it.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitlab.data import datasets
from vitlab.data.loader import Batches, ImageSet, check_batch_size, slice_of, to_float

_COUNT = 3
_TEST = 0.25  # of each photograph's width, at its right
_LARGEST = 3.0  # sides of the crop, in sides of the image that comes out: 1 … 3


def stream(image_size: int, batch_size: int, seed: int = 0, device: torch.device | str = "cpu") -> Batches:
    """Endless training batches of random crops, as a function of the step; the labels are the photographs' numbers.

    A crop is 1 to 3 times as wide as the `image_size` (pixels) to which it is resized, as far as the photograph goes,
    and every second one is flipped; its place, its size and its photograph are drawn from the seed and the step.

    Raises ValueError where batch_size is not positive, or the crop is larger than a photograph's part.

    >>> images, labels = stream(image_size=32, batch_size=4)(step=7)
    >>> images.shape, torch.equal(stream(32, 4)(7, 1, 3)[0], images[1:3])
    (torch.Size([4, 3, 32, 32]), True)
    """
    check_batch_size(batch_size)
    parts = _parts("train", image_size)

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        start, stop = slice_of(batch_size, start, stop)
        draws = np.random.default_rng([seed, step]).random((batch_size, 5))
        images, labels = _crops(parts, image_size, draws[start:stop])
        return to_float(images.to(device)), labels.to(device)

    return batch


def image_set(count: int, image_size: int, split: str = "test", seed: int = 0) -> ImageSet:
    """So many crops in memory, of the test or the training parts; the same for the same arguments.

    Raises ValueError for an unknown split, or a crop larger than a photograph's part.

    >>> image_set(6, image_size=32).images.shape
    torch.Size([6, 3, 32, 32])
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it is 'train' or 'test'")
    draws = np.random.default_rng([seed, 2**31 + (split == "test")]).random((count, 5))
    return ImageSet(*_crops(_parts(split, image_size), image_size, draws), names())


def names() -> tuple[str, ...]:
    """What the photographs are called.

    >>> len(names())
    3
    """
    return tuple(name for name, _ in _photographs())


@functools.cache
def _photographs() -> tuple[tuple[str, Image.Image], ...]:
    pictures = datasets.photographs(limit=_COUNT)  # the same on every machine
    return tuple((name, Image.fromarray(picture.permute(1, 2, 0).numpy())) for name, picture in pictures)


def _parts(split: str, image_size: int) -> list[Image.Image]:
    """The training or the test part of every photograph."""
    parts = []
    for name, photograph in _photographs():
        border = round((1 - _TEST) * photograph.width)
        left, right = (0, border) if split == "train" else (border, photograph.width)
        if not 1 <= image_size <= min(right - left, photograph.height):
            raise ValueError(
                f"image_size is {image_size}, but the {split} part of the photograph {name} has {right - left} × "
                f"{photograph.height} pixels; expected at most {min(right - left, photograph.height)}"
            )
        parts.append(photograph.crop((left, 0, right, photograph.height)))
    return parts


def _crops(parts: list[Image.Image], image_size: int, draws: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """A crop [3 S S] of bytes and the number of its photograph for each row of five uniform numbers."""
    crops, labels = np.empty((len(draws), image_size, image_size, 3), np.uint8), []
    for row, (which, size, down, right, flip) in enumerate(draws):
        label = int(which * len(parts))
        part = parts[label]
        largest = min(_LARGEST * image_size, *part.size)
        side = image_size * math.exp(size * math.log(largest / image_size))  # uniform in its logarithm
        left, top = right * (part.width - side), down * (part.height - side)
        resized = part.resize((image_size,) * 2, Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        crops[row] = np.asarray(resized)[:, :: -1 if flip < 0.5 else 1]
        labels.append(label)
    return torch.from_numpy(crops).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels, dtype=torch.int64)
