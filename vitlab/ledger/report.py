"""REPORT.md, built from result.json files alone: our numbers beside the paper's; and tables between markers."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab import paths
from vitlab.ledger import claims, second
from vitlab.ledger.estimate import counting
from vitlab.ledger.study import TOGETHER
from vitlab.sweep import presets

BEGIN, END = "<!-- ledger:begin -->", "<!-- ledger:end -->"
_ABSOLUTE = 1e-5  # numbers this small are rounding errors: equal for our purposes (claim C02)
_RELATIVE = 0.02
_COLUMNS = "claim,what it says,measured,value,interval,n,verdict,paper,reference,agrees"
_INTRODUCTION = """\
{purpose}. Built from the result.json files beside this one. *Reference* is our own committed run of this
preset; *agrees* means that the intervals overlap, or that no more than {tolerance:.0%} lies between them.
"""
_PROVENANCE = """\
Computed {created} in {wall_s} s on {device} ({threads} threads, {platform}); code {code_hash}{revision};
data {data_hash}."""
Result = dict[str, Any]


def agreement(ours: Mapping[str, Any], reference: Mapping[str, Any] | None) -> str:
    """Whether a ledger entry agrees with the reference's entry for the same claim and metric.

    Each entry is its interval, or its value where it has none. "agrees": the two overlap, or the gap between
    them is at most 2 % of the larger magnitude of both values, or at most 1e-5. "differs": the gap is larger.
    "no reference": there is none, or it was made with other parameters. Verdicts do not enter.

    >>> agreement({"value": 0.52, "interval": [0.5, 0.54]}, {"value": 0.55, "interval": [0.53, 0.57]})
    'agrees'
    >>> agreement({"value": 86_567_656, "interval": None}, {"value": 90_000_000, "interval": None})
    'differs'
    >>> agreement({"value": 1.0, "interval": None}, None)
    'no reference'
    """
    if reference is None:
        return "no reference"
    slack = max(_ABSOLUTE, _RELATIVE * max(abs(ours["value"]), abs(reference["value"])))
    low, high = ours["interval"] or (ours["value"],) * 2
    reference_low, reference_high = reference["interval"] or (reference["value"],) * 2
    return "agrees" if low - slack <= reference_high and reference_low - slack <= high else "differs"


def read_results(folder: Path) -> tuple[dict[str, Result], dict[str, str]]:
    """All results of a preset's folder by notebook, and what is wrong with those that cannot be read.

    >>> read_results(Path("nowhere"))
    ({}, {})
    """
    good, bad = {}, {}
    for path in sorted(folder.glob("[0-9][0-9]_*/")):
        try:
            good[path.name] = _checked(paths.read_json(path / "result.json"))
        except FileNotFoundError:
            bad[path.name] = "no result.json: it has not run to its verdict"
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            words = str(error) if "not valid JSON" in str(error) else f"lacks what a result has ({error!r})"
            bad[path.name] = f"result.json is corrupt: {words.replace(str(path) + os.sep, '')}"
    return good, bad


def _checked(result: Result) -> Result:
    """Touches everything the report needs, so that a file of another shape is known at once."""
    if result["schema"] != 1:
        raise ValueError(f"schema {result['schema']}")
    for entry in result["results"]:
        entry["claim"] + entry["metric"] + entry["verdict"] + entry["unit"] + entry["paper"] + entry["note"]
        low, high = entry["interval"] or (entry["value"],) * 2
        if not all(map(math.isfinite, (entry["value"], low, high))) or entry["n"] < 1:
            raise ValueError(f"entry {entry['claim']} {entry['metric']}")
        _row(entry, entry)
    for said in result.get(TOGETHER, {}).values():
        said["verdict"] + "".join(each["metric"] for each in said["numbers"])
    for figure in result["figures"].values():
        figure["png"] + figure["alt"]
    _provenance(result)
    return result


def write(preset: str, expected: Iterable[str] = ()) -> Path:
    """Write REPORT.md of a preset into its figures folder; returns its path.

    `expected` names the notebooks that there are: those without a result are listed as such.

    Raises:
        ValueError: there is no such preset.
    """
    presets.check(preset)
    folder = paths.figures_dir() / preset
    path = folder / "REPORT.md"
    text = build(folder, paths.reference_dir(preset), preset, expected, paths.reference_dir(second.FOLDER))
    with paths.writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def build(folder: Path, reference: Path, preset: str, expected: Iterable[str] = (), again: Path | None = None) -> str:
    """Text of the report on the results in `folder`, compared with those in the folder `reference`.

    `again`: the folder of a second draw's results, if any.

    >>> print(build(Path("nowhere"), Path("nowhere"), "smoke").splitlines()[0])
    # Report of preset `smoke`
    """
    results, bad = read_results(folder)
    bad = {name: "no result.json: it has not run yet" for name in expected if name not in results} | bad
    references, _ = read_results(reference)
    purpose = presets.check(preset).purpose
    introduction = _INTRODUCTION.format(purpose=purpose[0].upper() + purpose[1:], tolerance=_RELATIVE)
    head = [table_line(*_COLUMNS.split(",")), "|---" * (_COLUMNS.count(",") + 1) + "|"]
    lines = [f"# Report of preset `{preset}`", "", introduction, *head, *_rows(results, references), ""]
    twice = second.drawn(results, read_results(again)[0]) if again else {}
    if twice:
        cells = [each.values() for each in second.rows(twice)]
        columns = list(second.rows(twice)[0])
        lines += ["## Second draw", "", second.in_words(twice), "", table_line(*columns), "|---" * len(columns) + "|"]
        lines += [*(table_line(*row) for row in cells), ""]
    if bad:
        lines += [
            "## Without a result",
            "",
            *(f"- **{name}**: {why}" for name, why in sorted(bad.items())),
            "",
        ]
    for name, result in results.items():
        lines += _section(name, result, folder / name, references.get(name))
    return "\n".join(lines).rstrip() + "\n"


def _rows(results: Mapping[str, Result], references: Mapping[str, Result]) -> list[str]:
    rows = []
    for name, result in results.items():
        known = _comparable(result, references.get(name))
        for entry in result["results"]:
            rows.append((entry["claim"], _row(entry, known.get((entry["claim"], entry["metric"])))))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def _comparable(result: Result, reference: Result | None) -> dict[tuple[str, str], Mapping[str, Any]]:
    if reference is None or reference["parameters"] != result["parameters"]:
        return {}
    return {(entry["claim"], entry["metric"]): entry for entry in reference["results"]}


def _row(entry: Mapping[str, Any], reference: Mapping[str, Any] | None) -> str:
    claim = claims.ALL.get(entry["claim"])
    return table_line(
        entry["claim"],
        f"{claim.statement} ({claim.where})" if claim else "",
        entry["metric"],
        _with_unit(entry),
        _interval(entry["interval"]),
        _count(entry),
        ". ".join(filter(None, [_verdict(entry), entry.get("advice"), entry["note"]])),
        entry["paper"] or "–",
        f"{_with_unit(reference)} {_interval(reference['interval'], '')}".strip() if reference else "–",
        agreement(entry, reference),
    )


def _verdict(entry: Mapping[str, Any]) -> str:
    return f"{entry['verdict']} ({entry['reason']})" if entry.get("reason") else entry["verdict"]


def _count(entry: Mapping[str, Any]) -> str:
    return counting(entry["n"], entry["counted"]) if entry.get("counted") else str(entry["n"])


def table_line(*cells: str) -> str:
    """A line of a Markdown table: line ends in a cell become spaces, bars are escaped.

    >>> table_line("a  b", "c|d")
    '| a b | c\\\\|d |'
    """
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _with_unit(entry: Mapping[str, Any]) -> str:
    return f"{number(entry['value'])} {entry['unit']}".strip()


def _interval(interval: Sequence[float] | None, missing: str = "–") -> str:
    return f"[{number(interval[0])}, {number(interval[1])}]" if interval else missing


def number(value: float) -> str:
    """A number as a reader wants it: whole numbers whole, others with four figures.

    >>> number(86567656), number(0.123456), number(3e-7), number(97.0)
    ('86,567,656', '0.1235', '3e-07', '97')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _section(name: str, result: Result, folder: Path, reference: Result | None) -> list[str]:
    lines = [f"## {name}", ""]
    if (folder / "notebook.failed.ipynb").exists():
        partial = f"[as far as it came]({name}/notebook.failed.ipynb)"
        what = "what follows is what it had entered until then, or, where that is nothing, of an earlier one"
        lines += [f"**Its last run failed** ({partial}): {what}.", ""]
    for figure in result["figures"].values():
        lines += [f"![{_escaped(figure['alt'])}]({name}/{figure['png']})", ""]
    if reference is not None and reference["parameters"] != result["parameters"]:
        lines += ["Run with other parameters than our reference: not compared with it.", ""]
    return [*lines, *_provenance(result), ""]


