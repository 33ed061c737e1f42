"""What frozen features are worth: few-shot least squares to targets {−1, 1}^K (§4.1), and the linear probe."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import threadpoolctl
import torch
from jaxtyping import Float, Float32, Int64
from numpy import ndarray
from torch import Tensor, nn

from vitlab.data.loader import ImageSet, to_float

GRADIENT = 1e-6  # a fit has converged when its gradient is at most this share of the penalty's part of it, in length
_CHUNK = 1024  # test images scored at once


@dataclass(frozen=True)
class FewShot:
    """Set how few-shot accuracy is measured; the defaults are those of the authors' published evaluator."""

    shots: tuple[int, ...] = (1, 5, 10, 25)  # images per class
    ridges: tuple[float, ...] = (2**10,)  # L2 penalties, on every weight and on the bias's
    n_seeds: int = 3  # draws of the images
    bias: float = 100.0  # the constant feature appended: large, so that its weight is hardly penalised
    normalise: bool = True  # z-score by the mean and standard deviation of the images drawn

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 1:
            raise ValueError(f"shots {self.shots} given, but one or more numbers of at least 1 are expected")
        if not self.ridges or not all(0 < ridge < float("inf") for ridge in self.ridges):
            raise ValueError(f"ridges {self.ridges} given, but one or more positive numbers are expected, as (1024,)")
        if self.n_seeds < 1:
            raise ValueError(f"n_seeds {self.n_seeds} given, but at least 1 is expected")
        if not 0 <= self.bias < float("inf"):
            raise ValueError(f"bias {self.bias} given, but 0 (no bias) or a positive number is expected")


@dataclass(frozen=True)
class Probe:
    """Set how the linear probe chooses its penalty and how long it may fit."""

    inverse_penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)  # scikit-learn's C, tried in turn
    held_out: float = 0.2  # share of the training images on which C is chosen
    max_steps: int = 1000  # of Newton's method, for every fit; a dozen will mostly do

    def __post_init__(self) -> None:
        if not self.inverse_penalties or not all(0 < c < float("inf") for c in self.inverse_penalties):
            raise ValueError(f"inverse_penalties {self.inverse_penalties} given, but positive numbers are expected")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out {self.held_out} given, but a share between 0 and 1 is expected, such as 0.2")
        if not self.max_steps >= 1:  # also true of NaN
            raise ValueError(f"max_steps {self.max_steps} given, but at least 1 is expected")


class NotConvergedError(ArithmeticError):
    """A fit ended before it had converged to a relative gradient of `GRADIENT`."""


