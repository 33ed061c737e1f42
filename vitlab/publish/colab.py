"""Copies of the notebooks that set themselves up on Google Colab, and do nothing new elsewhere (all sections)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab import notebooks, paths

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = "notebooks/colab"  # in the published repository; badges lead there
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
# Colab has its own: a JupyterLab would be of no use there, another torch is 2.5 GB and may not know Colab's driver.
_COLABS_OWN = ("torch", "torchvision", "jupyterlab", "ipykernel", "ipywidgets", "nbformat")
_CELL = '''\
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


def check_repository(repository: str) -> str:
    """The same text, if it is the owner and name of a repository.

    Raises:
        ValueError: it is not.

    >>> check_repository("owner/vitlab")
    'owner/vitlab'
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(f"repository {repository!r}: expected OWNER/NAME, as in the address of its page on GitHub")
    return repository


def address(repository: str, name: str, folder: str = FOLDER) -> str:
    """Where Colab opens a published copy, of the branch `main`.

    >>> address("owner/vitlab", "07_position_embeddings.ipynb")
    'https://colab.research.google.com/github/owner/vitlab/blob/main/notebooks/colab/07_position_embeddings.ipynb'
    """
    return f"https://colab.research.google.com/github/{check_repository(repository)}/blob/main/{folder}/{name}"


def needs() -> list[str]:
    """The packages that notebooks import and that Colab may lack, with their lowest versions.

    >>> "timm" in " ".join(needs()), "torch" in " ".join(needs())
    (True, False)
    """
    wanted = [need.replace("'", '"') for need in requires("vitlab") or ()]
    wanted = [need for need in wanted if "extra ==" not in need or 'extra == "lab"' in need]
    return [need.split(";")[0].strip() for need in wanted if re.split(r"[<>=!~ ;\[]", need)[0] not in _COLABS_OWN]


def with_setup(notebook: NotebookNode, repository: str, name: str, folder: str = FOLDER) -> NotebookNode:
    """A copy of a notebook with the badge under its title and the cell that installs as its first code cell.

    No outputs are kept: those of another machine would stand beside the reader's own.
    """
    import nbformat

    made = nbformat.from_dict(notebook)
    repository = check_repository(repository)
    setup = _CELL.format(name=repository.split("/")[1], repository=repository, needs=" ".join(needs()))
    title, *others = made.cells
    heading, _, rest = title.source.partition("\n")
    badge = f"[![Open in Colab]({_BADGE})]({address(repository, name, folder)})"
    title.source = f"{heading}\n\n{badge}\n{rest}"
    cell = nbformat.v4.new_code_cell(setup.rstrip(), id="colab-setup")
    made.cells = [title, cell, *others]
    for code in (code for code in made.cells if code.cell_type == "code"):
        code.outputs, code.execution_count = [], None
    made.metadata["colab"] = {"provenance": []}
    made.metadata.pop("widgets", None)
    return made


def write(repository: str, out: Path, which: Sequence[str] = ()) -> list[Path]:
    """Write the copies of all notebooks, or of some, into `out`; returns their paths.

    Badges lead to the place of `out` in the checkout; to `notebooks/colab`, if it is outside.

    Raises:
        ValueError: no such notebook, or `repository` is no owner and name.
    """
    import nbformat

    inside = Path(os.path.abspath(out))
    folder = inside.relative_to(paths.ROOT).as_posix() if inside.is_relative_to(paths.ROOT) else FOLDER
    written = []
    for path in [notebooks.find(name) for name in which] or notebooks.all_notebooks():
        made = with_setup(nbformat.read(path, as_version=4), repository, path.name, folder)
        nbformat.validate(made)
        with paths.writing(out / path.name) as temporary:
            nbformat.write(made, temporary)
        written.append(out / path.name)
    return written
