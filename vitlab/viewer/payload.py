"""Attention of one image as few bytes: what the viewer's page carries (§4.5).

Every row of attention to patches is coded in 8 bits by the square root of its share of the row's maximum, which is
kept in full: a value comes back within 1/255 of that maximum, small ones far closer. Attention to prefix tokens is
kept apart, as a sum per row: one class token that takes nearly all would leave no levels for the patches. All arrays
together are deflated, which browsers undo by themselves.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vitlab.analysis.distance import pixel_distances
from vitlab.analysis.rollout import rollout_matrix

_LEVELS = 255


def tables(
    maps: Float[Tensor, "L H T T"],
    grid: tuple[int, int],
    stride: int | tuple[int, int],
    n_prefix: int,
    class_token: bool,
    blocks: Sequence[int],
    pool: int = 1,
) -> dict[str, np.ndarray]:
    """What the viewer shows, by name: M = len(blocks) · H maps and, last, rollout through all blocks.

    Queries Q are the prefix tokens and then the patches; a model with no class token has the mean over all patches
    as query 0, as rollout has. `pool` merges pool × pool patches into one of the N cells: attention to them is added
    up, attention from them averaged.

    Returns:
        peak [M Q], each row's largest attention to a cell; distance [M Q], its mean distance in pixels, where prefix
        tokens count 0 as in `analysis.distance` (NaN for a token, which has no place); on_prefix [M Q], the share on
        prefix tokens; head_distance [M], over all query patches; code [M Q N], as `encode` makes it.

    >>> uniform = torch.full((2, 3, 5, 5), 1 / 5)
    >>> arrays = tables(uniform, (2, 2), 16, 1, True, [0, 1])
    >>> arrays["code"].shape, arrays["head_distance"].shape
    ((7, 5, 4), (7,))
    """
    rolled = rollout_matrix(list(maps[:, None]))  # [1 T T]
    chosen = torch.cat([maps[list(blocks)].flatten(0, 1), rolled])  # [M T T]
    distance = (chosen[:, n_prefix:, n_prefix:] * pixel_distances(grid, stride)).sum(-1)  # [M patches]
    to_cells = _merged(chosen[..., n_prefix:], grid, pool, -1).sum(-1)  # [M T N]
    on_prefix = chosen[..., :n_prefix].sum(-1)  # [M T]

    def queries(values: Tensor) -> Tensor:
        """[M T ...] → [M Q ...]"""
        patches = values[:, n_prefix:]
        mean = [] if class_token else [patches.mean(1, keepdim=True)]
        return torch.cat([*mean, values[:, :n_prefix], _merged(patches, grid, pool, 1).mean(2)], 1)

    nowhere = torch.full((len(chosen), n_prefix), torch.nan)
    code, peak = encode(queries(to_cells))
    arrays = {
        "peak": peak,
        "distance": queries(torch.cat([nowhere, distance], 1)),
        "on_prefix": queries(on_prefix),
        "head_distance": distance.mean(1),
        "code": code,
    }
    return {name: values.numpy() for name, values in arrays.items()}


def encode(rows: Float[Tensor, "... N"]) -> tuple[UInt8[Tensor, "... N"], Float[Tensor, "..."]]:
    """Each row as bytes, round(255 · sqrt(value / row's maximum)), and its maximum.

    >>> encode(torch.tensor([[0.0, 0.1, 0.4]]))
    (tensor([[  0, 128, 255]], dtype=torch.uint8), tensor([0.4000]))
    """
    peak = rows.amax(-1)
    share = rows / peak.clamp_min(torch.finfo(rows.dtype).tiny)[..., None]
    return (_LEVELS * share.clamp_min(0).sqrt()).round().to(torch.uint8), peak


def decode(code: UInt8[np.ndarray, "... N"], peak: Float[np.ndarray, "..."]) -> Float[np.ndarray, "... N"]:
    """The values that the page shows for these bytes.

    >>> decode(np.array([[0, 128, 255]], np.uint8), np.array([0.4], np.float32)).round(3)
    array([[0.   , 0.101, 0.4  ]], dtype=float32)
    """
    return (code / np.float32(_LEVELS)) ** 2 * peak[..., None]


def pack(arrays: dict[str, np.ndarray]) -> tuple[bytes, list[dict[str, Any]]]:
    """Arrays of float32 and uint8 as one deflated string of bytes, and the list that says what lies where.

    >>> packed, listed = pack({"a": np.zeros((2, 3), np.uint8), "b": np.ones(1, np.float32)})
    >>> [(entry["name"], entry["type"], entry["shape"]) for entry in listed]
    [('b', 'float32', [1]), ('a', 'uint8', [2, 3])]
    """
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)  # floats first, or they would lie at odd addresses
    data = b"".join(arrays[name].astype(arrays[name].dtype.newbyteorder("<")).tobytes() for name in order)
    listed = [{"name": n, "type": str(arrays[n].dtype), "shape": list(arrays[n].shape)} for n in order]
    return zlib.compress(data, 9), listed


def unpack(packed: bytes, listed: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that `pack` was given.

    >>> unpack(*pack({"a": np.arange(3, dtype=np.uint8)}))
    {'a': array([0, 1, 2], dtype=uint8)}
    """
    data, start, arrays = zlib.decompress(packed), 0, {}
    for entry in listed:
        count, kind = int(np.prod(entry["shape"])), np.dtype(entry["type"]).newbyteorder("<")
        values = np.frombuffer(data, kind, count, start).reshape(entry["shape"])
        arrays[entry["name"]] = values.astype(entry["type"])
        start += count * kind.itemsize
    return arrays


def _merged(values: Tensor, grid: tuple[int, int], pool: int, axis: int) -> Tensor:
    """Split the axis of patches in two: cells, and the pool × pool patches of each."""
    axis %= values.ndim
    rows, cols = grid[0] // pool, grid[1] // pool
    split = values.unflatten(axis, (rows, pool, cols, pool)).transpose(axis + 1, axis + 2)
    return split.flatten(axis + 2, axis + 3).flatten(axis, axis + 1)
