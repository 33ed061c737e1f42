"""Several processes: the same weights as one, one writer, a death that ends all, and going on after it."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import two_processes
from safetensors.torch import load_file
from weights import apart

HERE = Path(__file__).parent


def torchrun(*arguments, timeout=240):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The weights and the log of one process, two parts, two processes with DDP and two with FSDP."""
    root = tmp_path_factory.mktemp("distributed")
    two_processes.one_training(root / "one")
    two_processes.one_training(root / "parts", recipe=dataclasses.replace(two_processes.RECIPE, accumulate=2))
    done = torchrun(HERE / "two_processes.py", root)
    assert done.returncode == 0, done.stderr[-3000:]
    return root


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("other", ["parts", "ddp", "fsdp"])
def test_twenty_steps_are_the_same_however_the_batch_is_shared_out(trained, other):
    one, two = (load_file(trained / name / "model.safetensors") for name in ("one", other))
    assert apart(one, two) < 1e-5
    for a, b in zip(log(trained / "one"), log(trained / other), strict=True):
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-5)
        assert b["val_accuracy"] == a["val_accuracy"]  # all 22 images, by however many processes
        assert b["val_loss"] == pytest.approx(a["val_loss"], rel=1e-5)
        assert b["samples"] == a["samples"]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_what_several_processes_saved_another_number_goes_on_from(trained, tmp_path, how):
    """Two processes stopped after step 14; one goes on, and ends as if one had done it all."""
    shutil.copytree(trained / how, tmp_path / how)
    shutil.rmtree(tmp_path / how / "checkpoints" / "step_00000020")
    if how == "fsdp":  # the optimiser's state is by name there, by number here
        with pytest.raises(ValueError, match="was written with parallel='fsdp'"):
            two_processes.one_training(tmp_path / how)
        return
    two_processes.one_training(tmp_path / how)
    one, gone_on = (load_file(folder / "model.safetensors") for folder in (trained / "one", tmp_path / how))
    assert apart(one, gone_on) < 1e-5


def test_fsdp_goes_on_where_they_stopped(trained, tmp_path):
    shutil.copytree(trained / "fsdp", tmp_path / "fsdp")
    shutil.rmtree(tmp_path / "fsdp" / "checkpoints" / "step_00000020")
    shutil.copytree(trained / "ddp", tmp_path / "ddp")  # finished: nothing is done
    done = torchrun(HERE / "two_processes.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    whole, gone_on = (load_file(folder / "fsdp" / "model.safetensors") for folder in (trained, tmp_path))
    assert apart(whole, gone_on) < 1e-5


def test_a_process_that_dies_ends_the_others_with_its_error(tmp_path):
    start = time.monotonic()
    done = torchrun(HERE / "two_processes.py", tmp_path, "die", timeout=120)
    assert done.returncode != 0 and "this process has had enough" in done.stderr
    assert time.monotonic() - start < 100
    assert not (tmp_path / "died" / "model.safetensors").exists()
