"""A student's copy is judged by the notebook's own exercises; each is solved by its source and catches mistakes."""

import json

import nbformat
import pytest
from wrong_solutions import WRONG

from vitlab import cli, exercises, notebooks, paths

SOURCES = sorted((paths.ROOT / "notebooks" / "source").glob("[0-9A-Z]*_*.py"))
SOURCE = """\
# %% [markdown]
# # 08 · Sums
# %% tags=["parameters"]
PRESET = "quick"
# %%
import math, sys
offset = 1
table = sys.exit("an experiment")
# %% [markdown]
# ### 1 · Add (★★, 5 minutes)
# %%
def add(a, b):
    ### BEGIN SOLUTION
    return a + b + offset - 1
    ### END SOLUTION


assert add(2, 3) == 5
assert math.isclose(add(0.5, 0.25), 0.75)
# %% [markdown]
# ### 2 · Say it (★, 5 minutes)
# %%
### BEGIN SOLUTION
answer = 42
### END SOLUTION
assert answer == 42
# %% [markdown]
# ## The end
# %%
answer = 43
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout with one notebook, and a way to hand in other code for its two exercises."""
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    (tmp_path / "notebooks" / "source" / "08_sums.py").write_text(SOURCE)
    monkeypatch.setattr(paths, "shipped", lambda: tmp_path)
    return tmp_path


def handed_in(folder, add=None, answer="answer = 42", name="mine.ipynb", title="# 08 · Sums"):
    cells = [nbformat.v4.new_markdown_cell(title), nbformat.v4.new_code_cell("1 / 0")]
    if add is not None:
        cells += [nbformat.v4.new_markdown_cell("### 1 · Add (★★, 5 minutes)")]
        cells += [nbformat.v4.new_code_cell(add)]
    cells += [nbformat.v4.new_markdown_cell("### 2 · Say it (★, 5 minutes)"), nbformat.v4.new_code_cell(answer)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / name)
    return folder / name


def test_what_an_exercise_needs_of_the_notebook_is_found_without_running_it(folder):
    found = exercises.exercises(exercises.read_cells(folder / "notebooks" / "source" / "08_sums.py"))
    assert [(n, e["title"], e["stars"], e["minutes"]) for n, e in found.items()] == [
        (1, "Add", 2, 5),
        (2, "Say it", 1, 5),
    ]
    job = exercises.job_of(found[1], ["def add(a, b): return math.fsum([a, b])"])
    assert job["setup"] == "import math\noffset = 1" or job["setup"] == "import math"
    assert job["asked"] == ["add"] and job["expected"] == {"add": "a function add(a, b)"}


@pytest.mark.slow
def test_what_becomes_of_answers(folder, capsys):
    """One kernel for what ends well; loops and exits end theirs, and the other exercises are judged all the same."""
    plus = "def add(a, b):\n    return a + b"
    stub = 'def add(a, b):\n    raise NotImplementedError("exercise not solved yet")'
    five = "def add(a, b):\n    return 5\nassert add(2, 3) == 5"
    by_zero = "def add(a, b):\n    return a / 0"
    cases = [
        ("solved", plus, "%time answer = 42", ["solved", "solved"], ""),
        ("open", stub, "", ["not solved yet", "not solved yet"], ""),
        ("edited", five, "answer = 42\nassert answer == 0", ["wrong", "solved"], "does not hold: math.isclose"),
        ("misspelt", plus.replace("add", "ad"), "answer = 41", ["not solved yet", "wrong"], "(there is `ad`)"),
        ("error", by_zero, "answer = (", ["wrong", "wrong"], "line 2: return a / 0"),
        ("stopped", "while True: pass", "answer = 42", ["stopped", "solved"], "took longer than 3 seconds"),
        ("ended", "import os; os._exit(0)", "raise SystemExit", ["stopped", "stopped"], "ended the process"),
        ("missing", None, "answer = 42", ["not solved yet", "solved"], "its heading is not in the file"),
    ]
    for name, add, answer, statuses, words in cases:
        found = exercises.check(handed_in(folder, add, answer, f"{name}.ipynb"), 3)
        assert [each["status"] for each in found] == statuses, (name, found)
        assert words in found[0]["message"] + found[0]["line"], (name, found)
    wrong = exercises.check(handed_in(folder, plus, "answer = 41"))[1]
    assert wrong["message"] == "does not hold: answer == 42 (answer = 41)"


