"""Images in memory and in files, and batches of them on the device, as pure functions of the step number (§4.1)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import os
import signal
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image, ImageOps
from torch import Tensor

from vitlab.data import augment
from vitlab.data.augment import Augmentation, Draws
from vitlab.settings import mapped

MAX_PIXELS = 2**27  # of an image as stored, and as enlarged before its centre is cut out: 0.4 GB as colours in bytes

# batch(step) -> (float images [B 3 H W], labels [B], or, mixed, probabilities [B K]); batch(step, start, stop) ->
# images start … stop−1 of the same batch, bit by bit. A pure function: batches can be asked for in any order, and in
# slices by gradient accumulation or by several processes.
Batches = Callable[..., tuple[Tensor, Tensor]]


def check_batch_size(batch_size: int) -> None:
    """Raise ValueError where batch_size is not positive."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")


# ---- one image file ----


@contextlib.contextmanager
def open_image(path: Path | str) -> Iterator[Image.Image]:
    """Open an image file, of which the header is read and the pixels are not.

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


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to three bytes a pixel, upright as the camera was held; of 16-bit grey the upper byte (PIL would clip).

    Raises ValueError where the pixels are numbers of no fixed range.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels are numbers of no fixed range, mode {image.mode}; expected 8 or 16 bits each")
    return ImageOps.exif_transpose(image).convert("RGB")


def resize_and_crop(image: Image.Image, image_size: int | None) -> np.ndarray:
    """Resize the shorter side to `image_size` (antialiased bicubic), crop the centre; None leaves the image as it is.

    Raises ValueError where the image, longer than wide by far, would have more than `MAX_PIXELS` before it is cropped.
    """
    if image_size is not None and image.size != (image_size, image_size):
        scale = image_size / min(image.size)
        width, height = (max(image_size, round(side * scale)) for side in image.size)
        _check_pixels(width, height, f"with its shorter side at {image_size} pixels it would have")
        left, top = (width - image_size) // 2, (height - image_size) // 2
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + image_size, top + image_size))
    return np.asarray(image)


def read_image(path: Path | str, image_size: int | None) -> np.ndarray:
    """Read one image [H, W, 3]; with an `image_size` its centre. Raises what opening, decoding and resizing raise."""
    with open_image(path) as image:
        return resize_and_crop(to_rgb(image), image_size)


def _decode(path: str, image_size: int, drawn: Draws | None = None) -> np.ndarray:
    """Read one image [S, S, 3]: its centre, or with one row of numbers its inception crop, cut before it is resized."""
    try:
        if drawn is None:
            return read_image(path, image_size)
        with open_image(path) as file:
            image = to_rgb(file)
        top, left, height, width = augment.boxes(drawn, image.height, image.width)[0].tolist()
        crop = image.crop((left, top, left + width, top + height))
        return np.asarray(crop.resize((image_size, image_size), Image.Resampling.BILINEAR))
    except Exception as error:  # decoders raise what they like on bytes that are no image
        raise ValueError(f"{path} cannot be read ({error}); replace or remove it") from error


# ---- sets of images ----


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
        """Give images and labels in order, `batch_size` at a time, the last and perhaps smaller lot included."""
        check_batch_size(batch_size)
        ends = range(0, len(self), batch_size)
        return ((self.images[i : i + batch_size], self.labels[i : i + batch_size]) for i in ends)


@dataclass(frozen=True)
class FolderSet:
    """Labelled image files, decoded when asked for (`datasets.open_folder` makes one).

    labels: [N], indices into `classes`. image_size: pixels, the side of the square images that come out.
    """

    paths: tuple[str, ...]
    labels: Int64[Tensor, " N"]
    classes: tuple[str, ...]
    image_size: int

    def __len__(self) -> int:
        return len(self.paths)

    def chunks(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        """Give images and labels in order, `batch_size` at a time, the last and perhaps smaller lot included.

        The shorter side is resized to `image_size`, the centre is cropped. Decoded in threads.

        Raises ValueError where batch_size is not positive, or a file cannot be read, naming it.
        """
        check_batch_size(batch_size)

        def chunk(part: slice) -> tuple[Tensor, Tensor]:
            with ThreadPoolExecutor() as pool:
                pictures = pool.map(lambda path: _decode(path, self.image_size), self.paths[part])
            images = torch.from_numpy(np.stack(list(pictures))).permute(0, 3, 1, 2).contiguous()
            return images, self.labels[part]

        return (chunk(slice(i, i + batch_size)) for i in range(0, len(self), batch_size))


def content_hash(images: ImageSet | FolderSet) -> str:
    """Hash all images, labels and names of classes: equal for two sets that train alike.

    Of a folder the files' names, sizes and contents at both ends count, and its own place does not.
    """
    if isinstance(images, FolderSet):

        def ends_hash(path: str) -> str:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                ends = file.read(4096)
                file.seek(max(file.tell(), size - 4096))
                return f"{size} {hashlib.sha256(ends + file.read()).hexdigest()}"

        names = [Path(path).parts[-2:] for path in images.paths]
        ends = mapped(ends_hash, images.paths)
        described = repr((images.image_size, images.classes, images.labels.tolist(), names, ends))
        return hashlib.sha256(described.encode()).hexdigest()[:16]
    digest = hashlib.sha256(repr((images.images.shape, images.classes)).encode())
    for tensor in (images.images, images.labels):
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


# ---- batches ----


def slice_of(batch_size: int, start: int, stop: int | None) -> tuple[int, int]:
    """Give the ends of a slice of a batch, to the batch's end where `stop` is None.

    Raises ValueError where the slice is empty or not within the batch.
    """
    stop = batch_size if stop is None else stop
    if not 0 <= start < stop <= batch_size:
        raise ValueError(f"images {start}…{stop} of a batch of {batch_size}; expected 0 ≤ start < stop ≤ {batch_size}")
    return start, stop


def rows_of(batch_size: int, start: int, stop: int | None, augmentation: Augmentation) -> Int64[Tensor, " n"]:
    """Give the images of a batch that go into a slice of it: with mixup, the partner of the last one too."""
    start, stop = slice_of(batch_size, start, stop)
    return torch.arange(start, stop + (augmentation.mixup > 0)) % batch_size


def to_float(images: UInt8[Tensor, "*B 3 H W"]) -> Float[Tensor, "*B 3 H W"]:
    """Turn bytes 0–255 to floats −1…1, the range in which the paper's models see their images."""
    return images.to(torch.float32).div_(127.5).sub_(1.0)


