"""Transfer at smoke: every fine-tuning starts where it says, and what is read from the rows is what was measured."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

from vitlab.data.world import World
from vitlab.experiments import training_curves, transfer
from vitlab.experiments.trials import stored_trials
from vitlab.sweep import runner
from vitlab.training import paper
from vitlab.training import splits as training
from vitlab.training.cost import multiply_adds

pytestmark = pytest.mark.slow

VIT, BIT = "Lab-Ti/8", "BiT-Lab-Ti/8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("transfer")


@pytest.fixture(scope="module")
def table(folder):
    return transfer.transfer("smoke", seed=0, jobs=1, folder=folder)


def test_every_fine_tuning_has_an_evaluation_of_every_epoch_from_guessing_on(table):
    rows, config = transfer.evaluations(table), transfer.CONFIGS["smoke"]
    assert len(rows) == len(config.models) * config.n_seeds * len(transfer.ARMS) * (config.epochs + 1)
    assert rows.groupby(["model", "seed", "arm"])["epoch"].agg(list).map(lambda found: found == [0, 1, 2]).all()
    starts = rows[rows["epoch"] == 0]
    # A head at zero says class 0 of every image.
    zeros = (transfer.target("digits", "test", 16, config.n_test).labels == 0).float().mean().item()
    np.testing.assert_allclose(starts["test_accuracy"], zeros, rtol=1e-6)
    sides = rows.groupby("arm")["image_size"].unique().map(list).to_dict()
    assert sides == {"1x": [16], "1.5x": [24], "2x": [32], "scratch": [16]}


def test_shares_are_of_the_last_evaluation(table):
    rows, last = transfer.evaluations(table), transfer.accuracies(table)
    assert (last["epoch"] == 2).all() and len(last) == 16
    np.testing.assert_allclose(last["share"], 1)
    one = rows[(rows["model"] == VIT) & (rows["seed"] == 1) & (rows["arm"] == "2x")]
    np.testing.assert_allclose(one["share"], one["test_accuracy"] / one["test_accuracy"].iloc[-1])


def test_the_best_rate_of_the_held_out_images_is_used(table):
    tried = transfer.trials(table)
    assert len(tried) == 2 * 2 * 2 and set(tried["arm"]) == {"1x"}  # the other arms have one rate: no choice
    best = tried.sort_values("learning_rate").groupby(["model", "seed"], sort=True)["held_out_accuracy"].idxmax()
    used = transfer.accuracies(table).query("arm == '1x'").sort_values(["model", "seed"])["learning_rate"]
    assert tried.loc[best, "learning_rate"].tolist() == used.tolist()


def test_few_shots_and_probes_are_there_for_both_targets_and_both_weights(table):
    few, probes = transfer.few_shots(table), transfer.probes(table)
    assert not few.duplicated(["target", "model", "seed", "weights", "shots"]).any()
    assert len(few) == 2 * 2 * 2 * 2 * 4 and set(few["shots"]) == {1, 5, 10, 25}
    assert len(probes) == 2 * 2 * 2 * 2 and set(probes["weights"]) == {"pre-trained", "untrained"}
    assert set(few["target"]) == {"digits", "world"}
    raw = table[(table["kind"] == "few shot") & (table["seed"] == 1) & (table["shots"] == 5)]
    wanted = raw.groupby(["target", "model", "weights"])["accuracy"].agg(["mean", "size"])
    found = few[(few["seed"] == 1) & (few["shots"] == 5)].set_index(["target", "model", "weights"])["accuracy"]
    assert (wanted["size"] == 3).all()
    pd.testing.assert_series_equal(found.sort_index(), wanted["mean"], check_names=False)


def test_from_scratch_means_the_weights_pretraining_began_with(monkeypatch):
    config = configs_of(monkeypatch, "smoke", models=1)[0] | {"seed": 7}
    sources = {}

    def finetune(source, images, recipe, rates, **config):
        sources[len(sources)] = (source, images, config)
        return real(source, images, recipe, rates[:1], **config)

    real = transfer.finetune
    monkeypatch.setattr(transfer, "finetune", finetune)
    transfer.run_one(config)
    fresh = transfer.zoo.create(VIT, n_classes=10, image_size=16, seed=7)
    (one, *_), (half, *_), (two, *_), (scratch, *_) = sources.values()
    assert one is half is two is not scratch
    state = scratch.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in fresh.state_dict().items())
    assert not torch.equal(one.state_dict()["blocks.0.attn.qkv.weight"], state["blocks.0.attn.qkv.weight"])
    for _, images, config in sources.values():  # nothing is learned from the images that report
        assert config["held_out"] == 0.1 and config["seed"] == 7
        seen = {image.numpy().tobytes() for image in config["watch"].images}
        assert not seen & {image.numpy().tobytes() for image in images.images}


def test_a_target_has_the_same_images_at_every_size():
    for name in ("digits", "world"):
        small, large = (transfer.target(name, "train", size, 50) for size in (32, 64))
        assert torch.equal(small.labels, large.labels) and large.images.shape == (50, 3, 64, 64)
        shrunk = torch.nn.functional.avg_pool2d(large.images.float(), 2)
        close = np.corrcoef(shrunk.flatten(), small.images.float().flatten())[0, 1]
        assert close > 0.9, name


def test_the_near_target_is_another_world_with_test_images_of_its_own():
    near = transfer.target("world", "train", 16, 40)
    pretraining = training.world_splits(World(image_size=16), 40, 0, 40).train
    assert not torch.equal(near.images, pretraining.images)
    test = transfer.target("world", "test", 16, 40)
    assert not {i.numpy().tobytes() for i in near.images} & {i.numpy().tobytes() for i in test.images}


def test_the_recipe_is_table_4s_in_proportion_to_the_batch():
    recipe = transfer.lab_recipe(n_train=100, batch_size=32, epochs=3, learning_rate=0.03)
    row = paper.TABLE_4[4]
    assert row.data == "Flowers-102" and transfer.TABLE_4 is row
    assert recipe.learning_rate == pytest.approx(0.03 * 32 / 512)
    assert (recipe.steps, recipe.eval_every, recipe.batch_size) == (12, 4, 32)
    kept = ("optimizer", "momentum", "decay", "weight_decay", "grad_clip", "warmup_steps")
    assert all(getattr(recipe, name) == getattr(row.recipe(0.03), name) for name in kept)


class Asked(Exception):
    pass


def configs_of(monkeypatch, preset, models=2, **config) -> list[dict]:
    """The configurations of the first models, as the experiment or the sweep would run them."""
    found = []

    def run_all(function, configs, folder, jobs):
        found.extend(configs)
        raise Asked

    with monkeypatch.context() as patched, pytest.raises(Asked):
        patched.setattr(runner, "run_all", run_all)
        transfer.sweep(**config) if preset == "sweep" else transfer.transfer(preset, **config)
    chosen = list(dict.fromkeys(config["model"] for config in found))[:models]
    return [config for config in found if config["model"] in chosen]


def test_all_fine_tunings_had_the_same_trials_and_the_best_is_not_at_the_edge_of_the_grid():
    tried = stored_trials("transfer").groupby(["model", "arm"])
    for key, rows in tried:
        accuracy = rows.set_index("learning_rate")["held_out_accuracy"]
        (rate,) = transfer.CONFIGS["quick"].rates[key]
        assert tuple(accuracy.index) == transfer._GRID, key
        assert accuracy[rate] == accuracy.max() > 0.5
        assert accuracy.index.min() < rate < accuracy.index.max()
    assert {arm for model, arm in tried.groups if model == VIT} == set(transfer.ARMS)
    assert {"1x", "scratch"} <= {arm for model, arm in tried.groups if model == BIT}


def test_the_sweep_runs_what_it_says_with_a_seed_of_its_own(monkeypatch):
    swept, used = configs_of(monkeypatch, "sweep"), configs_of(monkeypatch, "quick", seed=2)
    assert {config["seed"] for config in swept} == {9_999} and {config["seed"] for config in used} == {200, 201, 202}
    apart = ("seed", "model", "pretraining_rate", *(f"rates_{arm}" for arm in transfer.ARMS))
    assert len({tuple(v for k, v in c.items() if k not in apart) for c in (*swept, *used)}) == 1
    for config in swept:
        asked = {arm for arm in transfer.ARMS if config[f"rates_{arm}"]}
        assert asked == {arm for model, arm in transfer.CONFIGS["quick"].rates if model == config["model"]}
        assert {config[f"rates_{arm}"] for arm in asked} == {"0.3 1.0 3.0 10.0 30.0"}


def test_pretraining_takes_the_rates_that_were_best_for_the_world():
    rates = training_curves.tuned("world")
    assert transfer.CONFIGS["quick"].models == {model: rates[model][0] for model in (VIT, BIT)}


def test_where_the_runs_tried_nothing_the_stored_trials_are_given():
    trials, stored = transfer.trials(pd.DataFrame({"kind": ["evaluation"]})), stored_trials("transfer")
    assert (trials["seed"] == 9_999).all()
    pd.testing.assert_frame_equal(trials[stored.columns], stored)


def test_a_finished_study_is_read_not_run(folder, table, monkeypatch):
    monkeypatch.setattr(transfer, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    pd.testing.assert_frame_equal(transfer.transfer("smoke", seed=0, jobs=1, folder=folder), table)


def test_a_preset_that_cannot_run_is_refused():
    with pytest.raises(ValueError, match="'paper' is not run from here"):
        transfer.transfer("paper")


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
def test_the_families_cost_as_much_and_patches_fit_every_side(preset):
    config = transfer.CONFIGS[preset]
    cost = [multiply_adds(model, config.image_size) for model in config.models]
    assert max(cost) / min(cost) < 1.2
    patch = int(next(iter(config.models)).partition("/")[2])
    assert all(scale * config.image_size % patch == 0 for scale in transfer.ARMS.values())


def test_differences_pair_by_seed():
    rows = pd.DataFrame({"seed": [1, 0, 0, 1], "arm": ["2x", "1x", "2x", "1x"], "test_accuracy": [0.9, 0.5, 0.6, 0.4]})
    found = transfer.differences(rows, "arm", "2x", "1x")
    assert found.index.tolist() == [0, 1]
    np.testing.assert_allclose(found, [0.1, 0.5])


def test_summaries_are_students_over_the_seeds_and_a_single_seed_has_no_width():
    rows = pd.DataFrame({"model": list("aaab"), "arm": "1x", "test_accuracy": [0.5, 0.7, 0.9, 0.3]})
    first, second = transfer.summary(rows, ["model", "arm"]).to_dict("records")
    low, high = scipy.stats.t.interval(0.95, 2, 0.7, scipy.stats.sem([0.5, 0.7, 0.9]))
    assert (first["mean"], first["low"], first["high"], first["n"]) == pytest.approx((0.7, low, high, 3))
    assert second == {"model": "b", "arm": "1x", "mean": 0.3, "low": 0.3, "high": 0.3, "n": 1}
