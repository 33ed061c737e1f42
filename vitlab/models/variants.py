"""The ViTs of App. D that differ from Eq. 1-4: position embeddings (D.4, Table 8), axial attention (D.6, Fig. 13)."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vitlab.models.vit import Attention, Block, Queries, ViT, ViTConfig, take

POSITIONS = ("none", "1d", "2d", "relative")
PLACED = ("stem", "every block", "shared")
ATTENTION = ("full", "axial")
OWN = {"positions": "1d", "placed": "stem", "attention": "full"}  # a VariantConfig's fields beyond ViTConfig's
TABLES_STREAM = 1 << 22  # the tables' own stream of numbers: from one seed all variants have the same other weights
CHUNK, CHUNK_QUERIES = 2**17, 128  # logits, and queries of a head, at once in a training step on a CPU: fit its cache


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ViTConfig):
    """A ViT's configuration, with its position embeddings, where they are added, and its kind of attention.

    `positions`: "none"; "1d", one embedding for each place in the sequence, row by row, as in Eq. 1; "2d", an
    embedding for each column and one for each row, D/2 wide, concatenated; "relative", see `RelativeAttention`.
    `placed`: added at the "stem" as in Eq. 1, at the input of "every block" from tables of its own, or there from
    one table that is "shared". Relative embeddings act in every block: with tables of its own, or one shared.
    `attention`: "full", Eq. 5-8, or "axial": two blocks in place of each of `depth`, one within rows, one within
    columns. The paper's is for two-dimensional inputs and says nothing of a class token: there is none here.

    Raises ValueError as `ViTConfig`, for an unknown word, and for words that do not go together.
    """

    positions: str = OWN["positions"]  # one of POSITIONS
    placed: str = OWN["placed"]  # one of PLACED
    attention: str = OWN["attention"]  # one of ATTENTION

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("positions", POSITIONS), ("placed", PLACED), ("attention", ATTENTION)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} {value!r} is unknown; use one of {', '.join(map(repr, known))}")
        if self.positions == "none" and self.placed != "stem":
            raise ValueError(f"placed {self.placed!r} says nothing where positions is 'none'; leave placed out")
        if self.positions == "relative" and self.placed == "stem":
            raise ValueError(
                "positions 'relative' cannot be placed at the 'stem': they are a part of the attention; use "
                "placed='every block' (tables of its own, the default) or placed='shared'"
            )
        if self.positions == "relative" and self.attention == "axial":
            raise ValueError(
                "positions 'relative' are between all patches, and attention 'axial' compares those of a row or a "
                "column alone; use positions 'none', '1d' or '2d', or attention='full'"
            )
        if self.positions == "2d" and self.dim % 2:
            raise ValueError(
                f"dim {self.dim} is odd, and positions '2d' have half of it for the column and half for the row; use a "
                f"dim of {self.dim - 1} or {self.dim + 1}, or positions='1d'"
            )
        if self.attention == "axial" and self.pool == "class":
            raise ValueError(
                "pool 'class' does not go with attention 'axial', whose tokens are a grid of patches; use pool='gap'"
            )


def build(settings: Mapping[str, Any], seed: int = 0) -> ViT:
    """Build the `ViT` or, where the settings of a `VariantConfig` ask for more than one has, the `Variant`.

    `placed` is by default "every block" for relative positions, and "stem" for the others.
    """
    placed = "every block" if settings.get("positions") == "relative" else "stem"
    config = VariantConfig(**{"placed": placed, **settings})
    if any(getattr(config, name) != plain for name, plain in OWN.items()):
        return Variant(config, seed)
    return ViT(ViTConfig(**{key: value for key, value in settings.items() if key not in OWN}), seed)


class AxialAttention(Attention):
    """Self-attention, Eq. 5-8, where every row of patches (or every column) is a sequence of its own (App. D.6)."""

    def __init__(self, attention: Attention, grid: tuple[int, int], axis: Literal["rows", "columns"]) -> None:
        super().__init__(attention.qkv.in_features, attention.num_heads, attention.proj_drop.p)
        self.qkv, self.proj = attention.qkv, attention.proj
        self.grid, self.axis = (int(grid[0]), int(grid[1])), axis
        self.line_length = self.grid[1] if axis == "rows" else self.grid[0]

    def forward(self, x: Float[Tensor, "B N D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        rows, cols = self.grid
        if rows * cols != x.shape[1]:
            raise ValueError(
                f"{x.shape[1]} tokens given, but axial attention is over {rows} rows x {cols} columns = {rows * cols} "
                "patches and no other tokens; give a grid that is full, without a class token"
            )
        if self.axis == "columns":  # the input is transposed, and not q, k and v: a third as much to copy
            x = transpose_grid(x, self.grid)
        lines = super().forward(x.reshape(-1, self.line_length, x.shape[2]))
        x = lines.reshape(x.shape)
        return take(transpose_grid(x, (cols, rows)) if self.axis == "columns" else x, queries)


def transpose_grid(x: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B N D"]:
    """Reorder a grid of tokens, given row by row, column by column."""
    return x.unflatten(1, grid).transpose(1, 2).flatten(1, 2)


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

    r is the embedding of the offset p_q - p_k between two patches' places in the sequence, see `Offsets`. The paper
    does not say how a class token takes part; it is at no distance from a patch: in pairs with it the content alone
    decides. Where the head reads the class token, the last block's own table gets no gradient.

    `offsets` is registered here where it is the block's own; where blocks share it, the model registers it.
    """

    def __init__(self, attention: Attention, offsets: Offsets, *, own: bool) -> None:
        super().__init__(attention.qkv.in_features, attention.num_heads, attention.proj_drop.p)
        self.qkv, self.proj = attention.qkv, attention.proj
        self._shared = () if own else (offsets,)  # in a tuple: registered, it would be saved once for each block
        if own:
            self.offsets = offsets

    def bias(self, q: Float[Tensor, "B H T d"]) -> Float[Tensor, "B H T T"]:
        """Compute what is added to all logits: q rᵀ / √D_h, and 0 in pairs with a class token."""
        table, n_prefix = self._table(q.shape[2])
        of_offsets = (q[:, :, n_prefix:] * self.scale @ table.T).contiguous()  # [B heads N 2N - 1]
        return F.pad(_by_keys(of_offsets, q.shape[2] - n_prefix), (n_prefix, 0, n_prefix, 0))

    def bias_at(self, q: Float[Tensor, "B H t d"], at: Int64[Tensor, "B t"], n_tokens: int) -> Float[Tensor, "B H t T"]:
        """Compute the rows of `bias` that are the tokens `at` of every image, from their queries alone."""
        table, n_prefix = self._table(n_tokens)
        keys = torch.arange(n_tokens, device=at.device)
        between_patches = ((at[..., None] >= n_prefix) & (keys >= n_prefix))[:, None]  # [B 1 t T]
        rows = (keys - at[..., None] + n_tokens - n_prefix - 1).clamp(0, len(table) - 1)[:, None]
        of_keys = (q * self.scale @ table.T).gather(-1, rows.expand(-1, q.shape[1], -1, -1))
        return of_keys * between_patches

    def _table(self, n_tokens: int) -> tuple[Tensor, int]:
        """Give the embeddings [2N - 1, D_h], and how many of the tokens come before the patches."""
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
            heads = (each.flatten(0, 1) for each in (q * self.scale, k, v))  # [B·heads T D_h]
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
    """View of consecutive queries' products with consecutive offsets those with the offsets of the keys.

    In row i the first key's is in column t - 1 - i: one place further to the left in every row.
    """
    queries, step = of_offsets.shape[-2], of_offsets.stride(-2)
    strides = (*of_offsets.stride()[:-2], step - 1, 1)
    return of_offsets.as_strided((*of_offsets.shape[:-1], n_keys), strides, of_offsets.storage_offset() + queries - 1)


