"""Checkpoints of trainings that are part of a run: a killed run goes on inside a training."""

import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
import sweeps
import torch
from torch import nn
from vitlab.sweep import runner

from vitlab.data.world import World, stream
from vitlab.training import checkpoint_plan, interrupts
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe


def swept(folder: Path, n_lives: int, jobs: int) -> tuple[pd.DataFrame, list[str]]:
    """The table of two runs of which the first is killed so often, and what its trainings reported."""
    folder.mkdir()
    (folder / "lives").write_bytes(b"x" * n_lives)
    (folder / "no lives").touch()
    configs = [
        {"log": str(folder / f"log of {lives}"), "lives": str(folder / lives)} for lives in ("lives", "no lives")
    ]
    table = runner.run_all(sweeps.trained, configs, folder / "runs", jobs=jobs)
    assert {path.suffix for path in (folder / "runs").iterdir()} == {".json"}, "checkpoints were left"
    return table.drop(columns=["log", "lives"]), (folder / "log of lives").read_text().split()


@pytest.fixture(autouse=True)
def usual_times():
    before = checkpoint_plan.SECONDS_BETWEEN, checkpoint_plan.SECONDS_AT_END
    yield
    checkpoint_plan.SECONDS_BETWEEN, checkpoint_plan.SECONDS_AT_END = before


@pytest.mark.slow
def test_a_killed_run_goes_on_inside_its_training(tmp_path):
    table, log = swept(tmp_path / "whole", 0, jobs=1)
    assert log == ["0:2", "0:4", "0:6", "1:2", "1:4", "1:6"]
    again, log = swept(tmp_path / "killed", 1, jobs=2)
    pd.testing.assert_frame_equal(again, table, check_exact=True)
    assert log == ["0:2", "0:4", "0:6", "1:2", "1:4", "1:4", "1:6"]  # the first training was not done again


def small() -> tuple[nn.Module, Recipe]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), Recipe(steps=4, batch_size=4, eval_every=1)


def test_short_trainings_leave_nothing(tmp_path):
    model, recipe = small()
    with checkpoint_plan.checkpoints_in(tmp_path):
        train(model, stream(World(image_size=8), 4), recipe)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_a_checkpoint_and_the_training_goes_on_from_it(tmp_path):
    (model, recipe), feed = small(), stream(World(image_size=8), 4)
    wanted = train(model, feed, recipe)
    model, _ = small()
    with checkpoint_plan.checkpoints_in(tmp_path), pytest.raises(interrupts.Stopped, match="run the same again"):
        train(model, feed, recipe, report=lambda row: row["step"] == 2 and os.kill(os.getpid(), signal.SIGINT))
    steps = []
    model, _ = small()
    with checkpoint_plan.checkpoints_in(tmp_path):
        rows = train(model, feed, recipe, report=lambda row: steps.append(row["step"]))
    assert steps == [3, 4]
    assert [row["train_loss"] for row in rows] == [row["train_loss"] for row in wanted]


def test_what_is_kept_by_the_clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    plan = checkpoint_plan.CheckpointPlan(Path("run/0"))
    found = []
    for seconds, last in ((59, False), (61, False), (119, False), (121, False), (130, True), (131, True)):
        now[0] = 100.0 + seconds
        found.append(plan.due(1, last))
    assert found == [False, True, False, True, False, True]


def test_what_a_run_left_that_was_killed_when_its_result_was_there_goes(tmp_path):
    log = str(tmp_path / "log")
    runner.run_all(sweeps.logged, [{"size": 1, "log": log}], tmp_path / "runs", jobs=1)
    (result,) = (tmp_path / "runs").glob("*.json")
    (result.with_suffix(".unfinished") / "0").mkdir(parents=True)
    runner.run_all(sweeps.logged, [{"size": 1, "log": log}], tmp_path / "runs", jobs=1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [result.name]


def test_checkpoints_that_nobody_will_go_on_with_are_removed(tmp_path):
    old, young = tmp_path / "a.unfinished" / "0", tmp_path / "b.unfinished" / "0"
    for folder in (old, young):
        folder.mkdir(parents=True)
    for path in (old, old.parent, young.parent):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    (tmp_path / "log").touch()
    runner.run_all(sweeps.logged, [{"size": 1, "log": str(tmp_path / "log")}], tmp_path, jobs=1)
    assert not old.parent.exists() and young.exists()
