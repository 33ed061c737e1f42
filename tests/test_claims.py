"""Claims: headline numbers of the evidence, rules by hand, what a page and the report keep."""

import re
import tomllib

import pandas as pd
import pytest

from tools import pages
from vitlab import claims, paths
from vitlab.claims import report, rules
from vitlab.claims.claims import ALL, Claim
from vitlab.claims.verdicts import Verdict

HEADLINES = {  # first number of each claim: value, half-width, n; recomputed from the archived runs by independent code
    "C03": (-6.82, 2.14, 5), "C04": (-6.83, 3.19, 5), "C05": (23.57, 1.22, 5),
    "C06": (-12.40, 4.95, 5), "C08": (4.71, 0.41, 18), "C09": (15.14, 0.96, 78),
    "C11": (0.68, 0.01, 5), "C13": (21.40, 2.98, 5), "C15": (0.64, 1.58, 5), "C16": (-0.24, 0.81, 5),
    "C17": (-0.54, 0.88, 5), "C18": (-1.63, 1.18, 5), "C19": (3.43, 1.94, 5), "C21": (89.65, 1.45, 18),
}  # fmt: skip


@pytest.mark.parametrize("claim", HEADLINES)
def test_headline_numbers(claim):
    first = next(iter(rules.verdict(claim).numbers.values()))
    value, half, n = HEADLINES[claim]
    assert first.n == n and first.value == pytest.approx(value, abs=0.006)
    assert first.half_width == pytest.approx(half, abs=0.01)


@pytest.mark.parametrize("claim", ALL)
def test_every_claim_is_judged_and_one_that_is_not_reproduced_says_under_which_condition(claim):
    found = rules.verdict(claim)
    assert found.numbers
    assert found.ruling.verdict is Verdict.REPRODUCED or (ALL[claim].condition and ALL[claim].figure)


def runs(**accuracies):
    """Five seeds of each task and arm, whose spread is small."""
    rows = [(arm, seed, value + 0.001 * seed) for arm, value in accuracies.items() for seed in range(5)]
    about = {"task": "contour", "steps": 400, "n_test": 2_000, "n_classes": 10}
    return pd.DataFrame(rows, columns=["arm", "seed", "test_accuracy"]).assign(**about)


@pytest.mark.parametrize(
    "none, other, place, verdict",
    [
        (0.6, 0.8, 0.8, "reproduced"),
        (0.6, 0.7, 0.8, "partly reproduced"),
        (0.8, 0.8, 0.8, "not reproduced"),
        (0.6, 0.7, 0.7, "partly reproduced"),
    ],
)
def test_the_rule_on_positions_by_hand(none, other, place, verdict):
    arms = {"none": none, "1-D, stem": 0.8, "2-D, stem": other, "relative": 0.7}
    arms |= {"1-D, every block": place, "1-D, shared": 0.8, "2-D, every block": other, "2-D, shared": other}
    late = runs(**{"1-D, stem": 0.9, "relative": 0.9}).assign(steps=800)  # in which relative has caught up
    assert rules.positions_rule(pd.concat([runs(**arms), late])).ruling.verdict == verdict


def test_a_seed_that_never_started_leaves_no_interval():
    rows = runs(a=0.8, b=0.6)
    assert rules.lead(rows, "a", "b").value == pytest.approx(20)
    rows.loc[0, "test_accuracy"] = 0.1
    found = rules.lead(rows, "a", "b")
    assert found.interval is None and str(found).endswith("seeds, no interval")
    assert claims.judge(claims.above(found)).verdict == "inconclusive"


