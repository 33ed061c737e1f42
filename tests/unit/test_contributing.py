"""What contributors read is true: targets, presets and versions named in the documents are those there are."""

import re

import pytest
import yaml

import vitlab
from vitlab import paths
from vitlab.cli import main as cli
from vitlab.sweep.presets import PRESETS

ROOT = paths.ROOT
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text()
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def glossary() -> dict[str, str]:
    """Term → meaning, of CONTRIBUTING's table."""
    rows = CONTRIBUTING.split("## Glossary")[1].split("|---|---|---|\n")[1].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 3 and all(row[:2]) for row in cells)
    assert len({term for term, *_ in cells}) == len(cells), "a term twice"
    return {term.strip("`"): meaning for term, meaning, _ in cells}


def test_the_glossary_has_the_terms_of_the_field_and_of_the_project():
    field = (
        "block, stride, patch size, DDP, FSDP, EMA, ema_decay, learning rate, hyper-parameters, generalization gap, "
    )
    field += "few-shot accuracy, linear probe, attention distance, prefix tokens"
    project = (
        "study, run, run configuration, study configuration, preset, claim, verdict, reproduced, partly reproduced, "
    )
    project += "not reproduced, inconclusive, not testable at this scale, margin, equivalence, reference result, "
    project += "provenance, import closure"
    assert {*field.split(", "), *project.split(", ")} <= set(glossary())


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "docs/install.md", "docs/teaching.md"])
def test_every_target_of_make_that_is_named_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text, re.MULTILINE)
    assert named and set(named) <= targets


def listed(text: str) -> list[str]:
    """The presets that a text names, in its order, each once."""
    return list(dict.fromkeys(re.findall(rf"\b(?:{'|'.join([*PRESETS, 'rehearsal'])})\b", text)))


def test_every_list_of_presets_is_the_same(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    note = (ROOT / "notebooks/source/00_start_here.py").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lists = {
        "make": re.findall(r"\[PRESET=(\S+)\]", (ROOT / "Makefile").read_text())[0],
        "vitlab --help": capsys.readouterr().out.split("presets: ")[1].split("examples:")[0],
        "README": "\n".join(re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)),
        "notebook 00": re.findall(r"^# \| preset \| (.*) \|$", note, re.MULTILINE)[-1],
        "CONTRIBUTING": glossary()["preset"],
    }
    assert {where: listed(text) for where, text in lists.items()} == dict.fromkeys(lists, list(PRESETS))


def test_the_changelog_has_the_version_and_what_is_to_come():
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert [version for version, date in headings if date][0] == vitlab.__version__


def test_the_workflow_is_the_script_that_anybody_runs():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates_are_forms(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        return
    assert form["name"] and form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) and all(f["attributes"]["label"] for f in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_pre_commits_ruff_is_the_locks():
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (ruff,) = [each["rev"] for each in repositories if "ruff" in each["repo"]]
    assert f"\nruff=={ruff.removeprefix('v')} " in LOCK, "write the lock's version into .pre-commit-config.yaml"
