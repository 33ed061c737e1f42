"""Studies: golden runs, what is planned, the runner, the evidence and the tables made of it."""

import base64
import concurrent.futures
import functools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tools.evidence import publish
from vitlab import paths, settings
from vitlab.models import zoo
from vitlab.studies import run, runner, store, table, tables

GOLDEN = Path(__file__).with_name("golden.json")
RUNS = json.loads(GOLDEN.read_text())


def computed(one):
    with settings.one_thread():
        rows = run.RUNS[one["kind"]](dict(one["config"]))
    return [{name: value for name, value in row.items() if name != "seconds"} for row in json.loads(json.dumps(rows))]


# ---- golden runs -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("one", RUNS, ids=lambda one: one["study"])
def test_a_golden_run_has_the_committed_rows(one):
    """Red where numbers moved: raise the kind's version in `table.VERSION`, then `python tests/test_studies.py`."""
    assert one["version"] == table.VERSION[one["kind"]], "the golden runs are of another version: make them anew"
    rows = computed(one)
    assert [list(row) for row in rows] == [list(row) for row in one["rows"]]
    for row, wanted in zip(rows, one["rows"], strict=True):
        for name, value in wanted.items():
            if name in ("similarity", "guesses", "map") and value is not None:  # bytes, which rounding moves by one
                mine, theirs = (np.frombuffer(base64.b64decode(text), np.uint8) for text in (row[name], value))
                assert abs(mine.astype(int) - theirs).mean() < 0.5, name
            elif isinstance(value, float):
                assert row[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
            else:
                assert row[name] == value, name


def test_every_kind_that_trains_has_a_golden_run():
    assert set(run.RUNS) - {one["kind"] for one in RUNS} == {"distances", "rollout", "checks", "speed"}


def test_filters_start_at_the_share_of_their_scale_that_a_run_names():
    config = table.runs("learnt_filters", "full")[0]
    small, usual = (run.vit_of(config | {"embed_scale": scale}, 1).state_dict() for scale in (1 / 8, 1.0))
    changed = [name for name, value in small.items() if not value.equal(usual[name])]
    assert changed == ["patch_embed.proj.weight"] and (8 * small[changed[0]]).equal(usual[changed[0]])


@pytest.mark.parametrize("slope", [0, 1])
def test_noise_falls_with_frequency_to_the_power_of_its_slope(slope):
    found = torch.fft.rfft2(run.noise(slope, 64, 100, 0).images.float()).abs().mean((0, 1))
    assert (found[0, 4] / found[0, 16]).item() == pytest.approx(4**slope, rel=0.05)


def test_filters_enlarged_one_by_one_are_rescaled_to_the_fresh_ones():
    fresh, model = (zoo.create("BiT-Mu/4", image_size=16, seed=3).eval() for _ in range(2))
    for weight in (each for each in model.parameters() if each.dim() == 4):
        weight.data *= 2 + torch.arange(len(weight)).view(-1, 1, 1, 1)
    run.rescale_kernels(model, fresh)
    torch.testing.assert_close(list(model.parameters()), list(fresh.parameters()))


# ---- what is planned -------------------------------------------------------------------------------------------------
def test_all_that_full_plans_is_committed_and_nothing_is_planned_twice():
    names = [name for name in table.STUDIES if not name.endswith("_large")]  # those are a GPU's
    plan = runner.plan(names, "full")
    assert plan["todo"].eq(0).all() and plan["runs"].gt(0).all(), plan
    assert plan["runs"].tolist() == [len(table.runs(name, "full")) for name in names]  # no key twice


def test_the_hours_of_longer_trainings_are_planned_by_their_model_and_steps(monkeypatch):
    was, took = table.preset("data_scaling", "full"), store.about("data_scaling").set_index("key")["seconds"]
    ran = [store.key("scaling", each) for each in table.runs("data_scaling", "full") if each["model"] == "BiT-Mu/8"]
    cases = tuple(case for case in was.cases if case["model"] == "BiT-Mu/8")
    longer = table.Preset(was.base | {"steps": 4 * was.base["steps"]}, cases, was.seeds)
    monkeypatch.setitem(table.STUDIES["data_scaling"].presets, "full", longer)
    assert runner.plan(["data_scaling"])["hours"].item() == pytest.approx(4 * took[ran].sum() / 3600)


@pytest.mark.parametrize("name", table.STUDIES)
def test_configurations_are_flat_and_seeds_shift_by_hundreds_and_are_not_those_of_trials(name):
    for size in table.study(name).presets:
        first, second = table.runs(name, size), table.runs(name, size, seed=1)
        assert all(isinstance(value, str | int | float | None) for config in first for value in config.values())
        assert [config | {"seed": config["seed"] + 100} for config in first] == second
        assert not {config["seed"] for config in first} & {9_997, 9_998, 9_999}


def test_rates_of_compute_scaling_are_those_of_the_best_trials_and_none_is_an_edge_of_its_grid():
    tried = tables.trials("compute_scaling").set_index("learning_rate").groupby(["model", "steps"])
    for config in table.runs("compute_scaling", "full"):
        cell = tried.get_group((config["model"], config["steps"]))
        assert cell.index.min() < cell["validation_accuracy"].idxmax() == config["learning_rate"] < cell.index.max()


def test_fine_tuning_rates_of_transfer_are_those_of_the_best_trials():
    tried = tables.trials("transfer")
    mean = tried.groupby(["model", "source", "target", "arm", "learning_rate"])["held_out_accuracy"].mean()
    best = mean.groupby(level=["model", "source", "target", "arm"]).idxmax().map(lambda key: key[-1])
    for config in table.runs("transfer", "full"):
        for name, arm, _, rates in run.finetunings(config):
            if (config["model"], config["source"], name, arm) in best.index:
                assert rates == [best[config["model"], config["source"], name, arm]]


def test_unknown_names_are_told_with_those_there_are():
    with pytest.raises(ValueError, match="no study 'data_scalling': choose one of data_scaling"):
        table.runs("data_scalling", "smoke")
    with pytest.raises(ValueError, match="data_scaling has no preset 'quick': choose one of smoke, full"):
        table.runs("data_scaling", "quick")


# ---- runner ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def quick_runs(monkeypatch, figures):
    """Runs of data_scaling at smoke that take no time; returns the list of what was computed."""
    done = []

    def scaling(config):
        done.append(config["seed"])
        return [{"kind": "outcome", "accuracy": config["n_train"] / 64}, {"kind": "history", "step": 1}]

    monkeypatch.setitem(run.RUNS, "scaling", scaling)
    return done


def test_a_study_is_done_once_in_the_order_of_its_plan(quick_runs):
    rows = runner.run("data_scaling", "smoke", jobs=1)
    planned = table.runs("data_scaling", "smoke")
    assert len(quick_runs) == len(planned) == rows.attrs["done"] and len(rows) == 2 * len(planned)
    assert rows["n_train"].tolist() == [config["n_train"] for config in planned for _ in range(2)]
    again = runner.run("data_scaling", "smoke", jobs=1)
    assert len(quick_runs) == len(planned)
    pd.testing.assert_frame_equal(rows, again)
    assert runner.run("data_scaling", "smoke", seed=1, jobs=1)["seed"].min() == 100


def test_any_executor_gives_the_rows_of_one_process(quick_runs, tmp_path, monkeypatch):
    rows = runner.run("data_scaling", "smoke", jobs=1)
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "others"))
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        others = runner.run("data_scaling", "smoke", executor=pool)
    pd.testing.assert_frame_equal(rows, others)


