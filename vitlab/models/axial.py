"""Axial attention: within every row, or every column, of the grid of patches (App. D.6, Fig. 13)."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitlab.models.vit import Attention, Queries, take


class AxialAttention(Attention):
    """Self-attention, Eq. 5-8, where every row of patches (or every column) is a sequence of its own.

    >>> import torch
    >>> attention = AxialAttention(Attention(8, n_heads=2, dropout=0.0), grid=(2, 3), axis="rows")
    >>> attention(torch.zeros(5, 6, 8)).shape
    torch.Size([5, 6, 8])
    """

    def __init__(self, attention: Attention, grid: tuple[int, int], axis: Literal["rows", "columns"]) -> None:
        super().__init__(attention.qkv.in_features, attention.num_heads, attention.proj_drop.p)
        self.qkv, self.proj = attention.qkv, attention.proj
        self.grid, self.axis = (int(grid[0]), int(grid[1])), axis

    @property
    def n_lines(self) -> int:
        """Number of rows, or of columns."""
        return self.grid[0] if self.axis == "rows" else self.grid[1]

    @property
    def line_length(self) -> int:
        """Number of patches in each of them."""
        return self.grid[1] if self.axis == "rows" else self.grid[0]

    def forward(self, x: Float[Tensor, "B N D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        B, N, D = x.shape
        rows, cols = self.grid
        if rows * cols != N:
            raise ValueError(
                f"{N} tokens given, but axial attention is over {rows} rows x {cols} columns = {rows * cols} patches "
                "and no other tokens; give a grid that is full, without a class token"
            )
        if self.axis == "columns":  # the input is turned, and not q, k and v: a third as much to copy
            x = turned(x, self.grid)
        qkv = self.qkv(x).reshape(B * self.n_lines, self.line_length, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [3 B·lines heads length D_h]: a line of patches is a sequence
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            attn = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
            x = self.attn_drop(attn) @ v
        x = self.proj_drop(self.proj(x.transpose(1, 2).reshape(B, N, D)))
        return take(turned(x, (cols, rows)) if self.axis == "columns" else x, queries)

    def spread(self, attn: Float[Tensor, "lines H n n"]) -> Float[Tensor, "B H N N"]:
        """Attention within lines as attention between all patches of the grid: 0 between those of two lines.

        >>> import torch
        >>> attention = AxialAttention(Attention(8, n_heads=1, dropout=0.0), grid=(2, 2), axis="columns")
        >>> attention.spread(torch.eye(2).expand(2, 1, 2, 2) + 1)[0, 0]
        tensor([[2., 0., 1., 0.],
                [0., 2., 0., 1.],
                [1., 0., 2., 0.],
                [0., 1., 0., 2.]])
        """
        rows, cols = self.grid
        lines = attn.unflatten(0, (-1, self.n_lines)).permute(0, 2, 3, 4, 1)
        whole = attn.new_zeros(len(lines), attn.shape[1], rows, cols, rows, cols)
        same = (2, 4) if self.axis == "rows" else (3, 5)  # the query's line is the key's
        whole.diagonal(dim1=same[0], dim2=same[1]).copy_(lines)  # [B heads n n lines]
        return whole.flatten(4).flatten(2, 3)


def turned(x: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B N D"]:
    """A grid of tokens, row by row, as the same tokens column by column.

    >>> import torch
    >>> turned(torch.arange(6.0).reshape(1, 6, 1), (2, 3)).flatten()
    tensor([0., 3., 1., 4., 2., 5.])
    """
    return x.unflatten(1, grid).transpose(1, 2).flatten(1, 2)
