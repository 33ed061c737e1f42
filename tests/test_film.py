"""The films: what they say, frames that stand still, and that they need no kernel."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vitlab.widgets.film import Film, Frame, training_film

SCALE = {"uniform": 16.5, "limit": 8.3, "image_px": 32}


def heads(*distances):
    """Two blocks of two heads at samples 0, 100, 200, …"""
    return pd.DataFrame(
        {"samples": 100 * k, "block": 1 + n // 2, "head": 1 + n % 2, "distance_px": px}
        for k, four in enumerate(distances)
        for n, px in enumerate(four)
    )


def maps(*samples):
    return {n: np.eye(16).reshape(4, 4, 4, 4) for n in samples}


@pytest.fixture(scope="module")
def film():
    table = heads((16.0, 16.0, 16.0, 16.0), (7.0, 16.0, 16.0, 16.0), (6.0, 5.5, 16.0, 8.0))
    pictures = {n: [np.zeros((8, 8, 3), np.uint8)] * 2 for n in (0, 100, 200)}
    return training_film(table, maps(0, 100, 200), pictures=pictures, title="One & all", **SCALE)


def frames_in(page):
    return json.loads(re.search(r"const frames = (\[.*?\]), get", page, re.DOTALL)[1])


def test_a_frame_for_each_evaluation_says_what_it_shows(film):
    assert [frame.at for frame in film.frames] == ["0 images", "100 images", "200 images"]
    assert [frame.words.partition(";")[0] for frame in film.frames] == [
        "Local heads after 0 images: 0 of 4",
        "Local heads after 100 images: 1 of 4, in block 1",
        "Local heads after 200 images: 3 of 4, in block 1, 2",
    ]
    assert film.frames[2].words.endswith("the shortest distance is 5.5 px.")
    assert len({Image.open(io.BytesIO(frame.png)).size for frame in film.frames}) == 1, "a film whose frames jump"
    assert len({frame.png for frame in film.frames}) == 3


def test_the_page_has_every_frame_and_nothing_from_elsewhere(film):
    page = film.page()
    assert [frame["words"] for frame in frames_in(page)] == [frame.words for frame in film.frames]
    assert [base64.b64decode(frame["png"]) for frame in frames_in(page)] == [frame.png for frame in film.frames]
    assert "<title>One &amp; all</title>" in page and 'max="2"' in page
    assert not re.search(r"https?://|\$(slider|last|frames)", page)


def test_no_word_of_a_frame_ends_the_script():
    page = Film("a", "<b>", (Frame("0", b"", "</script><script>alert(1)</script> & $last"),)).page()
    assert page.count("</script>") == 1 and "&lt;b&gt;" in page
    assert frames_in(page)[0]["words"].startswith("</script>")


def test_a_cell_shows_the_film_and_its_last_frame_as_a_picture_with_words(film):
    data, metadata = film._repr_mimebundle_()
    last = film.frames[-1]
    assert base64.b64decode(data["image/png"]) == last.png and metadata["image/png"]["alt"] == last.words
    assert "<iframe" in data["text/html"] and data["image/png"] in data["text/html"]
    assert data["text/plain"] == "Film('One & all', 3 frames)"
