"""What a training minimises and how it is evaluated: labels (§4.1), or hidden patches (§4.6, see `masked`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.data.loader import FolderSet, ImageSet
from vitlab.training.evaluate import evaluate
from vitlab.training.processes import Group


@runtime_checkable
class Objective(Protocol):
    """An objective of `loop.train`."""

    def loss(self, forward: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of images [B 3 H W]; `forward` is the model, `labels` what its batches give with the images."""

    def evaluate(
        self, model: nn.Module, images: ImageSet | FolderSet, precision: str, group: Group
    ) -> dict[str, float]:
        """Accuracy (0…1) and loss over a validation set, each process of a group taking its part."""

    def result(self, model: nn.Module, state: dict[str, Tensor]) -> tuple[nn.Module, dict[str, Tensor]]:
        """What the training was for: the module to keep, and its part of the model's state dict."""


@dataclass(frozen=True)
class Classification:
    """Mean cross-entropy; labels are classes [B] or, of mixed images, class probabilities [B K].

    >>> import torch
    >>> round(Classification().loss(lambda images: images, torch.zeros(5, 10), torch.arange(5)).item(), 4)  # ln 10
    2.3026
    """

    label_smoothing: float = 0.0

    def loss(self, forward: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(forward(images).float(), labels, label_smoothing=self.label_smoothing)

    def evaluate(
        self, model: nn.Module, images: ImageSet | FolderSet, precision: str, group: Group
    ) -> dict[str, float]:
        return evaluate(model, images, precision=precision, group=group)

    def result(self, model: nn.Module, state: dict[str, Tensor]) -> tuple[nn.Module, dict[str, Tensor]]:
        return model, state
