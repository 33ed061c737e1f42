"""The training curves at smoke, and the functions that read them."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from vitlab.experiments import training_curves
from vitlab.experiments.trials import stored_trials
from vitlab.models.zoo import multiply_adds
from vitlab.sweep import runner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def curves_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("training_curves")


@pytest.fixture(scope="module")
def table(curves_folder):
    return training_curves.training_curves("smoke", seed=0, jobs=1, folder=curves_folder)


def test_every_run_has_a_curve_from_the_known_loss_on(table):
    curves = training_curves.curves(table)
    config = training_curves.CONFIGS["smoke"]
    assert list(curves["step"].unique()) == [0, 3, 6]
    assert len(curves) == 3 * config.n_seeds * sum(len(task.models) for task in config.tasks)
    starts = curves[curves["step"] == 0]
    np.testing.assert_allclose(starts["test_loss"], math.log(10), atol=1e-5)
    assert starts["train_loss"].isna().all() and (starts["seconds"] == 0).all()
    later = curves[curves["step"] > 0]
    assert np.isfinite(later["train_loss"]).all() and (later["seconds"] > 0).all()
    assert curves["test_accuracy"].between(0, 1).all()
    assert (curves["samples"] == 16 * curves["step"]).all()


def test_finals_are_the_last_rows(table):
    finals = training_curves.finals(table)
    assert (finals["step"] == 6).all()
    assert finals.groupby(["data", "model"]).size().eq(2).all()


def test_confusion_counts_every_test_image_and_agrees_with_the_accuracy(table):
    finals = training_curves.finals(table)
    for (data, model), rows in finals.groupby(["data", "model"]):
        counts = training_curves.confusion(table, data, model)
        n_test = {"digits": 360, "world": 60}[data]
        assert counts.sum() == 2 * n_test  # two seeds
        assert np.trace(counts) / counts.sum() == pytest.approx(rows["test_accuracy"].mean())


def test_mistakes_are_mistakes_on_the_images_they_name(table):
    from vitlab.data import datasets

    found = training_curves.mistakes(table, "digits", "Lab-Ti/2")
    labels = datasets.load("digits", "test").labels
    assert 0 < len(found) <= 2 * 30
    assert (found["label"] != found["predicted"]).all()
    assert (labels[found["image"].tolist()].numpy() == found["label"]).all()


def test_a_model_without_mistakes_gives_an_empty_table():
    nothing = pd.DataFrame({"kind": ["curve"], "data": ["digits"], "model": ["Lab-Ti/2"]})
    assert training_curves.mistakes(nothing, "digits", "Lab-Ti/2").empty


def test_a_finished_study_is_read_not_run(curves_folder, table, monkeypatch, capsys):
    monkeypatch.setattr(training_curves, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    again = training_curves.training_curves("smoke", seed=0, jobs=1, folder=curves_folder)
    pd.testing.assert_frame_equal(again, table)
    assert "12 of 12 runs were finished before" in capsys.readouterr().out


def test_another_seed_is_another_study(table, monkeypatch, tmp_path):
    asked = configs_of(monkeypatch, training_curves.training_curves, "smoke", seed=1, folder=tmp_path)
    assert {config["seed"] for config in asked} == {100, 101}
    assert set(table["seed"]) == {0, 1}


def test_all_families_have_the_same_stored_trials_and_the_best_is_taken():
    trials = stored_trials("training_curves")
    for data in ("digits", "world"):
        by_model = trials[trials["data"] == data].groupby("model")
        grids = [list(zip(rows["learning_rate"], rows["weight_decay"], strict=True)) for _, rows in by_model]
        assert len(grids) == 3 and grids[0] == grids[1] == grids[2]
        for model, chosen in training_curves.tuned(data).items():
            rows = by_model.get_group(model).set_index(["learning_rate", "weight_decay"])["validation_accuracy"]
            assert rows[chosen] == rows.max()
            assert rows.min() >= 0.1 and 0.4 < rows.max() <= 1  # ten classes: guessing is 0.1


def test_the_sweep_runs_what_it_says_away_from_the_test_set(monkeypatch):
    asked = configs_of(monkeypatch, training_curves.sweep, "digits")
    seeds = {100 * seed + s for seed in range(10) for s in range(5)}
    stored = stored_trials("training_curves").query("data == 'digits'")
    wanted = set(zip(stored["model"], stored["learning_rate"], stored["weight_decay"], strict=True))
    assert {(c["model"], c["learning_rate"], c["weight_decay"]) for c in asked} == wanted
    assert all(config["tuning"] and config["seed"] not in seeds for config in asked)
    for config in (asked[0], asked[0] | {"data": "world", "n_train": 20, "n_test": 10, "image_size": 8}):
        splits = training_curves._splits(config)
        held = {image.numpy().tobytes() for image in splits.validation.images}
        assert not held & {image.numpy().tobytes() for image in splits.test.images}
        assert not held & {image.numpy().tobytes() for image in splits.train.images}


class Asked(Exception):
    pass


def configs_of(monkeypatch, experiment, *args, **kwargs) -> list[dict]:
    """The configurations an experiment would run."""
    found = []

    def run_all(function, configs, folder, jobs):
        found.extend(configs)
        raise Asked

    monkeypatch.setattr(runner, "run_all", run_all)
    with pytest.raises(Asked):
        experiment(*args, **kwargs)
    return found


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "gpu"])
def test_vit_and_resnet_cost_as_much_and_the_hybrid_is_the_nearest_there_is(preset):
    for task in training_curves.CONFIGS[preset].tasks:
        vit, bit, hybrid = task.models
        strides = [p for p in (2, 4, 8, 16, 32) if p < task.image_size]
        hybrids = [f"R+{vit.partition('/')[0]}/{p}" for p in strides]
        cost = {name: multiply_adds(name, task.image_size) for name in (vit, bit, *hybrids)}
        assert max(cost[vit], cost[bit]) / min(cost[vit], cost[bit]) < 1.2
        assert hybrid == min(hybrids, key=lambda name: abs(math.log(cost[name] / cost[vit])))


def test_a_preset_that_cannot_run_is_refused():
    for preset, words in (("huge", "unknown preset 'huge'"), ("paper", "'paper' is not run")):
        with pytest.raises(ValueError, match=words):
            training_curves.training_curves(preset)


def test_settings_are_data():
    assert set(training_curves.CONFIGS) == {"smoke", "quick", "full", "gpu"}
    assert all(dataclasses.is_dataclass(config) for config in training_curves.CONFIGS.values())
