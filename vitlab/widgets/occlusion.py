"""Hide patches of a picture and see what the model's answer loses: use of a place, not attention to it (§4.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor, nn

from vitlab import plots
from vitlab.analysis.capture import grid_size
from vitlab.models.zoo import Pretrained
from vitlab.widgets.knobs import Knob, Knobs, Upload, knobs


def hide(
    images: Float[Tensor, "B 3 H W"], grid: tuple[int, int], row: int, column: int, size: int
) -> Float[Tensor, "B 3 H W"]:
    """The images with size × size patches, from (row, column) on, counted from 0, in the image's own mean colour.

    What of the square lies beyond the edge is left out; a size of 0 hides nothing.

    Raises:
        ValueError: the first patch is not on the grid, or the size is negative.

    >>> hide(torch.arange(4.0).expand(1, 3, 2, 4), (1, 2), 0, 1, 1)[0, 0]
    tensor([[0.0000, 1.0000, 1.5000, 1.5000],
            [0.0000, 1.0000, 1.5000, 1.5000]])
    """
    rows, cols = grid
    if not (0 <= row < rows and 0 <= column < cols and size >= 0):
        raise ValueError(
            f"row {row}, column {column}, size {size} given, expected 0…{rows - 1}, 0…{cols - 1} and at least 0"
        )
    down, across = images.shape[2] // rows, images.shape[3] // cols
    hidden = images.clone()
    square = (..., slice(row * down, (row + size) * down), slice(column * across, (column + size) * across))
    hidden[square] = images.mean(dim=(2, 3), keepdim=True)
    return hidden


def probabilities(model: nn.Module, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B K"]:
    """Softmax of the model's logits, without gradients.

    Raises:
        ValueError: the model has no classes.

    >>> probabilities(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), torch.zeros(2, 3, 2, 2)).sum(-1).round(decimals=5)
    tensor([1., 1.])
    """
    with torch.inference_mode():
        logits = model(images)
    headless = getattr(model, "num_classes", None) == 0  # timm's: what comes out are features
    if headless or not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"{type(model).__name__} returned no logits [batch, classes]; give a model with a classifier")
    return logits.softmax(dim=-1)


def occlusion(
    pretrained: Pretrained,
    picture: UInt8[Tensor, "3 H W"],
    classes: Sequence[str] = (),
    grid: tuple[int, int] | None = None,
) -> Knobs:
    """Knobs: a square of patches, and a picture of the reader's own → the answer with all seen and with these hidden.

    Args:
        classes: names of the model's classes; those of other models have numbers.
        grid: rows and columns of patches; None asks the model.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    >>> small = Pretrained(model, "small", "nowhere", (2, 2))
    >>> occlusion(small, torch.zeros(3, 2, 2, dtype=torch.uint8), grid=(2, 2)).picture(size=0)[1].split(": ")[1]
    'nothing is hidden.'
    """
    start = pretrained.prepare(picture[None])
    rows, cols = grid or grid_size(pretrained.model, start)
    half = max(1, min(rows, cols) // 2)  # at first the square lies in the middle
    mean, std = (torch.tensor(values)[:, None, None] for values in (pretrained.mean, pretrained.std))

    def draw(row: int, column: int, size: int, own: Tensor | None) -> tuple[Figure, str]:
        x = start if own is None else pretrained.prepare(own[None])
        both = torch.cat([x, hide(x, (rows, cols), row - 1, column - 1, size)])
        seen, left = probabilities(pretrained.model, both)
        best = seen.argsort(descending=True)[:5]
        names = [classes[k] if len(classes) == len(seen) else f"class {k}" for k in best.tolist()]
        figure = Figure(figsize=(9, 3.0))
        axes = figure.subplots(1, 3, width_ratios=[1, 1, 1.5])
        for ax, image, title in zip(axes, both, ("picture", "what is left of it"), strict=False):
            plots.plot_overlay((image * std + mean).permute(1, 2, 0).numpy(), None, ax).set_title(title)
        plots.plot_probabilities(names, seen[best].numpy(), left[best].numpy(), axes[2])
        return figure, _in_words(names[0], seen[best[0]].item(), left[best[0]].item(), row, column, size)

    return knobs(
        draw,
        f"What {pretrained.name} answers when patches are hidden",
        row=Knob("row of the first patch", tuple(range(1, rows + 1)), (rows - half) // 2 + 1),
        column=Knob("column of the first patch", tuple(range(1, cols + 1)), (cols - half) // 2 + 1),
        size=Knob("side of the square (patches)", tuple(range(max(rows, cols) + 1)), half),
        own=Upload("A picture of your own:"),
    )


def _in_words(name: str, seen: float, left: float, row: int, column: int, size: int) -> str:
    if size == 0:
        return f"{name} has {seen:.1%}: nothing is hidden."
    change = round(100 * (left - seen), 1) + 0.0  # no minus before a zero
    return (
        f"{name}: {seen:.1%} with everything seen, {left:.1%} with {size} × {size} patches hidden, from row {row}, "
        f"column {column} on, in the picture's mean colour; a change of {change:+.1f} points."
    )
