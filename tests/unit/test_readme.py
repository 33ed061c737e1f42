"""The README shows what is there: links lead somewhere, its tables are the reference results' and the zoo's."""

import re

import pytest

from vitlab import files
from vitlab.ledger import report
from vitlab.models.sizes import lab_sizes
from vitlab.plots.families import sizes_table

README = files.ROOT / "README.md"
PAGES = [README, *files.ROOT.glob("C*.md"), *sorted((files.ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert broken == []


def test_pictures_have_alternative_text():
    assert re.findall(r"!\[\s*\]\(", README.read_text(encoding="utf-8")) == []


def test_ledger_table_is_the_reference():
    text = README.read_text(encoding="utf-8")
    assert report.with_table(text, report.readme_table("quick")) == text, "run: python -m vitlab.publish readme"


def test_table_of_models_is_the_zoos():
    text = README.read_text(encoding="utf-8")
    table = sizes_table(lab_sizes())
    assert report.with_table(text, table, "models") == text, "run: python -m vitlab.publish readme"
