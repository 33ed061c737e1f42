"""The training loop (§4.1, Table 3): step, evaluation, early stopping, moving average, resuming, many processes."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab import paths
from vitlab.data.loader import Batches, FolderSet, ImageSet, to_float
from vitlab.models.zoo import forward_flops
from vitlab.training import checkpoint, distributed
from vitlab.training.recipe import Recipe, learning_rate, optimizer_for


class DivergedError(ArithmeticError):
    """The loss or a weight became NaN or infinite."""


class Stopped(KeyboardInterrupt):
    """An interrupt stopped the training at the end of a step: `step` updates are done, `rows` are the rows so far."""

    def __init__(self, step: int, rows: list[dict], saved: Path | None) -> None:
        kept = f"its checkpoint is {saved}: run the same again to resume"
        super().__init__(f"stopped after step {step}; {kept if saved else 'without a folder nothing is kept'}")
        self.step, self.rows = step, rows


@dataclass
class State:
    """How far a training has come: with the weights and the optimizer's state, all that resuming takes."""

    step: int = 0  # updates done
    seconds: float = 0.0  # of training, evaluations apart
    loss_sum: Tensor | float = 0.0  # of the updates since the last row
    rows: list[dict[str, Any]] = field(default_factory=list)  # one for every evaluation
    best: dict[str, Tensor] | None = None  # weights of the best evaluation; with `patience` only


