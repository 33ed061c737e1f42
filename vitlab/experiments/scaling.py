"""One run of the scaling studies: a training and the evaluations of its model (§4.3, §4.4, Fig. 3 to 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import nn

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import batches
from vitlab.data.world import World, with_cues, with_difficulty
from vitlab.evaluation.fewshot import FewShot
from vitlab.evaluation.probe import Probe
from vitlab.experiments import frozen
from vitlab.models import zoo
from vitlab.training.evaluate import evaluate, untrained_row
from vitlab.training.finetune import finetune
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import subset, world_splits

MIXED = "mixed"  # classes are told by all cues, as in the default world
SHOTS = 10  # images per class of the few-shot accuracy
_N_REAL = 10_000  # test images of a real set, at most, after fine-tuning
_FEW_SHOT = FewShot(shots=(SHOTS,))
_PROBE = Probe(inverse_penalties=(1e-3, 1e-2, 0.1), max_steps=5_000)
_RECIPE = (
    "steps",
    "batch_size",
    "learning_rate",
    "warmup_steps",
    "weight_decay",
    "label_smoothing",
    "eval_every",
    "patience",
    "precision",
)


@dataclass(frozen=True)
class Hyperparameters:
    """What is tuned of a recipe, for a model or for a model and a size of its training set."""

    learning_rate: float
    weight_decay: float = 0.1
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class Finetuning:
    """How trained models are fine-tuned on real images, and fresh ones trained on them from scratch: both alike."""

    n_images: int  # of each real set, at most
    steps: int
    batch_size: int = 128
    learning_rate: float = 1e-3


@dataclass(frozen=True)
class RunConfig:
    """What all runs of a study share: the recipe but for its `Hyperparameters`, the world, and the evaluations."""

    recipe: Recipe
    n_validation: int  # images of the world: early stopping and the choice of hyper-parameters
    n_test: int  # images of the world: the reported accuracy
    n_frozen: int  # images of each set on which frozen features are evaluated: for training, and as many for testing
    difficulty: float = 1.0  # of the world, see `with_difficulty`
    image_size: int = 32  # pixels
    real: str = ""  # real sets on which frozen features are evaluated too, with blanks between; empty: `real_sets()`
    n_classes: int = 10  # of the world
    cue: str = MIXED  # what tells its classes: "mixed", or one cue alone
    finetuning: Finetuning | None = None  # on the same real sets; None: frozen features alone


# Seconds on any machine, for tests of a whole study.
SMOKE = RunConfig(
    Recipe(steps=6, batch_size=16, warmup_steps=2, eval_every=3),
    n_validation=20,
    n_test=40,
    n_frozen=200,
    difficulty=0.5,
    image_size=16,
    real="digits",
)


def planned_run(
    run: RunConfig, model: str, hyperparameters: Hyperparameters, n_train: int, seed: int
) -> dict[str, Any]:
    """The configuration of one run, as `run_one` takes it.

    >>> shared = RunConfig(Recipe(steps=9), n_validation=10, n_test=10, n_frozen=100)
    >>> planned_run(shared, "Lab-Ti/8", Hyperparameters(1e-3), n_train=500, seed=0)["learning_rate"]
    0.001
    """
    recipe = dataclasses.replace(run.recipe, **dataclasses.asdict(hyperparameters))
    names = ("n_validation", "n_test", "n_frozen", "difficulty", "image_size", "n_classes", "cue")
    settings = dataclasses.asdict(run.finetuning) if run.finetuning else {"steps": 0}
    return (
        {"model": model, "n_train": n_train, "seed": seed}
        | {name: getattr(recipe, name) for name in _RECIPE}
        | {name: getattr(run, name) for name in names}
        | {"real": run.real or real_sets()}
        | {f"finetuning_{name}": value for name, value in settings.items()}
    )


def in_world(run: RunConfig, cue: str, n_classes: int) -> RunConfig:
    """The same for a world whose classes are told by `cue`, or by all ("mixed").

    >>> in_world(RunConfig(Recipe(steps=9), 10, 10, 100), "contour", 50).n_classes
    50
    """
    return dataclasses.replace(run, cue=cue, n_classes=n_classes)


def real_sets() -> str:
    """The names of the real sets that are present, with blanks between: the digits, and CIFAR-10 where it is.

    >>> real_sets().split()[0]
    'digits'
    """
    return "digits cifar10" if datasets.present("cifar10") else "digits"


def world_of(config: dict[str, Any]) -> World:
    """The world of a run: so many classes, told by one cue alone or by all, of this difficulty and size.

    >>> world_of({"n_classes": 50, "cue": "contour", "difficulty": 0.5, "image_size": 32}).texture
    0.0
    """
    world = World(n_classes=config["n_classes"], image_size=config["image_size"])
    world = world if config["cue"] == MIXED else with_cues(world, config["cue"])
    return with_difficulty(world, config["difficulty"])


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model on one set and evaluate it; without training images, evaluate the model as it was drawn.

    Returns rows of five kinds, which `accuracies`, `histories`, `few_shots`, `probes` and `finetuned` take apart.
    Raises ValueError where n_validation is 0.
    """
    side, seed, world = config["image_size"], config["seed"], world_of(config)
    model = zoo.create(config["model"], n_classes=world.n_classes, image_size=side, seed=seed).to(default_device())
    rows = list(_pretrained(model, world, config)) if config["n_train"] else []
    targets = dict.fromkeys((frozen.OTHER_CLASSES, *config["real"].split()), (config["n_frozen"],) * 2)
    options = {"settings": _FEW_SHOT, "probe": _PROBE, "difficulty": config["difficulty"]}
    rows += frozen.evaluations(model, targets, side, seed, **options)
    if config["finetuning_steps"]:
        rows += [fine_tuned_row(model, name, config) for name in config["real"].split()]
    return rows


