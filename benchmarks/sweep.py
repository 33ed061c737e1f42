"""A sweep on two workers against the same sweep in this process: the time of equal runs that share a machine's cores.

Each run trains Lab-Ti/8 on images of the world, with one thread wherever it is. In process, two processes started for
the sweep, two dask workers that were there before, and two dask workers started for the sweep take turns; a ratio is
the median of the rounds' ratios to in process. Both cores must be free: on a loaded machine the ratio says nothing.

    python benchmarks/sweep.py                       # 8 runs of 100 steps on 500 images, 3 rounds
    python benchmarks/sweep.py --rounds 5 --workers 4 --runs 16
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import torch
from distributed import LocalCluster
from timing import interleaved

from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.sweep import identity, runner
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe
from vitlab.training.splits import world_splits


def train_once(config: dict) -> list[dict]:
    """One run: a model of its own seed, its accuracy on 500 images."""
    splits = world_splits(World(), config["n_train"], 0, 500)
    recipe = Recipe(config["steps"], batch_size=50, seed=config["seed"])
    model = zoo.create("Lab-Ti/8", seed=config["seed"])
    rows = train(model, batches(splits.train, 50, config["seed"]), recipe, validation=splits.test)
    return [{"accuracy": rows[-1]["val_accuracy"]}]


def local_cluster(n_workers: int) -> LocalCluster:
    """Worker processes of one thread."""
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=60)


def sweep(configs: list[dict], jobs: int, address: str = "") -> None:
    """All runs, none of them stored before."""
    os.environ["VITLAB_SCHEDULER"] = address
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        table = runner.run_all(work(), configs, folder, jobs)
    assert len(table) == len(configs)


def work() -> Callable[[dict], list[dict]]:
    """`train_once` as workers can import it: not of the script that was started, but of the module in its file."""
    import sweep as importable

    return importable.train_once


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # Workers of both kinds find this module here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    configs = [{"seed": seed, "steps": options.steps, "n_train": options.images} for seed in range(options.runs)]
    n_workers = options.workers

    def on_started_workers() -> None:
        with local_cluster(n_workers) as started:
            sweep(configs, 1, started.scheduler_address)

    with local_cluster(n_workers) as cluster:
        for address in ("", cluster.scheduler_address):  # imports, and the images in memory
            sweep(configs[:n_workers], 1, address)
        ways = {
            "in process": lambda: sweep(configs, 1),
            f"{n_workers} processes, start included": lambda: sweep(configs, n_workers),
            f"dask, {n_workers} workers there before": lambda: sweep(configs, 1, cluster.scheduler_address),
            f"dask, {n_workers} workers, start included": on_started_workers,
        }
        times = interleaved(list(ways.values()), options.rounds)
    print(
        f"{options.runs} runs of {options.steps} steps of Lab-Ti/8 on {options.images} images, one thread each; torch "
        f"{torch.__version__}, {identity.cpu_count()} cores, load {os.getloadavg()[1]:.1f}, median of "
        f"{options.rounds} rounds"
    )
    print(f"{'':34}{'seconds':>9}{'lowest':>9}{'highest':>9}{'× in process':>14}")
    for name, column in zip(ways, times, strict=True):
        ratio = statistics.median(a / b for a, b in zip(column, times[0], strict=True))
        print(f"{name:34}{statistics.median(column):9.1f}{min(column):9.1f}{max(column):9.1f}{ratio:14.2f}")


if __name__ == "__main__":
    main()
