"""Images in memory and in files, and batches of them on the device, as pure functions of the step number (§4.1)."""

from __future__ import annotations

import functools
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image, ImageOps
from torch import Tensor

from vitlab.data import augment
from vitlab.data.augment import Augmentation, Draws
from vitlab.settings import mapped

# batch(step) -> (float images [B 3 H W], labels [B], or, mixed, probabilities [B K]); batch(step, start, stop) ->
# images start … stop−1 of the same batch, bit by bit. A pure function: batches can be asked for in any order.
Batches = Callable[..., tuple[Tensor, Tensor]]


# ---- one image file ----


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to three bytes a pixel, upright; of 16-bit grey the upper byte (PIL would clip)."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels are numbers of no fixed range, mode {image.mode}; expected 8 or 16 bits each")
    ImageOps.exif_transpose(image, in_place=True)
    return image if image.mode == "RGB" else image.convert("RGB")


def resize_and_crop(image: Image.Image, image_size: int | None) -> np.ndarray:
    """Resize the shorter side to `image_size` (antialiased bicubic), crop the centre; None: leave it as it is."""
    if image_size is not None and image.size != (image_size, image_size):
        width, height = (max(image_size, round(side * (image_size / min(image.size)))) for side in image.size)
        left, top = (width - image_size) // 2, (height - image_size) // 2
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + image_size, top + image_size))
    return np.asarray(image)


def read_image(path: Path | str, image_size: int | None, drawn: Draws | None = None) -> np.ndarray:
    """Read one image [H, W, 3]: its centre, or with one row of numbers its inception crop, cut before it is resized."""
    try:
        with Image.open(path) as file:
            image = to_rgb(file)
        if drawn is None or image_size is None:
            return resize_and_crop(image, image_size)
        top, left, height, width = augment.boxes(drawn, image.height, image.width)[0].tolist()
        crop = image.crop((left, top, left + width, top + height))
        return np.asarray(crop.resize((image_size, image_size), Image.Resampling.BILINEAR))
    except Exception as error:  # decoders raise what they like on bytes that are no image
        raise ValueError(f"{path} cannot be read ({error}); replace or remove it") from error


# ---- sets of images ----


@dataclass(frozen=True)
class ImageSet:
    """Labelled images held in memory as bytes; masks: True on the object of the label, where the set knows it."""

    images: UInt8[Tensor, "N 3 H W"]
    labels: Int64[Tensor, " N"]  # indices into `classes`
    classes: tuple[str, ...]
    masks: Bool[Tensor, "N H W"] | None = None

    def __post_init__(self):
        if not len(self.images) == len(self.labels) > 0:
            counts = f"{len(self.images)} images, {len(self.labels)} labels"
            raise ValueError(f"{counts}; expected one for each, at least one")

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 H W"], Int64[Tensor, " B"]]]:
        """Give images and labels in order, `batch_size` at a time, the last and perhaps smaller lot included."""
        for i in range(0, len(self), batch_size):
            yield self.images[i : i + batch_size], self.labels[i : i + batch_size]


