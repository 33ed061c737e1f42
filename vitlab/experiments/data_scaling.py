"""Accuracy against the size of the training set, ViT beside ResNet (BiT) and hybrid (§4.3, Fig. 3, 4)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments.scaling import Finetuning, Hyperparameters, RunConfig, accuracies, planned_run, run_one
from vitlab.experiments.trials import TRIAL_SEEDS, stored_trials
from vitlab.experiments.tuning import best_hyperparameters, finalists
from vitlab.sweep import presets, runner
from vitlab.training.recipe import Recipe

# Two sizes of each family, every ViT with the ResNet of equal compute: the models of notebook 05 too, so that one set
# of trials serves both studies.
COMPARED = ("Lab-Ti/8", "BiT-Lab-Ti/8", "Lab-Mu/8", "BiT-Lab-Mu/8", "R+Lab-Ti/16", "R+Lab-Mu/16")


@dataclass(frozen=True)
class StudyConfig:
    """One preset: which models, on how many images, for how long. All sizes are trained by the same recipe.

    The first ViT and the first ResNet are equal in compute, and compared; the second ViT is of another size.
    """

    run: RunConfig  # its steps are an upper bound: training stops early where the validation accuracy no longer rises
    models: tuple[str, ...]
    sizes: tuple[int, ...]  # training images; each set contains the smaller ones
    n_seeds: int  # each with weights, order and training images of its own
    trials: tuple[Hyperparameters, ...]  # of every model at the middle size; the best serve all sizes
    # What was chosen, where the trials were made beforehand; None: the trials are run first.
    shared: dict[str, Hyperparameters] | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """The ViT and the ResNet that are compared."""
        is_bit = [model.startswith("BiT") for model in self.models]
        return self.models[is_bit.index(False)], self.models[is_bit.index(True)]

    @property
    def vits(self) -> list[str]:
        """The ViTs, the one first that is compared with a ResNet."""
        return [model for model in self.models if not model.startswith(("BiT", "R+"))]

    @property
    def middle(self) -> int:
        """The size of the training set in the trials."""
        return self.sizes[(len(self.sizes) - 1) // 2]

    @property
    def assumed(self) -> dict[str, Hyperparameters]:
        """What serves all sizes, as far as it is known before the trials: then the first that is tried."""
        return self.shared or dict.fromkeys(self.models, self.trials[0])


def _grid(*rates: float) -> tuple[Hyperparameters, ...]:
    return tuple(Hyperparameters(rate, decay) for decay in (0.1, 1.0) for rate in rates)


_GRID = _grid(1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3, 64e-3)
_FINALISTS = 3  # settings of each model that are tried with all seeds, of those of `full`
_SHARED = best_hyperparameters(stored_trials("data_scaling", "quick"))
_SMOKE = ("Lab-Ti/4", "BiT-Lab-Ti/4", "Lab-Mu/4", "BiT-Lab-Mu/4", "R+Lab-Ti/16", "R+Lab-Ti/8")  # notebook 05's too
CONFIGS = {
    "smoke": StudyConfig(
        RunConfig(
            Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=2, patience=2),
            n_validation=32,
            n_test=64,
            n_frozen=200,
            difficulty=0.5,
            image_size=16,
        ),
        models=_SMOKE[:3],
        sizes=(16, 32, 64),
        n_seeds=2,
        trials=_GRID[:1],
        shared=dict.fromkeys(_SMOKE, Hyperparameters(2e-3)),
    ),
    "quick": StudyConfig(
        RunConfig(
            Recipe(steps=192, batch_size=64, warmup_steps=19, eval_every=24, patience=4),
            n_validation=500,
            n_test=1_000,
            n_frozen=500,
            difficulty=0.5,
        ),
        models=("Lab-Ti/8", "BiT-Lab-Ti/8", "Lab-Mu/8"),
        sizes=(300, 2_000, 12_000),
        n_seeds=3,
        trials=_GRID,
        shared=_SHARED,
    ),
    "full": StudyConfig(
        RunConfig(
            Recipe(steps=2_000, batch_size=128, warmup_steps=100, eval_every=100, patience=8, precision="bf16"),
            n_validation=1_000,
            n_test=2_000,
            n_frozen=1_000,
            difficulty=0.5,
            n_classes=100,
            finetuning=Finetuning(n_images=5_000, steps=150),
        ),
        models=COMPARED[:5],
        sizes=(1_000, 4_000, 16_000, 64_000, 256_000),
        n_seeds=5,
        trials=_grid(8e-3, 16e-3, 4e-3, 32e-3, 2e-3),  # of equals the first is taken: the middle of the range
        # The other models' trials at this length are still to be made.
        shared=_SHARED | best_hyperparameters(stored_trials("data_scaling", "full")),
    ),
    "gpu": StudyConfig(  # not run yet
        RunConfig(
            Recipe(steps=10_000, batch_size=256, warmup_steps=1_000, eval_every=500, patience=5, precision="bf16"),
            n_validation=5_000,
            n_test=20_000,
            n_frozen=5_000,
        ),
        models=("Lab-S/4", "BiT-Lab-S/4", "Lab-Ti/4", "BiT-Lab-Ti/4", "R+Lab-S/8", "R+Lab-Ti/8"),
        sizes=(1_000, 10_000, 100_000, 1_000_000),
        n_seeds=3,
        trials=(Hyperparameters(1e-3), Hyperparameters(4e-3)),
    ),
}


def data_scaling(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    real: str = "",
) -> pd.DataFrame:
    """Train every model on every size with every seed, all with one recipe; rows of five kinds, see `scaling.run_one`.

    Within a seed all models see the same images, and the smaller sets are parts of the larger ones. No regularisation
    is tuned for the smaller sets: what differs is the models, as in Fig. 4. `real`: the real sets on which frozen
    features are evaluated; by default those of `evaluated`.
    """
    return trained(configured(preset, real), folder or runner.run_folder("scaling", preset), seed, jobs)


def trained(config: StudyConfig, folder: Path, seed: int, jobs: int | None = None) -> pd.DataFrame:
    """The rows of every run that a study with this configuration compares; its trials are run first where missing."""
    runs = _runs(config, shared_hyperparameters(config, folder, jobs), seed)
    return runner.run_all(run_one, runs, folder, jobs)


def configured(preset: str, real: str = "") -> StudyConfig:
    """The configuration of a preset, with the real sets on which frozen features are evaluated.

    >>> configured("smoke", "digits").run.real
    'digits'
    """
    config = presets.choose(CONFIGS, preset)
    return dataclasses.replace(config, run=dataclasses.replace(config.run, real=real))


def in_world_alone(preset: str) -> StudyConfig:
    """The configuration of a preset without the evaluations on real images, but for frozen features on the digits.

    >>> in_world_alone("full").run.finetuning is None
    True
    """
    config = configured(preset, "digits")
    return dataclasses.replace(config, run=dataclasses.replace(config.run, finetuning=None))


def shared_hyperparameters(config: StudyConfig, folder: Path, jobs: int | None = None) -> dict[str, Hyperparameters]:
    """Those that serve all sizes, for every model: chosen beforehand, or from trials, which are run where missing."""
    if config.shared is not None:
        return config.shared
    return best_hyperparameters(accuracies(runner.run_all(run_one, _trials(config), folder, jobs)))


def assumed_hyperparameters(preset: str) -> dict[str, Hyperparameters]:
    """Those that serve all sizes, for planning: chosen beforehand, or until trials are made the first that is tried.

    >>> assumed_hyperparameters("smoke")["Lab-Ti/4"].learning_rate
    0.002
    """
    return presets.choose(CONFIGS, preset).assumed


def sweep(jobs: int | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Make the trials of the table `quick` of data_scaling_trials.json again: their `scaling.accuracies`."""
    folder = folder or runner.run_folder("data_scaling_sweep", "quick")
    config = dataclasses.replace(configured("quick", "digits"), models=COMPARED)
    return accuracies(runner.run_all(run_one, _trials(config), folder, jobs))


