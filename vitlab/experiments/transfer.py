"""Transfer of ViT and ResNet (BiT): fine-tuned at three resolutions, few-shot, linear probe (§3.2, §4.1, Table 4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments.transfer_runs import ARMS, SCRATCH, finetunings, lab_recipe, run_one, try_rates
from vitlab.experiments.trials import TRIAL_SEED, TRIAL_SEEDS, stored_trials
from vitlab.sweep import presets, runner
from vitlab.training.recipe import Recipe

Key = tuple[str, str, str, str]  # model, source, target, arm


@dataclass(frozen=True)
class StudyConfig:
    """One preset. A run is one model, one source and one seed; it is fine-tuned on every target.

    What follows from the first source and the first target decides C08 and C21. The control from scratch is part of the
    first source's runs.
    """

    sources: dict[str, dict[str, float]]  # to pre-train on → a ViT, the ResNet of equal compute → learning rate
    targets: tuple[str, ...]  # to fine-tune on
    pretraining: Recipe
    n_source: int  # images of a world; 0: endless, and every seed sees images of its own
    rates: dict[Key, tuple[float, ...]]  # learning rates (for a batch of 512, as in Table 4); no entry, no fine-tuning
    epochs: int  # of fine-tuning
    batch_size: int  # of fine-tuning
    n_train: int  # images of a target, at most
    n_test: int  # images of a target, at most
    n_near: int  # images of the world's other classes, for training, and as many for testing
    n_seeds: int  # each with weights, order and draws of its own
    grid: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0)  # learning rates that `sweep` tries
    trial_seeds: tuple[int, ...] = (TRIAL_SEED,)
    image_size: int = 32  # pixels, of pre-training
    difficulty: float = 1.0  # of the world, see `with_difficulty`

    @property
    def models(self) -> tuple[str, ...]:
        """A ViT, and the ResNet of equal compute."""
        return tuple(next(iter(self.sources.values())))

    @property
    def source(self) -> str:
        """The source that decides the claims."""
        return next(iter(self.sources))


def _best_rates(table: str) -> dict[Key, tuple[float, ...]]:
    """Of every fine-tuning that was tried the learning rate of the highest held-out accuracy, the mean of the seeds."""
    names = ["model", "source", "target", "arm"]
    tried = stored_trials("transfer", table)
    mean = tried.groupby([*names, "learning_rate"], sort=False)["held_out_accuracy"].mean()
    return {key: (float(rates.idxmax()[-1]),) for key, rates in mean.groupby(level=names, sort=False)}


def _keys(sources: dict[str, dict[str, float]], arms: dict[str, tuple[str, ...]]) -> list[Key]:
    """Every fine-tuning of every model: `arms` by target, those from scratch with the first source alone."""
    control = next(iter(sources))
    return [
        (model, source, target, arm)
        for source, models in sources.items()
        for model in models
        for target, its_arms in arms.items()
        for arm in its_arms
        if arm != SCRATCH or source == control
    ]


_WORLD = {"world": {"Lab-Ti/8": 4e-3, "BiT-Lab-Ti/8": 16e-3}}  # the best of `training_curves`' trials
_GPU = {"world": dict.fromkeys(("Lab-S/4", "BiT-Lab-S/4"), 1e-3)}  # not tuned
_DIGITS = {"digits": tuple(ARMS)}
# Photographs are cut out of files of 128 px: their detail grows with the side up to there. CIFAR-10's have 32 px, and
# no more detail at any other side: they are enlarged to the side of pre-training, whose patches they then have.
_PHOTOGRAPHS = {"imagenette": tuple(ARMS), "cifar10": ("1x", SCRATCH)}
_MANY = {
    "imagenette": {"Lab-Ti/8": 2e-3, "BiT-Lab-Ti/8": 6e-3},
    "world-300": {"Lab-Ti/8": 2e-3, "BiT-Lab-Ti/8": 6e-3},
}
CONFIGS = {
    "smoke": StudyConfig(
        sources=_WORLD,
        targets=("digits",),
        pretraining=Recipe(steps=4, batch_size=16, warmup_steps=1),
        n_source=64,
        rates={key: (1.0, 3.0)[: 1 + (key[-1] == "1x")] for key in _keys(_WORLD, _DIGITS)},
        epochs=2,
        batch_size=100,
        n_train=400,
        n_test=100,
        n_near=300,
        n_seeds=2,
        image_size=16,
    ),
    "quick": StudyConfig(
        sources=_WORLD,
        targets=("digits",),
        pretraining=Recipe(steps=200, batch_size=128, warmup_steps=20),
        n_source=10_000,
        rates=_best_rates("trials"),
        epochs=6,
        batch_size=32,
        n_train=1_000,
        n_test=2_000,
        n_near=1_000,
        n_seeds=3,
    ),
    "full": StudyConfig(
        sources=_MANY,
        targets=("imagenette", "cifar10"),
        pretraining=Recipe(steps=1_500, batch_size=64, warmup_steps=75, precision="bf16"),
        n_source=0,
        # What no trial is stored of has a rate at which both families learned in the pilot.
        rates=dict.fromkeys(_keys(_MANY, _PHOTOGRAPHS), (1.0,)) | _best_rates("full"),
        epochs=6,
        batch_size=32,
        n_train=2_500,
        n_test=2_000,
        n_near=1_000,
        n_seeds=9,  # after five, C21 was undecided, and the ledger said that about nine would decide
        grid=(0.1, 0.3, 1.0, 3.0),
        trial_seeds=TRIAL_SEEDS[1:],
        image_size=64,
        difficulty=0.5,
    ),
    "gpu": StudyConfig(  # not run yet
        sources=_GPU,
        targets=("digits",),
        pretraining=Recipe(steps=20_000, batch_size=256, warmup_steps=1_000, precision="bf16"),
        n_source=1_000_000,
        rates=dict.fromkeys(_keys(_GPU, _DIGITS), StudyConfig.grid),
        epochs=20,
        batch_size=128,
        n_train=50_000,
        n_test=10_000,
        n_near=10_000,
        n_seeds=5,
    ),
}


def transfer(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None, data: str = ""
) -> pd.DataFrame:
    """Pre-train every model with every seed on every source, and fine-tune these weights on every target in every arm.

    `transfer_tables` takes the rows apart. `data` stands in place of the preset's targets: any set that `datasets.load`
    knows, or "world", images in the world's style of other classes; it has the learning rates of the first target.
    Nothing is chosen by the test set.
    """
    folder = folder or runner.run_folder("transfer", preset)
    return runner.run_all(run_one, planned_runs(preset, seed, data), folder, jobs)


def planned_runs(preset: str = "quick", seed: int = 0, data: str = "") -> list[dict[str, Any]]:
    """Every run of the study, seed by seed.

    >>> len(planned_runs("full"))
    36
    """
    config = presets.choose(CONFIGS, preset)
    return _runs(config, range(100 * seed, 100 * seed + config.n_seeds), config.rates, data)


def sweep(preset: str = "quick", jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Try every learning rate of a preset's grid for every fine-tuning, with seeds that no study uses.

    A row for each trial, with the columns of the preset's table in transfer_trials.json: "full", or "trials" of quick.
    """
    config, folder = presets.choose(CONFIGS, preset), folder or runner.run_folder("transfer_sweep", preset)
    runs = _runs(config, config.trial_seeds, dict.fromkeys(config.rates, config.grid))
    names = ["model", "source", "target", "arm", "seed", "learning_rate", "held_out_accuracy"]
    rows = runner.run_all(try_rates, runs, folder, jobs)
    return rows.assign(learning_rate=rows["rate"])[names]  # that of the fine-tuning, not of the pre-training


