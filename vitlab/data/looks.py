"""What an object of the world looks like: its contour, texture, colours, and the arrangement of its parts (§4.1).

Contours are circular harmonics (Takashima et al., CVPR 2023, "Visual Atoms"). Texture is local: a patch tells it.
Arrangement is global: the parts are alike in all classes, and only where they stand to one another tells a class.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

HARMONICS = (2, 3, 4, 5, 6, 7, 8, 9)  # of a contour
N_PARTS = 4  # on each object: half of them dark, half bright
PART_RADIUS = 0.2  # of the object's
N_DRAWS = 2 * len(HARMONICS) + 12 + 2 * N_PARTS
CUES = ("contour", "texture", "colour", "arrangement")


@dataclass(frozen=True)
class Look:
    """One row for each class, or for each object."""

    contour: Float[Tensor, "*n 2 8"]  # coefficients of the cosines and of the sines of the radius
    texture: Float[Tensor, "*n 6"]  # two wave vectors, radians per object radius; mixture; warp in radians
    colour: Float[Tensor, "*n 2 3"]  # the two colours between which the texture runs
    arrangement: Float[Tensor, "*n 4 2"]  # where the parts are, in object radii

    def __getitem__(self, rows) -> Look:
        return Look(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def look(draws: Float[Tensor, "*n 36"]) -> Look:
    """Uniform numbers to a look.

    >>> look(torch.full((3, N_DRAWS), 0.5)).arrangement.shape
    torch.Size([3, 4, 2])
    """
    n = len(HARMONICS)
    contour, surface, parts = draws.split([2 * n, 12, 2 * N_PARTS], -1)
    frequency, angle = 2 * math.pi * (0.45 + 1.05 * surface[..., :2]), 2 * math.pi * surface[..., 2:4]
    waves = [frequency * torch.cos(angle), frequency * torch.sin(angle)]
    middle, contrast = 0.25 + 0.5 * surface[..., 6:9], 0.12 + 0.2 * surface[..., 9:12]
    distance, direction = 0.15 + 0.4 * parts[..., :N_PARTS].sqrt(), 2 * math.pi * parts[..., N_PARTS:]
    return Look(
        contour=contour_coefficients(contour),
        texture=torch.cat([*waves, surface[..., 4:5], 2 * surface[..., 5:6] ** 2], -1),
        colour=torch.stack([middle - contrast, middle + contrast], -2),
        arrangement=torch.stack([distance * torch.cos(direction), distance * torch.sin(direction)], -1),
    )


def contour_coefficients(draws: Float[Tensor, "*n 16"]) -> Float[Tensor, "*n 2 8"]:
    """Uniform numbers to a_k and b_k of the radius r(θ) = 1 + Σ a_k cos kθ + b_k sin kθ, which exceeds 0.3.

    Few harmonics are strong, others weak: from rounded triangles to stars of nine rays.
    """
    n = len(HARMONICS)
    amplitude = draws[..., :n] ** 4
    amplitude = amplitude * (0.35 + 0.3 * draws[..., :1]) / amplitude.sum(-1, keepdim=True).clamp(min=1e-3)
    phase = 2 * math.pi * draws[..., n:]
    return torch.stack([amplitude * torch.cos(phase), amplitude * torch.sin(phase)], -2)


def contour_radius(
    contour: Float[Tensor, "*n 2 8"], cosine: Float[Tensor, "*n S1 S2"], sine: Float[Tensor, "*n S1 S2"]
) -> Float[Tensor, "*n S1 S2"]:
    """r(θ) from cos θ and sin θ, by Clenshaw's recurrence: no trigonometry for each pixel.

    >>> circle, one, zero = torch.zeros(1, 2, 8), torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    >>> contour_radius(circle, one, zero).item()
    1.0
    """
    coefficients = contour[..., None, None]
    cosines, sines = coefficients.unbind(-4)
    twice = 2 * cosine
    sums = []
    for series in (cosines, sines):
        one, two = series[..., -1, :, :].expand_as(twice), torch.zeros_like(twice)
        for k in range(HARMONICS[-1] - 1, 0, -1):
            below = -two if k < HARMONICS[0] else series[..., k - HARMONICS[0], :, :] - two
            one, two = torch.addcmul(below, twice, one), one
        sums.append((one, two))
    (one, two), (sine_sum, _) = sums
    return (1 - two).addcmul_(cosine, one).addcmul_(sine, sine_sum)


def mixed(own: Look, other: Look, cues: dict[str, float]) -> Look:
    """A look between two: of each cue the share that is `own`'s; 0 is all `other`'s.

    >>> one, two = (look(torch.full((1, N_DRAWS), value)) for value in (0.2, 0.7))
    >>> half = mixed(one, two, dict.fromkeys(CUES, 1.0) | {"colour": 0.0})
    >>> half.contour.equal(one.contour), half.colour.equal(two.colour)
    (True, True)
    """
    return Look(*(torch.lerp(getattr(other, name), getattr(own, name), cues[name]) for name in CUES))