def epoch_order(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    """Permute `n` images as epoch `epoch` visits them, by nothing but the arguments."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(n, generator=generator)


def batch_indices(n: int, batch_size: int, seed: int) -> Callable[[int], Int64[Tensor, " B"]]:
    """Give which of `n` images are in the batch of a step: one epoch's order after the other, no partial batches."""
    check_batch_size(batch_size)
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

    Every epoch is a fresh permutation; the batch at a step depends only on the seed and the step, so a resumed run
    sees exactly what an uninterrupted one would have seen. Epochs run into each other: no partial batches, and every
    image is seen once before any is seen again. The bytes of an `ImageSet` live on `device`, once, and are augmented
    there; an inception crop is resized to `image_size` pixels, by default those of the image.

    Of a `FolderSet`, see `FolderBatches`: `workers` processes decode ahead (0: this process decodes, when asked); the
    batches are the same for any number. An inception crop is cut from the whole file.

    Raises ValueError where batch_size is not positive, workers is negative, the augmentation's pad is not less than
    the images' sides, or `image_size` is another than the images' without an inception crop.
    """
    augmentation = augmentation or Augmentation()
    if isinstance(images, FolderSet):
        return FolderBatches(images, batch_size, seed, device, augmentation, workers)
    indices, n_classes = batch_indices(len(images), batch_size, seed), len(images.classes)
    sides = images.images.shape[-2:]
    augment.check_shift(augmentation.shift, *sides)
    if augmentation.crop != "inception" and image_size not in (None, *sides):
        raise ValueError(
            f"image_size is {image_size} but the images have {sides[0]}×{sides[1]} pixels: only inception crops are "
            "resized; load the images at the size that is wanted"
        )
    pixels, labels = images.images.to(device), images.labels.to(device)

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        rows = rows_of(batch_size, start, stop, augmentation)
        index = indices(step)[rows].to(device, non_blocking=True)
        drawn = augment.draw(augmentation, batch_size, seed, step)[rows]
        chosen = pixels.index_select(0, index)
        if augmentation.crop == "inception":
            pictures = augment.crop_and_resize(to_float(chosen), drawn, image_size)
        else:
            pictures = to_float(augment.shift_and_flip(chosen, drawn, augmentation.shift))
        return (
            augment.mix(pictures, labels[index], drawn, n_classes) if augmentation.mixup else (pictures, labels[index])
        )

    return batch


def _start_worker() -> None:
    """Set up a worker that outlives neither an interrupt's meaning nor its parent."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a notebook's interrupt is for the process that trains

    def follow_parent() -> None:  # one that is killed outright cannot stop its workers: they would wait for ever
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow_parent, daemon=True).start()


