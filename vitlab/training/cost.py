"""What training costs, FLOPs and memory, and how many images fit into memory at once (§4.1, Table 6)."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from vitlab.training.precision import autocast, open_attention
from vitlab.training.recipe import Recipe

# Words of the errors that libraries raise, instead of torch.OutOfMemoryError, where memory is not enough.
_NO_MEMORY = ("allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "unable to find an engine")


def training_bytes(model: nn.Module, images: Tensor, recipe: Recipe) -> tuple[int, int]:
    """An estimate of the bytes that training keeps in memory: for the model, and for each image computed at once.

    The first is weights, gradients, the optimiser's state and the weights' moving average, if any. The second is
    measured on a forward pass of `images`: what autograd keeps for the backward pass, every tensor once.

    >>> model = nn.Linear(10, 10, bias=False)
    >>> training_bytes(model, torch.ones(4, 10), Recipe(steps=1))
    (1600, 40)
    """
    n_states = (2 if recipe.optimizer == "adam" else 1) + (recipe.ema_decay is not None)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        open_attention(model, images.device, recipe.precision),
        autocast(images.device, recipe.precision),
    ):
        output = model(images)  # held, so that no two tensors that are kept share an address
    del output
    bytes_of_weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return (2 + n_states) * bytes_of_weights, sum(kept.values()) // len(images)


def free_bytes(device: torch.device) -> int:
    """Bytes of memory that are free on the device.

    >>> free_bytes(torch.device("cpu")) > 10**6
    True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return psutil.virtual_memory().available


def peak_gigabytes(device: torch.device) -> float:
    """The largest memory in use so far, in 10⁹ bytes: by tensors on a GPU, by this whole process on a CPU.

    >>> 0 < peak_gigabytes(torch.device("cpu")) < 1000
    True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def keep_freed_memory() -> bool:
    """Let this process keep buffers of up to 2 GiB that it frees, for its next training step: a tenth faster on a CPU.

    Every step allocates and frees the same large buffers. By default the C library returns them to the system, which
    fills every page with zeros before it hands it out again. Returns whether the C library has this setting: glibc has.

    >>> import platform
    >>> keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
    True
    """
    m_trim_threshold, m_mmap_threshold, largest = -1, -3, 2**31 - 1
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(m_mmap_threshold, largest) and mallopt(m_trim_threshold, largest))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception raised by torch says that memory was not enough, on a GPU or a CPU.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )


@contextlib.contextmanager
def explained(part: int, batch_size: int, attempt: Callable[[int], None]) -> Iterator[None]:
    """Turn an out-of-memory error in the body into a MemoryError that says how many images would fit.

    `part`: how many images went through the model at once, of `batch_size`. `attempt(n)` computes the loss and the
    gradient of n images; it is called with half of `part`, a quarter and so on until one fits.

    Raises:
        MemoryError: with the largest number that fits, and the `accumulate` that gives it.
    """
    try:
        yield
        return
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        words = str(error).splitlines()[0]
    # Not in the except clause: until it is left, the traceback keeps the tensors of the failed pass in memory.
    fits = _largest_half(part, attempt)
    advice = (
        f"{fits} at once do: set accumulate={batch_size // fits} (the same result), or a smaller batch_size or model"
        if fits
        else "a single one does not either: use a smaller model or image, or a larger device"
    )
    raise MemoryError(f"{part} images at once do not fit into memory ({words}); {advice}")


def _largest_half(part: int, attempt: Callable[[int], None]) -> int:
    """The largest of part/2, part/4 … for which `attempt` does not run out of memory; 0 where there is none."""
    while part % 2 == 0:
        part //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            attempt(part)
            return part
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
    return 0
