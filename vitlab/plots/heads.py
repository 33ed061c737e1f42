"""The maps of many heads side by side, all of one query patch (§4.5, Fig. 6, 7 right)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from vitlab.plots.style import COLOURS, axes


def plot_head_maps(
    maps: Float[np.ndarray, "heads blocks rows cols"],
    ax: Axes | None = None,
    *,
    query: tuple[int, int] | None = None,
    blocks: Sequence[int] = (),
    linear: bool = False,
    aspect: float = 1.0,
) -> Axes:
    """Attention of one query in every head: blocks from left to right, heads from the top down.

    Every map has its own maximum; colours follow the square root of attention, or attention itself (`linear`).

    Args:
        query: row and column of the query patch, framed in every map; None where the query is no patch.
        blocks: their numbers in the model, from 1, for the ticks; without them there are no ticks.
        aspect: height of a patch over its width.

    >>> ax = plot_head_maps(np.ones((2, 3, 4, 4)), query=(1, 2), blocks=(1, 2, 3))
    >>> [tick.get_text() for tick in ax.get_xticklabels()], len(ax.patches)
    (['1', '2', '3'], 6)
    """
    ax = axes(ax)
    n_heads, n_blocks, rows, cols = maps.shape
    gap = max(1, min(rows, cols) // 8)
    down, across = rows + gap, cols + gap
    sheet = np.full((n_heads * down - gap, n_blocks * across - gap), np.nan)
    for head, block in np.ndindex(n_heads, n_blocks):
        shares = maps[head, block] / max(float(maps[head, block].max()), 1e-12)
        top, left = head * down, block * across
        sheet[top : top + rows, left : left + cols] = shares if linear else np.sqrt(shares)
        if query is not None:
            corner = (left + query[1] - 0.5, top + query[0] - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, fill=False, color=COLOURS["vermilion"], linewidth=1))
    ax.imshow(sheet, vmin=0, vmax=1, cmap="viridis", aspect=aspect)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_xticks([block * across + (cols - 1) / 2 for block in range(len(blocks))], [str(number) for number in blocks])
    ax.set_yticks([head * down + (rows - 1) / 2 for head in range(n_heads if blocks else 0)])
    ax.set_yticklabels([str(head + 1) for head in range(n_heads if blocks else 0)])
    if blocks:
        ax.set(xlabel="block", ylabel="head")
    return ax
