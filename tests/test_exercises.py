"""A student's copy is judged by the notebook's own exercises; each is solved by its source and catches mistakes."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from wrong_solutions import WRONG

from tools.notebooks import without_solution
from vitlab import cli, exercises, notebooks, paths

ALL = notebooks.all_notebooks()
ADD = """\
def add(a, b):
    ### BEGIN SOLUTION
    return a + b + offset - 1
    ### END SOLUTION


assert add(2, 3) == 5
assert math.isclose(add(0.5, 0.25), 0.75)"""
CELLS = [
    new_markdown_cell("# 08 · Sums"),
    new_code_cell('PRESET = "quick"'),
    new_code_cell('import math, sys\noffset = 1\ntable = sys.exit("an experiment")'),
    new_markdown_cell("### 1 · Add (★★, 5 minutes)"),
    new_code_cell(ADD),
    new_markdown_cell("### 2 · Say it (★, 5 minutes)"),
    new_code_cell("### BEGIN SOLUTION\nanswer = 42\n### END SOLUTION\nassert answer == 42"),
    new_markdown_cell("## The end"),
    new_code_cell("answer = 43"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout with one notebook."""
    (tmp_path / "notebooks").mkdir()
    nbformat.write(new_notebook(cells=CELLS), tmp_path / "notebooks" / "08_sums.ipynb")
    monkeypatch.setattr(paths, "shipped", lambda: tmp_path)
    return tmp_path


def handed_in(folder, add=None, answer="answer = 42", name="mine.ipynb", title="# 08 · Sums"):
    """A copy with other code for the two exercises."""
    cells = [new_markdown_cell(title), new_code_cell("1 / 0")]
    if add is not None:
        cells += [new_markdown_cell("### 1 · Add (★★, 5 minutes)"), new_code_cell(add)]
    cells += [new_markdown_cell("### 2 · Say it (★, 5 minutes)"), new_code_cell(answer)]
    nbformat.write(new_notebook(cells=cells), folder / name)
    return folder / name


PLUS = "def add(a, b):\n    return a + b"
STUB = 'def add(a, b):\n    raise NotImplementedError("exercise not solved yet")'


@pytest.mark.parametrize(
    ("number", "code", "status", "words"),
    [
        (1, PLUS, "solved", ""),
        (1, STUB, "not solved yet", ""),
        (1, PLUS.replace("a + b", "math.fsum([5, offset - 1])"), "wrong", "not hold: math.isclose(add(0.5, 0.25)"),
        (1, PLUS.replace("add", "ad"), "not solved yet", "name 'add' is not defined"),
        (1, PLUS.replace("+ b", "/ 0"), "wrong", "ZeroDivisionError: division by zero"),
        (2, "", "not solved yet", "name 'answer' is not defined"),
        (2, "answer = 42\nassert answer == 0", "solved", ""),
        (2, "answer = 41", "wrong", "does not hold: answer == 42"),
        (2, "x = 1\nanswer = (", "wrong", "line 2 answer = ("),
        (2, "raise SystemExit", "wrong", "SystemExit"),
    ],
)
def test_what_becomes_of_answers(number, code, status, words):
    original = exercises.exercises([(cell.cell_type, cell.source) for cell in CELLS])[number]
    found = exercises.judge(**exercises.job_of(original, [code]))
    assert found["status"] == status and words in found["message"]


@pytest.mark.slow
def test_a_folder_of_hand_ins_gives_a_table(folder, tmp_path, capsys):
    """Loops and exits end their kernel, and the other exercises are judged all the same."""
    pupils = tmp_path / "hand_ins"
    pupils.mkdir()
    handed_in(pupils, PLUS, "%time answer = 42", "a.ipynb")
    handed_in(pupils, "while True: pass", "import os; os._exit(0)", "b.ipynb")
    csv = tmp_path / "grades.csv"
    assert cli.main(["exercises", "check", str(pupils), "--csv", str(csv), "--seconds", "5"]) == 1
    header, *rows = csv.read_text().splitlines()
    assert header == "file,1,2,solved"
    assert [row.rpartition("/")[2] for row in rows] == ["a.ipynb,solved,solved,2", "b.ipynb,stopped,stopped,0"]
    *_, first, second, third, fourth, names, ours, theirs = capsys.readouterr().out.splitlines()
    assert first == f"{pupils}/b.ipynb, a copy of 08_sums"
    assert second == "1  Add: stopped: took longer than 5 seconds"
    assert third == "2  Say it: stopped: ended the process it ran in: exit(), or too little memory"
    assert fourth == "0 of 2 solved" and names.split() == ["file", "1", "2", "solved"]
    assert ours.split()[1:] == ["solved", "solved", "2"] and theirs.split()[1:] == ["stopped", "stopped", "0"]


