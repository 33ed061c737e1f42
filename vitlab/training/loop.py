"""The training loop: AdamW, warm-up and decay, clipping, early stop, resume (§4.1, Table 3)."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from vitlab import files
from vitlab.data.loader import Batches, ImageSet, to_float
from vitlab.training.checkpoint import load_resume_state, save_resume_state
from vitlab.training.schedule import Decay, learning_rate


@dataclass(frozen=True)
class Recipe:
    """How to train: the columns of Table 3, plus when to look and when to stop.

    >>> Recipe(steps=1000).samples
    128000
    """

    steps: int
    batch_size: int = 128
    learning_rate: float = 1e-3  # at the end of the warm-up
    warmup_steps: int = 0
    decay: Decay = "cosine"
    weight_decay: float = 0.1  # decoupled, on matrices only
    betas: tuple[float, float] = (0.9, 0.999)
    grad_clip: float | None = 1.0  # global norm
    eval_every: int = 0  # steps between evaluations; 0: at the end only
    patience: int | None = None  # evaluations without a new best before stopping; None: never stop early
    seed: int = 0  # of dropout

    @property
    def samples(self) -> int:
        """Images seen in a full run."""
        return self.steps * self.batch_size

    def __post_init__(self):
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(f"{self.steps} steps of {self.batch_size} images; both must be at least 1")
        if self.patience is not None and not self.eval_every:
            raise ValueError(f"patience is {self.patience} but eval_every is 0; early stopping needs evaluations")
        learning_rate(0, base=1.0, total=self.steps, warmup=self.warmup_steps, decay=self.decay)  # checks


class DivergedError(ArithmeticError):
    """The loss became NaN or infinite."""


def default_device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW that decays matrices and convolution kernels, not biases, norms, class token or positions."""
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim >= 2 and name.split(".")[-1] not in ("pos_embed", "cls_token", "gain")
        (decayed if matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)


