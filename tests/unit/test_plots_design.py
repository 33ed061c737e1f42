"""Figures of design choices: what is drawn is what was given, in its place; axes say what and in which unit."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab import plots, widgets
from vitlab.plots.style import MUTED

HEADS = ("class token", "GAP")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars_of(container):
    return np.array([segment for segment in container.lines[2][0].get_segments()])


@pytest.fixture
def rates():
    rows = [
        {"arm": arm, "learning_rate": rate, "mean": mean, "low": mean - 0.05, "high": mean + 0.02}
        | {"chosen": rate == 0.004}
        for arm, means in zip(HEADS, ((0.4, 0.6), (0.5, 0.3)), strict=True)
        for rate, mean in zip((0.001, 0.004), means, strict=True)
    ]
    return pd.DataFrame(rows[::-1])  # in any order


def test_cells_stand_in_their_order_with_their_intervals():
    rows = {"arm": ["none", "2-D", "relative"], "difference": [-3.0, 0.5, 1.0]}
    table = pd.DataFrame(rows | {"low": [-4.0, np.nan, 0.0], "high": [-1.0, np.nan, 3.0]})
    ax = plots.plot_cell_differences(table, "1-D")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["none", "2-D", "relative"]
    dots = next(line for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_allclose(dots.get_xdata(), [-3.0, 0.5, 1.0])
    np.testing.assert_allclose(dots.get_ydata(), [0, 1, 2])
    (container,) = ax.containers
    np.testing.assert_allclose(bars_of(container)[:, :, 0], [[-4.0, -1.0], [0.0, 3.0]])
    np.testing.assert_allclose(bars_of(container)[:, 0, 1], [0, 2])  # the second has no interval
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first is on top
    assert ax.get_xlabel() == "difference from 1-D\n(percentage points)"
    papers = plots.plot_cell_differences(table, "1-D", colour="grey")
    assert next(line for line in papers.lines if line.get_marker() == "D").get_color() == MUTED


def test_cells_of_which_none_is_there_are_an_empty_figure():
    ax = plots.plot_cell_differences(pd.DataFrame(columns=["arm", "difference", "low", "high"], dtype=float), "1-D")
    assert list(ax.get_yticks()) == [] and ax.get_ylim() == (0.5, -0.5)


def test_head_rates_ring_the_rate_chosen_for_each_head_and_mark_one(rates):
    ax = plots.plot_head_rates(rates, at=0.004)
    rings = [line.get_xydata()[0] for line in ax.lines if line.get_fillstyle() == "none" and len(line.get_xdata())]
    np.testing.assert_allclose([y for _, y in rings], [0.3, 0.6])  # of which one is not the best in the figure
    np.testing.assert_allclose([x for x, _ in rings], [0.004, 0.004], rtol=0.05)
    drawn = {container.get_label(): container for container in ax.containers}
    np.testing.assert_allclose(drawn["class token"].lines[0].get_ydata().astype(float), [0.4, 0.6])
    np.testing.assert_allclose(bars_of(drawn["GAP"])[:, :, 1], [[0.45, 0.52], [0.25, 0.32]])
    assert any(np.allclose(line.get_xdata(), 0.004) and line.get_linestyle() == "--" for line in ax.lines)
    assert ax.get_xscale() == "log" and ax.get_ylabel() == "test accuracy (%)"


def test_optimizers_stand_side_by_side_in_each_case():
    rows = itertools.product(("R50\nPets", "R50\nFlowers"), ("Adam", "SGD"))
    means = pd.DataFrame(
        {"case": case, "optimizer": name, "mean": 0.5 + 0.1 * k, "low": 0.4, "high": 0.95}
        for k, (case, name) in enumerate(rows)
    )
    ax = plots.plot_optimizers(means)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["R50\nPets", "R50\nFlowers"]
    adam, sgd = ax.containers
    np.testing.assert_allclose(adam.lines[0].get_ydata().astype(float), [0.5, 0.7])
    np.testing.assert_allclose(sgd.lines[0].get_ydata().astype(float), [0.6, 0.8])
    assert (adam.lines[0].get_xdata() < sgd.lines[0].get_xdata()).all()
    np.testing.assert_allclose(adam.lines[0].get_xdata().astype(float), [-0.1, 0.9])
    assert labels(ax) == ["Adam", "SGD"] and ax.get_ylabel() == "fine-tuned accuracy (%)"
    assert adam.has_yerr and sgd.has_yerr


def test_optimizers_without_intervals_have_none_drawn():
    rows = {"case": "R50\nPets", "optimizer": ["Adam", "SGD"], "mean": [0.9, 0.8], "low": np.nan, "high": np.nan}
    ax = plots.plot_optimizers(pd.DataFrame(rows))
    assert not any(container.has_yerr for container in ax.containers)
    low, high = ax.get_ylim()
    assert 0.7 < low < 0.8 and 0.9 < high < 1.0


def test_shapes_go_out_from_the_base_in_order_of_flops():
    rows = [("depth", 4e6, 0.8), ("base", 1e6, 0.5), ("depth", 2e6, 0.6), ("width", 4e6, 0.55)]
    means = pd.DataFrame(
        {"dimension": name, "flops": flops, "mean": mean, "low": 0.4, "high": 0.9} for name, flops, mean in rows
    )
    ax = plots.plot_shapes(means)
    lines = [line for line in ax.lines if line.get_linestyle() == "-" and line.get_linewidth() == 1.5]
    np.testing.assert_allclose(lines[0].get_xdata(), [1e6, 2e6, 4e6])
    np.testing.assert_allclose(lines[0].get_ydata(), [0.5, 0.6, 0.8])
    np.testing.assert_allclose(lines[1].get_ydata(), [0.5, 0.55])
    assert labels(ax) == ["depth", "width", "base"] and "millions" in ax.get_xlabel()
    ax.figure.canvas.draw()
    assert "2" in {tick.get_text() for tick in ax.get_xticklabels()}


def test_arms_stand_at_their_flops():
    means = pd.DataFrame({"arm": ["axial", "full"], "flops": [3e6, 2e6], "mean": [0.7, 0.6], "low": 0.5, "high": 0.8})
    ax = plots.plot_accuracy_flops(means)
    drawn = {container.get_label(): container.lines[0] for container in ax.containers}
    assert drawn["axial"].get_xdata()[0] == 3e6 and drawn["full"].get_ydata()[0] == 0.6
    assert drawn["axial"].get_color() != drawn["full"].get_color()


def test_times_of_every_arm_by_grid():
    rows = [("axial", 8, 1.0), ("full", 8, 2.0), ("axial", 16, 3.0), ("full", 16, 9.0)]
    times = pd.DataFrame({"arm": arm, "tokens": side, "milliseconds": value} for arm, side, value in rows)
    ax = plots.plot_forward_times(times)
    drawn = {line.get_label(): line.get_ydata().tolist() for line in ax.lines}
    assert drawn == {"axial": [1.0, 3.0], "full": [2.0, 9.0]}
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["8 × 8", "16 × 16"]
    assert "ms" in ax.get_ylabel()


def test_intervals_are_cut_where_no_accuracy_can_be(rates):
    low, high = plots.plot_head_rates(rates.assign(low=-0.5, high=1.5)).get_ylim()
    assert low == 0 and 1 < high < 1.05


def test_the_heads_knob_says_what_it_draws_of_every_length(rates):
    short, long = rates.assign(steps=500), rates.assign(steps=2_000, mean=rates["mean"] + 0.01)
    means = pd.concat([long[long["learning_rate"] == 0.004], short])  # the longer was tried at one rate alone
    knob = widgets.head_rates(means)
    figure, words = knob.draw(rate=0.004)
    assert words == (
        "Learning rate 0.004, after 500 steps: GAP 30.0%, class token 60.0%; GAP minus class token is -30.0 points; "
        "after 2,000 steps: GAP 31.0%, class token 61.0%; GAP minus class token is -30.0 points."
    )
    assert [ax.get_title() for ax in figure.axes] == ["500 steps", "2,000 steps"]
    drawn = {container.get_label(): container for container in figure.axes[1].containers}
    np.testing.assert_allclose(drawn["GAP"].lines[0].get_ydata().astype(float), [0.31])
    assert knob.draw(rate=0.001)[1].endswith("after 2,000 steps: not tried.")
    with pytest.raises(ValueError, match="no accuracies given"):
        widgets.head_rates(means.iloc[:0])


def test_the_positions_knob_draws_the_map_that_is_named_and_refuses_one_that_is_not_there():
    cross = np.maximum(np.eye(3)[:, None, :, None], np.eye(3)[None, :, None, :]) * np.ones((3, 3, 3, 3))
    maps = {("1-D, stem", 0.001): cross, ("relative", 0.004): -cross}
    made = widgets.position_kinds(maps)
    figure, words = made.draw(kind="relative", rate=0.004)
    shown = np.ma.getdata(figure.axes[0].images[0].get_array())
    assert np.nanmin(shown) == -1 and np.nanmax(shown) == 0 and words.startswith("relative, learning rate 0.004")
    with pytest.raises(ValueError, match="relative was trained with the learning rates 0.004, not with 0.001"):
        made.draw(kind="relative", rate=0.001)
    with pytest.raises(ValueError, match="no similarity map"):
        widgets.position_kinds({})
