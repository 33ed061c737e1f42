"""Checkpoints on disk: weights, what else resuming takes, and whose training they are."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vitlab import paths
from vitlab.data.loader import Batches
from vitlab.models import weights, zoo
from vitlab.training import distributed

WEIGHTS, REST = "model.safetensors", "resume.pt"
FORMAT = 3  # of `REST`; others are refused


class Checkpoint(NamedTuple):
    """A whole checkpoint that was read from disk."""

    path: Path
    weights: dict[str, Tensor]
    rest: dict[str, Any]  # tensors and plain values: optimizer, counters, rows, identity


def save_weights(path: Path, model: nn.Module, name: str | None, about: dict) -> None:
    """Write weights as safetensors; where `name` is what `zoo.create` made the model from, `zoo.load` can read them."""
    if name is None:
        save_file({key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}, path)
    else:
        zoo.save(path, model, name, about)


def save(folder: Path, model: nn.Module, rest: dict[str, Any], name: str | None = None) -> Path:
    """Write the checkpoint of step `rest["step"]` into `folder`, whole or not at all; delete all but the last two."""
    path = folder / f"step_{rest['step']:08d}"
    with paths.writing(path, folder=True) as temporary:
        save_weights(temporary / WEIGHTS, model, name, {"step": rest["step"]})
        with open(temporary / REST, "wb") as handle:  # Python's: it says that the disk is full, where torch's does not
            torch.save(rest | {"format": FORMAT}, handle)
    for old in sorted(folder.glob("step_*"))[:-2]:
        shutil.rmtree(old, ignore_errors=True)
    return path


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep another training out of a folder (RuntimeError), and remove what a killed one half wrote there."""
    with paths.lock(folder, "training", wait=False) as held:
        if not held:
            raise RuntimeError(f"another process is training in {folder}; wait for it, or give another folder")
        for left in (folder / "checkpoints").glob(".partial-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def newest(folder: Path) -> Checkpoint | None:
    """Read the newest whole checkpoint in `folder`, None without any; ValueError where all of them are damaged."""
    problems = []
    for path in sorted(folder.glob("step_*"), reverse=True):
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
    """Read a checkpoint's folder, unpickling tensors and plain values alone; ValueError where it is not whole."""
    try:
        state, _ = weights.read(path / WEIGHTS)
        rest = torch.load(path / REST, map_location="cpu", weights_only=True)
        if not isinstance(rest, dict) or rest.get("format") != FORMAT:
            raise ValueError(f"{path} was written by another version of vitlab, from which this one cannot resume")
    except (OSError, RuntimeError, EOFError, KeyError, TypeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} is no whole checkpoint ({first})") from error
    except (zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise ValueError(f"{path / REST} holds more than tensors and plain values") from error
    return Checkpoint(path, state, rest)


def check_same(found: Checkpoint, model: nn.Module, asked: Mapping[str, Any], batches: Batches) -> None:
    """Raise ValueError where a checkpoint is not of the training that `asked` determines.

    The cut of a batch may change, but not where random numbers depend on it; test images, while no row rests on them.
    """
    before = found.rest["identity"]
    changed = [name for name in {**before, **asked} if before.get(name) != asked.get(name)]
    free = {"compile"} | (set() if found.rest["rows"] else {"test images"})
    cut = {"accumulate", "processes"}
    free |= set() if cut.intersection(changed) and distributed.draws(model, batches(0)[0][:2]) else cut
    if differing := [name for name in changed if name not in free]:
        values = "; ".join(f"{name} was {before.get(name)!r} and is {asked.get(name)!r}" for name in differing)
        raise ValueError(
            f"{found.path} is of another training: {values}. Train into another folder (--out FOLDER), or remove it"
        )
