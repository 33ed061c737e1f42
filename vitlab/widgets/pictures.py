"""A picture from the bytes of anybody's file: upright, in colour, and refused where it is broken or huge (§4.1)."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

from vitlab.data.images import upright

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_BYTES = 20_000_000  # of a file
MAX_PIXELS = 50_000_000  # of a picture: 150 MB once decoded
LARGEST_SIDE = 1024  # pixels that are kept: several times what a model takes


def picture_from(content: bytes) -> UInt8[Tensor, "3 H W"]:
    """The picture in a file: as the camera was held, on white where it is transparent, at most 1,024 pixels a side.

    Its size is read from the header; what is too large is never decoded.

    Raises:
        ValueError: more than 20 MB or 50 million pixels, or no picture that can be read to its end.

    >>> picture_from(b"GIF89a, and then something else")
    Traceback (most recent call last):
    ValueError: not a picture that can be read: 31 bytes given, expected a whole PNG, JPEG, WEBP, GIF, BMP, TIFF file;
    choose another
    """
    check_bytes(len(content))
    with _reading(len(content)):
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(_too_many_pixels(f"{image.width:,} × {image.height:,}"))
    with _reading(len(content)):
        return torch.from_numpy(np.array(_decoded(image))).permute(2, 0, 1).contiguous()


def check_bytes(size: int) -> None:
    """Raises ValueError for a file of more than 20 MB.

    >>> check_bytes(21_500_000)
    Traceback (most recent call last):
    ValueError: a file of 21.5 MB given, expected at most 20 MB; scale the picture down, a model sees a few hundred
    pixels a side
    """
    if size > MAX_BYTES:
        raise ValueError(
            f"a file of {size / 1e6:.1f} MB given, expected at most {MAX_BYTES / 1e6:.0f} MB; scale the picture down, "
            "a model sees a few hundred pixels a side"
        )


def _too_many_pixels(size: str) -> str:
    return (
        f"a picture of {size} pixels given, expected at most {MAX_PIXELS / 1e6:.0f} million; scale it down, a model "
        "sees a few hundred a side"
    )


@contextlib.contextmanager
def _reading(n_bytes: int) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
            yield
    except Image.DecompressionBombError:
        raise ValueError(_too_many_pixels("hundreds of millions of")) from None
    except Exception as error:  # decoders raise what they like on bytes that are no picture
        raise ValueError(
            f"not a picture that can be read: {n_bytes:,} bytes given, expected a whole {', '.join(FORMATS)} file; "
            "choose another"
        ) from error


def _decoded(image: Image.Image) -> Image.Image:
    if image.has_transparency_data:
        image = ImageOps.exif_transpose(image).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = upright(image)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE), Image.Resampling.BICUBIC)
    return image
