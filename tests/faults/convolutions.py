"""Trains convolutional models for eight steps each, for `test_convolutions`: threads, then MODEL:BATCH for each."""

import sys

import torch

from vitlab.data.world import World, stream
from vitlab.models import zoo
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

if __name__ == "__main__":
    threads, *trainings = sys.argv[1:]
    torch.set_num_threads(int(threads))
    for training in trainings:
        name, batch_size = training.split(":")
        batches = stream(World(), int(batch_size))
        train(zoo.create(name), batches, Recipe(steps=8, batch_size=int(batch_size)))
        print(training, flush=True)
