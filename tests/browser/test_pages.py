"""The viewer's and the film's own pages in a browser with no network: pointer, keys, and those who listen."""

import io
import re

import nbformat
import pytest
import torch
from PIL import Image

from vitlab.widgets.film import Film, Frame
from vitlab.widgets.viewer import attention_view

GRID, PATCH, DEPTH, HEADS = (14, 14), 16, 12, 3
YELLOW, PURPLE = (253, 231, 37), (68, 1, 84)  # the ends of viridis
pytestmark = pytest.mark.slow


def offline(page, address):
    """Open a page of the disk with the network cut, and note what it asks for."""
    page.urls = []
    page.on("request", lambda request: page.urls.append(request.url))
    page.context.set_offline(True)
    page.goto(address, wait_until="domcontentloaded")
    return page


def in_order(page):
    return page.complaints == [] and all(re.match("(file|data):", url) for url in page.urls)


# ---- the attention viewer ----


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """As many maps as a ViT-Ti/16 has. Head 2 of block 3 looks from every patch 2 columns to the right."""
    rng = torch.Generator().manual_seed(0)
    maps = list((2 * torch.randn(DEPTH, 1, HEADS, 197, 197, generator=rng)).softmax(-1))
    token = torch.arange(196)
    maps[2][0, 1, 1:] = torch.eye(197)[torch.where(token % 14 < 12, token + 2, token) + 1]
    image = torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(1))
    made = attention_view(maps, image, GRID, PATCH, title="a page for tests")
    path = tmp_path_factory.mktemp("view") / "view.html"
    path.write_text(made.page(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(open_page, address):
    page = offline(open_page(), address)
    page.wait_for_selector("canvas.picture")
    yield page
    assert in_order(page)


def at_patch(page, row, col):
    """Middle of a patch of the picture, in the page's pixels."""
    box = page.locator("canvas.picture").bounding_box()
    return box["x"] + (col + 0.5) * box["width"] / GRID[1], box["y"] + (row + 0.5) * box["height"] / GRID[0]


def selection(page):
    state = page.evaluate("document.getElementById('viewer').viewer.state")
    return state["show"], state["block"], state["head"], state["query"]


def small_maps(page):
    """The pixels of every small map, [rows][columns] of (red, green, blue)."""
    read = "all => all.map(one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data])"
    made = [[tuple(flat[k : k + 3]) for k in range(0, len(flat), 4)]
            for flat in page.locator(".map canvas").evaluate_all(read)]  # fmt: skip
    return [[colours[14 * row : 14 * row + 14] for row in range(14)] for colours in made]


def test_pointing_changes_every_map_the_words_and_what_is_spoken_and_a_click_holds_the_patch(page):
    page.mouse.move(*at_patch(page, 3, 4))
    assert selection(page) == ("heads", 0, 0, 1 + 3 * 14 + 4)
    before = small_maps(page)
    page.get_by_role("button", name="Block 3, head 2").click()
    page.mouse.move(*at_patch(page, 9, 1))
    after = small_maps(page)
    assert all(a != b for a, b in zip(before, after, strict=True))
    wanted = [[YELLOW if (row, col) == (9, 3) else PURPLE for col in range(14)] for row in range(14)]
    assert after[2 * HEADS + 1] == wanted
    text = page.locator(".readout").inner_text()
    assert text.startswith("Block 3, head 2 from row 10, column 2")
    assert "Mean distance: 32 px; 27 px from all patches" in text  # 12 of 14 columns look 32 px away
    spoken = "block 3, head 2, patch row 10 column 2, mean distance 32 px"
    page.locator("[aria-live]", has_text=re.compile(f"^{spoken}$")).wait_for(state="attached")
    # of a head that puts all on one patch, the squares of equal steps up to 100 %; then one scale for all maps
    assert page.locator(".ticks span").all_inner_texts() == ["0 %", "6.3 %", "25 %", "56 %", "100 %"]
    page.get_by_label("one scale for all maps").check()
    with_yellow = [which for which, pixels in enumerate(small_maps(page)) if any(YELLOW in row for row in pixels)]
    assert with_yellow == [2 * HEADS + 1]
    for held in (5, 8):  # the first click holds the patch, the second lets it go
        page.mouse.click(*at_patch(page, 5, 5))
        page.mouse.move(*at_patch(page, 8, 8))
        assert selection(page)[3] == 1 + held * 14 + held


def test_keys(page):
    """All of it without a pointer: arrows, the letters on the screen, and Tab to where one is."""
    page.locator("canvas.picture").focus()
    start = selection(page)[3]
    for key, step in (("ArrowRight", 1), ("ArrowDown", 14), ("ArrowLeft", -1), ("ArrowUp", -14)):
        page.keyboard.press(key)
        start += step
        assert selection(page)[3] == start
    for key in ("b", "h", "h", "Shift+H"):
        page.keyboard.press(key)
    assert selection(page)[1:3] == (1, 1)
    for show, count in (("block", HEADS), ("head", 1), ("rollout", 1), ("heads", DEPTH * HEADS)):
        page.keyboard.press("v")
        assert selection(page)[0] == show and page.locator("button.map").count() == count
    page.keyboard.press("c")
    assert selection(page)[3] == 0 and "from class token" in page.locator(".readout").inner_text()
    page.keyboard.press("Tab")  # to the chosen map: one stop for all of them
    page.keyboard.press("ArrowRight")
    assert selection(page)[1:3] == (2, 1)


def test_a_finger_on_a_narrow_screen_and_nothing_serious_for_axe(open_page, address):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = offline(open_page(has_touch=True, viewport={"width": 600, "height": 900}), address)
    page.touchscreen.tap(*at_patch(page, 2, 11))
    assert selection(page)[3] == 1 + 2 * 14 + 11
    assert page.evaluate("document.documentElement.scrollWidth") <= 600 and in_order(page)
    for view in ("All heads", "Rollout"):
        page.get_by_role("button", name=view, exact=True).click()
        page.wait_for_timeout(400)  # until labels are written
        found = axe.Axe().run(page).response["violations"]
        assert [(it["id"], it["nodes"][0]["html"]) for it in found if it["impact"] in ("serious", "critical")] == []


def test_in_an_exported_notebook(open_page, tmp_path):
    """nbconvert's HTML: the viewer is whole in it, needs no kernel, and its frame is as high as what it shows."""
    from nbconvert import HTMLExporter

    maps = list(torch.randn(DEPTH, 1, HEADS, 10, 10).softmax(-1))
    data, metadata = attention_view(maps, torch.rand(3, 48, 48), (3, 3), 16)._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("made", outputs=[output])])
    path = tmp_path / "exported.html"
    path.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    page = offline(open_page(), path.as_uri())
    frame = page.frame_locator("iframe[title^='Attention viewer']")
    picture = frame.locator("canvas.picture")
    for x, column in ((5, 1), (0.95 * picture.bounding_box()["width"], 3)):
        picture.hover(position={"x": x, "y": 5})
        assert f"row 1, column {column}" in frame.locator(".readout").inner_text()
    assert not page.locator("img.vitlab-still").is_visible()
    heights = page.locator("iframe").evaluate("frame => [frame.clientHeight, frame.contentDocument.body.scrollHeight]")
    assert abs(heights[0] - heights[1]) <= 2


