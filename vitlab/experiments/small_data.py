"""ViT against ResNet on few images: does the images' kind, the tuning or the length of training decide? (§4.3)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.data import datasets
from vitlab.data.loader import batches, epoch_order
from vitlab.data.world import World, with_difficulty
from vitlab.experiments import scaling
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.training.evaluate import evaluate
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import Splits, subset, world_splits

# The painted images: "limited" has no rotation and one position, as the world of an early experiment; "easy" has half
# of every strength; "default" is the world that notebooks 02 and 03 train on. Other sources are real sets.
WORLDS = {
    "limited": World(position=0.0, rotation=0.0),
    "easy": with_difficulty(World(), 0.5),
    "default": World(),
}
MODELS = ("Lab-Ti/8", "BiT-Lab-Ti/8")  # a ViT and the ResNet of equal compute
UNTUNED = 1e-3  # the learning rate of both models in the arm without tuning


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    cases: tuple[tuple[str, int], ...]  # source, steps; real sets are left out where they are not present
    rates: tuple[float, ...]  # learning rates that are tried for both models
    n_train: int
    n_test: int  # and as many for validation; fewer where the set has fewer
    n_seeds: int
    image_size: int = 32  # pixels
    batch_size: int = 64


_SOURCES = ("limited", "easy", "default", "digits", "cifar10")
CONFIGS = {
    "smoke": StudyConfig(
        (("limited", 4), ("digits", 4)), (1e-3, 4e-3), n_train=32, n_test=60, n_seeds=2, image_size=16
    ),
    "full": StudyConfig(
        (*((source, 192) for source in _SOURCES), ("default", 768)),
        (UNTUNED, 4e-3, 16e-3),
        n_train=500,
        n_test=1_000,
        n_seeds=3,
    ),
}


def small_data(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train both families on few images of every source: source, model, steps, seed, learning_rate, accuracies (0…1).

    `chosen` and `differences` make the comparison from it.
    """
    folder = folder or runner.run_folder("small_data", preset)
    return runner.run_all(run_one, planned_runs(preset, seed), folder, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run there is to do; real sets that are not present are left out.

    >>> len(planned_runs("smoke"))
    16
    """
    config = presets.choose(CONFIGS, preset)
    present = {*WORLDS, *scaling.real_sets().split()}
    cases = [case for case in config.cases if case[0] in present]
    sizes = {name: getattr(config, name) for name in ("n_train", "n_test", "image_size", "batch_size")}
    return [
        {"source": source, "model": model, "steps": steps, "seed": 100 * seed + s, "learning_rate": rate} | sizes
        for (source, steps), s, model, rate in itertools.product(
            sorted(cases, key=lambda case: -case[1]), range(config.n_seeds), MODELS, config.rates
        )
    ]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model on one set of few images; one row."""
    splits, steps, device = _splits(config), config["steps"], default_device()
    recipe = Recipe(
        steps=steps,
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        warmup_steps=steps // 10,
        eval_every=max(1, steps // 8),
        patience=4,
        seed=config["seed"],
    )
    shape = {"n_classes": len(splits.train.classes), "image_size": config["image_size"]}
    model = zoo.create(config["model"], **shape, seed=recipe.seed).to(device)
    feed = batches(splits.train, recipe.batch_size, recipe.seed, device)
    rows = train(model, feed, recipe, validation=splits.validation)
    best = max(row["val_accuracy"] for row in rows)
    accuracy = evaluate(model, splits.test)["accuracy"]
    return [{"validation_accuracy": best, "test_accuracy": accuracy, "train_loss": rows[-1]["train_loss"]}]


def _splits(config: dict[str, Any]) -> Splits:
    source, n_train, n_test = config["source"], config["n_train"], config["n_test"]
    if source in WORLDS:
        world = dataclasses.replace(WORLDS[source], image_size=config["image_size"])
        return world_splits(world, n_train, n_test, n_test, draw=config["seed"])
    images = datasets.load(source, "train", image_size=config["image_size"])
    order = epoch_order(len(images), seed=config["seed"], epoch=0)  # each seed draws images of its own
    test = datasets.load(source, "test", image_size=config["image_size"])
    few = subset(test, epoch_order(len(test), seed=0, epoch=0)[:n_test])
    return Splits(subset(images, order[:n_train]), subset(images, order[n_train : n_train + n_test]), few)


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each source, length, model, seed and arm: "untuned", or "tuned" (the rate of the best mean validation
    accuracy over the seeds): source, steps, model, seed, arm, learning_rate, test_accuracy."""
    parts = [table[table["learning_rate"] == UNTUNED].assign(arm="untuned")]
    by = ["source", "steps", "model"]
    mean = table.groupby([*by, "learning_rate"])["validation_accuracy"].mean()
    best = mean.groupby(level=by).idxmax().map(lambda key: key[-1]).rename("best").reset_index()
    merged = table.merge(best, on=by)
    parts.append(merged[merged["learning_rate"] == merged["best"]].assign(arm="tuned"))
    columns = [*by, "seed", "arm", "learning_rate", "test_accuracy"]
    return pd.concat(parts, ignore_index=True)[columns]


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """ViT − ResNet, paired by seed: source, steps, arm, seed, difference (0…1)."""
    wide = runs.pivot(index=["source", "steps", "arm", "seed"], columns="model", values="test_accuracy")
    return (wide[MODELS[0]] - wide[MODELS[1]]).rename("difference").reset_index()
