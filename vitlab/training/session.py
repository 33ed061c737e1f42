"""The trainings of `vitlab train`: a model and data by name, checked, described, then trained (§4.1)."""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import Batches
from vitlab.models import zoo
from vitlab.models.adapt import with_new_head
from vitlab.models.weights import values_hash
from vitlab.models.zoo import forward_flops
from vitlab.settings import check, default_device, number, one_of, whole
from vitlab.training import checkpoint, distributed, masked, paper
from vitlab.training.loop import Classification, train
from vitlab.training.masked import Target
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class Session:
    """One training: the model and the data by name, the recipe and all other settings."""

    model: str
    data: str  # "world" ("world-300" of 300 classes), "photographs" (crops of three), a named set, or a folder
    recipe: Recipe
    augmentation: Augmentation = field(default_factory=Augmentation)
    image_size: int = 32  # pixels
    head: str = "linear"
    dropout: float = 0.0
    weights: str = ""  # to begin with, whatever `zoo.load` takes, of the same model, under a new head; "": fresh ones
    objective: str = "labels"  # or "masked": predict hidden patches (§4.6)
    target: str = Target.MEAN_COLOUR.value  # of hidden patches; see `masked.Target`
    masked: float = 0.5  # share of the patches that are hidden
    workers: int = 2  # threads that decode a folder's images ahead
    pool: str = "class"  # or "gap"; with the next three, what `zoo.create` takes (App. D)
    positions: str = "1d"
    placed: str = ""  # "": where these positions usually are
    attention: str = "full"

    def __post_init__(self) -> None:
        check(
            self,
            {
                "dropout": number(self.dropout, below=1.0),
                "objective": one_of(self.objective, ("labels", "masked")),
                "target": one_of(self.target, tuple(map(str, Target))),
                "masked": (number(self.masked)[0] and 0 < self.masked <= 1, "a share above 0 and up to 1"),
                "workers": whole(self.workers, most=1_000),
            },
        )
        if self.objective == "masked" and self.augmentation.mixup:
            raise ValueError("masked prediction mixes no images; leave out mixup")
        if self.weights and self.variant:
            raise ValueError(f"weights={self.weights!r} bring their architecture; leave out {', '.join(self.variant)}")

    @property
    def variant(self) -> dict[str, Any]:
        """List the options of `zoo.create` that are not as in a plain ViT: head, dropout, and those of App. D."""
        names = ("head", "dropout", "pool", "positions", "placed", "attention")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(Session, name)}


DEFAULTS: dict[str, Any] = {  # every setting with its default, which says of what type it is
    each.name: each.default
    for kind in (Recipe, Augmentation, Session)
    for each in dataclasses.fields(kind)
    if each.name not in ("model", "data", "recipe", "augmentation")
} | {"steps": 1_000}

ALIASES = {"lr": "learning_rate", "batch": "batch_size", "wd": "weight_decay"}


