"""Transfer of ViT and ResNet (BiT): fine-tuned at three resolutions, few-shot, linear probe (§3.2, §4.1, Table 4)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.evaluation.probe import Probe
from vitlab.experiments import frozen
from vitlab.experiments.frozen import OTHER_CLASSES, target
from vitlab.experiments.trials import TRIAL_SEED, stored_trials
from vitlab.ledger.intervals import mean_interval
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.training import paper
from vitlab.training.finetune import finetune
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import world_splits

ARMS = {"1x": 1.0, "1.5x": 1.5, "2x": 2.0, "scratch": 1.0}  # fine-tunings of a run → image side over pre-training's
TABLE_4 = next(row for row in paper.TABLE_4 if row.data == "Flowers-102")  # the row for small sets
_PROBE = Probe(max_steps=5_000)


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    models: dict[str, float]  # a ViT and the ResNet of equal compute → learning rate of their pre-training
    pretraining: Recipe
    n_world: int  # images of pre-training
    rates: dict[tuple[str, str], tuple[float, ...]]  # model, arm → learning rates (for a batch of 512, as in Table 4)
    epochs: int  # of fine-tuning
    batch_size: int  # of fine-tuning
    n_train: int  # images of the target, at most
    n_test: int  # images of the target, at most
    n_near: int  # images of the world's other classes, for training, and as many for testing
    n_seeds: int  # each with weights, order and draws of its own
    image_size: int = 32  # pixels, of pre-training


def _best_rates() -> dict[tuple[str, str], tuple[float, ...]]:
    trials = stored_trials("transfer").set_index("learning_rate").groupby(["model", "arm"], sort=False)
    return {key: (float(rate),) for key, rate in trials["held_out_accuracy"].idxmax().items()}


_GRID = (0.3, 1.0, 3.0, 10.0, 30.0)
_QUICK = {"Lab-Ti/8": 4e-3, "BiT-Lab-Ti/8": 16e-3}  # the best of `training_curves`' trials
_GPU = dict.fromkeys(("Lab-S/4", "BiT-Lab-S/4"), 1e-3)  # not tuned
CONFIGS = {
    "smoke": StudyConfig(
        models=_QUICK,
        pretraining=Recipe(steps=4, batch_size=16, warmup_steps=1),
        n_world=64,
        rates={(model, arm): (1.0, 3.0)[: 1 + (arm == "1x")] for model in _QUICK for arm in ARMS},
        epochs=2,
        batch_size=100,
        n_train=400,
        n_test=100,
        n_near=300,
        n_seeds=2,
        image_size=16,
    ),
    "quick": StudyConfig(
        models=_QUICK,
        pretraining=Recipe(steps=200, batch_size=128, warmup_steps=20),
        n_world=10_000,
        rates=_best_rates(),
        epochs=6,
        batch_size=32,
        n_train=1_000,
        n_test=2_000,
        n_near=1_000,
        n_seeds=3,
    ),
    "gpu": StudyConfig(  # not run yet
        models=_GPU,
        pretraining=Recipe(steps=20_000, batch_size=256, warmup_steps=1_000, precision="bf16"),
        n_world=1_000_000,
        rates={(model, arm): _GRID for model in _GPU for arm in ARMS},
        epochs=20,
        batch_size=128,
        n_train=50_000,
        n_test=10_000,
        n_near=10_000,
        n_seeds=5,
    ),
}
CONFIGS["full"] = dataclasses.replace(CONFIGS["quick"], n_seeds=5)


def transfer(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None, data: str = "digits"
) -> pd.DataFrame:
    """Pre-train every family with every seed on the world, and fine-tune these weights on `data` in every arm.

    `evaluations`, `trials`, `few_shots` and `probes` take the rows apart. `data` is any set that `datasets.load` knows,
    or "world": images in the world's style of other classes. Nothing is chosen by the test set.
    """
    config, folder = presets.choose(CONFIGS, preset), folder or runner.run_folder("transfer", preset)
    runs = [
        _planned_run(config, model, data, s, config.rates)
        for model in config.models
        for s in range(100 * seed, 100 * seed + config.n_seeds)
    ]
    return runner.run_all(run_one, runs, folder, jobs)


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Make the trials of transfer_trials.json again, a row for each, as `trials` gives them."""
    config, folder = CONFIGS["quick"], folder or runner.run_folder("transfer_sweep", "quick")
    grids = dict.fromkeys(config.rates, _GRID)
    runs = [_planned_run(config, model, "digits", TRIAL_SEED, grids) for model in config.models]
    return trials(runner.run_all(run_one, runs, folder, jobs))


