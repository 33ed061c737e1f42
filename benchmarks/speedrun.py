"""A race anyone can enter: minutes from raw CIFAR-10 to 80, 85 or 90 % of its test images, on this machine.

usage: python benchmarks/speedrun.py [ours cct] [--targets 80 90] [--minutes 180] [--seed 0]

The clock starts before the files are read and stops at the first evaluation, one an epoch, that reaches the target; all
that happens in between counts. `ours` is a block of a ViT behind convolutions of which the first is fixed, with a
recipe, and so a training, for each target; docs/LEADERBOARD.md tells what was tried. `cct` is CCT-2/3x2 (Hassani et al.
2021) by its published recipe for small machines, one training for all targets: 200 epochs of 128, AdamW at 5e-4 and
0.03, five epochs of warm-up, AutoAugment, crops, flips, label smoothing. `--minutes` ends a training.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import transforms

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import ImageSet, batches, to_float
from vitlab.models.vit import ViT, ViTConfig
from vitlab.training.loop import evaluate, train
from vitlab.training.recipe import Recipe

RECIPES = {  # target in % → epochs, learning rate, channels of the convolutions at 32, 16, 8 and 4 pixels
    80: (4, 3e-3, ((32,), (64,), (96,))),
    85: (7, 3e-3, ((32,), (64,), (128,))),
    90: (16, 3e-3, ((32,), (64, 96), (128, 192), (192,))),
}
BATCH = 128


class Over(Exception):
    """All targets are reached, or the time is over."""


def whitening(images: Tensor, n: int = 12, side: int = 3) -> nn.Conv2d:
    """Make the fixed convolution that gives the `n` leading components of patches, whitened, and their negatives.

    A basis of patches is what Fig. 7 (left) finds learnt; a training that is given one saves the time to learn it.
    """
    patches = F.unfold(to_float(images[:5_000]), side, stride=5).transpose(1, 2).flatten(0, 1)
    variances, components = torch.linalg.eigh(patches.T @ patches / len(patches))  # in rising order
    kernels = (components / (variances + 0.01).sqrt()).T.flip(0)[:n].unflatten(1, (3, side, side))
    layer = nn.Conv2d(3, 2 * n, side, padding=side // 2, bias=False)
    layer.weight = nn.Parameter(torch.cat([kernels, -kernels]), requires_grad=False)
    return layer


class Stem(nn.Module):
    """Whitening, then convolutions that start as identities, pooled between stages; the last map is the tokens."""

    def __init__(self, images: Tensor, stages: tuple[tuple[int, ...], ...]) -> None:
        super().__init__()
        parts: list[nn.Module] = [whitening(images), nn.GELU()]
        before, last = parts[0].out_channels, len(stages) - 1
        for number, widths in enumerate(stages):
            for k, width in enumerate(widths, 1):
                conv = nn.Conv2d(before, width, 3, padding=1, bias=False)
                nn.init.dirac_(conv.weight[:before])
                pooled = [nn.MaxPool2d(2)] if number < last and k == len(widths) else []  # before the norm: less work
                parts += [conv, *pooled, nn.BatchNorm2d(width), nn.GELU()]
                before = width
        self.parts, self.grid_size = nn.Sequential(*parts), (32 >> last, 32 >> last)

    def forward(self, images: Tensor) -> Tensor:
        return self.parts(images.contiguous(memory_format=torch.channels_last)).flatten(2).transpose(1, 2)


class Mirrored(ViT):
    """A ViT that, when it is evaluated, averages its logits over an image and its mirror image."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits if self.training else (logits + super().forward(images.flip(-1))) / 2


