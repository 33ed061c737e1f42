"""Which package of vitlab may import which, and that there is no circle; read from the source."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitlab

PACKAGE = Path(vitlab.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SHARED = {"files", "disk", "threads", "settings"}
SCIENCE = {"data", "models", "training", "evaluation", "analysis"}
# data, models → training, evaluation → sweep, ledger → experiments → notebooks. `analysis` sees tensors and a model's
# attention, never a trainer; `plots` sees arrays; nobody imports `cli`, `publish` or `widgets`.
ALLOWED = {
    "disk": set(),
    "files": {"disk"},
    "threads": set(),
    "settings": set(),
    "notebooks": {"files"},
    "data": SHARED,
    "models": {"files"},
    "training": {"files", "settings", "data", "models"},
    "evaluation": SHARED | {"data", "models"},
    "analysis": {"files", "models"},
    "sweep": SHARED | {"training"},  # checkpoints of a run's trainings
    "ledger": {"files", "disk", "sweep"},  # what made a result, and the presets
    "experiments": SHARED | SCIENCE | {"sweep", "ledger"},
    "plots": {"files"},
    "viewer": {"files", "analysis", "plots"},  # what it shows is measured there: distance, rollout, captured maps
    "widgets": {"files", "plots", "viewer"} | SCIENCE,
    "exercises": {"files", "notebooks"},
    "cli": SHARED | SCIENCE | {"notebooks", "sweep", "ledger", "experiments", "exercises"},
    # the README's table of models, and its picture; the tables of runs
    "publish": SHARED | SCIENCE | {"notebooks", "ledger", "exercises", "plots", "experiments", "sweep"},
}


def package_of(path: Path) -> str:
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


def imported_packages(text: str, package: str) -> set[str]:
    names = (name.split(".") for name in imported_names(ast.parse(text), package))
    return {parts[1] for parts in names if parts[0] == "vitlab" and len(parts) > 1 and parts[1] != "__version__"}


def of(path: Path) -> str:
    return ".".join(["vitlab", *path.relative_to(PACKAGE).parent.parts])


@pytest.mark.parametrize(
    "text, packages",
    [
        ("import vitlab.models.vit", {"models"}),
        ("from vitlab import paths, plots", {"files", "plots"}),
        ("def f():\n    from vitlab.training.loop import train", {"training"}),
        ("from . import loader", {"data"}),
        ("from ..models import vit", {"models"}),
        ("from vitlab import __version__\nimport torch, vitlab", set()),
    ],
)
def test_imports_of_known_texts(text, packages):
    assert imported_packages(text, "vitlab.data") == packages


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_what_its_package_may(path):
    if path == PACKAGE / "__init__.py":
        assert imported_packages(path.read_text(), "vitlab") == set()
        return
    assert package_of(path) in ALLOWED, f"{path}: say in this test what the new package may import"
    found = imported_packages(path.read_text(), of(path)) - {package_of(path)}
    assert found <= ALLOWED[package_of(path)], (
        f"{package_of(path)} may not import {sorted(found - ALLOWED[package_of(path)])}"
    )


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


@functools.cache
def graph() -> dict[str, set[str]]:
    """Every module of the package with those of the package that it imports, anywhere in its source."""
    names = {".".join(["vitlab", *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in MODULES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    found = {}
    for name, path in names.items():
        imported = imported_names(ast.parse(path.read_text()), of(path))
        known = {full if full in names else full.rpartition(".")[0] for full in imported}
        found[name] = (known & set(names)) - {name, "vitlab"}
    return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """The groups of nodes of which each reaches every other."""

    def reached(start: str) -> set[str]:
        seen, queue = set(), [start]
        while queue:
            new = arrows[queue.pop()] - seen
            seen |= new
            queue += new
        return seen

    ahead = {node: reached(node) for node in arrows}
    groups = [frozenset({node} | {other for other in ahead[node] if node in ahead[other]}) for node in arrows]
    return [set(group) for group in dict.fromkeys(groups) if len(group) > 1]


def test_circles_of_known_graphs():
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == [{"a", "b"}]


def test_no_module_imports_itself_by_way_of_others():
    assert circles(graph()) == []


def test_no_package_imports_itself_by_way_of_others():
    packages: dict[str, set[str]] = {}
    for name, imported in graph().items():
        for other in imported:
            pair = [each.split(".")[1] if "." in each else "" for each in (name, other)]
            packages.setdefault(pair[0], set()).update({pair[1]} - {pair[0]})
    assert circles({name: packages.get(name, set()) for name in {*packages, *set().union(*packages.values())}}) == []


def listing() -> str:
    """Each package with the packages that it imports: what `python tests/unit/test_architecture.py` prints."""
    packages: dict[str, set[str]] = {}
    for name, imported in graph().items():
        if name != "vitlab":
            own = name.split(".")[1]
            packages.setdefault(own, set()).update(other.split(".")[1] for other in imported)
    return "\n".join(f"{name:12} → {', '.join(sorted(packages[name] - {name})) or '–'}" for name in ALLOWED)


if __name__ == "__main__":
    print(listing())
    print(f"circles of packages and modules: {circles(graph()) or 'none'}")
