"""Training and scaling figures: what is drawn is what was given, axes say what and in which unit."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from vitlab import plots
from vitlab.plots.families import FAMILIES, family, labels
from vitlab.plots.lines import over_seeds, size_axis
from vitlab.plots.style import COLOURS


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def curves():
    """Two models, two seeds 0.1 apart, three evaluations."""
    rows = itertools.product(("Lab-Ti/8", "BiT-Lab-Ti/8"), (0, 1), (0, 10, 20))
    return pd.DataFrame(
        {
            "model": m,
            "seed": s,
            "step": t,
            "samples": 100 * t,
            "seconds": t / 10 + s,
            "test_accuracy": 0.1 + t / 50 + s / 10,
        }
        for m, s, t in rows
    )


@pytest.fixture
def runs():
    rows = itertools.product(("Lab-Ti/8", "BiT-Lab-Ti/8"), (0, 1), (100, 1000, 10000))
    return pd.DataFrame({"model": m, "seed": s, "n_train": n, "test_accuracy": n / 20000 + s / 10} for m, s, n in rows)


def test_families_by_name():
    assert [family(name) for name in ("ViT-B/16", "Lab-Ti/2", "BiT-Lab-S")] == ["ViT", "ViT", "ResNet"]
    assert [family(name) for name in ("R+Lab-Ti/8", "R50+ViT-B/16")] == ["hybrid", "hybrid"]
    timms = ("resnet50", "resnetv2_50x1_bit", "vit_base_r50_s16_224", "vit_tiny_r_s16_p8_224", "vit_base_patch16_224")
    assert [family(name) for name in timms] == ["ResNet", "ResNet", "hybrid", "hybrid", "ViT"]


def test_legends_speak_of_vits_resnets_and_hybrids():
    three = ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8")
    assert list(labels(three).values()) == ["ViT-Ti/8", "ResNet", "hybrid"]
    four = labels([*three, *three, "BiT-Lab-Mu/8"])
    assert list(four.values()) == ["ViT-Ti/8", "ResNet-Ti/8", "hybrid", "ResNet-Mu/8"]
    others = ["ViT-B/16", "resnet50", "R50+ViT-B/16", "vit_tiny_patch16_224"]
    assert list(labels(others).values()) == others
    assert labels([]) == {}


# What a dichromat's eye makes of linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
_BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("eye", _BLIND)
def test_families_are_told_apart_by_every_eye(eye):
    colours = {name: np.array(to_rgb(COLOURS[colour])) for name, (colour, _) in FAMILIES.items()}
    seen = {name: np.clip(_BLIND[eye] @ rgb**2.2, 0, 1) ** (1 / 2.2) for name, rgb in colours.items()}
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 0.3, (a, b)
    assert len({marker for _, marker in FAMILIES.values()}) == len(FAMILIES) == 3  # and in grey print by shape


def test_a_family_looks_the_same_in_every_figure(curves, runs):
    for table, plot in ((curves, plots.plot_training_curves), (runs, plots.plot_data_scaling)):
        hybrid = table[table["model"] == "Lab-Ti/8"].assign(model="R+Lab-Ti/8")
        ax = plot(pd.concat([table, hybrid]))
        for line, kind in zip(ax.lines, ("ViT", "ResNet", "hybrid"), strict=True):
            colour, marker = FAMILIES[kind]
            assert (line.get_color(), line.get_marker()) == (COLOURS[colour], marker)


def test_training_curves_draw_the_mean_and_the_band(curves):
    ax = plots.plot_training_curves(curves)
    assert [text.get_text() for text in ax.texts] == ["ViT-Ti/8", "ResNet"]
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(x, [0, 1, 2])  # thousands of images
    np.testing.assert_allclose(y, [0.15, 0.35, 0.55])
    band = ax.collections[0].get_paths()[0].vertices
    half = 12.706 * 0.05  # of the 95 % t interval of two seeds: 12.706 standard errors
    assert band[:, 1].max() == pytest.approx(1.0) and band[:, 1].min() == pytest.approx(0.0)  # no accuracy is beyond
    bounds = over_seeds(curves[curves["model"] == "Lab-Ti/8"], "step", "test_accuracy")
    np.testing.assert_allclose(bounds["high"] - bounds["mean"], half, rtol=1e-4)
    assert ax.get_xlabel() == "training images seen (thousands)" and ax.get_ylabel() == "test accuracy (%)"
    assert ax.yaxis.get_major_formatter()(0.5) in ("50", "50.0")
    assert ax.lines[0].get_color() != ax.lines[1].get_color()


def test_training_curves_against_seconds_average_the_clock_too(curves):
    ax = plots.plot_training_curves(curves, x="seconds")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [0.5, 1.5, 2.5])
    assert "(s)" in ax.get_xlabel()


def test_another_x_is_refused(curves):
    with pytest.raises(ValueError, match="x='epochs': expected one of samples, seconds"):
        plots.plot_training_curves(curves, x="epochs")


def test_arms_are_drawn_against_hours_and_named_with_their_last_accuracy():
    rows = [("masked", 0, 1.0, 0.5), ("masked", 0, 2.0, 0.8), ("scratch", 0, 1.0, 0.6), ("masked", 1, 1.0, 0.4)]
    table = pd.DataFrame(rows, columns=["arm", "seed", "core_hours", "test_accuracy"])
    ax = plots.plot_accuracy_by_hours(table)
    assert [line.get_xydata().tolist() for line in ax.lines][0] == [[1.0, 0.5], [2.0, 0.8]]
    assert [text.get_text() for text in ax.texts] == ["masked: 40.0 %", "scratch: 60.0 %", "masked: 80.0 %"]
    colours = [line.get_color() for line in ax.lines]  # one for each arm, whatever the seed
    assert colours[0] == colours[2] != colours[1]
    assert "hours" in ax.get_xlabel() and ax.get_ylabel() == "test accuracy (%)"


def test_schedules_are_drawn_step_by_step():
    ax = plots.plot_schedules({"rising": lambda t: t / 10, "flat": lambda t: 0.3}, 5)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0, 0.1, 0.2, 0.3, 0.4])
    assert ax.get_xlabel() == "training step" and ax.get_ylabel() == "learning rate"
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()


def test_confusion_writes_shares_of_the_true_class():
    ax = plots.plot_confusion(np.array([[3, 1], [0, 0]]), ["a", "b"])  # no image of class b: no division by zero
    written = {tuple(text.get_position()): text.get_text() for text in ax.texts}
    assert written == {(0, 0): "75", (1, 0): "25"}
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_xlabel() == "predicted class" and ax.get_ylabel().startswith("true class")


def test_captions_stand_below_their_pictures():
    images = [np.full((8, 8, 3), value, dtype=np.uint8) for value in (10, 200)]
    ax = plots.plot_captioned(images, ["dark", "bright"])
    strip = ax.images[0].get_array()
    assert strip.shape == (8, 17, 3)  # a gap of one pixel
    for place, value in zip(ax.get_xticks(), (10, 200), strict=True):
        assert (strip[:, int(place)] == value).all()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["dark", "bright"]


def test_histories_mark_the_best_evaluation():
    rows = pd.DataFrame(
        {
            "n_train": [10] * 3 + [100] * 3,
            "step": [0, 5, 10] * 2,
            "val_accuracy": [0.1, 0.4, 0.3, 0.1, 0.5, 0.6],
            "train_loss": [None, 1.0, 0.1, None, 2.0, 1.5],
        }
    )
    ax = plots.plot_histories(rows)
    marks = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines if line.get_marker() == "o"]
    assert marks == [(5, 0.4), (10, 0.6)]
    assert ax.get_xlabel() == "training step" and ax.get_ylabel() == "validation accuracy (%)"
    loss = plots.plot_histories(rows, y="train_loss")
    assert loss.get_ylabel() == "training loss (nats)"
    assert [list(line.get_xdata()) for line in loss.lines] == [[5, 10], [5, 10]]  # none at step 0


def test_data_scaling_has_a_logarithmic_axis_with_the_sizes(runs):
    ax = plots.plot_data_scaling(runs)
    assert ax.get_xscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["100", "1,000", "10,000"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.055, 0.1, 0.55])
    assert "number" in ax.get_xlabel() and ax.get_ylabel() == "test accuracy (%)"


def test_lines_are_named_where_they_end_and_no_name_hides_another(runs):
    ax = plots.plot_data_scaling(runs)  # both families end at the same height
    names = {text.get_text(): (text.xy[1], text.get_color()) for text in ax.texts}
    assert list(names) == ["ViT-Ti/8", "ResNet"]
    below, above = names["ViT-Ti/8"][0], names["ResNet"][0]
    low, high = ax.get_ylim()
    assert above - below == pytest.approx((high - low) / 16)
    assert (above + below) / 2 == pytest.approx(0.55)  # each is as far from its line as the other
    assert names["ViT-Ti/8"][1] == COLOURS["blue"]


def test_the_difference_is_in_percentage_points_with_its_interval():
    table = pd.DataFrame(
        {
            "n_train": [100, 100, 1000, 1000],
            "seed": [0, 1] * 2,
            "difference": [-0.2, -0.1, 0.0, 0.1],
            "low": [-0.3, -0.3, -0.1, -0.1],
            "high": [0.0, 0.0, 0.2, 0.2],
        }
    )
    ax = plots.plot_family_difference(table)
    (container,) = ax.containers
    line, _, (bars,) = container.lines
    np.testing.assert_allclose(line.get_ydata().astype(float), [-15, 5])
    segments = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(segments, [[-30, 0], [-10, 20]])
    assert ax.get_ylabel() == "ViT − ResNet (percentage points)"
    assert "equal" in [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("name", ["plot_training_curves", "plot_data_scaling"])
def test_a_figure_draws_into_the_axes_it_is_given(name, curves, runs):
    _, axes = plt.subplots(1, 2)
    data = curves if name == "plot_training_curves" else runs
    assert getattr(plots, name)(data, axes[1]) is axes[1]
    assert not axes[0].lines


def test_two_sizes_of_a_family_can_be_told_apart():
    runs = pd.DataFrame(
        {"model": ["Lab-Ti/8", "Lab-Mu/8", "BiT-Lab-Ti/8"], "n_train": 10, "seed": 0, "test_accuracy": 0.5}
    )
    large, small, other = plots.plot_data_scaling(runs).lines
    assert large.get_color() == small.get_color() != other.get_color()
    assert [line.get_linestyle() for line in (large, small, other)] == ["-", "--", "-"]
    assert small.get_markerfacecolor() == "white" != large.get_markerfacecolor()


def test_compute_frontiers_are_drawn_for_the_families_that_have_runs():
    rows = {"model": ["Lab-Ti/8"] * 2 + ["Lab-Mu/8"] * 2, "seed": [0, 1, 0, 1], "steps": 60}
    rows |= {"flops": [1e10, 1e10, 1e9, 1e9], "few_shot": [0.3, 0.5, 0.1, 0.2]}
    level = (lambda flops: 0.4), (1e9, 1e11)
    ax = plots.plot_compute_scaling(pd.DataFrame(rows), {"ViT": [level], "hybrid": []})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ViT-Mu/8", "ViT-Ti/8"]
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_ydata(), 0.4)
    small, large = (drawn for drawn in ax.collections if drawn.get_label() in ("ViT-Mu/8", "ViT-Ti/8"))
    np.testing.assert_allclose(small.get_offsets()[0], [1e9, 0.15])
    np.testing.assert_allclose(large.get_offsets()[0], [1e10, 0.4])
    assert to_rgb(small.get_facecolor()[0]) == (1, 1, 1) != to_rgb(large.get_facecolor()[0])
    assert to_rgb(small.get_edgecolor()[0]) == to_rgb(large.get_facecolor()[0]) == to_rgb(COLOURS["blue"])


@pytest.mark.parametrize(
    "plot, column, values",
    [(plots.plot_speeds, "images_per_second", (4_100, 290)), (plots.plot_largest_batches, "largest_batch", (330, 29))],
)
def test_axes_of_speed_and_memory_can_be_read_off(plot, column, values):
    ax = plot(pd.DataFrame({"model": "Lab-Ti/8", "image_size": [32, 128], column: values}))
    ax.figure.draw_without_rendering()
    low, high = ax.get_ylim()
    shown = [label.get_text() for label in ax.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert shown == [f"{tick:,}" for tick in (20, 50, 100, 200, 500, 1_000, 2_000, 5_000) if low <= tick <= high]
    assert len(shown) >= 3


def test_every_size_has_a_tick_and_none_is_written_over_another():
    ax = Figure().subplots()
    size_axis(ax, [100, 400, 500, 1_300, 49_000])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["100", "400", "", "1,300", "49,000"]
    assert list(ax.get_xticks()) == [100, 400, 500, 1_300, 49_000]
    alone = Figure().subplots()
    size_axis(alone, [300])
    assert [label.get_text() for label in alone.get_xticklabels()] == ["300"]
