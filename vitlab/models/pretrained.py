"""A model with weights, and how photographs are made ready for it (§4.1: resize and crop)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

CROP = 256 / 224  # larger images are cut down to the middle 224 of 256, as is usual for evaluation


@dataclass(frozen=True)
class Pretrained:
    """A model in eval mode, and what is needed to use it."""

    model: nn.Module
    name: str
    source: str  # where the weights came from, in words
    image_size: tuple[int, int]  # height, width in pixels
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel, for values in [0, 1]
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    about: Mapping[str, Any] = field(default_factory=dict)  # what was saved with them

    def prepare(self, images: Shaped[Tensor, "..."]) -> Float[Tensor, "B 3 h w"]:
        """Resize, crop and normalise photographs, uint8 [B 3 H W], for this model.

        Images of the model's size are left as they are. Others are resized (bicubic, antialiased) until they
        just cover that size, or 256/224 of it if they are larger than that, and cut to it around the centre.

        Raises:
            ValueError: when the images are not uint8 [B, 3, H, W].

        >>> lab = Pretrained(nn.Identity(), name="nothing", source="nowhere", image_size=(32, 32))
        >>> black = lab.prepare(torch.zeros(1, 3, 50, 80, dtype=torch.uint8))
        >>> black.shape, black.unique()
        (torch.Size([1, 3, 32, 32]), tensor([-1.]))
        """
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(
                f"images are {images.dtype} {list(images.shape)}, but uint8 [batch, 3, height, width] with "
                "values 0 to 255 is expected; `prepare` does the scaling and normalising itself"
            )
        x = images.float()
        if x.shape[2:] != self.image_size:
            x = _resize_and_crop(x, *self.image_size)
        mean, std = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (self.mean, self.std))
        return (x / 255 - mean) / std


def _resize_and_crop(images: Tensor, height: int, width: int) -> Tensor:
    rows, cols = images.shape[2:]
    room = min(rows / height, cols / width)  # how many times larger than needed the image is
    scale = (CROP if room > CROP else 1.0) / room
    # fractions of a pixel are cut off, and halves rounded to even, as torchvision does
    size = [max(height, int(rows * scale + 1e-6)), max(width, int(cols * scale + 1e-6))]
    images = F.interpolate(images, size, mode="bicubic", antialias=True).clamp(0, 255)
    top, left = round((size[0] - height) / 2), round((size[1] - width) / 2)
    return images[:, :, top : top + height, left : left + width]


def pretrained(model: nn.Module, name: str, source: str, about: Mapping[str, Any]) -> Pretrained:
    """A model of ours or timm's with the image size and normalisation it is made for; ours take [-1, 1]."""
    published = getattr(model, "pretrained_cfg", None)  # timm's
    if published is None:
        side = model.config.image_size
        return Pretrained(model, name, source, (side, side), about=about)
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or published["input_size"][1:]
    mean, std = tuple(published["mean"]), tuple(published["std"])
    return Pretrained(model, name, source, tuple(size), mean, std, about)
