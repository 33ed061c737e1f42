"""Gathers what Sphinx makes the site of: notebooks as executed, documents, and all they link to (all sections)."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab import paths
from vitlab.publish import colab
from vitlab.publish.source import read

if TYPE_CHECKING:
    from nbformat import NotebookNode

_INDEX = Path("docs", "site", "index.md")
_ORIGINALS = Path("originals")  # where the notebooks lie unchanged, for download; no pages are made of these
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^()\s#]+)(#[^()\s]*)?\)")  # of [text](target#part), what follows the text
_MARKS = re.compile(r"\]\([^)]*\)|[*`$\\\[\]]")


def gather(root: Path, target: Path, repository: str = "") -> list[Path]:
    """Fill the folder `target` with the site's sources, laid out as in the checkout `root`; returns the pages.

    What a page links to comes along: a document as a page, a folder as a page that lists it, all else as a file to
    download. With `repository`, "OWNER/NAME", the notebooks' pages link to Colab.

    Raises:
        ValueError: a link leads nowhere, a picture has no words, or `repository` is no owner and name.
    """
    shutil.rmtree(target, ignore_errors=True)
    waiting = [root / _INDEX, root / "README.md", *(root / "docs").glob("*.md")]
    waiting += (root / "notebooks").glob("[0-9][0-9]_*.ipynb")
    pages: dict[Path, Path] = {}  # a page of the checkout → its place
    while waiting:
        path = waiting.pop()
        if path in pages:
            continue
        pages[path] = target / place_of(path, root)
        text, led_to = page(path, root, repository)
        if path.is_dir() or path.parent not in (root, root / "docs", root / "docs" / "site", root / "notebooks"):
            text = f"---\norphan: true\n---\n\n{text}"  # no table of contents lists it; a link leads there
        with paths.writing(pages[path]) as temporary:
            temporary.write_text(text, encoding="utf-8")
        for other in led_to:
            if _is_page(other, root):
                waiting.append(other)
            else:
                _copy(other, target / other.relative_to(root))
    for path in (path for path in pages if path.suffix == ".ipynb"):
        _copy(path, target / _ORIGINALS / path.name)
    return sorted(pages.values())


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _is_page(path: Path, root: Path) -> bool:
    return path.is_dir() or path.suffix == ".md" or path.suffix == ".ipynb" and path.parent == root / "notebooks"


def place_of(path: Path, root: Path) -> Path:
    """Where a page of the checkout is in the sources of the site and, but for its ending, in the site itself.

    >>> place_of(paths.ROOT / "docs" / "training.md", paths.ROOT).as_posix()
    'docs/training.md'
    >>> place_of(paths.ROOT / "notebooks" / "source", paths.ROOT).as_posix()
    'files/notebooks-source.md'
    """
    inside = path.relative_to(root)
    if path.is_dir():
        return Path("files", "-".join(inside.parts) + ".md")
    return Path("index.md") if inside == _INDEX else inside


def page(path: Path, root: Path, repository: str) -> tuple[str, list[Path]]:
    """The text of a page, and the files and folders of the checkout that it links to."""
    if path.is_dir():
        return linked(_listing(path), path, root, path)
    if path.suffix == ".ipynb":
        return _notebook(path, root, repository)
    folder = root if path == root / _INDEX else path.parent  # the index is written for the place it is put
    return linked(path.read_text(encoding="utf-8"), path, root, folder)


def linked(text: str, path: Path, root: Path, folder: Path) -> tuple[str, list[Path]]:
    """Markdown of the page `path` with its links, which start from `folder`, made to hold in the site.

    Raises:
        ValueError: a link leads nowhere in the checkout; the message says which.
    """
    led_to: list[Path] = []
    here = place_of(path, root).parent

    def hold(match: re.Match[str]) -> str:
        other = (folder / match[1]).resolve()
        if not other.is_relative_to(root) or not other.exists():
            raise ValueError(f"{path.relative_to(root)}: the link to {match[1]!r} leads nowhere: correct it there")
        led_to.append(other)
        is_page = _is_page(other, root)
        place = place_of(other, root) if is_page else other.relative_to(root)
        to_download = not is_page and other.suffix not in (".png", ".svg")
        relative = Path(os.path.relpath(place, here)).as_posix()
        return f"]({'path:' if to_download else ''}{relative}{match[2] or ''})"

    return _LINK.sub(hold, text), led_to


def _listing(folder: Path) -> str:
    """A page for a folder of the checkout: its folders, and its files to download."""
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith((".", "__"))]
    entries = [entry for entry in entries if entry.is_file() or entry.name != "downloads"]
    lines = [f"- [{entry.name}{'/' * entry.is_dir()}]({entry.name})" for entry in entries]
    name = folder.name if folder.parent.name in ("", "vitlab") else f"{folder.parent.name}/{folder.name}"
    return "\n".join([f"# Files: {name}", "", *lines, ""])


def _notebook(path: Path, root: Path, repository: str) -> tuple[str, list[Path]]:
    """A notebook's page: the notebook, with links to what can be downloaded, and words for every picture."""
    import nbformat

    notebook, led_to = read(path), []
    results = root / "figures" / "reference" / "quick" / path.stem / "result.json"
    figures = paths.read_json(results)["figures"]
    words = alternatives(notebook, {name: figure["alt"] for name, figure in figures.items()}, path.stem)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(_downloads(path, results, repository), id="downloads"))
    words.insert(1, [])
    for cell, alts in zip(notebook.cells, words, strict=True):
        cell.metadata["alt"] = alts
        for where, key in _markdown(cell):
            where[key], more = linked(where[key], path, root, path.parent)
            led_to += more
    notebook.metadata.pop("widgets", None)  # their state needs a kernel, or scripts from a network
    return nbformat.writes(notebook), [other for other in led_to if other != path]


