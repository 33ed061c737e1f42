"""How local heads come about: every head's attention distance and the position map while a ViT trains (§4.5, §4.6)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from vitlab.analysis.distance import pixel_distances
from vitlab.data import datasets, photographs
from vitlab.data.loader import Batches, ImageSet, batches, epoch_order
from vitlab.experiments.small_vits import CROPPED, CROPS, Body, as_sized, kept_px, vit_of, whole
from vitlab.experiments.watching import Watched
from vitlab.sweep import presets, runner
from vitlab.training import masked
from vitlab.training.loop import train
from vitlab.training.masked import Target
from vitlab.training.objective import Classification, Objective
from vitlab.training.processes import Group, default_device
from vitlab.training.recipe import Recipe
from vitlab.training.splits import subset

_ALL = 0  # as number of training photographs: as many as there are


@dataclass(frozen=True)
class Arm:
    """What the trainings of one kind have in common."""

    objective: str  # "masked" or "labels"
    data: str  # CROPS, or a set that `datasets.load` knows
    n_train: int = _ALL  # photographs, drawn anew with every seed


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    arms: tuple[Arm, ...]
    body: Body
    recipe: Recipe  # of masked prediction; labels are learned with `labels_rate`
    n_watched: int  # held-out images over which distances are averaged; the paper takes 128
    n_test: int  # held-out images for accuracy and loss
    n_seeds: int
    labels_rate: float = 1e-3


_BETAS = (0.9, 0.95)  # of Adam; with 0.999 it took a quarter more images until heads were local, at its best rate


def _recipe(steps: int, warmup_steps: int, precision: str) -> Recipe:
    """The rate stays as it is after the warm-up: what happens when shall not depend on where a decay ends."""
    return Recipe(
        steps=steps,
        batch_size=16,
        learning_rate=4e-3,
        warmup_steps=warmup_steps,
        decay="constant",
        betas=_BETAS,
        eval_every=steps // 20,
        precision=precision,
    )


_SIZES = (300, 1_000, 3_000, 9_469)  # of Imagenette's 9,469 training photographs
CONFIGS = {
    "smoke": StudyConfig(
        (Arm("masked", CROPS),),
        Body(image_size=16, patch_size=4, dim=32, depth=2, n_heads=2),
        Recipe(steps=6, batch_size=8, learning_rate=1.5e-3, warmup_steps=2, eval_every=2),
        n_watched=4,
        n_test=8,
        n_seeds=2,
    ),
    "quick": StudyConfig(
        (Arm("masked", CROPS),),
        # Of those tried, its heads become local after the fewest images: small batches make many steps.
        Body(image_size=32, patch_size=4, dim=64, depth=4, n_heads=4),
        _recipe(800, 100, "fp32"),  # most laptops have no instructions for bfloat16
        n_watched=32,
        n_test=128,
        n_seeds=3,
    ),
    "full": StudyConfig(
        (
            Arm("masked", CROPS),
            *(Arm(objective, "imagenette", n) for objective in ("masked", "labels") for n in _SIZES),
        ),
        Body(image_size=80, patch_size=8, dim=96, depth=4, n_heads=4),
        _recipe(6_000, 300, "bf16"),
        n_watched=128,
        n_test=500,
        n_seeds=5,
    ),
}


def local_heads(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    *,
    target: str = Target.MEAN_COLOUR.value,
    share: float = 0.5,
) -> pd.DataFrame:
    """Train a ViT in every arm with every seed, and look into it at every evaluation, from step 0 on.

    `target` is one of `masked.Target`; `share` of the patches are corrupted. Rows are of two kinds: `evaluations` and
    `heads` take them apart; `watching` has what reads their maps and predictions. Nothing is chosen by test images.

    Arms whose photographs are not present are left out (see `datasets.present`).

    Raises ValueError for an unknown preset or target or a share that cannot be.
    """
    runs = planned_runs(preset, seed, target=target, share=share)
    runs = [run for run in runs if run["data"] == CROPS or datasets.present(run["data"])]
    if jobs is None and preset == "smoke":
        jobs = 1  # its runs take less time than starting a worker
    return runner.run_all(run_one, runs, folder or runner.run_folder("local_heads", preset), jobs)


def planned_runs(
    preset: str = "quick", seed: int = 0, *, target: str = Target.MEAN_COLOUR.value, share: float = 0.5
) -> list[dict[str, Any]]:
    """Every run of the study.

    >>> len(planned_runs("full"))
    45
    """
    config = presets.choose(CONFIGS, preset)
    n_patches = (config.body.image_size // config.body.patch_size) ** 2
    masked.n_corrupted_of(n_patches, share)  # a share that cannot be raises here, before any training
    recipe = {name: getattr(config.recipe, name) for name in _RECIPE}
    sizes = dataclasses.asdict(config.body) | {"n_watched": config.n_watched, "n_test": config.n_test}
    return [
        dataclasses.asdict(arm)
        | {"target": Target(target).value, "share": float(share), "seed": s}
        | (recipe | ({"learning_rate": config.labels_rate} if arm.objective == "labels" else {}))
        | sizes
        for s, arm in itertools.product(range(100 * seed, 100 * seed + config.n_seeds), config.arms)
    ]


_RECIPE = ("steps", "batch_size", "learning_rate", "warmup_steps", "decay", "eval_every", "precision")


def trainings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The training of one run, as `vitlab experiment local_heads --plan` counts it.

    >>> [each["model"] for each in trainings(planned_runs("full")[0])]
    ['Lab-Ti/8']
    """
    return [as_sized(config) | {name: config[name] for name in ("steps", "batch_size", "eval_every", "n_test")}]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Train one model; rows of its evaluations, and of its heads at each."""
    recipe = Recipe(**{name: config[name] for name in _RECIPE}, betas=_BETAS, seed=config["seed"])
    feed, test = _images(config)
    model: nn.Module = vit_of(config, len(test.classes))
    objective: Objective = Classification()
    if config["objective"] == "masked":
        target, share = Target(config["target"]), config["share"]
        model, feed, objective = masked.prepared(model, feed, recipe.batch_size, target, share, config["seed"])
    watched = Watched(objective, config["n_watched"])
    model = model.to(default_device())
    before = {f"val_{name}": value for name, value in watched.evaluate(model, test, "fp32", Group()).items()}
    rows = [{"step": 0, "samples": 0} | before]
    rows += train(model, feed, recipe, validation=test, objective=watched)
    return [told for row in rows for told in _told(row)]


def _images(config: dict[str, Any]) -> tuple[Batches, ImageSet]:
    """Training batches, and held-out images of the model's size."""
    size, batch_size, seed = config["image_size"], config["batch_size"], config["seed"]
    device = default_device()
    if config["data"] == CROPS:
        return photographs.stream(size, batch_size, seed, device), photographs.image_set(config["n_test"], size)
    kept, test = whole(config["data"], "train", kept_px(config["data"], size)), whole(config["data"], "test", size)
    if 0 < config["n_train"] < len(kept):
        kept = subset(kept, epoch_order(len(kept), seed, epoch=0)[: config["n_train"]])
    few = subset(test, epoch_order(len(test), seed=0, epoch=0)[: config["n_test"]])
    return batches(kept, batch_size, seed, device, CROPPED, size), few


