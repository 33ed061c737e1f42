"""The trainings of `vitlab train`: a model and data by name, checked, estimated, then trained (§4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import Batches, FolderSet, ImageSet
from vitlab.models import variants, zoo
from vitlab.models.adapt import with_new_head
from vitlab.models.weights import values_hash
from vitlab.settings import check, number, one_of, whole
from vitlab.training import checkpoint, cost, masked, paper, processes, progress
from vitlab.training.loop import train
from vitlab.training.masked import Target
from vitlab.training.objective import Classification, Objective
from vitlab.training.recipe import Recipe

OBJECTIVES = ("labels", "masked")
_EVALUATIONS = 10  # over a training, unless `eval_every` says otherwise


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
    workers: int = 2  # processes that decode a folder's images
    pool: str = "class"  # or "gap"; with the next three, what `zoo.create` takes (App. D)
    positions: str = "1d"
    placed: str = ""  # "": where these positions usually are
    attention: str = "full"

    def __post_init__(self) -> None:
        share = number(self.masked)[0] and 0 < self.masked <= 1
        check(
            self,
            {
                "head": one_of(self.head, ("linear", "tanh")),
                "dropout": number(self.dropout, below=1.0),
                "objective": one_of(self.objective, OBJECTIVES),
                "target": one_of(self.target, tuple(map(str, Target))),
                "masked": (share, "the share of patches to hide, above 0 and up to 1"),
                "workers": whole(self.workers, most=1_000),
                "pool": one_of(self.pool, ("class", "gap")),
                "positions": one_of(self.positions, variants.POSITIONS),
                "placed": one_of(self.placed, ("", *variants.PLACED)),
                "attention": one_of(self.attention, variants.ATTENTION),
            },
        )
        if self.objective == "masked" and self.augmentation.mixup:
            raise ValueError("masked prediction mixes no images; leave out mixup")
        if self.weights and (self.head != "linear" or self.dropout):
            raise ValueError(f"weights={self.weights!r} get a linear head and no dropout; leave out head and dropout")
        if self.weights and self.variant:
            raise ValueError(f"weights={self.weights!r} bring their architecture; leave out {', '.join(self.variant)}")

    @property
    def variant(self) -> dict[str, str]:
        """The options of App. D that are not as in a plain ViT; trainings without them are told apart as ever."""
        return {name: getattr(self, name) for name in _VARIANT if getattr(self, name) != getattr(Session, name)}


_VARIANT = ("pool", "positions", "placed", "attention")
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
    ImageNet by `paper.lab`. There are ten evaluations unless `eval_every` is set.

    Raises ValueError for a setting there is not, or a model or data that Table 3 does not have.

    >>> session("ViT-B/16", "my-images", like="ImageNet").recipe.learning_rate
    0.003
    >>> session("Lab-Ti/8", "world", settings={"steps": 50, "batch_size": 64}).recipe.samples
    3200
    """
    left = dict(settings or {})
    default = _of_the_paper(model, data, like) if like else _of_the_lab(model, data, left)
    left.setdefault("eval_every", -(-left.get("steps", default.recipe.steps) // _EVALUATIONS))
    parts: dict[str, Any] = {}
    for name, part in (("recipe", default.recipe), ("augmentation", default.augmentation)):
        known = {each.name for each in dataclasses.fields(part)}
        parts[name] = dataclasses.replace(part, **{key: left.pop(key) for key in list(left) if key in known})
    if unknown := set(left) - set(DEFAULTS):
        raise ValueError(f"a training has no setting {', '.join(sorted(unknown))}; there are: {', '.join(DEFAULTS)}")
    if datasets.endless(data) and parts["augmentation"] != Augmentation():
        raise ValueError(f"{data} is not augmented, because no image is seen twice; leave out crop, flip and mixup")
    return dataclasses.replace(default, **parts, **left)


def _of_the_lab(model: str, data: str, settings: Mapping[str, Any]) -> Session:
    batch_size, steps = (settings.get(name, DEFAULTS[name]) for name in ("batch_size", "steps"))
    return Session(model, data, paper.lab(paper.TABLE_3[-1].recipe(), batch_size, steps * batch_size))


def _of_the_paper(model: str, data: str, like: str) -> Session:
    rows = [row for row in paper.TABLE_3 if model in row.models and row.data.lower() == like.lower()]
    if not rows:
        there = "; ".join(f"{', '.join(row.models)} on {row.data}" for row in paper.TABLE_3)
        raise ValueError(f"Table 3 has no {model} on {like}; it has {there}")
    row = rows[0]
    inception = Augmentation() if datasets.endless(data) else Augmentation(crop="inception", flip=True)
    return Session(model, data, row.recipe(), inception, row.image_size, head="tanh", dropout=row.dropout)


@dataclass(frozen=True)
class Prepared:
    """What a session trains: the model on its device, its batches, its test set, and what tells it from another."""

    model: nn.Module
    batches: Batches
    test: ImageSet | FolderSet
    identity: dict[str, Any]  # beside the recipe: every setting, and the data by content
    objective: Objective


def prepared(chosen: Session, device: torch.device) -> Prepared:
    """The model, the data and the identity of a session.

    Raises what `zoo.create` and the data sets raise: an unknown name, data that is not there, a file that is no image.
    """
    recipe = chosen.recipe
    how = (chosen.image_size, recipe.batch_size, recipe.seed, device, chosen.augmentation, chosen.workers)
    source = datasets.open_source(chosen.data, *how)
    feed: Batches = source.feed
    model, settings = _begun(chosen, source.n_classes)
    objective: Objective = Classification(recipe.label_smoothing)
    if chosen.objective == "masked":
        target, share = Target(chosen.target), chosen.masked
        model, feed, objective = masked.prepared(model, feed, recipe.batch_size, target, share, recipe.seed)
    known = settings | dataclasses.asdict(chosen.augmentation) | source.content
    return Prepared(model.to(device), feed, source.test, known, objective)


def _begun(chosen: Session, n_classes: int) -> tuple[nn.Module, dict[str, Any]]:
    """The model before its training, and what determines it."""
    settings = {name: getattr(chosen, name) for name in ("model", "image_size", "head", "dropout")}
    if chosen.weights:
        start = zoo.load(chosen.weights)
        if start.name.lower() != chosen.model.lower():
            raise ValueError(
                f"weights={chosen.weights!r} are of {start.name}, but the model to train is {chosen.model}: name "
                f"{start.name}, or give weights of {chosen.model}"
            )
        if {*start.mean, *start.std} != {0.5}:
            raise ValueError(
                f"{start.name} takes images of mean {start.mean} and deviation {start.std}, but a training gives -1 … "
                "1; give weights that take those"
            )
        model = with_new_head(start.model, n_classes, chosen.image_size)
        return model, settings | {"weights": values_hash(start.model.state_dict())}
    given: dict[str, Any] = {"head": chosen.head, "dropout": chosen.dropout}
    options = {name: value for name, value in given.items() if value not in ("linear", 0.0)} | chosen.variant
    size, seed = chosen.image_size, chosen.recipe.seed
    model = zoo.create(chosen.model, n_classes=n_classes, image_size=size, seed=seed, **options)
    return model, settings | chosen.variant


def plan(chosen: Session, device: torch.device | None = None) -> str:
    """The training's parameters, images, FLOPs and estimated memory, in words, before anything starts.

    Raises MemoryError where the estimate is above the free memory of the device, naming an `accumulate` with which it
    fits, and what `prepared` raises.

    >>> print(plan(session("Lab-Ti/8", "digits", settings={"steps": 100})).splitlines()[0])
    Lab-Ti/8 (214,218 parameters) on digits, 32 px, 10 classes
    """
    device = device or processes.default_device()
    return _described(chosen, prepared(chosen, device), device)


def _described(chosen: Session, ready: Prepared, device: torch.device) -> str:
    recipe, group, model = chosen.recipe, processes.group(), ready.model
    images = torch.zeros(2, 3, chosen.image_size, chosen.image_size, device=device)
    part = recipe.batch_size // (recipe.accumulate * group.size)
    fixed, per_image = cost.training_bytes(model, images, recipe)
    needed, free = fixed + part * per_image, cost.free_bytes(device)
    flops = 3 * zoo.forward_flops(model, images[:1]) * recipe.samples
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
            way = "take a smaller model or a larger device, or share the model out over several (--parallel fsdp)"
        raise MemoryError(f"{chosen.model} does not fit into memory: {memory}; {way}")
    return (
        f"{chosen.model} ({n_parameters:,} parameters) on {chosen.data}, {chosen.image_size} px, "
        f"{len(ready.test.classes)} classes\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} = {recipe.samples:,} images, {flops:.3g} FLOPs\n"
        f"{memory}\n{recipe}\n{chosen.augmentation}"
    )


def run(
    chosen: Session,
    folder: Path,
    *,
    parallel: processes.Parallel = "ddp",
    save_every: int = 500,
    restart: bool = False,
) -> list[dict]:
    """Check the plan, then train; the folder has the log, checkpoints and weights. Returns the rows of `loop.train`.

    Prints the plan, lines about the training (see `progress.in_lines`), and where its weights are. A killed session
    goes on when it is run again; of a finished one it is said that it is. With `restart` what another training left in
    the folder is removed first. Under torchrun every process calls this.

    Raises ValueError where the folder has checkpoints of another training, naming what differs; what `prepared` and
    `loop.train` raise.
    """
    recipe, new = chosen.recipe, []
    with processes.joined() as group:
        device = processes.default_device()
        ready = prepared(chosen, device)
        text = _described(chosen, ready, device)
        if group.writes:
            print(text, flush=True)
        if restart:
            if group.writes:
                checkpoint.remove(folder)
            processes.wait()
        with progress.in_lines(recipe.steps, recipe.batch_size) as (watch, say):

            def report(row: dict) -> None:
                new.append(row)
                say(row)

            rows = train(
                ready.model,
                watch(ready.batches) if group.writes else ready.batches,
                recipe,
                validation=ready.test,
                folder=folder,
                name=chosen.model,
                save_every=save_every,
                parallel=parallel,
                report=report,
                identity=ready.identity,
                objective=ready.objective,
            )
        if group.writes:
            print(_ended(rows, folder / checkpoint.WEIGHTS) if new else _was_finished(rows, recipe, folder), flush=True)
    return rows


def _ended(rows: list[dict], weights: Path) -> str:
    last = rows[-1]
    return (
        f"trained for {progress.in_words(last['seconds'])}, {last['flops']:.3g} FLOPs, up to "
        f"{last['peak_memory_gb']:.2f} GB; weights in {weights}"
    )


def _was_finished(rows: list[dict], recipe: Recipe, folder: Path) -> str:
    kept = rows[-1] if recipe.patience is None else max(rows, key=lambda row: row["val_accuracy"])
    return (
        f"finished before: step {kept['step']:,}, test accuracy {100 * kept['val_accuracy']:.1f} %, weights in "
        f"{folder / checkpoint.WEIGHTS}; nothing to do. Once more: --restart"
    )
