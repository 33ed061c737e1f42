"""For maintainers: what README, site and docs/ledger.md say of the committed results (all sections)."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vitlab import notebooks, paths
from vitlab.ledger import conditions, report, second
from vitlab.ledger.claims import ALL, CLAIMS
from vitlab.ledger.entries import NOT_YET, Entries, by_claim, estimate, verdicts_of
from vitlab.ledger.study import FULL, VERDICTS

HERO = paths.ROOT / "figures" / "reference" / "hero.png"  # and beside it hero.json
PAGES = ("README.md", "docs/site/index.md", "docs/ledger.md")
_MIXED = "with different verdicts"
_DECIDED = VERDICTS[:3]  # reproduced, partly, not
_LONGEST = 54  # letters of a metric in the short table
_LARGER_RUNS = FULL.removeprefix(", ")  # the part of a metric that says so of its runs
_INTRODUCTION = """\
<!-- made by python -m vitlab.publish readme: change the results, or vitlab/publish/front.py -->
# The ledger

Every number behind the verdicts in the [README](../README.md), claim by claim: what the paper says (of L01 and L02:
what later work says), what was measured here, with its 95 % interval and what *n* counts, and the verdict, by a rule
that the notebook wrote down before the run ([LOG.md](LOG.md) dates the rules that were changed later, among them that
seeds of all draws decide together, which was settled when both draws of some claims were known). A number without *n*
was counted or computed; C02's are the largest of several random draws. Numbers marked *full* come from larger committed
runs ([figures/reference/full](../figures/reference/full/)), all others from the committed run of the preset `quick`
([figures/reference/quick](../figures/reference/quick/)).
[Notebook 00](../notebooks/00_start_here.ipynb) explains how to read a verdict. *Second draw*: the same with other
seeds, at the learning rates that the first draw had chosen; what was drawn anew stands beside it
(`figures/reference/second`). *All draws*: numbers that rest on trainings, over the trainings of both draws, or of more
where more were drawn. *How precise*: most rules take a difference of less than 1 point for none, so an interval of ±1
point is what one would wish for; an effect many times as large is decided by a wider one too. Claims with another
verdict than *reproduced* say under which condition their effect is there, or what a run would take that could show it;
such a sentence interprets the figure that it names, and numbers of the same notebook.
"""
_ONCE: Mapping[str, second.Drawn] = MappingProxyType({})  # no claim was drawn twice


def write(root: Path) -> list[Path]:
    """Write what is generated into the pages of the checkout `root`, from the results at quick; returns the pages.

    Between markers in README and the site's index: the picture and the counts of verdicts, and in README one row per
    claim and the sizes of the models. docs/ledger.md is written whole.

    Raises:
        ValueError: a marker is missing.
    """
    from vitlab.models.zoo import lab_sizes  # brings timm, which takes seconds
    from vitlab.plots.families import sizes_table

    results, _ = report.read_results(paths.reference_dir("quick"))
    twice = drawn_twice()
    parts = {"hero": picture(), "findings": _wrapped(headline(results, twice))}
    tables = {"ledger": claims_table(results, twice), "models": sizes_table(lab_sizes())}
    readme, index, ledger = (root / page for page in PAGES)
    _replace(readme, parts | tables)
    _replace(index, parts)
    with paths.writing(ledger) as temporary:
        temporary.write_text(ledger_page(results, twice), encoding="utf-8")
    return [readme, index, ledger]


def drawn_twice() -> dict[str, second.Drawn]:
    """The claims that the committed references have drawn twice at quick, where full's runs decide what they can."""
    folders = (paths.reference_dir("quick"), paths.reference_dir(second.FOLDER))
    return second.drawn(*(report.read_results(folder)[0] for folder in folders))


