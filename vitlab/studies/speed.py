"""Images per second and largest batch of inference against input size, one model at a time (App. D.5, Fig. 12).

On a GPU a batch is tried on the device, with all its memory. On a CPU running out of memory could stop the machine:
there a process with a memory limit tries it (Linux), and its death means "does not fit".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import nn

from vitlab import settings
from vitlab.models import zoo

SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"models": ("Lab-Mu/8", "BiT-Lab-Mu/8"), "sides": (16, 32), "batches": (4,), "n_rounds": 2},
    "quick": {"models": ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"), "sides": (32, 64, 128)},
}
SIZES["smoke"] |= {"seconds": 0.001, "megabytes": 4}
SIZES["full"] = SIZES["quick"]


def measure(
    models: tuple[str, ...],
    sides: tuple[int, ...],
    batches: tuple[int, ...] = (8, 64),
    n_rounds: int = 5,
    seconds: float = 0.05,
    megabytes: int = 32,
    seed: int = 0,
) -> pd.DataFrame:
    """Time inference on one thread and find the largest batch of every model at every image side (pixels).

    In every round all models take their turn, so that a slow moment of the machine affects all; of the `batches` the
    fastest counts, as in the paper. `megabytes` (10⁶ bytes) is the memory for a batch on a CPU, next to library and
    model; only Linux sets such limits. Nothing else should run on the machine meanwhile.
    Rows of kind "speed" (model, image_size, round, images_per_second) and "batch" (model, image_size, largest_batch).
    """
    rows: list[dict[str, Any]] = []
    device = settings.default_device()
    with settings.one_thread():
        for side in sides:
            made = {name: zoo.create(name, image_size=side, seed=seed).to(device).eval() for name in models}
            images = torch.zeros(max(batches), 3, side, side, device=device)
            for model, batch in itertools.product(made.values(), batches):
                images_per_second(model, images[:batch], seconds=0.0)  # the first pass chooses and loads kernels
            for number, (name, model) in itertools.product(range(n_rounds), made.items()):
                fastest = max(images_per_second(model, images[:batch], seconds) for batch in batches)
                about = {"kind": "speed", "model": name, "image_size": side}
                rows.append(about | {"round": number, "images_per_second": fastest})
    for name in models if device.type == "cuda" or sys.platform == "linux" else ():
        with contextlib.nullcontext(_fits_gpu) if device.type == "cuda" else _limited(megabytes) as fits:
            for side in sides:
                size = largest(functools.partial(fits, name, side))
                rows.append({"kind": "batch", "model": name, "image_size": side, "largest_batch": size})
    return pd.DataFrame(rows)


@torch.inference_mode()
def images_per_second(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Time the forward pass for at least `seconds` and at least one pass; on a GPU in bfloat16."""
    kind = images.device.type
    passes, taken, started = 0, 0.0, time.perf_counter()
    while passes == 0 or taken < seconds:
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            model(images)
        if kind == "cuda":
            torch.cuda.synchronize()
        passes, taken = passes + 1, time.perf_counter() - started
    return passes * len(images) / taken


def speeds(table: pd.DataFrame) -> pd.DataFrame:
    """Select the speeds: model, image_size (pixels), round, images_per_second."""
    rows = table.loc[table["kind"] == "speed", ["model", "image_size", "round", "images_per_second"]]
    return rows.astype({"round": int, "image_size": int}).reset_index(drop=True)


def batches(table: pd.DataFrame) -> pd.DataFrame:
    """Select the largest batches: model, image_size (pixels), largest_batch; none where they cannot be measured."""
    rows = table[table["kind"] == "batch"].reindex(columns=["model", "image_size", "largest_batch"])
    return rows.astype({"largest_batch": int, "image_size": int}).reset_index(drop=True)


def largest(fits: Callable[[int], bool], precision: float = 1 / 16) -> int:
    """Find the largest number up to a million for which `fits` holds, or up to `precision` less; 0 where 1 does not.

    Doubling finds a number that does not fit, bisection between it and the last that did the rest.

    >>> largest(lambda batch: batch <= 100, precision=0.1)
    96
    """
    low, high = 0, 1
    while high <= 2**20 and fits(high):
        low, high = high, 2 * high
    while low and high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _forward(name: str, side: int, batch: int, device: torch.device | str) -> None:
    images_per_second(_model(name, side, device), torch.zeros(batch, 3, side, side, device=device), seconds=0.0)


@functools.lru_cache(maxsize=1)
def _model(name: str, side: int, device: torch.device | str) -> nn.Module:
    return zoo.create(name, image_size=side).to(device).eval()


def _fits_gpu(name: str, side: int, batch: int) -> bool:
    try:
        _forward(name, side, batch, settings.default_device())
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


@contextlib.contextmanager
def _limited(megabytes: int) -> Iterator[Callable[[str, int, int], bool]]:
    """Yield a function (model, side, batch) that asks a process with a memory limit whether the batch fits."""
    # The allocator must return freed memory at once: reused, it would not count against the limit.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    environment["OMP_NUM_THREADS"] = "1"
    command, pipe = [sys.executable, "-m", "vitlab.studies.speed", str(megabytes)], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:

        def ask(name: str, side: int, batch: int) -> bool:
            print(name, side, batch, file=process.stdin, flush=True)
            answer = process.stdout.readline() if process.stdout else ""
            if not answer:
                raise RuntimeError(f"the process that tries batches ended at {batch} of {name} at {side} px")
            return answer == "True\n"

        try:
            yield ask
        finally:
            process.kill()


def _serve(megabytes: int) -> None:
    """Read lines of model, image side and batch; answer whether the batch fits, by a forked copy that may die."""
    import resource

    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: None)
    mallopt(-1, 65_536)  # M_TRIM_THRESHOLD
    mallopt(-3, 65_536)  # M_MMAP_THRESHOLD
    torch.set_num_threads(1)
    warm = None
    for line in sys.stdin:
        name, side, batch = line.split()
        if warm != (name, side):  # one-time loading does not count as the batch's
            _forward(name, int(side), 1, "cpu")
            warm = name, side
        if (copy := os.fork()) == 0:
            with contextlib.suppress(RuntimeError, MemoryError):  # whichever library runs out
                with open("/proc/self/statm") as file:
                    used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6,) * 2)
                _forward(name, int(side), int(batch), "cpu")
                os._exit(0)
            os._exit(1)
        print(os.waitpid(copy, 0)[1] == 0, flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
