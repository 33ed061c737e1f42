"""Figures: what is drawn is what was given, axes say what and in which unit, intervals only from five seeds on."""

import io
import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from vitlab import plots
from vitlab.claims import verdicts
from vitlab.plots import curves, pictures
from vitlab.plots.style import FAMILIES, drawn, encode, in_notebook

MODELS = ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8")
IMAGE = np.arange(24 * 24 * 3).reshape(24, 24, 3).astype(np.uint8)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def heads():
    rows = itertools.product((("trained", 10.0), ("untrained", 30.0)), (1, 2, 3), (1, 2))
    table = pd.DataFrame({"model": m, "block": k, "head": h, "distance_px": b + 5 * k + h} for (m, b), k, h in rows)
    px = table["distance_px"]
    return table.assign(renormalized_px=px + 1, low=px - 1, high=px + 1, prefix_mass=0.1 * table["head"])


def runs(seeds, models=MODELS[:2], x="n_train", xs=(100, 1000, 10000), y="test_accuracy"):
    """A row for each model, seed and x; the seeds 0.1 apart."""
    rows = itertools.product(enumerate(models), range(seeds), xs)
    return pd.DataFrame({"model": m, "seed": s, x: at, y: at / 20000 + s / 10 + i / 100} for (i, m), s, at in rows)


def new():
    return plt.figure().gca()


def words(ax):
    return [text.get_text() for text in ax.texts]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_the_style_ends_with_its_block_and_what_fails_is_not_saved(tmp_path):
    class Folder:
        def save(self, picture, name, alt):
            (tmp_path / name).write_bytes(picture)

    before = dict(mpl.rcParams)
    with plots.figure(Folder(), "lines", alt="A line.", mosaic=[["a", "b"]]) as axes:
        axes["a"].plot([0, 1])
        assert not mpl.rcParams["axes.spines.top"]
    with pytest.raises(ZeroDivisionError), plots.figure(Folder(), "broken", 1, 2, alt="Nothing."):
        raise ZeroDivisionError
    assert dict(mpl.rcParams) == before and not plt.get_fignums() and not in_notebook()
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
    saved = Image.open(io.BytesIO((tmp_path / "lines").read_bytes()))
    assert saved.size == (768, 480)  # 6.4 × 4 inches: a quarter denser than it is shown


def test_families_and_their_names():
    timms = ("resnet50", "resnetv2_50x1_bit", "vit_base_r50_s16_224", "vit_tiny_r_s16_p8_224", "vit_base_patch16_224")
    assert [plots.family(name) for name in timms] == ["ResNet", "ResNet", "hybrid", "hybrid", "ViT"]
    assert list(plots.labels([*MODELS, *MODELS, "BiT-Mu/8", "C+Mu/8"]).values()) == [
        "Lab-Ti/8", "ResNet-Ti/8", "hybrid", "ResNet-Mu/8", "convolutional stem",
    ]  # fmt: skip
    others = ["ViT-B/16", "resnet50", "R50+ViT-B/16", "vit_tiny_patch16_224"]
    assert list(plots.labels(others).values()) == others and plots.labels([]) == {}


# What a dichromat's eye makes of linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("eye", BLIND)
def test_families_are_told_apart_by_every_eye(eye):
    rgbs = [np.array(to_rgb(colour)) for colour, _ in FAMILIES.values()]
    seen = [np.clip(np.array(BLIND[eye]) @ rgb**2.2, 0, 1) ** (1 / 2.2) for rgb in rgbs]
    assert all(np.linalg.norm(a - b) > 0.3 for a, b in itertools.combinations(seen, 2))
    assert len({marker for _, marker in FAMILIES.values()}) == 4  # and in grey print by shape


def test_five_seeds_have_a_band_and_fewer_are_dots():
    few = plots.plot_accuracy(runs(4), new(), "n_train")
    np.testing.assert_allclose(few.lines[0].get_ydata(), [0.155, 0.2, 0.65])
    dots = few.collections[-1].get_offsets()
    assert len(dots) == 4 * 3 * 2 and sorted(set(dots[:, 0])) == [100, 1000, 10000]
    drawn = [path.vertices[:, 1] for band in few.collections[:-1] for path in band.get_paths()]
    assert all(np.isnan(heights).all() for heights in drawn)  # no band
    many = plots.plot_accuracy(runs(5), new(), "n_train")
    band = many.collections[0].get_paths()[0].vertices
    half = scipy.stats.t.ppf(0.975, 4) * scipy.stats.sem(np.arange(5) / 10)
    assert band[:, 1].max() == pytest.approx(0.7 + half) and len(many.collections) == 2
    assert many.get_ylabel() == "test accuracy (%)" and many.yaxis.get_major_formatter()(0.325) == "32.5"
    assert many.get_xlabel() == "training images (number, log scale)" and many.get_xscale() == "log"
    assert legend(many) == ["Lab-Ti/8", "ResNet"]