def halving(
    preset: str = "full", models: Sequence[str] = COMPARED, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Make the trials of a preset in two rounds: every setting with one seed, then the best with the others as well.

    Returns their `scaling.accuracies`, the table `full` of data_scaling_trials.json. Half of the time of trying all
    settings with all seeds (successive halving: Jamieson and Talwalkar, 2016); all models have as many trials.
    """
    config = dataclasses.replace(configured(preset, "digits"), models=tuple(models))
    return halved(config, folder or runner.run_folder("data_scaling_sweep", preset), jobs)


def halved(config: StudyConfig, folder: Path, jobs: int | None = None) -> pd.DataFrame:
    """Make the trials of a study in two rounds, as `halving`; their `scaling.accuracies`."""
    runs = _trials(config)
    first = [run for run in runs if run["seed"] == TRIAL_SEEDS[0]]
    best = finalists(accuracies(runner.run_all(run_one, first, folder, jobs)), _FINALISTS)
    names = list(best.columns)
    chosen = set(best.itertuples(index=False, name=None))
    again = [run for run in runs if run not in first and tuple(run[name] for name in names) in chosen]
    return accuracies(runner.run_all(run_one, [*first, *again], folder, jobs))


def planned_runs(preset: str = "quick", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study: the trials, where they are not made beforehand, then those that are compared.

    As long as the trials have not been made, these have the first hyper-parameters tried: they cost the same.

    >>> len(planned_runs("smoke"))
    18
    """
    return all_runs(configured(preset), seed)


def all_runs(config: StudyConfig, seed: int) -> list[dict[str, Any]]:
    """Every run of a study with this configuration, as `planned_runs`."""
    runs = _runs(config, config.assumed, seed)
    return runs if config.shared else list({tuple(run.values()): run for run in [*_trials(config), *runs]}.values())


def _trials(config: StudyConfig) -> list[dict[str, Any]]:
    each = itertools.product(config.models, config.trials, TRIAL_SEEDS)
    return [planned_run(_tried(config.run), model, values, config.middle, seed) for model, values, seed in each]


def _tried(run: RunConfig) -> RunConfig:
    """What a trial needs of a run: it is judged on validation images, so frozen features are evaluated on few."""
    return dataclasses.replace(run, n_frozen=min(run.n_frozen, 200), finetuning=None)


def _runs(config: StudyConfig, shared: dict[str, Hyperparameters], seed: int) -> list[dict[str, Any]]:
    # Large sets first within a seed: the long runs do not come last, and every model finds the images painted.
    seeds = range(100 * seed, 100 * seed + config.n_seeds)
    each = itertools.product(seeds, reversed(config.sizes), config.models)
    runs = [planned_run(config.run, model, shared[model], size, s) for s, size, model in each]
    return evaluated(runs, config.run.real)


def evaluated(runs: list[dict[str, Any]], real: str) -> list[dict[str, Any]]:
    """The runs, evaluated on the real sets `real`; empty: on those of this machine, and where it lacks CIFAR-10 the
    committed ones on both.

    >>> {run["real"] for run in evaluated(all_runs(configured("full", "digits"), seed=0), "digits")}
    {'digits'}
    """
    return runs if real else runner.committed_with(run_one, runs, {"real": "digits cifar10"})
