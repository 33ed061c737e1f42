"""From captured attention to a page that needs no network and no kernel (§4.5, Fig. 6, 7 right, 11)."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vitlab import paths
from vitlab.analysis.capture import attention_maps, grid_size, n_prefix_tokens, patch_stride
from vitlab.analysis.geometry import check_attention, reads_class_token
from vitlab.viewer import payload
from vitlab.viewer.assets import SHOWS, asset

if TYPE_CHECKING:
    from vitlab.viewer.widget import AttentionWidget

MAX_BYTES = 2_000_000  # of a page: a notebook with two of them still opens at once
_BESIDE = 250_000  # of a page, for all but the maps: script, picture, distances
_DEFLATED = 0.92  # of their size that maps take at the most, whatever the model: softmax leaves no white noise
_LARGEST_SIDE = 512  # pixels of the picture in a page
_LOSSLESS_SIDE = 128  # pixels up to which a picture is drawn so large that one would see JPEG's traces


@dataclass(frozen=True)
class View:
    """An attention viewer of one image; the last line of a cell shows it.

    `arrays` gives back what it shows. Made by `attention_view` and `view`.
    """

    meta: Mapping[str, Any]  # JSON: names, sizes, the picture, and which array lies where
    packed: bytes  # of `payload.pack`

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """What the page carries, unpacked: see `payload.tables`."""
        return payload.unpack(self.packed, self.meta["arrays"])

    def page(self) -> str:
        """The viewer as an HTML page that asks nothing of any network; its own policy forbids it to."""
        return Template(asset("page.html")).substitute(
            title=html.escape(self.meta["title"]),
            css=asset("viewer.css"),
            js=asset("viewer.js"),
            meta=json.dumps(self.meta).replace("<", "\\u003c"),  # no title can end the script it stands in
            packed=base64.b64encode(self.packed).decode(),
        )

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, whole or not at all; opens in any browser. Returns the path."""
        with paths.writing(path) as temporary:
            temporary.write_text(self.page(), encoding="utf-8")
        return Path(path)

    def widget(self) -> AttentionWidget:
        """The same viewer with a kernel behind it: what is selected can be read and set in Python."""
        from vitlab.viewer.widget import AttentionWidget  # brings ipywidgets

        return AttentionWidget(self.meta, self.packed)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        """The viewer, and a still of it where scripts do not run."""
        from vitlab.plots.png import framed  # brings matplotlib
        from vitlab.viewer.still import still

        png, words = still(self.meta, self.arrays)
        hint = (
            "Attention viewer. It does not follow the pointer? Then it is a still picture, which notebooks show in its "
            "place until they are trusted: run the cell."
        )
        title = f"Attention viewer: {self.meta['title']}"
        return framed(self.page(), png, words, title=title, height=640, hint=hint, text=repr(self))

    def __repr__(self) -> str:
        rows, cols = self.meta["grid"]
        shown = f"{len(self.meta['blocks'])} blocks × {self.meta['heads']} heads, {rows} × {cols}"
        return f"View({self.meta['title']!r}, {shown})"


