"""Accuracy and loss of a model over a whole set of images, in one process or several (§4.1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.data.loader import FolderSet, ImageSet, to_float
from vitlab.training import processes
from vitlab.training.precision import autocast
from vitlab.training.processes import Group


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    images: ImageSet | FolderSet,
    batch_size: int = 250,
    precision: str = "fp32",
    group: Group | None = None,
) -> dict[str, float]:
    """Top-1 accuracy (0…1) and mean cross-entropy (nats) over every image, the last partial batch included.

    Each process of a `group` evaluates a part of the images, and returns the result for all of them.

    >>> from vitlab.data.world import World, image_set
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> _ = nn.init.zeros_(model[1].weight), nn.init.zeros_(model[1].bias)
    >>> evaluate(model, image_set(World(image_size=8), 20, 0), batch_size=7)["accuracy"]  # always says class 0
    0.1
    """
    group = group or Group()
    training, device = model.training, next(model.parameters()).device
    model.eval()
    counts = torch.zeros(2, dtype=torch.float64, device=device)  # right answers, nats
    for pictures, labels, counted in _shared_out(images, batch_size, group):
        labels = labels.to(device)
        with autocast(device, precision):
            logits = model(to_float(pictures.to(device)))
        right = (logits.argmax(-1) == labels).sum()
        nats = F.cross_entropy(logits.float(), labels, reduction="sum")
        counts += counted * torch.stack([right.double(), nats.double()])
    model.train(training)
    right, nats = (processes.total(counts) if group.size > 1 else counts).tolist()
    return {"accuracy": right / len(images), "loss": nats / len(images)}


def untrained_row(model: nn.Module, images: ImageSet | None) -> dict[str, float]:
    """The row of step 0, to stand before those of `loop.train`: the evaluation of a model that has not been trained.

    Without images it has no val_accuracy and val_loss.

    >>> from vitlab.data.world import World, image_set
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> sorted(untrained_row(model, image_set(World(image_size=8), 20, 0)))
    ['samples', 'seconds', 'step', 'val_accuracy', 'val_loss']
    """
    row = {"step": 0, "samples": 0, "seconds": 0.0}
    if images is not None:
        row |= {f"val_{metric}": value for metric, value in evaluate(model, images).items()}
    return row


def _shared_out(images: ImageSet | FolderSet, batch_size: int, group: Group) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """This process's chunks, and whether each counts.

    Under FSDP a forward pass needs all processes, so each gets the same number of
    chunks: one that has a chunk fewer evaluates the first once more, which does not count.
    """
    n_chunks = math.ceil(len(images) / batch_size)
    mine = 0
    for chunk in itertools.islice(images.chunks(batch_size), group.rank, None, group.size):
        yield *chunk, True
        mine += 1
    if mine < math.ceil(n_chunks / group.size):
        yield *next(iter(images.chunks(batch_size))), False
