"""The patch embedding's filters and their principal components (§4.5, Fig. 7 left)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from vitlab.analysis.attention import check_shape, patch_embedding


def embedding_filters(model: nn.Module) -> Float[Tensor, "D 3 P Q"]:
    """Copy the D filters of the patch embedding E, each a small colour image: E of Eq. 1, unflattened.

    Raises ValueError for a model whose patches are not cut from an RGB image: a hybrid's 1 x 1 patches of a feature
    map, or stems of several layers, have no RGB filters.
    """
    embed = patch_embedding(model)
    projection = getattr(embed, "proj", None)
    if hasattr(embed, "backbone") or not isinstance(projection, nn.Conv2d | nn.Linear):
        raise ValueError(
            f"{type(model).__name__}'s patch embedding is a {type(embed).__name__}: it projects features, not pixels, "
            "so there are no RGB filters; give a model whose patches are cut from the image"
        )
    weight = projection.weight.detach().clone()
    down, across = (embed.patch_size,) * 2 if isinstance(embed.patch_size, int) else embed.patch_size
    if isinstance(projection, nn.Linear):  # over pixels of (row, column, channel) order, as timm's NaFlexViT
        if weight.shape[1] != down * across * 3:
            raise ValueError(f"the projection has {weight.shape[1]} inputs, expected {down} x {across} x 3")
        return weight.unflatten(1, (down, across, 3)).permute(0, 3, 1, 2)
    if weight.shape[1] != 3 or min(weight.shape[2:]) < 2:
        raise ValueError(
            f"the projection has weights {list(weight.shape)}, expected [D, 3, P, P] with P of at least 2: 1 x 1 "
            "patches of a feature map, or images with other than 3 channels, have no RGB filters"
        )
    return weight


def filter_components(
    filters: Real[Tensor, "D 3 P Q"], n: int = 28
) -> tuple[Float[Tensor, "n 3 P Q"], Float[Tensor, " n"]]:
    """Compute the first principal components of the filters (the D filters are the samples), and their variance.

    The mean filter is subtracted. A component's sign is free; here its largest entry in magnitude is positive. Returns
    (components, each of norm 1, by falling variance; share of the total variance of each). Raises ValueError when the
    filters are not [D, 3, P, Q] or not finite, or n is not 1…min(D, 3·P·Q).
    """
    check_shape(filters, "filters", "D", "3", "P", "Q")
    samples = filters.detach().flatten(1).double()
    if not samples.isfinite().all():
        count = int((~samples.isfinite()).any(1).sum())
        raise ValueError(f"{count} of {len(samples)} filters hold NaN or infinity; did the training diverge?")
    most = min(samples.shape)
    if not 1 <= n <= most:
        raise ValueError(f"n {n} given, expected 1…{most}: {samples.shape[0]} filters of {samples.shape[1]} values")
    _, singular, axes = torch.linalg.svd(samples - samples.mean(0), full_matrices=False)
    variance = singular**2
    explained = variance / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    components = (axes * largest.sign())[:n].unflatten(1, filters.shape[1:])
    dtype = torch.promote_types(filters.dtype, torch.float32)  # of whole numbers too: they would be cut off to 0
    return components.to(dtype), explained[:n].to(dtype)


def filter_tiles(components: Float[Tensor, "n 3 P Q"]) -> Float[Tensor, "n 3 P Q"]:
    """Scale each component to 0…1 for display, its minimum and maximum taken over the three channels together.

    The paper does not say how it scales: this is our choice. A constant component becomes 0.5.
    """
    check_shape(components, "components", "n", "3", "P", "Q")
    low, high = components.amin((1, 2, 3), keepdim=True), components.amax((1, 2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (components - low) / span.clamp_min(torch.finfo(span.dtype).tiny), 0.5)


def low_frequency_share(components: Real[Tensor, "n 3 P Q"], cutoff: float = 0.25) -> Float[Tensor, " n"]:
    """Compute the share of each component's spectral energy at spatial frequencies up to a cutoff (C11).

    `cutoff`: cycles per pixel; 0.5 is the finest wave along an axis. Channels are taken together. White noise gives the
    share of the spectrum's points within the cutoff.

    >>> checkers = (-1.0) ** (torch.arange(8)[:, None] + torch.arange(8))
    >>> low_frequency_share(torch.stack([torch.ones(3, 8, 8), checkers.expand(3, 8, 8)]))
    tensor([1., 0.])
    """
    if cutoff < 0:
        raise ValueError(f"cutoff {cutoff} given, expected cycles per pixel, 0 or more")
    check_shape(components, "components", "n", "3", "P", "Q")
    energy = torch.fft.fft2(components.double()).abs().square()
    down, across = (torch.fft.fftfreq(side, dtype=torch.float64) for side in components.shape[-2:])
    low = (torch.hypot(down[:, None], across) <= cutoff + 1e-12).to(energy.device)
    total = energy.sum((1, 2, 3)).clamp_min(torch.finfo(energy.dtype).tiny)
    return ((energy * low).sum((1, 2, 3)) / total).to(torch.promote_types(components.dtype, torch.float32))


def white_noise_share(grid: tuple[int, int], cutoff: float = 0.25) -> float:
    """Compute what `low_frequency_share` of white noise is on average: the share of the spectrum within the cutoff."""
    if min(grid) < 1:
        raise ValueError(f"grid {grid} given, expected rows and columns, 1 or more of each")
    down, across = (torch.fft.fftfreq(side, dtype=torch.float64) for side in grid)
    return float((torch.hypot(down[:, None], across) <= cutoff + 1e-12).double().mean())
