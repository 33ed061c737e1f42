"""Learning-rate schedules: linear warm-up, then linear or cosine decay (§4.1, Tables 3 and 4)."""

from __future__ import annotations

import math
from typing import Literal

Decay = Literal["linear", "cosine", "constant"]
LINEAR_END = 1e-5  # where the authors' linear decay ends, not at zero


def learning_rate(step: int, *, base: float, total: int, warmup: int, decay: Decay | str) -> float:
    """The learning rate used at `step` (0 … total−1), as in the authors' code: decay × min(1, step / warmup).

    Progress runs from 0 at the end of the warm-up to 1 at `total`.
    Raises ValueError for an unknown decay or a warm-up that fills the run.

    >>> learning_rate(5, base=0.1, total=100, warmup=10, decay="constant")
    0.05
    >>> round(learning_rate(55, base=0.1, total=100, warmup=10, decay="cosine"), 3)
    0.05
    """
    if not 0 <= warmup < total:
        raise ValueError(f"warmup is {warmup} of {total} steps; it must be at least 0 and less than the run")
    progress = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
    if decay == "linear":
        rate = LINEAR_END + (base - LINEAR_END) * (1 - progress)
    elif decay == "cosine":
        rate = base * 0.5 * (1 + math.cos(math.pi * progress))
    elif decay == "constant":
        rate = base
    else:
        raise ValueError(f"decay is {decay!r}; it is one of 'linear', 'cosine', 'constant'")
    return rate * min(1.0, step / warmup) if warmup else rate
