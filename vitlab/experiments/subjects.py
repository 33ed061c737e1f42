"""The inputs of the analyses: images for a model, and hashes of images and weights (§4.5)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vitlab import paths
from vitlab.data import datasets, photographs
from vitlab.data.loader import ImageSet
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.models.weights import FOLDER_PREFIX
from vitlab.models.zoo import CROP, Pretrained

CROPS = "crops"  # of the photographs that come with the dependencies
HYBRID = "lab-hybrid"


def image_source(pretrained: Pretrained) -> str:
    """What "auto" means: images like those that a lab model was trained on, photographs for any other model.

    They are "crops", many small ones, for a lab model that was trained on photographs, and else the "world".

    >>> image_source(Pretrained(torch.nn.Identity(), "Lab-S/8", "nowhere", (64, 64)))
    'world'
    """
    if "Lab-" not in pretrained.name:
        return "photographs"
    trainings = pretrained.about.get("trainings", [{"data": "world"}])
    return "world" if trainings[-1]["data"].startswith("world") else CROPS


def twin(pretrained: Pretrained) -> str:
    """Name of the bundled hybrid, where it is this ViT with a ResNet in front, trained alike; "" where it is not.

    That is read from what the weights say of themselves: the same data and objectives in the same order, the same size
    of the transformer and of the images.
    """
    if not pretrained.about.get("trainings"):
        return ""
    hybrid = zoo.load(HYBRID)
    alike = (f"R+{pretrained.name}", pretrained.image_size, _history(pretrained))
    return HYBRID if alike == (hybrid.name, hybrid.image_size, _history(hybrid)) else ""


def _history(pretrained: Pretrained) -> list[tuple[str, str]]:
    return [(training["data"], training["objective"]) for training in pretrained.about.get("trainings", ())]


def picture_of(pretrained: Pretrained, images: str, seed: int = 0) -> Tensor:
    """One picture [3 H W] of bytes, to look at: whole, where the `images` of `load_pictures` are crops.

    >>> picture_of(Pretrained(torch.nn.Identity(), "Lab-M/8", "nowhere", (96, 96)), "crops").shape
    torch.Size([3, 427, 640])
    """
    return load_pictures(pretrained, "photographs" if images == CROPS else images, 1, seed)[0]


def views(pretrained: Pretrained, pictures: Sequence[Tensor], side: int = 160) -> Float[Tensor, "B H W 3"]:
    """What the model sees of pictures [3 H W] of bytes, as values 0…1, to be looked at.

    They are cut as `Pretrained.prepare` cuts them, but to a whole multiple of the model's size, which comes near to
    `side` pixels, as far as the pictures have them.

    >>> small = Pretrained(torch.nn.Identity(), "small", "nowhere", (32, 32))
    >>> views(small, [torch.zeros(3, 150, 200, dtype=torch.uint8)]).shape
    torch.Size([1, 128, 128, 3])
    """
    height, width = pretrained.image_size
    room = min(min(picture.shape[1] / height, picture.shape[2] / width) for picture in pictures)
    times = max(1, min(round(side / max(height, width)), int(room / CROP)))
    larger = dataclasses.replace(
        pretrained, image_size=(times * height, times * width), mean=(0.0,) * 3, std=(1.0,) * 3
    )
    seen = torch.cat([larger.prepare(picture[None]) for picture in pictures])
    return seen.clamp(0, 1).permute(0, 2, 3, 1)


def load_pictures(pretrained: Pretrained, images: str, count: int, seed: int) -> list[Tensor]:
    """At most `count` pictures [3 H W] of bytes, for `pretrained.prepare`.

    From the world, painted at the model's size; "crops" of that size from three photographs' test parts; the first of
    `datasets.photographs`; or a random choice, by `seed`, from a data set's test images.
    """
    if images == "world":
        return list(world_at(pretrained.image_size, count, seed).images)
    if images == CROPS:
        return list(photographs.image_set(count, max(pretrained.image_size), seed=seed).images)
    if images == "photographs":
        return [picture for _, picture in datasets.photographs(limit=count)]
    available = datasets.load(images, "test", image_size=max(pretrained.image_size)).images
    order = torch.randperm(len(available), generator=torch.Generator().manual_seed(seed))
    return list(available[order[:count]])


def world_at(size: tuple[int, int], count: int, seed: int = 0) -> ImageSet:
    """Held-out images of the world with their masks, (height, width) pixels; another seed gives other images.

    The world is square: for other proportions the middle of a larger square is kept.

    >>> world_at((32, 48), 3).masks.shape
    torch.Size([3, 32, 48])
    """
    side = max(size)
    square = image_set(World(image_size=side), count, HELD_OUT + seed * count)
    top, left = (side - size[0]) // 2, (side - size[1]) // 2
    kept = (..., slice(top, top + size[0]), slice(left, left + size[1]))
    masks = None if square.masks is None else square.masks[kept]
    return ImageSet(square.images[kept], square.labels, square.classes, masks)


def weights_hash(weights: str) -> str | None:
    """Hash of the file that `weights` names, because its content may change; None for a name of a hub.

    >>> weights_hash("vit_tiny_patch16_224") is None
    True
    """
    bundled = zoo.BUNDLED.get(weights.lower())
    path = paths.bundled_dir() / bundled if bundled else Path(weights.removeprefix(FOLDER_PREFIX)).expanduser()
    if not path.exists():  # NAME@FILE
        path = Path(weights.partition("@")[2]).expanduser()
    if path.is_dir():  # of `save_for_hf`
        path = path / "model.safetensors"
    return paths.file_hash(path) if path.is_file() else None


def pictures_hash(pictures: Sequence[Tensor]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of all pixels.

    >>> pictures_hash([torch.zeros(3, 2, 2, dtype=torch.uint8)])
    '15ec7bf0b50732b4'
    """
    digest = hashlib.sha256()
    for picture in pictures:
        digest.update(picture.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
