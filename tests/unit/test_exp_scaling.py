"""The scaling studies at smoke, what they ask for at every preset, and the statistics of their curves."""

import contextlib
import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch

from vitlab.data.world import HELD_OUT, World, scene, with_difficulty
from vitlab.experiments import (
    compute_scaling,
    data_scaling,
    few_images,
    frozen,
    more_seeds,
    real_subsets,
    scaling,
    tuning,
    who_wins,
    world_classes,
)
from vitlab.experiments.scaling import Hyperparameters
from vitlab.experiments.scaling_statistics import (
    advantages,
    compute_factor,
    crossing,
    crossing_interval,
    differences,
    fitted_frontier,
    frontier,
    slope_per_decade,
)
from vitlab.experiments.trials import TRIAL_SEEDS, stored_trials
from vitlab.ledger import intervals
from vitlab.models import zoo
from vitlab.models.zoo import multiply_adds
from vitlab.sweep import results, runner
from vitlab.training import splits as training

pytestmark = pytest.mark.slow

SIZES = [100, 1_000, 10_000]
PRESETS = ["smoke", "quick", "full", "gpu"]
DIGITS = {"real": "digits"}  # whatever sets this machine has


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scaling")


@pytest.fixture(scope="module")
def table(folder):
    return data_scaling.data_scaling("smoke", seed=0, jobs=1, folder=folder, **DIGITS)


# ---- data_scaling ----


def test_every_model_size_and_seed_has_one_outcome_and_one_recipe_serves_all_sizes(table):
    config, runs = data_scaling.CONFIGS["smoke"], scaling.accuracies(table)
    assert len(runs) == len(config.models) * len(config.sizes) * config.n_seeds
    assert not runs.duplicated(["model", "n_train", "seed"]).any()
    assert runs[["test_accuracy", "train_accuracy", "validation_accuracy"]].stack().between(0, 1).all()
    assert (runs["best_step"] <= runs["last_step"]).all() and (runs["last_step"] <= runs["steps"]).all()
    recipe = ["learning_rate", "weight_decay", "label_smoothing", "steps"]
    assert runs.groupby("model")[recipe].nunique().eq(1).all(axis=None)


def test_histories_hold_the_kept_evaluation(table):
    runs, rows = scaling.accuracies(table), scaling.histories(table)
    key = ["model", "n_train", "seed"]
    best = rows[rows["step"] > 0].groupby(key)["val_accuracy"].max()
    kept = rows.merge(runs, left_on=[*key, "step"], right_on=[*key, "best_step"]).set_index(key)["val_accuracy"]
    pd.testing.assert_series_equal(kept.sort_index(), best.sort_index())
    expected = runs.set_index(key)["validation_accuracy"].sort_index()
    pd.testing.assert_series_equal(kept.sort_index(), expected, check_names=False)


def test_training_flops_are_three_forward_passes_a_sample(table):
    run_config = data_scaling.CONFIGS["smoke"].run
    for run in scaling.accuracies(table).itertuples():
        once = 2 * multiply_adds(run.model, run_config.image_size)
        assert run.flops == 3 * once * run.last_step * run_config.recipe.batch_size


def test_frozen_features_are_evaluated_on_other_classes_and_on_real_images(table):
    for rows in (scaling.few_shots(table), scaling.probes(table)):
        assert set(rows["target"]) == {frozen.OTHER_CLASSES, "digits"}
        assert len(rows) == 2 * len(scaling.accuracies(table)) and rows["accuracy"].between(0, 1).all()
    assert set(scaling.few_shots(table)["shots"]) == {scaling.SHOTS}


