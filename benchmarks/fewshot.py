"""Cost of few-shot accuracy: every shots and seed, against scikit-learn's Ridge(alpha, fit_intercept=False).

Every row is a ratio of interleaved pairs in one run, ours, Ridge, Ridge, ours …, and the median of the pairs' ratios.
"weights" ends with the weights; "accuracy" goes on to score the test images, the same products for both sides.

    OMP_NUM_THREADS=2 python benchmarks/fewshot.py     # 10,000 × 768 features, 100 classes
    OMP_NUM_THREADS=2 python benchmarks/fewshot.py --images 5000 --dim 384 --classes 50 --test 10000
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.linear_model import Ridge
from timing import paired

from vitlab.probes import BIAS, FewShot, classifier, draw, few_shot
from vitlab.settings import mapped

Sample = tuple[torch.Tensor, torch.Tensor]
Arrays = tuple[np.ndarray, np.ndarray]  # features in float64, labels


def sample(n: int, dim: int, n_classes: int, seed: int) -> Sample:
    """Features around a centre per class, correlated and of unequal scale, and their balanced labels."""
    shared, own = np.random.default_rng(0), np.random.default_rng(seed)
    centres, mixing = shared.normal(size=(n_classes, dim)), shared.normal(size=(dim, dim)) / dim**0.5
    labels = np.arange(n) % n_classes
    values = (0.5 * centres[labels] + own.normal(size=(n, dim)) @ mixing * np.linspace(0.2, 4, dim)) + 1
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels)


def as_float64(images: Sample) -> Arrays:
    """The sample as arrays."""
    return images[0].double().numpy(), images[1].numpy()


def ridge_each(train: Arrays, test: Arrays | None, n_classes: int, settings: FewShot) -> list:
    """One call of Ridge per combination: its weights, or the accuracy on the test images where there are some."""
    (x, y), held = train, None if test is None else test[0]
    found = []
    for shots in settings.shots:
        for seed in range(settings.n_seeds):
            drawn = draw(y, n_classes, shots, seed)
            mean, std = x[drawn].mean(0), x[drawn].std(0) + 1e-5
            rows = np.column_stack([(x[drawn] - mean) / std, np.full(len(drawn), BIAS)])
            targets = 2.0 * np.eye(n_classes)[y[drawn]] - 1.0
            if held is not None:
                held_rows = np.column_stack([(held - mean) / std, np.full(len(held), BIAS)])
            model = Ridge(alpha=settings.ridge, fit_intercept=False).fit(rows, targets)
            if held is None:
                found.append((mean, std, model.coef_.T))
            else:
                found.append((model.predict(held_rows).argmax(1) == test[1]).mean())
    return found


def weights_each(train: Arrays, n_classes: int, settings: FewShot) -> list:
    """Our weights and offsets, a pair per shots and seed."""
    x, y = train

    def solved(which: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        rows = draw(y, n_classes, *which)
        return classifier(x[rows], y[rows], n_classes, settings.ridge)

    draws = [(shots, seed) for shots in settings.shots for seed in range(settings.n_seeds)]
    return mapped(solved, draws[::-1])[::-1]  # as few_shot does


def disagreement(train: Arrays, test: Arrays, n_classes: int, settings: FewShot) -> tuple[float, int]:
    """Largest difference of any score, and the number of predictions that differ, over all combinations."""
    held, largest, differing = test[0], 0.0, 0
    ours, theirs = weights_each(train, n_classes, settings), ridge_each(train, None, n_classes, settings)
    for (weights, offsets), (mean, std, coefficients) in zip(ours, theirs, strict=True):
        wanted = (held - mean) / std @ coefficients[:-1] + BIAS * coefficients[-1]
        scores = held @ weights + offsets
        largest = max(largest, np.abs(scores - wanted).max())
        differing += int((scores.argmax(1) != wanted.argmax(1)).sum())
    return largest, differing


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000, help="training images")
    parser.add_argument("--test", type=int, default=1000, help="test images")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    n_classes = arguments.classes
    train, test = (sample(n, arguments.dim, n_classes, s) for s, n in enumerate((arguments.images, arguments.test), 1))
    every = FewShot()
    train_arrays = as_float64(train)
    largest, differing = disagreement(train_arrays, as_float64(test), n_classes, every)
    scored = len(every.shots) * every.n_seeds * arguments.test
    print(f"{arguments.images} × {arguments.dim} features, {n_classes} classes, 3 seeds")
    print(f"largest difference of a score {largest:.1e}; {differing} of {scored} predictions differ")
    print(f"\n{'shots':>12}{'':>12}{'ours s':>9}{'Ridge s':>9}{'ratio':>8}")
    for name, settings in {
        **{str(s): FewShot(shots=(s,)) for s in every.shots},
        "1,5,10,25": every,
        "all, 1 seed": FewShot(shots=(arguments.images // n_classes,), n_seeds=1),
    }.items():
        times = paired(
            lambda settings=settings: weights_each(train_arrays, n_classes, settings),
            lambda settings=settings: ridge_each(train_arrays, None, n_classes, settings),
            arguments.pairs,
        )
        print("{:>12}{:>12}{:9.3f}{:9.3f}{:8.1f}".format(name, "weights", *times))
    times = paired(
        lambda: few_shot(*train, *test, n_classes, every),
        lambda: ridge_each(as_float64(train), as_float64(test), n_classes, every),
        arguments.pairs,
    )
    print("{:>12}{:>12}{:9.3f}{:9.3f}{:8.1f}".format("1,5,10,25", "accuracy", *times))


if __name__ == "__main__":
    main()