def features(
    model: nn.Module, images: ImageSet, batch_size: int = 250, prepare: Callable[[Tensor], Tensor] = to_float
) -> tuple[Float32[Tensor, "N D"], Int64[Tensor, " N"]]:
    """Compute the representation just before the logits of every image, in order, and their labels; on the CPU.

    `model` is any with `forward_features` and `forward_head(x, pre_logits=True)`: ours and timm's. For a ViT it is the
    class token (or the mean over patches) after the last norm and, where the head has one, its tanh layer. Every
    module's own mode is put back. `prepare` makes bytes [B 3 H W] ready for the model (`Pretrained.prepare`).
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    if not (hasattr(model, "forward_features") and hasattr(model, "forward_head")):
        raise ValueError(
            f"{type(model).__name__} has no features before the logits to take; give a model with forward_features "
            "and forward_head(x, pre_logits=True), such as one of vitlab.models.zoo.create"
        )
    device, parts = next(model.parameters()).device, []
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for part in images.images.split(batch_size):
                found = model.forward_head(model.forward_features(prepare(part.to(device))), pre_logits=True)
                if found.ndim != 2:
                    raise ValueError(
                        f"{type(model).__name__} gives features of shape {list(found.shape)}, but [batch, dim] is "
                        "expected; create it with global pooling"
                    )
                parts.append(found.float().cpu())
    finally:
        for module, training in modes:
            module.training = training
    return torch.cat(parts), images.labels.cpu()


def _as_arrays(values: Tensor, labels: Tensor, name: str) -> tuple[ndarray, ndarray]:
    """Convert to float64 and int64 arrays; raise ValueError, calling them `name`, where no classifier can take them."""
    if values.ndim != 2 or len(values) == 0 or len(values) != len(labels):
        raise ValueError(
            f"{name}: features of shape {list(values.shape)} but {len(labels)} labels; "
            "give [images, dim] and one label for every image"
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
    """Measure accuracy (0…1) on every test image, one row per shots, ridge and seed (`seed`, `seed` + 1, …).

    Step by step as google-research/big_vision's evaluators/fewshot_lsr.py, in float64 and for several ridges at once:
    `shots` images per class are drawn; features are z-scored by their mean and standard deviation (plus 1e-5); a
    constant feature of 100 is appended; targets are ±1; weights minimise the squared error plus 2^10 times their
    squared length, the bias's included. The images drawn are the authors', where features come in the same order.

    Raises ValueError where features are not finite, a label is not one of the `n_classes`, or a class has fewer than
    `shots` training images.
    """
    x, y = _as_arrays(train_features, train_labels, "train")
    test_x, test_y = _as_arrays(test_features, test_labels, "test")
    if x.shape[1] != test_x.shape[1]:
        raise ValueError(f"train features have {x.shape[1]} dimensions, test features {test_x.shape[1]}; use one model")
    _check_labels(test_y, n_classes)

    def accuracies(which: tuple[int, int]) -> list[float]:
        drawn = draw(y, n_classes, *which)
        weights, offsets = classifiers(x[drawn], y[drawn], n_classes, settings)
        correct = np.zeros(len(offsets), dtype=int)
        for start in range(0, len(test_x), _CHUNK):  # scores of all at once may not fit in memory
            scores = np.tensordot(test_x[start : start + _CHUNK], weights, 1) + offsets
            correct += (scores.argmax(-1) == test_y[start : start + _CHUNK, None]).sum(0)
        return (correct / len(test_x)).tolist()

    draws = [(shots, s) for shots in settings.shots for s in range(seed, seed + settings.n_seeds)]
    n_threads = min(torch.get_num_threads(), len(draws), 8)
    with threadpoolctl.threadpool_limits(1 if n_threads > 1 else None, "blas"), ThreadPoolExecutor(n_threads) as pool:
        scores = list(pool.map(accuracies, draws[::-1]))[::-1]  # the last are the largest, which should not come last
    rows = [
        (shots, ridge, draw_seed, accuracy)
        for (shots, draw_seed), of_draw in zip(draws, scores, strict=True)
        for ridge, accuracy in zip(settings.ridges, of_draw, strict=True)
    ]
    return pd.DataFrame(rows, columns=["shots", "ridge", "seed", "accuracy"])


def draw(labels: Int64[ndarray, " N"], n_classes: int, shots: int, seed: int) -> Int64[ndarray, " n"]:
    """Draw indices of `shots` images of every class, class by class; fewer shots of the same seed are among them.

    Raises ValueError where a label is not one of the `n_classes`, or a class has fewer than `shots` images.
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
    """Fit one linear classifier per ridge: `features @ weights[:, r] + offsets[r]` are its scores.

    Normalisation and the constant feature are folded into them, so they take features as the model gives them.
    """
    mean, std = np.zeros(features.shape[1]), np.ones(features.shape[1])
    x = np.empty((features.shape[0], features.shape[1] + 1))
    x[:, -1] = settings.bias
    if settings.normalise:  # in place: with many images these passes over memory cost as much as the solving
        mean = features.mean(0)
        np.subtract(features, mean, out=x[:, :-1])
        std = np.sqrt(np.einsum("nd,nd->d", x[:, :-1], x[:, :-1]) / len(x)) + 1e-5  # the authors' floor
        x[:, :-1] /= std
    else:
        x[:, :-1] = features
    weights = ridge_weights(x, 2.0 * np.eye(n_classes)[labels] - 1.0, settings.ridges)
    weights[:-1] /= std[:, None, None]
    return weights[:-1], settings.bias * weights[-1] - np.tensordot(mean, weights[:-1], 1)


def ridge_weights(
    x: Float[ndarray, "n D"], y: Float[ndarray, "n K"], ridges: Sequence[float]
) -> Float[ndarray, "D R K"]:
    """Solve W = (XᵀX + λI)⁻¹XᵀY for every ridge λ, by Xᵀ(XXᵀ + λI)⁻¹Y where there are more features than rows.

    Up to three ridges are solved for one by one; more, or one so small that it is nearly lost next to the Gram matrix,
    share an eigendecomposition QΛQᵀ, in whose basis each costs a product.
    """
    wide = x.shape[0] < x.shape[1]
    gram, right = (x @ x.T, y) if wide else (x.T @ x, x.T @ y)
    penalties = np.asarray(ridges, dtype=float)
    rounding = np.finfo(float).eps * len(gram) * gram.trace()
    if len(penalties) <= 3 and penalties.min() > rounding:
        solution = np.linalg.solve(gram + penalties[:, None, None] * np.eye(len(gram)), right).swapaxes(0, 1)
        return np.tensordot(x.T, solution, 1) if wide else np.ascontiguousarray(solution)
    eigenvalues, vectors = np.linalg.eigh(gram)
    sums = eigenvalues[:, None] + penalties
    # What the sum leaves of nothing but rounding is a direction that no image has: it gets no weight.
    inverse = np.divide(1, sums, out=np.zeros_like(sums), where=sums > rounding)
    return np.tensordot(x.T @ vectors if wide else vectors, (vectors.T @ right)[:, None] * inverse[..., None], 1)


