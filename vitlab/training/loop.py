"""The training loop: warm-up and decay, clipping, averaging, early stop, resume, many processes (§4.1, Table 3)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab import paths
from vitlab.data.loader import Batches, FolderSet, ImageSet
from vitlab.models.zoo import forward_flops
from vitlab.training import cores, cost, interrupts, optim, processes, resume, rows
from vitlab.training.checkpoint_plan import checkpoint_plan
from vitlab.training.divergence import check_loss
from vitlab.training.objective import Classification, Objective
from vitlab.training.precision import autocast, open_attention
from vitlab.training.processes import Group, Parallel
from vitlab.training.recipe import Recipe
from vitlab.training.schedule import learning_rate
from vitlab.training.state import Run, TrainState


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    validation: ImageSet | FolderSet | None = None,
    folder: Path | None = None,
    name: str | None = None,
    save_every: int = 500,
    report: Callable[[dict], None] | None = None,
    parallel: Parallel = "ddp",
    identity: Mapping[str, Any] | None = None,
    objective: Objective | None = None,
) -> list[dict]:
    """Train `model` in place, on the device it is on, and return one row for every evaluation.

    The `objective` is to classify by labels, or another one, such as `masked.MaskedPrediction`.

    Rows: step (updates done), samples, learning_rate (of the last update), train_loss (mean since the last row),
    seconds (training so far), images_per_second (since the last row), flops (so far, a training step as three forward
    passes, a multiply-add as two), peak_memory_gb, and val_accuracy, val_loss where there is a validation set. With
    `patience` the weights of the best evaluation are put back at the end. `report` is called with every new row.

    With a `folder` the log (log.jsonl), a checkpoint every `save_every` steps (the last two are kept) and the final
    weights (model.safetensors) are written there, and a killed run goes on from the newest whole checkpoint. Batches
    are functions of the step and so is every random draw, so it ends with the same bits as one that was not killed.
    An interrupt (Ctrl-C, a notebook's stop button) waits for the end of the step and leaves a checkpoint of it there; a
    second interrupt does not wait. `name`, what `zoo.create` made the model from, makes the weights loadable by
    `zoo.load`. Without a folder, a training that is part of an experiment has checkpoints with the experiment's
    (see `checkpoint_plan.checkpoints_in`). A training goes on only from checkpoints of the same recipe, the same
    structure of the model and the same `identity`: plain values by name that say what else determines it, such as the
    images (see `session.identity`). Where an evaluation fails, a checkpoint is written first.

    In a process started by torchrun (see `processes.joined`) each process takes its part of every batch; `parallel`
    says whether each holds the whole model ("ddp") or a shard of it ("fsdp"). The first one writes the files.

    Raises DivergedError where the loss becomes NaN or infinite, naming the step, the learning rate and the last
    checkpoint; interrupts.Stopped, a KeyboardInterrupt, at the end of the step that was interrupted; MemoryError where
    a batch does not fit, naming what does; ValueError where `patience` is set without a validation set, the batch
    cannot be shared out, or the checkpoints are of another training, of an older version or all damaged.

    >>> from vitlab.data.world import World, stream
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> rows = train(model, stream(World(image_size=8), 16), Recipe(steps=5, batch_size=16))
    >>> rows[-1]["step"], rows[-1]["samples"]
    (5, 80)
    """
    group, device = processes.group(), next(model.parameters()).device
    _check(recipe, validation, group, parallel)
    if device.type == "cpu":
        cost.keep_freed_memory()
    objective = objective or Classification(recipe.label_smoothing)
    known = resume.identity(model, recipe, {"objective": str(objective)} | dict(identity or {}))
    whole: nn.Module = torch.compile(model) if recipe.compile else model  # type: ignore[assignment]  # gives a module
    forward = processes.distributed(model, whole, parallel)
    optimizer, plan = optim.optimizer_for(model, recipe), checkpoint_plan(folder, save_every, group.size == 1)
    run = Run(
        model,
        forward,
        optimizer,
        batches,
        recipe,
        objective,
        validation,
        device,
        group,
        parallel,
        folder,
        plan,
        name,
        known,
    )
    with contextlib.ExitStack() as held:
        held.enter_context(_locked(folder, group))
        held.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        state = resume.restored(run)
        model.train()
        held.enter_context(open_attention(model, device, recipe.precision))
        run = dataclasses.replace(run, pool=held.enter_context(_threads(run, state)))
        interrupted = held.enter_context(interrupts.waiting(group))
        while not rows.are_complete(state, recipe):
            if not rows.is_due(state, recipe):  # it is where the evaluation of a restored training had failed
                _update(run, state)
            if rows.is_due(state, recipe):
                with resume.saved_where_it_fails(run, state):
                    row = rows.add(run, state)
                if folder is not None and group.writes:
                    rows.write_log(folder, state.rows)
                if report is not None and group.writes:
                    report(row)
            stopping = interrupted.is_set()
            ended = rows.are_complete(state, recipe)
            if plan.due(state.step, ended) or (stopping and plan.folder is not None):
                resume.save(run, state)
            if stopping:
                model.eval()
                raise interrupts.Stopped(state.step, state.rows, state.saved)
        model.eval()
        resume.finish(run, state)
    return state.rows


def _check(recipe: Recipe, validation: ImageSet | FolderSet | None, group: Group, parallel: Parallel) -> None:
    if recipe.patience is not None and validation is None:
        raise ValueError(f"patience is {recipe.patience} but there is no validation set to stop on; give one")
    if recipe.batch_size % (recipe.accumulate * group.size):
        raise ValueError(
            f"a batch of {recipe.batch_size} cannot be cut into equal parts for {group.size} processes with "
            f"accumulate={recipe.accumulate}; choose numbers whose product divides it"
        )
    processes.check_parallel(parallel)
    if recipe.ema_decay is not None and parallel == "fsdp" and group.size > 1:
        raise ValueError(f"ema_decay={recipe.ema_decay} is for whole models; use parallel='ddp', or ema_decay=None")


@contextlib.contextmanager
def _locked(folder: Path | None, group: Group) -> Iterator[None]:
    """The folder, held against another training. Raises RuntimeError where another one has it."""
    if folder is None or not group.writes:
        yield
        return
    with paths.lock(folder, "training", wait=False) as held:
        if not held:
            raise RuntimeError(f"another process is training in {folder}; wait for it, or give another folder")
        yield


def _threads(run: Run, state: TrainState) -> contextlib.AbstractContextManager:
    """The threads that compute parts of a batch side by side; None where there is nothing for them to do."""
    finished = state.step == run.recipe.steps
    if run.group.size > 1 or run.device.type != "cpu" or run.recipe.compile or finished:
        return contextlib.nullcontext()
    return cores.side_by_side(run.model, lambda: run.batches(state.step)[0][:2])


def _update(run: Run, state: TrainState) -> None:
    """One update, from this process's part of the batch: in `accumulate` parts, each in `run.pool`'s threads if any."""
    start, recipe = time.perf_counter(), run.recipe
    state.learning_rate = _set_learning_rate(run, state.step)
    run.optimizer.zero_grad(set_to_none=True)
    with cost.explained(run.part, recipe.batch_size // run.group.size, functools.partial(_try, run, state.step)):
        for first in run.starts:
            whole = run.part == recipe.batch_size
            images, labels = run.batches(state.step, *(() if whole else (first, first + run.part)))
            state.flops = state.flops or forward_flops(run.model, images[:1])
            _seed_draws(recipe.seed, state.step, first, run.device)
            if run.pool is not None:
                trained = [p for p in run.model.parameters() if p.requires_grad]
                loss = cores.backward(run.pool, functools.partial(_loss, run), images, labels, trained)
            else:
                more = first != run.starts[-1]
                with processes.without_exchange(run.forward) if more else contextlib.nullcontext():
                    loss = _loss(run, images, labels)
                    loss.backward()
            state.loss_sum = state.loss_sum + loss.detach()
    if recipe.grad_clip is not None:
        nn.utils.clip_grad_norm_(run.model.parameters(), recipe.grad_clip)
    run.optimizer.step()
    if recipe.ema_decay is not None:
        state.ema = state.ema or [p.detach().clone() for p in run.model.parameters()]
        optim.update_ema(state.ema, run.model, recipe.ema_decay)
    state.step += 1
    state.loss_steps += 1
    if run.device.type == "cpu" or state.step % 50 == 0:  # reading the loss makes the program wait for a GPU
        check_loss(state)
    state.seconds += time.perf_counter() - start


def _set_learning_rate(run: Run, step: int) -> float:
    """Give the optimiser the learning rate of this step, and return it."""
    recipe = run.recipe
    rate = learning_rate(
        step, base=recipe.learning_rate, total=recipe.steps, warmup=recipe.warmup_steps, decay=recipe.decay
    )
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    return rate


def _loss(run: Run, images: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of these images, as its share of the batch's."""
    with autocast(run.device, run.recipe.precision):
        return run.objective.loss(run.forward, images, labels) / run.recipe.accumulate


def _try(run: Run, step: int, n: int) -> None:
    """Take the first `n` images of a batch forward and back: whether memory is enough for so many at once."""
    _loss(run, *run.batches(step, 0, n)).backward()
    run.optimizer.zero_grad(set_to_none=True)


def _seed_draws(seed: int, step: int, first: int, device: torch.device) -> None:
    """Make dropout a function of the recipe's seed, the step and the images: no random state needs to be kept."""
    number = ((seed * 1_000_003 + step) * 1_000_003 + first) % 2**63
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)
