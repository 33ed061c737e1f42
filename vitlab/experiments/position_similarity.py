"""Similarity of position embeddings against distance, rows and columns (§4.5, Fig. 7 centre, 10; claim C10)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitlab.analysis import positions
from vitlab.experiments.embedding_filters import without_group
from vitlab.ledger.intervals import jackknife_interval
from vitlab.models import zoo
from vitlab.sweep import presets, runner

MEASURES = ("rank correlation", "row excess", "column excess")
RELATIONS = ("same row", "same column", "neither")


@dataclass(frozen=True)
class StudyConfig:
    """One preset: numbers of controls and of the jackknife's groups."""

    n_untrained: int  # random initialisations
    n_shuffled: int  # shufflings of the trained table's patches, of each of the two kinds
    n_groups: int  # of embedding dimensions; each group is left out once


CONFIGS = {"smoke": StudyConfig(3, 4, 6), "quick": StudyConfig(20, 100, 24), "full": StudyConfig(100, 500, 24)}


def position_similarity(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    weights: str = "lab",
) -> pd.DataFrame:
    """How the cosine similarity of two patches' position embeddings depends on where the patches are.

    Returns rows of one number each. `model` is "trained", "untrained", "shuffled" (the trained table with its patches
    in random places) or "ring-shuffled" (in random places equally far from the edge: the difference between middle and
    edge is kept); `replicate` is 0 for the trained table as it is and 1, 2 … for it with one group of dimensions
    left out, or else numbers the controls. `quantity` is one of
    - "rank correlation": Spearman's, of similarity with nearness, over all pairs of patches;
    - "row excess", "column excess": how much more similar patches of one row (column) are than others as far apart;
    - "same row", "same column", "neither": mean similarity of such pairs at `distance`, in patches.
    A quantity that a grid does not have (rows, where there is one) is left out.

    Raises:
        ValueError: a model without learned absolute position embeddings, fewer than three patches, or an unknown
            preset.
    """
    config = presets.choose(CONFIGS, preset)
    pos = positions.position_embeddings(zoo.load(weights).model)  # before any run: unusable weights raise here
    shared = {
        "weights": weights,
        "table_sha256": hashlib.sha256(pos.cpu().contiguous().numpy().tobytes()).hexdigest(),
    }
    configs = [
        shared | {"model": "trained", "n_groups": min(config.n_groups, pos.shape[1])},
        shared | {"model": "untrained", "seed": seed, "n_replicates": config.n_untrained},
        shared | {"model": "shuffled", "seed": seed, "n_replicates": config.n_shuffled},
        shared | {"model": "ring-shuffled", "seed": seed, "n_replicates": config.n_shuffled},
    ]
    folder = folder or runner.run_folder("position_similarity", preset)
    table = runner.run_all(run_one, configs, folder, 1 if jobs is None else jobs)  # takes seconds: no worker processes
    return table[["model", "replicate", "quantity", "distance", "value"]]


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and curves of every table of one kind."""
    rows = []
    for replicate, similarity in _maps(config):
        numbers = measures(similarity)
        if replicate == 0 or config["model"] == "untrained":
            numbers += curves(similarity)
        rows += [{"replicate": replicate, **row} for row in numbers]
    return rows


def _maps(config: dict[str, Any]) -> Iterator[tuple[int, Tensor]]:
    """Number and similarity map of every table of a run."""
    if config["model"] == "untrained":
        for number in range(config["n_replicates"]):
            seed = config["seed"] * config["n_replicates"] + number
            yield number + 1, _similarity(zoo.load(config["weights"], untrained=True, seed=seed).model)
        return
    model = zoo.load(config["weights"]).model
    grid, whole = positions.position_grid(model), positions.position_embeddings(model)
    if config["model"] != "trained":
        generator = torch.Generator().manual_seed(config["seed"])
        groups = rings(grid) if config["model"] == "ring-shuffled" else torch.zeros(len(whole), dtype=torch.int64)
        for number in range(config["n_replicates"]):
            order = shuffled_within(groups, generator)
            yield number + 1, positions.position_similarity(whole[order], grid)
        return
    yield 0, positions.position_similarity(whole, grid)
    for group in range(config["n_groups"]):
        kept = without_group(whole.T, group, config["n_groups"]).T
        yield group + 1, positions.position_similarity(kept, grid)


def _similarity(model: torch.nn.Module) -> Tensor:
    return positions.position_similarity(positions.position_embeddings(model), positions.position_grid(model))


def rings(grid: tuple[int, int]) -> Int[Tensor, " N"]:
    """How far each patch is from the edge of the grid, in patches; 0 is the outermost ring.

    >>> rings((3, 4)).reshape(3, 4)
    tensor([[0, 0, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 0, 0]])
    """
    rows, cols = grid
    y, x = torch.arange(rows)[:, None].expand(rows, cols), torch.arange(cols).expand(rows, cols)
    return torch.stack([y, rows - 1 - y, x, cols - 1 - x]).amin(dim=0).flatten()


def shuffled_within(groups: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """A random permutation of N elements that keeps each within its group.

    >>> order = shuffled_within(torch.tensor([0, 1, 0, 1]), torch.Generator().manual_seed(0))
    >>> order[[0, 2]].sort().values, order[[1, 3]].sort().values
    (tensor([0, 2]), tensor([1, 3]))
    """
    order = torch.empty_like(groups)
    for group in groups.unique():
        members = (groups == group).nonzero().flatten()
        order[members] = members[torch.randperm(len(members), generator=generator)]
    return order


def measures(similarity: Float[Tensor, "rows cols rows cols"]) -> list[dict[str, Any]]:
    """The three numbers of `MEASURES`, a row each, leaving out those the grid does not have.

    >>> same_row = torch.eye(4)[:, None, :, None].expand(4, 4, 4, 4)
    >>> [(row["quantity"], round(row["value"], 2)) for row in measures(same_row)]
    [('rank correlation', 0.32), ('row excess', 1.0), ('column excess', 0.0)]
    """
    values = (positions.distance_correlation(similarity), *positions.row_column_excess(similarity))
    pairs = zip(MEASURES, values, strict=True)
    return [{"quantity": name, "distance": None, "value": v} for name, v in pairs if math.isfinite(v)]


def curves(similarity: Float[Tensor, "rows cols rows cols"]) -> list[dict[str, Any]]:
    """Mean similarity at each distance in patches, of pairs in one row, in one column, and in neither.

    Pairs in neither are counted at the nearest whole distance.

    >>> same_row = torch.eye(4)[:, None, :, None].expand(4, 4, 4, 4)
    >>> [(row["quantity"], row["distance"], row["value"]) for row in curves(same_row)][:2]
    [('same row', 1, 1.0), ('same row', 2, 1.0)]
    """
    rows, cols = similarity.shape[:2]
    y, x = torch.arange(rows).repeat_interleave(cols), torch.arange(cols).repeat(rows)
    down, across = (y[:, None] - y).abs(), (x[:, None] - x).abs()
    distance = torch.hypot(down.float(), across.float()).round().int()
    chosen = ((down == 0) & (across > 0), (across == 0) & (down > 0), (down > 0) & (across > 0))
    values = similarity.reshape(rows * cols, -1)
    return [
        {"quantity": name, "distance": step, "value": float(values[mask & (distance == step)].mean())}
        for name, mask in zip(RELATIONS, chosen, strict=True)
        for step in distance[mask].unique().tolist()
    ]


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """Trained beside its controls, a row for each of `MEASURES` there is, from `position_similarity`'s table.

    Columns: `value` of the trained table with its interval `low`, `high` over embedding dimensions, and the least
    and greatest value of all controls, untrained and shuffled in both ways, `control_low`, `control_high`.
    """
    rows = []
    for measure in MEASURES:
        mine = table[table["quantity"] == measure]
        trained = mine[mine["model"] == "trained"].set_index("replicate")["value"]
        if trained.empty:
            continue
        control = mine.loc[mine["model"] != "trained", "value"]
        low, high = jackknife_interval(trained[0], trained.drop(0).to_numpy())
        rows.append((measure, trained[0], low, high, control.min(), control.max()))
    columns = ["measure", "value", "low", "high", "control_low", "control_high"]
    return pd.DataFrame(rows, columns=columns).set_index("measure")
