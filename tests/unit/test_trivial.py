"""TrivialAugment: every operation beside torchvision's, and what each leaves alone."""

import math

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as peer

from vitlab.data.trivial import OPERATIONS, applied

STRENGTHS = (-1.0, -0.6, -0.2, 0.1, 0.5, 1.0)


def smooth_pictures(n: int, height: int = 32, width: int = 32) -> torch.Tensor:
    """Pictures whose neighbouring pixels are alike, with few values in one of the colours."""
    generator = torch.Generator().manual_seed(n)
    small = torch.randint(0, 256, (n, 3, 6, 5), dtype=torch.uint8, generator=generator)
    pictures = peer.resize(small, [height, width])
    pictures[:, 1] = pictures[:, 1] // 4 + 90
    return pictures


def by_torchvision(name: str, image: torch.Tensor, s: float) -> torch.Tensor:
    """What torchvision's TrivialAugmentWide does to an image for the strength s."""
    nearest = {"interpolation": InterpolationMode.NEAREST, "fill": 0}
    still = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]} | nearest
    tilt = math.degrees(math.atan(0.99 * s))
    return {
        "identity": lambda: image,
        "shear x": lambda: peer.affine(image, **still | {"shear": [tilt, 0.0]}, center=[0, 0]),
        "shear y": lambda: peer.affine(image, **still | {"shear": [0.0, tilt]}, center=[0, 0]),
        "translate x": lambda: peer.affine(image, **still | {"translate": [int(32 * s), 0]}),
        "translate y": lambda: peer.affine(image, **still | {"translate": [0, int(32 * s)]}),
        "rotate": lambda: peer.rotate(image, 135 * s, **nearest),
        "brightness": lambda: peer.adjust_brightness(image, 1 + 0.99 * s),
        "saturation": lambda: peer.adjust_saturation(image, 1 + 0.99 * s),
        "contrast": lambda: peer.adjust_contrast(image, 1 + 0.99 * s),
        "sharpness": lambda: peer.adjust_sharpness(image, 1 + 0.99 * s),
        "posterise": lambda: peer.posterize(image, 8 - round(6 * abs(s))),
        "solarise": lambda: peer.solarize(image, 255 * (1 - abs(s))),
        "autocontrast": lambda: peer.autocontrast(image),
        "equalise": lambda: peer.equalize(image),
    }[name]()


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_torchvisions_known_answers(name):
    images = smooth_pictures(len(STRENGTHS), 31, 32)
    found = applied(images, torch.full((len(images),), OPERATIONS.index(name)), torch.tensor(STRENGTHS))
    for image, ours, s in zip(images, found, STRENGTHS, strict=True):
        difference = (ours.int() - by_torchvision(name, image, s).int()).abs()
        # Rounding may take a turned or sheared pixel from the neighbour, and a value to the next.
        assert (difference > 1).float().mean() <= (0.01 if name in ("rotate", "shear x", "shear y") else 0), s
    if name != "identity":
        assert not torch.equal(found, images)


def test_each_image_has_its_own_operation():
    n = 3 * len(OPERATIONS)
    images, operation = smooth_pictures(n), torch.arange(n) % len(OPERATIONS)
    strength = torch.linspace(-1, 1, n)
    together = applied(images, operation, strength)
    alone = [applied(images[i : i + 1], operation[i : i + 1], strength[i : i + 1]) for i in range(n)]
    assert torch.equal(together, torch.cat(alone))
    assert together.dtype == torch.uint8 and together.shape == images.shape


@pytest.mark.parametrize("value", [0, 77, 255])
def test_pictures_of_one_value_are_left_by_contrast_and_equalisation(value):
    image = torch.full((3, 3, 8, 8), value, dtype=torch.uint8)
    which = torch.tensor([OPERATIONS.index(name) for name in ("autocontrast", "equalise", "sharpness")])
    assert torch.equal(applied(image, which, torch.tensor([0.5, 0.5, 0.9])), image)


def test_strength_nought_changes_nothing():
    names = [name for name in OPERATIONS if name not in ("autocontrast", "equalise", "solarise")]
    images = smooth_pictures(len(names))
    found = applied(images, torch.tensor([OPERATIONS.index(name) for name in names]), torch.zeros(len(names)))
    assert torch.equal(found, images)
