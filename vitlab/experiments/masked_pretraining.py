"""What masked pre-training is worth: from scratch, masked and supervised, with equal fine-tuning (§4.6; claim C15)."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from vitlab.data import datasets, photographs, world
from vitlab.data.augment import Augmentation
from vitlab.data.loader import Batches, ImageSet, batches, epoch_order
from vitlab.data.world import World, with_difficulty
from vitlab.experiments.small_vits import CROPPED, CROPS, Body, as_sized, kept_px, vit_of, whole
from vitlab.sweep import presets, runner
from vitlab.training import masked
from vitlab.training.finetune import finetune
from vitlab.training.loop import train
from vitlab.training.masked import MaskedPrediction, Target
from vitlab.training.objective import Classification, Objective
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import subset

SCRATCH = "scratch"
SUPERVISED = "cifar10"  # the supervised pre-training that C15 is judged by: photographs, as in the paper
HELD_OUT = 0.1  # of the training photographs, by which each fine-tuning's learning rate is chosen
_N_CLASSES = 300  # of the world: with ten, pre-training makes no features (notebook 03)
_ALL = 0  # as a number of images: as many as there are


@dataclass(frozen=True)
class Pretraining:
    """What an arm's model learns before it is fine-tuned."""

    objective: str  # "masked", "labels", or "none"
    data: str = ""  # photographs.CROPS, "world", or a set that `datasets.load` knows
    target: str = ""  # of masked prediction
    steps: int = 0
    batch_size: int = 1
    learning_rate: float = 0.0


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    arms: dict[str, Pretraining]
    body: Body
    data: str  # what all arms are fine-tuned on
    finetuning: Recipe
    rates: tuple[float, ...]  # learning rates of fine-tuning, the same trials for every arm
    n_seeds: int  # each with weights, order and draws of its own
    n_train: int = _ALL  # images of the target, at most
    n_test: int = _ALL
    precision: str = "bf16"