def _planned_run(config: StudyConfig, model: str, data: str, seed: int, rates: dict) -> dict[str, Any]:
    recipe = config.pretraining
    return {
        "data": data,
        "model": model,
        "seed": seed,
        "pretraining_rate": config.models[model],
        "pretraining_steps": recipe.steps,
        "pretraining_batch": recipe.batch_size,
        "pretraining_warmup": recipe.warmup_steps,
        "pretraining_precision": recipe.precision,
        "pretraining_size": config.image_size,
        "n_world": config.n_world,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "n_train": config.n_train,
        "n_test": config.n_test,
        "n_near": config.n_near,
    } | {f"rates_{arm}": " ".join(map(str, rates.get((model, arm), ()))) for arm in ARMS}


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Pre-train one model with one seed, fine-tune it in every arm, and evaluate its frozen features."""
    side, seed, device = config["pretraining_size"], config["seed"], default_device()
    splits = world_splits(World(image_size=side), config["n_world"], 0, config["n_near"])
    recipe = Recipe(
        steps=config["pretraining_steps"],
        batch_size=config["pretraining_batch"],
        learning_rate=config["pretraining_rate"],
        warmup_steps=config["pretraining_warmup"],
        precision=config["pretraining_precision"],
        seed=seed,
    )
    shape = {"n_classes": len(splits.train.classes), "image_size": side}
    trained = zoo.create(config["model"], **shape, seed=seed).to(device)
    pretraining = train(trained, batches(splits.train, recipe.batch_size, seed, device), recipe, validation=splits.test)
    # The initial weights of the pre-training: nothing but the pre-training differs.
    untrained = zoo.create(config["model"], **shape, seed=seed).to(device)
    rows = [{"kind": "pretraining", "test_accuracy": pretraining[-1]["val_accuracy"]}]
    for arm in ARMS:
        if config[f"rates_{arm}"]:
            rows += _finetuned(config, arm, untrained if arm == "scratch" else trained)
    for weights, model in (("pre-trained", trained), ("untrained", untrained)):
        rows += _frozen(config, weights, model)
    return rows


def _finetuned(config: dict[str, Any], arm: str, source: nn.Module) -> Iterator[dict[str, Any]]:
    """Rows of one fine-tuning: an evaluation after every epoch, and every learning rate tried."""
    side = round(ARMS[arm] * config["pretraining_size"])
    train = target(config["data"], "train", side, config["n_train"])
    test = target(config["data"], "test", side, config["n_test"])
    recipe = functools.partial(lab_recipe, len(train), config["batch_size"], config["epochs"])
    rates = [float(rate) for rate in config[f"rates_{arm}"].split()]
    done = finetune(source, train, recipe, rates, held_out=TABLE_4.held_out, seed=config["seed"], watch=test)
    where = {"arm": arm, "image_size": side}
    for epoch, row in enumerate(done.rows):
        measured = {"epoch": epoch, "test_accuracy": row["val_accuracy"], "seconds": row["seconds"]}
        yield {"kind": "evaluation", **where, "learning_rate": done.learning_rate, **measured}
    for rate, accuracy in done.trials.items():
        yield {"kind": "trial", **where, "learning_rate": rate, "held_out_accuracy": accuracy}


def lab_recipe(n_train: int, batch_size: int, epochs: int, learning_rate: float) -> Recipe:
    """Table 4 for a small set: smaller batches, and the learning rate (for a batch of 512) scaled with them.

    >>> recipe = lab_recipe(n_train=1437, batch_size=32, epochs=6, learning_rate=1.6)
    >>> recipe.optimizer, recipe.steps, recipe.learning_rate, recipe.weight_decay, recipe.grad_clip
    ('sgd', 270, 0.1, 0.0, 1.0)
    """
    epoch = math.ceil(n_train / batch_size)  # steps
    recipe = paper.lab(TABLE_4.recipe(learning_rate), batch_size, samples=epochs * epoch * batch_size)
    return dataclasses.replace(recipe, eval_every=epoch)


def _frozen(config: dict[str, Any], weights: str, model: nn.Module) -> Iterator[dict[str, Any]]:
    """Rows of few-shot least squares and linear probe, on the target and on the world's other classes."""
    targets = {
        config["data"]: (config["n_train"], config["n_test"]),
        OTHER_CLASSES: (config["n_near"], config["n_near"]),
    }
    for row in frozen.evaluations(model, targets, config["pretraining_size"], config["seed"], probe=_PROBE):
        yield row | {"weights": weights}


