"""Conventions and options that change a map: positions resized, distances by mode, rollout by fusion (§3.2, §4.5)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from vitlab import plots
from vitlab.analysis.masks import area_share, mass_inside
from vitlab.analysis.rollout import overlay, rollout_from_maps
from vitlab.models.adapt import CONVENTIONS, resize_positions
from vitlab.widgets.knobs import Knob, Knobs, knobs

MODES = {"paper": "distance_px", "renormalized": "renormalized_px"}  # mode → its column
FUSIONS = ("mean", "max", "min")
DISCARDED = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def position_resizing(tables: Mapping[str, Float[Tensor, "N D"]], grid: tuple[int, int]) -> Knobs:
    """Knobs: table, convention, new number of rows → the table's strongest direction resized, and the paper's.

    Args:
        tables: name → position embeddings of the patches, row by row.
        grid: their rows and columns; the new grid keeps the proportion.

    >>> position_resizing({"slope": torch.arange(4.0)[:, None]}, (2, 2)).picture(convention="paper", rows=3)[1]
    "2 × 2 → 3 × 3 patches: 'paper' is 0.0% from the paper's resizing (relative L2)."
    """
    rows, cols = grid
    strongest = {name: _strongest(pos) for name, pos in tables.items()}

    def draw(table: str, convention: str, rows: int) -> tuple[Figure, str]:
        new = (rows, max(1, round(rows * cols / grid[0])))
        pos, (mean, direction) = tables[table], strongest[table]
        paper, chosen = (resize_positions(pos, grid, new, name) for name in ("paper", convention))
        away = ((chosen - paper).norm() / paper.norm()).item()
        named = {"stored": (pos, grid), "the paper's": (paper, new), convention: (chosen, new)}
        maps = {name: ((e - mean) @ direction).reshape(of).numpy() for name, (e, of) in named.items()}
        maps["difference"] = maps[convention] - maps["the paper's"]
        figure = Figure(figsize=(9, 2.5))
        plots.plot_maps(maps, figure.subplots())
        return figure, (
            f"{grid[0]} × {cols} → {new[0]} × {new[1]} patches: {convention!r} is {away:.1%} from the paper's resizing "
            "(relative L2)."
        )

    conventions = tuple(CONVENTIONS)
    sizes = sorted({max(1, round(scale * rows)) for scale in (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3)})
    return knobs(
        draw,
        "Position embeddings, their strongest direction, resized",
        table=Knob("table", tuple(tables), next(iter(tables))),
        convention=Knob("convention", conventions, "timm"),
        rows=Knob("new rows of patches", sizes, max(1, round(1.5 * rows))),
    )


def distance_modes(heads: pd.DataFrame, image_px: int) -> Knobs:
    """Knobs: mode and block → the dot plot of Fig. 7 right, with one block's heads told apart.

    Args:
        heads: a row for each `model` ("trained", "untrained"), `block` and `head`, counted from 1, with `distance_px`,
            `renormalized_px` and `prefix_mass` (0…1).
        image_px: side of the images.

    >>> row = {"model": "trained", "block": 1, "head": 1, "distance_px": 10.0, "renormalized_px": 20.0,
    ...        "prefix_mass": 0.5}
    >>> distance_modes(pd.DataFrame([row]), 64).picture(mode="renormalized")[1]
    "Mode 'renormalized', block 1: head 1 looks 20.0 px far (50% on prefix tokens)."
    """
    trained = heads[heads["model"] == "trained"]
    top = 1.1 * heads[list(MODES.values())].to_numpy().max()  # one scale for both: what moves is the dots

    def draw(mode: str, block: int) -> tuple[Figure, str]:
        figure = Figure(figsize=(9, 3.8))
        left, right = figure.subplots(1, 2)
        plots.plot_attention_distances(heads, left, column=MODES[mode], image_px=image_px, legend=False)
        plots.legend_below([left])
        left.set_ylim(0, top)
        left.axvspan(block - 0.5, block + 0.5, color=plots.MUTED, alpha=0.15, linewidth=0)
        rows = trained[trained["block"] == block]
        plots.plot_mass_and_distance(rows, MODES[mode], right)
        right.set(ylim=(0, top), title=f"block {block}, its heads by number")
        each = ", ".join(
            f"head {row.head} looks {getattr(row, MODES[mode]):.1f} px far ({row.prefix_mass:.0%} on prefix tokens)"
            for row in rows.itertuples()
        )
        return figure, f"Mode {mode!r}, block {block}: {each}."

    blocks = sorted(trained["block"].unique().tolist())
    return knobs(
        draw,
        "Mean attention distance by mode",
        mode=Knob("mode", tuple(MODES), "paper"),
        block=Knob("block", blocks, blocks[0]),
    )


def rollout_variants(
    pictures: Float[np.ndarray, "B height width 3"],
    maps: Sequence[Float[Tensor, "B H T T"]],
    grid: tuple[int, int],
    n_prefix: int = 1,
    masks: Bool[Tensor, "B height width"] | None = None,
    *,
    class_token: bool | None = None,
) -> Knobs:
    """Knobs: picture, head fusion, share discarded → the rollout beside the paper's; no forward, the maps are there.

    Args:
        pictures: 0…1.
        maps: attention of every block, first block first.
        masks: True on the object; with them the words say how much of the rollout lies on it.
        class_token: as for `rollout_from_maps`.

    >>> uniform = torch.full((1, 2, 5, 5), 1 / 5)
    >>> variants = rollout_variants(np.ones((1, 8, 8, 3)), [uniform] * 2, (2, 2))
    >>> variants.picture(head_fusion="max")[1]
    'Picture 1, max over heads, 0% discarded: the largest patch has 1.0 times the mean.'
    """

    def draw(number: int, head_fusion: str, discard_ratio: float) -> tuple[Figure, str]:
        one = [attn[number - 1 : number] for attn in maps]
        of_options = functools.partial(rollout_from_maps, one, grid, n_prefix, class_token=class_token)
        chosen = of_options(head_fusion=head_fusion, discard_ratio=discard_ratio)
        both = {"the paper's rollout": of_options(), "as turned": chosen}
        picture = pictures[number - 1]
        figure = Figure(figsize=(9, 2.6))
        axes = figure.subplots(1, 4)
        plots.plot_overlay(picture, None, axes[0]).set_title("picture")
        lit = {name: overlay(rollout, picture.shape[:2]) for name, rollout in both.items()}
        lit["patch by patch"] = overlay(chosen, picture.shape[:2], smooth=False)
        for ax, (name, weight) in zip(axes[1:], lit.items(), strict=True):
            plots.plot_overlay(picture, weight[0].numpy(), ax).set_title(name)
        peak = (chosen.max() / chosen.mean()).item()
        words = f"Picture {number}, {head_fusion} over heads, {discard_ratio:.0%} discarded: the largest patch has "
        words += f"{peak:.1f} times the mean"
        if masks is not None:
            mask = masks[number - 1 : number]
            mass, area = mass_inside(chosen, mask).item(), area_share(mask).item()
            words += f"; {mass:.0%} of the rollout lies on the object, which covers {area:.0%} of the picture"
        return figure, f"{words}."

    return knobs(
        draw,
        "Attention rollout and its options",
        number=Knob("picture", tuple(range(1, len(pictures) + 1)), 1),
        head_fusion=Knob("fusion of the heads", FUSIONS, "mean"),
        discard_ratio=Knob("share discarded", DISCARDED, 0.0),
    )


def _strongest(pos: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Mean and first principal direction of a table."""
    mean = pos.mean(dim=0)
    return mean, torch.linalg.svd(pos - mean, full_matrices=False)[2][0]