def test_a_family_looks_the_same_in_every_figure():
    curve = runs(2, MODELS, "step", (0, 10))
    for ax in (
        plots.plot_accuracy(curve.assign(samples=curve["step"] * 100), new(), "samples"),
        plots.plot_accuracy(runs(2, MODELS), new(), "n_train"),
        plots.plot_epochs(runs(2, MODELS, "epoch", (1, 2)).assign(arm="1x"), new()),
    ):
        assert [(line.get_color(), line.get_marker()) for line in ax.lines] == list(FAMILIES.values())[:3]


def test_sizes_that_would_touch_are_not_written():
    ax = new()
    curves.size_axis(ax, [100, 101, 1000, 100000])
    assert ticks(ax.xaxis) == ["100", "", "1,000", "100,000"]  # what would touch is not written


def test_compute_scaling_and_speeds():
    table = runs(2, MODELS[:1], "steps", (10, 100), "transfer").assign(flops=lambda rows: rows["steps"] * 1e9)
    fits = [(np.array([9, 11]), np.array([0.1, 0.1])), (np.array([9, 11]), np.array([0.3, 0.3]))]
    ax = plots.plot_compute_scaling(table, {"ViT": fits, "hybrid": []}, new())
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 0.2)
    assert legend(ax) == ["Lab-Ti/8"] and "FLOPs" in ax.get_xlabel() and ax.get_ylabel() == "accuracy (%)"
    ax = plots.plot_speeds(runs(3, MODELS[:1], "image_size", (32, 64), "images_per_second"), new())
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.1016, 0.1032])  # medians of the rounds
    assert ax.get_xscale() == ax.get_yscale() == "log" and "images per second" in ax.get_ylabel()


def test_comparisons_go_from_the_top_down():
    data = pd.DataFrame({"mean": [20.0, 2.0], "low": [10.0, np.nan], "high": [40.0, np.nan]}, index=["none", "2-D"])
    ax = plots.plot_comparisons(data, "difference from 1-D (points)", new())
    assert ticks(ax.yaxis) == ["none", "2-D"] and ax.yaxis_inverted()  # from the top down
    first, second = ax.containers[0][2][0].get_segments()
    assert first[:, 0].tolist() == [10.0, 40.0] and not len(second)


def test_attention_distances_have_a_dot_per_head_in_pixels(heads):
    ax = plots.plot_attention_distances(heads, new(), uniform=116.5, image_px=64)
    assert ax.get_ylabel() == "mean attention distance (px of 64)" and ax.get_xlabel() == "block (1 = first)"
    plots.legend_below([ax])
    named = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert named == ["uniform attention", "trained head", "untrained head", "mean of the trained heads"]
    dots = ax.collections[1].get_offsets()  # after the intervals of the trained
    np.testing.assert_allclose(dots[:, 1], heads["distance_px"][:6])
    assert len(set(np.round(dots[:, 0], 6))) == 6 and np.abs(dots[:, 0] - [1, 1, 2, 2, 3, 3]).max() < 0.3
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 116.5
    other = plots.plot_attention_distances(heads, new(), column="renormalized_px", uniform=1.0, image_px=64)
    assert len(other.collections) == 2  # dots of two models, no intervals of another column


def test_heads_over_blocks_and_over_the_training():
    heads = pd.DataFrame({"block": [1, 1], "head": [1, 2], "distance_px": [9.0, 4.0]})
    scale = {"uniform": 16.0, "limit": 8.0, "image_px": 32}
    ax = plots.plot_heads(heads, new(), **scale)
    assert ax.collections[0].get_offsets()[:, 1].tolist() == [9, 4] and ax.get_ylabel().endswith("(px of 32)")
    ax = plots.plot_heads(pd.concat([heads.assign(samples=n) for n in (0, 5000)]), new(), at=5000, **scale)
    assert legend(ax) == ["uniform attention", "limit of local heads", "block 1"]
    assert ax.lines[-1].get_xdata() == [5, 5] and "thousands" in ax.get_xlabel()
    shares = pd.DataFrame({"samples": [0, 5000], "seed": 0, "local": [0.0, 0.5], "objective": "masked"})
    assert legend(plots.plot_by_samples(shares, new())) == ["masked"]


def test_the_query_is_framed_in_every_head():
    ax = new()
    plots.mark_patch(ax, (1, 2), size=(8.0, 8.0))
    frame = ax.patches[0]
    assert (frame.get_x(), frame.get_y(), frame.get_width()) == (15.5, 7.5, 8.0)
    maps = np.ones((2, 3, 4, 4)) * np.arange(1, 4)[:, None, None]
    ax = plots.plot_head_maps(maps, new(), query=(1, 2), blocks=(1, 2, 3))
    assert ticks(ax.xaxis) == ["1", "2", "3"] and len(ax.patches) == 6
    assert np.nanmin(np.ma.filled(ax.images[0].get_array(), np.nan)) == 1  # each has its own maximum


