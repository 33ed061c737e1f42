"""Position embeddings for another grid: fine-tuning at another resolution (§3.2)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# How F.interpolate is called by each. "paper": the authors' spline zoom of order 1; "timm": models resized when
# weights are loaded or images vary; "timm-npz": its loader of the authors' files; "hf": transformers' ViT.
CONVENTIONS: dict[str, dict[str, Any]] = {
    "paper": {"mode": "bilinear", "align_corners": True},
    "timm": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "timm-npz": {"mode": "bilinear", "align_corners": False},
    "hf": {"mode": "bicubic", "align_corners": False},
    "torchvision": {"mode": "bicubic", "align_corners": True},
}


def resize_positions(
    pos: Float[Tensor, "N D"],
    old: tuple[int, int],
    new: tuple[int, int],
    convention: str = "paper",
    n_prefix: int = 0,
) -> Float[Tensor, "M D"]:
    """Position embeddings for another grid, interpolated in two dimensions (§3.2: fine-tuning at higher resolution).

    Args:
        pos: row by row; the first n_prefix rows are of prefix tokens and are kept as they are.
        old, new: rows and columns.
        convention: "paper" is bilinear with aligned corners, equal to the authors' spline zoom of order 1. The others
            are named after the library that resizes so: "timm", "timm-npz", "hf", "torchvision".

    Raises:
        ValueError: for an unknown convention, or when pos does not fit the old grid.

    >>> resize_positions(torch.tensor([[0.0], [2.0]]), (1, 2), (1, 3)).T
    tensor([[0., 1., 2.]])
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention {convention!r} given, expected one of {', '.join(CONVENTIONS)}")
    if min(new) < 1:
        raise ValueError(f"new grid {new} given, expected at least 1 x 1")
    prefix, patches = pos[:n_prefix], pos[n_prefix:]
    check_fit(patches, old)
    if old == new:
        return pos
    picture = patches.T.reshape(1, -1, *old)  # [N D] -> [1 D rows cols]
    picture = picture.to(torch.promote_types(pos.dtype, torch.float32))
    if new[1] == 1:  # a column: torch's antialiasing (2.15) would give all its rows the first one's values; so as a row
        resized = F.interpolate(picture.mT.contiguous(), size=new[::-1], **CONVENTIONS[convention]).mT
    else:
        resized = F.interpolate(picture, size=new, **CONVENTIONS[convention])
    return torch.cat([prefix, resized.to(pos.dtype).flatten(2)[0].T])


def check_fit(pos: Tensor, grid: tuple[int, int]) -> None:
    """Raises ValueError where `pos` is not one row for every patch of a grid of rows and columns."""
    rows, cols = grid
    if pos.ndim != 2 or len(pos) != rows * cols:
        raise ValueError(
            f"pos has shape {list(pos.shape)}, expected [{rows * cols}, D] for {rows} x {cols} patches; prefix tokens "
            "come first and are no patches"
        )
