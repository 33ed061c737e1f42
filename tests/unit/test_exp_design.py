"""The studies of design choices: rules by hand, known answers of their tables, plans, and all five at smoke."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from vitlab.experiments import (
    axial_attention,
    design_rules,
    design_runs,
    head_rates,
    longer_positions,
    more_positions,
    position_variants,
    resnet_optimizers,
    vit_shapes,
)
from vitlab.experiments.design_runs import Task, Training
from vitlab.ledger.estimate import Estimate
from vitlab.ledger.published import published_runs
from vitlab.ledger.verdicts import Verdict
from vitlab.models import variants, zoo
from vitlab.models.zoo import forward_flops
from vitlab.sweep import results, runner

STUDIES = (position_variants, head_rates, resnet_optimizers, vit_shapes, axial_attention)
each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda module: module.__name__.rpartition(".")[2])


def name_of(study):
    return study.__name__.rpartition(".")[2]


def of(low, high, n=5):
    return Estimate((low + high) / 2, low, high, n, "points")


# ---- rules, by hand ----

LEAD, NO_LEAD, NONE, GAP, WIDE = of(10, 20), of(-3, 0.5), of(-1.5, 1.9), of(3, 6), of(-4, 5)


@pytest.mark.parametrize(
    "over_none, kind, place, verdict",
    [
        (LEAD, NONE, NONE, Verdict.REPRODUCED),
        (LEAD, GAP, NONE, Verdict.PARTLY),
        (LEAD, NONE, GAP, Verdict.PARTLY),
        (LEAD, GAP, WIDE, Verdict.PARTLY),  # whatever the places say
        (LEAD, WIDE, NONE, Verdict.INCONCLUSIVE),
        (LEAD, NONE, None, Verdict.INCONCLUSIVE),  # the places were not run
        (NO_LEAD, NONE, NONE, Verdict.NOT),  # without it the rest says nothing
        (of(-0.5, 20), NONE, NONE, Verdict.INCONCLUSIVE),
        (of(10, 20, n=4), NONE, NONE, Verdict.INCONCLUSIVE),  # fewer than five seeds
        (None, NONE, NONE, Verdict.INCONCLUSIVE),
    ],
)
def test_positions_rule_by_hand(over_none, kind, place, verdict):
    ruling = design_rules.positions_rule({"contour": over_none}, {"2-D": kind}, {"shared": place})
    assert ruling.verdict == verdict


def test_positions_rule_asks_every_task_and_every_cell():
    many = {"contour": LEAD, "cifar10": LEAD}
    assert design_rules.positions_rule(many, {"a": NONE, "b": NONE}, {"c": NONE}).verdict == Verdict.REPRODUCED
    assert design_rules.positions_rule(many, {"a": NONE, "b": GAP}, {"c": NONE}).verdict == Verdict.PARTLY
    one_behind = many | {"cifar10": NO_LEAD}
    assert design_rules.positions_rule(one_behind, {"a": NONE}, {"c": NONE}).verdict == Verdict.NOT
    assert design_rules.positions_rule(many, {"a": NONE}, {}).verdict == Verdict.INCONCLUSIVE  # no cell at all


@pytest.mark.parametrize(
    "difference, verdict",
    [
        (of(-1.9, 1.9), Verdict.REPRODUCED),
        (of(0.5, 1.9), Verdict.REPRODUCED),  # a difference that is there, and too small to matter
        (of(-2.1, 1.9), Verdict.INCONCLUSIVE),
        (of(2.0, 4.0), Verdict.NOT),
        (of(-4.0, -2.5), Verdict.NOT),
        (of(-0.1, 0.1, n=3), Verdict.INCONCLUSIVE),
        (None, Verdict.INCONCLUSIVE),
    ],
)
def test_heads_rule_by_hand(difference, verdict):
    assert design_rules.heads_rule(difference).verdict == verdict


@pytest.mark.parametrize(
    "small, large, verdict",
    [
        (of(-0.9, 3.0), of(0.5, 1.5), Verdict.REPRODUCED),
        (of(-1.1, 3.0), of(0.5, 1.5), Verdict.INCONCLUSIVE),
        (of(-5.0, -2.0), of(0.5, 1.5), Verdict.PARTLY),
        (of(-5.0, -2.0), of(-3.0, -1.0), Verdict.NOT),
        (of(-5.0, -2.0), None, Verdict.INCONCLUSIVE),
    ],
)
def test_optimizers_rule_by_hand(small, large, verdict):
    assert design_rules.optimizers_rule({"small": small, "large": large}).verdict == verdict


@pytest.mark.parametrize(
    "depth, width, patch, verdict",
    [
        (of(1, 3), of(-3, -1), of(1, 3), Verdict.REPRODUCED),
        (of(-3, -1), of(-3, -1), of(1, 3), Verdict.PARTLY),
        (of(-3, -1), of(1, 3), of(-3, -1), Verdict.NOT),
        (of(-1, 3), of(-3, -1), of(1, 3), Verdict.INCONCLUSIVE),
        (None, of(1, 3), of(-3, -1), Verdict.INCONCLUSIVE),
    ],
)
def test_shapes_rule_by_hand(depth, width, patch, verdict):
    ruling = design_rules.shapes_rule({"width": of(1, 3), "MLP": depth}, {"depth": of(-2, -1), "MLP": width}, patch)
    assert ruling.verdict == verdict


@pytest.mark.parametrize(
    "gain, ratio, verdict",
    [
        (of(1, 5), 1.5, Verdict.REPRODUCED),
        (of(1, 5), 0.9, Verdict.PARTLY),
        (of(-5, -1), 1.5, Verdict.PARTLY),
        (of(-5, 0.9), 0.9, Verdict.NOT),  # a lead below the margin is none
        (of(-5, 5), 1.5, Verdict.INCONCLUSIVE),
        (None, 1.5, Verdict.INCONCLUSIVE),
        (of(1, 5), None, Verdict.INCONCLUSIVE),
    ],
)
def test_axial_rule_by_hand(gain, ratio, verdict):
    assert design_rules.axial_rule(gain, ratio).verdict == verdict


# ---- the paper's numbers ----


def test_table_8_is_the_paper_s():
    cells = position_variants.TABLE_8
    assert len(cells) == 8 and min(cells, key=cells.get) == "none"
    rest = [value for arm, value in cells.items() if arm != "none"]
    assert max(rest) - min(rest) == pytest.approx(0.00328) and cells["1-D, stem"] - cells["none"] == pytest.approx(
        0.02824
    )


def test_table_7_has_the_averages_that_the_paper_prints():
    table = pd.Series(resnet_optimizers.TABLE_7)
    for model, printed in {"R50": (89.33, 88.79), "R152x2": (94.01, 93.72)}.items():
        means = 100 * np.mean([list(pair) for (name, _), pair in table.items() if name == model], axis=0)
        np.testing.assert_allclose(means, printed, atol=0.01)


# ---- what is shared ----


def runs_of(accuracies, n_test=1_000, task="contour"):
    """Rows from arm → accuracy of each seed."""
    about = {"task": task, "n_test": n_test, "n_classes": 10, "learning_rate": 0.1}
    return pd.DataFrame(
        about | {"arm": arm, "seed": seed, "test_accuracy": value, "validation_accuracy": value}
        for arm, values in accuracies.items()
        for seed, value in enumerate(values)
    )


def test_differences_are_paired_by_seed():
    found = design_runs.difference(runs_of({"a": [0.5, 0.7], "b": [0.4, 0.6], "c": [0.0, 1.0]}), "a", "b")
    assert found.value == pytest.approx(10) and found.low == pytest.approx(10) and found.n == 2
    shuffled = runs_of({"a": [0.5, 0.7], "b": [0.6, 0.4]})
    assert design_runs.difference(shuffled, "a", "b").half_width > 100


def test_seeds_that_only_one_arm_has_do_not_count_and_an_arm_that_is_not_there_gives_nothing():
    runs = runs_of({"a": [0.5, 0.7, 0.9], "b": [0.4, 0.6]})
    assert design_runs.difference(runs, "a", "b").n == 2
    assert design_runs.difference(runs, "a", "c") is None


def test_a_seed_that_never_started_leaves_no_interval():
    found = design_runs.difference(runs_of({"a": [0.7, 0.1, 0.72], "b": [0.4, 0.41, 0.42]}), "a", "b")
    assert found.failed == 1 and found.interval is None
    assert design_runs.difference(runs_of({"a": [0.7] * 3, "b": [0.1] * 3}), "a", "b").failed == 0  # none is at chance


def test_every_arm_takes_its_own_best_rate_by_validation_less_its_spread_and_reports_the_test():
    rows = []
    for arm, scores in {"a": {1: (0.6, 0.6), 2: (0.9, 0.4)}, "b": {1: (0.5, 0.5), 2: (0.6, 0.6)}}.items():
        rows += [
            {"task": "t", "arm": arm, "learning_rate": rate, "seed": seed, "validation_accuracy": value}
            | {"test_accuracy": 1 - value}
            for rate, values in scores.items()
            for seed, value in enumerate(values)
        ]
    runs = design_runs.chosen(pd.DataFrame(rows))
    assert runs.groupby("arm")["learning_rate"].unique().map(list).to_dict() == {"a": [1], "b": [2]}
    assert runs[runs["arm"] == "a"]["test_accuracy"].tolist() == [0.4, 0.4]


def test_a_summary_is_student_s_interval():
    found = design_runs.summary(runs_of({"a": [0.5, 0.6, 0.7], "b": [0.3]}), ["arm"]).set_index("arm")
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.loc["a", ["low", "high"]].tolist() == pytest.approx([0.6 - half, 0.6 + half])
    assert found.loc["b", ["mean", "low", "high"]].tolist() == [0.3] * 3


def test_the_model_of_a_run_has_its_options_and_the_zoo_s_weights():
    run = {"model": "Lab-Mu/8", "n_classes": 10, "image_size": 32, "seed": 3}
    plain, theirs = design_runs.model_of(run).state_dict(), zoo.create("Lab-Mu/8", seed=3).state_dict()
    assert plain.keys() == theirs.keys() and all(torch.equal(plain[key], theirs[key]) for key in plain)
    assert isinstance(design_runs.model_of(run | {"positions": "2d", "placed": "shared"}), variants.Variant)
    deep = design_runs.model_of(run | {"depth": 3, "dim": 48, "n_heads": 4, "mlp_dim": 40})
    assert len(deep.blocks) == 3 and deep.blocks[0].mlp.fc1.weight.shape == (40, 48)
    assert type(design_runs.model_of(run | {"model": "BiT-Lab-Mu/8"})).__name__ == "BiT"


def test_images_of_a_run_depend_on_its_seed_alone():
    training = Training(steps=9, batch_size=4, n_train=20, n_validation=5, n_test=7, image_size=16)
    first, again, other = (
        design_runs.splits_of(design_runs.planned(training, Task("contour"), arm, "Lab-Mu/4", rate, seed))
        for arm, rate, seed in (("a", 1e-3, 0), ("b", 1e-2, 0), ("a", 1e-3, 1))
    )
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.train.images, other.train.images)
    assert torch.equal(first.test.images, other.test.images)  # of the world: the same for all


def test_a_real_set_s_validation_images_are_not_trained_on():
    training = Training(steps=9, batch_size=4, n_train=1_400, n_validation=50, n_test=40, image_size=8)
    config = design_runs.planned(training, Task("digits"), "a", "Lab-Mu/4", 1e-3, 0)
    splits = design_runs.splits_of(config)
    seen, apart = ({image.numpy().tobytes() for image in part.images} for part in (splits.train, splits.validation))
    assert len(splits.train) == 1_400 and len(splits.validation) == 37 and len(splits.test) == 40  # of 1,437
    assert config["n_classes"] == 10 and not seen & apart
    with pytest.raises(ValueError, match="n_train=1,437: expected fewer, for digits has 1,437 images"):
        design_runs.splits_of(config | {"n_train": 1_437})


# ---- the studies' plans ----


@each_study
def test_arms_that_are_compared_are_tried_alike(study):
    table = pd.DataFrame(study.planned_runs("full", seed=2))
    # Heads are compared within a length, optimisers within a model.
    compared = ["task", *{head_rates: ["steps"], resnet_optimizers: ["model"]}.get(study, [])]
    counts = table.groupby([*compared, "arm"]).agg(rates=("learning_rate", "nunique"), seeds=("seed", "nunique"))
    assert (counts.groupby(level=compared).nunique() == 1).all(axis=None)
    assert counts["seeds"].min() >= 5 and counts["rates"].min() >= 2
    assert set(table["seed"]) == set(range(200, 200 + counts["seeds"].max()))
    alike = table.assign(length=table["steps"]).groupby(compared)
    assert alike[["length", "batch_size", "n_train", "image_size"]].nunique().eq(1).all(axis=None)
    assert not table.duplicated().any()


@each_study
def test_quick_is_for_what_is_live(study):
    assert ("quick" in study.CONFIGS) is (study is position_variants)
    if study is not position_variants:
        with pytest.raises(ValueError, match="no preset 'quick'"):
            study.planned_runs("quick")


@pytest.mark.parametrize("preset", longer_positions.CONFIGS)
def test_longer_trainings_are_those_of_position_variants_but_for_their_steps(preset):
    shorter = [run for run in position_variants.planned_runs(preset) if run["task"] != "cifar10"]
    runs = longer_positions.planned_runs(preset)
    assert [run | {"steps": run["steps"] // 4} for run in runs] == shorter
    assert {run["steps"] for run in runs} == {4 * position_variants.CONFIGS[preset].training.steps}


def test_without_published_runs_on_photographs_the_world_alone_is_judged():
    longer = pd.DataFrame({"task": ["contour", "cifar10", "arrangement"], "steps": 1_600})
    assert longer_positions.judged(longer, pd.DataFrame())["task"].tolist() == ["contour", "arrangement"]


@pytest.fixture
def real_sets_here(monkeypatch):
    """Plans as where CIFAR-10 is there."""
    monkeypatch.setattr(design_runs.datasets, "present", lambda name: True)


def test_a_run_of_more_positions_differs_from_one_that_the_first_draw_has_chosen_in_its_seed(real_sets_here):
    longer, shorter = (published_runs(study)[0] for study in ("longer_positions", "position_variants"))
    judged = design_runs.chosen(longer_positions.judged(longer, shorter))
    settings = ["task", "arm", "learning_rate", "steps"]
    compared = judged[judged["arm"].isin((position_variants.NONE, position_variants.BASE))]
    runs = pd.DataFrame(more_positions.planned_runs("full"))
    assert set(map(tuple, runs[settings].values)) == set(map(tuple, compared[settings].values))
    drawn = [*longer_positions.planned_runs("full"), *position_variants.planned_runs("full")]
    there = [results.unseeded(run) | {"keeps_map": False} for run in drawn]
    assert all(results.unseeded(run) in there for run in more_positions.planned_runs("full"))


def test_more_positions_pairs_two_arms_by_seeds_that_no_draw_has(real_sets_here):
    seeds = pd.DataFrame(more_positions.planned_runs("full")).groupby(["task", "arm"])["seed"].agg(set)
    for task, n in more_positions.CONFIGS["full"].n_seeds.items():
        assert seeds[task, position_variants.NONE] == seeds[task, position_variants.BASE] == set(range(200, 200 + n))
    drawn = {run["seed"] for draw in (0, 1) for run in longer_positions.planned_runs("full", draw)}
    assert not drawn & set.union(*seeds)
    again = {run["seed"] for run in more_positions.planned_runs("full", seed=1)}
    assert not again & set.union(*seeds)


def test_more_positions_at_smoke(tmp_path):
    rows = more_positions.more_positions("smoke", jobs=1, folder=tmp_path)
    assert rows.groupby("arm")["seed"].agg(list).to_dict() == {"1-D, stem": [200, 201], "none": [200, 201]}
    assert rows["map"].isna().all()


def test_a_task_without_its_images_is_left_out(monkeypatch):
    monkeypatch.setattr(design_runs.datasets, "present", lambda name: False)
    assert {run["task"] for run in position_variants.planned_runs("full")} == {"arrangement", "contour"}
    monkeypatch.setattr(design_runs.datasets, "present", lambda name: True)
    assert {run["task"] for run in position_variants.planned_runs("full")} == {"arrangement", "contour", "cifar10"}


def test_the_cells_of_table_8_are_options_of_the_zoo():
    options = [position_variants.options_of(arm) for arm in position_variants.TABLE_8]
    assert len({tuple(each.items()) for each in options}) == 8
    for each in options:
        config = variants.VariantConfig(16, 4, 8, 1, 2, 8, **each)
        assert (config.positions, config.placed) == tuple(each.values())


@pytest.mark.parametrize("preset", ["smoke", "full"])
def test_shapes_differ_from_the_base_in_one_dimension(preset):
    shapes = vit_shapes.CONFIGS[preset].shapes
    (base,) = shapes[vit_shapes.BASE]
    varied = {"depth": {"depth"}, "width": {"dim"}, "MLP width": {"mlp_dim"}, "patch size": {"patch_size"}}
    assert set(shapes) == {vit_shapes.BASE, *vit_shapes.DIMENSIONS} == {vit_shapes.BASE, "all", *varied}
    for dimension, names in varied.items():
        for shape in shapes[dimension]:
            assert {name for name, value in vars(shape).items() if value != vars(base)[name]} == names
    for shape in shapes["all"]:
        assert shape.depth > base.depth and shape.dim > base.dim and shape.mlp_dim == 2 * shape.dim


def test_every_dimension_is_scaled_to_about_four_times_the_flops():
    runs = pd.DataFrame(vit_shapes.planned_runs("full")).drop_duplicates("arm").to_dict("records")
    images = torch.zeros(1, 3, 32, 32)
    flops = {(run["dimension"], run["arm"]): forward_flops(design_runs.model_of(run), images) for run in runs}
    (base,) = [value for (dimension, _), value in flops.items() if dimension == "base"]
    for wanted in vit_shapes.DIMENSIONS:
        largest = max(value for (dimension, _), value in flops.items() if dimension == wanted)
        assert 3.2 < largest / base < 4.2, wanted


def test_axial_arms_are_of_equal_parameters_and_equal_flops():
    config = axial_attention.CONFIGS["full"]
    base = {"model": config.model, "n_classes": 10, "image_size": 32, "seed": 0}
    models = {arm: design_runs.model_of(base | axial_attention.options_of(arm, config.depths)) for arm in config.depths}
    parameters = {arm: sum(p.numel() for p in model.parameters()) for arm, model in models.items()}
    flops = {arm: forward_flops(model, torch.zeros(1, 3, 32, 32)) for arm, model in models.items()}
    assert parameters[axial_attention.AXIAL] == parameters[axial_attention.PARAMETERS]
    assert flops[axial_attention.AXIAL] == pytest.approx(flops[axial_attention.FLOPS], rel=0.06)
    assert flops[axial_attention.AXIAL] > 1.3 * flops[axial_attention.PLAIN]


# ---- known answers of the studies' tables ----


def test_maps_come_back_to_a_byte_also_where_they_are_not_symmetric():
    similarity = torch.rand(3, 3, 3, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    np.testing.assert_allclose(position_variants.unpacked(position_variants.packed(similarity)), similarity, atol=0.004)


def test_the_map_of_relative_embeddings_is_of_offsets():
    model = zoo.create("Lab-Mu/8", positions="relative")
    table = next(each for name, each in model.named_parameters() if "offsets" in name)
    with torch.no_grad():  # row 15 - o is that of offset o = p_q - p_k; only offsets 1 and -1 are like offset 0
        table.zero_()
        table[:, 0] = 1.0
        table[[14, 15, 16]] = torch.eye(table.shape[1])[1]
    found = position_variants.similarity(model).reshape(16, 16)
    expected = torch.eye(16) + torch.eye(16).roll(1, 0).tril() + torch.eye(16).roll(-1, 0).triu()
    assert torch.allclose(found, expected)


def test_maps_of_every_kind_have_a_one_at_the_patch_itself():
    for arm in position_variants.TABLE_8:
        model = zoo.create("Lab-Mu/8", **position_variants.options_of(arm))
        found = position_variants.similarity(model)
        if arm == "none":
            assert found is None
        else:
            assert torch.allclose(torch.einsum("ijij->ij", found), torch.ones(4, 4), atol=1e-5)


def test_slopes_of_lines_that_are_known():
    rows = []
    for seed, base in enumerate((0.5, 0.4)):
        points = [("base", 1e6, base), ("depth", 2e6, base + 0.03), ("depth", 4e6, base + 0.06), ("width", 4e6, base)]
        rows += [
            {"dimension": name, "seed": seed, "flops": flops, "test_accuracy": value} for name, flops, value in points
        ]
    found = vit_shapes.slopes(pd.DataFrame(rows))
    assert found.set_index(["dimension", "seed"])["slope"].round(9).to_dict() == {
        ("depth", 0): 3.0, ("depth", 1): 3.0, ("width", 0): 0.0, ("width", 1): 0.0,
    }  # fmt: skip
    assert vit_shapes.slope_of(found, "depth", "width").value == pytest.approx(3.0)
    assert vit_shapes.slope_of(found, "depth").n == 2 and vit_shapes.slope_of(found, "depth", "all") is None


def test_averages_are_over_the_targets_of_a_run():
    run = {"task": "t", "model": "m", "arm": "a", "learning_rate": 0.1, "validation_accuracy": 0.5}
    rows = [
        run | {"seed": seed, "target": target, "fine_tuned": value}
        for seed, values in enumerate(((0.2, 0.4), (0.6, 0.9)))
        for target, value in zip(("x", "y"), values, strict=True)
    ]
    found = resnet_optimizers.averages(pd.DataFrame(rows))
    assert found["fine_tuned"].round(9).tolist() == [0.3, 0.75] and found["seed"].tolist() == [0, 1]
    assert found["validation_accuracy"].tolist() == [0.5, 0.5]


def test_the_unfair_comparison_takes_the_other_s_rate():
    runs = runs_of({"a": [0.5], "b": [0.6]})
    both = pd.concat([runs, runs.assign(learning_rate=0.2, validation_accuracy=[0.7, 0.1])])
    assert head_rates.at_other_rate(both, "a", "b")["learning_rate"].unique().tolist() == [0.1]
    assert head_rates.at_other_rate(both, "b", "a")["learning_rate"].unique().tolist() == [0.2]


def test_heads_are_compared_within_each_length_of_training():
    """By hand: after 9 steps 90 − 70 % and 80 − 60 %, each head at its own rate; after 2 steps none is ahead."""
    short = runs_of({"class token": [0.2, 0.3], "GAP": [0.2, 0.3]}).assign(steps=2)
    token = runs_of({"class token": [0.9, 0.8]}).assign(steps=9, learning_rate=0.4)
    pooled = runs_of({"GAP": [0.7, 0.6]}).assign(steps=9)
    worse = pooled.assign(learning_rate=0.4, validation_accuracy=0.0, test_accuracy=1.0)  # not chosen
    found = head_rates.leads(pd.concat([worse, token, pooled, short]))
    assert {steps: round(lead.value, 6) for steps, lead in found.items()} == {2: 0.0, 9: 20.0}
    assert found[9].n == 2 and list(found) == [2, 9]
    assert head_rates.leads(pooled) == {}  # one head alone


def test_both_heads_are_tried_at_the_same_rates_in_every_length():
    planned = pd.DataFrame(head_rates.planned_runs("full"))
    tried = planned.groupby(["steps", "arm"])["learning_rate"].agg(lambda rates: tuple(sorted(set(rates))))
    lengths = planned["steps"].unique()
    assert len(lengths) > 1
    for steps in lengths:
        assert tried[steps].nunique() == 1 and set(tried[steps].index) == set(head_rates.HEADS)


def test_both_optimizers_are_tried_at_equally_many_rates_for_each_resnet():
    planned = pd.DataFrame(resnet_optimizers.planned_runs("full"))
    tried = planned.groupby(["model", "optimizer"])["learning_rate"].nunique().unstack()
    assert len(tried) == 2 and set(tried) == {"adam", "sgd"} and (tried["adam"] == tried["sgd"]).all()
    seeds = planned.groupby(["model", "optimizer", "learning_rate"])["seed"].nunique()
    assert dict(seeds.groupby(level="model").unique().explode()) == resnet_optimizers.CONFIGS["full"].n_seeds


# ---- all five at smoke ----


@pytest.fixture(scope="module")
def at_smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("design")
    return {name_of(study): getattr(study, name_of(study))("smoke", seed=1, folder=folder) for study in STUDIES}


@pytest.mark.slow
@each_study
def test_every_run_has_its_row(at_smoke, study):
    table, runs = at_smoke[name_of(study)], study.planned_runs("smoke", 1)
    assert len(table) == len(runs)  # one target each, where there are targets
    assert table[["validation_accuracy", "test_accuracy"]].stack().between(0, 1).all()
    assert (table["seconds"] > 0).all() and set(table["seed"]) == {100, 101}
    chosen = design_runs.chosen(table)
    assert chosen.groupby(["task", "arm"])["seed"].nunique().eq(2).all()
    assert chosen.groupby(["task", "arm"])["learning_rate"].nunique().eq(1).all()
    image_size = runs[0]["image_size"]
    for row, run in zip(table.itertuples(), runs, strict=True):
        model = design_runs.model_of(run)
        assert row.parameters == sum(p.numel() for p in model.parameters())
        assert row.flops == forward_flops(model, torch.zeros(1, 3, image_size, image_size))


@pytest.mark.slow
def test_arms_of_a_seed_begin_alike_and_end_apart(at_smoke):
    table = at_smoke["position_variants"]
    first = table[table["seed"] == 100]
    assert first["train_loss"].nunique() == len(first) == 8
    kept = position_variants.position_maps(table, "arrangement")
    assert {arm for arm, _ in kept} == set(position_variants.TABLE_8) - {"none"}
    assert all(found.shape == (4, 4, 4, 4) for found in kept.values())


@pytest.mark.slow
def test_resnets_are_pre_trained_by_the_optimizer_that_is_named(at_smoke):
    table = at_smoke["resnet_optimizers"]
    assert (table["arm"] == table["model"] + ", " + table["optimizer"]).all() and table["optimizer"].nunique() == 2
    assert table["fine_tuned"].between(0, 1).all() and set(table["target"]) == {"digits"}
    wide = table.pivot(index=["seed", "optimizer"], columns="learning_rate", values="train_loss")
    assert wide.stack().nunique() == 8  # no two trainings are the same


def test_each_optimizer_has_the_weight_decay_of_its_paper(monkeypatch):
    runs = resnet_optimizers.planned_runs("full")
    assert {(run["optimizer"], run["weight_decay"]) for run in runs} == {("adam", 0.1), ("sgd", 1e-4)}
    recipes = []
    monkeypatch.setattr(design_runs, "train", lambda model, feed, recipe, **rest: recipes.append(recipe) or 1 / 0)
    for run in resnet_optimizers.planned_runs("smoke")[::2]:
        with pytest.raises(ZeroDivisionError):
            design_runs.trained(run)
    assert {(recipe.optimizer, recipe.weight_decay) for recipe in recipes} == {("adam", 0.1), ("sgd", 1e-4)}


@pytest.mark.slow
def test_a_finished_study_is_read_not_run(monkeypatch, tmp_path):
    once = head_rates.head_rates("smoke", folder=tmp_path)
    monkeypatch.setattr(design_runs, "train", lambda *args, **kwargs: pytest.fail("a run was repeated"))
    pd.testing.assert_frame_equal(head_rates.head_rates("smoke", folder=tmp_path), once)
    assert len(runner.stored(design_runs.run_one, head_rates.planned_runs("smoke"), tmp_path)) == len(once)


@pytest.mark.slow
def test_times_are_of_both_kinds_at_every_grid():
    times = axial_attention.forward_times("smoke", (2, 8), n_images=2, n_rounds=3)
    assert times.groupby("arm")["tokens"].agg(list).to_dict() == {
        axial_attention.AXIAL: [2, 8],
        axial_attention.PARAMETERS: [2, 8],
    }
    assert (times["milliseconds"] > 0).all()
    wide = times.pivot(index="tokens", columns="arm", values="flops")
    saved = 1 - wide[axial_attention.AXIAL] / wide[axial_attention.PARAMETERS]
    assert 0 < saved[2] < saved[8]  # attention within lines saves more the larger the grid
