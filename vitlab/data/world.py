"""The world: an endless set of labelled pictures with object masks, the offline stand-in for JFT-300M (§4.1).

A class has a contour, a texture, two colours and an arrangement of parts (`looks`); how much each of these four cues
says of it is set. An instance adds what a camera would: position, rotation, scale, stretch, lighting, a background with
the 1/f spectrum of natural images, other objects behind, and one in front. Image i of a world is a pure function of
(world, i), in any batch, order or process: but for one grey level in about one byte of a hundred thousand, where what
is painted with it moves the rounding, and in a few more on a GPU.

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
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from vitlab.data import looks
from vitlab.data.draws import uniform
from vitlab.data.loader import Batches, ImageSet, check_batch_size, slice_of, to_float
from vitlab.data.looks import Look
from vitlab.data.noise import noise_sheet
from vitlab.data.painting import Poses, paint

HELD_OUT = 2**40  # images from this index on are never used for training
MAX_IMAGE_SIZE = 1024  # pixels: 2,000 such test images are 6 GB
_N_BEHIND = 2  # other objects behind the labelled one; one more may stand in front
_N_LAYERS = _N_BEHIND + 2
_SIZE = 0.7  # radius of the labelled object at no strength, in half frames; of others 0.8 of that


@dataclass(frozen=True)
class World:
    """Which world, what tells its classes, and how hard it is.

    A cue from 0 to 1 is the share of the class in it: 1, the class determines it; 0, it is drawn anew for each image
    (and with arrangement 0 objects have no parts at all, for parts hide what else there is to see).
    Every strength is ≥ 0: 0 switches a source of variation off, 1 is full.

    >>> World(n_classes=10, image_size=32).n_classes
    10
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
        if self.n_classes < 2:
            raise ValueError(f"n_classes is {self.n_classes}; a world needs at least 2 classes")
        if not 8 <= self.image_size <= MAX_IMAGE_SIZE:
            raise ValueError(f"image_size is {self.image_size}; a world has from 8 to {MAX_IMAGE_SIZE} pixels a side")
        for cue in looks.CUES:
            if not 0 <= getattr(self, cue) <= 1:
                raise ValueError(f"{cue} is {getattr(self, cue)}; a cue lies in 0…1")
        if not any(getattr(self, cue) for cue in looks.CUES):
            raise ValueError(f"all cues are 0, so nothing tells the classes; set one of {', '.join(looks.CUES)}")
        for strength in STRENGTHS:
            if not 0 <= getattr(self, strength) <= 4:
                raise ValueError(f"{strength} is {getattr(self, strength)}; a strength lies in 0…4")


STRENGTHS = ("position", "rotation", "scale", "stretch", "lighting", "background", "distractors", "occlusion")


def with_difficulty(world: World, factor: float) -> World:
    """The same world with every strength multiplied by `factor` (1: as it was; 0: a class's pictures
    differ in the colour behind, the texture's phase, and what the cues leave open).

    >>> with_difficulty(World(occlusion=0.3), 0.0).occlusion
    0.0
    """
    strengths: dict[str, Any] = {name: getattr(world, name) * factor for name in STRENGTHS}
    return dataclasses.replace(world, **strengths)


def with_cues(world: World, *cues: str) -> World:
    """The same world with classes told by these cues alone, each in full.

    Raises ValueError for an unknown cue, and where none is given.

    >>> only = with_cues(World(), "contour")
    >>> only.contour, only.texture
    (1.0, 0.0)
    """
    if unknown := set(cues) - set(looks.CUES):
        raise ValueError(f"unknown cues {sorted(unknown)}; there are {', '.join(looks.CUES)}")
    told: dict[str, Any] = {cue: float(cue in cues) for cue in looks.CUES}
    return dataclasses.replace(world, **told)


def class_looks(world: World, device: torch.device | str = "cpu") -> Look:
    """The looks of a world's classes, one row per class."""
    classes = torch.arange(world.n_classes, device=device)
    return looks.look(uniform(world.seed, classes, looks.N_DRAWS, purpose=1))


def _instances(world: World, indices: Int64[Tensor, " B"]) -> tuple[Look, Poses]:
    """The looks and poses of every layer of every image, back to front; layer _N_BEHIND is the labelled object."""
    b, n = len(indices), _N_LAYERS
    u = uniform(world.seed, indices, n * 12 + 2, purpose=2)
    scene_gain, scene_tilt = u[:, -2], u[:, -1]
    u = u[:, : n * 12].reshape(b, n, 12)
    others = looks.look(uniform(world.seed, indices, n * looks.N_DRAWS, purpose=3).reshape(b, n, looks.N_DRAWS))
    own = class_looks(world, indices.device)[indices % world.n_classes]
    labelled = looks.mixed(own, others[:, _N_BEHIND], {cue: getattr(world, cue) for cue in looks.CUES})
    for cue in looks.CUES:
        getattr(others, cue)[:, _N_BEHIND] = getattr(labelled, cue)

    target = torch.arange(n, device=indices.device) == _N_BEHIND
    size = _SIZE * 2 ** (world.scale * (u[..., 0] - 0.5)) * torch.where(target, 1.0, 0.8)
    reach = min(world.position, 1.0) * 0.6  # at the most a rim is cut off by the frame, as in photographs
    centre = (u[..., 1:3] * 2 - 1) * torch.where(target[:, None], reach, 0.95)
    # What stands in front stands beside the object's centre, so that it hides a part and never the whole.
    direction = 2 * math.pi * u[:, -1, 1]
    beside = torch.stack([torch.cos(direction), torch.sin(direction)], -1) * size[:, _N_BEHIND, None] * 1.15
    centre = torch.cat([centre[:, :-1], (centre[:, _N_BEHIND] + beside)[:, None]], 1)
    chance = torch.full((n,), world.distractors, device=u.device)
    chance[_N_BEHIND], chance[-1] = 2.0, world.occlusion
    light = 2 * math.pi * scene_tilt
    return others, Poses(
        centre=centre,
        size=size,
        angle=2 * math.pi * (u[..., 3] - 0.5) * min(world.rotation, 1.0),
        stretch=2 ** (world.stretch * (u[..., 4] - 0.5)),
        phase=2 * math.pi * u[..., 5:7],
        present=u[..., 7] < chance,
        noise_at=u[:, 0, 8:12],
        background=0.25 + 0.5 * torch.stack([u[:, 1, 8], u[:, 1, 9], u[:, 1, 10]], -1),
        contrast=world.background * (0.1 + 0.25 * u[:, 1, 11]),
        light=torch.stack([torch.cos(light), torch.sin(light)], -1) * world.lighting,
        gain=1 + world.lighting * 0.5 * (scene_gain - 0.5),
        dome=0.4 * world.lighting,
    )


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
    chunk, sheet = chunk or _chunk(s, indices.device), noise_sheet(world.seed, indices.device)
    images = torch.empty(len(indices), 3, s, s, dtype=torch.uint8, device=device)
    masks = torch.empty(len(indices), s, s, dtype=torch.bool, device=device)
    for start in range(0, len(indices), chunk):
        objects, poses = _instances(world, indices[start : start + chunk])
        picture, visible = paint(objects, poses, _N_BEHIND, sheet, s, with_parts=world.arrangement > 0)
        images[start : start + chunk] = picture
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
