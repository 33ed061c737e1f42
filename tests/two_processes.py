"""Trains the same small ViT in several processes, by labels and masked, and once more: then the second one raises.

usage: torchrun --nproc-per-node 2 two_processes.py FOLDER
"""

import sys
from pathlib import Path

import torch

from vitlab.data.augment import Augmentation
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.training import distributed, masked
from vitlab.training.loop import train
from vitlab.training.masked import Target
from vitlab.training.recipe import Recipe

RECIPE = Recipe(steps=20, batch_size=16, learning_rate=1e-3, warmup_steps=2, eval_every=10, patience=5)
NAME = "Lab-Ti/2"


def one_training(folder: Path, recipe: Recipe = RECIPE, die: bool = False):
    splits = world_splits(World(image_size=8), 64, 22, 4)  # 22: no multiple of the processes times a batch
    feed = batches(splits.train, recipe.batch_size, 5, augmentation=Augmentation(crop="pad", pad=1, mixup=0.4))
    model = zoo.create(NAME, image_size=8, seed=3)

    def failing(step, *part):
        if die and step == 3 and distributed.group()[0] == 1:
            raise RuntimeError("this process has had enough")
        return feed(step, *part)

    return train(model, failing, recipe, validation=splits.validation, folder=folder, name=NAME, save_every=7)


def one_masked(folder: Path):
    plain = batches(world_splits(World(image_size=8), 64, 22, 4).train, 16, 5)
    model, feed, objective = masked.prepare(zoo.create(NAME, image_size=8), plain, 16, Target.MEAN_COLOUR, 0.5, seed=1)
    train(model, feed, Recipe(steps=5, batch_size=16, accumulate=2), folder=folder, objective=objective, name=NAME)


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    with distributed.join():
        one_training(root / "ddp")
        one_masked(root / "masked ddp")
        one_training(root / "died", die=True)