def _pretrained(model: nn.Module, world: World, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train the model on images of the world, in place; rows of its outcome and of its history."""
    seed, device = config["seed"], default_device()
    recipe = Recipe(**{name: config[name] for name in _RECIPE}, seed=seed)
    sizes = (config["n_train"], config["n_validation"], config["n_test"])
    splits = world_splits(world, *sizes, draw=seed, n_seen=recipe.samples)
    if splits.validation is None:
        raise ValueError("n_validation is 0; the best step is chosen by validation accuracy: give at least 1 image")
    rows = [untrained_row(model, splits.validation)]
    rows += train(model, batches(splits.train, recipe.batch_size, seed, device), recipe, validation=splits.validation)
    best = max(rows[1:], key=lambda row: row["val_accuracy"])  # the first of several that are equal
    kept = rows[-1] if recipe.patience is None else best  # without patience, training keeps the last weights
    some = subset(splits.train, torch.arange(min(len(splits.train), config["n_validation"])))
    yield {
        "kind": "outcome",
        "test_accuracy": evaluate(model, splits.test)["accuracy"],
        "validation_accuracy": kept["val_accuracy"],
        "train_accuracy": evaluate(model, some)["accuracy"],  # on at most n_validation images
        "best_step": kept["step"],
        "last_step": rows[-1]["step"],
        "flops": rows[-1]["flops"],  # of the training, up to its end
        "seconds": rows[-1]["seconds"],
    }
    names = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy")
    for row in rows:
        yield {"kind": "history"} | {name: row[name] for name in names if name in row}


def augmentation(name: str, image_size: int) -> Augmentation:
    """How images of a real set are augmented in training: shifted by an eighth at most, and but for digits mirrored.

    >>> augmentation("cifar10", 32).pad, augmentation("digits", 32).flip
    (4, False)
    """
    return Augmentation(crop="pad", pad=image_size // 8, flip=name != "digits")  # a mirrored digit is none


def fine_tuned_row(model: nn.Module, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune all weights, with a new head, on images of a real set; the row of its accuracy (0…1) on test images.

    `config` is that of a run, of which image_size, seed, precision and what begins with finetuning_ are read.
    """
    side, n_images = config["image_size"], config["finetuning_n_images"]
    images, test = (frozen.target(name, split, side, n) for split, n in (("train", n_images), ("test", _N_REAL)))
    steps = config["finetuning_steps"]
    recipe = Recipe(
        steps=steps,
        batch_size=config["finetuning_batch_size"],
        learning_rate=config["finetuning_learning_rate"],
        warmup_steps=steps // 10,
        precision=config["precision"],
    )
    done = finetune(
        model,
        images,
        lambda rate: recipe,
        [recipe.learning_rate],
        seed=config["seed"],
        watch=test,
        augmentation=augmentation(name, side),
    )
    return {"kind": "fine-tuned", "target": name, "accuracy": done.rows[-1]["val_accuracy"]}


_RUN = ["model", "n_classes", "cue", "n_train", "seed", "learning_rate", "weight_decay", "label_smoothing", "steps"]


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: model, n_train, seed, the hyper-parameters, steps (at most), test_accuracy,
    validation_accuracy and train_accuracy (0…1), best_step, last_step, flops (of the training), seconds."""
    rows = table[table["kind"] == "outcome"].astype({"best_step": int, "last_step": int})
    measured = ["test_accuracy", "validation_accuracy", "train_accuracy", "best_step", "last_step", "flops", "seconds"]
    return rows[[*_RUN, *measured]].reset_index(drop=True)


def histories(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each evaluation of each run: the run's columns, step, samples, train_loss, val_loss, val_accuracy."""
    rows = table[table["kind"] == "history"].astype({"step": int, "samples": int})
    return rows[[*_RUN, "step", "samples", "train_loss", "val_loss", "val_accuracy"]].reset_index(drop=True)


def few_shots(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and target: the run's columns, target, shots, accuracy (0…1, the mean of the draws)."""
    rows = table[table["kind"] == "few shot"].astype({"shots": int})
    columns = [*_RUN, "target", "shots"]
    return rows.groupby(columns, sort=False)["accuracy"].mean().reset_index()


def probes(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and target: the run's columns, target, accuracy (0…1) of the linear probe."""
    return table[table["kind"] == "probe"][[*_RUN, "target", "accuracy"]].reset_index(drop=True)


def finetuned(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and real set: the run's columns, target, accuracy (0…1) after fine-tuning."""
    return table[table["kind"] == "fine-tuned"][[*_RUN, "target", "accuracy"]].reset_index(drop=True)
