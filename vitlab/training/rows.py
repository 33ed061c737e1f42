"""The rows of a training, one for every evaluation: how they are made and logged, the best, early stopping (§4.1)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from vitlab import paths
from vitlab.training import cost, optim, processes
from vitlab.training.divergence import check_loss
from vitlab.training.recipe import Recipe
from vitlab.training.state import Run, TrainState

Row = dict[str, Any]


def add(run: Run, state: TrainState) -> Row:
    """Evaluate the model, append the row to `state.rows` and return it; with `patience`, keep the weights of the best.

    Raises DivergedError where the loss has become NaN or infinite.
    """
    start = time.perf_counter()
    check_loss(state)  # waits for a GPU to end what it was given: that is training time
    state.seconds += time.perf_counter() - start
    before = state.rows[-1] if state.rows else {"samples": 0, "seconds": 0.0}
    samples = state.step * run.recipe.batch_size
    row = {
        "step": state.step,
        "samples": samples,
        "learning_rate": state.learning_rate,
        "train_loss": float(state.loss_sum) / max(1, state.loss_steps),
        "seconds": state.seconds,
        "images_per_second": (samples - before["samples"]) / max(state.seconds - before["seconds"], 1e-9),
        "flops": 3 * state.flops * samples,
        "peak_memory_gb": cost.peak_gigabytes(run.device),
    }
    if run.group.size > 1:
        loss = torch.tensor(row["train_loss"], device=run.device)
        row["train_loss"] = float(processes.total(loss)) / run.group.size
    state.rows.append(row | _validated(run, state))
    state.loss_sum, state.loss_steps = 0.0, 0
    _keep_best(run, state)
    return state.rows[-1]


def _validated(run: Run, state: TrainState) -> Row:
    """val_accuracy and val_loss, where there is a validation set."""
    if run.validation is None:
        return {}
    with optim.ema_weights(run.model, state.ema):
        metrics = run.objective.evaluate(run.model, run.validation, run.recipe.precision, run.group)
    return {f"val_{metric}": value for metric, value in metrics.items()}


def _keep_best(run: Run, state: TrainState) -> None:
    """Keep the weights if the last row is the best so far."""
    if run.recipe.patience is None:
        return
    *before, row = state.rows
    if all(row["val_accuracy"] > other["val_accuracy"] for other in before):
        with optim.ema_weights(run.model, state.ema):
            weights, _ = processes.gathered(run.model, run.optimizer, run.parallel)
            state.best = {name: value.detach().cpu().clone() for name, value in weights.items()}


def is_due(state: TrainState, recipe: Recipe) -> bool:
    """Whether there is to be a row of the updates done so far, and is none yet.

    >>> [is_due(TrainState(step), Recipe(steps=5, eval_every=2)) for step in (0, 1, 2, 5)]
    [False, False, True, True]
    """
    wanted = state.step == recipe.steps or (recipe.eval_every > 0 and state.step > 0 == state.step % recipe.eval_every)
    return wanted and not (state.rows and state.rows[-1]["step"] == state.step)


def are_complete(state: TrainState, recipe: Recipe) -> bool:
    """Whether the training has ended, with its last row: after its last step, or early.

    >>> [are_complete(TrainState(step=5, rows=rows), Recipe(steps=5)) for rows in ([], [{"step": 5}])]
    [False, True]
    """
    return (state.step == recipe.steps and not is_due(state, recipe)) or patience_is_over(state.rows, recipe)


def patience_is_over(rows: list[Row], recipe: Recipe) -> bool:
    """Whether the last `patience` evaluations brought nothing better than the ones before them.

    >>> accuracies = [{"val_accuracy": accuracy} for accuracy in (0.5, 0.4, 0.5)]
    >>> [patience_is_over(accuracies, Recipe(steps=9, eval_every=1, patience=patience)) for patience in (2, 3)]
    [True, False]
    """
    if recipe.patience is None or len(rows) <= recipe.patience:
        return False
    accuracy = [row["val_accuracy"] for row in rows]
    return max(accuracy[-recipe.patience :]) <= max(accuracy[: -recipe.patience])


def write_log(folder: Path, rows: list[Row]) -> None:
    """Write log.jsonl, a row a line. It is rewritten whole, so a resumed run never leaves rows that it makes again.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_log(folder, [{"step": 1}, {"step": 2}])
    >>> (folder / "log.jsonl").read_text().splitlines()
    ['{"step": 1}', '{"step": 2}']
    """
    with paths.writing(folder / "log.jsonl") as path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
