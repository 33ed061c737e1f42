"""See the attention of a running block without changing what it computes (Eq. 6; the machinery of `capture`).

Fused attention never forms the matrix softmax(q kᵀ / √D_h), so hooks have nothing to see. A torch function mode,
which belongs to one thread, watches the forward: for a fused call the matrix is formed from the very q, k, mask and
scale that were passed; in open code it is the softmax that multiplies v. The model's own calls run unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SOFTMAX = {torch.softmax, Tensor.softmax, F.softmax}
_MATMUL = {torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm}


class Tap(TorchFunctionMode):
    """Sees every torch call of its own thread; acts on the attention of the block that is running.

    A class because that is what torch calls: `__torch_function__` is given each function in place of its being run.

    Args:
        fused: called as `fused(block, q, k, v, **options)` at a fused call. What it returns, unless None, becomes
            the result of the call.
        open_coded: called as open_coded(block, attn) where a softmax is about to multiply v.
        n_tokens: tokens that every block must be given.
    """

    def __init__(
        self, fused: Callable[..., Tensor | None], open_coded: Callable[[int, Tensor], None], n_tokens: int
    ) -> None:
        super().__init__()
        self.fused, self.open_coded, self.n_tokens = fused, open_coded, n_tokens
        self.thread = threading.get_ident()
        self.block: int | None = None  # the block that is running
        self.expected = (0, 0)  # of its attention: how many sequences, how many tokens in each
        self.count = 0  # attention matrices seen in it
        self.softmaxes: list[Tensor] = []  # results of softmax in it that no product has used yet
        self.done: list[int] = []  # blocks that have run

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.block is None:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._fused_call(*args, **kwargs)
        if func in _MATMUL and args and any(args[0] is attn for attn in self.softmaxes):
            self.softmaxes.clear()
            self._count(tuple(args[0].shape))
            with torch.autocast(args[0].device.type, enabled=False):
                self.open_coded(self.block, args[0])
        result = func(*args, **kwargs)
        if func in _SOFTMAX:
            self.softmaxes.append(result)
        return result

    def _fused_call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        self._count((*query.shape[:-1], key.shape[-2]))
        device = query.device.type
        # Under autocast the fused kernel rounds its inputs first, so the matrix is formed from rounded ones.
        rounded = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        with torch.autocast(device, enabled=False):
            replaced = self.fused(
                self.block,
                query,
                key,
                value,
                attn_mask=attn_mask,
                is_causal=is_causal,
                rounded=rounded,
                **options,
            )
        if replaced is not None:
            return replaced
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)

    def _count(self, shape: tuple[int, ...]) -> None:
        """Count one attention matrix of the running block; refuse what is not [batch, heads, tokens, tokens]."""
        self.count += 1
        if self.count > 1:
            raise ValueError(
                f"cannot capture: block {self.block} computes attention more than once (parallel, differential or "
                "mixed attention), so it has no single attention matrix"
            )
        batch, n = self.expected
        if len(shape) != 4 or shape[0] != batch or shape[2:] != (n, n):
            raise ValueError(
                f"cannot capture: attention in block {self.block} has shape {list(shape)}, expected [{batch}, "
                f"heads, {n}, {n}]; it is between channels, pooled tokens or the tokens of a window, not all tokens"
            )

    def enter(self, block: int, tokens: Any, lines: tuple[int, int] | None = None) -> None:
        """A block begins, given `tokens`; `lines`: how many there are and of how many tokens, for axial attention."""
        if self.block is not None or block != len(self.done):
            raise ValueError(f"cannot capture: block {block} runs where block {len(self.done)} was expected")
        shape = list(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        if not isinstance(tokens, Tensor) or tokens.ndim != 3 or tokens.shape[1] != self.n_tokens:
            raise ValueError(
                f"cannot capture: block {block} is given {shape}, expected [batch, {self.n_tokens}, dim]: the prefix "
                "tokens and all patches"
            )
        n_lines, length = lines or (1, self.n_tokens)
        self.block, self.count = block, 0
        self.expected = (tokens.shape[0] * n_lines, length)

    def leave(self) -> None:
        """The running block ends."""
        if self.block is None or self.count == 0:
            hint = "changes its softmax before using it" if self.softmaxes else "computes none that torch shows"
            raise ValueError(f"cannot capture: no attention matrix was seen in block {self.block}: it {hint}")
        self.done.append(self.block)
        self.block = None
        self.softmaxes.clear()


def softmax_rows(
    q: Float[Tensor, "B H T d"],
    k: Float[Tensor, "B K T d"],
    heads: slice,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    rounded: torch.dtype | None = None,
) -> Float[Tensor, "B h T T"]:
    """softmax(q kᵀ · scale + mask) for some heads, in float32 or better, as the fused kernel defines it (Eq. 6).

    >>> q = torch.zeros(1, 2, 4, 8)
    >>> softmax_rows(q, q, slice(0, 1))[0, 0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if enable_gqa:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    if attn_mask is not None and attn_mask.ndim > 2 and attn_mask.shape[-3] > 1:
        attn_mask = attn_mask[..., heads, :, :]
    q, k = q[:, heads], k[:, heads]
    if rounded is not None:
        q, k = q.to(rounded), k.to(rounded)
    exact = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q.to(exact) * scale) @ k.to(exact).transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + (attn_mask if rounded is None else attn_mask.to(rounded)).to(exact)
    return scores.softmax(dim=-1)
