"""Our training beside timm's, data included: images per second of the same model, batch, images and augmentation.

Ours is `vitlab.training.loop.train` on a folder that `vitlab.data.datasets.load` read into memory; timm's is its
train.py, with its reader, its workers and its loop. Each run is a process of its own that trains `--epochs` epochs and
counts all but the first; ours are timed by the wall clock between the loop's reports, timm's are what it logs. All
take turns, and a ratio is the median of the rounds' ratios. Validation and checkpoints are not counted.

    OMP_NUM_THREADS=2 python benchmarks/training.py --timm-train path/of/timm's/train.py
    OMP_NUM_THREADS=2 python benchmarks/training.py                # the package's pieces in a loop of ours instead
    python benchmarks/training.py --device cuda --models ViT-Ti/4 --images 50000 --batch 512 --workers 8 12 16

timm's train.py is in its repository, beside the package; take the one of the installed version, or near it. On a GPU
two more rows follow: the share of the measured bf16 matrix-product rate that ViT-B/16 reaches, and the world's share
of a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import timm
import timm_lab
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import Batches, batches
from vitlab.data.world import World, scene, stream
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

# What `make` sets; see its ALLOCATOR.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
TI = {"dim": 192, "depth": 12, "n_heads": 3, "mlp_dim": 768}  # DeiT's ViT-Ti, no model of the paper's
CROPS = Augmentation(crop="inception", area=(0.08, 1.0), flip=True)  # timm's RandomResizedCrop and flip, its defaults


@dataclass(frozen=True)
class Side:
    """One way to train: a name for the table, the command, and what its environment has beside the user's."""

    name: str
    command: list[str]
    is_timm: bool = False  # its rate is then read from timm's log
    environment: dict[str, str] = field(default_factory=dict)


def model_called(name: str) -> ViT:
    """A model of the zoo, for 10 classes; ViT-Ti/P, for images of 32 pixels."""
    if name.startswith("ViT-Ti/"):
        return ViT(ViTConfig(image_size=32, patch_size=int(name.rpartition("/")[2]), n_classes=10, **TI))
    return zoo.create(name, n_classes=10)


def write_images(folder: Path, count: int, size: int) -> None:
    """PNG files of the world, in a folder per class under train/."""
    world = World(image_size=size)
    for k in range(world.n_classes):
        (folder / "train" / f"class {k}").mkdir(parents=True)
    images, labels, _ = scene(world, torch.arange(count))
    for i, (picture, k) in enumerate(zip(images.permute(0, 2, 3, 1).numpy(), labels.tolist(), strict=True)):
        Image.fromarray(picture).save(folder / "train" / f"class {k}" / f"{i:06d}.png")


def recipe(options: argparse.Namespace, steps: int, eval_every: int) -> Recipe:
    """The recipe of both sides."""
    precision = "bf16" if options.device == "cuda" else "fp32"
    compiled = options.ours == "compiled"
    return Recipe(steps, options.batch, eval_every=eval_every, precision=precision, compile=compiled)


def stamps(model: ViT, feed: Batches, chosen: Recipe) -> list[float]:
    """When each row of a training was reported; a report comes after the device has done what was asked."""
    seen: list[float] = []
    train(model, feed, chosen, report=lambda row: seen.append(time.perf_counter()))
    return seen


def train_ours(options: argparse.Namespace) -> None:
    """Train in this process, and print the images per second of the epochs after the first."""
    images = datasets.load(options.data, "train")
    augmentation = CROPS if options.crops else None
    feed = batches(images, options.batch, 0, options.device, augmentation)
    steps = len(images) // options.batch
    model = model_called(options.models[0]).to(options.device)
    first, *_, last = stamps(model, feed, recipe(options, steps * options.epochs, steps))
    print(steps * options.batch * (options.epochs - 1) / (last - first))


def sides(name: str, data: Path, options: argparse.Namespace) -> list[Side]:
    """What takes turns for one model."""
    here = Path(__file__).resolve()
    common = ["--models", name, "--batch", options.batch, "--epochs", options.epochs, "--device", options.device]
    ours = [sys.executable, here, "--data", data, *common, *(["--crops"] if options.crops else []), "--ours"]
    program = [sys.executable, options.timm_train or here.parent / "timm_lab.py"]
    config = model_called(name).config
    given = {"batch": options.batch, "epochs": options.epochs, "crops": options.crops, "device": options.device}
    theirs = {
        n: [*program, *timm_lab.arguments(config, data, data / "output", workers=n, **given)] for n in options.workers
    }
    few = min(theirs)
    found = [
        Side("vitlab", [*ours, "plain"]),
        *(Side(f"timm, -j {n}", command, is_timm=True) for n, command in theirs.items()),
        Side("vitlab, as make runs it", [*ours, "plain"], environment=ALLOCATOR),
    ]
    if options.all:
        compiled = [*theirs[few], "--torchcompile"]
        found += [
            Side(f"timm, -j {few}, make's allocator", theirs[few], is_timm=True, environment=ALLOCATOR),
            Side("vitlab, as make runs it, compiled", [*ours, "compiled"], environment=ALLOCATOR),
            Side(f"timm, -j {few}, the same, compiled", compiled, is_timm=True, environment=ALLOCATOR),
        ]
    return found


