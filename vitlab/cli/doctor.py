"""What is installed and found on this machine, and which presets it can run (paper §4.1 needs a cluster)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vitlab
from vitlab import notebooks, paths
from vitlab.sweep import committed, identity, presets, results

_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pandas", "scikit-learn")
_LAB = ("matplotlib", "jupyterlab", "ipywidgets", "papermill")  # of the extra `lab`
_VARIABLES = tuple(f"VITLAB_{name}" for name in ("FIGURES", "DATA", "JOBS", "SCHEDULER", "DEVICE", "TORCH"))
_HUB_VARIABLES = ("HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE")
_OLDER, _ELSEWHERE, _DAMAGED = "of older code", "of another torch or device", "that cannot be read"
_GIB = 2**30


def describe() -> str:
    """Everything `vitlab doctor` prints, as one text.

    >>> describe().splitlines()[0].startswith("vitlab ")
    True
    """
    sections = {
        f"vitlab {vitlab.__version__}": [f"checkout {paths.ROOT}", *_notebooks()],
        "installed": _installed(),
        "machine": _machine(),
        "data sets": _data_sets(),
        "bundled weights": _weights(),
        "stored runs": _stored(),
        "presets": [f"{name:<9} {_ability(preset)}" for name, preset in presets.PRESETS.items()],
        "variables": [f"{name} = {os.environ.get(name) or '(not set)'}" for name in _VARIABLES + _HUB_VARIABLES],
    }
    return "\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections.items())


def _notebooks() -> Iterator[str]:
    numbers = [path.stem[:2] for path in notebooks.all_notebooks()]
    yield f"notebooks {' '.join(numbers)}" if numbers else f"no notebooks in {notebooks.notebooks_dir()}"
    yield f"figures go to {paths.figures_dir()}"


def _installed() -> Iterator[str]:
    yield f"python {platform.python_version()} ({sys.executable})"
    for package in (*_PACKAGES, *_LAB, "jupytext"):
        try:
            yield f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            where = ': pip install "vitlab[lab]" for the notebooks' if package in _LAB else ""
            yield f"{package} is not installed{where}"


def _machine() -> Iterator[str]:
    import psutil
    import torch

    memory = psutil.virtual_memory()
    yield f"{platform.platform()}, {identity.cpu_count()} processors"
    yield f"torch uses {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            yield f"GPU {index}: {device.name}, {device.total_memory / _GIB:.0f} GiB"
    else:
        yield "no GPU that torch can use: everything runs on the CPU"
    yield f"memory {memory.total / _GIB:.1f} GiB, {memory.available / _GIB:.1f} GiB available"
    yield f"disk {shutil.disk_usage(_existing(paths.figures_dir())).free / _GIB:.1f} GiB free for figures"


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _data_sets() -> Iterator[str]:
    from vitlab.data import datasets

    yield "world      painted on demand"
    yield "digits     come with scikit-learn"
    for name in datasets.TORCHVISION:  # in a folder of this name, or in torchvision's own layout
        yield f"{name:<10} {'found in' if datasets.present(name) else 'not found in'} {paths.data_dir()}"
    photos = paths.data_dir() / "photos"
    yield f"{'photos':<10} {'found in' if photos.is_dir() else 'not found, looked at'} {photos}"
    yield "to use a copy of your own: VITLAB_DATA=FOLDER, one folder per set in it"


def _weights() -> Iterator[str]:
    found = sorted(paths.bundled_dir().rglob("*.safetensors"))
    for path in found:
        yield f"{path.relative_to(paths.bundled_dir())} ({path.stat().st_size / 2**20:.1f} MiB)"
    if not found:
        yield f"none in {paths.bundled_dir()}: WEIGHTS must name a model or a file"


def _stored() -> Iterator[str]:
    """Of each preset's stored runs, and of the committed ones, how many today's code on this machine does not use."""
    hashes: dict[str, str | None] = {}
    folders = sorted(paths.figures_dir().glob("*/runs"))
    for folder in folders:
        counts, n_bytes = Counter[str](), 0
        for stem, size, result in _runs_in(folder):
            counts[_why_not_used(stem, result, hashes)] += 1
            n_bytes += size
        yield _counted(folder, n_bytes, counts)
    if not folders:
        yield f"none in {paths.figures_dir()}"
    for archive in committed.archives():
        try:
            runs = committed.read(archive).items()
        except ValueError as error:
            yield str(error)
            continue
        counts = Counter(_why_not_used(Path(name).stem, result, hashes) for name, result in runs)
        yield _counted(archive, archive.stat().st_size, counts)


def _counted(where: Path, size: int, counts: Counter[str]) -> str:
    unused = [f"{counts[why]:,} {why}" for why in (_OLDER, _ELSEWHERE, _DAMAGED) if counts[why]]
    kept = f": {', '.join(unused)} (kept, not used)" if unused else ""
    return f"{counts.total():,} in {where}, {size / 2**20:.1f} MiB{kept}"


def _runs_in(folder: Path) -> Iterator[tuple[str, int, Any]]:
    """Name, bytes and content of each run, but for those that are being written, or removed while we look."""
    for path in folder.glob("*/[!.]*.json"):
        try:
            found = path.stem, path.stat().st_size, _content(path)
        except FileNotFoundError:
            continue
        yield found


def _content(path: Path) -> Any:
    try:
        return paths.read_json(path)
    except ValueError:
        return None


def _why_not_used(stem: str, result: Any, hashes: dict[str, str | None]) -> str:
    """Why a sweep here would not use the run of this name, empty where it would; `hashes`: of code, filled here."""
    try:
        name, config = result["function"], result["config"]
        made_by = {"torch": result["torch"], "device": result["device"]}
        if result["schema"] < identity.SCHEMA:
            return _OLDER
        if not results.is_whole(result):
            return _DAMAGED
        if name not in hashes:
            hashes[name] = identity.code_hash_of(name)
        if hashes[name] is None or identity.run_key(name, config, hashes[name], **made_by) != stem:
            return _OLDER
    except (ValueError, KeyError, TypeError, AttributeError):
        return _DAMAGED
    here = {"torch": identity.torch_minor(), "device": identity.device_type()}
    return "" if made_by == here else _ELSEWHERE


def _ability(preset: presets.Preset) -> str:
    if not preset.runs_here:
        return f"not run from here: needs {preset.hardware}; shown and validated in the notebooks"
    if "GPU" in preset.hardware and identity.device_type() == "cpu":
        return f"no GPU here: would take {preset.time} on {preset.hardware}, far more on this CPU"
    return f"runs here: {preset.purpose}; {preset.time} on {preset.hardware}"
