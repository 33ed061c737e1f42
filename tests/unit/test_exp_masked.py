"""How local heads come about, and what masked pre-training is worth: known answers, and the studies at smoke."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from vitlab.analysis import positions
from vitlab.analysis.distance import mean_attention_distance
from vitlab.data.loader import to_float
from vitlab.experiments import local_heads, local_rules, masked_pretraining, small_vits, watching
from vitlab.models.vit import ViT, ViTConfig
from vitlab.training import masked
from vitlab.training.guesses import colours_of, corrupted, filled, guesses
from vitlab.training.masked import KEPT, MaskedPrediction, MaskedViT, Target, colour_codes
from vitlab.training.objective import Classification
from vitlab.training.processes import Group

TINY = ViTConfig(image_size=16, patch_size=4, dim=8, depth=2, n_heads=2, mlp_dim=8, n_classes=3)


def pictures(n, side=16, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, 3, side, side), dtype=np.uint8))


# What is drawn


def test_a_code_s_colour_has_that_code():
    codes = torch.arange(512)
    squares = colours_of(codes)[:, :, None, None].expand(-1, -1, 4, 4)
    assert colour_codes(to_float(squares), side=4).flatten().tolist() == codes.tolist()


def test_corrupted_pictures_follow_the_plan_patch_by_patch():
    images, n = pictures(1), 16
    plan = torch.full((1, n), KEPT)
    plan[0, :4] = torch.tensor([n, 7, 2, KEPT])  # mask, another's, its own, kept
    shown = corrupted(images, plan)
    patch = {k: (slice(None), slice(None), slice(4 * (k // 4), 4 * (k // 4) + 4), slice(4 * (k % 4), 4 * (k % 4) + 4))
             for k in range(n)}  # fmt: skip
    assert (shown[patch[0]] == 128).all()
    assert torch.equal(shown[patch[1]], images[patch[7]])
    for same in range(2, n):
        assert torch.equal(shown[patch[same]], images[patch[same]])


def test_filled_puts_predictions_at_the_corrupted_patches_in_their_order():
    images, plan = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([[4, KEPT, KEPT, 0], [KEPT, 4, 2, KEPT]])
    said = torch.arange(1, 5, dtype=torch.uint8)[:, None, None, None].expand(4, 2, 2, 3)
    whole = filled(images, plan, said)
    assert [whole[0, 0, 0, 0], whole[0, 2, 7, 7], whole[1, 1, 3, 4], whole[1, 0, 4, 3]] == [1, 2, 3, 4]
    assert int((whole > 0).sum()) == 4 * 3 * 16
    with pytest.raises(ValueError, match="3 patches given for 4"):
        filled(images, plan, said[:3])


@pytest.mark.parametrize("target, side", [(Target.MEAN_COLOUR, 1), (Target.DOWNSIZED, 4), (Target.PIXELS, 8)])
def test_guesses_are_what_the_model_finds_most_probable(target, side):
    model = MaskedViT(ViT(dataclasses.replace(TINY, image_size=32, patch_size=8)), target)
    plan = masked.plans(2, 16, 0.5, np.random.default_rng(0))
    model.predict.bias.data[:] = -1.0  # of pixels: black
    if target is not Target.PIXELS:
        model.predict.bias.data.view(-1, 512)[:, 451] = 1.0  # red 7, green 0, blue 3
    said = guesses(model.train(), pictures(2, 32), plan)
    assert said.shape == (16, side, side, 3) and model.training
    wanted = [0, 0, 0] if target is Target.PIXELS else [240, 16, 112]
    assert (said == torch.tensor(wanted)).all()


# What is kept of every evaluation


def test_position_maps_come_back_to_a_byte():
    table = torch.randn(12 * 12, 5, generator=torch.Generator().manual_seed(0))
    similarity = positions.position_similarity(table, (12, 12))
    again = watching.position_map(watching.packed(similarity))
    np.testing.assert_allclose(again, similarity.numpy(), atol=0.5 / 127.5 + 1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", again), 1.0)


def test_a_watched_objective_trains_as_the_one_it_watches():
    images, labels = to_float(pictures(4)), torch.tensor([0, 1, 2, 0])
    vit = ViT(TINY)
    watched = watching.Watched(Classification(), n_images=2)
    assert watched.loss(vit, images, labels) == Classification().loss(vit, images, labels)


def test_a_look_is_the_analysis_functions_mean_over_the_first_images():
    model = MaskedViT(ViT(TINY, seed=3))
    for block in model.vit.blocks:
        block.attn.qkv.weight.data *= 10  # attention far from uniform
    shown = pictures(6)
    labelled = local_heads.ImageSet(shown, torch.zeros(6, dtype=torch.int64), ("a",))
    seen = watching.Watched(MaskedPrediction(patch_size=4), 4).evaluate(model.train(), labelled, "fp32", Group())
    expected = mean_attention_distance(model.vit.eval(), to_float(shown[:4])).mean(0)
    np.testing.assert_allclose(seen["heads"], expected.numpy(), atol=1e-3)
    assert seen["heads"][0][0] != seen["heads"][0][1]
    similarity = positions.position_similarity(positions.position_embeddings(model.vit), (4, 4))
    assert seen["nearness"] == pytest.approx(positions.distance_correlation(similarity))
    plan = watching.shown_plan(16, 0.5)
    again = watching.guessed(seen["guesses"], 16, 0.5)
    assert torch.equal(again, guesses(model, watching.most_varied(shown[:4]), plan))


# Local heads and their onset


@pytest.mark.parametrize(
    "local, expected",
    [
        ([0, 0, 0.25, 0.5], 200.0),
        ([0, 0.25, 0, 0.5], 300.0),  # the first one did not stay
        ([0, 0.25, 0.25, 0], None),  # none is left at the end
        ([0, 0, 0, 0], None),
        ([0.25, 0.25, 0.25, 0.25], 0.0),
    ],
)
def test_the_onset_is_the_first_evaluation_from_which_on_a_head_is_local(local, expected):
    views = pd.Series([0.0, 100.0, 200.0, 300.0])
    assert local_heads.onset(views, pd.Series(local)) == expected
    order = [2, 0, 3, 1]  # the order of the rows does not matter
    assert local_heads.onset(views[order], pd.Series(local)[order]) == expected


def test_uniform_attention_on_the_paper_s_grid():
    assert local_heads.uniform_px(224, 16) == pytest.approx(116.4922, abs=1e-3)
    assert local_heads.limit_px(224, 16) == pytest.approx(116.4922 / 2, abs=1e-3)


def made(distances, image_size=32, patch_size=4, seed=0, samples=0):
    run = {"objective": "masked", "data": "photographs", "n_train": 0, "target": "mean-colour", "share": 0.5}
    run |= {"image_size": image_size, "patch_size": patch_size, "seed": seed, "kind": "head", "samples": samples}
    return [
        run | {"block": 1.0, "head": float(h), "distance_px": px, "prefix_mass": 0.0}
        for h, px in enumerate(distances, 1)
    ]


def test_local_is_below_half_of_uniform_attention_on_each_run_s_own_grid():
    # uniform: 16.5 px of 32 with patches of 4, 33.1 px of 64 with patches of 8
    rows = made([8.0, 8.5, 16.0, 2.0]) + made([8.0, 8.5, 16.0, 2.0], 64, 8)
    shares = local_heads.local_share(pd.DataFrame(rows)).set_index("image_size")["local"]
    assert shares.to_dict() == {32: 0.5, 64: 1.0}


def test_onsets_of_runs_side_by_side():
    rows = [row for views, px in ((0, 16.0), (100, 16.0), (200, 5.0)) for row in made([px, 16.0], samples=views)]
    rows += [row for views in (0, 100, 200) for row in made([16.0, 15.0], samples=views, seed=1)]
    found = local_heads.onsets(pd.DataFrame(rows)).set_index("seed")
    assert found.loc[0, "onset"] == 200 and np.isnan(found.loc[1, "onset"])
    assert found["local"].tolist() == [0.5, 0.0] and found["views"].tolist() == [200, 200]


# The study at smoke


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("local_heads")


@pytest.fixture(scope="module")
def table(folder):
    return local_heads.local_heads("smoke", jobs=1, folder=folder)


@pytest.mark.slow
def test_every_head_has_a_row_at_every_evaluation_from_step_0_on(table):
    config = local_heads.CONFIGS["smoke"]
    rows = local_heads.heads(table)
    assert sorted(rows["samples"].unique()) == [0, 16, 32, 48]
    assert len(rows) == config.n_seeds * 4 * config.body.depth * config.body.n_heads
    assert rows["distance_px"].between(0, 12 * 2**0.5).all()
    evaluations = local_heads.evaluations(table)
    assert len(evaluations) == config.n_seeds * 4
    first = evaluations[evaluations["samples"] == 0]
    np.testing.assert_allclose(first["loss"], np.log(512), atol=1e-4)  # all colours are as likely
    assert first["train_loss"].isna().all() and evaluations["accuracy"].between(0, 1).all()
    assert watching.position_map(first["similarity"].iloc[0]).shape == (4, 4, 4, 4)


@pytest.mark.slow
def test_a_finished_study_is_read_not_run(folder, table, monkeypatch):
    monkeypatch.setattr(local_heads, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    pd.testing.assert_frame_equal(local_heads.local_heads("smoke", jobs=1, folder=folder), table)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["pixels", "downsized"])
def test_the_other_targets_are_other_runs(target, tmp_path):
    settings = {"target": target, "share": 0.25}
    rows = local_heads.evaluations(local_heads.local_heads("smoke", jobs=1, folder=tmp_path, **settings))
    side = 4
    said = watching.guessed(rows["guesses"].iloc[-1], 16, 0.25)
    assert said.shape == (3 * 4, side, side, 3)
    assert set(rows["target"]) == {target} and set(rows["share"]) == {0.25}


def test_what_cannot_be_is_refused_before_any_run():
    with pytest.raises(ValueError, match="share"):
        local_heads.planned_runs("smoke", share=0.0)
    with pytest.raises(ValueError, match="colours"):
        local_heads.planned_runs("smoke", target="colours")


def test_full_compares_objectives_on_the_same_photographs():
    runs = pd.DataFrame(local_heads.planned_runs("full", seed=1)).query("data == 'imagenette'")
    assert set(runs["seed"]) == set(range(100, 105))
    sizes = runs.groupby("objective")["n_train"].apply(lambda values: sorted(set(values)))
    assert sizes["labels"] == sizes["masked"] == [300, 1000, 3000, 9469]
    differ = {"objective", "learning_rate"}
    assert len(runs.drop(columns=[*differ]).drop_duplicates()) == len(runs) / 2


def test_each_seed_draws_photographs_of_its_own_and_all_are_tested_alike(monkeypatch):
    def load(data, split, image_size=None):
        n = {"train": 50, "test": 30}[split]
        side = image_size or 32
        pictures = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 3, side, side)
        return local_heads.ImageSet(pictures, torch.zeros(n, dtype=torch.int64), ("a",))

    monkeypatch.setattr(local_heads.datasets, "load", load)
    small_vits.whole.cache_clear()
    run = next(run for run in local_heads.planned_runs("full") if run["n_train"] == 300)
    seen, tested = [], []
    for seed, n_train in ((0, 5), (1, 5), (0, 300)):
        feed, test = local_heads._images(run | {"seed": seed, "n_train": n_train, "n_test": 7})
        levels = [feed(step)[0].mean((1, 2, 3)) for step in range(8)]
        seen.append({round((1 + level) * 127.5) for level in torch.cat(levels).tolist()})
        tested.append(test.images[:, 0, 0, 0].tolist())
        assert test.images.shape == (7, 3, 80, 80) and feed(0)[0].shape == (16, 3, 80, 80)
    small_vits.whole.cache_clear()
    assert [len(each) for each in seen] == [5, 5, 50] and seen[0] != seen[1]
    assert tested[0] == tested[1] == tested[2]


# What masked pre-training is worth


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    return masked_pretraining.masked_pretraining("smoke", jobs=1, folder=tmp_path_factory.mktemp("masked_pretraining"))


@pytest.mark.slow
def test_every_arm_is_fine_tuned_alike_with_every_seed(pretraining):
    config = masked_pretraining.CONFIGS["smoke"]
    curves = masked_pretraining.curves(pretraining)
    assert set(curves["arm"]) == set(config.arms) >= {"scratch", "masked, mean-colour", "masked, pixels", "world"}
    assert curves.groupby(["arm", "seed"])["samples"].apply(list).map(tuple).unique().tolist() == [(0, 32, 64)]
    finals = masked_pretraining.accuracies(pretraining)
    assert len(finals) == 2 * len(config.arms) and finals["test_accuracy"].between(0, 1).all()
    trials = pretraining[pretraining["kind"] == "trial"]
    assert trials.groupby(["arm", "seed"]).size().eq(len(config.rates)).all()
    best = trials.sort_values("rate").groupby(["arm", "seed"])["held_out_accuracy"].idxmax()
    chosen = trials.loc[best].set_index(["arm", "seed"])["rate"]
    pd.testing.assert_series_equal(
        finals.set_index(["arm", "seed"])["rate"].sort_index(), chosen.sort_index(), check_names=False
    )


@pytest.mark.slow
def test_pre_trained_arms_have_a_pre_training_and_scratch_has_none(pretraining):
    rows = pretraining[pretraining["kind"] == "pre-training"]
    assert "scratch" not in set(rows["arm"]) and rows.groupby("arm").size().eq(2).all()
    assert rows["samples"].eq(32).all() and np.isfinite(rows["train_loss"]).all()


def test_at_full_all_pre_trainings_see_as_many_images_and_the_fine_tuning_is_one():
    runs = pd.DataFrame(masked_pretraining.planned_runs("full", seed=2))
    assert set(runs["seed"]) == set(range(200, 205))
    pretrained = runs[runs["arm"] != "scratch"]
    assert (pretrained["steps"] * pretrained["batch_size"]).nunique() == 1
    own = ["arm", "seed", "objective", "data", "target", "steps", "batch_size", "learning_rate"]
    assert len(runs.drop(columns=own).drop_duplicates()) == 1
    assert set(runs["target"]) == {"", *(target.value for target in Target)}


def test_for_every_supervised_arm_there_is_a_masked_one_on_the_same_images():
    arms = masked_pretraining.CONFIGS["full"].arms
    supervised = {name: arm for name, arm in arms.items() if arm.objective == "labels"}
    assert set(supervised) == {"world", masked_pretraining.SUPERVISED}
    for name, arm in supervised.items():
        masks = arms[masked_pretraining.masked_on(name)]
        assert (masks.data, masks.target) == (arm.data, "mean-colour")
        assert masks.steps * masks.batch_size == arm.steps * arm.batch_size


def test_the_arms_of_a_seed_begin_with_the_same_weights():
    runs = [run for run in masked_pretraining.planned_runs("smoke") if run["seed"] == 1]
    scratch = next(run for run in runs if run["arm"] == "scratch") | {"objective": "none"}
    _, fresh = masked_pretraining._pretrained(scratch)
    _, again = masked_pretraining._pretrained(scratch | {"arm": "world"})
    for (name, a), b in zip(fresh.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    masks = next(run for run in runs if run["arm"] == "masked, pixels") | {"learning_rate": 0.0}
    _, masked_one = masked_pretraining._pretrained(masks)
    for name, value in masked_one.state_dict().items():
        if not name.startswith("head"):
            assert torch.equal(value, fresh.state_dict()[name]), name


def test_differences_are_paired_by_seed_and_in_points():
    rows = [("masked", 0, 0.5), ("masked", 1, 0.7), ("scratch", 1, 0.6), ("scratch", 0, 0.25)]
    finals = pd.DataFrame(rows, columns=["arm", "seed", "test_accuracy"])
    assert masked_pretraining.differences(finals, "masked", "scratch").round(6).to_dict() == {0: 25.0, 1: 10.0}


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(masked_pretraining.datasets, "present", lambda name: name == "digits")
    assert set(masked_pretraining.missing("full")) == {"imagenette", "cifar10"}
    assert masked_pretraining.missing("smoke") == ()


def test_arms_without_their_images_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(masked_pretraining.datasets, "present", lambda name: name != "cifar10")
    monkeypatch.setattr(masked_pretraining.runner, "run_all", lambda function, runs, *_: pd.DataFrame(runs))
    asked = masked_pretraining.masked_pretraining("full", folder=tmp_path)
    assert set(asked["arm"]) == set(masked_pretraining.CONFIGS["full"].arms) - {"cifar10", "masked on cifar10"}
    assert set(asked["finetuned_on"]) == {"imagenette"}


# L01 and L02: which trainings make heads local


def shares_of(**locals_by_arm):
    rows = [
        {"objective": arm.partition("_")[0], "n_train": int(arm.partition("_")[2]), "seed": seed, "local": local}
        for arm, values in locals_by_arm.items()
        for seed, local in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_the_share_is_of_the_lower_blocks_at_the_end_of_trainings_on_photographs(table):
    onto = table.assign(data="imagenette", n_train=300)
    rows = local_heads.heads(onto)
    last = rows[(rows["samples"] == rows["samples"].max()) & (rows["block"] == 1)]  # the lower of two blocks
    by_hand = last.groupby("seed")["local"].agg(lambda each: sum(each) / len(each))
    shares = local_rules.low_shares(pd.concat([table, onto]))
    assert shares.set_index("seed")["local"].to_dict() == by_hand.to_dict()
    assert set(shares["n_train"]) == {300}
    assert local_rules.low_shares(table).empty  # crops of three photographs are not counted


def test_few_labels_make_no_local_heads_where_five_seeds_have_none():
    none, some = [0.0] * 5, [0.5, 0.5, 0.375, 0.5, 0.5]
    thousands = {"none": none, "some": some, "one seed": none[:1], "one head": [0.125, 0, 0, 0, 0]}
    ruled = {n: local_rules.labels_rule(shares_of(labels_300=none, labels_1000=rows)) for n, rows in thousands.items()}
    verdicts = {name: str(ruling.verdict) for name, (ruling, _) in ruled.items()}
    undecided = "inconclusive"
    assert verdicts == {"none": "reproduced", "some": "not reproduced", "one seed": undecided, "one head": undecided}
    assert ruled["some"][1]["local heads in the lower blocks, labels of 1,000 photographs"].value == pytest.approx(47.5)
    assert local_rules.labels_rule(shares_of(labels_300=none)) is None  # the thousand is missing


def test_masked_prediction_is_compared_with_labels_on_equal_photographs_by_seed():
    none, some = [0.0] * 5, [0.5, 0.375, 0.5, 0.5, 0.5]
    ruling, numbers = local_rules.masked_rule(
        shares_of(masked_300=none, labels_300=none, masked_1000=some, labels_1000=none, masked_3000=some)
    )
    assert str(ruling) == "partly reproduced (300 photographs fails, 1,000 photographs holds)"
    assert numbers["masked − labels, 1,000 photographs"].value == pytest.approx(47.5)
    assert list(numbers) == ["masked − labels, 300 photographs", "masked − labels, 1,000 photographs"]
    assert local_rules.masked_rule(shares_of(labels_300=none)) is None
