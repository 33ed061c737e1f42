"""Masked patch prediction: hide half of the patches, predict what was there; pictures of both (§4.6, App. B.1.2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float, Int64, Num, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.data.loader import Batches, FolderSet, ImageSet, slice_of, to_float
from vitlab.models.vit import ViT
from vitlab.training import distributed
from vitlab.training.loop import autocast

LEVELS = 8  # of each colour: 3 bits
COLOURS = LEVELS**3
SIDE = 4  # of the downsized patch, in pixels
KEPT = -1  # in a plan: a patch that is not corrupted and not predicted
GREY = 128  # of a masked patch in a picture, in bytes: the mask is an embedding and has no colour


class Target(StrEnum):
    """What is predicted of a corrupted patch: the three that the paper tried; it chose the first."""

    MEAN_COLOUR = "mean-colour"  # the 3-bit mean colour, one of 512
    DOWNSIZED = "downsized"  # the patch downsized to 4 × 4 pixels, each a 3-bit colour
    PIXELS = "pixels"  # all pixels, by squared error


def colour_codes(images: Float[Tensor, "B 3 H W"], side: int) -> Int64[Tensor, "B N"]:
    """Code the 3-bit colour of each square of `side` pixels, row by row: 64 · red + 8 · green + blue, each level 0…7.

    Images are in −1…1. A level is an eighth of the range of bytes: 0–31 is 0, 224–255 is 7.

    >>> colour_codes(torch.tensor([1.0, -1.0, 0.0]).reshape(1, 3, 1, 1).expand(1, 3, 4, 4), side=4)  # 7, 0 and 3
    tensor([[451]])
    """
    means = (F.avg_pool2d(images.float(), side) + 1) * 127.5 + 1e-3  # bytes; a mean of 32 may come out as 31.99999
    levels = (means * (LEVELS / 256)).long().clamp_(0, LEVELS - 1)
    red, green, blue = levels.flatten(2).unbind(1)
    return (red * LEVELS + green) * LEVELS + blue


def patches_of(images: Num[Tensor, "B 3 H W"], side: int) -> Num[Tensor, "B N 3 P P"]:
    """Cut images into squares of `side` pixels, row by row."""
    return images.unfold(2, side, side).unfold(3, side, side).permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def join(patches: Num[Tensor, "B N 3 P P"], rows: int) -> Num[Tensor, "B 3 H W"]:
    """Put patches together again, so many rows of them an image: `patches_of` undone."""
    return patches.unflatten(1, (rows, -1)).permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def corrupt_pixels(
    images: Num[Tensor, "B 3 H W"], mask: Num[Tensor, "3 P P"], plan: Int64[Tensor, "B N"]
) -> Num[Tensor, "B 3 H W"]:
    """Give images the patches that a plan says: their own, another's or the mask."""
    replaced = _replace(patches_of(images, mask.shape[-1]).flatten(2), mask.flatten(), plan).unflatten(2, mask.shape)
    return join(replaced, images.shape[2] // mask.shape[-1])


def plans(
    n_images: int, n_patches: int, share: float, generator: np.random.Generator
) -> Int64[Tensor, "n_images n_patches"]:
    """Draw what becomes of every patch's embedding: KEPT; or, of the corrupted, which patch's replaces it.

    That is `n_patches` for the mask (of 80 %), another patch of the image (10 %) or the patch itself (10 %). Of every
    image the `share` is corrupted; raises ValueError where that is no patch, or the grid is one patch.
    """
    if n_patches < 2:
        raise ValueError(f"a grid of {n_patches} patch has nothing to predict from: take smaller patches")
    n_corrupted = round(share * n_patches) if 0 < share <= 1 else 0
    if not n_corrupted:
        raise ValueError(f"share = {share} of {n_patches} patches: expected from {1 / n_patches:.2g} to 1, such as 0.5")
    order = generator.random((n_images, n_patches)).argsort(1)[:, :n_corrupted]
    kind = generator.random(order.shape)
    other = (order + generator.integers(1, n_patches, order.shape)) % n_patches
    replaced_by = np.where(kind < 0.8, n_patches, np.where(kind < 0.8 + 0.1, other, order))
    plan = np.full((n_images, n_patches), KEPT)
    np.put_along_axis(plan, order, replaced_by, axis=1)
    return torch.from_numpy(plan)


def batches(feed: Batches, batch_size: int, n_patches: int, share: float, seed: int) -> Batches:
    """Give a feed's images plans for their patches in place of labels; functions of the step as the feed is."""
    plans(1, n_patches, share, np.random.default_rng(0))  # refuses a share that cannot be, before anything begins

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        start, stop = slice_of(batch_size, start, stop)
        images, _ = feed(step, start, stop)
        drawn = plans(batch_size, n_patches, share, np.random.default_rng([seed, step]))
        return images, drawn[start:stop].to(images.device)

    return batch


class MaskedViT(nn.Module):
    """A ViT or hybrid of ours with a mask embedding and a linear layer that predicts patches from the last block.

    Of a ViT the patches' embeddings are replaced. A ResNet's features overlap, so that hidden pixels would show through
    in those next to them: of a hybrid the image's pixels are replaced, and the mask is a learned patch of pixels.
    """

    def __init__(self, vit: nn.Module, target: Target = Target.MEAN_COLOUR) -> None:
        super().__init__()
        if not isinstance(vit, ViT):
            raise ValueError(f"{type(vit).__name__} has no patches to mask: expected a ViT or hybrid of the zoo")
        self.vit, self.target = vit, Target(target)
        self.patch_size, self.n_patches = vit.config.patch_size, vit.config.n_patches
        self.on_pixels = not isinstance(vit.patch_embed.proj, nn.Conv2d) or vit.patch_embed.proj.kernel_size == (1, 1)
        shape = (3, self.patch_size, self.patch_size) if self.on_pixels else (vit.config.dim,)
        self.mask = nn.Parameter(torch.zeros(shape))
        colours = {Target.MEAN_COLOUR: COLOURS, Target.DOWNSIZED: SIDE**2 * COLOURS}
        with torch.random.fork_rng(devices=[]):  # the constructor draws; those draws are thrown away
            self.predict = nn.Linear(vit.config.dim, colours.get(self.target, 3 * self.patch_size**2))
        nn.init.zeros_(self.predict.weight)  # as every head here: at the start all colours are as likely
        nn.init.zeros_(self.predict.bias)

    def forward(
        self, images: Float[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "n outputs"]:
        """Predict the corrupted patches, image by image; without a plan all patches, none corrupted."""
        if plan is None:
            plan = torch.arange(self.n_patches, device=images.device).expand(len(images), -1)
        if self.on_pixels:
            x = self.vit.patch_embed(corrupt_pixels(images, self.mask, plan))
        else:
            x = _replace(self.vit.patch_embed(images), self.mask, plan)
        at = (plan != KEPT).nonzero()[:, 1].reshape(len(plan), -1) + self.vit.num_prefix_tokens  # as many in each image
        return self.predict(self.vit.encode(self.vit.sequence(x), at).flatten(0, 1))


def _replace(x: Num[Tensor, "B N D"], mask: Num[Tensor, " D"], plan: Int64[Tensor, "B N"]) -> Num[Tensor, "B N D"]:
    """Give every patch the row that the plan says: its own, another's or the mask."""
    n_patches = x.shape[1]
    source = torch.where((plan == KEPT) | (plan == n_patches), torch.arange(n_patches, device=x.device), plan)
    moved = x.gather(1, source[..., None].expand_as(x))
    return torch.where((plan == n_patches)[..., None], mask.to(x.dtype), moved)


@dataclass(frozen=True)
class MaskedPrediction:
    """The objective of a `MaskedViT`: labels are plans, the loss is over corrupted patches alone."""

    target: Target = Target.MEAN_COLOUR
    share: float = 0.5  # of the patches, corrupted
    patch_size: int = 8  # pixels

    def loss(self, forward: Callable[..., Tensor], images: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean loss over the corrupted patches; `labels` are plans."""
        predictions = forward(images, labels).float()
        wanted = self._wanted(images, labels)
        if self.target is Target.PIXELS:
            return F.mse_loss(predictions, wanted)
        return F.cross_entropy(predictions.reshape(-1, COLOURS), wanted.flatten())

    def _wanted(self, images: Tensor, plan: Tensor) -> Tensor:
        """Read what there was in the corrupted patches: codes [n] or [n 16], or pixels [n 3·P·P]."""
        if self.target is Target.MEAN_COLOUR:
            return colour_codes(images, self.patch_size)[plan != KEPT]
        patches = patches_of(images, self.patch_size)[plan != KEPT]
        if self.target is Target.PIXELS:
            return patches.flatten(1)
        return colour_codes(F.adaptive_avg_pool2d(patches, SIDE), 1)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, images: ImageSet | FolderSet, precision: str) -> dict[str, float]:
        """Measure mean loss and accuracy (right colours or explained variance, 0…1), always with the same plans."""
        (rank, n_processes), training, device = distributed.group(), model.training, next(model.parameters()).device
        model.eval()
        sums = torch.zeros(4, dtype=torch.float64, device=device)  # loss, right, most that could be, predicted
        for k, (pictures, _) in itertools.islice(enumerate(images.chunks(250)), rank, None, n_processes):
            inputs = to_float(pictures.to(device))
            n_patches = (inputs.shape[2] // self.patch_size) * (inputs.shape[3] // self.patch_size)
            plan = plans(len(inputs), n_patches, self.share, np.random.default_rng([2**32, k])).to(device)
            with autocast(device, precision):
                predictions = model(inputs, plan)
            predictions, wanted = predictions.float(), self._wanted(inputs, plan)
            n = torch.tensor(wanted.numel(), device=device)
            if self.target is Target.PIXELS:
                lost, most = (predictions - wanted).square().sum().double(), wanted.square().sum().double()
                right = most - lost
            else:
                logits, wanted, most = predictions.reshape(-1, COLOURS), wanted.flatten(), n
                lost, right = F.cross_entropy(logits, wanted, reduction="sum"), (logits.argmax(-1) == wanted).sum()
            sums += torch.stack([lost.double(), right.double(), most.double(), n.double()])
        model.train(training)
        loss, right, most, n = distributed.total(sums).tolist()
        return {"accuracy": right / most, "loss": loss / n}

    def result(self, model: nn.Module) -> nn.Module:
        """Return the ViT without mask and predictions, as it is fine-tuned and looked at."""
        return model.vit


def prepare(
    vit: nn.Module, feed: Batches, batch_size: int, target: Target, share: float, seed: int
) -> tuple[MaskedViT, Batches, MaskedPrediction]:
    """Make what `loop.train` takes to train a ViT by masked prediction on a feed: model, batches, objective."""
    model = MaskedViT(vit, target)
    objective = MaskedPrediction(model.target, share, model.patch_size)
    return model, batches(feed, batch_size, model.n_patches, share, seed), objective


# --- pictures ---------------------------------------------------------------------------------------------------------
def colours_of(codes: Int64[Tensor, "*shape"]) -> UInt8[Tensor, "*shape 3"]:
    """Decode 3-bit codes to the colour in the middle of each range, in bytes: `colour_codes` undone.

    >>> colours_of(torch.tensor(451)).tolist()  # levels 7, 0, 3
    [240, 16, 112]
    """
    levels = torch.stack([codes // LEVELS**2, codes // LEVELS % LEVELS, codes % LEVELS], -1)
    return (levels * (256 // LEVELS) + 128 // LEVELS).to(torch.uint8)


@torch.inference_mode()
def guesses(
    model: MaskedViT, images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"]
) -> UInt8[Tensor, "n side side 3"]:
    """Predict the corrupted patches, image by image, as the most probable colours in bytes: 1, 4 × 4 or all pixels."""
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
    """Replace the corrupted patches of images, image by image, by these, enlarged to the patches' size.

    >>> images, plan = torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.tensor([[KEPT, 4, KEPT, KEPT]])
    >>> filled(images, plan, torch.full((1, 1, 1, 3), 9, dtype=torch.uint8))[0, 0].tolist()
    [[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    size = round((images.shape[2] * images.shape[3] / plan.shape[1]) ** 0.5)
    cut, times = patches_of(images, size).clone(), size // patches.shape[1]
    cut[plan != KEPT] = patches.permute(0, 3, 1, 2).repeat_interleave(times, 2).repeat_interleave(times, 3)
    return join(cut, images.shape[2] // size)


def corrupted(images: UInt8[Tensor, "B 3 H W"], plan: Int64[Tensor, "B N"]) -> UInt8[Tensor, "B 3 H W"]:
    """Corrupt images as a plan does, grey for the mask: a picture of what the encoder is given."""
    size = round((images.shape[2] * images.shape[3] / plan.shape[1]) ** 0.5)
    return corrupt_pixels(images, images.new_full((3, size, size), GREY), plan)
