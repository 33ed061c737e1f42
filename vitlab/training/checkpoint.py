"""Files of a checkpoint: weights, what else a training needs to go on, and checksums of both. No section."""

from __future__ import annotations

import pickle
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vitlab import paths
from vitlab.models import weights, zoo

WEIGHTS, REST, SUMS = "model.safetensors", "resume.pt", "sha256.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read from disk; its checksums are right."""

    path: Path
    weights: dict[str, Tensor]
    rest: dict[str, Any]  # tensors and plain values: optimiser, counters, rows, the recipe


def save_weights(path: Path, model: nn.Module, state: dict[str, Tensor], name: str | None, about: dict) -> None:
    """Write weights as safetensors; where `name` is what `zoo.create` made the model from, `zoo.load` can read them."""
    if name is None:
        save_file({key: value.detach().cpu().contiguous() for key, value in state.items()}, path)
    else:
        zoo.save(path, model, name, about, state)


def save(
    folder: Path,
    model: nn.Module,
    state: dict[str, Tensor],
    rest: dict[str, Any],
    *,
    name: str | None = None,
    keep: int = 2,
) -> Path:
    """Write the checkpoint of step `rest["step"]` into `folder`, whole or not at all; delete all but the last `keep`.

    `state` is the state dict of the whole `model`; `rest` holds tensors and plain values. `zoo.load` can read the file
    of the weights where `name` is given. The folder also has a checksum of both files.

    >>> import tempfile
    >>> folder, model = Path(tempfile.mkdtemp()), nn.Linear(2, 1)
    >>> for step in (1, 2, 3):
    ...     _ = save(folder, model, model.state_dict(), {"step": step})
    >>> sorted(path.name for path in folder.iterdir()), newest(folder).rest["step"]
    (['step_00000002', 'step_00000003'], 3)
    """
    path = folder / f"step_{rest['step']:08d}"
    with paths.writing(path, folder=True) as temporary:
        save_weights(temporary / WEIGHTS, model, state, name, {"step": rest["step"]})
        with open(temporary / REST, "wb") as handle:  # Python's: it says that the disk is full, where torch's does not
            torch.save(rest, handle)
        paths.write_json(temporary / SUMS, {file: paths.file_hash(temporary / file) for file in (WEIGHTS, REST)})
    for old in _all(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def remove(folder: Path) -> None:
    """Remove what a training has written into its `folder`: checkpoints, weights and log, and nothing else there.

    Raises:
        RuntimeError: another process is training there.
    """
    with paths.lock(folder, "training", wait=False) as held:
        if not held:
            raise RuntimeError(f"another process is training in {folder}; wait for it, or give another folder")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        for name in (WEIGHTS, "log.jsonl"):
            (folder / name).unlink(missing_ok=True)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint in `folder` that is not damaged, None where there is no checkpoint.

    Damaged ones are skipped, with a message on stderr. Nothing in a checkpoint is unpickled.

    Raises:
        ValueError: there are checkpoints and every one of them is damaged.
    """
    paths, problems = _all(folder), []
    for path in paths:
        try:
            return read(path)
        except ValueError as error:
            problems.append(str(error))
            print(f"vitlab: {error}; taking the one before it", file=sys.stderr, flush=True)
    if problems:
        raise ValueError(
            f"no checkpoint in {folder} is whole ({problems[0]}); bring one back from a copy, or delete the "
            "folder to start the training again from step 0"
        )
    return None


def read(path: Path) -> Checkpoint:
    """Read the checkpoint whose folder is `path`.

    Raises:
        ValueError: a file is missing, truncated, changed or no checkpoint's, or holds code; the message names it.
    """
    try:
        sums = paths.read_json(path / SUMS)
        for file in (WEIGHTS, REST):
            if paths.file_hash(path / file) != sums[file]:
                raise ValueError(f"{path / file} is not what was written: its checksum differs")
        state, _ = weights.read(path / WEIGHTS)
        rest = torch.load(path / REST, map_location="cpu", weights_only=True)
        step = rest.get("step") if isinstance(rest, dict) else None
        if type(step) is not int or step < 0:
            raise ValueError(f"{path / REST} is no training's: it should say its step, a whole number from 0")
    except (OSError, RuntimeError, EOFError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no whole checkpoint ({_words(error)})") from error
    except (zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise ValueError(f"{path / REST} holds more than tensors and plain values ({_words(error)})") from error
    return Checkpoint(path, state, rest)


def _all(folder: Path) -> list[Path]:
    """The checkpoints' folders, newest first."""
    return sorted(folder.glob("step_*"), reverse=True)


def _words(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
