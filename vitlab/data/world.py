"""The world: an endless set of labelled pictures with object masks, the offline stand-in for JFT-300M (§4.1).

A class is a closed contour (a radial Fourier series) together with a surface texture (two warped waves). An instance
adds what a camera would: position, rotation, scale, stretch, lighting, colours, a background with the 1/f spectrum of
natural images, other objects behind, and one in front. Image i of a world is a pure function of (world, i), in any
batch, order or process: but for one grey level in about one byte of a hundred thousand, where what is painted with it
moves the rounding, and in a few more on a GPU.

Related: FractalDB (Kataoka et al., ACCV 2020, CVPR 2022); dead leaves (Lee et al., IJCV 2001; Baradad et al., 2021).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from vitlab.data.loader import Batches, ImageSet, check_batch_size, slice_of, to_float
from vitlab.data.noise import noise_sheet

HELD_OUT = 2**40  # images from this index on are never used for training
MAX_IMAGE_SIZE = 1024  # pixels: 2,000 such test images are 6 GB
N_HARMONICS = 6  # contour harmonics 2…7
N_BEHIND = 2  # other objects behind the labelled one; one more may stand in front
N_LAYERS = N_BEHIND + 2


@dataclass(frozen=True)
class World:
    """Which world, and how hard. Every strength is ≥ 0: 0 switches a source of variation off, 1 is full.

    >>> World(n_classes=10, image_size=32).n_classes
    10
    """

    n_classes: int = 10
    image_size: int = 32  # pixels, square
    seed: int = 0  # another seed: other contours, textures and instances
    position: float = 0.8  # object centres: the frame's centre … anywhere in it, from 1.6 on
    rotation: float = 0.15  # of the full circle
    scale: float = 0.6  # octaves between the smallest and the largest object
    stretch: float = 0.5  # aspect ratios up to 2^stretch
    lighting: float = 0.6  # shading across the object and of the whole scene
    colour: float = 0.6  # 0: every class has its colours; 1: colour says nothing
    background: float = 0.6  # contrast of the 1/f noise
    distractors: float = 0.4  # probability of each object behind
    occlusion: float = 0.25  # probability of an object in front

    def __post_init__(self):
        if self.n_classes < 2:
            raise ValueError(f"n_classes is {self.n_classes}; a world needs at least 2 classes")
        if not 8 <= self.image_size <= MAX_IMAGE_SIZE:
            raise ValueError(f"image_size is {self.image_size}; a world has from 8 to {MAX_IMAGE_SIZE} pixels a side")
        for field in dataclasses.fields(self)[3:]:
            if not 0 <= getattr(self, field.name) <= 4:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; a strength lies in 0…4")


def with_difficulty(world: World, factor: float) -> World:
    """The same world with every strength multiplied by `factor` (1: as it was; 0: a class's pictures
    differ in the colour behind and the texture's phase alone).

    >>> with_difficulty(World(occlusion=0.3), 0.0).occlusion
    0.0
    """
    strengths = {f.name: getattr(world, f.name) * factor for f in dataclasses.fields(world)[3:]}
    return dataclasses.replace(world, **strengths)


def uniform(seed: int, index: Int64[Tensor, " N"], n: int, purpose: int) -> Float[Tensor, "N n"]:
    """`n` numbers in [0, 1) for each index: a counter-based hash, so no state, no order, the same on every device.

    >>> a = uniform(0, torch.tensor([5, 7]), 3, purpose=1)
    >>> bool((uniform(0, torch.tensor([7]), 3, purpose=1) == a[1]).all())
    True
    """
    start = (seed * 0x9E3779B1 + purpose * 0x85EBCA77) & 0xFFFFFFFF
    stream = torch.arange(n, dtype=torch.int64, device=index.device)
    h = _mix(_mix(start ^ (index & 0xFFFFFFFF)) ^ (index >> 32))
    h = _mix(_mix(h[:, None] ^ (stream * 0x9E3779B1 & 0xFFFFFFFF)) + stream & 0xFFFFFFFF)
    return (h >> 8).to(torch.float32) * 2**-24


def _mix(x: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n"]:
    """A full-avalanche mixing of 32-bit words (Ellis' lowbias32), held in int64."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def contour_coefficients(draws: Float[Tensor, "*n 12"]) -> Complex[Tensor, "*n 6"]:
    """Uniform numbers to the coefficients of r(θ) = 1 + Re Σ c_k e^{ikθ}, k = 2…7, with r > 0.3 everywhere."""
    k = torch.arange(2, 2 + N_HARMONICS, device=draws.device)
    amplitude = draws[..., :N_HARMONICS] ** 2 / k**0.5
    amplitude = amplitude * (0.45 + 0.2 * draws[..., :1]) / amplitude.sum(-1, keepdim=True).clamp(min=1e-3)
    return torch.polar(amplitude, 2 * math.pi * draws[..., N_HARMONICS:])


def contour_radius(coefficients: Complex[Tensor, "*n 6"], z: Complex[Tensor, "*n S1 S2"]) -> Float[Tensor, "*n S1 S2"]:
    """r(θ) at the directions z = e^{iθ}, by Horner's rule: no trigonometry per pixel.

    >>> circle = torch.zeros(1, 6, dtype=torch.complex64)
    >>> contour_radius(circle, torch.ones(1, 1, 1, dtype=torch.complex64)).item()
    1.0
    """
    c = coefficients[..., None, None]
    total = c[..., -1, :, :] * z
    for k in range(N_HARMONICS - 2, -1, -1):
        total = (total + c[..., k, :, :]) * z
    return 1 + (total * z).real


@dataclass(frozen=True)
class Look:
    """What a kind of object looks like: contour, texture, colours. One row per class, or per distractor."""

    contour: Complex[Tensor, "*n 6"]
    waves: Float[Tensor, "*n 2 2"]  # two wave vectors, radians per object radius
    mixture: Float[Tensor, "*n"]  # 0: stripes; 1: spots or checks (the product of the waves)
    warp: Float[Tensor, "*n"]  # how far noise bends the waves, radians
    colours: Float[Tensor, "*n 2 3"]  # the two colours between which the texture runs

    def __getitem__(self, rows) -> Look:
        return Look(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def look(draws: Float[Tensor, "*n 24"]) -> Look:
    """Uniform numbers to a look."""
    frequency = 2 * math.pi * (0.45 + 1.05 * draws[..., 12:14])
    angle = 2 * math.pi * draws[..., 14:16]
    middle, contrast = 0.25 + 0.5 * draws[..., 18:21], 0.12 + 0.2 * draws[..., 21:24]
    return Look(
        contour=contour_coefficients(draws[..., :12]),
        waves=torch.stack([frequency * torch.cos(angle), frequency * torch.sin(angle)], -1),
        mixture=draws[..., 16],
        warp=2.0 * draws[..., 17] ** 2,
        colours=torch.stack([middle - contrast, middle + contrast], -2),
    )


def class_looks(world: World, device: torch.device | str = "cpu") -> Look:
    """The looks of a world's classes, one row per class."""
    return look(uniform(world.seed, torch.arange(world.n_classes, device=device), 24, purpose=1))


def _instances(world: World, indices: Int64[Tensor, " B"]) -> tuple[Look, dict[str, Tensor]]:
    """The looks and poses of every layer of every image, back to front; layer N_BEHIND is the labelled object."""
    b, n = len(indices), N_LAYERS
    u = uniform(world.seed, indices, n * 12 + 2, purpose=2)
    scene_gain, scene_tilt = u[:, -2], u[:, -1]
    u = u[:, : n * 12].reshape(b, n, 12)
    others = look(uniform(world.seed, indices, n * 24, purpose=3).reshape(b, n, 24))
    own = class_looks(world, indices.device)[indices % world.n_classes]
    target = torch.arange(n, device=indices.device) == N_BEHIND
    looks = {}
    for field in dataclasses.fields(Look):
        mine, random = getattr(own, field.name)[:, None], getattr(others, field.name)
        shape = target.reshape(1, n, *[1] * (mine.ndim - 2))
        if field.name == "colours":  # the colour strength fades from the class's colours to any
            mine = torch.lerp(mine, random, min(world.colour, 1.0))
        looks[field.name] = torch.where(shape, mine, random)

    size = 0.5 * 2 ** (world.scale * (u[..., 0] - 0.5)) * torch.where(target, 1.0, 0.8)
    reach = min(0.6 * world.position, 0.95)  # beyond, the object could leave the frame
    centre = (u[..., 1:3] * 2 - 1) * torch.where(target[:, None], reach, 0.95)
    # What stands in front stands beside the object's centre, so that it hides a part and never the whole.
    direction = 2 * math.pi * u[:, -1, 1]
    beside = torch.stack([torch.cos(direction), torch.sin(direction)], -1) * size[:, N_BEHIND, None] * 1.15
    centre = torch.cat([centre[:, :-1], (centre[:, N_BEHIND] + beside)[:, None]], 1)
    chance = torch.full((n,), world.distractors, device=u.device)
    chance[N_BEHIND], chance[-1] = 2.0, world.occlusion
    light = 2 * math.pi * scene_tilt
    return Look(**looks), {
        "centre": centre,
        "size": size,
        "angle": 2 * math.pi * (u[..., 3] - 0.5) * min(world.rotation, 1.0),
        "stretch": 2 ** (world.stretch * (u[..., 4] - 0.5)),
        "phase": 2 * math.pi * u[..., 5:7],
        "present": (u[..., 7] < chance).to(torch.float32),
        "noise_at": u[:, 0, 8:12],  # where on the sheet the background lies, how turned and how enlarged
        "background": 0.25 + 0.5 * torch.stack([u[:, 1, 8], u[:, 1, 9], u[:, 1, 10]], -1),
        "contrast": world.background * (0.1 + 0.25 * u[:, 1, 11]),
        "light": torch.stack([torch.cos(light), torch.sin(light)], -1) * world.lighting,
        "gain": 1 + world.lighting * 0.5 * (scene_gain - 0.5),
    }


def _background_noise(world: World, pose: dict[str, Tensor], grid: Float[Tensor, "S S 2"]) -> Float[Tensor, "B 3 S S"]:
    """A turned and enlarged cut of the noise sheet for each image."""
    at = pose["noise_at"]
    extent = 0.03 * 4 ** at[:, 3]  # of the sheet's half side: 3 … 12 %
    turn = 2 * math.pi * at[:, 2]
    rotation = torch.stack([torch.cos(turn), -torch.sin(turn), torch.sin(turn), torch.cos(turn)], -1)
    where = torch.einsum("hwc,bdc->bhwd", grid, rotation.reshape(-1, 2, 2)) * extent[:, None, None, None]
    where = where + ((at[:, :2] * 2 - 1) * 0.8)[:, None, None]
    sheet = noise_sheet(world.seed, grid.device).expand(len(at), -1, -1, -1)
    return F.grid_sample(sheet, where, mode="bilinear", align_corners=False)


def _surfaces(looks: Look, pose: dict[str, Tensor], grid: Float[Tensor, "S S 2"], warp: Float[Tensor, "B 1 S S"]):
    """Coverage [B, L, S, S], texture −1…1 and shading, of every object of every image."""
    spin = torch.polar(1 / pose["size"], -pose["angle"])[..., None, None]
    w = torch.complex(grid[..., 0], grid[..., 1]) - torch.complex(*pose["centre"].unbind(-1))[..., None, None]
    w = w * spin  # the object's own frame: turned back, radius 1
    stretch = pose["stretch"][..., None, None]
    x, y = w.real * stretch, w.imag / stretch
    radius = torch.sqrt(x * x + y * y).clamp_(min=1e-4)
    inside = contour_radius(looks.contour, torch.complex(x / radius, y / radius)) - radius
    pixels = pose["size"][..., None, None] * (grid.shape[0] / 2)
    coverage = (inside * pixels + 0.5).clamp_(0, 1) * pose["present"][..., None, None]

    bend = warp * looks.warp[..., None, None]
    k, phase, mixture = looks.waves[..., None, None], pose["phase"][..., None, None], looks.mixture[..., None, None]
    first = torch.cos(k[..., 0, 0, :, :] * x + k[..., 0, 1, :, :] * y + phase[..., 0, :, :] + bend)
    second = torch.cos(k[..., 1, 0, :, :] * x + k[..., 1, 1, :, :] * y + phase[..., 1, :, :] - bend)
    texture = (first * (1 - mixture + mixture * second) * 1.5).clamp_(-1, 1)
    return coverage, texture, radius


def _paint(world: World, indices: Int64[Tensor, " B"]) -> tuple[Tensor, Tensor]:
    """Images in 0…1 [B, 3, S, S] and the labelled object's visible coverage [B, S, S]."""
    s = world.image_size
    axis = (torch.arange(s, device=indices.device, dtype=torch.float32) + 0.5) * (2 / s) - 1
    grid = torch.stack([axis.expand(s, s), axis[:, None].expand(s, s)], -1)
    looks, pose = _instances(world, indices)
    noise = _background_noise(world, pose, grid)
    image = pose["background"][..., None, None] + pose["contrast"][:, None, None, None] * noise
    coverage, texture, radius = _surfaces(looks, pose, grid, noise[:, :1])

    # One light for the whole scene: a tilt across the frame, and rounder objects fall off towards their rim.
    tilt = torch.einsum("hwc,bc->bhw", grid, pose["light"]).mul_(0.25)
    shade = (1 + tilt) * pose["gain"][:, None, None]
    dome = 1 + world.lighting * 0.4 * (0.5 - radius.clamp(max=1.5) ** 2)
    visible = torch.zeros_like(tilt)
    for layer in range(N_LAYERS):  # back to front
        alpha, dark, bright = coverage[:, layer], looks.colours[:, layer, 0], looks.colours[:, layer, 1]
        middle, half = (dark + bright) / 2, (bright - dark) / 2
        colour = middle[..., None, None] + half[..., None, None] * texture[:, layer, None]
        image = torch.lerp(image, colour * dome[:, layer, None], alpha[:, None])
        visible = alpha if layer == N_BEHIND else visible * (1 - alpha)
    return (image * shade[:, None]).clamp_(0, 1), visible


def scene(
    world: World, indices: Int64[Tensor, " N"], device: torch.device | str = "cpu", chunk: int | None = None
) -> tuple[UInt8[Tensor, "N 3 S S"], Int64[Tensor, " N"], Bool[Tensor, "N S S"]]:
    """Images (bytes), labels and masks of the visible part of the labelled object, for any indices ≥ 0.

    Painted in chunks that fit a processor's cache; the chunk changes the speed, and the pictures by one grey level in
    about one byte of a hundred thousand, which rounds the other way.

    Raises ValueError for negative indices.

    >>> images, labels, masks = scene(World(), torch.tensor([3, 14]))
    >>> images.shape, labels.tolist(), masks.dtype
    (torch.Size([2, 3, 32, 32]), [3, 4], torch.bool)
    """
    if indices.numel() and int(indices.min()) < 0:
        raise ValueError(f"image index {int(indices.min())} is negative; a world's images are numbered from 0")
    indices, s = indices.to(device, non_blocking=True), world.image_size
    chunk = chunk or _chunk(s, indices.device)
    images = torch.empty(len(indices), 3, s, s, dtype=torch.uint8, device=device)
    masks = torch.empty(len(indices), s, s, dtype=torch.bool, device=device)
    for start in range(0, len(indices), chunk):
        picture, visible = _paint(world, indices[start : start + chunk])
        images[start : start + chunk] = (picture * 255).round_()
        masks[start : start + chunk] = visible > 0.5
    return images, indices % world.n_classes, masks


def _chunk(image_size: int, device: torch.device | str) -> int:
    """How many images `scene` paints at a time: on a CPU what its cache holds, on a GPU half a gigabyte."""
    return max(1, (65_536 if torch.device(device).type == "cpu" else 2_097_152) // image_size**2)


def image_set(world: World, count: int, start: int = 0, device: torch.device | str = "cpu") -> ImageSet:
    """Images start … start+count−1 in memory, with masks. Sets that start alike are nested.

    >>> len(image_set(World(), 20, start=HELD_OUT))
    20
    """
    images, labels, masks = scene(world, torch.arange(start, start + count), device)
    return ImageSet(images, labels, class_names(world), masks)


def class_names(world: World) -> tuple[str, ...]:
    """What a world's classes are called."""
    return tuple(f"class {k}" for k in range(world.n_classes))


def stream(world: World, batch_size: int, device: torch.device | str = "cpu", start: int = 0) -> Batches:
    """Endless training batches, painted when asked for: no image is ever seen twice.

    >>> batch = stream(World(), batch_size=4)
    >>> images, labels = batch(1000)
    >>> images.shape, labels.tolist()
    (torch.Size([4, 3, 32, 32]), [0, 1, 2, 3])
    >>> torch.equal(batch(1000, 1, 3)[0], images[1:3])
    True
    """
    check_batch_size(batch_size)
    begin, chunk = start, _chunk(world.image_size, device)

    @functools.lru_cache(maxsize=2)  # the one that two batches share, and one more
    def painted(k: int) -> tuple[Tensor, Tensor]:
        """Images k · chunk …: a few bytes depend on what is painted with an image, so that is always the same."""
        return scene(world, torch.arange(k * chunk, (k + 1) * chunk), device)[:2]

    def batch(step: int, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        first, end = (begin + step * batch_size + i for i in slice_of(batch_size, start, stop))
        chunks = range(first // chunk, -(-end // chunk))
        images, labels = (torch.cat(parts) for parts in zip(*map(painted, chunks), strict=True))
        wanted = slice(first - chunks[0] * chunk, end - chunks[0] * chunk)
        return to_float(images[wanted]), labels[wanted]

    return batch
