"""A training step of every variant of App. D beside one of the plain ViT: time, FLOPs, and time per FLOP.

usage: python benchmarks/variants.py [--rounds 7] [--steps 1] [--tokens 4 8 16 32] [--only axial relative]

Steps are those of a training (the optimiser, freed memory kept) on images already in memory, of the same batch;
they take turns; a ratio is the median over rounds. FLOPs are those of a forward pass, counted by torch. "per FLOP" is
the ratio of times over the ratio of FLOPs: 1 where the variant's work is as fast as the plain ViT's.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from timing import interleaved
from torch import nn
from torch.nn import functional as F

from vitlab.models import zoo
from vitlab.models.zoo import forward_flops
from vitlab.training.loop import keep_freed_memory
from vitlab.training.recipe import Recipe, optimizer_for

NAME, PATCH = "Lab-S/8", 8
TOKENS_AT_ONCE = 4096  # of all images of a batch
BASES = {"class": "1d", "gap": "1d, gap"}  # what a variant with this pooling is measured by
VARIANTS: dict[str, dict[str, str]] = {
    "1d": {},
    "none": {"positions": "none"},
    "1d, every block": {"placed": "every block"},
    "1d, shared": {"placed": "shared"},
    "2d": {"positions": "2d"},
    "2d, every block": {"positions": "2d", "placed": "every block"},
    "2d, shared": {"positions": "2d", "placed": "shared"},
    "relative": {"positions": "relative"},
    "relative, shared": {"positions": "relative", "placed": "shared"},
    "1d, gap": {"pool": "gap"},
    "axial": {"attention": "axial", "pool": "gap"},
    "axial, 2d, every block": {"attention": "axial", "pool": "gap", "positions": "2d", "placed": "every block"},
}


def step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, count: int) -> Callable[[], None]:
    """So many updates of a training."""
    optimizer = optimizer_for(model.train(), Recipe(steps=1))

    def updates() -> None:
        for _ in range(count):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return updates


def compare(side: int, names: list[str], options: argparse.Namespace) -> None:
    """Print a line for each variant at a grid of side × side tokens."""
    batch = max(2, TOKENS_AT_ONCE // side**2)
    images, labels = torch.randn(batch, 3, side * PATCH, side * PATCH), torch.randint(0, 10, (batch,))
    models = {name: zoo.create(NAME, image_size=side * PATCH, **VARIANTS[name]) for name in names}
    flops = {name: forward_flops(model, images[:1]) for name, model in models.items()}
    calls = [step(model, images, labels, options.steps) for model in models.values()]
    for call in calls:
        call()
    times = dict(zip(names, interleaved(calls, options.rounds), strict=True))
    for name in names:
        base = BASES[VARIANTS[name].get("pool", "class")]
        ratio = statistics.median(own / plain for own, plain in zip(times[name], times[base], strict=True))
        work = flops[name] / flops[base]
        own = statistics.median(times[name]) / options.steps
        print(
            f"{side:2d} x {side:2d}  {name:24s} {1e3 * own:8.1f} ms   {ratio:5.2f}   {work:5.2f}   {ratio / work:5.2f}",
            flush=True,
        )


def main() -> None:
    """Print the ratios for each grid and variant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--tokens", nargs="+", type=int, default=[4, 8, 16, 32], help="tokens on a side of the grid")
    parser.add_argument("--only", nargs="+", default=[], choices=list(VARIANTS))
    options = parser.parse_args()
    wanted = set(options.only or VARIANTS)
    wanted |= {BASES[VARIANTS[name].get("pool", "class")] for name in wanted}
    names = [name for name in VARIANTS if name in wanted]
    keep_freed_memory()
    threads = torch.get_num_threads()
    print(f"{NAME}, {threads} threads, median of {options.rounds} rounds; ratios to 1d of the same pooling")
    print("tokens   variant                       step     time   FLOPs  per FLOP")
    for side in options.tokens:
        compare(side, names, options)


if __name__ == "__main__":
    main()
