"""The paper's optimisers, Adam and SGD with momentum, and Polyak averaging (§4.1, Tables 2, 3, 4, 7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vitlab.training.recipe import Recipe

_NO_DECAY = ("pos_embed", "cls_token", "gain")  # no matrices, whatever their number of dimensions


def optimizer_for(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser, decaying matrices and convolution kernels, not biases, norms, class token or positions.

    Parameters that do not require gradients are left out.

    >>> groups = optimizer_for(nn.Linear(3, 2), Recipe(steps=1, weight_decay=0.3)).param_groups
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(1, 0.3), (1, 0.0)]
    """
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            matrix = parameter.ndim >= 2 and name.split(".")[-1] not in _NO_DECAY
            (decayed if matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)


@torch.no_grad()
def update_average(average: Sequence[Tensor], model: nn.Module, decay: float) -> None:
    """Move the Polyak average, one tensor for each of the model's parameters, towards the model: in place.

    >>> model, average = nn.Linear(1, 1, bias=False), [torch.zeros(1, 1)]
    >>> _ = nn.init.ones_(model.weight)
    >>> update_average(average, model, decay=0.75)
    >>> average[0]
    tensor([[0.2500]])
    """
    get_ema_multi_avg_fn(decay)(list(average), [p.detach() for p in model.parameters()], 1)


@contextlib.contextmanager
def averaged(model: nn.Module, average: Sequence[Tensor] | None) -> Iterator[None]:
    """The model with the averaged weights in the body, its own again after it; nothing changes where `average` is None.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> before = model.weight.item()
    >>> with averaged(model, [torch.full((1, 1), 7.0)]):
    ...     model.weight.item()
    7.0
    >>> model.weight.item() == before
    True
    """
    if average is None:
        yield
        return
    own = [parameter.detach().clone() for parameter in model.parameters()]
    put(model, average)
    try:
        yield
    finally:
        put(model, own)


@torch.no_grad()
def put(model: nn.Module, values: Sequence[Tensor]) -> None:
    """Copy values into the model's parameters, in their order."""
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)
