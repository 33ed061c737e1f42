"""The set-up files agree with each other, and say what is wrong on a machine that lacks something."""

import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement

import vitlab

ROOT = Path(vitlab.__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [Requirement(text) for text in PROJECT["dependencies"] + EXTRAS["lab"] + EXTRAS["test"]]
PLATFORMS = {  # what tells them apart in a marker
    "linux": ("linux", "Linux", "x86_64", "posix"),
    "darwin": ("darwin", "Darwin", "arm64", "posix"),
    "win32": ("win32", "Windows", "AMD64", "nt"),
}
needs_make = pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")


def script(name):
    """A module of .ci/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pytest.importorskip("fcntl", reason="make and its scripts are for Unix; on Windows there are conda and pip")
environment = script("environment")
PINS = [Requirement(pin) for pin in environment.pins(LOCK)]


def test_version_is_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert vitlab.__version__ == PROJECT["version"] == citation["version"]
    assert PROJECT["license"] == citation["license"] == "Apache-2.0"
    assert (ROOT / "vitlab" / "py.typed").exists()  # so that users see the types
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_lock_holds_every_dependency_once(platform, python):
    names = ("sys_platform", "platform_system", "platform_machine", "os_name")
    here = {**default_environment(), **dict(zip(names, PLATFORMS[platform], strict=True))}
    here |= {"python_version": python, "python_full_version": f"{python}.9", "implementation_name": "cpython"}
    chosen = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate(here)]
    names = [pin.name for pin in chosen]
    assert len(names) == len(set(names)), "two versions of one package on one platform"
    versions = {pin.name: next(iter(pin.specifier)).version for pin in chosen}
    for wanted in [*DIRECT, Requirement("setuptools>=77")]:
        assert wanted.name in versions, f"{wanted.name} is not in the lock: run make lock"
        assert wanted.specifier.contains(versions[wanted.name]), f"lock has {wanted.name} {versions[wanted.name]}"


def test_lock_pins_and_hashes_everything_and_names_no_address():
    """Where packages come from is the user's setting (a mirror, a folder), never the project's."""
    blocks = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(blocks) == len(PINS) > 100
    for block in blocks:
        assert re.match(r"[a-z0-9.-]+==[^ ]+ ", block) and re.search(r"--hash=sha256:[0-9a-f]{64}", block), block[:80]
    for name in ("requirements.lock", "environment.yml", "Makefile", ".ci/install.py", ".ci/run"):
        text = (ROOT / name).read_text().replace("--no-emit-index-url", "")
        assert not re.search(r"\w+://|--(extra-)?index-url[ =][^-\\]|--find-links", text), name


def test_environment_file_is_the_lock():
    text = (ROOT / "environment.yml").read_text()
    assert text == environment.environment(LOCK), "environment.yml is not the lock's: run make lock"
    python, pip, packages = yaml.safe_load(text)["dependencies"]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.removeprefix("python="))
    assert pip == "pip" and packages == {"pip": environment.pins(LOCK)}


def fake(folder, name, version, fails="nothing"):
    """A Python that only says its version, and fails where it is asked for what it has not."""
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$2" in *print*) echo {version};; *{fails}*) exit 1;; esac\n')
    path.chmod(0o755)
    return path


def test_which_python_and_what_to_install(tmp_path):
    def find_python(*arguments):
        command = [shutil.which("sh"), ROOT / ".ci/find-python", *arguments]
        done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr

    assert "none of these runs" in find_python()
    fake(tmp_path, "python3", "3.9", fails="version_info")
    assert "needs Python 3.11" in (said := find_python()) and "python3 is 3.9" in said
    fake(tmp_path, "python3.12", "3.12", fails="ensurepip")
    assert "apt-get install python3-venv  (or python3.12-venv)" in find_python()
    fake(tmp_path, "python3.11", "3.11")
    assert find_python() == "python3.11" and PROJECT["requires-python"] == ">=3.11"
    mine = fake(tmp_path, "mine", "3.12")
    assert find_python(str(mine)) == str(mine)


@pytest.fixture
def checkout(tmp_path):
    """The set-up files alone, in a folder whose name has a space."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / ".ci", folder / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "requirements.lock", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    return folder


def call(folder, *command, **env):
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("MAKE")}, **env}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@needs_make
def test_make_alone_lists_every_target_and_does_nothing(checkout, tmp_path):
    done = call(checkout, "make")
    assert done.returncode == 0
    for target in ("install", "run", "test", "lab", "site", "notebooks", "lock", "clean"):
        assert re.search(rf"^  {target} ", done.stdout, re.MULTILINE)
    done = call(checkout, "make", "run", f"PYTHON={fake(tmp_path, 'ancient', '3.9', fails='version_info')}")
    assert done.returncode != 0 and "ancient is 3.9" in done.stderr and not (checkout / ".venv").exists()


@needs_make
@pytest.mark.skipif(not shutil.which("git"), reason="no git on this machine")
def test_what_runs_write_is_ignored_by_git_and_removed_by_clean_and_nothing_else(checkout):
    gone = ["figures/out/quick/REPORT.md", "vitlab/__pycache__/x.pyc", ".pytest_cache/x", "build/x"]
    kept = ["data/downloads/x.npy", "data/downloads/__pycache__/x", ".venv/x"]
    tracked = ["figures/reference/01/a.png", "figures/evidence/x.csv.xz", "data/lab.safetensors"]
    for name in gone + kept + tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    call(checkout, "git", "init", "-q")
    assert call(checkout, "git", "check-ignore", *gone, *kept, *tracked).stdout.split() == gone + kept
    assert call(checkout, "make", "clean").returncode == 0
    assert [name for name in gone + kept + tracked if (checkout / name).exists()] == kept + tracked
