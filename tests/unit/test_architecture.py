"""The house's arrows: who may import whom, read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitlab

PACKAGE = Path(vitlab.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
BELOW_EXPERIMENTS = {"files", "threads", "data", "models", "training", "evaluation", "analysis"}
# data, models → training, evaluation → experiments → notebooks; `files` is everybody's, `threads` whose computes.
ALLOWED = {
    "files": set(),
    "threads": set(),
    "data": {"files", "threads"},
    "models": {"files"},
    "training": {"files", "data", "models"},
    "evaluation": {"files", "threads", "data", "models"},
    "analysis": {"files", "models"},
    "experiments": BELOW_EXPERIMENTS,
    "plots": {"files"},
    "viewer": {"files", "analysis"},  # what it shows is measured there: distance, rollout, captured maps
    "widgets": {"files", "models", "analysis", "plots", "viewer", "data", "training", "evaluation"},
    "notebooks": {"files"},
    "doctor": {"files", "notebooks", "experiments"},
    "exercises": {"files", "notebooks"},
    "authoring": {"files", "notebooks", "publishing", "exercises", "colab"},
    "colab": {"files", "notebooks"},
    "site": {"files", "authoring", "colab"},
    "publishing": {"files", "notebooks", "experiments", "authoring"},
    "cli": BELOW_EXPERIMENTS | {"notebooks", "experiments", "doctor", "exercises"},
}


def room(path: Path) -> str:
    """The folder of a module in the package, or the module itself where it stands alone."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [base])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_rooms(text: str, package: str) -> set[str]:
    names = (name.split(".") for name in imported_names(ast.parse(text), package))
    return {parts[1] for parts in names if parts[0] == "vitlab" and len(parts) > 1 and parts[1] != "__version__"}


def of(path: Path) -> str:
    return ".".join(["vitlab", *path.relative_to(PACKAGE).parent.parts])


@pytest.mark.parametrize(
    "text, rooms",
    [
        ("import vitlab.models.vit", {"models"}),
        ("from vitlab import files, plots", {"files", "plots"}),
        ("def f():\n    from vitlab.training.loop import train", {"training"}),
        ("from . import loader", {"data"}),
        ("from ..models import vit", {"models"}),
        ("from vitlab import __version__\nimport torch, vitlab", set()),
    ],
)
def test_imports_of_known_texts(text, rooms):
    assert imported_rooms(text, "vitlab.data") == rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_what_its_room_may(path):
    if path == PACKAGE / "__init__.py":
        assert imported_rooms(path.read_text(), "vitlab") == set()
        return
    assert room(path) in ALLOWED, f"{path}: say in this test what the new room may import"
    found = imported_rooms(path.read_text(), of(path)) - {room(path)}
    assert found <= ALLOWED[room(path)], f"{room(path)} may not import {sorted(found - ALLOWED[room(path)])}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_is_short_and_says_what_it_is_for(path):
    text = path.read_text()
    assert len(text.splitlines()) < 330, f"{path} is too long to read in one sitting"
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{path} does not open with a docstring"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_no_names_unseen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), f"{path}: a star import"
    assert path.name != "utils.py"
