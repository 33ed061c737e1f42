"""The ViTs of App. D that differ from Eq. 1-4: position embeddings (D.4, Table 8), axial attention (D.6, Fig. 13)."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitlab.models.axial import AxialAttention
from vitlab.models.relative import Offsets, RelativeAttention
from vitlab.models.vit import Block, Queries, ViT, ViTConfig

POSITIONS = ("none", "1d", "2d", "relative")
PLACED = ("stem", "every block", "shared")
ATTENTION = ("full", "axial")
_OWN = {"positions", "placed", "attention"}  # of what a VariantConfig has and a ViTConfig has not
_TABLES = 1 << 22  # the tables' own stream of numbers: from one seed all variants have the same other weights


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ViTConfig):
    """A ViT's configuration, with its position embeddings, where they are added, and its kind of attention.

    `positions`: "none"; "1d", one embedding for each place in the sequence, row by row, as in Eq. 1; "2d", an
    embedding for each column and one for each row, D/2 wide, concatenated; "relative", see `relative.py`.
    `placed`: added at the "stem" as in Eq. 1, at the input of "every block" from tables of its own, or there from
    one table that is "shared". Relative embeddings act in every block: with tables of its own, or one shared.
    `attention`: "full", Eq. 5-8, or "axial": two blocks in place of each of `depth`, one within rows, one within
    columns. The paper's is for two-dimensional inputs and says nothing of a class token: there is none here.

    Raises:
        ValueError: as for `ViTConfig`; for an unknown word, and for words that do not go together.

    >>> body = {"image_size": 32, "patch_size": 8, "dim": 64, "depth": 2, "n_heads": 4, "mlp_dim": 256}
    >>> VariantConfig(**body, positions="2d", placed="shared").n_patches
    16
    >>> VariantConfig(**body, attention="axial")
    Traceback (most recent call last):
    ValueError: pool 'class' does not go with attention 'axial', whose tokens are a grid of patches; use pool='gap'
    """

    positions: str = "1d"  # one of POSITIONS
    placed: str = "stem"  # one of PLACED
    attention: str = "full"  # one of ATTENTION

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
    """The `ViT` or, where the settings of a `VariantConfig` ask for more than one has, the `Variant`.

    `placed` is by default "every block" for relative positions, and "stem" for the others.

    >>> body = {"image_size": 32, "patch_size": 8, "dim": 64, "depth": 2, "n_heads": 4, "mlp_dim": 256}
    >>> [type(build(body | {"positions": positions})).__name__ for positions in ("1d", "relative")]
    ['ViT', 'Variant']
    """
    placed = "every block" if settings.get("positions") == "relative" else "stem"
    config = VariantConfig(**({"placed": placed} | dict(settings)))
    if (config.positions, config.placed, config.attention) != ("1d", "stem", "full"):
        return Variant(config, seed)
    return ViT(ViTConfig(**{key: value for key, value in settings.items() if key not in _OWN}), seed)


def without_defaults(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a model that is no ViT of ours, without those that are as in a plain ViT.

    Raises ValueError where they ask for other positions or another attention, which only the ViTs have.

    >>> without_defaults({"n_classes": 3, "positions": "1d"}, "BiT-Lab-Ti")
    {'n_classes': 3}
    """
    for key in _OWN & settings.keys():
        if settings[key] != getattr(VariantConfig, key):
            raise ValueError(
                f"{key} {settings[key]!r} is not for {name}: only the ViTs of this project have variants, such as "
                f"Lab-Ti/8; leave {key} out"
            )
    return {key: value for key, value in settings.items() if key not in _OWN}


class PositionTable(nn.Module):
    """Absolute position embeddings of every token, [1 T D], from one table or from one for columns and one for rows.

    A class token has an embedding of its own, D wide: it is at no row and no column.

    >>> PositionTable("2d", n_prefix=1, grid=(2, 3), dim=8)().shape
    torch.Size([1, 7, 8])
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

    def entered(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The block's input with positions added."""
        table = self._shared[0] if self._shared else self.positions
        return self.pos_drop(x + table())

    def forward(self, x: Float[Tensor, "B T D"], queries: Queries = None) -> Float[Tensor, "B t D"]:
        return super().forward(self.entered(x), queries)


