"""Fine-tuning: a new head, another resolution, the learning rate chosen on held-out images (§3.2, §4.1, Table 4)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from vitlab.data.augment import Augmentation
from vitlab.data.datasets import subset
from vitlab.data.loader import ImageSet, batches, epoch_order
from vitlab.models.adapt import with_new_head
from vitlab.models.zoo import Pretrained
from vitlab.settings import default_device
from vitlab.training.loop import DivergedError, train, untrained_row
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned model, and how it came about."""

    model: nn.Module  # takes images normalised as its source does
    rows: list[dict]  # of `loop.train`, with one of step 0 before
    learning_rate: float  # the one that was chosen
    trials: dict[float, float]  # learning rate → accuracy on the held-out images; empty where there was no choice


def finetune(
    source: Pretrained | nn.Module,
    images: ImageSet,
    recipe: Callable[[float], Recipe],
    learning_rates: Sequence[float],
    *,
    held_out: float = 0.1,
    seed: int = 0,
    watch: ImageSet | None = None,
    augmentation: Augmentation | None = None,
) -> Finetuned:
    """Fine-tune as in Table 4, at the resolution of `images`; `source` is left as it is.

    `recipe` gives the training for a learning rate (`paper.Finetuning.recipe`). Of several learning rates the best on
    the `held_out` share of the images is chosen, of equal ones the lowest, and then all images are trained on. `seed`
    draws the held-out images and the order. The rows' val_accuracy is of `watch`; nothing is chosen by it.

    Raises ValueError where the share leaves no image on one side; DivergedError where every rate diverges.
    """
    device, pretrained = default_device(), source.model if isinstance(source, Pretrained) else source

    def run(images: ImageSet, rate: float, watch: ImageSet | None) -> tuple[nn.Module, list[dict]]:
        model = with_new_head(pretrained, len(images.classes), images.images.shape[-1]).to(device)
        settings, hook = recipe(rate), None
        if isinstance(source, Pretrained) and {*source.mean, *source.std} != {0.5}:  # it was trained on other scales
            mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (source.mean, source.std))
            hook = model.register_forward_pre_hook(lambda _, inputs: ((inputs[0] * 0.5 + 0.5 - mean) / std,))
        try:
            start = untrained_row(model, watch)
            feed = batches(images, settings.batch_size, seed, device, augmentation)
            return model, [start, *train(model, feed, settings, validation=watch)]
        finally:
            if hook is not None:
                hook.remove()

    trials: dict[float, float] = {}
    if len(learning_rates) > 1:
        rest, apart = split(images, held_out, seed)
        for rate in sorted(learning_rates):
            with contextlib.suppress(DivergedError):
                trials[rate] = run(rest, rate, apart)[1][-1]["val_accuracy"]
        if not trials:
            raise DivergedError(f"every learning rate of {tuple(learning_rates)} diverges; try lower ones")
    best = max(trials, key=trials.__getitem__) if trials else learning_rates[0]
    return Finetuned(*run(images, best, watch), best, trials)


def split(images: ImageSet, held_out: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Split a set of images at random in two: all but the share `held_out`, and that share."""
    n_apart = math.ceil(held_out * len(images))
    if not 0 < n_apart < len(images):
        raise ValueError(f"a held-out share of {held_out} of {len(images)} images leaves none on one side")
    order = epoch_order(len(images), seed, 0)
    return subset(images, order[n_apart:].sort().values), subset(images, order[:n_apart].sort().values)
