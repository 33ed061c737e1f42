"""The two training experiments at smoke, and the pure functions that read a scaling study."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from vitlab.data.loader import batches
from vitlab.experiments import data_scaling, runner, training_curves
from vitlab.experiments.data_scaling import crossing, crossing_interval, differences, slope_per_decade
from vitlab.training import pretrain as training

SIZES = [100, 1_000, 10_000]


# ---- training_curves ----


@pytest.fixture(scope="module")
def curves_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("training_curves")


@pytest.fixture(scope="module")
def table(curves_folder):
    return training_curves.training_curves("smoke", seed=0, jobs=1, folder=curves_folder)


def test_every_run_has_a_curve_from_the_known_loss_on(table):
    curves = training_curves.curves(table)
    settings = training_curves.SETTINGS["smoke"]
    assert list(curves["step"].unique()) == [0, 3, 6]
    assert len(curves) == 3 * settings.n_seeds * sum(len(task.models) for task in settings.tasks)
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
    monkeypatch.setattr(training_curves, "pretrain", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    again = training_curves.training_curves("smoke", seed=0, jobs=1, folder=curves_folder)
    pd.testing.assert_frame_equal(again, table)
    assert "12 of 12 runs were finished before" in capsys.readouterr().out


def test_another_seed_is_another_study(table, monkeypatch, tmp_path):
    asked = configs_of(monkeypatch, training_curves.training_curves, "smoke", seed=1, folder=tmp_path)
    assert {config["seed"] for config in asked} == {100, 101}
    assert set(table["seed"]) == {0, 1}


def test_the_sweep_gives_all_families_the_same_trials_and_the_best_is_taken():
    for data in ("digits", "world"):
        sweeps = [trials for (name, _), trials in training_curves.SWEEP.items() if name == data]
        assert len(sweeps) == 3 and sweeps[0].keys() == sweeps[1].keys() == sweeps[2].keys()
        for model, rates in training_curves.tuned(data).items():
            trials = training_curves.SWEEP[data, model]
            assert trials[rates] == max(trials.values())
            assert min(trials.values()) >= 0.1 and 0.4 < max(trials.values()) <= 1  # ten classes: guessing is 0.1


def test_the_sweep_runs_what_it_says_away_from_the_test_set(monkeypatch):
    asked = configs_of(monkeypatch, training_curves.sweep, "digits")
    seeds = {100 * seed + s for seed in range(10) for s in range(5)}
    wanted = {(model, *r) for (data, model), t in training_curves.SWEEP.items() if data == "digits" for r in t}
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


@pytest.mark.parametrize("preset", ["smoke", "quick", "full"])
def test_vit_and_resnet_cost_as_much_and_the_hybrid_is_the_nearest_there_is(preset):
    for task in training_curves.SETTINGS[preset].tasks:
        vit, bit, hybrid = task.models
        strides = [p for p in (2, 4, 8, 16, 32) if p < task.image_size]
        hybrids = [f"R+{vit.partition('/')[0]}/{p}" for p in strides]
        cost = {name: training.multiply_adds(name, task.image_size) for name in (vit, bit, *hybrids)}
        assert max(cost[vit], cost[bit]) / min(cost[vit], cost[bit]) < 1.2
        assert hybrid == min(hybrids, key=lambda name: abs(math.log(cost[name] / cost[vit])))


# ---- data_scaling ----


@pytest.fixture(scope="module")
def scaling_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data_scaling")


@pytest.fixture(scope="module")
def scaling(scaling_folder):
    return data_scaling.data_scaling("smoke", seed=0, jobs=1, folder=scaling_folder)


def test_every_model_size_and_seed_has_one_outcome(scaling):
    settings, runs = data_scaling.SETTINGS["smoke"], data_scaling.outcomes(scaling)
    assert len(runs) == len(settings.models) * len(settings.sizes) * settings.n_seeds
    assert not runs.duplicated(["model", "n_train", "seed"]).any()
    assert runs["test_accuracy"].between(0, 1).all() and runs["train_accuracy"].between(0, 1).all()
    assert (runs["best_step"] <= runs["last_step"]).all() and (runs["last_step"] <= settings.recipe.steps).all()


def test_histories_hold_the_kept_evaluation(scaling):
    runs, rows = data_scaling.outcomes(scaling), data_scaling.histories(scaling)
    key = ["model", "n_train", "seed"]
    best = rows[rows["step"] > 0].groupby(key)["val_accuracy"].max()
    kept = rows.merge(runs, left_on=[*key, "step"], right_on=[*key, "best_step"]).set_index(key)["val_accuracy"]
    pd.testing.assert_series_equal(kept.sort_index(), best.sort_index())


def test_a_finished_sweep_is_read_not_run(scaling_folder, scaling, monkeypatch):
    monkeypatch.setattr(data_scaling, "pretrain", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    again = data_scaling.data_scaling("smoke", seed=0, jobs=1, folder=scaling_folder)
    pd.testing.assert_frame_equal(again, scaling)


def test_the_number_comes_from_the_test_set_with_the_kept_weights(monkeypatch):
    """A recipe that cannot stop early and one that stops at once report different weights, on other images."""
    settings = data_scaling.SETTINGS["smoke"]
    config = data_scaling._configs(settings, seed=0)[0]
    watched, reported = [], []
    real_pretrain, real_evaluate = data_scaling.pretrain, data_scaling.evaluate

    def pretrain(*args, watch, **kwargs):
        watched.append(watch)
        return real_pretrain(*args, watch=watch, **kwargs)

    def evaluate(model, images):
        reported.append(images)
        return real_evaluate(model, images)

    monkeypatch.setattr(data_scaling, "pretrain", pretrain)
    monkeypatch.setattr(data_scaling, "evaluate", evaluate)
    data_scaling._run_one(config)
    assert len(watched[0]) == settings.n_validation and len(reported[0]) == settings.n_test
    seen = {image.numpy().tobytes() for image in watched[0].images}
    assert not seen & {image.numpy().tobytes() for image in reported[0].images}


def test_all_sizes_share_one_recipe_and_both_families_share_images(monkeypatch, tmp_path):
    asked = configs_of(monkeypatch, data_scaling.data_scaling, "quick", seed=2, folder=tmp_path)
    apart = ("model", "n_train", "seed", "learning_rate", "weight_decay")
    assert len({tuple(v for k, v in c.items() if k not in apart) for c in asked}) == 1
    rates = {(c["model"], c["learning_rate"], c["weight_decay"]) for c in asked}
    assert len(rates) == 2  # one setting per family, whatever the size
    assert {c["seed"] for c in asked} == {200, 201, 202}
    small, large = (training.world_splits(data_scaling.World(image_size=8), n, 4, 4, draw=200) for n in (10, 20))
    assert (large.train.images[:10] == small.train.images).all()
    assert set(batches(small.train, 10, seed=200)(0)[1].tolist()) <= set(range(10))


@pytest.mark.parametrize("preset", ["smoke", "quick", "full"])
def test_the_pair_is_a_vit_and_a_resnet_of_the_preset(preset):
    vit, bit = data_scaling.pair(preset)
    models = data_scaling.SETTINGS[preset].models
    assert vit in models and bit == f"BiT-{vit}"
    sizes = data_scaling.SETTINGS[preset].sizes
    assert list(sizes) == sorted(set(sizes)) and len(sizes) >= 3


@pytest.mark.parametrize("experiment", [training_curves.training_curves, data_scaling.data_scaling])
def test_a_preset_that_cannot_run_is_refused(experiment):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        experiment("huge")
    with pytest.raises(ValueError, match="'paper' is not run from here"):
        experiment("paper")


# ---- crossing ----


@pytest.mark.parametrize(
    "difference, size",
    [
        ([-0.1, -0.1, 0.1], 10**3.5),  # half way, on a logarithmic axis
        ([-0.3, 0.1, 0.2], 100 * 10**0.75),
        ([-0.2, 0.0, 0.2], 1_000),  # exactly at a size that was measured
        ([0.1, -0.1, 0.1], 10**3.5),  # the last crossing: from there it stays above
        ([-0.1, 0.1, -0.1], None),  # does not stay
        ([-0.3, -0.2, -0.1], None),
        ([0.1, 0.2, 0.3], None),  # nothing was overtaken
        ([0.0, 0.1, 0.2], None),  # never behind
        ([-0.1, -0.1, 0.0], None),  # equal is not ahead
    ],
)
def test_crossings_by_hand(difference, size):
    found = crossing(SIZES, difference)
    assert found is None if size is None else found == pytest.approx(size)


def test_a_crossing_does_not_depend_on_the_unit_of_the_difference_and_scales_with_the_sizes():
    base = crossing(SIZES, [-0.2, -0.05, 0.15])
    assert crossing(SIZES, [-20, -5, 15]) == pytest.approx(base)
    assert crossing([7 * size for size in SIZES], [-0.2, -0.05, 0.15]) == pytest.approx(7 * base)


@pytest.mark.parametrize("sizes", [[100, 1000], [1000, 100, 10], [100, 100, 1000], [0, 10, 100]])
def test_sizes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ValueError, match="expected as many; sizes > 0, rising"):
        crossing(sizes, [-0.1, 0.0, 0.1])


def test_the_interval_of_a_crossing_that_all_seeds_share_is_a_point():
    shared = np.tile([-0.1, -0.1, 0.1], (5, 1))
    interval, share = crossing_interval(SIZES, shared)
    assert share == 1.0 and interval == pytest.approx((10**3.5, 10**3.5))


def test_no_crossing_has_no_interval():
    assert crossing_interval(SIZES, np.tile([-0.3, -0.2, -0.1], (3, 1))) == (None, 0.0)


def test_the_share_of_resamples_that_cross_is_the_binomial_one():
    # Two seeds: one crosses far, one never, and their mean does. Both drawn as the second: a quarter.
    seeds = np.array([[-0.1, 0.1, 0.5], [-0.3, -0.2, -0.1]])
    interval, share = crossing_interval(SIZES, seeds, seed=0, resamples=4000)
    assert share == pytest.approx(0.75, abs=0.03)
    assert interval[0] == pytest.approx(crossing(SIZES, seeds[0]))
    assert interval[1] == pytest.approx(crossing(SIZES, seeds.mean(axis=0)))
    assert crossing_interval(SIZES, seeds, seed=0, resamples=4000) == (interval, share)  # a seed is a result


def test_slopes_by_hand():
    assert slope_per_decade([1, 10, 100], [0.2, 0.3, 0.4]) == pytest.approx(0.1)
    assert slope_per_decade([10, 100], [0.5, 0.5]) == 0
    sizes, accuracy = [300, 1000, 5000, 30000], [0.2, 0.35, 0.3, 0.6]
    assert slope_per_decade(sizes, accuracy) == pytest.approx(scipy.stats.linregress(np.log10(sizes), accuracy).slope)


def test_differences_pair_by_seed_with_the_t_interval():
    rows = [
        {"model": model, "n_train": 10, "seed": seed, "test_accuracy": accuracy}
        for model, accuracies in {"a": [0.5, 0.6, 0.8], "b": [0.4, 0.6, 0.5]}.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    shuffled = pd.DataFrame(rows).sample(frac=1, random_state=0)
    found = differences(shuffled, "a", "b").sort_values("seed")
    np.testing.assert_allclose(found["difference"], [0.1, 0.0, 0.3])
    wanted = scipy.stats.ttest_rel([0.5, 0.6, 0.8], [0.4, 0.6, 0.5]).confidence_interval(0.95)
    np.testing.assert_allclose(found[["low", "high"]].iloc[0], wanted)
    np.testing.assert_allclose(differences(shuffled, "b", "a").sort_values("seed")["difference"], [-0.1, 0.0, -0.3])


def test_settings_are_data():
    for module in (training_curves, data_scaling):
        assert set(module.SETTINGS) == {"smoke", "quick", "full"}
        assert all(dataclasses.is_dataclass(settings) for settings in module.SETTINGS.values())
