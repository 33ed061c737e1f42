"""The explorers of the notebooks: one function each, from the chapter's data to a picture with controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from vitlab import plots
from vitlab.analysis.attention import grid_size
from vitlab.analysis.masks import area_share, mass_inside
from vitlab.analysis.positions import distance_correlation, row_column_excess
from vitlab.analysis.rollout import overlay, rollout_from_maps
from vitlab.data.loader import to_float
from vitlab.models import zoo
from vitlab.models.adapt import CONVENTIONS, resize_positions
from vitlab.models.vit import ViTConfig
from vitlab.training import masked
from vitlab.training.masked import KEPT, Target
from vitlab.widgets.controls import Explorer, choice, read_picture


def patch_sizes(picture: UInt8[Tensor, "3 H W"]) -> Explorer:
    """Choose a model, the size of the image and of its patches → the patches, their number, the work (Table 1)."""
    models, sizes = ("ViT-B", "ViT-L", "ViT-H"), (7, 8, 14, 16, 28, 32, 56)

    def draw(model: str, image_size: int, patch_size: int) -> tuple[Figure, str]:
        settings: dict[str, Any] = {**zoo.VIT_SIZES[model], "image_size": image_size}
        chosen = cost(ViTConfig(patch_size=patch_size, **settings))  # refuses a size that leaves a remainder
        work, side = chosen["dense"] + chosen["attention"], image_size // patch_size
        fitting = [size for size in sizes if image_size % size == 0]
        table = [{"patch_size": size, **cost(ViTConfig(patch_size=size, **settings))} for size in fitting]
        figure = Figure(figsize=(9, 3.6))
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.5])
        plots.plot_grid(picture.permute(1, 2, 0).numpy(), side, left)
        plots.plot_patch_costs(pd.DataFrame(table), patch_size, right).set_title(f"{model} at {image_size} px")
        return figure, (
            f"{image_size} px in patches of {patch_size} px: {side} × {side} patches and the class token are "
            f"{chosen['tokens']:,} tokens. {model}/{patch_size} does {work / 1e9:.2f} billion multiply-adds for an "
            f"image (2 FLOPs each), {chosen['attention'] / work:.1%} of them in the attention matrices."
        )

    return Explorer(
        draw,
        "Patch size, tokens and work",
        model=choice("model", models),
        image_size=choice("image size (px)", (112, 224, 336, 384, 448), 224),
        patch_size=choice("patch size (px)", sizes, 16),
    )


def cost(config: ViTConfig) -> dict[str, int]:
    """Count one image's tokens, and its multiply-adds in dense layers (linear in tokens) and attention (quadratic)."""
    n_tokens = config.n_patches + (config.pool == "class")
    embedding = config.n_patches * 3 * config.patch_size**2 * config.dim
    block = n_tokens * (4 * config.dim**2 + 2 * config.dim * config.mlp_dim)
    head = config.dim * config.n_classes + (config.dim**2 if config.head == "tanh" else 0)
    dense = embedding + config.depth * block + head
    return {"tokens": n_tokens, "dense": dense, "attention": config.depth * 2 * n_tokens**2 * config.dim}


def position_resizing(tables: Mapping[str, Float[Tensor, "N D"]], grid: tuple[int, int]) -> Explorer:
    """Choose table (of patches of `grid`), convention, new rows → its strongest direction resized, and the paper's."""
    centre = {name: pos.mean(dim=0) for name, pos in tables.items()}
    strongest = {name: torch.linalg.svd(pos - centre[name], full_matrices=False)[2][0] for name, pos in tables.items()}

    def draw(table: str, convention: str, rows: int) -> tuple[Figure, str]:
        new = (rows, max(1, round(rows * grid[1] / grid[0])))
        pos = tables[table]
        paper, chosen = (resize_positions(pos, grid, new, name) for name in ("paper", convention))
        away = ((chosen - paper).norm() / paper.norm()).item()
        named = {"stored": (pos, grid), "the paper's": (paper, new), convention: (chosen, new)}
        maps = {name: ((e - centre[table]) @ strongest[table]).reshape(of).numpy() for name, (e, of) in named.items()}
        maps["difference"] = maps[convention] - maps["the paper's"]
        figure = Figure(figsize=(9, 2.5))
        plots.plot_maps(maps, figure.subplots())
        return figure, (
            f"{grid[0]} × {grid[1]} → {new[0]} × {new[1]} patches: {convention!r} is {away:.1%} from the paper's "
            "resizing (relative L2)."
        )

    sizes = sorted({max(1, round(scale * grid[0])) for scale in (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3)})
    return Explorer(
        draw,
        "Position embeddings, their strongest direction, resized",
        table=choice("table", tuple(tables)),
        convention=choice("convention", tuple(CONVENTIONS), "timm"),
        rows=choice("new rows of patches", sizes, max(1, round(1.5 * grid[0]))),
    )


