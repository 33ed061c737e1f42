"""Our training step beside the same step through timm's own VisionTransformer: ratio of medians in interleaved pairs.

usage: python benchmarks/training_step.py [--pairs 7] [--steps 10]

Same architecture, weights, batch, optimiser and number of threads; one block of steps of ours, one of timm's, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time

import timm
import torch
from torch import nn
from torch.nn import functional as F

from vitlab.data.world import World, stream
from vitlab.models import zoo
from vitlab.training.recipe import Recipe, optimizer_for

BATCH = 128


def timms(name: str) -> nn.Module:
    """The same architecture as timm's class builds it, with the same weights."""
    ours = zoo.create(name)
    config = ours.config
    theirs = timm.models.VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.dim,
        depth=config.depth,
        num_heads=config.n_heads,
        mlp_ratio=config.mlp_dim / config.dim,
        num_classes=config.n_classes,
    )
    theirs.load_state_dict(ours.state_dict())
    return theirs


def seconds(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list, steps: int) -> float:
    """Wall time of `steps` updates on images already in memory."""
    start = time.perf_counter()
    for step in range(steps):
        images, labels = batches[step % len(batches)]
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    """Print images per second of both and their ratio, for each lab size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    rendered = stream(World(), BATCH)
    batches = [rendered(step) for step in range(4)]
    print(f"{torch.get_num_threads()} threads, batch {BATCH}, median of {options.pairs} pairs of {options.steps} steps")
    print("model        ours img/s  timm img/s  ours/timm")
    for name in ("Lab-Ti/8", "Lab-Ti/4", "Lab-S/4"):
        pair = [(model.train(), optimizer_for(model, Recipe(steps=1))) for model in (zoo.create(name), timms(name))]
        for model, optimizer in pair:
            seconds(model, optimizer, batches, 2)
        times = [[seconds(*one, batches, options.steps) for one in pair] for _ in range(options.pairs)]
        ours, theirs = (BATCH * options.steps / statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(theirs_s / ours_s for ours_s, theirs_s in times)
        print(f"{name:10s} {ours:12.0f} {theirs:11.0f} {ratio:10.2f}")


if __name__ == "__main__":
    main()