def test_a_page_keeps_figures_verdicts_and_numbers_of_this_run(figures, capsys):
    page = claims.begin("04_data_or_inductive_bias", "smoke", 0)
    with pytest.raises(ValueError, match="no alt text"):
        page.save(b"", "blank", " ")
    page.save(b"\x89PNG", "drawn", "An empty square.")
    page.save(b"\xff\xd8", "taken", "A photograph.")
    claims.show(page, "C03", live={"ViT − ResNet": claims.Estimate.of([1.0, 2.0, 3.0], "points")})
    said = capsys.readouterr().out
    assert "**C03: reproduced.**" in said and "This run (smoke): ViT − ResNet: +2.0 points" in said
    result = paths.read_json(page.folder / "result.json")
    assert result["claims"]["C03"]["verdict"] == "reproduced" and result["figures"]["drawn"]["file"] == "drawn.png"
    assert result["live"]["C03, ViT − ResNet"]["n"] == 3
    written = report.write("smoke")
    text = written.read_text()
    links = re.findall(r"\]\(([^)]+\.ipynb)\)", text)
    assert links and all((written.parent / link).is_file() for link in links)
    assert "![A photograph.](04_data_or_inductive_bias/taken.jpg)" in text
    assert "| C03, ViT − ResNet | +2.0 points [−0.5, 4.5], n = 3 seeds | – |" in text


def test_a_run_with_other_weights_is_credited_with_no_verdict(figures, capsys):
    page = claims.begin("08_where_it_looks", "smoke", 0, weights="vit_tiny@<b>f</b>.safetensors")
    claims.show(page, "C14", live={"mass": claims.Estimate.of([1.0, 2.0, 3.0], "points")})
    words = "vit_tiny@?b?f?/b?.safetensors"
    assert f"It says nothing of {words}, which this run looks at." in capsys.readouterr().out
    text = report.write("smoke").read_text()
    assert f"## 08_where_it_looks\n\nOf {words}, of which no verdict above speaks." in text and "| – |" in text
    claims.show(claims.begin("08_where_it_looks", "smoke", 0, weights="lab", world_weights="mine"), "C14")
    assert "It says nothing of mine, which this run looks at." in capsys.readouterr().out


@pytest.mark.parametrize("weights", ["lab", "lab-masked"])
def test_the_reference_is_of_the_same_weights(weights, figures):
    known = paths.read_json(paths.ROOT / "figures/reference/06_filters_and_positions/result.json")
    page = claims.begin("06_filters_and_positions", "smoke", 0, weights=weights)
    metric = next(name.removeprefix("C11, ") for name in known["live"] if name.startswith("C11, "))
    claims.show(page, "C11", live={metric: claims.Estimate.exact(1.0)})
    line = next(line for line in report.write("smoke").read_text().splitlines() if line.startswith(f"| C11, {metric}"))
    assert line.endswith("| – |") == (weights != "lab")


@pytest.mark.parametrize(
    "preset, seed, words", [("gpu", 0, "PRESET is 'gpu'"), ("smoke", 1.0, "SEED is 1.0"), ("smoke", -1, "SEED")]
)
def test_parameters_that_cannot_be_are_told(preset, seed, words, figures):
    with pytest.raises(ValueError, match=words):
        claims.begin("04_data_or_inductive_bias", preset, seed)
    with pytest.raises(ValueError, match="unknown claim 'C99': expected one of C01 to C21"):
        claims.verdict("C99")


def test_the_committed_ledger_is_that_of_the_evidence():
    assert (paths.ROOT / "docs" / "ledger.md").read_text(encoding="utf-8") == pages.ledger()


def test_the_worked_example_of_a_claim_is_thirty_lines_at_most_and_true():
    text = (paths.ROOT / "docs" / "claim.md").read_text(encoding="utf-8")
    diffs = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    parts = ["\n".join(re.findall(r"^\+(.*)$", diff, re.MULTILINE)) for diff in diffs]
    assert len(parts) == 4 and len("\n".join(parts).splitlines()) <= 30
    entry, names = tomllib.loads(parts[1])["C22"], dict(vars(rules))
    exec(parts[2], names)
    assert names["c22"]().ruling.verdict is Verdict.REPRODUCED
    assert (paths.ROOT / "notebooks" / f"{Claim('C22', **entry).notebook}.ipynb").exists()