def test_a_finished_study_is_read_not_run(table, folder, monkeypatch):
    monkeypatch.setattr(scaling, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    again = data_scaling.data_scaling("smoke", seed=0, jobs=1, folder=folder, **DIGITS)
    pd.testing.assert_frame_equal(again, table)


def test_the_number_comes_from_the_test_set_with_the_kept_weights(monkeypatch):
    run_config = data_scaling.CONFIGS["smoke"].run
    watched, reported = [], []
    real_train, real_evaluate = scaling.train, scaling.evaluate

    def train(*args, validation):
        watched.append(validation)
        return real_train(*args, validation=validation)

    def evaluate(model, images):
        reported.append(images)
        return real_evaluate(model, images)

    monkeypatch.setattr(scaling, "train", train)
    monkeypatch.setattr(scaling, "evaluate", evaluate)
    scaling.run_one(scaling.planned_run(run_config, "Lab-Mu/4", Hyperparameters(1e-3), 32, seed=0))
    assert len(watched[0]) == run_config.n_validation and len(reported[0]) == run_config.n_test
    seen = {image.numpy().tobytes() for image in watched[0].images}
    assert not seen & {image.numpy().tobytes() for image in reported[0].images}


def test_a_run_without_validation_images_is_refused_before_it_trains():
    run_config = dataclasses.replace(data_scaling.CONFIGS["smoke"].run, n_validation=0)
    with pytest.raises(ValueError, match="n_validation is 0; .* at least 1"):
        scaling.run_one(scaling.planned_run(run_config, "Lab-Mu/4", Hyperparameters(1e-3), 32, seed=0))


@pytest.mark.parametrize("preset", PRESETS)
def test_runs_differ_in_model_size_and_seed_alone(preset):
    config = data_scaling.CONFIGS[preset]
    runs = data_scaling._runs(config, dict.fromkeys(config.models, Hyperparameters(1e-3)), 2)
    apart = ("model", "n_train", "seed")
    assert len({tuple(value for name, value in run.items() if name not in apart) for run in runs}) == 1
    assert {run["seed"] for run in runs} == {200 + s for s in range(config.n_seeds)}
    vit, bit = config.pair
    assert bit == f"BiT-{vit}" and config.n_seeds >= (2 if preset == "smoke" else 3)
    assert list(config.sizes) == sorted(set(config.sizes)) and config.sizes[0] < config.middle < config.sizes[-1]
    side = config.run.image_size
    cost = [multiply_adds(model, side) for model in config.pair]
    assert max(cost) / min(cost) < 1.2


@pytest.mark.parametrize("preset, largest, n_seeds", [("full", 256_000, 5), ("gpu", 1_000_000, 3)])
def test_the_large_presets_are_what_they_promise(preset, largest, n_seeds):
    config = data_scaling.CONFIGS[preset]
    assert config.sizes[0] <= 1_000 and config.sizes[-1] == largest and config.n_seeds == n_seeds
    families = [sum(model.startswith(start) for model in config.models) for start in ("Lab", "BiT", "R+")]
    assert min(families[:2]) >= 2 and families[2] >= 1
    if preset == "full":  # the largest set is seen once, by all as often
        assert config.run.recipe.samples >= largest
        side = config.run.image_size
        for vit in (model for model in config.models if model.startswith("Lab")):
            cost = multiply_adds(vit, side), multiply_adds(f"BiT-{vit}", side)
            assert f"BiT-{vit}" in config.models and max(cost) / min(cost) < 1.2


def test_the_budgets_of_compute_span_a_factor_of_thirty():
    steps = compute_scaling.CONFIGS["full"].steps
    assert len(steps) >= 3 and steps[-1] / steps[0] > 30


def test_all_models_have_the_same_stored_trials_and_the_best_is_taken():
    quick, trials = data_scaling.CONFIGS["quick"], stored_trials("data_scaling", "quick")
    grid = {(each.learning_rate, each.weight_decay) for each in quick.trials}
    assert set(trials["model"]) >= {*data_scaling.COMPARED, *compute_scaling.CONFIGS["quick"].models}
    for model, rows in trials.groupby("model"):
        by_setting = rows.groupby(["learning_rate", "weight_decay"])
        assert set(by_setting.groups) == grid and by_setting["seed"].nunique().eq(3).all()
        steady = by_setting["validation_accuracy"].mean() - by_setting["validation_accuracy"].std()
        chosen = quick.shared[model]
        assert steady[chosen.learning_rate, chosen.weight_decay] == steady.max()
        rates = sorted(rows["learning_rate"].unique())
        assert rates[0] < chosen.learning_rate < rates[-1]  # inside the grid, not at its edge


def test_trials_of_full_were_made_in_two_rounds_and_the_best_and_steadiest_is_taken():
    full, trials = data_scaling.CONFIGS["full"], stored_trials("data_scaling", "full")
    setting = ["learning_rate", "weight_decay"]
    grid = {(each.learning_rate, each.weight_decay) for each in full.trials}
    assert set(trials["model"]) == set(compute_scaling.CONFIGS["full"].models)
    for model, rows in trials.groupby("model"):
        n_seeds = rows.groupby(setting)["seed"].nunique()
        assert set(n_seeds.index) == grid and sorted(n_seeds) == [1] * 7 + [3] * 3
        first = rows[rows["seed"] == data_scaling.TRIAL_SEEDS[0]].set_index(setting)["validation_accuracy"]
        best = n_seeds[n_seeds == 3].index
        assert first.loc[best].min() >= first.drop(best).max()
        values = rows.groupby(setting)["validation_accuracy"]
        score = (values.mean() - values.std()).loc[best]
        assert score.idxmax() == (full.shared[model].learning_rate, full.shared[model].weight_decay)


def test_halving_tries_all_settings_once_and_the_best_with_all_seeds(monkeypatch, tmp_path):
    """With made-up accuracies: 4e-3 is the best with its first seed and falls with the others; 1e-3 and 2e-3 do not."""
    rates = (1e-3, 2e-3, 4e-3, 8e-3, 16e-3)
    smoke = dataclasses.replace(data_scaling.CONFIGS["smoke"], trials=tuple(map(Hyperparameters, rates)))
    monkeypatch.setitem(data_scaling.CONFIGS, "smoke", smoke)
    made = []

    def run_all(function, configs, folder, jobs):
        made.extend(configs)
        firsts = dict(zip(rates, (0.6, 0.7, 0.9, 0.3, 0.2), strict=True))
        falls = {4e-3: 0.5}
        scored = [
            firsts[config["learning_rate"]]
            - falls.get(config["learning_rate"], 0.0) * (config["seed"] != data_scaling.TRIAL_SEEDS[0])
            for config in configs
        ]
        others = ("test_accuracy", "train_accuracy", "flops", "seconds", "best_step", "last_step")
        measured = dict.fromkeys(others, 1) | {"kind": "outcome"}
        rows = zip(configs, scored, strict=True)
        return pd.DataFrame([config | {"validation_accuracy": score} | measured for config, score in rows])

    monkeypatch.setattr(runner, "run_all", run_all)
    trials = data_scaling.halving("smoke", models=("Lab-Ti/4",), folder=tmp_path)
    seeds = trials.groupby("learning_rate")["seed"].nunique()
    assert seeds.to_dict() == {1e-3: 3, 2e-3: 3, 4e-3: 3, 8e-3: 1, 16e-3: 1}
    assert {config["model"] for config in made} == {"Lab-Ti/4"}
    assert tuning.best_hyperparameters(trials)["Lab-Ti/4"].learning_rate == 2e-3


def test_without_stored_trials_they_are_run_first(monkeypatch, tmp_path):
    """With made-up accuracies: the hyper-parameters with the highest must come out in the study's runs."""
    smoke = dataclasses.replace(
        data_scaling.CONFIGS["smoke"],
        trials=(Hyperparameters(1e-3), Hyperparameters(2e-3), Hyperparameters(4e-3), Hyperparameters(2e-3, 1.0)),
        shared=None,
    )
    monkeypatch.setitem(data_scaling.CONFIGS, "smoke", smoke)

    def run_all(function, configs, folder, jobs):
        rows = []
        for config in configs:
            score = 0.5 + 0.1 * (config["learning_rate"] == 2e-3) + 0.1 * (config["weight_decay"] == 1.0)
            measured = dict.fromkeys(
                ("test_accuracy", "train_accuracy", "flops", "seconds", "best_step", "last_step"), 1
            )
            rows.append(config | {"kind": "outcome", "validation_accuracy": score} | measured)
        return pd.DataFrame(rows)

    monkeypatch.setattr(runner, "run_all", run_all)
    runs = data_scaling.data_scaling("smoke", folder=tmp_path, **DIGITS)
    assert (runs["learning_rate"] == 2e-3).all() and (runs["weight_decay"] == 1.0).all()


def test_a_set_too_large_to_be_seen_is_painted_in_part_and_from_all_of_it():
    world = World(image_size=8)
    seen = training.world_splits(world, 10_000, 4, 4, draw=3, n_seen=40).train
    start = 3 * training.DRAW
    everything = {}
    pictures, labels, _ = scene(world, start + torch.arange(10_000))
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        everything[picture.numpy().tobytes()] = (number, int(label))
    found = [everything[image.numpy().tobytes()] for image in seen.images]
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == 40 and [label for _, label in found] == seen.labels.tolist()
    assert max(numbers) > 8_000 and min(numbers) < 2_000  # from all of it
    whole = training.world_splits(world, 40, 4, 4, draw=3, n_seen=500).train
    assert torch.equal(whole.images, pictures[:40])  # where all are seen, nothing is chosen
    assert start + 10_000 < HELD_OUT


@pytest.mark.parametrize("experiment", [data_scaling.data_scaling, compute_scaling.compute_scaling])
def test_a_preset_that_cannot_run_is_refused(experiment):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        experiment("huge")
    with pytest.raises(ValueError, match="'paper' is not run from here"):
        experiment("paper")


# ---- compute_scaling ----


@pytest.fixture(scope="module")
def compute(folder):
    return compute_scaling.compute_scaling("smoke", seed=0, jobs=1, folder=folder, **DIGITS)


def test_every_model_and_length_has_its_points(compute):
    config, points = compute_scaling.CONFIGS["smoke"], compute_scaling.points(compute)
    assert len(points) == len(config.models) * len(config.steps) * config.n_seeds
    assert points[["test_accuracy", "few_shot"]].stack().between(0, 1).all()
    long, short = (points[points["steps"] == steps].set_index(["model", "seed"]) for steps in (6, 3))
    assert (long["flops"] <= 2 * short["flops"]).all()  # less where it stopped early


@pytest.mark.parametrize("preset", PRESETS)
def test_both_studies_share_the_longest_runs_on_the_largest_set(preset):
    config = compute_scaling.CONFIGS[preset]
    families = [sum(model.startswith(start) for model in config.models) for start in ("Lab", "BiT", "R+")]
    assert min(families) >= 2 and len(config.steps) >= 2
    assert config.steps[-1] == max(config.steps) == data_scaling.CONFIGS[preset].run.recipe.steps
    theirs = data_scaling.planned_runs(preset)
    shared = [config for config in compute_scaling.planned_runs(preset) if config in theirs]
    both = set(config.models) & set(data_scaling.CONFIGS[preset].models)
    if preset != "smoke":
        seeds = min(config.n_seeds, data_scaling.CONFIGS[preset].n_seeds)
        assert len(shared) == len(both) * seeds > 0


# ---- parts of real sets ----


def test_parts_of_real_sets_are_crossed(tmp_path):
    runs = real_subsets.chosen(real_subsets.real_subsets("smoke", jobs=1, folder=tmp_path))
    config = real_subsets.CONFIGS["smoke"]
    assert runs.groupby(["source", "n_train", "model"]).size().eq(config.n_seeds).all()
    found = real_subsets.differences(runs)
    one = runs[(runs["n_train"] == 32) & (runs["seed"] == 0)].set_index("model")["test_accuracy"]
    row = found[(found["n_train"] == 32) & (found["seed"] == 0)]
    assert row["difference"].item() == pytest.approx(one[config.models[0]] - one[config.models[1]])


def test_parts_of_a_real_set_are_nested_and_apart_from_validation():
    few, many = (real_subsets.splits_of("digits", 16, n, 200, 60, seed=0) for n in (100, 300))
    assert torch.equal(many.train.images[:100], few.train.images)
    assert torch.equal(many.validation.images, few.validation.images) and len(few.validation) == 200
    everything = real_subsets.splits_of("digits", 16, 1_400, 200, 60, seed=0)
    assert len(everything.validation) == 37  # of 1,437 what is left
    seen, kept = (
        {image.numpy().tobytes() for image in part.images} for part in (everything.train, everything.validation)
    )
    assert not seen & kept


def test_tuning_takes_the_rate_with_the_best_validation_accuracy_less_its_spread_and_reports_the_test():
    scores = {1e-3: ((0.6, 0.6), 0.9), 4e-3: ((0.9, 0.4), 0.4), 8e-3: ((0.5, 0.5), 0.1)}
    rows = [
        {"source": "x", "n_train": 9, "model": "m", "seed": seed, "learning_rate": rate}
        | {"validation_accuracy": validation[seed], "test_accuracy": test}
        for seed in (0, 1)
        for rate, (validation, test) in scores.items()
    ]
    runs = real_subsets.chosen(pd.DataFrame(rows))  # 0.65 on average with 4e-3, but 0.25 to either side
    assert runs["learning_rate"].eq(1e-3).all() and runs["test_accuracy"].eq(0.9).all() and len(runs) == 2


# ---- who wins, and what pre-training is worth ----


def test_who_wins_crosses_worlds_sizes_and_models(tmp_path):
    table, config = who_wins.who_wins("smoke", jobs=1, folder=tmp_path), who_wins.CONFIGS["smoke"]
    runs = who_wins.accuracies(table)
    found = who_wins.differences(runs)
    assert len(found) == len(config.worlds) * len(config.sizes) * config.n_seeds
    assert set(found["world"]) == {"contour, 4 classes", "mixed, 4 classes"}
    one = runs[(runs["cue"] == "contour") & (runs["n_train"] == 16) & (runs["seed"] == 0)].set_index("model")
    row = found[(found["world"] == "contour, 4 classes") & (found["n_train"] == 16) & (found["seed"] == 0)]
    vit, resnet = one["test_accuracy"][list(config.pair)]
    assert row["difference"].item() == pytest.approx(vit - resnet)


def test_a_run_trains_on_the_world_it_names():
    run = scaling.in_world(data_scaling.CONFIGS["smoke"].run, "texture", 7)
    world = scaling.world_of(scaling.planned_run(run, "Lab-Mu/4", Hyperparameters(1e-3), 32, seed=0))
    assert (world.n_classes, world.texture, world.contour, world.colour, world.arrangement) == (7, 1, 0, 0, 0)
    mixed = scaling.world_of(
        scaling.planned_run(data_scaling.CONFIGS["smoke"].run, "Lab-Mu/4", Hyperparameters(1), 9, 0)
    )
    assert mixed == dataclasses.replace(with_difficulty(World(), 0.5), image_size=16)


def test_without_pretraining_the_features_are_fresh_and_fine_tuning_is_from_scratch(tmp_path, monkeypatch):
    table, config = world_classes.world_classes("smoke", jobs=1, folder=tmp_path), world_classes.CONFIGS["smoke"]
    rows = world_classes.accuracies(table)
    assert set(rows["weights"]) == {"untrained", "2 classes", "8 classes"}
    per_run = {(frozen.OTHER_CLASSES, "10-shot"), ("digits", "10-shot"), ("digits", "fine-tuned")}
    for _, run in rows.groupby(["model", "weights", "seed"]):
        assert set(zip(run["target"], run["measure"], strict=True)) == per_run
    assert len(rows) == 3 * 3 * len(config.models) * config.n_seeds and rows["accuracy"].between(0, 1).all()
    started = []
    monkeypatch.setattr(scaling, "finetune", lambda model, *args, **kwargs: started.append(model) or pytest.skip())
    run = next(run for run in world_classes.planned_runs("smoke") if not run["n_train"])
    with contextlib.suppress(pytest.skip.Exception):
        scaling.run_one(run)
    fresh = zoo.create(run["model"], n_classes=2, image_size=16, seed=run["seed"]).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in started[0].state_dict().items())


