"""What a training costs: FLOPs, memory, and which batch fits when memory is not enough (§4.1, Table 6)."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab.models.vit import lean
from vitlab.training.recipe import Recipe

# What libraries say, on a CPU and on a GPU nearly full, beside torch's own error.
_NO_MEMORY = ("allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "unable to find an engine")


@torch.no_grad()
def forward_flops(model: nn.Module, images: Tensor) -> int:
    """FLOPs of a forward pass, counted by torch while it runs; a multiply-add is two, norms and GELUs are none.

    >>> forward_flops(nn.Linear(3, 5), torch.zeros(1, 3))
    30
    """
    training = model.training
    model.eval()
    with FlopCounterMode(display=False) as counter:
        model(images)
    model.train(training)
    return counter.get_total_flops()


def training_bytes(model: nn.Module, images: Tensor, recipe: Recipe) -> tuple[int, int]:
    """An estimate of what training keeps in memory: for the model as a whole, and for each image of a part.

    The first is weights, gradients and the optimiser's state (and the average's); the second is measured on a forward
    pass of `images`: what autograd keeps for the backward pass, every tensor once.

    >>> model = nn.Linear(10, 10, bias=False)
    >>> training_bytes(model, torch.ones(4, 10), Recipe(steps=1))
    (1600, 40)
    """
    n_states = (2 if recipe.optimizer == "adam" else 1) + (recipe.average is not None)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        lean(model),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast(images.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"),
    ):
        output = model(images)  # held, so that no two tensors that are kept share an address
    del output
    bytes_of_weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return (2 + n_states) * bytes_of_weights, sum(kept.values()) // len(images)


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device.

    >>> free_bytes(torch.device("cpu")) > 10**6
    True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return psutil.virtual_memory().available


def peak_gigabytes(device: torch.device) -> float:
    """The most memory (10⁹ bytes) that was in use at once: tensors on a GPU, this whole process on a CPU.

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
    """Let this process keep the memory that it frees, up to 2 GiB, for the next step: a tenth faster on a CPU.

    A training step frees and takes the same large buffers again and again, and by default the C library gives them
    back to the system, which has to clear every page anew. Returns whether the library did as asked: glibc does,
    others have no such setting.

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
    """Whether an exception of torch's says that memory was not enough, on a GPU or a CPU.

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
    """Turn an out-of-memory error into one that says what would fit, found by trying halves.

    `part`: images that went through the model at once. `attempt` takes that number of images forward and back.

    Raises:
        MemoryError: with the largest part that fits and the `accumulate` that gives it.
    """
    try:
        yield
        return
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        words = str(error).splitlines()[0]
    # Outside the handler: the traceback above holds the tensors that did not fit.
    fits = _largest_half(part, attempt)
    advice = (
        f"{fits} at once do: set accumulate={batch_size // fits} (the same result), or a smaller batch_size or model"
        if fits
        else "a single one does not either: use a smaller model or image, or a larger device"
    )
    raise MemoryError(f"{part} images at once do not fit into memory ({words}); {advice}")


def _largest_half(part: int, attempt: Callable[[int], None]) -> int:
    """The largest of part/2, part/4 … that `attempt` can do; 0 where it can do none."""
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
