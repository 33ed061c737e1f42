"""Writing a training's checkpoints, going on from the newest one, and writing the final weights. No section."""

from __future__ import annotations

import dataclasses

from vitlab import files
from vitlab.training import checkpoint, optim, processes
from vitlab.training.divergence import check_loss, check_weights
from vitlab.training.state import Run, TrainState

FORMAT = 2  # of what a checkpoint holds beside the weights; older ones are refused
_MAY_CHANGE = ("accumulate", "compile")  # of a recipe, between a run and its continuation: the result is the same


def save(run: Run, state: TrainState) -> None:
    """Write a checkpoint of this step; `state.saved` is then its path.

    Raises DivergedError instead where the loss or a weight is NaN or infinite: no checkpoint holds such weights.
    """
    check_loss(state)
    weights, optimizer = processes.gathered(run.model, run.optimizer, run.parallel)
    check_weights(weights, state)
    rest = vars(state) | {"loss_sum": float(state.loss_sum), "saved": None}
    rest |= {"format": FORMAT, "optimizer": optimizer, "recipe": dataclasses.asdict(run.recipe)}
    rest["parallel"] = run.parallel if run.group.size > 1 else "ddp"
    if run.group.writes and run.checkpoints.folder is not None:
        state.saved = str(checkpoint.save(run.checkpoints.folder, run.model, weights, rest, name=run.name))
    processes.wait()


def restored(run: Run) -> TrainState:
    """The state of the newest whole checkpoint, its weights put into the model; a new state where there is none.

    Raises ValueError where the checkpoint is of another recipe, of an older version or of a training that shared its
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
    asked, before = dataclasses.asdict(run.recipe), rest["recipe"]
    if changed := [name for name in asked if before.get(name) != asked[name] and name not in _MAY_CHANGE]:
        values = ", ".join(f"{name} was {before.get(name)!r} and is {asked[name]!r}" for name in changed)
        raise ValueError(f"{newest.path} is of another recipe: {values}; give the run another folder, or delete it")
    if (rest["parallel"] == "fsdp") != (run.parallel == "fsdp" and run.group.size > 1):
        raise ValueError(
            f"{newest.path} was written with parallel={rest['parallel']!r}; go on in the same way, or give the run "
            "another folder"
        )


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
        with files.writing(run.folder / checkpoint.WEIGHTS) as path:
            checkpoint.save_weights(path, run.model, weights, run.name, {"step": state.step})
    processes.wait()
