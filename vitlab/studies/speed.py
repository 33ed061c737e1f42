"""Images per second and largest batch of inference against input size, one model at a time (App. D.5, Fig. 12).

On a GPU a batch is tried on the device. On a CPU, where running out of memory could stop the machine, a process with a
memory limit tries it (Linux): its death means "does not fit".
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
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
SIZES |= {"smoke": SIZES["smoke"] | {"seconds": 0.001, "megabytes": 4}, "full": SIZES["quick"]}
BATCHES = sorted({round(2 ** (step / 12)) for step in range(241)})  # up to a million in steps of 6 %


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

    In every round all models take a turn, and of the `batches` the fastest counts, as in the paper. On a CPU a batch
    has `megabytes` (10⁶ bytes) next to library and model. Nothing else should run on the machine meanwhile.
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
                about = {"kind": "speed", "model": name, "image_size": side, "round": number}
                rows.append(about | {"images_per_second": fastest})
    if device.type == "cuda" or sys.platform == "linux":
        found = _largest_batches(models, sides, device, megabytes)
        for (name, side), size in zip(itertools.product(models, sides), found, strict=True):
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


def select(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Select "images_per_second" or "largest_batch": model, image_size (pixels), round (of a speed) and the value."""
    rows = table.reindex(columns=["model", "image_size", "round", value]).dropna(subset=value)
    return rows.dropna(axis=1).astype({"image_size": int}).reset_index(drop=True)


def largest(fits: Callable[[int], bool]) -> int:
    """Find by bisection the largest of `BATCHES` for which `fits` holds; 0 where none does."""
    return [0, *BATCHES][bisect.bisect_left(BATCHES, True, key=lambda batch: not fits(batch))]


def _largest_batches(models: Sequence[str], sides: Sequence[int], device: torch.device, megabytes: int) -> list[int]:
    """Find the largest batch of every model at each side: on the GPU, or in processes that have a memory limit."""
    if device.type == "cuda":
        return [_largest_batch(name, side, device, _fits_gpu) for name in models for side in sides]
    # The allocator must return freed memory at once: reused, it would not count against the limit.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "vitlab.studies.speed", str(megabytes), ",".join(map(str, sides)), *models]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [int(line) for line in said.splitlines()]


def _largest_batch(name: str, side: int, device: torch.device, fits: Callable[[Callable[[], float]], bool]) -> int:
    model = zoo.create(name, image_size=side).to(device).eval()

    def forward(batch: int) -> float:
        return images_per_second(model, torch.zeros(batch, 3, side, side, device=device), seconds=0.0)

    forward(1)  # one-time loading does not count as the batch's
    return largest(lambda batch: fits(functools.partial(forward, batch)))


def _fits_gpu(forward: Callable[[], float]) -> bool:
    try:
        forward()
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def _fits_limit(megabytes: int, forward: Callable[[], float]) -> bool:
    """Try a batch in a forked copy of this process, which may die."""
    import resource

    if (copy := os.fork()) == 0:
        with contextlib.suppress(RuntimeError, MemoryError):  # whichever library runs out
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6,) * 2)
            forward()
            os._exit(0)
        os._exit(1)
    return os.waitpid(copy, 0)[1] == 0


if __name__ == "__main__":  # print the largest batch of a model at each side
    for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        getattr(ctypes.CDLL(None), "mallopt", lambda option, value: None)(option, 65_536)
    torch.set_num_threads(1)
    importlib.import_module("vitlab.models.convnets")  # once, and not in every fork
    megabytes, sides, *models = sys.argv[1:]
    limited = functools.partial(_fits_limit, int(megabytes))
    for name, side in itertools.product(models, sides.split(",")):
        if (copy := os.fork()) == 0:  # none finds the memory of another
            print(_largest_batch(name, int(side), torch.device("cpu"), limited), flush=True)
            os._exit(0)
        os.waitpid(copy, 0)
