"""The committed runs of a study as a table: what a notebook shows beside its live run (§4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import files
from vitlab.ledger.origin import provenance
from vitlab.sweep import committed, results


@dataclass(frozen=True)
class Published:
    """The rows of a study's runs, and where they come from."""

    table: pd.DataFrame  # as the study's function returns it
    about: Mapping[str, Any]  # as `record` has it

    def __str__(self) -> str:
        """One sentence for a figure's caption: how many runs there are of those planned, and when they were made."""
        runs, planned = self.about["runs"], self.about["planned"]
        how_many = f"all {runs} runs" if runs == planned else f"{runs} of {planned} planned runs"
        return (
            f"{self.about['study']} at {self.about['preset']}: {how_many}, {self.about['provenance']['created'][:10]}"
        )


def write(study: str, preset: str, finished: Mapping[str, Mapping[str, Any]], planned: int) -> Path:
    """Pack the results of finished runs, by the names of their files, of so many planned, and say what made them.

    Into figures/reference/<preset>/runs; see `committed.write`. Raises ValueError where no run is finished.
    """
    if not finished:
        raise ValueError(f"{study} at {preset} has no finished run here: vitlab full, or vitlab experiment {study}")
    path = committed.archive(study, preset)
    carried = record(study, preset).get("carried", []) if path.exists() else []
    # Before anything is written: a tracked archive that has changed would make the checkout "dirty".
    about = {"study": study, "preset": preset, "runs": len(finished), "planned": planned, "provenance": provenance()}
    committed.write(path, finished)
    files.write_json(path.with_suffix(".json"), about | {"carried": carried})
    return path


def carry(study: str, preset: str, runs: Mapping[str, Mapping[str, Any]], note: Mapping[str, Any]) -> Path:
    """Pack committed runs anew under the names that they have by today's code; `note` says how that was checked.

    All else that is said of them stays: when and by what they were made.
    """
    path, about = committed.archive(study, preset), record(study, preset)
    committed.write(path, runs)
    files.write_json(path.with_suffix(".json"), about | {"carried": [*about.get("carried", []), note]})
    return path


def record(study: str, preset: str) -> dict[str, Any]:
    """What is said of a study's committed runs: study, preset, runs, planned, provenance, carried."""
    return files.read_json(committed.archive(study, preset).with_suffix(".json"))


def read(study: str, preset: str = "full") -> Published | None:
    """What is published of a study; None where nothing is.

    >>> read("nothing of this name") is None
    True
    """
    path = committed.archive(study, preset)
    if not path.exists():
        return None
    runs = committed.read(path).values()
    table = results.table([(result["config"], result) for result in runs])
    return Published(table, record(study, preset))


def published_runs(study: str, preset: str = "full") -> tuple[pd.DataFrame, str]:
    """The rows of a study's committed runs, none where nothing is published, and in words how many runs they are.

    >>> published_runs("nothing of this name")[1]
    'nothing of this name: nothing is published yet'
    """
    there = read(study, preset)
    return (there.table, str(there)) if there else (pd.DataFrame(), f"{study}: nothing is published yet")


def live_or_published(
    study: Callable[..., pd.DataFrame], preset: str, seed: int, presets: Mapping[str, Any]
) -> tuple[pd.DataFrame, str]:
    """The rows of a study, and in words where they are from: run now where it has this preset, else as published.

    `study` is the experiment's function, `presets` its configurations. Where nothing is published there are no rows.

    >>> rows, words = live_or_published(lambda preset, seed: pd.DataFrame({"n": [1]}), "smoke", 0, {"smoke": ...})
    >>> len(rows), words
    (1, '<lambda> at smoke')
    """
    if preset in presets:
        return study(preset, seed=seed), f"{study.__name__} at {preset}"
    return published_runs(study.__name__)
