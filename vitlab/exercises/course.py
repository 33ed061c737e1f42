"""A notebook's exercises as an nbgrader assignment, for courses that collect and grade work (all sections)."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab import paths
from vitlab.exercises import cells, check, needs

if TYPE_CHECKING:
    from nbformat import NotebookNode

_CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = {course!r}
c.ExecutePreprocessor.timeout = 600  # seconds a cell
"""


def write(which: str | int, folder: Path | str) -> Path:
    """Write a course folder of nbgrader's with the exercises of one notebook as its assignment; returns that notebook.

    A folder that is there is added to: its configuration stays as it is.

    Raises:
        ValueError: there is no such notebook, or the folder has this assignment already.

    >>> write("99", "course")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown notebook '99': choose from ...
    """
    import nbformat

    original, folder = cells.original(which), Path(folder)
    path = folder / "source" / original.stem / f"{original.stem}.ipynb"
    if path.exists():
        raise ValueError(f"{path} is there already: remove it to write the assignment anew")
    notebook = assignment(original)
    nbformat.validate(notebook)
    with paths.writing(path) as temporary:
        nbformat.write(notebook, temporary)
    config = folder / "nbgrader_config.py"
    if not config.exists():
        config.write_text(_CONFIG.format(course=re.sub(r"\W+", "-", folder.resolve().name)), encoding="utf-8")
    return path


def assignment(original: cells.Original) -> NotebookNode:
    """The notebook that nbgrader makes its copies from: what the exercises need, then each with solution and checks.

    An exercise is worth a point for each of its stars. There is no experiment in it, so that thirty copies can be
    graded in minutes.
    """
    from nbformat import v4

    words = f"# {original.stem[:2]} · {original.title}: exercises\n\nThey belong to the notebook `{original.stem}`."
    made = [
        _locked(v4.new_markdown_cell(words), "title"),
        _locked(v4.new_code_cell(_setup(original)), "setup"),
    ]
    for section in original.exercises:
        solution, checks = _split(section)
        name = f"exercise-{section.number}"
        made += [
            _locked(v4.new_markdown_cell(section.text), f"{name}-text"),
            _marked(v4.new_code_cell(solution), f"{name}-solution", solution=True),
            _marked(v4.new_code_cell(checks), f"{name}-checks", grade=True, locked=True, points=section.stars),
        ]
    for cell in made:
        cell.id = cell.metadata.nbgrader.grade_id  # the same at every writing
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def _setup(original: cells.Original) -> str:
    """What all exercises need of the notebook's other cells, at the preset smoke, each statement once."""
    earlier = [each for text in original.exercises[0].earlier for each in needs.statements(check.at_smoke(text))]
    taken: set[int] = set()
    for section in original.exercises:
        taken |= needs.needed(earlier, [each for text in section.code for each in needs.statements(text)])
    return "\n".join(earlier[k].text for k in sorted(taken))


def _split(section: cells.Section) -> tuple[str, str]:
    """The source of an exercise up to the end of its solution, and the rest: its checks."""
    text = "\n\n\n".join(section.code)
    lines = text.split("\n")
    last = max(number for number, line in enumerate(lines, 1) if cells.MARKER.match(line))
    ends = (node.end_lineno or 0 for node in ast.parse(text).body if node.lineno <= last)
    cut = max(last, *ends)  # a statement that holds a solution may go on after it
    return "\n".join(lines[:cut]).strip("\n"), "\n".join(lines[cut:]).strip("\n")


def _locked(cell: Any, name: str) -> Any:
    return _marked(cell, name, locked=True)


def _marked(cell: Any, name: str, **roles: Any) -> Any:
    """A cell with what nbgrader asks to be told about it."""
    plain = {"schema_version": 3, "grade_id": name, "grade": False, "solution": False, "locked": False, "task": False}
    cell.metadata["nbgrader"] = plain | roles
    return cell
