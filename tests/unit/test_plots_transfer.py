"""Transfer figures: what is drawn is what was given, axes say what and in which unit."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vitlab import plots
from vitlab.plots.families import FAMILIES
from vitlab.plots.style import COLOURS

VIT, BIT = "Lab-Ti/8", "BiT-Lab-Ti/8"
BLUE, VERMILION = (COLOURS[FAMILIES[name][0]] for name in ("ViT", "ResNet"))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.fixture
def means():
    rows = itertools.product((VIT, BIT), ("pre-trained", "untrained"), (1, 5))
    return pd.DataFrame(
        {"model": m, "weights": w, "shots": n, "mean": n / 10, "low": n / 10 - 0.02, "high": n / 10 + 0.05}
        for m, w, n in rows
    )


def test_resolutions_draw_every_seed_and_the_mean_with_its_interval():
    runs = pd.DataFrame(
        {"model": m, "seed": s, "image_size": side, "test_accuracy": side / 100 + s / 10}
        for m, s, side in itertools.product((VIT, BIT), (0, 1), (64, 32))
    )
    means = pd.DataFrame(
        {"model": [VIT, VIT], "image_size": [32, 64], "mean": [0.37, 0.69], "low": [0.3, 0.6], "high": [0.5, 0.7]}
    )
    ax = plots.plot_resolutions(runs, means)
    thin = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() < 1]
    assert len(thin) == 4 and {line.get_color() for line in thin} == {BLUE, VERMILION}
    np.testing.assert_allclose(thin[0].get_xdata(), [32, 64])  # in order, whatever the order of the rows
    (container,) = ax.containers
    line, _, (bars,) = container.lines
    np.testing.assert_allclose(line.get_ydata().astype(float), [0.37, 0.69])
    np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], [[0.3, 0.5], [0.6, 0.7]])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["32 px\n16 patches", "64 px\n64 patches"]
    assert labels(ax) == ["ViT-Ti/8"] and ax.get_ylabel() == "test accuracy (%)"


def test_few_shots_tell_weights_apart_by_line_and_families_by_colour(means):
    ax = plots.plot_few_shots(means, chance=0.1)
    drawn = [container.lines for container in ax.containers]
    assert [line.get_linestyle() for line, *_ in drawn] == ["-", "--", "-", "--"]
    assert [line.get_color() for line, *_ in drawn] == [BLUE, BLUE, VERMILION, VERMILION]
    np.testing.assert_allclose(drawn[0][0].get_ydata().astype(float), [0.1, 0.5])
    bars = drawn[0][2][0].get_segments()
    np.testing.assert_allclose([segment[:, 1] for segment in bars], [[0.08, 0.15], [0.48, 0.55]])
    assert ax.get_xscale() == "log" and [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "5"]
    assert labels(ax)[1] == "ViT-Ti/8, untrained" and "images per class" in ax.get_xlabel()
    assert any(np.allclose(line.get_ydata(), 0.1) and len(line.get_xdata()) == 2 for line in ax.lines[4:])


def test_rates_ring_the_best_of_the_mean_over_seeds_and_shade_the_papers():
    trials = pd.DataFrame(
        {
            "model": VIT,
            "arm": ["1x"] * 4 + ["2x"] * 2,
            "seed": [0, 0, 1, 1, 0, 0],
            "learning_rate": [1.0, 3.0] * 3,
            "held_out_accuracy": [0.5, 0.6, 0.9, 0.7, 0.2, 0.3],
        }
    )
    ax = plots.plot_rates(trials, published=(0.001, 0.03))
    rings = [(line.get_xdata(), line.get_ydata()) for line in ax.lines if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(np.ravel(rings), [1.0, 0.7, 3.0, 0.3])
    lines = [line for line in ax.lines if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(lines[0].get_ydata(), [0.7, 0.65])
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    (shade,) = ax.patches
    assert (shade.get_x(), shade.get_width()) == pytest.approx((0.001, 0.029))
    assert "batch of 512" in ax.get_xlabel() and "Table 4's learning rates" in labels(ax)


def test_an_arm_has_the_same_line_in_every_panel_and_scratch_is_hollow():
    def drawn(*arms):
        rows = itertools.product(arms, (1.0, 3.0))
        trials = pd.DataFrame({"model": VIT, "arm": a, "learning_rate": r, "held_out_accuracy": r / 4} for a, r in rows)
        lines = [line for line in plots.plot_rates(trials).lines if len(line.get_xdata()) == 2]
        return {arm: (line.get_linestyle(), line.get_fillstyle()) for arm, line in zip(arms, lines, strict=True)}

    few, many = drawn("1x", "scratch"), drawn("1x", "1.5x", "2x", "scratch")
    assert few == {"1x": ("-", "full"), "scratch": ("--", "none")} and few.items() < many.items()
    assert len({line for line, _ in many.values()}) == 4


@pytest.mark.parametrize(
    "y, label", [("test_accuracy", "test accuracy (%)"), ("share", "share of the final accuracy (%)")]
)
def test_epochs_draw_the_mean_the_band_and_scratch_dashed(y, label):
    rows = pd.DataFrame(
        {"model": m, "arm": arm, "seed": s, "epoch": k, y: (1 + k) / 10 + s / 100}
        for m, arm, s, k in itertools.product((VIT, BIT), ("1x", "scratch"), (-1, 0, 1), (0, 1, 8))
    )
    ax = plots.plot_epochs(rows, y=y)
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-", "--"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.1, 0.2, 0.9])
    half = 4.302653 * 0.01 / 3**0.5  # Student's t with two degrees of freedom
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.1 - half, 0.9 + half))
    assert labels(ax) == ["ViT-Ti/8", "ViT-Ti/8, from scratch", "ResNet", "ResNet, from scratch"]
    assert ax.get_ylabel() == label and list(ax.get_xticks()) == [0, 1, 8]


def test_bands_of_epochs_are_cut_where_no_accuracy_can_be_and_shares_are_not():
    for y, top in (("test_accuracy", 1.0), ("share", 0.98 + 12.7062 * 0.01)):  # t with one degree of freedom
        rows = pd.DataFrame({"model": VIT, "arm": "1x", "seed": [0, 1], "epoch": 1, y: [0.97, 0.99]})
        band = plots.plot_epochs(rows, y=y).collections[0].get_paths()[0].vertices[:, 1]
        assert band.max() == pytest.approx(top)


def test_nothing_is_cut_off_where_two_axes_share_their_scale():
    _, axes = plt.subplots(1, 2, sharey=True)
    for ax, accuracy in zip(axes, (0.2, 0.98), strict=True):
        one = {"model": VIT, "arm": "1x", "seed": 0, "learning_rate": [1.0, 3.0], "held_out_accuracy": accuracy}
        plots.plot_rates(pd.DataFrame(one), ax)
    low, high = axes[0].get_ylim()
    assert low < 0.2 and high > 0.98


def test_intervals_are_cut_where_no_accuracy_can_be(means):
    low, high = plots.plot_few_shots(means.assign(low=-0.5, high=1.5)).get_ylim()
    assert low == 0 and 1 < high < 1.05


def test_a_figure_draws_into_the_axes_it_is_given(means):
    _, axes = plt.subplots(1, 2)
    assert plots.plot_few_shots(means, axes[1]) is axes[1]
    assert not axes[0].lines
