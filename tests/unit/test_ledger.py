"""The ledger says what this execution found, and nothing else."""

import json
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab import ledger
from vitlab.ledger import claims, entries
from vitlab.sweep import presets


def draw(height: float = 1.0):
    figure, axes = plt.subplots(figsize=(2, 1))
    axes.plot([0, 1], [0, height])
    plt.close(figure)
    return figure


def conclude(study, metric="spread in block 1", value=0.5, claim="C12", holds=True, **others):
    spread = ledger.Estimate(value, value - 0.1, value + 0.1, 3, "px")
    ledger.conclude(study, claim, ledger.judge(ledger.given(holds)), {metric: spread}, **others)


def stored(study):
    return json.loads((study.folder / "result.json").read_text())


def test_a_record_holds_the_number_and_where_it_comes_from(figures):
    study = ledger.begin("08_attention_distance", "smoke", 1, weights="lab")
    assert not figures.exists()  # beginning writes nothing
    conclude(study, value=np.float64(0.5), data_hash="abc", note="three seeds")
    result = stored(study)
    assert study.folder == figures / "smoke" / "08_attention_distance"
    assert result["schema"] == 1 and result["notebook"] == "08_attention_distance"
    assert (result["preset"], result["seed"], result["parameters"]) == ("smoke", 1, {"weights": "lab"})
    assert result["results"] == [
        {
            "claim": "C12",
            "metric": "spread in block 1",
            "value": 0.5,
            "interval": [0.4, 0.6],
            "n": 3,
            "unit": "px",
            "verdict": "reproduced",
            "paper": "",
            "note": "three seeds",
            "counted": "seeds",
            "failed": 0,
            "reason": "",
            "advice": "",
        }
    ]
    source = result["provenance"]
    assert re.fullmatch("[0-9a-f]{16}", source["code_hash"])
    assert set(source["versions"]) == {"python", "torch", "timm", "numpy", "vitlab"}
    assert all(source["versions"].values()) and source["threads"] >= 1 and source["wall_s"] >= 0
    assert source["created"].endswith("+00:00") and source["data_hash"] == "abc"
    assert source["git"] is None or re.fullmatch("[0-9a-f]{40}", source["git"]["revision"])


def test_same_claim_and_metric_replace_each_other_different_ones_stand_together(figures):
    study = ledger.begin("08_attention_distance", "smoke", 0)
    conclude(study)
    conclude(study, metric="trend", value=2.0)
    conclude(study, value=1.0, holds=False)
    found = [(entry["metric"], entry["value"], entry["verdict"]) for entry in stored(study)["results"]]
    assert found == [("spread in block 1", 1.0, "not reproduced"), ("trend", 2.0, "reproduced")]


def test_nothing_of_an_earlier_execution_lingers(figures):
    first = ledger.begin("08_attention_distance", "smoke", 0)
    ledger.save_figure(first, draw(), "old", "A line.")
    conclude(first, metric="old")
    second = ledger.begin("08_attention_distance", "smoke", 0)
    ledger.save_figure(second, draw(), "new", "A line.")
    assert [entry["metric"] for entry in stored(first)["results"]] == ["old"]  # no verdict yet: whole as it was
    assert (first.folder / "old.png").exists()
    conclude(second, metric="new")
    assert [entry["metric"] for entry in stored(second)["results"]] == ["new"]
    assert sorted(path.name for path in second.folder.iterdir()) == ["new.png", "new.svg", "result.json"]


def test_figures_drawn_after_the_verdict_are_listed_too(figures):
    study = ledger.begin("08_attention_distance", "smoke", 0)
    conclude(study)
    ledger.save_figure(study, draw(), "after", "A line.")
    assert set(stored(study)["figures"]) == {"after"}