# ---- few images ----


def test_a_run_on_few_images_differs_from_that_of_data_scaling_in_rate_and_decay_alone():
    there = {(run["model"], run["seed"]): run for run in data_scaling.planned_runs("full") if run["n_train"] == 1_000}
    runs = few_images.planned_runs("full")
    assert {run["model"] for run in runs} == set(data_scaling.CONFIGS["full"].pair) and len(runs) == 2 * 5
    for run in runs:
        other = {name for name, value in there[run["model"], run["seed"]].items() if run.get(name) != value}
        of_real_sets = {name for name in other if name == "real" or name.startswith("finetuning_")}
        assert {"weight_decay"} <= other - of_real_sets <= {"learning_rate", "weight_decay"}


def test_for_few_images_both_models_had_the_same_trials_and_the_best_is_not_at_an_edge():
    full, trials = few_images.CONFIGS["full"], stored_trials("few_images")
    for model, rows in trials.groupby("model"):
        seeds = rows.groupby(["learning_rate", "weight_decay"])["seed"].nunique()
        assert set(seeds.index) == {(each.learning_rate, each.weight_decay) for each in full.trials}
        assert sorted(seeds) == [1] * (len(full.trials) - 3) + [3] * 3
        best = full.shared[model]
        assert best == tuning.best_hyperparameters(trials)[model]
        assert 2e-3 < best.learning_rate < 16e-3 and 1 < best.weight_decay < 30


