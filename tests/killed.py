"""Trains in child processes that are killed at random points, and says with what weights each training ended.

usage: python killed.py FOLDER N_KILLS SEED

Prints one line of JSON: the number of kills, the step each came at, and the SHA-256 of every training's final weights,
the uninterrupted one first.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from vitlab.data.augment import Augmentation
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

RECIPE = Recipe(steps=40, batch_size=16, learning_rate=1e-2, warmup_steps=4, eval_every=8, patience=4, accumulate=2)
SPLITS = world_splits(World(image_size=8), 50, 20, 4)


def one_training(folder: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 10))
    feed = batches(SPLITS.train, 16, seed=1, augmentation=Augmentation(crop="pad", pad=1, flip=True, mixup=0.5))
    train(model, feed, RECIPE, validation=SPLITS.validation, folder=folder, save_every=3)


def child(folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            one_training(folder)
        finally:
            os._exit(0)
    return pid


def steps_done(folder: Path) -> int:
    return max((int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*")), default=0)


def ended_before(pid: int, folder: Path, step: int, seconds: float) -> bool:
    """Waits for the checkpoint of a step and then some seconds; True where the child ended before."""
    while steps_done(folder) < step:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.002)
    time.sleep(seconds)
    return os.waitpid(pid, os.WNOHANG) != (0, 0)


def final(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def main(root: Path, n_kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    one_training(root / "imports")  # what is imported on first use takes seconds, and children inherit it
    os.waitpid(child(root / "whole"), 0)
    ends, at = [final(root / "whole")], []
    while len(at) < n_kills:
        folder = root / f"killed_{len(ends)}"
        for _ in range(4):
            pid = child(folder)
            if ended_before(pid, folder, steps_done(folder) + draw.randrange(16), draw.uniform(0, 0.02)):
                break  # no kill
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            at.append(steps_done(folder))
        else:
            os.waitpid(child(folder), 0)
        ends.append(final(folder))
    print(json.dumps({"kills": len(at), "steps": at, "ends": ends}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
