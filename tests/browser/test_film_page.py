"""The film's own page in a browser with no network: the slider, its keys, Play, and those who listen."""

import io
import re

import pytest
from PIL import Image

from vitlab.widgets.film import Film, Frame

pytestmark = pytest.mark.slow
PAUSE = 500  # milliseconds from frame to frame


def coloured(level):
    file = io.BytesIO()
    Image.new("RGB", (90, 40), (level, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def page(open_page, tmp_path):
    frames = tuple(Frame(f"{100 * k:,} images", coloured(60 * k), f"Red is {60 * k}.") for k in range(4))
    address = Film("Four reds", "training images seen", frames).save(tmp_path / "film.html").as_uri()
    page = open_page()
    page.clock.install(time=0)
    page.urls = []
    page.on("request", lambda request: page.urls.append(request.url))
    page.context.set_offline(True)
    page.goto(address)
    page.clock.pause_at(3600)  # from here on its timers go when a test says so
    yield page
    assert page.complaints == []
    assert all(re.match("(file|data):", url) for url in page.urls), "the page asked for something"


def state(page):
    picture = page.locator("#picture")
    assert picture.evaluate("image => image.naturalWidth") == 90
    words, alt = page.locator("#words").inner_text(), picture.get_attribute("alt")
    assert words == alt
    return page.get_by_label("training images seen").get_attribute("aria-valuetext"), words


def test_it_opens_at_the_last_frame_and_keys_move_it(page):
    assert state(page) == ("300 images", "Red is 180.")
    slider = page.get_by_label("training images seen")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert state(page) == ("200 images", "Red is 120.")
    page.keyboard.press("Home")
    assert state(page) == ("0 images", "Red is 0.")


def test_play_goes_from_the_first_frame_to_the_last_and_stops(page):
    play = page.get_by_role("button")
    play.click()
    for k in range(4):
        assert state(page) == (f"{100 * k} images", f"Red is {60 * k}.") and play.inner_text() == "Stop"
        page.clock.run_for(PAUSE)
    assert state(page) == ("300 images", "Red is 180.") and play.inner_text() == "Play"


def test_stop_and_the_slider_end_the_playing(page):
    play = page.get_by_role("button")
    play.click()
    page.clock.run_for(PAUSE)
    assert state(page)[0] == "100 images" and play.inner_text() == "Stop"
    page.get_by_label("training images seen").press("ArrowRight")
    at = state(page)
    page.clock.run_for(3 * PAUSE)
    assert state(page) == at and play.inner_text() == "Play"