def _check_labels(labels: ndarray, n_classes: int) -> None:
    if n_classes < 2:
        raise ValueError(f"n_classes is {n_classes}; there must be at least 2 classes to tell apart")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, but 0 to {n_classes - 1} is expected")


# --- linear probe -----------------------------------------------------------------------------------------------------
def linear_probe(
    train_features: Float[Tensor, "N D"],
    train_labels: Int64[Tensor, " N"],
    test_features: Float[Tensor, "M D"],
    test_labels: Int64[Tensor, " M"],
    settings: Probe = Probe(),  # noqa: B008 - frozen
    seed: int = 0,
) -> dict[str, float]:
    """Measure test accuracy (0…1) of logistic regression on standardised features; not the paper's measure.

    A part of the training images, with the classes' shares kept, is held out by `seed`; the C with the best accuracy
    there (the smallest of equals) is used to fit all training images again.

    Returns accuracy, inverse_penalty (the C chosen) and held_out_accuracy (of that C). Raises ValueError where features
    are not finite or there are too few images to hold any of a class out, NotConvergedError where a fit does not end.
    """
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    x, y = _as_arrays(train_features, train_labels, "train")
    test_x, test_y = _as_arrays(test_features, test_labels, "test")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"every training image is of class {classes[0]}; there must be at least 2 classes")
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]} has 1 training image, but at least 2 are needed: one to fit and one "
            "to hold out; give more images, or leave the class out"
        )
    held = int(np.ceil(settings.held_out * len(y)))
    if min(held, len(y) - held) < len(classes):
        raise ValueError(
            f"{held} of {len(y)} images would be held out, but either part needs one of each of the {len(classes)} "
            f"classes; change held_out from {settings.held_out:g}, or give more images"
        )
    kept_x, held_x, kept_y, held_y = train_test_split(x, y, test_size=settings.held_out, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(kept_x)
    kept_x, held_x = scaler.transform(kept_x), scaler.transform(held_x)
    scores = {
        c: logistic_regression(kept_x, kept_y, c, settings.max_steps).score(held_x, held_y)
        for c in sorted(settings.inverse_penalties)
    }
    best = max(scores, key=scores.__getitem__)  # the first of equals
    scaler = StandardScaler().fit(x)
    fit = logistic_regression(scaler.transform(x), y, best, settings.max_steps)
    accuracy = float(fit.score(scaler.transform(test_x), test_y))
    return {"accuracy": accuracy, "inverse_penalty": best, "held_out_accuracy": float(scores[best])}


def logistic_regression(
    x: Float[ndarray, "N D"], y: Int64[ndarray, " N"], inverse_penalty: float, max_steps: int = 1000
) -> Any:
    """Fit scikit-learn's LogisticRegression, C = `inverse_penalty`, to a relative gradient of `GRADIENT`.

    scikit-learn stops at an absolute gradient, whose meaning depends on C: where that is not enough, the fit resumes.
    The penalty alone makes the loss curved, so weights are then off by about as much of their length, or by less.

    Raises NotConvergedError where `max_steps` steps of Newton's method do not do.
    """
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(C=inverse_penalty, solver="newton-cg", warm_start=True)
    steps, tolerance, moves = 0, GRADIENT, True  # tolerance: of the largest entry of the gradient, per image
    while steps < max_steps and moves:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether it has converged is measured here
            fit.set_params(tol=tolerance, max_iter=max_steps - steps).fit(x, y)
        moves = bool(fit.n_iter_.max() > 0)  # else float64 resolves no more
        steps += int(fit.n_iter_.max())
        residuals = fit.predict_proba(x) - (y[:, None] == fit.classes_)
        if len(fit.classes_) == 2:  # scikit-learn then has weights for the second class alone
            residuals = residuals[:, 1:]
        of_penalty = fit.coef_ / fit.C
        gradient = np.append(residuals.T @ x + of_penalty, residuals.sum(0))  # intercepts bear no penalty
        length = float(np.linalg.norm(gradient)) / len(x)
        penalty = max(float(np.linalg.norm(of_penalty)) / len(x), 1e-7)  # float64 resolves about 1e-14
        if length <= GRADIENT * penalty:
            return fit
        tolerance = 0.5 * GRADIENT * penalty / fit.coef_.size**0.5
    raise NotConvergedError(
        f"logistic regression with C = {inverse_penalty:g} has not converged after {steps} steps; raise max_steps, or "
        f"leave the largest inverse_penalties out (relative gradient {length / penalty:.1e}, expected {GRADIENT:g})"
    )
