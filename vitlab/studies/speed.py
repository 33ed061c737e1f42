"""Images per second and largest batch of inference against input size, one model at a time (App. D.5, Fig. 12).

On a GPU a batch is tried on the device, with all its memory. On a CPU running out of memory could stop the machine:
there a process with a memory limit tries it (Linux), and its death means "does not fit".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
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
    model. Nothing runs next to it: it is always done in this process, whatever does the other studies' runs.
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
    for name in models:
        with _fits_gpu(name) if device.type == "cuda" else _fits_cpu(megabytes) as fits:
            if fits is None:
                continue
            for side in sides:
                size = largest(functools.partial(fits, name, side))
                rows.append({"kind": "batch", "model": name, "image_size": side, "largest_batch": size})
    return pd.DataFrame(rows)


@torch.inference_mode()
def images_per_second(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Time the forward pass for at least `seconds` and at least one pass; on a GPU in bfloat16."""
    kind = images.device.type
    passes, started = 0, time.perf_counter()
    while True:
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            model(images)
        passes += 1
        if kind == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - started
        if taken >= seconds:
            return passes * len(images) / taken


def speeds(table: pd.DataFrame) -> pd.DataFrame:
    """Select the speeds: model, image_size (pixels), round, images_per_second."""
    rows = table[table["kind"] == "speed"].astype({"round": int, "image_size": int})
    return rows[["model", "image_size", "round", "images_per_second"]].reset_index(drop=True)


def batches(table: pd.DataFrame) -> pd.DataFrame:
    """Select the largest batches: model, image_size (pixels), largest_batch; none where they cannot be measured."""
    if "largest_batch" not in table:
        return pd.DataFrame(columns=["model", "image_size", "largest_batch"])
    rows = table[table["kind"] == "batch"].astype({"largest_batch": int, "image_size": int})
    return rows[["model", "image_size", "largest_batch"]].reset_index(drop=True)


def largest(fits: Callable[[int], bool], precision: float = 1 / 16, at_most: int = 2**20) -> int:
    """Find the largest number for which `fits` holds, or up to `precision` less; 0 where not even 1 fits.

    Doubling finds a number that does not fit, bisection between it and the last that did the rest.

    >>> largest(lambda batch: batch <= 100, precision=0.1)
    96
    """
    low, high = 0, 1
    while high <= at_most and fits(high):
        low, high = high, 2 * high
    while low and high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _forward(model: nn.Module, side: int, batch: int) -> None:
    device = next(model.parameters()).device
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        model(torch.zeros(batch, 3, side, side, device=device))


@contextlib.contextmanager
def _fits_gpu(name: str) -> Iterator[Callable[[str, int, int], bool]]:
    def fits(name: str, side: int, batch: int) -> bool:
        model = zoo.create(name, image_size=side).to(settings.default_device()).eval()
        try:
            _forward(model, side, batch)
            return True
        except torch.OutOfMemoryError:
            return False
        finally:
            del model
            torch.cuda.empty_cache()

    yield fits


@contextlib.contextmanager
def _fits_cpu(megabytes: int) -> Iterator[Callable[[str, int, int], bool] | None]:
    """A function (model, side, batch) that asks a process with a memory limit; None where none can be set."""
    if sys.platform != "linux":
        yield None
        return
    command = [sys.executable, "-m", "vitlab.studies.speed", str(megabytes)]
    # The allocator must return freed memory at once: reused, it would not count against the limit.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    environment["OMP_NUM_THREADS"] = "1"
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(name: str, side: int, batch: int) -> bool:
            print(name, side, batch, file=process.stdin, flush=True)
            answer = process.stdout.readline() if process.stdout else ""
            if not answer:
                raise RuntimeError(f"the process that tries batches ended at {batch} of {name} at {side} px")
            return json.loads(answer)

        try:
            yield ask
        finally:
            process.kill()


def _serve(megabytes: int) -> None:
    """Read lines of model, image side and batch; answer whether the batch fits, by a forked copy that may die."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, 65_536), mallopt(-3, 65_536)  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    torch.set_num_threads(1)

    @functools.lru_cache(maxsize=1)
    def warm(name: str, side: int) -> nn.Module:  # one-time loading does not count as the batch's
        model = zoo.create(name, image_size=side).eval()
        _forward(model, side, 1)
        return model

    for line in sys.stdin:
        name, side, batch = line.split()
        model = warm(name, int(side))
        if (copy := os.fork()) == 0:
            import resource

            fits = False
            with contextlib.suppress(RuntimeError, MemoryError):  # whichever library runs out
                with open("/proc/self/statm") as file:
                    used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6,) * 2)
                _forward(model, int(side), int(batch))
                fits = True
            os._exit(0 if fits else 1)
        _, status = os.waitpid(copy, 0)
        print(json.dumps(status == 0), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
