"""Writing a training's checkpoints, going on from the newest one, and writing the final weights. No section."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from vitlab import paths
from vitlab.models import weights as model_weights
from vitlab.training import checkpoint, cores, optim, processes
from vitlab.training.divergence import DivergedError, check_loss, check_weights
from vitlab.training.recipe import Recipe
from vitlab.training.state import Run, TrainState

FORMAT = 3  # of what a checkpoint holds beside the weights; older ones are refused
_MAY_CHANGE = ("accumulate", "compile")  # between a run and its continuation: the result is the same
_OF_EVALUATIONS = "test images"  # in an identity: they may change as long as no row rests on them
_STRUCTURE = "structure of the model"  # in an identity, as a hash
_PARTS = ("accumulate", "processes")  # how a batch is cut: of no consequence but for what draws random numbers


def identity(model: nn.Module, recipe: Recipe, others: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that determines a training, as plain values by name: two with the same identity are the same.

    The recipe's hyper-parameters; a hash of the model's structure, in which are its sizes and rates of dropout; the
    number of processes; and `others`, which the caller knows, such as the images.

    >>> sorted(set(identity(nn.Linear(2, 1), Recipe(steps=5), {"data": "digits"})) - set(vars(Recipe(steps=5))))
    ['data', 'processes', 'structure of the model']
    """
    structure = hashlib.sha256(repr(model).encode()).hexdigest()[:16]
    known = {_STRUCTURE: structure, "processes": processes.group().size}
    return dataclasses.asdict(recipe) | known | dict(others)


def save(run: Run, state: TrainState) -> None:
    """Write a checkpoint of this step; `state.saved` is then its path.

    Raises DivergedError instead where the loss or a weight is NaN or infinite: no checkpoint holds such weights.
    """
    check_loss(state)
    weights, optimizer = processes.gathered(run.model, run.optimizer, run.parallel)
    check_weights(weights, state)
    rest = vars(state) | {"loss_sum": float(state.loss_sum), "saved": None}
    rest |= {"format": FORMAT, "optimizer": optimizer, "identity": run.identity}
    rest["parallel"] = run.parallel if run.group.size > 1 else "ddp"
    if run.group.writes and run.checkpoints.folder is not None:
        name = run.name if run.objective.result(run.model, weights)[0] is run.model else None  # else no zoo's model
        state.saved = str(checkpoint.save(run.checkpoints.folder, run.model, weights, rest, name=name))
    processes.wait()


def restored(run: Run) -> TrainState:
    """The state of the newest whole checkpoint, its weights put into the model; a new state where there is none.

    Raises ValueError where the checkpoint is of another training, of an older version or of a training that shared its
    model out in another way, and where all checkpoints are damaged.
    """
    newest = None if run.checkpoints.folder is None else checkpoint.newest(run.checkpoints.folder)
    if newest is None:
        return TrainState()
    _check_same(run, newest)
    processes.scatter(run.model, run.optimizer, (newest.weights, newest.rest["optimizer"]), run.parallel)
    state = TrainState(**{each.name: newest.rest[each.name] for each in dataclasses.fields(TrainState)})
    state.saved = str(newest.path)
    if state.ema is not None:
        pairs = zip(state.ema, run.model.parameters(), strict=True)
        state.ema = [value.to(parameter.device) for value, parameter in pairs]
    return state


def _check_same(run: Run, newest: checkpoint.Checkpoint) -> None:
    """Raises ValueError where a checkpoint is not one of this run."""
    rest = newest.rest
    if rest.get("format") != FORMAT:
        raise ValueError(
            f"{newest.path} was written by an older version of vitlab (format {rest.get('format', 1)}, expected "
            f"{FORMAT}), which this one cannot go on from; delete the folder {newest.path.parent}, or give another"
        )
    wanted = {"identity", "optimizer", "parallel", *(each.name for each in dataclasses.fields(TrainState))}
    if missing := sorted(wanted - rest.keys()):
        raise ValueError(
            f"{newest.path} is no checkpoint that a training here has written: it has no {', '.join(missing)}; give "
            "the run another folder, or delete it"
        )
    before, asked = rest["identity"], run.identity
    changed = [name for name in {**before, **asked} if before.get(name) != asked.get(name)]
    free = (*_MAY_CHANGE, "processes", *([] if rest["rows"] else [_OF_EVALUATIONS]))
    differing = [name for name in changed if name not in free]
    other = model_weights.difference(run.model, newest.weights)
    if other and set(differing) <= {_STRUCTURE}:
        raise ValueError(f"{newest.path} is of another model: {other}; give the run another folder, or delete it")
    if differing:
        values = "; ".join(f"{name} was {before.get(name)!r} and is {asked.get(name)!r}" for name in differing)
        raise ValueError(
            f"{newest.path} is of another training: {values}. Train into another folder (--out FOLDER), or begin anew "
            "there (--restart)"
        )
    if (cut := [name for name in _PARTS if name in changed]) and cores.draws(run.model, run.batches(0)[0][:2]):
        values = ", ".join(f"{name} was {before[name]} and is {asked[name]}" for name in cut)
        raise ValueError(
            f"{newest.path}: {values}, and this model draws random numbers (dropout), which are other ones where a "
            "batch is cut in another way; go on with what it was, or train into another folder (--out FOLDER)"
        )
    if (rest["parallel"] == "fsdp") != (run.parallel == "fsdp" and run.group.size > 1):
        raise ValueError(
            f"{newest.path} was written with parallel={rest['parallel']!r}; go on in the same way, or give the run "
            "another folder"
        )


@contextlib.contextmanager
def saved_where_it_fails(run: Run, state: TrainState) -> Iterator[None]:
    """In the body the model is evaluated: where that fails, as on an unreadable image, the training is kept first."""
    try:
        yield
    except DivergedError:
        raise  # such weights are of no use
    except Exception:
        if run.checkpoints.folder is not None and run.group.size == 1:  # of several processes the others do not fail
            save(run, state)
        raise


def finish(run: Run, state: TrainState) -> None:
    """Put the best weights, or their moving average, into the model, and write them where there is a folder."""
    if state.best is not None:
        processes.scatter_weights(run.model, state.best, run.parallel)
    elif state.ema is not None:
        optim.copy_into(run.model, state.ema)
    if run.folder is None:
        return
    weights, _ = processes.gathered(run.model, run.optimizer, run.parallel)
    if run.group.writes:
        kept, weights = run.objective.result(run.model, weights)
        with paths.writing(run.folder / checkpoint.WEIGHTS) as path:
            checkpoint.save_weights(path, kept, weights, run.name, {"step": state.step})
    processes.wait()
