"""The ledger: every claim of the paper with our number, its spread and a verdict, kept in result.json."""

from __future__ import annotations

import hashlib
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vitlab import paths
from vitlab.ledger import claims, published, verdicts
from vitlab.ledger.entries import fields
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.origin import provenance
from vitlab.sweep import presets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Judged = tuple[verdicts.Ruling, Mapping[str, Estimate], str]  # the ruling, the numbers it rests on, more in words
FULL = ", full"  # behind the name of a number, of runs of that preset
TOGETHER = "all_draws"  # of result.json: claim → what all draws of its committed runs say together
VERDICTS = tuple(str(verdict) for verdict in verdicts.Verdict)
_SCHEMA = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_DPI = 120  # dots per inch of the PNG: sharp in a notebook, small enough to commit


@dataclass(frozen=True)
class Study:
    """One execution of a notebook: where its figures and results go. Made by `begin`."""

    notebook: str  # file name without its ending: "08_attention_distance"
    preset: str
    seed: int
    parameters: Mapping[str, Any]
    folder: Path
    started: float = field(default_factory=time.perf_counter, compare=False, repr=False)
    # What this execution has found so far: result.json is written from it alone, nothing earlier stays.
    found: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def save(self, fig: Figure, name: str, alt: str) -> Path:
        """Write a figure into the folder: `save_figure`, as `plots.figure` calls it."""
        return save_figure(self, fig, name, alt)


def begin(notebook: str, preset: str, seed: int, **parameters: Any) -> Study:
    """Begin a notebook's execution; `parameters` are those of its cells that bear on the result.

    Nothing is written yet: an earlier result.json stays whole until this execution concludes its first verdict.

    Raises:
        ValueError: a preset that cannot run here, or a name or parameter that does not fit.
        OSError: the figures folder cannot be written into.

    >>> begin("08_attention_distance", "smoke", seed=0, weights="lab").folder.parts[-2:]
    ('smoke', '08_attention_distance')
    """
    presets.check_runnable(preset)
    if not _NAME.fullmatch(notebook):
        raise ValueError(f"notebook {notebook!r}: expected its file name without the ending .ipynb")
    for name, value in parameters.items():
        if not (value is None or isinstance(value, str | bool | int | float)):
            raise ValueError(f"parameter {name} = {value!r:.80}: expected a number, string, boolean or None")
    folder = paths.figures_dir() / preset / notebook
    paths.check_writable(folder)
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
        with paths.writing(png) as temporary:
            fig.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        with paths.writing(svg) as temporary:
            fig.savefig(temporary, format="svg", dpi=_DPI, metadata={"Date": None, "Creator": None})
    study.found["figures"][name] = {"png": png.name, "svg": svg.name, "alt": alt.strip(), "sha256": digest}
    if "provenance" in study.found:
        _write(study)
    return png


def conclude(
    study: Study,
    claim: str,
    ruling: verdicts.Ruling,
    numbers: Mapping[str, Estimate],
    *,
    note: str = "",
    paper: str = "",
    table: pd.DataFrame | Sequence[Mapping[str, Any]] | None = None,
    data_hash: str | None = None,
) -> None:
    """Enter the verdict on a claim, with the numbers it rests on by name, into result.json, and show it in one line.

    A second call with the same claim and name of a number replaces that number. `paper` is the paper's number, by
    default the one in `claims`. `table` is kept whole. In a notebook the line is Markdown; elsewhere it is printed.

    Raises:
        ValueError: an unknown claim, no number, one without a name, or a verdict that is no `Ruling`.

    >>> import tempfile
    >>> study = Study("01_a", "smoke", 0, {}, Path(tempfile.mkdtemp()), found={"results": {}, "figures": {}})
    >>> conclude(study, "C01", verdicts.judge(verdicts.given(True)), {"tokens": Estimate.exact(197)})
    **C01: reproduced.** Tokens: 197.
    """
    known = claims.check(claim)
    if not isinstance(ruling, verdicts.Ruling):
        raise ValueError(f"verdict {ruling!r}: expected a Ruling, which judge and not_testable return")
    if not numbers or not all(metric.strip() for metric in numbers):
        raise ValueError(f"claim {claim} has no number with a name: say in a few words what each number is")
    for metric, estimate in numbers.items():
        study.found["results"][claim, metric] = {
            "claim": claim,
            "metric": metric,
            **fields(estimate),
            "verdict": str(ruling.verdict),
            "paper": paper or known.paper,
            "note": note,
            "reason": ruling.reason,
            "advice": ruling.advice,
        }
    finish(study, table=table, data_hash=data_hash)
    _show(verdicts.line(claim, ruling, numbers, note))