def evaluations(table: pd.DataFrame) -> pd.DataFrame:
    """One row for every epoch of every fine-tuning: model, seed, arm, image_size, learning_rate, epoch, test_accuracy,
    seconds, and share: of the accuracy after the last epoch."""
    rows = table[table["kind"] == "evaluation"].astype({"epoch": int, "image_size": int})
    columns = ["model", "seed", "arm", "image_size", "learning_rate", "epoch", "test_accuracy", "seconds"]
    last = rows.groupby(["model", "seed", "arm"])["test_accuracy"].transform("last")
    return rows[columns].assign(share=rows["test_accuracy"] / last).reset_index(drop=True)


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of `evaluations` for every fine-tuning."""
    return evaluations(table).groupby(["model", "seed", "arm"], sort=False).tail(1).reset_index(drop=True)


def trials(table: pd.DataFrame) -> pd.DataFrame:
    """One row for every learning rate tried: model, seed, arm, learning_rate, held_out_accuracy; the stored
    trials where the runs tried one rate only."""
    columns = ["model", "seed", "arm", "learning_rate", "held_out_accuracy"]
    rows = table[table["kind"] == "trial"]
    if len(rows):
        return rows[columns].reset_index(drop=True)
    return stored_trials("transfer").assign(seed=TRIAL_SEED)[columns]


def few_shots(table: pd.DataFrame) -> pd.DataFrame:
    """Few-shot accuracy, the mean of the draws: target, model, seed, weights, shots, accuracy."""
    rows = table[table["kind"] == "few shot"].astype({"shots": int})
    columns = ["target", "model", "seed", "weights", "shots"]
    return rows.groupby(columns, sort=False)["accuracy"].mean().reset_index()


def probes(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the linear probe: target, model, seed, weights, accuracy."""
    rows = table[table["kind"] == "probe"]
    return rows[["target", "model", "seed", "weights", "accuracy"]].reset_index(drop=True)


def differences(rows: pd.DataFrame, by: str, first: str, second: str, value: str = "test_accuracy") -> pd.Series:
    """`value` where the column `by` is `first`, minus where it is `second`, paired by seed.

    >>> rows = pd.DataFrame({"seed": [0, 0], "arm": ["1x", "2x"], "test_accuracy": [0.5, 0.75]})
    >>> differences(rows, "arm", "2x", "1x").to_dict()
    {0: 0.25}
    """
    wide = rows.pivot(index="seed", columns=by, values=value)
    return wide[first] - wide[second]


def summary(rows: pd.DataFrame, by: Sequence[str], value: str = "test_accuracy") -> pd.DataFrame:
    """Mean of `value` over the seeds and its 95 % t interval (the mean itself for one seed): `by`, mean, low, high, n.

    >>> rows = pd.DataFrame({"model": "a", "test_accuracy": [0.5, 0.6, 0.7]})
    >>> summary(rows, ["model"]).round(2).to_dict("records")
    [{'model': 'a', 'mean': 0.6, 'low': 0.35, 'high': 0.85, 'n': 3}]
    """
    means = []
    for key, values in rows.groupby(list(by), sort=False)[value]:
        mean = float(values.mean())
        low, high = mean_interval(values.to_numpy()) or (mean, mean)
        means.append((*key, mean, low, high, len(values)))
    return pd.DataFrame(means, columns=[*by, "mean", "low", "high", "n"])
