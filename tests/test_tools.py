"""Notebooks, exercises, references and Colab copies are made from sources, and no edit is lost."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types

import nbformat
import pytest

from tools import notebooks as tool
from tools import slides
from vitlab import paths

SOURCE = """\
# %% [markdown]
# # 01 · Sums
# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
# %%
### BEGIN SOLUTION
x = 1
### END SOLUTION
print(x)
"""


@pytest.fixture
def folder(tmp_path):
    there = tmp_path / "notebooks"
    (there / "source").mkdir(parents=True)
    (there / "source" / "01_sums.py").write_text(SOURCE)
    return there


def test_notebooks_follow_their_sources_and_edits_are_not_lost(folder):
    assert tool.check(folder) == ["01_sums.ipynb is missing", "exercises/01_sums.ipynb is missing"]
    assert [path.name for path in tool.sync(folder)] == 2 * ["01_sums.ipynb"] and tool.sync(folder) == []
    assert tool.check(folder) == []
    assert "YOUR CODE HERE" in (folder / "exercises" / "01_sums.ipynb").read_text()
    notebook = nbformat.read(folder / "01_sums.ipynb", as_version=4)
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(notebook, folder / "01_sums.ipynb")
    assert tool.sync(folder) == [] and "1\\n" in (folder / "01_sums.ipynb").read_text()
    notebook.cells[-1].source += "# edited"
    nbformat.write(notebook, folder / "01_sums.ipynb")
    with pytest.raises(ValueError, match="01_sums.ipynb was edited itself"):
        tool.sync(folder)
    (folder / "source" / "01_sums.py").write_text(SOURCE + "# more\n")
    assert len(tool.check(folder)) == 2 and tool.check(folder)[0] == "01_sums.ipynb is not its source's"
    assert tool.sync(folder) and tool.check(folder) == []


def test_the_working_copy_keeps_what_the_reader_changed_and_follows_what_not(folder, tmp_path):
    tool.sync(folder)
    mine = tmp_path / "work" / "01_sums.ipynb"
    assert mine in tool.work(folder, mine.parent) and "### BEGIN SOLUTION" in mine.read_text()
    (folder / "01_sums.ipynb").write_text("newer")
    assert mine in tool.work(folder, mine.parent) and mine.read_text() == "newer"
    mine.write_text("mine")
    (folder / "01_sums.ipynb").write_text("newest")
    assert mine not in tool.work(folder, mine.parent) and mine.read_text() == "mine"


def test_on_colab_the_first_cell_installs_what_is_missing_and_keeps_torch(folder, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="expected OWNER/NAME"):
        tool.colab("vitlab", folder)
    (path,) = tool.colab("owner/vitlab", folder)
    title, setup, *_ = json.loads(path.read_text())["cells"]
    assert "notebooks/colab/01_sums.ipynb" in "".join(title["source"]) and "](source/" not in "".join(title["source"])
    (tmp_path / "cell.py").write_text("".join(setup["source"]))
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(" ".join(command)))
    runpy.run_path(str(tmp_path / "cell.py"))
    assert calls == []  # not on Colab
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(os, "chdir", lambda place: None)
    monkeypatch.setattr("pathlib.Path.write_text", lambda self, text: calls.append(text))
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(tmp_path / "cell.py"))
    assert "git clone" in calls[0] and "torch==" in calls[1] and "--no-deps --editable" in calls[-1]


def test_the_links_of_notebooks_lead_somewhere_and_those_of_copies_to_the_same(tmp_path):
    """In notebooks and exercises, and in the reader's copies of them; on Colab a badge stands in their place."""
    root = tmp_path / "checkout"
    for name in ("docs", "notebooks/source"):
        shutil.copytree(paths.ROOT / name, root / name, ignore=shutil.ignore_patterns("_build", "*.ipynb"))
    folder, links = root / "notebooks", re.compile(r"\]\(([^)#:]+\.(?:ipynb|py|md))[^)]*\)")
    tool.sync(folder)
    tool.work(folder, root / "working" / "notebooks")
    made = [path for path in root.glob("**/notebooks/**/*.ipynb") if ".as_copied" not in path.parts]
    assert len(made) == 4 * len(tool.sources(folder))
    for path in made:
        texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
        found = links.findall("\n".join(texts))
        assert len(found) > 1 and [each for each in found if not (path.parent / each).is_file()] == [], path


def test_slides_begin_at_headings_leave_exercises_out_and_load_nothing(tmp_path):
    drawn = nbformat.v4.new_output("display_data", {"image/png": "", "text/plain": "wide"})
    texts = "# 01 · Sums\n\nWith $a_i$, not `$a`.", "As drawn:", "We see.\n\n## Rules\n\nShort:", "### 1 · Add (★)"
    codes = "import math", "draw()", "print(1)", "secret = 1"
    cells = [nbformat.v4.new_markdown_cell("## Verdict")]
    for text, code in reversed(list(zip(texts, codes, strict=True))):
        cell = nbformat.v4.new_code_cell(code, outputs=[drawn] if code == "draw()" else [])
        cells = [nbformat.v4.new_markdown_cell(text), cell, *cells]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "01_sums.ipynb")
    (page,) = slides.make("01", folder=tmp_path, target=tmp_path / "slides")
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"<(link|script|img|iframe)[^>]* (src|href)=.?https?:", html) and "secret" not in html
    first, drawing, rules, verdict = (part for part in re.split(r"<section[^>]*>\s*", html)[1:] if part)
    assert "<msub>" in first and "$a" in first and "import" not in first and "Verdict" in verdict
    assert "As drawn" in drawing and "We see" in drawing and "draw()" not in drawing and "print" in rules


@pytest.mark.slow
def test_the_site_is_built_with_words_for_every_picture(tmp_path):
    pytest.importorskip("myst_nb", reason="myst-nb is not installed (extra `docs`)")
    words = f"-m sphinx -q -c docs/site -d {tmp_path / 'trees'} . {tmp_path / 'html'}"
    done = subprocess.run([sys.executable, *words.split()], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-2000:]
    assert (tmp_path / "html" / "index.html").exists()
    pages = list((tmp_path / "html" / "notebooks").glob("*.html"))
    assert len(pages) >= 12 and "<math" in "".join(page.read_text() for page in pages)
    assert not any('alt="../_images' in page.read_text() for page in pages)
