"""Figures of notebooks 06 and 07: labels with units, and that what is drawn is what was given."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("agg")
import matplotlib.pyplot as plt

from vitlab import plots


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def components() -> pd.DataFrame:
    rows = []
    for model, replicate, level in (
        ("trained", 0, 0.3),
        ("trained", 1, 0.9),
        *(("untrained", r, r / 20) for r in (1, 2)),
    ):
        rows += [
            {"model": model, "replicate": replicate, "component": c, "explained": level, "low_frequency": level}
            for c in (1, 2, 3)
        ]
    return pd.DataFrame(rows)


@pytest.fixture
def similarities() -> pd.DataFrame:
    rows = []
    for model, replicate, sign in (("trained", 0, 1), ("trained", 1, 5), ("untrained", 1, 0.1), ("untrained", 2, -0.1)):
        rows += [
            {"model": model, "replicate": replicate, "quantity": kind, "distance": d, "value": sign / d}
            for kind in ("same row", "same column", "neither")
            for d in (1, 2, 3)
        ]
    return pd.DataFrame(rows)


@pytest.fixture
def measures() -> pd.DataFrame:
    names = ["rank correlation", "row excess"]
    columns = {"value": [0.5, 0.2], "low": [0.4, 0.1], "high": [0.6, 0.3]}
    return pd.DataFrame({**columns, "control_low": [-0.1, -0.2], "control_high": [0.1, 0.2]}, index=names)


def test_filter_grid_places_every_tile():
    tiles = np.zeros((5, 4, 4, 3))
    tiles[4] = (1.0, 0.0, 0.0)  # the fifth tile: second row, first column
    ax = plots.plot_filter_grid(tiles, columns=4)
    picture = np.asarray(ax.images[0].get_array())
    assert picture.shape == (2 * 5 + 1, 4 * 5 + 1, 3)
    assert (picture[6:10, 1:5] == (1.0, 0.0, 0.0)).all()
    assert (picture[6:10, 6:] == 1).all()  # no tile: white
    assert ax.get_xlabel() == "Components 1–5, row by row"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "5"]
    assert list(ax.get_yticks()) == [2.5, 7.5]  # the middles of the rows


def test_explained_variance_adds_up(components):
    ax = plots.plot_explained_variance(components)
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(lines["trained"], [30, 60, 90])  # replicate 0, not the one with a group left out
    assert ax.get_ylabel() == "Variance explained,\ncumulative (%)"
    assert "component" in ax.get_xlabel()
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    assert (low, high) == pytest.approx((5, 30))  # of the untrained


def test_low_frequencies_show_white_noise(components):
    ax = plots.plot_low_frequencies(components, white_noise=0.2)
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(lines["white noise"], [20, 20])
    np.testing.assert_allclose(lines["trained"], [30, 30, 30])
    assert ax.get_ylabel() == "Energy up to\n¼ cycle/pixel (%)"
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["untrained, range and mean", "trained", "white noise"]


def test_similarity_grid_puts_tile_where_its_patch_is():
    similarity = np.zeros((2, 3, 2, 3))
    similarity[1, 2] = 1.0
    fig, ax = plt.subplots()
    assert plots.plot_similarity_grid(similarity, ax) is ax
    picture = np.asarray(ax.images[0].get_array())
    assert picture.shape == (2 * 3 + 1, 3 * 4 + 1)
    assert (picture[4:6, 9:12] == 1).all()
    assert np.nansum(picture) == 6
    assert ax.images[0].get_clim() == (-1, 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Input patch column", "Input patch row")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]
    assert fig.axes[-1].get_ylabel() == "Cosine similarity"


def test_similarity_grid_of_many_patches_has_few_numbers():
    ax = plots.plot_similarity_grid(np.zeros((16, 16, 16, 16)), colorbar=False)
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(n) for n in range(1, 17, 2)]
    assert len(ax.figure.axes) == 1
    assert ax.images[0].get_array().shape == (16 * 18 + 2,) * 2  # a gap of two patches between tiles


def test_similarity_grid_numbers_all_of_fourteen():
    ax = plots.plot_similarity_grid(np.zeros((12, 14, 12, 14)), colorbar=False)
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(n) for n in range(1, 15)]


def test_similarity_curves(similarities):
    ax = plots.plot_similarity_curves(similarities)
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    for kind in ("same row", "same column", "neither"):
        np.testing.assert_allclose(lines[kind], [1, 1 / 2, 1 / 3])
    assert ax.get_xlabel() == "Distance between patches (patches)"
    assert ax.get_ylabel() == "Mean cosine similarity"
    assert ax.collections[0].get_datalim(ax.transData).intervaly == pytest.approx((-0.1, 0.1))


def test_measures(measures):
    ax = plots.plot_measures(measures)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(measures.index)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(bars, measures[["control_low", "control_high"]])
    values, heights = ax.lines[0].get_data()
    np.testing.assert_allclose(values, measures.value)
    assert heights.tolist() == [1, 0]  # the first on top
    assert ax.get_xlim()[0] < -0.2 and ax.get_xlim()[1] > 0.6  # nothing ends at the edge
    ends = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends, measures[["low", "high"]])


def test_measures_show_the_limit_of_the_rule(measures):
    ax = plots.plot_measures(measures.assign(limit=[0.3, 0.9]))
    (limits,) = [lines for lines in ax.collections if lines.get_label() == "limit of the rule"]
    assert [segment[0, 0] for segment in limits.get_segments()] == [0.3, 0.9]
    assert ax.get_xlim()[1] > 0.9


def test_a_patch_is_framed_in_every_map():
    ax = plots.plot_maps({"a": np.zeros((2, 4)), "b": np.ones((2, 4))}, patch=(1, 3))
    corners = [frame.get_xy() for frame in ax.patches[::2]]
    np.testing.assert_allclose(corners, [(0.75, 0.0), (1.12 + 0.75, 0.0)])  # the lowest row, the last column
    np.testing.assert_allclose((ax.patches[0].get_width(), ax.patches[0].get_height()), (0.25, 0.5))


def test_maps_of_different_sizes_share_one_scale():
    ax = plots.plot_maps({"small": np.array([[1.0, -2.0]]), "large": np.full((3, 3), 0.5)})
    assert [label.get_text() for label in ax.get_xticklabels()] == ["small", "large"]
    assert [image.get_clim() for image in ax.images] == [(-2, 2), (-2, 2)]


def test_resize_differences():
    rows = [("timm", "noise", 0.3), ("hf", "noise", 0.4), ("timm", "ours", 0.1), ("hf", "ours", 0.2)]
    ax = plots.plot_resize_differences(pd.DataFrame(rows, columns=["convention", "positions", "difference"]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["timm", "hf"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [30, 40, 10, 20])
    assert ax.get_xlabel() == "Difference from the paper's resizing (relative L2, %)"


def test_tiles_with_the_channels_first_are_refused_in_words():
    with pytest.raises(ValueError, match=r"tiles are \[28, 3, 16, 16\].*permute\(0, 2, 3, 1\)"):
        plots.plot_filter_grid(np.zeros((28, 3, 16, 16)))
