"""A training that diverges, told as soon as its loss or a weight is NaN or infinite. No section of the paper."""

from __future__ import annotations

import math

from torch import Tensor, nn

from vitlab.training.state import TrainState

_ADVICE = "lower the learning rate, lengthen the warm-up or clip gradients (grad_clip)"


class DivergedError(ArithmeticError):
    """The loss or a weight became NaN or infinite."""


def check_loss(state: TrainState) -> None:
    """Raises DivergedError where the loss of an update since the last row is NaN or infinite.

    >>> check_loss(TrainState(step=7, learning_rate=0.1, loss_sum=float("nan")))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    vitlab.training.divergence.DivergedError: the loss became nan by step 7 at learning rate 0.1; lower ...
    """
    total = float(state.loss_sum)
    if not math.isfinite(total):
        raise DivergedError(
            f"the loss became {total} by step {state.step} at learning rate {state.learning_rate:.2g}; {_ADVICE}"
            + (f". The last checkpoint is {state.saved}" if state.saved else "")
        )


def check_weights(weights: dict[str, Tensor], state: TrainState) -> None:
    """Raises DivergedError where one of the weights is NaN or infinite.

    >>> import torch
    >>> check_weights({"head.bias": torch.zeros(2)}, TrainState())
    """
    norm = nn.utils.get_total_norm([weight for weight in weights.values() if weight.is_floating_point()])
    if not math.isfinite(float(norm)):
        at = f"by step {state.step} at learning rate {state.learning_rate:.2g}"
        raise DivergedError(f"a weight became NaN or infinite {at}; {_ADVICE}")
