"""Pages of notebooks and the report: figures, live numbers and verdicts, kept in result.json and shown in REPORT.md."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vitlab import paths
from vitlab.claims import rules
from vitlab.claims.claims import ALL, CLAIMS
from vitlab.claims.estimate import Estimate
from vitlab.claims.verdicts import Verdict, line
from vitlab.models.zoo import BUNDLED, clean
from vitlab.studies import store, table, tables


@dataclass
class Page:
    """One execution of a notebook: where its figures and numbers go. Made by `begin`."""

    notebook: str  # file name without its ending: "06_filters_and_positions"
    preset: str
    seed: int
    parameters: dict[str, Any]
    folder: Path
    started: float = field(default_factory=time.perf_counter)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: dict[str, dict[str, str]] = field(default_factory=dict)

    def save(self, picture: bytes, name: str, alt: str) -> Path:
        """Write a figure, a PNG or JPEG, into the folder and note its `alt`, what can be seen; returns the path."""
        if not alt.strip():
            raise ValueError(f"figure {name!r} has no alt text: say in one sentence what can be seen")
        path = self.folder / (f"{name}.png" if picture.startswith(b"\x89PNG") else f"{name}.jpg")
        with paths.writing(path) as temporary:
            temporary.write_bytes(picture)
        self.figures[name] = {"file": path.name, "alt": alt.strip()}
        finish(self)
        return path


def begin(notebook: str, preset: str, seed: Any, **parameters: Any) -> Page:
    """Begin a notebook's execution; `parameters` are those of its cells that bear on the result."""
    if preset not in table.PRESETS:
        raise ValueError(f"PRESET is {preset!r}: choose one of {', '.join(table.PRESETS)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"SEED is {seed!r}: expected a whole number, 0 or more")
    folder = paths.out_dir(preset) / notebook
    paths.check_writable(folder)
    return Page(notebook, preset, seed, parameters, folder)


def show(page: Page, claim: str, live: Mapping[str, Estimate] | None = None) -> None:
    """Show the verdict of the committed evidence on a claim in one line and, under it, numbers of this run by name.

    In a notebook the lines are Markdown; elsewhere they are printed. Both go into result.json.
    """
    ruling, numbers, about = rules.verdict(claim)
    told = [{"metric": name} | _fields(each) for name, each in numbers.items()]
    page.claims[claim] = vars(ruling) | {"numbers": told}
    evidence = "evidence: " + "; ".join(map(tables.about, ALL[claim].study.split()))
    text = line(claim, ruling, numbers, "; ".join(filter(None, [evidence, about])))
    if other := foreign(page.parameters):
        text += f" It says nothing of {other}, which this run looks at."
    if live:
        text += f"\n\nThis run ({page.preset}): {'; '.join(f'{name}: {number}' for name, number in live.items())}."
        page.live |= {f"{claim}, {name}": _fields(number) for name, number in live.items()}
    finish(page)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        print(text)
    else:
        from IPython.display import Markdown, display

        display(Markdown(text))


def foreign(parameters: Mapping[str, Any]) -> str:
    """Name the weights that a notebook was run with where they are not the project's; "" where they are."""
    given = {str(value) for name, value in parameters.items() if name.endswith("weights")}
    return clean(" and ".join(sorted(given - BUNDLED.keys())))


def _fields(number: Estimate) -> dict[str, Any]:
    return {name: getattr(number, name) for name in ("value", "interval", "n", "unit", "counted")}


def finish(page: Page) -> None:
    """Write result.json as things stand; figures of an earlier execution that this one has not made go."""
    import torch

    versions = {"python": platform.python_version(), **{name: version(name) for name in ("torch", "timm", "vitlab")}}
    seconds = round(time.perf_counter() - page.started, 2)
    about = {"versions": versions, "threads": torch.get_num_threads(), "seconds": seconds}
    result = {name: value for name, value in vars(page).items() if name not in ("folder", "started")}
    paths.write_json(page.folder / "result.json", result | {"provenance": store.made_by() | about})
    made = {figure["file"] for figure in page.figures.values()}
    for path in [*page.folder.glob("*.png"), *page.folder.glob("*.jpg")]:
        if path.name not in made and path.stat().st_mtime < time.time() - seconds - 1:
            path.unlink(missing_ok=True)


# --- the report -------------------------------------------------------------------------------------------------------
def write(preset: str) -> Path:
    """Write REPORT.md of a preset from the result.json files of its notebooks; returns its path."""
    folder = paths.out_dir(preset)
    found = {path.parent.name: paths.read_json(path) for path in sorted(folder.glob("*/result.json"))}
    to_notebooks = Path(os.path.relpath(paths.home(), folder)).as_posix()  # of a folder elsewhere as well
    lines = [
        f"# Report: {preset}\n\n{table.PRESETS[preset].capitalize()}. {findings()}\n",
        "Verdicts are of the committed evidence, whatever this run has found; its own numbers stand next to",
        f"those of our committed run.\n\n{readme_table(f'{to_notebooks}/')}\n",
    ]
    for name, result in sorted(found.items(), key=lambda each: foreign(each[1]["parameters"])):
        other = foreign(result["parameters"])
        reference = paths.shipped() / "figures" / "reference" / name / "result.json"
        known: dict[str, Any] = paths.read_json(reference) if reference.exists() else {"parameters": None}
        theirs = known["live"] if known["parameters"] == result["parameters"] else {}  # of the same weights
        lines += [f"## {name}", "", f"Of {other}, of which no verdict above speaks. Others are named.\n" * bool(other)]
        if result["live"]:
            lines += ["| number | this run | reference |", "|---|---|---|"]
            for metric, number in result["live"].items():
                other = _number(theirs[metric]) if metric in theirs else "–"
                lines.append(f"| {metric} | {_number(number)} | {other} |")
            lines.append("")
        for figure in result["figures"].values():
            alt = figure["alt"].replace("[", "(").replace("]", ")")
            lines += [f"![{alt}]({name}/{figure['file']})", ""]
        about = result["provenance"]
        lines += [f"{about['seconds']} s on {about['device']}, torch {about['torch']}, commit {about['commit']}.", ""]
    with paths.writing(folder / "REPORT.md") as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return folder / "REPORT.md"


def _number(each: Mapping[str, Any]) -> str:
    low, high = each["interval"] or (None, None)
    if each["n"] == 1 and low is None:
        return str(Estimate.exact(each["value"], each["unit"]))
    return str(Estimate(each["value"], low, high, each["n"], each["unit"], each["counted"]))


def findings() -> str:
    """Count the verdicts on the paper's claims in a sentence."""
    counts = {verdict: sum(rules.verdict(name).ruling.verdict is verdict for name in CLAIMS) for verdict in Verdict}
    told = [f"{n} {'is' if n == 1 else 'are'} {verdict}" for verdict, n in counts.items() if n]
    return f"Of the paper's {len(CLAIMS)} claims under test, {', '.join(told[:-1])} and {told[-1]}."


def readme_table(prefix: str = "") -> str:
    """Tabulate all claims, one row each: our first number, the paper's, the verdict, the notebook (under `prefix`)."""
    rows = ["| claim | ours | the paper's | verdict | notebook |", "|---|---|---|---|---|"]
    for name, known in ALL.items():
        ruling, numbers, _ = rules.verdict(name)
        metric, number = next(iter(numbers.items()))
        link = f"[{known.notebook[:2]}]({prefix}notebooks/{known.notebook}.ipynb)"
        rows.append(f"| {name} {known.short} | {metric}: {number} | {known.paper or '–'} | {ruling.verdict} | {link} |")
    return "\n".join(rows)
