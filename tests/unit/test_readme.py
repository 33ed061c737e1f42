"""README, site and ledger show what is there: links lead somewhere, tables are the reference results' and the zoo's."""

import re

import pytest

from vitlab import paths
from vitlab.ledger import report
from vitlab.models.zoo import lab_sizes
from vitlab.plots.families import sizes_table
from vitlab.publish import front

README = paths.ROOT / "README.md"
PAGES = [README, *paths.ROOT.glob("C*.md"), *sorted((paths.ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert broken == []


def test_pictures_have_alternative_text():
    assert re.findall(r"!\[\s*\]\(", README.read_text(encoding="utf-8")) == []


@pytest.fixture(scope="module")
def results():
    return report.read_results(paths.reference_dir("quick"))[0]


def between(text, name):
    """What stands between two markers, in one line."""
    return " ".join(re.search(f"<!-- {name}:begin -->(.*)<!-- {name}:end -->", text, re.DOTALL)[1].split())


@pytest.mark.parametrize("page", front.PAGES[:2])
def test_findings_and_picture_are_the_references(page, results):
    text = (paths.ROOT / page).read_text(encoding="utf-8")
    assert between(text, "findings") == front.headline(results, front.drawn_twice()), (
        "run: python -m vitlab.publish readme"
    )
    assert between(text, "hero") == " ".join(front.picture().split()), "run: python -m vitlab.publish readme"


def test_the_table_of_claims_is_the_reference(results):
    text = README.read_text(encoding="utf-8")
    assert report.with_table(text, front.claims_table(results, front.drawn_twice())) == text, (
        "run: python -m vitlab.publish readme"
    )


def test_the_ledgers_page_is_the_reference(results):
    text = (paths.ROOT / front.PAGES[2]).read_text(encoding="utf-8")
    assert text == front.ledger_page(results, front.drawn_twice()), "run: python -m vitlab.publish readme"


def test_the_front_page_says_what_it_takes_as_the_guide_does():
    guide = (paths.ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for page in front.PAGES[:2]:
        text = " ".join((paths.ROOT / page).read_text(encoding="utf-8").split())
        assert "downloads about 3 GB and takes about 6 GB of disk" in text, page
    assert "about 6 GB on Linux" in guide and "about 3 GB to download" in guide


def test_table_of_models_is_the_zoos():
    text = README.read_text(encoding="utf-8")
    table = sizes_table(lab_sizes())
    assert report.with_table(text, table, "models") == text, "run: python -m vitlab.publish readme"
