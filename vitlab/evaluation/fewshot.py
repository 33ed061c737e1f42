"""Few-shot accuracy: closed-form least squares from frozen features to targets {−1, 1}^K (§4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from vitlab.evaluation.features import as_arrays
from vitlab.settings import mapped

_STD_FLOOR = 1e-5  # the authors', added to every standard deviation
_CHUNK = 1024  # test images scored at once
_FEW_RIDGES = 3  # as many solutions cost less than an eigendecomposition, and four cost more


@dataclass(frozen=True)
class FewShot:
    """How few-shot accuracy is measured; the defaults are those of the authors' published evaluator.

    Raises:
        ValueError: when a value is out of range.

    >>> FewShot(shots=(1, 5)).ridges
    (1024,)
    >>> FewShot(ridges=(0.0,))
    Traceback (most recent call last):
    ValueError: ridges (0.0,) given, but one or more positive numbers are expected, such as (1024,)
    """

    shots: tuple[int, ...] = (1, 5, 10, 25)  # images per class
    ridges: tuple[float, ...] = (2**10,)  # L2 penalties, on every weight and on the bias's
    n_seeds: int = 3  # draws of the images
    bias: float = 100.0  # the constant feature appended: large, so that its weight is hardly penalised
    normalise: bool = True  # z-score by the mean and standard deviation of the images drawn

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 1:
            raise ValueError(f"shots {self.shots} given, but one or more numbers of at least 1 are expected")
        if not self.ridges or not all(0 < ridge < float("inf") for ridge in self.ridges):
            raise ValueError(
                f"ridges {self.ridges} given, but one or more positive numbers are expected, such as (1024,)"
            )
        if self.n_seeds < 1:
            raise ValueError(f"n_seeds {self.n_seeds} given, but at least 1 is expected")
        if not 0 <= self.bias < float("inf"):
            raise ValueError(f"bias {self.bias} given, but 0 (no bias) or a positive number is expected")


def few_shot(
    train_features: Float[Tensor, "N D"],
    train_labels: Int64[Tensor, " N"],
    test_features: Float[Tensor, "M D"],
    test_labels: Int64[Tensor, " M"],
    n_classes: int,
    settings: FewShot = FewShot(),  # noqa: B008 - frozen
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy (0…1) on every test image, one row per shots, ridge and seed (`seed`, `seed` + 1, …).

    Step by step as google-research/big_vision's evaluators/fewshot_lsr.py: `shots` images per class are drawn; their
    features are z-scored by their own mean and standard deviation (of the population, plus 1e-5), and so are the
    test images' by those numbers; a constant feature of 100 is appended; targets are +1 for the class and −1 for all
    others; weights minimise the squared error plus 2^10 times their squared length, the bias's included; the largest
    output is the prediction. Ours differs in computing in float64, in taking several ridges at once, and in refusing
    classes with too few images. The images drawn are the authors', where features come in the same order.

    Raises ValueError where features are not finite, a label is not one of the `n_classes`, or a class has fewer than
    `shots` training images.

    >>> import torch
    >>> corners = 10.0 * torch.eye(3).repeat(4, 1)
    >>> labels = torch.arange(3).repeat(4)
    >>> few_shot(corners, labels, corners, labels, 3, FewShot(shots=(2,), n_seeds=2))
       shots  ridge  seed  accuracy
    0      2   1024     0       1.0
    1      2   1024     1       1.0
    """
    x, y = as_arrays(train_features, train_labels, "train")
    test_x, test_y = as_arrays(test_features, test_labels, "test")
    if x.shape[1] != test_x.shape[1]:
        raise ValueError(f"train features have {x.shape[1]} dimensions, test features {test_x.shape[1]}; use one model")
    _check_labels(y, n_classes)
    _check_labels(test_y, n_classes)

    def accuracies(which: tuple[int, int]) -> list[float]:
        drawn = draw(y, n_classes, *which)
        return _accuracies(test_x, test_y, *classifiers(x[drawn], y[drawn], n_classes, settings))

    draws = [(shots, s) for shots in settings.shots for s in range(seed, seed + settings.n_seeds)]
    scores = mapped(accuracies, draws[::-1])[::-1]  # the last are the largest, which should not come last
    rows = [
        (shots, ridge, draw_seed, accuracy)
        for (shots, draw_seed), of_draw in zip(draws, scores, strict=True)
        for ridge, accuracy in zip(settings.ridges, of_draw, strict=True)
    ]
    return pd.DataFrame(rows, columns=["shots", "ridge", "seed", "accuracy"])