def test_few_images_at_smoke_tries_and_then_compares(tmp_path):
    table, config = few_images.few_images("smoke", jobs=1, folder=tmp_path), few_images.CONFIGS["smoke"]
    runs = scaling.accuracies(table)
    assert len(runs) == len(config.models) * config.n_seeds and set(runs["n_train"]) == set(config.sizes)
    assert not set(runs["seed"]) & set(TRIAL_SEEDS)
    assert len(list(tmp_path.glob("*.json"))) == len(few_images.planned_runs("smoke"))
    assert len(few_images.trials("smoke", jobs=1, folder=tmp_path)) == 12  # three of two settings: all with all seeds


# ---- more seeds ----


def _but_for_real_images(run):
    return {name: value for name, value in run.items() if name != "real" and not name.startswith("finetuning_")}


def test_a_run_of_more_seeds_differs_from_that_of_two_studies_in_its_seed_and_the_evaluation_on_real_images():
    there = [*data_scaling.planned_runs("full"), *compute_scaling.planned_runs("full")]
    there = [_but_for_real_images(results.unseeded(run)) for run in there]
    runs = more_seeds.planned_runs("full")
    assert all(_but_for_real_images(results.unseeded(run)) in there for run in runs)
    by_case = Counter((run["model"], run["n_train"], run["steps"]) for run in runs)
    fewest, middle, most, steps = 1_000, 16_000, 256_000, 2_000
    assert by_case == {
        ("Lab-Ti/8", fewest, steps): 62,
        ("Lab-Mu/8", fewest, steps): 62,
        ("BiT-Lab-Ti/8", fewest, steps): 36,
        ("Lab-Ti/8", middle, steps): 8,
        ("BiT-Lab-Ti/8", middle, steps): 8,
        ("Lab-Ti/8", most, steps): 100,
        ("Lab-Mu/8", most, steps): 100,
        ("BiT-Lab-Ti/8", most, steps): 24,
        ("BiT-Lab-Mu/8", most, steps): 24,
        ("R+Lab-Ti/8", most, steps): 100,
        ("R+Lab-Mu/8", most, steps): 100,
        **dict.fromkeys(itertools.product(("BiT-Lab-Ti/8", "BiT-Lab-Mu/8"), (most,), (60, 350)), 24),
        **dict.fromkeys(
            itertools.product(("Lab-Ti/8", "Lab-Mu/8", "R+Lab-Ti/8", "R+Lab-Mu/8"), (most,), (60, 350)), 100
        ),
    }


