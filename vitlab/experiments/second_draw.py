"""A second draw of the studies: other seeds, at what the first draw has chosen, to see whether verdicts hold (§4)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd

from vitlab import experiments
from vitlab.experiments import axial_attention, data_scaling, local_heads, masked_pretraining, scaling, transfer
from vitlab.experiments.design_runs import chosen
from vitlab.sweep import committed, results, runner

Config = dict[str, Any]


def _at_best_rates(*by: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda runs: chosen(runs, by)


def _judged(runs: pd.DataFrame) -> pd.DataFrame:
    """The arms of masked_pretraining by which C15 is judged."""
    arms = (masked_pretraining.SCRATCH, "masked, mean-colour", masked_pretraining.SUPERVISED)
    return runs[runs["arm"].isin(arms)]


def _axial_and_plain(runs: pd.DataFrame) -> pd.DataFrame:
    return chosen(runs[runs["arm"].isin((axial_attention.AXIAL, axial_attention.PLAIN))])


def _on_photographs(runs: pd.DataFrame) -> pd.DataFrame:
    """The trainings by which C10, L01 and L02 are judged."""
    return runs[runs["data"] != local_heads.CROPS]


def _from_photographs(runs: pd.DataFrame) -> pd.DataFrame:
    """The pre-trainings of transfer by which C08 and C21 are judged."""
    return runs[runs["source"] == transfer.CONFIGS["full"].source]


def _judged_by_size(runs: pd.DataFrame) -> pd.DataFrame:
    """ViTs and ResNets at three sizes, by which C03 and C04 are judged, and the ViT of C05 at every size."""
    config = data_scaling.CONFIGS["full"]
    three = runs["n_train"].isin((config.sizes[0], config.middle, config.sizes[-1]))
    return runs[(three & ~runs["model"].str.startswith("R+")) | (runs["model"] == config.pair[0])]


def _all(runs: pd.DataFrame) -> pd.DataFrame:
    return runs


# Study → what is drawn again of the runs of the first draw, whose learning rates were tuned there: verdicts rest on it.
STUDIES: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = MappingProxyType(
    {
        "head_rates": _at_best_rates("steps", "arm"),
        "resnet_optimizers": _at_best_rates("task", "arm"),
        "vit_shapes": _at_best_rates("task", "dimension", "arm"),
        "position_variants": _at_best_rates("task", "arm"),
        "longer_positions": _at_best_rates("task", "arm"),
        "axial_attention": _axial_and_plain,
        "masked_pretraining": _judged,
        "transfer": _from_photographs,
        "data_scaling": _judged_by_size,
        "compute_scaling": _all,
        "local_heads": _on_photographs,
    }
)


def planned_runs(study: str, preset: str = "full", seed: int = 1) -> list[Config]:
    """The runs of another draw: those that the study plans with this seed and the first draw has chosen with its own.

    Raises:
        ValueError: the study is drawn once only, seed 0, no run of its first draw is committed, or all of these are of
            settings that are not planned here.
    """
    if study not in STUDIES:
        raise ValueError(f"{study} has no second draw: choose among {', '.join(STUDIES)}")
    if seed == 0:
        raise ValueError("seed 0 is that of the first draw: a second one has another, such as 1")
    first = committed.archive(study, preset)
    if not first.exists():
        raise ValueError(f"no run of {study} at {preset} is committed: a second draw repeats what the first has chosen")
    runs = list(committed.read(first).values())
    table = results.table([(result["config"] | {"run": number}, result) for number, result in enumerate(runs)])
    wanted = [results.unseeded(runs[number]["config"]) for number in sorted(set(STUDIES[study](table)["run"]))]
    planned = importlib.import_module(f"{experiments.__name__}.{study}").planned_runs(preset, seed)
    again = [run for run in planned if results.unseeded(run) in wanted]
    if not again:
        raise ValueError(
            f"no run that {study} plans at {preset} is one of its first draw but for the seed: was that evaluated on "
            f"other real sets than {scaling.real_sets()}? VITLAB_DATA says where real sets are"
        )
    return again


def draw(study: str, preset: str = "full", seed: int = 1, jobs: int | None = None) -> pd.DataFrame:
    """Do what is not stored of `planned_runs`; the rows of the runs. Raises what that raises, and `runner.run_all`."""
    module = importlib.import_module(f"{experiments.__name__}.{study}")
    folder = runner.run_folder("second_draw", preset)  # one for all: studies share runs
    return runner.run_all(module.run_one, planned_runs(study, preset, seed), folder, jobs)
