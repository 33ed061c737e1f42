"""A pre-trained model made ready for another task: whole head removed, a zero one put on, positions resized (§3.2)."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor, nn

from vitlab.models.positions import resize_positions

_HEAD = ("head.", "pre_logits.")  # of ours; the pre-training head's hidden layer goes as well


def with_new_head(
    model: nn.Module, n_classes: int, image_size: int | None = None, convention: str = "paper"
) -> nn.Module:
    """A copy of a model of ours or timm's with a linear head for `n_classes` that starts at zero.

    `image_size` (pixels; None: as before) makes the grid of patches larger or smaller, P stays; position embeddings are
    resized by `convention`, see `positions.resize_positions`, those of columns and of rows along their axis. `model` is
    left as it is.

    Raises:
        ValueError: fewer than 1 class, an image size that the patches do not divide, an unknown convention, relative
            positions and another grid, or a model that is neither ours nor timm's, such as one in a wrapper.

    >>> from vitlab.models import zoo
    >>> larger = with_new_head(zoo.create("Lab-Ti/8", head="tanh"), n_classes=3, image_size=48)
    >>> larger.head, larger.pos_embed.shape
    (Linear(in_features=64, out_features=3, bias=True), torch.Size([1, 37, 64]))
    """
    if n_classes < 1:
        raise ValueError(f"n_classes is {n_classes}; a head needs at least 1")
    if dataclasses.is_dataclass(getattr(model, "config", None)):
        return _ours(model, n_classes, image_size, convention)
    if not hasattr(model, "reset_classifier"):
        raise ValueError(
            f"a {type(model).__name__} is no model of ours or timm's, whose head is known; of a wrapped one give "
            "`model.module`"
        )
    return _timms(model, n_classes, image_size, convention)


def _ours(model: nn.Module, n_classes: int, image_size: int | None, convention: str) -> nn.Module:
    changes = {"n_classes": n_classes, "image_size": image_size or model.config.image_size}
    if hasattr(model.config, "head"):
        changes["head"] = "linear"
    new = type(model)(dataclasses.replace(model.config, **changes)).to(next(model.parameters()).device)
    state = {name: value for name, value in model.state_dict().items() if not name.startswith(_HEAD)}
    state = {name: _fitted(name, value, model, new, convention) for name, value in state.items()}
    head = {name: value for name, value in new.state_dict().items() if name.startswith(_HEAD)}
    new.load_state_dict(state | head)
    return new.train(model.training)


def _timms(model: nn.Module, n_classes: int, image_size: int | None, convention: str) -> nn.Module:
    new = copy.deepcopy(model)
    new.reset_classifier(n_classes)
    heads = new.get_classifier()
    for head in heads if isinstance(heads, tuple) else (heads,):  # a distilled DeiT has two, whose logits are averaged
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
    if image_size is not None and hasattr(new, "set_input_size"):
        new.set_input_size(img_size=(image_size, image_size))
        if isinstance(getattr(new, "pos_embed", None), Tensor) and new.pos_embed.ndim == 3:
            resized = _resized(model.pos_embed.detach(), model.patch_embed, new.patch_embed, convention)
            with torch.no_grad():  # timm has resized them too, by its own convention
                new.pos_embed.copy_(resized)
    return new


def _fitted(name: str, value: Tensor, before: nn.Module, after: nn.Module, convention: str) -> Tensor:
    """A weight for the new model's grid: position embeddings resized, all others as they are."""
    kind = name.rpartition(".")[2]
    if kind == "pos_embed":
        return _resized(value, before.patch_embed, after.patch_embed, convention)
    if kind in ("pos_embed_x", "pos_embed_y"):
        axis = 1 if kind == "pos_embed_x" else 0  # of the grid's (rows, columns)
        n_before, n_after = (int(each.patch_embed.grid_size[axis]) for each in (before, after))
        return resize_positions(value[0], (1, n_before), (1, n_after), convention)[None]
    grids = [tuple(each.patch_embed.grid_size) for each in (before, after)] if kind == "pos_embed_offsets" else []
    if grids and grids[0] != grids[1]:
        (rows, cols), (new_rows, new_cols) = grids
        raise ValueError(
            f"relative positions of {rows} x {cols} patches cannot be resized to {new_rows} x {new_cols}: an offset in "
            "the sequence, row by row, is another step on another grid; keep the image size, or take a model with "
            "positions '1d' or '2d'"
        )
    return value


def _resized(table: Tensor, before: nn.Module, after: nn.Module, convention: str) -> Tensor:
    """Position embeddings [1 N D] of one patch embedding's grid for another's."""
    old, new = tuple(before.grid_size), tuple(after.grid_size)
    n_prefix = table.shape[1] - old[0] * old[1]
    return resize_positions(table[0], old, new, convention, n_prefix)[None]
