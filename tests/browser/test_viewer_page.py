"""The viewer's own page in a browser with no network: pointer, finger, keys, pace, and those who listen."""

import re
import statistics

import nbformat
import pytest
import torch

from vitlab.widgets.viewer import attention_view

GRID, PATCH, DEPTH, HEADS = (14, 14), 16, 12, 3
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def maps():
    """As many as a ViT-Ti/16 has. Head 2 of block 3 looks from every patch 2 columns to the right."""
    rng = torch.Generator().manual_seed(0)
    made = list((2 * torch.randn(DEPTH, 1, HEADS, 197, 197, generator=rng)).softmax(-1))
    token = torch.arange(196)
    there = torch.where(token % 14 < 12, token + 2, token)
    made[2][0, 1, 1:] = torch.eye(197)[there + 1]
    return made


@pytest.fixture(scope="module")
def address(maps, tmp_path_factory):
    image = torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(1))
    made = attention_view(maps, image, GRID, PATCH, title="a page for tests")
    return made.save(tmp_path_factory.mktemp("view") / "view.html").as_uri()


@pytest.fixture
def page(open_page, address):
    page = open_page()
    opened(page, address)
    yield page
    assert page.complaints == []
    assert all(re.match("(file|data):", url) for url in page.urls), "the page asked for something"


def opened(page, address):
    """Open the page with the network cut."""
    page.urls = []
    page.on("request", lambda request: page.urls.append(request.url))
    page.context.set_offline(True)
    page.goto(address)
    page.wait_for_selector("canvas.picture")


def at_patch(page, row, col):
    """Middle of a patch of the picture, in the page's pixels."""
    box = page.locator("canvas.picture").bounding_box()
    return box["x"] + (col + 0.5) * box["width"] / GRID[1], box["y"] + (row + 0.5) * box["height"] / GRID[0]


def selection(page):
    state = page.evaluate("document.getElementById('viewer').viewer.state")
    return state["show"], state["block"], state["head"], state["query"]


def small_map(page, which):
    """The pixels of a small map, [rows][columns] of (red, green, blue)."""
    flat = (
        page.locator(".map canvas")
        .nth(which)
        .evaluate("canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]")
    )
    colours = [tuple(flat[k : k + 3]) for k in range(0, len(flat), 4)]
    return [colours[14 * row : 14 * row + 14] for row in range(14)]


def readout(page):
    return page.locator(".readout").inner_text()


YELLOW, PURPLE = (253, 231, 37), (68, 1, 84)  # the ends of viridis


def test_pointing_changes_every_map(page):
    page.mouse.move(*at_patch(page, 3, 4))
    assert selection(page) == ("heads", 0, 0, 1 + 3 * 14 + 4)
    before = [small_map(page, which) for which in range(DEPTH * HEADS)]
    page.mouse.move(*at_patch(page, 9, 1))
    after = [small_map(page, which) for which in range(DEPTH * HEADS)]
    assert all(a != b for a, b in zip(before, after, strict=True))
    wanted = [[YELLOW if (row, col) == (9, 3) else PURPLE for col in range(14)] for row in range(14)]
    assert after[2 * HEADS + 1] == wanted


def test_the_picture_and_the_words_follow(page):
    page.mouse.move(*at_patch(page, 3, 4))
    page.get_by_role("button", name="Block 3, head 2").click()
    page.mouse.move(*at_patch(page, 9, 1))
    assert readout(page).startswith("Block 3, head 2 from row 10, column 2")
    assert "Mean distance: 32 px; 27 px from all patches" in readout(page)  # 12 of 14 columns look 32 px away
    before = page.locator("canvas.picture").screenshot()
    page.mouse.move(*at_patch(page, 2, 2))
    assert page.locator("canvas.picture").screenshot() != before
    spoken = "block 3, head 2, patch row 3 column 3, mean distance 32 px"
    page.locator("[aria-live]", has_text=re.compile(f"^{spoken}$")).wait_for(state="attached")


def test_a_click_holds_the_patch(page):
    page.mouse.click(*at_patch(page, 5, 5))
    page.mouse.move(*at_patch(page, 8, 8))
    assert selection(page)[3] == 1 + 5 * 14 + 5 and "(held)" in readout(page)
    page.mouse.click(*at_patch(page, 5, 5))
    page.mouse.move(*at_patch(page, 8, 8))
    assert selection(page)[3] == 1 + 8 * 14 + 8 and "(held)" not in readout(page)