def test_a_failed_run_is_named_when_the_others_are_kept_and_is_done_by_the_next_call(quick_runs, monkeypatch):
    good = run.RUNS["scaling"]

    def bad(config):
        if config["n_train"] == 32 and config["seed"] == 1:
            raise ArithmeticError("loss is NaN")
        return good(config)

    monkeypatch.setitem(run.RUNS, "scaling", bad)
    words = r"3 of 18 runs of data_scaling failed.*'n_train': 32.*ArithmeticError: loss"
    with pytest.raises(RuntimeError, match=words):
        runner.run("data_scaling", "smoke", jobs=1)
    assert runner.read("data_scaling", "smoke").attrs == {"done": 15, "planned": 18}
    monkeypatch.setitem(run.RUNS, "scaling", good)
    assert runner.run("data_scaling", "smoke", jobs=1).attrs["done"] == 18 and len(quick_runs) == 18


def test_a_killed_run_resumes_its_training(figures, monkeypatch):
    config = table.runs("data_scaling", "smoke")[0]
    folder, wanted = paths.out_dir("smoke") / "unfinished" / "key", runner.compute("scaling", config)["rows"]

    def killed(*_):
        raise MemoryError

    monkeypatch.setattr(run, "evaluate", killed)  # after the training
    with pytest.raises(MemoryError):
        runner.compute("scaling", config, folder)
    monkeypatch.undo()
    steps, usual = [], run.batches

    def counting(*given):
        feed = usual(*given)
        return lambda step, *part: steps.append(step) or feed(step, *part)

    monkeypatch.setattr(run, "batches", counting)
    rows = runner.compute("scaling", config, folder)["rows"]
    assert steps == [] and not folder.exists()
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in wanted]


def test_half_a_line_of_a_killed_process_is_run_again(quick_runs):
    runner.run("data_scaling", "smoke", jobs=1)
    path = paths.out_dir("smoke") / "scaling.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert runner.read("data_scaling", "smoke").attrs["done"] == 17
    assert runner.run("data_scaling", "smoke", jobs=1).attrs["done"] == 18 and len(quick_runs) == 19
    assert len(path.read_text().splitlines()) == 19


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_its_minutes_no_run_is_begun(quick_runs, jobs):
    assert runner.run("data_scaling", "smoke", jobs=jobs, minutes=0).empty and not quick_runs


def test_a_raised_version_makes_rows_stale(quick_runs, monkeypatch):
    runner.run("data_scaling", "smoke", jobs=1)
    monkeypatch.setitem(table.VERSION, "scaling", 2)
    assert runner.plan(["data_scaling"], "smoke")["todo"].item() == 18
    assert runner.plan(["data_scaling"], "full")["todo"].item() == 60 and tables.evidence("data_scaling").empty