def _markdown(cell: NotebookNode) -> Iterator[tuple[Any, str]]:
    if cell.cell_type == "markdown":
        yield cell, "source"
    for output in cell.get("outputs", ()):
        if "text/markdown" in output.get("data", {}):
            yield output.data, "text/markdown"


def _downloads(path: Path, results: Path, repository: str) -> str:
    """The line under a notebook's title: the notebook, its exercises, its source, its results; and Colab."""
    figures = Path(os.path.relpath(results.parent, path.parent)).as_posix()
    parts = [f"[this notebook](path:../{_ORIGINALS}/{path.name})"]
    if (path.parent / "exercises" / path.name).exists():
        parts.append(f"[without the solutions](exercises/{path.name})")
    parts += [f"[source](source/{path.stem}.py)", f"[results]({figures}/result.json)", f"[figures]({figures})"]
    line = f"Download: {', '.join(parts)}."
    return f"{line} [Open in Colab]({colab.address(repository, path.name)})." if repository else line


_SAVE = {"plots.figure": 1, "ledger.save_figure": 2}  # what saves a figure → which argument is its name


def alternatives(notebook: NotebookNode, known: Mapping[str, str], name: str) -> list[list[str]]:
    """For each cell, words for each of its pictures: those given with the figure, kept in result.json.

    A picture that was not saved has them in its output's metadata (`alt`), or the paragraph before it serves.

    Raises:
        ValueError: a cell saves figures of which result.json does not tell, or shows more or fewer than it saves.
    """
    words: list[list[str]] = []
    text = ""
    for index, cell in enumerate(notebook.cells):
        shown = [output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
        saved = saved_figures(cell.source) if shown else []
        if saved and (len(saved) != len(shown) or not set(saved) <= set(known)):
            raise ValueError(
                f"{name}, cell {index} shows {len(shown)} pictures and saves {saved}; result.json has words for "
                f"{sorted(known)}: run the notebook again, and show each figure that is saved once, in its cell"
            )
        own = [output.get("metadata", {}).get("image/png", {}).get("alt") for output in shown]
        words.append([known[figure] for figure in saved] or [alt or _last_paragraph(text) for alt in own])
        text = cell.source if cell.cell_type == "markdown" else text
    return words


def saved_figures(source: str) -> list[str]:
    """The names under which a cell saves its figures, in order.

    >>> saved_figures('with plots.figure(study, "paper", alt="A.") as ax:\\n    ax.plot([0, 1])')
    ['paper']
    """
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    saving = [(call, _SAVE.get(ast.unparse(call.func))) for call in calls]
    found = [(call.lineno, ast.literal_eval(call.args[place])) for call, place in saving if place is not None]
    return [name for _, name in sorted(found)]


def _last_paragraph(text: str) -> str:
    paragraphs: Sequence[str] = [part for part in text.split("\n\n") if part.strip() and not part.startswith("#")]
    return " ".join(_MARKS.sub("", paragraphs[-1]).split()) if paragraphs else "A picture."