@dataclass(frozen=True)
class FolderSet:
    """Labelled image files, decoded when asked for (`datasets.open_folder` makes one)."""

    paths: tuple[str, ...]
    labels: Int64[Tensor, " N"]  # indices into `classes`
    classes: tuple[str, ...]
    image_size: int  # pixels, the side of the square images that come out

    def __len__(self) -> int:
        return len(self.paths)

    def chunks(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        """Give images (resized, their centres) and labels as `ImageSet` does; raises as `read_image`."""
        for i in range(0, len(self), batch_size):
            pictures = mapped(lambda path: read_image(path, self.image_size), self.paths[i : i + batch_size])
            yield torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous(), self.labels[i : i + batch_size]


def content_hash(images: ImageSet | FolderSet) -> str:
    """Hash all images, labels and names of classes; of a folder the files' names, sizes and contents at both ends."""
    if isinstance(images, FolderSet):

        def ends_hash(path: str) -> str:
            with open(path, "rb") as file:
                ends, size = file.read(4096), file.seek(0, os.SEEK_END)
                file.seek(max(len(ends), size - 4096))
                return f"{size} {hashlib.sha256(ends + file.read()).hexdigest()}"

        names = [Path(path).parts[-2:] for path in images.paths]
        described = (images.image_size, images.classes, images.labels.tolist(), names, mapped(ends_hash, images.paths))
        return hashlib.sha256(repr(described).encode()).hexdigest()[:16]
    digest = hashlib.sha256(repr((images.images.shape, images.classes)).encode())
    for tensor in (images.images, images.labels):
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


# ---- batches ----


def slice_of(batch_size: int, start: int, stop: int | None) -> tuple[int, int]:
    """Give the ends of a slice of a batch, by default the whole; raises ValueError where it is empty or not within."""
    stop = batch_size if stop is None else stop
    if not 0 <= start < stop <= batch_size:
        raise ValueError(f"images {start}…{stop} of a batch of {batch_size}; expected 0 ≤ start < stop ≤ {batch_size}")
    return start, stop


def to_float(images: UInt8[Tensor, "*B 3 H W"]) -> Float[Tensor, "*B 3 H W"]:
    """Turn bytes 0–255 to floats −1…1, the range in which the paper's models see their images."""
    if images.dtype != torch.uint8:
        raise ValueError(f"images are {images.dtype}; expected bytes (uint8), 0 to 255: of values 0…1 take 255 times")
    return images.to(torch.float32).div_(127.5).sub_(1.0)


def epoch_order(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    """Permute `n` images as epoch `epoch` visits them, by nothing but the arguments."""
    return torch.randperm(n, generator=torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63))


def batch_indices(n: int, batch_size: int, seed: int) -> Callable[[int], Int64[Tensor, " B"]]:
    """Give which of `n` images are in the batch of a step: one epoch's order after the other, no partial batches."""
    order = functools.lru_cache(maxsize=2)(functools.partial(epoch_order, n, seed))  # a batch may straddle two epochs

    def indices(step: int) -> Int64[Tensor, " B"]:
        first, end = step * batch_size, (step + 1) * batch_size
        epochs = range(first // n, (end - 1) // n + 1)
        return torch.cat([order(epoch)[max(first - epoch * n, 0) : end - epoch * n] for epoch in epochs])

    return indices


def batches(
    images: ImageSet | FolderSet,
    batch_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    augmentation: Augmentation | None = None,
    image_size: int | None = None,
    workers: int = 2,
) -> Batches:
    """Make shuffled training batches of a set, as a function of the step.

    Every epoch is a fresh permutation, and epochs run into each other: no partial batches, every image is seen once
    before any is seen again. A batch depends on the seed and the step alone. The bytes of an `ImageSet` live on
    `device` and are augmented there; of a `FolderSet` so many `workers` (threads) decode the next step's slice ahead,
    and an inception crop is cut from the whole file. Inception crops are resized to `image_size` pixels, by default
    those of the image. Raises ValueError for a pad or `image_size` that the images do not allow.
    """
    augmentation = augmentation or Augmentation()
    indices, n_classes = batch_indices(len(images), batch_size, seed), len(images.classes)
    in_memory, inception = isinstance(images, ImageSet), augmentation.crop == "inception"
    height, width = images.images.shape[-2:] if isinstance(images, ImageSet) else [images.image_size] * 2
    shift = augmentation.pad if augmentation.crop == "pad" else 0
    if shift >= min(height, width):
        raise ValueError(f"pad is {shift} but the images have {height}×{width} pixels; it must be less")
    if not (in_memory and inception) and image_size not in (None, height, width):
        words = "only inception crops of a set in memory are resized; load the images at the size that is wanted"
        raise ValueError(f"image_size is {image_size} but the images have {height}×{width} pixels: {words}")

    def draw(step: int, start: int, stop: int) -> tuple[Int64[Tensor, " n"], Draws]:
        # Which images are in a slice, and their random numbers; with mixup, the partner of the last one too.
        rows = torch.arange(start, stop + (augmentation.mixup > 0)) % batch_size
        return indices(step)[rows], augment.draw(augmentation, batch_size, seed, step)[rows]

    labels = images.labels.to(device)
    if isinstance(images, ImageSet):
        pixels = images.images.to(device)
    else:
        decode = _decoder(images, draw, inception, workers)

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        start, stop = slice_of(batch_size, start, stop)
        index, drawn = draw(step, start, stop)
        index = index.to(device, non_blocking=True)
        chosen = pixels.index_select(0, index) if in_memory else decode(step, start, stop).to(device)
        if in_memory and inception:
            pictures = augment.crop_and_resize(to_float(chosen), drawn, image_size)
        else:
            pictures = to_float(augment.shift_and_flip(chosen, drawn, shift))
        mixed = augmentation.mixup > 0
        return augment.mix(pictures, labels[index], drawn, n_classes) if mixed else (pictures, labels[index])

    return batch


def _decoder(
    folder: FolderSet, draw: Callable[[int, int, int], tuple[Tensor, Draws]], inception: bool, workers: int
) -> Callable[[int, int, int], UInt8[Tensor, "n 3 S S"]]:
    """Give a function that decodes a slice (step, start, stop) in threads, which go on with that of the next step."""
    pool = ThreadPoolExecutor(max(1, workers))  # threads, since decoders leave the interpreter free
    ahead: dict[tuple[int, int, int], list[Future[np.ndarray]]] = {}

    def begin(step: int, start: int, stop: int) -> list[Future[np.ndarray]]:
        index, drawn = draw(step, start, stop)
        return [
            pool.submit(read_image, folder.paths[k], folder.image_size, drawn[row : row + 1] if inception else None)
            for row, k in enumerate(index.tolist())
        ]

    def decode(step: int, start: int, stop: int) -> UInt8[Tensor, "n 3 S S"]:
        pictures = ahead.pop((step, start, stop), None) or begin(step, start, stop)
        for other in [each for each in ahead if each[0] not in (step, step + 1)]:  # not wanted any more, after a jump
            for picture in ahead.pop(other):
                picture.cancel()
        if workers and (step + 1, start, stop) not in ahead:
            ahead[step + 1, start, stop] = begin(step + 1, start, stop)
        return torch.from_numpy(np.stack([each.result() for each in pictures])).permute(0, 3, 1, 2).contiguous()

    weakref.finalize(decode, pool.shutdown, wait=False, cancel_futures=True)  # a finished training waits for none
    return decode
