"""A plan counts what is known beforehand exactly, and guesses the time by a short try."""

import dataclasses

import pandas as pd
import pytest
import torch
from distributed import LocalCluster

from vitlab import experiments
from vitlab.cli import main as cli
from vitlab.cli import plan
from vitlab.experiments import data_scaling, transfer
from vitlab.models import zoo
from vitlab.sweep import identity, runner

SMALL = {"model": "Lab-Ti/8", "image_size": 16, "batch_size": 8, "steps": 5, "n_train": 100}


def planned_runs(preset: str, seed: int = 0) -> list[dict]:
    """Three runs of two models, one of which stops early."""
    other = SMALL | {"model": "BiT-Lab-Ti/8", "n_validation": 7, "n_test": 9, "eval_every": 2, "patience": 1}
    return [SMALL | {"seed": seed}, SMALL | {"seed": seed, "n_train": 20}, other | {"seed": seed}]


def run_one(config: dict) -> list[dict]:
    return [{"accuracy": 0.5}]


def study(preset: str = "quick", seed: int = 0) -> pd.DataFrame:
    """An experiment that can be planned."""
    return pd.DataFrame()


@pytest.fixture
def planned(monkeypatch, figures):
    """`study` as an experiment of the collection."""
    monkeypatch.setattr(identity, "_SEEN", {})
    monkeypatch.setattr(experiments, "find", lambda name: study)
    return figures


