"""The paper's hyper-parameters, Tables 3 and 4, and the rules that scale them to small batches and runs (§4.1)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from vitlab.training.recipe import Decay, Recipe

IMAGES = {"JFT": 303_000_000, "IN-21k": 14_000_000, "ImageNet": 1_281_167}  # §4.1; ImageNet's training set by count


@dataclass(frozen=True)
class Pretraining:
    """A row of Table 3: Adam, batch 4096, warm-up of 10,000 steps, resolution 224."""

    models: tuple[str, ...]
    data: str
    epochs: tuple[int, ...]
    learning_rate: float
    decay: Decay
    weight_decay: float
    dropout: float
    grad_clip: float | None = None
    batch_size: int = 4096
    warmup_steps: int = 10_000
    image_size: int = 224  # pixels

    def recipe(self, epochs: int | None = None) -> Recipe:
        """Make the recipe of this row for so many `epochs`, by default the table's, or the larger of two."""
        names = ("batch_size", "learning_rate", "warmup_steps", "decay", "weight_decay", "grad_clip")
        steps = math.ceil((epochs or max(self.epochs)) * IMAGES[self.data] / self.batch_size)
        return Recipe(steps, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Finetuning:
    """A row of Table 4: SGD with momentum 0.9, batch 512, cosine decay, no weight decay, clip 1, resolution 384."""

    data: str
    steps: int
    learning_rates: tuple[float, ...]  # of which the best on held-out images is chosen
    held_out: float  # share of the training set
    batch_size: int = 512
    image_size: int = 384  # pixels

    def recipe(self, learning_rate: float) -> Recipe:
        """Make the recipe of this row with one of its learning rates."""
        return Recipe(
            self.steps, self.batch_size, "sgd", learning_rate, decay="cosine", weight_decay=0.0, grad_clip=1.0
        )


TABLE_3 = (
    Pretraining(("ViT-B/16", "ViT-B/32"), "JFT", (7,), 8e-4, "linear", 0.1, 0.0),
    Pretraining(("ViT-L/32",), "JFT", (7,), 6e-4, "linear", 0.1, 0.0),
    Pretraining(("ViT-L/16",), "JFT", (7, 14), 4e-4, "linear", 0.1, 0.0),
    Pretraining(("ViT-H/14",), "JFT", (14,), 3e-4, "linear", 0.1, 0.0),
    Pretraining(("R50x1", "R50x2"), "JFT", (7,), 1e-3, "linear", 0.1, 0.0),
    Pretraining(("R101x1",), "JFT", (7,), 8e-4, "linear", 0.1, 0.0),
    Pretraining(("R152x1", "R152x2"), "JFT", (7,), 6e-4, "linear", 0.1, 0.0),
    Pretraining(("R50+ViT-B/16", "R50+ViT-B/32"), "JFT", (7,), 8e-4, "linear", 0.1, 0.0),
    Pretraining(("R50+ViT-L/32",), "JFT", (7,), 2e-4, "linear", 0.1, 0.0),
    Pretraining(("R50+ViT-L/16",), "JFT", (7, 14), 4e-4, "linear", 0.1, 0.0),
    Pretraining(("ViT-B/16", "ViT-B/32"), "IN-21k", (90,), 1e-3, "linear", 0.03, 0.1),
    Pretraining(("ViT-L/16", "ViT-L/32"), "IN-21k", (30, 90), 1e-3, "linear", 0.03, 0.1),
    Pretraining(
        ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32"), "ImageNet", (300,), 3e-3, "cosine", 0.3, 0.1, grad_clip=1.0
    ),
)
TABLE_4 = (
    Finetuning("ImageNet", 20_000, (0.003, 0.01, 0.03, 0.06), held_out=0.01),
    Finetuning("CIFAR-100", 10_000, (0.001, 0.003, 0.01, 0.03), held_out=0.02),
    Finetuning("CIFAR-10", 10_000, (0.001, 0.003, 0.01, 0.03), held_out=0.02),
    Finetuning("Pets", 500, (0.001, 0.003, 0.01, 0.03), held_out=0.1),
    Finetuning("Flowers-102", 500, (0.001, 0.003, 0.01, 0.03), held_out=0.1),
    Finetuning("VTAB", 2_500, (0.01,), held_out=0.2),  # 800 of each task's 1,000 images, as VTAB prescribes
)


def lab(recipe: Recipe, batch_size: int, samples: int) -> Recipe:
    """Scale a recipe of the paper's to a smaller batch and fewer images, by three rules.

    The learning rate goes with the square root of the batch for Adam and with the batch for SGD, as the noise of their
    steps does; the warm-up keeps its share of the run, and at most a tenth; all else stays.

    Raises ValueError where there are not images enough for a single batch, or a batch has none.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected a number of images, 1 or more")
    steps = samples // batch_size
    if steps < 1:
        raise ValueError(f"{samples} images make no batch of {batch_size}; train on more, or in smaller batches")
    ratio = batch_size / recipe.batch_size
    return dataclasses.replace(
        recipe,
        steps=steps,
        batch_size=batch_size,
        warmup_steps=int(min(recipe.warmup_steps / recipe.steps, 0.1) * steps),
        learning_rate=recipe.learning_rate * (math.sqrt(ratio) if recipe.optimizer == "adam" else ratio),
    )
