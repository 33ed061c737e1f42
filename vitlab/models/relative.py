"""Relative position embeddings: attention whose logits know how far apart two patches are (App. D.4, Table 8)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vitlab.models.vit import Attention, Queries

_CHUNK = 2**17  # logits computed at once in a training step on a CPU: with what goes with them they stay in its cache
_QUERIES = 128  # of one head, at most, in them


class Offsets(nn.Module):
    """One embedding for each offset between two patches' places in the sequence, row by row, the same for all heads.

    `pos_embed_offsets` is [2N - 1, D_h]; its row r is for the offset p_q - p_k = N - 1 - r, so that the rows of a
    query's keys stand side by side, in the keys' order.
    """

    def __init__(self, n_patches: int, head_dim: int) -> None:
        super().__init__()
        self.n_patches = n_patches
        self.pos_embed_offsets = nn.Parameter(torch.zeros(2 * n_patches - 1, head_dim))

    def forward(self) -> Float[Tensor, "R d"]:
        return self.pos_embed_offsets


class RelativeAttention(Attention):
    """Self-attention with "1-dimensional relative attention" as a bias (App. D.4): softmax((q kᵀ + q rᵀ) / √D_h).

    r is the embedding of the offset p_q - p_k between two patches' places in the sequence, see `Offsets`; the query is
    that of the content. A class token is at no distance from a patch: in pairs with it the content alone decides. (An
    embedding for the pairs of the class token's own query with the patches would be the same for all of them, and a
    softmax does not see that.) The paper does not say how the class token takes part. Where the head reads the class
    token, it reads the output of that one query in the last block: the last block's own table is then never asked and
    gets no gradient.

    `offsets` is registered here where it is the block's own; where blocks share it, the model registers it.

    >>> attention = RelativeAttention(Attention(8, n_heads=2, dropout=0.0), Offsets(6, head_dim=4), own=True)
    >>> attention(torch.zeros(5, 7, 8)).shape
    torch.Size([5, 7, 8])
    """

    def __init__(self, attention: Attention, offsets: Offsets, *, own: bool) -> None:
        super().__init__(attention.qkv.in_features, attention.num_heads, attention.proj_drop.p)
        self.qkv, self.proj = attention.qkv, attention.proj
        self._shared = () if own else (offsets,)  # in a tuple: registered, it would be saved once for each block
        if own:
            self.offsets = offsets

    def bias(self, q: Float[Tensor, "B H T d"]) -> Float[Tensor, "B H T T"]:
        """What is added to the logits of every query and key: q rᵀ / √D_h, and 0 in pairs with a class token."""
        table, n_prefix = self._table(q.shape[2])
        of_offsets = (q[:, :, n_prefix:] * self.scale @ table.T).contiguous()  # [B heads N 2N - 1]
        return F.pad(_by_keys(of_offsets, q.shape[2] - n_prefix), (n_prefix, 0, n_prefix, 0))

    def bias_at(self, q: Float[Tensor, "B H t d"], at: Int64[Tensor, "B t"], n_tokens: int) -> Float[Tensor, "B H t T"]:
        """The rows of `bias` that are the tokens `at` of every image, from their queries alone."""
        table, n_prefix = self._table(n_tokens)
        keys = torch.arange(n_tokens, device=at.device)
        between_patches = ((at[..., None] >= n_prefix) & (keys >= n_prefix))[:, None]  # [B 1 t T]
        rows = (keys - at[..., None] + n_tokens - n_prefix - 1).clamp(0, len(table) - 1)[:, None]
        of_keys = (q * self.scale @ table.T).gather(-1, rows.expand(-1, q.shape[1], -1, -1))
        return of_keys * between_patches

    def _table(self, n_tokens: int) -> tuple[Tensor, int]:
        """The embeddings [2N - 1, D_h], and how many of the tokens come before the patches."""
        offsets = self._shared[0] if self._shared else self.offsets
        n_prefix = n_tokens - offsets.n_patches
        if n_prefix not in (0, 1):
            raise ValueError(
                f"{n_tokens} tokens given, but the relative positions are those of {offsets.n_patches} patches, with "
                "or without a class token; build the model for the images' size"
            )
        return offsets(), n_prefix

    def attend(
        self, q: Float[Tensor, "B H t d"], k: Float[Tensor, "B H T d"], v: Float[Tensor, "B H T d"], queries: Queries
    ) -> Float[Tensor, "B H t d"]:
        dropped = self.attn_drop.p if self.training else 0.0
        quick = self.training and not dropped and q.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if self.fused_attn and queries is None and quick:
            # PyTorch's fused kernel has no gradient for a mask; without it a step is up to three times as slow.
            heads = ((each.flatten(0, 1)) for each in (q * self.scale, k, v))  # [B·heads T D_h]
            return _InChunks.apply(*heads, self._table(q.shape[2])[0]).unflatten(0, (len(q), -1))
        if queries is None:
            bias = self.bias(q)
        else:
            at = torch.arange(queries, device=q.device).expand(len(q), -1) if isinstance(queries, int) else queries
            bias = self.bias_at(q, at, k.shape[2])
        if self.fused_attn:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropped)
        return self.attn_drop((q * self.scale @ k.transpose(-2, -1) + bias).softmax(dim=-1)) @ v


def _by_keys(of_offsets: Float[Tensor, "*B t R"], n_keys: int) -> Float[Tensor, "*B t N"]:
    """A view: of consecutive queries' products with consecutive offsets those with the offsets of the keys.

    In row i the first key's is in column t - 1 - i: one place further to the left in every row.
    """
    queries, step = of_offsets.shape[-2], of_offsets.stride(-2)
    strides = (*of_offsets.stride()[:-2], step - 1, 1)
    return of_offsets.as_strided((*of_offsets.shape[:-1], n_keys), strides, of_offsets.storage_offset() + queries - 1)


def _chunks(n_heads: int, n_tokens: int) -> list[tuple[slice, slice]]:
    """Heads and queries to compute at once; few queries, which meet few offsets beside those of their keys."""
    n_rows = math.ceil(n_tokens / math.ceil(n_tokens / _QUERIES))  # parts as equal as can be
    n_at_once = max(1, _CHUNK // (n_rows * n_tokens))
    return [
        (slice(head, head + n_at_once), slice(row, min(row + n_rows, n_tokens)))
        for head in range(0, n_heads, n_at_once)
        for row in range(0, n_tokens, n_rows)
    ]


def _patches(rows: slice, n_prefix: int, n_offsets: int) -> tuple[slice, slice, slice]:
    """Of these queries those of patches: where in the sequence, where among the rows; and their rows of the table."""
    start = max(rows.start, n_prefix)
    n_patches, first, last = (n_offsets + 1) // 2, start - n_prefix, rows.stop - 1 - n_prefix
    table = slice(n_patches - 1 - last, 2 * n_patches - 1 - first)
    return slice(start, rows.stop), slice(start - rows.start, None), table


class _InChunks(torch.autograd.Function):
    """softmax(q kᵀ + bias) v for q [heads T d], which is scaled already, a few logits at a time.

    Products, softmax and gradients are those of the open form; a chunk of queries meets only the offsets that it needs.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        n_prefix = q.shape[1] - (len(table) + 1) // 2
        attn, out = q.new_empty(*q.shape[:2], q.shape[1]), torch.empty_like(q)
        for heads, rows in _chunks(*q.shape[:2]):
            logits = q[heads, rows] @ k[heads].mT
            queries, own_rows, offsets = _patches(rows, n_prefix, len(table))
            if queries.stop > queries.start:
                of_offsets = q[heads, queries] @ table[offsets].T
                logits[:, own_rows, n_prefix:] += _by_keys(of_offsets, q.shape[1] - n_prefix)
            part = logits.softmax(-1)
            out[heads, rows] = part @ v[heads]
            attn[heads, rows] = part
        ctx.save_for_backward(q, k, v, table, attn, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, table, attn, out = ctx.saved_tensors
        n_prefix = q.shape[1] - (len(table) + 1) // 2
        of_q, of_k, of_v, of_table = torch.empty_like(q), *(torch.zeros_like(each) for each in (k, v, table))
        means = (grad * out).sum(-1, keepdim=True)  # of the gradient with respect to attention, by attention
        for heads, rows in _chunks(*q.shape[:2]):
            part = attn[heads, rows]
            of_logits = (grad[heads, rows] @ v[heads].mT).sub_(means[heads, rows]).mul_(part)
            of_q[heads, rows] = of_logits @ k[heads]
            of_k[heads] += of_logits.mT @ q[heads, rows]
            of_v[heads] += part.mT @ grad[heads, rows]
            queries, own_rows, offsets = _patches(rows, n_prefix, len(table))
            if queries.stop > queries.start:
                n_queries, n_offsets = queries.stop - queries.start, offsets.stop - offsets.start
                of_offsets = q.new_zeros(len(part), n_queries, n_offsets)
                _by_keys(of_offsets, q.shape[1] - n_prefix).copy_(of_logits[:, own_rows, n_prefix:])
                of_q[heads, queries] += of_offsets @ table[offsets]
                of_table[offsets] += of_offsets.flatten(0, 1).T @ q[heads, queries].flatten(0, 1)
        return of_q, of_k, of_v, of_table
