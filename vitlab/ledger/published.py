"""The committed runs of a study as a table: what a notebook shows beside its live run (§4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import paths
from vitlab.ledger.origin import provenance
from vitlab.sweep import committed, results


@dataclass(frozen=True)
class Published:
    """A study's runs, and where they come from."""

    runs: tuple[Mapping[str, Any], ...]  # their results, as they are stored
    about: Mapping[str, Any]  # as `record` has it

    @property
    def table(self) -> pd.DataFrame:
        """The rows of the runs, as the study's function returns them."""
        return _table(self.runs)

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
    paths.write_json(path.with_suffix(".json"), about | {"carried": carried})
    return path


def carry(
    study: str, preset: str, runs: Mapping[str, Mapping[str, Any]], note: Mapping[str, Any], seed: int = 0
) -> Path:
    """Pack committed runs anew under the names that they have by today's code; `note` says how that was checked.

    All else that is said of them stays: when and by what they were made.
    """
    path, about = committed.archive(study, preset, seed), record(study, preset, seed)
    committed.write(path, runs)
    paths.write_json(path.with_suffix(".json"), about | {"carried": [*about.get("carried", []), note]})
    return path


def record(study: str, preset: str, seed: int = 0) -> dict[str, Any]:
    """What is said of a study's committed runs: study, preset, seed, runs, planned, provenance, carried."""
    return paths.read_json(committed.archive(study, preset, seed).with_suffix(".json"))


def read(study: str, preset: str = "full", seed: int = 0) -> Published | None:
    """What is published of a study's draw with this seed; None where nothing is.

    >>> read("nothing of this name") is None
    True
    """
    path = committed.archive(study, preset, seed)
    if not path.exists():
        return None
    return Published(tuple(committed.read(path).values()), record(study, preset, seed))


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


def all_draws(study: str, *more: str) -> tuple[pd.DataFrame, str]:
    """The rows of all committed draws of a study at full, and in words how many they are; no rows where there is one.

    Of runs whose settings every draw has: a second draw repeats what the first has chosen. `more`: studies that repeat
    some of these trainings with further seeds; all of their draws come last, without the runs that are there already.
    No run is there twice, so that the rows can be judged together.

    >>> all_draws("nothing of this name")[1]
    'nothing of this name: no second draw is published yet'
    """
    draws = _draws(study)
    if len(draws) < 2:
        return pd.DataFrame(), f"{study}: no second draw is published yet"
    settings = [[results.unseeded(run["config"]) for run in draw.runs] for draw in draws.values()]
    used = {
        seed: [run for run in draw.runs if all(results.unseeded(run["config"]) in each for each in settings)]
        for seed, draw in draws.items()
    }
    counts = (f"{len(used[seed])} of {len(draw.runs)} (seed {seed})" for seed, draw in draws.items())
    words = [f"{study} at full, runs whose settings every draw has: {', '.join(counts)}"]
    together = [run for runs in used.values() for run in runs]
    for draw in (draw for name in more for draw in _draws(name).values()):
        there = [run["config"] for run in together]
        together += [run for run in draw.runs if run["config"] not in there]
        words.append(str(draw))
    return _table(together), "; ".join(words)


def _draws(study: str) -> dict[int, Published]:
    """What is published of every draw of a study at full, by the draw's seed."""
    seeds = committed.draws(study, "full")
    return {seed: draw for seed in seeds if (draw := read(study, seed=seed))}


def _table(runs: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    return results.table([(run["config"], run) for run in runs])


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
