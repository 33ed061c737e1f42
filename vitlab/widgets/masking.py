"""What masked patch prediction hides and what it asks for: share corrupted and target as knobs (§4.6, App. B.1.2)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import UInt8
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from vitlab import plots
from vitlab.data.loader import to_float
from vitlab.training import masked
from vitlab.training.guesses import GREY, colours_of, corrupted, filled
from vitlab.training.masked import KEPT, SIDE, Target, colour_codes, patches_of
from vitlab.widgets.knobs import Knob, Knobs, knobs

SHARES = (0.15, 0.3, 0.5, 0.75, 0.9)


def masking(
    pictures: UInt8[Tensor, "B 3 H W"],
    patch_size: int,
    share: float = 0.5,
    target: str = Target.MEAN_COLOUR.value,
    seed: int = 0,
) -> Knobs:
    """Knobs: picture, share corrupted, target → the picture as the encoder gets it, and what is to be predicted.

    Args:
        pictures: bytes.
        share, target: at first.

    >>> masking(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), 8).picture(share=0.75)[1]
    'Picture 1: 12 of 16 patches are corrupted, and of each 1 number of 512 values is to be predicted.'
    """
    n_patches = pictures.shape[2] * pictures.shape[3] // patch_size**2

    def draw(number: int, share: float, target: str) -> tuple[Figure, str]:
        one = pictures[number - 1 : number]
        plan = masked.plans(1, n_patches, share, np.random.default_rng(seed))
        figure = Figure(figsize=(9, 3.4))
        axes = figure.subplots(1, 3)
        shown = {"picture": one, "to be predicted": wanted(one, plan, Target(target), patch_size)}
        for ax, (title, image) in zip(axes[::2], shown.items(), strict=True):
            ax.imshow(_pixels(image))
            ax.set_title(title)
            ax.set_axis_off()
        plots.plot_corruption(_pixels(corrupted(one, plan)), plan[0].numpy(), axes[1], legend=True)
        axes[1].set_title(f"{share:.0%} corrupted")
        count = int((plan != KEPT).sum())
        return figure, f"Picture {number}: {count} of {n_patches} patches are corrupted, and of each {_asked(target)}."

    def _asked(target: str) -> str:
        if target == Target.PIXELS:
            return f"{3 * patch_size**2} values of pixels are to be predicted"
        n = SIDE**2 if target == Target.DOWNSIZED else 1
        return f"{n} number{'s' * (n > 1)} of 512 values {'are' if n > 1 else 'is'} to be predicted"

    return knobs(
        draw,
        "What is hidden and what is predicted",
        number=Knob("picture", tuple(range(1, len(pictures) + 1)), 1),
        share=Knob("share corrupted", tuple(sorted({*SHARES, share})), share),
        target=Knob("target", tuple(map(str, Target)), str(target)),
    )


def wanted(
    pictures: UInt8[Tensor, "B 3 H W"], plan: Tensor, target: Target, patch_size: int
) -> UInt8[Tensor, "B 3 H W"]:
    """A picture of what is to be predicted of the corrupted patches, on grey.

    >>> plan = torch.tensor([[4, KEPT, KEPT, KEPT]])
    >>> wanted(torch.full((1, 3, 8, 8), 200, dtype=torch.uint8), plan, Target.MEAN_COLOUR, 4)[0, 0, ::4, ::4].tolist()
    [[208, 128], [128, 128]]
    """
    patches = patches_of(to_float(pictures), patch_size)[plan != KEPT]  # [n 3 P P]
    if target is Target.PIXELS:
        colours = ((patches.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8)
    else:
        side = SIDE if target is Target.DOWNSIZED else 1
        codes = colour_codes(F.adaptive_avg_pool2d(patches, side), 1)
        colours = colours_of(codes).reshape(-1, side, side, 3)
    return filled(torch.full_like(pictures, GREY), plan, colours)


def _pixels(picture: UInt8[Tensor, "1 3 H W"]) -> UInt8[np.ndarray, "H W 3"]:
    return picture[0].permute(1, 2, 0).numpy()
