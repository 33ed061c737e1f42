"""Where a result comes from: code, versions, device, time; and the state of the checkout."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import vitlab
from vitlab import paths
from vitlab.sweep import identity


def provenance(wall_s: float = 0.0, data_hash: str | None = None) -> dict[str, Any]:
    """Where a number comes from: code, versions, device, threads, wall time in seconds, UTC time, data.

    >>> provenance()["device"] != ""
    True
    """
    import torch

    device = identity.device_type()
    return {
        "code_hash": identity.code_hash(),
        "git": _git_state(),
        "versions": _versions(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "wall_s": round(wall_s, 2),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data_hash": data_hash,
    }


def _versions() -> dict[str, str]:
    installed = {name: version(name) for name in ("torch", "timm", "numpy")}
    return {"python": platform.python_version(), **installed, "vitlab": vitlab.__version__}


def _git_state() -> dict[str, Any] | None:
    """Revision of the checkout and whether tracked files differ from it; None where there is no git."""
    if not (paths.ROOT / ".git").exists():
        return None  # installed as a package: a repository around it would not be ours
    try:
        revision = _git("rev-parse", "HEAD")
        return {"revision": revision, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(paths.ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