def draw(labels: Int64[ndarray, " N"], n_classes: int, shots: int, seed: int) -> Int64[ndarray, " n"]:
    """Indices of `shots` images of every class, class by class.

    Draws are nested: those of fewer shots with the same seed are among them, the first of each class.

    Raises ValueError where a label is not one of the `n_classes`, or a class has fewer than `shots` images.

    >>> labels = np.array([0, 1, 0, 1, 0, 1])
    >>> labels[draw(labels, n_classes=2, shots=2, seed=0)]
    array([0, 0, 1, 1])
    """
    _check_labels(labels, n_classes)
    counts = np.bincount(labels, minlength=n_classes)
    if counts.min() < shots:
        scarce = int(counts.argmin())
        raise ValueError(
            f"class {scarce} has {counts[scarce]} training images, but {shots} shots are asked for; "
            f"use at most {counts[scarce]} shots, or more images"
        )
    generator = np.random.default_rng(seed)
    by_class = np.split(np.argsort(labels, kind="stable"), counts.cumsum()[:-1])
    return np.concatenate([generator.permutation(indices)[:shots] for indices in by_class])


def classifiers(
    features: Float[ndarray, "n D"], labels: Int64[ndarray, " n"], n_classes: int, settings: FewShot
) -> tuple[Float[ndarray, "D R K"], Float[ndarray, "R K"]]:
    """Weights and offsets of one linear classifier per ridge: `features @ weights[:, r] + offsets[r]` are its scores.

    Normalisation and the constant feature are folded into them, so they take features as the model gives them.

    >>> features, labels = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> weights, offsets = classifiers(features, labels, 2, FewShot(ridges=(0.01,)))
    >>> (features @ weights[:, 0] + offsets[0]).argmax(1)
    array([0, 0, 1, 1])
    """
    mean, std = np.zeros(features.shape[1]), np.ones(features.shape[1])
    x = np.empty((features.shape[0], features.shape[1] + 1))
    x[:, -1] = settings.bias
    if settings.normalise:  # in place: with many images these passes over memory cost as much as the solving
        mean = features.mean(0)
        np.subtract(features, mean, out=x[:, :-1])
        std = np.sqrt(np.einsum("nd,nd->d", x[:, :-1], x[:, :-1]) / len(x)) + _STD_FLOOR
        x[:, :-1] /= std
    else:
        x[:, :-1] = features
    weights = ridge_weights(x, 2.0 * np.eye(n_classes)[labels] - 1.0, settings.ridges)
    weights[:-1] /= std[:, None, None]
    return weights[:-1], settings.bias * weights[-1] - np.tensordot(mean, weights[:-1], 1)


def ridge_weights(
    x: Float[ndarray, "n D"], y: Float[ndarray, "n K"], ridges: Sequence[float]
) -> Float[ndarray, "D R K"]:
    """Weights W = (XᵀX + λI)⁻¹XᵀY for every ridge λ, from the smaller Gram matrix.

    With more features than rows the same weights are Xᵀ(XXᵀ + λI)⁻¹Y. A few ridges are solved for one by one; more,
    or one so small that it is nearly lost beside the Gram matrix, share an eigendecomposition QΛQᵀ, in whose basis
    each costs a product.

    >>> ridge_weights(np.eye(2), np.array([[3.0], [6.0]]), [1.0, 2.0])[..., 0].T
    array([[1.5, 3. ],
           [1. , 2. ]])
    """
    wide = x.shape[0] < x.shape[1]
    gram, right = (x @ x.T, y) if wide else (x.T @ x, x.T @ y)
    penalties = np.asarray(ridges, dtype=float)
    rounding = np.finfo(float).eps * len(gram) * gram.trace()
    if len(penalties) <= _FEW_RIDGES and penalties.min() > rounding:
        solved = np.linalg.solve(gram + penalties[:, None, None] * np.eye(len(gram)), right).swapaxes(0, 1)
        return np.tensordot(x.T, solved, 1) if wide else np.ascontiguousarray(solved)
    eigenvalues, vectors = np.linalg.eigh(gram)
    penalised = eigenvalues[:, None] + penalties
    # What the sum leaves of nothing but rounding is a direction that no image has: it gets no weight.
    inverse = np.divide(1, penalised, out=np.zeros_like(penalised), where=penalised > rounding)
    return np.tensordot(x.T @ vectors if wide else vectors, (vectors.T @ right)[:, None] * inverse[..., None], 1)


def _accuracies(x: ndarray, labels: ndarray, weights: ndarray, offsets: ndarray) -> list[float]:
    """Accuracy of every classifier, a chunk of images at a time: scores of all at once may not fit in memory."""
    correct = np.zeros(len(offsets), dtype=int)
    for start in range(0, len(x), _CHUNK):
        scores = np.tensordot(x[start : start + _CHUNK], weights, 1) + offsets
        correct += (scores.argmax(-1) == labels[start : start + _CHUNK, None]).sum(0)
    return (correct / len(x)).tolist()


def _check_labels(labels: ndarray, n_classes: int) -> None:
    if n_classes < 2:
        raise ValueError(f"n_classes is {n_classes}; there must be at least 2 classes to tell apart")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, but 0 to {n_classes - 1} is expected")
