"""Design choices to turn and to play: position embeddings, both heads, shapes (App. D.2 to D.4, Fig. 8 to 10)."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray

from vitlab import plots
from vitlab.analysis import positions
from vitlab.plots.png import as_png
from vitlab.widgets.film import Film, Frame
from vitlab.widgets.knobs import Knob, Knobs, knobs


def position_kinds(maps: Mapping[tuple[str, float], Float[ndarray, "rows cols rows2 cols2"]]) -> Knobs:
    """Knobs: position embeddings, and the learning rate of the training → their similarity map.

    Args:
        maps: (kind and place, in words; learning rate) → cosine similarities.

    Raises:
        ValueError: there is no map; in the picture, for a kind that was not trained with that learning rate.

    >>> import numpy as np
    >>> cross = np.maximum(np.eye(3)[:, None, :, None], np.eye(3)[None, :, None, :]) * np.ones((3, 3, 3, 3))
    >>> position_kinds({("1-D, stem", 0.004): cross}).picture()[1]
    '1-D, stem, learning rate 0.004: nearness 0.63, row excess 1.00, column excess 1.00.'
    """
    if not maps:
        raise ValueError("no similarity map given, expected one for each kind of position embeddings")

    def draw(kind: str, rate: float) -> tuple[Figure, str]:
        if (kind, rate) not in maps:
            there = ", ".join(f"{other:g}" for name, other in maps if name == kind)
            raise ValueError(
                f"{kind} was trained with the learning rates {there}, not with {rate:g}; take one of those"
            )
        similarity = maps[kind, rate]
        figure = Figure(figsize=(6.4, 4.8))
        plots.plot_similarity_grid(similarity, figure.subplots()).set_title(f"{kind}, learning rate {rate:g}")
        return figure, f"{kind}, learning rate {rate:g}: {_measured(torch.tensor(similarity))}."

    kinds, rates = (list(dict.fromkeys(key[part] for key in maps)) for part in (0, 1))
    first_kind, first_rate = next(iter(maps))
    return knobs(
        draw,
        "Similarity of position embeddings",
        kind=Knob("position embeddings", kinds, first_kind),
        rate=Knob("learning rate", sorted(rates), first_rate),
    )


def _measured(similarity: torch.Tensor) -> str:
    near = positions.distance_correlation(similarity)
    row, column = positions.row_column_excess(similarity)
    return f"nearness {near:.2f}, row excess {row:.2f}, column excess {column:.2f}"


def head_rates(means: pd.DataFrame) -> Knobs:
    """Knob: learning rate → both heads' accuracy there, in the curves over all learning rates.

    Args:
        means: a row for each head, steps of its training and learning_rate: arm, mean, low, high (0…1), of the seeds,
            and chosen, whether it is the best rate on validation images.

    Raises:
        ValueError: there is no row.

    >>> rows = {"arm": ["class token", "GAP"], "learning_rate": 1e-3, "mean": [0.5, 0.625], "low": 0.4, "high": 0.7}
    >>> head_rates(pd.DataFrame(rows | {"steps": 2000, "chosen": True})).picture()[1]
    'Learning rate 0.001, after 2,000 steps: class token 50.0%, GAP 62.5%; class token minus GAP is -12.5 points.'
    """
    if means.empty:
        raise ValueError(
            "no accuracies given, expected a row for each head and learning rate; run the experiment first"
        )

    def draw(rate: float) -> tuple[Figure, str]:
        n_lengths = means["steps"].nunique()
        figure = Figure(figsize=(4.8 * n_lengths + 0.6, 3.8))
        plots.plot_heads_by_length(means, figure.subplots(1, n_lengths, sharey=True, squeeze=False)[0], at=rate)
        words = [f"after {steps:,} steps: {_heads_at(rows, rate)}" for steps, rows in means.groupby("steps")]
        return figure, f"Learning rate {rate:g}, {'; '.join(words)}."

    rates = sorted(means["learning_rate"].unique().tolist())
    return knobs(draw, "Learning rate of both heads", rate=Knob("learning rate", rates, rates[0]))


def _heads_at(means: pd.DataFrame, rate: float) -> str:
    at = means[means["learning_rate"] == rate].set_index("arm")["mean"]
    if at.empty:
        return "not tried"
    each = ", ".join(f"{arm} {mean:.1%}" for arm, mean in at.items())
    if len(at) == 1:
        return each
    first, second = at.index[:2]
    return f"{each}; {first} minus {second} is {100 * (at[first] - at[second]):+.1f} points"


def shapes_film(means: pd.DataFrame, base: str = "base") -> Film:
    """Fig. 8 as a film: with ever more FLOPs allowed, the shapes that they pay for and the best of them.

    Args:
        means: a row for each shape: dimension, flops (of a forward pass for one image), mean, low, high (0…1).
        base: the dimension of the one shape from which all others depart.

    Raises:
        ValueError: there is not exactly one base, or no other shape.

    >>> rows = {"dimension": ["base", "depth"], "flops": [1e6, 4e6], "mean": [0.5, 0.625], "low": 0.4, "high": 0.7}
    >>> shapes_film(pd.DataFrame(rows)).frames[-1].words
    'With up to 4.0 times the FLOPs of base, depth is best: 62.5%, 12.5 points above base.'
    """
    start = means[means["dimension"] == base]
    if len(start) != 1 or len(means) < 2:
        raise ValueError(f"{len(start)} rows for {base!r} among {len(means)}: expected one, and other shapes")
    least, at_base = start["flops"].iloc[0], start["mean"].iloc[0]
    whole = plots.plot_shapes(means, Figure(figsize=(6.4, 4.0)).subplots(), base)
    limits = whole.get_xlim(), whole.get_ylim()
    frames = []
    for most in sorted({flops for flops in means["flops"] if flops >= least}):
        paid = means[means["flops"] <= most]
        best = paid.loc[paid["mean"].idxmax()]
        allowed = f"{most / least:.1f} times"
        above = f", {100 * (best['mean'] - at_base):.1f} points above {base}" * (best["dimension"] != base)
        words = f"With up to {allowed} the FLOPs of {base}, {best['dimension']} is best: {best['mean']:.1%}{above}."
        with plots.style():
            figure = Figure(figsize=(6.4, 4.0), dpi=80, layout="constrained")
            ax = plots.plot_shapes(paid, figure.subplots(), base)
            ax.set(xlim=limits[0], ylim=limits[1], title=f"up to {allowed} the FLOPs")
            ax.legend(loc="lower left", fontsize=9)
            frames.append(Frame(f"{allowed} the FLOPs", as_png(figure, 64), words))
    return Film("Which shape spends FLOPs best", "FLOPs allowed, times those of the base", tuple(frames))
