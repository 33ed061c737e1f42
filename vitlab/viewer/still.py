"""The viewer as a still picture, for readers whose notebook runs no scripts (§4.5, Fig. 6, 7 right)."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image

from vitlab import plots
from vitlab.plots.png import as_png
from vitlab.viewer import payload

_TILE = 0.7  # inches of a map, where there are many
_LARGEST = 7.5  # inches of all maps


def still(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[bytes, str]:
    """What the viewer shows at first, as (PNG, words): the picture with its query, and the maps from there.

    Args:
        meta, arrays: of a `View`.
    """
    with plots.style():
        figure, words = drawn(meta, arrays)
        return as_png(figure, colours=256), words


def drawn(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[Figure, str]:
    """The figure of `still`, and its words."""
    maps, query, numbers = _maps(meta, arrays)
    (rows, cols), (height, width) = meta["grid"], meta["size"]
    tall, wide = _TILE * maps.shape[0] * height / width, _TILE * maps.shape[1]
    scale = min(1.0, _LARGEST / max(tall, wide))
    sides = max(scale * tall, 2.2) + 0.6, max(scale * wide, 2.2) + 0.4
    figure = Figure(figsize=(2.8 + sides[1], max(sides[0], 2.6)), dpi=80, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.6, sides[1]])
    picture = _picture(meta["picture"])
    if query is None:
        plots.plot_overlay(picture, None, left)
    else:
        plots.plot_query_attention(picture, None, query, left, grid=(rows, cols))
    linear = meta["show"] == "rollout"
    options = {"query": query, "linear": linear, "aspect": height * cols / (width * rows)}
    plots.plot_head_maps(maps, right, blocks=() if linear else numbers, **options)
    if linear:
        right.set_xlabel("rollout through all blocks")
    left.set_title(_query_name(meta, query), fontsize=10)
    return figure, _words(meta, arrays, maps, query)


def _maps(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[Float[np.ndarray, "heads blocks rows cols"], tuple[int, int] | None, list[int]]:
    """The maps that the viewer shows at first, their query patch (None: a token), and the numbers of their blocks."""
    rows, cols = meta["grid"]
    if meta["show"] == "rollout":
        values = payload.decode(arrays["code"][-1:, 0], arrays["peak"][-1:, 0])
        return values.reshape(1, 1, rows, cols), None, []
    query = rows // 2, cols // 2
    place = len(meta["tokens"]) + query[0] * cols + query[1]
    values = payload.decode(arrays["code"][:-1, place], arrays["peak"][:-1, place])
    maps = values.reshape(len(meta["blocks"]), meta["heads"], rows, cols).swapaxes(0, 1)
    numbers = [block + 1 for block in meta["blocks"]]
    if meta["show"] != "heads":
        maps, numbers = maps[:, :1], numbers[:1]
    return (maps[:1] if meta["show"] == "head" else maps), query, numbers


def _words(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], maps: np.ndarray, query: tuple[int, int] | None
) -> str:
    """What the still shows, with its numbers, for those who do not see it."""
    title, (rows, cols) = meta["title"], meta["grid"]
    if query is None:
        row, col = divmod(int(maps.argmax()), cols)
        return (
            f"Attention viewer, a still: {title}. The picture, and beside it attention rollout from "
            f"{meta['tokens'][0]} to the {rows} × {cols} patches; it is highest at row {row + 1}, column {col + 1}."
        )
    place = len(meta["tokens"]) + query[0] * cols + query[1]
    distances = arrays["distance"][:-1, place].reshape(len(meta["blocks"]), meta["heads"])
    distances = distances[: maps.shape[1], : maps.shape[0]]
    near, far = (np.unravel_index(at, distances.shape) for at in (distances.argmin(), distances.argmax()))
    ends = [f"block {meta['blocks'][b] + 1}, head {h + 1} ({distances[b, h]:.1f} px)" for b, h in (near, far)]
    return (
        f"Attention viewer, a still: {title}. The picture with {_query_name(meta, query)} of {rows} × {cols} framed, "
        "and the attention from there in every head shown. "
        f"Mean distance is shortest in {ends[0]} and longest in {ends[1]}."
    )


def _query_name(meta: Mapping[str, Any], query: tuple[int, int] | None) -> str:
    return f"from {meta['tokens'][0]}" if query is None else f"patch row {query[0] + 1}, column {query[1] + 1}"


def _picture(address: str) -> Float[np.ndarray, "height width 3"]:
    """The picture of a view's metadata, 0…1."""
    data = base64.b64decode(address.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) / 255
