"""Few-shot least squares: direct solves, the published evaluator's steps open-coded, draws, symmetries, bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from jaxtyping import TypeCheckError
from sklearn.linear_model import Ridge
from torch import Tensor

from vitlab.evaluation import fewshot
from vitlab.evaluation.fewshot import FewShot, classifiers, draw, few_shot, ridge_weights

RIDGES = (0.5, 8.0, 1024.0)


def problem(n: int, dim: int, n_classes: int, seed: int = 0, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Features around a centre per class, none of them near zero mean or unit variance, as real ones are not."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_classes, dim))
    labels = np.arange(n) % n_classes
    values = 3.0 + (centres[labels] + noise * generator.normal(size=(n, dim))) * np.linspace(0.1, 10, dim)
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


def matrices(n: int, dim: int, n_targets: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.normal(size=(n, dim)), generator.normal(size=(n, n_targets))


def direct(x: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)


def published_evaluator(x, y, test_x, n_classes: int, ridge: float = 2.0**10) -> np.ndarray:
    """Scores of the test images by the authors' steps, one line each, in float64."""
    mean, std = x.mean(0, keepdims=True), np.sqrt(((x - x.mean(0)) ** 2).mean(0, keepdims=True)) + 1e-5
    x = np.hstack([(x - mean) / std, np.full((len(x), 1), 100.0)])
    targets = np.array([[1.0 if c == label else -1.0 for c in range(n_classes)] for label in y])
    weights = direct(x, targets, ridge)
    return np.hstack([(test_x - mean) / std, np.full((len(test_x), 1), 100.0)]) @ weights