def conclude_by_full(
    study: Study,
    claim: str,
    live: Judged,
    full: Judged | None,
    where_from: str,
    *,
    beside: Mapping[str, Estimate] | None = None,
    note: str = "",
    **options: Any,
) -> None:
    """`conclude` by the runs of the preset `full`, where they can be judged, else by those of this run; record both.

    What this run alone would say is told beside it. `where_from` says which runs of `full` there are, as
    `published_runs` does; `beside`: more numbers; `options`: those of `conclude`.

    >>> import tempfile
    >>> study = Study("01_a", "quick", 0, {}, Path(tempfile.mkdtemp()), found={"results": {}, "figures": {}})
    >>> live = verdicts.judge(verdicts.given(False)), {"tokens": Estimate.exact(17)}, "at 32 px"
    >>> full = verdicts.judge(verdicts.given(True)), {"tokens": Estimate.exact(197)}, "at 224 px"
    >>> conclude_by_full(study, "C01", live, full, "vit at full: all 5 runs")
    **C01: reproduced.** Tokens, full: 197; tokens: 17.
    Vit at full: all 5 runs: at 224 px. quick: at 32 px; by this run alone: not reproduced.
    """
    ruling, numbers, words = live
    notes = [f"{study.preset}: {words}", *([note] if note else [])]
    if full is not None and study.preset != "full":
        notes[0] += f"; by this run alone: {ruling}"
        ruling, their, words = full
        numbers = of_full(their) | dict(numbers)
        notes.insert(0, f"{where_from}: {words}")
    conclude(study, claim, ruling, {**numbers, **(beside or {})}, note=". ".join(notes), **options)


def conclude_together(
    study: Study, claim: str, runs: str, rule: Callable[[pd.DataFrame], Judged], more: Sequence[str] = ()
) -> None:
    """Judge all committed draws of an experiment's runs at full as one, keep that in result.json, show it in a line.

    This decides where the verdicts of two draws differ or leave the claim open. `runs`: the experiment; `more`: those
    that add seeds to it; `rule`: the ruling on the rows of `published.all_draws` of all of them. Nothing is judged
    where there is one draw only, or in a notebook of another draw, whose seed is not 0.

    Raises ValueError for an unknown claim, or no number.

    >>> study = Study("01_a", "quick", 0, {}, Path("unused"), found={"results": {}, "figures": {}})
    >>> conclude_together(study, "C01", "nothing of this name", lambda rows: ...)
    """
    known = claims.check(claim)
    rows, where_from = published.all_draws(runs, *more)
    if rows.empty or study.seed != 0:
        return
    ruling, numbers, words = rule(rows)
    if not numbers:
        raise ValueError(f"claim {claim} has no number of all draws together")
    note = where_from + (f": {words}" if words else "")
    study.found.setdefault(TOGETHER, {})[known.id] = {
        "verdict": str(ruling.verdict),
        "reason": ruling.reason,
        "advice": ruling.advice,
        "note": note,
        "numbers": [{"metric": metric, **fields(estimate)} for metric, estimate in numbers.items()],
    }
    finish(study)
    _show(verdicts.line(f"{claim}, all draws together", ruling, numbers, note))


def of_full(numbers: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Numbers by name, marked as those of committed runs of the preset `full`, for another preset's ledger.

    >>> list(of_full({"tokens": Estimate.exact(197)}))
    ['tokens, full']
    """
    return {f"{metric}{FULL}": value for metric, value in numbers.items()}


def _show(line: str) -> None:
    """As Markdown in a notebook, as text elsewhere, also in IPython's terminal, which is asked only where it runs."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import Markdown, display

        display(Markdown(line))
    else:
        print(line)


def finish(
    study: Study,
    *,
    table: pd.DataFrame | Sequence[Mapping[str, Any]] | None = None,
    data_hash: str | None = None,
) -> None:
    """Write result.json as things stand: `conclude` calls it; a notebook without a claim does so itself."""
    if table is not None:
        study.found["table"] = _records(table)
    earlier = study.found.get("provenance", {})
    wall = time.perf_counter() - study.started
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
    paths.write_json(path, result)
    for name in stale - _figure_files(path):
        (study.folder / name).unlink(missing_ok=True)


def _figure_files(path: Path) -> set[str]:
    try:
        figures = paths.read_json(path)["figures"].values()
        return {Path(figure[kind]).name for figure in figures for kind in ("png", "svg")}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return set()  # none, or none that can be read: there is nothing to clear away


def _records(table: pd.DataFrame | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Plain rows; what a DataFrame shows as NaN becomes None, for JSON knows no NaN."""
    rows = table.to_dict("records") if isinstance(table, pd.DataFrame) else table
    return [{str(key): _cell(value) for key, value in row.items()} for row in rows]


def _cell(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return None if plain is pd.NA or isinstance(plain, float) and math.isnan(plain) else plain
