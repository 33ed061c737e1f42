"""Accuracy against training compute for ViT, ResNet (BiT) and hybrid (§4.4, Fig. 5, Table 6)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling, frozen, scaling
from vitlab.experiments.scaling import Hyperparameters, RunConfig, planned_run, run_one
from vitlab.sweep import presets, runner

# As many tokens as the ViTs have. Those of `quick` have a quarter of them and take a third of the time.
HYBRIDS = ("R+Lab-Ti/8", "R+Lab-Mu/8")


@dataclass(frozen=True)
class StudyConfig:
    """One preset. World, hyper-parameters and longest training are `data_scaling`'s: runs of both are made once."""

    models: tuple[str, ...]  # at least two sizes of each family
    steps: tuple[int, ...]  # rising; each length has a learning-rate schedule of its own
    n_train: int  # images: so many that none is seen often
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        ("Lab-Mu/4", "Lab-Ti/4", "BiT-Lab-Mu/4", "BiT-Lab-Ti/4", "R+Lab-Ti/16", "R+Lab-Ti/8"), (3, 6), 64, n_seeds=2
    ),
    "quick": StudyConfig(
        data_scaling.COMPARED,
        (48, 192),
        12_000,
        n_seeds=3,
    ),
    # After five seeds C07 was undecided, and the ledger said that about nine would decide.
    "full": StudyConfig((*data_scaling.COMPARED[:4], *HYBRIDS), (60, 350, 2_000), 256_000, n_seeds=9),
    # Not run yet.
    "gpu": StudyConfig(data_scaling.CONFIGS["gpu"].models, (2_500, 5_000, 10_000), 1_000_000, n_seeds=3),
}


def compute_scaling(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None, real: str = ""
) -> pd.DataFrame:
    """Train every model for every number of steps with every seed; rows of four kinds, see `scaling.run_one`.

    `real`: the real sets on which frozen features are evaluated; by default those of `data_scaling.evaluated`.
    """
    config, folder = presets.choose(CONFIGS, preset), folder or runner.run_folder("scaling", preset)
    longest = data_scaling.configured(preset, real)
    shared = data_scaling.shared_hyperparameters(longest, folder, jobs)
    return runner.run_all(run_one, _runs(config, longest.run, shared, seed), folder, jobs)


def planned_runs(preset: str = "quick", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study; the trials that choose its hyper-parameters are in `data_scaling.planned_runs`.

    >>> len(planned_runs("quick"))
    36
    """
    config, longest = presets.choose(CONFIGS, preset), data_scaling.configured(preset)
    shared = data_scaling.assumed_hyperparameters(preset)
    return _runs(config, longest.run, shared, seed)


def of_seed(preset: str, seed: int, families: Collection[str]) -> list[dict[str, Any]]:
    """The runs of these families ("ViT", "ResNet", "hybrid") with this seed, without evaluations on real images.

    >>> len(of_seed("full", seed=200, families=["ViT", "hybrid"]))  # two sizes of two families, three lengths
    12
    """
    config, longest = presets.choose(CONFIGS, preset), data_scaling.in_world_alone(preset)
    models = tuple(model for model in config.models if _family(model) in families)
    return _of_seed(dataclasses.replace(config, models=models), longest.run, longest.assumed, seed)


def _family(model: str) -> str:
    return {"R+": "hybrid", "Bi": "ResNet"}.get(model[:2], "ViT")


def _runs(
    config: StudyConfig, longest: RunConfig, shared: dict[str, Hyperparameters], seed: int
) -> list[dict[str, Any]]:
    seeds = range(100 * seed, 100 * seed + config.n_seeds)
    runs = [run for s in seeds for run in _of_seed(config, longest, shared, s)]
    return data_scaling.evaluated(runs, longest.real)


def _of_seed(
    config: StudyConfig, longest: RunConfig, shared: dict[str, Hyperparameters], seed: int
) -> list[dict[str, Any]]:
    # Long runs first, so that none of them comes last; the models of a seed find its images painted.
    return [
        planned_run(_shortened(longest, steps), model, shared[model], config.n_train, seed)
        for steps, model in itertools.product(reversed(config.steps), reversed(config.models))
    ]


def _shortened(run: RunConfig, steps: int) -> RunConfig:
    """The same recipe over fewer steps: warm-up and the interval between evaluations shrink with it.

    >>> short = _shortened(data_scaling.CONFIGS["quick"].run, 96).recipe
    >>> short.steps, short.warmup_steps, short.eval_every
    (96, 9, 12)
    """
    recipe = run.recipe
    warmup, interval = (number * steps // recipe.steps for number in (recipe.warmup_steps, recipe.eval_every))
    recipe = dataclasses.replace(recipe, steps=steps, warmup_steps=warmup, eval_every=max(1, interval))
    return dataclasses.replace(run, recipe=recipe)


def points(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: model, seed, steps, flops (of the training), test_accuracy on the world's classes, and
    few_shot: the accuracy with ten images of each of its other classes (0…1)."""
    runs, shots = scaling.accuracies(table), scaling.few_shots(table)
    key = ["model", "seed", "steps"]
    others = shots[shots["target"] == frozen.OTHER_CLASSES].set_index(key)["accuracy"].rename("few_shot")
    return runs[[*key, "flops", "test_accuracy"]].join(others, on=key)
