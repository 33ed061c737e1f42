"""The film of a training and the knobs of what is masked: what they say, and that they need no kernel."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from vitlab.training.masked import KEPT, Target
from vitlab.widgets import shapes_film, training_film
from vitlab.widgets.film import Film, Frame, _placed
from vitlab.widgets.masking import masking, wanted

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


def test_a_film_has_a_frame_for_each_evaluation_and_says_what_it_shows(film):
    assert [frame.at for frame in film.frames] == ["0 images", "100 images", "200 images"]
    assert [frame.words.partition(";")[0] for frame in film.frames] == [
        "After 0 images 0 of 4 heads are local",
        "After 100 images 1 of 4 heads is local, in block 1",
        "After 200 images 3 of 4 heads are local, in blocks 1, 2",
    ]
    assert film.frames[2].words.endswith("the shortest distance is 5.5 px.")
    sizes = {Image.open(io.BytesIO(frame.png)).size for frame in film.frames}
    assert len(sizes) == 1, "a film whose frames jump"
    assert len({frame.png for frame in film.frames}) == 3


def test_axes_are_at_the_same_place_in_every_frame():
    places = []
    for label in ("1", "1,000,000"):
        figure = Figure(layout="constrained")
        figure.subplots(1, 2)[0].set_yticks([0.5], [label])
        places = _placed(figure, places)
        figure.draw_without_rendering()
        assert [ax.get_position().bounds for ax in figure.axes] == [place.bounds for place in places]


def test_the_page_has_every_frame_and_nothing_from_elsewhere(film):
    page = film.page()
    frames = json.loads(re.search(r"const frames = (\[.*?\]), get", page, re.DOTALL)[1])
    assert [frame["words"] for frame in frames] == [frame.words for frame in film.frames]
    assert [base64.b64decode(frame["png"]) for frame in frames] == [frame.png for frame in film.frames]
    assert "<title>One &amp; all</title>" in page and 'max="2"' in page
    assert not re.search(r"https?://|\$(title|slider|last|pause|frames)", page)


def test_no_word_of_a_frame_ends_the_script():
    words = "</script><script>alert(1)</script> & $title"
    page = Film("a", "b", (Frame("0", b"", words),)).page()
    assert page.count("</script>") == 1
    frames = json.loads(re.search(r"const frames = (\[.*?\]), get", page, re.DOTALL)[1])
    assert frames[0]["words"].startswith("</script>")


def test_a_cell_shows_the_film_and_its_last_frame_as_a_picture_with_words(film):
    data, metadata = film._repr_mimebundle_()
    last = film.frames[-1]
    assert base64.b64decode(data["image/png"]) == last.png
    assert metadata["image/png"]["alt"] == last.words
    assert "<iframe" in data["text/html"] and data["image/png"] in data["text/html"]
    assert data["text/plain"] == "Film('One & all', 3 frames)"


def test_an_evaluation_without_a_map_is_refused():
    with pytest.raises(ValueError, match=r"2 evaluations given, without a position map at \[100\]"):
        training_film(heads((16.0,) * 4, (16.0,) * 4), maps(0), **SCALE)
    with pytest.raises(ValueError, match="0 evaluations given"):
        training_film(heads((16.0,) * 4).iloc[:0], {}, **SCALE)


@pytest.mark.parametrize(
    "target, expected",
    [
        (Target.MEAN_COLOUR, [[80, 80], [80, 80]]),  # the mean is 75: level 2, whose middle is 80
        (Target.DOWNSIZED, [[16, 48], [80, 176]]),  # 0, 40, 90, 170
        (Target.PIXELS, [[0, 40], [90, 170]]),
    ],
)
def test_what_is_wanted_of_a_corrupted_patch(target, expected):
    quarters = torch.tensor([[0, 40], [90, 170]], dtype=torch.uint8)
    patch = quarters.repeat_interleave(4, 0).repeat_interleave(4, 1)  # 8 × 8
    pictures = torch.cat([patch, patch], 1).expand(1, 3, 8, 16).contiguous()
    shown = wanted(pictures, torch.tensor([[KEPT, 2]]), target, 8)
    assert (shown[..., :8] == 128).all()  # kept: nothing is asked
    assert shown[0, 0, ::4, 8::4].tolist() == expected


def test_knobs_of_what_is_masked():
    knobs = masking(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), 8, share=0.4)
    said = {target: knobs.picture(number=2, share=0.75, target=target)[1] for target in map(str, Target)}
    assert all(words.startswith("Picture 2: 12 of 16 patches are corrupted") for words in said.values())
    assert "16 numbers of 512 values are" in said["downsized"] and "192 values of pixels" in said["pixels"]
    assert 0.4 in knobs.controls["share"].options


def shapes(*rows):
    names = ["dimension", "flops", "mean"]
    return pd.DataFrame(rows, columns=names).assign(
        low=lambda rows: rows["mean"] - 0.01, high=lambda rows: rows["mean"]
    )


def test_the_film_of_shapes_names_the_best_that_the_flops_pay_for():
    rows = ("base", 1e6, 0.5), ("depth", 2e6, 0.55), ("width", 2e6, 0.52), ("depth", 4e6, 0.56), ("width", 4e6, 0.6)
    film = shapes_film(shapes(*rows, ("patch size", 0.5e6, 0.4)))  # cheaper than the base: in every frame
    assert [frame.at for frame in film.frames] == ["1.0 times the FLOPs", "2.0 times the FLOPs", "4.0 times the FLOPs"]
    assert [frame.words for frame in film.frames] == [
        "With up to 1.0 times the FLOPs of base, base is best: 50.0%.",
        "With up to 2.0 times the FLOPs of base, depth is best: 55.0%, 5.0 points above base.",
        "With up to 4.0 times the FLOPs of base, width is best: 60.0%, 10.0 points above base.",
    ]
    assert len({Image.open(io.BytesIO(frame.png)).size for frame in film.frames}) == 1
    assert len({frame.png for frame in film.frames}) == 3


@pytest.mark.parametrize("rows", [[], [("depth", 2e6, 0.5)], [("base", 1e6, 0.5)], [("base", 1e6, 0.5)] * 2])
def test_a_film_of_shapes_takes_one_base_and_others(rows):
    with pytest.raises(ValueError, match="expected one, and other shapes"):
        shapes_film(shapes(*rows))