@dataclass(frozen=True)
class Classification:
    """The objective of `train` by labels: classes [B] or, of mixed images, class probabilities [B K]."""

    label_smoothing: float = 0.0

    def loss(self, forward: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean loss of images [B 3 H W]; `forward` is the model."""
        return F.cross_entropy(forward(images).float(), labels, label_smoothing=self.label_smoothing)

    def evaluate(self, model: nn.Module, images: ImageSet | FolderSet, precision: str) -> dict[str, float]:
        """Measure accuracy (0…1) and loss over a validation set."""
        return evaluate(model, images, precision=precision)

    def result(self, model: nn.Module) -> nn.Module:
        """Return the module that the training was for."""
        return model


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    validation: ImageSet | FolderSet | None = None,
    folder: Path | None = None,
    name: str | None = None,
    save_every: int | None = None,
    report: Callable[[dict], None] | None = None,
    identity: Mapping[str, Any] | None = None,
    objective: Any = None,
) -> list[dict]:
    """Train `model` in place, on the device it is on, and return one row for every evaluation.

    Rows: step (updates done), samples, learning_rate (of the last update), train_loss (mean since the last row),
    seconds (training so far), images_per_second (since the last row), flops (so far, a training step as three forward
    passes, a multiply-add as two), peak_memory_gb on a GPU, and val_accuracy, val_loss where there is a validation set.
    `report` is called with every new row. The `objective` is `Classification`, or another with the same methods.

    With a `folder` the log (log.jsonl), a checkpoint every minute or `save_every` steps (the last two are kept) and the
    final weights (model.safetensors) are written there; a killed run resumes from the newest whole checkpoint and ends
    with the same bits as one that was not killed. An interrupt (Ctrl-C, a notebook's stop button) waits for the end of
    the step and its checkpoint; a second one does not. `name`, what `zoo.create` made the model from, makes the weights
    loadable by `zoo.load`. `identity` says by name, in plain values, what else determines the training, such as the
    images. Of several processes (see `distributed.join`) each takes its part of every batch.

    Raises DivergedError where the loss or a weight becomes NaN or infinite; Stopped, a KeyboardInterrupt, at the end of
    the step that was interrupted; ValueError where the checkpoints are of another training or all damaged;
    RuntimeError where another process trains in the folder.
    """
    (rank, n_processes), device = distributed.group(), next(model.parameters()).device
    if recipe.patience is not None and validation is None:
        raise ValueError(f"patience is {recipe.patience} but there is no validation set to stop on; give one")
    if recipe.batch_size % (recipe.accumulate * n_processes):
        raise ValueError(
            f"a batch of {recipe.batch_size} cannot be cut into equal parts for {n_processes} processes with "
            f"accumulate={recipe.accumulate}; choose numbers whose product divides it"
        )
    on_cpu = device.type == "cpu"
    if on_cpu:
        keep_freed_memory()
    objective = objective or Classification(recipe.label_smoothing)
    structure = hashlib.sha256(repr(model).encode()).hexdigest()[:16]  # has sizes and rates of dropout
    known = asdict(recipe) | {"structure of the model": structure, "processes": n_processes}
    known |= {"objective": str(objective), **(identity or {})}
    forward: nn.Module = torch.compile(model) if recipe.compile else model  # type: ignore[assignment]  # gives a module
    if n_processes > 1:
        idle = objective.result(model) is not model  # masked prediction leaves the ViT's own head out
        forward = nn.parallel.DistributedDataParallel(forward, find_unused_parameters=idle)
    optimizer, parameters = optimizer_for(model, recipe), list(model.parameters())
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    checkpoints = None if folder is None else folder / "checkpoints"
    part = recipe.batch_size // (recipe.accumulate * n_processes)  # images that go through the model at once
    schedule: dict[str, Any] = {"base": recipe.learning_rate, "total": recipe.steps, "warmup": recipe.warmup_steps}
    state, rate, flops, saved = State(), 0.0, 0, None  # the rate of the last update, FLOPs of one image's forward pass

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        with autocast(device, recipe.precision):
            return objective.loss(forward, images, labels) / recipe.accumulate

    def check_finite(value: Tensor | float, what: str) -> None:
        if not math.isfinite(value):
            raise DivergedError(
                f"{what} became {float(value)} by step {state.step} at learning rate {rate:.2g}; lower "
                "the learning rate, lengthen the warm-up or clip gradients (grad_clip)"
                + (f". The last checkpoint is {saved}" if saved else "")
            )

    def is_over() -> bool:
        """Tell whether all steps are done, or the last `patience` rows are no better than those before."""
        if recipe.patience and len(state.rows) > recipe.patience:
            accuracy = [row["val_accuracy"] for row in state.rows]
            if max(accuracy[-recipe.patience :]) <= max(accuracy[: -recipe.patience]):
                return True
        return state.step == recipe.steps

    with contextlib.ExitStack() as held:
        if folder is not None and rank == 0:
            held.enter_context(checkpoint.hold(folder))
        held.enter_context(torch.random.fork_rng([] if on_cpu else [device]))
        newest = None if checkpoints is None else checkpoint.newest(checkpoints)
        if newest is not None:
            checkpoint.check_same(newest, model, known, batches)
            model.load_state_dict(newest.weights)
            optimizer.load_state_dict(newest.rest["optimizer"])
            state, saved = State(**{field: newest.rest[field] for field in vars(state)}), newest.path
        model.train()
        if on_cpu and recipe.precision == "bf16":
            # The backward pass of PyTorch's fused attention in bfloat16 takes a CPU several times as long as its steps.
            for module in model.modules():
                if getattr(module, "fused_attn", None) is True:
                    module.fused_attn = False  # type: ignore[assignment]  # a plain value, not a tensor or a module
                    held.callback(setattr, module, "fused_attn", True)
        pool = None
        if on_cpu and n_processes == 1 and not recipe.compile:
            pool = distributed.core_pool(model, lambda: batches(state.step)[0][:2])
        if pool is not None:
            held.enter_context(pool)
        interrupted, minute = held.enter_context(_wait_for_step(n_processes)), time.monotonic() + 60

        while not is_over():
            # --- a step ---
            start = time.perf_counter()
            rate = learning_rate(state.step, decay=recipe.decay, **schedule)
            for parameter_group in optimizer.param_groups:
                parameter_group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            for k in range(recipe.accumulate):
                first = (rank * recipe.accumulate + k) * part
                images, labels = batches(state.step, *(() if part == recipe.batch_size else (first, first + part)))
                flops = flops or forward_flops(model, images[:1])
                # Dropout is a function of seed, step and images: no random state needs to be kept.
                number = ((recipe.seed * 1_000_003 + state.step) * 1_000_003 + first) % 2**63
                torch.default_generator.manual_seed(number)
                if not on_cpu:
                    torch.cuda.manual_seed(number)
                if pool is not None:
                    loss = distributed.backward(pool, loss_of, images, labels, learned)
                else:  # processes add up their gradients after the last part
                    more = k + 1 < recipe.accumulate and n_processes > 1
                    with forward.no_sync() if more else contextlib.nullcontext():
                        loss = loss_of(images, labels)
                        loss.backward()
                state.loss_sum = state.loss_sum + loss.detach()
            if recipe.grad_clip is not None:
                nn.utils.clip_grad_norm_(parameters, recipe.grad_clip)
            optimizer.step()
            state.step += 1
            if on_cpu or state.step % 50 == 0:  # reading the loss makes the program wait for a GPU
                check_finite(state.loss_sum, "the loss")
            state.seconds += time.perf_counter() - start

            if state.step == recipe.steps or recipe.eval_every and state.step % recipe.eval_every == 0:
                # --- a row ---
                start = time.perf_counter()
                check_finite(state.loss_sum, "the loss")  # waits for a GPU to end what it was given: training time
                state.seconds += time.perf_counter() - start
                before = state.rows[-1] if state.rows else {"step": 0, "samples": 0, "seconds": 0.0}
                samples = state.step * recipe.batch_size
                loss_mean = float(state.loss_sum) / (state.step - before["step"])
                if n_processes > 1:
                    loss_mean = float(distributed.total(torch.tensor(loss_mean, device=device))) / n_processes
                row: dict[str, Any] = {
                    "step": state.step,
                    "samples": samples,
                    "learning_rate": rate,
                    "train_loss": loss_mean,
                    "seconds": state.seconds,
                    "images_per_second": (samples - before["samples"]) / max(state.seconds - before["seconds"], 1e-9),
                    "flops": 3 * flops * samples,
                }
                if not on_cpu:
                    row["peak_memory_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
                if validation is not None:
                    metrics = objective.evaluate(model, validation, recipe.precision)
                    row |= {f"val_{metric}": value for metric, value in metrics.items()}
                if recipe.patience and all(row["val_accuracy"] > other["val_accuracy"] for other in state.rows):
                    state.best = {key: each.detach().cpu().clone() for key, each in model.state_dict().items()}
                state.rows.append(row)
                state.loss_sum = 0.0
                if folder is not None and rank == 0:  # rewritten whole: a resumed run makes some rows again
                    with paths.writing(folder / "log.jsonl") as path:
                        path.write_text("".join(json.dumps(row) + "\n" for row in state.rows))
                if report is not None and rank == 0:
                    report(row)

            stopping = interrupted.is_set()
            due = state.step % save_every == 0 if save_every else time.monotonic() > minute
            if checkpoints is not None and n_processes > 1 and not save_every:  # all of them at the same step
                due = bool(distributed.total(torch.tensor(float(due), device=device)))
            if checkpoints is not None and (stopping or is_over() or due):
                minute = time.monotonic() + 60
                check_finite(state.loss_sum, "the loss")
                floats = [weight for weight in model.state_dict().values() if weight.is_floating_point()]
                check_finite(nn.utils.get_total_norm(floats), "the norm of the weights")
                rest = vars(state) | {"loss_sum": float(state.loss_sum)}
                rest |= {"optimizer": optimizer.state_dict(), "identity": known}
                if rank == 0:
                    loadable = name if objective.result(model) is model else None  # else no zoo's model
                    saved = checkpoint.save(checkpoints, model, rest, loadable)
                distributed.wait()
            if stopping:
                model.eval()
                raise Stopped(state.step, state.rows, saved)

        model.eval()
        if state.best is not None:
            model.load_state_dict(state.best)
        if folder is not None:
            if rank == 0:
                with paths.writing(folder / checkpoint.WEIGHTS) as path:
                    checkpoint.save_weights(path, objective.result(model), name, {"step": state.step})
            distributed.wait()
    return state.rows


@torch.inference_mode()
def evaluate(
    model: nn.Module, images: ImageSet | FolderSet, batch_size: int = 250, precision: str = "fp32"
) -> dict[str, float]:
    """Measure top-1 accuracy (0…1) and mean cross-entropy (nats) over all images, shared out to the processes."""
    (rank, n_processes), training, device = distributed.group(), model.training, next(model.parameters()).device
    model.eval()
    counts = torch.zeros(2, dtype=torch.float64, device=device)  # right answers, nats
    for pictures, labels in itertools.islice(images.chunks(batch_size), rank, None, n_processes):
        labels = labels.to(device)
        with autocast(device, precision):
            logits = model(to_float(pictures.to(device)))
        right = (logits.argmax(-1) == labels).sum()
        counts += torch.stack([right.double(), F.cross_entropy(logits.float(), labels, reduction="sum").double()])
    model.train(training)
    right, nats = distributed.total(counts).tolist()
    return {"accuracy": right / len(images), "loss": nats / len(images)}


def untrained_row(model: nn.Module, images: ImageSet | None) -> dict[str, float]:
    """Evaluate a model before its training, where there are images: the row of step 0, before those of `train`."""
    metrics = {} if images is None else evaluate(model, images)
    return {"step": 0, "samples": 0, "seconds": 0.0} | {f"val_{metric}": value for metric, value in metrics.items()}


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Make the context in which a model computes: "fp32", or "bf16" for products in bfloat16 and weights in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def keep_freed_memory() -> None:
    """Let the C library (glibc) keep buffers that it frees, for the next step: a tenth faster on a CPU."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            mallopt(option, 2**31 - 1)


@contextlib.contextmanager
def _wait_for_step(n_processes: int) -> Iterator[threading.Event]:
    """Set the event that is given at the first interrupt (SIGINT) in the body; a second one raises KeyboardInterrupt.

    So does the first in other threads, which receive no signals, and in a group of processes.
    """
    asked, usual = threading.Event(), signal.getsignal(signal.SIGINT)
    if n_processes > 1 or threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield asked
        return

    def wait(number, frame) -> None:
        asked.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, wait)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, usual)
    if asked.is_set():
        raise KeyboardInterrupt
