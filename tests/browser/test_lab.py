"""Notebooks as people use them: opened in a real JupyterLab, run to the end, and the viewer pointed at."""

import ast
import io
import os

import nbformat
import pytest
import torch
from PIL import Image

from vitlab import notebooks, paths
from vitlab.publish.source import from_source, sources
from vitlab.widgets.viewer import attention_view

from .conftest import notebook_of
from .viewers import pointed_at

pytestmark = pytest.mark.slow

SOURCES = {path.stem[:2]: path for path in sources(notebooks.notebooks_dir())}
VIEWERS = {"08": "All heads", "09": "Rollout"}  # notebook → what its viewer shows first
KNOBS = {
    "07": "widgets.position_resizing(",
    "08": "widgets.distance_modes(",
    "09": "widgets.rollout_variants(",
    "10": "widgets.masking(",
}
# The one with knobs and a film; viewer and upload have small notebooks of their own. ATTACKS=long: all with any of it.
TO_THE_END = ["00", "07", "08", "09", "10", "11"] if os.environ.get("ATTACKS") == "long" else ["10"]


def at_smoke(number):
    """The notebook of a source, without outputs, its preset set to smoke: what is seen afterwards was run."""
    notebook = from_source(SOURCES[number])
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    assert cell.source.count('PRESET = "quick"') == 1
    cell.source = cell.source.replace('PRESET = "quick"', 'PRESET = "smoke"')
    return notebook


@pytest.mark.parametrize("number", TO_THE_END)
def test_runs_to_the_end_in_jupyterlab(number, open_notebook, server):
    """Every cell runs, nothing is written to stderr, every figure that is saved is shown, the viewer answers."""
    path = SOURCES[number]
    notebook = open_notebook(at_smoke(number), f"{path.stem}.ipynb")
    notebook.run()
    outputs = notebook.outputs()
    for output in (output for cell in outputs for output in cell):
        assert output["output_type"] != "error", output
        assert output.get("name") != "stderr", output
    text = path.read_text(encoding="utf-8")
    written = text.count("plots.figure(") + text.count("save_figure(")  # those of a condition may not be drawn
    shown = sum("image/png" in output.get("data", {}) for cell in outputs for output in cell)
    figures = server[2] / "smoke" / path.stem
    saved = len(paths.read_json(figures / "result.json")["figures"])
    assert shown >= saved > 0 and written - 1 <= saved <= written
    assert len(list(figures.glob("*.png"))) == saved
    if number in VIEWERS:
        the_viewer_answers(notebook, "viewer.view(", VIEWERS[number])
    if number in KNOBS:
        the_knobs_answer(notebook, KNOBS[number])


def the_viewer_answers(notebook, source, show):
    notebook.show(source)
    page = notebook.page
    (_, first), (_, second) = pointed_at(page, show)
    assert first != second
    heights = page.locator("iframe[title^='Attention viewer']").evaluate(
        "frame => [frame.clientHeight, frame.contentDocument.body.scrollHeight]"
    )
    assert abs(heights[0] - heights[1]) <= 2, "the frame is not as high as the viewer"


MADE = """
import torch
from vitlab.widgets.viewer import attention_view
rng = torch.Generator().manual_seed(0)
maps = list(torch.randn(4, 1, 3, 26, 26, generator=rng).softmax(-1))
w = attention_view(maps, torch.rand(3, 80, 80, generator=rng), (5, 5), 16, blocks=[0, 2, 3]).widget()
w
""".strip()
READ = "print((w.show, w.block, w.head, w.query, round(w.distance_px, 3)))"
SET = "w.block, w.head, w.query = 2, 1, 'class token'"


def test_python_reads_and_sets_the_selection(open_notebook):
    """The widget: point, click and type in the browser, read it in Python; set it in Python, see it in the browser."""
    notebook = open_notebook(notebook_of(MADE, READ, SET), "widget.ipynb")
    notebook.run(cell=0)
    page = notebook.page
    viewer = page.locator(".vitlab-viewer")
    picture = viewer.locator("canvas.picture")
    picture.wait_for()
    box = picture.bounding_box()
    picture.hover(position={"x": 3.5 * box["width"] / 5, "y": 1.5 * box["height"] / 5})
    viewer.locator("button.map").nth(2 * 3 + 2).click()
    page.keyboard.press("v")  # in JupyterLab's command mode V pastes a cell
    page.wait_for_timeout(500)  # ipywidgets sends one message at a time, and a cell may overtake the next
    notebook.run(cell=1)
    found = ast.literal_eval(notebook.outputs()[1][0]["text"])
    shown = viewer.locator(".readout strong").nth(1).inner_text()
    assert found[:4] == ("block", 3, 2, (1, 3))
    assert float(shown.removesuffix(" px")) == pytest.approx(found[4], abs=0.5)
    notebook.run(cell=2)
    viewer.get_by_text("Block 3, head 2 from class token").wait_for()
    assert len(notebook.outputs()) == 3, "a key typed into the viewer reached the notebook"


