"""The ViTs of App. D that differ from Eq. 1-4: position embeddings (D.4, Table 8), axial attention (D.6, Fig. 13)."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.models.vit import Attention, Block, Queries, ViT, ViTConfig, take

POSITIONS = ("none", "1d", "2d", "relative")
PLACED = ("stem", "every block", "shared")
ATTENTION = ("full", "axial")
OWN = {"positions": "1d", "placed": "stem", "attention": "full"}  # a VariantConfig's fields beyond ViTConfig's
TABLES_STREAM = 1 << 22  # the tables' own stream of numbers: from one seed all variants have the same other weights


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ViTConfig):
    """A ViT's configuration, with its position embeddings, where they are added, and its kind of attention.

    `positions`: "none"; "1d", one embedding for each place in the sequence, row by row, as in Eq. 1; "2d", an
    embedding for each column and one for each row, D/2 wide, concatenated; "relative", see `RelativeAttention`.
    `placed`: added at the "stem" as in Eq. 1, at the input of "every block" from tables of its own, or there from
    one table that is "shared". Relative embeddings act in every block: with tables of its own, or one shared.
    `attention`: "full", Eq. 5-8, or "axial": two blocks in place of each of `depth`, one within rows, one within
    columns. The paper's is for two-dimensional inputs and says nothing of a class token: there is none here.
    """

    positions: str = OWN["positions"]  # one of POSITIONS
    placed: str = OWN["placed"]  # one of PLACED
    attention: str = OWN["attention"]  # one of ATTENTION

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("positions", POSITIONS), ("placed", PLACED), ("attention", ATTENTION)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} {value!r} is unknown; use one of {', '.join(map(repr, known))}")
        if self.positions == "none" and self.placed != "stem":
            raise ValueError(f"placed {self.placed!r} says nothing where positions is 'none'; leave placed out")
        if self.positions == "relative" and self.placed == "stem":
            raise ValueError(
                "positions 'relative' cannot be placed at the 'stem': they are a part of the attention; use "
                "placed='every block' (the default) or placed='shared'"
            )
        if self.positions == "relative" and self.attention == "axial":
            raise ValueError(
                "positions 'relative' are between all patches, attention 'axial' is within a row or a column; use "
                "positions 'none', '1d' or '2d', or attention='full'"
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
        self.grid, self.axis = grid, axis

    def forward(self, x: Float[Tensor, "B N D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        by_lines = x.unflatten(1, self.grid)  # [B rows cols D]
        if self.axis == "columns":  # the input is transposed, and not q, k and v: a third as much to copy
            by_lines = by_lines.transpose(1, 2)
        x = super().forward(by_lines.flatten(0, 1)).reshape(by_lines.shape)
        return take((x.transpose(1, 2) if self.axis == "columns" else x).flatten(1, 2), queries)


class Offsets(nn.Module):
    """One embedding for each offset between two patches' places in the sequence, row by row, the same for all heads.

    `pos_embed_offsets` [2N - 1, D_h]: row r is of offset p_q - p_k = N - 1 - r; a query's keys are adjacent, in order.
    """

    def __init__(self, n_patches: int, head_dim: int) -> None:
        super().__init__()
        self.n_patches = n_patches
        self.pos_embed_offsets = nn.Parameter(torch.zeros(2 * n_patches - 1, head_dim))


class RelativeAttention(Attention):
    """Self-attention with "1-dimensional relative attention" as a bias (App. D.4): softmax((q kᵀ + q rᵀ) / √D_h).

    r is the embedding of the offset p_q - p_k between two patches' places in the sequence, see `Offsets`. The paper
    does not say how a class token takes part: here the content alone decides in pairs with it. Where the head reads
    the class token, the last block's own table gets no gradient.
    """

    def __init__(self, attention: Attention, offsets: Offsets, *, own: bool) -> None:
        super().__init__(attention.qkv.in_features, attention.num_heads, attention.proj_drop.p)
        self.qkv, self.proj = attention.qkv, attention.proj
        self._offsets = (offsets,)  # in a tuple, not registered: the model saves once what its blocks share
        if own:
            self.offsets = offsets

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        of_prefix = isinstance(queries, int) and queries <= x.shape[1] - self._offsets[0].n_patches
        return super().forward(x, queries) if of_prefix else take(super().forward(x), queries)

    def attend(
        self, q: Float[Tensor, "B H t d"], k: Float[Tensor, "B H T d"], v: Float[Tensor, "B H T d"]
    ) -> Float[Tensor, "B H t d"]:
        (offsets,) = self._offsets
        n_patches, n_prefix = offsets.n_patches, k.shape[2] - offsets.n_patches
        if q.shape[2] <= n_prefix:  # prefix tokens alone, which have no bias; the table's gradient is zero, not missing
            return super().attend(q, k, v) + 0 * offsets.pos_embed_offsets.sum()
        of_offsets = (q[:, :, n_prefix:] * self.scale @ offsets.pos_embed_offsets.T).contiguous()  # [B heads N 2N - 1]
        # In row i the first key's offset is in column N - 1 - i: one place further to the left in every row.
        strides = (*of_offsets.stride()[:2], 2 * n_patches - 2, 1)
        of_keys = of_offsets.as_strided((*of_offsets.shape[:3], n_patches), strides, n_patches - 1)
        bias = F.pad(of_keys, (n_prefix, 0, n_prefix, 0))
        in_float32 = q.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        # a training on a CPU goes without PyTorch's fused kernel, which has no gradient for a mask there and is slower
        if self.fused_attn and not (self.training and in_float32):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.attn_drop((q * self.scale @ k.transpose(-2, -1) + bias).softmax(dim=-1)) @ v


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

    def __init__(self, config: ViTConfig, block: Any, table: PositionTable, *, own: bool, dropout: float) -> None:
        super().__init__(config)
        self.norm1, self.attn, self.norm2, self.mlp = block.norm1, block.attn, block.norm2, block.mlp
        self.pos_drop = nn.Dropout(dropout)
        self._table = (table,)  # in a tuple, not registered: the model saves once what its blocks share
        if own:
            self.positions = table

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        return super().forward(self.pos_drop(x + self._table[0]()), queries)


class Variant(ViT):
    """A ViT as its configuration says. From one seed, all weights but the positions' are those of the plain `ViT`.

    The new tables are drawn from a normal of deviation 0.02, as the authors' code draws the one that it has. Dropout
    follows where positions are first added to the patches' embeddings.
    """

    config: VariantConfig

    def __init__(self, config: VariantConfig, seed: int = 0) -> None:
        super().__init__(replace(config, depth=config.depth * (2 if config.attention == "axial" else 1)), seed)
        self.config = config
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            if config.attention == "axial":  # blocks in pairs, named so that no others' weights fit
                side = config.image_size // config.patch_size
                blocks = OrderedDict[str, nn.Module]()
                for number, block in enumerate(self.blocks):
                    axis: Literal["rows", "columns"] = "columns" if number % 2 else "rows"
                    block.attn = AxialAttention(block.attn, (side, side), axis)
                    blocks[f"{number // 2}_{axis}"] = block
                self.blocks = nn.Sequential(blocks)
            if (config.positions, config.placed) != ("1d", "stem"):
                del self.pos_embed
                self._place_positions()
        if not self.norm.weight.is_meta:
            generator = torch.Generator().manual_seed(seed ^ TABLES_STREAM)
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if "pos_embed" in name and name != "pos_embed":  # which is the plain ViT's, and drawn
                        parameter.normal_(std=0.02, generator=generator)

    def _place_positions(self) -> None:
        """Put tables where the configuration says, in place of `pos_embed`, under names that tell the places apart."""
        config, side, own = self.config, self.patch_embed.grid_size[0], self.config.placed == "every block"
        if config.positions == "none":
            return
        if config.positions == "relative":
            size = (side**2, config.dim // config.n_heads)
            if not own:
                self.shared_offsets = Offsets(*size)
            for block in self.blocks:
                block.attn = RelativeAttention(block.attn, Offsets(*size) if own else self.shared_offsets, own=own)
            return
        kind = (config.positions, self.num_prefix_tokens, (side, side), config.dim)
        if config.placed == "stem":
            self.stem_positions = PositionTable(*kind)
            return
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
        table = self.position_table() if self.config.placed == "stem" else None
        return self.pos_drop(x if table is None else x + table)

    def position_table(self, block: int | None = None) -> Float[Tensor, "1 T D"] | None:
        """Give the absolute position embeddings of every token, of `block` where each has its own; None where none."""
        if self.config.positions in ("none", "relative"):
            return None
        if self.config.placed == "every block":
            if block is None or not 0 <= block < len(self.blocks):
                raise ValueError(
                    f"block {block} given, but every block has position embeddings of its own; name one, from 0 to "
                    f"{len(self.blocks) - 1}"
                )
            return self.blocks[block].positions()
        if self.config.placed == "shared":
            return self.shared_positions()
        return self.pos_embed if self.config.positions == "1d" else self.stem_positions()