@pytest.mark.slow
def test_a_folder_of_hand_ins_gives_a_table(folder, tmp_path, capsys):
    pupils = tmp_path / "hand_ins"
    for name in ("a", "b"):
        (pupils / name).mkdir(parents=True)
    handed_in(pupils / "a", "def add(a, b):\n    return a + b", name="08.ipynb")
    handed_in(pupils / "b", "def add(a, b):\n    return 5", name="08.ipynb")
    (pupils / "b" / "x.ipynb").write_text("{}")
    csv = tmp_path / "grades.csv"
    assert cli.main(["exercises", "check", str(pupils), "--csv", str(csv)]) == 2
    header, first, second, third = csv.read_text().splitlines()
    assert header == "file,1,2,solved" and first.endswith("a/08.ipynb,solved,solved,2")
    assert second.endswith("b/08.ipynb,wrong,solved,1") and third.endswith("b/x.ipynb,,,")
    assert "expected a Jupyter notebook" in capsys.readouterr().err


def test_what_cannot_be_checked_is_said(folder, tmp_path, capsys):
    assert cli.main(["exercises", "check", str(tmp_path / "none.ipynb")]) == 2
    assert "there is no file" in capsys.readouterr().err
    path = handed_in(folder, title="# Mine", name="mine.ipynb")
    with pytest.raises(ValueError, match="cannot tell which notebook this is a copy of"):
        exercises.check(path)
    assert exercises.source_of(handed_in(folder, title="# Mine", name="my_08_x.ipynb"), []).stem == "08_sums"
    assert cli.main(["exercises", "check", str(path), "--seconds", "0"]) == 2
    assert "--seconds 0: expected a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_exercises_have_a_hint_a_solution_and_checks(source):
    for number, each in exercises.exercises(exercises.read_cells(source)).items():
        job = exercises.job_of(each, [])
        if "### BEGIN SOLUTION" in "\n".join(each["code"]):
            assert 1 <= each["stars"] <= 3 and each["minutes"] <= 30 and "<summary>Hint</summary>" in each["text"], (
                number
            )
            assert "assert " in job["checks"] and job["expected"], f"{source.stem}, {number}"
            assert "plots." not in job["setup"], f"{source.stem}, {number} needs an experiment"


@pytest.mark.slow
def test_sources_are_solved_stripped_copies_open_and_mistakes_wrong(tmp_path):
    """Every exercise in one kernel: the imports take most of the time."""
    jobs, expected, used = {}, {}, set()
    for source in SOURCES:
        for number, each in exercises.exercises(exercises.read_cells(source)).items():
            solution = "\n".join(each["code"])
            if "### BEGIN SOLUTION" not in solution:
                continue
            stripped = [exercises.without_solution(text) for text in each["code"]]
            cases = {"solved": each["code"], "not solved yet": stripped}
            for (name, words), code in WRONG.items():
                if name in exercises.job_of(each, [])["expected"]:
                    cases[f"wrong: {words}"] = [fill(stripped, code)]
                    used.add((name, words))
            for status, code in cases.items():
                key = (source.stem, number, status)
                jobs[key], expected[key] = exercises.job_of(each, code), status.split(":")[0]
    results = exercises.judged(jobs, 120)
    assert {key: result for key, result in results.items() if result["status"] != expected[key]} == {}
    assert results.keys() == jobs.keys() and WRONG.keys() == used


def fill(stripped, code):
    """Put wrong code where the solution was; `---` stands between the parts of one in two."""
    text, parts = "\n".join(stripped), code.split("\n---\n")
    for part in parts:
        before, _, after = text.partition("# YOUR CODE HERE\n")
        indent = before.rpartition("\n")[2]
        text = before + part.replace("\n", f"\n{indent}") + "\n" + after.partition("\n")[2]
    return text


def test_copies_without_solutions_run_as_notebooks(folder):
    text = exercises.without_solution(SOURCE)
    assert "return a + b" not in text and text.count("# YOUR CODE HERE") == 2
    with pytest.raises(ValueError, match="cell: ### END SOLUTION does not match"):
        exercises.without_solution("### END SOLUTION")
    with pytest.raises(ValueError, match="has no ### END SOLUTION"):
        exercises.without_solution("### BEGIN SOLUTION")
    assert json.loads(handed_in(folder).read_text())["nbformat"] == 4 and notebooks.notebooks_dir()
