"""Accuracy against training compute for ViT, ResNet (BiT) and hybrid (§4.4, Fig. 5, Table 6)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling, frozen, presets, runner, scaling
from vitlab.experiments.scaling import Rates, Setting
from vitlab.experiments.scaling import run_one as _run_one
from vitlab.experiments.scaling_sweeps import swept


@dataclass(frozen=True)
class Settings:
    """One preset. World, rates and longest training are those of `data_scaling`, so that runs of both are made once."""

    models: tuple[str, ...]  # at least two sizes of each family
    steps: tuple[int, ...]  # how long each is trained, with a schedule of its own for each length; the last the longest
    n_train: int  # images: enough that none is seen often
    n_seeds: int


SETTINGS = {
    "smoke": Settings(
        ("Lab-Mu/4", "Lab-Ti/4", "BiT-Lab-Mu/4", "BiT-Lab-Ti/4", "R+Lab-Ti/16", "R+Lab-Ti/8"), (3, 6), 64, n_seeds=2
    ),
    "quick": Settings(
        ("Lab-Mu/8", "Lab-Ti/8", "BiT-Lab-Ti/16", "BiT-Lab-Ti/8", "R+Lab-Mu/16", "R+Lab-Ti/16"),
        (48, 192),
        12_000,
        n_seeds=3,
    ),
    "rehearsal": Settings(data_scaling.SETTINGS["rehearsal"].models, (100, 200, 400), 1_000_000, n_seeds=3),
    # Written for one large GPU and not yet run there.
    "full": Settings(data_scaling.SETTINGS["full"].models, (2_500, 5_000, 10_000), 1_000_000, n_seeds=3),
}


def compute_scaling(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None, real: str = ""
) -> pd.DataFrame:
    """Train every model for every number of steps with every seed; rows of four kinds, see `scaling.outcomes`.

    `real`: the real sets on which frozen features are evaluated; by default `scaling.real_sets()`.
    """
    settings = presets.choose(SETTINGS, preset)
    folder, real = folder or runner.run_folder("scaling", preset), real or scaling.real_sets()
    rates = _known_rates(preset, settings) or data_scaling.rates_for_all(preset, jobs, folder, real)
    return runner.run_all(_run_one, _configs(preset, settings, rates, seed, real), folder, jobs)


def configs(preset: str = "quick", seed: int = 0) -> list[dict[str, Any]]:
    """Every run there is to do, for a plan; the trials for the rates are in `data_scaling.configs`.

    >>> len(configs("quick"))
    36
    """
    settings = presets.choose(SETTINGS, preset)
    rates = _known_rates(preset, settings) or dict.fromkeys(settings.models, data_scaling.SETTINGS[preset].trials[0])
    return _configs(preset, settings, rates, seed, scaling.real_sets())


def _known_rates(preset: str, settings: Settings) -> dict[str, Rates] | None:
    return {"smoke": dict.fromkeys(settings.models, Rates(2e-3)), "quick": swept()}.get(preset)


def _configs(preset: str, settings: Settings, rates: dict[str, Rates], seed: int, real: str) -> list[dict[str, Any]]:
    longest = data_scaling.SETTINGS[preset].setting
    # Long runs first, so that none of them comes last; the models of a seed find its images painted.
    runs = itertools.product(range(settings.n_seeds), reversed(settings.steps), reversed(settings.models))
    return [
        scaling.config(_shortened(longest, steps), model, rates[model], settings.n_train, 100 * seed + s, real)
        for s, steps, model in runs
    ]


def _shortened(setting: Setting, steps: int) -> Setting:
    """The same recipe over fewer steps: warm-up and evaluations shrink with it.

    >>> short = _shortened(data_scaling.SETTINGS["quick"].setting, 96).recipe
    >>> short.steps, short.warmup_steps, short.eval_every
    (96, 9, 12)
    """
    recipe = setting.recipe
    shorter = {name: getattr(recipe, name) * steps // recipe.steps for name in ("warmup_steps", "eval_every")}
    shorter["eval_every"] = max(1, shorter["eval_every"])
    return dataclasses.replace(setting, recipe=dataclasses.replace(recipe, steps=steps, **shorter))


def points(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: model, seed, steps, flops (of the training), test_accuracy on the world's classes, and
    few_shot: ten images of each of its other classes (0…1)."""
    runs = scaling.outcomes(table)
    shots = scaling.few_shots(table)
    near = shots[shots["target"] == frozen.NEAR].set_index(["model", "seed", "steps"])["accuracy"].rename("few_shot")
    columns = ["model", "seed", "steps", "flops", "test_accuracy"]
    return runs[columns].join(near, on=["model", "seed", "steps"])