def ours(target: int, seed: int, report: Callable[[float, float], None]) -> nn.Module:
    """Train a ViT of one block behind convolutions; `report` takes epochs and the share of test images right."""
    epochs, rate, stages = RECIPES[target]
    images, test = (datasets.load("cifar10", part) for part in ("train", "test"))
    torch.manual_seed(seed)
    stem, dim = Stem(images.images, stages), stages[-1][-1]
    config = ViTConfig(32, 32 // stem.grid_size[0], dim, 1, dim // 32, 2 * dim, n_classes=10, pool="gap")
    model = Mirrored(config, seed, patch_embed=stem)
    epoch = len(images) // BATCH
    can = torch.cpu.get_capabilities()  # without instructions for it bfloat16 is many times slower than float32
    precision = "bf16" if can.get("avx512_bf16") or can.get("amx_bf16") else "fp32"
    recipe = Recipe(
        epochs * epoch, BATCH, learning_rate=rate, warmup_steps=epoch, eval_every=epoch, seed=seed, precision=precision,
        label_smoothing=0.1, weight_decay=0.05,
    )  # fmt: skip
    feed = batches(images, BATCH, seed, augmentation=Augmentation(crop="pad", pad=2, flip=True))
    train(model, feed, recipe, validation=test, report=lambda row: report(row["step"] / epoch, row["val_accuracy"]))
    return model


class CCT(nn.Module):
    """CCT-2/3x2: two convolutions with max-pooling, two blocks of width 128, attention over the tokens as pooling."""

    def __init__(self, dim: int = 128, depth: int = 2, n_heads: int = 2) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for i, o in ((3, 64), (64, dim)):
            parts += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            nn.init.kaiming_normal_(parts[-3].weight)  # type: ignore[arg-type]
        self.tokenizer, self.n_heads = nn.Sequential(*parts), n_heads
        self.positions = nn.Parameter(nn.init.trunc_normal_(torch.zeros(1, 64, dim), std=0.2))
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(dim), "qkv": nn.Linear(dim, 3 * dim, bias=False), "proj": nn.Linear(dim, dim),
                "norm2": nn.LayerNorm(dim), "fc1": nn.Linear(dim, dim), "fc2": nn.Linear(dim, dim),
            })
            for _ in range(depth)
        )  # fmt: skip
        self.norm, self.pool, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1), nn.Linear(dim, 10)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _dropped(self, x: Tensor, block: int) -> Tensor:
        """Drop whole branches: none in the first block, of 10 % of the images in the last (stochastic depth)."""
        kept = 1 - 0.1 * block / (len(self.blocks) - 1)
        return x * torch.bernoulli(x.new_full((len(x), 1, 1), kept)) / kept if self.training else x

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits [B 10] of normalised images [B 3 32 32]."""
        x = self.tokenizer(images).flatten(2).transpose(1, 2) + self.positions
        for number, part in enumerate(self.blocks):
            q, k, v = part["qkv"](part["norm"](x)).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 * self.training)
            x = part["norm2"](x + self._dropped(part["proj"](mixed.transpose(1, 2).flatten(2)), number))
            x = x + self._dropped(part["fc2"](F.gelu(part["fc1"](x))), number)
        x = self.norm(x)
        return self.head((self.pool(x).softmax(1) * x).sum(1))


class Published(torch.utils.data.Dataset):
    """Training images under CCT's augmentation."""

    def __init__(self, images: ImageSet) -> None:
        policy = transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10)
        crops = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        self.images, self.labels, self.change = images.images, images.labels, transforms.Compose([policy, *crops])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return to_float(self.change(self.images[number])), self.labels[number]


def cct(target: int, seed: int, report: Callable[[float, float], None]) -> nn.Module:
    """Train CCT-2/3x2 by its published recipe, in float32."""
    images, test = (datasets.load("cifar10", part) for part in ("train", "test"))
    torch.manual_seed(seed)
    model, epochs, warmup = CCT(), 200, 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=3e-2, fused=True)
    workers = {"num_workers": os.cpu_count() or 1, "persistent_workers": True}
    feed = torch.utils.data.DataLoader(Published(images), BATCH, shuffle=True, **workers)
    for epoch in range(epochs):
        cosine = 0.5 * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup)))
        optimizer.param_groups[0]["lr"] = 5e-4 * (1 / (warmup - epoch) if epoch < warmup else cosine)
        model.train()
        for x, labels in feed:
            loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        report(epoch + 1, evaluate(model, test)["accuracy"])
    return model


def race(name: str, targets: list[int], seed: int, minutes: float) -> list[str]:
    """Run one training for targets in rising order; returns a line of the leaderboard for each."""
    start, best, left, lines = time.perf_counter(), 0.0, list(targets), list[str]()

    def report(epochs: float, accuracy: float) -> None:
        nonlocal best
        taken, best = (time.perf_counter() - start) / 60, max(best, accuracy)
        print(f"{name}: epoch {epochs:.0f}, {taken:.1f} min, {accuracy:.2%}", flush=True)
        while left and accuracy >= left[0] / 100:
            lines.append(f"| {left.pop(0)} % | {name} | {seed} | {epochs:.0f} | {taken:.1f} | {accuracy:.2%} |")
        if not left or taken > minutes:
            raise Over

    with contextlib.suppress(Over):
        globals()[name](targets[-1], seed, report)
    taken = (time.perf_counter() - start) / 60
    return lines + [f"| {each} % | {name} | {seed} | – | not in {taken:.1f} | {best:.2%} |" for each in left]


def main() -> None:
    """Race the entries one after the other and print their lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("entries", nargs="*", default=["ours", "cct"], help="ours, cct; default: both")
    parser.add_argument("--targets", type=int, nargs="+", choices=RECIPES, default=[80])
    parser.add_argument("--minutes", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    options, lines = parser.parse_args(), list[str]()
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    wanted = sorted(options.targets)
    for name in options.entries:
        for each in [wanted] if name == "cct" else [[target] for target in wanted]:
            lines += race(name, each, options.seed, options.minutes)
    print("| target | entry | seed | epochs | minutes | accuracy |\n|---|---|--:|--:|--:|--:|", *lines, sep="\n")


if __name__ == "__main__":
    main()