def test_a_figure_is_the_same_bytes_every_time(figures):
    study = ledger.begin("08_attention_distance", "smoke", 0)
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
        ({"value": float("nan")}, "value = nan: expected a finite number"),
        ({"metric": " "}, "claim C12 has no number with a name"),
    ],
)
def test_what_is_no_result_is_refused_and_nothing_written(figures, changes, message):
    study = ledger.begin("08_attention_distance", "smoke", 0)
    with pytest.raises(ValueError, match=message):
        conclude(study, **changes)
    assert not (study.folder / "result.json").exists()


def test_a_verdict_in_words_is_refused(figures):
    study = ledger.begin("08_attention_distance", "smoke", 0)
    with pytest.raises((ValueError, TypeError), match="Ruling"):  # jaxtyping, where it checks, raises a TypeError
        ledger.conclude(study, "C12", "reproduced", {"heads": ledger.Estimate.exact(4)})
    assert not figures.exists()


@pytest.mark.parametrize("name, alt", [("line", "  "), ("Line 1", "A line."), ("../line", "A line.")])
def test_figures_need_a_plain_name_and_words(figures, name, alt):
    with pytest.raises(ValueError, match=r"alt text|figure name"):
        ledger.save_figure(ledger.begin("08_attention_distance", "smoke", 0), draw(), name, alt)
    assert not figures.exists()


def test_studies_that_cannot_be(figures):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        ledger.begin("08_attention_distance", "huge", 0)
    with pytest.raises(ValueError, match="'paper' is not run from here"):
        ledger.begin("08_attention_distance", "paper", 0)
    with pytest.raises(ValueError, match="notebook '../x'"):
        ledger.begin("../x", "smoke", 0)
    with pytest.raises(ValueError, match="parameter sizes"):
        ledger.begin("08_attention_distance", "smoke", 0, sizes=[1, 2])


def test_a_table_is_kept_with_its_gaps_as_null(figures):
    study = ledger.begin("02_training", "smoke", 0)
    table = pd.DataFrame({"model": ["a", "b"], "accuracy": [0.5, np.nan], "step": [1, 2]})
    conclude(study, table=table)
    conclude(study, metric="another")  # keeps the table
    assert stored(study)["table"] == [
        {"model": "a", "accuracy": 0.5, "step": 1},
        {"model": "b", "accuracy": None, "step": 2},
    ]


def test_runs_that_never_started_to_learn_are_kept_and_told_again(figures):
    study = ledger.begin("04_data_scaling", "smoke", 0)
    number = ledger.Estimate.of([0.7, 0.1, 0.7, 0.69, 0.7], failed=1)
    ledger.conclude(study, "C04", ledger.judge(ledger.above(number)), {"accuracy": number})
    (entry,) = stored(study)["results"]
    assert entry["failed"] == 1
    assert str(entries.estimate(entry)) == str(number) and "of which 1 never started" in str(number)


def test_a_conclusion_enters_every_number_with_its_verdict_and_says_it_in_one_line(figures, capsys):
    study = ledger.begin("04_data_scaling", "smoke", 0)
    growth = ledger.Estimate(5.2, -1.9, 12.3, 5, "points")
    ruling = ledger.judge(ledger.above(growth, name="growth"), ledger.given(True, "start"))
    numbers = {"growth of A − B": growth, "training images": ledger.Estimate.exact(12_000)}
    ledger.conclude(study, "C04", ruling, numbers, note="held-out images", table=[{"seed": 0}], data_hash="abc")
    assert capsys.readouterr().out == (
        "**C04: inconclusive** (growth is undecided, start holds). Growth of A − B: +5.2 points [−1.9, 12.3], n = 5 "
        "seeds; training images: 12,000. About 12 seeds would decide four times in five at this spread. "
        "Held-out images.\n"
    )
    result = stored(study)
    first, second = result["results"]
    assert first == {
        "claim": "C04",
        "metric": "growth of A − B",
        "value": 5.2,
        "interval": [-1.9, 12.3],
        "n": 5,
        "unit": "points",
        "verdict": "inconclusive",
        "paper": "",
        "note": "held-out images",
        "counted": "seeds",
        "reason": "growth is undecided, start holds",
        "failed": 0,
        "advice": "about 12 seeds would decide four times in five at this spread",
    }
    assert (second["value"], second["interval"], second["n"], second["counted"]) == (12_000, None, 1, "")
    assert result["table"] == [{"seed": 0}] and result["provenance"]["data_hash"] == "abc"
    for numbers in ({}, {" ": growth}):
        with pytest.raises(ValueError, match="claim C04 has no number with a name"):
            ledger.conclude(study, "C04", ruling, numbers)
    with pytest.raises(ValueError, match="unknown claim 'C99'"):
        ledger.conclude(study, "C99", ruling, {"growth": growth})


