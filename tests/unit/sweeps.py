"""Runs that the tests of the runner put through it: worker processes import them from here by name."""

import errno
import os
import signal
import time
from pathlib import Path


def logged(config: dict) -> list[dict]:
    """Leaves a line in the file `log`, takes `seconds`, and returns two rows."""
    with open(config["log"], "a") as log:
        log.write(f"{config['size']}\n")
    time.sleep(config.get("seconds", 0))
    return [{"step": step, "accuracy": config["size"] / (step + 1)} for step in range(2)]


def failing(config: dict) -> list[dict]:
    """Fails for one size out of several."""
    if config["size"] == config["bad"]:
        raise ValueError("loss became NaN at step 3: lower the learning rate")
    return logged(config)


def dying(config: dict) -> list[dict]:
    """Is killed, as by the system when memory runs out, as often as the file `lives` has bytes."""
    lives = Path(config["lives"])
    if config["size"] == config["bad"] and lives.stat().st_size:
        lives.write_bytes(lives.read_bytes()[1:])
        os.kill(os.getpid(), signal.SIGKILL)
    return logged(config)


def odd(config: dict) -> list[dict]:
    """Returns what is no result."""
    results = {
        "nan": [{"accuracy": float("nan")}],
        "empty": [],
        "bare": [{"accuracy": 0.5}, {}],
        "list": [{"accuracy": [1, 2]}],
        "number": [{3: 0.5}],
        "contradiction": [{"kind": "other"}],
    }
    return results[config["kind"]]


def disk_full_at_the_second_file(monkeypatch) -> None:
    """Of the files that this process writes from now on, the second finds no space, as a full disk says it."""
    fsync, calls = os.fsync, []

    def full_at_the_second(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full_at_the_second)


def trained(config: dict) -> list[dict]:
    """Two trainings with a checkpoint after every step, each reported in the file `log`; killed in the second one."""
    import torch
    from torch import nn

    from vitlab.data.world import World, stream
    from vitlab.training import checkpoint_plan
    from vitlab.training.loop import train
    from vitlab.training.recipe import Recipe

    checkpoint_plan.SECONDS_BETWEEN = checkpoint_plan.SECONDS_AT_END = 0.0
    lives, found = Path(config["lives"]), []
    for number in range(2):

        def report(row: dict, number: int = number) -> None:
            with open(config["log"], "a") as log:
                log.write(f"{number}:{row['step']} ")
            if number == 1 and row["step"] == 4 and lives.stat().st_size:
                lives.write_bytes(lives.read_bytes()[1:])
                os.kill(os.getpid(), signal.SIGKILL)

        torch.manual_seed(number)
        model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 10))
        feed = stream(World(image_size=8), 4)
        rows = train(model, feed, Recipe(steps=6, batch_size=4, eval_every=2), report=report)
        weights = sum(p.double().abs().sum().item() for p in model.parameters())
        found += [{"training": number, "step": r["step"], "loss": r["train_loss"], "weights": weights} for r in rows]
    return found
