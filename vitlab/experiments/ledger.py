"""The ledger: every claim of the paper with our number, its spread and a verdict, kept in result.json."""

from __future__ import annotations

import hashlib
import math
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import vitlab
from vitlab import files
from vitlab.experiments import claims, identity, presets
from vitlab.experiments.intervals import bootstrap_interval, mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "VERDICTS",
    "Study",
    "bootstrap_interval",
    "finish",
    "mean_interval",
    "provenance",
    "record",
    "save_figure",
    "study",
]

VERDICTS = ("reproduced", "partly reproduced", "not reproduced", "not testable at this scale")
_SCHEMA = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_DPI = 120  # dots per inch of the PNG: sharp in a notebook, small enough to commit


@dataclass(frozen=True)
class Study:
    """One execution of a notebook: where its figures and results go. Made by `study`."""

    notebook: str  # file name without its ending: "08_attention_distance"
    preset: str
    seed: int
    parameters: Mapping[str, Any]
    folder: Path
    started: float = field(default_factory=time.perf_counter, compare=False, repr=False)
    # What this execution has found so far: result.json is written from it alone, nothing earlier stays.
    found: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def study(notebook: str, preset: str, seed: int, **parameters: Any) -> Study:
    """Begin a notebook's execution; `parameters` are those of its cells that bear on the result.

    Nothing is written yet: an earlier result.json stays whole until this execution records its first verdict.

    Raises:
        ValueError: a preset that cannot run here, or a name or parameter that does not fit.

    >>> study("08_attention_distance", "smoke", seed=0, weights="lab").folder.parts[-2:]
    ('smoke', '08_attention_distance')
    """
    presets.check_runnable(preset)
    if not _NAME.fullmatch(notebook):
        raise ValueError(f"notebook {notebook!r}: expected its file name without the ending .ipynb")
    for name, value in parameters.items():
        if not (value is None or isinstance(value, str | bool | int | float)):
            raise ValueError(f"parameter {name} = {value!r:.80}: expected a number, string, boolean or None")
    folder = files.figures_dir() / preset / notebook
    return Study(notebook, preset, seed, parameters, folder, found={"results": {}, "figures": {}})


def save_figure(study: Study, fig: Figure, name: str, alt: str) -> Path:
    """Write `fig` as name.png and name.svg into the study's folder; returns the path of the PNG.

    The same figure gives the same bytes: no date, no random ids. `alt` says in words what can be seen, for
    those who cannot see it; it stands in the report.

    Raises:
        ValueError: `alt` is empty, or `name` is no plain lower-case name.

    >>> import tempfile, matplotlib.figure
    >>> folder = Path(tempfile.mkdtemp())
    >>> blank = Study("00_start", "smoke", 0, {}, folder, found={"results": {}, "figures": {}})
    >>> save_figure(blank, matplotlib.figure.Figure((1, 1)), "blank", "An empty square.").name
    'blank.png'
    """
    import matplotlib

    if not alt.strip():
        raise ValueError(f"figure {name!r} has no alt text: say in one sentence what can be seen")
    if not _NAME.fullmatch(name):
        raise ValueError(f"figure name {name!r}: expected lower-case letters, digits, - and _ only")
    png, svg = study.folder / f"{name}.png", study.folder / f"{name}.svg"
    with matplotlib.rc_context({"svg.hashsalt": "vitlab"}):
        with files.writing(png) as temporary:
            fig.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        with files.writing(svg) as temporary:
            fig.savefig(temporary, format="svg", dpi=_DPI, metadata={"Date": None, "Creator": None})
    study.found["figures"][name] = {"png": png.name, "svg": svg.name, "alt": alt.strip(), "sha256": digest}
    if "provenance" in study.found:
        _write(study)
    return png