@pytest.mark.parametrize("shell", [SimpleNamespace(kernel=object()), SimpleNamespace()], ids=["notebook", "terminal"])
def test_a_conclusion_is_markdown_in_a_notebook_and_text_in_a_terminal(figures, monkeypatch, capsys, shell):
    shown, line = [], "**C01: reproduced.** Tokens: 197."
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", shown.append)
    study = ledger.begin("01_vit_from_scratch", "smoke", 0)
    ledger.conclude(study, "C01", ledger.judge(ledger.given(True)), {"tokens": ledger.Estimate.exact(197)})
    printed = capsys.readouterr().out.splitlines()
    assert ([each.data for each in shown], printed) == (([line], []) if hasattr(shell, "kernel") else ([], [line]))


def test_a_notebook_without_a_claim_finishes(figures):
    study = ledger.begin("00_start_here", "smoke", 0)
    ledger.finish(study)
    assert stored(study)["results"] == []


def test_the_claims_are_the_papers():
    assert list(claims.CLAIMS) == [f"C{number:02d}" for number in range(1, 22)]
    assert list(claims.ALL) == [*claims.CLAIMS, "L01", "L02"]
    for claim in claims.ALL.values():
        assert claim.statement.endswith(".") and claim.where
    assert "86M" in claims.CLAIMS["C01"].paper


def test_presets_are_known_by_name():
    assert list(presets.PRESETS) == ["smoke", "quick", "full", "gpu", "paper"]
    assert presets.check("paper").hardware
    with pytest.raises(ValueError, match="choose one of smoke, quick, full, gpu, paper"):
        presets.check("Quick")
    with pytest.raises(ValueError, match="needs the paper's data .* Run one of smoke, quick, full, gpu instead"):
        presets.check_runnable("paper")


BY_FULL = ledger.judge(ledger.given(True)), {"gain": ledger.Estimate.exact(2)}, "at 64 px"
BY_BOTH = "all 5 runs: at 64 px. quick: 3 seeds; by this run alone: not reproduced. The paper: Table 2"


@pytest.mark.parametrize(
    ("preset", "full", "names", "verdict", "note"),
    [
        ("quick", BY_FULL, ["gain, full", "gain", "control"], "reproduced", BY_BOTH),
        ("quick", None, ["gain", "control"], "not reproduced", "quick: 3 seeds. The paper: Table 2"),
        ("full", BY_FULL, ["gain", "control"], "not reproduced", "full: 3 seeds. The paper: Table 2"),  # itself
        ("full", None, ["gain", "control"], "not reproduced", "full: 3 seeds. The paper: Table 2"),
    ],
)
def test_the_runs_of_full_decide_and_the_live_run_is_beside_them(preset, full, names, verdict, note, tmp_path):
    study = ledger.Study("03_a", preset, 0, {}, tmp_path, found={"results": {}, "figures": {}})
    live = ledger.judge(ledger.given(False)), {"gain": ledger.Estimate.exact(1)}, "3 seeds"
    control = {"control": ledger.Estimate.exact(0)}
    ledger.conclude_by_full(study, "C08", live, full, "all 5 runs", beside=control, note="The paper: Table 2")
    entered = {metric: (each["verdict"], each["note"]) for (_, metric), each in study.found["results"].items()}
    assert entered == dict.fromkeys(names, (verdict, note)) and list(entered) == names
