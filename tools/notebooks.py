"""For maintainers: notebooks, exercises, references and Colab copies from notebooks/source.

python -m tools.notebooks sync         notebooks/source/*.py → notebooks/*.ipynb, where a source has changed,
                                       and the same without solutions → notebooks/exercises
python -m tools.notebooks check        is every notebook its source's?
python -m tools.notebooks reference [05 …]    figures/out/quick → figures/reference, and outputs into the notebooks
python -m tools.notebooks work         notebooks → working/notebooks, to be changed; those you have changed stay
python -m tools.notebooks colab OWNER/NAME    copies for Google Colab → notebooks/colab
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from vitlab import exercises, paths

FOLDER = paths.ROOT / "notebooks"
# Under the title: what works in JupyterLab, on GitHub, and on the site, which offers the two files as downloads.
LINKS = "[exercises](exercises/{0}.ipynb) · [source](source/{0}.py) · [Colab](../docs/colab.md)"
OF_EXERCISES = "[solutions](../{0}.ipynb) · [Colab](../../docs/colab.md)"


def sources(folder: Path = FOLDER) -> list[Path]:
    """List the percent sources of the notebooks."""
    return sorted((folder / "source").glob("[0-9A-Z]*_*.py"))


def from_source(source: Path, links: str = LINKS) -> Any:
    """Make the notebook of a source: no outputs, the same cell ids every time, the hash of what it is made from."""
    text = source.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    heading, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{heading}\n\n{links.format(source.stem)}\n{rest}".rstrip()
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
        "language_info": {"name": "python"},
        "vitlab": {"source_sha256": hashlib.sha256((links + text).encode()).hexdigest()},
    }
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("lines_to_next_cell", None)
        if exercises.MARKER.search(cell.source):  # a solution is folded: in JupyterLab, and on the site
            cell.metadata |= {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}
        cell.id = hashlib.sha256(f"{source.stem}/{index}/{cell.cell_type}".encode()).hexdigest()[:8]
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def exercise(source: Path) -> Any:
    """Make the notebook of a source with a place for the reader's solution where each solution was."""
    notebook = from_source(source, OF_EXERCISES)
    for index, cell in enumerate(notebook.cells):
        cell.source = without_solution(cell.source, f"{source.name}, cell {index}")
        if "hide-input" in cell.metadata.get("tags", ()):
            del cell.metadata["jupyter"], cell.metadata["tags"]
    return notebook


