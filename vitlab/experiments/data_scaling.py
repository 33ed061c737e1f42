"""Accuracy against the size of the training set, ViT beside ResNet (BiT) and hybrid (§4.3, Fig. 3, 4)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab.experiments import presets, runner
from vitlab.experiments.scaling import Rates, Setting, best_rates, config, finer_rates, outcomes, real_sets
from vitlab.experiments.scaling import run_one as _run_one
from vitlab.experiments.scaling_sweeps import regularised, swept
from vitlab.training.recipe import Recipe

_SWEEP_SEED = 9_999
# Two sizes of each family, ViT and ResNet of equal compute first: the models of notebook 05, so that one sweep serves
# both studies.
COMPARED = ("Lab-Ti/8", "BiT-Lab-Ti/8", "Lab-Mu/8", "BiT-Lab-Ti/16", "R+Lab-Ti/16", "R+Lab-Ti/8")


@dataclass(frozen=True)
class Settings:
    """One preset: which models, on how many images, for how long. All sizes are trained by the same recipe.

    The first ViT and the first ResNet are equal in compute, and compared; the second ViT is of another size.
    """

    setting: Setting  # steps are the most; training ends early where the validation accuracy has stopped rising
    models: tuple[str, ...]
    sizes: tuple[int, ...]  # training images; each set contains the smaller ones
    n_seeds: int  # each with weights, order and training images of its own
    trials: tuple[Rates, ...]  # by which one recipe for all sizes is chosen for every model, at the middle size
    regularisations: tuple[tuple[float, float], ...]  # weight decay, label smoothing: tried at every size for the pair
    # What was chosen, where it was chosen beforehand; else the trials are run first.
    rates: dict[str, Rates] | None = None
    tuned: dict[tuple[str, int], Rates] | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """The ViT and the ResNet that are compared."""
        is_bit = [model.startswith("BiT") for model in self.models]
        return self.models[is_bit.index(False)], self.models[is_bit.index(True)]

    @property
    def middle(self) -> int:
        """The size at which the trials are made."""
        return self.sizes[(len(self.sizes) - 1) // 2]


_GRID = tuple(Rates(rate, decay) for decay in (0.1, 1.0) for rate in (1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3))
_REGULARISATIONS = tuple(itertools.product((0.1, 1.0, 3.0), (0.0, 0.1)))
_SMOKE = dict.fromkeys(("Lab-Ti/4", "BiT-Lab-Ti/4", "Lab-Mu/4"), Rates(2e-3))
SETTINGS = {
    "smoke": Settings(
        Setting(
            Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=2, patience=2),
            n_validation=32,
            n_test=64,
            n_frozen=200,
            difficulty=0.5,
            image_size=16,
        ),
        models=tuple(_SMOKE),
        sizes=(16, 32, 64),
        n_seeds=2,
        trials=_GRID[:1],
        regularisations=_REGULARISATIONS[:1],
        rates=_SMOKE,
        tuned={("Lab-Ti/4", 16): Rates(2e-3, 1.0)},
    ),
    "quick": Settings(
        Setting(
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
        regularisations=_REGULARISATIONS,
        rates=swept(),
        tuned=regularised(),
    ),
    "rehearsal": Settings(
        Setting(
            Recipe(steps=400, batch_size=64, warmup_steps=40, eval_every=40, patience=5),
            n_validation=1_000,
            n_test=2_000,
            n_frozen=500,
            difficulty=0.5,
        ),
        models=COMPARED,
        sizes=(1_000, 10_000, 100_000, 1_000_000),
        n_seeds=3,
        trials=(Rates(1e-3), Rates(4e-3), Rates(16e-3)),
        regularisations=((0.1, 0.0), (1.0, 0.0), (1.0, 0.1)),
    ),
    # Written for one large GPU and not yet run there.
    "full": Settings(
        Setting(
            Recipe(steps=10_000, batch_size=256, warmup_steps=1_000, eval_every=500, patience=5, precision="bf16"),
            n_validation=5_000,
            n_test=20_000,
            n_frozen=5_000,
        ),
        models=("Lab-S/4", "BiT-Lab-S/4", "Lab-Ti/4", "BiT-Lab-Ti/4", "R+Lab-S/8", "R+Lab-Ti/8"),
        sizes=(1_000, 10_000, 100_000, 1_000_000),
        n_seeds=3,
        trials=(Rates(1e-3), Rates(4e-3)),
        regularisations=((0.1, 0.0), (1.0, 0.0), (1.0, 0.1)),
    ),
}


def data_scaling(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    real: str = "",
) -> pd.DataFrame:
    """Train every model on every size with every seed, and the pair once more with regularisation tuned for each size.

    Rows of four kinds, see `scaling.outcomes`; the column `arm` is "same" (one recipe for all sizes) or "tuned". A run
    that both arms ask for is made once. Within a seed all models see the same images, and the smaller sets are parts of
    the larger ones. `real`: the real sets on which frozen features are evaluated; by default `scaling.real_sets()`.
    """
    settings = presets.choose(SETTINGS, preset)
    folder = folder or runner.run_folder("scaling", preset)
    real = real or real_sets()
    same = rates_for_all(preset, jobs, folder, real)
    tuned = settings.tuned or _finer(settings, same, jobs, folder, real)
    arms = _arms(settings, same, tuned, seed, real)
    table = runner.run_all(_run_one, _once([*arms["same"], *arms["tuned"]]), folder, jobs)
    keys = list(arms["same"][0])
    parts = []
    for arm, chosen in arms.items():
        wanted = pd.DataFrame(chosen)[["model", "n_train", "seed", *_RATES]]
        parts.append(table.merge(wanted, how="inner").assign(arm=arm))
    found = pd.concat(parts, ignore_index=True)
    found.attrs.update(table.attrs)
    return found[["arm", *keys, *(name for name in table.columns if name not in keys)]]


def rates_for_all(preset: str, jobs: int | None, folder: Path, real: str) -> dict[str, Rates]:
    """The rates that serve all sizes, for every model: chosen beforehand, or by trials, which are run where needed."""
    settings = presets.choose(SETTINGS, preset)
    if settings.rates is not None:
        return settings.rates
    return best_rates(outcomes(runner.run_all(_run_one, _trials(settings, real), folder, jobs)))


_RATES = [field.name for field in dataclasses.fields(Rates)]


def configs(preset: str = "quick", seed: int = 0) -> list[dict[str, Any]]:
    """Every run there is to do, for a plan: the trials where they are made first, then the study.

    As long as the trials have not been made, the study's runs stand with the first rates tried: they cost the same.

    >>> len(configs("smoke"))
    20
    """
    settings, real = presets.choose(SETTINGS, preset), real_sets()
    same = settings.rates or dict.fromkeys(settings.models, settings.trials[0])
    tuned = settings.tuned or {(m, n): same[m] for m in settings.pair for n in settings.sizes}
    arms = _arms(settings, same, tuned, seed, real)
    trials = [] if settings.rates else _trials(settings, real)
    finer = [] if settings.tuned else _finer_trials(settings, same, real)
    return _once([*trials, *finer, *arms["same"], *arms["tuned"]])


def sweep(jobs: int | None = None, folder: Path | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The trials behind `SWEEP` and behind `REGULARISED`: validation accuracies, a column per model (and size)."""
    folder, settings = folder or runner.run_folder("data_scaling_sweep", "quick"), SETTINGS["quick"]
    settings = dataclasses.replace(settings, models=tuple(settings.rates))
    first = outcomes(runner.run_all(_run_one, _trials(settings, "digits"), folder, jobs))
    finer = _finer_trials(settings, best_rates(first), "digits")
    second = outcomes(runner.run_all(_run_one, finer, folder, jobs))
    accuracy = {"values": "validation_accuracy"}
    return (
        first.pivot(index=["learning_rate", "weight_decay"], columns="model", **accuracy),
        second.pivot(index=["weight_decay", "label_smoothing"], columns=["model", "n_train"], **accuracy),
    )


