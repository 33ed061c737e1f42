"""The explorers of the notebooks: one function each, from the chapter's data to a picture with controls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import UInt8
from matplotlib.figure import Figure
from torch import Tensor

from vitlab import plots
from vitlab.analysis.attention import grid_size
from vitlab.analysis.lens import greyed
from vitlab.models import zoo
from vitlab.widgets.controls import Explorer, choice


def occlusion(
    pretrained: zoo.Pretrained,
    picture: UInt8[Tensor, "3 H W"],
    classes: Sequence[str] = (),
    grid: tuple[int, int] | None = None,
) -> Explorer:
    """Choose a square of patches → the answer with all seen and with these hidden (§4.5).

    Use of a place, not attention to it. `classes` that are not the model's have numbers; no `grid` of patches asks it.
    """
    rows, cols = grid or grid_size(pretrained.model, pretrained.prepare(picture[None]))
    half = max(1, min(rows, cols) // 2)  # at first the square lies in the middle
    mean, std = (torch.tensor(values)[:, None, None] for values in (pretrained.mean, pretrained.std))

    def draw(row: int, column: int, size: int) -> tuple[Figure, str]:
        x, square = pretrained.prepare(picture[None]), torch.zeros(1, rows, cols)
        square[:, row - 1 : row - 1 + size, column - 1 : column - 1 + size] = 1
        both = torch.cat([x, greyed(x, square, square.mean().item()) if size else x])
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
            ax.imshow((image * std + mean).permute(1, 2, 0).numpy().clip(0, 1))
            ax.set_title(title)
            ax.set_axis_off()
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
        row=choice("first row", range(1, rows + 1), (rows - half) // 2 + 1),
        column=choice("first column", range(1, cols + 1), (cols - half) // 2 + 1),
        size=choice("side (patches)", range(max(rows, cols) + 1), half),
    )
