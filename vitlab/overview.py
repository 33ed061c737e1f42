"""Every analysis of a model on images: tidy tables and one figure (`vitlab.analyse`), a page of several (`gallery`)."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vitlab import paths
from vitlab.analysis import filters, positions
from vitlab.analysis.attention import grid_size, n_prefix_tokens, patch_stride, read_weights, reduce_attention
from vitlab.analysis.distance import HEAD_COLUMNS, head_reducer, pixel_distances
from vitlab.analysis.rollout import overlay, rollout_reducer
from vitlab.models.zoo import Pretrained, load


@dataclass(frozen=True)
class Analysis:
    """What `analyse` found, in tidy tables; blocks, heads, images, rows, columns and components count from 1.

    heads: block, head, distance_px (Fig. 7 right), renormalized_px (without the mass on prefix tokens), prefix_mass
    (0…1); of the block's patches token_norm, their mean L2 norm, and largest_norm; means over the images.
    rollout: image, row, column, share. positions: row, column, to_row, to_column, similarity (Fig. 7 centre).
    filters: component, explained, low_frequency (shares, 0…1; Fig. 7 left).
    """

    pretrained: Pretrained
    heads: pd.DataFrame
    rollout: pd.DataFrame
    positions: pd.DataFrame
    filters: pd.DataFrame
    left_out: dict[str, str]  # tables that are empty, and why
    picture: Tensor  # the first image as the model sees it, [3 h w], 0…1

    def to_csv(self, folder: Path | str) -> list[Path]:
        """Write each table that is not empty as FOLDER/<table>.csv."""
        made = {name: Path(folder) / f"{name}.csv" for name in ("heads", "rollout", "positions", "filters")}
        made = {name: path for name, path in made.items() if name not in self.left_out}
        for name, path in made.items():
            with paths.writing(path) as temporary:
                getattr(self, name).to_csv(temporary, index=False)
        return list(made.values())

    def plot(self) -> Any:
        """Draw filters, positions, distances, token norms, the first image and its rollout; a matplotlib figure."""
        import matplotlib.pyplot as plt

        from vitlab import plots

        model = self.pretrained.model
        with plots.style():
            fig, axes = plt.subplot_mosaic([["filters", "positions", "image"], ["distance", "norms", "rollout"]],
                                           figsize=(15, 9), layout="constrained")  # fmt: skip
            if "filters" not in self.left_out:
                tiles = 255 * filters.filter_tiles(filters.filter_components(model, len(self.filters))[0])
                shown = tiles.permute(0, 2, 3, 1).byte().cpu().numpy()
                plots.plot_pictures({str(1 + k): shown[k : k + 7] for k in range(0, len(shown), 7)}, axes["filters"])
            if "positions" not in self.left_out:
                similarity = positions.position_similarity(model).float().cpu().numpy()
                plots.plot_similarity_grid(similarity, axes["positions"])
            grid, stride = tuple(self.rollout[["row", "column"]].max()), patch_stride(model)
            about: dict[str, Any] = {
                "image_px": max(self.picture.shape[1:]),
                "uniform": float(pixel_distances(grid, stride).mean()),
            }
            plots.plot_attention_distances(self.heads.assign(model="trained"), axes["distance"], **about)
            norms = self.heads.groupby("block")[["token_norm", "largest_norm"]].first()
            norms.plot(ax=axes["norms"], marker="o", xlabel="block (1 = first)", ylim=(0, None))
            first = self.rollout.loc[self.rollout["image"] == 1, "share"].to_numpy().reshape(1, *grid)
            picture = self.picture.permute(1, 2, 0).numpy()
            light = overlay(torch.tensor(first), picture.shape[:2], stride=stride)[0, :, :, None].numpy()
            axes["image"].imshow(picture)
            axes["rollout"].imshow(picture * light)
            for table, ax in axes.items():
                ax.set_title({"image": "first image", "distance": "attention distance"}.get(table, table))
                if table in ("image", "rollout", *self.left_out):
                    ax.set_axis_off()
            for table, why in self.left_out.items():
                axes[table].text(0.5, 0.5, why, ha="center", va="center", wrap=True, parse_math=False)
            fig.suptitle(f"{self.pretrained.name}, {self.pretrained.source}", parse_math=False)
            plt.close(fig)  # shown where it is returned, once
        return fig


def analyse(model: Pretrained | nn.Module | Path | str, images: Any) -> Analysis:
    """Run every analysis of a ViT on images: one forward pass an image, 32 at a time.

    `model` is any name, file or module that `load` takes, or what it returned; `images` whatever `Pretrained.prepare`
    takes, or float images [B 3 H W] that are prepared. Raises ValueError for a model whose attention cannot be had.

    >>> analyse("lab", torch.zeros(2, 3, 96, 96, dtype=torch.uint8)).heads.shape  # 6 blocks of 4 heads
    (24, 7)
    """
    pretrained = model if isinstance(model, Pretrained) else load(model)
    vit, ready = pretrained.model, isinstance(images, Tensor) and images.is_floating_point()
    prepared = images if ready else pretrained.prepare(images)
    prepared = prepared.to(next(vit.parameters()).device)
    grid, n_prefix, norms = grid_size(vit, prepared), n_prefix_tokens(vit), list[Tensor]()
    reducers: dict[str, Any] = {"heads": head_reducer(grid, patch_stride(vit), n_prefix)}

    def keep(block: nn.Module, args: Any, tokens: Tensor) -> None:
        length = tokens[:, n_prefix:].norm(dim=-1)
        norms.append(torch.stack([length.mean(1), length.amax(1)], 1))  # [B 2]

    sums, maps = [], []
    handles = [block.register_forward_hook(keep) for block in vit.blocks]
    try:
        for part in prepared.split(32):
            update, finish = rollout_reducer(grid, n_prefix, read_weights(vit, part))
            norms.clear()  # of the run in which an attention pool was seen
            found = reduce_attention(vit, part, reducers | {"rollout": update}, by_heads=True)
            maps.append(finish().cpu())
            heads = torch.stack(found["heads"], 1)  # [B L H 3]
            length = torch.stack(norms, 1)[:, :, None].expand(-1, -1, heads.shape[2], -1)  # [B L H 2]
            sums.append(torch.cat([heads, length], -1).double().sum(0).cpu())
    finally:
        for handle in handles:
            handle.remove()
    columns = [*HEAD_COLUMNS, "token_norm", "largest_norm"]
    tables = {"heads": _tidy(torch.stack(sums).sum(0) / len(prepared), ["block", "head"], columns)}
    tables["rollout"] = _tidy(torch.cat(maps)[..., None], ["image", "row", "column"], ["share"])
    left_out = {}
    try:
        similarity = positions.position_similarity(vit)[..., None]
        tables["positions"] = _tidy(similarity, ["row", "column", "to_row", "to_column"], ["similarity"])
    except ValueError as error:
        tables["positions"], left_out["positions"] = pd.DataFrame(), str(error)
    try:
        kernels = filters.embedding_filters(vit)
        components, explained = filters.filter_components(kernels, min(28, *kernels.flatten(1).shape))
        shares = torch.stack([explained, filters.low_frequency_share(components)], 1)
        tables["filters"] = _tidy(shares, ["component"], ["explained", "low_frequency"])
    except ValueError as error:
        tables["filters"], left_out["filters"] = pd.DataFrame(), str(error)
    mean, std = (torch.tensor(values)[:, None, None] for values in (pretrained.mean, pretrained.std))
    return Analysis(pretrained, **tables, left_out=left_out, picture=(prepared[0].cpu() * std + mean).clamp(0, 1))


def gallery(models: Sequence[str], images: Any, folder: Path) -> list[Path]:
    """Analyse ViTs on the same images: FOLDER/index.html with a figure of each, and FOLDER/heads.csv of all heads.

    A model that cannot be analysed is named, with the reason, on the page and on stderr; where none can: ValueError.
    """
    from vitlab.plots.style import drawn, encode

    shown, heads, left_out = ["<h1>ViTs on the same images</h1>"], list[pd.DataFrame](), list[str]()
    for number, name in enumerate(models, 1):
        try:
            found = analyse(name, images)
        except (ValueError, RuntimeError, OSError) as error:
            left_out.append(f"{name} is left out: {' '.join(str(error).split())}")
            print(left_out[-1], file=sys.stderr, flush=True)
            continue
        title = f"{found.pretrained.name}, {found.pretrained.source}"
        lines = [f"no {table}: {why}" for table, why in found.left_out.items()]
        picture = encode(drawn(found.plot()), width=1_200)
        file = f"{number}.png" if picture.startswith(b"\x89PNG") else f"{number}.jpg"
        with paths.writing(folder / file) as temporary:
            temporary.write_bytes(picture)
        shown += [f"<h2>{html.escape(title)}</h2>", *(f"<p>{html.escape(line)}</p>" for line in lines)]
        shown.append(f'<img src="{file}" alt="{html.escape(title)}: filters, positions, distances, norms and rollout">')
        heads.append(found.heads.assign(model=title))
    if not heads:
        raise ValueError(f"nothing to show: {left_out[0]}")
    shown += [f"<p>{html.escape(line)}</p>" for line in left_out]
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += "<title>ViTs</title><style>h2 { overflow-wrap: anywhere } img { max-width: 100% }</style>"
    with paths.writing(folder / "index.html") as temporary:
        temporary.write_text("\n".join([head, *shown]), encoding="utf-8")
    with paths.writing(folder / "heads.csv") as temporary:
        pd.concat(heads).to_csv(temporary, index=False)
    return [folder / "index.html", folder / "heads.csv"]


def _tidy(values: Tensor, axes: list[str], columns: list[str]) -> pd.DataFrame:
    """Make a table of values [*axes, columns]: a row for each place, its numbers from 1."""
    index = pd.MultiIndex.from_product([range(1, n + 1) for n in values.shape[:-1]], names=axes)
    return pd.DataFrame(values.detach().cpu().flatten(0, -2).numpy(), index, columns).reset_index()