def _replace(page: Path, parts: Mapping[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = report.with_table(text, part, name)
    with paths.writing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def picture() -> str:
    """The front page's picture with its words and its caption, as `python -m vitlab.publish hero` left them."""
    record = paths.read_json(HERO.with_suffix(".json"))
    return f"![{record['alt']}]({HERO.relative_to(paths.ROOT).as_posix()})\n\n{_wrapped(record['caption'])}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)


def headline(results: Mapping[str, report.Result], twice: Mapping[str, second.Drawn]) -> str:
    """What the front page says of the verdicts: how many there are of each kind, and how many stand on a second draw.

    >>> headline({}, {}) == findings({})
    True
    """
    return " ".join([findings(results, twice), *([second.in_words(twice)] if twice else [])])


def findings(results: Mapping[str, report.Result], twice: Mapping[str, second.Drawn] = _ONCE) -> str:
    """How many of the paper's claims have which verdict, in a sentence. A claim with several numbers counts once.

    Where two draws differ or leave a claim open, the verdict is that of all draws together, if they were judged so.

    >>> findings({})[-24:]
    '21 are not yet measured.'
    """
    entries = by_claim(results)
    counts = Counter(_counted(_verdicts(entries[claim], twice.get(claim))) for claim in CLAIMS)
    decided = [f"{_are(counts[verdict])} {verdict}" for verdict in _DECIDED]
    decided[0] += " here"
    words = {verdict: verdict for verdict in VERDICTS[3:]} | {NOT_YET: "not yet measured", _MIXED: _MIXED}
    left = {said: counts[verdict] for verdict, said in words.items() if counts[verdict]}
    still = ", ".join(f"{count} {said}" for said, count in left.items())
    if len(left) > 1:
        still = f"{_are(sum(left.values()))} still open: {still}"
    elif left:
        still = f"{_are(*left.values())} {next(iter(left))}"
    told = f"{decided[0]}, {decided[1]} and {decided[2]}"
    return f"Of {len(CLAIMS)} claims, {told}; {still or 'none is open'}."


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _verdicts(entries: Entries, again: second.Drawn | None) -> list[str]:
    """The verdicts on a claim: that of all draws together where they were judged so, else the first's."""
    return [again.together] if again and again.together else verdicts_of(entries)


def _counted(verdicts: Sequence[str]) -> str:
    return _MIXED if len(verdicts) > 1 else verdicts[0]


def claims_table(results: Mapping[str, report.Result], twice: Mapping[str, second.Drawn] = _ONCE) -> str:
    """A table with one row per claim: the first number that its notebook recorded, the verdict, and that of `twice`.

    The number is that of all draws where trainings were drawn again; where these were judged as one, so is the verdict.

    >>> claims_table({}).splitlines()[0]
    "| claim | ours | the paper's | verdict | second draw | notebook |"
    """
    lines = ["| claim | ours | the paper's | verdict | second draw | notebook |", "|---|---|---|---|---|---|"]
    for claim, entries in by_claim(results).items():
        first = entries[0][1] if entries else None
        cells = [
            f"{claim} {ALL[claim].short}",
            _number(first, twice.get(claim)) if first else "–",
            (first["paper"] if first else ALL[claim].paper) or "–",
            "; ".join(_verdicts(entries, twice.get(claim))),
            _again(twice.get(claim)),
            ", ".join(f"[{stem[:2]}](notebooks/{stem}.ipynb)" for stem in _notebooks_of(claim, entries)),
        ]
        lines.append(report.table_line(*cells))
    return "\n".join(lines)


def _number(first: Mapping[str, Any], drawn: second.Drawn | None) -> str:
    """The first number: that of all draws where it rests on trainings that were drawn again, else that of the first."""
    metric, of_all = first["metric"], None
    if drawn and drawn.first_of_all:
        metric, of_all = drawn.first_of_all
    elif drawn:
        of_all = drawn.of_all(metric)
    if of_all is None:
        return f"{short_metric(metric)}: {estimate(first)}"
    return f"{short_metric(metric.removesuffix(FULL))}, all draws: {of_all}"


def _again(drawn: second.Drawn | None) -> str:
    """Of a claim's second draw, in a word: the same, or the other verdict; both where all draws were judged as one."""
    if drawn is None:
        return "–"
    if drawn.together:
        return f"{drawn.first}, then {drawn.second}"
    return "the same" if drawn.stands else drawn.second


def ledger_page(results: Mapping[str, report.Result], twice: Mapping[str, second.Drawn] = _ONCE) -> str:
    """The page with every number: a section for each claim, with its statement once."""
    sections = (_section(claim, entries, twice.get(claim)) for claim, entries in by_claim(results).items())
    spread = second.spread_in_words(twice.values())
    return "\n".join([_INTRODUCTION, *([_wrapped(spread), ""] if spread else []), *sections])


def _section(claim: str, entries: Entries, again: second.Drawn | None) -> str:
    known = ALL[claim]
    links = " and ".join(f"[notebook {s[:2]}](../notebooks/{s}.ipynb)" for s in _notebooks_of(claim, entries))
    paper = next((entry["paper"] for _, entry in entries), known.paper)
    said = f"*{known.statement}* ({known.where}{'; the paper: ' + paper if paper else ''}). Tested in {links}."
    lines = [f"## {claim} · {known.short}", "", said, ""]
    if not entries:
        return "\n".join([*lines, "Verdict: not yet measured.", ""])
    judged_again = bool(again and again.together)
    lines += ["\n\n".join(dict.fromkeys(_ruling(entry, judged_again) for _, entry in entries))]
    if again:
        lines += ["", f"Second draw, of other {again.anew}: **{again.second}**. {again.number}."]
    if again and again.together:
        number = f" {': '.join(map(str, again.first_of_all))}." if again.first_of_all else ""
        advice = f" To decide it: {again.advice}." if again.advice else ""
        lines += ["", f"Verdict of all draws, judged as one: **{again.together}**.{number}{advice}"]
    if again and (precision := second.precision_in_words(again)):
        lines += ["", f"How precise: {precision}."]
    if condition := conditions.of(claim, entries, again):
        lines += ["", _condition(condition)]
    lines += ["", *_numbers(entries, again)]
    return "\n".join([*lines, ""])


def _numbers(entries: Entries, again: second.Drawn | None) -> list[str]:
    """A table of a claim's numbers; with those of the second draw and of all draws, if that has some of them."""
    ours = [(entry["metric"], str(estimate(entry))) for _, entry in entries]
    if not again or not again.numbers:
        return ["| measured | ours |", "|---|---|", *(report.table_line(*each) for each in ours)]
    others = {number.metric: str(number.second) for number in again.numbers}
    lines = [
        report.table_line(*each, others.get(each[0], second.NO_NUMBER), str(again.of_all(each[0]) or second.NO_NUMBER))
        for each in ours
    ]
    return ["| measured | first draw | second draw | all draws |", "|---|---|---|---|", *lines]


def _condition(condition: conditions.Condition) -> str:
    """Its sentences, with a link to the figure that shows it."""
    figure = f"../figures/reference/quick/{condition.notebook}/{condition.figure}.png"
    return f"Where the effect is, or what it would take: {condition.words} ([Figure]({figure}))"


def _ruling(entry: Mapping[str, Any], judged_again: bool) -> str:
    """Verdict, its reason, what would decide, and how we differ, each with its name.

    Where all draws were `judged_again` as one, it is they that say what would decide.
    """
    name_of_verdict = "Verdict of the first draw" if judged_again else "Verdict"
    verdict = f"**{entry['verdict']}**" + (f" ({entry['reason']})" if entry.get("reason") else "")
    advice = "" if judged_again else entry.get("advice")
    parts = {name_of_verdict: verdict, "To decide it": advice, "How it was done": entry["note"]}
    return " ".join(f"{name}: {' '.join(part.split()).rstrip('.')}." for name, part in parts.items() if part)


def short_metric(metric: str) -> str:
    """A metric's parts between its commas, as many as fit into 54 letters; the first and "full" in any case.

    >>> short_metric("images per second, ViT over ResNet, geometric mean over input sizes")
    'images per second, ViT over ResNet'
    """
    first, *others = metric.split(", ")
    kept, cut = [first], False
    for part in others:
        cut = cut or len(", ".join([*kept, part])) > _LONGEST
        if not cut or part == _LARGER_RUNS:
            kept.append(part)
    return ", ".join(kept)


def _notebooks_of(claim: str, entries: Entries) -> list[str]:
    """The notebooks that recorded a claim's numbers; where there are none, the one whose source judges it."""
    found = list(dict.fromkeys(notebook for notebook, _ in entries))
    judging = re.compile(rf'"{claim}"')
    sources = sorted((notebooks.notebooks_dir() / "source").glob("[0-9][0-9]_*.py"))
    return found or [path.stem for path in sources if judging.search(path.read_text(encoding="utf-8"))]
