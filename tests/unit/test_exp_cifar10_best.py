"""CIFAR-10's best small ViT: arms that cost the same, trials without the test images, heads that start at zero."""

import dataclasses
import math

import pytest

from vitlab.experiments import cifar10_best, cifar10_runs
from vitlab.experiments.trials import stored_trials
from vitlab.models import zoo


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return cifar10_best.cifar10_best("smoke", jobs=1, folder=tmp_path_factory.mktemp("runs"))


def test_arms_of_a_model_have_equal_steps_within_the_budget():
    for run in cifar10_best.planned_runs("full"):
        images = (run["pretraining_steps"] + run["steps"]) * run["batch_size"]
        seconds = images / cifar10_best.SPEED[run["model"]]
        assert 0.999 * cifar10_best.BUDGET < seconds <= cifar10_best.BUDGET == 3600
        assert (run["pretraining_steps"] == 0) == (run["pretraining"] == cifar10_runs.SCRATCH)


def test_the_stored_trials_are_those_listed_and_the_best_of_each_model_is_trained():
    trials = stored_trials("cifar10_best").set_index([field.name for field in dataclasses.fields(cifar10_best.Arm)])
    assert list(trials.index) == list(map(dataclasses.astuple, cifar10_best.TRIALS))
    best = trials["held_out_accuracy"].groupby(level="model").idxmax()
    assert {*best} == {*map(dataclasses.astuple, cifar10_best.CONFIGS["full"].arms)}


def test_models_have_at_most_four_million_parameters():
    arms = [*cifar10_best.TRIALS, *cifar10_best.CONFIGS["full"].arms]
    for name in {arm.model for arm in arms}:
        model = zoo.create(name, n_classes=10, image_size=32, seed=0)
        assert sum(parameter.numel() for parameter in model.parameters()) <= 4_000_000


def test_every_arm_is_evaluated_and_the_pre_trained_ones_were_pre_trained(table):
    assert cifar10_best.accuracies(table)["pretraining"].tolist() == ["scratch", "masked", "world"]
    before = table[table["kind"] == "pre-training"].set_index("pretraining")["train_loss"]
    assert list(before.index) == ["masked", "world"]
    assert 0.5 * math.log(512) < before["masked"] < 1.5 * math.log(512)  # one of 512 colours
    assert 0.5 * math.log(300) < before["world"] < 1.5 * math.log(300)  # one of 300 classes


def test_the_head_starts_at_zero_whatever_was_learned_before(table):
    first = table[table["kind"] == "evaluation"].groupby("pretraining")["train_loss"].first()
    assert first.tolist() == pytest.approx([math.log(10)] * 3, abs=1e-6)


def test_hours_of_a_curve_hold_the_pre_training(table):
    curves = cifar10_best.curves(table)
    before = table[table["kind"] == "pre-training"].set_index("pretraining")["seconds"]
    for name, rows in curves.groupby("pretraining"):
        own = table[(table["kind"] == "evaluation") & (table["pretraining"] == name)]["seconds"]
        assert rows["core_hours"].tolist() == pytest.approx([(before.get(name, 0) + each) / 3600 for each in own])


def test_trials_never_read_the_test_images(monkeypatch):
    read = []

    def whole(data, part, image_size):
        read.append(part)
        return original(data, part, image_size)

    original = cifar10_runs.whole
    monkeypatch.setattr(cifar10_runs, "whole", whole)
    run = cifar10_best.planned_runs("smoke")[0] | {"tuning": True}
    assert cifar10_runs.run_one(run)
    assert read == ["train"]
    cifar10_runs.run_one(run | {"tuning": False})
    assert read == ["train", "train", "test"]
