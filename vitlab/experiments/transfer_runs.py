"""One run of transfer: a pre-training, its fine-tunings, and its frozen features (§3.2, §4.1, Table 4)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from vitlab.data.loader import ImageSet
from vitlab.evaluation.features import features
from vitlab.evaluation.fewshot import FewShot, few_shot
from vitlab.evaluation.probe import Probe, linear_probe
from vitlab.experiments import transfer_images as images
from vitlab.experiments.frozen import OTHER_CLASSES
from vitlab.models import zoo
from vitlab.training import paper
from vitlab.training.evaluate import evaluate
from vitlab.training.finetune import Finetuned, finetune, split
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe

SCRATCH = "scratch"  # the control: from the weights that pre-training began with
ARMS = {"1x": 1.0, "1.5x": 1.5, "2x": 2.0, SCRATCH: 1.0}  # fine-tunings → image side over pre-training's
TABLE_4 = next(row for row in paper.TABLE_4 if row.data == "Flowers-102")  # the row for small sets
_PROBE = Probe(max_steps=5_000)
_PARTS = 2  # of a batch of larger images, one after the other
_AT_ONCE = 50  # larger images in an evaluation


class Finetuning(NamedTuple):
    """One of the fine-tunings of a run."""

    target: str
    arm: str
    side: int  # pixels
    rates: list[float]


def finetunings(config: dict[str, Any]) -> list[Finetuning]:
    """What a run fine-tunes, in this order.

    >>> rates = {f"rates digits {arm}": "" for arm in ARMS} | {"rates digits 1x": "0.3 1.0", "rates digits 2x": "3.0"}
    >>> [(each.arm, each.side, each.rates) for each in finetunings({"targets": "digits", "image_size": 32} | rates)]
    [('1x', 32, [0.3, 1.0]), ('2x', 64, [3.0])]
    """
    return [
        Finetuning(target, arm, round(scale * config["image_size"]), [float(rate) for rate in rates.split()])
        for target in config["targets"].split()
        for arm, scale in ARMS.items()
        if (rates := config[f"rates {target} {arm}"])
    ]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Pre-train one model with one seed, fine-tune it in every arm, and evaluate its frozen features."""
    weights, rows = _pretrained(config)
    for each in finetunings(config):
        rows += _finetuned(config, each, weights[each.arm == SCRATCH])
    for name, model in zip(("pre-trained", "untrained"), weights, strict=True):
        if name == "pre-trained" or any(each.arm == SCRATCH for each in finetunings(config)):
            rows += [row | {"weights": name} for row in _frozen(config, model)]
    return rows


