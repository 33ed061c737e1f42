"""What somebody has who installs the wheel: the notebooks and all they read, with nothing of a checkout near."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from vitlab import notebooks, paths
from vitlab.cli import copies

PACKED = ("vitlab", "notebooks", "data", "figures/reference", "pyproject.toml", "setup.py", "README.md", "LICENSE")
VITLAB = "import sys; from vitlab.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of installed packages with vitlab's wheel in it; what it needs is found where the tests find it."""
    checkout, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("installed")
    for name in PACKED:
        source, target = paths.ROOT / name, checkout / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("downloads", "__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=checkout, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def vitlab(installed, cwd, *words):
    """The command line of the installed vitlab; its exit status and what it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VITLAB_")}
    environment |= {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", VITLAB, *words]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_notebooks_are_copied_and_run_where_the_wheel_is_installed(installed, tmp_path):
    status, said = vitlab(installed, tmp_path, "run", "08", "--preset", "smoke")
    assert status == 2 and "no notebooks in" in said and "vitlab copy FOLDER" in said
    status, said = vitlab(installed, tmp_path, "copy", "mine")
    assert status == 0 and "12 notebooks are in" in said and "cd " in said
    for at in ("mine", "mine/notebooks"):  # as from a terminal, and as in JupyterLab
        status, said = vitlab(installed, tmp_path / at, "doctor")
        assert status == 0 and f"figures go to {tmp_path}/mine/figures" in said and "lab.safetensors" in said
    status, said = vitlab(installed, tmp_path / "mine", "run", "08", "--preset", "smoke")
    assert status == 0, said
    result = paths.read_json(tmp_path / "mine" / "figures" / "smoke" / "08_attention_distance" / "result.json")
    assert result["parameters"]["weights"] == "lab" and {each["claim"] for each in result["results"]} >= {"C12", "C13"}
    exercises = "mine/notebooks/exercises/08_attention_distance.ipynb"
    status, said = vitlab(installed, tmp_path, "exercises", "check", exercises)
    assert status == 1 and "not solved" in said
    written = {path.name for path in tmp_path.iterdir()} | {path.name for path in (tmp_path / "mine").iterdir()}
    assert written == {"mine", "notebooks", "figures"}


@pytest.mark.slow
def test_the_wheel_brings_all_that_a_checkout_reads(installed):
    share = installed / "vitlab" / "share"
    for name in ("notebooks/08_attention_distance.ipynb", "notebooks/source/08_attention_distance.py"):
        assert (share / name).read_bytes() == (paths.ROOT / name).read_bytes()
    for path in [*paths.ROOT.glob("data/*.*"), *paths.ROOT.glob("figures/reference/full/runs/*")]:
        assert (share / path.relative_to(paths.ROOT)).read_bytes() == path.read_bytes()
    assert not (share / "data" / "downloads").exists() and not list(share.rglob("__pycache__"))


def test_a_copy_has_the_notebooks_and_exercises_and_no_sources(tmp_path):
    made = copies.copy(tmp_path / "new" / "folder")
    assert made == tmp_path / "new" / "folder" / "notebooks"
    assert sorted(path.name for path in made.glob("*.ipynb")) == [path.name for path in notebooks.all_notebooks()]
    assert (made / "exercises").is_dir() and not (made / "source").exists()
    kept = (made / "00_start_here.ipynb").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notebooks is there already: remove it, or give another folder"):
        copies.copy(tmp_path / "new" / "folder")
    assert (made / "00_start_here.ipynb").stat().st_size == kept


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(source, target, ignore):
        target.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left|full"):
        copies.copy(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "plain").touch()
    with pytest.raises(OSError, match="plain"):
        copies.copy(tmp_path / "plain")
    with pytest.raises(ValueError, match="no folder is given"):
        copies.copy("")


def test_an_installed_vitlab_without_its_notebooks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "shipped", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match="no notebooks in .*: install vitlab's wheel, or clone"):
        copies.copy(tmp_path / "copy")
