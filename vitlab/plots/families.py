"""Families of models: their colours and markers in every figure, and their names in its legend (Fig. 3 to 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

FAMILIES = {"ViT": ("blue", "o"), "ResNet": ("vermilion", "s"), "hybrid": ("black", "^")}  # colour and marker
_LAB = re.compile(r"(?P<family>BiT-|R\+|)Lab-(?P<size>.+)")


def family(model: str) -> str:
    """Family of a model by its name, the zoo's or timm's: "ResNet" (BiT), "hybrid" for a ResNet + ViT (§3.1), or "ViT".

    >>> family("BiT-Lab-Ti/8"), family("R+Lab-Ti/8"), family("vit_base_r50_s16_224"), family("Lab-Ti/8")
    ('ResNet', 'hybrid', 'hybrid', 'ViT')
    """
    if model.startswith("BiT") or "resnet" in model.lower():
        return "ResNet"
    return "hybrid" if re.match(r"R\d*\+|vit_[a-z]+_r\d*_s\d+", model) else "ViT"


def labels(models: Iterable[str]) -> dict[str, str]:
    """Names of the lab models for a legend, in the field's words: model → label; other names stay as they are.

    A family with one model goes by its own name, but for the ViTs; one with several adds their sizes.

    >>> labels(["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"])
    {'Lab-Ti/8': 'ViT-Ti/8', 'BiT-Lab-Ti/8': 'ResNet', 'R+Lab-Ti/8': 'hybrid'}
    >>> labels(["BiT-Lab-Ti/8", "BiT-Lab-S/8", "ViT-B/16"])
    {'BiT-Lab-Ti/8': 'ResNet-Ti/8', 'BiT-Lab-S/8': 'ResNet-S/8', 'ViT-B/16': 'ViT-B/16'}
    """
    names = list(dict.fromkeys(models))
    count = {name: sum(family(other) == family(name) for other in names) for name in names}
    return {name: _label(name, alone=count[name] == 1) for name in names}


@runtime_checkable
class Sized(Protocol):
    """A model's size, as `vitlab.models.zoo` has it; zeros where it has no such part."""

    @property
    def model(self) -> str: ...
    @property
    def resnet_widths(self) -> tuple[int, ...]: ...
    @property
    def resnet_depth(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def parameters(self) -> int: ...
    @property
    def flops(self) -> int: ...


def sizes_table(sizes: Sequence[Sized]) -> str:
    """Models with their names in legends and their sizes, as a table in Markdown.

    A ResNet's width is that of its first and last stage, its depth the number of residual blocks; a hybrid has those
    of its ResNet, then those of its encoder.

    >>> from vitlab.models.zoo import size_of
    >>> print(sizes_table([size_of("R+Lab-Ti/8")]).splitlines()[-1])
    | `R+Lab-Ti/8` | hybrid | 8–32, then 64 | 4 + 4 | 4 | 242,066 | 9.3 M |
    """
    lines = ["| name | in legends | width | depth | heads | parameters | FLOPs |", "|---|---|--:|--:|--:|--:|--:|"]
    names = labels(size.model for size in sizes)
    for size in sizes:
        resnet = f"{size.resnet_widths[0]}–{size.resnet_widths[-1]}" if size.resnet_widths else ""
        width = ", then ".join(filter(None, [resnet, f"{size.dim or ''}"]))
        depth = " + ".join(str(blocks) for blocks in (size.resnet_depth, size.depth) if blocks)
        counts = f"{size.n_heads or '–'} | {size.parameters:,} | {size.flops / 1e6:.1f} M"
        lines.append(f"| `{size.model}` | {names[size.model]} | {width} | {depth} | {counts} |")
    return "\n".join(lines)


def _label(model: str, alone: bool) -> str:
    lab = _LAB.fullmatch(model)
    if lab is None:
        return model
    kind = family(model)
    return kind if alone and kind != "ViT" else f"{kind}-{lab['size']}"