def attention_view(
    maps: Sequence[Float[Tensor, "B H T T"]],
    image: Shaped[Tensor, "channels height width"],
    grid: tuple[int, int],
    stride: int | tuple[int, int],
    n_prefix: int = 1,
    *,
    class_token: bool | None = None,
    index: int = 0,
    blocks: Sequence[int] | None = None,
    pool: int = 1,
    show: str = "heads",
    title: str = "attention",
    max_bytes: int = MAX_BYTES,
) -> View:
    """The viewer of attention that was captured (`capture.attention_maps`), for one image of the batch.

    Args:
        maps: one per block, first block first; any floating point.
        image: what the model saw, to look at, in colour or grey: bytes, or 0…1 (normalisation undone).
        grid, stride: rows and columns of patches, and pixels from one to the next, as for `pixel_distances`.
        n_prefix: tokens before the patches.
        class_token: whether token 0 is a class token that the head reads: else rollout is the mean over all patches,
            and token 0 one prefix token among others. None takes any prefix token for one.
        index: which image of the batch the maps are taken of.
        blocks: those to show, from 0; None shows all. Rollout goes through all blocks either way.
        pool: merge pool × pool patches into one, for large grids.
        show: what is seen first, one of `SHOWS`: every head from the middle patch, or "rollout" from the class token.
        max_bytes: largest size of the page, as UTF-8.

    Raises:
        ValueError: no maps, maps that do not fit the grid, hold NaN or are no attention; blocks of unequal numbers
            of heads; an index, a block, a pool or a view that there is not; a picture that is none; a page that is
            larger than max_bytes.

    >>> uniform = torch.full((1, 2, 5, 5), 1 / 5)
    >>> attention_view([uniform] * 3, torch.zeros(3, 32, 32), (2, 2), 16, title="even")
    View('even', 3 blocks × 2 heads, 2 × 2)
    """
    _check_maps(maps, grid, n_prefix, index)
    chosen = list(range(len(maps)) if blocks is None else blocks)
    _check_choice(chosen, len(maps), pool, grid, show)
    has_class = n_prefix > 0 if class_token is None else class_token
    own = torch.stack([attn[index].detach().cpu().float() for attn in maps])  # [L H T T]
    arrays = payload.tables(own, grid, stride, n_prefix, has_class, chosen, pool)
    packed, listed = payload.pack({**arrays, "colours": _colours()})
    meta: dict[str, Any] = {
        "title": title,
        "show": show,
        "picture": _picture(image),
        "size": list(image.shape[1:]),
        "grid": [grid[0] // pool, grid[1] // pool],
        "pool": pool,
        "blocks": chosen,
        "heads": own.shape[1],
        "tokens": _token_names(n_prefix, has_class),
        "prefix": _prefix_name(n_prefix, has_class),
        "arrays": listed,
    }
    made = View(meta, packed)
    if (size := len(made.page().encode())) > max_bytes:
        raise ValueError(
            f"the viewer of {len(chosen)} blocks × {own.shape[1]} heads on {meta['grid'][0]} × {meta['grid'][1]} "
            f"patches has {size:,} bytes, expected at most {max_bytes:,}; choose blocks "
            "(blocks=[0, 5, 11]), merge patches (pool=2), do both (**fitting(maps, grid)), or raise max_bytes"
        )
    return made


def view(
    model: Any,
    image: Shaped[Tensor, "..."],
    *,
    index: int = 0,
    title: str | None = None,
    fit: bool = False,
    **options: Any,
) -> View:
    """The viewer of a model's attention on an image: one forward, then `attention_view` with the same options.

    Args:
        model: what `zoo.load` gives, with a picture of bytes [3 H W]; or any ViT that `capture` sees into, with an
            image normalised as it expects, shown from its darkest to its brightest value.
        image: [3 H W], or a batch [B 3 H W] of which `index` says the one.
        fit: show fewer blocks, or merge patches, where the page would be too large (`fitting`).

    Raises:
        ValueError: as `attention_view` and `capture.attention_maps`.

    >>> import timm
    >>> view(timm.create_model("test_vit"), torch.zeros(3, 160, 160))
    View('VisionTransformer', 6 blocks × 2 heads, 10 × 10)
    """
    batch = image if image.ndim == 4 else image[None]
    if not 0 <= index < len(batch):
        raise ValueError(f"index {index} given, expected 0…{len(batch) - 1} for a batch of {len(batch)}")
    one = batch[index : index + 1]
    if isinstance(model, nn.Module):
        network, x, name = model, one, type(model).__name__
        shown = (x - x.amin()) / (x.amax() - x.amin()).clamp_min(1e-12)
    else:
        network, x, name = model.model, model.prepare(one), model.name
        mean, std = (torch.tensor(values).view(3, 1, 1).to(x) for values in (model.mean, model.std))
        shown = (x * std + mean).clamp(0, 1)
    parameter = next(network.parameters())
    maps = attention_maps(network, x.to(parameter.device, parameter.dtype))
    grid, n_prefix = grid_size(network, x), n_prefix_tokens(network)
    options = {"class_token": reads_class_token(network), "title": name if title is None else title, **options}
    if fit:
        options = fitting(maps, grid, n_prefix, options.get("max_bytes", MAX_BYTES)) | options
    return attention_view(maps, shown[0].float(), grid, patch_stride(network), n_prefix, **options)


def fitting(
    maps: Sequence[Float[Tensor, "B H T T"]], grid: tuple[int, int], n_prefix: int = 1, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """`blocks` and `pool` with which any model's viewer fits: patches are merged only if not even three blocks would.

    >>> fitting([torch.zeros(1, 12, 197, 197)] * 12, (14, 14))
    {'blocks': [0, 6, 11], 'pool': 1}
    """
    depth, n_heads, common = len(maps), maps[0].shape[1], math.gcd(*grid)
    for pool in (pool for pool in range(1, common + 1) if common % pool == 0):
        n_cells = grid[0] * grid[1] // pool**2
        block_bytes = n_heads * (n_prefix + 1 + n_cells) * n_cells * _DEFLATED * 4 / 3
        count = min(depth, int((max_bytes - _BESIDE) / block_bytes))
        if count >= min(depth, 3):
            break
    return {"blocks": sorted({round(block) for block in np.linspace(0, depth - 1, max(count, 1))}), "pool": pool}


def _check_maps(maps: Sequence[Tensor], grid: tuple[int, int], n_prefix: int, index: int) -> None:
    if len(maps) == 0:
        raise ValueError("no attention maps given, expected one per block")
    for attn in maps:
        check_attention(attn, grid, n_prefix)
    shapes = {tuple(attn.shape[:2]) for attn in maps}
    if len(shapes) > 1:
        raise ValueError(
            f"blocks have (images, heads) {sorted(shapes)}, expected the same in all: the viewer is one table of "
            "blocks and heads; give blocks that are alike"
        )
    count = maps[0].shape[0]
    if not 0 <= index < count:
        raise ValueError(f"index {index} given, expected 0…{count - 1} for maps of {count} image(s)")


def _check_choice(blocks: list[int], depth: int, pool: int, grid: tuple[int, int], show: str) -> None:
    if not blocks or len(set(blocks)) < len(blocks) or not all(0 <= block < depth for block in blocks):
        raise ValueError(f"blocks {blocks} given, expected different numbers from 0 to {depth - 1}")
    if pool < 1 or grid[0] % pool or grid[1] % pool:
        raise ValueError(f"pool {pool} given, expected a number that divides both sides of the grid {grid}")
    if show not in SHOWS:
        raise ValueError(f"show {show!r} given, expected one of {', '.join(SHOWS)}")


def _token_names(n_prefix: int, class_token: bool) -> list[str]:
    """Names of the queries that are no patch, in their order."""
    first = "class token" if class_token else "mean of all patches"
    return [first, *(f"prefix token {number}" for number in range(2 if class_token else 1, n_prefix + 1))]


def _prefix_name(n_prefix: int, class_token: bool) -> str:
    """What attention that is on no patch is on; empty where there is nothing of the kind."""
    if n_prefix < 2:
        return "" if n_prefix == 0 else "the class token" if class_token else "the prefix token"
    return f"the {n_prefix} prefix tokens"


def _picture(image: Tensor) -> str:
    """The picture as an address that contains it (data:), at most 512 pixels wide or high."""
    from PIL import Image

    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"image is {list(image.shape)}, expected one picture [3, height, width], or [1, …] for grey")
    pixels = image.detach().cpu().expand(3, -1, -1)
    if pixels.is_floating_point():
        low, high = pixels.amin().item(), pixels.amax().item()
        if not -1e-3 <= low <= high <= 1 + 1e-3:  # also true of NaN
            raise ValueError(
                f"image holds values {low:.3g}…{high:.3g}, expected 0…1 (or bytes): undo the normalisation, "
                "image * std + mean"
            )
        pixels = (255 * pixels.float().clamp(0, 1)).round().to(torch.uint8)
    if pixels.dtype != torch.uint8:
        raise ValueError(f"image is {pixels.dtype}, expected bytes (uint8) or floating point 0…1")
    picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
    kind, options = ("png", {}) if max(picture.size) <= _LOSSLESS_SIDE else ("jpeg", {"quality": 90})
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _colours() -> np.ndarray:
    """The 256 colours of the house's maps, [256 3] bytes."""
    from matplotlib import colormaps

    return (255 * colormaps["viridis"](np.arange(256))[:, :3]).round().astype(np.uint8)
