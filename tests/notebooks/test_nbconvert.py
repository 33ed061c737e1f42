"""`jupyter nbconvert --execute` of a copy made for Colab finds, on this machine, what papermill finds."""

import os
import shutil
import subprocess
import sys

import nbformat

from tools.notebooks import colab
from vitlab import notebooks, paths


def with_parameters(notebook, **values):
    """The notebook, its cell of parameters changed: nbconvert has no way to set them."""
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, (old, new) in values.items():
        assert cell.source.count(f"{name} = {old!r}".replace("'", '"')) == 1
        cell.source = cell.source.replace(f"{name} = {old!r}".replace("'", '"'), f"{name} = {new!r}")
    return notebook


def executed(notebook, name, folder):
    """Execute a notebook by nbconvert, into a figures folder of its own; returns it and its result.json."""
    nbformat.write(notebook, folder / name)
    environment = {**os.environ, "VITLAB_FIGURES": str(folder / "figures")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
    environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in cells
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", name]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = (folder / "figures" / "smoke").glob("*/result.json")
    return nbformat.read(folder / name, as_version=4), paths.read_json(result)


def findings(result):
    """What two executions of the same code agree on: all but where and when it was."""
    return {key: value for key, value in result.items() if key != "provenance"}


def test_nbconvert_finds_what_papermill_finds(at_smoke, tmp_path):
    """One notebook stands for all, in its copy for Colab: what nbconvert does otherwise, it does to each."""
    path = notebooks.find("06")
    (tmp_path / "source").mkdir()
    shutil.copy(path.parent / "source" / f"{path.stem}.py", tmp_path / "source")
    copy = nbformat.read(colab("owner/vitlab", tmp_path)[0], as_version=4)
    copy = with_parameters(copy, PRESET=("quick", "smoke"), SEED=(0, 1))
    copy, result = executed(copy, path.name, tmp_path)
    by_papermill = paths.read_json(at_smoke(path) / "result.json")
    assert by_papermill["figures"] and findings(result) == findings(by_papermill)
    first = next(cell for cell in copy.cells if cell.cell_type == "code")
    assert "google.colab" in first.source and first.outputs == []
    outputs = [output for cell in copy.cells for output in cell.get("outputs", ())]
    assert all(output.get("name") != "stderr" for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= len(result["figures"])