@pytest.mark.parametrize("preset", more_seeds.CONFIGS)
def test_no_draw_has_a_training_of_more_seeds_with_a_seed_that_it_has(preset):
    drawn = [
        run for study in (data_scaling, compute_scaling) for draw in (0, 1) for run in study.planned_runs(preset, draw)
    ]
    drawn = [_but_for_real_images(run) for run in drawn]
    runs = more_seeds.planned_runs(preset)
    assert len({tuple(run.items()) for run in runs}) == len(runs)  # none is planned twice
    assert not [run for run in runs if _but_for_real_images(run) in drawn]
    config = more_seeds.CONFIGS[preset]
    assert {run["seed"] for run in runs} == set(itertools.chain(*dataclasses.astuple(config)))
    assert not {run["seed"] for run in runs} & set(TRIAL_SEEDS)


def test_more_seeds_at_smoke(tmp_path):
    runs = scaling.accuracies(more_seeds.more_seeds("smoke", jobs=1, folder=tmp_path))
    by_size = runs.groupby("n_train").size().to_dict()
    # Seeds × models, and lengths. Two more seeds have both ViTs on the fewest images, of which one has them on the most
    # at one length; three have them there at both lengths, two of these with ResNets, and two with hybrids.
    assert by_size == {16: 2 * 3 + 2 * 2, 32: 2 * 2, 64: 2 + (3 + 2 + 2) * 2 * 2}
    assert set(runs["seed"]) == {200, 201, 202, 203}


