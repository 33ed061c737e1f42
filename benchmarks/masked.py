"""A step of masked patch prediction beside a supervised step of the same model, and beside Hugging Face transformers.

usage: python benchmarks/masked.py [--pairs 7] [--steps 4] [--precision fp32 bf16]

All steps are on images already in memory, with the same batch, optimiser and number of threads; blocks of steps take
turns, and a ratio is the median over pairs. There are two supervised steps: `vitlab train`'s, whose last block computes
the class token alone (`ViT.forward`), and the plain one that other libraries have. "Products" is the former's number
of multiply-adds over the masked step's: what the ratio would be if every product took the same time. The peer is
transformers' `ViTForMaskedImageModeling` (pixels by absolute error), of the same size and with the same share of
patches masked; it is no dependency of the project: where it is not installed (pip install transformers, 5 or later) its
column is left out.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import numpy as np
import torch
from timing import paired
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from vitlab.models import zoo
from vitlab.models.vit import ViT
from vitlab.training.loop import autocast
from vitlab.training.masked import MaskedPrediction, MaskedViT, Target, plans
from vitlab.training.recipe import Recipe, optimizer_for

BATCH, SHARE, CPU = 32, 0.5, torch.device("cpu")
SUBJECTS = (("Lab-M/8", 96), ("Lab-S/8", 64), ("Lab-Ti/8", 64))


def steps(model: nn.Module, loss: Callable[[], Tensor], precision: str, count: int) -> Callable[[], None]:
    """A block of so many updates."""
    optimizer = optimizer_for(model.train(), Recipe(steps=1))

    def block() -> None:
        for _ in range(count):
            with autocast(CPU, precision):
                value = loss()
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return block


def theirs(vit: ViT, images: Tensor, plan: Tensor) -> tuple[nn.Module, Callable[[], Tensor]] | None:
    """transformers' model of the same size, and its loss; None where it is not installed."""
    try:
        from transformers import ViTConfig, ViTForMaskedImageModeling
    except ImportError:
        return None
    config = vit.config
    model = ViTForMaskedImageModeling(
        ViTConfig(
            hidden_size=config.dim,
            num_hidden_layers=config.depth,
            num_attention_heads=config.n_heads,
            intermediate_size=config.mlp_dim,
            image_size=config.image_size,
            patch_size=config.patch_size,
            encoder_stride=config.patch_size,
            hidden_dropout_prob=0.0,
        )
    )
    hidden = plan != -1
    return model, lambda: model(pixel_values=images, bool_masked_pos=hidden).loss


def products(loss: Callable[[], Tensor]) -> int:
    """Floating-point operations of the products of one step, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    return int(counter.get_total_flops())


def compare(name: str, size: int, precision: str, options: argparse.Namespace) -> None:
    """Print a line for each target: images per second, and the ratios to the supervised steps and the peer's."""
    images, labels = torch.rand(BATCH, 3, size, size) * 2 - 1, torch.randint(0, 10, (BATCH,))
    supervised = zoo.create(name, image_size=size)

    def loss_of_labels() -> Tensor:
        return F.cross_entropy(supervised(images).float(), labels)

    def loss_of_all_tokens() -> Tensor:
        return F.cross_entropy(supervised.forward_head(supervised.forward_features(images)).float(), labels)

    classify, plain = (
        steps(supervised, loss, precision, options.steps) for loss in (loss_of_labels, loss_of_all_tokens)
    )
    for target in Target:
        masked = MaskedViT(zoo.create(name, image_size=size), target)
        objective = MaskedPrediction(target, SHARE, masked.patch_size)
        plan = plans(BATCH, masked.n_patches, SHARE, np.random.default_rng(0))
        loss = functools.partial(objective.loss, masked, images, plan)
        predict = steps(masked, loss, precision, options.steps)
        for module in (*supervised.modules(), *masked.modules()):  # as `loop.train` does
            if hasattr(module, "fused_attn"):
                module.fused_attn = precision != "bf16"
        bound = products(loss_of_labels) / products(loss)
        seconds, _, to_supervised = paired(predict, classify, options.pairs)
        to_plain = paired(predict, plain, options.pairs)[2]
        peer = theirs(masked.vit, images, plan) if target is Target.PIXELS else None  # that is what it predicts
        to_peer = "–"
        if peer is not None:
            to_peer = f"{paired(predict, steps(*peer, precision, options.steps), options.pairs)[2]:.2f}"
        rate = BATCH * options.steps / seconds
        about = f"{name:10s} {size:3d}  {precision:9s}  {target:11s} {rate:13.0f}"
        print(f"{about} {to_supervised:13.2f} {bound:9.2f} {to_plain:8.2f} {to_peer:>15s}", flush=True)


def main() -> None:
    """Print the ratios for each model, target and precision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, batch {BATCH}, median of {options.pairs} pairs of {options.steps} steps")
    print("model       px  precision  target       masked img/s  ÷ supervised  products  ÷ plain  ÷ transformers")
    for name, size in SUBJECTS:
        for precision in options.precision:
            compare(name, size, precision, options)


if __name__ == "__main__":
    main()