class TestKnownAnswers:
    @pytest.mark.parametrize(("n", "dim"), [(8, 30), (29, 30), (30, 30), (31, 30), (200, 30), (1, 5)])
    @pytest.mark.parametrize("ridges", [RIDGES[:1], RIDGES, (*RIDGES, 1e-3, 1e5)])  # solved for, or in one basis
    def test_direct_solve_and_ridge_known_answers(self, n, dim, ridges):
        x, y = matrices(n, dim)
        found = ridge_weights(x, y, ridges)
        for i, ridge in enumerate(ridges):
            by_sklearn = Ridge(alpha=ridge, fit_intercept=False).fit(x, y).coef_.T
            np.testing.assert_allclose(found[:, i], direct(x, y, ridge), rtol=0, atol=1e-8)
            np.testing.assert_allclose(found[:, i], by_sklearn, rtol=0, atol=1e-8)

    @pytest.mark.parametrize(("n", "dim"), [(12, 40), (40, 12)])
    @pytest.mark.parametrize("ridge", [1e-6, 1e-3])
    def test_deficient_rank_and_small_ridge_known_answers(self, n, dim, ridge):
        x, y = matrices(n, dim)
        x[n // 2 :] = x[: n - n // 2]  # every image twice, with other targets
        x[:, dim // 2 :] = x[:, : dim - dim // 2]
        # The same problem as plain least squares: its condition number is the root of the normal equations'.
        stacked = np.vstack([x, np.sqrt(ridge) * np.eye(dim)])
        truth = np.linalg.lstsq(stacked, np.vstack([y, np.zeros((dim, 4))]), rcond=None)[0]
        np.testing.assert_allclose(ridge_weights(x, y, [ridge])[:, 0], truth, rtol=0, atol=1e-8)
        np.testing.assert_allclose(ridge_weights(x, y, [ridge, 1, 2, 3])[:, 0], truth, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("ridges", [(1e-15,), (1e-15, 1.0), (1e-15, 1.0, 2.0, 3.0)])
    def test_a_ridge_lost_beside_the_gram_matrix_known_answers(self, ridges):
        """Two equal columns share the weight of one: (1, 1), whose squared length is the smallest of those that fit."""
        x = np.array([[3.0, 3.0], [5.0, 5.0], [7.0, 7.0]])
        found = ridge_weights(x, x.sum(1, keepdims=True), ridges)
        np.testing.assert_allclose(found[:, 0, 0], [1, 1], rtol=0, atol=1e-8)

    @pytest.mark.parametrize("shots", [1, 2, 10, 20])  # 5 to 100 rows, 40 dimensions
    def test_published_evaluator_known_answers(self, shots):
        x, y = problem(100, 40, 5)
        test_x, test_y = problem(300, 40, 5, seed=7, noise=4.0)
        settings = FewShot(shots=(shots,), n_seeds=3)
        found = few_shot(x, y, test_x, test_y, 5, settings)
        for seed in range(3):
            drawn = draw(y.numpy(), 5, shots, seed)
            few_x, few_y, held_x = x.double().numpy()[drawn], y.numpy()[drawn], test_x.double().numpy()
            truth = published_evaluator(few_x, few_y, held_x, 5)
            weights, offsets = classifiers(few_x, few_y, 5, settings)
            np.testing.assert_allclose(held_x @ weights[:, 0] + offsets[0], truth, rtol=0, atol=1e-8)
            accuracy = (truth.argmax(1) == test_y.numpy()).mean()
            assert found.query("seed == @seed").accuracy.item() == pytest.approx(accuracy, abs=1e-12)
            assert 0.2 < accuracy < 1  # no trivial task

    def test_other_settings_known_answers(self):
        x, y = problem(60, 8, 3)
        settings = FewShot(ridges=RIDGES, bias=2.0, normalise=False)
        weights, offsets = classifiers(x.double().numpy(), y.numpy(), 3, settings)
        with_bias = np.hstack([x.double().numpy(), np.full((60, 1), 2.0)])
        for i, ridge in enumerate(RIDGES):
            truth = direct(with_bias, 2.0 * np.eye(3)[y] - 1.0, ridge)
            np.testing.assert_allclose(weights[:, i], truth[:-1], rtol=0, atol=1e-8)
            np.testing.assert_allclose(offsets[i], 2.0 * truth[-1], rtol=0, atol=1e-8)
        assert (classifiers(x.double().numpy(), y.numpy(), 3, FewShot(bias=0.0))[1] != 0).all()  # the mean, folded in
        no_bias = FewShot(bias=0.0, normalise=False)
        assert (classifiers(x.double().numpy(), y.numpy(), 3, no_bias)[1] == 0).all()

    def test_separable_known_answers(self):
        x, y = problem(80, 16, 4, noise=0.01)
        test_x, test_y = problem(200, 16, 4, seed=3, noise=0.01)
        found = few_shot(x, y, test_x, test_y, 4, FewShot(shots=(1, 5, 20), ridges=(1.0, 1024)))
        assert (found.accuracy == 1).all() and len(found) == 3 * 2 * 3

    def test_features_that_say_nothing_known_answers(self):
        """Features all equal: whichever class is predicted, it is the same for every image."""
        x, y = torch.full((20, 6), 0.5), torch.arange(20) % 4
        assert (few_shot(x, y, x, y, 4, FewShot(shots=(5,))).accuracy == 0.25).all()


def test_a_dead_feature_changes_nothing():
    x, y = problem(40, 10, 4)
    dead = torch.cat([x, torch.full((40, 1), 0.3)], dim=1)
    test_x, test_y = problem(300, 10, 4, seed=5, noise=4.0)
    held = torch.cat([test_x, torch.full((300, 1), 0.3)], dim=1)
    settings = FewShot(shots=(2, 10), ridges=RIDGES)
    wanted = few_shot(x, y, test_x, test_y, 4, settings)
    pd.testing.assert_frame_equal(few_shot(dead, y, held, test_y, 4, settings), wanted)


def test_one_row_per_shots_ridge_and_seed():
    x, y = problem(40, 10, 4)
    found = few_shot(x, y, x, y, 4, FewShot(shots=(1, 2), ridges=RIDGES), seed=5)
    assert list(found.columns) == ["shots", "ridge", "seed", "accuracy"]
    keys = set(zip(found.shots, found.ridge, found.seed, strict=True))
    assert keys == {(s, r, k) for s in (1, 2) for r in RIDGES for k in (5, 6, 7)} and len(found) == len(keys)
    alone = few_shot(x, y, x, y, 4, FewShot(shots=(2,), ridges=(8.0,), n_seeds=1), seed=6)
    same = found.query("shots == 2 and ridge == 8.0 and seed == 6")
    assert alone.accuracy.item() == same.accuracy.item()


def test_test_images_beyond_one_chunk_all_count(monkeypatch):
    x, y = problem(40, 10, 4)
    test_x, test_y = problem(300, 10, 4, seed=5, noise=4.0)
    wanted = few_shot(x, y, test_x, test_y, 4, FewShot(shots=(5,)))
    monkeypatch.setattr(fewshot, "_CHUNK", 7)  # 42 chunks and a rest
    pd.testing.assert_frame_equal(few_shot(x, y, test_x, test_y, 4, FewShot(shots=(5,))), wanted)


def test_order_of_rows_and_names_of_classes_do_not_matter():
    x, y = problem(40, 10, 4)
    test_x, test_y = problem(300, 10, 4, seed=5, noise=4.0)
    every = FewShot(shots=(10,), ridges=RIDGES, n_seeds=1)  # all images, so that draws have no part in it
    wanted = few_shot(x, y, test_x, test_y, 4, every)
    order, renamed = torch.from_numpy(np.random.default_rng(0).permutation(40)), torch.tensor([2, 0, 3, 1])
    pd.testing.assert_frame_equal(few_shot(x[order], y[order], test_x, test_y, 4, every), wanted)
    pd.testing.assert_frame_equal(few_shot(x, renamed[y], test_x, renamed[test_y], 4, every), wanted)
    assert not wanted.equals(few_shot(x, renamed[y], test_x, test_y, 4, every))


class TestDraw:
    LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [9, 12, 10, 30, 11, 9]))

    @pytest.mark.parametrize("shots", [1, 4, 9])
    def test_exactly_as_many_of_every_class_without_repeats(self, shots):
        drawn = draw(self.LABELS, 6, shots, seed=0)
        assert self.LABELS[drawn].tolist() == np.repeat(np.arange(6), shots).tolist()
        assert len(set(drawn.tolist())) == len(drawn)

    def test_seeds_differ_and_repeat(self):
        draws = [tuple(draw(self.LABELS, 6, 4, seed)) for seed in (0, 1, 2, 0)]
        assert draws[0] == draws[3] and len(set(draws)) == 3

    def test_rows_do_not_depend_on_the_number_of_threads(self, monkeypatch):
        x, y = problem(60, 40, 3)
        test_x, test_y = problem(30, 40, 3, seed=1)
        settings, found = FewShot(shots=(1, 4, 10), ridges=RIDGES), []
        for n_threads in (1, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda n_threads=n_threads: n_threads)
            found.append(few_shot(x, y, test_x, test_y, 3, settings, seed=5))
        pd.testing.assert_frame_equal(*found)
        assert found[0][["shots", "seed", "ridge"]].values.tolist() == [
            [shots, seed, ridge] for shots in (1, 4, 10) for seed in (5, 6, 7) for ridge in RIDGES
        ]

    def test_nested(self):
        few, more = (draw(self.LABELS, 6, shots, seed=3).reshape(6, shots) for shots in (2, 7))
        assert np.array_equal(few, more[:, :2])

    def test_the_authors_draw(self):
        """One generator per seed; class by class, the first of a permutation of the indices where the label is."""
        generator, labels = np.random.default_rng(2), self.LABELS
        wanted = [generator.permutation(np.where(labels == c)[0])[:5] for c in range(6)]
        assert np.array_equal(draw(labels, 6, 5, seed=2), np.concatenate(wanted))

    def test_every_image_is_drawn_sometimes(self):
        seen = set(np.concatenate([draw(self.LABELS, 6, 3, seed) for seed in range(100)]).tolist())
        assert seen == set(range(len(self.LABELS)))


class TestBadInput:
    def test_too_few_images_of_a_class(self):
        x, y = problem(38, 5, 4)  # 10, 10, 9, 9
        with pytest.raises(ValueError, match="class 2 has 9 training images, but 10 shots are asked for"):
            few_shot(x, y, x, y, 4, FewShot(shots=(1, 10)))
        with pytest.raises(ValueError, match="class 4 has 0 training images, but 25 shots"):
            few_shot(x, y, x, y, 5)

    def test_labels(self):
        x, y = problem(40, 5, 4)
        with pytest.raises(ValueError, match="labels run from 0 to 3, but 0 to 2 is expected"):
            few_shot(x, y, x, y, 3)
        with pytest.raises(ValueError, match="labels run from -1 to 2"):
            few_shot(x, y, x, y - 1, 4)
        with pytest.raises(ValueError, match="n_classes is 1"):
            few_shot(x, torch.zeros_like(y), x, torch.zeros_like(y), 1)

    @pytest.mark.parametrize("where", ["train", "test"])
    def test_nan(self, where):
        x, y = problem(40, 5, 4)
        bad = x.clone()
        bad[3, 2] = float("nan")
        with pytest.raises(ValueError, match=f"{where}: the features of 1 of 40 images are NaN or infinite, image 3"):
            few_shot(bad if where == "train" else x, y, bad if where == "test" else x, y, 4)

    def test_shapes(self):
        x, y = problem(40, 5, 4)
        for arguments in [(x, y[1:], x, y), (x, y, x[:, 1:], y), (x, y, x, y[1:])]:
            with pytest.raises(TypeCheckError):
                few_shot(*arguments, 4)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"shots": ()}, r"shots \(\) given"),
            ({"shots": (5, 0)}, r"shots \(5, 0\) given"),
            ({"ridges": ()}, r"ridges \(\) given"),
            ({"ridges": (1.0, -1.0)}, r"ridges \(1.0, -1.0\) given"),
            ({"ridges": (float("nan"),)}, r"ridges \(nan,\) given"),
            ({"n_seeds": 0}, "n_seeds 0 given"),
            ({"bias": -1.0}, "bias -1.0 given"),
        ],
    )
    def test_settings(self, wrong, message):
        with pytest.raises(ValueError, match=message):
            FewShot(**wrong)
