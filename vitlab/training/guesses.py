"""Pictures of masked patch prediction: corrupted images, 3-bit colours, predicted patches (§4.6)."""

from __future__ import annotations

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from vitlab.data.loader import to_float
from vitlab.training.masked import (
    COLOURS,
    KEPT,
    LEVELS,
    SIDE,
    MaskedViT,
    Target,
    corrupted_pixels,
    joined,
    patches_of,
)

_WIDTH = 256 // LEVELS  # bytes of a level
GREY = 128  # of a masked patch, in bytes: the mask is an embedding and has no colour


def colours_of(codes: Int64[Tensor, "*shape"]) -> UInt8[Tensor, "*shape 3"]:
    """The colour in the middle of each 3-bit code's range, red, green and blue in bytes: `colour_codes` undone.

    >>> colours_of(torch.tensor([451, 0]))  # levels 7, 0, 3
    tensor([[240,  16, 112],
            [ 16,  16,  16]], dtype=torch.uint8)
    """
    levels = torch.stack([codes // LEVELS**2, codes // LEVELS % LEVELS, codes % LEVELS], -1)
    return (levels * _WIDTH + _WIDTH // 2).to(torch.uint8)


@torch.inference_mode()
def guesses(
    model: MaskedViT, images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"]
) -> UInt8[Tensor, "n side side 3"]:
    """What a model predicts of the corrupted patches, image by image: colours in bytes.

    Of the target mean colour one pixel each, of the downsized patches 4 × 4, of the pixels all; of colours the most
    probable.

    >>> from vitlab.models import zoo
    >>> import numpy as np
    >>> from vitlab.training.masked import plans
    >>> model, plan = MaskedViT(zoo.create("Lab-Mu/8")), plans(2, 16, 0.5, np.random.default_rng(0))
    >>> guesses(model, torch.zeros(2, 3, 32, 32, dtype=torch.uint8), plan).shape
    torch.Size([16, 1, 1, 3])
    """
    training, device = model.training, next(model.parameters()).device
    model.eval()
    said = model(to_float(images.to(device)), plan.to(device)).float().cpu()
    model.train(training)
    if model.target is Target.PIXELS:
        size = model.patch_size
        pixels = said.reshape(-1, 3, size, size).permute(0, 2, 3, 1)
        return ((pixels.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    side = SIDE if model.target is Target.DOWNSIZED else 1
    return colours_of(said.reshape(len(said), side, side, COLOURS).argmax(-1))


def filled(
    images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"], patches: UInt8[Tensor, "n side side 3"]
) -> UInt8[Tensor, "B 3 H W"]:
    """The images with their corrupted patches, image by image, replaced by these, enlarged to the patches' size.

    Raises ValueError where these are not as many as are corrupted.

    >>> images, plan = torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.tensor([[KEPT, 4, KEPT, KEPT]])
    >>> filled(images, plan, torch.full((1, 1, 1, 3), 9, dtype=torch.uint8))[0, 0].tolist()
    [[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    if len(patches) != (count := int((plan != KEPT).sum())):
        raise ValueError(f"{len(patches)} patches given for {count} that are corrupted; expected one for each")
    size = _patch_size(images, plan)
    cut, times = patches_of(images, size).clone(), size // patches.shape[1]
    cut[plan != KEPT] = patches.permute(0, 3, 1, 2).repeat_interleave(times, 2).repeat_interleave(times, 3)
    return joined(cut, images.shape[2] // size)


def corrupted(images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"]) -> UInt8[Tensor, "B 3 H W"]:
    """The images as a plan corrupts them: another patch in a patch's place, grey for the mask.

    Of a ViT embeddings are replaced, not pixels: this is a picture of what the encoder is given.

    >>> images = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2).expand(1, 3, 2, 2)
    >>> corrupted(images, torch.tensor([[KEPT, 3, 4, 3]]))[0, 0].tolist()  # patches of one pixel
    [[0, 3], [128, 3]]
    """
    size = _patch_size(images, plan)
    return corrupted_pixels(images, images.new_full((3, size, size), GREY), plan)


def _patch_size(images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"]) -> int:
    """The side in pixels of the square patches that a plan is about."""
    return round((images.shape[2] * images.shape[3] / plan.shape[1]) ** 0.5)
