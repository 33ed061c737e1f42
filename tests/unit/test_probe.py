"""Linear probe: scikit-learn by hand, the choice of the penalty, convergence, bad input."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import Tensor

from vitlab.evaluation.probe import NotConvergedError, Probe, linear_probe

PENALTIES = (1e-3, 1e-2, 0.1, 1.0)


def problem(n: int, seed: int, n_classes: int = 3, dim: int = 12, noise: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_classes, dim))
    labels = np.arange(n) % n_classes
    values = 5.0 + (centres[labels] + noise * generator.normal(size=(n, dim))) * np.linspace(0.1, 10, dim)
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


def fitted(x: np.ndarray, y: np.ndarray, c: float):
    """Standardised by hand; a function from features to predictions."""
    mean, std = x.mean(0), x.std(0)
    model = LogisticRegression(C=c, max_iter=1000).fit((x - mean) / std, y)
    return lambda held: model.predict((held - mean) / std)


@pytest.mark.parametrize(("n_classes", "seed"), [(2, 0), (3, 0), (3, 1), (5, 2)])
def test_scikit_learn_by_hand_known_answers(n_classes, seed):
    (x, y), (test_x, test_y) = problem(90, 0, n_classes), problem(400, 1, n_classes)
    found = linear_probe(x, y, test_x, test_y, Probe(inverse_penalties=PENALTIES), seed)
    x, y, test_x, test_y = x.double().numpy(), y.numpy(), test_x.double().numpy(), test_y.numpy()
    kept_x, held_x, kept_y, held_y = train_test_split(x, y, test_size=0.2, stratify=y, random_state=seed)
    held = [(fitted(kept_x, kept_y, c)(held_x) == held_y).mean() for c in PENALTIES]
    best = int(np.argmax(held))
    assert found["inverse_penalty"] == PENALTIES[best]
    assert found["held_out_accuracy"] == pytest.approx(held[best])
    assert found["accuracy"] == pytest.approx((fitted(x, y, PENALTIES[best])(test_x) == test_y).mean())
    assert 1 / n_classes < found["accuracy"] < 1


def test_the_penalty_is_chosen_where_it_matters():
    """A clean direction drowned in 200 of noise: weak penalties overfit, and the strongest that works is chosen."""
    generator = np.random.default_rng(0)
    y = torch.arange(60) % 2
    x = torch.from_numpy(generator.normal(size=(60, 200)))
    x[:, :20] += 0.8 * (2 * y[:, None] - 1)
    found = linear_probe(x, y, x, y, Probe(inverse_penalties=(100.0, 1e-3)))
    assert found["inverse_penalty"] == 1e-3  # equal or better, and the smaller of equals, however they are listed


def test_the_same_twice_and_whatever_the_order_of_penalties():
    (x, y), (test_x, test_y) = problem(90, 0), problem(200, 1)
    settings = Probe(inverse_penalties=PENALTIES)
    first = linear_probe(x, y, test_x, test_y, settings)
    assert first == linear_probe(x, y, test_x, test_y, settings)
    assert first == linear_probe(x, y, test_x, test_y, Probe(inverse_penalties=PENALTIES[::-1]))


def test_labels_of_any_names_and_scale_of_features_do_not_matter():
    (x, y), (test_x, test_y) = problem(90, 0), problem(200, 1)
    settings = Probe(inverse_penalties=PENALTIES)
    wanted = linear_probe(x, y, test_x, test_y, settings)
    assert linear_probe(x, 10 * y + 7, test_x, 10 * test_y + 7, settings) == wanted
    assert linear_probe(64.0 * x, y, 64.0 * test_x, test_y, settings) == wanted


class TestBadInput:
    def test_not_converged(self):
        x, y = problem(90, 0)
        with pytest.raises(NotConvergedError, match="with C = 1 has not converged after 2 steps; raise max_steps"):
            linear_probe(x, y, x, y, Probe(inverse_penalties=(1.0,), max_steps=2))

    def test_too_few_images(self):
        x, y = problem(30, 0)
        with pytest.raises(ValueError, match="every training image is of class 1"):
            linear_probe(x, torch.ones_like(y), x, y)
        lonely = y.clone()
        lonely[0] = 9
        with pytest.raises(ValueError, match="class 9 has 1 training image"):
            linear_probe(x, lonely, x, y)
        with pytest.raises(ValueError, match="2 of 30 images would be held out, but either part needs one of each"):
            linear_probe(x, y, x, y, Probe(held_out=0.05))

    def test_nan(self):
        x, y = problem(30, 0)
        bad = x.clone()
        bad[4, 0] = float("nan")
        with pytest.raises(ValueError, match="train: the features of 1 of 30"):
            linear_probe(bad, y, x, y)
        with pytest.raises(ValueError, match="test: the features of 1 of 30"):
            linear_probe(x, y, bad, y)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"inverse_penalties": ()}, r"inverse_penalties \(\) given"),
            ({"inverse_penalties": (0.0,)}, r"inverse_penalties \(0.0,\) given"),
            ({"held_out": 1.0}, "held_out 1.0 given"),
            ({"max_steps": 0}, "max_steps 0 given"),
        ],
    )
    def test_settings(self, wrong, message):
        with pytest.raises(ValueError, match=message):
            Probe(**wrong)
