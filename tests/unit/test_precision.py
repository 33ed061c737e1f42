"""Mixed precision: attention in the open on a CPU gives the gradients of the fused kernel, and all is put back."""

import contextlib

import pytest
import torch
from torch import nn

from vitlab.models import zoo
from vitlab.models.vit import Attention
from vitlab.training.loop import train
from vitlab.training.precision import autocast, open_attention
from vitlab.training.recipe import Recipe

CPU = torch.device("cpu")


def fused(model: nn.Module) -> list[bool]:
    return [module.fused_attn for module in model.modules() if isinstance(module, Attention)]


def gradients(model: nn.Module, precision: str, draw: int, in_the_open: bool = True) -> torch.Tensor:
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(draw))
    opened = open_attention(model, CPU, precision) if in_the_open else contextlib.nullcontext()
    with opened, autocast(CPU, precision):
        loss = model(images).float().square().sum()
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(model.parameters()))])


def test_gradients_in_the_open_are_as_near_to_those_of_full_precision_as_the_fused_kernels():
    model = zoo.create("Lab-Ti/8")
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(1))
    apart, of_kernels = [], []
    for draw in range(10):  # a single draw is 0.7 to 1.6 times as far, by the processor
        exact = gradients(model, "fp32", draw)
        for found, in_the_open in ((apart, True), (of_kernels, False)):
            found.append((gradients(model, "bf16", draw, in_the_open) - exact).norm() / exact.norm())
    assert 0 < max(apart) < 0.05 and sum(apart) < 1.25 * sum(of_kernels)


@pytest.mark.parametrize("precision, wanted", [("bf16", False), ("fp32", True)])
def test_attention_is_in_the_open_in_bfloat16_alone_and_in_the_body_alone(precision, wanted):
    model = zoo.create("Lab-Ti/8")
    model.blocks[1].attn.fused_attn = False  # as somebody may have set it, for hooks
    with pytest.raises(KeyError), open_attention(model, CPU, precision):
        assert fused(model) == [wanted, False, wanted, wanted]
        raise KeyError
    assert fused(model) == [True, False, True, True]


def test_on_other_devices_the_kernel_is_kept():
    with open_attention(model := zoo.create("Lab-Ti/8"), torch.device("cuda"), "bf16"):
        assert all(fused(model))


def test_a_training_in_bfloat16_uses_it_and_puts_the_model_back():
    seen, model = [], zoo.create("Lab-Ti/8")

    def feed(step: int, start: int = 0, stop: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(any(fused(model)))
        return torch.zeros(4, 3, 32, 32)[start:stop], torch.zeros(4, dtype=torch.int64)[start:stop]

    train(model, feed, Recipe(steps=2, batch_size=4, precision="bf16"))
    assert seen and not any(seen[1:]) and all(fused(model))