def test_a_group_is_counted_by_hand():
    probed = {"Lab-Ti/8 16 8 5": {"step": 2.0, "image": 0.5}, "BiT-Lab-Ti/8 16 8 5": {"step": 1.0, "image": 0.25}}
    table = plan.groups(planned_runs("quick"), [True, False, False], probed)
    assert table["model"].tolist() == ["Lab-Ti/8", "BiT-Lab-Ti/8"]
    assert table["runs"].tolist() == [2, 1] and table["stored"].tolist() == [1, 0]
    # 4 patches of 192 values and a class token, width 64: embedding; four blocks of q, k, v, projection (4 D²), two
    # products with 5 tokens (2 · 5 D) and an MLP of 4 D (8 D²); ten classes. A multiply-add is two, training three.
    tokens, dim = 5, 64
    multiply_adds = 4 * 192 * dim + 4 * tokens * (12 * dim**2 + 2 * tokens * dim) + 10 * dim
    assert table["flops"][0] == 3 * 2 * multiply_adds * 5 * 8
    assert table["seconds"].tolist() == [2.0 * 5, 1.0 * 5 + 0.25 * ((5 // 2 + 1) * 7 + 2 * 9)]
    # no more images than the 40 that are seen, three colours and a mask of 16 × 16
    assert table["image_bytes"].tolist() == [40 * 4 * 256, (40 + 7 + 9) * 4 * 256]
    n_parameters = sum(p.numel() for p in plan._model(SMALL).parameters())
    assert table["model_bytes"][0] > 4 * 4 * n_parameters  # weights, gradients, two moments, and activations


def test_a_probe_comes_near_to_the_time_of_a_whole_batch(monkeypatch):
    monkeypatch.setattr(plan, "_LONG", 0.0)  # one image is long enough: everything else is reckoned
    taken = {1: 0.5, 2: 0.6}
    monkeypatch.setattr(plan, "_seconds_a_step", lambda model, config, n: taken[n])
    assert plan.probe(SMALL)["step"] == pytest.approx(0.5 * 8)
    monkeypatch.setattr(plan, "_LONG", 0.55)
    assert plan.probe(SMALL)["step"] == pytest.approx(0.5 + 7 * 0.1)
    assert plan.probe(SMALL)["image"] == pytest.approx(1.2 / 8 / 3)
    monkeypatch.undo()
    found, config = plan.probe(SMALL | {"batch_size": 64}), SMALL | {"batch_size": 64}
    whole = plan._seconds_a_step(plan._model(config), config, 64)
    assert 0.2 < found["step"] / whole < 5


def test_the_plan_says_what_is_stored_what_is_to_do_and_how_long(planned, monkeypatch, capsys):
    monkeypatch.setattr(plan, "probe", lambda config: {"step": 720.0, "image": 0.0})  # an hour a run
    assert cli.main(["experiment", "study", "--preset", "smoke", "--plan", "--jobs", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"study at smoke: 3 runs, 0 of them stored; {identity.device_type()}, torch 2.")
    assert "3 runs, at most" in text and "and 1.5 hours, 2 at once" in text
    assert not planned.exists()
    ran = runner.run_all(run_one, planned_runs("smoke")[:2], runner.run_folder("study", "smoke"), jobs=1)
    assert plan.planned("study", "smoke").seconds_taken == pytest.approx(ran.attrs["wall_s"], abs=1e-3)
    text = plan.in_words(plan.planned("study", "smoke"))
    assert "2 of them stored" in text and "to do: 1 runs, at most" in text and "and 1 hours" in text
    flops = 3 * zoo.forward_flops(plan._model(planned_runs("")[2]), torch.zeros(1, 3, 16, 16)) * 5 * 8
    assert f"at most {flops:.3g} training FLOPs" in text


@pytest.mark.slow
def test_a_plan_for_a_cluster_is_probed_and_counted_there(planned, monkeypatch):
    monkeypatch.setattr(plan, "probe", lambda config: {"step": 720.0, "image": 0.0})
    options = {"processes": False, "dashboard_address": ":0", "silence_logs": 60}
    with LocalCluster(n_workers=3, threads_per_worker=1, **options) as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        text = plan.in_words(plan.planned("study", "smoke"))
    assert found.scheduler_address in text and "and 1 hours, 3 at once" in text


@pytest.mark.slow
def test_a_probe_that_fails_on_a_cluster_is_named(planned, monkeypatch):
    monkeypatch.setattr(plan, "probe", lambda config: 1 / 0)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as found:
        monkeypatch.setenv("VITLAB_SCHEDULER", found.scheduler_address)
        with pytest.raises(RuntimeError, match=r"the probe of Lab-Ti/8 16 8 5 failed: ZeroDivisionError"):
            plan.in_words(plan.planned("study", "smoke"))


def test_too_little_memory_is_said(monkeypatch):
    probed = {"Lab-Ti/8 16 8 5": {"step": 2.0, "image": 0.5}}
    table = plan.groups([SMALL], [False], probed)
    made = plan.Plan("study", "smoke", 1, 0, 0.0, table, 2, False, "cpu", free_bytes=1000)
    assert "TOO MUCH, take fewer jobs" in plan.in_words(made)
    assert "TOO MUCH" not in plan.in_words(dataclasses.replace(made, free_bytes=10**12))


def test_hours_of_all_runs_and_of_those_to_do_by_hand():
    """Two of three runs of an hour each are to do, two at once: an hour; all three take an hour and a half."""
    probed = {"Lab-Ti/8 16 8 5": {"step": 720.0, "image": 0.0}}
    table = plan.groups([SMALL] * 3, [True, False, False], probed)
    made = plan.Plan("study", "smoke", 3, 1, 9000.0, table, 2, False, "cpu", None)
    assert (made.hours_to_do, made.hours_in_all, made.hours_taken) == pytest.approx((1.0, 1.5, 1.25))
    alone = dataclasses.replace(made, table=plan.groups([SMALL], [False], probed))
    assert alone.hours_to_do == pytest.approx(1.0)  # one run is not cut in two


def test_experiments_that_list_no_runs_name_those_that_do(capsys):
    assert "data_scaling" in plan.plannable()
    assert cli.main(["experiment", "position_similarity", "--plan"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("vitlab: position_similarity cannot be planned") and "data_scaling" in said


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "gpu"])
def test_the_data_scaling_runs_can_be_planned(preset):
    listing, run = plan.parts_of("data_scaling")
    found = listing(preset)
    assert all({"model", "image_size", "batch_size", "steps", "n_train"} <= set(config) for config in found)
    assert len({identity.run_key(run, config) for config in found}) == len(found)
    assert run is data_scaling.run_one


def test_a_run_of_several_trainings_is_counted_by_each(planned, monkeypatch):
    """`transfer` pre-trains once and fine-tunes several times: the time is that of all, the runs are what is stored."""
    monkeypatch.undo()
    monkeypatch.setattr(plan, "probe", lambda config: {"step": 1.0, "image": 0.0})
    text = plan.in_words(plan.planned("transfer", "smoke"))
    config = transfer.planned_runs("smoke")[0]
    steps = [each["steps"] for each in transfer.trainings(config)]
    assert steps == [4, *[8] * 5]  # two rates at 1x; 400 images in batches of 100, two epochs
    assert "to do: 4 runs" in text and f"and {4 * sum(steps) / 3600 / runner.default_jobs():.2g} hours" in text
