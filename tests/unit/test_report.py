"""The report repeats what the result files say, and says what is missing."""

import json
import re

import matplotlib.pyplot as plt
import pytest

from vitlab import ledger, paths
from vitlab.ledger import report


def entry(value, interval=None):
    return {"value": value, "interval": interval}


@pytest.mark.parametrize(
    "ours, reference, word",
    [
        (entry(0.50, [0.4, 0.6]), entry(0.65, [0.55, 0.75]), "agrees"),
        (entry(0.50, [0.4, 0.6]), entry(0.80, [0.7, 0.9]), "differs"),
        (entry(0.80, [0.7, 0.9]), entry(0.50, [0.4, 0.6]), "differs"),
        (entry(1.00), entry(1.019), "agrees"),
        (entry(1.00), entry(1.03), "differs"),
        (entry(-1.00), entry(-1.03), "differs"),
        (entry(3e-7), entry(9e-6), "agrees"),
        (entry(0.50), entry(0.65, [0.45, 0.75]), "agrees"),
        (entry(0.5), None, "no reference"),
    ],
)
def test_agreement_of_known_pairs(ours, reference, word):
    assert report.agreement(ours, reference) == word
    if reference:
        assert report.agreement(reference, ours) == word


def make(notebook: str, claim: str = "C12", value: float = 0.5, **parameters):
    study = ledger.begin(notebook, "smoke", 0, **parameters)
    figure, _ = plt.subplots(figsize=(1, 1))
    ledger.save_figure(study, figure, "dots", "Dots [one per head] rising.")
    plt.close(figure)
    spread = ledger.Estimate(value, value - 0.1, value + 0.1, 5, "px", "images")
    ruling = ledger.judge(ledger.above(spread, name="growth"), ledger.given(False, "variety"))
    ledger.conclude(study, claim, ruling, {"spread | of heads": spread}, note="small")
    return study


@pytest.fixture
def reference(tmp_path, monkeypatch):
    folder = tmp_path / "reference"
    monkeypatch.setattr(paths, "reference_dir", lambda preset: folder / preset)
    return folder


def move_to(reference, study):
    target = reference / "smoke" / study.notebook
    target.parent.mkdir(parents=True, exist_ok=True)
    study.folder.rename(target)


@pytest.mark.slow
def test_a_report_lists_numbers_figures_and_what_is_missing(figures, reference):
    move_to(reference, make("08_attention_distance", value=0.55, weights="lab"))
    move_to(reference, make("07_position_embeddings", "C10", value=9.0, weights="lab"))
    make("08_attention_distance", weights="lab")
    make("07_position_embeddings", "C10", value=0.25, weights="lab")
    make("06_embedding_filters", "C11", weights="other")
    broken = figures / "smoke" / "04_data_scaling" / "result.json"
    broken.parent.mkdir()
    broken.write_text('{"schema": 1')
    path = report.write("smoke", expected=["08_attention_distance", "09_attention_rollout"])
    text = path.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| C")]
    assert path == figures / "smoke" / "REPORT.md"
    assert [row[2:5] for row in rows] == ["C10", "C11", "C12"]
    assert all(row.count(" | ") == 9 for row in rows)
    verdict = "partly reproduced (growth holds, variety fails). small"
    assert f"| spread \\| of heads | 0.5 px | [0.4, 0.6] | 5 images | {verdict} | – |" in rows[2]
    assert rows[2].endswith("| 0.55 px [0.45, 0.65] | agrees |")
    assert rows[0].endswith("| 9 px [8.9, 9.1] | differs |")
    assert rows[1].endswith("| – | no reference |")
    assert "![Dots \\[one per head\\] rising.](08_attention_distance/dots.png)" in text
    assert (path.parent / "08_attention_distance" / "dots.png").exists()
    assert "- **04_data_scaling**: result.json is corrupt" in text
    assert "- **09_attention_rollout**: no result.json: it has not run yet" in text
    assert "`weights = 'lab'`" in text and "python 3." in text
    assert str(figures) not in text
    assert report.write("smoke", ["08_attention_distance", "09_attention_rollout"]).read_text() == text


def test_a_reference_of_other_parameters_is_no_reference(figures, reference):
    move_to(reference, make("08_attention_distance", weights="lab"))
    make("08_attention_distance", weights="vit_tiny_patch16_224")
    text = report.write("smoke").read_text()
    assert "| no reference |" in text and "Run with other parameters than our reference" in text


def test_a_failed_notebook_is_said_to_have_failed(figures, reference):
    study = make("08_attention_distance")
    (study.folder / "notebook.failed.ipynb").write_text("{}")
    text = report.write("smoke").read_text()
    assert "**Its last run failed**" in text and "what it had entered until then" in text


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"results": None},
        {"results": [{"claim": "C01"}]},
        {"figures": {"a": {}}},
        {"provenance": {}},
        {"all_draws": {"C17": {"verdict": "reproduced"}}},
    ],
)
def test_a_result_of_another_shape_is_listed_as_corrupt(figures, reference, change):
    study = make("08_attention_distance")
    path = study.folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    text = report.write("smoke").read_text()
    assert "- **08_attention_distance**: result.json is corrupt" in text
    assert "\n| C" not in text


@pytest.mark.parametrize(
    "change",
    [
        {"interval": ["low", "high"]},
        {"interval": [0.1, None]},
        {"interval": [0.1, float("nan")]},
        {"interval": [0.1]},
        {"interval": {"low": 0.1, "high": 0.2}},
        {"interval": "ab"},
        {"value": "many"},
        {"value": float("inf")},
        {"value": 10**400},
        {"n": "five"},
        {"unit": 3},
        {"counted": 3},
        {"reason": ["a"], "verdict": None},
    ],
    ids=str,
)
def test_an_entry_of_another_shape_is_listed_as_corrupt_here_and_ignored_in_the_reference(figures, reference, change):
    study = make("08_attention_distance")
    path = study.folder / "result.json"
    good = path.read_text()
    result = json.loads(good)
    path.write_text(json.dumps(result | {"results": [result["results"][0] | change]}))
    text = report.write("smoke").read_text()
    assert "- **08_attention_distance**: result.json is corrupt" in text and "\n| C" not in text
    move_to(reference, study)
    assert report.read_results(reference / "smoke")[0] == {}
    study.folder.mkdir()
    path.write_text(good)
    assert "| no reference |" in report.write("smoke").read_text()


def test_an_unknown_preset_is_refused(figures):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        report.write("huge")


def test_a_table_is_put_between_its_markers():
    page = f"# vitlab\n\n{report.BEGIN}\nold\n{report.END}\n\nMore."
    new = report.with_table(page, "| new |")
    assert "old" not in new and "| new |" in new and new.endswith("More.") and new.startswith("# vitlab")
    assert report.with_table(new, "| new |") == new
    for bad in ("", report.BEGIN, f"{report.END}\n{report.BEGIN}", page + page):
        with pytest.raises(ValueError, match=re.escape(report.BEGIN)):
            report.with_table(bad, "| new |")
