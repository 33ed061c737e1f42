"""Notebooks and their exercise copies, made from the percent sources in notebooks/source (all sections)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab import paths
from vitlab.exercises.cells import MARKER

if TYPE_CHECKING:
    from nbformat import NotebookNode

_KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
_UNSOLVED = ("# YOUR CODE HERE", 'raise NotImplementedError("exercise not solved yet")')


def sources(folder: Path) -> list[Path]:
    """The percent sources of the notebooks in `folder`, in the order of their numbers.

    Raises:
        FileNotFoundError: there are none.
    """
    paths = sorted((folder / "source").glob("[0-9][0-9]_*.py"))
    if not paths:
        raise FileNotFoundError(f"no notebook sources in {folder / 'source'}: run this in a checkout")
    return paths


def read(path: Path) -> NotebookNode:
    """A notebook as it is on disk."""
    import nbformat

    return nbformat.read(path, as_version=4)


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook whole or not at all, if it is a valid one."""
    import nbformat

    nbformat.validate(notebook)
    with paths.writing(path) as temporary:
        nbformat.write(notebook, temporary)


def from_source(source: Path) -> NotebookNode:
    """The notebook of a percent source: no outputs, the same cell ids every time, the source's hash."""
    import jupytext

    text = source.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    digest = hashlib.sha256(text.encode()).hexdigest()
    notebook.metadata = {
        "kernelspec": dict(_KERNEL),
        "language_info": {"name": "python"},
        "vitlab": {"source_sha256": digest},
    }
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("lines_to_next_cell", None)
        cell.id = hashlib.sha256(f"{source.stem}/{index}/{cell.cell_type}".encode()).hexdigest()[:8]
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def differences(notebook: NotebookNode, wanted: NotebookNode) -> list[str]:
    """In what a notebook, outputs aside, is not the one its source gives; empty if in nothing."""
    changes = []
    if notebook.metadata.get("vitlab", {}) != wanted.metadata["vitlab"]:
        changes.append("made from another version of the source")
    if notebook.metadata.get("kernelspec", {}) != wanted.metadata["kernelspec"]:
        changes.append("another kernel")
    if len(notebook.cells) != len(wanted.cells):
        changes.append(f"{len(notebook.cells)} cells, the source has {len(wanted.cells)}")
    for index, (cell, other) in enumerate(zip(notebook.cells, wanted.cells, strict=False)):
        if _core(cell) != _core(other):
            changes.append(f"cell {index} differs")
    return changes


def _core(cell: Any) -> tuple[Any, ...]:
    return cell.cell_type, cell.source, cell.id, dict(cell.metadata)


def sync(folder: Path) -> list[Path]:
    """Make every notebook whose source has changed; returns those. Outputs stay only where nothing has.

    Raises:
        ValueError: a notebook was edited itself; the edit would be lost.
    """
    made = []
    for source in sources(folder):
        path, wanted = folder / f"{source.stem}.ipynb", from_source(source)
        if path.exists():
            present = read(path)
            if not (changes := differences(present, wanted)):
                continue
            if present.metadata.get("vitlab") == wanted.metadata["vitlab"]:
                raise ValueError(
                    f"{path.name} was edited itself ({'; '.join(changes)}), its source was not: carry the edit "
                    f"over to {source}, or remove the notebook, and sync again"
                )
        write(wanted, path)
        made.append(path)
    return made


def problems(folder: Path) -> list[str]:
    """What `sync` and `exercises` would change, a line each; empty in a checkout ready to commit."""
    stems = {source.stem: source for source in sources(folder)}
    lines = [f"{path.name} has no source" for path in sorted(folder.glob("*.ipynb")) if path.stem not in stems]
    for stem, source in stems.items():
        pairs = {folder / f"{stem}.ipynb": from_source(source)}
        if _has_exercise(pairs[folder / f"{stem}.ipynb"]):
            pairs[folder / "exercises" / f"{stem}.ipynb"] = exercise(source)
        for path, wanted in pairs.items():
            name = path.relative_to(folder).as_posix()
            if not path.exists():
                lines.append(f"{name} is missing")
                continue
            present = read(path)
            lines += [f"{name}: {words}" for words in differences(present, wanted)]
            if "papermill" in present.metadata or any("papermill" in cell.metadata for cell in present.cells):
                lines.append(f"{name}: papermill's metadata was left in")
    return lines


def exercise(source: Path) -> NotebookNode:
    """The notebook of a source with every solution replaced by a place for the reader's.

    Raises:
        ValueError: a BEGIN without END, or the other way round; the message names source and cell.
    """
    notebook = from_source(source)
    for index, cell in enumerate(notebook.cells):
        cell.source = without_solution(cell.source, f"{source.name}, cell {index}")
    return notebook


def without_solution(text: str, where: str = "cell") -> str:
    """A cell's text with what stands between the two SOLUTION lines taken out.

    >>> print(without_solution("def f(x):\\n    ### BEGIN SOLUTION\\n    return x\\n    ### END SOLUTION"))
    def f(x):
        # YOUR CODE HERE
        raise NotImplementedError("exercise not solved yet")
    """
    kept, inside = [], False
    for line in text.split("\n"):
        edge = MARKER.match(line)
        if edge is not None:
            if (edge["edge"] == "BEGIN") is inside:
                raise ValueError(f"{where}: {line.strip()} does not match the lines before it")
            inside = not inside
            kept += [edge["indent"] + words for words in _UNSOLVED if inside]
        elif not inside:
            kept.append(line)
    if inside:
        raise ValueError(f"{where}: ### BEGIN SOLUTION has no ### END SOLUTION")
    return "\n".join(kept)


def _has_exercise(notebook: NotebookNode) -> bool:
    return any(MARKER.match(line) for cell in notebook.cells for line in cell.source.split("\n"))


def exercises(folder: Path) -> list[Path]:
    """Write the exercise notebooks, for the sources that hold a solution; returns their paths."""
    made = {}
    for source in sources(folder):
        if _has_exercise(from_source(source)):
            made[folder / "exercises" / f"{source.stem}.ipynb"] = exercise(source)
    for path, notebook in made.items():
        write(notebook, path)
    for path in set((folder / "exercises").glob("*.ipynb")) - set(made):
        path.unlink()
    return list(made)
