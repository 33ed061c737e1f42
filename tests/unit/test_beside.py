"""This run beside the committed one of a ViT trained on ImageNet: the pictures, and the words made of both numbers."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from vitlab import ledger, paths, plots
from vitlab.ledger import beside


def entry(value, verdict, claim="C12", metric="trend", unit=""):
    return {"claim": claim, "metric": metric, "value": value, "unit": unit, "verdict": verdict}


def picture(path, colour, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def study(figures, monkeypatch, tmp_path):
    """An execution with a picture and a result, and a reference of ImageNet beside it."""
    monkeypatch.setattr(paths, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    there = tmp_path / "reference" / "imagenet" / "08_distance"
    study = ledger.begin("08_distance", "smoke", 0, weights="lab")
    here = [entry(0.75, "inconclusive"), entry(-12.4, "inconclusive", metric="spread", unit="px of 96")]
    other = [entry(0.9, "reproduced"), entry(68.1, "reproduced", metric="spread", unit="px of 224")]
    for folder, results, colour in ((study.folder, here, "red"), (there, other, "blue")):
        picture(folder / "dots.png", colour, (40, 30))
        result = {"results": results, "weights": {"name": "vit_tiny"}, "table": [len(results[0]["verdict"])]}
        (folder / "result.json").write_text(json.dumps(result))
    return study


def test_the_words_are_made_of_both_numbers(study):
    pictures, words = ledger.beside_imagenet(study, "dots")
    assert list(pictures) == ["this run: lab", "vit_tiny, trained on ImageNet"]
    assert words == (
        "Here and in `vit_tiny`: trend 0.75 and 0.90; spread −12 px of 96 and 68 px of 224. "
        "C12 is inconclusive here and reproduced there."
    )


def test_what_more_is_told_is_told_of_both(study):
    _, words = ledger.beside_imagenet(study, "dots", {"Rows": lambda result: str(result["table"][0])})
    assert words.endswith(" Rows: 12 here; 10 there.")


def test_without_a_reference_the_words_say_how_to_make_it(study, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "reference_dir", lambda preset: tmp_path / "nothing" / preset)
    pictures, words = ledger.beside_imagenet(study, "dots")
    assert pictures == {} and "vitlab.publish imagenet" in words
    plots.show_pictures(pictures)  # draws nothing, and does not fail


def test_without_the_picture_there_are_still_the_words(study):
    pictures, words = ledger.beside_imagenet(study, "lines")
    assert pictures == {} and words.startswith("Here and in")


@pytest.mark.parametrize(
    "first, second, told", [(21.6, 4.91, "22 and 5"), (-0.001, 0.5, "0.00 and 0.50"), (-3.26, 1.0, "−3.3 and 1.0")]
)
def test_two_numbers_have_as_many_digits_as_the_larger_needs(first, second, told):
    results = [{"results": [entry(value, "reproduced")]} for value in (first, second)]
    assert f"trend {told}." in beside.in_words(*results, "timm's")


def test_claims_that_only_one_has_are_left_out():
    here = {"results": [entry(1.0, "reproduced"), entry(2.0, "inconclusive", "C13", "hybrid")]}
    assert "C13" not in beside.in_words(here, {"results": [entry(3.0, "reproduced")]}, "timm's")
    assert "no number in common" in beside.in_words(here, {"results": []}, "timm's")


@pytest.mark.parametrize(
    "weights, called", [("lab", "lab"), ("vit@/a/b.safetensors", "vit"), ("/a/b.safetensors", "b")]
)
def test_a_place_on_disk_is_not_in_a_title(study, figures, weights, called):
    other = ledger.begin("08_distance", "smoke", 0, weights=weights)
    assert next(iter(ledger.beside_imagenet(other, "dots")[0])) == f"this run: {called}"


@pytest.mark.parametrize("under, rows, columns", [(False, 1, 2), (True, 2, 1)])
def test_pictures_stand_side_by_side_or_under_each_other(tmp_path, under, rows, columns):
    for name, colour, size in (("a", "red", (40, 30)), ("b", "blue", (20, 40))):
        picture(tmp_path / f"{name}.png", colour, size)
    figure = plots.side_by_side({name: tmp_path / f"{name}.png" for name in ("a", "b")}, under)
    assert [ax.get_title() for ax in figure.axes] == ["a", "b"]
    assert len({round(ax.get_position().y0, 3) for ax in figure.axes}) == rows
    assert len({round(ax.get_position().x0, 3) for ax in figure.axes}) == columns
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array()[0, 0], (0, 0, 255))
    plt.close(figure)