def _finer(
    settings: Settings, same: dict[str, Rates], jobs: int | None, folder: Path, real: str
) -> dict[tuple[str, int], Rates]:
    """The best regularisation of the pair at every size, by trials that are run now."""
    found = outcomes(runner.run_all(_run_one, _finer_trials(settings, same, real), folder, jobs))
    trials: dict[tuple[str, int], dict[Rates, float]] = {}
    for row in found.to_dict("records"):
        rates = Rates(*(row[name] for name in _RATES))
        trials.setdefault((row["model"], row["n_train"]), {})[rates] = row["validation_accuracy"]
    return {key: finer_rates(same[key[0]], scores) for key, scores in trials.items()}


def _trials(settings: Settings, real: str) -> list[dict[str, Any]]:
    runs = itertools.product(settings.models, settings.trials)
    return [config(settings.setting, model, rates, settings.middle, _SWEEP_SEED, real) for model, rates in runs]


def _finer_trials(settings: Settings, same: dict[str, Rates], real: str) -> list[dict[str, Any]]:
    found = []
    for size, model, (decay, smoothing) in itertools.product(
        reversed(settings.sizes), settings.pair, settings.regularisations
    ):
        rates = Rates(same[model].learning_rate, decay, smoothing)
        found.append(config(settings.setting, model, rates, size, _SWEEP_SEED, real))
    return found


def _arms(
    settings: Settings, same: dict[str, Rates], tuned: dict[tuple[str, int], Rates], seed: int, real: str
) -> dict[str, list[dict[str, Any]]]:
    # Large sets first within a seed: the long runs do not come last, and all models find the images painted.
    runs = list(itertools.product(range(settings.n_seeds), reversed(settings.sizes), settings.models))
    numbers = {s: 100 * seed + s for s in range(settings.n_seeds)}
    return {
        "same": [config(settings.setting, m, same[m], size, numbers[s], real) for s, size, m in runs],
        "tuned": [
            config(settings.setting, m, tuned.get((m, size), same[m]), size, numbers[s], real)
            for s, size, m in runs
            if m in settings.pair
        ],
    }


def _once(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({tuple(run.values()): run for run in runs}.values())
