"""Does a map over patches fall on the object? Its mass inside an object mask, and the pointing game (§4.5, Fig. 6)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real, Shaped
from torch import Tensor

from vitlab.analysis.attention import widen


def patch_coverage(masks: Shaped[Tensor, "B height width"], grid: tuple[int, int]) -> Float[Tensor, "B rows cols"]:
    """Compute the share of each patch's pixels that belong to the object, on which the masks (bool) are True."""
    if masks.dtype != torch.bool:
        raise ValueError(f"masks are {masks.dtype}, expected torch.bool, True on the object; give masks > 0, say")
    height, width = masks.shape[-2:]
    if min(grid) < 1 or height % grid[0] or width % grid[1]:
        raise ValueError(
            f"masks of {height} x {width} pixels given for a grid of {grid[0]} x {grid[1]} patches, expected "
            "multiples; resize and crop the masks as the images were"
        )
    return torch.nn.functional.avg_pool2d(masks[:, None].float(), (height // grid[0], width // grid[1]))[:, 0]


def mass_inside(maps: Real[Tensor, "B rows cols"], masks: Shaped[Tensor, "B height width"]) -> Float[Tensor, " B"]:
    """Compute the share of a map's mass inside the object, each patch's mass spread evenly over its pixels (C14).

    A uniform map gives exactly `area_share`; a map with no mass at all gives NaN.
    """
    _check(maps)
    maps = widen(maps)  # counts are maps too
    return (maps * patch_coverage(masks, (maps.shape[1], maps.shape[2])).to(maps)).sum((1, 2)) / maps.sum((1, 2))


def area_share(masks: Shaped[Tensor, "B height width"]) -> Float[Tensor, " B"]:
    """Compute the share of the image that the object covers: what `mass_inside` is to be compared with (C14)."""
    return patch_coverage(masks, (1, 1))[:, 0, 0]


def pointing_hit(maps: Real[Tensor, "B rows cols"], masks: Shaped[Tensor, "B height width"]) -> Bool[Tensor, " B"]:
    """Play the pointing game: is the patch of the largest value mostly object (at least half of its pixels)? (C14)"""
    _check(maps)
    coverage = patch_coverage(masks, (maps.shape[1], maps.shape[2]))
    return coverage.flatten(1).gather(1, maps.flatten(1).argmax(1, keepdim=True))[:, 0] >= 0.5


def pointing_chance(masks: Shaped[Tensor, "B height width"], grid: tuple[int, int]) -> Float[Tensor, " B"]:
    """Compute the share of patches that would be a `pointing_hit`: the chance of a map that knows nothing (C14)."""
    return (patch_coverage(masks, grid) >= 0.5).float().mean((1, 2))


def _check(maps: Tensor) -> None:
    if not (maps.isfinite() & (maps >= 0)).all():
        raise ValueError(f"maps hold values from {maps.min().item():g} to {maps.max().item():g}, expected 0 or more")