def try_rates(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Pre-train one model with one seed, and fine-tune it with every learning rate, judged on held-out images."""
    weights, _ = _pretrained(config)
    rows = []
    for each in finetunings(config):
        learned, held_out = split(_images(config, each, "train"), TABLE_4.held_out, config["seed"])
        for rate in each.rates:
            one = each._replace(rates=[rate])
            _, measured = _one_finetuning(config, one, weights[each.arm == SCRATCH], learned, held_out)
            rows.append(_trial(each, rate, measured[-1]["test_accuracy"]))
    return rows


def _pretrained(config: dict[str, Any]) -> tuple[tuple[nn.Module, nn.Module], list[dict[str, Any]]]:
    """The pre-trained model and the one that pre-training began with: nothing but the pre-training differs; its row."""
    seed = config["seed"]
    for each in finetunings(config):  # whole sets are read while no training holds memory
        _images(config, each, "train"), _images(config, each, "test")
    source = images.source(config)
    names = ("steps", "batch_size", "learning_rate", "warmup_steps", "precision")
    recipe = Recipe(**{name: config[name] for name in names}, seed=seed)
    shape = {"n_classes": source.n_classes, "image_size": config["image_size"]}
    trained, untrained = (zoo.create(config["model"], **shape, seed=seed).to(default_device()) for _ in range(2))
    last = train(trained, source.feed, recipe, validation=source.test)[-1]
    row = {"kind": "pretraining", "test_accuracy": last["val_accuracy"], "train_loss": last["train_loss"]}
    return (trained, untrained), [row | {"seconds": last["seconds"]}]


def _images(config: dict[str, Any], each: Finetuning, part: str) -> ImageSet:
    return images.target(each.target, part, each.side, config[f"n_{part}"])


def _one_finetuning(
    config: dict[str, Any], each: Finetuning, start: nn.Module, learned: ImageSet, watch: ImageSet
) -> tuple[Finetuned, list[dict[str, float]]]:
    """The fine-tuning, and its accuracy on `watch`: after every epoch at pre-training's side, else at the end alone."""
    n_train, precision = len(_images(config, each, "train")), config["precision"]
    often = each.side == config["image_size"]

    def recipe(rate: float) -> Recipe:
        # In parts, a larger image takes no more memory than one of pre-training's side.
        planned = lab_recipe(n_train, config["finetuning_batch"], config["epochs"], rate)
        return dataclasses.replace(planned, precision=precision, accumulate=1 if often else _PARTS)

    done = finetune(
        start,
        learned,
        recipe,
        each.rates,
        held_out=TABLE_4.held_out,
        seed=config["seed"],
        watch=watch if often else None,
        augmentation=images.augmentation(each.target, each.side),
    )
    if often:
        measured = [(row["step"], row["val_accuracy"], row["seconds"]) for row in done.rows]
    else:
        accuracy = evaluate(done.model, watch, _AT_ONCE, precision)["accuracy"]
        measured = [(done.rows[-1]["step"], accuracy, done.rows[-1]["seconds"])]
    last = done.rows[-1]["step"]
    names = ("epoch", "test_accuracy", "seconds")
    rows = [(config["epochs"] * step // last, accuracy, seconds) for step, accuracy, seconds in measured]
    return done, [dict(zip(names, row, strict=True)) for row in rows]


def _finetuned(config: dict[str, Any], each: Finetuning, start: nn.Module) -> Iterator[dict[str, Any]]:
    """Rows of one fine-tuning: its evaluations, and every learning rate tried."""
    done, rows = _one_finetuning(config, each, start, *(_images(config, each, part) for part in ("train", "test")))
    for row in rows:
        yield {"kind": "evaluation", **_named(each), "rate": done.learning_rate, **row}
    for rate, accuracy in done.trials.items():
        yield _trial(each, rate, accuracy)


def _trial(each: Finetuning, rate: float, accuracy: float) -> dict[str, Any]:
    return {"kind": "trial", **_named(each), "rate": rate, "held_out_accuracy": accuracy}


def _named(each: Finetuning) -> dict[str, Any]:
    return {"target": each.target, "arm": each.arm, "side": each.side}


def lab_recipe(n_train: int, batch_size: int, epochs: int, learning_rate: float) -> Recipe:
    """Table 4 for a small set: smaller batches, and the learning rate (for a batch of 512) scaled with them.

    >>> recipe = lab_recipe(n_train=1437, batch_size=32, epochs=6, learning_rate=1.6)
    >>> recipe.optimizer, recipe.steps, recipe.learning_rate, recipe.weight_decay, recipe.grad_clip
    ('sgd', 270, 0.1, 0.0, 1.0)
    """
    epoch = math.ceil(n_train / batch_size)  # steps
    recipe = paper.lab(TABLE_4.recipe(learning_rate), batch_size, samples=epochs * epoch * batch_size)
    return dataclasses.replace(recipe, eval_every=epoch)


def _frozen(config: dict[str, Any], model: nn.Module) -> Iterator[dict[str, Any]]:
    """Rows of few-shot least squares and linear probe, on the targets and on the world's other classes."""
    targets = {name: (config["n_train"], config["n_test"]) for name in config["targets"].split()}
    for name, counts in (targets | {OTHER_CLASSES: (config["n_near"],) * 2}).items():
        read = functools.partial(images.target, name, image_size=config["image_size"])
        train_set, test_set = (read(part, count=n) for part, n in zip(("train", "test"), counts, strict=True))
        sets = *features(model, train_set), *features(model, test_set)
        for row in few_shot(*sets, len(train_set.classes), FewShot(), config["seed"]).itertuples():
            yield {"kind": "few shot", "target": name, "shots": row.shots, "draw": row.seed, "accuracy": row.accuracy}
        accuracy = linear_probe(*sets, _PROBE, config["seed"])["accuracy"]
        yield {"kind": "probe", "target": name, "accuracy": accuracy}
