"""One training by name, as the command line starts it: planned, checked, then run alone or under torchrun (§4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.data import datasets, folders, loader
from vitlab.data.augment import Augmentation
from vitlab.data.folders import FolderSet
from vitlab.data.loader import Batches, ImageSet
from vitlab.data.world import HELD_OUT, World, image_set, stream
from vitlab.models import zoo
from vitlab.training import cost, paper, processes
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

_WORLD_TEST = 2_000  # held-out images of the world


@dataclass(frozen=True)
class Session:
    """What is trained on what, and how."""

    model: str
    data: str  # "world", a named set, or a folder with train/ and test/ in it
    recipe: Recipe
    augmentation: Augmentation = field(default_factory=Augmentation)
    image_size: int = 32  # pixels
    head: str = "linear"
    dropout: float = 0.0
    drop_path: float = 0.0
    workers: int = 2  # processes that decode a folder's images


_NOT_SET = ("model", "data", "recipe", "augmentation")
# Every setting with its default, which says of what type it is.
DEFAULTS: dict[str, Any] = {
    each.name: each.default
    for kind in (Recipe, Augmentation, Session)
    for each in dataclasses.fields(kind)
    if each.name not in _NOT_SET
} | {"steps": 1_000}


def session(model: str, data: str, like: str | None = None, settings: Mapping[str, Any] | None = None) -> Session:
    """A session whose recipe is Table 3's for `model` on the data called `like`, or the lab's 1,000 steps of 128.

    `settings` change any value of `Recipe`, `Augmentation` and `Session`. The lab's recipe is derived from that for
    ImageNet by `paper.lab`.

    Raises ValueError for a setting there is not, or a model or data that Table 3 does not have.

    >>> session("ViT-B/16", "my-images", like="ImageNet").recipe.learning_rate
    0.003
    >>> session("Lab-Ti/8", "world", settings={"steps": 50, "batch_size": 64}).recipe.samples
    3200
    """
    left = dict(settings or {})
    found = _of_the_paper(model, data, like) if like else _of_the_lab(model, data, left)
    parts = {}
    for name, part in (("recipe", found.recipe), ("augmentation", found.augmentation)):
        known = {each.name for each in dataclasses.fields(part)}
        parts[name] = dataclasses.replace(part, **{key: left.pop(key) for key in list(left) if key in known})
    if unknown := set(left) - set(DEFAULTS):
        raise ValueError(f"a training has no setting {', '.join(sorted(unknown))}; there are: {', '.join(DEFAULTS)}")
    if data == "world" and parts["augmentation"] != Augmentation():
        raise ValueError("the world is not augmented: no image of it comes twice; leave out crop, flip and mixup")
    return dataclasses.replace(found, **parts, **left)


def _of_the_lab(model: str, data: str, settings: Mapping[str, Any]) -> Session:
    batch_size, steps = (settings.get(name, DEFAULTS[name]) for name in ("batch_size", "steps"))
    return Session(model, data, paper.lab(paper.TABLE_3[-1].recipe(), batch_size, steps * batch_size))


def _of_the_paper(model: str, data: str, like: str) -> Session:
    rows = [row for row in paper.TABLE_3 if model in row.models and row.data.lower() == like.lower()]
    if not rows:
        there = "; ".join(f"{', '.join(row.models)} on {row.data}" for row in paper.TABLE_3)
        raise ValueError(f"Table 3 has no {model} on {like}; it has {there}")
    row = rows[0]
    inception = Augmentation() if data == "world" else Augmentation(crop="inception", flip=True)
    return Session(model, data, row.recipe(), inception, row.image_size, head="tanh", dropout=row.dropout)


def prepared(chosen: Session, device: torch.device) -> tuple[nn.Module, Batches, ImageSet | FolderSet]:
    """The model on its device, its batches and its test set.

    Raises what `zoo.create` and the data sets raise: an unknown name, data that is not there.
    """
    size, recipe = chosen.image_size, chosen.recipe
    batches: Callable[..., Batches] = loader.batches
    if chosen.data == "world":
        world = World(image_size=size)
        test, classes = image_set(world, _WORLD_TEST, HELD_OUT, device), world.n_classes
        feed = stream(world, recipe.batch_size, device)
    else:
        if chosen.data in datasets.NAMES:
            learn, test = (datasets.load(chosen.data, split, image_size=size) for split in ("train", "test"))
        else:
            learn, test = (folders.open_folder(chosen.data, split, image_size=size) for split in ("train", "test"))
            batches = lambda *args: folders.batches(*args, workers=chosen.workers)  # noqa: E731
        classes = len(learn.classes)
        feed = batches(learn, recipe.batch_size, recipe.seed, device, chosen.augmentation)
    given = {"head": chosen.head, "dropout": chosen.dropout, "drop_path": chosen.drop_path}
    options = {name: value for name, value in given.items() if value not in ("linear", 0.0)}
    model = zoo.create(chosen.model, n_classes=classes, image_size=size, seed=recipe.seed, **options)
    return model.to(device), feed, test


def plan(chosen: Session, device: torch.device | None = None) -> str:
    """What the training would take, in words, before anything starts.

    Raises MemoryError where the estimate is above what the device has free, naming an `accumulate` that would do, and
    what `prepared` raises.

    >>> print(plan(session("Lab-Ti/8", "digits", settings={"steps": 100})).splitlines()[0])
    Lab-Ti/8 (214,218 parameters) on digits, 32 px, 10 classes
    """
    device = device or processes.default_device()
    model, _, test = prepared(chosen, device)
    recipe, group = chosen.recipe, processes.group()
    images = torch.zeros(2, 3, chosen.image_size, chosen.image_size, device=device)
    part = recipe.batch_size // (recipe.accumulate * group.size)
    fixed, per_image = cost.training_bytes(model, images, recipe)
    needed, free = fixed + part * per_image, cost.free_bytes(device)
    flops = 3 * cost.forward_flops(model, images[:1]) * recipe.samples
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    memory = (
        f"{part} images at once in each of {group.size} process(es) on {device}: about {needed / 1e9:.2f} GB "
        f"({fixed / 1e9:.2f} weights, gradients and optimiser; {part * per_image / 1e9:.2f} activations), "
        f"{free / 1e9:.1f} GB free"
    )
    if needed > free:
        fits = part
        while fits > 1 and fixed + fits * per_image > free:
            fits //= 2
        way = f"set accumulate={recipe.batch_size // (fits * group.size)}"
        if fixed + fits * per_image > free:
            way = "take a smaller model or a larger device, or spread the model over several (--spread shards)"
        raise MemoryError(f"{chosen.model} does not fit into memory: {memory}; {way}")
    return (
        f"{chosen.model} ({n_parameters:,} parameters) on {chosen.data}, {chosen.image_size} px, "
        f"{len(test.classes)} classes\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} = {recipe.samples:,} images, {flops:.3g} FLOPs\n"
        f"{memory}\n{recipe}\n{chosen.augmentation}"
    )


def run(chosen: Session, folder: Path, *, spread: processes.Spread = "copies", save_every: int = 500) -> list[dict]:
    """Check the plan, then train; the folder has the log, checkpoints and weights. Returns the rows of `loop.train`.

    A killed session goes on when it is run again. Under torchrun every process calls this.
    """
    with processes.joined() as group:
        device = processes.default_device()
        text = plan(chosen, device)
        if group.writes:
            print(text, flush=True)
        model, feed, test = prepared(chosen, device)
        return train(
            model,
            feed,
            chosen.recipe,
            validation=test,
            folder=folder,
            name=chosen.model,
            save_every=save_every,
            spread=spread,
            report=lambda row: print(_line(row), flush=True),
        )


def _line(row: dict) -> str:
    return (
        f"step {row['step']:>7,}  loss {row['train_loss']:.4f}  test accuracy {row['val_accuracy']:.4f}  "
        f"{row['images_per_second']:,.0f} images/s  {row['flops']:.3g} FLOPs  {row['peak_memory_gb']:.2f} GB"
    )
