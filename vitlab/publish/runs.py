"""For maintainers: the finished runs of studies are packed into the archives that are committed (all sections)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab import experiments
from vitlab.experiments import second_draw
from vitlab.experiments.small_vits import CROPS
from vitlab.ledger import published
from vitlab.sweep import results, runner


def publish(studies: Sequence[str], preset: str, seed: int = 0) -> list[Path]:
    """Pack each study's finished runs at a preset; of runs under way, those that are finished.

    A `seed` other than 0 is that of another draw (see `second_draw`), which has an archive of its own.

    Raises:
        ValueError: no study is named, one there is not, one that does not list its runs, or one without a finished run.
    """
    if not studies:
        raise ValueError("name the studies whose runs are published, such as who_wins")
    done = []
    for name in studies:
        module = importlib.import_module(experiments.find(name).__module__)
        if not hasattr(module, "planned_runs"):
            raise ValueError(f"{name} does not list its runs, so there is no archive of them")
        planned = second_draw.planned_runs(name, preset, seed) if seed else module.planned_runs(preset)
        finished = runner.finished_of_preset(module.run_one, planned, preset)
        finished = {file: short(result) for file, result in finished.items()}
        done.append(published.write(name, preset, finished, len(planned), seed))
    return done


_TEXTS = ("similarity", "guesses")  # packed position maps and predictions of `watching`: 150 kB of a training


def short(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the packed texts of a training's earlier evaluations, those of crops excepted.

    The film of notebook 10 draws them of crops; of other trainings only what is left at the end is looked at.

    >>> rows = [{"samples": samples, "similarity": "text"} for samples in (0, 9)]
    >>> [row["similarity"] for row in short({"config": {"data": "imagenette"}, "rows": rows})["rows"]]
    [None, 'text']
    """
    rows = result["rows"]
    last = max((row.get("samples") or 0 for row in rows), default=0)
    if result["config"].get("data") == CROPS or not any(row.get(name) for row in rows for name in _TEXTS):
        return dict(result)
    kept = [row if row["samples"] == last else row | {n: None for n in _TEXTS if n in row} for row in rows]
    return results.with_checksum({**result, "rows": kept})