def test_similarities_are_tiled_in_order():
    ax = plots.plot_similarity_grid(np.arange(36.0).reshape(2, 3, 2, 3) / 36, new())
    np.testing.assert_allclose(np.ma.getdata(ax.images[0].get_array())[3:, 4:7], np.arange(24, 30).reshape(2, 3) / 36)
    assert ax.get_xlabel() == "Input patch column" and ax.figure.axes[1].get_ylabel() == "Cosine similarity"


def test_components_against_the_untrained():
    rows = itertools.product((("trained", 0), ("untrained", 0), ("untrained", 1)), (1, 2))
    table = pd.DataFrame({"model": m, "replicate": r, "component": c, "explained": 0.1 * c} for (m, r), c in rows)
    np.testing.assert_allclose(plots.plot_components(table, "explained", new()).lines[1].get_ydata(), [10, 30])
    table = table.rename(columns={"explained": "low_frequency"})
    assert legend(plots.plot_components(table, "low_frequency", new(), 0.2))[-1] == "white noise"


def test_the_names_of_others_are_no_formulas():
    figure = Figure()
    ax = figure.subplots()
    ax.set(title=r"$\foo$", xscale="log", xlim=(1, 100))
    drawn(figure)  # a formula that cannot be read would raise
    assert not ax.title.get_parse_math() and ax.get_xticklabels()[1].get_parse_math()


def test_maps_share_a_scale_and_frame_the_patch():
    ax = plots.plot_maps({"a": np.ones((2, 2)), "b": -np.ones((2, 2))}, new(), "PuOr", patch=(0, 1))
    assert ax.images[0].get_clim() == (-1, 1) and [frame.get_x() for frame in ax.patches[::2]] == [0.5, 3.5]


def test_tiles_keep_their_pixels_and_their_order():
    spread = pictures.tile(IMAGE.reshape(3, 8, 3, 8, 3).swapaxes(1, 2), gap=2)
    assert spread.shape == (28, 28, 3) and (spread[8:10] == 255).all() and (spread[:, 18:20] == 255).all()
    np.testing.assert_array_equal(spread[10:18, 20:28], IMAGE[8:16, 16:24])
    ax = plots.plot_grid(IMAGE, 3, new(), numbered=True)
    places = [text.get_position() for text in ax.texts]
    assert words(ax) == [str(n) for n in range(1, 10)] and places[0][1] == places[2][1] < places[3][1]
    ax = plots.plot_pictures({"seen": [IMAGE] * 3, "told": [IMAGE]}, new())
    assert ticks(ax.yaxis) == ["seen", "told"] and (ax.images[0].get_array()[27:, 27:] == 255).all()
    tokens = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
    ax = plots.plot_model(IMAGE, 8, tokens, "class 3", new())
    assert {"9 patches", "head", "class 3", "class\ntoken"} <= set(words(ax))
    assert len(ax.images) == 2 + 9 + 10  # image, cut image, patches, tokens


def test_probabilities_and_verdicts():
    ax = plots.plot_probabilities(["a", "b"], np.array([0.9, 0.1]), np.array([0.25, 0.5]), new())
    assert words(ax) == ["90.0", "10.0", "25.0", "50.0"]
    assert set(pictures.VERDICTS) == {*map(str, verdicts.Verdict)}
    data = pd.DataFrame({"claim": ["C01", "C02", "L01"], "short": list("abc"), "verdict": "reproduced"})
    data.loc[1, "verdict"] = "inconclusive"
    ax = plots.plot_verdicts(data, new(), n_columns=2)
    assert words(ax) == ["C01 a", "C02 b", "L01 c"] and [text.get_position()[1] for text in ax.texts] == [0, 1, 0]
    assert legend(ax) == ["reproduced", "inconclusive"] and ax.lines[0].get_xydata().tolist() == [[0, 0], [1, 0]]


def test_a_drawing_has_a_palette_and_photographs_are_a_jpeg_no_denser_than_shown():
    figure, ax = plt.subplots(figsize=(4, 2))
    ax.plot([0, 1])
    drawing = drawn(figure)
    file = Image.open(io.BytesIO(encode(drawing, 200)))
    assert (file.format, file.mode, file.size) == ("PNG", "P", drawing.size)
    np.testing.assert_allclose(np.asarray(file.convert("RGB"), int), np.asarray(drawing, int), atol=5)
    smooth = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    photograph = Image.fromarray(smooth).resize((200, 160), Image.Resampling.BICUBIC)
    file = Image.open(io.BytesIO(encode(photograph, 100)))
    assert (file.format, file.size) == ("JPEG", (100, 80))
    assert np.abs(np.asarray(file, int) - np.asarray(photograph.resize((100, 80)), int)).mean() < 3
    squares = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)).resize((500, 500), 0)
    np.testing.assert_array_equal(Image.open(io.BytesIO(encode(squares))), squares)  # a JPEG would be larger