def _runs(
    config: StudyConfig, seeds: Iterable[int], rates: dict[Key, tuple[float, ...]], data: str = ""
) -> list[dict[str, Any]]:
    recipe = config.pretraining
    names = ("image_size", "n_source", "difficulty", "epochs", "n_train", "n_test", "n_near")
    # Under the names that `vitlab experiment --plan` counts by.
    shared = {name: getattr(recipe, name) for name in ("steps", "batch_size", "warmup_steps", "precision")}
    shared |= {name: getattr(config, name) for name in names} | {"finetuning_batch": config.batch_size}
    targets = {data: config.targets[0]} if data else {target: target for target in config.targets}
    return [
        {"source": source, "model": model, "seed": s, "learning_rate": rate, "targets": " ".join(targets)}
        | shared
        | {
            f"rates {target} {arm}": " ".join(map(str, rates.get((model, source, tuned_on, arm), ())))
            for (target, tuned_on), arm in itertools.product(targets.items(), ARMS)
        }
        for s, (source, models) in itertools.product(seeds, config.sources.items())
        for model, rate in models.items()
    ]


def trainings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The trainings of one run, its pre-training and its fine-tunings, as `vitlab experiment transfer --plan` counts.

    >>> [each["image_size"] for each in trainings(planned_runs("full")[0])]
    [64, 64, 96, 128, 64, 64, 64]
    """
    names = ("model", "image_size", "batch_size", "steps", "precision")
    found = [{name: config[name] for name in names} | {"n_train": config["n_source"]}]
    for _, _, side, rates in finetunings(config):
        recipe = lab_recipe(config["n_train"], config["finetuning_batch"], config["epochs"], rates[0])
        sizes = {"n_train": config["n_train"], "n_test": config["n_test"], "image_size": side}
        steps = {"batch_size": recipe.batch_size, "steps": recipe.steps}
        found += [found[0] | sizes | steps for _ in rates]
    return found
