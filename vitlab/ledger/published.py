"""Finished runs of a study as one compressed table, committed: what a notebook shows beside its live run (§4)."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import files
from vitlab.ledger.origin import provenance

_DIGITS = 6  # of a number: accuracies of 10,000 images have four


@dataclass(frozen=True)
class Published:
    """The rows of a study's runs, and where they come from."""

    table: pd.DataFrame  # as the study's function returns it
    about: Mapping[str, Any]  # study, preset, runs, planned, provenance

    def __str__(self) -> str:
        """One sentence for a figure's caption: how many runs there are of those planned, and when they were made."""
        runs, planned = self.about["runs"], self.about["planned"]
        how_many = f"all {runs} runs" if runs == planned else f"{runs} of {planned} planned runs"
        return (
            f"{self.about['study']} at {self.about['preset']}: {how_many}, {self.about['provenance']['created'][:10]}"
        )


def write(study: str, preset: str, table: pd.DataFrame, runs: int, planned: int, folder: Path | None = None) -> Path:
    """Write the table of so many finished runs, of those planned, into `folder`; the same bytes for the same rows.

    By default figures/reference/<preset>/runs. Numbers are rounded to six digits. Raises ValueError for an empty table.

    >>> import tempfile
    >>> path = write("two", "full", pd.DataFrame({"seed": [0, 1]}), 2, 3, Path(tempfile.mkdtemp()))
    >>> print(read("two", folder=path.parent).about["runs"], "of 3")
    2 of 3
    """
    if table.empty:
        raise ValueError(f"{study} at {preset} has no finished run here: vitlab full, or vitlab experiment {study}")
    folder = folder or _folder(preset)
    text = io.StringIO()
    table.to_csv(text, index=False, float_format=f"%.{_DIGITS}g")
    with files.writing(folder / f"{study}.csv.gz") as path:
        path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    about = {"study": study, "preset": preset, "runs": runs, "planned": planned, "provenance": provenance()}
    files.write_json(folder / f"{study}.json", about)
    return folder / f"{study}.csv.gz"


def read(study: str, preset: str = "full", folder: Path | None = None) -> Published | None:
    """What is published of a study; None where nothing is.

    >>> read("nothing of this name") is None
    True
    """
    folder = folder or _folder(preset)
    path = folder / f"{study}.csv.gz"
    if not path.exists():
        return None
    return Published(pd.read_csv(path), files.read_json(folder / f"{study}.json"))


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
    there = read(study.__name__)
    return (there.table, str(there)) if there else (pd.DataFrame(), f"{study.__name__}: nothing is published yet")


def _folder(preset: str) -> Path:
    return files.reference_dir(preset) / "runs"