def _chunks(n_heads: int, n_tokens: int) -> list[tuple[slice, slice]]:
    """Choose heads and queries to compute at once; few queries, which meet few offsets but those of their keys."""
    n_rows = math.ceil(n_tokens / math.ceil(n_tokens / CHUNK_QUERIES))  # parts as equal as can be
    n_at_once = max(1, CHUNK // (n_rows * n_tokens))
    return [
        (slice(head, head + n_at_once), slice(row, min(row + n_rows, n_tokens)))
        for head in range(0, n_heads, n_at_once)
        for row in range(0, n_tokens, n_rows)
    ]


def _patches(rows: slice, n_prefix: int, n_offsets: int) -> tuple[slice, slice, slice]:
    """Find the patches among these queries: in the sequence, among the rows, and their rows of the table."""
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


class PositionTable(nn.Module):
    """Absolute position embeddings of every token, [1 T D], from one table or from one for columns and one for rows.

    A class token has an embedding of its own, D wide: it is at no row and no column.
    """

    def __init__(self, kind: str, n_prefix: int, grid: tuple[int, int], dim: int) -> None:
        super().__init__()
        self.kind, (self.rows, self.cols) = kind, grid
        if kind == "1d":
            self.pos_embed = nn.Parameter(torch.zeros(1, n_prefix + self.rows * self.cols, dim))
            return
        self.pos_embed_class = nn.Parameter(torch.zeros(1, n_prefix, dim)) if n_prefix else None
        self.pos_embed_x = nn.Parameter(torch.zeros(1, self.cols, dim // 2))
        self.pos_embed_y = nn.Parameter(torch.zeros(1, self.rows, dim // 2))

    def forward(self) -> Float[Tensor, "1 T D"]:
        if self.kind == "1d":
            return self.pos_embed
        x = self.pos_embed_x[:, None].expand(-1, self.rows, -1, -1)  # [1 rows cols D/2], as y
        y = self.pos_embed_y[:, :, None].expand(-1, -1, self.cols, -1)
        patches = torch.cat([x, y], dim=-1).flatten(1, 2)  # row by row
        return patches if self.pos_embed_class is None else torch.cat([self.pos_embed_class, patches], dim=1)


class PlacedBlock(Block):
    """A block that adds position embeddings to its input, from a table of its own or from one that it shares."""

    def __init__(self, config: ViTConfig, block: nn.Module, table: PositionTable, *, own: bool, dropout: float) -> None:
        super().__init__(config)
        assert isinstance(block, Block)  # of every ViT of ours
        self.norm1, self.attn, self.norm2, self.mlp = block.norm1, block.attn, block.norm2, block.mlp
        self.pos_drop = nn.Dropout(dropout)
        self._shared = () if own else (table,)  # in a tuple: registered, it would be saved once for each block
        if own:
            self.positions = table

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        table = self._shared[0] if self._shared else self.positions
        return super().forward(self.pos_drop(x + table()), queries)


class Variant(ViT):
    """A ViT as its configuration says. From one seed, all weights but the positions' are those of the plain `ViT`.

    The new tables are drawn from a normal of deviation 0.02, as the authors' code draws the one that it has. Dropout
    follows where positions are first added to the patches' embeddings.
    """

    config: VariantConfig

    def __init__(self, config: VariantConfig, seed: int = 0) -> None:
        n_blocks = config.depth * (2 if config.attention == "axial" else 1)
        super().__init__(replace(config, depth=n_blocks), seed)
        self.config = config
        rows, cols = (int(side) for side in self.patch_embed.grid_size)
        own = config.placed == "every block"
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            if config.attention == "axial":  # blocks in pairs, named so that no others' weights fit
                blocks = OrderedDict[str, nn.Module]()
                for number, block in enumerate(self.blocks):
                    axis: Literal["rows", "columns"] = "columns" if number % 2 else "rows"
                    block.attn = AxialAttention(block.attn, (rows, cols), axis)
                    blocks[f"{number // 2}_{axis}"] = block
                self.blocks = nn.Sequential(blocks)
            if config.positions == "relative":
                size = (rows * cols, config.dim // config.n_heads)
                if not own:
                    self.shared_offsets = Offsets(*size)
                for block in self.blocks:
                    block.attn = RelativeAttention(block.attn, Offsets(*size) if own else self.shared_offsets, own=own)
            elif config.positions == "2d" or config.placed != "stem":
                self._place(config, (rows, cols))
        if config.positions in ("none", "relative"):
            del self.pos_embed
        if not self.norm.weight.is_meta:
            generator = torch.Generator().manual_seed(seed ^ TABLES_STREAM)
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if "pos_embed" in name and name != "pos_embed":  # which is the plain ViT's, and drawn
                        parameter.normal_(std=0.02, generator=generator)

    def _place(self, config: VariantConfig, grid: tuple[int, int]) -> None:
        """Put tables where the configuration says, in place of `pos_embed`, under names that tell the places apart."""
        del self.pos_embed
        kind = (config.positions, self.num_prefix_tokens, grid, config.dim)
        if config.placed == "stem":
            self.stem_positions = PositionTable(*kind)
            return
        own = config.placed == "every block"
        if not own:
            self.shared_positions = PositionTable(*kind)
        self.pos_drop = nn.Dropout(0.0)
        placed = OrderedDict[str, nn.Module]()
        for number, (name, block) in enumerate(self.blocks.named_children()):
            table, dropout = PositionTable(*kind) if own else self.shared_positions, 0.0 if number else config.dropout
            placed[name] = PlacedBlock(config, block, table, own=own, dropout=dropout)
        self.blocks = nn.Sequential(placed)

    def extra_repr(self) -> str:
        """Add what the names of its parts do not tell: a training is told from another by its model's `repr`."""
        return ", ".join(f"{name}={getattr(self.config, name)!r}" for name in ("pool", *sorted(OWN)))

    def sequence(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B T D"]:
        """Make the encoder's input: class token in front, and positions added where they are placed at the stem."""
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        if self.config.placed == "stem" and self.config.positions != "none":
            x = x + self.position_table()
        return self.pos_drop(x)

    def position_table(self, block: int | None = None) -> Float[Tensor, "1 T D"]:
        """Give the position embeddings of every token that are added: at the stem, in every block, or in this one.

        Raises ValueError where there are none, or every block has its own and none is named.
        """
        positions, placed = self.config.positions, self.config.placed
        if positions in ("none", "relative"):
            raise ValueError(
                f"the model has no absolute position embeddings: its positions are {positions!r}; give one with "
                "positions '1d' or '2d'"
            )
        if placed != "every block" and block is not None:
            raise ValueError(f"block {block} given, but all blocks have the same position embeddings; leave block out")
        if placed == "every block":
            if block is None or not 0 <= block < len(self.blocks):
                raise ValueError(
                    f"block {block} given, but every block has position embeddings of its own; name one, from 0 to "
                    f"{len(self.blocks) - 1}"
                )
            return self.blocks[block].positions()
        if placed == "shared":
            return self.shared_positions()
        return self.pos_embed if positions == "1d" else self.stem_positions()
