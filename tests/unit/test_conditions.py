"""Every claim that is not reproduced says where its effect is, or what it would take, with a figure that exists."""

import re

import pytest

from vitlab import paths
from vitlab.ledger import conditions, report
from vitlab.ledger.entries import by_claim, verdicts_of
from vitlab.publish import front


@pytest.fixture(scope="module")
def committed():
    return report.read_results(paths.reference_dir("quick"))[0]


def test_every_claim_that_is_not_reproduced_in_both_draws_has_one_and_no_other(committed):
    verdicts = {claim: verdicts_of(entries) for claim, entries in by_claim(committed).items()}
    for claim, drawn in front.drawn_twice().items():
        verdicts[claim].append(drawn.second)
    wanted = {claim for claim in verdicts if conditions.is_wanted(verdicts[claim])}
    assert set(conditions.CONDITIONS) == wanted


@pytest.mark.parametrize("claim", conditions.CONDITIONS)
def test_its_figure_is_one_of_its_notebook(claim, committed):
    condition = conditions.CONDITIONS[claim]
    assert condition.figure in committed[condition.notebook]["figures"]


@pytest.mark.parametrize("claim", conditions.CONDITIONS)
def test_it_has_no_number_of_results_which_would_grow_old(claim):
    words = conditions.CONDITIONS[claim].words
    without_names = re.sub("[12]-D|CIFAR-10|TPUv3|Table 1|16, 32 and 14 px", "", words)
    assert words.endswith(".") and len(words) < 260 and not re.search(r"\d", without_names)


def test_the_page_has_it_only_where_it_is_wanted():
    entry = {"claim": "C16", "metric": "lead", "value": 1.0, "interval": None, "n": 1, "unit": "", "counted": ""}
    entry |= {"paper": "", "note": "", "verdict": "not reproduced"}
    for verdict, wanted in (("not reproduced", True), ("reproduced", False)):
        page = front.ledger_page({"11_design_choices": {"results": [entry | {"verdict": verdict}]}})
        assert (conditions.CONDITIONS["C16"].words in page) == wanted
