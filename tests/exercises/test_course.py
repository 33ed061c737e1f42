"""nbgrader makes an assignment of a notebook, and gives points to what is solved alone."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from vitlab import notebooks, paths
from vitlab.exercises import cells, check, course
from vitlab.publish.__main__ import main
from vitlab.publish.source import sources

STEMS = [path.stem for path in sources(notebooks.notebooks_dir())]


def nbgrader(folder: Path, *arguments: str) -> None:
    """Run it as a teacher does, in a process of its own: it warns about its own dependencies."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # nbgrader calls alembic by name
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "HOME": str(folder), "PATH": path}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]


def hand_in(folder: Path, student: str, path: Path) -> None:
    target = folder / "submitted" / student / path.stem / path.name
    target.parent.mkdir(parents=True)
    target.write_bytes(path.read_bytes())


def test_generated_handed_in_and_graded(tmp_path, capsys):
    folder = tmp_path / "our course"
    assert main(["assignment", "08", "--out", str(folder)]) == 0
    source = folder / "source" / "08_attention_distance" / "08_attention_distance.ipynb"
    assert capsys.readouterr().out == f"{source}\n"
    nbgrader(folder, "generate_assignment", source.stem)
    released = folder / "release" / source.stem / source.name
    text = released.read_text()
    assert "NotImplementedError" in text and "SOLUTION" not in text and "return uniform_over_patches" not in text
    hand_in(folder, "solved", source)
    # One exercise solved, its neighbour's checks taken out, the others as they were released.
    first = nbformat.read(source, as_version=4)
    given = nbformat.read(released, as_version=4)
    for k, cell in enumerate(given.cells):
        if cell.metadata.nbgrader.grade_id == "exercise-1-solution":
            cell.source = first.cells[k].source
        if cell.metadata.nbgrader.grade_id == "exercise-2-checks":
            cell.source = "assert True"
    nbformat.write(given, released)
    hand_in(folder, "cheated", released)
    nbgrader(folder, "autograde", source.stem)
    nbgrader(folder, "export", "--to", "grades.csv")
    with (folder / "grades.csv").open() as table:
        grades = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(table)}
    stars = [section.stars for section in cells.original("08").exercises]
    assert grades == {"solved": (sum(stars),) * 2, "cheated": (stars[0], sum(stars))}
    # What nbgrader releases, `vitlab exercises check` understands.
    outcomes = check.check(check.hand_in(released))
    assert [outcome.status for outcome in outcomes] == ["solved"] + ["not solved yet"] * (len(stars) - 1)


@pytest.mark.parametrize("stem", STEMS)
def test_every_assignment_is_whole(stem):
    original = cells.original(stem)
    notebook = course.assignment(original)
    nbformat.validate(notebook)
    marks = [cell.metadata.nbgrader for cell in notebook.cells]
    assert len({mark.grade_id for mark in marks}) == len(marks)
    assert [mark.points for mark in marks if mark.grade] == [section.stars for section in original.exercises]
    for cell, mark in zip(notebook.cells, marks, strict=True):
        assert mark.locked is not mark.solution
        assert ("### BEGIN SOLUTION" in cell.source) is mark.solution
        if mark.grade:
            assert "assert " in cell.source
        if cell.cell_type == "code":
            compile(cell.source, mark.grade_id, "exec")
    setup = next(cell.source for cell in notebook.cells if cell.metadata.nbgrader.grade_id == "setup")
    assert "plots." not in setup and "PRESET, seed=SEED" not in setup


def test_an_assignment_is_not_written_over(tmp_path, capsys):
    path = course.write("00", tmp_path)
    path.write_text("edited")
    assert main(["assignment", "00", "--out", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err and path.read_text() == "edited"
    config = tmp_path / "nbgrader_config.py"
    config.write_text("# mine")
    course.write("01", tmp_path)
    assert config.read_text() == "# mine"
