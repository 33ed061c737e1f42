"""Notebooks as people use them: explorers, viewer and a live training in a real JupyterLab."""

import re

import nbformat
import pytest
import torch

from vitlab import notebooks
from vitlab.widgets.viewer import attention_view

from .conftest import notebook_of

pytestmark = pytest.mark.slow


def test_a_chapter_runs_to_the_end(open_notebook):
    """With an explorer in it, at smoke: no error, nothing on stderr, and a key moves the explorer."""
    from tools.notebooks import from_source, sources

    path = next(path for path in sources(notebooks.notebooks_dir()) if path.stem.startswith("08"))
    made = from_source(path)
    cell = next(cell for cell in made.cells if "parameters" in cell.metadata.get("tags", ()))
    cell.source = cell.source.replace('PRESET = "quick"', 'PRESET = "smoke"')
    notebook = open_notebook(made, f"{path.stem}.ipynb")
    notebook.run()
    outputs = [output for cell in notebook.outputs() for output in cell]
    assert [it for it in outputs if it["output_type"] == "error" or it.get("name") == "stderr"] == []
    assert sum(any("image/" in kind for kind in output.get("data", {})) for output in outputs) > 3
    notebook.show("widgets.occlusion(")
    turned(notebook, "widgets.occlusion(")


def turned(notebook, source):
    """Press a key on the first slider of a cell: picture and words change. Returns the words."""
    cell = notebook.page.locator(".jp-CodeCell", has_text=source)
    picture, status = cell.locator(".jp-OutputArea-output img"), cell.get_by_role("status")
    before, words = picture.get_attribute("src"), status.inner_text()
    cell.locator(".noUi-handle").first.focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.page.wait_for_function(CHANGED, arg=[cell.element_handle(), before], timeout=10_000)
    status.filter(has_not_text=words).wait_for()  # a message of its own, after the picture's
    assert picture.count() == 1
    return status.inner_text()


CHANGED = "([cell, src]) => cell.querySelector('.jp-OutputArea-output img').src !== src"
TURNED = """
from matplotlib.figure import Figure
from vitlab import widgets

def draw(n):
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, n])
    return figure, f"{n} squared is {n**2}."

widgets.Explorer(draw, "A line", n=widgets.choice("how many", (1, 2, 3), 2))
""".strip()


MADE = """
import torch
from vitlab.widgets.viewer import attention_view
rng = torch.Generator().manual_seed(0)
maps = list(torch.randn(4, 1, 3, 26, 26, generator=rng).softmax(-1))
attention_view(maps, torch.rand(3, 80, 80, generator=rng), (5, 5), 16)
""".strip()


SET_UP = """
import time
from pathlib import Path
import torch
from torch import nn
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.data.datasets import world_splits
from vitlab.training.recipe import Recipe
from vitlab.widgets.live import watch

splits = world_splits(World(image_size=8), 64, 20, 4)
made = batches(splits.train, 16, seed=1)
recipe = Recipe(steps=4_000, batch_size=16, eval_every=100)
pause = 0.005

def feed(step):
    time.sleep(pause)
    return made(step)
""".strip()
TRAIN = """
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
rows = watch(model, feed, recipe, validation=splits.validation, folder=Path("watched"))
""".strip()
START = """cell => {
    window.ran = '';
    jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
    jupyterapp.commands.execute('notebook:run-cell').then(() => { window.ran = 'to the end'; });
}"""


CELLS = [MADE, TURNED, SET_UP, TRAIN, "pause = 0.0", "print(len(rows))"]


@pytest.fixture(scope="module")
def small(open_notebook):
    """A notebook of `CELLS`, as somebody else's: its first cell has an output, a viewer, that is not trusted."""
    maps = list(torch.randn(2, 1, 2, 10, 10).softmax(-1))
    data, metadata = attention_view(maps, torch.rand(3, 48, 48), (3, 3), 16)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    notebook = open_notebook(notebook_of(*CELLS, outputs=[output]), "small.ipynb")
    notebook.alt = metadata["image/png"]["alt"]
    return notebook


def test_a_viewer_that_is_not_trusted_is_a_still(small):
    """JupyterLab cleans its HTML, and the picture stays. Run, it is the viewer."""
    still, frame = (small.page.locator(what) for what in (".jp-OutputArea-output img", "iframe[title^=Attention]"))
    still.wait_for()
    assert still.evaluate("image => image.naturalWidth") > 200 and frame.count() == 0
    assert still.get_attribute("alt") == small.alt
    small.run(cell=0)
    inside = small.page.frame_locator("iframe[title^=Attention]")
    inside.locator("canvas.picture").hover(position={"x": 20, "y": 20})
    assert "row 1, column 1" in inside.locator(".readout").inner_text() and not still.is_visible()


def test_the_last_picture_is_saved_with_the_notebook(small, server):
    small.run(cell=1)
    assert turned(small, "widgets.Explorer") == "3 squared is 9."
    small.page.evaluate("jupyterapp.shell.currentWidget.context.save()")
    saved = nbformat.read(server[1] / "small.ipynb", as_version=4)
    pictures = [output.data for output in saved.cells[1].outputs if "image/png" in output.data]
    assert [data["text/plain"] for data in pictures] == ["A line. 3 squared is 9."]


def test_a_training_that_is_stopped_resumes(small, server):
    page = small.page
    small.run(cell=2)
    page.evaluate(START, 3)
    cell = page.locator(".jp-CodeCell", has_text="rows = watch")
    chart = cell.locator(".jp-OutputArea-output img")
    chart.wait_for(timeout=30_000)
    page.wait_for_function(CHANGED, arg=[cell.element_handle(), chart.get_attribute("src")])
    page.get_by_text(re.compile(r"step \d.* of 4,000: loss .*, about [\d:]+ left")).wait_for()
    page.evaluate("jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.wait_for_function("window.ran", timeout=20_000)
    line, picture = small.outputs()[3]
    pattern = r"stopped at step ([\d,]+) of 4,000; run the cell again to resume"
    step = int(re.fullmatch(pattern, "".join(line["data"]["text/plain"]))[1].replace(",", ""))
    assert "image/png" in picture["data"]
    assert (server[1] / "watched" / "checkpoints" / f"step_{step:08d}" / "model.safetensors").is_file()
    for number in (4, 3, 5):
        small.run(cell=number)
    assert "step 4,000 of 4,000: " in "".join(small.outputs()[3][0]["data"]["text/plain"])
    assert small.outputs()[5][0]["text"] == "40\n"