def without_solution(text: str, where: str = "cell") -> str:
    """Take what stands between the two SOLUTION lines out of a cell's text."""
    edges = exercises.MARKER.findall(text)
    if edges != ["BEGIN", "END"] * (len(edges) // 2):
        raise ValueError(f"{where}: expected ### BEGIN SOLUTION and ### END SOLUTION in turns, found {edges}")
    solution = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[ \t]*$", re.M | re.S)
    return solution.sub(rf'\1# YOUR CODE HERE\n\1raise NotImplementedError("{exercises.NOT_SOLVED}")', text)


def wanted(folder: Path = FOLDER) -> dict[Path, Any]:
    """Make all notebooks and exercise copies that there should be, by their paths."""
    made = {}
    for source in sources(folder):
        made[folder / f"{source.stem}.ipynb"] = from_source(source)
        if "### BEGIN SOLUTION" in source.read_text(encoding="utf-8"):
            made[folder / "exercises" / f"{source.stem}.ipynb"] = exercise(source)
    return made


def _same(notebook: Any, other: Any) -> bool:
    cores = ([(c.cell_type, c.source, c.id, dict(c.metadata)) for c in each.cells] for each in (notebook, other))
    return notebook.metadata.get("vitlab") == other.metadata.get("vitlab") and next(cores) == next(cores)


def write(notebook: Any, path: Path) -> Path:
    """Write a valid notebook whole or not at all."""
    nbformat.validate(notebook)
    with paths.writing(path) as temporary:
        nbformat.write(notebook, temporary)
    return path


def sync(folder: Path = FOLDER) -> list[Path]:
    """Make every notebook and exercise copy whose source has changed; remove copies that have no source any more.

    Raises ValueError where a notebook was edited itself.
    """
    made, expected = [], wanted(folder)
    for path, notebook in expected.items():
        present = nbformat.read(path, as_version=4) if path.exists() else None
        if present is not None and _same(present, notebook):
            continue
        if present is not None and path.parent == folder and present.metadata.get("vitlab") == notebook.metadata.vitlab:
            raise ValueError(f"{path.name} was edited itself, its source was not: carry the edit over, or remove it")
        made.append(write(notebook, path))
    for path in set((folder / "exercises").glob("*.ipynb")) - set(expected):
        path.unlink()
    return made


def check(folder: Path = FOLDER) -> list[str]:
    """List what `sync` would change; empty in a checkout ready to commit."""
    expected = wanted(folder)
    lines = [f"{path.name} has no source" for path in folder.glob("*.ipynb") if path not in expected]
    for path, notebook in expected.items():
        name = path.relative_to(folder).as_posix()
        if not path.exists():
            lines.append(f"{name} is missing")
        elif not _same(nbformat.read(path, as_version=4), notebook):
            lines.append(f"{name} is not its source's")
    return lines


def reference(*numbers: str, folder: Path = FOLDER) -> list[Path]:
    """Put the outputs of the last `vitlab run` at quick into notebooks (none = all), its results in figures/reference.

    Raises ValueError where a notebook has not run to its end, was run from another source or with other parameters,
    wrote to stderr, or shows a path of this machine.
    """
    made = []
    for source in [each for each in sources(folder) if not numbers or each.stem.partition("_")[0] in numbers]:
        results, notebook = paths.out_dir("quick") / source.stem, from_source(source)
        if not (results / "notebook.ipynb").exists() or (results / "notebook.failed.ipynb").exists():
            raise ValueError(f"{source.stem} has not run to its end: vitlab run {source.stem[:2]}")
        done = nbformat.read(results / "notebook.ipynb", as_version=4)
        injected = [cell for cell in done.cells if "injected-parameters" in cell.metadata.get("tags", ())]
        cells = [cell for cell in done.cells if cell not in injected]
        changed = [
            line for cell in injected for line in cell.source.splitlines() if not re.match(r'#|PRESET = "quick"', line)
        ]
        if changed or [cell.source for cell in cells] != [cell.source for cell in notebook.cells]:
            raise ValueError(
                f"{source.stem} was run from another source or with {changed}: vitlab run {source.stem[:2]}"
            )
        for count, (cell, into) in enumerate(zip(cells, notebook.cells, strict=True), 1):
            if into.cell_type == "code":
                into.outputs, into.execution_count = cell.outputs, count
            for output in into.get("outputs", ()):
                if output.get("name") == "stderr":
                    raise ValueError(f"{source.stem} wrote to stderr: {output.text.strip()[:200]}")
                if "execution_count" in output:
                    output.execution_count = count
                if place := next(
                    (p for p in (paths.ROOT, Path.home()) if re.search(rf"{p}\b", str(dict(output)))), None
                ):
                    raise ValueError(f"{source.stem} shows a path of this machine, {place}: print names, not places")
        if "widgets" in done.metadata:
            notebook.metadata["widgets"] = done.metadata["widgets"]
        with paths.writing(paths.ROOT / "figures" / "reference" / source.stem, folder=True) as target:
            for path in [*results.glob("*.png"), *results.glob("*.jpg"), results / "result.json"]:
                shutil.copyfile(path, target / path.name)
        made.append(write(notebook, folder / f"{source.stem}.ipynb"))
    return made


def work(folder: Path = FOLDER, copy: Path = paths.ROOT / "working" / "notebooks") -> list[Path]:
    """Copy the notebooks and exercises to where a reader changes them; what the reader has changed stays as it is."""
    made = []
    for path in [*folder.glob("*.ipynb"), *(folder / "exercises").glob("*.ipynb")]:
        mine, as_copied = copy / path.relative_to(folder), copy / ".as_copied" / path.relative_to(folder)
        if mine.exists() and not (as_copied.exists() and mine.read_bytes() == as_copied.read_bytes()):
            continue
        text = re.sub(r"\]\(((\.\./)+docs/)", r"](../\1", path.read_text(encoding="utf-8"))  # the copy lies deeper,
        text = text.replace("](source/", "](../../notebooks/source/")  # and has no sources
        for place in (mine, as_copied):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        made.append(mine)
    return made


COLAB = '''\
# Google Colab: fetch vitlab and add what is missing there, leaving Colab's torch alone. Elsewhere: nothing.
import importlib.metadata, os, pathlib, subprocess, sys

if "google.colab" in sys.modules:
    place = pathlib.Path("/content/{name}")
    if not place.exists():
        address = "https://github.com/{repository}"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, str(place)], check=True)
    there = {{found.metadata["Name"].lower().replace("_", "-") for found in importlib.metadata.distributions()}}
    needs = """{needs}""".split()
    missing = [need for need in needs if need.split(">")[0] not in there]
    kept = pathlib.Path("/content/kept.txt")
    own = {{name: importlib.metadata.version(name) for name in ("torch", "torchvision", "numpy")}}
    kept.write_text("\\n".join(f"{{name}}=={{version}}" for name, version in own.items()))
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", str(kept), *missing], check=True) if missing else None
    subprocess.run([*pip, "--no-deps", "--editable", str(place)], check=True)
    sys.path.insert(0, str(place))  # what was installed just now is found by new processes only
    os.chdir(place / "notebooks")
'''


def colab(repository: str, folder: Path = FOLDER) -> list[Path]:
    """Write copies with a badge and a first cell that installs what Colab lacks, without outputs.

    Colab has its own torch (another is 2.5 GB and may not know its driver) and no use for a JupyterLab.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+", repository):
        raise ValueError(f"repository {repository!r}: expected OWNER/NAME, as in the address of its page on GitHub")
    own = ("torch", "torchvision", "jupyterlab", "ipykernel", "ipywidgets", "nbformat")
    needs = [need.replace("'", '"') for need in requires("vitlab") or ()]
    needs = [need.split(";")[0].strip() for need in needs if "extra ==" not in need or 'extra == "lab"' in need]
    needs = [need for need in needs if re.split(r"[<>=!~ \[]", need)[0] not in own]
    setup = COLAB.format(name=repository.split("/")[1], repository=repository, needs=" ".join(needs)).rstrip()
    made = []
    for source in sources(folder):
        path = folder / "colab" / f"{source.stem}.ipynb"
        address = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/colab/{path.name}"
        badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"
        notebook = from_source(source, badge)
        notebook.cells.insert(1, nbformat.v4.new_code_cell(setup, id="colab-setup"))
        notebook.metadata["colab"] = {"provenance": []}
        made.append(write(notebook, path))
    return made


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    commands = {each.__name__: each for each in (sync, check, reference, work, colab)}
    if not arguments or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        made = commands[arguments[0]](*arguments[1:])
    except (ValueError, OSError) as error:
        print(f"tools.notebooks: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, made)) or "nothing to do")
    return 1 if arguments[0] == "check" and made else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
