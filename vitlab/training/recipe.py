"""How to train, as data: the columns of Tables 3 and 4, and what a modern machine adds to them (§4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from vitlab.training.schedule import Decay, learning_rate


@dataclass(frozen=True)
class Recipe:
    """Everything about a training but the model, the images and the machines.

    The batch is that of one update. `accumulate` cuts it into so many parts, one after the other through the model,
    with the same result; so do several processes (see `processes`).

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
    average: float | None = None  # decay of the Polyak average that is evaluated and kept: 0.9999 in Table 2
    accumulate: int = 1
    precision: str = "fp32"  # or "bf16": mixed, the weights stay fp32
    compile: bool = False  # by torch.compile: half a minute at the start; pays on a GPU, hardly on a CPU
    eval_every: int = 0  # steps between evaluations; 0: at the end only
    patience: int | None = None  # evaluations without a new best before stopping; None: never stop early
    seed: int = 0  # of dropout and stochastic depth

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
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average is {self.average}; it is a decay between 0 and 1, such as 0.9999, or None")
        learning_rate(0, base=1.0, total=self.steps, warmup=self.warmup_steps, decay=self.decay)  # checks
