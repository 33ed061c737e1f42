"""Notebooks are made from their sources, and what is committed is what was run."""

import json
from pathlib import Path

import nbformat
import pytest

from vitlab import notebooks, paths
from vitlab.cli import execute
from vitlab.publish.__main__ import main
from vitlab.publish.reference import reference
from vitlab.publish.source import exercises, problems, sync, without_solution, write

SOURCE = """\
# %% [markdown]
# # 01 · Sums
#
# A line of text with $x^2$.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% tags=["hide-input"]
from vitlab import ledger

study = ledger.begin("01_sums", PRESET, SEED)

# %%
def total(values):
    ### BEGIN SOLUTION
    result = sum(values)
    return result
    ### END SOLUTION


print(total([1, 2]), SEED)

# %%
ledger.conclude(study, "C01", ledger.judge(ledger.given(True)), {"sum": ledger.Estimate.exact(3)})
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "notebooks"
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "01_sums.py").write_text(SOURCE)
    monkeypatch.setattr(notebooks, "notebooks_dir", lambda: folder)
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    return folder


def edit(folder: Path, old: str, new: str) -> None:
    source = folder / "source" / "01_sums.py"
    assert old in source.read_text()
    source.write_text(source.read_text().replace(old, new))


def read(path: Path):
    return nbformat.read(path, as_version=4)


def test_sync_makes_a_notebook_that_jupyter_and_papermill_can_use(folder):
    (path,) = sync(folder)
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.name == "01_sums.ipynb"
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code", "code", "code"]
    assert notebook.cells[1].metadata == {"tags": ["parameters"]}
    assert notebook.cells[2].metadata == {"tags": ["hide-input"]}
    assert notebook.cells[3].metadata == {}
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.kernelspec.language == "python"
    assert len(notebook.metadata.vitlab.source_sha256) == 64
    assert notebooks.parameters(path) == {"PRESET": "quick", "SEED": 0}
    assert problems(folder) == ["exercises/01_sums.ipynb is missing"]


def test_sync_gives_the_same_bytes_again_and_writes_only_what_changed(folder):
    (path,) = sync(folder)
    first = path.read_bytes()
    assert sync(folder) == []
    path.unlink()
    assert sync(folder) == [path] and path.read_bytes() == first


def with_output(path: Path) -> None:
    notebook = read(path)
    notebook.cells[3].outputs = [nbformat.v4.new_output("stream", text="3 0\n")]
    nbformat.write(notebook, path)


def test_outputs_stay_as_long_as_the_source_does(folder):
    (path,) = sync(folder)
    with_output(path)
    assert sync(folder) == [] and read(path).cells[3].outputs
    edit(folder, "[1, 2]", "[1, 3]")
    assert sync(folder) == [path]
    assert not read(path).cells[3].outputs and "[1, 3]" in read(path).cells[3].source


def test_an_edit_in_the_notebook_is_not_lost(folder):
    (path,) = sync(folder)
    notebook = read(path)
    notebook.cells[0].source += " Mine."
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"01_sums.ipynb was edited itself \(cell 0 differs\)"):
        sync(folder)
    assert "Mine." in read(path).cells[0].source
    assert "01_sums.ipynb: cell 0 differs" in problems(folder)


def test_check_sees_every_kind_of_difference(folder, capsys):
    sync(folder), exercises(folder)
    assert main(["check"]) == 0
    path = folder / "01_sums.ipynb"
    good = path.read_text()
    for change, words in [
        (lambda nb: nb["cells"].pop(), "4 cells, the source has 5"),
        (lambda nb: nb["cells"][1]["metadata"].pop("tags"), "cell 1 differs"),
        (lambda nb: nb["cells"][1].update(id="other"), "cell 1 differs"),
        (lambda nb: nb["metadata"]["kernelspec"].update(name="r"), "another kernel"),
        (lambda nb: nb["metadata"].pop("vitlab"), "another version of the source"),
        (lambda nb: nb["metadata"].update(papermill={}), "papermill's metadata"),
    ]:
        notebook = json.loads(good)
        change(notebook)
        path.write_text(json.dumps(notebook))
        capsys.readouterr()
        assert main(["check"]) == 1 and words in capsys.readouterr().out
    path.write_text(good)
    (folder / "02_orphan.ipynb").write_text(good)
    assert problems(folder) == ["02_orphan.ipynb has no source"]
    edit(folder, "SEED = 0", "SEED = 1")
    assert any(words.startswith("exercises/01_sums.ipynb: made from") for words in problems(folder))


def test_exercises_hold_no_solution(folder):
    stale = folder / "exercises" / "09_gone.ipynb"
    stale.parent.mkdir()
    stale.touch()
    (folder / "source" / "02_plain.py").write_text("# %%\nprint(1)\n")
    (path,) = exercises(folder)
    assert not stale.exists() and path == folder / "exercises" / "01_sums.ipynb"
    notebook = read(path)
    assert "sum(values)" not in path.read_text() and "SOLUTION" not in path.read_text()
    assert notebook.cells[3].source.startswith(
        'def total(values):\n    # YOUR CODE HERE\n    raise NotImplementedError("exercise not solved yet")\n\n\nprint('
    )
    assert all(not cell.get("outputs") for cell in notebook.cells)
    compile(notebook.cells[3].source, "cell", "exec")


@pytest.mark.parametrize(
    "text",
    ["### BEGIN SOLUTION", "### END SOLUTION", "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION"],
)
def test_a_marker_without_its_partner_is_an_error(text):
    with pytest.raises(ValueError, match=r"01_a.py, cell 2: ### (BEGIN|END) SOLUTION"):
        without_solution(text, "01_a.py, cell 2")


def execute_all(folder: Path) -> None:
    path = folder / "01_sums.ipynb"
    assert execute.run([path], "quick", {}) == {}


def pretend(folder: Path, figures: Path, injected: str = "", stream: str = "stdout", text: str = "3 0", note: str = ""):
    """What an execution leaves, without the seconds that a kernel takes."""
    notebook = read(folder / "01_sums.ipynb")
    notebook.cells[3].outputs = [nbformat.v4.new_output("stream", name=stream, text=text)]
    cell = nbformat.v4.new_code_cell(injected, metadata={"tags": ["injected-parameters"]})
    notebook.cells.insert(2, cell)
    results = figures / "quick" / "01_sums"
    paths.write_json(results / "result.json", {"note": note})
    write(notebook, results / "notebook.ipynb")


@pytest.mark.slow
def test_reference_takes_over_results_and_outputs(folder, figures, tmp_path):
    sync(folder), exercises(folder)
    old = tmp_path / "reference" / "quick" / "01_sums" / "old.png"
    old.parent.mkdir(parents=True)
    old.touch()
    with pytest.raises(ValueError, match="01_sums has not run to its end at preset quick: vitlab run 01"):
        reference(folder, "quick")
    execute_all(folder)
    (figures / "quick" / "01_sums" / "plot.svg").write_text("<svg/>")
    failed = figures / "quick" / "01_sums" / "notebook.failed.ipynb"
    failed.touch()  # what is in result.json is of this execution
    with pytest.raises(ValueError, match="01_sums has not run to its end"):
        reference(folder, "quick")
    failed.unlink()
    assert reference(folder, "quick") == [folder / "01_sums.ipynb"]
    assert sorted(path.name for path in old.parent.iterdir()) == ["plot.svg", "result.json"]
    notebook = read(folder / "01_sums.ipynb")
    assert notebook.cells[3].outputs[0].text == "3 0\n"
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2, 3, 4]
    assert "injected" not in str(notebook) and "papermill" not in notebook.metadata
    assert problems(folder) == [] and sync(folder) == []
    assert paths.read_json(old.parent / "result.json")["results"][0]["value"] == 3


@pytest.mark.parametrize(
    "left, message",
    [
        ({"injected": "SEED = 5"}, "was run with SEED = 5"),
        ({"text": f"saved to {paths.ROOT}"}, r"cell \[3\] shows a path of this machine"),
        ({"text": f"saved to {Path.home()}/x.png"}, r"cell \[3\] shows a path of this machine"),
        ({"text": "careful", "stream": "stderr"}, r"cell \[3\] wrote to stderr: careful"),
        ({"note": str(paths.ROOT / "data")}, "result.json shows a path of this machine"),
    ],
)
def test_reference_refuses_what_should_not_be_committed(folder, figures, tmp_path, left, message):
    sync(folder)
    pretend(folder, figures, **left)
    before = (folder / "01_sums.ipynb").read_bytes()
    with pytest.raises(ValueError, match=message):
        reference(folder, "quick")
    assert (folder / "01_sums.ipynb").read_bytes() == before and not (tmp_path / "reference").exists()


def test_reference_refuses_the_run_of_another_source(folder, figures):
    sync(folder)
    pretend(folder, figures)
    edit(folder, "[1, 2]", "[1, 3]")
    with pytest.raises(ValueError, match="01_sums has changed since it was run"):
        reference(folder, "quick")


def test_the_command_line_of_the_maintainers(folder, capsys):
    assert main(["sync"]) == 0
    assert capsys.readouterr().out == f"{folder / '01_sums.ipynb'}\n"
    assert main(["sync"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert main(["reference", "07"]) == 2
    assert "unknown notebook '07'" in capsys.readouterr().err


def test_the_notebooks_of_this_checkout_are_their_sources():
    if not (notebooks.notebooks_dir() / "source").is_dir():
        pytest.skip("no notebooks yet")
    assert problems(notebooks.notebooks_dir()) == []
