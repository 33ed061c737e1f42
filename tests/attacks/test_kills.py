"""`kill -9` at random points: a training, a sweep and a notebook end with the same bits when they are run again.

In the bounded run a handful; tests/faults/test_kills.py kills trainings more often there.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks import outcomes
from attacks.outcomes import LONG, RIGHT

pytestmark = pytest.mark.slow
SECONDS = 120.0  # for one thing that is killed a few times and ends
BOUNDED = ("sweep", "sweep", "training", "sweep", "sweep", "training")
CONFIGS = [{"size": size} for size in range(3)]
CELLS = ("import time", "for i in range(5):\n    time.sleep(0.2)\n    print(i)", "print(sum(range(100)))")


def trained(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A run of a sweep: a training with a checkpoint after every step."""
    import torch
    from torch import nn

    from vitlab.data.world import World, stream
    from vitlab.training import checkpoint_plan
    from vitlab.training.loop import train
    from vitlab.training.recipe import Recipe

    checkpoint_plan.SECONDS_BETWEEN = checkpoint_plan.SECONDS_AT_END = 0.0
    torch.manual_seed(config["size"])
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 10))
    rows = train(model, stream(World(image_size=8), 4), Recipe(steps=12, batch_size=4, eval_every=4))
    weights = sum(p.double().abs().sum().item() for p in model.parameters())
    return [{"step": row["step"], "loss": row["train_loss"], "weights": weights} for row in rows]


def sweep(folder: Path) -> None:
    """Three runs, one after the other in this process."""
    from attacks.test_kills import trained as importable
    from vitlab.sweep import runner

    runner.run_all(importable, CONFIGS, folder, jobs=1)


def table(folder: Path) -> str:
    """What a sweep has stored, without the times."""
    from attacks.test_kills import trained as importable
    from vitlab.sweep import runner

    return runner.stored(importable, CONFIGS, folder).to_json(double_precision=15)


def training(folder: Path) -> None:
    """The training of tests/faults/killed.py."""
    import killed

    killed.one_training(folder)


def weights(folder: Path) -> str:
    """The hash of a training's final weights."""
    import killed

    return killed.final(folder)


def notebook(folder: Path) -> None:
    """Execute a notebook of three cells in a kernel."""
    import nbformat

    from vitlab.cli import execute

    made = nbformat.v4.new_notebook()
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.cells = [nbformat.v4.new_code_cell(text, id=f"cell-{k}") for k, text in enumerate(CELLS)]
    folder.mkdir(exist_ok=True)
    nbformat.write(made, folder / "01_killed.ipynb")
    execute.execute(folder / "01_killed.ipynb", {}, folder / "out" / "notebook.ipynb")


def page(folder: Path) -> str:
    """The executed notebook's cells and what they printed, in however many pieces it came."""
    import nbformat

    cells = nbformat.read(folder / "out" / "notebook.ipynb", as_version=4).cells
    printed = ["".join(each.get("text", "") for each in cell.outputs) for cell in cells]
    return str([(cell.source, cell.execution_count, text) for cell, text in zip(cells, printed, strict=True)])


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], str]]] = {
    "sweep": (sweep, table), "training": (training, weights), "notebook": (notebook, page),
}  # fmt: skip


def killed_and_ended(kind: str, pick: random.Random, expected: str, seconds: float) -> str:
    """Start it, kill it after a random time, up to four times, and let it end; says what it then is."""
    do, value = KINDS[kind]
    folder = Path.cwd() / kind
    kills = 0
    for _ in range(pick.choice((1, 2, 3, 4))):
        child = _started(do, folder)
        time.sleep(pick.uniform(0, 0.8 * seconds))
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            break  # it ended before its time
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
    _, status = os.waitpid(_started(do, folder), 0)
    if status != 0:
        return f"after {kills} kills it ended with status {status}: {_said(folder)}"
    paths = [*folder.rglob("*")]  # a lock's file, which is empty, may stay: who holds the lock, the kernel knows
    left = [path.name for path in paths if ".partial" in path.name or path.suffix == ".unfinished"]
    if left:
        return f"after {kills} kills {left[:3]} were left"
    if orphans := _orphans(folder):
        return f"after {kills} kills {orphans} went on"
    return RIGHT if value(folder) == expected else f"after {kills} kills it ended with another value"


def _orphans(folder: Path) -> list[str]:
    """The processes that work in a folder and do not end within ten seconds, such as a kernel without its client."""
    import psutil

    until, there = time.monotonic() + 10, [""]
    while there and time.monotonic() < until:
        there = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if Path(each.cwd()).is_relative_to(folder):
                    there.append(" ".join(each.cmdline())[:200])
        time.sleep(0.2 if there else 0)
    return there


def _started(do: Callable[[Path], None], folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    child = os.fork()
    if child == 0:
        status = 1
        with open(folder.with_suffix(".said"), "w") as said, contextlib.redirect_stdout(said):
            os.dup2(said.fileno(), 2)
            try:
                do(folder)
                status = 0
            except BaseException as error:  # noqa: BLE001
                print(f"{type(error).__name__}: {error}", flush=True)
            finally:
                os._exit(status)
    return child


def _said(folder: Path) -> str:
    return folder.with_suffix(".said").read_text()[-600:]


def lots() -> Iterator[outcomes.Lot]:
    """One killed thing a lot."""
    root, whole = Path(tempfile.mkdtemp(prefix="vitlab-attack-")), {}
    for kind in (*KINDS,) if LONG else sorted({*BOUNDED}):
        do, value = KINDS[kind]
        do(root / f"{kind}-first")  # what is imported on first use takes seconds, and children inherit it
        start = time.perf_counter()
        do(root / kind)
        whole[kind] = value(root / kind), time.perf_counter() - start
    for number, kind in enumerate(itertools.cycle(("sweep", "training", "sweep", "notebook")) if LONG else BOUNDED):
        what = functools.partial(killed_and_ended, kind, outcomes.draw(number), *whole[kind])
        yield number, [(f"a {kind}, killed", what)]


def test_what_is_killed_ends_with_the_same_bits(attack):
    attack("kills")


if __name__ == "__main__":
    import torch

    sys.path.append(str(Path(__file__).parent.parent / "faults"))
    torch.set_num_threads(1)
    outcomes.count("kills", lots(), SECONDS)