def _arms(data: str, supervised: tuple[str, ...], views: int, masked_batch: int, labels_batch: int) -> dict:
    """All arms see as many images; masked prediction takes smaller batches, for it needs many steps."""

    def masks(images: str, target: Target) -> Pretraining:
        return Pretraining("masked", images, target.value, views // masked_batch, masked_batch, 3e-3)

    return (
        {SCRATCH: Pretraining("none")}
        | {f"masked, {target}": masks(data, target) for target in Target}
        | {name: Pretraining("labels", name, "", views // labels_batch, labels_batch, 1e-3) for name in supervised}
        # As in the paper, where both objectives have the same images: those of the labels, without these.
        | {masked_on(name): masks(name, Target.MEAN_COLOUR) for name in supervised}
    )


def masked_on(images: str) -> str:
    """The arm of masked prediction, of the paper's target, on the images of a supervised arm.

    >>> masked_on("cifar10")
    'masked on cifar10'
    """
    return f"masked on {images}"


CONFIGS = {
    "smoke": StudyConfig(
        _arms(CROPS, ("world",), views=32, masked_batch=8, labels_batch=16),
        Body(image_size=16, patch_size=4, dim=32, depth=2, n_heads=2),
        "digits",
        Recipe(steps=4, batch_size=16, warmup_steps=1, eval_every=2),
        rates=(1e-3, 3e-3),
        n_seeds=2,
        n_train=60,
        n_test=40,
        precision="fp32",
    ),
    "full": StudyConfig(
        _arms("imagenette", ("world", SUPERVISED), views=96_000, masked_batch=16, labels_batch=64),
        Body(image_size=64, patch_size=8, dim=96, depth=4, n_heads=4),
        "imagenette",
        Recipe(steps=600, batch_size=64, warmup_steps=60, eval_every=100, precision="bf16"),
        rates=(5e-4, 1.5e-3),
        n_seeds=5,
    ),
}


def masked_pretraining(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Pre-train in every arm with every seed, from the same fresh weights, and fine-tune all alike on the target.

    `accuracies` and `curves` read the rows. Nothing is chosen by the test images: the learning rate of fine-tuning is
    the best of the same trials on training images that were held out, arm by arm and seed by seed.

    Arms whose images are not present are left out (see `missing`).

    Raises ValueError for an unknown preset, RuntimeError where the images of the target are not present.
    """
    folder = folder or runner.run_folder("masked_pretraining", preset)
    if jobs is None and preset == "smoke":
        jobs = 1  # its runs take less time than starting a worker
    absent = set(missing(preset)) - {presets.choose(CONFIGS, preset).data}
    runs = [run for run in planned_runs(preset, seed) if run["data"] not in absent]
    return runner.run_all(run_one, runs, folder, jobs)


def missing(preset: str = "full") -> tuple[str, ...]:
    """The sets of images that the study needs and that are not here.

    >>> missing("smoke")
    ()
    """
    config = presets.choose(CONFIGS, preset)
    needed = dict.fromkeys([*(arm.data for arm in config.arms.values()), config.data])
    return tuple(name for name in needed if name in datasets.NAMES and not datasets.present(name))


def planned_runs(preset: str = "full", seed: int = 0) -> list[dict[str, Any]]:
    """Every run of the study.

    >>> len(planned_runs("full"))
    40
    """
    config = presets.choose(CONFIGS, preset)
    tuning = config.finetuning
    shared = dataclasses.asdict(config.body) | {
        "finetuned_on": config.data,
        "n_train": config.n_train,
        "n_test": config.n_test,
        "finetuning_steps": tuning.steps,
        "finetuning_batch": tuning.batch_size,
        "finetuning_warmup": tuning.warmup_steps,
        "eval_every": tuning.eval_every,
        "rates": " ".join(map(str, config.rates)),
        "precision": config.precision,
    }
    return [
        {"arm": arm, "seed": s} | dataclasses.asdict(pretraining) | shared
        for s in range(100 * seed, 100 * seed + config.n_seeds)
        for arm, pretraining in config.arms.items()
    ]


def trainings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The trainings of one run, as `vitlab experiment masked_pretraining --plan` counts them.

    Its pre-training, where it has one, and its fine-tunings: one for each rate tried, and the last with all images.

    >>> [[each["steps"] for each in trainings(run)] for run in planned_runs("full")[:2]]
    [[600, 600, 600], [6000, 600, 600, 600]]
    """
    sized, count = as_sized(config), len(config["rates"].split())
    before = [{"steps": config["steps"], "batch_size": config["batch_size"]}] if config["steps"] else []
    after = [{"steps": config["finetuning_steps"], "batch_size": config["finetuning_batch"]}] * (count + 1)
    return [sized | each for each in before + after]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Pre-train one model in one arm and fine-tune it; a row for each evaluation, and for each rate tried."""
    train_set, test_set = (_target(config, split) for split in ("train", "test"))
    before, model = _pretrained(config)
    rates = [float(rate) for rate in config["rates"].split()]
    recipe = functools.partial(_recipe, config)
    how = {"held_out": HELD_OUT, "seed": config["seed"], "watch": test_set, "augmentation": _augmentation(config)}
    done = finetune(model, train_set, recipe, rates, **how)
    rows = [
        {
            "kind": "evaluation",
            "samples": row["samples"],
            "test_accuracy": row["val_accuracy"],
            "rate": done.learning_rate,
        }
        for row in done.rows
    ]
    rows += [{"kind": "trial", "rate": rate, "held_out_accuracy": value} for rate, value in done.trials.items()]
    return [*before, *rows]


def _pretrained(config: dict[str, Any]) -> tuple[list[dict[str, Any]], nn.Module]:
    """A row about the pre-training, and the ViT; fresh weights depend on the seed alone, so arms are paired by it."""
    feed, n_classes = _feed(config)
    vit = vit_of(config, n_classes)
    if feed is None:
        return [], vit.to(default_device())
    model: nn.Module = vit
    objective: Objective = Classification()
    if config["objective"] == "masked":
        target, share = Target(config["target"]), MaskedPrediction.share
        model, feed, objective = masked.prepared(vit, feed, config["batch_size"], target, share, config["seed"])
    recipe = Recipe(
        steps=config["steps"],
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        warmup_steps=config["steps"] // 20,
        precision=config["precision"],
        seed=config["seed"],
    )
    last = train(model.to(default_device()), feed, recipe, objective=objective)[-1]
    return [{"kind": "pre-training", "samples": last["samples"], "train_loss": last["train_loss"]}], vit


def _feed(config: dict[str, Any]) -> tuple[Batches | None, int]:
    """The batches of the pre-training, and the number of classes of its images."""
    side, size, seed, device = config["image_size"], config["batch_size"], config["seed"], default_device()
    if config["objective"] == "none":
        return None, 1
    if config["data"] == "world":
        # Each seed sees images of its own: one world's classes, another part of its endless images.
        return world.stream(pretraining_world(side), size, device, start=seed * 2**24), _N_CLASSES
    if config["data"] == CROPS:
        return photographs.stream(side, size, seed, device), len(photographs.names())
    images = whole(config["data"], "train", kept_px(config["data"], side))
    return batches(images, size, seed, device, CROPPED, side), len(images.classes)


def pretraining_world(image_size: int) -> World:
    """The painted world that the supervised arm learns: many classes, with half the strength of the variations.

    >>> pretraining_world(64).n_classes
    300
    """
    return with_difficulty(World(n_classes=_N_CLASSES, image_size=image_size), 0.5)


def _target(config: dict[str, Any], split: str) -> ImageSet:
    """Images to fine-tune on, or to report by; the same ones for every seed and arm."""
    images, count = whole(config["finetuned_on"], split, config["image_size"]), config[f"n_{split}"]
    return subset(images, epoch_order(len(images), seed=0, epoch=0)[: count or None].sort().values)


def _recipe(config: dict[str, Any], rate: float) -> Recipe:
    """The fine-tuning, the same for all arms: Adam, not Table 4's SGD, which is for weights that are pre-trained."""
    return Recipe(
        steps=config["finetuning_steps"],
        batch_size=config["finetuning_batch"],
        learning_rate=rate,
        warmup_steps=config["finetuning_warmup"],
        eval_every=config["eval_every"],
        precision=config["precision"],
        seed=config["seed"],
    )


def _augmentation(config: dict[str, Any]) -> Augmentation:
    return Augmentation() if config["finetuned_on"] == "digits" else CROPPED  # digits are not mirrored


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each evaluation of each fine-tuning: arm, seed, samples, rate, test_accuracy (0…1)."""
    rows = table[table["kind"] == "evaluation"].astype({"samples": int})
    return rows[["arm", "seed", "samples", "rate", "test_accuracy"]].reset_index(drop=True)


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of `curves` for every run."""
    return curves(table).groupby(["arm", "seed"], sort=False).tail(1).reset_index(drop=True)


def differences(finals: pd.DataFrame, first: str, second: str) -> pd.Series:
    """Test accuracy of one arm minus another's in percentage points, paired by seed.

    >>> rows = [{"arm": arm, "seed": 0, "test_accuracy": value} for arm, value in (("a", 0.75), ("b", 0.5))]
    >>> differences(pd.DataFrame(rows), "a", "b").to_dict()
    {0: 25.0}
    """
    wide = finals.pivot(index="seed", columns="arm", values="test_accuracy")
    return 100 * (wide[first] - wide[second])
