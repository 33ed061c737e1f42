"""A pre-trained model for another task: head removed, a zero one put on, positions resized to another grid (§3.2)."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# How F.interpolate is called by each. "paper": the authors' spline zoom of order 1; "timm": models resized when
# weights are loaded or images vary; "timm-npz": its loader of the authors' files; "hf": transformers' ViT.
CONVENTIONS: dict[str, dict[str, Any]] = {
    "paper": {"mode": "bilinear", "align_corners": True},
    "timm": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "timm-npz": {"mode": "bilinear", "align_corners": False},
    "hf": {"mode": "bicubic", "align_corners": False},
    "torchvision": {"mode": "bicubic", "align_corners": True},
}
HEAD = ("head.", "pre_logits.")  # of ours; the pre-training head's hidden layer goes as well


def resize_positions(
    pos: Float[Tensor, "N D"], old: tuple[int, int], new: tuple[int, int], convention: str = "paper", n_prefix: int = 0
) -> Float[Tensor, "M D"]:
    """Interpolate position embeddings in two dimensions for another grid (§3.2: fine-tuning at higher resolution).

    `pos` is row by row; its first `n_prefix` rows are of prefix tokens and are kept as they are. `old` and `new` are
    (rows, columns). `convention` "paper" is the authors'; the others of `CONVENTIONS` are named after libraries.

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
    picture = patches.T.reshape(1, -1, *old).to(torch.promote_types(pos.dtype, torch.float32))  # [1 D rows cols]
    if new[1] == 1:  # a column: torch's antialiasing (2.15) would give all its rows the first one's values; so as a row
        resized = F.interpolate(picture.mT.contiguous(), size=new[::-1], **CONVENTIONS[convention]).mT
    else:
        resized = F.interpolate(picture, size=new, **CONVENTIONS[convention])
    return torch.cat([prefix, resized.to(pos.dtype).flatten(2)[0].T])


def check_fit(pos: Tensor, grid: tuple[int, int]) -> None:
    """Raise ValueError where `pos` is not one row for every patch of a grid of rows and columns."""
    rows, cols = grid
    if pos.ndim != 2 or len(pos) != rows * cols:
        raise ValueError(
            f"pos has shape {list(pos.shape)}, expected [{rows * cols}, D] for {rows} x {cols} patches; prefix tokens "
            "come first and are no patches"
        )


def with_new_head(model: nn.Module, n_classes: int, image_size: int | None = None) -> nn.Module:
    """Copy a model of ours or timm's, with a linear head for `n_classes` that starts at zero.

    `image_size` (pixels; None: as before) makes the grid of patches larger or smaller, P stays; position embeddings are
    resized as by the paper, those of columns and of rows along their axis.

    Raises ValueError for relative positions and another grid, or a model that is neither ours nor timm's.

    >>> from vitlab.models import zoo
    >>> larger = with_new_head(zoo.create("Lab-Ti/8", head="tanh"), n_classes=3, image_size=48)
    >>> larger.head, larger.pos_embed.shape
    (Linear(in_features=64, out_features=3, bias=True), torch.Size([1, 37, 64]))
    """
    if n_classes < 1:
        raise ValueError(f"n_classes is {n_classes}; a head needs at least 1")
    if dataclasses.is_dataclass(getattr(model, "config", None)):
        changes = {"n_classes": n_classes, "image_size": image_size or model.config.image_size}
        if hasattr(model.config, "head"):
            changes["head"] = "linear"
        new = type(model)(dataclasses.replace(model.config, **changes)).to(next(model.parameters()).device)
        state = new.state_dict()
        for name, value in model.state_dict().items():
            if not name.startswith(HEAD):
                state[name] = resize_weight(name, value, model, new)
        new.load_state_dict(state)
        return new.train(model.training)
    if not hasattr(model, "reset_classifier"):
        raise ValueError(
            f"a {type(model).__name__} is no model of ours or timm's, whose head is known; of a wrapped one give "
            "`model.module`"
        )
    new = copy.deepcopy(model)
    new.reset_classifier(n_classes)
    heads = new.get_classifier()
    for head in heads if isinstance(heads, tuple) else (heads,):  # a distilled DeiT has two, whose logits are averaged
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
    if image_size is not None and hasattr(new, "set_input_size"):
        new.set_input_size(img_size=(image_size, image_size))
        if isinstance(getattr(new, "pos_embed", None), Tensor) and new.pos_embed.ndim == 3:
            with torch.no_grad():  # timm has resized them too, by its own convention
                new.pos_embed.copy_(resize_weight("pos_embed", model.pos_embed.detach(), model, new))
    return new


def resize_weight(name: str, value: Tensor, before: nn.Module, after: nn.Module) -> Tensor:
    """Fit a weight to the new model's grid: position embeddings [1 N D] resized, all others as they are."""
    kind = name.rpartition(".")[2]
    if not kind.startswith("pos_embed"):
        return value
    (rows, cols), (new_rows, new_cols) = (map(int, each.patch_embed.grid_size) for each in (before, after))
    grids = {
        "pos_embed": ((rows, cols), (new_rows, new_cols)),
        "pos_embed_x": ((1, cols), (1, new_cols)),
        "pos_embed_y": ((1, rows), (1, new_rows)),
    }
    if kind in grids:
        old, new = grids[kind]
        return resize_positions(value[0], old, new, n_prefix=value.shape[1] - old[0] * old[1])[None]
    if kind == "pos_embed_offsets" and (rows, cols) != (new_rows, new_cols):
        raise ValueError(
            f"relative positions of {rows} x {cols} patches cannot be resized to {new_rows} x {new_cols}: an offset in "
            "the sequence is another step on another grid; keep the image size, or take positions '1d' or '2d'"
        )
    return value