@torch.inference_mode()
def evaluate(model: nn.Module, images: ImageSet, batch_size: int = 250) -> dict[str, float]:
    """Top-1 accuracy (0…1) and mean cross-entropy (nats) over every image, the last partial batch included."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    correct, loss = 0, 0.0
    for start in range(0, len(images), batch_size):
        labels = images.labels[start : start + batch_size].to(device)
        logits = model(to_float(images.images[start : start + batch_size].to(device)))
        correct += int((logits.argmax(-1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    model.train(training)
    return {"accuracy": correct / len(images), "loss": loss / len(images)}


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    validation: ImageSet | None = None,
    folder: Path | None = None,
    save_every: int = 500,
    report: Callable[[dict], None] | None = None,
) -> list[dict]:
    """Train `model` in place, on the device it is on, and return one row for every evaluation.

    Rows: step (updates done), samples, learning_rate (of the last update), train_loss (mean since the last row),
    seconds (training so far), and val_accuracy, val_loss where there is a validation set. With `patience` the weights
    of the best evaluation are put back at the end. With a `folder` the log (log.jsonl) and the resume state
    (resume.pt, every `save_every` steps) are kept there, and a killed run goes on from them: batches are functions of
    the step, so it sees what it would have seen. `report` is called with every new row.

    Raises DivergedError where the loss becomes NaN or infinite, naming the step and the learning rate, and ValueError
    where `patience` is set without a validation set, or the state in `folder` is of another recipe.

    >>> from vitlab.data.world import World, stream
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    >>> rows = train(model, stream(World(image_size=8), 16), Recipe(steps=5, batch_size=16))
    >>> rows[-1]["step"], rows[-1]["samples"]
    (5, 80)
    """
    if recipe.patience is not None and validation is None:
        raise ValueError(f"patience is {recipe.patience} but there is no validation set to stop on; give one")
    optimizer = adamw(model, recipe)
    device = next(model.parameters()).device
    state = {"step": 0, "seconds": 0.0, "learning_rate": 0.0, "loss_sum": 0.0, "loss_steps": 0}
    state |= {"rows": [], "best": None}
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        if folder is not None and (folder / "resume.pt").exists():
            _restore(folder / "resume.pt", state, model, optimizer, recipe)
        model.train()
        while state["step"] < recipe.steps and not _patience_is_over(state["rows"], recipe):
            _advance(state, model, optimizer, batches, recipe, device)
            step = state["step"]
            if step == recipe.steps or (recipe.eval_every and step % recipe.eval_every == 0):
                row = _row(state, model, recipe, validation)
                if folder is not None:
                    _write_log(folder, state["rows"])
                if report is not None:
                    report(row)
            if folder is not None and (step % save_every == 0 or step == recipe.steps):
                _save(folder, state, model, optimizer, recipe)
        model.eval()
    if state["best"] is not None:
        model.load_state_dict(state["best"])
    return state["rows"]


def _advance(state: dict, model: nn.Module, optimizer, batches: Batches, recipe: Recipe, device) -> None:
    """One update."""
    start = time.perf_counter()
    rate = learning_rate(
        state["step"], base=recipe.learning_rate, total=recipe.steps, warmup=recipe.warmup_steps, decay=recipe.decay
    )
    for group in optimizer.param_groups:
        group["lr"] = rate
    images, labels = batches(state["step"])
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
    optimizer.step()
    state["step"] += 1
    state["learning_rate"] = rate
    state["loss_sum"] = state["loss_sum"] + loss.detach()
    state["loss_steps"] += 1
    if device.type == "cpu" or state["step"] % 50 == 0:  # a look costs a GPU a wait
        _check_finite(state)
    state["seconds"] += time.perf_counter() - start


def _check_finite(state: dict) -> None:
    total = float(state["loss_sum"])
    if not math.isfinite(total):
        raise DivergedError(
            f"the loss became {total} by step {state['step']} at learning rate {state['learning_rate']:.2g}; "
            "lower the learning rate, lengthen the warm-up or clip gradients (grad_clip)"
        )


def _row(state: dict, model: nn.Module, recipe: Recipe, validation: ImageSet | None) -> dict:
    """Evaluate, append the row, and keep the weights if they are the best so far."""
    _check_finite(state)
    row = {
        "step": state["step"],
        "samples": state["step"] * recipe.batch_size,
        "learning_rate": state["learning_rate"],
        "train_loss": float(state["loss_sum"]) / max(1, state["loss_steps"]),
        "seconds": state["seconds"],
    }
    state["loss_sum"], state["loss_steps"] = 0.0, 0
    if validation is not None:
        row |= {f"val_{name}": value for name, value in evaluate(model, validation).items()}
        if recipe.patience is not None and all(row["val_accuracy"] > r["val_accuracy"] for r in state["rows"]):
            state["best"] = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    state["rows"].append(row)
    return row


def _patience_is_over(rows: list[dict], recipe: Recipe) -> bool:
    """Whether the last `patience` evaluations brought nothing better than the ones before them."""
    if recipe.patience is None or len(rows) <= recipe.patience:
        return False
    accuracy = [row["val_accuracy"] for row in rows]
    return max(accuracy[-recipe.patience :]) <= max(accuracy[: -recipe.patience])


def _write_log(folder: Path, rows: list[dict]) -> None:
    """The log is rewritten whole: a resumed run never leaves rows it is about to make again."""
    folder.mkdir(parents=True, exist_ok=True)
    with files.writing(folder / "log.jsonl") as path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _save(folder: Path, state: dict, model: nn.Module, optimizer, recipe: Recipe) -> None:
    saved = dict(state) | {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    saved |= {"cpu_rng": torch.get_rng_state(), "loss_sum": float(state["loss_sum"])}
    saved["recipe"] = dataclasses.asdict(recipe)
    if torch.cuda.is_available():
        saved["cuda_rng"] = torch.cuda.get_rng_state()
    save_resume_state(folder / "resume.pt", saved)


def _restore(path: Path, state: dict, model: nn.Module, optimizer, recipe: Recipe) -> None:
    saved = load_resume_state(path)
    asked = dataclasses.asdict(recipe)
    before = saved.get("recipe", asked)  # states written before recipes were kept have none
    if changed := [name for name in asked if before.get(name) != asked[name]]:
        values = ", ".join(f"{name} was {before.get(name)!r} and is {asked[name]!r}" for name in changed)
        raise ValueError(f"{path} was written by another recipe: {values}; give the run another folder, or delete it")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["cpu_rng"])
    if "cuda_rng" in saved and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["cuda_rng"])
    state.update({name: saved[name] for name in state if name in saved})
