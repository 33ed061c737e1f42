"""Accuracy of frozen features on other images: few-shot least squares and a linear probe (§4.1, Fig. 4)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from vitlab.data import datasets
from vitlab.data.loader import ImageSet, epoch_order
from vitlab.data.world import World, with_difficulty
from vitlab.evaluation.features import features
from vitlab.evaluation.fewshot import FewShot, few_shot
from vitlab.evaluation.probe import Probe, linear_probe
from vitlab.training.splits import subset, world_splits

OTHER_CLASSES = "world"  # the target with other classes than pre-training, in the world's style, painted at any size
_OTHER_SEED = 1  # of the world; pre-training is on seed 0


@functools.lru_cache(maxsize=8)
def target(data: str, split: str, image_size: int, count: int, difficulty: float = 1.0) -> ImageSet:
    """At most `count` images of a target set, the same ones at every size (pixels).

    `data` is any set that `datasets.load` knows, or "world": images in the world's style, of this `difficulty`, of
    classes that pre-training has not seen.

    >>> target("digits", "test", 32, count=100).images.shape
    torch.Size([100, 3, 32, 32])
    """
    if data == OTHER_CLASSES:
        other = with_difficulty(World(seed=_OTHER_SEED, image_size=image_size), difficulty)
        splits = world_splits(other, count, 0, count)
        return splits.train if split == "train" else splits.test
    images = datasets.load(data, split, image_size=image_size)
    return subset(images, epoch_order(len(images), seed=0, epoch=0)[:count].sort().values)


def evaluations(
    model: nn.Module,
    targets: Mapping[str, tuple[int, int]],
    image_size: int,
    seed: int,
    *,
    settings: FewShot = FewShot(),  # noqa: B008 - frozen
    probe: Probe = Probe(),  # noqa: B008 - frozen
    difficulty: float = 1.0,
) -> Iterator[dict[str, Any]]:
    """Rows of both evaluations on every target: few-shot accuracy for each draw of images, and the probe's.

    `targets`: name of a set → how many of its training and test images are used, at most. `seed` draws the images of
    the few-shot classifier and those on which the probe's penalty is chosen.

    >>> from vitlab.models import zoo
    >>> rows = evaluations(zoo.create("Lab-Ti/2", image_size=8), {"digits": (400, 100)}, 8, seed=0)
    >>> [row["kind"] for row in rows].count("few shot")
    12
    """
    for name, counts in targets.items():
        parts = zip(("train", "test"), counts, strict=True)
        train, test = (target(name, split, image_size, n, difficulty) for split, n in parts)
        sets = *features(model, train), *features(model, test)
        for row in few_shot(*sets, len(train.classes), settings, seed).itertuples():
            shot = {"shots": row.shots, "draw": row.seed, "accuracy": row.accuracy}
            yield {"kind": "few shot", "target": name} | shot
        yield {"kind": "probe", "target": name, "accuracy": linear_probe(*sets, probe, seed)["accuracy"]}
