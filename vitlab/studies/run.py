"""One run of every kind: pre-train → adapt → evaluate → rows. `RUNS` maps a kind to its function.

It takes a configuration (see `table`) and returns rows. A change that moves numbers raises `table.VERSION`.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from timm.layers import StdConv2d
from torch import Tensor, nn

from vitlab.analysis import positions
from vitlab.analysis.attention import patch_embedding
from vitlab.analysis.distance import distance_and_mass
from vitlab.analysis.filters import embedding_filters, filter_components, low_frequency_share
from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.datasets import Splits, first_image, subset, world_named, world_splits
from vitlab.data.loader import Batches, ImageSet, batches, epoch_order, resize_and_crop, to_float
from vitlab.data.world import HELD_OUT, World, image_set, latents, stream, with_cues, with_difficulty
from vitlab.models import zoo
from vitlab.models.convnets import Hybrid, HybridConfig
from vitlab.models.variants import Offsets, VariantConfig
from vitlab.models.vit import ViT, ViTConfig
from vitlab.probes import FewShot, features, few_shot
from vitlab.settings import default_device
from vitlab.studies import checks, measure, speed
from vitlab.training import masked as masking
from vitlab.training import paper
from vitlab.training.finetune import Finetuned, finetune
from vitlab.training.loop import Classification, evaluate, train, untrained_row
from vitlab.training.masked import MaskedPrediction, MaskedViT, Target, guesses
from vitlab.training.recipe import Recipe

Config = dict[str, Any]
Rows = list[dict[str, Any]]

OTHER_CLASSES = "world"  # as a target: images in the world's style, of classes that pre-training has not seen
CROPS = "photographs"  # as data: endless crops of the photographs that come with the dependencies
STRUCTURED = {"column": 8, "size": 8, "angle": 8, "count": 3}  # as targets: what `world.latents` tells, its classes
ARMS = {"1x": 1.0, "1.5x": 1.5, "2x": 2.0, "scratch": 1.0}  # fine-tunings of `transfer` → side over pre-training's
TABLE_4 = next(row for row in paper.TABLE_4 if row.data == "Flowers-102")  # the row for small sets
N_SHOWN = 3  # held-out images of which `local_heads` keeps what the model predicts
_NOISE = {"white noise": 0.0, "pink noise": 1.0}  # as data, and how amplitude falls with frequency
_CROPPED = Augmentation(crop="inception", area=(0.35, 1.0), flip=True)  # of photographs
TRAININGS: ContextVar[Iterator[Path]] = ContextVar("folders in which the long trainings of a killed run resume")
_RECIPE, _OPTIONS = ({field.name for field in dataclasses.fields(each)} for each in (Recipe, VariantConfig))


def recipe_of(config: Config, **changes: Any) -> Recipe:
    """Read the recipe of a run off its configuration."""
    return Recipe(**{name: config[name] for name in _RECIPE & config.keys()} | changes)


# --- images -----------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4)
def whole(data: str, part: str, image_size: int | None = None) -> ImageSet:
    """Load a set, kept in memory, for a process trains many models on it."""
    return datasets.load(data, part, image_size=image_size)


def some(images: ImageSet, count: int | None) -> ImageSet:
    """Draw at most `count` images, the same for every model and seed, in the order of the set; None or 0: all."""
    return subset(images, epoch_order(len(images), seed=0, epoch=0)[: count or None].sort().values)


@functools.lru_cache(maxsize=64)
def resized_target(data: str, part: str, side: int, n: int, difficulty: float = 1.0, n_classes: int = 10) -> ImageSet:
    """Draw at most `n` images of a set, the same at every size (pixels).

    "world" are `n_classes` of `difficulty` that pre-training, on seed 0, has not seen; "world-2", … are others each.
    """
    if data.startswith(OTHER_CLASSES):
        seed = int(data.removeprefix(OTHER_CLASSES).lstrip("-") or 1)
        other = with_difficulty(World(n_classes, side, seed), difficulty)
        splits = world_splits(other, n, 0, n)
        return splits.train if part == "train" else splits.test
    if data in STRUCTURED:
        alone: Config = {} if data == "count" else {"distractors": 0.0, "occlusion": 0.0}
        made = World(seed=1, image_size=side, rotation=0.5, scale=1.2, **alone)
        images = image_set(made, n, start := HELD_OUT * (part == "test"))
        labels = latents(made, torch.arange(start, start + n))[data]
        return ImageSet(images.images, labels, tuple(map(str, range(STRUCTURED[data]))))
    images = some(whole(data, part), n)
    if images.images.shape[-1] == side:
        return images
    arrays = images.images.permute(0, 2, 3, 1).numpy()
    pictures = np.stack([resize_and_crop(Image.fromarray(each), side).transpose(2, 0, 1) for each in arrays])
    return ImageSet(torch.from_numpy(pictures), images.labels, images.classes)


def shifted(data: str, image_size: int) -> Augmentation:
    """Shift by an eighth of the side at most, and mirror; digits are not mirrored."""
    return Augmentation(crop="pad", pad=image_size // 8, flip=data != "digits")


def kept_px(data: str, image_size: int) -> int | None:
    """Side in pixels at which a set is held in memory for crops of `image_size`; None: as it comes."""
    return min(datasets.SIDES[data], round(1.4 * image_size)) if data in datasets.SIDES else None


def subset_splits(source: str, image_size: int, n_train: int, n_validation: int, n_test: int, seed: int) -> Splits:
    """Split a real set: training (the larger hold the smaller) and validation images by seed, the same test images."""
    images, test = (datasets.load(source, part, image_size=image_size) for part in ("train", "test"))
    order = epoch_order(len(images), seed=seed, epoch=0)
    n_validation = min(n_validation, len(images) - n_train)
    few = subset(test, epoch_order(len(test), seed=0, epoch=0)[:n_test])
    return Splits(subset(images, order[:n_train]), subset(images, order[len(images) - n_validation :]), few)


def world_of(config: Config, cue: str) -> World:
    """Make the world of a run: so many classes, told by one cue alone or by all ("mixed")."""
    made = World(n_classes=config["n_classes"], image_size=config["image_size"])
    return with_difficulty(made if cue == "mixed" else with_cues(made, cue), config["difficulty"])


def noise(slope: float, side: int, count: int, seed: int) -> ImageSet:
    """Draw noise whose amplitude falls with frequency to the power `slope`: 0 is white, 1 as smooth as photographs."""
    white = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))
    frequency = torch.fft.fftfreq(side)[:, None].hypot(torch.fft.rfftfreq(side)).clamp(min=1 / side)
    images = torch.fft.irfft2(torch.fft.rfft2(white) / frequency**slope)
    images = 128 + 64 * images / images.std()
    return ImageSet(images.clamp(0, 255).byte(), torch.zeros(count, dtype=torch.int64), ("noise",))


def _pretraining(data: str, side: int, size: int, seed: int, n_train: int = 0) -> tuple[Batches, int]:
    """Batches of a pre-training on the world, on crops of photographs or on a set, and the number of its classes."""
    device = default_device()
    if data == "world":  # each seed sees images of its own
        made = with_difficulty(World(n_classes=300, image_size=side), 0.5)  # of ten classes no features would come
        return stream(made, size, device, start=first_image(seed)), made.n_classes
    if data == CROPS:
        return datasets.photograph_batches(side, size, seed, device), datasets.N_PHOTOGRAPHS
    if data in _NOISE:
        return batches(noise(_NOISE[data], side, 9_469, seed), size, seed, device), 1  # as many as Imagenette has
    images = whole(data, "train", kept_px(data, side))
    if 0 < n_train < len(images):
        images = subset(images, epoch_order(len(images), seed, epoch=0)[:n_train])
    return batches(images, size, seed, device, _CROPPED, side), len(images.classes)


def _with_objective(
    vit: nn.Module, feed: Batches, recipe: Recipe, how: str, target: str, share: float = MaskedPrediction.share
) -> tuple[nn.Module, Batches, Any]:
    """Model, batches and objective that `train` takes, of masked prediction or of classification."""
    if how == "masked":
        return masking.prepare(vit, feed, recipe.batch_size, Target(target), share, recipe.seed)
    return vit, feed, Classification()


def _finetune_on(
    target: str, model: nn.Module, config: Config, rates: Sequence[float], n_test: int, **options: Any
) -> Finetuned:
    """Fine-tune on one target as the run's `finetuning_…` say, at the best of the rates on held-out images."""
    side, steps, size = (config[name] for name in ("image_size", "finetuning_steps", "finetuning_batch_size"))
    images = resized_target(target, "train", side, config["finetuning_n_images"])
    test = resized_target(target, "test", side, n_test)
    options |= {"warmup_steps": steps // 10, "precision": config["precision"]}
    how = {"held_out": 0.2, "seed": config["seed"], "watch": test, "augmentation": shifted(target, side)}
    return finetune(model, images, lambda rate: Recipe(steps, size, learning_rate=rate, **options), rates, **how)


def _frozen(
    model: nn.Module, name: str, sets: Iterable[ImageSet], few: FewShot, seed: int, prepare: Any = to_float
) -> Rows:
    """Rows of frozen features on one target: few-shot accuracy for each draw of images."""
    train_set, test_set = sets
    known = *features(model, train_set, prepare=prepare), *features(model, test_set, prepare=prepare)
    shots = few_shot(*known, len(train_set.classes), few, seed)[["shots", "seed", "accuracy"]]
    draws = shots.rename(columns={"seed": "draw"}).to_dict("records")
    return [{"kind": "few shot", "target": name} | row for row in draws]


# --- scaling (§4.3, §4.4) ---------------------------------------------------------------------------------------------
def scaling(config: Config) -> Rows:
    """Train on images of the world; rows of kind "outcome", "history", "few shot", "fine-tuned"."""
    side, seed, made = config["image_size"], config["seed"], world_of(config, config["cue"])
    model = zoo.create(config["model"], n_classes=made.n_classes, image_size=side, seed=seed).to(default_device())
    recipe = recipe_of(config)
    counts = (config["n_train"], config["n_validation"], config["n_test"])
    splits = world_splits(made, *counts, draw=seed, n_seen=recipe.samples)
    history = [untrained_row(model, splits.validation)]
    feed = batches(splits.train, recipe.batch_size, seed, default_device())
    history += train(model, feed, recipe, validation=splits.validation, folder=next(TRAININGS.get(iter(())), None))
    best = max(history[1:], key=lambda row: row["val_accuracy"])  # the first of several that are equal
    kept = history[-1] if recipe.patience is None else best  # without patience, training keeps the last weights
    few = subset(splits.train, torch.arange(min(len(splits.train), config["n_validation"])))
    outcome = {
        "kind": "outcome",
        "test_accuracy": evaluate(model, splits.test)["accuracy"],
        "validation_accuracy": kept["val_accuracy"],
        "train_accuracy": evaluate(model, few)["accuracy"],  # on at most n_validation images
        "best_step": kept["step"],
        "last_step": history[-1]["step"],
        "flops": history[-1]["flops"],  # of the training, up to its end
        "seconds": history[-1]["seconds"],
    }
    names = ("step", "samples", "seconds", "train_loss", "val_loss", "val_accuracy")
    rows: Rows = [outcome, *({"kind": "history"} | {n: row[n] for n in names if n in row} for row in history)]
    others = [OTHER_CLASSES, *(f"{OTHER_CLASSES}-{k}" for k in range(2, config.get("n_sets", 1) + 1))]
    tasks = [(name, int(n)) for n in config.get("at_once", "10").split() for name in others]
    for name, n in (*tasks, *((name, 10) for name in config["real"].split())):
        about = side, config["n_frozen"] * n // 10, config["difficulty"], n
        sets = (resized_target(name, part, *about) for part in ("train", "test"))
        rows += _frozen(model, name if n == 10 else f"{name}, {n} classes", sets, FewShot(shots=(10,)), seed)
    if config["finetuning_steps"]:
        for name in config["real"].split():
            rates = [float(rate) for rate in str(config["finetuning_learning_rate"]).split()]
            done = _finetune_on(name, model, config, rates, n_test=10_000)
            rows.append({"kind": "fine-tuned", "target": name, "accuracy": done.rows[-1]["val_accuracy"]})
    return rows


# --- design choices (App. D) ------------------------------------------------------------------------------------------
def design(config: Config) -> Rows:
    """Train a model with the options of its variant, and fine-tune it on its `targets` if any; a row, or one a target.

    Of the last weights; flops are of a forward pass for one image, `map` is that of the position embeddings, packed.
    """
    side, seed, task = config["image_size"], config["seed"], config["task"]
    counts = (config["n_train"], config["n_validation"], config["n_test"])
    recipe = recipe_of(config, warmup_steps=config["steps"] // 10)
    if task in ("cifar10", "digits"):
        splits, augmentation = subset_splits(task, side, *counts, seed), shifted(task, side)
    else:
        made, augmentation = world_of(config, task), None
        splits = world_splits(made, *counts, draw=seed, n_seen=recipe.samples)
    model = variant_of(config).to(default_device())
    feed = batches(splits.train, recipe.batch_size, seed, default_device(), augmentation)
    last = train(model, feed, recipe, validation=splits.validation, folder=next(TRAININGS.get(iter(())), None))[-1]
    row = {
        "validation_accuracy": last["val_accuracy"],
        "test_accuracy": evaluate(model, splits.test)["accuracy"],
        "train_loss": last["train_loss"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "flops": zoo.forward_flops(model, splits.test.images[:1].to(default_device()).float()),
        "seconds": last["seconds"],
    }
    if "positions" in config:
        found = similarity_of(model) if seed % 100 == 0 else None  # a map is kilobytes
        row["map"] = None if found is None else pack(found, symmetric=False)
    if "targets" not in config:
        return [row]
    rows, rates = [], [float(rate) for rate in config["finetuning_rates"].split()]
    for kernels in ("trained", "rescaled"):
        if kernels == "rescaled":
            rescale_kernels(model, variant_of(config))
        for name in config["targets"].split():  # by SGD with momentum, as Table 4
            done = _finetune_on(name, model, config, rates, n_test=5_000, optimizer="sgd", weight_decay=0.0)
            tuned = {"fine_tuned": done.rows[-1]["val_accuracy"], "finetuning_rate": done.learning_rate}
            rows.append(row | {"kernels": kernels, "target": name} | tuned)
    return rows


def rescale_kernels(model: nn.Module, fresh: nn.Module) -> None:
    """Give each weight-standardised filter the deviation of its fresh one: outputs stay, steps turn it as far again."""
    for conv, other in zip(model.modules(), fresh.modules(), strict=True):
        if isinstance(conv, StdConv2d):
            spread, wanted = (each.weight.detach().flatten(1).std(1).view(-1, 1, 1, 1) for each in (conv, other))
            conv.weight.data.mul_(wanted.to(spread) / spread)


def variant_of(config: Config) -> nn.Module:
    """Build a run's model with fresh weights: the zoo's, with the options that the run has."""
    options = {name: config[name] for name in _OPTIONS & config.keys()}
    return zoo.create(config["model"], seed=config["seed"], **options)


def similarity_of(model: nn.Module) -> Tensor | None:
    """Map the similarity of a ViT's position embeddings (of block 1's, if several); None where it has none.

    Of relative ones tile [i, j] compares the embedding of each offset from patch (i, j) with that of offset 0.
    """
    kind, place = (getattr(model.config, name, None) for name in ("positions", "placed"))  # None: the plain ViT's
    grid = patch_embedding(model).grid_size
    if kind == "none":
        return None
    if kind != "relative":
        table = positions.position_embeddings(model, 0 if place == "every block" else None)
        return positions.position_similarity(table.float().cpu(), grid)
    offsets, n = next(part for part in model.modules() if isinstance(part, Offsets)), math.prod(grid)
    table = nn.functional.normalize(offsets.pos_embed_offsets.detach().float().cpu(), dim=1)
    place_of = torch.arange(n)
    return (table @ table[n - 1])[n - 1 - (place_of[:, None] - place_of)].reshape(*grid, *grid)  # row n - 1: offset 0


# --- training from scratch (§4.1, §4.3) -------------------------------------------------------------------------------
def subsets(config: Config) -> Rows:
    """Train one model on a part of a real set, with shifts and (but for digits) flips; one row."""
    side, seed, steps, n_test = config["image_size"], config["seed"], config["steps"], config["n_test"]
    splits = subset_splits(config["source"], side, config["n_train"], n_test, n_test, seed)
    recipe = recipe_of(config, warmup_steps=steps // 10, eval_every=max(1, steps // 10), patience=5)
    shape = {"n_classes": len(splits.train.classes), "image_size": side}
    model = zoo.create(config["model"], **shape, seed=seed).to(default_device())
    feed = batches(splits.train, recipe.batch_size, seed, default_device(), shifted(config["source"], side))
    rows = train(model, feed, recipe, validation=splits.validation)
    best, accuracy = max(row["val_accuracy"] for row in rows), evaluate(model, splits.test)["accuracy"]
    return [{"validation_accuracy": best, "test_accuracy": accuracy, "train_loss": rows[-1]["train_loss"]}]


def curves(config: Config) -> Rows:
    """Train one model on the world, with its test images evaluated on the way; rows of kind "curve"."""
    recipe, side, device = recipe_of(config), config["image_size"], default_device()
    splits = world_splits(World(image_size=side), config["n_train"], 0, config["n_test"])
    model = zoo.create(config["model"], n_classes=10, image_size=side, seed=config["seed"]).to(device)
    rows = [untrained_row(model, splits.test)]
    feed = batches(splits.train, recipe.batch_size, recipe.seed, device)
    rows += train(model, feed, recipe, validation=splits.test)
    kept = {name: name for name in ("step", "samples", "seconds", "train_loss")}
    kept |= {"val_loss": "test_loss", "val_accuracy": "test_accuracy"}
    return [{"kind": "curve"} | {new: row[old] for old, new in kept.items() if old in row} for row in rows]


# --- transfer (§3.2, §4.1, Table 4) -----------------------------------------------------------------------------------
def transfer(config: Config) -> Rows:
    """Pre-train one model on its source, fine-tune it on every target in every arm, and evaluate its frozen features.

    Rows of kind "pretraining", "evaluation" (of a fine-tuning), "trial" (of a learning rate), "few shot".
    """
    plan = finetunings(config)
    for name, _, side, _ in plan:  # whole sets are read while no training holds memory
        for part in ("train", "test"):
            resized_target(name, part, side, config[f"n_{part}"])
    seed, side = config["seed"], config["image_size"]
    feed, test, n_classes = _source(config)
    shape = {"n_classes": n_classes, "image_size": side}
    trained, fresh = (zoo.create(config["model"], **shape, seed=seed).to(default_device()) for _ in range(2))
    last = train(trained, feed, recipe_of(config), validation=test)[-1]
    about = {"test_accuracy": last["val_accuracy"], "train_loss": last["train_loss"], "seconds": last["seconds"]}
    rows: Rows = [{"kind": "pretraining"} | about]
    for each in plan:
        rows += _finetune(config, *each, start=fresh if each[1] == "scratch" else trained)
    models = {"pre-trained": trained} | ({"untrained": fresh} if any(arm == "scratch" for _, arm, _, _ in plan) else {})
    wanted = {name: (config["n_train"], config["n_test"]) for name in config["targets"].split()}
    for weights, model in models.items():
        for name, counts in (wanted | {OTHER_CLASSES: (config["n_near"],) * 2}).items():
            sets = (resized_target(name, part, side, n) for part, n in zip(("train", "test"), counts, strict=True))
            rows += [row | {"weights": weights} for row in _frozen(model, name, sets, FewShot(), seed)]
    return rows


def finetunings(config: Config) -> list[tuple[str, str, int, list[float]]]:
    """List what a run of `transfer` fine-tunes: target, arm, image side in pixels, learning rates to try."""
    return [
        (name, arm, round(scale * config["image_size"]), [float(rate) for rate in str(rates).split()])
        for name in config["targets"].split()
        for arm, scale in ARMS.items()
        if (rates := config[f"rates {name} {arm}"])
    ]


def _source(config: Config) -> tuple[Batches, ImageSet, int]:
    """Batches of a pre-training, images to test it on, and the number of its classes; of a set, what no target has."""
    data, side, size, seed = (config[name] for name in ("source", "image_size", "batch_size", "seed"))
    device = default_device()
    if made := world_named(data, side):
        made = with_difficulty(made, config["difficulty"])
        if config["n_source"]:
            feed = batches(world_splits(made, config["n_source"], 0, 1).train, size, seed, device)
        else:  # endless; every seed sees images of its own
            feed = stream(made, size, device, start=first_image(seed))
        return feed, image_set(made, config["n_near"], HELD_OUT, device), made.n_classes
    images = whole(data, "train", kept_px(data, side))
    images = subset(images, epoch_order(len(images), seed=0, epoch=0)[config["n_train"] :].sort().values)
    test = resized_target(data, "test", side, config["n_test"])
    return batches(images, size, seed, device, _CROPPED, side), test, len(images.classes)


def _finetune(config: Config, name: str, arm: str, side: int, rates: list[float], start: Any) -> Rows:
    """Fine-tune by Table 4; evaluated after every epoch at pre-training's side, else at the end alone."""
    images, test = (resized_target(name, part, side, config[f"n_{part}"]) for part in ("train", "test"))
    often, precision = side == config["image_size"], config["precision"]

    def recipe(rate: float) -> Recipe:
        """Table 4's, with smaller batches, and the learning rate (for a batch of 512) with them."""
        epoch = math.ceil(len(images) / (size := config["finetuning_batch"]))  # steps
        made = paper.lab(TABLE_4.recipe(rate), size, samples=config["epochs"] * epoch * size)
        # In two parts, a larger image takes no more memory than one of pre-training's side.
        return dataclasses.replace(made, eval_every=epoch, precision=precision, accumulate=1 if often else 2)

    augmentation = shifted(name, side) if name in datasets.TORCHVISION else None
    how = {"held_out": TABLE_4.held_out, "seed": config["seed"], "augmentation": augmentation}
    done = finetune(start, images, recipe, rates, watch=test if often else None, **how)
    last, rows = done.rows[-1]["step"], done.rows if often else done.rows[-1:]
    named = {"target": name, "arm": arm, "side": side}
    found: Rows = []
    for row in rows:
        accuracy = row["val_accuracy"] if often else evaluate(done.model, test, 50, precision)["accuracy"]
        at = {"rate": done.learning_rate, "epoch": config["epochs"] * row["step"] // last}
        found.append({"kind": "evaluation", **named, **at, "test_accuracy": accuracy, "seconds": row["seconds"]})
    for rate, accuracy in done.trials.items():
        found.append({"kind": "trial", **named, "rate": rate, "held_out_accuracy": accuracy})
    return found


def adapted(config: Config) -> Rows:
    """Adapt given weights to a task: fine-tuning by Table 4 and, once for all seeds of it, few-shot of three draws."""
    seed, name, side = config["seed"], config["target"], config["image_size"]
    given = zoo.load(config["weights"], untrained=config["untrained"], seed=seed)
    rows = _finetune(config, name, "1x", side, [config["rate"]], given)
    if seed % 100 == 0:
        sets = (resized_target(name, part, side, config[f"n_{part}"]) for part in ("train", "test"))
        rows += _frozen(given.model, name, sets, FewShot(), seed, given.prepare)
    return rows


# --- masked prediction (§4.6) -----------------------------------------------------------------------------------------
def vit_of(config: Config, n_classes: int) -> ViT:
    """Build the ViT of a run that names its sizes, MLPs four times as wide; a hybrid if it names a ResNet's `width`."""
    body = {name: config[name] for name in ("image_size", "patch_size", "dim", "depth", "n_heads")}
    body |= {"mlp_dim": 4 * config["dim"], "n_classes": n_classes}
    if "width" in config:
        resnet = {"width": config["width"], "layers": (1, 1, 2), "stem_stride": config["patch_size"] // 4}
        vit: ViT = Hybrid(HybridConfig(**body, **resnet), config["seed"])
    else:
        vit = ViT(ViTConfig(**body), config["seed"])
    with torch.no_grad():
        vit.patch_embed.proj.weight.mul_(config.get("embed_scale", 1.0))  # of LeCun's
    return vit


def masked(config: Config) -> Rows:
    """Pre-train a ViT in one arm, and fine-tune it as in all arms; rows "pre-training", "evaluation", "trial"."""
    side, seed, on = config["image_size"], config["seed"], config["finetuned_on"]
    images, test = (some(whole(on, part, side), config[f"n_{part}"]) for part in ("train", "test"))
    rows: Rows = []
    if config["objective"] == "none":
        vit = vit_of(config, 1).to(default_device())
    else:
        feed, n_classes = _pretraining(config["data"], side, config["batch_size"], seed)
        vit = vit_of(config, n_classes)
        recipe = recipe_of(config, warmup_steps=config["steps"] // 20, eval_every=0)  # that is of the fine-tuning
        model, feed, objective = _with_objective(vit, feed, recipe, config["objective"], config["target"])
        last = train(model.to(default_device()), feed, recipe, objective=objective)[-1]
        rows.append({"kind": "pre-training", "samples": last["samples"], "train_loss": last["train_loss"]})

    about = {name: config[name] for name in ("eval_every", "precision", "seed")}
    about |= {"warmup_steps": config["finetuning_warmup"]}  # by Adam: Table 4's SGD is for pre-trained weights
    length = config["finetuning_steps"], config["finetuning_batch"]
    rates = [float(rate) for rate in config["rates"].split()]
    how = {"held_out": 0.1, "seed": seed, "watch": test, "augmentation": None if on == "digits" else _CROPPED}
    done = finetune(vit, images, lambda rate: Recipe(*length, learning_rate=rate, **about), rates, **how)
    for row in done.rows:
        at = {"samples": row["samples"], "test_accuracy": row["val_accuracy"], "rate": done.learning_rate}
        rows.append({"kind": "evaluation", **at})
    return rows + [{"kind": "trial", "rate": rate, "held_out_accuracy": each} for rate, each in done.trials.items()]


def local_heads(config: Config) -> Rows:
    """Train a ViT, masked or with labels, and look into it at every evaluation, from step 0 on.

    Rows of kind "evaluation" (loss, filters, position map, predicted patches as text) and "head" (mode "paper").
    """
    side, size, seed, data = config["image_size"], config["batch_size"], config["seed"], config["data"]
    feed, n_classes = _pretraining(data, side, size, seed, config["n_train"])
    if data == CROPS:
        test = datasets.photograph_set(config["n_test"], side)
    else:
        test = whole(data, "test", side)
        test = subset(test, epoch_order(len(test), seed=0, epoch=0)[: config["n_test"]])
    recipe, how = recipe_of(config, betas=(0.9, 0.95)), (config["objective"], config["target"], config["share"])
    model, feed, objective = _with_objective(vit_of(config, n_classes), feed, recipe, *how)
    model = model.to(default_device())

    def seen(model: nn.Module, images: ImageSet, precision: str) -> dict[str, Any]:
        pictures = next(iter(images.chunks(config["n_watched"])))[0]
        found = objective.evaluate(model, images, precision)
        if not isinstance(model, MaskedViT):
            return found | look(model, pictures)
        plan = shown_plan(model.n_patches, objective.share)
        return found | look(model.vit, pictures) | {"guesses": _text(guesses(model, most_varied(pictures), plan))}

    watched = SimpleNamespace(loss=objective.loss, evaluate=seen, result=objective.result)
    before = {f"val_{name}": value for name, value in seen(model, test, "fp32").items()}
    history = [{"step": 0, "samples": 0, "seconds": 0.0, "train_loss": None} | before]
    history += train(model, feed, recipe, validation=test, objective=watched)
    names = ("loss", "accuracy", "nearness", "row_excess", "column_excess", "similarity", "explained", "low_frequency")
    rows: Rows = []
    for row in history:
        about = {name: row[name] for name in ("samples", "step", "train_loss", "seconds")}
        measured = {name: row[f"val_{name}"] for name in names} | {"guesses": row.get("val_guesses")}
        rows.append({"kind": "evaluation"} | about | measured)
        for b, block in enumerate(zip(row["val_heads"], row["val_masses"], strict=True), 1):
            for h, (distance, mass) in enumerate(zip(*block, strict=True), 1):
                at = {"samples": row["samples"], "block": b, "head": h}
                rows.append({"kind": "head"} | at | {"distance_px": distance, "prefix_mass": mass})
    return rows


@torch.inference_mode()
def look(vit: nn.Module, pictures: Tensor) -> dict[str, Any]:
    """Measure a ViT on bytes [B 3 H W]: heads, masses, position map, first components of its filters (no hybrid's)."""
    training = vit.training
    vit.eval()
    both = distance_and_mass(vit, to_float(pictures.to(next(vit.parameters()).device)))
    distances, masses = (values.mean(0).tolist() for values in both)
    vit.train(training)
    table = positions.position_embeddings(vit).float().cpu()
    similarity = positions.position_similarity(table, positions.position_grid(vit))
    row, column = positions.row_column_excess(similarity)
    explained = low_frequency = None
    if not isinstance(vit, Hybrid):
        known = embedding_filters(vit).cpu()
        components, shares = filter_components(known, measure.n_components(known))
        explained, low_frequency = shares.sum().item(), low_frequency_share(components).mean().item()
    return {
        "explained": explained,
        "low_frequency": low_frequency,
        "nearness": positions.distance_correlation(similarity),
        "row_excess": None if math.isnan(row) else row,  # of a grid of one row, say
        "column_excess": None if math.isnan(column) else column,
        "similarity": pack(similarity),
        "heads": [[round(px, 3) for px in block] for block in distances],
        "masses": [[round(mass, 5) for mass in block] for block in masses],
    }


def most_varied(pictures: Tensor) -> Tensor:
    """Choose the `N_SHOWN` pictures whose pixels differ most among themselves, in which there is something to see."""
    return pictures[pictures.float().std(dim=(2, 3)).mean(1).argsort(descending=True, stable=True)[:N_SHOWN]]


def shown_plan(n_patches: int, share: float) -> Tensor:
    """Draw how the `most_varied` images are corrupted, [N_SHOWN, n_patches]."""
    return masking.plans(N_SHOWN, n_patches, share, np.random.default_rng(0))


# --- maps as text, a byte a value, which keeps a cosine to 0.004 ------------------------------------------------------
def _text(values: Tensor) -> str:
    return base64.b64encode(values.contiguous().numpy().tobytes()).decode()


def pack(similarity: Tensor, symmetric: bool = True) -> str:
    """Write a map [rows, cols, rows, cols] as text, of a symmetric one each pair of patches once."""
    levels = ((similarity.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    if symmetric:
        flat = levels.flatten(2).flatten(0, 1)
        levels = flat[tuple(torch.tril_indices(len(flat), len(flat)))]
    return _text(levels)


def _plain(rows: pd.DataFrame) -> Rows:
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


_TRAINED = (scaling, design, subsets, curves, transfer, masked, local_heads, adapted)
RUNS: dict[str, Callable[[Config], Rows]] = {function.__name__: function for function in _TRAINED} | {
    "distances": lambda config: _plain(measure.distances(**config)),
    "rollout": lambda config: _plain(measure.rollout(**config)),
    "checks": lambda config: _plain(checks.model_checks(**config)),
    "speed": lambda config: _plain(speed.measure(**speed.SIZES[config["preset"]], seed=config["seed"])),
}
