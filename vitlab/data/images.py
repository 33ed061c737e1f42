"""One image file as bytes: its header checked before its pixels are read, upright, resized, cropped (§4.1)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

MAX_PIXELS = 2**27  # of an image as stored, and as enlarged before its centre is cut out: 0.4 GB as colours in bytes


def check_image_size(image_size: int) -> None:
    """Raises ValueError where no square images of so many pixels a side can be made.

    >>> check_image_size(0)
    Traceback (most recent call last):
    ValueError: image_size is 0; it is a number of pixels a side, from 1 to 11,585
    """
    most = int(MAX_PIXELS**0.5)
    if not 1 <= image_size <= most:
        raise ValueError(f"image_size is {image_size}; it is a number of pixels a side, from 1 to {most:,}")


def read_image(path: Path, image_size: int | None) -> np.ndarray:
    """One image [H, W, 3]; with an `image_size` its centre.

    Raises what `opened`, `upright`, `fitted` and the decoder raise.
    """
    with opened(path) as image:
        return fitted(upright(image), image_size)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """An image file, of which the header has been read and the pixels have not.

    Raises ValueError for more than `MAX_PIXELS`, and for pipes and devices, on which opening would wait for ever.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no regular file: a folder, a pipe or a device")
    with Image.open(path) as image:
        _check_pixels(image.width, image.height, "it has")
        yield image


def _check_pixels(width: int, height: int, words: str) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f"{words} {width:,} x {height:,} pixels, expected at most {MAX_PIXELS:,} in all; crop it")


def upright(image: Image.Image) -> Image.Image:
    """Three bytes a pixel, upright as the camera was held; of 16-bit grey the upper byte (PIL would clip it).

    Raises ValueError where the pixels are numbers of no fixed range.

    >>> upright(Image.new("L", (2, 1), 7)).getpixel((0, 0))
    (7, 7, 7)
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels are numbers of no fixed range, mode {image.mode}; expected 8 or 16 bits each")
    return ImageOps.exif_transpose(image).convert("RGB")


def fitted(image: Image.Image, image_size: int | None) -> np.ndarray:
    """Shorter side to `image_size` (antialiased bicubic), centre crop; as it is where that is None.

    Raises ValueError where the image, longer than wide by far, would have more than `MAX_PIXELS` before it is cropped.

    >>> fitted(Image.new("RGB", (40, 30)), 16).shape
    (16, 16, 3)
    """
    if image_size is not None and image.size != (image_size, image_size):
        scale = image_size / min(image.size)
        width, height = (max(image_size, round(side * scale)) for side in image.size)
        _check_pixels(width, height, f"with its shorter side at {image_size} pixels it would have")
        left, top = (width - image_size) // 2, (height - image_size) // 2
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + image_size, top + image_size))
    return np.asarray(image)
