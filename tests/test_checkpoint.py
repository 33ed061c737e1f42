"""Checkpoints: whole or not at all, the last few kept, damage noticed and said, nothing unpickled."""

import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from vitlab.data.world import World, stream
from vitlab.models import zoo
from vitlab.training import checkpoint
from vitlab.training.checkpoint import REST, WEIGHTS
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe


def saved(folder, step, value=1.0):
    model = nn.Linear(3, 2)
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    rest = {"step": step, "rows": [{"loss": 0.5}], "recipe": {"betas": (0.9, 0.999)}, "average": None}
    return checkpoint.save(folder, model, rest)


def test_what_is_saved_comes_back(tmp_path):
    assert checkpoint.newest(tmp_path) is None and checkpoint.newest(tmp_path / "nowhere") is None
    saved(tmp_path, 7)
    saved(tmp_path, 7, value=2.5)  # in its place
    found = checkpoint.newest(tmp_path)
    wanted = {"step": 7, "rows": [{"loss": 0.5}], "recipe": {"betas": (0.9, 0.999)}, "average": None}
    assert found.rest == wanted | {"format": checkpoint.FORMAT}
    assert found.weights.keys() == {"weight", "bias"} and found.weights["weight"].unique().tolist() == [2.5]
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000007"]


def test_the_newest_is_by_number_and_the_last_two_are_kept(tmp_path):
    for step in (90, 1000, 200_000, 3_000_000):
        saved(tmp_path, step)
    assert checkpoint.newest(tmp_path).rest["step"] == 3_000_000
    assert [path.name[5:].lstrip("0") for path in sorted(tmp_path.iterdir())] == ["200000", "3000000"]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("file", [WEIGHTS, REST])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_damaged_checkpoint_is_passed_over_aloud(tmp_path, capsys, file, damage):
    saved(tmp_path, 4, value=4.0)
    damage(saved(tmp_path, 8, value=8.0) / file)
    found = checkpoint.newest(tmp_path)
    assert found.rest["step"] == 4 and found.weights["bias"].tolist() == [4.0, 4.0]
    said = capsys.readouterr().err
    assert "step_00000008" in said and "taking the one before it" in said


def test_when_all_are_damaged_nothing_starts_over_in_silence(tmp_path):
    truncate(saved(tmp_path, 8) / WEIGHTS)
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole .*delete the folder"):
        checkpoint.newest(tmp_path)


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was_run"), "w"))

    path = saved(tmp_path, 3)
    torch.save({"step": Evil()}, path / REST)
    with pytest.raises(ValueError, match=r"resume\.pt holds more than tensors and plain values"):
        checkpoint.read(path)
    assert not (tmp_path / "was_run").exists()


def trained(folder, model="Lab-Mu/4"):
    world, recipe = World(image_size=8), Recipe(steps=2, batch_size=4)
    return train(
        zoo.create(model, image_size=8), stream(world, 4, "cpu"), recipe, folder=folder, name=model, save_every=1
    )


def test_a_checkpoint_of_another_model_or_version_is_not_resumed_from(tmp_path, monkeypatch):
    trained(tmp_path)
    with pytest.raises(ValueError, match=r"step_00000002 is of another training: structure of the model was"):
        trained(tmp_path, "Lab-Ti/4")
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    with pytest.raises(ValueError, match=r"step_0000000\d was written by another version .*delete the folder"):
        trained(tmp_path)


def test_a_full_disk_is_named_and_leaves_the_last_checkpoint_whole(tmp_path):
    saved(tmp_path, 4, value=4.0)
    model = nn.Linear(3, 2)
    rest = {"step": 8, "optimizer": [torch.zeros(5_000) for _ in range(30)]}  # 600 kB
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))  # for this process, the disk is full after that
    try:
        with pytest.raises(OSError, match="disk full while writing .*step_00000008.*free space and run again"):
            checkpoint.save(tmp_path, model, rest)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000004"]
    assert checkpoint.newest(tmp_path).weights["bias"].tolist() == [4.0, 4.0]
