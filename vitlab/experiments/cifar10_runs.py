"""One run of `cifar10_best`: a ViT from scratch, after masked prediction, or after the painted world (§4.1, §4.6)."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from vitlab.data import world
from vitlab.data.augment import Augmentation
from vitlab.data.loader import Batches, ImageSet, batches, epoch_order
from vitlab.experiments.masked_pretraining import pretraining_world
from vitlab.experiments.small_vits import whole
from vitlab.models import zoo
from vitlab.models.adapt import with_new_head
from vitlab.training import masked
from vitlab.training.finetune import split
from vitlab.training.loop import train
from vitlab.training.masked import MaskedPrediction, Target
from vitlab.training.objective import Classification, Objective
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import subset

SCRATCH, MASKED, WORLD = "scratch", "masked", "world"  # how a model is pre-trained
HELD_OUT = 0.1  # of the training set, for trials


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one arm; a row about its pre-training, and one for every evaluation: on held-out images in trials."""
    images = _images(config, "train")
    images, watched = split(images, HELD_OUT, config["seed"]) if config["tuning"] else (images, _images(config, "test"))
    device, seed = default_device(), config["seed"]
    before, vit = _pretrained(config, images)
    recipe = Recipe(
        steps=config["steps"],
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        weight_decay=config["weight_decay"],
        label_smoothing=config["label_smoothing"],
        warmup_steps=config["steps"] // 20,
        eval_every=math.ceil(config["steps"] / 10),
        precision=config["precision"],
        seed=seed,
    )
    model = with_new_head(vit, len(images.classes)).to(device)
    feed = batches(images, recipe.batch_size, seed, device, _augmentation(config, config["mixup"]))
    rows = train(model, feed, recipe, validation=watched)
    kept = {"samples": "samples", "seconds": "seconds", "train_loss": "train_loss", "val_accuracy": "test_accuracy"}
    after = [{"kind": "evaluation"} | {new: row[name] for name, new in kept.items()} for row in rows]
    return [*before, *after]


def _pretrained(config: dict[str, Any], images: ImageSet) -> tuple[list[dict[str, Any]], nn.Module]:
    """A row about the pre-training, where the arm has one, and the ViT."""
    size, seed, device = config["batch_size"], config["seed"], default_device()
    painted = pretraining_world(config["image_size"])
    n_classes = painted.n_classes if config["pretraining"] == WORLD else len(images.classes)
    vit = zoo.create(config["model"], n_classes=n_classes, image_size=config["image_size"], seed=seed)
    if config["pretraining"] == SCRATCH:
        return [], vit
    model: nn.Module = vit
    objective: Objective = Classification()
    feed: Batches
    if config["pretraining"] == WORLD:
        feed = world.stream(painted, size, device, start=seed * 2**24)
    else:
        feed = batches(images, size, seed, device, _augmentation(config))
        share = MaskedPrediction.share
        model, feed, objective = masked.prepared(vit, feed, size, Target.MEAN_COLOUR, share, seed)
    recipe = Recipe(
        steps=config["pretraining_steps"],
        batch_size=size,
        learning_rate=config["pretraining_rate"],
        warmup_steps=config["pretraining_steps"] // 20,
        precision=config["precision"],
        seed=seed,
    )
    last = train(model.to(device), feed, recipe, objective=objective)[-1]
    told = {name: last[name] for name in ("samples", "seconds", "train_loss")}
    return [{"kind": "pre-training"} | told], vit


def _augmentation(config: dict[str, Any], mixup: float = 0.0) -> Augmentation:
    return Augmentation(crop="pad", pad=4, flip=config["data"] != "digits", mixup=mixup)  # digits are not mirrored


def _images(config: dict[str, Any], part: str) -> ImageSet:
    """The training or the test images: all, or the same ones for every arm and seed."""
    images, n = whole(config["data"], part, config["image_size"]), config[f"n_{part}"]
    return images if n is None else subset(images, epoch_order(len(images), seed=0, epoch=0)[:n].sort().values)
