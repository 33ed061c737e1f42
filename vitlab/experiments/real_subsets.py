"""ViT against ResNet from scratch on ever larger parts of real sets, both tuned at every size (§4.3, Fig. 3)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.data import datasets
from vitlab.data.loader import batches, epoch_order
from vitlab.experiments import scaling
from vitlab.experiments.scaling_statistics import differences_by_family
from vitlab.experiments.tuning import scores
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.training.evaluate import evaluate
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import Splits, subset


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    sizes: dict[str, tuple[int, ...]]  # real set → training images
    models: tuple[str, str]  # a ViT and the ResNet of equal compute
    rates: tuple[float, ...]  # learning rates that are tried for both models
    steps: int  # of every training: equal views
    n_test: int  # and as many for validation; fewer where the set has fewer
    n_seeds: int
    image_size: int = 32  # pixels
    batch_size: int = 128
    precision: str = "fp32"


CONFIGS = {
    "smoke": StudyConfig(
        {"digits": (32, 64)}, ("Lab-Ti/4", "BiT-Lab-Ti/4"), (1e-3, 4e-3), 4, 60, 2, image_size=16, batch_size=16
    ),
    "full": StudyConfig(
        {"cifar10": (500, 2_000, 8_000, 49_000), "digits": (100, 400, 1_300)},
        ("Lab-Ti/8", "BiT-Lab-Ti/8"),
        (5e-4, 2e-3, 8e-3),
        steps=1_000,
        n_test=1_000,
        n_seeds=5,
        precision="bf16",
    ),
}


def real_subsets(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train both families on parts of real sets: source, model, n_train, seed, learning_rate, accuracies (0…1).

    `chosen` and `differences` make the comparison from it. Sets that are not present are left out.
    """
    folder = folder or runner.run_folder("real_subsets", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run there is to do; real sets that are not present are left out.

    >>> len(planned_runs("smoke"))
    16
    """
    config = presets.choose(CONFIGS, preset)
    present = set(scaling.real_sets().split())
    cases = [(source, n) for source, sizes in config.sizes.items() for n in sizes if source in present]
    names = ("steps", "n_test", "image_size", "batch_size", "precision")
    return [
        {"source": source, "model": model, "n_train": n_train, "seed": 100 * seed + s, "learning_rate": rate}
        | {name: getattr(config, name) for name in names}
        for s, (source, n_train), model, rate in itertools.product(
            range(config.n_seeds), cases, config.models, config.rates
        )
    ]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model on a part of a real set, with crops and (but for digits) flips; one row."""
    steps, side, n_test, device = config["steps"], config["image_size"], config["n_test"], default_device()
    splits = splits_of(config["source"], side, config["n_train"], n_test, n_test, config["seed"])
    recipe = Recipe(
        steps=steps,
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        warmup_steps=steps // 10,
        eval_every=max(1, steps // 10),
        patience=5,
        precision=config["precision"],
        seed=config["seed"],
    )
    shape = {"n_classes": len(splits.train.classes), "image_size": side}
    model = zoo.create(config["model"], **shape, seed=recipe.seed).to(device)
    augmentation = scaling.augmentation(config["source"], side)
    feed = batches(splits.train, recipe.batch_size, recipe.seed, device, augmentation)
    rows = train(model, feed, recipe, validation=splits.validation)
    best = max(row["val_accuracy"] for row in rows)
    accuracy = evaluate(model, splits.test)["accuracy"]
    return [{"validation_accuracy": best, "test_accuracy": accuracy, "train_loss": rows[-1]["train_loss"]}]


def splits_of(source: str, image_size: int, n_train: int, n_validation: int, n_test: int, seed: int) -> Splits:
    """Parts of a real set: each seed draws training and validation images of its own.

    Larger training parts contain the smaller ones. Validation images are training images that were left out: fewer than
    asked for where fewer are left. The test images are the same for every seed.

    Raises ValueError where no training image is left for validation.

    >>> [len(part) for part in vars(splits_of("digits", 8, 100, 50, 40, seed=1)).values()]
    [100, 50, 40]
    """
    images, test = (datasets.load(source, split, image_size=image_size) for split in ("train", "test"))
    if n_train >= len(images):
        raise ValueError(f"n_train={n_train:,}: expected fewer, for {source} has {len(images):,} images to train on")
    order = epoch_order(len(images), seed=seed, epoch=0)
    n_validation = min(n_validation, len(images) - n_train)
    few = subset(test, epoch_order(len(test), seed=0, epoch=0)[:n_test])
    return Splits(subset(images, order[:n_train]), subset(images, order[len(images) - n_validation :]), few)


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of each model at its best rate for each set and size, by `tuning.scores`: source, n_train, model, seed,
    learning_rate, test_accuracy."""
    by = ["source", "n_train", "model"]
    best = (
        scores(table, [*by, "learning_rate"])
        .groupby(level=by)
        .idxmax()
        .map(lambda key: key[-1])
        .rename("best")
        .reset_index()
    )
    merged = table.merge(best, on=by)
    columns = [*by, "seed", "learning_rate", "test_accuracy"]
    return merged[merged["learning_rate"] == merged["best"]][columns].reset_index(drop=True)


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """ViT − ResNet of `chosen`, paired by seed: source, n_train, seed, difference (0…1)."""
    return differences_by_family(runs, "source")
