"""Evidence: what finished runs have measured, committed as CSV, and as lines of JSON where a run is live."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import lzma
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vitlab import paths
from vitlab.studies.table import VERSION

Config = Mapping[str, Any]
ABOUT = ["key", "version", "study", "seed", "commit", "torch", "device", "seconds", "date"]  # of a <kind>.runs.csv


def key(kind: str, config: Config) -> str:
    """Name a run by what determines its rows: its kind, the version of the kind's run function, its configuration.

    >>> key("scaling", {"seed": 0, "model": "Lab-Ti/8"}) == key("scaling", {"model": "Lab-Ti/8", "seed": 0})
    True
    """
    text = json.dumps([kind, VERSION[kind], config], sort_keys=True, allow_nan=False)
    return hashlib.sha1(text.encode()).hexdigest()[:16]


@functools.lru_cache
def runs(kind: str) -> pd.DataFrame:
    """Read what is said of the committed runs of a kind, one row each: the columns `ABOUT`."""
    path = paths.evidence_dir() / f"{kind}.runs.csv"
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=ABOUT)


@functools.lru_cache
def rows(kind: str) -> pd.DataFrame:
    """Read the committed rows of a kind: `key`, then the columns of the configurations and of the measurements."""
    path = paths.evidence_dir() / f"{kind}.csv.xz"
    return (
        pd.read_csv(path, low_memory=False, keep_default_na=False, na_values=[""]) if path.exists() else pd.DataFrame()
    )


def evidence(study: str, kind: str) -> pd.DataFrame:
    """Select the committed rows of a study, of all its seeds, with the columns that it has; none where none are there.

    Rows of an earlier version of the kind's run function are left out.
    """
    about = runs(kind)
    mine = about[about["study"].str.split().map(lambda names: study in names) & (about["version"] == VERSION[kind])]
    if mine.empty:
        return pd.DataFrame()
    table = rows(kind)
    return table[table["key"].isin(mine["key"])].dropna(axis=1, how="all").drop(columns="key").reset_index(drop=True)


def of_keys(kind: str, keys: Iterable[str]) -> pd.DataFrame:
    """Select the committed rows of these runs, with their `key`."""
    table = rows(kind)
    return table[table["key"].isin(set(keys))] if len(table) else pd.DataFrame(columns=["key"])


def live_file(kind: str, preset: str) -> Path:
    """Path of the live runs of a kind at a preset, a line of JSON for each."""
    return paths.out_dir(preset) / f"{kind}.jsonl"


def live(kind: str, preset: str) -> dict[str, dict[str, Any]]:
    """Read the finished live runs of a kind by their keys; a line that a killed process left half is skipped."""
    found = {}
    path = live_file(kind, preset)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            run = json.loads(line)
            if run["version"] == VERSION[kind]:
                found[run["key"]] = run
        except (ValueError, KeyError, TypeError):
            continue
    return found


def append(kind: str, preset: str, study: str, config: Config, result: Mapping[str, Any]) -> None:
    """Add a finished run (`rows`, `seconds` and what `made_by` says) to the live runs, whole or not at all."""
    path = live_file(kind, preset)
    run = {"key": key(kind, config), "version": VERSION[kind], "study": study, "config": dict(config), **result}
    line = json.dumps(run, allow_nan=False, ensure_ascii=False) + "\n"
    with paths.lock(path.parent, kind):
        old = path.stat().st_size if path.exists() else 0
        with open(path, "ab") as file:
            if old and not _ends_a_line(path):  # what a killed process has left
                line = "\n" + line
            try:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(old)
                raise


def _ends_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def made_by() -> dict[str, str]:
    """Tell what this process computes with: commit, torch (to the minor version), device, date."""
    import torch

    try:
        command = ["git", "--no-optional-locks", "-C", str(paths.ROOT), "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = ""  # installed as a package
    version = ".".join(torch.__version__.split(".")[:2])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"commit": commit, "torch": version, "device": device, "date": datetime.date.today().isoformat()}


def publish(kind: str, preset: str = "full") -> int:
    """Move the live runs of a kind into the committed evidence; returns how many were new."""
    about, there = runs(kind), set(runs(kind)["key"])
    new = [run for run in live(kind, preset).values() if run["key"] not in there]
    if not new:
        return 0
    table = pd.concat([rows(kind), table_of(new, with_key=True)], ignore_index=True)
    about = pd.concat([about, pd.DataFrame([_about(run) for run in new])], ignore_index=True)
    folder = paths.evidence_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with paths.writing(folder / f"{kind}.csv.xz") as temporary:
        xz = {"method": "xz", "preset": 9 | lzma.PRESET_EXTREME}
        table.to_csv(temporary, index=False, compression=xz)
    with paths.writing(folder / f"{kind}.runs.csv") as temporary:
        about.to_csv(temporary, index=False)
    runs.cache_clear()
    rows.cache_clear()
    return len(new)


def _about(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run["config"].get("seed", 0) if name == "seed" else run[name] for name in ABOUT}


def table_of(found: Sequence[Mapping[str, Any]], with_key: bool = False) -> pd.DataFrame:
    """Tabulate runs: their key if asked for, configuration, then measurements."""
    named = [({"key": run["key"]} if with_key else {}) | dict(run["config"]) for run in found]
    return pd.DataFrame([about | row for about, run in zip(named, found, strict=True) for row in run["rows"]])