def _escaped(alt: str) -> str:
    return " ".join(alt.split()).replace("[", "\\[").replace("]", "\\]")


def _provenance(result: Result) -> list[str]:
    source = result["provenance"]
    parameters = {"seed": result["seed"], **result["parameters"]}
    git = source.get("git")
    local = " with local changes" if git and git["dirty"] else ""
    revision = f", revision {git['revision'][:12]}{local}" if git else ""
    known = {"data_hash": "–"} | {key: value for key, value in source.items() if value is not None}
    return [
        "Parameters: " + ", ".join(f"`{key} = {value!r}`" for key, value in parameters.items()) + ".  ",
        _PROVENANCE.format(**known | {"revision": revision}) + "  ",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in source["versions"].items()) + ".",
    ]


def with_table(page: str, table: str, name: str = "ledger") -> str:
    """`page` with what stands between the two markers of the table called `name` replaced by `table`.

    Raises:
        ValueError: the markers are missing, or in the wrong order.

    >>> with_table(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new").splitlines()
    ['a', '<!-- ledger:begin -->', 'new', '<!-- ledger:end -->', 'b']
    """
    begin, end = (mark.replace("ledger", name) for mark in (BEGIN, END))
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the page needs the lines {begin} and {end}, once each and in this order")
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}", page)
