"""A training watched in a real JupyterLab: its chart grows, the button stops it, the same cell goes on."""

import re

import pytest

from .conftest import notebook_of

pytestmark = pytest.mark.slow

SET_UP = """
import time
from pathlib import Path
import torch
from torch import nn
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.training.splits import world_splits
from vitlab.training.recipe import Recipe
from vitlab.widgets.live import watch

splits = world_splits(World(image_size=8), 64, 20, 4)
made = batches(splits.train, 16, seed=1)
recipe = Recipe(steps=4_000, batch_size=16, eval_every=100)
pause = 0.01

def feed(step):
    time.sleep(pause)
    return made(step)
""".strip()
TRAIN = """
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
rows = watch(model, feed, recipe, validation=splits.validation, folder=Path("watched"))
""".strip()
CELLS = (SET_UP, TRAIN, "pause = 0.0", "print(len(rows))")
START = """cell => {
    window.ran = '';
    jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
    jupyterapp.commands.execute('notebook:run-cell').then(() => { window.ran = 'to the end'; });
}"""


def words_of(outputs):
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs), outputs
    assert [sorted(output["data"]) for output in outputs] == [["text/plain"], ["image/png", "text/plain"]]
    return "".join(outputs[0]["data"]["text/plain"])


def test_the_button_stops_a_training_that_goes_on(open_notebook, server):
    notebook = open_notebook(notebook_of(*CELLS), "live.ipynb")
    page = notebook.page
    notebook.run(cell=0)
    page.evaluate(START, 1)
    chart = page.locator(".jp-OutputArea-output img")
    chart.wait_for(timeout=30_000)
    before = chart.get_attribute("src")
    page.wait_for_function("src => document.querySelector('.jp-OutputArea-output img').src !== src", arg=before)
    page.get_by_text(re.compile(r"step \d.* of 4,000: loss .*, about \d+ seconds left")).wait_for()
    button = page.get_by_role("button", name="Stop after this step")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("window.ran", timeout=20_000)
    assert button.count() == 0 and len(notebook.outputs()) == len(CELLS)
    pattern = r"stopped at step ([\d,]+) of 4,000; run the cell again to resume"
    said = re.fullmatch(pattern, words_of(notebook.outputs()[1]))
    step = int(said[1].replace(",", ""))
    saved = server[1] / "watched" / "checkpoints" / f"step_{step:08d}"
    assert (saved / "model.safetensors").is_file()
    for cell in (2, 1, 3):
        notebook.run(cell=cell)
    assert re.match(r"step 4,000 of 4,000: .*, trained for \d+ seconds", words_of(notebook.outputs()[1]))
    assert notebook.outputs()[3][0]["text"] == "40\n"
