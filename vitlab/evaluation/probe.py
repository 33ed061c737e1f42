"""Linear probe: logistic regression on frozen features, its penalty chosen on held-out images (beside §4.1)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from vitlab.evaluation.features import as_arrays


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
    max_steps: int = 1000  # of L-BFGS, for every fit

    def __post_init__(self) -> None:
        if not self.inverse_penalties or not all(0 < c < float("inf") for c in self.inverse_penalties):
            raise ValueError(
                f"inverse_penalties {self.inverse_penalties} given, but one or more positive numbers are expected"
            )
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out {self.held_out} given, but a share between 0 and 1 is expected, such as 0.2")
        if self.max_steps < 1:
            raise ValueError(f"max_steps {self.max_steps} given, but at least 1 is expected")


class NotConvergedError(ArithmeticError):
    """A fit ended before it had converged."""


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
    of the fit. Not the paper's measure, which is `few_shot`; this is the one most later papers give.

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
    scores = {c: _fit(kept_x, kept_y, c, settings).score(held_x, held_y) for c in sorted(settings.inverse_penalties)}
    best = max(scores, key=scores.__getitem__)  # the first of equals
    accuracy = _fit(x, y, best, settings).score(test_x, test_y)
    return {"accuracy": float(accuracy), "inverse_penalty": best, "held_out_accuracy": float(scores[best])}


def _fit(x: ndarray, y: ndarray, inverse_penalty: float, settings: Probe):
    """Standardisation and logistic regression, fitted; scikit-learn's warning about convergence becomes an error."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=settings.max_steps))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return probe.fit(x, y)
        except ConvergenceWarning as error:
            raise NotConvergedError(
                f"logistic regression with C = {inverse_penalty:g} has not converged after {settings.max_steps} "
                "steps; raise max_steps, or leave the largest inverse_penalties out"
            ) from error


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
