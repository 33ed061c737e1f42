"""What takes processes of its own: torchrun, `kill -9` at random moments, many threads."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import two_processes
from safetensors.torch import load_file
from weights import apart

HERE = Path(__file__).parent


# ---- several processes: the same weights as one, one writer, a death that ends all ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Weights and log of one process, of two parts one after the other, and of two processes, of which one dies."""
    root = tmp_path_factory.mktemp("distributed")
    two_processes.one_training(root / "one")
    two_processes.one_training(root / "parts", recipe=dataclasses.replace(two_processes.RECIPE, accumulate=2))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", HERE / "two_processes.py", root]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=400)
    assert done.returncode != 0 and "this process has had enough" in done.stderr, done.stderr[-3000:]
    return root


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("other", ["parts", "ddp"])
def test_twenty_steps_are_the_same_however_the_batch_is_shared_out(trained, other):
    one, two = (load_file(trained / name / "model.safetensors") for name in ("one", other))
    assert apart(one, two) < 1e-5
    for a, b in zip(log(trained / "one"), log(trained / other), strict=True):
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-5)
        assert b["val_accuracy"] == a["val_accuracy"]  # all 22 images, by however many processes
        assert b["val_loss"] == pytest.approx(a["val_loss"], rel=1e-5)
        assert b["samples"] == a["samples"]


def test_masked_prediction_is_the_same_in_two_processes(trained):
    two_processes.one_masked(trained / "masked one")
    one, two = (load_file(trained / name / "model.safetensors") for name in ("masked one", "masked ddp"))
    assert apart(one, two) < 1e-5


def test_one_process_resumes_what_two_saved(trained, tmp_path):
    """Two processes stopped after step 14; one resumes, and ends as if one had done it all."""
    shutil.copytree(trained / "ddp", tmp_path / "ddp")
    shutil.rmtree(tmp_path / "ddp" / "checkpoints" / "step_00000020")
    two_processes.one_training(tmp_path / "ddp")
    one, resumed = (load_file(folder / "model.safetensors") for folder in (trained / "one", tmp_path / "ddp"))
    assert apart(one, resumed) < 1e-5


def test_a_process_that_dies_ends_the_others_with_its_error(trained):  # which has a time limit
    assert (trained / "masked ddp" / "model.safetensors").exists()
    assert not (trained / "died" / "model.safetensors").exists()


# ---- kill -9 ----


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children, and this system cannot fork")
def test_trainings_killed_at_random_points_end_with_the_same_bits(tmp_path):
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), "24", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] >= 20 and len(found["ends"]) >= 6
    assert len(set(found["ends"])) == 1, found
    assert len(set(found["steps"])) > 5, f"the kills did not come at different points: {found['steps']}"
    assert not list(tmp_path.glob("*/checkpoints/.partial*")), "what a killed writer left was not removed"


# ---- threads: a strided 1 × 1 convolution corrupted memory where they did not divide the batch ----

CONVOLUTIONS = """
import torch
from vitlab.data.world import World, stream
from vitlab.models import zoo
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

names = ("R+Lab-Ti/8", "R+Lab-Ti/16", "R+Lab-Mu/8", "BiT-Lab-Mu/8")
for threads, name, size in [*((3, name, size) for name in names for size in (25, 64)), (6, "R+Lab-Ti/16", 64)]:
    torch.set_num_threads(threads)
    train(zoo.create(name), stream(World(), size), Recipe(steps=8, batch_size=size))
"""


@pytest.mark.slow
def test_threads_that_do_not_divide_the_batch():
    done = subprocess.run([sys.executable, "-c", CONVOLUTIONS], capture_output=True, text=True)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"  # negative: killed by a signal