# ---- compute frontiers ----


def test_the_frontier_is_what_no_other_point_beats():
    x = np.array([1.0, 2, 2, 3, 4, 4])
    y = np.array([0.1, 0.3, 0.2, 0.3, 0.5, 0.4])
    wanted = [
        not any((x[j] <= x[i] and y[j] >= y[i]) and (x[j] < x[i] or y[j] > y[i]) for j in range(len(x)))
        for i in range(len(x))
    ]
    assert frontier(x, y).tolist() == wanted == [True, True, False, False, True, False]


def test_a_line_in_logits_is_found_again():
    flops = np.array([1e9, 3e9, 1e10, 1e11])
    accuracy = scipy.special.expit(-11 + 1.1 * np.log10(flops))
    line = fitted_frontier(flops, accuracy)
    assert (line.slope, line.intercept) == pytest.approx((1.1, -11))
    assert line.at(3e9) == pytest.approx(accuracy[1]) and line.log10_flops(accuracy[2]) == pytest.approx(10)
    assert line.flops == (1e9, 1e11) and line.accuracy == pytest.approx((accuracy[0], accuracy[-1]))
    with pytest.raises(ValueError, match="no runs: expected"):
        fitted_frontier([], [])


def test_compute_that_bought_nothing_leaves_the_frontier_level():
    rising = fitted_frontier([1e9, 1e10, 1e11], [0.2, 0.5, 0.4])  # the most expensive run is worse
    assert rising.flops == (1e9, 1e10) and rising.spent == 1e11
    assert rising.at(1e9) == pytest.approx(0.2) and rising.at(1e10) == rising.at(1e11) == pytest.approx(0.5)
    single = fitted_frontier([1e10, 1e11], [0.3, 0.25])
    assert [single.at(flops) for flops in (1e10, 5e10, 1e11)] == pytest.approx([0.3] * 3)
    # From 1e10, where the second begins, to 1e11, where both end: what was found by then, 0.5 against 0.3.
    assert advantages(single, rising) == pytest.approx((-0.2, -0.2))
    assert compute_factor(single, rising) is None  # a level line has no compute at which it reaches an accuracy


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.7])
def test_a_family_that_needs_more_compute_everywhere_needs_that_factor(factor):
    flops = np.array([1e9, 1e10, 1e11])
    accuracy = scipy.special.expit(-9.5 + np.log10(flops))
    first, second = fitted_frontier(flops, accuracy), fitted_frontier(factor * flops, accuracy)
    assert compute_factor(first, second) == pytest.approx(factor)
    assert compute_factor(second, first) == pytest.approx(1 / factor)