def images_per_second(side: Side) -> float:
    """Run one side, and read its rate."""
    environment = {name: value for name, value in os.environ.items() if name not in ALLOCATOR} | side.environment
    command = list(map(str, side.command))
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{side.name} ended with {done.returncode}; its output ends: {done.stdout[-2000:]}")
    found = timm_lab.rate(done.stdout) if side.is_timm else float(done.stdout.split()[-1])
    print(f"{side.name}: {found:.0f} images/s", file=sys.stderr, flush=True)  # a round takes minutes
    return found


def compare(name: str, options: argparse.Namespace) -> None:
    """Print one model's table."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        config = model_called(name).config
        write_images(data, options.images, config.image_size)
        all_sides = sides(name, data, options)
        rounds = [[images_per_second(side) for side in all_sides] for _ in range(options.rounds)]
    columns = list(zip(*rounds, strict=True))
    ordinary = [i for i, side in enumerate(all_sides) if side.is_timm and not side.environment]
    best = max(ordinary, key=lambda i: statistics.median(columns[i]))
    print(
        f"\n{name}, {config.image_size} px, batch {options.batch}, {options.images:,} images, "
        f"{'random resized crops and flips' if options.crops else 'no augmentation'}"
    )
    print(f"{'':44}{'img/s':>8}{'lowest':>9}{'highest':>9}{'× timm':>9}")
    for side, column in zip(all_sides, columns, strict=True):
        ratio = statistics.median(a / b for a, b in zip(column, columns[best], strict=True))
        print(f"{side.name:44}{statistics.median(column):8.0f}{min(column):9.0f}{max(column):9.0f}{ratio:9.2f}")
    print(f"× timm: of {all_sides[best].name}, the faster of what its users would start")


def matrix_rate(n: int = 8192, repeats: int = 50) -> float:
    """FLOP/s of a bf16 product of two n × n matrices, the best of five."""
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            a @ b
        torch.cuda.synchronize()
        found.append(2 * n**3 * repeats / (time.perf_counter() - start))
    return max(found)


@torch.no_grad()
def flops_of_training(model: ViT, images: torch.Tensor) -> int:
    """FLOPs of a forward pass that are done while training: `zoo.forward_flops` counts the whole of the last block."""
    with FlopCounterMode(display=False) as counter:
        model.train()(images)
    return counter.get_total_flops()


def on_a_gpu(name: str, batch: int, steps: int, peak: float) -> None:
    """Print how much of the matrix-product rate a bf16 training reaches, and the world's share of a step."""
    model = (zoo.create(name) if name.startswith("ViT-B") else model_called(name)).cuda()
    size = model.config.image_size
    rendered = stream(World(image_size=size), batch, "cuda")
    one = rendered(0)
    chosen = Recipe(3 * steps, batch, precision="bf16", compile=True, eval_every=steps)

    def seconds(feed: Batches) -> float:
        first, *_, last = stamps(model, feed, chosen)
        return (last - first) / (2 * steps)

    fixed, with_world = seconds(lambda step: one), seconds(rendered)
    reached = 3 * flops_of_training(model, one[0][:1]) * batch / fixed
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(steps):
        rendered(step)
    torch.cuda.synchronize()
    rendering = (time.perf_counter() - start) / steps
    print(f"{name:10} {size:4d} px, batch {batch}: {batch / fixed:8.0f} img/s, {reached / 1e12:6.1f} TFLOP/s, "
          f"{reached / peak:4.0%} of the rate; rendering {rendering / with_world:5.1%} of a step of "
          f"{with_world * 1e3:.1f} ms with it, {fixed * 1e3:.1f} ms without")  # fmt: skip


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm-train", type=Path, help="timm's train.py, of the installed version or near it")
    parser.add_argument("--models", nargs="+", default=["Lab-S/4", "Lab-Ti/8"])
    parser.add_argument("--images", type=int, default=5120)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2, help="the first is not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="timm's -j; its best is taken")
    parser.add_argument("--crops", action="store_true", help="random resized crops and flips; none otherwise")
    parser.add_argument("--all", action="store_true", help="also timm with our allocator, and both compiled")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ours", choices=("plain", "compiled"), help=argparse.SUPPRESS)  # the process of one side
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        return train_ours(options)
    if options.device == "cuda" and not torch.cuda.is_available():
        return print("skipped: there is no GPU here")
    print(
        f"torch {torch.__version__}, timm {timm.__version__} "
        + (f"through its {options.timm_train.name}" if options.timm_train else "in pieces: no --timm-train was given")
        + f"; {torch.get_num_threads()} threads, median of {options.rounds} rounds"
    )
    for name in options.models:
        compare(name, options)
    if options.device == "cuda":
        peak = matrix_rate()
        print(f"\n{torch.cuda.get_device_name()}: bf16 matrix product {peak / 1e12:.0f} TFLOP/s")
        for name, batch in (("ViT-Ti/4", 512), ("ViT-B/16", 256)):
            on_a_gpu(name, batch, 50, peak)
    return None


if __name__ == "__main__":
    main()
