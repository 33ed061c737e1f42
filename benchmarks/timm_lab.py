"""Training with timm, for `training.py`: the command line of its train.py, and its pieces where that file is not there.

timm's `train.py` is in its repository, not in its package. Run as a program, this file stands in for it: the package's
own data set, loader, transforms, optimiser and clipping, in the inner loop that its users write. It takes what
`arguments` gives, and logs a line per epoch like train.py's.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import torch
from torch import nn

from vitlab.models.vit import ViTConfig

_RATE = re.compile(r"Train: (\d+) \[.*100%\)\].*\(\s*[\d.]+s,\s*([\d.]+)/s\)")


def arguments(
    config: ViTConfig, data: Path, output: Path, *, batch: int, epochs: int, workers: int, crops: bool, device: str
) -> list[str]:
    """The model, batch, optimiser and augmentation of `training.py`'s other side, as options of timm's train.py."""
    size = config.image_size
    shape = {"img_size": size, "patch_size": config.patch_size, "embed_dim": config.dim, "depth": config.depth}
    shape |= {"num_heads": config.n_heads, "mlp_ratio": config.mlp_dim / config.dim}
    words = (
        f"--data-dir {data} --output {output} --val-split= --input-size 3 {size} {size} --mean .5 .5 .5 --std .5 .5 .5"
    )
    words += f" --num-classes {config.n_classes} -b {batch} --epochs {epochs} --warmup-epochs 0 -j {workers}"
    words += " --opt adamw --lr 1e-3 --weight-decay 0.1 --clip-grad 1 --smoothing 0 --log-interval 1000"
    words += f" --device {device}" + (" --amp --amp-dtype bfloat16" if device == "cuda" else "")
    words += " --color-jitter 0 --train-interpolation bilinear" if crops else " --no-aug"
    model = ["--model", "vit_tiny_patch16_224", "--model-kwargs", *(f"{name}={value}" for name, value in shape.items())]
    return [*words.split(), *model]


def rate(log: str) -> float:
    """Images per second as train.py logs it at the end of an epoch: the mean of the epochs after the first.

    Raises ValueError where there is none.
    """
    rates = [float(found[2]) for found in _RATE.finditer(log) if int(found[1])]
    if not rates:
        raise ValueError(f"no epoch after the first in timm's log, which ends: {log[-2000:]}")
    return len(rates) / sum(1 / each for each in rates)


def main() -> None:
    """Train as train.py would, for the options it is given here."""
    import timm
    from timm.data import create_dataset, create_loader
    from timm.optim import create_optimizer_v2
    from timm.utils import ParseKwargs, dispatch_clip_grad

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind in {"data-dir": str, "num-classes": int, "epochs": int, "lr": float, "weight-decay": float}.items():
        parser.add_argument(f"--{name}", type=kind)
    for name, kind in {"clip-grad": float, "device": str, "model": str, "color-jitter": float}.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--input-size", type=int, nargs=3)
    parser.add_argument("--model-kwargs", nargs="*", action=ParseKwargs)
    parser.add_argument("-b", dest="batch", type=int)
    parser.add_argument("-j", dest="workers", type=int)
    for flag in ("no-aug", "amp", "torchcompile"):
        parser.add_argument(f"--{flag}", action="store_true")
    options, _ = parser.parse_known_args()  # the rest is as below
    device = torch.device(options.device)
    model = timm.create_model(options.model, num_classes=options.num_classes, **options.model_kwargs).to(device)
    optimizer = create_optimizer_v2(model, "adamw", lr=options.lr, weight_decay=options.weight_decay)
    forward = torch.compile(model) if options.torchcompile else model
    loader = create_loader(
        create_dataset("", root=options.data_dir, split="train", is_training=True),
        input_size=tuple(options.input_size),
        batch_size=options.batch,
        is_training=True,
        no_aug=options.no_aug,
        color_jitter=options.color_jitter,
        interpolation="bilinear",
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        num_workers=options.workers,
        device=device,
    )
    model.train()
    for epoch in range(options.epochs):
        start = time.perf_counter()
        for images, labels in loader:
            with torch.autocast(device.type, torch.bfloat16, enabled=options.amp):
                loss = nn.functional.cross_entropy(forward(images), labels)
            loss.backward()
            dispatch_clip_grad(model.parameters(), options.clip_grad)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()  # train.py looks at every step's loss
        step = (time.perf_counter() - start) / len(loader)
        print(f"Train: {epoch} [{len(loader)} (100%)] ({step:.3f}s, {options.batch / step:.2f}/s)", flush=True)


if __name__ == "__main__":
    main()
