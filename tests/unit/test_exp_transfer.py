"""Transfer: every fine-tuning starts where it says, and what is read from the rows is what was measured."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from PIL import Image

from vitlab.data.loader import ImageSet, to_float
from vitlab.data.world import World
from vitlab.experiments import frozen, training_curves, transfer, transfer_images, transfer_runs
from vitlab.experiments import transfer_tables as tables
from vitlab.experiments.trials import stored_trials
from vitlab.models.adapt import resize_positions
from vitlab.models.zoo import multiply_adds
from vitlab.sweep import runner
from vitlab.training import paper
from vitlab.training import splits as training

pytestmark = pytest.mark.slow

VIT, BIT = "Lab-Ti/8", "BiT-Lab-Ti/8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("transfer")


@pytest.fixture(scope="module")
def table(folder):
    return transfer.transfer("smoke", seed=0, jobs=1, folder=folder)


def test_fine_tunings_are_evaluated_after_every_epoch_and_larger_sides_at_the_end(table):
    rows, config = tables.evaluations(table), transfer.CONFIGS["smoke"]
    epochs = rows.groupby(["model", "seed", "arm"])["epoch"].agg(list)
    assert len(epochs) == len(config.models) * config.n_seeds * len(transfer_runs.ARMS)
    for (*_, arm), found in epochs.items():
        assert found == ([2] if arm in ("1.5x", "2x") else [0, 1, 2])
    starts = rows[rows["epoch"] == 0]
    # A head at zero says class 0 of every image.
    zeros = (transfer_images.target("digits", "test", 16, config.n_test).labels == 0).float().mean().item()
    np.testing.assert_allclose(starts["test_accuracy"], zeros, rtol=1e-6)
    sides = rows.groupby("arm")["image_size"].unique().map(list).to_dict()
    assert sides == {"1x": [16], "1.5x": [24], "2x": [32], "scratch": [16]}
    assert rows.groupby("arm")["source"].unique().map(list).to_dict() == {
        "1x": ["world"], "1.5x": ["world"], "2x": ["world"], "scratch": ["scratch"]
    }  # fmt: skip


def test_shares_are_of_the_last_evaluation(table):
    rows, last = tables.evaluations(table), tables.accuracies(table)
    assert (last["epoch"] == 2).all() and len(last) == 16
    np.testing.assert_allclose(last["share"], 1)
    one = rows[(rows["model"] == VIT) & (rows["seed"] == 1) & (rows["arm"] == "1x")]
    assert len(one) == 3
    np.testing.assert_allclose(one["share"], one["test_accuracy"] / one["test_accuracy"].iloc[-1])


def test_the_best_rate_of_the_held_out_images_is_used(table):
    tried = tables.trials(table)
    assert len(tried) == 2 * 2 * 2 and set(tried["arm"]) == {"1x"}  # the other arms have one rate: no choice
    best = tried.sort_values("learning_rate").groupby(["model", "seed"], sort=True)["held_out_accuracy"].idxmax()
    used = tables.accuracies(table).query("arm == '1x'").sort_values(["model", "seed"])["learning_rate"]
    assert tried.loc[best, "learning_rate"].tolist() == used.tolist()


def test_few_shots_and_probes_are_there_for_both_targets_and_both_weights(table):
    few, probes = tables.few_shots(table), tables.probes(table)
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
    config = transfer.planned_runs("smoke")[0] | {"seed": 7}
    sources = {}

    def finetune(source, images, recipe, rates, **config):
        sources[len(sources)] = (source, images, config)
        return real(source, images, recipe, rates[:1], **config)

    real = transfer_runs.finetune
    monkeypatch.setattr(transfer_runs, "finetune", finetune)
    transfer_runs.run_one(config)
    fresh = transfer_runs.zoo.create(VIT, n_classes=10, image_size=16, seed=7)
    (one, *_), (half, *_), (two, *_), (scratch, *_) = sources.values()
    assert one is half is two is not scratch
    state = scratch.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in fresh.state_dict().items())
    assert not torch.equal(one.state_dict()["blocks.0.attn.qkv.weight"], state["blocks.0.attn.qkv.weight"])
    for _, images, config in sources.values():  # nothing is learned from the images that report
        assert config["held_out"] == 0.1 and config["seed"] == 7
        test = transfer_images.target("digits", "test", images.images.shape[-1], 100)
        assert config["watch"] in (test, None)
        seen = {image.numpy().tobytes() for image in test.images}
        assert not seen & {image.numpy().tobytes() for image in images.images}


def test_a_target_has_the_same_images_at_every_size():
    for name in ("digits", "world"):
        small, large = (transfer_images.target(name, "train", size, 50) for size in (32, 64))
        assert torch.equal(small.labels, large.labels) and large.images.shape == (50, 3, 64, 64)
        shrunk = torch.nn.functional.avg_pool2d(large.images.float(), 2)
        close = np.corrcoef(shrunk.flatten(), small.images.float().flatten())[0, 1]
        assert close > 0.9, name


def test_the_near_target_is_another_world_with_test_images_of_its_own():
    near = transfer_images.target("world", "train", 16, 40)
    pretraining = training.world_splits(World(image_size=16), 40, 0, 40).train
    assert not torch.equal(near.images, pretraining.images)
    test = transfer_images.target("world", "test", 16, 40)
    assert not {i.numpy().tobytes() for i in near.images} & {i.numpy().tobytes() for i in test.images}


def test_the_recipe_is_table_4s_in_proportion_to_the_batch():
    recipe = transfer_runs.lab_recipe(n_train=100, batch_size=32, epochs=3, learning_rate=0.03)
    row = paper.TABLE_4[4]
    assert row.data == "Flowers-102" and transfer_runs.TABLE_4 is row
    assert recipe.learning_rate == pytest.approx(0.03 * 32 / 512)
    assert (recipe.steps, recipe.eval_every, recipe.batch_size) == (12, 4, 32)
    kept = ("optimizer", "momentum", "decay", "weight_decay", "grad_clip", "warmup_steps")
    assert all(getattr(recipe, name) == getattr(row.recipe(0.03), name) for name in kept)


def test_all_fine_tunings_had_the_same_trials_and_the_best_is_not_at_the_edge_of_the_grid():
    tried = stored_trials("transfer").groupby(["model", "source", "target", "arm"])
    for key, rows in tried:
        accuracy = rows.set_index("learning_rate")["held_out_accuracy"]
        (rate,) = transfer.CONFIGS["quick"].rates[key]
        assert tuple(accuracy.index) == transfer.CONFIGS["quick"].grid, key
        assert accuracy[rate] == accuracy.max() > 0.5
        assert accuracy.index.min() < rate < accuracy.index.max()
    assert {arm for model, *_, arm in tried.groups if model == VIT} == set(transfer_runs.ARMS)
    assert {"1x", "scratch"} <= {arm for model, *_, arm in tried.groups if model == BIT}


def test_at_full_both_families_are_fine_tuned_alike():
    arms = {}
    for config in transfer.planned_runs("full"):
        found = [each[:3] for each in transfer_runs.finetunings(config)]
        arms.setdefault((config["source"], config["seed"]), []).append((config["model"], found))
    assert len(arms) == 2 * transfer.CONFIGS["full"].n_seeds
    for (source, _), ((_, first), (_, second)) in arms.items():
        assert first == second
        sides = [64, 96, 128, 64] if source == "imagenette" else [64, 96, 128]
        assert [side for target, _, side in first if target == "imagenette"] == sides
    runs = transfer.planned_runs("full")
    assert {len(rates) for config in runs for *_, rates in transfer_runs.finetunings(config)} == {1}


class Asked(Exception):
    pass


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_sweep_tries_every_rate_in_the_recipe_that_is_used_with_seeds_of_its_own(preset, monkeypatch):
    swept = []

    def run_all(function, configs, folder, jobs):
        assert function is transfer_runs.try_rates
        swept.extend(configs)
        raise Asked

    with monkeypatch.context() as patched, pytest.raises(Asked):
        patched.setattr(runner, "run_all", run_all)
        transfer.sweep(preset)
    used, config = transfer.planned_runs(preset, seed=2), transfer.CONFIGS[preset]
    assert {each["seed"] for each in swept} == ({9_999} if preset == "quick" else {9_998, 9_999})
    assert {each["seed"] for each in used} == set(range(200, 200 + config.n_seeds))
    plain = [{k: v for k, v in each.items() if k != "seed" and not k.startswith("rates")} for each in (*swept, *used)]
    assert len({tuple(each.items()) for each in plain}) == len(config.models) * len(config.sources)
    for each in swept:
        (same, *_) = (one for one in used if (one["model"], one["source"]) == (each["model"], each["source"]))
        tried, chosen = transfer_runs.finetunings(each), transfer_runs.finetunings(same)
        assert [one[:3] for one in tried] == [one[:3] for one in chosen]
        assert all(tuple(rates) == config.grid for *_, rates in tried)


def test_a_trial_is_one_of_the_fine_tunings_own_trials(table):
    """`sweep` finds to the last digit what a run finds that chooses its own rate."""
    config = transfer.planned_runs("smoke")[0]
    rows = pd.DataFrame(transfer_runs.try_rates(config))
    inside = tables.trials(table).query("model == @VIT and seed == 0")
    found = rows[rows["arm"] == "1x"].set_index("rate")["held_out_accuracy"]
    assert found.to_dict() == inside.set_index("learning_rate")["held_out_accuracy"].to_dict()
    assert set(rows["arm"]) == set(transfer_runs.ARMS) and set(rows["kind"]) == {"trial"}


# Photographs, without photographs: the digits are a real set that is always there.
REAL = {"source": "digits", "targets": "digits", "n_train": 400, "n_test": 100}


def test_no_image_of_the_target_is_in_its_pretraining():
    config = transfer.planned_runs("smoke")[0] | REAL
    side, seen = config["image_size"], set()
    pretraining = transfer_images.source(config)
    for step in range(1 + (1_437 - 400) // config["batch_size"]):
        seen |= {image.numpy().tobytes() for image in pretraining.feed(step)[0]}
    assert len(seen) > 900  # all but a few scans that are the same
    for part, count in (("train", 400), ("test", 360)):
        images = to_float(transfer_images.target("digits", part, side, count).images)
        there = [image.numpy().tobytes() in seen for image in images]
        assert np.mean(there) < 0.01, part  # scans that are the same, bit by bit, are in the set itself
    numbers = {tuple(pretraining.test.images[i].flatten().tolist()) for i in range(100)}
    test = transfer_images.target("digits", "test", side, 100)
    assert numbers == {tuple(image.flatten().tolist()) for image in test.images}


def test_the_parts_of_a_set_are_disjoint_by_their_numbers(monkeypatch):
    whole = ImageSet(torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1).expand(-1, 3, 8, 8).contiguous(),
                     torch.arange(50) % 2, ("a", "b"))  # fmt: skip
    monkeypatch.setattr(transfer_images.datasets, "load", lambda name, split, image_size=None: whole)
    for function in (transfer_images.others, transfer_images.target, transfer_images._drawn):
        function.cache_clear()
    try:
        rest = transfer_images.others("imagenette", 20, 8).images[:, 0, 0, 0].tolist()
        drawn = transfer_images.target("imagenette", "train", 8, 20).images[:, 0, 0, 0].tolist()
    finally:
        for function in (transfer_images.others, transfer_images.target, transfer_images._drawn):
            function.cache_clear()
    assert len(drawn) == 20 and sorted(rest + drawn) == list(range(50))


def test_both_families_see_the_same_images_in_the_same_order():
    for source in ("world", "world-20", "digits"):
        settings = {"source": source, "n_source": 0, "n_train": 400, "n_test": 100}
        feeds = [transfer_images.source(transfer.planned_runs("smoke")[i] | settings).feed for i in (0, 1)]
        for step in (0, 3):
            (one, its_labels), (other, other_labels) = (feed(step) for feed in feeds)
            assert torch.equal(one, other) and torch.equal(its_labels, other_labels)
        next_seed = transfer_images.source(transfer.planned_runs("smoke")[2] | settings).feed
        assert not torch.equal(next_seed(0)[0], feeds[0](0)[0])


def test_a_larger_side_starts_from_the_pretrained_weights_with_resized_positions(monkeypatch):
    config = transfer.planned_runs("smoke")[0] | REAL | {"steps": 2, "epochs": 1}
    config |= {"rates digits 1x": "", "rates digits 2x": "", "rates digits scratch": "", "rates digits 1.5x": "0.0"}
    held = {}

    def finetune(start, *args, **kwargs):
        held["start"], held["done"] = start, real(start, *args, **kwargs)
        return held["done"]

    real = transfer_runs.finetune
    monkeypatch.setattr(transfer_runs, "finetune", finetune)
    rows = transfer_runs.run_one(config)
    assert [row["side"] for row in rows if row["kind"] == "evaluation"] == [24]
    start, done = held["start"].state_dict(), held["done"].model.state_dict()  # trained with a learning rate of 0
    for name, value in done.items():
        if not name.startswith(("head.", "pos_embed")):
            assert torch.equal(value, start[name]), name
    grid = resize_positions(start["pos_embed"][0, 1:], (2, 2), (3, 3))
    assert torch.allclose(done["pos_embed"][0, 1:], grid) and torch.equal(
        done["pos_embed"][0, 0], start["pos_embed"][0, 0]
    )


def test_equal_seeds_give_equal_rows():
    config = transfer.planned_runs("smoke")[0] | REAL | {"rates digits 1x": "1.0"}
    first, again = (pd.DataFrame(transfer_runs.run_one(config)).drop(columns="seconds") for _ in range(2))
    pd.testing.assert_frame_equal(first, again)


def test_a_set_that_is_stored_in_one_size_is_the_same_as_read_at_another(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    for part, kind, i in itertools.product(("train", "test"), "ab", range(6)):
        path = tmp_path / "cifar10" / part / kind / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    clear = (transfer_images.target, transfer_images._drawn, frozen.target)
    for function in clear:
        function.cache_clear()
    try:
        for side in (16, 32, 64):
            ours, read = (each("cifar10", "train", side, 8) for each in (transfer_images.target, frozen.target))
            assert torch.equal(ours.images, read.images) and torch.equal(ours.labels, read.labels)
    finally:
        for function in clear:
            function.cache_clear()


def test_pretraining_takes_the_rates_that_were_best_for_the_world():
    rates = training_curves.tuned("world")
    assert transfer.CONFIGS["quick"].sources == {"world": {model: rates[model][0] for model in (VIT, BIT)}}


def test_where_the_runs_tried_nothing_the_stored_trials_are_given():
    trials, stored = tables.trials(pd.DataFrame({"kind": ["evaluation"]})), stored_trials("transfer")
    assert (trials["seed"] == 9_999).all()
    pd.testing.assert_frame_equal(trials[stored.columns], stored)


def test_a_finished_study_is_read_not_run(folder, table, monkeypatch):
    monkeypatch.setattr(transfer_runs, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
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
    assert all(scale * config.image_size % patch == 0 for scale in transfer_runs.ARMS.values())


def test_differences_pair_by_seed():
    rows = pd.DataFrame({"seed": [1, 0, 0, 1], "arm": ["2x", "1x", "2x", "1x"], "test_accuracy": [0.9, 0.5, 0.6, 0.4]})
    found = tables.differences(rows, "arm", "2x", "1x")
    assert found.index.tolist() == [0, 1]
    np.testing.assert_allclose(found, [0.1, 0.5])


def test_summaries_are_students_over_the_seeds_and_a_single_seed_has_no_width():
    rows = pd.DataFrame({"model": list("aaab"), "arm": "1x", "test_accuracy": [0.5, 0.7, 0.9, 0.3]})
    first, second = tables.summary(rows, ["model", "arm"]).to_dict("records")
    low, high = scipy.stats.t.interval(0.95, 2, 0.7, scipy.stats.sem([0.5, 0.7, 0.9]))
    assert (first["mean"], first["low"], first["high"], first["n"]) == pytest.approx((0.7, low, high, 3))
    assert second == {"model": "b", "arm": "1x", "mean": 0.3, "low": 0.3, "high": 0.3, "n": 1}
