"""Pictures of the model and of the collection: labels with units, and nothing drawn that is not in the data."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab import ledger, plots
from vitlab.plots import collection, model

IMAGE = np.arange(24 * 24 * 3, dtype=np.int64).reshape(24, 24, 3).astype(np.uint8)


@pytest.fixture
def ax():
    with plots.style():
        figure, ax = plt.subplots()
        yield ax
        figure.canvas.draw()  # whatever is wrong with it shows here
    plt.close(figure)


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_patches_keep_their_pixels_and_their_order():
    spread = model.spread_patches(IMAGE, patch_size=8, gap=2)
    assert spread.shape == (28, 28, 3)
    np.testing.assert_array_equal(spread[10:18, 20:28], IMAGE[8:16, 16:24])
    assert (spread[8:10] == 255).all() and (spread[:, 18:20] == 255).all()


def test_patches_are_numbered_row_by_row(ax):
    plots.plot_patches(IMAGE, 8, ax)
    assert words(ax) == [str(n) for n in range(1, 10)]
    places = [text.get_position() for text in ax.texts]
    assert places[0][1] == places[2][1] < places[3][1] and places[0][0] == places[3][0] < places[1][0]


def test_the_model_is_drawn_with_all_its_tokens(ax):
    tokens = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
    plots.plot_model(IMAGE, 8, tokens, "class 3", ax)
    assert {"9 patches", "head", "class 3", "class\ntoken"} <= set(words(ax))
    assert len(ax.images) == 2 + 9 + 10  # image, cut image, patches, tokens
    assert ax.images[0].get_extent()[3] < ax.get_ylim()[1]


def test_parameter_shares_fill_the_bar(ax):
    parts = ("patch embedding", "class token, positions", "attention", "MLP", "LayerNorm", "head")
    data = [
        {"model": name, "part": part, "parameters": size * count}
        for name, size in (("B", 1), ("L", 10))
        for part, count in zip(parts, (1, 1, 30, 60, 1, 7), strict=True)
    ]
    plots.plot_parameter_shares(pd.DataFrame(data), ax)
    assert ax.get_xlabel() == "share of the parameters (%)"
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(100)
    assert words(ax) == ["30 %", "30 %", "60 %", "60 %"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["B\n0.0 M", "L\n0.0 M"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(parts)


def test_cost_over_patch_size(ax):
    data = pd.DataFrame({"model": ["A", "A", "B"], "patch_size": [32, 16, 16], "tokens": [50, 197, 197]})
    data = data.assign(gflops=[4.0, 17.0, 60.0], paper=[np.nan, 18.0, np.nan])
    plots.plot_tokens(data[data.model == "A"], ax)
    assert ax.get_xlabel() == "patch size P (px)" and ax.get_ylabel() == "tokens in the sequence"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["16", "32"]
    assert ax.lines[0].get_xdata().tolist() == [16, 32] and ax.lines[0].get_ydata().tolist() == [197, 50]
    _, other = plt.subplots()
    plots.plot_flops(data, other)
    assert other.get_ylabel() == "work for one image (GFLOP)"
    *models, paper = other.lines
    assert [line.get_label() for line in models] == ["A", "B"] and models[0].get_xdata().tolist() == [16, 32]
    assert (paper.get_xdata().tolist(), paper.get_ydata().tolist()) == ([16], [18.0])
    plt.close(other.figure)


def test_differences_show_zero_and_tell_controls_apart(ax):
    data = pd.DataFrame({"label": ["timm", "timm", "other"], "difference": [0.0, 1e-7, 0.5]})
    plots.plot_differences(data.assign(control=[False, False, True]), tolerance=1e-5, ax=ax)
    same, changed, line = ax.lines
    assert same.get_xdata()[0] == ax.get_xlim()[0] > 0 and ax.get_xticklabels()[0].get_text() == "0"
    assert changed.get_ydata() == [1] and line.get_xdata()[0] == 1e-5
    assert ax.get_xlabel() == "largest difference of any logit"
    assert ax.get_legend().get_texts()[-1].get_text() == "tolerance 1e-5"


def test_mosaic_puts_every_image_in_its_place():
    images = np.random.default_rng(0).integers(0, 255, (2, 3, 8, 8, 3)).astype(np.uint8)
    whole = collection.mosaic(images, gap=2)
    assert whole.shape == (18, 28, 3)
    np.testing.assert_array_equal(whole[10:18, 20:28], images[1, 2])
    assert (whole[8:10] == 255).all()


def test_scenes_have_a_label_for_each_row(ax):
    images, masks = np.zeros((2, 3, 16, 16, 3), np.uint8), np.zeros((2, 3, 16, 16), bool)
    masks[:, :, 4:9, 5:12] = True
    plots.plot_scenes(images, masks, ["easy", "hard"], ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["easy", "hard"]
    outlines = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    assert outlines.min() > 3 and len(ax.collections) == 2  # round the masks, not round the white between


def test_verdicts_are_the_ledgers_and_not_yet_counts_nothing(ax):
    assert list(collection.VERDICTS) == [*ledger.VERDICTS, "not yet"]
    data = pd.DataFrame({"claim": ["C01", "C01", "C02"], "verdict": ["reproduced", "not reproduced", "not yet"]})
    plots.plot_verdicts(data, ax)
    drawn = {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines if len(line.get_xdata())
    }
    assert drawn == {"reproduced": ([0], [1]), "not reproduced": ([0], [2]), "not yet": ([1], [0])}
    assert ax.get_ylabel() == "numbers measured" and "claim" in ax.get_xlabel()
    markers = {marker for _, marker in collection.VERDICTS.values()}
    assert len(markers) >= 4  # told apart without colour


def test_of_many_numbers_nine_have_a_mark_and_all_are_counted(ax):
    verdicts = ["reproduced"] * 9 + ["inconclusive"] * 28
    plots.plot_verdicts(pd.DataFrame({"claim": ["C01"] * 9 + ["C09"] * 28, "verdict": verdicts}), ax)
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines if len(line.get_xdata())}
    assert drawn == {"reproduced": list(range(1, 10)), "inconclusive": list(range(1, 10))}
    (count,) = ax.texts
    assert count.get_text() == "28" and count.xy == (1, 9) and ax.get_ylim()[1] > 10


@pytest.mark.parametrize("patch_size, gap", [(0, 1), (9, 1), (4, -1)])
def test_patches_that_cannot_be_spread_are_refused(patch_size, gap):
    with pytest.raises(
        ValueError, match=rf"patches of {patch_size} px, {gap} px apart, of an image of shape \[8, 8, 3\]"
    ):
        model.spread_patches(np.zeros((8, 8, 3), np.uint8), patch_size, gap)
