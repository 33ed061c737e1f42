"""Every exercise of every notebook: solved by its source, open in the stripped copy, and no known mistake passes."""

import functools
import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vitlab import notebooks
from vitlab.exercises import cells, check, watch
from vitlab.publish.source import from_source, sources, without_solution

SOURCES = sources(notebooks.notebooks_dir())
STUB = '# YOUR CODE HERE\n{indent}raise NotImplementedError("exercise not solved yet")'
MISTAKES = {path.stem[-2:]: path.stem for path in Path(__file__).parent.glob("wrong_[0-9][0-9].py")}


def stripped(section: cells.Section) -> tuple[str, ...]:
    return tuple(without_solution(text) for text in section.code)


def handed_in(section: cells.Section, wrong: str) -> tuple[str, ...]:
    """The stripped cells with wrong code where the solution was; `---` stands between the parts of one in two."""
    texts, parts = list(stripped(section)), wrong.split("\n---\n")
    for k, text in enumerate(texts):
        while "# YOUR CODE HERE" in text:
            indent = text[: text.index("# YOUR CODE HERE")].rpartition("\n")[2]
            code = parts.pop(0).replace("\n", f"\n{indent}")
            text = text.replace(STUB.format(indent=indent), code, 1)
        texts[k] = text
    assert not parts, "more parts than places for them"
    return tuple(texts)


@functools.cache
def functions(section: cells.Section) -> dict[str, str]:
    """What a student is told to define where the checks call it, by name."""
    expected = check.job(0, section, ()).expected
    return {name: words for name, words in expected.items() if words.startswith("a function ")}


def misspelt(section: cells.Section) -> tuple[str, ...]:
    """The source's cells, with other names for the functions it has to define."""
    names = "|".join(functions(section))
    return tuple(re.sub(rf"\b({names})\b", r"\1_2", text) for text in section.code)


@functools.cache
def expected(source: Path) -> list[tuple[str, cells.Section, tuple[str, ...], str]]:
    """What is handed in for the exercises of a notebook, under which name, and what it is to be called."""
    sections = {section.number: section for section in cells.original(source.stem).exercises}
    mistakes = MISTAKES.get(source.stem[:2])
    wrong = importlib.import_module(f"exercises.{mistakes}").WRONG if mistakes else {}
    found = [(f"{section.number}, the source", section, section.code, "solved") for section in sections.values()]
    found += [
        (f"{section.number}, stripped", section, stripped(section), "not solved yet") for section in sections.values()
    ]
    found += [(f"{section.number}, empty", section, ("",), "not solved yet") for section in sections.values()]
    found += [
        (f"{section.number}, misspelt", section, misspelt(section), "not solved yet")
        for section in sections.values()
        if functions(section)
    ]
    for (number, name), code in wrong.items():
        found.append((f"{number}, {name}", sections[number], handed_in(sections[number], code), "wrong"))
    return found


@pytest.fixture(scope="module")
def judged() -> dict[str, list[check.Outcome]]:
    """Everything of every notebook, with the imports done once: they take most of the time."""
    work = {source.stem: expected(source) for source in SOURCES}
    pairs = [(section, code) for each in work.values() for _, section, code, _ in each]
    # torch imports this at an optimizer's first step, in as many seconds as itself: here once for all answers.
    program = "import sys, torch._dynamo\nfrom vitlab.exercises import host\nhost.main(*sys.argv[1:])"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "_HOST", ("-c", program))
        found = iter(check.judge(pairs, seconds=120))
    return {stem: [next(found) for _ in each] for stem, each in work.items()}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_sources_are_solved_stripped_ones_open_and_mistakes_wrong(source, judged):
    known = expected(source)
    enough = sum(status == "wrong" for *_, status in known) >= 5
    assert enough, f"write five wrong solutions into tests/exercises/wrong_{source.stem[:2]}.py"
    pairs = zip(known, judged[source.stem], strict=True)
    assert [(name, str(outcome)) for (name, *_, status), outcome in pairs if outcome.status != status] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_an_empty_cell_and_a_misspelt_name_are_told_what_is_expected(source, judged):
    for (name, section, *_), outcome in zip(expected(source), judged[source.stem], strict=True):
        defined = check.job(0, section, ()).expected
        if name.endswith(", empty"):
            assert outcome.message.startswith(f"defines no `{next(iter(defined))}`"), outcome
            assert outcome.message.endswith(f"expected {', '.join(defined.values())}"), outcome
        if name.endswith(", misspelt"):
            assert all(
                f"`{each}`" in outcome.message and words in outcome.message
                for each, words in functions(section).items()
            )
            assert "_2`" in outcome.message, outcome


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebooks_have_three_to_five_exercises_each_whole(source):
    """Stars, minutes, a folded hint, a place for the solution, and checks after it that compare with something."""
    found = cells.original(source.stem).exercises
    assert 3 <= len(found) <= 5 and [section.number for section in found] == list(range(1, len(found) + 1))
    for section in found:
        where = f"{source.stem}, exercise {section.number}"
        assert 1 <= section.stars <= 3 and 1 <= section.minutes <= 30, where
        assert section.text.count("<details><summary>Hint</summary>") == section.text.count("</details>") == 1, where
        assert "assert " in "\n".join(section.parts.checks), where
        assert section.parts.asked, where


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_cells_are_read_as_jupytext_reads_them(source):
    notebook = from_source(source)
    read = [(cell.cell_type, cell.source) for cell in notebook.cells if cell.cell_type in ("markdown", "code")]
    ours = cells.percent(source.read_text())
    assert [(kind, text.rstrip()) for kind, text in ours] == [(kind, text.rstrip()) for kind, text in read]


def test_an_exercise_needs_no_experiment():
    """What has to run before an exercise takes seconds: no table of an experiment, no figure."""
    for source in SOURCES:
        for section in cells.original(source.stem).exercises:
            setup = check.job(0, section, section.code).setup
            assert "plots." not in setup and "PRESET, seed=SEED" not in setup, f"{source.stem}, {section.number}"


def test_one_part_of_a_solution_in_two_is_not_enough():
    section = next(s for s in cells.original("01").exercises if s.number == 5)
    half = tuple(text.replace("first_logit = 0.0", STUB.format(indent="")) for text in section.code)
    (outcome,) = check.judge([(replace(section), half)])
    assert outcome.status == "not solved yet"