def _decode_slice(paths: list[str], rows: list[int], image_size: int, *of_batch: Any) -> np.ndarray:
    """Decode rows of a batch to bytes [n, S, S, 3], in an array: a tensor would be shared, and lost with its worker.

    of_batch: augmentation, batch size, seed and step.
    """
    drawn = augment.draw(*of_batch)
    crops = [drawn[row : row + 1] if of_batch[0].crop == "inception" else None for row in rows]
    return np.stack([_decode(path, image_size, crop) for path, crop in zip(paths, crops, strict=True)])


class FolderBatches:
    """Batches of a folder, as `batches` gives them.

    Workers decode ahead what comes next if every step asks for the slices that the last one asked for. A jump, or the
    first slice of its kind, costs a wait; what comes out is the same. The processes end with `close()`, or with the
    last reference.

    When called, raises ValueError naming a file that cannot be read, RuntimeError if a worker died.
    """

    def __init__(
        self,
        folder: FolderSet,
        batch_size: int,
        seed: int,
        device: torch.device | str,
        augmentation: Augmentation,
        workers: int,
    ):
        if workers < 0:
            raise ValueError(f"workers is {workers}; expected a number of processes, or 0 to decode in this one")
        augment.check_shift(augmentation.shift, folder.image_size, folder.image_size)
        self._folder, self._batch_size, self._seed = folder, batch_size, seed
        self._device, self._augmentation, self._workers = device, augmentation, workers
        self._indices = batch_indices(len(folder), batch_size, seed)
        self._pool: ProcessPoolExecutor | None = None
        self._ahead: deque[tuple[Any, Future]] = deque()  # slices (step, start, stop) that the workers are at
        self._next: Iterator[tuple[int, int, int]] = iter(())
        self._last_step = -1
        self._windows: list[tuple[int, int]] = []  # the slices that a step asks for

    def close(self) -> None:
        """End the workers; a later request starts new ones."""
        self._ahead.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __call__(self, step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Give images start … stop−1 of the batch of a step, and their labels."""
        start, stop = slice_of(self._batch_size, start, stop)
        rows = rows_of(self._batch_size, start, stop, self._augmentation)
        decoded = self._fetch(step, start, stop) if self._workers else _decode_slice(*self._work(step, start, stop))
        pictures = torch.from_numpy(decoded).to(self._device).permute(0, 3, 1, 2).contiguous()
        drawn = augment.draw(self._augmentation, self._batch_size, self._seed, step)[rows]
        images = to_float(augment.shift_and_flip(pictures, drawn, self._augmentation.shift))
        labels = self._folder.labels[self._indices(step)[rows]].to(self._device)
        if self._augmentation.mixup:
            return augment.mix(images, labels, drawn, len(self._folder.classes))
        return images, labels

    def _work(self, step: int, start: int, stop: int) -> tuple[Any, ...]:
        """Gather the arguments of `_decode_slice`."""
        rows = rows_of(self._batch_size, start, stop, self._augmentation)
        paths = [self._folder.paths[index] for index in self._indices(step)[rows].tolist()]
        of_batch = self._augmentation, self._batch_size, self._seed, step
        return paths, rows.tolist(), self._folder.image_size, *of_batch

    def _fetch(self, step: int, start: int, stop: int) -> np.ndarray:
        """Take the bytes of a slice from the workers, and keep them at what comes next."""
        try:
            if not self._ahead or self._ahead[0][0] != (step, start, stop):
                # Decode ahead from here on; a new slice of the step before joins that step's slices.
                for _, future in self._ahead:
                    future.cancel()
                self._ahead.clear()
                known = self._windows if step == self._last_step and (start, stop) not in self._windows else []
                windows = self._windows = [*known, (start, stop)]
                n = len(windows)
                self._next = ((step + k // n, *windows[k % n]) for k in itertools.count(len(known)))
            self._last_step = step
            if self._pool is None:
                context = multiprocessing.get_context("spawn")  # forking a process that used torch's threads may hang
                self._pool = ProcessPoolExecutor(self._workers, context, _start_worker)
            while len(self._ahead) <= self._workers * 2:  # slices that each worker decodes ahead
                request = next(self._next)
                self._ahead.append((request, self._pool.submit(_decode_slice, *self._work(*request))))
            return self._ahead.popleft()[1].result()
        except ValueError as error:
            self.close()
            raise ValueError(str(error)) from None  # without the traceback of the worker, which says nothing more
        except BrokenProcessPool as error:
            self.close()
            raise RuntimeError(
                f"a worker died by step {step}, reading {self._folder.paths[0]} and the images next to it; was there "
                "memory for it? A script starts training under `if __name__ == '__main__':`, or reads with workers=0"
            ) from error
