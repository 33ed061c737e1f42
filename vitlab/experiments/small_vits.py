"""What the studies of masked prediction share: a small ViT by its sizes, and the photographs it sees (§4.6)."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from vitlab.data import datasets
from vitlab.data.augment import Augmentation
from vitlab.data.loader import ImageSet
from vitlab.models.vit import ViT, ViTConfig

CROPS = "photographs"  # as data: endless crops of the three photographs that come with the dependencies
# Of real photographs: crops of at least a third of the picture, mirrored half of the time.
CROPPED = Augmentation(crop="inception", area=(0.35, 1.0), flip=True)
_MLP = 4  # times as wide as the tokens is the hidden layer of the MLPs


@dataclass(frozen=True)
class Body:
    """A ViT's size and its images; the hidden layer of its MLPs has four times its width."""

    image_size: int  # pixels
    patch_size: int  # pixels
    dim: int
    depth: int
    n_heads: int


def vit_of(config: dict[str, Any], n_classes: int) -> ViT:
    """The ViT of a run, whose config has the sizes of a `Body` and the seed of the fresh weights.

    >>> body = Body(image_size=16, patch_size=4, dim=32, depth=2, n_heads=2)
    >>> vit_of(dataclasses.asdict(body) | {"seed": 0}, n_classes=3).head.out_features
    3
    """
    body = {each.name: config[each.name] for each in dataclasses.fields(Body)}
    return ViT(ViTConfig(**body, mlp_dim=_MLP * config["dim"], n_classes=n_classes), config["seed"])


def as_sized(config: dict[str, Any]) -> dict[str, Any]:
    """The ViT of a run (see `vit_of`) as a size of the zoo with other options, and its images' side and precision.

    >>> body = Body(image_size=16, patch_size=4, dim=32, depth=2, n_heads=2)
    >>> as_sized(dataclasses.asdict(body) | {"precision": "fp32"})["mlp_dim"]
    128
    """
    named = {name: config[name] for name in ("image_size", "dim", "depth", "n_heads", "precision")}
    return {"model": f"Lab-Ti/{config['patch_size']}", "mlp_dim": _MLP * config["dim"]} | named


def kept_px(data: str, image_size: int) -> int | None:
    """Side in pixels at which a set is held in memory for crops of `image_size`; None: as it comes.

    >>> kept_px("imagenette", 64), kept_px("imagenette", 224), kept_px("cifar10", 64)
    (90, 128, None)
    """
    return min(datasets.SIDES[data], round(1.4 * image_size)) if data in datasets.SIDES else None


@functools.lru_cache(maxsize=3)
def whole(data: str, split: str, image_size: int | None = None) -> ImageSet:
    """A set, kept in memory, for a worker process trains many models on it."""
    return datasets.load(data, split, image_size=image_size)
