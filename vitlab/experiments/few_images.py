"""ViT and ResNet on few images, each with the learning rate and the weight decay that serve so few (§4.3, Fig. 3).

The paper tunes the regularisation where images are few (Fig. 3), and elsewhere has one recipe for all numbers of images
(Fig. 4). The latter is `data_scaling`, whose pair is compared here on the fewest of its images.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import data_scaling
from vitlab.experiments.data_scaling import StudyConfig
from vitlab.experiments.scaling import Hyperparameters
from vitlab.experiments.scaling import run_one as run_one  # what does one of `planned_runs`
from vitlab.experiments.trials import stored_trials
from vitlab.experiments.tuning import best_hyperparameters
from vitlab.sweep import presets, runner

# `data_scaling` has tried decays of 0.1 and 1, and rates up to 32e-3, on sixteen times as many images. The last two
# settings were added when the best of the others had the highest decay; with higher rates 10 is too much.
_GRID = (
    *(Hyperparameters(rate, decay) for decay in (3.0, 10.0, 1.0) for rate in (4e-3, 8e-3, 2e-3, 16e-3)),
    *(Hyperparameters(rate, 30.0) for rate in (4e-3, 2e-3)),
)


def _on_fewest(
    preset: str, trials: tuple[Hyperparameters, ...], shared: dict[str, Hyperparameters] | None = None
) -> StudyConfig:
    """The pair of `data_scaling` at a preset on the fewest of its images, without the evaluations on real images."""
    config = data_scaling.in_world_alone(preset)
    return dataclasses.replace(config, models=config.pair, sizes=config.sizes[:1], trials=trials, shared=shared)


CONFIGS = {
    "smoke": _on_fewest("smoke", _GRID[:2]),
    "full": _on_fewest("full", _GRID, best_hyperparameters(stored_trials("few_images"))),
}


def few_images(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train both models on the fewest images with every seed; rows as of `scaling.run_one`.

    Seeds and images are those of `data_scaling`: a run here and one there differ in rate and decay alone.
    """
    folder = folder or runner.run_folder("scaling", preset)
    return data_scaling.trained(presets.choose(CONFIGS, preset), folder, seed, jobs)


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study: the trials, where they are not made beforehand, then those that are compared.

    >>> len(planned_runs("smoke"))  # 12 trials, and as many models as seeds
    16
    """
    return data_scaling.all_runs(presets.choose(CONFIGS, preset), seed)


def trials(preset: str = "full", jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Make the trials of few_images_trials.json: every setting with one seed, the best with two others as well."""
    config = presets.choose(CONFIGS, preset)
    return data_scaling.halved(config, folder or runner.run_folder("few_images_sweep", preset), jobs)
