"""Data parallelism (§4.1): processes started by torchrun, one a GPU (DDP), and the cores of one CPU side by side."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitlab.settings import default_device


def group() -> tuple[int, int]:
    """Return this process's rank in the group that it has joined, and the group's size: (0, 1) where it is alone."""
    joined = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)


@contextlib.contextmanager
def join() -> Iterator[tuple[int, int]]:
    """Make this process and the others that torchrun started one `group`, in the body; without torchrun it is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield group()
        return
    device = default_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield group()
    dist.destroy_process_group()  # not after an exception, which torchrun answers by ending the others


def total(value: Tensor) -> Tensor:
    """Sum a tensor over the processes of the group, in place."""
    if group()[1] > 1:
        dist.all_reduce(value)
    return value


def wait() -> None:
    """Wait until every process of the group has come to this line."""
    if group()[1] > 1:
        dist.barrier()


@torch.no_grad()
def draws(model: nn.Module, images: Tensor) -> bool:
    """Tell whether a forward pass in training mode draws random numbers; the generators are left as they were."""
    state = torch.cuda.get_rng_state if images.device.type == "cuda" else torch.get_rng_state
    was_training, before = model.training, state()
    with torch.random.fork_rng([images.device] if images.device.type == "cuda" else []):
        model.train()(images)
        after = state()
    model.train(was_training)
    return not torch.equal(before, after)


def core_pool(model: nn.Module, images: Callable[[], Tensor]) -> ThreadPoolExecutor | None:
    """Open a pool of one thread for each core that torch may use, for `backward`; None where torch's own are better.

    A ViT trains about twice as fast on two cores. Torch's own are better on one core, for overlapping convolutions,
    and for models that draw random numbers, as dropout does: the order in which threads draw is not determined.
    `images` makes one or two of a batch, on which the model is tried for that.
    """
    n_threads = torch.get_num_threads()
    overlaps = any(m.kernel_size != m.stride for m in model.modules() if isinstance(m, nn.Conv2d))
    if n_threads == 1 or overlaps or draws(model, images()):
        return None
    return ThreadPoolExecutor(n_threads, "part", initializer=torch.set_num_threads, initargs=(1,))


def backward(
    pool: ThreadPoolExecutor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    parameters: list[nn.Parameter],
) -> Tensor:
    """Return the mean loss of a batch and add its gradient to `parameters`', part by part in the order of the parts."""

    def part(images: Tensor, labels: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = loss_of(images, labels) * (len(images) / n_images)
        return loss.detach(), torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)

    n_images, n_parts = len(images), pool._max_workers
    summed = torch.zeros(())
    for loss, gradients in pool.map(part, images.chunk(n_parts), labels.chunk(n_parts)):
        summed += loss
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return summed
