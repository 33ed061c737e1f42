"""Resume state: everything a killed run needs to go on as if nothing had happened."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import torch

from vitlab import files

_REFUSED = "{path} is no resume state of vitlab ({reason}); delete it to start that run again from step 0"


def save_resume_state(path: Path, state: dict) -> None:
    """Write tensors and plain values whole or not at all; the previous state stays until the new one is safe.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "resume.pt"
    >>> save_resume_state(path, {"step": 3, "w": torch.ones(2)})
    >>> load_resume_state(path)["step"]
    3
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.writing(path) as temporary:
        torch.save(state, temporary)


def load_resume_state(path: Path) -> dict:
    """Read a resume state; tensors and plain values only, nothing is unpickled.

    Raises ValueError naming the file where it is truncated, foreign or carries code.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(_REFUSED.format(path=path, reason=reason)) from error
    if not isinstance(state, dict) or "step" not in state:
        raise ValueError(_REFUSED.format(path=path, reason="it holds something else"))
    return state
