"""What makes a stored result stale, and what does not: the import closure, the hash of source, versions, device."""

import gc
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vitlab.experiments import attention_distances, scaling
from vitlab.sweep import identity, sources


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy of vitlab for all tests: what is parsed once is not parsed again."""
    copy = tmp_path_factory.mktemp("copied") / "vitlab"
    shutil.copytree(identity._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def package(copied, monkeypatch) -> Path:
    """The copy, which can be edited: it is put back after the test."""
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in copied.rglob("*.py")}
    monkeypatch.setattr(identity, "_PACKAGE", copied)
    yield copied
    for path in copied.rglob("*.py"):
        if path not in before:
            path.unlink()
        elif path.read_bytes() != before[path][0]:
            path.write_bytes(before[path][0])
            os.utime(path, ns=(before[path][1],) * 2)


def function_of(path: Path) -> Callable:
    """A function that says it was defined in this file."""
    names: dict = {}
    exec(compile("def run(config): ...", str(path), "exec"), names)
    return names["run"]


def edit(path: Path, line: str = "EDITED = 1") -> None:
    path.write_text(f"{path.read_text()}\n{line}\n")


def hashes(package: Path) -> dict[str, str]:
    """Of a training of the scaling studies, and of an analysis."""
    names = ("scaling", "attention_distances")
    return {name: identity.code_hash(function_of(package / "experiments" / f"{name}.py")) for name in names}


@pytest.mark.parametrize(
    ("edited", "stale"),
    [
        ("analysis/distance.py", {"attention_distances"}),
        ("analysis/rollout.py", set()),
        ("plots/curves.py", set()),
        ("sweep/runner.py", set()),
        ("ledger/report.py", set()),
        ("__init__.py", set()),  # the version
        ("experiments/data_scaling.py", set()),  # the study of which `scaling` is one run
        ("data/world.py", {"scaling", "attention_distances"}),
        ("training/optim.py", {"scaling"}),
        ("evaluation/fewshot.py", {"scaling"}),
        ("experiments/frozen.py", {"scaling"}),
        ("models/vit.py", {"scaling", "attention_distances"}),
        ("models/release.py", {"scaling", "attention_distances"}),  # imported by what `zoo` imports
    ],
)
def test_an_edit_makes_stale_what_imports_it_and_nothing_else(package, edited, stale):
    before = hashes(package)
    edit(package / edited)
    assert {name for name, value in hashes(package).items() if value != before[name]} == stale


def test_an_edit_of_comments_and_docstrings_makes_nothing_stale(package):
    before = hashes(package)
    edit(package / "data" / "world.py", "# a comment")
    assert hashes(package) == before


def test_the_closure_of_these_studies_is_that_of_the_files_they_stand_in():
    """The copies above are read by path; the functions themselves give the same files."""
    training = identity.import_closure(scaling.run_one)
    assert {"world.py", "loop.py", "fewshot.py", "vit.py"} <= {path.name for path in training}
    assert not any(path.parent.name in ("analysis", "sweep", "ledger", "plots") for path in training)
    assert identity.import_closure(attention_distances.attention_distances) != training


def test_imports_inside_functions_count(package):
    lazy = package / "experiments" / "lazy.py"
    lazy.write_text("def run(config):\n    from vitlab.analysis import rollout\n")
    before = identity.code_hash(function_of(lazy))
    edit(package / "analysis" / "rollout.py")
    assert identity.code_hash(function_of(lazy)) != before


def test_a_module_outside_of_vitlab_counts_with_what_it_imports_of_vitlab(package, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("import vitlab.models.adapt as positions\n")
    first = identity.code_hash(function_of(own))
    edit(package / "models" / "positions.py")
    second = identity.code_hash(function_of(own))
    edit(own)
    assert len({first, second, identity.code_hash(function_of(own))}) == 3


@pytest.mark.parametrize(
    ("source", "package", "names"),
    [
        ("import torch, vitlab.data.world as w", (), {"vitlab", "vitlab.data", "vitlab.data.world"}),
        ("from vitlab import paths", (), {"vitlab", "vitlab.paths"}),
        ("from . import loader", ("vitlab", "data"), {"vitlab", "vitlab.data", "vitlab.data.loader"}),
        ("from ..models.vit import ViT", ("vitlab", "data"), {"vitlab", "vitlab.models", "vitlab.models.vit"}),
        ("import json\nfrom vitlabs import x", (), set()),
    ],
)
def test_imported_names_of_known_sources(source, package, names):
    assert sources.imported(source, package) - {"vitlab.models.vit.ViT"} == names


def test_a_key_changes_with_torch_and_the_device(monkeypatch):
    key = identity.run_key(len, {}, code="")
    monkeypatch.setattr(identity, "torch_minor", lambda: "99.0")
    other = identity.run_key(len, {}, code="")
    monkeypatch.setattr(identity, "device_type", lambda: "abacus")
    assert len({key, other, identity.run_key(len, {}, code="")}) == 3


def test_the_code_hash_sees_code_not_comments():
    plain = "def f(x):\n    return x + 1\n"
    dressed = '"""Module."""\n# comment\n\ndef f(x):\n    """Doc."""\n    return (x + 1)  # why\n'
    assert sources.source_hash(plain) == sources.source_hash(dressed)
    assert sources.source_hash(plain) != sources.source_hash(plain.replace("1", "2"))
    assert sources.source_hash('def f():\n    """Doc."""\n') == sources.source_hash("def f():\n    pass\n")
    # a string that is a value, not a docstring, counts
    assert sources.source_hash("x = 'a'") != sources.source_hash("x = 'b'")


def test_the_code_hash_is_the_same_on_every_python():
    """Made with 3.11, 3.12 and 3.13, whose syntax trees and `ast.unparse` differ in f-strings and empty fields."""
    source = """
class A(B, metaclass=C):
    def f(self, a: int, *b, c=1) -> "x":
        y = f"{a!r:>{c}} 'q' {b}" "tail"
        return [i async for i in y], lambda: (None, ..., 1e3, b"x", u"u", True, 1j)
"""
    assert sources.source_hash(source).startswith("81b6fdf319de67e3")
    assert sources.source_hash('f("")') != sources.source_hash("f()") != sources.source_hash("f(None)")
    assert sources.source_hash("return None") != sources.source_hash("return")


@pytest.mark.slow
def test_the_code_hash_covers_the_experiments_own_module(tmp_path, monkeypatch):
    import importlib.util

    hashes = []
    for number in (1, 1, 2):
        path = tmp_path / "own.py"
        path.write_text(f"def own(config):\n    return [{{'x': {number}}}]\n")
        os.utime(path, ns=(number, number))
        spec = importlib.util.spec_from_file_location("own", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "own", module)
        spec.loader.exec_module(module)
        hashes.append(identity.code_hash(module.own))
    assert hashes[0] == hashes[1] != hashes[2]
    assert identity.code_hash() not in hashes


def test_code_is_hashed_in_several_threads_at_once():
    # dask asks the garbage collector to call it back, where threads take turns
    source = Path(identity.__file__).read_text()
    expected, found = sources.source_hash(source), []

    def give_way(*_) -> None:
        time.sleep(0)

    def many() -> None:
        for _ in range(10):
            try:
                found.append(sources.source_hash(source))
            except SystemError as error:
                found.append(str(error))

    usual = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(give_way)
    assert len(found) == 40 and set(found) == {expected}
