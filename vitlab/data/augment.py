"""Augmentation: random crops, flips and mixup, as pure functions of the seed and the step (§4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vitlab.settings import check, number, one_of, pair, whole

Crop = Literal["none", "pad", "inception"]


@dataclass(frozen=True)
class Augmentation:
    """What is done to the images of a batch before the model sees them."""

    crop: Crop = "none"  # "pad": shifted and filled by reflection; "inception": a random box, resized, as in the paper
    pad: int = 4  # pixels, the largest shift up, down, left or right
    area: tuple[float, float] = (0.05, 1.0)  # fraction of the image's area
    aspect: tuple[float, float] = (3 / 4, 4 / 3)  # width / height, uniform in its logarithm
    flip: bool = False  # left and right, of every second image
    mixup: float = 0.0  # the α of λ ~ Beta(α, α); 0: none

    def __post_init__(self):
        area, aspect = (pair(each)[0] and 0 < each[0] <= each[1] for each in (self.area, self.aspect))
        expected = {
            "crop": one_of(self.crop, get_args(Crop)),
            "pad": whole(self.pad, 1),
            "area": (area and self.area[1] <= 1, "two fractions in a tuple, 0 < smallest ≤ largest ≤ 1"),
            "aspect": (aspect, "two ratios in a tuple, 0 < smallest ≤ largest"),
            "flip": one_of(self.flip, (True, False)),
            "mixup": number(self.mixup),
        }
        check(self, expected)


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch, on the CPU: one row an image, and how all are mixed."""

    flip: Bool[Tensor, " B"]
    position: Float64[Tensor, "B 2"]  # 0…1: from the topmost, leftmost place of a crop to the last
    shape: Float64[Tensor, "B n 2"]  # area and aspect ratio of an inception crop, in the order they are tried
    weight: float  # λ, of the image itself; its partner has 1 − λ

    def __getitem__(self, rows) -> Draws:
        return Draws(self.flip[rows], self.position[rows], self.shape[rows], self.weight)


def draw(augmentation: Augmentation, batch_size: int, seed: int, step: int) -> Draws:
    """Draw the numbers of a whole batch from the arguments alone; a slice of the batch takes its rows of them."""
    # A hash of both: torch looks at 32 bits of a seed only, in which sums of seeds and steps would coincide.
    state = np.random.SeedSequence(seed % 2**64, spawn_key=(step,)).generate_state(1)
    generator = torch.Generator().manual_seed(int(state[0]))
    uniform = torch.rand(batch_size, 3, generator=generator, dtype=torch.float64)
    weight, quantile = 1.0, torch.rand(1, generator=generator, dtype=torch.float64).item()
    n = 10 if augmentation.crop == "inception" else 0  # shapes tried, of which the first that fits is taken
    shape = torch.rand(batch_size, n, 2, generator=generator, dtype=torch.float64)
    (smallest, largest), (low, high) = augmentation.area, map(math.log, augmentation.aspect)
    area, aspect = smallest + (largest - smallest) * shape[..., 0], (low + (high - low) * shape[..., 1]).exp()
    if augmentation.mixup:
        from scipy.special import betaincinv  # slow to import

        weight = float(betaincinv(augmentation.mixup, augmentation.mixup, quantile))
    return Draws((uniform[:, 0] < 0.5) & augmentation.flip, uniform[:, 1:], torch.stack([area, aspect], -1), weight)


def boxes(drawn: Draws, height: int, width: int) -> Int64[Tensor, "B 4"]:
    """Compute top, left, height, width (pixels) of inception crops: of the first shape that fits, or of the image."""
    area, aspect = drawn.shape.unbind(-1)
    sizes = torch.stack([area / aspect, area * aspect], -1).mul_(height * width).sqrt_().round_().long()
    image = torch.tensor([height, width])
    fits = ((sizes >= 1) & (sizes <= image)).all(-1)
    size = torch.where(fits.any(-1, keepdim=True), sizes[torch.arange(len(sizes)), fits.int().argmax(-1)], image)
    return torch.cat([(drawn.position * (image - size + 1)).long(), size], -1)


def shift_and_flip(images: UInt8[Tensor, "B 3 H W"], drawn: Draws, shift: int) -> UInt8[Tensor, "B 3 H W"]:
    """Move images by −shift … shift pixels (less than a side) each way, reflected at their edges; flip if drawn so."""
    height, width = images.shape[-2:]
    if shift == 0 and not drawn.flip.any():
        return images
    device = images.device
    corner = ((drawn.position * (2 * shift + 1)).long() - shift).to(device, non_blocking=True)
    axes = []
    for k, n in enumerate((height, width)):
        index = corner[:, k, None] + torch.arange(n, device=device)
        axes.append(n - 1 - (n - 1 - index.abs()).abs())  # reflected about the first and the last pixel
    row, column = axes
    column = torch.where(drawn.flip.to(device, non_blocking=True)[:, None], column.flip(-1), column)
    pixel = (row[:, :, None] * width + column[:, None, :]).flatten(1)
    return images.flatten(2).gather(2, pixel[:, None].expand(-1, 3, -1)).unflatten(2, (height, width))


def crop_and_resize(
    images: Float[Tensor, "B 3 H W"], drawn: Draws, image_size: int | None = None
) -> Float[Tensor, "B 3 h w"]:
    """Cut each image's inception crop, resize it (bilinear) to `image_size` or the image's own, flip if drawn so."""
    size, device = images.shape[-2:], images.device
    corner, extent = boxes(drawn, *size).to(device, non_blocking=True).double().split(2, -1)
    axes = []
    for k, side in enumerate(size):
        n = image_size or side
        first, length = corner[:, k, None], extent[:, k, None]
        at = first + (torch.arange(n, device=device) + 0.5) * length / n - 0.5  # its pixel centres, in the image's
        at = at.clamp(first, first + length - 1)  # pixels outside the box have no part in it
        axes.append(((2 * at + 1) / side - 1).to(images.dtype))
    row, column = axes
    column = torch.where(drawn.flip.to(device, non_blocking=True)[:, None], column.flip(-1), column)
    grid = torch.stack(torch.broadcast_tensors(column[:, None, :], row[:, :, None]), -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def mix(
    images: Float[Tensor, "m 3 H W"], labels: Int64[Tensor, " m"], drawn: Draws, n_classes: int
) -> tuple[Float[Tensor, "m-1 3 H W"], Float[Tensor, "m-1 K"]]:
    """Mix every image but the last with the next, and the labels as probabilities (mixup: Zhang et al., ICLR 2018)."""
    own, other, targets = drawn.weight, 1 - drawn.weight, F.one_hot(labels, n_classes).float()
    # Not lerp, whose rounding depends on where a slice begins.
    return own * images[:-1] + other * images[1:], own * targets[:-1] + other * targets[1:]
