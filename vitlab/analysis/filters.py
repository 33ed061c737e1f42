"""The patch embedding's filters and their principal components (§4.5, Fig. 7 left)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor, nn

from vitlab.analysis.attention import patch_embedding

CUTOFF = 0.25  # cycles per pixel up to which a spatial frequency is low; 0.5 is the finest wave along an axis


def embedding_filters(model: nn.Module) -> Float[Tensor, "D 3 P Q"]:
    """Copy the D filters of the patch embedding, each a small colour image: E of Eq. 1, unflattened.

    Raises ValueError for a model whose patches are not cut from an RGB image: a hybrid, a stem of several layers.
    """
    embed = patch_embedding(model)
    projection = getattr(embed, "proj", None)
    if isinstance(projection, nn.Conv2d | nn.Linear) and not hasattr(embed, "backbone"):
        weight = projection.weight.detach().clone()
        if weight.ndim == 2:  # over pixels of (row, column, channel) order, as timm's NaFlexViT
            sides = (embed.patch_size,) * 2 if isinstance(embed.patch_size, int) else embed.patch_size
            weight = weight.unflatten(1, (*sides, -1)).permute(0, 3, 1, 2)
        if weight.shape[1] == 3 and min(weight.shape[2:]) > 1:
            return weight
    raise ValueError(
        f"{type(model).__name__}'s patch embedding is a {type(embed).__name__} that projects features, or images "
        "without 3 channels, so there are no RGB filters; give a model whose patches are cut from the image"
    )


def filter_components(
    filters: Real[Tensor, "D 3 P Q"] | nn.Module, n: int = 28
) -> tuple[Float[Tensor, "n 3 P Q"], Float[Tensor, " n"]]:
    """Compute the first principal components of the D filters, or a model's, of norm 1, and their shares of variance.

    The mean filter is subtracted. A component's sign is free; here its largest entry in magnitude is positive.
    """
    if isinstance(filters, nn.Module):
        filters = embedding_filters(filters)
    samples = filters.detach().flatten(1).double()
    if not 1 <= n <= min(samples.shape):
        raise ValueError(f"n {n} given, expected 1…{min(samples.shape)} for filters {list(filters.shape)}")
    _, singular, axes = torch.linalg.svd(samples - samples.mean(0), full_matrices=False)
    variance = singular**2
    explained = variance / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    dtype = torch.promote_types(filters.dtype, torch.float32)  # of whole numbers too: they would be cut off to 0
    return (axes * largest.sign())[:n].unflatten(1, filters.shape[1:]).to(dtype), explained[:n].to(dtype)


def filter_tiles(components: Float[Tensor, "n 3 P Q"]) -> Float[Tensor, "n 3 P Q"]:
    """Scale each component to 0…1 for display, over its channels together (the paper does not say how it scales)."""
    low, high = components.amin((1, 2, 3), keepdim=True), components.amax((1, 2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (components - low) / span.clamp_min(torch.finfo(span.dtype).tiny), 0.5)


def low_frequency_share(components: Real[Tensor, "n 3 P Q"]) -> Float[Tensor, " n"]:
    """Compute the share of each component's spectral energy, over its channels, at frequencies up to `CUTOFF` (C11)."""
    energy = torch.fft.fft2(components.double()).abs().square()
    low = _low_frequencies(*components.shape[-2:]).to(energy.device)
    total = energy.sum((1, 2, 3)).clamp_min(torch.finfo(energy.dtype).tiny)
    return ((energy * low).sum((1, 2, 3)) / total).to(torch.promote_types(components.dtype, torch.float32))


def white_noise_share(grid: tuple[int, int]) -> float:
    """Compute what `low_frequency_share` of white noise is on average: the share of the spectrum within the cutoff."""
    return float(_low_frequencies(*grid).double().mean())


def _low_frequencies(height: int, width: int) -> Bool[Tensor, "height width"]:
    down, across = (torch.fft.fftfreq(side, dtype=torch.float64) for side in (height, width))
    return torch.hypot(down[:, None], across) <= CUTOFF + 1e-12
