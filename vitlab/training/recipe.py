"""Hyper-parameters of a training: the columns of Tables 3 and 4, the learning-rate schedule, the optimizer (§4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from vitlab.settings import check, number, one_of, pair, whole

Decay = Literal["linear", "cosine", "constant"]
LINEAR_END = 1e-5  # where the authors' linear decay ends, not at zero
_NOT_DECAYED = ("pos_embed", "cls_token", "gain")  # embeddings and gains, though they have two dimensions or more


@dataclass(frozen=True)
class Recipe:
    """The hyper-parameters of a training: all that determines it but the model, the images and the machine.

    `batch_size` images make one update, and may go through the model in parts: `accumulate` in turn, and one in each
    process (see `distributed`). The result is the same to rounding, but for dropout, whose draws depend on the parts.
    """

    steps: int
    batch_size: int = 128
    optimizer: str = "adam"  # for pre-training, Table 3; "sgd" for fine-tuning, Table 4
    learning_rate: float = 1e-3  # at the end of the warm-up
    warmup_steps: int = 0
    decay: Decay = "cosine"
    weight_decay: float = 0.1  # decoupled, on matrices only
    betas: tuple[float, float] = (0.9, 0.999)  # of Adam
    momentum: float = 0.9  # of SGD
    grad_clip: float | None = 1.0  # global norm
    label_smoothing: float = 0.0
    accumulate: int = 1
    precision: str = "fp32"  # or "bf16": mixed, the weights stay fp32
    compile: bool = False  # use torch.compile: takes half a minute at the start; worth it on a GPU, hardly on a CPU
    eval_every: int = 0  # steps between evaluations; 0: at the end only
    patience: int | None = None  # evaluations without a new best before stopping; None: never stop early
    seed: int = 0  # of the random draws in the model, that is of dropout

    @property
    def samples(self) -> int:
        """Images seen in a full run."""
        return self.steps * self.batch_size

    def __post_init__(self):
        clip, patience = self.grad_clip, self.patience
        check(
            self,
            {
                "steps": whole(self.steps, 1),
                "batch_size": whole(self.batch_size, 1),
                "optimizer": one_of(self.optimizer, ("adam", "sgd")),
                "learning_rate": number(self.learning_rate),
                "warmup_steps": whole(self.warmup_steps),
                "decay": one_of(self.decay, get_args(Decay)),
                "weight_decay": number(self.weight_decay),
                "betas": pair(self.betas, below=1.0),
                "momentum": number(self.momentum, below=1.0),
                "grad_clip": (clip is None or number(clip)[0] and clip > 0, "a finite number above 0, or None"),
                "label_smoothing": number(self.label_smoothing, below=1.0),
                "accumulate": whole(self.accumulate, 1),
                "precision": one_of(self.precision, ("fp32", "bf16")),
                "compile": one_of(self.compile, (True, False)),
                "eval_every": whole(self.eval_every),
                "patience": (patience is None or whole(patience, 1)[0], "a whole number, 1 or more, or None"),
                "seed": whole(self.seed, -(2**63), 2**63 - 1),
            },
        )
        if self.patience is not None and not self.eval_every:
            raise ValueError(f"patience is {self.patience} but eval_every is 0; early stopping needs evaluations")
        learning_rate(0, base=1.0, total=self.steps, warmup=self.warmup_steps, decay=self.decay)  # checks


def learning_rate(step: int, *, base: float, total: int, warmup: int, decay: Decay | str) -> float:
    """Compute the learning rate used at `step` (0 … total−1), as the authors' code: decay × min(1, step / warmup).

    Progress runs from 0 at the end of the warm-up to 1 at `total`. Raises ValueError for a warm-up that fills the run.
    """
    if not 0 <= warmup < total:
        raise ValueError(f"warmup is {warmup} of {total} steps; it must be at least 0 and less than the run")
    progress = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
    rate = {
        "linear": LINEAR_END + (base - LINEAR_END) * (1 - progress),
        "cosine": base * 0.5 * (1 + math.cos(math.pi * progress)),
        "constant": base,
    }[decay]
    return rate * min(1.0, step / warmup) if warmup else rate


def optimizer_for(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Make the recipe's optimizer, decaying matrices and kernels, not biases, norms, class token or positions."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            matrix = parameter.ndim >= 2 and not name.split(".")[-1].startswith(_NOT_DECAYED)
            (decayed if matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, fused=True)
