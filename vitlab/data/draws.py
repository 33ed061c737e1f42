"""Random numbers that are a function of an index alone: no state and no order (no part of the paper)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def uniform(seed: int, index: Int64[Tensor, " N"], n: int, purpose: int) -> Float[Tensor, "N n"]:
    """`n` numbers in [0, 1) for each index: a counter-based hash, so no state, no order, the same on every device.

    >>> a = uniform(0, torch.tensor([5, 7]), 3, purpose=1)
    >>> bool((uniform(0, torch.tensor([7]), 3, purpose=1) == a[1]).all())
    True
    """
    start = (seed * 0x9E3779B1 + purpose * 0x85EBCA77) & 0xFFFFFFFF
    stream = torch.arange(n, dtype=torch.int64, device=index.device)
    h = _mix(_mix(start ^ (index & 0xFFFFFFFF)) ^ (index >> 32))
    h = _mix(_mix(h[:, None] ^ (stream * 0x9E3779B1 & 0xFFFFFFFF)) + stream & 0xFFFFFFFF)
    return (h >> 8).to(torch.float32) * 2**-24


def _mix(x: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n"]:
    """A full-avalanche mixing of 32-bit words (Ellis' lowbias32), held in int64."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