def distance_modes(heads: pd.DataFrame, image_px: int) -> Explorer:
    """Choose mode and block → the dots of Fig. 7 right, with one block's heads told apart.

    `heads` are as for `plots.plot_attention_distances`, with `renormalized_px` and `prefix_mass` (0…1).
    """
    modes = {"paper": "distance_px", "renormalized": "renormalized_px"}
    trained = heads[heads["model"] == "trained"]
    top = 1.1 * heads[list(modes.values())].to_numpy().max()  # one scale for both: what moves is the dots

    def draw(mode: str, block: int) -> tuple[Figure, str]:
        figure = Figure(figsize=(9, 3.8))
        left, right = figure.subplots(1, 2)
        plots.plot_attention_distances(heads, left, column=modes[mode], image_px=image_px, legend=False)
        plots.legend_below([left])
        left.set_ylim(0, top)
        left.axvspan(block - 0.5, block + 0.5, color=plots.MUTED, alpha=0.15, linewidth=0)
        rows = trained[trained["block"] == block]
        plots.plot_mass_and_distance(rows, modes[mode], right)
        right.set(ylim=(0, top), title=f"block {block}, its heads by number")
        each = ", ".join(
            f"head {row.head} looks {getattr(row, modes[mode]):.1f} px far ({row.prefix_mass:.0%} on prefix tokens)"
            for row in rows.itertuples()
        )
        return figure, f"Mode {mode!r}, block {block}: {each}."

    return Explorer(
        draw,
        "Mean attention distance by mode",
        mode=choice("mode", tuple(modes)),
        block=choice("block", sorted(trained["block"].unique().tolist())),
    )


def rollout_variants(
    pictures: Float[np.ndarray, "B height width 3"],
    maps: Sequence[Float[Tensor, "B H T T"]],
    grid: tuple[int, int],
    n_prefix: int = 1,
    masks: Bool[Tensor, "B height width"] | None = None,
    *,
    class_token: bool | None = None,
) -> Explorer:
    """Choose picture, head fusion, share discarded → the rollout (`rollout_from_maps`) next to the paper's.

    `pictures` are 0…1; `masks` are true on the object, and the words say how much of the rollout lies on it.
    """

    def draw(number: int, head_fusion: str, discard_ratio: float) -> tuple[Figure, str]:
        one, picture = [attn[number - 1 : number] for attn in maps], pictures[number - 1]
        options: dict[str, Any] = {"head_fusion": head_fusion, "discard_ratio": discard_ratio}
        paper = rollout_from_maps(one, grid, n_prefix, class_token=class_token)
        chosen = rollout_from_maps(one, grid, n_prefix, class_token=class_token, **options)
        size = picture.shape[:2]
        lit = {"picture": None, "the paper's rollout": overlay(paper, size), "as turned": overlay(chosen, size)}
        lit["patch by patch"] = overlay(chosen, size, smooth=False)
        figure = Figure(figsize=(9, 2.6))
        for ax, (name, weight) in zip(figure.subplots(1, 4), lit.items(), strict=True):
            plots.plot_overlay(picture, None if weight is None else weight[0].numpy(), ax).set_title(name)
        words = f"Picture {number}, {head_fusion} over heads, {discard_ratio:.0%} discarded: the largest patch has "
        words += f"{(chosen.max() / chosen.mean()).item():.1f} times the mean"
        if masks is not None:
            mask = masks[number - 1 : number]
            mass, area = mass_inside(chosen, mask).item(), area_share(mask).item()
            words += f"; {mass:.0%} of the rollout lies on the object, which covers {area:.0%} of the picture"
        return figure, f"{words}."

    return Explorer(
        draw,
        "Attention rollout and its options",
        number=choice("picture", range(1, len(pictures) + 1)),
        head_fusion=choice("fusion of the heads", ("mean", "max", "min")),
        discard_ratio=choice("share discarded", (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)),
    )


