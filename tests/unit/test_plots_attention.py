"""Figures of attention: what is on the axes, with units, and where the marks lie."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab import plots


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def heads():
    rows = []
    for model, base in (("trained", 10.0), ("untrained", 30.0)):
        for block in (1, 2, 3):
            for head in (1, 2):
                px = base + 5 * block + head
                rows.append(dict(model=model, block=block, head=head, distance_px=px, renormalized_px=px + 1))
                rows[-1] |= dict(low=px - 1, high=px + 1, prefix_mass=0.1 * head)
    return pd.DataFrame(rows)


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_attention_distances_have_a_dot_per_head_in_pixels(heads):
    ax = plots.plot_attention_distances(heads, uniform=33.0, image_px=64)
    assert ax.get_xlabel() == "block (1 = first)"
    assert ax.get_ylabel() == "mean attention distance (px of 64)"
    assert labels(ax) == ["uniform attention", "trained head", "untrained head", "mean of the trained heads"]
    dots = [offsets for c in ax.collections if len(offsets := c.get_offsets()) == 6]
    np.testing.assert_allclose(sorted(dots[0][:, 1]), sorted(heads["distance_px"][:6]))
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > heads["distance_px"].max()
    assert any(line.get_ydata()[0] == 33.0 and line.get_linestyle() == "--" for line in ax.lines)


def test_other_columns_carry_no_interval_of_the_first(heads):
    ax = plots.plot_attention_distances(heads, column="renormalized_px")
    assert len(ax.collections) == 2  # dots of two models, no bars
    assert ax.get_ylabel() == "mean attention distance (px)"


def test_the_uniform_distance_stays_in_view(heads):
    ax = plots.plot_attention_distances(heads, uniform=116.5)
    assert ax.get_ylim()[1] > 116.5


def test_heads_stand_side_by_side_and_their_means_are_joined(heads):
    ax = plots.plot_attention_distances(heads)
    dots = ax.collections[1].get_offsets()  # after the intervals of the trained
    assert len(set(np.round(dots[:, 0], 6))) == 6 and np.abs(dots[:, 0] - [1, 1, 2, 2, 3, 3]).max() < 0.3
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_ydata(), [16.5, 21.5, 26.5])


def test_the_axis_begins_where_the_data_need_it(heads):
    far = heads.assign(distance_px=heads["distance_px"] + 100, low=heads["low"] + 100, high=heads["high"] + 100)
    low, high = plots.plot_attention_distances(far, plt.figure().gca()).get_ylim()
    assert 100 < low < 115 and high > 148
    assert plots.plot_attention_distances(far, plt.figure().gca(), local=58.0).get_ylim()[0] == 0


def test_axes_that_are_shared_show_what_both_need(heads):
    _, (left, right) = plt.subplots(1, 2, sharey=True)
    plots.plot_attention_distances(heads, left, local=20.0, legend=False)
    plots.plot_attention_distances(heads.assign(distance_px=140.0, low=139.0, high=141.0), right, legend=False)
    assert left.get_ylim() == right.get_ylim() and left.get_ylim()[0] == 0 and left.get_ylim()[1] > 141
    assert left.get_legend() is None


def test_one_legend_names_everything_once(heads):
    fig, axes = plt.subplots(1, 2, layout="constrained")
    plots.plot_attention_distances(heads, axes[0], legend=False)
    plots.plot_attention_distances(heads, axes[1], uniform=33.0, local=16.5, legend=False)
    plots.legend_below(axes)
    (legend,) = fig.legends
    named = sorted(text.get_text() for text in legend.get_texts())
    assert named == sorted(
        ["uniform attention", "local: below this", "trained head", "untrained head", "mean of the trained heads"]
    )


def test_prefix_mass(heads):
    ax = plots.plot_prefix_mass(heads)
    assert ax.get_ylabel() == "attention to the class token"
    assert ax.get_xlabel() == "block (1 = first)"
    assert labels(ax) == ["trained head", "untrained head"]
    assert plots.plot_prefix_mass(heads, plt.figure().gca(), legend=False).get_legend() is None


def test_a_legend_below_leaves_two_panels_their_width(heads):
    fig, axes = plt.subplots(1, 2, layout="constrained", figsize=(10, 4.2))
    plots.plot_attention_distances(heads, axes[0], uniform=33.0, legend=False)
    plots.plot_prefix_mass(heads, axes[1], legend=False)
    plots.legend_below(axes)
    fig.draw_without_rendering()
    assert all(ax.get_position().width > 0.35 for ax in axes)
    box = fig.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= fig.bbox.width


def test_query_attention_frames_the_query_and_glows_where_attention_is():
    attention = np.zeros((4, 4))
    attention[1, 2], attention[0, 0] = 1.0, 0.25
    ax = plots.plot_query_attention(np.ones((32, 32, 3)), attention, (1, 2))
    frame = ax.patches[0]
    assert (frame.get_x(), frame.get_y(), frame.get_width()) == (15.5, 7.5, 8.0)
    opacity = ax.images[1].get_array()[..., 3]
    assert opacity[1, 2] == 1 and opacity[0, 0] == pytest.approx(0.5) and opacity[3, 3] == 0
    assert len({patch.get_edgecolor() for patch in ax.patches}) == 2  # one of them shows on any image
    assert ax.images[0].get_array().max() < 0.5  # dark, so that the glow shows on white too
    assert not ax.axison


def test_query_attention_of_a_head_that_sees_no_patch():
    ax = plots.plot_query_attention(np.ones((8, 8, 3)), np.zeros((2, 2)), (0, 0))
    assert (ax.images[1].get_array()[..., 3] == 0).all()


def test_overlay_darkens_what_is_not_attended_to():
    weight = np.array([[1.0, 0.0]])
    ax = plots.plot_overlay(np.full((1, 2, 3), 0.8), weight)
    np.testing.assert_allclose(ax.images[0].get_array()[0, :, 0], [0.8, 0.0])


def test_a_floor_leaves_brightness_where_nothing_is_attended_to():
    ax = plots.plot_overlay(np.full((1, 2, 3), 0.8), np.array([[1.0, 0.0]]), floor=0.25)
    np.testing.assert_allclose(ax.images[0].get_array()[0, :, 0], [0.8, 0.2])


def test_overlay_rows_label_every_row_and_outline_objects():
    _, axes = plt.subplots(2, 3, squeeze=False)
    masks = np.zeros((3, 8, 8), dtype=bool)
    masks[0, 2:5, 2:5] = True
    masks[2] = True  # neither an empty nor a full mask has an outline
    plots.plot_overlay_rows(np.ones((3, 8, 8, 3)), {"rollout": np.ones((3, 8, 8))}, axes, masks)
    assert [axes[row, 0].texts[0].get_text() for row in (0, 1)] == ["input", "rollout"]
    assert [[len(ax.collections) for ax in row] for row in axes] == [[1, 0, 0], [1, 0, 0]]


def test_overlays_beside_have_a_row_per_image_and_a_named_column_per_method():
    _, axes = plt.subplots(2, 3, squeeze=False)
    images = np.stack([np.full((4, 4, 3), 0.2), np.full((4, 4, 3), 0.6)])
    methods = {"rollout": np.ones((2, 4, 4)), "half": np.full((2, 4, 4), 0.5)}
    plots.plot_overlays_beside(images, methods, axes)
    assert [ax.get_title() for ax in axes[0]] == ["input", "rollout", "half"]
    assert [ax.get_title() for ax in axes[1]] == [""] * 3
    shown = [[ax.images[0].get_array()[0, 0, 0] for ax in row] for row in axes]
    np.testing.assert_allclose(shown, [[0.2, 0.2, 0.1], [0.6, 0.6, 0.3]])


def test_maps_compared_show_the_difference_around_zero():
    _, axes = plt.subplots(1, 3)
    right, wrong = np.array([[1.0, 2.0]]), np.array([[2.0, 2.0]])
    plots.plot_maps_compared(right, wrong, axes)
    np.testing.assert_allclose(axes[2].images[0].get_array(), [[0.5, 0.0]])
    assert axes[2].images[0].get_clim() == (-0.5, 0.5)
    assert [ax.patches[0].get_xy() for ax in axes] == [(-0.5, -0.5)] * 3  # the patch that differs most


def test_mass_against_area():
    data = pd.DataFrame({"model": ["trained", "untrained"], "mass": [0.5, 0.2], "area": [0.2, 0.21]})
    ax = plots.plot_mass_against_area(data)
    assert ax.get_xlabel() == "share of the image that is object"
    assert ax.get_ylabel() == "share of rollout mass on it"
    assert labels(ax) == ["mass = area", "untrained", "trained"]
    line = ax.lines[0]
    np.testing.assert_allclose(line.get_xdata(), line.get_ydata())


def test_comparisons_run_from_the_top_down_in_percentage_points():
    data = pd.DataFrame({"what": ["trained", "untrained"], "mean": [0.2, 0.02], "low": [0.1, 0.01]})
    data["high"] = [0.4, 0.03]
    ax = plots.plot_comparisons(data)
    assert "percentage points" in ax.get_xlabel()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["trained", "untrained"]
    bars = ax.containers[0]
    np.testing.assert_allclose(bars[0].get_xdata(), [20, 2])
    assert bars[0].get_ydata()[0] > bars[0].get_ydata()[1]
    np.testing.assert_allclose(bars[2][0].get_segments()[0][:, 0], [10, 40])


def test_distances_of_another_model_are_refused_in_words(heads):
    with pytest.raises(ValueError, match=r"data is of model \['deit', 'untrained'\], expected trained or untrained"):
        plots.plot_attention_distances(heads.replace("trained", "deit"))
