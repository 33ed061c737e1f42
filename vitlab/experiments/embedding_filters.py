"""The patch embedding's principal components, trained beside untrained (§4.5, Fig. 7 left; claim C11)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from vitlab.analysis import filters
from vitlab.ledger.intervals import jackknife_interval
from vitlab.models import zoo
from vitlab.sweep import presets, runner

N_COMPONENTS = 28  # Fig. 7 left shows 4 × 7
MEASURES = ("low-frequency share", "explained variance")


@dataclass(frozen=True)
class StudyConfig:
    """One preset: numbers of control models and of the jackknife's groups."""

    n_untrained: int  # random initialisations, the control
    n_groups: int  # of filters; each group is left out once


CONFIGS = {"smoke": StudyConfig(3, 6), "quick": StudyConfig(20, 24), "full": StudyConfig(100, 24)}


def embedding_filters(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    weights: str = "lab",
) -> pd.DataFrame:
    """Spectrum and variance of the first principal components of a model's embedding filters.

    Returns a row for each component of each model: `model` is "trained" or "untrained"; `replicate` is 0 for the
    trained weights as they are and 1, 2 … for those with one group of filters left out, or else numbers the
    random initialisations; `component` counts from 1; `explained` is the share of the filters' variance;
    `low_frequency` the share of the component's energy at up to a quarter of a cycle per pixel.

    Raises:
        ValueError: a model with no RGB filters (a hybrid), or an unknown preset.
    """
    config = presets.choose(CONFIGS, preset)
    known = filters.embedding_filters(zoo.load(weights).model)  # before any run: unusable weights raise here
    shared = {
        "weights": weights,
        "filters_sha256": hashlib.sha256(known.cpu().contiguous().numpy().tobytes()).hexdigest(),
        "n_components": n_components(known, config.n_groups),
    }
    configs = [
        shared | {"model": "trained", "n_groups": min(config.n_groups, len(known))},
        shared | {"model": "untrained", "seed": seed, "n_untrained": config.n_untrained},
    ]
    folder = folder or runner.run_folder("embedding_filters", preset)
    table = runner.run_all(run_one, configs, folder, 1 if jobs is None else jobs)  # takes seconds: no worker processes
    return table[["model", "replicate", "component", "explained", "low_frequency"]]


def n_components(known: Float[Tensor, "D 3 P Q"], n_groups: int = 24) -> int:
    """Number of components to analyse: the paper's 28, or fewer where the filters do not have as many.

    Filters of D dimensions have D − 1 components at most, and 3·P·P; with a group left out, some fewer.

    >>> import torch
    >>> n_components(torch.zeros(96, 3, 8, 8)), n_components(torch.zeros(16, 3, 8, 8))
    (28, 14)
    """
    largest_group = math.ceil(len(known) / min(n_groups, len(known)))
    return max(1, min(N_COMPONENTS, known[0].numel(), len(known) - largest_group - 1))


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Components of the trained filters and of their replicates, or of all untrained models."""
    rows = []
    for replicate, sample in _samples(config):
        components, explained = filters.filter_components(sample, config["n_components"])
        low = filters.low_frequency_share(components)
        columns = zip(explained.tolist(), low.tolist(), strict=True)
        rows += [
            {"replicate": replicate, "component": number, "explained": share, "low_frequency": energy}
            for number, (share, energy) in enumerate(columns, start=1)
        ]
    return rows


def _samples(config: dict[str, Any]) -> Iterator[tuple[int, Tensor]]:
    """Number and filters of every replicate of a run."""
    if config["model"] == "trained":
        whole = filters.embedding_filters(zoo.load(config["weights"]).model)
        yield 0, whole
        for group in range(config["n_groups"]):
            yield group + 1, without_group(whole, group, config["n_groups"])
    else:
        first = config["seed"] * config["n_untrained"]
        for number in range(config["n_untrained"]):
            control = zoo.load(config["weights"], untrained=True, seed=first + number)
            yield number + 1, filters.embedding_filters(control.model)


def without_group(samples: Tensor, group: int, n_groups: int) -> Tensor:
    """Samples [D, ...] but for every n_groups-th of them, beginning with that numbered `group`.

    >>> import torch
    >>> without_group(torch.arange(6), 1, 3)
    tensor([0, 2, 3, 5])
    """
    return samples[[index for index in range(len(samples)) if index % n_groups != group]]


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """Trained beside untrained, a row for each of `MEASURES`, from the table of `embedding_filters`.

    Columns: `value` of the trained weights with its interval `low`, `high` over filters, and the least and
    greatest value of the untrained models, `control_low`, `control_high`. "low-frequency share" is the mean over
    the components, "explained variance" their sum.
    """
    models = table.groupby(["model", "replicate"])
    sums = pd.DataFrame({MEASURES[0]: models["low_frequency"].mean(), MEASURES[1]: models["explained"].sum()})
    rows = []
    for measure in MEASURES:
        trained, control = sums.loc["trained", measure], sums.loc["untrained", measure]
        low, high = jackknife_interval(trained[0], trained.drop(0).to_numpy())
        rows.append((measure, trained[0], low, high, control.min(), control.max()))
    columns = ["measure", "value", "low", "high", "control_low", "control_high"]
    return pd.DataFrame(rows, columns=columns).set_index("measure")
