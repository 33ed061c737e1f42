"""Hyper-parameters of a training: the columns of Tables 3 and 4, and settings of speed and evaluation (§4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from vitlab.training.schedule import Decay, learning_rate


@dataclass(frozen=True)
class Recipe:
    """The hyper-parameters of a training: all that determines it but the model, the images and the machine.

    `batch_size` is the number of images of one update. With `accumulate` parts, each part of the batch goes through the
    model in turn and their gradients are added up; several processes (see `processes`) each take a part of the batch.
    The result is the same to rounding, but for a model that draws random numbers, as dropout does: each way to cut a
    batch draws others.

    >>> Recipe(steps=1000).samples
    128000
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
    ema_decay: float | None = None  # of the moving average of the weights, which is evaluated and kept; Table 2: 0.9999
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
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(f"{self.steps} steps of {self.batch_size} images; both must be at least 1")
        if self.accumulate < 1 or self.batch_size % self.accumulate:
            raise ValueError(f"a batch of {self.batch_size} cannot be cut into {self.accumulate} equal parts")
        if self.patience is not None and not self.eval_every:
            raise ValueError(f"patience is {self.patience} but eval_every is 0; early stopping needs evaluations")
        for name, known in (("optimizer", ("adam", "sgd")), ("precision", ("fp32", "bf16"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is one of {known}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}; it is a share of at least 0, less than 1")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(
                f"ema_decay is {self.ema_decay}; expected a decay between 0 and 1, such as 0.9999, or None"
            )
        learning_rate(0, base=1.0, total=self.steps, warmup=self.warmup_steps, decay=self.decay)  # checks
