"""More seeds of transfer are the fine-tuning that C21 asks for, as `transfer` has it, with seeds of their own."""

import pandas as pd
import pytest

from vitlab.cli import full
from vitlab.data import datasets
from vitlab.experiments import more_transfers, transfer, transfer_runs
from vitlab.experiments import transfer_rules as rules
from vitlab.experiments import transfer_tables as tables
from vitlab.experiments.trials import TRIAL_SEEDS

pytestmark = pytest.mark.slow

VIT, BIT = "Lab-Ti/8", "BiT-Lab-Ti/8"


def _pretraining(run):
    return {k: v for k, v in run.items() if k not in ("seed", "targets") and not k.startswith("rates ")}


def test_each_run_has_a_pretraining_of_transfer_and_the_one_fine_tuning_of_c21():
    config = transfer.CONFIGS["full"]
    drawn = {run["model"]: run for run in transfer.planned_runs("full") if run["source"] == config.source}
    for run in more_transfers.planned_runs("full"):
        twin = drawn[run["model"]]
        assert _pretraining(run) == _pretraining(twin)
        first = transfer_runs.finetunings(twin)[0]
        assert (first.target, first.arm, first.side) == ("imagenette", "1x", 64)
        assert transfer_runs.finetunings(run) == [first]


@pytest.mark.parametrize("preset", more_transfers.CONFIGS)
def test_both_models_have_every_seed_once_and_no_draw_or_trial_has_it(preset):
    runs = more_transfers.planned_runs(preset)
    seeds = list(more_transfers.CONFIGS[preset].seeds)
    assert [(run["seed"], run["model"]) for run in runs] == [(s, model) for s in seeds for model in (VIT, BIT)]
    drawn = {run["seed"] for draw in (0, 1) for run in transfer.planned_runs(preset, draw)}
    assert not set(seeds) & (drawn | set(TRIAL_SEEDS))
    again = {run["seed"] for run in more_transfers.planned_runs(preset, seed=1)}
    assert not again & ({*seeds} | drawn)


def test_a_run_finds_what_the_run_of_transfer_with_its_seed_finds():
    """The other fine-tunings of a run of `transfer` do not change this one: equal rows, to the last digit."""
    whole = transfer.planned_runs("smoke")[1]
    (one, *_) = (run for run in more_transfers.planned_runs("smoke") if run["model"] == whole["model"])
    both = (pd.DataFrame(transfer_runs.run_one(run)).drop(columns="seconds") for run in (whole, one | {"seed": 0}))
    larger, found = (rows[rows["kind"].isin(["pretraining", "evaluation", "trial"])] for rows in both)
    larger = larger[larger["arm"].isna() | (larger["arm"] == more_transfers.ARM)]
    pd.testing.assert_frame_equal(found, larger[found.columns], check_dtype=False)
    assert found["kind"].value_counts().to_dict() == {"evaluation": 3, "trial": 2, "pretraining": 1}


def test_the_seeds_of_both_studies_are_judged_together(tmp_path):
    drawn = transfer.transfer("smoke", jobs=1, folder=tmp_path)
    further = more_transfers.more_transfers("smoke", jobs=1, folder=tmp_path)
    rows = tables.of_pair(tables.evaluations(pd.concat([drawn, further])), "world", "digits")
    _, numbers = rules.epochs_rule(rows, VIT, BIT)
    second = rows[(rows["arm"] == "1x") & (rows["epoch"] == 2)]
    shares = second.pivot(index="seed", columns="model", values="share")
    assert list(shares.index) == [0, 1, 200, 201]
    share, lead = numbers.values()
    assert (share.value, share.n) == (pytest.approx(100 * shares[VIT].mean()), 4)
    assert (lead.value, lead.n) == (pytest.approx(100 * (shares[VIT] - shares[BIT]).mean()), 4)


def test_the_part_asks_for_every_set_that_its_runs_load():
    (part,) = (part for part in full.PARTS if part.name == "more_transfers")
    loaded = {run[name] for run in more_transfers.planned_runs("full") for name in ("source", "targets")}
    assert set(part.data) == loaded & {*datasets.NAMES}