class Variant(ViT):
    """A ViT as its configuration says. From one seed, all weights but the positions' are those of the plain `ViT`.

    The new tables are drawn as the authors' code draws the one it has, from a normal of deviation 0.02; it does not
    have these variants. Dropout follows where positions are first added to the patches' embeddings.

    >>> body = {"image_size": 32, "patch_size": 8, "dim": 64, "depth": 2, "n_heads": 4, "mlp_dim": 256}
    >>> model = Variant(VariantConfig(**body, n_classes=10, pool="gap", positions="2d", attention="axial"))
    >>> model(torch.zeros(5, 3, 32, 32)).shape, [name for name, _ in model.blocks.named_children()]
    (torch.Size([5, 10]), ['0_rows', '0_columns', '1_rows', '1_columns'])
    """

    config: VariantConfig

    def __init__(self, config: VariantConfig, seed: int = 0, patch_embed: nn.Module | None = None) -> None:
        n_blocks = config.depth * (2 if config.attention == "axial" else 1)
        super().__init__(replace(config, depth=n_blocks), seed, patch_embed)
        self.config = config
        rows, cols = self.patch_embed.grid_size
        with torch.random.fork_rng(devices=[]):  # the layers' constructors draw; those draws are thrown away
            if config.attention == "axial":
                self.blocks = _axial(self.blocks, (rows, cols))
            if config.positions == "relative":
                self._relate(config, rows * cols)
            elif config.positions == "2d" or config.placed != "stem":
                self._place(config, (rows, cols))
        if config.positions in ("none", "relative"):
            del self.pos_embed
        if not self.norm.weight.is_meta:
            _init_tables(self, torch.Generator().manual_seed(seed ^ _TABLES))

    def _place(self, config: VariantConfig, grid: tuple[int, int]) -> None:
        """Tables where the configuration says, in place of `pos_embed`, under names that tell the places apart."""
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

    def _relate(self, config: VariantConfig, n_patches: int) -> None:
        kind, own = (n_patches, config.dim // config.n_heads), config.placed == "every block"
        if not own:
            self.shared_offsets = Offsets(*kind)
        for block in self.blocks:
            block.attn = RelativeAttention(block.attn, Offsets(*kind) if own else self.shared_offsets, own=own)

    def extra_repr(self) -> str:
        """What the names of its parts do not tell: a training is told from another by its model's `repr`."""
        return ", ".join(f"{name}={getattr(self.config, name)!r}" for name in ("pool", *sorted(_OWN)))

    def sequence(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B T D"]:
        """The encoder's input: class token in front, and positions added where they are placed at the stem."""
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        if self.config.placed == "stem" and self.config.positions != "none":
            x = x + self.position_table()
        return self.pos_drop(x)

    def position_table(self, block: int | None = None) -> Float[Tensor, "1 T D"]:
        """The position embeddings of every token that are added: at the stem, in every block, or in this one.

        Raises:
            ValueError: where there are none, or every block has its own and none is named.
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


def _axial(blocks: nn.Sequential, grid: tuple[int, int]) -> nn.Sequential:
    """The blocks by pairs, the first within rows, the second within columns; named so that no others' weights fit."""
    named = OrderedDict[str, nn.Module]()
    for number, block in enumerate(blocks):
        axis: Literal["rows", "columns"] = "columns" if number % 2 else "rows"
        block.attn = AxialAttention(block.attn, grid, axis)
        named[f"{number // 2}_{axis}"] = block
    return nn.Sequential(named)


@torch.no_grad()
def _init_tables(model: Variant, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        if "pos_embed" in name and name != "pos_embed":  # which is the plain ViT's, and drawn
            parameter.normal_(std=0.02, generator=generator)
