"""Pages of the site: links held or refused, words for pictures, formulas without scripts; and copies for Colab."""

import json
import re
import runpy
import sys
import types
from xml.etree import ElementTree

import nbformat
import pytest

from vitlab import notebooks, paths
from vitlab.publish import colab
from vitlab.publish.__main__ import main
from vitlab.publish.site import api, links, pages
from vitlab.publish.source import from_source, sources

CONF = paths.ROOT / "docs" / "site" / "conf.py"


@pytest.fixture
def checkout(tmp_path):
    """A small checkout: two documents, a folder, one notebook with a figure that is saved and one that is not."""
    texts = {
        "README.md": "# Project\n",
        "docs/site/index.md": "# Site\n\n[a](docs/a.md#part)\n",
        "docs/a.md": "# A\n\n[notebook](../notebooks/01_sums.ipynb), [sources](../notebooks/source/), [web](https://x.org)\n",
        "data/model.md": "# Model\n",
        "notebooks/source/01_sums.py": "x = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    picture = {"image/png": "iVBORw0KGgo="}
    cells = [
        nbformat.v4.new_markdown_cell("# 01 · Sums\n\nSee [the model](../data/model.md)."),
        nbformat.v4.new_code_cell(
            'ledger.save_figure(study, fig, "sums", alt="x")', outputs=[nbformat.v4.new_output("display_data", picture)]
        ),
        nbformat.v4.new_markdown_cell("## Look\n\nFirst.\n\nThe *digits*, as `they` are:"),
        nbformat.v4.new_code_cell("plt.show()", outputs=[nbformat.v4.new_output("display_data", picture)]),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "01_sums.ipynb")
    results = tmp_path / "figures" / "reference" / "quick" / "01_sums"
    results.mkdir(parents=True)
    (results / "result.json").write_text(json.dumps({"figures": {"sums": {"alt": "Two bars."}}}))
    return tmp_path


def test_pages_lie_as_in_the_checkout_with_what_they_link_to(checkout, tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    made = {path.relative_to(target).as_posix() for path in pages.gather(checkout, target)}
    listings = {"files/notebooks-source.md", "files/figures-reference-quick-01_sums.md"}
    assert made == {"index.md", "README.md", "docs/a.md", "data/model.md", "notebooks/01_sums.ipynb"} | listings
    assert "[sources](../files/notebooks-source.md)" in (target / "docs" / "a.md").read_text()
    assert "[01_sums.py](path:../notebooks/source/01_sums.py)" in (target / "files" / "notebooks-source.md").read_text()
    assert (target / "notebooks" / "source" / "01_sums.py").read_text() == "x = 1\n"
    original = checkout / "notebooks" / "01_sums.ipynb"
    assert (target / "originals" / "01_sums.ipynb").read_bytes() == original.read_bytes()


def test_a_notebook_gets_its_downloads_and_its_words(checkout, tmp_path):
    pages.gather(checkout, tmp_path / "made", "owner/vitlab")
    cells = nbformat.read(tmp_path / "made" / "notebooks" / "01_sums.ipynb", as_version=4).cells
    assert "](path:../originals/01_sums.ipynb)" in cells[1].source
    assert "](path:../figures/reference/quick/01_sums/result.json)" in cells[1].source
    assert "](../files/figures-reference-quick-01_sums.md)" in cells[1].source
    assert "/owner/vitlab/blob/main/notebooks/colab/01_sums.ipynb" in cells[1].source
    assert "without the solutions" not in cells[1].source  # it has no exercises
    assert [cell.metadata["alt"] for cell in cells] == [[], [], ["Two bars."], [], ["The digits, as they are:"]]


@pytest.mark.parametrize("target", ["nowhere.md", "../../outside.md", "../notebooks/02_no.ipynb"])
def test_a_link_that_leads_nowhere_is_named(checkout, tmp_path, target):
    (checkout / "docs" / "a.md").write_text(f"# A\n\n[broken]({target})\n")
    with pytest.raises(ValueError, match=rf"docs/a\.md: the link to '{re.escape(target)}' leads nowhere"):
        pages.gather(checkout, tmp_path / "made")


def test_every_public_module_of_the_science_has_its_place_in_the_api(tmp_path):
    made = {path.stem: path.read_text() for path in api.write(paths.ROOT, tmp_path)}
    assert list(made) == ["analysis", "models", "data", "training", "evaluation", "plots"]
    for package, text in made.items():
        there = [path.stem for path in sorted((paths.ROOT / "vitlab" / package).glob("*.py")) if path.stem[0] != "_"]
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == there
        assert all(f".. automodule:: vitlab.{package}.{name}\n   :members:" in text for name in there)


def test_a_figure_that_result_json_does_not_know_is_an_error(checkout, tmp_path):
    result = checkout / "figures" / "reference" / "quick" / "01_sums" / "result.json"
    result.write_text(json.dumps({"figures": {}}))
    with pytest.raises(ValueError, match=r"01_sums, cell 1 shows 1 pictures and saves \['sums'\]"):
        pages.gather(checkout, tmp_path / "made")


def test_every_committed_notebook_can_be_made_a_page_with_words_for_each_picture():
    for path in notebooks.all_notebooks():
        notebook = nbformat.reads(pages.page(path, paths.ROOT, "")[0], as_version=4)
        shown = [
            (
                len(cell.metadata["alt"]),
                sum("image/png" in output.get("data", {}) for output in cell.get("outputs", ())),
            )
            for cell in notebook.cells
        ]
        assert all(words == pictures for words, pictures in shown) and sum(pictures for _, pictures in shown) > 0
        assert all(len(words) > 20 for cell in notebook.cells for words in cell.metadata["alt"])


PAGE = '<h1 id="top">A</h1><a href="b.html#c">b</a> <img src="p.png" alt="P"> <a href="https://x.org">x</a>'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", []),
        ('<a href="#top">up</a><a href="b.html">b</a><a href="mailto:a@b.c">m</a>', []),
        ('<img src="data:image/png;base64,AA" alt="D"><link rel="next" href="b.html">', []),
        ("<iframe srcdoc=\"&lt;a href='no.html'&gt;\"></iframe>", []),
        ('<a href="c.html">c</a>', ["a.html: link c.html: there is no such file"]),
        ('<a href="b.html#d">d</a>', ["a.html: link b.html#d: b.html has no place #d"]),
        ('<a href="#d">d</a>', ["a.html: link #d: a.html has no place #d"]),
        ('<a href="../../etc">o</a>', ["a.html: link ../../etc leads out of the site"]),
        ('<script src="https://cdn.org/x.js"></script>', ["a.html: loads https://cdn.org/x.js from a network"]),
        ('<link rel="stylesheet" href="//cdn.org/x.css">', ["a.html: loads //cdn.org/x.css from a network"]),
        ('<img src="q.png" alt="Q">', ["a.html: loads q.png, which is not there"]),
        ('<img src="p.png">', ["a.html: picture p.png has no text"]),
    ],
)
def test_links_of_a_built_site(tmp_path, more, said):
    (tmp_path / "a.html").write_text(PAGE + more)
    (tmp_path / "b.html").write_text('<p id="c">')
    (tmp_path / "p.png").write_bytes(b"")
    (tmp_path / "s.css").write_text("a { background: url(p.png) }")
    found = links.pages(tmp_path)
    wrong = links.problems(tmp_path, found)
    assert len(wrong) == len(said) and all(line.startswith(begin) for line, begin in zip(wrong, said, strict=True)), (
        wrong
    )
    assert links.external(found) == ["https://x.org"]


