"""Image folders too large for memory: decoded by worker processes while the model computes (§4.1)."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Tensor

from vitlab import settings
from vitlab.data import augment, datasets
from vitlab.data.augment import Augmentation, Draws
from vitlab.data.images import check_image_size, opened, read_image, upright
from vitlab.data.loader import check_batch_size, rows_of, shuffled, slice_of, to_float
from vitlab.paths import data_dir

_PREFETCH = 2  # slices that each worker decodes ahead
_END = 4096  # bytes at each end of a file that tell it from another of the same size
Window = tuple[int, int]  # first image of a slice of a batch, and the one after its last
Request = tuple[int, Window]  # a slice of the batch of a step


@dataclass(frozen=True)
class FolderSet:
    """Labelled image files, decoded when asked for.

    labels: [N], indices into `classes`. image_size: pixels, the side of the square images that come out.
    """

    paths: tuple[str, ...]
    labels: Int64[Tensor, " N"]
    classes: tuple[str, ...]
    image_size: int

    def __len__(self) -> int:
        return len(self.paths)

    def chunks(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        """Images and labels in order, `batch_size` at a time, the last and perhaps smaller lot included.

        The shorter side is resized to `image_size`, the centre is cropped. Decoded in threads.

        Raises ValueError where batch_size is not positive, or a file cannot be read, naming it.
        """
        check_batch_size(batch_size)
        return (self._chunk(slice(i, i + batch_size)) for i in range(0, len(self), batch_size))

    def _chunk(self, part: slice) -> tuple[Tensor, Tensor]:
        with ThreadPoolExecutor() as pool:
            pictures = pool.map(lambda path: _decoded(path, self.image_size), self.paths[part])
        images = torch.from_numpy(np.stack(list(pictures))).permute(0, 3, 1, 2).contiguous()
        return images, self.labels[part]


def open_folder(name: str | Path, split: datasets.Split = "train", *, image_size: int) -> FolderSet:
    """The images of a folder <root>/<split>/<class>/<file>, listed and not yet read.

    `name`: a path, or a name under `$VITLAB_DATA`. A folder without train/ and test/ is one set, whole under any
    `split`; with them, labels count the classes of both, so they mean the same in either.

    Raises FileNotFoundError where the folder or its split is missing, ValueError where a class folder is empty.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("ant", "bee"):
    ...         (Path(root) / name).mkdir()
    ...         Image.new("RGB", (40, 30)).save(Path(root) / name / "1.png")
    ...     folder = open_folder(root, image_size=16)
    ...     [images.shape for images, _ in folder.chunks(8)]
    [torch.Size([2, 3, 16, 16])]
    >>> folder.classes, folder.labels
    (('ant', 'bee'), tensor([0, 1]))
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it is 'train' or 'test'")
    check_image_size(image_size)
    places = (Path(name), data_dir() / name)
    root = next((place for place in places if os.path.isdir(place)), None)
    if root is None:
        raise FileNotFoundError(
            f"no folder {str(name):.300}: looked for {str(places[0].absolute()):.300} and {str(places[1]):.300}; give "
            "its path, or set VITLAB_DATA to the folder that holds it"
        )
    paths, labels, classes = datasets.listing(root, split)
    own = root / split if (root / split).is_dir() else root
    if empty := [name for k, name in enumerate(classes) if k not in set(labels) and (own / name).is_dir()]:
        raise ValueError(
            f"no image in {own / empty[0]}; expected files ending in {', '.join(datasets.ENDINGS)}: add some, or "
            "remove the folder"
        )
    return FolderSet(tuple(map(str, paths)), torch.tensor(labels), classes, image_size)


def check_headers(folder: FolderSet) -> None:
    """Open every image as far as its header, so that a file that is none is found before a training, not after it.

    Raises ValueError naming the first such file and how many there are. An image that is cut off in the middle has a
    good header: that is found when it is decoded.
    """
    bad = [problem for problem in settings.mapped(_problem, folder.paths) if problem]
    if bad:
        more = f" (and {len(bad) - 1:,} more of {len(folder):,})" if len(bad) > 1 else ""
        raise ValueError(f"{bad[0]}{more}; replace or remove it")