def test_a_number_of_processes_that_cannot_be(quick_runs, monkeypatch):
    monkeypatch.setenv("VITLAB_JOBS", "many")
    with pytest.raises(ValueError, match="VITLAB_JOBS='many': expected a whole number"):
        runner.run("data_scaling", "smoke")


def test_runs_without_their_real_images_are_left_out_with_a_word(figures, monkeypatch, capsys):
    monkeypatch.setitem(table.VERSION, "subsets", 2)
    monkeypatch.setitem(run.RUNS, "subsets", lambda config: [{"test_accuracy": 0.5}])
    monkeypatch.setattr(runner.datasets, "present", lambda name: False)
    rows = runner.run("real_subsets", "full", jobs=1)
    assert set(rows["source"]) == {"digits"} and "120 runs need cifar10, not found: left out" in capsys.readouterr().out


@pytest.mark.slow
def test_processes_give_the_rows_of_one_process(figures):
    one = runner.run("local_heads", "smoke", jobs=1)
    (paths.out_dir("smoke") / "local_heads.jsonl").unlink()
    two = runner.run("local_heads", "smoke", jobs=2)
    pd.testing.assert_frame_equal(one.drop(columns="seconds"), two.drop(columns="seconds"))


# ---- evidence --------------------------------------------------------------------------------------------------------
def test_published_runs_are_read_as_they_were_measured(quick_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(store.paths, "evidence_dir", lambda: tmp_path / "evidence")
    for read in (store.runs, store.rows):  # without what they have read, then as they were
        monkeypatch.setattr(store, read.__name__, functools.lru_cache(read.__wrapped__))
    live = runner.run("data_scaling", "smoke", jobs=1)
    assert publish("scaling", "smoke") == 18 and publish("scaling", "smoke") == 0
    pd.testing.assert_frame_equal(tables.evidence("data_scaling")[live.columns], live, check_dtype=False)
    about = store.runs("scaling")
    assert list(about) == store.ABOUT and set(about["seed"]) == {0, 1} and about["study"].eq("data_scaling").all()


def test_every_committed_run_belongs_to_a_study_and_has_rows():
    for kind in run.RUNS:
        about = store.runs(kind)
        assert about["key"].is_unique and set(about["key"]) == set(store.rows(kind)["key"])
        assert {name for names in about["study"] for name in names.split()} <= set(table.STUDIES)


# ---- tables ----------------------------------------------------------------------------------------------------------
def test_the_best_setting_is_high_and_steady_and_not_one_of_few_seeds():
    scores = {1e-3: (0.6, 0.6), 4e-3: (0.9, 0.4), 8e-3: (0.99,)}
    found = [(rate, seed, value) for rate, values in scores.items() for seed, value in enumerate(values)]
    rows = pd.DataFrame(found, columns=["learning_rate", "seed", "validation_accuracy"]).assign(task="t", arm="a")
    assert tables.chosen(rows)["learning_rate"].tolist() == [1e-3, 1e-3]


def test_transfer_to_ten_classes_and_to_more_is_averaged_apart():
    one = next(one for one in RUNS if one["study"] == "data_scaling")
    rows = pd.DataFrame([one["config"] | {"seconds": 0.0} | row for row in one["rows"]])
    few, found = rows.groupby("target")["accuracy"].mean(), tables.transfers(rows).iloc[0]
    assert found["transfer"] == pytest.approx(few["world"]) != few["world, 20 classes"]
    assert found["transfer, 20 classes"] == pytest.approx(few["world, 20 classes"])


def test_slopes_of_lines_that_are_known():
    rows = {"dimension": ["base", "depth", "depth", "width"], "flops": [1e6, 2e6, 4e6, 1e6]}
    found = tables.slopes(pd.DataFrame(rows | {"seed": 0, "test_accuracy": [0.5, 0.55, 0.6, 0.7]}))
    assert found.to_dict("records") == [{"dimension": "depth", "seed": 0, "slope": pytest.approx(5.0)}]


def test_maps_come_back_to_a_byte():
    flat = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    symmetric = ((flat + flat.T) / 2).reshape(4, 4, 4, 4)
    np.testing.assert_allclose(tables.position_map(run.pack(symmetric)), symmetric, atol=0.004)
    rows = pd.DataFrame([{"task": "t", "arm": "a", "map": run.pack(flat.reshape(4, 4, 4, 4), symmetric=False)}])
    np.testing.assert_allclose(tables.position_maps(rows, "t")["a"], flat.reshape(4, 4, 4, 4), atol=0.004)


def test_shares_are_of_the_last_evaluation():
    found = tables.evaluations(tables.evidence("transfer"))
    ends = found.groupby(["model", "source", "target", "seed", "arm"])["share"].last()
    assert ends.eq(1).all() and set(found.loc[found["arm"] == "scratch", "source"]) == {"scratch"}


if __name__ == "__main__":  # makes the golden rows anew, after a version was raised
    made = [one | {"version": table.VERSION[one["kind"]], "rows": computed(one)} for one in RUNS]
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, made)) + "\n]\n")