def test_of_a_duplicated_cell_or_section_the_solved_one_counts(folder):
    path = handed_in(folder, PLUS)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3:3] = [new_code_cell(STUB), new_markdown_cell("### 1 · Add (★★, 5 minutes)"), new_code_cell(STUB)]
    nbformat.write(notebook, path)
    first, second = exercises.check(path)
    assert (first["status"], second["status"]) == ("solved", "solved")
    assert "a blank copy of the cell does not count" in first["message"] and second["message"] == ""


def test_what_cannot_be_checked_is_said(folder, capsys):
    assert cli.main(["exercises", "check", str(folder / "none.ipynb")]) == 2
    assert "No such file" in capsys.readouterr().err
    (folder / "x.ipynb").write_text("{}")
    assert cli.main(["exercises", "check", str(folder / "x.ipynb")]) == 2
    assert "expected a Jupyter notebook" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cannot tell which notebook this is a copy of"):
        exercises.check(handed_in(folder, title="# Mine"))
    assert exercises.source_of(folder / "my_08_x.ipynb", []).stem == "08_sums"
    nbformat.write(new_notebook(cells=CELLS[:1]), folder / "bare.ipynb")
    assert [each["status"] for each in exercises.check(folder / "bare.ipynb")] == ["not solved yet"] * 2


def with_solutions(path):
    """The exercises of a notebook that have one, by their numbers."""
    found = exercises.exercises(exercises.read_cells(path))
    return {number: each for number, each in found.items() if "### BEGIN SOLUTION" in "\n".join(each["code"])}


def test_every_mistake_belongs_to_an_exercise():
    jobs = [exercises.job_of(each, []) for path in ALL for each in with_solutions(path).values()]
    assert {name for name, _ in WRONG} <= {name for job in jobs for name in job["asked"]}


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_notebooks_are_solved_stripped_copies_open_and_mistakes_wrong(path):
    """In this process: to begin a kernel and import everything takes longer than the exercises."""
    for number, each in with_solutions(path).items():
        job = exercises.job_of(each, [])
        assert "assert " in job["checks"] and "plots." not in job["setup"], f"{number}: no check, or an experiment"
        stripped = [without_solution(text) for text in each["code"]]
        cases = [("solved", each["code"]), ("not solved yet", stripped)]
        cases += [("wrong", [fill(stripped, code)]) for (name, _), code in WRONG.items() if name in job["asked"]]
        for status, code in cases:
            found = exercises.judge(**exercises.job_of(each, code))
            assert found["status"] == status, (number, code, found)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_exercises_say_how_hard_they_are_and_have_a_hint(path):
    text = "\n".join(text for kind, text in exercises.read_cells(path) if kind == "markdown")
    parts = re.split(r"^### (?:Exercise )?\d+ · .+ \(★{1,3}, [123]?\d min(?:utes)?\)$", text, flags=re.M)[1:]
    assert len(parts) == len(with_solutions(path)) and all("<summary>Hint</summary>" in part for part in parts)


def fill(stripped, code):
    """Put wrong code where the solution was; `---` stands between the parts of one in two."""
    text, parts = "\n".join(stripped), code.split("\n---\n")
    for part in parts:
        before, _, after = text.partition("# YOUR CODE HERE\n")
        indent = before.rpartition("\n")[2]
        text = before + part.replace("\n", f"\n{indent}") + "\n" + after.partition("\n")[2]
    return text


@pytest.mark.parametrize("text", ["### END SOLUTION", "### BEGIN SOLUTION", "### END SOLUTION\n### BEGIN SOLUTION"])
def test_solutions_are_taken_out_between_their_markers(text):
    assert without_solution(ADD).splitlines()[1:4] == [
        "    # YOUR CODE HERE",
        '    raise NotImplementedError("exercise not solved yet")',
        "",
    ]
    with pytest.raises(ValueError, match="cell: expected ### BEGIN SOLUTION and ### END SOLUTION in turns"):
        without_solution(text)