# ---- the film ----


def test_a_film_is_moved_by_keys_and_plays_to_its_end(open_page, tmp_path):
    frames = []
    for k in range(4):
        file = io.BytesIO()
        Image.new("RGB", (90, 40), (60 * k, 0, 0)).save(file, "PNG")
        frames.append(Frame(f"{100 * k} images", file.getvalue(), f"Red is {60 * k}."))
    page = open_page()
    page.clock.install(time=0)
    path = tmp_path / "film.html"
    path.write_text(Film("Four reds", "training images seen", frames).page(), encoding="utf-8")
    offline(page, path.as_uri())
    page.clock.pause_at(3600)  # from here on its timers go when a test says so
    slider, play, picture = page.get_by_label("training images seen"), page.get_by_role("button"), page.locator("img")

    def state():
        assert picture.evaluate("image => image.naturalWidth") == 90
        assert picture.get_attribute("alt") == (words := page.get_by_role("status").last.inner_text())
        return slider.get_attribute("aria-valuetext"), words, play.inner_text()

    assert state() == ("0 images", "Red is 0.", "Play")
    slider.press("ArrowRight")
    assert state() == ("100 images", "Red is 60.", "Play")
    slider.press("End")
    play.click()
    for k in range(4):
        assert state() == (f"{100 * k} images", f"Red is {60 * k}.", "Stop")
        page.clock.run_for(500)
    assert state() == ("300 images", "Red is 180.", "Play")
    play.click()
    page.clock.run_for(500)
    slider.press("ArrowRight")  # ends the playing
    page.clock.run_for(1500)
    assert state() == ("200 images", "Red is 120.", "Play") and in_order(page)
