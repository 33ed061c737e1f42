"""Linear probe: logistic regression on frozen features, its penalty chosen on held-out images (beside §4.1)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from vitlab.evaluation.features import as_arrays

# A fit has converged when the length of the gradient is at most this share of the length of the penalty's part of it.
# The penalty alone makes the loss curved, so the weights are then off by about as much of their length, or by less.
GRADIENT = 1e-6
_SMALLEST = 1e-7  # where the penalty's part of the gradient, per image, is smaller, this: float64 resolves about 1e-14


@dataclass(frozen=True)
class Probe:
    """How the probe is fitted.

    Raises:
        ValueError: when a value is out of range.

    >>> Probe(held_out=1.5)
    Traceback (most recent call last):
    ValueError: held_out 1.5 given, but a share between 0 and 1 is expected, such as 0.2
    """

    inverse_penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)  # scikit-learn's C, tried in turn
    held_out: float = 0.2  # share of the training images on which C is chosen
    max_steps: int = 1000  # of Newton's method, for every fit; a dozen will mostly do

    def __post_init__(self) -> None:
        if not self.inverse_penalties or not all(0 < c < float("inf") for c in self.inverse_penalties):
            raise ValueError(
                f"inverse_penalties {self.inverse_penalties} given, but one or more positive numbers are expected"
            )
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out {self.held_out} given, but a share between 0 and 1 is expected, such as 0.2")
        if not self.max_steps >= 1:  # also true of NaN
            raise ValueError(f"max_steps {self.max_steps} given, but at least 1 is expected")


class NotConvergedError(ArithmeticError):
    """A fit ended before it had converged to a relative gradient of `GRADIENT`."""


def linear_probe(
    train_features: Float[Tensor, "N D"],
    train_labels: Int64[Tensor, " N"],
    test_features: Float[Tensor, "M D"],
    test_labels: Int64[Tensor, " M"],
    settings: Probe = Probe(),  # noqa: B008 - frozen
    seed: int = 0,
) -> dict[str, float]:
    """Test accuracy (0…1) of logistic regression on standardised features, and how its penalty was chosen.

    A part of the training images, with the classes' shares kept, is held out by `seed`; the C with the best accuracy
    there (the smallest of equals) is used to fit all training images again. Features are standardised by the images
    of the fit, which is exact to a relative gradient of 1e-6 (`logistic_regression`). Not the paper's measure, which
    is `few_shot`; this is the one most later papers give.

    Returns accuracy, inverse_penalty (the C chosen) and held_out_accuracy (of that C). Nothing in it is random but
    the images held out.

    Raises ValueError where features are not finite or there are too few images to hold any of a class out, and
    NotConvergedError where a fit does not converge.

    >>> import torch
    >>> corners, labels = 10.0 * torch.eye(3).repeat(10, 1), torch.arange(3).repeat(10)
    >>> linear_probe(corners, labels, corners, labels)
    {'accuracy': 1.0, 'inverse_penalty': 0.0001, 'held_out_accuracy': 1.0}
    """
    from sklearn.model_selection import train_test_split

    x, y = as_arrays(train_features, train_labels, "train")
    test_x, test_y = as_arrays(test_features, test_labels, "test")
    _check_counts(y, settings)
    kept_x, held_x, kept_y, held_y = train_test_split(x, y, test_size=settings.held_out, stratify=y, random_state=seed)
    kept_x, held_x = _standardised(kept_x, held_x)
    scores = {
        c: logistic_regression(kept_x, kept_y, c, settings.max_steps).score(held_x, held_y)
        for c in sorted(settings.inverse_penalties)
    }
    best = max(scores, key=scores.__getitem__)  # the first of equals
    x, test_x = _standardised(x, test_x)
    accuracy = logistic_regression(x, y, best, settings.max_steps).score(test_x, test_y)
    return {"accuracy": float(accuracy), "inverse_penalty": best, "held_out_accuracy": float(scores[best])}


def logistic_regression(
    x: Float[ndarray, "N D"], y: Int64[ndarray, " N"], inverse_penalty: float, max_steps: int = 1000
) -> Any:
    """scikit-learn's LogisticRegression, C = `inverse_penalty`, converged to a relative gradient of `GRADIENT`.

    scikit-learn stops at an absolute gradient, whose meaning depends on C: where that is not enough, the fit goes on.

    Raises NotConvergedError where `max_steps` steps of Newton's method do not do.

    >>> x, y = np.array([[-1.0], [1.0], [-2.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> logistic_regression(x, y, 10.0).coef_.round(6) + 0.0
    array([[0.]])
    """
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(C=inverse_penalty, solver="newton-cg", warm_start=True)
    steps, tolerance, moved = 0, GRADIENT, True  # tolerance: of the largest entry of the gradient, per image
    while steps < max_steps and moved:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether it has converged is measured here
            fit.set_params(tol=tolerance, max_iter=max_steps - steps).fit(x, y)
        moved = bool(fit.n_iter_.max() > 0)  # else float64 resolves no more
        steps += int(fit.n_iter_.max())
        length, penalty = _gradient(fit, x, y)
        if length <= GRADIENT * penalty:
            return fit
        tolerance = 0.5 * GRADIENT * penalty / fit.coef_.size**0.5
    raise NotConvergedError(
        f"logistic regression with C = {inverse_penalty:g} has not converged after {steps} steps; raise max_steps, or "
        f"leave the largest inverse_penalties out (relative gradient {length / penalty:.1e}, expected {GRADIENT:g})"
    )


def _gradient(fit: Any, x: ndarray, y: ndarray) -> tuple[float, float]:
    """Length of the gradient of loss and penalty, per image, and of the penalty's part of it (at least `_SMALLEST`)."""
    residuals = fit.predict_proba(x) - (y[:, None] == fit.classes_)
    if len(fit.classes_) == 2:  # scikit-learn then has weights for the second class alone
        residuals = residuals[:, 1:]
    penalty = fit.coef_ / fit.C
    gradient = np.append(residuals.T @ x + penalty, residuals.sum(0))  # and of the intercepts, which bear no penalty
    return float(np.linalg.norm(gradient)) / len(x), max(float(np.linalg.norm(penalty)) / len(x), _SMALLEST)


def _standardised(x: ndarray, other: ndarray) -> tuple[ndarray, ndarray]:
    """Both by the mean and the standard deviation of the first."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    return scaler.transform(x), scaler.transform(other)


def _check_counts(labels: ndarray, settings: Probe) -> None:
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"every training image is of class {classes[0]}; there must be at least 2 classes")
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]} has 1 training image, but at least 2 are needed: one to fit and one "
            "to hold out; give more images, or leave the class out"
        )
    held = int(np.ceil(settings.held_out * len(labels)))
    if min(held, len(labels) - held) < len(classes):
        raise ValueError(
            f"{held} of {len(labels)} images would be held out, but either part needs one of each of the "
            f"{len(classes)} classes; change held_out from {settings.held_out:g}, or give more images"
        )