def occlusion(
    pretrained: zoo.Pretrained,
    picture: UInt8[Tensor, "3 H W"],
    classes: Sequence[str] = (),
    grid: tuple[int, int] | None = None,
) -> Explorer:
    """Choose a square of patches, and a picture of your own → the answer with all seen and with these hidden (§4.5).

    Use of a place, not attention to it. `classes` that are not the model's have numbers; no `grid` of patches asks it.
    """
    rows, cols = grid or grid_size(pretrained.model, pretrained.prepare(picture[None]))
    half = max(1, min(rows, cols) // 2)  # at first the square lies in the middle
    mean, std = (torch.tensor(values)[:, None, None] for values in (pretrained.mean, pretrained.std))

    def draw(row: int, column: int, size: int, own: Sequence[Mapping[str, Any]]) -> tuple[Figure, str]:
        x = pretrained.prepare(read_picture(bytes(own[0]["content"]))[None] if own else picture[None])
        both = torch.cat([x, hide(x, (rows, cols), row - 1, column - 1, size)])
        with torch.no_grad():
            logits = pretrained.model.eval()(both)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise ValueError(f"{pretrained.name} returned no logits [batch, classes]; give a model with a classifier")
        seen, left = logits.softmax(dim=-1)
        best = seen.argsort(descending=True)[:5]
        names = [classes[k] if len(classes) == len(seen) else f"class {k}" for k in best.tolist()]
        figure = Figure(figsize=(9, 3.0))
        axes = figure.subplots(1, 3, width_ratios=[1, 1, 1.5])
        for ax, image, title in zip(axes, both, ("picture", "what is left of it"), strict=False):
            plots.plot_overlay((image * std + mean).permute(1, 2, 0).numpy(), None, ax).set_title(title)
        plots.plot_probabilities(names, seen[best].numpy(), left[best].numpy(), axes[2])
        before, after = seen[best[0]].item(), left[best[0]].item()
        if size == 0:
            return figure, f"{names[0]} has {before:.1%}: nothing is hidden."
        change = round(100 * (after - before), 1) + 0.0  # no minus before a zero
        return figure, (
            f"{names[0]}: {before:.1%} with everything seen, {after:.1%} with {size} × {size} patches hidden, from row "
            f"{row}, column {column} on, in the picture's mean colour; a change of {change:+.1f} points."
        )

    return Explorer(
        draw,
        f"What {pretrained.name} answers when patches are hidden",
        row=choice("row of the first patch", range(1, rows + 1), (rows - half) // 2 + 1),
        column=choice("column of the first patch", range(1, cols + 1), (cols - half) // 2 + 1),
        size=choice("side of the square (patches)", range(max(rows, cols) + 1), half),
        own=ipywidgets.FileUpload(accept="image/*", description="A picture of your own", layout={"width": "16em"}),
    )


def hide(
    images: Float[Tensor, "B 3 H W"], grid: tuple[int, int], row: int, column: int, size: int
) -> Float[Tensor, "B 3 H W"]:
    """Put size × size patches, from (row, column) on, counted from 0, in each image's own mean colour."""
    down, across = images.shape[2] // grid[0], images.shape[3] // grid[1]
    hidden = images.clone()
    square = (..., slice(row * down, (row + size) * down), slice(column * across, (column + size) * across))
    hidden[square] = images.mean(dim=(2, 3), keepdim=True)
    return hidden


def masking(
    pictures: UInt8[Tensor, "B 3 H W"],
    patch_size: int,
    share: float = 0.5,
    target: str = Target.MEAN_COLOUR.value,
) -> Explorer:
    """Choose picture, share corrupted, target → what the encoder gets, and what is to be predicted (App. B.1.2)."""
    n_patches = pictures.shape[2] * pictures.shape[3] // patch_size**2
    asked = {
        Target.MEAN_COLOUR: "1 number of 512 values is",
        Target.PIXELS: f"{3 * patch_size**2} values of pixels are",
        Target.DOWNSIZED: f"{masked.SIDE**2} numbers of 512 values are",
    }

    def draw(number: int, share: float, target: str) -> tuple[Figure, str]:
        one = pictures[number - 1 : number]
        plan = masked.plans(1, n_patches, share, np.random.default_rng(0))
        figure = Figure(figsize=(9, 3.4))
        axes = figure.subplots(1, 3)
        shown = {"picture": one, "to be predicted": wanted(one, plan, Target(target), patch_size)}
        for ax, (title, image) in zip(axes[::2], shown.items(), strict=True):
            ax.imshow(image[0].permute(1, 2, 0).numpy())
            ax.set_title(title)
            ax.set_axis_off()
        pixels = masked.corrupted(one, plan)[0].permute(1, 2, 0).numpy()
        plots.plot_corruption(pixels, plan[0].numpy(), axes[1], legend=True).set_title(f"{share:.0%} corrupted")
        return figure, (
            f"Picture {number}: {(plan != KEPT).sum()} of {n_patches} patches are corrupted, and of each "
            f"{asked[Target(target)]} to be predicted."
        )

    return Explorer(
        draw,
        "What is hidden and what is predicted",
        number=choice("picture", range(1, len(pictures) + 1)),
        share=choice("share corrupted", sorted({0.15, 0.3, 0.5, 0.75, 0.9, share}), share),
        target=choice("target", tuple(map(str, Target)), str(target)),
    )


def wanted(
    pictures: UInt8[Tensor, "B 3 H W"], plan: Tensor, target: Target, patch_size: int
) -> UInt8[Tensor, "B 3 H W"]:
    """Draw what is to be predicted of the corrupted patches, on grey."""
    patches = masked.patches_of(to_float(pictures), patch_size)[plan != KEPT]  # [n 3 P P]
    if target is Target.PIXELS:
        colours = ((patches.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8)
    else:
        side = masked.SIDE if target is Target.DOWNSIZED else 1
        codes = masked.colour_codes(F.adaptive_avg_pool2d(patches, side), 1)
        colours = masked.colours_of(codes).reshape(-1, side, side, 3)
    return masked.filled(torch.full_like(pictures, masked.GREY), plan, colours)


def position_kinds(maps: Mapping[tuple[str, float], Float[np.ndarray, "rows cols rows2 cols2"]]) -> Explorer:
    """Choose position embeddings and the learning rate of the training → their similarity map (App. D.4, Fig. 10)."""

    def draw(kind: str, rate: float) -> tuple[Figure, str]:
        if (kind, rate) not in maps:
            there = ", ".join(f"{other:g}" for name, other in maps if name == kind)
            raise ValueError(f"{kind} was trained with the learning rates {there}, not with {rate:g}")
        similarity = torch.tensor(maps[kind, rate])
        figure = Figure(figsize=(6.4, 4.8))
        plots.plot_similarity_grid(maps[kind, rate], figure.subplots()).set_title(f"{kind}, learning rate {rate:g}")
        row, column = row_column_excess(similarity)
        return figure, (
            f"{kind}, learning rate {rate:g}: nearness {distance_correlation(similarity):.2f}, row excess {row:.2f}, "
            f"column excess {column:.2f}."
        )

    kinds, rates = (list(dict.fromkeys(key[part] for key in maps)) for part in (0, 1))
    return Explorer(
        draw,
        "Similarity of position embeddings",
        kind=choice("position embeddings", kinds),
        rate=choice("learning rate", sorted(rates), rates[0]),
    )


def head_rates(means: pd.DataFrame) -> Explorer:
    """Choose a learning rate → both heads' accuracy there, in the curves of `plots.plot_heads_by_length` (Fig. 9)."""

    def draw(rate: float) -> tuple[Figure, str]:
        n_lengths = means["steps"].nunique()
        figure = Figure(figsize=(4.8 * n_lengths + 0.6, 3.8))
        plots.plot_heads_by_length(means, figure.subplots(1, n_lengths, sharey=True, squeeze=False)[0], at=rate)
        words = []
        for steps, rows in means.groupby("steps"):
            at = rows[rows["learning_rate"] == rate].set_index("arm")["mean"]
            parts = [", ".join(f"{arm} {mean:.1%}" for arm, mean in at.items()) or "not tried"]
            if len(at) > 1:
                parts.append(f"{at.index[0]} minus {at.index[1]} is {100 * (at.iloc[0] - at.iloc[1]):+.1f} points")
            words.append(f"after {steps:,} steps: {'; '.join(parts)}")
        return figure, f"Learning rate {rate:g}, {'; '.join(words)}."

    rates = sorted(means["learning_rate"].unique().tolist())
    return Explorer(draw, "Learning rate of both heads", rate=choice("learning rate", rates))
