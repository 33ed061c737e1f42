"""The package stays small, imports run one way, and a core installation needs what is declared."""

import ast
import sys
import tomllib
from importlib import metadata

from packaging.requirements import Requirement

from vitlab import paths

PACKAGE = paths.ROOT / "vitlab"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_MODULES, MOST_LINES = 65, 11_000

BASE = {"paths", "settings"}
SCIENCE = {"data", "models", "training", "probes", "analysis"}
ALLOWED = {  # what each package may import of the others
    "paths": set(),
    "settings": set(),
    "data": BASE,
    "models": BASE | {"data"},
    "training": BASE | {"data", "models"},
    "probes": BASE | {"data", "models", "training"},
    "analysis": BASE | {"models"},
    "plots": BASE,
    "studies": BASE | SCIENCE,
    "claims": BASE | SCIENCE | {"studies"},
    "widgets": BASE | SCIENCE | {"plots"},
    "overview": BASE | {"analysis", "models", "plots"},
    "notebooks": BASE,
    "exercises": BASE | {"notebooks"},
    "cli": BASE | SCIENCE | {"studies", "claims", "notebooks", "exercises", "overview"},
}


def imports(path):
    """The names of what a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and all(alias.name != "*" for alias in node.names), f"{path}: relative, or a star"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_run_one_way():
    wrong = []
    for path in MODULES:
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if package in ALLOWED:
            names = {name.split(".")[1] for name in imports(path) if name.startswith("vitlab.")}
            wrong += [(str(path), name) for name in names - ALLOWED[package] - {package, "__version__"}]
    assert wrong == []


def test_the_package_stays_small_and_every_module_says_what_it_is_for():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{path} does not open with a docstring"
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES)
    assert len(MODULES) <= MOST_MODULES and lines <= MOST_LINES, (len(MODULES), lines)


def test_what_the_science_imports_is_declared():
    """A core installation brings neither matplotlib nor Jupyter; photographs() alone may ask for matplotlib."""
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    declared = {Requirement(text).name.lower().replace("_", "-") for text in project["dependencies"]}
    owners = metadata.packages_distributions()
    missing = set()
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in BASE | SCIENCE:
            names = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"vitlab"}
            brought = {name: {each.lower().replace("_", "-") for each in owners[name]} for name in names}
            missing |= {name for name in names if not declared & brought[name]}
    assert missing <= {"matplotlib", "distributed"}
