"""Speed and the largest batch: every model at every size has its numbers, and running out of memory is survived."""

import sys

import pytest
import torch

from vitlab.experiments import largest_batch, speed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return speed.speed("smoke", jobs=1, folder=tmp_path_factory.mktemp("runs"))


def test_every_model_is_timed_at_every_size_in_every_round(table):
    config, found = speed.CONFIGS["smoke"], speed.speeds(table)
    counts = found.groupby(["model", "image_size"]).size()
    assert len(counts) == len(config.models) * len(config.image_sizes) and set(counts) == {config.n_rounds}
    assert (found["images_per_second"] > 0).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to a limit")
def test_a_smaller_image_leaves_room_for_a_larger_batch(table):
    found = speed.batches(table).pivot(index="model", columns="image_size", values="largest_batch")
    assert (found > 0).all(axis=None) and (found[16] > 2 * found[32]).all()


def test_on_a_gpu_every_search_is_a_run_of_its_own(monkeypatch):
    monkeypatch.setattr(speed, "device_type", lambda: "cpu")
    together = speed._planned_runs(speed.CONFIGS["gpu"], seed=0)
    monkeypatch.setattr(speed, "device_type", lambda: "cuda")
    apart = speed._planned_runs(speed.CONFIGS["gpu"], seed=0)
    searches = [(config["models"], config["sides"]) for config in apart if config["kind"] == "batch"]
    assert len(set(searches)) == len(searches) == 25
    assert [config for config in apart if config["kind"] == "speed"] == together[:-1]


@pytest.mark.parametrize("words", ["CUDA out of memory", "CUDNN_STATUS_ALLOC_FAILED"])
def test_running_out_of_memory_ends_the_search_and_nothing_else(monkeypatch, words):
    def forward(model, image_size, batch):
        if batch > 100:
            raise torch.OutOfMemoryError(words) if "CUDA" in words else RuntimeError(words)

    monkeypatch.setattr(largest_batch, "forward", forward)
    assert 100 / (1 + 1 / 16) <= largest_batch.on_gpu("Lab-Mu/8", 16) <= 100

    def broken(model, image_size, batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(largest_batch, "forward", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        largest_batch.on_gpu("Lab-Mu/8", 16)
