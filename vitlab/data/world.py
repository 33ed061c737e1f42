"""The world: an endless set of labelled pictures with object masks, the offline stand-in for JFT-300M (§4.1).

A class has a contour, a texture, two colours and an arrangement of parts; how much each of these four cues says of it
is set. Texture is local: a patch tells it. Arrangement is global: only where the parts stand to one another tells a
class. An instance adds what a camera would. Image i of a world is a pure function of (world, i), in any batch, order or
process, but for one grey level in one byte of 100,000 (more on a GPU): what is rendered with it moves the rounding.

Related: FractalDB (Kataoka et al., ACCV 2020, CVPR 2022); Visual Atoms (Takashima et al., CVPR 2023); dead leaves (Lee
et al., IJCV 2001; Baradad et al., 2021).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vitlab.data.loader import Batches, ImageSet, slice_of, to_float
from vitlab.settings import check, one_thread, whole

HELD_OUT = 2**40  # images from this index on are never used for training
CUES = ("contour", "texture", "colour", "arrangement")
STRENGTHS = ("position", "rotation", "scale", "stretch", "lighting", "background", "distractors", "occlusion")
HARMONICS = (2, 3, 4, 5, 6, 7, 8, 9)  # of a contour
N_PARTS = 4  # on each object: half of them dark, half bright
_LABELLED, _N_LAYERS = 2, 4  # back to front: two other objects, the labelled one, and one that may stand in front
_N_DRAWS = 2 * len(HARMONICS) + 12 + 2 * N_PARTS  # uniform numbers of an object's look
_SHEET = 1024  # pixels, of the noise that backgrounds are cut from


@dataclass(frozen=True)
class World:
    """Which world, what tells its classes, and how hard it is.

    A cue from 0 to 1 is the share of the class in it: 1, the class determines it; 0, it is drawn anew for each image
    (and with arrangement 0 objects have no parts at all). Strength 0 switches a source of variation off, 1 is full.
    """

    n_classes: int = 10
    image_size: int = 32  # pixels, square
    seed: int = 0  # another seed: other classes and instances
    # cues
    contour: float = 1.0
    texture: float = 1.0
    colour: float = 0.6
    arrangement: float = 0.0
    # strengths
    position: float = 1.0  # object centres: the frame's centre … anywhere in it
    rotation: float = 0.15  # of the full circle
    scale: float = 0.6  # octaves between the smallest and the largest object
    stretch: float = 0.5  # aspect ratios up to 2^stretch
    lighting: float = 0.6  # shading across the object and of the whole scene
    background: float = 0.6  # contrast of the 1/f noise
    distractors: float = 0.4  # probability of each object behind
    occlusion: float = 0.25  # probability of an object in front

    def __post_init__(self):
        check(self, {"n_classes": whole(self.n_classes, 2, 100_000), "image_size": whole(self.image_size, 8, 1024)})
        for names, most, kind in ((CUES, 1, "cue"), (STRENGTHS, 4, "strength")):
            for name in names:
                if not 0 <= getattr(self, name) <= most:
                    raise ValueError(f"{name} is {getattr(self, name)}; a {kind} lies in 0…{most}")
        if not any(getattr(self, cue) for cue in CUES):
            raise ValueError(f"all cues are 0, so nothing tells the classes; set one of {', '.join(CUES)}")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, which are numbers."""
        return tuple(f"class {k}" for k in range(self.n_classes))


def with_difficulty(world: World, factor: float) -> World:
    """Multiply every strength of a world by `factor`."""
    strengths: dict[str, Any] = {name: getattr(world, name) * factor for name in STRENGTHS}
    return dataclasses.replace(world, **strengths)


def with_cues(world: World, *cues: str) -> World:
    """Let these cues alone tell the classes of a world, each in full; raises ValueError for an unknown cue or none."""
    if unknown := set(cues) - set(CUES):
        raise ValueError(f"unknown cues {sorted(unknown)}; there are {', '.join(CUES)}")
    shares: dict[str, Any] = {cue: float(cue in cues) for cue in CUES}
    return dataclasses.replace(world, **shares)


