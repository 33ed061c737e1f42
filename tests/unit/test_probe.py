"""Linear probe: scikit-learn by hand, the choice of the penalty, convergence, bad input."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import Tensor

from vitlab.evaluation.probe import GRADIENT, NotConvergedError, Probe, linear_probe, logistic_regression

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
    model = LogisticRegression(C=c, max_iter=1000, tol=1e-9).fit((x - mean) / std, y)
    return lambda held: model.predict((held - mean) / std)


def standardised(n: int, seed: int, **options) -> tuple[np.ndarray, np.ndarray]:
    x, y = problem(n, seed, **options)
    x = x.double().numpy()
    return (x - x.mean(0)) / x.std(0), y.numpy()


def correlated(n: int, dim: int = 40, n_classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes in features of very unequal variance, mixed: a narrow valley, as features of a ViT have."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(n_classes, dim))
    y = np.arange(n) % n_classes
    mixing = generator.normal(size=(dim, dim)) * np.geomspace(1, 1e-2, dim)[:, None]
    x = (centres[y] + 2 * generator.normal(size=(n, dim))) @ mixing
    return (x - x.mean(0)) / x.std(0), y


def newton(x: np.ndarray, y: np.ndarray, c: float) -> np.ndarray:
    """Weights of softmax regression, and intercepts last, [K D + 1]: Newton's method with the whole Hessian."""
    n, k = len(x), y.max() + 1
    x, targets = np.column_stack([x, np.ones(n)]), np.eye(k)[y]
    penalty = np.append(np.ones(x.shape[1] - 1), 0) / c  # none on the intercepts
    theta = np.zeros((k, x.shape[1]))

    def loss(theta: np.ndarray) -> float:
        scores = x @ theta.T
        return logsumexp(scores, axis=1).sum() - (scores * targets).sum() + 0.5 * (penalty * theta**2).sum()

    for _ in range(50):
        p = softmax(x @ theta.T, axis=1)
        gradient = (p - targets).T @ x + penalty * theta
        if np.linalg.norm(gradient) < 1e-11 * n:
            break
        curvature = np.eye(k)[None] * p[:, None] - p[:, :, None] * p[:, None]
        hessian = np.einsum("nkl,ni,nj->kilj", curvature, x, x, optimize=True).reshape(theta.size, theta.size)
        hessian += np.diag(np.tile(penalty, k))
        step = np.linalg.lstsq(hessian, gradient.ravel(), rcond=1e-13)[0].reshape(theta.shape)
        size = 1.0
        while loss(theta - size * step) > loss(theta) + 1e-12 * n and size > 1e-6:
            size /= 2
        theta = theta - size * step
    return theta


@pytest.mark.parametrize("c", [1e-4, 1e-2, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["three", "five", "correlated"])
def test_coefficients_are_those_of_newtons_method_known_answers(kind, c):
    """scikit-learn's default stops at an absolute gradient: at C = 10 its coefficients are several per cent off."""
    x, y = (
        correlated(300, dim=16)
        if kind == "correlated"
        else standardised(90, 0, n_classes={"three": 3, "five": 5}[kind])
    )
    fit, wanted = logistic_regression(x, y, c), newton(x, y, c)
    assert np.linalg.norm(fit.coef_ - wanted[:, :-1]) < 1e-5 * np.linalg.norm(wanted[:, :-1])
    offsets = fit.intercept_ - wanted[:, -1]  # known but for one constant
    assert np.abs(offsets - offsets.mean()).max() < 1e-4


@pytest.mark.parametrize("c", [1e-4, 1e-2, 1.0, 10.0])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_the_gradient_is_as_small_as_is_said(n_classes, c):
    x, y = correlated(600, n_classes=n_classes)
    fit = logistic_regression(x, y, c)
    weights, offsets = (torch.tensor(each, requires_grad=True) for each in (fit.coef_, fit.intercept_))
    scores = torch.from_numpy(x) @ weights.T + offsets
    if n_classes == 2:
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y), reduction="sum")
    (loss + weights.square().sum() / (2 * c)).backward()
    length = torch.cat([weights.grad.flatten(), offsets.grad]).norm().item()
    assert length <= 1.01 * GRADIENT * np.linalg.norm(fit.coef_) / c


def test_the_accuracy_is_that_of_the_exact_fit():
    x, y = correlated(2400)
    train, test = (x[:300], y[:300]), (x[300:], y[300:])
    mean, std = train[0].mean(0), train[0].std(0)
    theta = newton((train[0] - mean) / std, train[1], 10.0)
    scores = (test[0] - mean) / std @ theta[:, :-1].T + theta[:, -1]
    found = linear_probe(*map(torch.from_numpy, (*train, *test)), Probe(inverse_penalties=(10.0,)))
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == test[1]).mean(), abs=1e-12)


def test_features_that_say_nothing_give_chance():
    x, y = torch.full((40, 5), 0.1), torch.arange(40) % 4
    assert linear_probe(x, y, x, y)["accuracy"] == 0.25


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
