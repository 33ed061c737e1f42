"""What a study keeps of a ViT at every evaluation of its training: heads, positions, predicted patches (§4.5, §4.6)."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from vitlab.analysis import positions
from vitlab.analysis.distance import distance_and_mass
from vitlab.data.folders import FolderSet
from vitlab.data.loader import ImageSet, to_float
from vitlab.training import masked
from vitlab.training.guesses import guesses
from vitlab.training.masked import MaskedPrediction, MaskedViT
from vitlab.training.objective import Objective
from vitlab.training.processes import Group

N_SHOWN = 3  # held-out images of which predictions are kept
_STEPS = 127.5  # of a stored similarity: bytes 0–255 for −1…1


@dataclass(frozen=True)
class Watched:
    """An objective at whose evaluations the model is looked into: what is seen belongs to the training's rows.

    So a training that is killed and goes on from its checkpoint has the rows of all its evaluations.
    """

    objective: Objective
    n_images: int  # the first so many of the validation set

    def loss(self, forward: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return self.objective.loss(forward, images, labels)

    def evaluate(self, model: nn.Module, images: ImageSet | FolderSet, precision: str, group: Group) -> dict[str, Any]:
        """The objective's metrics, with `look`'s."""
        pictures = next(iter(images.chunks(self.n_images)))[0]
        vit = model.vit if isinstance(model, MaskedViT) else model
        seen = self.objective.evaluate(model, images, precision, group) | look(vit, pictures)
        if isinstance(model, MaskedViT) and isinstance(self.objective, MaskedPrediction):
            plan = shown_plan(model.n_patches, self.objective.share)
            seen["guesses"] = _text(guesses(model, most_varied(pictures), plan))
        return seen

    def result(self, model: nn.Module, state: dict[str, Tensor]) -> tuple[nn.Module, dict[str, Tensor]]:
        return self.objective.result(model, state)


@torch.inference_mode()
def look(vit: nn.Module, pictures: Tensor) -> dict[str, Any]:
    """What is kept of a ViT at an evaluation, from bytes [B 3 H W].

    `heads`: mean attention distance in pixels (mode "paper"), and `masses`: attention to the class token (0…1), by
    block and head; `nearness`, `row_excess` and `column_excess`, as `positions` defines them; `similarity`: the packed
    position map.

    >>> from vitlab.models.vit import ViT, ViTConfig
    >>> vit = ViT(ViTConfig(image_size=32, patch_size=8, dim=8, depth=3, n_heads=2, mlp_dim=8))
    >>> seen = look(vit, torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    >>> sorted(seen), len(seen["heads"]), len(seen["heads"][0])
    (['column_excess', 'heads', 'masses', 'nearness', 'row_excess', 'similarity'], 3, 2)
    """
    training = vit.training
    vit.eval()
    both = distance_and_mass(vit, to_float(pictures.to(next(vit.parameters()).device)))
    distances, masses = (values.mean(0).tolist() for values in both)
    vit.train(training)
    table = positions.position_embeddings(vit).float().cpu()
    similarity = positions.position_similarity(table, positions.position_grid(vit))
    row, column = positions.row_column_excess(similarity)
    return {
        "nearness": positions.distance_correlation(similarity),
        "row_excess": None if math.isnan(row) else row,  # of a grid of one row, say
        "column_excess": None if math.isnan(column) else column,
        "similarity": packed(similarity),
        "heads": [[round(px, 3) for px in block] for block in distances],
        "masses": [[round(mass, 5) for mass in block] for block in masses],
    }


def most_varied(pictures: UInt8[Tensor, "B 3 H W"]) -> UInt8[Tensor, "n 3 H W"]:
    """The few pictures whose pixels differ most among themselves, in which there is something to see.

    >>> pictures = torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
    >>> pictures[3, :, :, ::2] = 200
    >>> most_varied(pictures).float().mean((1, 2, 3)).tolist()
    [100.0, 0.0, 0.0]
    """
    spread = pictures.float().std(dim=(2, 3)).mean(1)
    return pictures[spread.argsort(descending=True, stable=True)[:N_SHOWN]]


def shown_plan(n_patches: int, share: float) -> Int64[Tensor, "B n_patches"]:
    """How the `most_varied` watched images are corrupted of which every evaluation keeps what the model predicts.

    >>> shown_plan(16, 0.5).shape
    torch.Size([3, 16])
    """
    return masked.plans(N_SHOWN, n_patches, share, np.random.default_rng(0))


def guessed(text: str, n_patches: int, share: float) -> UInt8[Tensor, "n side side 3"]:
    """The predicted patches of an evaluation, from the column `guesses` of `evaluations`; see `guesses.filled`."""
    values = np.frombuffer(base64.b64decode(text), np.uint8)
    n = N_SHOWN * masked.n_corrupted_of(n_patches, share)
    side = math.isqrt(len(values) // (3 * n))
    return torch.from_numpy(values.reshape(n, side, side, 3).copy())


def _text(values: Tensor) -> str:
    return base64.b64encode(values.contiguous().numpy().tobytes()).decode()


def packed(similarity: Float[Tensor, "rows cols rows cols"]) -> str:
    """A position map as text: one byte for every two patches, which keeps a cosine to 0.004.

    >>> len(packed(torch.ones(8, 8, 8, 8)))
    2776
    """
    whole = similarity.flatten(2).flatten(0, 1)
    first, second = torch.tril_indices(len(whole), len(whole))
    levels = ((whole[first, second].clamp(-1, 1) + 1) * _STEPS).round().to(torch.uint8)
    return _text(levels)


def position_map(text: str) -> Float[np.ndarray, "rows cols rows2 cols2"]:
    """The position map that `packed` made a text of, of a square grid; −1…1.

    >>> position_map(packed(torch.ones(3, 3, 3, 3))).shape
    (3, 3, 3, 3)
    """
    levels = np.frombuffer(base64.b64decode(text), np.uint8) / _STEPS - 1
    n = math.isqrt(2 * len(levels))  # of n (n + 1) / 2 pairs
    whole = np.zeros((n, n))
    whole[np.tril_indices(n)] = levels
    side = math.isqrt(n)
    return (whole + np.tril(whole, -1).T).reshape(side, side, side, side)