def _problem(path: str) -> str:
    try:
        with opened(Path(path)):
            return ""
    except Exception as error:  # noqa: BLE001 (decoders raise what they like on bytes that are no image)
        return f"{path} cannot be read ({error})"


def content_hash(folder: FolderSet) -> str:
    """A hash of the files' names, sizes and contents at both ends, of the labels and of the classes.

    The folder's own place does not count: a copy of it, or the same folder moved, has the same hash.
    """
    ends = settings.mapped(_ends_hash, folder.paths)
    names = [Path(path).parts[-2:] for path in folder.paths]
    described = repr((folder.image_size, folder.classes, folder.labels.tolist(), names, list(ends)))
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _ends_hash(path: str) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        ends = file.read(_END)
        file.seek(max(file.tell(), size - _END))
        return f"{size} {hashlib.sha256(ends + file.read()).hexdigest()}"


def _decoded(path: str, image_size: int, drawn: Draws | None = None) -> np.ndarray:
    """One image [S, S, 3]: its centre, or with one row of numbers its inception crop, cut before it is resized."""
    try:
        if drawn is None:
            return read_image(Path(path), image_size)
        with opened(Path(path)) as file:
            image = upright(file)
        top, left, height, width = augment.boxes(drawn, image.height, image.width)[0].tolist()
        crop = image.crop((left, top, left + width, top + height))
        return np.asarray(crop.resize((image_size, image_size), Image.Resampling.BILINEAR))
    except Exception as error:  # decoders raise what they like on bytes that are no image
        raise ValueError(f"{path} cannot be read ({error}); replace or remove it") from error


@dataclass(frozen=True)
class _Slice:
    """What is decoded in one go: rows of the batch of a step, and the files that they come from."""

    step: int
    rows: list[int]
    paths: list[str]
    image_size: int
    batch_size: int
    seed: int
    augmentation: Augmentation

    def decoded(self) -> np.ndarray:
        """Bytes [n, S, S, 3], in an array: a tensor would be shared, and lost with the worker that it comes from."""
        crops: list[Draws | None] = [None] * len(self.rows)
        if self.augmentation.crop == "inception":
            drawn = augment.draw(self.augmentation, self.batch_size, self.seed, self.step)
            crops = [drawn[row : row + 1] for row in self.rows]
        chosen = zip(self.paths, crops, strict=True)
        return np.stack([_decoded(path, self.image_size, crop) for path, crop in chosen])


def _start_worker() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a notebook's interrupt is for the process that trains
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    # A parent killed outright cannot stop its workers: they would wait for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _requests(step: int, windows: list[Window], first: int) -> Iterator[Request]:
    """What is asked for from `windows[first]` of a step on, if every step asks for the same slices in turn.

    >>> list(itertools.islice(_requests(7, [(0, 4), (4, 8)], first=1), 3))
    [(7, (4, 8)), (8, (0, 4)), (8, (4, 8))]
    """
    for k in itertools.count(first):
        yield step + k // len(windows), windows[k % len(windows)]


