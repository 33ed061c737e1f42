"""Noise with the spectrum of natural images, from which the world's backgrounds are cut (no part of the paper)."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from vitlab.settings import one_thread

_SHEET = 1024  # pixels


@functools.lru_cache(maxsize=4)
def noise_sheet(seed: int, device: torch.device | str = "cpu") -> Float[Tensor, "3 1024 1024"]:
    """Noise with a 1/f amplitude spectrum, mean 0, standard deviation 1, mostly grey; made on the CPU, to the bit.

    >>> noise_sheet(0).mean().abs().item() < 1e-3
    True
    """
    with one_thread():  # with more, sums are taken in another order, and a pixel in a million is another one
        white = torch.randn(4, _SHEET, _SHEET, generator=torch.Generator().manual_seed(seed))
        fy, fx = torch.fft.fftfreq(_SHEET)[:, None], torch.fft.rfftfreq(_SHEET)[None]
        amplitude = (fy**2 + fx**2).sqrt().clamp(min=4 / _SHEET).reciprocal()
        pink = torch.fft.irfft2(torch.fft.rfft2(white) * amplitude, s=(_SHEET, _SHEET))
        sheet = pink[:1] + 0.3 * pink[1:]
        mean, std = sheet.mean(), sheet.std()
    return ((sheet - mean) / std).to(device)
