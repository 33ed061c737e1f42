"""Evidence: what finished runs have measured, committed as CSV, and as lines of JSON where a run is live."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from vitlab import paths
from vitlab.studies import table

Config = Mapping[str, Any]
ABOUT = ["key", "version", "study", "seed", "commit", "torch", "device", "seconds", "date"]  # of a <kind>.runs.csv


def key(kind: str, config: Config) -> str:
    """Name a run by what determines its rows: its kind, the version of the kind's run function, its configuration."""
    text = json.dumps([kind, table.VERSION[kind], config], sort_keys=True, allow_nan=False)
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
    if not path.exists():
        return pd.DataFrame(columns=["key"])
    return pd.read_csv(path, low_memory=False, keep_default_na=False, na_values=[""])


def about(study: str) -> pd.DataFrame:
    """Select what is said of the committed runs of a study, of any version."""
    found = runs(table.study(study).kind)
    return found[found["study"].str.split().map(lambda names: study in names).astype(bool)]


def of_keys(kind: str, keys: Iterable[str]) -> pd.DataFrame:
    """Select the committed rows of these runs, with their `key`."""
    found = rows(kind)
    return found[found["key"].isin(set(keys))]


def live(kind: str, preset: str) -> dict[str, dict[str, Any]]:
    """Read the finished live runs of a kind by their keys; a line that a killed process left half is skipped."""
    found = {}
    path = paths.out_dir(preset) / f"{kind}.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            run = json.loads(line)
            if run["version"] == table.VERSION[kind]:
                found[run["key"]] = run
        except (ValueError, KeyError, TypeError):
            continue
    return found


def append(kind: str, preset: str, study: str, config: Config, result: Mapping[str, Any]) -> None:
    """Add a finished run (`rows`, `seconds` and what `made_by` says) to the live runs."""
    path = paths.out_dir(preset) / f"{kind}.jsonl"
    run = {"key": key(kind, config), "version": table.VERSION[kind], "study": study, "config": dict(config), **result}
    line = json.dumps(run, allow_nan=False, ensure_ascii=False) + "\n"
    with paths.lock(path.parent, kind), open(path, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read() not in (b"", b"\n"):  # what a killed process or a full disk has left
            line = "\n" + line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


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


def table_of(found: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Tabulate runs: their key, configuration, then measurements."""
    return pd.DataFrame([{"key": run["key"]} | run["config"] | row for run in found for row in run["rows"]])
