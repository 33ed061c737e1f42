"""Every notebook executed at `smoke` by papermill, once for all tests and all test processes."""

import os

import pytest

from vitlab import notebooks, paths


@pytest.fixture(scope="session")
def at_smoke(tmp_path_factory):
    """A function: the folder with what a notebook leaves, executed with SEED=1 into a figures folder of its own."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(path):
        figures = base / "at-smoke" / path.stem
        out = figures / "smoke" / path.stem
        with paths.lock(figures), pytest.MonkeyPatch.context() as patch:
            if not (out / "notebook.ipynb").exists():
                patch.setenv("VITLAB_FIGURES", str(figures))
                notebooks.execute(path, {"SEED": 1}, "smoke")
        return out

    return folder
