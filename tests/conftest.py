"""What every test has: checked shapes, one thread, no network, and folders of its own to write to."""

import os
import signal
import tempfile
from pathlib import Path

_SCRATCH = Path(tempfile.mkdtemp(prefix="vitlab-tests-"))

# Before anything of Jupyter, Hugging Face or matplotlib is imported: each reads its variables once.
os.environ.update(
    HF_HUB_OFFLINE="1",
    MPLBACKEND="agg",
    OMP_NUM_THREADS="1",
    VITLAB_JOBS="1",
    VITLAB_SCHEDULER="",
    VITLAB_FIGURES=str(_SCRATCH / "figures"),
    PYDEVD_DISABLE_FILE_VALIDATION="1",
    **{
        name: str(_SCRATCH / name.lower())
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    },
)

from jaxtyping import install_import_hook

# Every shape and type written in a signature of vitlab is checked whenever a test calls it.
_HOOK = install_import_hook("vitlab", "typechecks.check")

import pytest
import torch
from xdist.scheduler import LoadFileScheduling

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Files(LoadFileScheduling):
    """A file's tests stay in one process, so that what they share is made once; every notebook's goes anywhere."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if "test_smoke" in nodeid else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log) -> Files:
    """Share the tests out."""
    return Files(config, log)


def pytest_unconfigure() -> None:
    """Remove the scratch folder; the last process to use it may still be writing, which is no failure."""
    import shutil

    shutil.rmtree(_SCRATCH, ignore_errors=True)


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A figures folder of the test's own."""
    folder = tmp_path / "figures"
    monkeypatch.setenv("VITLAB_FIGURES", str(folder))
    return folder