@pytest.mark.parametrize(
    "style", ["a { background: url('https://cdn.org/f.woff') }", '@import "https://cdn.org/s.css";']
)
def test_a_style_that_asks_for_a_network_is_found(tmp_path, style):
    (tmp_path / "s.css").write_text(style)
    assert "s.css: loads https://cdn.org/" in links.problems(tmp_path, {})[0]


MATHML = "{http://www.w3.org/1998/Math/MathML}"


def test_formulas_without_scripts():
    mathml = runpy.run_path(str(CONF))["mathml"]
    tree = ElementTree.fromstring(mathml(r"\Big(1, \frac{t}{t_w}\Big) \dots", block=True))
    assert tree.tag == f"{MATHML}math" and tree.get("display") == "block"
    (fraction,) = tree.iter(f"{MATHML}mfrac")
    assert [node.text for node in fraction.iter() if node.text and node.text.strip()] == ["t", "t", "w"]
    sized = [node.text for node in tree.iter(f"{MATHML}mo") if node.get("maxsize") or node.get("minsize")]
    assert sized == ["(", ")"] and "…" in "".join(tree.itertext())


def test_every_formula_of_the_notebooks_can_be_drawn():
    mathml = runpy.run_path(str(CONF))["mathml"]
    count = 0
    for source in sources(notebooks.notebooks_dir()):
        for cell in from_source(source).cells:
            if cell.cell_type == "markdown":
                for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$`]+?)\$", cell.source, re.DOTALL):
                    drawn = mathml(block or inline, block=bool(block))
                    drawn = re.sub(r"&(?!lt;|gt;|amp;)\w+;", "", drawn)  # names that HTML knows and XML does not
                    assert ElementTree.fromstring(drawn).tag == f"{MATHML}math"
                    count += 1
    assert count > 100


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_a_copy_for_colab_adds_a_badge_and_one_cell(tmp_path):
    (path,) = colab.write("owner/lab", tmp_path / "out", ["08"])
    original, copy = (nbformat.read(which, as_version=4) for which in (notebooks.find("08"), path))
    title, first = copy.cells[:2]
    assert title.source.splitlines()[0] == original.cells[0].source.splitlines()[0]
    assert "owner/lab/blob/main/notebooks/colab/08_attention_distance.ipynb" in title.source.splitlines()[2]
    assert [cell.source for cell in copy.cells[2:]] == [cell.source for cell in original.cells[1:]]
    assert all(cell.outputs == [] for cell in code_cells(copy)) and len(first.source.splitlines()) <= 25


@pytest.mark.slow
def test_the_first_cell_does_nothing_where_there_is_no_colab(monkeypatch):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("something was started"))
    before = list(sys.path)
    made = colab.with_setup(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 01 · A")]), "o/lab", "01.ipynb"
    )
    exec(compile(code_cells(made)[0].source, "<cell>", "exec"), {})
    assert sys.path == before


@pytest.mark.slow
def test_on_colab_it_fetches_installs_what_is_missing_and_keeps_torch(monkeypatch, tmp_path):
    """The cell in a process that looks like Colab's: `/content` moved here, and timm not installed."""
    from importlib import metadata

    ran = []

    def run(command, check):
        ran.append(command)
        if command[0] == "git":
            (tmp_path / "lab" / "notebooks").mkdir(parents=True)

    there = [found for found in metadata.distributions() if found.metadata["Name"] != "timm"]
    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr(metadata, "distributions", lambda: there)
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    made = colab.with_setup(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 01 · A")]), "o/lab", "01.ipynb"
    )
    code = code_cells(made)[0].source.replace("/content", tmp_path.as_posix())
    for _ in range(2):  # a second run of the cell clones nothing
        exec(compile(code, "<cell>", "exec"), {})
    clone, missing, package = ran[:3]
    assert clone[-2:] == ["https://github.com/o/lab", str(tmp_path / "lab")] and [c[0] for c in ran].count("git") == 1
    assert missing[-1].startswith("timm>=") and "torch" not in " ".join(missing[-2:]).replace(str(tmp_path), "")
    assert f"torch=={metadata.version('torch')}" in (tmp_path / "kept.txt").read_text().split()
    assert package[-3:] == ["--no-deps", "--editable", str(tmp_path / "lab")]
    assert sys.path[0] == str(tmp_path / "lab")


@pytest.mark.parametrize("repository", ["", "vitlab", "https://github.com/o/lab", "o/l/x", "o/la b"])
def test_a_repository_is_an_owner_and_a_name(repository, tmp_path, capsys):
    arguments = ["colab", "01", "--repository", repository, "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "expected OWNER/NAME" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_minutes_of_the_teaching_guide_are_those_of_the_notebooks():
    given = {}
    for source in sources(notebooks.notebooks_dir()):
        headings = re.findall(
            r"^# ### (?:Exercise )?(\d) · .*\(★+, (\d+) min", source.read_text(encoding="utf-8"), re.M
        )
        given |= {f"{source.stem[:2]}.{number}": int(minutes) for number, minutes in headings}
    text = " ".join((paths.ROOT / "docs" / "teaching.md").read_text(encoding="utf-8").split())
    named = re.findall(r"((?:\d\d\.\d(?:, | and )?)+)[^\d(]*(?:\(|: )(\d+) min", text)
    said = {number: int(minutes) for numbers, minutes in named for number in re.findall(r"\d\d\.\d", numbers)}
    assert len(said) > 30 and said == {number: given[number] for number in said}
