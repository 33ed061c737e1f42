"""The attention viewer: point at a patch and see where every head of every block looks (§4.5, Fig. 6, 7 right, 11).

Every row of attention to patches is coded in 24 levels by the square root of its share of the row's maximum, which is
kept apart: a value comes back within 1/20 of that maximum. More levels no eye could tell apart, and they deflate badly.
"""

from __future__ import annotations

import base64
import io
import math
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from matplotlib import colormaps
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from vitlab import plots
from vitlab.analysis import attention
from vitlab.analysis.distance import pixel_distances
from vitlab.analysis.rollout import rollout_matrix
from vitlab.plots.style import as_png
from vitlab.widgets.film import Page, script_json

MAX_BYTES = 2_000_000  # of a page: a notebook with two of them still opens at once
JS, CSS = ((resources.files("vitlab.widgets") / f"viewer.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))


class View(Page):
    """An attention viewer of one image; the last line of a cell shows it. Made by `attention_view` and `view`.

    `meta` are names, sizes, the picture; `arrays` what the page carries, see `tables`; `packed` is that, deflated.
    """

    css = CSS
    height = 640
    hint = (
        "Attention viewer. It does not follow the pointer? Then it is a still picture, which notebooks show in its "
        "place until they are trusted: run the cell."
    )

    def __init__(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.title, self.arrays = f"Attention viewer: {meta['title']}", arrays
        order = sorted(arrays, key=lambda name: -arrays[name].itemsize)  # floats first, or they lie at odd addresses
        listed = [{"name": n, "type": str(arrays[n].dtype), "shape": list(arrays[n].shape)} for n in order]
        self.meta = {**meta, "arrays": listed}
        data = b"".join(arrays[n].astype(arrays[n].dtype.newbyteorder("<")).tobytes() for n in order)
        self.packed = zlib.compress(data, 9)

    def body(self) -> str:
        """Return the place of the viewer, its data and its script, as HTML."""
        return (
            '<main id="viewer"><noscript>This viewer draws with JavaScript, which is switched off here.</noscript>'
            f'</main>\n<script type="application/json" id="meta">{script_json(self.meta)}</script>\n'
            f'<script type="text/plain" id="packed">{base64.b64encode(self.packed).decode()}</script>\n'
            f"<script>\n{JS}\nopenPage();\n</script>"
        )

    def still(self) -> tuple[bytes, str]:
        """Draw what the viewer shows at first, as (PNG, words): the picture with its query, and the maps from there."""
        with plots.style():
            figure, words = draw_still(self.meta, self.arrays)
            return as_png(figure), words

    def __repr__(self) -> str:
        rows, cols = self.meta["grid"]
        shown = f"{len(self.meta['blocks'])} blocks × {self.meta['heads']} heads, {rows} × {cols}"
        return f"View({self.meta['title']!r}, {shown})"


def view(
    model: Any, image: Shaped[Tensor, "..."], *, title: str | None = None, fit: bool = False, **options: Any
) -> View:
    """Make the viewer of a model's attention on an image: one forward, then `attention_view` with the same options.

    `model` is what `zoo.load` gives, with a picture of bytes [3 H W]; or any ViT that `attention_maps` sees into, with
    an image normalised as it expects, shown from its darkest to its brightest value. To `fit` a page that would be too
    large, it shows fewer blocks or merges patches (`fit_size`).

    >>> import timm
    >>> view(timm.create_model("test_vit"), torch.zeros(3, 160, 160))
    View('VisionTransformer', 6 blocks × 2 heads, 10 × 10)
    """
    if isinstance(model, nn.Module):
        network, x, name = model, image[None], type(model).__name__
        shown = (x - x.amin()) / (x.amax() - x.amin()).clamp_min(1e-12)
    else:
        network, x, name = model.model, model.prepare(image[None]), model.name
        mean, std = (torch.tensor(values).view(3, 1, 1).to(x) for values in (model.mean, model.std))
        shown = (x * std + mean).clamp(0, 1)
    parameter = next(network.parameters())
    maps = attention.attention_maps(network, x.to(parameter.device, parameter.dtype))
    grid, n_prefix = attention.grid_size(network, x), attention.n_prefix_tokens(network)
    options = {"class_token": attention.reads_class_token(network), "title": name if title is None else title} | options
    if fit:
        options = fit_size(maps, grid, n_prefix) | options
    return attention_view(maps, shown[0].float(), grid, attention.patch_stride(network), n_prefix, **options)


def attention_view(
    maps: Sequence[Float[Tensor, "1 H T T"]],
    image: Float[Tensor, "C height width"],
    grid: tuple[int, int],
    stride: int | tuple[int, int],
    n_prefix: int = 1,
    *,
    class_token: bool | None = None,
    blocks: Sequence[int] | None = None,
    pool: int = 1,
    show: str = "heads",
    title: str = "attention",
) -> View:
    """Make the viewer of attention that was captured of one image; ValueError for a page of more than 2 MB.

    Args:
        maps: one per block, first block first.
        image: what the model saw, 0…1, in colour or grey.
        grid, stride: rows and columns of patches, and pixels from one to the next, as for `pixel_distances`.
        n_prefix: tokens before the patches.
        class_token: whether token 0 is a class token that the head reads: else rollout is the mean over all patches,
            and token 0 one prefix token among others. None takes any prefix token for one.
        blocks: those to show, from 0; None shows all. Rollout goes through all blocks either way.
        pool: merge pool × pool patches into one, for large grids.
        show: what is seen first: "heads", every head from the middle patch, or "rollout" from the class token.
    """
    for attn in maps:
        attention.check_attention(attn, grid, n_prefix)
    shapes = {tuple(attn.shape[:2]) for attn in maps}
    if len(shapes) > 1:
        raise ValueError(f"blocks have (images, heads) {sorted(shapes)}, expected the same in all: choose such blocks")
    (_, n_heads), depth = shapes.pop(), len(maps)
    chosen = list(range(depth) if blocks is None else blocks)
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= block < depth for block in chosen):
        raise ValueError(f"blocks {chosen} given, expected different numbers from 0 to {depth - 1}")
    if pool < 1 or grid[0] % pool or grid[1] % pool:
        raise ValueError(f"pool {pool} given, expected a number that divides both sides of the grid {grid}")
    if show not in ("heads", "rollout"):
        raise ValueError(f"show {show!r} given, expected heads or rollout")
    has_class = n_prefix > 0 if class_token is None else class_token
    own = torch.stack([attn[0].detach().cpu().float() for attn in maps])  # [L H T T]
    arrays = tables(own, grid, stride, n_prefix, has_class, chosen, pool)
    arrays["colours"] = (255 * colormaps["viridis"](np.arange(256))[:, :3]).round().astype(np.uint8)
    first = "class token" if has_class else "mean of all patches"
    names = ["", "the class token" if has_class else "the prefix token", f"the {n_prefix} prefix tokens"]
    meta: dict[str, Any] = {
        "title": title,
        "show": show,
        "picture": picture_address(image),
        "size": list(image.shape[1:]),
        "grid": [grid[0] // pool, grid[1] // pool],
        "pool": pool,
        "blocks": chosen,
        "heads": n_heads,
        # queries that are no patch, in their order; and what attention that is on no patch is on
        "tokens": [first, *(f"prefix token {number}" for number in range(2 if has_class else 1, n_prefix + 1))],
        "prefix": names[min(n_prefix, 2)],
    }
    made = View(meta, arrays)
    if (size := len(made.page().encode())) > MAX_BYTES:
        raise ValueError(
            f"the viewer of {len(chosen)} blocks × {n_heads} heads on {meta['grid'][0]} × {meta['grid'][1]} patches "
            f"has {size:,} bytes, expected at most {MAX_BYTES:,}; choose blocks (blocks=[0, 5, 11]), merge patches "
            "(pool=2), or do both (fit=True)"
        )
    return made


def fit_size(maps: Sequence[Float[Tensor, "B H T T"]], grid: tuple[int, int], n_prefix: int = 1) -> dict[str, Any]:
    """Choose `blocks` and `pool` with which a viewer fits: patches merge only if not even three blocks would."""
    depth, n_heads, common = len(maps), maps[0].shape[1], math.gcd(*grid)
    for pool in (pool for pool in range(1, common + 1) if common % pool == 0):
        n_cells = grid[0] * grid[1] // pool**2
        # 24 levels deflate to 0.62 of a byte at the most, whatever the model.
        block_bytes = n_heads * (n_prefix + 1 + n_cells) * n_cells * 0.62 * 4 / 3
        count = min(depth, int((MAX_BYTES - 250_000) / block_bytes))  # the rest is for script, picture, distances
        if count >= min(depth, 3):
            break
    return {"blocks": sorted({round(block) for block in np.linspace(0, depth - 1, max(count, 1))}), "pool": pool}


def tables(
    maps: Float[Tensor, "L H T T"],
    grid: tuple[int, int],
    stride: int | tuple[int, int],
    n_prefix: int,
    class_token: bool,
    blocks: Sequence[int],
    pool: int,
) -> dict[str, np.ndarray]:
    """Measure what the viewer shows, by name, of M = len(blocks) · H maps and, last, rollout through all blocks.

    Queries Q are the prefix tokens and then the patches; a model with no class token has the mean over all patches
    as query 0, as rollout has. `pool` merges pool × pool patches into one of the N cells: attention to them is added
    up, attention from them averaged. Returns code [M Q N] and peak [M Q], as `encode` makes them; on_prefix [M Q], the
    share on prefix tokens; distance [M Q], the mean in pixels, where prefix tokens count 0 (NaN from a token, which has
    no place); head_distance [M], over all query patches.
    """
    chosen = torch.cat([maps[list(blocks)].flatten(0, 1), rollout_matrix(list(maps[:, None]))])  # [M T T]
    distance = (chosen[:, n_prefix:, n_prefix:] * pixel_distances(grid, stride)).sum(-1)  # [M patches]

    def merge(values: Tensor, axis: int) -> Tensor:
        """Split the axis of patches in two: cells, and the pool × pool patches of each."""
        split = values.unflatten(axis, (grid[0] // pool, pool, grid[1] // pool, pool)).transpose(axis + 1, axis + 2)
        return split.flatten(axis + 2, axis + 3).flatten(axis, axis + 1)

    def queries(values: Tensor) -> Tensor:
        """[M T ...] → [M Q ...]"""
        patches = values[:, n_prefix:]
        mean = [] if class_token else [patches.mean(1, keepdim=True)]
        return torch.cat([*mean, values[:, :n_prefix], merge(patches, 1).mean(2)], 1)

    nowhere = torch.full((len(chosen), n_prefix), torch.nan)
    code, peak = encode(queries(merge(chosen[..., n_prefix:], 2).sum(-1)))
    arrays = {
        "peak": peak,
        "distance": queries(torch.cat([nowhere, distance], 1)),
        "on_prefix": queries(chosen[..., :n_prefix].sum(-1)),
        "head_distance": distance.mean(1),
        "code": code,
    }
    return {name: (values.half().float() if name != "code" else values).numpy() for name, values in arrays.items()}


def encode(rows: Float[Tensor, "... N"]) -> tuple[UInt8[Tensor, "... N"], Float[Tensor, "..."]]:
    """Code each row as bytes, 255 · sqrt(value / row's maximum) in 24 levels, and its maximum."""
    peak = rows.amax(-1)
    share = rows / peak.clamp_min(torch.finfo(rows.dtype).tiny)[..., None]
    level = (23 * share.clamp_min(0).sqrt()).round()
    return (level * 255 / 23).round().to(torch.uint8), peak


def draw_still(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[Figure, str]:
    """Draw the figure of `View.still`, and say its numbers for those who do not see it."""
    (rows, cols), (height, width), blocks, n_heads = meta["grid"], meta["size"], meta["blocks"], meta["heads"]
    rolled, query = meta["show"] == "rollout", (rows // 2, cols // 2)
    place = 0 if rolled else len(meta["tokens"]) + query[0] * cols + query[1]
    these = slice(-1, None) if rolled else slice(-1)
    values = (arrays["code"][these, place] / np.float32(255)) ** 2 * arrays["peak"][these, place, None]
    maps = values.reshape(1 if rolled else len(blocks), -1, rows, cols).swapaxes(0, 1)  # [heads blocks rows cols]

    tall, wide = 0.7 * maps.shape[0] * height / width, 0.7 * maps.shape[1]  # inches of all maps: 7.5 at the most
    scale = min(1.0, 7.5 / max(tall, wide))
    tall, wide = max(scale * tall, 2.2) + 0.6, max(scale * wide, 2.2) + 0.4
    figure = Figure(figsize=(2.8 + wide, max(tall, 2.6)), dpi=80, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.6, wide])
    data = base64.b64decode(meta["picture"].partition(",")[2])
    picture = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) / 255
    aspect = height * cols / (width * rows)
    left.imshow(picture)
    left.set_axis_off()
    words = f"Attention viewer, a still: {meta['title']}. The picture "
    if rolled:
        left.set_title(f"from {meta['tokens'][0]}", fontsize=10)
        plots.plot_head_maps(maps, right, aspect=aspect).set_xlabel("rollout through all blocks")
        row, col = divmod(int(maps.argmax()), cols)
        return figure, words + (
            f"and, next to it, attention rollout from {meta['tokens'][0]} to the {rows} × {cols} patches; it is "
            f"highest at row {row + 1}, column {col + 1}."
        )
    name = f"patch row {query[0] + 1}, column {query[1] + 1}"
    left.set_title(name, fontsize=10)
    plots.mark_patch(left, query, (picture.shape[1] / cols, picture.shape[0] / rows))
    plots.plot_head_maps(maps, right, blocks=[block + 1 for block in blocks], query=query, aspect=aspect)
    distances = arrays["distance"][:-1, place]  # of all maps
    ends = []
    for at in (int(distances.argmin()), int(distances.argmax())):
        ends.append(f"block {blocks[at // n_heads] + 1}, head {at % n_heads + 1} ({distances[at]:.1f} px)")
    return figure, words + (
        f"with {name} of {rows} × {cols} framed, and the attention from there in every head shown. "
        f"Mean distance is shortest in {ends[0]} and longest in {ends[1]}."
    )


def picture_address(image: Float[Tensor, "C height width"]) -> str:
    """Write a picture, 0…1, as an address that contains it (data:), at most 512 pixels wide or high."""
    low, high = image.amin().item(), image.amax().item()
    if not -1e-3 <= low <= high <= 1 + 1e-3:  # also true of NaN
        words = "expected 0…1: divide bytes by 255, or undo the normalisation, image * std + mean"
        raise ValueError(f"image holds values {low:.3g}…{high:.3g}, {words}")
    pixels = (255 * image.detach().cpu().expand(3, -1, -1).clamp(0, 1)).round().to(torch.uint8)
    picture, file = Image.fromarray(pixels.permute(1, 2, 0).numpy()), io.BytesIO()
    picture.thumbnail((512, 512))
    small = max(picture.size) <= 128  # drawn so large that one would see JPEG's traces
    kind, options = ("png", {}) if small else ("jpeg", {"quality": 90})
    picture.save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