def session(model: str, data: str, like: str | None = None, settings: Mapping[str, Any] | None = None) -> Session:
    """Make a session whose recipe is Table 3's for `model` on the data called `like`, or the lab's 1,000 steps of 128.

    `settings` change any value of `Recipe`, `Augmentation` and `Session`, also by `ALIASES`; epochs stand for steps.
    The lab's recipe is derived from that for ImageNet by `paper.lab`. There are ten evaluations unless `eval_every` is
    set. Raises ValueError for a setting there is not, or a model or data that Table 3 does not have.
    """
    left = {ALIASES.get(name, name): value for name, value in (settings or {}).items()}
    if (epochs := left.pop("epochs", None)) is not None:
        if "steps" in left or not number(epochs)[0] or not epochs:
            raise ValueError(f"epochs is {epochs!r}; expected a number above 0, and no steps next to it")
        images = epochs * datasets.count(data)
        left["steps"] = math.ceil(images / Recipe(1, left.get("batch_size", DEFAULTS["batch_size"])).batch_size)
    if like:
        row = next((row for row in paper.TABLE_3 if model in row.models and row.data.lower() == like.lower()), None)
        if row is None:
            there = "; ".join(f"{', '.join(row.models)} on {row.data}" for row in paper.TABLE_3)
            raise ValueError(f"Table 3 has no {model} on {like}; it has {there}")
        inception = Augmentation() if datasets.endless(data) else Augmentation(crop="inception", flip=True)
        default = Session(model, data, row.recipe(), inception, row.image_size, head="tanh", dropout=row.dropout)
    else:
        batch_size, steps = (left.get(name, DEFAULTS[name]) for name in ("batch_size", "steps"))
        samples = Recipe(steps, batch_size).samples  # which refuses what cannot be
        default = Session(model, data, paper.lab(paper.TABLE_3[-1].recipe(), batch_size, samples))
    left.setdefault("eval_every", -(-left.get("steps", default.recipe.steps) // 10))
    parts: dict[str, Any] = {}
    for name, part in (("recipe", default.recipe), ("augmentation", default.augmentation)):
        known = {each.name for each in dataclasses.fields(part)}
        parts[name] = dataclasses.replace(part, **{key: left.pop(key) for key in list(left) if key in known})
    for unknown in set(left) - set(DEFAULTS):
        near = " or ".join(difflib.get_close_matches(unknown, [*DEFAULTS, *ALIASES, "epochs"]))
        hint = f"did you mean {near}?" if near else f"there are: epochs, {', '.join(DEFAULTS)}"
        raise ValueError(f"a training has no setting {unknown}; {hint}")
    if datasets.endless(data) and parts["augmentation"] != Augmentation():
        raise ValueError(f"{data} is not augmented, because no image is seen twice; leave out crop, flip and mixup")
    return dataclasses.replace(default, **parts, **left)


def prepare(chosen: Session, device: torch.device) -> tuple[nn.Module, Batches, dict[str, Any]]:
    """Make what a session trains: the model, batches, and `loop.train`'s validation, identity and objective."""
    recipe, size, augmentation = chosen.recipe, chosen.image_size, chosen.augmentation
    source = datasets.open_source(
        chosen.data, size, recipe.batch_size, recipe.seed, device, augmentation, chosen.workers
    )
    known: dict[str, Any] = {name: getattr(chosen, name) for name in ("model", "image_size", "head", "dropout")}
    if chosen.weights:
        start = zoo.load(chosen.weights)
        if start.name.lower() != chosen.model.lower():
            raise ValueError(
                f"weights={chosen.weights!r} are of {start.name}, but the model to train is {chosen.model}: name "
                f"{start.name}, or give weights of {chosen.model}"
            )
        if {*start.mean, *start.std} != {0.5}:
            raise ValueError(f"{start.name} takes images of another scale than the -1 … 1 that a training gives")
        model: nn.Module = with_new_head(start.model, len(source.test.classes), size)
        known["weights"] = values_hash(start.model.state_dict())
    else:
        made = {"n_classes": len(source.test.classes), "image_size": size, "seed": recipe.seed}
        model = zoo.create(chosen.model, **made, **chosen.variant)
        known |= chosen.variant
    feed: Batches = source.feed
    objective: Any = Classification(recipe.label_smoothing)
    if chosen.objective == "masked":
        model, feed, objective = masked.prepare(
            model, feed, recipe.batch_size, Target(chosen.target), chosen.masked, recipe.seed
        )
    known |= dataclasses.asdict(augmentation) | source.content
    return model.to(device), feed, {"validation": source.test, "identity": known, "objective": objective}


def describe(chosen: Session, model: nn.Module, n_classes: int) -> str:
    """Describe a training before it starts: parameters, images, FLOPs, the recipe; `model` is what `prepare` made."""
    recipe, (_, n_processes), device = chosen.recipe, distributed.group(), next(model.parameters()).device
    image = torch.zeros(1, 3, chosen.image_size, chosen.image_size, device=device)
    flops = 3 * forward_flops(model, image) * recipe.samples
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{chosen.model} ({n_parameters:,} parameters) on {chosen.data}, {chosen.image_size} px, {n_classes} classes\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} = {recipe.samples:,} images, {flops:.3g} FLOPs\n"
        f"{recipe.batch_size // (recipe.accumulate * n_processes)} images at once in each of {n_processes} process(es) "
        f"on {device}\n{recipe}\n{chosen.augmentation}"
    )


def run(chosen: Session, folder: Path, *, save_every: int | None = None) -> list[dict]:
    """Describe a session, then train; the folder has the log, checkpoints and weights. Returns the rows of `train`.

    Prints a line for each evaluation, on a terminal also a bar with the time left. A killed session is resumed when it
    is run again. Under torchrun every process calls this; a program of several sessions, which would wait for ever at
    the second, runs them inside one `with distributed.join():`. Raises what `prepare` and `loop.train` raise.
    """
    recipe, begun = chosen.recipe, False
    with distributed.join() as (rank, _):
        model, feed, given = prepare(chosen, default_device())
        if rank == 0:
            print(describe(chosen, model, len(given["validation"].classes)), flush=True)
        bar = tqdm(total=recipe.steps, unit=" steps", leave=False, disable=None if rank == 0 else True)

        def watched(step: int, *part: int | None) -> tuple[Tensor, Tensor]:
            nonlocal begun
            if step and not begun and rank == 0:
                tqdm.write(f"resumed after step {step:,} of {recipe.steps:,}")
            begun = True
            bar.update(step - bar.n)
            return feed(step, *part)

        def report(row: dict) -> None:
            tqdm.write(progress(row, recipe.steps))
            sys.stdout.flush()

        given |= {"folder": folder, "name": chosen.model, "save_every": save_every, "report": report}
        with bar:
            rows = train(model, watched, recipe, **given)
    if rank == 0:
        done = f"trained for {tqdm.format_interval(rows[-1]['seconds'])}" if begun else "finished before, nothing to do"
        print(f"{done}; weights in {folder / checkpoint.WEIGHTS}", flush=True)
    return rows


def progress(row: dict, steps: int) -> str:
    """Format a row of `loop.train` as a line, with the time to the last step at the pace so far."""
    line = f"step {row['step']:,} of {steps:,}: loss {row['train_loss']:.3f}, "
    line += f"accuracy {100 * row['val_accuracy']:.1f} %, " if "val_accuracy" in row else ""
    line += f"{row['images_per_second']:,.0f} images/s"
    if row["step"] < steps:
        line += f", about {tqdm.format_interval(row['seconds'] * (steps / row['step'] - 1))} left"
    return line
