"""Batches on the device, as pure functions of the step number (§4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

Batches = Callable[[int], tuple[Tensor, Tensor]]  # step -> (float images [B 3 H W], labels [B])


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


def batches(image_set: ImageSet, batch_size: int, seed: int, device: torch.device | str = "cpu") -> Batches:
    """Shuffled training batches of a set that fits in memory, as a function of the step.

    Every epoch is a fresh permutation; the batch at a step depends only on the seed and the step, so a resumed run
    sees exactly what an uninterrupted one would have seen. Epochs run into each other: no partial batches, and every
    image is seen once before any is seen again. The bytes live on `device`, once.

    Raises ValueError where batch_size is not positive.

    >>> digits = ImageSet(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.arange(10), tuple("0123456789"))
    >>> images, labels = batches(digits, batch_size=4, seed=0)(7)
    >>> images.shape, len(labels)
    (torch.Size([4, 3, 8, 8]), 4)
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    n = len(image_set)
    images, labels = image_set.images.to(device), image_set.labels.to(device)
    orders: dict[int, Tensor] = {}  # the epoch in use, and its neighbour while a batch straddles both

    def order(epoch: int) -> Tensor:
        if epoch not in orders:
            for old in [e for e in orders if e < epoch - 1 or e > epoch]:
                del orders[old]
            orders[epoch] = epoch_order(n, seed, epoch)
        return orders[epoch]

    def batch(step: int) -> tuple[Tensor, Tensor]:
        position = torch.arange(step * batch_size, (step + 1) * batch_size)
        epochs = position // n
        index = torch.cat([order(int(e))[position[epochs == e] % n] for e in epochs.unique()]).to(device)
        return to_float(images[index]), labels[index]

    return batch
