"""The paper's optimisers, Adam and SGD with momentum, and the weights' moving average (§4.1, Tables 2, 3, 4, 7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vitlab.training.recipe import Recipe

_NO_DECAY = (
    "pos_embed",
    "pos_embed_class",
    "pos_embed_x",
    "pos_embed_y",
    "pos_embed_offsets",
    "cls_token",
    "gain",
)  # embeddings and gains, not decayed though they have two dimensions or more


def optimizer_for(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser, decaying matrices and convolution kernels, not biases, norms, class token or positions.

    Parameters that do not require gradients are left out.

    >>> groups = optimizer_for(nn.Linear(3, 2), Recipe(steps=1, weight_decay=0.3)).param_groups
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(1, 0.3), (1, 0.0)]
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
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
def update_ema(ema: Sequence[Tensor], model: nn.Module, decay: float) -> None:
    """Update the exponential moving average (EMA) of the weights in place; Table 2 calls it Polyak averaging.

    `ema` has one tensor for each of the model's parameters; each becomes decay × itself + (1 − decay) × the parameter.

    >>> model, ema = nn.Linear(1, 1, bias=False), [torch.zeros(1, 1)]
    >>> _ = nn.init.ones_(model.weight)
    >>> update_ema(ema, model, decay=0.75)
    >>> ema[0]
    tensor([[0.2500]])
    """
    get_ema_multi_avg_fn(decay)(list(ema), [p.detach() for p in model.parameters()], 1)


@contextlib.contextmanager
def ema_weights(model: nn.Module, ema: Sequence[Tensor] | None) -> Iterator[None]:
    """In the body the model has the moving average of its weights, after it its own again; None changes nothing.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> before = model.weight.item()
    >>> with ema_weights(model, [torch.full((1, 1), 7.0)]):
    ...     model.weight.item()
    7.0
    >>> model.weight.item() == before
    True
    """
    if ema is None:
        yield
        return
    own = [parameter.detach().clone() for parameter in model.parameters()]
    copy_into(model, ema)
    try:
        yield
    finally:
        copy_into(model, own)


@torch.no_grad()
def copy_into(model: nn.Module, values: Sequence[Tensor]) -> None:
    """Copy values into the model's parameters, in their order."""
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)
