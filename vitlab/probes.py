"""What frozen features are worth: few-shot least squares to targets {−1, 1}^K (§4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float32, Int64
from numpy import ndarray
from torch import Tensor, nn

from vitlab.data.loader import ImageSet, to_float
from vitlab.settings import mapped

BIAS = 100.0  # the constant feature that few-shot appends: large, so that its weight is hardly penalised
_CHUNK = 1024  # test images scored at once


@dataclass(frozen=True)
class FewShot:
    """Set how few-shot accuracy is measured; the defaults are those of the authors' published evaluator."""

    shots: tuple[int, ...] = (1, 5, 10, 25)  # images per class
    ridge: float = 2**10  # L2 penalty, on every weight and on the bias's
    n_seeds: int = 3  # draws of the images


def features(
    model: nn.Module, images: ImageSet, batch_size: int = 250, prepare: Callable[[Tensor], Tensor] = to_float
) -> tuple[Float32[Tensor, "N D"], Int64[Tensor, " N"]]:
    """Compute the representation that the last layer reads of every image, in order, and their labels; on the CPU.

    `prepare` makes bytes [B 3 H W] ready for the model (`Pretrained.prepare`).
    """
    device, parts = next(model.parameters()).device, []
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for part in images.images.split(batch_size):
                found = model.forward_head(model.forward_features(prepare(part.to(device))), pre_logits=True)
                parts.append(found.float().cpu())
    finally:
        for module, training in modes:
            module.training = training
    return torch.cat(parts), images.labels.cpu()


def _as_arrays(values: Tensor, labels: Tensor, name: str) -> tuple[ndarray, ndarray]:
    """Convert to float64 and int64 arrays; refuse features, by `name`, not finite or not one for each label."""
    if values.ndim != 2 or len(values) != len(labels):
        raise ValueError(
            f"{name}: features of shape {list(values.shape)} and {len(labels)} labels given, expected [images, dim] "
            "and one label for every image"
        )
    if not (finite := torch.isfinite(values).all(1)).all():
        raise ValueError(
            f"{name}: the features of {int((~finite).sum())} of {len(values)} images are NaN or infinite, image "
            f"{int((~finite).nonzero()[0])} first; look at the model's weights and the images' scaling"
        )
    return values.detach().double().cpu().numpy(), labels.cpu().numpy()


# --- few-shot least squares -------------------------------------------------------------------------------------------
def few_shot(
    train_features: Float[Tensor, "N D"],
    train_labels: Int64[Tensor, " N"],
    test_features: Float[Tensor, "M D"],
    test_labels: Int64[Tensor, " M"],
    n_classes: int,
    settings: FewShot = FewShot(),  # noqa: B008 - frozen
    seed: int = 0,
) -> pd.DataFrame:
    """Measure accuracy (0…1) on all test images, one row per shots and seed (`seed`, `seed` + 1, …).

    As google-research/big_vision's evaluators/fewshot_lsr.py, in float64: `shots` images per class are drawn (the
    authors', where features come in the same order); features are z-scored by their mean and standard deviation (plus
    1e-5); a constant feature of 100 is appended; targets are ±1; weights minimise the squared error plus the ridge
    times their squared length, the bias's included.
    """
    x, y = _as_arrays(train_features, train_labels, "train")
    test_x, test_y = _as_arrays(test_features, test_labels, "test")

    def accuracy(which: tuple[int, int]) -> float:
        drawn = draw(y, n_classes, *which)
        weights, offsets = classifier(x[drawn], y[drawn], n_classes, settings.ridge)
        chunks = np.array_split(test_x, -(-len(test_x) // _CHUNK))  # scores of all at once may not fit in memory
        return float((np.concatenate([(each @ weights + offsets).argmax(1) for each in chunks]) == test_y).mean())

    draws = [(shots, s) for shots in settings.shots for s in range(seed, seed + settings.n_seeds)]
    accuracies = mapped(accuracy, draws[::-1])[::-1]  # the last are the largest, which should not come last
    return pd.DataFrame(draws, columns=["shots", "seed"]).assign(accuracy=accuracies)


def draw(labels: Int64[ndarray, " N"], n_classes: int, shots: int, seed: int) -> Int64[ndarray, " n"]:
    """Draw indices of `shots` images of every class, class by class; fewer shots of the same seed are among them."""
    counts = np.bincount(labels, minlength=n_classes)
    if len(counts) > n_classes:
        raise ValueError(f"labels run from 0 to {labels.max()}, but 0 to {n_classes - 1} is expected")
    if counts.min() < shots:
        scarce = int(counts.argmin())
        raise ValueError(
            f"class {scarce} has {counts[scarce]} training images, but {shots} shots are asked for; "
            f"use at most {counts[scarce]} shots, or more images"
        )
    generator = np.random.default_rng(seed)
    by_class = np.split(np.argsort(labels, kind="stable"), counts.cumsum()[:-1])
    return np.concatenate([generator.permutation(indices)[:shots] for indices in by_class])


def classifier(
    features: Float[ndarray, "n D"], labels: Int64[ndarray, " n"], n_classes: int, ridge: float
) -> tuple[Float[ndarray, "D K"], Float[ndarray, " K"]]:
    """Fit (weights, offsets): `features @ weights + offsets` are the scores of features as the model gives them."""
    x, mean = np.full((features.shape[0], features.shape[1] + 1), BIAS), features.mean(0)
    np.subtract(features, mean, out=x[:, :-1])  # in place: of many images, passes over memory cost as much as solving
    std = np.sqrt(np.einsum("nd,nd->d", x[:, :-1], x[:, :-1]) / len(x)) + 1e-5  # the authors' floor
    x[:, :-1] /= std
    weights = ridge_weights(x, 2.0 * np.eye(n_classes)[labels] - 1.0, ridge)
    weights[:-1] /= std[:, None]
    return weights[:-1], BIAS * weights[-1] - mean @ weights[:-1]


def ridge_weights(x: Float[ndarray, "n D"], y: Float[ndarray, "n K"], ridge: float) -> Float[ndarray, "D K"]:
    """Solve W = (XᵀX + λI)⁻¹XᵀY for the ridge λ, by Xᵀ(XXᵀ + λI)⁻¹Y where there are more features than rows."""
    wide = x.shape[0] < x.shape[1]
    gram, right = (x @ x.T, y) if wide else (x.T @ x, x.T @ y)
    solution = np.linalg.solve(gram + ridge * np.eye(len(gram)), right)
    return x.T @ solution if wide else solution