def uniform(seed: int, index: Int64[Tensor, " N"], n: int, purpose: int) -> Float[Tensor, "N n"]:
    """Draw `n` numbers in [0, 1) for each index by a counter-based hash: no state, no order, alike on every device."""

    def mix(x: Tensor) -> Tensor:  # full avalanche of 32-bit words (Ellis' lowbias32), held in int64
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
        x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
        return x ^ (x >> 16)

    start = (seed * 0x9E3779B1 + purpose * 0x85EBCA77) & 0xFFFFFFFF
    column = torch.arange(n, dtype=torch.int64, device=index.device)
    h = mix(mix(start ^ (index & 0xFFFFFFFF)) ^ (index >> 32))
    h = mix(mix(h[:, None] ^ (column * 0x9E3779B1 & 0xFFFFFFFF)) + column & 0xFFFFFFFF)
    return (h >> 8).to(torch.float32) * 2**-24


@functools.lru_cache(maxsize=4)
def noise_sheet(seed: int, device: torch.device | str = "cpu") -> Float[Tensor, "3 1024 1024"]:
    """Make noise with a 1/f amplitude spectrum, mean 0, standard deviation 1, mostly grey; on the CPU, to the bit."""
    with one_thread():  # with more, sums are taken in another order, and a pixel in a million is another one
        white = torch.randn(4, _SHEET, _SHEET, generator=torch.Generator().manual_seed(seed))
        fy, fx = torch.fft.fftfreq(_SHEET)[:, None], torch.fft.rfftfreq(_SHEET)[None]
        amplitude = (fy**2 + fx**2).sqrt().clamp(min=4 / _SHEET).reciprocal()
        pink = torch.fft.irfft2(torch.fft.rfft2(white) * amplitude, s=(_SHEET, _SHEET))
        sheet = pink[:1] + 0.3 * pink[1:]
        mean, std = sheet.mean(), sheet.std()
    return ((sheet - mean) / std).to(device)


def looks(draws: Float[Tensor, "*n 36"]) -> dict[str, Tensor]:
    """Turn uniform numbers into looks, a tensor for each cue.

    contour [*n, 2, 8]: coefficients a_k and b_k of the radius r(θ) = 1 + Σ a_k cos kθ + b_k sin kθ, which exceeds 0.3.
    texture [*n, 6]: two wave vectors (radians per object radius), mixture, warp (radians). colour [*n, 2, 3]: the two
    colours between which the texture runs. arrangement [*n, 4, 2]: where the parts are, in object radii.
    """
    n = len(HARMONICS)
    contour, surface, parts = draws.split([2 * n, 12, 2 * N_PARTS], -1)
    amplitude = contour[..., :n] ** 4
    amplitude = amplitude * (0.35 + 0.3 * contour[..., :1]) / amplitude.sum(-1, keepdim=True).clamp(min=1e-3)
    phase = 2 * math.pi * contour[..., n:]
    frequency, angle = 2 * math.pi * (0.45 + 1.05 * surface[..., :2]), 2 * math.pi * surface[..., 2:4]
    waves = [frequency * torch.cos(angle), frequency * torch.sin(angle)]
    middle, contrast = 0.25 + 0.5 * surface[..., 6:9], 0.12 + 0.2 * surface[..., 9:12]
    distance, direction = 0.15 + 0.4 * parts[..., :N_PARTS].sqrt(), 2 * math.pi * parts[..., N_PARTS:]
    return {
        "contour": torch.stack([amplitude * torch.cos(phase), amplitude * torch.sin(phase)], -2),
        "texture": torch.cat([*waves, surface[..., 4:5], 2 * surface[..., 5:6] ** 2], -1),
        "colour": torch.stack([middle - contrast, middle + contrast], -2),
        "arrangement": torch.stack([distance * torch.cos(direction), distance * torch.sin(direction)], -1),
    }


