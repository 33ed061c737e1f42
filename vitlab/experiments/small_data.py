"""Why a ResNet is or is not ahead on few images: the world, the tuning, the length of training, or the truth (§4.3)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.data import datasets
from vitlab.data.loader import epoch_order
from vitlab.data.world import World, with_difficulty
from vitlab.experiments import presets, runner, scaling
from vitlab.training.evaluate import evaluate
from vitlab.training.pretrain import Splits, pretrain, subset, world_splits
from vitlab.training.recipe import Recipe

# What the images are. "limited" is the world of an early trial, without rotation and position; "easy" has half of
# every strength; "default" is the world that notebooks 02 and 03 train on. The other names are real sets.
WORLDS = {
    "limited": World(position=0.0, rotation=0.0),
    "easy": with_difficulty(World(), 0.5),
    "default": World(),
}
MODELS = ("Lab-Ti/8", "BiT-Lab-Ti/8")  # a ViT and the ResNet of equal compute
UNTUNED = 1e-3  # the learning rate of a trial without tuning, for both


@dataclass(frozen=True)
class Settings:
    """One preset."""

    cases: tuple[tuple[str, int], ...]  # source, steps; real sets are left out where they are not present
    rates: tuple[float, ...]  # learning rates: both families the same trials
    n_train: int
    n_test: int  # and as many to choose by, fewer where the set has fewer
    n_seeds: int
    image_size: int = 32  # pixels
    batch_size: int = 64


_SOURCES = ("limited", "easy", "default", "digits", "cifar10")
SETTINGS = {
    "smoke": Settings((("limited", 4), ("digits", 4)), (1e-3, 4e-3), n_train=32, n_test=60, n_seeds=2, image_size=16),
    "rehearsal": Settings(
        (*((source, 192) for source in _SOURCES), ("default", 768)),
        (UNTUNED, 4e-3, 16e-3),
        n_train=500,
        n_test=1_000,
        n_seeds=3,
    ),
    # Written for one large GPU and not yet run there.
    "full": Settings(
        tuple(itertools.product(_SOURCES, (200, 2_000, 20_000))),
        (UNTUNED, 2e-3, 4e-3, 8e-3, 16e-3),
        n_train=500,
        n_test=5_000,
        n_seeds=5,
    ),
}


def small_data(
    preset: str = "rehearsal", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train both families on few images of every source: source, model, steps, seed, learning_rate, accuracies (0…1).

    `chosen` and `differences` make the comparison from it.
    """
    presets.choose(SETTINGS, preset)
    folder = folder or runner.run_folder("small_data", preset)
    return runner.run_all(_run_one, configs(preset, seed), folder, jobs)


def configs(preset: str = "rehearsal", seed: int = 0) -> list[dict[str, Any]]:
    """Every run there is to do; real sets that are not present are left out.

    >>> len(configs("smoke"))
    16
    """
    settings = presets.choose(SETTINGS, preset)
    there = {*WORLDS, *scaling.real_sets().split()}
    cases = [case for case in settings.cases if case[0] in there]
    sizes = {name: getattr(settings, name) for name in ("n_train", "n_test", "image_size", "batch_size")}
    return [
        {"source": source, "model": model, "steps": steps, "seed": 100 * seed + s, "learning_rate": rate} | sizes
        for (source, steps), s, model, rate in itertools.product(
            sorted(cases, key=lambda case: -case[1]), range(settings.n_seeds), MODELS, settings.rates
        )
    ]


def _run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    splits, steps = _splits(config), config["steps"]
    recipe = Recipe(
        steps=steps,
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        warmup_steps=steps // 10,
        eval_every=max(1, steps // 8),
        patience=4,
    )
    model, rows = pretrain(config["model"], splits.train, recipe, seed=config["seed"], watch=splits.validation)
    best = max(row["val_accuracy"] for row in rows[1:])
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
