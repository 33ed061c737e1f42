"""Position embeddings: their similarity map, and what it shows (§4.5, Fig. 7 centre, Fig. 10)."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor, nn

from vitlab.analysis.attention import n_prefix_tokens, patch_embedding, widen
from vitlab.models.adapt import check_fit
from vitlab.models.variants import Variant


def position_grid(model: nn.Module) -> tuple[int, int]:
    """Return the rows and columns of the model's position embeddings.

    Raises ValueError for a model with no learned, absolute position embeddings, one a patch of its grid.
    """
    own = isinstance(model, Variant) and model.config.placed == "every block"  # the grid of all blocks is the same
    table, embed = _table(model, 0 if own else None), patch_embedding(model)
    grid: Any = getattr(embed, "grid_size", None)  # NaFlexViT has none: its table is resized to the grid of each image
    if table.ndim == 4 and grid in (None, tuple(table.shape[1:3])):  # [1 rows cols D]
        return table.shape[1], table.shape[2]
    if table.ndim == 4 or not 0 <= table.shape[1] - math.prod(grid) <= n_prefix_tokens(model):
        raise ValueError(
            f"{type(model).__name__} has position embeddings {list(table.shape)} for {grid[0]} x {grid[1]} patches; "
            "expected one a patch, and at most one a prefix token"
        )
    return int(grid[0]), int(grid[1])


def position_embeddings(model: nn.Module, block: int | None = None) -> Float[Tensor, "N D"]:
    """Copy the position embedding of every patch, row by row. Those of prefix tokens, at the front, are dropped.

    `block` is asked of a model in which every block has embeddings of its own (App. D.4), and of no other. Raises
    ValueError as `position_grid`, and for a block that is missing or is not there.
    """
    rows, cols = position_grid(model)
    table = _table(model, block).flatten(1, -2)[0]
    return table[len(table) - rows * cols :].clone()


def position_similarity(
    pos: Float[Tensor, "N D"] | nn.Module, grid: tuple[int, int] | None = None
) -> Float[Tensor, "rows cols rows cols"]:
    """Compute the cosine similarity of every patch's position embedding with every other, -1…1; float32 or better.

    Of embeddings and their grid, or of a model. Tile [i, j] is the map to the patch in row i, column j (Fig. 7 centre).
    """
    if isinstance(pos, nn.Module):
        grid, pos = position_grid(pos), position_embeddings(pos)
    if grid is None:
        raise ValueError("position embeddings given without their grid: give (rows, columns) too, or the model")
    check_fit(pos, grid)
    pos = widen(pos)
    norms = pos.norm(dim=1)
    if not (norms > 0).all() or not pos.isfinite().all():
        raise ValueError("a position embedding is zero or not finite, so its cosine is undefined; were weights loaded?")
    unit = pos / norms[:, None]
    with torch.autocast(unit.device.type, enabled=False):  # the caller's would round the product
        return (unit @ unit.T).clamp(-1, 1).reshape(*grid, *grid)


def distance_correlation(similarity: Float[Tensor, "rows cols rows cols"]) -> float:
    """Compute Spearman's rank correlation of similarity with nearness (minus the distance), over all pairs (C10).

    1: the nearer, the more similar; 0: no relation; NaN: all are equally similar.
    """
    pairs, nearness, _ = _pairs(*similarity.shape[:2])
    return float(nearness @ _ranks(_values(similarity, pairs)))


def row_column_excess(similarity: Float[Tensor, "rows cols rows cols"]) -> tuple[float, float]:
    """Compute how much more similar patches of one row, and of one column, are than others equally far apart (C10).

    Pairs in a row (column) at distance d are compared with pairs in neither at distances within half a patch of d,
    and the difference is averaged over d: what nearness alone explains cancels. NaN where no pair is to compare with.
    """
    pairs, _, weights = _pairs(*similarity.shape[:2])
    row, column = (weights @ _values(similarity, pairs)).tolist()
    return row, column


def _table(model: nn.Module, block: int | None = None) -> Tensor:
    variant = isinstance(model, Variant)
    if block is not None and not (variant and model.config.placed == "every block"):
        raise ValueError(
            f"block {block} given, but {type(model).__name__} adds the same positions once or in all blocks"
        )
    table = model.position_table(block) if variant else getattr(model, "pos_embed", None)
    if table is None:
        table = getattr(getattr(model, "embeds", None), "pos_embed", None)
    if not isinstance(table, Tensor) or table.ndim not in (3, 4):
        raise ValueError(
            f"{type(model).__name__} has no learned absolute position embeddings (`pos_embed`): its positions are "
            "relative, rotary, or none"
        )
    return table.detach()


def _values(similarity: Tensor, pairs: Tensor) -> Tensor:
    """Read the similarities of pairs of patches off a map."""
    return similarity.detach().cpu().flatten(2).flatten(0, 1)[tuple(pairs)].double()


def _ranks(values: Tensor) -> Tensor:
    """Rank values (equal ones share a rank), centred and of length 1; NaN where all are equal."""
    ranks = torch.from_numpy(stats.rankdata(values.numpy()))
    ranks -= ranks.mean()
    return ranks / ranks.norm()


@functools.lru_cache(maxsize=2)
def _pairs(rows: int, cols: int) -> tuple[Tensor, Tensor, Tensor]:
    """List every two distinct patches of a grid once, [2 P], the ranks of their nearness, [P], and weights [2 P].

    The weights are those with which their similarities enter the excess of rows, and that of columns.
    """
    y, x = torch.arange(rows).repeat_interleave(cols), torch.arange(cols).repeat(rows)
    first, second = pairs = torch.triu_indices(rows * cols, rows * cols, offset=1)
    down, across = (y[first] - y[second]).abs(), (x[first] - x[second]).abs()
    distance = torch.hypot(down.double(), across.double())
    oblique = (down > 0) & (across > 0)

    def excess(along: Tensor, still: Tensor) -> Tensor:
        found = [torch.full_like(distance, torch.nan)]
        for step in range(1, int(along.max()) + 1):
            mine, others = (still == 0) & (along == step), oblique & ((distance - step).abs() <= 0.5)
            if mine.any() and others.any():
                found.append(mine.double() / mine.sum() - others.double() / others.sum())
        return torch.stack(found[1:] or found).mean(0)

    return pairs, _ranks(-distance), torch.stack([excess(across, down), excess(down, across)])
