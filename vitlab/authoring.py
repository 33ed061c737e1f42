"""For maintainers: notebooks and exercises from their sources, references, the README's table.

python -m vitlab.authoring sync                       notebooks/source/*.py → notebooks/*.ipynb
python -m vitlab.authoring check                      is every notebook its source's?
python -m vitlab.authoring exercises                  the same without solutions → notebooks/exercises
python -m vitlab.authoring reference --preset quick   figures/quick → figures/reference/quick, and outputs
python -m vitlab.authoring readme                     the ledger's table in README.md
python -m vitlab.authoring assignment 08 --out DIR    the exercises of a notebook as an nbgrader course
python -m vitlab.authoring colab --repository OWNER/NAME    copies for Google Colab → notebooks/colab
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab import files, notebooks
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
    found = sorted((folder / "source").glob("[0-9][0-9]_*.py"))
    if not found:
        raise FileNotFoundError(f"no notebook sources in {folder / 'source'}: run this in a checkout")
    return found


def read(path: Path) -> NotebookNode:
    """A notebook as it is on disk."""
    import nbformat

    return nbformat.read(path, as_version=4)


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook whole or not at all, if it is a valid one."""
    import nbformat

    nbformat.validate(notebook)
    with files.writing(path) as temporary:
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
    found = []
    if notebook.metadata.get("vitlab", {}) != wanted.metadata["vitlab"]:
        found.append("made from another version of the source")
    if notebook.metadata.get("kernelspec", {}) != wanted.metadata["kernelspec"]:
        found.append("another kernel")
    if len(notebook.cells) != len(wanted.cells):
        found.append(f"{len(notebook.cells)} cells, the source has {len(wanted.cells)}")
    for index, (cell, other) in enumerate(zip(notebook.cells, wanted.cells, strict=False)):
        if _core(cell) != _core(other):
            found.append(f"cell {index} differs")
    return found


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
            if not (found := differences(present, wanted)):
                continue
            if present.metadata.get("vitlab") == wanted.metadata["vitlab"]:
                raise ValueError(
                    f"{path.name} was edited itself ({'; '.join(found)}), its source was not: carry the edit "
                    f"over to {source}, or remove the notebook, and sync again"
                )
        write(wanted, path)
        made.append(path)
    return made


def problems(folder: Path) -> list[str]:
    """What `sync` and `exercises` would change, a line each; empty in a checkout ready to commit."""
    stems = {source.stem: source for source in sources(folder)}
    found = [f"{path.name} has no source" for path in sorted(folder.glob("*.ipynb")) if path.stem not in stems]
    for stem, source in stems.items():
        pairs = {folder / f"{stem}.ipynb": from_source(source)}
        if _has_exercise(pairs[folder / f"{stem}.ipynb"]):
            pairs[folder / "exercises" / f"{stem}.ipynb"] = exercise(source)
        for path, wanted in pairs.items():
            name = path.relative_to(folder).as_posix()
            if not path.exists():
                found.append(f"{name} is missing")
                continue
            present = read(path)
            found += [f"{name}: {words}" for words in differences(present, wanted)]
            if "papermill" in present.metadata or any("papermill" in cell.metadata for cell in present.cells):
                found.append(f"{name}: papermill's metadata was left in")
    return found


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of the maintainers; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vitlab.authoring", description=__doc__.splitlines()[0])
    commands = ("sync", "check", "exercises", "reference", "readme", "assignment", "colab")
    parser.add_argument("command", choices=commands)
    parser.add_argument("notebooks", nargs="*", metavar="NN", help="reference, assignment, colab: these only")
    parser.add_argument("--preset", default="quick", help="reference: of this preset")
    parser.add_argument("--out", metavar="DIR", help="assignment: the course's folder (course); colab: of the copies")
    parser.add_argument("--repository", metavar="OWNER/NAME", default="", help="colab: where the project is on GitHub")
    options = parser.parse_args(arguments)
    from vitlab import colab, publishing
    from vitlab.exercises import course

    folder = notebooks.notebooks_dir()
    try:
        if options.command == "check":
            found = problems(folder)
            print("\n".join(found) or "every notebook is its source's")
            return 1 if found else 0
        if options.command == "readme":
            publishing.readme(files.ROOT / "README.md")
            return 0
        made = {
            "sync": lambda: sync(folder),
            "exercises": lambda: exercises(folder),
            "reference": lambda: publishing.reference(folder, options.preset, options.notebooks),
            "assignment": lambda: [course.write(which, options.out or "course") for which in options.notebooks],
            "colab": lambda: colab.write(
                options.repository, Path(options.out or files.ROOT / colab.FOLDER), options.notebooks
            ),
        }[options.command]()
    except (ValueError, OSError) as error:
        print(f"vitlab.authoring: {error}", file=sys.stderr)
        return 2
    print("\n".join(str(path) for path in made) or "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
