"""Position embeddings none, 1-D, 2-D and relative, by where they are added, on tasks that need them (App. D.4; C09)."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.analysis import positions
from vitlab.analysis.geometry import patch_embedding
from vitlab.experiments import design_runs
from vitlab.experiments.design_runs import Config, Task, Training
from vitlab.ledger.estimate import Estimate
from vitlab.models.variants import Offsets
from vitlab.sweep import presets

NONE, BASE = "none", "1-D, stem"  # the arms that the first condition of the rule compares
# The cells of Table 8 (ViT-B/16, 5-shot accuracy on ImageNet, 0…1). Relative embeddings act in every block.
TABLE_8 = {
    NONE: 0.61382,
    BASE: 0.64206,
    "1-D, every block": 0.63964,
    "1-D, shared": 0.64292,
    "2-D, stem": 0.64001,
    "2-D, every block": 0.64046,
    "2-D, shared": 0.64022,
    "relative": 0.64032,
}
KINDS = ("2-D, stem", "relative")  # that the paper finds as good as 1-D
PLACES = {"1-D, every block": BASE, "1-D, shared": BASE, "2-D, every block": "2-D, stem", "2-D, shared": "2-D, stem"}
_MODEL = "Lab-Mu/4"
_BYTES = 127.5  # of a stored similarity: 0–255 for −1…1


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    tasks: tuple[Task, ...]
    training: Training
    arms: tuple[str, ...]  # of TABLE_8
    rates: tuple[float, ...]  # learning rates that are tried for every arm
    n_seeds: int


CONFIGS = {
    "smoke": StudyConfig(
        (Task("arrangement", 0.1, n_classes=3),),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=12, image_size=16),
        tuple(TABLE_8),
        rates=(4e-3,),
        n_seeds=2,
    ),
    "quick": StudyConfig(
        (Task("arrangement", 0.1),),
        Training(steps=160, batch_size=64, n_train=4_000, n_validation=200, n_test=1_000, image_size=24),
        tuple(TABLE_8),
        # Of 2, 4, 8 and 16e-3, on a seed of its own, within its noise the best for each kind at its default place.
        rates=(8e-3,),
        n_seeds=5,
    ),
    "full": StudyConfig(
        (Task("arrangement", 0.3), Task("contour", 0.05), Task("cifar10")),
        Training(steps=400, batch_size=128, n_train=40_000, n_validation=1_000, n_test=2_000),
        tuple(TABLE_8),
        rates=(3e-3, 1e-2),
        n_seeds=5,
    ),
}


def position_variants(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every arm on every task with every learning rate and seed; rows as of `design_runs.trained`, with maps.

    Within a seed all arms see the same images in the same order, and begin with the same weights but for the position
    embeddings. `design_runs.chosen` and `position_maps` read the table. A task whose images are not here is left out.
    """
    return design_runs.run_study("position_variants", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "quick", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("quick"))
    40
    """
    config = presets.choose(CONFIGS, preset)
    cases = itertools.product(
        design_runs.seeds(seed, config.n_seeds), design_runs.present(config.tasks), config.arms, config.rates
    )
    return [
        design_runs.planned(config.training, task, arm, _MODEL, rate, s, options_of(arm))
        | {"keeps_map": s % 100 == 0}  # a map is kilobytes: one of each arm and rate is enough
        for s, task, arm, rate in cases
    ]


def options_of(arm: str) -> dict[str, str]:
    """A cell of Table 8 as options of `zoo.create`.

    >>> options_of("2-D, shared"), options_of("none")
    ({'positions': '2d', 'placed': 'shared'}, {'positions': 'none', 'placed': 'stem'})
    """
    kind, _, place = arm.partition(", ")
    default = "every block" if kind == "relative" else "stem"
    return {"positions": kind.replace("-D", "d"), "placed": place or default}


def run_one(config: Config) -> list[dict[str, Any]]:
    """Train the model of one run; its row, with the packed similarity map where the run keeps it, else None."""
    model, row = design_runs.trained(config)
    found = similarity(model) if config["keeps_map"] else None
    return [row | {"map": None if found is None else packed(found)}]


def similarity(model: nn.Module) -> Float[Tensor, "rows cols rows cols"] | None:
    """The position-similarity map of a ViT by its kind of position embeddings; None where it has none.

    Of tables in every block it is that of the first. Relative embeddings belong to offsets, not to patches: tile
    [i, j] has the cosine of the embedding of each offset from patch (i, j) with the embedding of offset 0, in block 1.

    >>> from vitlab.models import zoo
    >>> [similarity(zoo.create("Lab-Mu/8", positions=kind)).shape[0] for kind in ("1d", "2d", "relative")]
    [4, 4, 4]
    >>> similarity(zoo.create("Lab-Mu/8", positions="none")) is None
    True
    """
    kind, place = (getattr(model.config, name, None) for name in ("positions", "placed"))  # None: the plain ViT's
    grid = patch_embedding(model).grid_size
    if kind == "none":
        return None
    if kind == "relative":
        return _of_offsets(next(part for part in model.modules() if isinstance(part, Offsets)), grid)
    block = 0 if place == "every block" else None
    return positions.position_similarity(positions.position_embeddings(model, block).float().cpu(), grid)


def _of_offsets(offsets: Offsets, grid: tuple[int, int]) -> Float[Tensor, "rows cols rows cols"]:
    n = math.prod(grid)
    table = nn.functional.normalize(offsets().detach().float().cpu(), dim=1)
    cosines = table @ table[n - 1]  # row n - 1 is that of offset 0
    place = torch.arange(n)
    return cosines[n - 1 - (place[:, None] - place)].reshape(*grid, *grid)


def packed(similarity: Float[Tensor, "rows cols rows cols"]) -> str:
    """A similarity map as text, one byte for every two patches, which keeps a cosine to 0.004.

    >>> len(packed(torch.ones(4, 4, 4, 4)))
    344
    """
    levels = ((similarity.clamp(-1, 1) + 1) * _BYTES).round().to(torch.uint8)
    return base64.b64encode(levels.contiguous().numpy().tobytes()).decode()


def unpacked(text: str) -> Float[np.ndarray, "rows cols rows2 cols2"]:
    """The map, of a square grid, that `packed` made a text of; −1…1.

    >>> unpacked(packed(torch.ones(3, 3, 3, 3))).shape
    (3, 3, 3, 3)
    """
    levels = np.frombuffer(base64.b64decode(text), np.uint8) / _BYTES - 1
    side = math.isqrt(math.isqrt(len(levels)))
    return levels.reshape(side, side, side, side)


def position_maps(table: pd.DataFrame, task: str) -> Mapping[tuple[str, float], Float[np.ndarray, "r c r2 c2"]]:
    """The similarity maps of the first seed on one task: (arm, learning rate) → map; none for an arm without positions.

    >>> row = {"task": "contour", "arm": "1-D, stem", "learning_rate": 0.1, "map": packed(torch.ones(2, 2, 2, 2))}
    >>> list(position_maps(pd.DataFrame([row]), "contour"))
    [('1-D, stem', 0.1)]
    """
    rows = table[(table["task"] == task) & table["map"].notna()]
    kept = zip(rows["arm"], rows["learning_rate"], rows["map"], strict=True)
    return {(arm, rate): unpacked(text) for arm, rate, text in kept}


def comparisons(runs: pd.DataFrame) -> tuple[dict[str, Estimate | None], ...]:
    """What C09's rule is asked of: 1-D − none, other kinds − 1-D, other places − the stem, by name, in points.

    `runs`: a row for each task, arm and seed, as of `design_runs.chosen`. None where a cell was not run.

    >>> rows = [{"task": "contour", "arm": arm, "seed": 0, "n_test": 100, "n_classes": 10, "test_accuracy": value}
    ...         for arm, value in (("none", 0.25), ("1-D, stem", 0.75), ("relative", 0.5))]
    >>> over_none, kinds, places = comparisons(pd.DataFrame(rows))
    >>> over_none["1-D − none, contour"].value, kinds["relative − 1-D, contour"].value, set(places.values())
    (50.0, -25.0, {None})
    """
    over_none: dict[str, Estimate | None] = {}
    kinds: dict[str, Estimate | None] = {}
    places: dict[str, Estimate | None] = {}
    for task, rows in runs.groupby("task", sort=False):
        over_none[f"1-D − none, {task}"] = design_runs.difference(rows, BASE, NONE)
        kinds |= {f"{arm.partition(',')[0]} − 1-D, {task}": design_runs.difference(rows, arm, BASE) for arm in KINDS}
        places |= {f"{arm} − stem, {task}": design_runs.difference(rows, arm, stem) for arm, stem in PLACES.items()}
    return over_none, kinds, places


def gaps(runs: pd.DataFrame, task: str) -> pd.DataFrame:
    """Every cell's difference from 1-D at the stem on one task: arm, difference, low, high (points); NaN: no interval.

    >>> rows = {"task": "contour", "arm": ["none", "1-D, stem"], "seed": 0, "n_test": 100, "n_classes": 10}
    >>> gaps(pd.DataFrame(rows | {"test_accuracy": [0.25, 0.75]}), "contour")[["arm", "difference"]].values.tolist()
    [['none', -50.0]]
    """
    here = runs[runs["task"] == task]
    found = {arm: design_runs.difference(here, arm, BASE) for arm in TABLE_8 if arm != BASE}
    rows = [
        {"arm": arm, "difference": each.value}
        | dict(zip(("low", "high"), each.interval or (math.nan, math.nan), strict=True))
        for arm, each in found.items()
        if each is not None
    ]
    return pd.DataFrame(rows, columns=["arm", "difference", "low", "high"])
