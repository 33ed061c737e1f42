"""A ViT scaled along one dimension at a time: depth, width, MLP width, patch size, all (App. D.2, Fig. 8; C18)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from vitlab.experiments import design_runs
from vitlab.experiments.design_runs import Config, Task, Training, run_one
from vitlab.ledger.estimate import Estimate
from vitlab.sweep import presets

BASE = "base"
DIMENSIONS = ("depth", "width", "MLP width", "patch size", "all")


@dataclass(frozen=True)
class Shape:
    """A ViT's shape. Fig. 8's base has 8 blocks, D = 1,024, an MLP of 2,048 and patches of 32 px: as here MLP = 2 D."""

    depth: int
    dim: int
    mlp_dim: int
    patch_size: int = 8  # pixels
    n_heads: int = 4


@dataclass(frozen=True)
class StudyConfig:
    """One preset."""

    task: Task
    training: Training
    shapes: Mapping[str, tuple[Shape, ...]]  # dimension → shapes that differ from the base in it alone
    rates: Mapping[str, tuple[float, ...]]  # dimension → learning rates that are tried for its shapes; as many for all
    n_seeds: int


_BASE = Shape(2, 64, 128)
_SHAPES = {
    BASE: (_BASE,),
    "depth": (Shape(4, 64, 128), Shape(8, 64, 128)),
    "width": (Shape(2, 96, 128), Shape(2, 144, 128)),
    "MLP width": (Shape(2, 64, 384), Shape(2, 64, 896)),
    "patch size": (Shape(2, 64, 128, patch_size=4),),
    "all": (Shape(3, 80, 160), Shape(4, 96, 192)),
}
CONFIGS = {
    "smoke": StudyConfig(
        Task("mixed"),
        Training(steps=3, batch_size=8, n_train=24, n_validation=12, n_test=20, image_size=16),
        {
            BASE: (Shape(1, 16, 32, n_heads=2),),
            "depth": (Shape(2, 16, 32, n_heads=2),),
            "width": (Shape(1, 24, 32, n_heads=2),),
            "MLP width": (Shape(1, 16, 64, n_heads=2),),
            "patch size": (Shape(1, 16, 32, patch_size=4, n_heads=2),),
            "all": (Shape(2, 24, 48, n_heads=2),),
        },
        rates=dict.fromkeys((BASE, *DIMENSIONS), (4e-3,)),
        n_seeds=2,
    ),
    "full": StudyConfig(
        # Of 100 classes the base knows 85 % after these steps, and four blocks no more; of 300 it knows 74 %.
        Task("mixed", n_classes=300),
        Training(steps=2_000, batch_size=128, n_train=64_000, n_validation=1_000, n_test=2_000, precision="bf16"),
        _SHAPES,
        # The best of 1, 2, 4 and 8e-3 for the largest shape of each dimension, in a pilot with one other seed, and the
        # better of its neighbours.
        rates={
            BASE: (4e-3, 8e-3),
            "depth": (4e-3, 8e-3),
            "width": (2e-3, 4e-3),
            "MLP width": (2e-3, 4e-3),
            "patch size": (4e-3, 8e-3),
            "all": (2e-3, 4e-3),  # not in the pilot: those of the width
        },
        n_seeds=5,
    ),
}


def vit_shapes(
    preset: str = "full", seed: int = 0, jobs: int | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Train every shape with every learning rate and seed; rows as of `design_runs.trained`, with `dimension`."""
    return design_runs.run_study("vit_shapes", run_one, planned_runs(preset, seed), preset, jobs, folder)


def planned_runs(preset: str = "full", seed: int = 0) -> list[Config]:
    """Every run of the study.

    >>> len(planned_runs("smoke"))
    12
    """
    config = presets.choose(CONFIGS, preset)
    return [
        _planned(config, dimension, shape, rate, s)
        for s in design_runs.seeds(seed, config.n_seeds)
        for dimension, shapes in config.shapes.items()
        for shape, rate in itertools.product(shapes, config.rates[dimension])
    ]


def _planned(config: StudyConfig, dimension: str, shape: Shape, rate: float, seed: int) -> Config:
    options = {name: getattr(shape, name) for name in ("depth", "dim", "mlp_dim", "n_heads")}
    arm = f"{shape.depth} blocks, {shape.dim} wide, MLP {shape.mlp_dim}, /{shape.patch_size}"
    run = design_runs.planned(config.training, config.task, arm, f"Lab-Ti/{shape.patch_size}", rate, seed, options)
    return {"dimension": dimension} | run


def slopes(runs: pd.DataFrame) -> pd.DataFrame:
    """Percentage points a doubling of the FLOPs brings along each dimension, for every seed: dimension, seed, slope.

    The least-squares slope of test accuracy over log2(FLOPs), through the base and the shapes of that dimension.
    `runs` has a row for each shape and seed: dimension, seed, flops, test_accuracy (0…1).

    >>> runs = {"dimension": ["base", "depth"], "seed": 0, "flops": [1e6, 4e6], "test_accuracy": [0.5, 0.6]}
    >>> slopes(pd.DataFrame(runs)).round(6).to_dict("records")
    [{'dimension': 'depth', 'seed': 0, 'slope': 5.0}]
    """
    found = []
    for (dimension, seed), rows in runs[runs["dimension"] != BASE].groupby(["dimension", "seed"], sort=False):
        line = pd.concat([runs[(runs["dimension"] == BASE) & (runs["seed"] == seed)], rows])
        if line["flops"].nunique() > 1:
            slope = np.polyfit(np.log2(line["flops"].astype(float)), 100 * line["test_accuracy"], 1)[0]
            found.append({"dimension": dimension, "seed": seed, "slope": float(slope)})
    return pd.DataFrame(found, columns=["dimension", "seed", "slope"])


def slope_of(found: pd.DataFrame, dimension: str, minus: str | None = None) -> Estimate | None:
    """The slope along a dimension, or how much it is above another's, paired by seed; None where no seed has it.

    >>> found = pd.DataFrame({"dimension": ["depth", "width"] * 2, "seed": [0, 0, 1, 1], "slope": [5.0, 1.0, 4.0, 2.0]})
    >>> slope_of(found, "depth", "width").value, slope_of(found, "patch size")
    (3.0, None)
    """
    wide = found.pivot(index="seed", columns="dimension", values="slope")
    wide = wide.reindex(columns=list(dict.fromkeys([dimension, minus or dimension]))).dropna()
    if wide.empty:
        return None
    return Estimate.of(
        wide[dimension] - (wide[minus] if minus else 0.0), "points a doubling" if not minus else "points"
    )