def _told(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of the training as rows of the study: one of the evaluation, one of every head."""
    at = {"samples": row["samples"]}
    names = ("loss", "accuracy", "nearness", "row_excess", "column_excess", "similarity")
    about = {"step": row["step"], "train_loss": row.get("train_loss"), "seconds": row.get("seconds", 0.0)}
    evaluation = {"kind": "evaluation", **at, **about} | {name: row[f"val_{name}"] for name in names}
    evaluation["guesses"] = row.get("val_guesses")  # of masked prediction
    heads = [
        {"kind": "head", **at, "block": b, "head": h, "distance_px": distance, "prefix_mass": mass}
        for b, block in enumerate(zip(row["val_heads"], row["val_masses"], strict=True), 1)
        for h, (distance, mass) in enumerate(zip(*block, strict=True), 1)
    ]
    return [evaluation, *heads]


_RUN = ["objective", "data", "n_train", "target", "share", "image_size", "patch_size", "seed"]


def evaluations(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each evaluation of each run, from step 0 on.

    Columns: samples, step, train_loss (none at step 0), loss and accuracy on held-out images, nearness, row_excess,
    column_excess, `local` (the share of heads that are local); and as text similarity (see `watching.position_map`) and
    guesses (see `watching.guessed`).
    """
    rows = table[table["kind"] == "evaluation"].drop(columns=["kind", "block", "head", "distance_px", "prefix_mass"])
    return rows.merge(local_share(table), on=[*_RUN, "samples"])


def heads(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each head at each evaluation of each run, from step 0 on.

    Columns: samples, block and head (from 1), distance_px, prefix_mass (0…1, attention to the class token, which counts
    as distance 0), and `local`: whether the distance is below `limit_px`.
    """
    rows = table[table["kind"] == "head"].astype({"block": int, "head": int})
    grids = zip(rows["image_size"], rows["patch_size"], strict=True)
    limits = {grid: limit_px(*grid) for grid in set(grids)}
    limit = [limits[grid] for grid in zip(rows["image_size"], rows["patch_size"], strict=True)]
    columns = [*_RUN, "samples", "block", "head", "distance_px", "prefix_mass"]
    return rows[columns].assign(local=rows["distance_px"] < limit)


def uniform_px(image_size: int, patch_size: int) -> float:
    """Distance in pixels of a head that attends to all patches of a square image equally.

    >>> round(uniform_px(224, 16), 2)  # the paper's grid
    116.49
    """
    side = image_size // patch_size
    return pixel_distances((side, side), patch_size).mean().item()


def limit_px(image_size: int, patch_size: int) -> float:
    """Below this distance in pixels a head is local: half of uniform attention's, as in notebook 08's rule for C13."""
    return uniform_px(image_size, patch_size) / 2


def local_share(table: pd.DataFrame) -> pd.DataFrame:
    """`local`, the share of heads that are local (0…1), of every run and evaluation (samples)."""
    return heads(table).groupby([*_RUN, "samples"], sort=False)["local"].mean().reset_index()


def onset(samples: pd.Series, local: pd.Series) -> float | None:
    """The views at the first evaluation at which some head is local and one is at all later ones; None without any.

    >>> onset(pd.Series([0, 100, 200, 300]), pd.Series([0.0, 0.1, 0.0, 0.2]))
    300.0
    """
    ordered = sorted(zip(samples, local, strict=True), reverse=True)
    found = [views for views, _ in itertools.takewhile(lambda pair: pair[1] > 0, ordered)]
    return float(found[-1]) if found else None


def onsets(table: pd.DataFrame) -> pd.DataFrame:
    """`onset` of every run (NaN where there is none), with `local`, the share at its end, and `views`, its length."""
    rows = []
    for key, run in local_share(table).groupby(_RUN, sort=False):
        ends = {"local": run["local"].iloc[-1], "views": run["samples"].max()}
        rows.append(dict(zip(_RUN, key, strict=True)) | {"onset": onset(run["samples"], run["local"])} | ends)
    return pd.DataFrame(rows).astype({"onset": float})
