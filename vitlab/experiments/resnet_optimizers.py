"""ResNets (BiT) pre-trained with Adam and with SGD, both tuned, then fine-tuned alike (App. D.1, Table 7; C17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from vitlab.experiments import design_runs, frozen
from vitlab.experiments.design_runs import Config, Task, Training
from vitlab.experiments.scaling import augmentation, real_sets
from vitlab.sweep import presets, runner
from vitlab.training.finetune import finetune
from vitlab.training.recipe import Recipe

# Table 7: fine-tuned accuracy (0…1) by model and data set, of Adam and of SGD.
TABLE_7 = {
    ("R50", "ImageNet"): (0.7754, 0.7824),
    ("R50", "CIFAR-10"): (0.9767, 0.9746),
    ("R50", "CIFAR-100"): (0.8607, 0.8517),
    ("R50", "Pets"): (0.9111, 0.9100),
    ("R50", "Flowers"): (0.9426, 0.9206),
    ("R152x2", "ImageNet"): (0.8497, 0.8437),
    ("R152x2", "CIFAR-10"): (0.9906, 0.9907),
    ("R152x2", "CIFAR-100"): (0.9205, 0.9106),
    ("R152x2", "Pets"): (0.9537, 0.9479),
    ("R152x2", "Flowers"): (0.9862, 0.9932),
}
WEIGHT_DECAY = {"adam": 0.1, "sgd": 1e-4}  # that of ViT's Table 3, and that of BiT
_HELD_OUT = 0.2  # of the images of fine-tuning: by these its learning rate is chosen
_N_TEST = 5_000  # images of a real set, at most


@dataclass(frozen=True)
class Finetuning:
    """What all fine-tunings of a study share: SGD with momentum as in Table 4, whatever the pre-training had."""

    n_images: int  # of each real set, at most
    steps: int
    batch_size: int
    rates: tuple[float, ...]  # learning rates, of which each fine-tuning has the best on its held-out images


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    task: Task  # of pre-training
    training: Training
    finetuning: Finetuning
    rates: Mapping[str, Mapping[str, tuple[float, ...]]]  # model → optimiser → learning rates; as many for both
    n_seeds: Mapping[str, int]  # of each model


CONFIGS = {
    "smoke": StudyConfig(
        Task("mixed"),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=20, image_size=16),
        Finetuning(n_images=40, steps=3, batch_size=8, rates=(0.03, 0.1)),
        rates={"BiT-Lab-Mu/4": {"adam": (1e-3, 4e-3), "sgd": (0.03, 0.1)}},
        n_seeds={"BiT-Lab-Mu/4": 2},
    ),
    "full": StudyConfig(
        Task("mixed", n_classes=100),
        # After 500 steps the smaller ResNet was best at the largest rate of either optimiser: too short to compare.
        Training(steps=2_000, batch_size=128, n_train=64_000, n_validation=1_000, n_test=2_000, precision="bf16"),
        Finetuning(n_images=2_000, steps=150, batch_size=64, rates=(0.1, 0.3, 1.0, 3.0)),
        # Around the best of a pilot with one other seed, which the larger model has at lower rates. With three rates
        # the smaller one was best at Adam's largest: one beyond it, and one more for SGD too, between its two best.
        rates={
            "BiT-Lab-Mu/8": {"adam": (32e-3, 64e-3, 128e-3, 256e-3), "sgd": (0.3, 0.5, 1.0, 3.0)},
            "BiT-Lab-Ti/8": {"adam": (8e-3, 16e-3, 32e-3), "sgd": (0.1, 0.3, 1.0)},
        },
        # After five the smaller one was undecided, and the ledger said that about nine would decide.
        n_seeds={"BiT-Lab-Mu/8": 9, "BiT-Lab-Ti/8": 5},
    ),
}


def resnet_optimizers(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Pre-train every ResNet with both optimisers, at every learning rate with every seed, and fine-tune all alike.

    A row for each run and target: that of `design_runs.trained`, of the pre-training, with `target`, `fine_tuned`
    (accuracy on test images, 0…1) and `finetuning_rate`, the learning rate chosen on held-out images. Within a seed
    both optimisers begin with the same weights and see the same images.
    """
    return design_runs.run_study("resnet_optimizers", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study; the targets of its fine-tuning are the real sets that are present, or were when a
    committed run was made.

    >>> len(planned_runs("smoke"))
    8
    """
    config = presets.choose(CONFIGS, preset)
    rest = {f"finetuning_{name}": value for name, value in vars(config.finetuning).items()}
    rest["finetuning_rates"] = " ".join(map(str, config.finetuning.rates))
    rest |= {"targets": real_sets() if preset == "full" else "digits"}
    runs = [
        _planned(config, model, optimizer, rate, s) | rest
        for model, optimizers in config.rates.items()
        for s in design_runs.seeds(seed, config.n_seeds[model])
        for optimizer, rates in optimizers.items()
        for rate in rates
    ]
    return runner.committed_with(run_one, runs, {"targets": "digits cifar10"})


def _planned(config: StudyConfig, model: str, optimizer: str, rate: float, seed: int) -> Config:
    training = replace(config.training, optimizer=optimizer, weight_decay=WEIGHT_DECAY[optimizer])
    return design_runs.planned(training, config.task, f"{model}, {optimizer}", model, rate, seed)


def run_one(config: Config) -> list[dict[str, Any]]:
    """Pre-train one ResNet, and fine-tune it on every target with the best of the learning rates; a row for each."""
    model, row = design_runs.trained(config)
    return [row | _fine_tuned(model, target, config) for target in config["targets"].split()]


def _fine_tuned(model: nn.Module, target: str, config: Config) -> dict[str, Any]:
    side, steps = config["image_size"], config["finetuning_steps"]
    images = frozen.target(target, "train", side, config["finetuning_n_images"])

    def recipe(rate: float) -> Recipe:
        return Recipe(
            steps=steps,
            batch_size=config["finetuning_batch_size"],
            optimizer="sgd",
            learning_rate=rate,
            weight_decay=0.0,
            warmup_steps=steps // 10,
            precision=config["precision"],
        )

    done = finetune(
        model,
        images,
        recipe,
        [float(rate) for rate in config["finetuning_rates"].split()],
        held_out=_HELD_OUT,
        seed=config["seed"],
        watch=frozen.target(target, "test", side, _N_TEST),
        augmentation=augmentation(target, side),
    )
    return {"target": target, "fine_tuned": done.rows[-1]["val_accuracy"], "finetuning_rate": done.learning_rate}


def averages(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: its columns, with `fine_tuned` the mean over the targets, as Table 7's last line has it.

    >>> rows = {"task": "t", "arm": "a", "model": "m", "seed": 0, "learning_rate": 0.1, "target": ["x", "y"]}
    >>> averages(pd.DataFrame(rows | {"fine_tuned": [0.5, 0.7]}))["fine_tuned"].round(3).tolist()
    [0.6]
    """
    keys = ["task", "model", "arm", "learning_rate", "seed"]
    mean = table.groupby(keys, sort=False)["fine_tuned"].mean().rename("mean").reset_index()
    of_target = ["target", "fine_tuned", "finetuning_rate"]
    first = table.drop_duplicates(keys).drop(columns=of_target, errors="ignore")
    return first.merge(mean.rename(columns={"mean": "fine_tuned"}), on=keys)
