"""Throughput of the world's renderer: images per second at several sizes, median of several runs.

usage: python benchmarks/world.py
"""

from __future__ import annotations

import statistics
import time

import torch

from vitlab.data.world import World, scene

RUNS = 7


def images_per_second(image_size: int, n_images: int) -> float:
    """Median over RUNS of rendering `n_images`, after a warm-up that makes the noise sheet."""
    world = World(image_size=image_size)
    scene(world, torch.arange(64))
    rates = []
    for run in range(RUNS):
        start = time.perf_counter()
        scene(world, torch.arange(run * n_images, (run + 1) * n_images))
        rates.append(n_images / (time.perf_counter() - start))
    return statistics.median(rates)


def main() -> None:
    """Print the table."""
    print(f"{torch.get_num_threads()} threads, median of {RUNS} runs")
    print("size   images/s")
    for image_size, n_images in ((32, 4096), (64, 1024), (112, 256), (224, 64)):
        print(f"{image_size:4d} {images_per_second(image_size, n_images):10.0f}")


if __name__ == "__main__":
    main()
