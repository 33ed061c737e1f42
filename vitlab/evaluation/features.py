"""Frozen features: the representation just before the logits, of every image of a set (§4.1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn

from vitlab.data.loader import ImageSet, to_float


def features(
    model: nn.Module, images: ImageSet, batch_size: int = 250, prepare: Callable[[Tensor], Tensor] = to_float
) -> tuple[Float32[Tensor, "N D"], Int64[Tensor, " N"]]:
    """Features [N, D] of every image, in the order of the set, and their labels [N], both on the CPU.

    `model` is any with `forward_features` and `forward_head(x, pre_logits=True)`: ours and timm's. For a ViT the
    feature is the class token (or the mean over patches) after the last norm and, where the head has one, after its
    tanh layer: what the authors' code calls `pre_logits`. It runs where its parameters are, in eval mode; every
    module's own mode is put back. `prepare` makes bytes [B 3 H W] ready for it: −1…1 unless said otherwise; for
    published weights use `Pretrained.prepare`, which resizes and knows their normalisation.

    Raises ValueError where batch_size is not positive, the model has no such head, or what it returns is not one
    vector per image.

    >>> from vitlab.models import zoo
    >>> images = ImageSet(torch.zeros(5, 3, 32, 32, dtype=torch.uint8), torch.arange(5), tuple("abcde"))
    >>> values, labels = features(zoo.create("Lab-Ti/8"), images, batch_size=2)
    >>> values.shape, labels.tolist()
    (torch.Size([5, 64]), [0, 1, 2, 3, 4])
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    if not (hasattr(model, "forward_features") and hasattr(model, "forward_head")):
        raise ValueError(
            f"{type(model).__name__} has no features before the logits to take; give a model with forward_features "
            "and forward_head(x, pre_logits=True), such as one of vitlab.models.zoo.create"
        )
    device = next(model.parameters()).device
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            parts = [_batch_features(model, prepare(part.to(device))) for part in images.images.split(batch_size)]
    finally:
        for module, training in modes:
            module.training = training
    return torch.cat(parts), images.labels.cpu()


def _batch_features(model: nn.Module, images: Tensor) -> Tensor:
    representation = model.forward_head(model.forward_features(images), pre_logits=True)
    if representation.ndim != 2:
        raise ValueError(
            f"{type(model).__name__} gives features of shape {list(representation.shape)}, but [batch, dim] is "
            "expected; create it with global pooling"
        )
    return representation.float().cpu()


def as_arrays(values: Tensor, labels: Tensor, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels as float64 and int64 arrays, once they are known to be fit for a classifier.

    Raises ValueError, calling them `name`, where there are none, their numbers differ, or a feature is not finite.

    >>> as_arrays(torch.zeros(2, 3), torch.tensor([0]), "test")
    Traceback (most recent call last):
    ValueError: test: features of shape [2, 3] but 1 labels; give [images, dim] and one label for every image
    """
    if values.ndim != 2 or len(values) == 0 or len(values) != len(labels):
        raise ValueError(
            f"{name}: features of shape {list(values.shape)} but {len(labels)} labels; "
            "give [images, dim] and one label for every image"
        )
    if not (finite := torch.isfinite(values).all(1)).all():
        bad = int((~finite).nonzero()[0])
        raise ValueError(
            f"{name}: the features of {int((~finite).sum())} of {len(values)} images are NaN or infinite, image {bad} "
            "first; look at the model's weights and the images' scaling"
        )
    return values.detach().double().cpu().numpy(), labels.cpu().numpy()
