"""The training loop: warm-up and decay, clipping, averaging, early stop, resume, many processes (§4.1, Table 3)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab import files
from vitlab.data.folders import FolderSet
from vitlab.data.loader import Batches, ImageSet
from vitlab.models.vit import lean
from vitlab.training import checkpoint, cores, cost, interrupts, optim, processes, saving
from vitlab.training.evaluate import evaluate
from vitlab.training.processes import Group, Spread
from vitlab.training.recipe import Recipe
from vitlab.training.schedule import learning_rate

_MAY_CHANGE = ("accumulate", "compile")  # of a recipe, between a run and its continuation: the result is the same


class DivergedError(ArithmeticError):
    """The loss became NaN or infinite."""


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
    spread: Spread = "copies",
) -> list[dict]:
    """Train `model` in place, on the device it is on, and return one row for every evaluation.

    Rows: step (updates done), samples, learning_rate (of the last update), train_loss (mean since the last row),
    seconds (training so far), images_per_second (since the last row), flops (so far, a training step as three forward
    passes, a multiply-add as two), peak_memory_gb, and val_accuracy, val_loss where there is a validation set. With
    `patience` the weights of the best evaluation are put back at the end. `report` is called with every new row.

    With a `folder` the log (log.jsonl), a checkpoint every `save_every` steps (the last two are kept) and the final
    weights (model.safetensors) are written there, and a killed run goes on from the newest whole checkpoint. Batches
    are functions of the step and so is every random draw, so it ends with the same bits as one that was not killed.
    An interrupt (Ctrl-C, a notebook's stop button) waits for the end of the step and leaves a checkpoint of it there; a
    second interrupt does not wait. `name`, what `zoo.create` made the model from, makes the weights loadable by
    `zoo.load`. Without a folder, checkpoints are kept where the training is part of a run (see `saving.within`).

    In a process started by torchrun (see `processes.joined`) each process takes its part of every batch; `spread` says
    whether each holds the whole model or a share of it. The first one writes the files.

    Raises DivergedError where the loss becomes NaN or infinite, naming the step, the learning rate and the last
    checkpoint; interrupts.Stopped, a KeyboardInterrupt, at the end of the step that was interrupted; MemoryError where
    a batch does not fit, naming what does; ValueError where `patience` is set without a validation set, the batch
    cannot be shared out, or the checkpoints are of another recipe or all damaged.

    >>> from vitlab.data.world import World, stream
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> rows = train(model, stream(World(image_size=8), 16), Recipe(steps=5, batch_size=16))
    >>> rows[-1]["step"], rows[-1]["samples"]
    (5, 80)
    """
    group = processes.group()
    _check(recipe, validation, group, spread)
    device = next(model.parameters()).device
    if device.type == "cpu":
        cost.keep_freed_memory()
    compiled = torch.compile(model) if recipe.compile else model
    forward = processes.spread(model, compiled, spread)
    optimizer = optim.optimizer_for(model, recipe)
    state = {"step": 0, "seconds": 0.0, "learning_rate": 0.0, "loss_sum": 0.0, "loss_steps": 0, "flops": 0}
    state |= {"rows": [], "best": None, "average": None, "saved": None}
    with contextlib.ExitStack() as held:
        held.enter_context(_held(folder, group))
        held.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        saves = saving.chosen(folder, save_every, alone=group.size == 1)
        if saves.folder is not None:
            _restore(saves.folder, state, model, optimizer, recipe, group, spread)
        model.train()
        held.enter_context(lean(model))
        pool = None
        if group.size == 1 and device.type == "cpu" and state["step"] < recipe.steps and not recipe.compile:
            pool = held.enter_context(cores.side_by_side(model, lambda: batches(state["step"])[0][:2]))
        asked = held.enter_context(interrupts.waiting(group))
        while state["step"] < recipe.steps and not _patience_is_over(state["rows"], recipe):
            _advance(state, model, forward, optimizer, batches, recipe, device, group, pool)
            step = state["step"]
            if step == recipe.steps or (recipe.eval_every and step % recipe.eval_every == 0):
                row = _row(state, model, recipe, validation, device, group)
                _keep_best(state, model, optimizer, recipe, spread)
                if folder is not None and group.writes:
                    _write_log(folder, state["rows"])
                if report is not None and group.writes:
                    report(row)
            stopping = asked.is_set()
            if saves.due(step, last=step == recipe.steps) or (stopping and saves.folder is not None):
                _save(saves.folder, state, model, optimizer, recipe, name, group, spread)
            if stopping:
                model.eval()
                raise interrupts.Stopped(step, state["rows"], state["saved"])
        model.eval()
        _finish(folder, state, model, optimizer, name, group, spread)
    return state["rows"]


def _check(recipe: Recipe, validation: ImageSet | FolderSet | None, group: Group, spread: Spread) -> None:
    if recipe.patience is not None and validation is None:
        raise ValueError(f"patience is {recipe.patience} but there is no validation set to stop on; give one")
    if recipe.batch_size % (recipe.accumulate * group.size):
        raise ValueError(
            f"a batch of {recipe.batch_size} cannot be cut into equal parts for {group.size} processes with "
            f"accumulate={recipe.accumulate}; choose numbers whose product divides it"
        )
    if recipe.average is not None and spread == "shards" and group.size > 1:
        raise ValueError(f"average={recipe.average} is for whole models; use spread='copies', or average=None")


@contextlib.contextmanager
def _held(folder: Path | None, group: Group) -> Iterator[None]:
    """The folder, held against another training."""
    if folder is None or not group.writes:
        yield
        return
    with files.lock(folder, "training", wait=False) as held:
        if not held:
            raise RuntimeError(f"another process is training in {folder}; wait for it, or give another folder")
        yield


def _advance(state, model, forward, optimizer, batches: Batches, recipe: Recipe, device, group: Group, pool) -> None:
    """One update, from this process's part of the batch, in `accumulate` parts, each in `pool`'s threads if there."""
    start = time.perf_counter()
    step = state["step"]
    rate = learning_rate(
        step, base=recipe.learning_rate, total=recipe.steps, warmup=recipe.warmup_steps, decay=recipe.decay
    )
    for settings in optimizer.param_groups:
        settings["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    part = recipe.batch_size // (recipe.accumulate * group.size)
    starts = range(group.rank * recipe.accumulate * part, (group.rank + 1) * recipe.accumulate * part, part)

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return _loss(forward, images, labels, recipe, device) / recipe.accumulate

    def backward(n: int) -> None:
        loss_of(*batches(step, 0, n)).backward()
        optimizer.zero_grad(set_to_none=True)

    with cost.explained(part, recipe.batch_size // group.size, backward):
        for first in starts:
            whole = part == recipe.batch_size
            images, labels = batches(step) if whole else batches(step, first, first + part)
            state["flops"] = state["flops"] or cost.forward_flops(model, images[:1])
            _seed_draws(recipe.seed, step, first, device)
            if pool is not None:
                trained = [p for p in model.parameters() if p.requires_grad]
                loss = cores.backward(pool, loss_of, images, labels, trained)
            else:
                with contextlib.nullcontext() if first == starts[-1] else processes.without_exchange(forward):
                    loss = loss_of(images, labels)
                    loss.backward()
            state["loss_sum"] = state["loss_sum"] + loss.detach()
    if recipe.grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
    optimizer.step()
    if recipe.average is not None:
        state["average"] = state["average"] or [p.detach().clone() for p in model.parameters()]
        optim.update_average(state["average"], model, recipe.average)
    state["step"] += 1
    state["learning_rate"] = rate
    state["loss_steps"] += 1
    if device.type == "cpu" or state["step"] % 50 == 0:  # a look costs a GPU a wait
        _check_finite(state)
    state["seconds"] += time.perf_counter() - start


def _loss(forward, images: Tensor, labels: Tensor, recipe: Recipe, device: torch.device) -> Tensor:
    """Mean cross-entropy; labels are classes, or shares of classes where images were mixed."""
    with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        logits = forward(images)
    return F.cross_entropy(logits.float(), labels, label_smoothing=recipe.label_smoothing)


def _seed_draws(seed: int, step: int, first: int, device: torch.device) -> None:
    """Make dropout a function of the recipe's seed, the step and the images: no random state needs to be kept."""
    number = ((seed * 1_000_003 + step) * 1_000_003 + first) % 2**63
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


def _check_finite(state: dict) -> None:
    total = float(state["loss_sum"])
    if not math.isfinite(total):
        raise DivergedError(
            f"the loss became {total} by step {state['step']} at learning rate {state['learning_rate']:.2g}; "
            "lower the learning rate, lengthen the warm-up or clip gradients (grad_clip)"
            + (f". The last checkpoint is {state['saved']}" if state["saved"] else "")
        )


def _row(state: dict, model, recipe: Recipe, validation: ImageSet | FolderSet | None, device, group: Group) -> dict:
    """Evaluate and append the row."""
    start = time.perf_counter()
    _check_finite(state)  # waits for a GPU to end what it was given: that is training time
    state["seconds"] += time.perf_counter() - start
    before = state["rows"][-1] if state["rows"] else {"samples": 0, "seconds": 0.0}
    samples = state["step"] * recipe.batch_size
    row = {
        "step": state["step"],
        "samples": samples,
        "learning_rate": state["learning_rate"],
        "train_loss": float(state["loss_sum"]) / max(1, state["loss_steps"]),
        "seconds": state["seconds"],
        "images_per_second": (samples - before["samples"]) / max(state["seconds"] - before["seconds"], 1e-9),
        "flops": 3 * state["flops"] * samples,
        "peak_memory_gb": cost.peak_gigabytes(device),
    }
    if group.size > 1:
        row["train_loss"] = float(processes.total(torch.tensor(row["train_loss"], device=device))) / group.size
    state["loss_sum"], state["loss_steps"] = 0.0, 0
    if validation is not None:
        with optim.averaged(model, state["average"]):
            found = evaluate(model, validation, precision=recipe.precision, group=group)
        row |= {f"val_{metric}": value for metric, value in found.items()}
    state["rows"].append(row)
    return row


def _keep_best(state: dict, model, optimizer, recipe: Recipe, spread: Spread) -> None:
    """Keep the weights if the last row is the best so far."""
    *before, row = state["rows"]
    if recipe.patience is not None and all(row["val_accuracy"] > other["val_accuracy"] for other in before):
        with optim.averaged(model, state["average"]):
            weights, _ = processes.gathered(model, optimizer, spread)
            state["best"] = {name: value.detach().cpu().clone() for name, value in weights.items()}


def _patience_is_over(rows: list[dict], recipe: Recipe) -> bool:
    """Whether the last `patience` evaluations brought nothing better than the ones before them."""
    if recipe.patience is None or len(rows) <= recipe.patience:
        return False
    accuracy = [row["val_accuracy"] for row in rows]
    return max(accuracy[-recipe.patience :]) <= max(accuracy[: -recipe.patience])


def _write_log(folder: Path, rows: list[dict]) -> None:
    """The log is rewritten whole: a resumed run never leaves rows it is about to make again."""
    with files.writing(folder / "log.jsonl") as path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _save(folder: Path, state: dict, model, optimizer, recipe: Recipe, name, group: Group, spread: Spread) -> None:
    """A checkpoint, of finite weights only: loss and weights are looked at first."""
    _check_finite(state)
    weights, optimiser = processes.gathered(model, optimizer, spread)
    if not math.isfinite(float(nn.utils.get_total_norm([w for w in weights.values() if w.is_floating_point()]))):
        raise DivergedError(
            f"a weight became NaN or infinite by step {state['step']} at learning rate {state['learning_rate']:.2g}; "
            "lower the learning rate, lengthen the warm-up or clip gradients (grad_clip)"
        )
    rest = dict(state) | {"optimizer": optimiser, "recipe": dataclasses.asdict(recipe)}
    rest |= {"loss_sum": float(state["loss_sum"]), "saved": None}
    rest["spread"] = spread if group.size > 1 else "copies"
    if group.writes:
        state["saved"] = str(checkpoint.save(folder, model, weights, rest, name=name))
    processes.wait()


def _restore(folder: Path, state: dict, model, optimizer, recipe: Recipe, group: Group, spread: Spread) -> None:
    found = checkpoint.newest(folder)
    if found is None:
        return
    asked, before = dataclasses.asdict(recipe), found.rest["recipe"]
    if changed := [name for name in asked if before.get(name) != asked[name] and name not in _MAY_CHANGE]:
        values = ", ".join(f"{name} was {before.get(name)!r} and is {asked[name]!r}" for name in changed)
        raise ValueError(f"{found.path} is of another recipe: {values}; give the run another folder, or delete it")
    if (found.rest["spread"] == "shards") != (spread == "shards" and group.size > 1):
        raise ValueError(
            f"{found.path} was written with spread={found.rest['spread']!r}; go on in the same way, or give the run "
            "another folder"
        )
    processes.scatter(model, optimizer, (found.weights, found.rest["optimizer"]), spread)
    state.update({name: found.rest[name] for name in state}, saved=str(found.path))
    if state["average"] is not None:
        state["average"] = [a.to(p.device) for a, p in zip(state["average"], model.parameters(), strict=True)]


def _finish(folder: Path | None, state: dict, model, optimizer, name, group: Group, spread: Spread) -> None:
    """Put the best or the averaged weights into the model, and write them."""
    if state["best"] is not None:
        processes.scatter_weights(model, state["best"], spread)
    elif state["average"] is not None:
        optim.put(model, state["average"])
    if folder is None:
        return
    weights, _ = processes.gathered(model, optimizer, spread)
    if group.writes:
        with files.writing(folder / checkpoint.WEIGHTS) as path:
            checkpoint.save_weights(path, model, weights, name, {"step": state["step"]})
    processes.wait()
