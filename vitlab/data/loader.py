"""Batches on the device, as pure functions of the step number (§4.1)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from vitlab.data import augment
from vitlab.data.augment import Augmentation

# batch(step) -> (float images [B 3 H W], labels [B], or, mixed, probabilities [B K]); batch(step, start, stop) ->
# images start … stop−1 of the same batch, bit by bit. A pure function: batches can be asked for in any order, and in
# slices by gradient accumulation or by several processes.
Batches = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class ImageSet:
    """Labelled images held in memory as bytes.

    images: [N, 3, H, W], 0–255. labels: [N], indices into `classes`. masks: [N, H, W], True on the object of the
    label where the set knows it (the world does), otherwise None.
    """

    images: UInt8[Tensor, "N 3 H W"]
    labels: Int64[Tensor, " N"]
    classes: tuple[str, ...]
    masks: Bool[Tensor, "N H W"] | None = None

    def __post_init__(self):
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"{len(self.images)} images but {len(self.labels)} labels; give every image exactly one label"
            )
        if len(self.images) == 0:
            raise ValueError("an image set needs at least one image; the one given is empty")

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 H W"], Int64[Tensor, " B"]]]:
        """Images and labels in order, `batch_size` at a time, the last and perhaps smaller lot included.

        Raises ValueError where batch_size is not positive.

        >>> digits = ImageSet(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.arange(10), tuple("0123456789"))
        >>> [labels.tolist() for _, labels in digits.chunks(4)]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        """
        check_batch_size(batch_size)
        ends = range(0, len(self), batch_size)
        return ((self.images[i : i + batch_size], self.labels[i : i + batch_size]) for i in ends)


def content_hash(images: ImageSet) -> str:
    """A hash of all images, labels and names of classes: equal for two sets that train alike.

    >>> dark, light = (torch.full((1, 3, 8, 8), value, dtype=torch.uint8) for value in (0, 255))
    >>> one, other = (ImageSet(images, torch.tensor([0]), ("a",)) for images in (dark, light))
    >>> content_hash(one) == content_hash(one), content_hash(one) == content_hash(other)
    (True, False)
    """
    digest = hashlib.sha256(repr((images.images.shape, images.classes)).encode())
    for tensor in (images.images, images.labels):
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def check_batch_size(batch_size: int) -> None:
    """Raises ValueError where batch_size is not positive."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")


def slice_of(batch_size: int, start: int, stop: int | None) -> tuple[int, int]:
    """The slice of a batch that is asked for; all of it from `start` on where `stop` is None.

    Raises ValueError where the slice is empty or not within the batch.

    >>> slice_of(8, start=2, stop=None)
    (2, 8)
    """
    stop = batch_size if stop is None else stop
    if not 0 <= start < stop <= batch_size:
        raise ValueError(f"images {start}…{stop} of a batch of {batch_size}; expected 0 ≤ start < stop ≤ {batch_size}")
    return start, stop


def rows_of(batch_size: int, start: int, stop: int | None, augmentation: Augmentation) -> Int64[Tensor, " n"]:
    """The images of a batch that go into a slice of it: with mixup, the partner of the last one too.

    >>> rows_of(8, 4, None, Augmentation(mixup=0.2))
    tensor([4, 5, 6, 7, 0])
    """
    start, stop = slice_of(batch_size, start, stop)
    return torch.arange(start, stop + augmentation.mixes) % batch_size


def to_float(images: UInt8[Tensor, "*B 3 H W"]) -> Float[Tensor, "*B 3 H W"]:
    """Bytes 0–255 to floats −1…1, the range in which the paper's models see their images.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 3, 1, 1))[:, 0, 0, 0]
    tensor([-1.,  1.])
    """
    return images.to(torch.float32).div_(127.5).sub_(1.0)


def epoch_order(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    """The order in which epoch `epoch` visits `n` images: a permutation that depends on nothing but its arguments.

    >>> sorted(epoch_order(5, seed=0, epoch=3).tolist())
    [0, 1, 2, 3, 4]
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(n, generator=generator)


def shuffled(n: int, batch_size: int, seed: int) -> Callable[[int], Int64[Tensor, " B"]]:
    """The numbers of the images in the batch of a step: one epoch's order after the other, with no partial batches.

    >>> numbers = shuffled(3, batch_size=2, seed=0)
    >>> sorted(torch.cat([numbers(0), numbers(1)[:1]]).tolist())
    [0, 1, 2]
    """
    check_batch_size(batch_size)
    order = functools.lru_cache(maxsize=2)(functools.partial(epoch_order, n, seed))  # a batch may straddle two epochs

    def numbers(step: int) -> Int64[Tensor, " B"]:
        first, end = step * batch_size, (step + 1) * batch_size
        epochs = range(first // n, (end - 1) // n + 1)
        return torch.cat([order(epoch)[max(first - epoch * n, 0) : end - epoch * n] for epoch in epochs])

    return numbers


def batches(
    image_set: ImageSet,
    batch_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    augmentation: Augmentation | None = None,
    image_size: int | None = None,
) -> Batches:
    """Shuffled training batches of a set that fits in memory, as a function of the step.

    Every epoch is a fresh permutation; the batch at a step depends only on the seed and the step, so a resumed run
    sees exactly what an uninterrupted one would have seen. Epochs run into each other: no partial batches, and every
    image is seen once before any is seen again. The bytes live on `device`, once, and are augmented there. An
    inception crop is resized to `image_size` pixels, by default those of the image.

    Raises ValueError where batch_size is not positive, the augmentation's pad is not less than the images' sides, or
    `image_size` is another than the images' without an inception crop.

    >>> digits = ImageSet(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.arange(10), tuple("0123456789"))
    >>> batch = batches(digits, batch_size=4, seed=0, augmentation=Augmentation(crop="pad", pad=1, mixup=0.2))
    >>> images, labels = batch(7)
    >>> images.shape, labels.shape
    (torch.Size([4, 3, 8, 8]), torch.Size([4, 10]))
    >>> torch.equal(batch(7, 1, 3)[1], labels[1:3])
    True
    """
    augmentation = augmentation or Augmentation()
    numbers = shuffled(len(image_set), batch_size, seed)
    sides = image_set.images.shape[-2:]
    augment.check_shift(augmentation.shift, *sides)
    if augmentation.crop != "inception" and image_size not in (None, *sides):
        raise ValueError(
            f"image_size is {image_size} but the images have {sides[0]}×{sides[1]} pixels: only inception crops are "
            "resized; load the images at the size that is wanted"
        )
    images, labels = image_set.images.to(device), image_set.labels.to(device)

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        rows = rows_of(batch_size, start, stop, augmentation)
        index = numbers(step)[rows].to(device, non_blocking=True)
        drawn = augment.draw(augmentation, batch_size, seed, step)[rows]
        chosen = images.index_select(0, index)
        if augmentation.crop == "inception":
            pictures = augment.resized_crops(to_float(chosen), drawn, image_size)
        else:
            pictures = to_float(augment.shifted(chosen, drawn, augmentation.shift))
        if augmentation.mixes:
            return augment.mixed(pictures, labels[index], drawn, len(image_set.classes))
        return pictures, labels[index]

    return batch