def test_a_viewer_that_is_not_trusted_is_a_still(open_notebook):
    """As somebody else's notebook opens: JupyterLab cleans its HTML, and the picture stays. Run, it is the viewer."""
    maps = list(torch.randn(2, 1, 2, 10, 10).softmax(-1))
    data, metadata = attention_view(maps, torch.rand(3, 48, 48), (3, 3), 16)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    notebook = open_notebook(notebook_of(MADE.replace(".widget()", ""), outputs=[output]), "theirs.ipynb")
    still, frame = (notebook.page.locator(what) for what in (".jp-OutputArea-output img", "iframe[title^=Attention]"))
    still.wait_for()
    assert still.evaluate("image => image.naturalWidth") > 200 and frame.count() == 0
    assert still.get_attribute("alt") == metadata["image/png"]["alt"]
    notebook.run()
    frame.wait_for()
    assert not still.is_visible()
    the_viewer_answers(notebook, "attention_view(", "All heads")


def the_knobs_answer(notebook, source):
    """A key on a slider changes picture and words; the still picture is there, and hidden while the knobs are."""
    notebook.show(source)
    cell = notebook.page.locator(".jp-CodeCell", has_text=source)
    knobs = cell.locator(".vitlab-knobs")
    knobs.locator("img").wait_for()
    before, words = knobs.locator("img").get_attribute("src"), knobs.get_by_role("status").inner_text()
    knobs.locator("input[type=range]").first.focus()
    notebook.page.keyboard.press("ArrowRight")
    changed = "([box, src]) => box.querySelector('img').src !== src"
    notebook.page.wait_for_function(changed, arg=[knobs.element_handle(), before], timeout=10_000)
    knobs.get_by_role("status").filter(has_not_text=words).wait_for()  # a message of its own, after the picture's
    assert knobs.get_by_role("status").inner_text() in knobs.locator("img").get_attribute("alt")
    assert cell.locator(".jp-OutputArea-output img").count() == 2 == 1 + cell.locator("img:visible").count()


UPLOAD = """
import torch
from torch import nn
from vitlab import widgets
from vitlab.models.zoo import Pretrained
model = Pretrained(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), "small", "nowhere", (16, 16))
widgets.occlusion(model, torch.zeros(3, 16, 16, dtype=torch.uint8), grid=(4, 4))
""".strip()


def test_a_picture_that_is_uploaded_is_taken_or_refused(open_notebook):
    notebook = open_notebook(notebook_of(UPLOAD), "upload.ipynb")
    notebook.run()
    knobs = notebook.page.locator(".vitlab-knobs")
    before = knobs.locator("img").get_attribute("src")
    field = knobs.get_by_label("A picture of your own:")
    field.set_input_files({"name": "broken.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n and no more"})
    knobs.get_by_role("alert").get_by_text("not a picture that can be read").wait_for()
    field.set_input_files({"name": "huge.png", "mimeType": "image/png", "buffer": bytes(21_000_000)})
    knobs.get_by_role("alert").get_by_text("a file of 21.0 MB given").wait_for()
    assert knobs.locator("img").get_attribute("src") == before
    file = io.BytesIO()  # of 13 MB, more than a message may have: it comes in pieces
    Image.effect_noise((2400, 1800), 80).convert("RGB").save(file, "BMP")
    field.set_input_files({"name": "noise.bmp", "mimeType": "image/bmp", "buffer": file.getvalue()})
    knobs.get_by_role("status").get_by_text("with everything seen").wait_for()
    changed = "([box, src]) => box.querySelector('img').src !== src"
    notebook.page.wait_for_function(changed, arg=[knobs.element_handle(), before], timeout=10_000)


TURNED = """
from matplotlib.figure import Figure
from vitlab import widgets

def draw(n):
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, n])
    return figure, f"{n} squared is {n**2}."

widgets.knobs(draw, "A line", n=widgets.Knob("how many", (1, 2, 3), 2))
""".strip()


def test_knobs_without_their_kernel_leave_the_still_picture(open_notebook, open_page, server):
    """Saved as JupyterLab saves, opened again with another kernel: the first picture, and no word of a lost widget.

    Before that nothing serious for axe.
    """
    first = open_notebook(notebook_of(TURNED), "knobs.ipynb")
    first.run()
    first.page.locator(".vitlab-knobs img").wait_for()
    assert first.page.locator(".jp-OutputArea-output img:visible").count() == 1
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(first.page, context=".vitlab-knobs").response["violations"]
    assert [(it["id"], it["nodes"][0]["html"]) for it in found if it["impact"] in ("serious", "critical")] == []
    first.page.evaluate("jupyterapp.shell.currentWidget.context.save()")
    first.close()
    saved = nbformat.read(server[1] / "knobs.ipynb", as_version=4)
    assert "image/png" in saved.cells[0].outputs[0].data
    again = open_notebook(saved, "knobs.ipynb")
    lost = again.page.locator(".jp-OutputArea-output.jupyter-widgets")
    lost.get_by_text("model not found").wait_for(state="attached")
    assert not lost.is_visible()
    assert again.page.locator(".jp-OutputArea-output img:visible").count() == 1
