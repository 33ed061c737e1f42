"""`pip install .` is enough for the analyses: nothing that only the extra `lab` brings is imported, nor needed."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vitlab import paths

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
REFUSED = """
import json, sys
from importlib.machinery import PathFinder

class Others(PathFinder):  # finds all but the modules refused: to vitlab they are not installed
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in REFUSED else super().find_spec(name, path, target)

REFUSED = set(json.loads(sys.argv[1]))
sys.meta_path[sys.meta_path.index(PathFinder)] = Others
"""
SESSION = """
import ast, contextlib, importlib, io, pkgutil, vitlab

for name in ("files", "threads", "analysis", "models", "data", "training", "evaluation"):
    package = importlib.import_module(f"vitlab.{name}")
    for module in pkgutil.iter_modules(getattr(package, "__path__", []), f"vitlab.{name}."):
        importlib.import_module(module.name)
names, shapes = {}, []
for line in ast.parse(sys.argv[2]).body:
    if isinstance(line, ast.Expr):
        found = eval(ast.unparse(line), names)
        shapes.append([list(each.shape) for each in (found if isinstance(found, tuple) else [found])])
    else:
        exec(ast.unparse(line), names)
try:
    importlib.import_module("vitlab.data.datasets").photographs()
except ModuleNotFoundError as error:
    photographs = str(error)
from vitlab.cli.main import main
said = {}
for words in ("run 08 --preset smoke", "exercises check mine.ipynb", "recipes", "doctor"):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        said[words] = [main(words.split()), out.getvalue()]
print(json.dumps({"modules": sorted(sys.modules), "shapes": shapes, "photographs": photographs, "said": said}))
"""
ROOMS = ("analysis", "models", "data", "training", "evaluation", "files.py", "threads.py")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(wanted: list[Requirement]) -> set[str]:
    """The distributions that a list of requirements brings here, those of other platforms left out."""
    names: set[tuple[str, str]] = set()
    while wanted:
        need = wanted.pop()
        for extra in {"", *need.extras} - {extra for name, extra in names if name == canonical(need.name)}:
            names.add((canonical(need.name), extra))
            brought = [Requirement(text) for text in metadata.requires(need.name) or ()]
            wanted += [each for each in brought if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in names}


@pytest.fixture(scope="module")
def refused() -> list[str]:
    """The modules that are installed here and would not be in an environment made by `pip install .`."""
    core = closure([Requirement(text) for text in PROJECT["dependencies"]]) | {"vitlab", "pip", "setuptools"}
    owners = metadata.packages_distributions()
    return [module for module, names in owners.items() if core.isdisjoint(map(canonical, names))]


def readme_example() -> str:
    """The block under "From Python" in the README."""
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"\*\*From Python\.\*\*[^`]*```python\n(.*?)```", text, re.DOTALL)
    return block


@pytest.fixture(scope="module")
def session(refused) -> dict:
    """One process without the extra: it imports everything below the notebooks and runs the README's example."""
    command = [sys.executable, "-c", REFUSED + SESSION, json.dumps(refused), readme_example()]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_what_is_refused_is_what_the_extras_bring(refused):
    assert {"matplotlib", "seaborn", "papermill", "IPython", "nbformat", "jupyterlab", "pytest"} <= set(refused)
    assert {"torch", "timm", "numpy", "scipy", "yaml", "tqdm", "typing_extensions"}.isdisjoint(refused)


def test_every_requirement_is_named_once():
    for extra in ("lab", "test"):
        names = [Requirement(text).name for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]]
        assert len(names) == len(set(names)), extra


def imported(path: Path) -> set[str]:
    """The packages that a module imports anywhere in it, Python's own and vitlab left out."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"vitlab"}


def test_what_is_imported_is_declared():
    """Imports inside functions too; photographs() alone may ask for matplotlib, and says so."""
    declared = {canonical(Requirement(text).name) for text in PROJECT["dependencies"]}
    owners = metadata.packages_distributions()
    places = [paths.ROOT / "vitlab" / room for room in ROOMS]
    paths = [path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))]
    assert len(paths) > 30
    missing = {
        (path.name, name)
        for path in paths
        for name in imported(path)
        if declared.isdisjoint(map(canonical, owners[name]))
    }
    assert missing == {("datasets.py", "matplotlib")}


@pytest.mark.slow
def test_everything_below_the_notebooks_is_imported_without_the_extra(session, refused):
    loaded = set(session["modules"])
    assert {"vitlab.analysis.rollout", "vitlab.models.zoo", "vitlab.data.world", "vitlab.evaluation.probe"} <= loaded
    assert loaded.isdisjoint(refused)


@pytest.mark.slow
def test_the_readmes_example_runs_without_the_extra(session):
    # lab: 6 blocks of 4 heads, 12 x 12 patches of 8 px; the example has four images, and 28 components
    assert session["shapes"] == [[[4, 6, 4]], [[4, 12, 12]], [[12, 12, 12, 12]], [[28, 3, 8, 8], [28]]]


@pytest.mark.slow
def test_photographs_say_which_extra_they_need(session):
    assert 'pip install "vitlab[lab]"' in session["photographs"]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["run 08 --preset smoke", "exercises check mine.ipynb"])
def test_commands_of_the_notebooks_say_which_extra_they_need(session, words):
    status, said = session["said"][words]
    assert status == 2 and 'pip install "vitlab[lab]"' in said and "papermill" in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_the_other_commands_work_without_the_extra(session):
    assert [session["said"][words][0] for words in ("recipes", "doctor")] == [0, 0]
    assert "presets" in session["said"]["doctor"][1] and "Table 3" in session["said"]["recipes"][1]