class FolderBatches:
    """Batches of a folder, as `batches` gives them.

    Workers decode ahead what comes next if every step asks for the slices that the last one asked for. A jump, or the
    first slice of its kind, costs a wait; what comes out is the same.
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
        augment.check_shift(augmentation.shift, folder.image_size, folder.image_size)
        self._folder, self._batch_size, self._seed = folder, batch_size, seed
        self._device, self._augmentation, self._workers = device, augmentation, workers
        self._numbers = shuffled(len(folder), batch_size, seed)
        self._pool: ProcessPoolExecutor | None = None
        self._ahead: deque[tuple[Request, Future]] = deque()  # what the workers are at
        self._next: Iterator[Request] = iter(())
        self._last_step = -1
        self._windows: list[Window] = []

    def close(self) -> None:
        """End the workers; a later request starts new ones."""
        self._ahead.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __call__(self, step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        window = slice_of(self._batch_size, start, stop)
        part, labels = self._slice(step, window)
        decoded = self._fetched(step, window) if self._workers else part.decoded()
        pictures = torch.from_numpy(decoded).to(self._device).permute(0, 3, 1, 2).contiguous()
        drawn = augment.draw(self._augmentation, self._batch_size, self._seed, step)[part.rows]
        shifted = augment.shifted(pictures, drawn, self._augmentation.shift)
        images = to_float(shifted)
        if self._augmentation.mixes:
            return augment.mixed(images, labels, drawn, len(self._folder.classes))
        return images, labels

    def _slice(self, step: int, window: Window) -> tuple[_Slice, Int64[Tensor, " n"]]:
        """What there is to decode, and its labels."""
        rows = rows_of(self._batch_size, *window, self._augmentation)
        numbers = self._numbers(step)[rows]
        paths = [self._folder.paths[number] for number in numbers.tolist()]
        size, labels = self._folder.image_size, self._folder.labels[numbers].to(self._device)
        return _Slice(step, rows.tolist(), paths, size, self._batch_size, self._seed, self._augmentation), labels

    def _fetched(self, step: int, window: Window) -> np.ndarray:
        """The bytes of a slice, from the workers."""
        try:
            if not self._ahead or self._ahead[0][0] != (step, window):
                self._go_to(step, window)
            self._last_step = step
            while len(self._ahead) <= self._workers * _PREFETCH:
                request = next(self._next)
                self._ahead.append((request, self._started().submit(_Slice.decoded, self._slice(*request)[0])))
            return self._ahead.popleft()[1].result()
        except ValueError as error:
            self.close()
            raise ValueError(str(error)) from None  # without the traceback of the worker, which says nothing more
        except BrokenProcessPool as error:
            self.close()
            raise RuntimeError(
                f"a worker died by step {step}, reading {self._folder.paths[0]} and the images beside it; was there "
                "memory for it? A script starts training under `if __name__ == '__main__':`, or reads with workers=0"
            ) from error

    def _go_to(self, step: int, window: Window) -> None:
        """Decode ahead from here on; a new slice of the step before joins that step's slices."""
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        known = self._windows if step == self._last_step and window not in self._windows else []
        self._windows = [*known, window]
        self._next = _requests(step, self._windows, first=len(known))

    def _started(self) -> ProcessPoolExecutor:
        """The workers, started when they are first asked for."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # forking a process that has used torch's threads may hang
            self._pool = ProcessPoolExecutor(self._workers, context, _start_worker)
        return self._pool


def batches(
    folder: FolderSet,
    batch_size: int,
    seed: int,
    device: torch.device | str = "cpu",
    augmentation: Augmentation | None = None,
    workers: int = 2,
) -> FolderBatches:
    """Shuffled training batches of a folder, as a function of the step: `loader.batches` for what memory cannot hold.

    An inception crop is cut from the whole file, before it is resized; without one the shorter side is resized and
    the centre cropped. `workers` processes decode ahead (0: this process decodes, when asked); the batches are the
    same for any number. The processes end with `close()`, or with the last reference to what is returned.

    Raises ValueError where batch_size is not positive, workers is negative, or the augmentation's pad is not less
    than the images' side; when called, ValueError naming a file that cannot be read, RuntimeError if a worker died.

    >>> import matplotlib.cbook
    >>> with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
    ...     folder = FolderSet((file.name,), torch.tensor([0]), ("person",), image_size=32)
    >>> batch = batches(folder, batch_size=4, seed=0, augmentation=Augmentation(crop="inception"), workers=0)
    >>> images, labels = batch(100)  # four crops of the one image
    >>> images.shape, labels
    (torch.Size([4, 3, 32, 32]), tensor([0, 0, 0, 0]))
    """
    if workers < 0:
        raise ValueError(f"workers is {workers}; expected a number of processes, or 0 to decode in this one")
    return FolderBatches(folder, batch_size, seed, device, augmentation or Augmentation(), workers)
