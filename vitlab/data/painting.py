"""Paints the world's scenes: objects with a look and a pose before noise, back to front (no part of the paper)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from vitlab.data.looks import N_PARTS, PART_RADIUS, Look, contour_radius

_PART_BRIGHTNESS = (0.08, 0.92)  # of dark and bright parts


@dataclass(frozen=True)
class Poses:
    """How B scenes of L layers lie before the camera, back to front."""

    centre: Float[Tensor, "B L 2"]  # -1…1: the frame
    size: Float[Tensor, "B L"]  # radius, in half frames
    angle: Float[Tensor, "B L"]
    stretch: Float[Tensor, "B L"]  # x by so much, y by its inverse
    phase: Float[Tensor, "B L 2"]  # of the texture's waves
    present: Bool[Tensor, "B L"]
    noise_at: Float[Tensor, "B 4"]  # where on the sheet the background lies, how turned and how enlarged
    background: Float[Tensor, "B 3"]  # its mean colour
    contrast: Float[Tensor, " B"]  # of its noise
    light: Float[Tensor, "B 2"]  # tilt of the light across the frame
    gain: Float[Tensor, " B"]
    dome: float  # how far objects fall off towards their rim


def paint(
    looks: Look, poses: Poses, labelled: int, sheet: Float[Tensor, "3 N N"], side: int, with_parts: bool = True
) -> tuple[UInt8[Tensor, "B 3 S S"], Float[Tensor, "B S S"]]:
    """Images of `side` pixels and the visible coverage (0…1) of the objects in layer `labelled`.

    `looks` has a row for each object [B, L]. Only objects that are present are painted, with parts or without.
    """
    axis = (torch.arange(side, device=sheet.device, dtype=torch.float32) + 0.5) * (2 / side) - 1
    across, down = axis.expand(side, side), axis[:, None].expand(side, side)
    noise = _background_noise(poses, sheet, torch.stack([across, down], -1))
    image = poses.background[..., None, None] + poses.contrast[:, None, None, None] * noise
    # One light for the whole scene: a tilt across the frame, and rounder objects fall off towards their rim.
    tilt = poses.light[:, 0, None, None] * across + poses.light[:, 1, None, None] * down
    shade = (1 + 0.25 * tilt) * poses.gain[:, None, None]
    visible = torch.zeros_like(tilt)
    for layer in range(poses.present.shape[1]):
        rows = poses.present[:, layer].nonzero()[:, 0]
        place = poses, rows, layer
        coverage, colour = _object(looks[rows, layer], place, (across, down), noise[rows, :1], with_parts)
        image[rows] = torch.lerp(image[rows], colour, coverage[:, None])
        visible[rows] = coverage if layer == labelled else visible[rows] * (1 - coverage)
    return (image * shade[:, None]).clamp_(0, 1).mul_(255).round_().to(torch.uint8), visible


def _background_noise(poses: Poses, sheet: Tensor, grid: Float[Tensor, "S S 2"]) -> Float[Tensor, "B 3 S S"]:
    """A turned and enlarged cut of the noise sheet for each image."""
    at = poses.noise_at
    extent = 0.03 * 4 ** at[:, 3]  # of the sheet's half side: 3 … 12 %
    turn = 2 * math.pi * at[:, 2]
    rotation = torch.stack([torch.cos(turn), -torch.sin(turn), torch.sin(turn), torch.cos(turn)], -1)
    where = torch.einsum("hwc,bdc->bhwd", grid, rotation.reshape(-1, 2, 2)) * extent[:, None, None, None]
    where = where + ((at[:, :2] * 2 - 1) * 0.8)[:, None, None]
    return F.grid_sample(sheet.expand(len(at), -1, -1, -1), where, mode="bilinear", align_corners=False)


def _object(
    looks: Look, place: tuple[Poses, Tensor, int], grid: tuple[Tensor, Tensor], warp: Tensor, with_parts: bool
) -> tuple[Float[Tensor, "M S S"], Float[Tensor, "M 3 S S"]]:
    """Coverage and colours of the objects of one layer, in the scenes `rows`."""
    poses, rows, layer = place
    size, angle, stretch, centre, phase = (
        part[rows, layer][..., None, None]
        for part in (poses.size, poses.angle, poses.stretch, poses.centre, poses.phase)
    )
    across, down = grid[0] - centre[:, 0], grid[1] - centre[:, 1]
    cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size  # to the object's own frame: turned back, radius 1
    x = (across * cosine + down * sine) * stretch
    y = (down * cosine - across * sine) / stretch
    square = x * x + y * y
    radius = square.sqrt().clamp_(min=1e-4)
    pixels = size * (grid[0].shape[0] / 2)
    coverage = ((contour_radius(looks.contour, x / radius, y / radius) - radius) * pixels + 0.5).clamp_(0, 1)

    texture = looks.texture[..., None, None]
    bend = warp[:, 0] * texture[:, 5]
    first = torch.cos(texture[:, 0] * x + texture[:, 2] * y + phase[:, 0] + bend)
    second = torch.cos(texture[:, 1] * x + texture[:, 3] * y + phase[:, 1] - bend)
    surface = (first * (1 - texture[:, 4] + texture[:, 4] * second) * 1.5).clamp_(-1, 1)
    dark, bright = looks.colour[..., None, None].unbind(1)
    colour = (dark + bright) / 2 + (bright - dark) / 2 * surface[:, None]
    for kind, brightness in enumerate(_PART_BRIGHTNESS if with_parts else ()):
        part = _parts(looks.arrangement[:, kind::2], x, y, square, pixels)
        colour = torch.lerp(colour, torch.full_like(colour, brightness), part[:, None])
    dome = 1 + poses.dome * (0.5 - square.clamp(max=2.25))
    return coverage, colour * dome[:, None]


def _parts(at: Float[Tensor, "M K 2"], x: Tensor, y: Tensor, square: Tensor, pixels: Tensor) -> Float[Tensor, "M S S"]:
    """Coverage of discs around the points `at` of the object's frame."""
    nearest = None
    for point in at[..., None, None].unbind(1):
        to_point = torch.addcmul(torch.addcmul(square, x, point[:, 0], value=-2), y, point[:, 1], value=-2)
        to_point = to_point + point.square().sum(1)
        nearest = to_point if nearest is None else torch.minimum(nearest, to_point)
    assert nearest is not None and at.shape[1] * len(_PART_BRIGHTNESS) == N_PARTS
    return ((PART_RADIUS - nearest.clamp_(min=0).sqrt_()) * pixels + 0.5).clamp_(0, 1)
