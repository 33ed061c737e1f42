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
        runs, planned, seed = self.about["runs"], self.about["planned"], self.about.get("seed", 0)
        how_many = f"all {runs} runs" if runs == planned else f"{runs} of {planned} planned runs"
        draw = f" of seed {seed}" if seed else ""
        when = self.about["provenance"]["created"][:10]
        return f"{self.about['study']} at {self.about['preset']}: {how_many}{draw}, {when}"


def write(study: str, preset: str, finished: Mapping[str, Mapping[str, Any]], planned: int, seed: int = 0) -> Path:
    """Pack the results of finished runs, by the names of their files, of so many planned, and say what made them.

    Into figures/reference/<preset>/runs; see `committed.write`. Raises ValueError where no run is finished.
    """
    if not finished:
        raise ValueError(f"{study} at {preset} has no finished run here: vitlab full, or vitlab experiment {study}")
    path = committed.archive(study, preset, seed)
    carried = record(study, preset, seed).get("carried", []) if path.exists() else []
    about = {"study": study, "preset": preset, "seed": seed, "runs": len(finished), "planned": planned}
    # Before anything is written: a tracked archive that has changed would make the checkout "dirty".
    about["provenance"] = provenance()
    committed.write(path, finished)
    files.write_json(path.with_suffix(".json"), about | {"carried": carried})
    return path


def carry(
    study: str, preset: str, runs: Mapping[str, Mapping[str, Any]], note: Mapping[str, Any], seed: int = 0
) -> Path:
    """Pack committed runs anew under the names that they have by today's code; `note` says how that was checked.

    All else that is said of them stays: when and by what they were made.
    """
    path, about = committed.archive(study, preset, seed), record(study, preset, seed)
    committed.write(path, runs)
    files.write_json(path.with_suffix(".json"), about | {"carried": [*about.get("carried", []), note]})
    return path


def record(study: str, preset: str, seed: int = 0) -> dict[str, Any]:
    """What is said of a study's committed runs: study, preset, seed, runs, planned, provenance, carried."""
    return files.read_json(committed.archive(study, preset, seed).with_suffix(".json"))


def read(study: str, preset: str = "full", seed: int = 0) -> Published | None:
    """What is published of a study's draw with this seed; None where nothing is.

    >>> read("nothing of this name") is None
    True
    """
    path = committed.archive(study, preset, seed)
    if not path.exists():
        return None
    runs = committed.read(path).values()
    table = results.table([(result["config"], result) for result in runs])
    return Published(table, record(study, preset, seed))


def published_runs(study: str, seed: int = 0) -> tuple[pd.DataFrame, str]:
    """The rows of a study's committed runs at full, and in words how many they are; no rows where none is published.

    Those of the draw with this seed; where it is not published, those of the first, and the words say so.

    >>> published_runs("nothing of this name")[1]
    'nothing of this name: nothing is published yet'
    """
    there = read(study, seed=seed)
    if there:
        return there.table, str(there)
    first = read(study)
    return (first.table, f"{first} (seed 0)") if first else (pd.DataFrame(), f"{study}: nothing is published yet")


def all_draws(study: str, more: str = "") -> tuple[pd.DataFrame, str]:
    """The rows of all committed draws of a study at full, and in words how many they are; no rows where there is one.

    Of runs whose settings every draw has: a second draw repeats what the first has chosen. `more`: a study that repeats
    some of these trainings with further seeds; its rows come last. No two of all of them have a seed in common, so that
    the rows can be judged together.

    >>> all_draws("nothing of this name")[1]
    'nothing of this name: no second draw is published yet'
    """
    seeds = committed.draws(study, "full")
    if len(seeds) < 2:
        return pd.DataFrame(), f"{study}: no second draw is published yet"
    draws = [list(committed.read(committed.archive(study, "full", seed)).values()) for seed in seeds]
    settings = [[results.unseeded(run["config"]) for run in runs] for runs in draws]
    in_all = [
        [run for run in runs if all(results.unseeded(run["config"]) in each for each in settings)] for runs in draws
    ]
    counts = (
        f"{len(used)} of {len(runs)} (seed {seed})" for used, runs, seed in zip(in_all, draws, seeds, strict=True)
    )
    words = f"{study} at full, runs whose settings every draw has: {', '.join(counts)}"
    table = results.table([(run["config"], run) for used in in_all for run in used])
    further = read(more) if more else None
    if further is None:
        return table, words
    return pd.concat([table, further.table], ignore_index=True), f"{words}; {further}"


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
    return published_runs(study.__name__, seed)
