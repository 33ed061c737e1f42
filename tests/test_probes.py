"""Frozen features, few-shot least squares and the linear probe: direct solves, published steps, scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from sklearn.linear_model import Ridge
from torch import Tensor, nn
from weights import randomise

from vitlab import probes
from vitlab.data.loader import ImageSet, to_float
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.zoo import Pretrained
from vitlab.probes import (
    FewShot,
    classifier,
    draw,
    features,
    few_shot,
    ridge_weights,
)

PENALTIES = (1e-3, 1e-2, 0.1, 1.0)
SMALL_HYBRID = {"img_size": 64, "depth": 1, "embed_dim": 32, "num_heads": 2}
MODELS = {
    "ours": lambda: zoo.create("Lab-Ti/8"),
    "ours, tanh": lambda: zoo.create("Lab-Ti/8", head="tanh"),
    "ours, gap": lambda: ViT(ViTConfig(32, 8, dim=16, depth=1, n_heads=2, mlp_dim=32, n_classes=5, pool="gap")),
    "ours, BiT": lambda: zoo.create("BiT-Lab-Ti/8"),
    "timm ViT": lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1),
    "timm hybrid": lambda: timm.create_model("vit_tiny_r_s16_p8_224", **SMALL_HYBRID),
    "timm ResNet": lambda: timm.create_model("resnet10t"),
}


def images(n: int, side: int = 32) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(n) % 3, tuple("abc"))


def problem(n: int, dim: int, n_classes: int, seed: int = 0, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Features around a centre per class, none of them near zero mean or unit variance, as real ones are not."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_classes, dim))
    labels = np.arange(n) % n_classes
    values = 3.0 + (centres[labels] + noise * generator.normal(size=(n, dim))) * np.linspace(0.1, 10, dim)
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


def direct(x: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)


class TestFeatures:
    @pytest.mark.parametrize("name", MODELS)
    def test_the_last_layer_of_the_features_is_the_logits_known_answers(self, name):
        model, set_ = randomise(MODELS[name]()), images(5, 64 if "hybrid" in name else 32)
        found, labels = features(model, set_, batch_size=2)
        head = model.head if hasattr(model, "head") else model.fc
        last = next(layer for layer in reversed([head, *head.modules()]) if isinstance(layer, nn.Linear | nn.Conv2d))
        weight = last.weight.flatten(1)  # BiT's last layer is a 1 × 1 convolution
        with torch.inference_mode():
            logits = model.eval()(to_float(set_.images))
            torch.testing.assert_close(found @ weight.T + last.bias, logits, rtol=1e-4, atol=1e-5)
        assert found.dtype == torch.float32 and labels.equal(set_.labels)
        assert logits.std() > 0.01  # the comparison says something

    def test_eval_mode_inside_and_every_mode_put_back(self):
        model = randomise(zoo.create("Lab-Ti/8", dropout=0.5)).train()
        model.blocks[1].eval()  # as where a part is frozen
        before = [module.training for module in model.modules()]
        assert features(model, images(3))[0].equal(features(model, images(3))[0])
        assert [module.training for module in model.modules()] == before

    def test_prepare_is_the_models_own(self):
        lab = Pretrained.of(timm.create_model("resnet10t"), "resnet10t", "nowhere", {})  # ImageNet's mean and std
        set_ = images(2, side=lab.image_size[0])
        with torch.inference_mode():
            x = lab.model.eval().forward_features(lab.prepare(set_.images))
        found, _ = features(lab.model, set_, prepare=lab.prepare)
        torch.testing.assert_close(found, x.mean((2, 3)), rtol=1e-4, atol=1e-5)


class TestFewShot:
    @pytest.mark.parametrize(("n", "dim"), [(8, 30), (29, 30), (30, 30), (31, 30), (200, 30), (1, 5)])
    def test_direct_solve_and_ridge_known_answers(self, n, dim):
        generator = np.random.default_rng(1)
        x, y = generator.normal(size=(n, dim)), generator.normal(size=(n, 4))
        for ridge in (1e-3, 0.5, 1024.0, 1e5):
            found, by_sklearn = ridge_weights(x, y, ridge), Ridge(alpha=ridge, fit_intercept=False).fit(x, y).coef_.T
            np.testing.assert_allclose(found, direct(x, y, ridge), rtol=0, atol=1e-8)
            np.testing.assert_allclose(found, by_sklearn, rtol=0, atol=1e-8)

    @pytest.mark.parametrize(("n", "dim"), [(12, 40), (40, 12)])
    @pytest.mark.parametrize("ridge", [1e-6, 1e-3])
    def test_deficient_rank_and_small_ridge_known_answers(self, n, dim, ridge):
        generator = np.random.default_rng(1)
        x, y = generator.normal(size=(n, dim)), generator.normal(size=(n, 4))
        x[n // 2 :] = x[: n - n // 2]  # every image twice, with other targets
        x[:, dim // 2 :] = x[:, : dim - dim // 2]
        # The same problem as plain least squares: its condition number is the root of the normal equations'.
        stacked = np.vstack([x, np.sqrt(ridge) * np.eye(dim)])
        truth = np.linalg.lstsq(stacked, np.vstack([y, np.zeros((dim, 4))]), rcond=None)[0]
        np.testing.assert_allclose(ridge_weights(x, y, ridge), truth, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("shots", [1, 10, 20])  # 5 to 100 rows, 40 dimensions
    def test_published_evaluator_known_answers(self, shots):
        """The authors' steps, one line each, in float64."""
        x, y = problem(100, 40, 5)
        test_x, test_y = problem(300, 40, 5, seed=7, noise=4.0)
        found = few_shot(x, y, test_x, test_y, 5, FewShot(shots=(shots,), n_seeds=3))
        held = test_x.double().numpy()
        for seed in range(3):
            drawn = draw(y.numpy(), 5, shots, seed)
            few_x, few_y = x.double().numpy()[drawn], y.numpy()[drawn]
            mean, std = few_x.mean(0), np.sqrt(((few_x - few_x.mean(0)) ** 2).mean(0)) + 1e-5
            stacked = np.hstack([(few_x - mean) / std, np.full((len(few_x), 1), 100.0)])
            targets = np.array([[1.0 if c == label else -1.0 for c in range(5)] for label in few_y])
            truth = np.hstack([(held - mean) / std, np.full((300, 1), 100.0)]) @ direct(stacked, targets, 2.0**10)
            weights, offsets = classifier(few_x, few_y, 5, FewShot().ridge)
            np.testing.assert_allclose(held @ weights + offsets, truth, rtol=0, atol=1e-8)
            accuracy = (truth.argmax(1) == test_y.numpy()).mean()
            assert found.query("seed == @seed").accuracy.item() == pytest.approx(accuracy, abs=1e-12)
            assert 0.2 < accuracy < 1  # no trivial task

    def test_separable_features_and_features_that_say_nothing_known_answers(self):
        x, y = problem(80, 16, 4, noise=0.01)
        test_x, test_y = problem(200, 16, 4, seed=3, noise=0.01)
        found = few_shot(x, y, test_x, test_y, 4, FewShot(shots=(1, 5, 20)))
        assert (found.accuracy == 1).all() and len(found) == 3 * 3
        x, y = torch.full((20, 6), 0.5), torch.arange(20) % 4  # whichever class is predicted, it is always the same
        assert (few_shot(x, y, x, y, 4, FewShot(shots=(5,))).accuracy == 0.25).all()

    def test_what_must_not_matter_does_not(self, monkeypatch):
        x, y = problem(40, 10, 4)
        test_x, test_y = problem(300, 10, 4, seed=5, noise=4.0)
        every = FewShot(shots=(10,), ridge=8.0, n_seeds=1)  # all images, so that draws have no part in it
        wanted = few_shot(x, y, test_x, test_y, 4, every)
        order, renamed = torch.from_numpy(np.random.default_rng(0).permutation(40)), torch.tensor([2, 0, 3, 1])
        dead, held = (torch.cat([each, torch.full((len(each), 1), 0.3)], dim=1) for each in (x, test_x))
        for given in (
            (x[order], y[order], test_x, test_y),
            (x, renamed[y], test_x, renamed[test_y]),
            (dead, y, held, test_y),  # a feature that never changes
        ):
            pd.testing.assert_frame_equal(few_shot(*given, 4, every), wanted)
        assert not wanted.equals(few_shot(x, renamed[y], test_x, test_y, 4, every))
        monkeypatch.setattr(probes, "_CHUNK", 7)  # 42 chunks of test images and a rest
        pd.testing.assert_frame_equal(few_shot(x, y, test_x, test_y, 4, every), wanted)

    def test_one_row_per_shots_and_seed_whatever_the_threads(self, monkeypatch):
        (x, y), settings = problem(40, 10, 4), FewShot(shots=(1, 2))
        found = few_shot(x, y, x, y, 4, settings, seed=5)
        assert list(zip(found.shots, found.seed, strict=True)) == [(s, k) for s in (1, 2) for k in (5, 6, 7)]
        alone = few_shot(x, y, x, y, 4, FewShot(shots=(2,), n_seeds=1), seed=6)
        assert alone.accuracy.item() == found.query("shots == 2 and seed == 6").accuracy.item()
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        pd.testing.assert_frame_equal(few_shot(x, y, x, y, 4, settings, seed=5), found)

    def test_draws_are_the_authors_nested_and_without_repeats(self):
        """One generator per seed; class by class, the first of a permutation of the indices where the label is."""
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [9, 12, 10, 30, 11, 9]))
        generator = np.random.default_rng(2)
        wanted = [generator.permutation(np.where(labels == c)[0]) for c in range(6)]
        for shots in (1, 5, 9):
            drawn = draw(labels, 6, shots, seed=2)
            assert np.array_equal(drawn, np.concatenate([each[:shots] for each in wanted]))
            assert len(set(drawn.tolist())) == len(drawn) == 6 * shots
        assert not np.array_equal(draw(labels, 6, 5, seed=2), draw(labels, 6, 5, seed=3))

    def test_bad_input(self):
        x, y = problem(38, 5, 4)  # 10, 10, 9, 9
        with pytest.raises(ValueError, match="class 2 has 9 training images, but 10 shots are asked for"):
            few_shot(x, y, x, y, 4, FewShot(shots=(1, 10)))
        with pytest.raises(ValueError, match="labels run from 0 to 3, but 0 to 2 is expected"):
            few_shot(x, y, x, y, 3)
        bad = x.clone()
        bad[3, 2] = float("nan")
        for train, test, where in ((bad, x, "train"), (x, bad, "test")):
            with pytest.raises(ValueError, match=f"{where}: the features of 1 of 38 .* are NaN or infinite, image 3"):
                few_shot(train, y, test, y, 4)