def test_lines_that_differ_in_slope_have_the_mean_distance_over_the_shared_accuracies():
    first = fitted_frontier([1e9, 1e12], scipy.special.expit(np.array([-1.0, 2.0])))
    second = fitted_frontier([1e10, 1e12], scipy.special.expit(np.array([-1.0, 3.0])))
    logits = np.linspace(-1.0, 2.0, 10_001)  # both reach these
    by_hand = np.mean([second.log10_flops(p) - first.log10_flops(p) for p in scipy.special.expit(logits)])
    assert compute_factor(first, second) == pytest.approx(10**by_hand, rel=1e-6)


def test_the_mean_distance_is_over_logits_and_not_over_accuracies():
    """By hand: equal compute at logit 0, a hundred times as much at logit 4: ten times on average over the logits."""
    accuracy = scipy.special.expit(np.array([0.0, 4.0]))
    first, second = fitted_frontier([1e9, 1e10], accuracy), fitted_frontier([1e9, 1e12], accuracy)
    assert compute_factor(first, second) == pytest.approx(10)
    p = accuracy[1]  # over the accuracies: the integral of logit(a) is a ln a + (1 - a) ln(1 - a)
    mean_logit = (p * np.log(p) + (1 - p) * np.log(1 - p) + np.log(2)) / (p - 0.5)
    assert 10 ** (mean_logit / 2) == pytest.approx(4.22, abs=0.01)
    assert "averaged over the logits" in " ".join(compute_factor.__doc__.split())


def test_what_cannot_be_compared_has_no_number():
    low, high = fitted_frontier([1e9, 1e10], [0.1, 0.2]), fitted_frontier([1e9, 1e10], [0.5, 0.6])
    assert compute_factor(low, high) is None  # no accuracy that both reach
    early, late = fitted_frontier([1e6, 1e7], [0.1, 0.2]), fitted_frontier([1e9, 1e10], [0.1, 0.2])
    assert advantages(early, late) is None  # no compute that both had
    assert advantages(high, low) == pytest.approx((0.4, 0.4))


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


