"""Data parallelism on one CPU: each core computes a part of the batch, which is faster for a ViT (§4.1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def side_by_side(model: nn.Module, images: Callable[[], Tensor]) -> Iterator[ThreadPoolExecutor | None]:
    """A pool of one thread for each core that torch may use; None where the batch is better computed as a whole.

    It is None where torch may use one core only; for models with overlapping convolutions, which torch's own threads
    compute well; and for models that draw random numbers while they train, as dropout does, because the order in which
    threads draw is not determined. `images` returns one or two images of a batch, on which the model is tried for that.

    >>> with side_by_side(nn.Dropout(0.5), lambda: torch.ones(2, 3)) as pool:
    ...     pool is None
    True
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1 or _has_overlaps(model) or draws(model, images()):
        yield None
        return
    with ThreadPoolExecutor(n_threads, "part", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool


def _has_overlaps(model: nn.Module) -> bool:
    return any(m.kernel_size != m.stride for m in model.modules() if isinstance(m, nn.Conv2d))


@torch.no_grad()
def draws(model: nn.Module, images: Tensor) -> bool:
    """Whether a forward pass in training mode draws random numbers; the generators are left as they were.

    >>> draws(nn.Dropout(0.5), torch.ones(2, 3)), draws(nn.Dropout(0.0), torch.ones(2, 3))
    (True, False)
    """
    state = torch.cuda.get_rng_state if images.device.type == "cuda" else torch.get_rng_state
    was_training, before = model.training, state()
    with torch.random.fork_rng([images.device] if images.device.type == "cuda" else []):
        model.train()(images)
        after = state()
    model.train(was_training)
    return not torch.equal(before, after)


def backward(
    pool: ThreadPoolExecutor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    parameters: list[nn.Parameter],
) -> Tensor:
    """The loss of a batch, a mean over its images; its gradient is added to that of `parameters`.

    Every thread computes a part of the batch. Losses and gradients are added up in the order of the parts, so the
    result does not depend on which thread ends first.

    >>> weight = nn.Parameter(torch.ones(1))
    >>> with ThreadPoolExecutor(2) as pool:
    ...     loss = backward(pool, lambda x, y: (weight * x).mean(), torch.arange(4.0), torch.zeros(4), [weight])
    >>> loss, weight.grad
    (tensor(1.5000), tensor([1.5000]))
    """

    def part(images: Tensor, labels: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = loss_of(images, labels) * (len(images) / n_images)
        return loss.detach(), torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)

    n_images, n_parts = len(images), pool._max_workers
    total = torch.zeros(())
    for loss, gradients in pool.map(part, images.chunk(n_parts), labels.chunk(n_parts)):
        total += loss
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return total
