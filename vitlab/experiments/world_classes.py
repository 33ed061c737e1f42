"""Does pre-training on the world help on real images, and from how many classes on? (§4.1, Table 5)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling, scaling
from vitlab.experiments.scaling import MIXED, Finetuning, RunConfig, planned_run, run_one
from vitlab.sweep import presets, runner
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class StudyConfig:
    """One preset: models that are pre-trained on worlds of so many classes, and the same without any pre-training."""

    run: RunConfig
    models: tuple[str, ...]
    n_classes: tuple[int, ...]
    n_train: int  # images of each world
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        dataclasses.replace(scaling.SMOKE, finetuning=Finetuning(n_images=60, steps=3, batch_size=16)),
        ("Lab-Ti/4", "BiT-Lab-Ti/4"),
        (2, 8),
        64,
        n_seeds=2,
    ),
    "full": StudyConfig(
        RunConfig(
            Recipe(steps=2_000, batch_size=128, warmup_steps=100, eval_every=500, precision="bf16"),
            n_validation=1_000,
            n_test=2_000,
            n_frozen=1_000,
            difficulty=0.5,
            finetuning=Finetuning(n_images=5_000, steps=780),
        ),
        ("Lab-Ti/8", "BiT-Lab-Ti/8"),
        (10, 100, 1_000),
        256_000,
        n_seeds=5,
    ),
}


def world_classes(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Pre-train, and evaluate few-shot and fine-tuned on real images; rows as of `scaling.run_one`.

    Runs with n_train 0 are not pre-trained: few-shot accuracy of fresh weights, and training from scratch on the same
    images for as many steps as fine-tuning has.
    """
    return runner.run_all(run_one, planned_runs(preset, seed), folder or runner.run_folder("scaling", preset), jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study, the long ones first.

    >>> len(planned_runs("smoke"))
    12
    """
    config = presets.choose(CONFIGS, preset)
    shared = data_scaling.assumed_hyperparameters(preset)
    seeds = range(100 * seed, 100 * seed + config.n_seeds)
    worlds = [(n, config.n_train) for n in reversed(config.n_classes)] + [(config.n_classes[0], 0)]
    runs = [
        planned_run(scaling.in_world(config.run, MIXED, n_classes), model, shared[model], n_train, s)
        for s, (n_classes, n_train), model in itertools.product(seeds, worlds, config.models)
    ]
    return data_scaling.evaluated(runs, config.run.real)


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy (0…1) on real images: model, weights ("untrained", or the number of classes), seed, target, measure
    ("10-shot" or "fine-tuned": from scratch where the weights are untrained), accuracy."""
    parts = {f"{scaling.SHOTS}-shot": scaling.few_shots(table), "fine-tuned": scaling.finetuned(table)}
    rows = pd.concat([rows.assign(measure=measure) for measure, rows in parts.items()], ignore_index=True)
    classes = rows["n_classes"].astype(int).map("{:,} classes".format)
    rows["weights"] = classes.where(rows["n_train"] > 0, "untrained")
    rows = rows.assign(trained=rows["n_train"] > 0).sort_values(["trained", "n_classes"], kind="stable")
    return rows[["model", "weights", "seed", "target", "measure", "accuracy"]]