def class_looks(world: World, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Draw the looks of a world's classes, a row for each class."""
    return looks(uniform(world.seed, torch.arange(world.n_classes, device=device), _N_DRAWS, purpose=1))


def object_looks(world: World, indices: Int64[Tensor, " B"]) -> dict[str, Tensor]:
    """Draw the looks of the objects of every image, [B, 4, …] back to front: of the labelled one as the cues say."""
    found = looks(uniform(world.seed, indices, _N_LAYERS * _N_DRAWS, purpose=3).unflatten(1, (_N_LAYERS, _N_DRAWS)))
    for cue, own in class_looks(world, indices.device).items():
        labelled = own[indices % world.n_classes]
        found[cue][:, _LABELLED] = torch.lerp(found[cue][:, _LABELLED], labelled, getattr(world, cue))
    return found


def contour_radius(
    contour: Float[Tensor, "*n 2 8"], cosine: Float[Tensor, "*n S1 S2"], sine: Float[Tensor, "*n S1 S2"]
) -> Float[Tensor, "*n S1 S2"]:
    """Compute r(θ) from cos θ and sin θ, by Clenshaw's recurrence: no trigonometry for each pixel."""
    twice = 2 * cosine
    sums = []
    for series in contour[..., None, None].unbind(-4):
        one, two = series[..., -1, :, :].expand_as(twice), torch.zeros_like(twice)
        for k in range(HARMONICS[-1] - 1, 0, -1):
            below = -two if k < HARMONICS[0] else series[..., k - HARMONICS[0], :, :] - two
            one, two = torch.addcmul(below, twice, one), one
        sums.append((one, two))
    (one, two), (sine_sum, _) = sums
    return (1 - two).addcmul_(cosine, one).addcmul_(sine, sine_sum)


def _draws(
    world: World, indices: Int64[Tensor, " B"]
) -> tuple[Float[Tensor, "B 4 12"], Bool[Tensor, "B 4"], tuple[Tensor, Tensor]]:
    """Draw the uniform numbers of every image's objects, back to front, which of them there are, and of its light."""
    u = uniform(world.seed, indices, _N_LAYERS * 12 + 2, purpose=2)
    layers = u[:, : _N_LAYERS * 12].unflatten(1, (_N_LAYERS, 12))
    chance = torch.full((_N_LAYERS,), world.distractors, device=indices.device)
    chance[_LABELLED], chance[-1] = 2.0, world.occlusion
    return layers, layers[..., 7] < chance, (u[:, -2], u[:, -1])


def latents(world: World, indices: Int64[Tensor, " B"]) -> dict[str, Int64[Tensor, " B"]]:
    """Tell what the images' labels do not: column, size and angle of the labelled object, count of the others.

    The first three are eighths, 0…7, of what the world's strengths allow; the count is 0, 1 or 2 and more.
    """
    u, present, _ = _draws(world, indices)
    eighths = {name: (8 * u[:, _LABELLED, k]).long() for name, k in (("column", 1), ("size", 0), ("angle", 3))}
    return eighths | {"count": (present.sum(1) - 1).clamp(max=2)}


def _render(
    world: World, indices: Int64[Tensor, " B"], sheet: Float[Tensor, "3 N N"]
) -> tuple[UInt8[Tensor, "B 3 S S"], Float[Tensor, "B S S"]]:
    """Render images, back to front, and the visible coverage (0…1) of their labelled objects."""
    side, device, behind = world.image_size, indices.device, _LABELLED
    found = object_looks(world, indices)
    u, present, (scene_gain, scene_tilt) = _draws(world, indices)

    # Poses [B, layer]: centres in −1…1 (the frame), sizes (radii) in half frames; x is stretched, y by the inverse.
    target = torch.arange(_N_LAYERS, device=device) == behind
    sizes = 0.7 * 2 ** (world.scale * (u[..., 0] - 0.5)) * torch.where(target, 1.0, 0.8)
    reach = min(world.position, 1.0) * 0.6  # at the most a rim is cut off by the frame, as in photographs
    centres = (u[..., 1:3] * 2 - 1) * torch.where(target[:, None], reach, 0.95)
    # What stands in front stands next to the object's centre, so that it hides a part and never the whole.
    direction = 2 * math.pi * u[:, -1, 1]
    aside = torch.stack([torch.cos(direction), torch.sin(direction)], -1) * sizes[:, behind, None] * 1.15
    centres = torch.cat([centres[:, :-1], (centres[:, behind] + aside)[:, None]], 1)
    angles = 2 * math.pi * (u[..., 3] - 0.5) * min(world.rotation, 1.0)
    stretches = 2 ** (world.stretch * (u[..., 4] - 0.5))
    phases = 2 * math.pi * u[..., 5:7]  # of the texture's waves

    # The background: a turned and enlarged cut of the noise sheet, 3 … 12 % of its half side.
    axis = (torch.arange(side, device=device, dtype=torch.float32) + 0.5) * (2 / side) - 1
    across, down = axis.expand(side, side), axis[:, None].expand(side, side)
    at = u[:, 0, 8:12]
    extent, turn = 0.03 * 4 ** at[:, 3], 2 * math.pi * at[:, 2]
    turned = torch.stack([torch.cos(turn), -torch.sin(turn), torch.sin(turn), torch.cos(turn)], -1).reshape(-1, 2, 2)
    where = torch.einsum("hwc,bdc->bhwd", torch.stack([across, down], -1), turned) * extent[:, None, None, None]
    where = where + ((at[:, :2] * 2 - 1) * 0.8)[:, None, None]
    noise = F.grid_sample(sheet.expand(len(at), -1, -1, -1), where, mode="bilinear", align_corners=False)
    contrast = world.background * (0.1 + 0.25 * u[:, 1, 11])
    image = (0.25 + 0.5 * u[:, 1, 8:11])[..., None, None] + contrast[:, None, None, None] * noise
    # One light for the whole scene: a tilt across the frame, and rounder objects fall off towards their rim.
    towards = 2 * math.pi * scene_tilt
    light = torch.stack([torch.cos(towards), torch.sin(towards)], -1) * world.lighting
    tilt = light[:, 0, None, None] * across + light[:, 1, None, None] * down
    shade = (1 + 0.25 * tilt) * (1 + world.lighting * 0.5 * (scene_gain - 0.5))[:, None, None]

    visible = torch.zeros_like(tilt)
    for layer in range(_N_LAYERS):
        rows = present[:, layer].nonzero()[:, 0]
        size, angle, stretch, centre, phase = (
            each[rows, layer][..., None, None] for each in (sizes, angles, stretches, centres, phases)
        )
        contour, texture, colours, parts = (found[cue][rows, layer] for cue in CUES)
        # To the object's own frame: turned back, radius 1.
        right, below = across - centre[:, 0], down - centre[:, 1]
        cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
        x = (right * cosine + below * sine) * stretch
        y = (below * cosine - right * sine) / stretch
        square = x * x + y * y
        radius = square.sqrt().clamp_(min=1e-4)
        pixels = size * (side / 2)
        coverage = ((contour_radius(contour, x / radius, y / radius) - radius) * pixels + 0.5).clamp_(0, 1)

        texture = texture[..., None, None]
        bend = noise[rows, :1][:, 0] * texture[:, 5]
        first = torch.cos(texture[:, 0] * x + texture[:, 2] * y + phase[:, 0] + bend)
        second = torch.cos(texture[:, 1] * x + texture[:, 3] * y + phase[:, 1] - bend)
        surface = (first * (1 - texture[:, 4] + texture[:, 4] * second) * 1.5).clamp_(-1, 1)
        dark, bright = colours[..., None, None].unbind(1)
        colour = (dark + bright) / 2 + (bright - dark) / 2 * surface[:, None]
        for kind, brightness in enumerate((0.08, 0.92) if world.arrangement > 0 else ()):
            nearest = torch.full_like(square, math.inf)  # squared distance to this kind's parts, discs of radius 0.2
            for point in parts[:, kind::2][..., None, None].unbind(1):
                distance = torch.addcmul(torch.addcmul(square, x, point[:, 0], value=-2), y, point[:, 1], value=-2)
                nearest = torch.minimum(nearest, distance + point.square().sum(1))
            part = ((0.2 - nearest.clamp_(min=0).sqrt_()) * pixels + 0.5).clamp_(0, 1)
            colour = torch.lerp(colour, torch.full_like(colour, brightness), part[:, None])
        dome = 1 + 0.4 * world.lighting * (0.5 - square.clamp(max=2.25))
        image[rows] = torch.lerp(image[rows], colour * dome[:, None], coverage[:, None])
        visible[rows] = coverage if layer == behind else visible[rows] * (1 - coverage)
    return (image * shade[:, None]).clamp_(0, 1).mul_(255).round_().to(torch.uint8), visible


def _chunk_size(image_size: int, device: torch.device | str) -> int:
    """How many images are rendered at a time: on a CPU what its cache holds, on a GPU half a gigabyte."""
    return max(1, (65_536 if torch.device(device).type == "cpu" else 2_097_152) // image_size**2)


def scene(
    world: World, indices: Int64[Tensor, " N"], device: torch.device | str = "cpu", chunk: int | None = None
) -> tuple[UInt8[Tensor, "N 3 S S"], Int64[Tensor, " N"], Bool[Tensor, "N S S"]]:
    """Render images (bytes), with labels and masks of the visible part of the labelled object, for any indices ≥ 0.

    Rendered in chunks that fit a processor's cache. Raises ValueError for negative indices.
    """
    if indices.numel() and int(indices.min()) < 0:
        raise ValueError(f"image index {int(indices.min())} is negative; a world's images are numbered from 0")
    indices, s = indices.to(device, non_blocking=True), world.image_size
    chunk, sheet = chunk or _chunk_size(s, indices.device), noise_sheet(world.seed, indices.device)
    images = torch.empty(len(indices), 3, s, s, dtype=torch.uint8, device=device)
    masks = torch.empty(len(indices), s, s, dtype=torch.bool, device=device)
    for start in range(0, len(indices), chunk):
        images[start : start + chunk], visible = _render(world, indices[start : start + chunk], sheet)
        masks[start : start + chunk] = visible > 0.5
    return images, indices % world.n_classes, masks


def image_set(world: World, count: int, start: int = 0, device: torch.device | str = "cpu") -> ImageSet:
    """Render images start … start+count−1 into memory, with masks. Sets that start alike are nested."""
    images, labels, masks = scene(world, torch.arange(start, start + count), device)
    return ImageSet(images, labels, world.classes, masks)


def stream(world: World, batch_size: int, device: torch.device | str = "cpu", start: int = 0) -> Batches:
    """Give endless training batches, rendered when asked for from image `start` on: no image is ever seen twice."""
    begin, chunk = start, _chunk_size(world.image_size, device)

    @functools.lru_cache(maxsize=2)  # the one that two batches share, and one more
    def render_chunk(k: int) -> tuple[Tensor, Tensor]:
        # A few bytes depend on what is rendered with an image, so that is always the same: images k · chunk ….
        return scene(world, torch.arange(k * chunk, (k + 1) * chunk), device)[:2]

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        first, end = (begin + step * batch_size + i for i in slice_of(batch_size, start, stop))
        chunks = range(first // chunk, -(-end // chunk))
        images, labels = (torch.cat(parts) for parts in zip(*map(render_chunk, chunks), strict=True))
        wanted = slice(first - chunks[0] * chunk, end - chunks[0] * chunk)
        return to_float(images[wanted]), labels[wanted]

    return batch
