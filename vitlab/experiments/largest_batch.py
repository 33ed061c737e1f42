"""The largest batch that fits in memory, by doubling and bisection (App. D.5, Fig. 12 right).

On a GPU the batch is tried on the device, with all its memory. On a CPU running out of memory could stop the whole
machine: there a separate process with a memory limit tries the batch, and its death means "does not fit".
`python -m vitlab.experiments.largest_batch` starts them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from vitlab.models import zoo
from vitlab.sweep.identity import cpu_count
from vitlab.training.cost import is_out_of_memory
from vitlab.training.processes import default_device

PRECISION = 1 / 16  # of the result, relative
_LARGEST = 2**20  # images: the search ends there


def largest(fits: Callable[[int], bool], precision: float = PRECISION, at_most: int = _LARGEST) -> int:
    """The largest number for which `fits` holds, or up to `precision` less; 0 where not even 1 fits.

    Doubling finds a number that does not fit, bisection between it and the last that did the rest.

    >>> tried = []
    >>> largest(lambda batch: tried.append(batch) or batch <= 100, precision=0.1)
    96
    >>> tried
    [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104]
    """
    low, high = 0, 1
    while high <= at_most and fits(high):
        low, high = high, 2 * high
    while low and high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def forward(model: nn.Module, image_size: int, batch: int) -> None:
    """One forward pass of `batch` blank images, nothing kept; raises what torch raises where memory is not enough.

    On a GPU in bfloat16, as its users would.
    """
    device = next(model.parameters()).device
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        model(torch.zeros(batch, 3, image_size, image_size, device=device))


def on_gpu(name: str, image_size: int) -> int:
    """The largest batch of inference that a model's GPU holds at an image size (pixels)."""
    model = zoo.create(name, image_size=image_size).to(default_device()).eval()

    def fits(batch: int) -> bool:
        try:
            forward(model, image_size, batch)
            return True
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()  # not in the handler: the traceback holds the tensors that did fit
        return False

    batch = largest(fits)
    del model
    torch.cuda.empty_cache()  # later runs, in other processes too, need all of the memory
    return batch


def on_cpu(models: Sequence[str], image_sizes: Sequence[int], megabytes: int) -> dict[tuple[str, int], int]:
    """For each model and image size the largest batch of inference that needs `megabytes` (10⁶ bytes) at most.

    What the loaded library and the models themselves need is not counted. Empty where the system cannot limit the
    memory of a process (only Linux can).
    """
    if sys.platform != "linux":
        return {}
    with ThreadPoolExecutor(cpu_count()) as pool:  # each thread waits for a process of its own
        by_model = pool.map(lambda name: _of_one(name, image_sizes, megabytes), models)
        return {pair: size for sizes in by_model for pair, size in sizes.items()}


def _of_one(name: str, image_sizes: Sequence[int], megabytes: int) -> dict[tuple[str, int], int]:
    with _limited(megabytes) as fits:
        return {(name, side): largest(functools.partial(fits, name, side)) for side in image_sizes}


@contextlib.contextmanager
def _limited(megabytes: int) -> Iterator[Callable[[str, int, int], bool]]:
    """A function (model, image size, batch) that asks a process with a memory limit whether the batch fits."""
    command = [sys.executable, "-m", "vitlab.experiments.largest_batch", str(megabytes)]
    # The allocator must return freed memory at once: reused, it would not count against the limit.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    kept["OMP_NUM_THREADS"] = "1"
    with subprocess.Popen(command, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(name: str, image_size: int, batch: int) -> bool:
            with contextlib.suppress(BrokenPipeError):
                print(name, image_size, batch, file=process.stdin, flush=True)
            answer = process.stdout.readline() if process.stdout else ""
            if not answer:
                raise RuntimeError(f"the process that tries batches ended at {batch} of {name} at {image_size} px")
            return json.loads(answer)

        try:
            yield ask
        finally:
            process.kill()


def _serve(megabytes: int) -> None:
    """Main loop of that process: reads lines of model, image size and batch; answers whether the batch fits.

    A forked copy tries each batch and may die, so that a failed attempt does not affect the next.
    """
    _return_freed_memory()
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, side, batch = line.split()
        model = _warm(name, int(side))
        if (copy := os.fork()) == 0:
            _try(model, int(side), int(batch), megabytes)
        _, status = os.waitpid(copy, 0)
        print(json.dumps(status == 0), flush=True)


def _try(model: nn.Module, side: int, batch: int, megabytes: int) -> None:
    """One forward pass under a memory limit; ends this process, with status 0 if the batch fits."""
    import resource

    fits = False
    with contextlib.suppress(RuntimeError, MemoryError):  # whichever library runs out
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + megabytes * 10**6,) * 2)
        forward(model, side, batch)
        fits = True
    os._exit(0 if fits else 1)


@functools.lru_cache(maxsize=1)
def _warm(name: str, image_size: int) -> nn.Module:
    """A model after one forward pass, so that one-time loading and allocation do not count as the batch's."""
    model = zoo.create(name, image_size=image_size).eval()
    forward(model, image_size, 1)
    return model


def _return_freed_memory() -> None:
    m_trim_threshold, m_mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(m_mmap_threshold, 65_536)
        mallopt(m_trim_threshold, 65_536)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
