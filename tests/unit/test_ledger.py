"""The ledger says what this execution found, and nothing else."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab.experiments import claims, ledger, presets


def draw(height: float = 1.0):
    figure, axes = plt.subplots(figsize=(2, 1))
    axes.plot([0, 1], [0, height])
    plt.close(figure)
    return figure


def verdict(study, **changes):
    entry = {"claim": "C12", "metric": "spread in layer 1", "value": 0.5, "interval": (0.4, 0.6), "n": 3}
    entry["verdict"] = "reproduced"
    ledger.record(study, **(entry | changes))


def stored(study):
    return json.loads((study.folder / "result.json").read_text())


def test_a_record_holds_the_number_and_where_it_comes_from(figures):
    study = ledger.study("08_attention_distance", "smoke", 1, weights="lab")
    assert not figures.exists()  # beginning writes nothing
    verdict(study, value=np.float64(0.5), n=np.int64(3), data_hash="abc", unit="px", note="three seeds")
    result = stored(study)
    assert study.folder == figures / "smoke" / "08_attention_distance"
    assert result["schema"] == 1 and result["notebook"] == "08_attention_distance"
    assert (result["preset"], result["seed"], result["parameters"]) == ("smoke", 1, {"weights": "lab"})
    assert result["results"] == [
        {
            "claim": "C12",
            "metric": "spread in layer 1",
            "value": 0.5,
            "interval": [0.4, 0.6],
            "n": 3,
            "unit": "px",
            "verdict": "reproduced",
            "paper": "",
            "note": "three seeds",
        }
    ]
    source = result["provenance"]
    assert re.fullmatch("[0-9a-f]{16}", source["code_hash"])
    assert set(source["versions"]) == {"python", "torch", "timm", "numpy", "vitlab"}
    assert all(source["versions"].values()) and source["threads"] >= 1 and source["wall_s"] >= 0
    assert source["created"].endswith("+00:00") and source["data_hash"] == "abc"
    assert source["git"] is None or re.fullmatch("[0-9a-f]{40}", source["git"]["revision"])


def test_same_claim_and_metric_replace_each_other_different_ones_stand_together(figures):
    study = ledger.study("08_attention_distance", "smoke", 0)
    verdict(study)
    verdict(study, metric="trend", value=2)
    verdict(study, value=0.7, interval=None, verdict="not reproduced")
    found = [(entry["metric"], entry["value"], entry["interval"]) for entry in stored(study)["results"]]
    assert found == [("spread in layer 1", 0.7, None), ("trend", 2, [0.4, 0.6])]


def test_nothing_of_an_earlier_execution_lingers(figures):
    first = ledger.study("08_attention_distance", "smoke", 0)
    ledger.save_figure(first, draw(), "old", "A line.")
    verdict(first, metric="old")
    second = ledger.study("08_attention_distance", "smoke", 0)
    ledger.save_figure(second, draw(), "new", "A line.")
    assert [entry["metric"] for entry in stored(first)["results"]] == ["old"]  # no verdict yet: whole as it was
    assert (first.folder / "old.png").exists()
    verdict(second, metric="new")
    assert [entry["metric"] for entry in stored(second)["results"]] == ["new"]
    assert sorted(path.name for path in second.folder.iterdir()) == ["new.png", "new.svg", "result.json"]


def test_figures_drawn_after_the_verdict_are_listed_too(figures):
    study = ledger.study("08_attention_distance", "smoke", 0)
    verdict(study)
    ledger.save_figure(study, draw(), "after", "A line.")
    assert set(stored(study)["figures"]) == {"after"}


def test_a_figure_is_the_same_bytes_every_time(figures):
    study = ledger.study("08_attention_distance", "smoke", 0)
    seen = []
    for _ in range(2):
        png = ledger.save_figure(study, draw(), "line", "A rising line.")
        seen.append((png.read_bytes(), png.with_suffix(".svg").read_bytes()))
    assert seen[0] == seen[1]
    assert b"<dc:date>" not in seen[0][1] and seen[0][1].startswith(b"<?xml")
    digest = study.found["figures"]["line"]["sha256"]
    ledger.save_figure(study, draw(2.0), "line", "A rising line.")
    assert study.found["figures"]["line"]["sha256"] != digest
    assert study.found["figures"]["line"]["alt"] == "A rising line."


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"claim": "C22"}, "unknown claim 'C22'"),
        ({"verdict": "true"}, "verdict 'true': expected one of reproduced"),
        ({"value": float("nan")}, "value = nan: expected a finite number"),
        ({"value": True}, "value = True"),
        ({"interval": (2.0, 1.0)}, r"interval \(2.0, 1.0\): expected \(low, high\)"),
        ({"interval": (0.0, float("inf"))}, "interval bound = inf"),
        ({"n": 0}, "n=0"),
        ({"metric": " "}, "no metric"),
    ],
)
def test_what_is_no_result_is_refused_and_nothing_written(figures, changes, message):
    study = ledger.study("08_attention_distance", "smoke", 0)
    with pytest.raises(ValueError, match=message):
        verdict(study, **changes)
    assert not (study.folder / "result.json").exists()


@pytest.mark.parametrize("name, alt", [("line", "  "), ("Line 1", "A line."), ("../line", "A line.")])
def test_figures_need_a_plain_name_and_words(figures, name, alt):
    with pytest.raises(ValueError, match=r"alt text|figure name"):
        ledger.save_figure(ledger.study("08_attention_distance", "smoke", 0), draw(), name, alt)
    assert not figures.exists()


def test_studies_that_cannot_be(figures):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        ledger.study("08_attention_distance", "huge", 0)
    with pytest.raises(ValueError, match="'paper' is not run from here"):
        ledger.study("08_attention_distance", "paper", 0)
    with pytest.raises(ValueError, match="notebook '../x'"):
        ledger.study("../x", "smoke", 0)
    with pytest.raises(ValueError, match="parameter sizes"):
        ledger.study("08_attention_distance", "smoke", 0, sizes=[1, 2])


def test_a_table_is_kept_with_its_gaps_as_null(figures):
    study = ledger.study("02_training", "smoke", 0)
    table = pd.DataFrame({"model": ["a", "b"], "accuracy": [0.5, np.nan], "step": [1, 2]})
    verdict(study, table=table)
    verdict(study, metric="another")  # keeps the table
    assert stored(study)["table"] == [
        {"model": "a", "accuracy": 0.5, "step": 1},
        {"model": "b", "accuracy": None, "step": 2},
    ]


def test_a_notebook_without_a_claim_finishes(figures):
    study = ledger.study("00_start_here", "smoke", 0)
    ledger.finish(study)
    assert stored(study)["results"] == []


def test_the_claims_are_the_papers():
    assert list(claims.CLAIMS) == [f"C{number:02d}" for number in range(1, 22)]
    for claim in claims.CLAIMS.values():
        assert claim.statement.endswith(".") and claim.where
    assert "86M" in claims.CLAIMS["C01"].paper


def test_bootstrap_interval_of_known_answers():
    values = np.random.default_rng(0).normal(10.0, 2.0, size=400)
    low, high = ledger.bootstrap_interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * 2.0 / np.sqrt(400), rel=0.15)
    assert ledger.bootstrap_interval(values) == (low, high)  # a seed, not the clock
    assert ledger.bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)
    assert ledger.bootstrap_interval([3.0]) is None
    narrow = ledger.bootstrap_interval(values, level=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_bootstrap_of_a_statistic_resamples_rows():
    x = np.arange(50.0)
    pairs = np.stack([x, -3 * x], axis=1)
    interval = ledger.bootstrap_interval(pairs, statistic=lambda rows: np.polyfit(rows[:, 0], rows[:, 1], 1)[0])
    assert interval == pytest.approx((-3.0, -3.0))


def test_mean_interval_covers_three_seeds_as_often_as_it_says():
    generator = np.random.default_rng(0)
    intervals = [ledger.mean_interval(generator.normal(size=3)) for _ in range(400)]
    assert 0.92 < np.mean([low <= 0 <= high for low, high in intervals]) < 0.98
    assert ledger.mean_interval([1.0]) is None


@pytest.mark.parametrize("values, level", [([], 0.95), ([1.0, float("nan")], 0.95), ([1.0, 2.0], 95.0)])
def test_intervals_of_nothing_are_refused(values, level):
    for function in (ledger.bootstrap_interval, ledger.mean_interval):
        with pytest.raises(ValueError, match=r"finite values|level=95"):
            function(values, level=level)


def test_presets_are_known_by_name():
    assert list(presets.PRESETS) == ["smoke", "quick", "rehearsal", "full", "paper"]
    assert presets.check("paper").hardware
    with pytest.raises(ValueError, match="choose one of smoke, quick, rehearsal, full, paper"):
        presets.check("Quick")
    with pytest.raises(ValueError, match="needs the paper's data .* Run one of smoke, quick, rehearsal, full instead"):
        presets.check_runnable("paper")
