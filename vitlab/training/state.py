"""A training as data: `Run`, fixed from its start, and `TrainState`, which a checkpoint holds (§4.1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.data.loader import Batches, FolderSet, ImageSet
from vitlab.training.checkpoint_plan import CheckpointPlan
from vitlab.training.objective import Objective
from vitlab.training.processes import Group, Parallel
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class Run:
    """What is trained, on what, how and where. Its weights and the optimiser's state change, nothing else does."""

    model: nn.Module
    forward: nn.Module  # what is called in place of the model: itself, compiled, or wrapped for several processes
    optimizer: torch.optim.Optimizer
    batches: Batches
    recipe: Recipe
    objective: Objective
    validation: ImageSet | FolderSet | None
    device: torch.device
    group: Group  # the processes that train together
    parallel: Parallel
    folder: Path | None  # of the log and the final weights
    checkpoints: CheckpointPlan
    name: str | None  # of the model, for `zoo.load`
    identity: dict[str, Any]  # everything that determines the training, see `resume.identity`
    pool: ThreadPoolExecutor | None = None  # threads that compute parts of a batch side by side

    @property
    def part(self) -> int:
        """Images that go through the model at once, in this process."""
        return self.recipe.batch_size // (self.recipe.accumulate * self.group.size)

    @property
    def starts(self) -> range:
        """Where in a batch each of this process's parts begins."""
        first = self.group.rank * self.recipe.accumulate * self.part
        return range(first, first + self.recipe.accumulate * self.part, self.part)


@dataclass
class TrainState:
    """How far a training has come: with the weights and the optimiser's state, all it takes to go on.

    >>> TrainState().step
    0
    """

    step: int = 0  # updates done
    seconds: float = 0.0  # of training, evaluations apart
    learning_rate: float = 0.0  # of the last update
    loss_sum: Tensor | float = 0.0  # of the updates since the last row
    loss_steps: int = 0  # how many those are
    flops: int = 0  # of one image's forward pass; 0: not counted yet
    rows: list[dict[str, Any]] = field(default_factory=list)  # one for every evaluation
    best: dict[str, Tensor] | None = None  # weights of the best evaluation; with `patience` only
    ema: list[Tensor] | None = None  # moving average of the weights, a tensor for each parameter; see `Recipe`
    saved: str | None = None  # path of the last checkpoint
