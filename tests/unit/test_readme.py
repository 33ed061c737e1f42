"""The README shows what is there: every link leads somewhere, and its table is the reference results'."""

import re

import pytest

from vitlab import files
from vitlab.experiments import report

README = files.ROOT / "README.md"
PAGES = [README, *sorted((files.ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert broken == []


def test_pictures_have_alternative_text():
    assert re.findall(r"!\[\s*\]\(", README.read_text(encoding="utf-8")) == []


def test_ledger_table_is_the_reference():
    text = README.read_text(encoding="utf-8")
    assert report.with_table(text, report.readme_table("quick")) == text, "run: python -m vitlab.authoring readme"
