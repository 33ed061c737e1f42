"""The trainings of `vitlab train`: a model and data by name, checked, described, then trained (§4.1)."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        share = number(self.masked)[0] and 0 < self.masked <= 1
        check(
            self,
            {
                "head": one_of(self.head, ("linear", "tanh")),
                "dropout": number(self.dropout, below=1.0),
                "objective": one_of(self.objective, ("labels", "masked")),
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
        if self.weights and self.variant:
            raise ValueError(f"weights={self.weights!r} bring their architecture; leave out {', '.join(self.variant)}")

    @property
    def variant(self) -> dict[str, Any]:
        """List the options of `zoo.create` that are not as in a plain ViT: head, dropout, and those of App. D."""
        names = ("head", "dropout", "pool", "positions", "placed", "attention")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(Session, name)}


# Every setting with its default, which says of what type it is.
DEFAULTS: dict[str, Any] = {
    each.name: each.default
    for kind in (Recipe, Augmentation, Session)
    for each in dataclasses.fields(kind)
    if each.name not in ("model", "data", "recipe", "augmentation")
} | {"steps": 1_000}


def session(model: str, data: str, like: str | None = None, settings: Mapping[str, Any] | None = None) -> Session:
    """Make a session whose recipe is Table 3's for `model` on the data called `like`, or the lab's 1,000 steps of 128.

    `settings` change any value of `Recipe`, `Augmentation` and `Session`. The lab's recipe is derived from that for
    ImageNet by `paper.lab`. There are ten evaluations unless `eval_every` is set.

    Raises ValueError for a setting there is not, or a model or data that Table 3 does not have.

    >>> session("ViT-B/16", "my-images", like="ImageNet").recipe.learning_rate
    0.003
    >>> session("Lab-Ti/8", "world", settings={"steps": 50, "batch_size": 64}).recipe.samples
    3200
    """
    left = dict(settings or {})
    if like:
        row = next((row for row in paper.TABLE_3 if model in row.models and row.data.lower() == like.lower()), None)
        if row is None:
            there = "; ".join(f"{', '.join(row.models)} on {row.data}" for row in paper.TABLE_3)
            raise ValueError(f"Table 3 has no {model} on {like}; it has {there}")
        inception = Augmentation() if datasets.endless(data) else Augmentation(crop="inception", flip=True)
        default = Session(model, data, row.recipe(), inception, row.image_size, head="tanh", dropout=row.dropout)
    else:
        batch_size, steps = (left.get(name, DEFAULTS[name]) for name in ("batch_size", "steps"))
        default = Session(model, data, paper.lab(paper.TABLE_3[-1].recipe(), batch_size, steps * batch_size))
    left.setdefault("eval_every", -(-left.get("steps", default.recipe.steps) // 10))
    parts: dict[str, Any] = {}
    for name, part in (("recipe", default.recipe), ("augmentation", default.augmentation)):
        known = {each.name for each in dataclasses.fields(part)}
        parts[name] = dataclasses.replace(part, **{key: left.pop(key) for key in list(left) if key in known})
    if unknown := set(left) - set(DEFAULTS):
        raise ValueError(f"a training has no setting {', '.join(sorted(unknown))}; there are: {', '.join(DEFAULTS)}")
    if datasets.endless(data) and parts["augmentation"] != Augmentation():
        raise ValueError(f"{data} is not augmented, because no image is seen twice; leave out crop, flip and mixup")
    return dataclasses.replace(default, **parts, **left)


def prepare(
    chosen: Session, device: torch.device
) -> tuple[nn.Module, Batches, ImageSet | FolderSet, dict[str, Any], Any]:
    """Make what a session trains: the model on its device, batches, test set, identity (see `loop.train`), objective.

    Raises what `zoo.create` and the data sets raise: an unknown name, data that is not there, a file that is no image.
    """
    recipe, size = chosen.recipe, chosen.image_size
    how = (size, recipe.batch_size, recipe.seed, device, chosen.augmentation, chosen.workers)
    source = datasets.open_source(chosen.data, *how)
    known: dict[str, Any] = {name: getattr(chosen, name) for name in ("model", "image_size", "head", "dropout")}
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
        model: nn.Module = with_new_head(start.model, source.n_classes, size)
        known["weights"] = values_hash(start.model.state_dict())
    else:
        n_classes = source.n_classes
        model = zoo.create(chosen.model, n_classes=n_classes, image_size=size, seed=recipe.seed, **chosen.variant)
        known |= chosen.variant
    feed: Batches = source.feed
    objective: Any = Classification(recipe.label_smoothing)
    if chosen.objective == "masked":
        how_masked = (Target(chosen.target), chosen.masked, recipe.seed)
        model, feed, objective = masked.prepare(model, feed, recipe.batch_size, *how_masked)
    known |= dataclasses.asdict(chosen.augmentation) | source.content
    return model.to(device), feed, source.test, known, objective


def plan(chosen: Session) -> str:
    """Describe a training before anything starts: parameters, images, FLOPs, the recipe. Raises what `prepare` raises.

    >>> print(plan(session("Lab-Ti/8", "digits", settings={"steps": 100})).splitlines()[0])
    Lab-Ti/8 (214,218 parameters) on digits, 32 px, 10 classes
    """
    model, _, test, *_ = prepare(chosen, default_device())
    return _describe(chosen, model, len(test.classes))


def _describe(chosen: Session, model: nn.Module, n_classes: int) -> str:
    recipe, group, device = chosen.recipe, distributed.group(), next(model.parameters()).device
    image = torch.zeros(1, 3, chosen.image_size, chosen.image_size, device=device)
    flops = 3 * forward_flops(model, image) * recipe.samples
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{chosen.model} ({n_parameters:,} parameters) on {chosen.data}, {chosen.image_size} px, {n_classes} classes\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} = {recipe.samples:,} images, {flops:.3g} FLOPs\n"
        f"{recipe.batch_size // (recipe.accumulate * group.size)} images at once in each of {group.size} process(es) "
        f"on {device}\n{recipe}\n{chosen.augmentation}"
    )


def run(chosen: Session, folder: Path, *, save_every: int = 500, restart: bool = False) -> list[dict]:
    """Describe a session, then train; the folder has the log, checkpoints and weights. Returns the rows of `train`.

    Prints the plan, lines about the training (see `progress_lines`), and where its weights are. A killed session is
    resumed when it is run again; of a finished one it is said that it is. With `restart` what another training left in
    the folder is removed first. Under torchrun every process calls this.

    Raises what `prepare` and `loop.train` raise, as where the folder has checkpoints of another training.
    """
    recipe, new = chosen.recipe, []
    with distributed.join() as group, progress_lines(recipe.steps, recipe.batch_size) as (watch, say):
        model, feed, test, identity, objective = prepare(chosen, default_device())
        if group.writes:
            print(_describe(chosen, model, len(test.classes)), flush=True)
        if restart:
            if group.writes:
                checkpoint.remove(folder)
            distributed.wait()

        def report(row: dict) -> None:
            new.append(row)
            say(row)

        rows = train(
            model,
            watch(feed) if group.writes else feed,
            recipe,
            validation=test,
            folder=folder,
            name=chosen.model,
            save_every=save_every,
            report=report,
            identity=identity,
            objective=objective,
        )
        weights = folder / checkpoint.WEIGHTS
        if group.writes and new:
            print(
                f"trained for {format_time(rows[-1]['seconds'])}, {rows[-1]['flops']:.3g} FLOPs, up to "
                f"{rows[-1]['peak_memory_gb']:.2f} GB; weights in {weights}",
                flush=True,
            )
        elif group.writes:
            kept = rows[-1] if recipe.patience is None else max(rows, key=lambda row: row["val_accuracy"])
            print(
                f"finished before: step {kept['step']:,}, test accuracy {100 * kept['val_accuracy']:.1f} %, weights in "
                f"{weights}; nothing to do. Once more: --restart",
                flush=True,
            )
    return rows


# --- what is said while it runs ---------------------------------------------------------------------------------------
def progress(row: dict, steps: int, left: float | None = None) -> str:
    """Format a row of `loop.train`, or what is known of one, as a line; `left` is in seconds.

    >>> row = {"step": 30, "train_loss": 1.25, "val_accuracy": 0.5, "images_per_second": 2345.6}
    >>> progress(row, 1200, left=78)
    'step 30 of 1,200: loss 1.250, accuracy 50.0 %, 2,346 images/s, about 78 seconds left'
    """
    parts = [f"loss {row['train_loss']:.3f}"] if "train_loss" in row else []
    if "val_accuracy" in row:
        parts.append(f"accuracy {100 * row['val_accuracy']:.1f} %")
    parts.append(f"{row['images_per_second']:,.0f} images/s")
    if left is not None:
        parts.append(f"about {format_time(left)} left")
    return f"step {row['step']:,} of {steps:,}: {', '.join(parts)}"


def seconds_left(marks: Sequence[tuple[int, float]], steps: int) -> float | None:
    """Estimate the time to the last step at the pace so far; None before there is a pace.

    `marks` are (step, seconds on a clock).

    >>> seconds_left([(100, 7.0)], 400), seconds_left([(100, 7.0), (150, 8.0), (200, 9.0)], 400)
    (None, 4.0)
    """
    (first, start), (step, now) = marks[0], marks[-1]
    return (now - start) / (step - first) * (steps - step) if step > first else None


def format_time(seconds: float) -> str:
    """Format a time in its largest fitting unit, rounded.

    >>> [format_time(seconds) for seconds in (0.2, 1, 89, 90, 5_399, 5_400, 200_000)]
    ['1 second', '1 second', '89 seconds', '2 minutes', '90 minutes', '2 hours', '2 days']
    """
    units = {"day": 86_400, "hour": 3_600, "minute": 60}
    name, size = next((unit for unit in units.items() if seconds >= 1.5 * unit[1]), ("second", 1))
    count = max(1, round(seconds / size))
    return f"{count} {name}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def progress_lines(
    steps: int, batch_size: int, pause: float | None = None
) -> Iterator[tuple[Callable[[Batches], Batches], Callable[[dict], None]]]:
    """Give two functions for `loop.train` that print: one to pass its batches through, one as its `report`.

    Each evaluation is a line. Between two evaluations a line says how far the training is, every `pause` seconds: by
    default half a second on a terminal, where it is written over, and 30 elsewhere.
    """
    on_terminal = sys.stdout.isatty()
    pause = (0.5 if on_terminal else 30.0) if pause is None else pause
    marks: list[tuple[int, float]] = []  # step and time of the beginning, and of every evaluation
    last, over = (0, 0.0), 0  # step and time of the last line, and its length where it is to be written over

    def say(step: int, line: str, stays: bool) -> None:
        nonlocal last, over
        if on_terminal and not stays:
            line = line[: shutil.get_terminal_size().columns - 1]
        print("\r" if over else "", line.ljust(over), sep="", end="" if on_terminal and not stays else "\n", flush=True)
        last, over = (step, time.perf_counter()), len(line) if on_terminal and not stays else 0

    def watch(batches: Batches) -> Batches:
        def watched(step: int, *part: int | None):
            nonlocal last
            now = time.perf_counter()
            if not marks:
                marks.append(last := (step, now))
                if step:
                    say(step, f"resumed after step {step:,} of {steps:,}", True)
            elif step > last[0] and now - last[1] >= pause:
                before, then = marks[-1]
                row = {"step": step, "images_per_second": (step - before) * batch_size / (now - then)}
                say(step, progress(row, steps, seconds_left([*marks, (step, now)], steps)), False)
            return batches(step, *part)

        return watched

    def report(row: dict) -> None:
        marks.append((row["step"], time.perf_counter()))
        left = seconds_left(marks, steps) if row["step"] < steps else None
        say(row["step"], progress(row, steps, left), True)

    try:
        yield watch, report
    finally:
        if over:
            print(flush=True)
