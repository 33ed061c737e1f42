"""What readers and contributors are told is true: links, targets, versions, forms."""

import re

import pytest
import yaml

import vitlab
from vitlab import cli, paths

ROOT = paths.ROOT
PAGES = [*ROOT.glob("[CR]*.md"), *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "site" / "index.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere_and_pictures_have_words(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    assert [each for each in targets if "://" not in each and not (page.parent / each).exists()] == []
    assert re.findall(r"!\[\s*\]\(", text) == []
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text)[:1]:
        assert (page.parent / picture).stat().st_size <= 300_000  # the first comes at once


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "docs/install.md", "docs/teaching.md"])
def test_every_target_of_make_that_is_named_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert named and set(named) <= targets


def test_every_command_of_vitlab_that_is_named_exists(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    known = set(re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE))
    assert known == {"run", "train", "analyse", "study", "report", "doctor", "recipes", "copy", "exercises", "gallery"}
    for page in ("CONTRIBUTING", "docs/cluster", "docs/exercises", "docs/install", "docs/teaching", "docs/training"):
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        assert set(re.findall(r"(?:`|^)vitlab ([a-z]+)", text, re.MULTILINE)) <= known, page


def test_the_changelog_has_the_version_and_what_is_to_come():
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert [version for version, date in headings if date][0] == vitlab.__version__


def test_the_workflow_is_the_script_that_anybody_runs_and_linters_are_the_locks():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (ruff,) = [each["rev"] for each in repositories if "ruff" in each["repo"]]
    assert f"\nruff=={ruff.removeprefix('v')} " in (ROOT / "requirements.lock").read_text()
