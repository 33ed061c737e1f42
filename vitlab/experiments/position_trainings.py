"""C10's three measures over several trainings of one model, each beside its own controls (§4.5, Fig. 7 centre)."""

from __future__ import annotations

import pandas as pd
import torch

from vitlab.experiments.position_similarity import MEASURES, measures, rings, shuffled_within
from vitlab.experiments.small_vits import CROPS
from vitlab.experiments.watching import position_map
from vitlab.ledger.estimate import Estimate

ALL = 9_469  # of Imagenette's training photographs
KIND = ("objective", "data", "n_train")  # what the trainings that are seeds of each other have in common
_NAMES = dict(zip(("nearness", "row_excess", "column_excess"), MEASURES, strict=True))  # in the table of `local_heads`


def on_photographs(table: pd.DataFrame) -> pd.DataFrame:
    """The evaluations of trainings on whole photographs, from `local_heads`' table; none of an empty one.

    >>> on_photographs(pd.DataFrame()).empty
    True
    """
    return table[(table["kind"] == "evaluation") & (table["data"] != CROPS)] if len(table) else table


def of_trainings(evaluations: pd.DataFrame, n_shuffled: int = 20) -> pd.DataFrame:
    """The measures of every training's position map at its end, a row for each measure and training.

    `evaluations` are those of `local_heads`' table. Columns: those of `KIND`, seed, measure, `value`, and `control_low`
    and `control_high`, the least and greatest value of its controls: the position embeddings before the training, and
    the trained ones with their patches shuffled `n_shuffled` times, and as often within rings around the middle.

    Raises ValueError for trainings without their position map, or without their evaluation at step 0.
    """
    rows = []
    for key, run in evaluations.groupby([*KIND, "seed"], sort=False):
        run = run.sort_values("samples")
        start, end = run.iloc[0], run.iloc[-1]
        if start["samples"] != 0 or not isinstance(end["similarity"], str):
            raise ValueError(f"the training {key} has no evaluation at step 0, or no position map at its end")
        shuffled = _shuffled(end["similarity"], n_shuffled, int(key[-1]))
        for column, measure in _NAMES.items():
            controls = [start[column], *(each[measure] for each in shuffled)]
            found = {"measure": measure, "value": end[column]}
            found |= {"control_low": min(controls), "control_high": max(controls)}
            rows.append(dict(zip([*KIND, "seed"], key, strict=True)) | found)
    columns = [*KIND, "seed", "measure", "value", "control_low", "control_high"]
    return pd.DataFrame(rows, columns=columns)


def _shuffled(text: str, n: int, seed: int) -> list[dict[str, float]]:
    """The measures of a packed map whose patches are shuffled: n times at random, n times within rings."""
    similarity = torch.from_numpy(position_map(text)).float()
    rows, cols = similarity.shape[:2]
    n_patches = rows * cols
    flat = similarity.reshape(n_patches, n_patches)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for groups in (torch.zeros(n_patches, dtype=torch.int64), rings((rows, cols))):
        for _ in range(n):
            order = shuffled_within(groups, generator)
            numbers = measures(flat[order][:, order].reshape(similarity.shape))
            found.append({row["quantity"]: row["value"] for row in numbers})
    return found


def compare(trainings: pd.DataFrame) -> pd.DataFrame:
    """The mean of each measure over trainings beside all their controls, as `position_similarity.compare` has one's.

    `trainings` are rows of `of_trainings`, of one kind. Columns: `value`, `low` and `high`, its 95 % interval over the
    trainings (t; NaN for a single one), `control_low`, `control_high` and `n`, the number of trainings.
    """
    rows = {}
    for measure, mine in trainings.groupby("measure", sort=False):
        mean = Estimate.of(mine["value"], counted="trainings")
        low, high = mean.interval or (float("nan"), float("nan"))
        bounds = {"control_low": mine["control_low"].min(), "control_high": mine["control_high"].max()}
        rows[measure] = {"value": mean.value, "low": low, "high": high, **bounds, "n": len(mine)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("measure")