def record(
    study: Study,
    *,
    claim: str,
    metric: str,
    value: float | np.number,
    interval: Sequence[float] | np.ndarray | None,
    n: int | np.integer,
    verdict: str,
    unit: str = "",
    paper: str = "",
    note: str = "",
    started: float | None = None,
    table: pd.DataFrame | Sequence[Mapping[str, Any]] | None = None,
    data_hash: str | None = None,
) -> None:
    """Enter one measured number of a claim, with its verdict, into the study's result.json.

    A second call with the same claim and metric replaces the first. `interval` is (low, high), or None where
    `n` is 1 or the number is exact. `paper` is the paper's number, by default the one in `claims`. `started`
    is `time.perf_counter()` when the work began, by default when `study` was called. `table` is kept whole.

    Raises:
        ValueError: an unknown claim or verdict, a number that is not finite, an interval the wrong way round.
    """
    entry = {
        "claim": claims.check(claim).id,
        "metric": metric,
        "value": _number("value", value),
        "interval": _interval(interval),
        "n": int(n),
        "unit": unit,
        "verdict": verdict,
        "paper": paper or claims.check(claim).paper,
        "note": note,
    }
    _check(claim, metric, int(n), verdict)
    study.found["results"][claim, metric] = entry
    finish(study, started=started, table=table, data_hash=data_hash)


def _check(claim: str, metric: str, n: int, verdict: str) -> None:
    if not metric.strip():
        raise ValueError(f"claim {claim} has no metric: say in a few words what the number is")
    if verdict not in VERDICTS:
        raise ValueError(f"verdict {verdict!r}: expected one of {', '.join(VERDICTS)}")
    if n < 1:
        raise ValueError(f"n={n}: expected how many independent observations the number rests on, 1 or more")


def finish(
    study: Study,
    *,
    started: float | None = None,
    table: pd.DataFrame | Sequence[Mapping[str, Any]] | None = None,
    data_hash: str | None = None,
) -> None:
    """Write result.json as things stand: `record` calls it; a notebook without a claim does so itself."""
    if table is not None:
        study.found["table"] = _records(table)
    earlier = study.found.get("provenance", {})
    wall = time.perf_counter() - (study.started if started is None else started)
    study.found["provenance"] = provenance(wall, data_hash or earlier.get("data_hash"))
    _write(study)


def _write(study: Study) -> None:
    path = study.folder / "result.json"
    stale = _figure_files(path)
    result = {
        "schema": _SCHEMA,
        "notebook": study.notebook,
        "preset": study.preset,
        "seed": int(study.seed),
        "parameters": dict(study.parameters),
        **study.found,
        "results": list(study.found["results"].values()),
    }
    files.write_json(path, result)
    for name in stale - _figure_files(path):
        (study.folder / name).unlink(missing_ok=True)


def _figure_files(path: Path) -> set[str]:
    try:
        figures = files.read_json(path)["figures"].values()
        return {Path(figure[kind]).name for figure in figures for kind in ("png", "svg")}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return set()  # none, or none that can be read: there is nothing to clear away


def _number(what: str, value: Any) -> float | int:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise ValueError(f"{what} = {value!r}: expected a finite number")
    return plain


def _interval(interval: Sequence[float] | np.ndarray | None) -> list[float | int] | None:
    if interval is None:
        return None
    low, high = (_number("interval bound", bound) for bound in interval)
    if low > high:
        raise ValueError(f"interval ({low}, {high}): expected (low, high)")
    return [low, high]


def _records(table: pd.DataFrame | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Plain rows; what a DataFrame shows as NaN becomes None, for JSON knows no NaN."""
    rows = table.to_dict("records") if isinstance(table, pd.DataFrame) else table
    return [{str(key): _cell(value) for key, value in row.items()} for row in rows]


def _cell(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return None if plain is pd.NA or isinstance(plain, float) and math.isnan(plain) else plain


def provenance(wall_s: float = 0.0, data_hash: str | None = None) -> dict[str, Any]:
    """Where a number comes from: code, versions, device, threads, wall time in seconds, UTC time, data.

    >>> provenance()["device"] != ""
    True
    """
    import torch

    device = identity.device_type()
    return {
        "code_hash": identity.code_hash(),
        "git": _git_state(),
        "versions": _versions(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "wall_s": round(wall_s, 2),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data_hash": data_hash,
    }


def _versions() -> dict[str, str]:
    installed = {name: version(name) for name in ("torch", "timm", "numpy")}
    return {"python": platform.python_version(), **installed, "vitlab": vitlab.__version__}


def _git_state() -> dict[str, Any] | None:
    """Revision of the checkout and whether tracked files differ from it; None where there is no git."""
    if not (files.ROOT / ".git").exists():
        return None  # installed as a package: a repository around it would not be ours
    try:
        revision = _git("rev-parse", "HEAD")
        return {"revision": revision, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(files.ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
