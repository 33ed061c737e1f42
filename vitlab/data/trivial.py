"""TrivialAugment on the device: one operation of random strength for each image, on bytes (beyond the paper's §4.1).

Müller & Hutter, "TrivialAugment", ICCV 2021, its wide strengths; they are drawn evenly here, not from 31 levels.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

GEOMETRIC = ("shear x", "shear y", "translate x", "translate y", "rotate")
COLOUR = ("brightness", "saturation", "contrast", "sharpness", "posterise", "solarise", "autocontrast", "equalise")
OPERATIONS = ("identity", *GEOMETRIC, *COLOUR)
_SHEAR, _TRANSLATE, _ROTATE, _BLEND = 0.99, 32, math.radians(135), 0.99  # at strength 1
_GREY = (0.299, 0.587, 0.114)  # of red, green and blue


def applied(
    images: UInt8[Tensor, "B 3 H W"], operation: Int64[Tensor, " B"], strength: Float[Tensor, " B"]
) -> UInt8[Tensor, "B 3 H W"]:
    """Each image after its operation, a number of `OPERATIONS`, at its strength, −1…1; both are on the CPU.

    Strengths on the two sides of 0 shear, turn, move, brighten … in opposite directions; for the others their size
    counts. Pixels that come from outside the image are black, as in the publication.

    >>> image = torch.tensor([10, 200], dtype=torch.uint8).expand(1, 3, 2, 2)
    >>> which = torch.tensor([OPERATIONS.index("solarise")])
    >>> applied(image, which, torch.tensor([0.5]))[0, 0, 0].tolist()  # inverts what is 127.5 or brighter
    [10, 55]
    """
    result = images.clone()
    places = _places(operation, strength, *images.shape[-2:])
    for names, change in _CHANGES.items():
        numbers = torch.tensor([OPERATIONS.index(name) for name in names])
        rows = torch.isin(operation, numbers).nonzero().flatten()
        if len(rows):
            given = (places if names == GEOMETRIC else strength[:, None])[rows, :, None, None]
            there = rows.to(images.device, non_blocking=True)
            given = given.float().to(images.device, non_blocking=True)
            result.index_copy_(0, there, change(images.index_select(0, there), given))
    return result


def _places(operation: Int64[Tensor, " B"], strength: Float[Tensor, " B"], height: int, width: int):
    """Where each pixel comes from, [B 6]: that at (x, y) from (a x + b y + c, d x + e y + f), its centre."""
    s = strength.double()
    shear, angle, pixels = s * _SHEAR, s * _ROTATE, (s * _TRANSLATE).trunc()
    zero, one = torch.zeros_like(s), torch.ones_like(s)
    cos, sin, x0, y0 = angle.cos(), angle.sin(), width / 2, height / 2
    rows = {
        "shear x": (one, shear, zero, zero, one, zero),
        "shear y": (one, zero, zero, shear, one, zero),
        "translate x": (one, zero, -pixels, zero, one, zero),
        "translate y": (one, zero, zero, zero, one, -pixels),
        "rotate": (cos, -sin, x0 - cos * x0 + sin * y0, sin, cos, y0 - sin * x0 - cos * y0),
    }
    found = torch.stack([one, zero, zero, zero, one, zero], -1)
    for name, row in rows.items():
        found = torch.where((operation == OPERATIONS.index(name))[:, None], torch.stack(row, -1), found)
    return found


def _moved(images: Tensor, places: Tensor) -> Tensor:
    """Sheared, moved or turned: every pixel is the nearest one of the image to where it comes from."""
    height, width = images.shape[-2:]
    a, b, c, d, e, f = places.unbind(1)
    x = torch.arange(width, device=images.device) + 0.5
    y = (torch.arange(height, device=images.device) + 0.5)[:, None]
    column, row = (a * x + b * y + c).floor().long(), (d * x + e * y + f).floor().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    pixel = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).flatten(1)
    found = images.flatten(2).gather(2, pixel[:, None].expand(-1, 3, -1)).unflatten(2, (height, width))
    return found * inside[:, None]


def _blended(images: Tensor, plain: Tensor, strength: Tensor) -> Tensor:
    """Between `plain` (strength −1) and as far again beyond the image (strength 1)."""
    factor = 1 + strength * _BLEND
    return (images * factor + plain * (1 - factor)).clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = (colour * weight for colour, weight in zip(images.split(1, 1), _GREY, strict=True))
    return (red + green + blue).floor_()


def _brightened(images: Tensor, strength: Tensor) -> Tensor:
    return _blended(images, torch.zeros((), device=images.device), strength)


def _saturated(images: Tensor, strength: Tensor) -> Tensor:
    return _blended(images, _grey(images), strength)


def _contrasted(images: Tensor, strength: Tensor) -> Tensor:
    return _blended(images, _grey(images).mean((1, 2, 3), keepdim=True), strength)


def _sharpened(images: Tensor, strength: Tensor) -> Tensor:
    """Against a smoothed image, which keeps its border."""
    kernel = torch.ones(3, 1, 3, 3, device=images.device)
    kernel[:, :, 1, 1] = 5
    smooth = images.float()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(smooth, kernel / 13, groups=3).round_()
    return _blended(images, smooth, strength)


def _posterised(images: Tensor, strength: Tensor) -> Tensor:
    """The first 8 to 2 bits of a byte."""
    dropped = (6 * strength.abs()).round().long()
    return (images.long() >> dropped << dropped).to(torch.uint8)


def _solarised(images: Tensor, strength: Tensor) -> Tensor:
    return torch.where(images >= 255 * (1 - strength.abs()), 255 - images, images)


def _autocontrasted(images: Tensor, strength: Tensor) -> Tensor:
    """Each colour's darkest value becomes 0, its brightest 255; one that has a single value is left."""
    low, high = (end.float() for end in torch.aminmax(images.flatten(2), dim=2, keepdim=True))
    found = (images.flatten(2) - low) * (255 / (high - low).clamp(min=1))
    return torch.where(high > low, found, images.flatten(2)).clamp(0, 255).to(torch.uint8).view_as(images)


def _equalised(images: Tensor, strength: Tensor) -> Tensor:
    """Each colour's values spread so that they are about equally frequent; by whole numbers, as Pillow does it."""
    values = images.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    step = (values.shape[2] - counts.gather(2, values.amax(2, keepdim=True))) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(0, 255)
    return torch.where(step > 0, table.gather(2, values), values).to(torch.uint8).view_as(images)


_CHANGES = {
    GEOMETRIC: _moved,
    ("brightness",): _brightened,
    ("saturation",): _saturated,
    ("contrast",): _contrasted,
    ("sharpness",): _sharpened,
    ("posterise",): _posterised,
    ("solarise",): _solarised,
    ("autocontrast",): _autocontrasted,
    ("equalise",): _equalised,
}
