"""What somebody has who installs the wheel: the notebooks and all they read, with no checkout near, core or lab."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from vitlab import paths

pytestmark = pytest.mark.slow
CODE = """\
import sys
LAB = {"matplotlib", "seaborn", "papermill", "IPython", "nbformat", "nbclient", "jupyterlab", "ipywidgets"}
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LAB:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refused())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] in LAB else find_spec(name, *rest)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of installed packages with vitlab's wheel in it; what it needs is found where the tests find it."""
    checkout, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns("downloads", "__pycache__", "*.egg-info", "out")
    for name in ("vitlab", "notebooks", "data", "figures"):
        shutil.copytree(paths.ROOT / name, checkout / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(paths.ROOT / name, checkout)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=checkout, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < 25e6
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def python(installed, cwd, code, *words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VITLAB_")}
    command = [sys.executable, "-c", code, *words]
    environment |= {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_wheel_brings_all_that_a_checkout_reads(installed, tmp_path):
    share = installed / "vitlab" / "share"
    patterns = "data/*.* figures/evidence/* figures/reference/*/*.* notebooks/* notebooks/exercises/*"
    for path in [each for pattern in patterns.split() for each in paths.ROOT.glob(pattern)]:
        unread = path.parent.name == "gallery" and path.suffix != ".csv"
        if path.is_file() and not unread:
            assert (share / path.relative_to(paths.ROOT)).read_bytes() == path.read_bytes()
    assert not (share / "data" / "downloads").exists() and not list(share.rglob("__pycache__"))
    vitlab = "import sys; from vitlab.cli import main; sys.exit(main(sys.argv[1:]))"
    status, said = python(installed, tmp_path, vitlab, "run", "08", "--preset", "smoke")
    assert status == 2 and "no notebooks in" in said and "vitlab copy FOLDER" in said
    assert python(installed, tmp_path, vitlab, "copy", "mine")[0] == 0
    status, said = python(installed, tmp_path / "mine" / "notebooks", vitlab, "doctor")
    assert status == 0 and f"figures go to {tmp_path}/mine/figures/out" in said


def test_a_core_installation_loads_measures_and_says_what_it_lacks(installed, tmp_path):
    code = CODE + (
        "import torch\nfrom vitlab import cli\nfrom vitlab.analysis import distance, rollout\n"
        "from vitlab.models import zoo\nfrom vitlab.training import loop\nfrom vitlab.data import world\n"
        "model = zoo.load('lab')\nprint(model.model(torch.zeros(1, 3, *model.image_size)).shape)\n"
        "print(cli.main(['recipes']), cli.main(['run', '00']), cli.main(['exercises', 'check', 'x.ipynb']))\n"
        "print(cli.main(['gallery', 'lab', '--images', '.']))\n"
    )
    status, said = python(installed, tmp_path, code)
    assert status == 0, said[-2000:]
    assert "0 2 2" in said and said.count('seaborn: add the extra "lab" (docs/install.md)') == 3
