"""Mixed precision: products of matrices in bfloat16, weights and optimiser in float32 (§4.1: TPUs do so)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a model computes at a recipe's precision: "fp32", or "bf16" for mixed precision.

    >>> with autocast(torch.device("cpu"), "bf16"):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.bfloat16
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextlib.contextmanager
def open_attention(model: nn.Module, device: torch.device, precision: str) -> Iterator[None]:
    """In the body, on a CPU in bfloat16, attention is computed in the open: products and a softmax, not fused.

    PyTorch's fused kernel saves memory, but its backward pass in bfloat16 takes a CPU several times as long as the
    three steps do: with them a training is about twice as fast as in float32, without them slower. On other devices
    and in float32 the model stays as it is. Known are modules with a `fused_attn`, those of vit.py and of timm.

    >>> from vitlab.models import zoo
    >>> model = zoo.create("Lab-Ti/8")
    >>> with open_attention(model, torch.device("cpu"), "bf16"):
    ...     model.blocks[0].attn.fused_attn
    False
    >>> model.blocks[0].attn.fused_attn
    True
    """
    wanted = device.type == "cpu" and precision == "bf16"
    fused = [module for module in model.modules() if wanted and getattr(module, "fused_attn", None) is True]
    for module in fused:
        module.fused_attn = False  # type: ignore[assignment]  # a plain value, not a tensor or a module
    try:
        yield
    finally:
        for module in fused:
            module.fused_attn = True  # type: ignore[assignment]