def test_keys(page):
    """All of it without a pointer: arrows, the letters on the screen, and Tab to where one is."""
    page.locator("canvas.picture").focus()
    start = selection(page)[3]
    for key, step in (("ArrowRight", 1), ("ArrowDown", 14), ("ArrowLeft", -1), ("ArrowUp", -14), ("ArrowUp", -14)):
        page.keyboard.press(key)
        assert selection(page)[3] == start + step
        start += step
    page.keyboard.press("b")
    page.keyboard.press("h")
    page.keyboard.press("h")
    page.keyboard.press("Shift+H")
    assert selection(page)[1:3] == (1, 1)
    for show in ("block", "head", "rollout", "heads"):
        page.keyboard.press("v")
        assert selection(page)[0] == show
    page.keyboard.press("c")
    assert selection(page)[3] == 0 and "from class token" in readout(page)
    page.keyboard.press("Shift+B")
    page.keyboard.press("Tab")  # to the chosen map: one stop for all of them
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert selection(page)[1:3] == (1, 0)
    focused = page.evaluate("document.activeElement.getAttribute('aria-pressed') + document.activeElement.className")
    assert focused == "truemap"
    assert page.locator("kbd").all_inner_texts() == ["← ↑ ↓ →", "B", "H", "V", "C", "M", "S", "Enter"]


def test_views(page):
    counts = {"Block": HEADS, "Head": 1, "Rollout": 1, "All heads": DEPTH * HEADS}
    for name, count in counts.items():
        page.get_by_role("button", name=name, exact=True).click()
        assert page.locator("button.map").count() == count
    page.get_by_role("combobox", name="block").select_option("12")
    page.get_by_role("combobox", name="head").select_option("3")
    assert selection(page)[1:3] == (11, 2)


def test_numbers_of_the_colour_scale(page):
    """Of a head that puts all on one patch the squares of equal steps up to 100 %; of rollout equal steps."""
    page.get_by_role("combobox", name="block").select_option("3")
    page.get_by_role("combobox", name="head").select_option("2")
    assert page.locator(".ticks span").all_inner_texts() == ["0 %", "6.3 %", "25 %", "56 %", "100 %"]
    page.get_by_role("button", name="Rollout").click()
    ticks = [float(text.split()[0]) for text in page.locator(".ticks span").all_inner_texts()]
    assert all(abs(tick - k * ticks[-1] / 4) < 0.06 * ticks[-1] for k, tick in enumerate(ticks))


def test_one_scale_for_all(page):
    """On one scale, the map whose largest value is the largest of all keeps its yellow; the others lose it."""
    page.get_by_label("one scale for all maps").check()
    with_yellow = [which for which in range(DEPTH * HEADS) if any(YELLOW in row for row in small_map(page, which))]
    assert with_yellow == [2 * HEADS + 1]


def test_a_finger(open_page, address):
    page = open_page(has_touch=True, viewport={"width": 600, "height": 900})
    opened(page, address)
    page.touchscreen.tap(*at_patch(page, 2, 11))
    assert selection(page)[3] == 1 + 2 * 14 + 11
    page.locator("button.map").nth(7).tap()
    assert selection(page)[1:3] == (2, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 600
    assert page.complaints == []


def test_pace(page, record_property):
    """The aim is 16 ms a redraw; what is asserted leaves room for a busy machine."""
    times = page.evaluate(
        """() => {
            const { viewer } = document.getElementById('viewer');
            return [...Array(100).keys()].map(k => {
                const start = performance.now();
                viewer.select({ query: 1 + (31 * k) % 196 });
                document.body.getBoundingClientRect();
                return performance.now() - start;
            });
        }"""
    )
    median = statistics.median(times)
    record_property("redraw_ms", median)
    print(f"redraw of {DEPTH * HEADS} maps: median {median:.1f} ms, slowest {max(times):.1f} ms")
    assert median <= 50


@pytest.mark.parametrize("view", ["All heads", "Block", "Rollout"])
def test_nothing_serious_for_axe(page, view):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.get_by_role("button", name=view, exact=True).click()
    page.wait_for_timeout(400)  # until labels are written
    found = axe.Axe().run(page).response["violations"]
    serious = [(it["id"], it["nodes"][0]["html"]) for it in found if it["impact"] in ("serious", "critical")]
    assert serious == []


def test_a_browser_that_cannot_unpack_is_told(open_page, address):
    page = open_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(address)
    page.get_by_text("This browser cannot unpack the maps.").wait_for()


def test_in_an_exported_notebook_with_the_network_cut(open_page, maps, tmp_path):
    """nbconvert's HTML: the viewer is whole in it, needs no kernel, and its frame is as high as what it shows."""
    from nbconvert import HTMLExporter

    made = attention_view([attn[..., :10, :10].softmax(-1) for attn in maps], torch.rand(3, 48, 48), (3, 3), 16)
    data, metadata = made._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("made", outputs=[output])])
    path = tmp_path / "exported.html"
    path.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    page = open_page()
    page.context.set_offline(True)
    page.goto(path.as_uri(), wait_until="domcontentloaded")
    frame = page.frame_locator("iframe[title^='Attention viewer']")
    picture = frame.locator("canvas.picture")
    picture.hover(position={"x": 5, "y": 5})
    assert "row 1, column 1" in frame.locator(".readout").inner_text()
    box = picture.bounding_box()
    picture.hover(position={"x": box["width"] - 5, "y": 5})
    assert not page.locator("img.vitlab-still").is_visible()
    assert "row 1, column 3" in frame.locator(".readout").inner_text()
    heights = page.locator("iframe").evaluate("frame => [frame.clientHeight, frame.contentDocument.body.scrollHeight]")
    assert abs(heights[0] - heights[1]) <= 2