def test_without_a_crossing_the_interval_lies_beyond_the_sizes():
    assert crossing_interval(SIZES, np.tile([-0.3, -0.2, -0.1], (3, 1))) == ((math.inf, math.inf), 0.0)
    assert crossing_interval(SIZES, np.tile([0.3, 0.2, 0.1], (3, 1))) == ((0.0, 0.0), 0.0)


def test_lines_that_would_cross_beyond_all_numbers_do_not_warn():
    nearly = np.array([[-0.1, -0.1, -0.1], [-0.1, -0.1, -0.1 + 1e-15]])
    assert crossing_interval(SIZES, nearly)[1] == 0.0


def test_the_interval_of_a_crossing_is_open_where_some_draws_have_none():
    seeds = np.array([[-0.10, 0.02, 0.10], [-0.12, -0.05, -0.02], [-0.11, -0.02, 0.05]])
    (low, high), share = crossing_interval(SIZES, seeds)
    assert SIZES[0] < low < crossing(SIZES, seeds.mean(axis=0)) and high == math.inf and 0.5 < share < 0.97
    assert crossing_interval(SIZES, seeds) == ((low, high), share)  # a seed is a result


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_of_a_crossing_covers_as_often_as_it_says(n):
    mean = np.array([-0.1, -0.02, 0.06])
    truth = crossing(SIZES, mean)

    def seeds(generator):
        shared = 0.02 * generator.normal(size=(n, 1))  # of a seed's runs of all sizes, which see the same images
        return mean + shared + 0.02 * generator.normal(size=(n, len(SIZES)))

    found = intervals.coverage(lambda values: crossing_interval(SIZES, values, draws=400)[0], seeds, truth, 1000)
    assert 0.92 < found < 0.98  # the bootstrap over the seeds: 0.75, 0.85 and 0.90


@pytest.mark.parametrize(
    "call",
    [
        lambda: crossing(SIZES, [-1, 1, math.nan]),
        lambda: crossing(SIZES, np.array([[-0.1, 0.0, 0.1]])),
        lambda: crossing_interval(SIZES, np.array([[-0.1, 0.0, 0.1]])),
        lambda: crossing_interval(SIZES, np.array([[-0.1, 0.0, 0.1], [-0.1, math.nan, 0.1]])),
        lambda: frontier([1e9, 1e10], [0.5, math.nan]),
        lambda: frontier([1e9, math.inf], [0.5, 0.6]),
        lambda: frontier([1e9, 1e10], [0.5]),
    ],
)
def test_statistics_of_what_is_no_number_are_refused(call):
    with pytest.raises(ValueError, match="expected"):
        call()


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
    found = differences(shuffled, "a", "b", 2000).sort_values("seed")
    np.testing.assert_allclose(found["difference"], [0.1, 0.0, 0.3])
    wanted = scipy.stats.ttest_rel([0.5, 0.6, 0.8], [0.4, 0.6, 0.5]).confidence_interval(0.95)
    np.testing.assert_allclose(found[["low", "high"]].iloc[0], wanted)
    swapped = differences(shuffled, "b", "a", 2000).sort_values("seed")
    np.testing.assert_allclose(swapped["difference"], [-0.1, 0.0, -0.3])


def test_differences_of_runs_that_did_not_start_have_no_interval():
    rows = [
        {"model": model, "n_train": size, "seed": seed, "test_accuracy": accuracy}
        for model, size, accuracies in [
            ("a", 10, [0.5, 0.1, 0.52]),
            ("b", 10, [0.4, 0.41, 0.4]),
            ("a", 20, [0.6, 0.6, 0.7]),
            ("b", 20, [0.1, 0.11, 0.1]),
        ]
        for seed, accuracy in enumerate(accuracies)
    ]
    found = differences(pd.DataFrame(rows), "a", "b", 2000).groupby("n_train")[["failed", "low", "high"]].first()
    assert found.loc[10, "failed"] == 1 and found.loc[10, ["low", "high"]].isna().all()
    assert found.loc[20, "failed"] == 0 and found.loc[20, "low"] > 0  # b never starts: that is no lottery
