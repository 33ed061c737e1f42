"""Accuracy against data, compute, time, learning rate and design: mean over seeds, 95 % interval from five seeds on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.special
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator
from scipy.optimize import isotonic_regression

from vitlab.plots.style import (
    COLOURS,
    FAMILIES,
    MARKERS,
    MUTED,
    accuracy_axis,
    family,
    labels,
    legend_above,
    paper_line,
)

FEWEST = 5  # seeds that have an interval; fewer are drawn as dots
RING = {"marker": "o", "markersize": 12, "fillstyle": "none", "linestyle": "none"}  # around what was chosen
# A frontier: accuracy (0…1) for a compute in FLOPs, and the range of computes it was fitted on.
Frontier = tuple[Callable[[float], float], tuple[float, float]]


def t_interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float]:
    """Return the 95 % Student's t interval of the mean; NaN for fewer than five values."""
    if len(values) < FEWEST:
        return math.nan, math.nan
    half = scipy.special.stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def plot_curves(
    data: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str,
    y: str,
    hue: str = "model",
    looks: Mapping | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    **options,
) -> Axes:
    """Draw the mean of `y` over the rows at each `x`, a line for each `hue`, in the order of the table.

    From five rows (seeds) on, a band is the 95 % t interval of the mean, cut at `bounds`; of fewer each row is a dot.

    Args:
        looks: of each value of `hue`: its colour and marker, and a dash pattern where the line is not solid. Models
            have their family's and a legend's name; others have the palette's.
        options: of `seaborn.lineplot`.
    """
    ax = ax or plt.gca()
    groups = list(dict.fromkeys(data[hue]))
    if looks is None and hue == "model":
        looks, named = {}, labels(groups)
        for group in groups:
            before = sum(family(other) == family(group) for other in looks)
            looks[group] = (*FAMILIES[family(group)], ("", (4, 2), (1, 1.5))[before % 3])
    else:
        named = {group: str(group) for group in groups}
        looks = looks or dict(zip(groups, own_looks(len(groups)), strict=True))
    before = len(ax.lines)
    options = {"errorbar": lambda values: np.clip(t_interval(values), *bounds), "markersize": 5, **options}
    sns.lineplot(
        data, x=x, y=y, hue=hue, hue_order=groups, style=hue, style_order=groups, ax=ax, legend=False,
        palette={group: looks[group][0] for group in groups}, markers={group: looks[group][1] for group in groups},
        dashes={group: looks[group][2] if len(looks[group]) > 2 else "" for group in groups},
        err_kws={"alpha": 0.18, "linewidth": 0}, **options,
    )  # fmt: skip
    for group, line in zip(groups, ax.lines[before:], strict=True):
        line.set_label(named[group])
    count = data.groupby([hue, x])[y].transform("count")
    few = data[(count > 1) & (count < FEWEST)]
    if options["errorbar"] is not None and len(few):
        ax.scatter(few[x], few[y], s=9, c=[looks[group][0] for group in few[hue]], alpha=0.6, zorder=3, linewidth=0)
    return ax


def own_looks(count: int) -> list[tuple[str, str]]:
    """Return a colour and a marker for each of `count` things that are no family of models."""
    colours = list(COLOURS.values())
    return [(colours[i % len(colours)], MARKERS[i % len(MARKERS)]) for i in range(count)]


def plot_points(
    ax: Axes, x: Sequence[float] | pd.Series, rows: pd.DataFrame, look: Sequence[str], label: str, **options
) -> None:
    """Draw means with their intervals: columns mean, low, high; without where they are of fewer than five seeds (n)."""
    of_few = rows["n"] < FEWEST if "n" in rows else pd.Series(False, rows.index)
    errors = [(rows["mean"] - rows["low"]).mask(of_few), (rows["high"] - rows["mean"]).mask(of_few)]
    has = bool(errors[0].notna().any())
    options = {"linestyle": "none", "markersize": 6, "capsize": 4 if has else 0} | options
    ax.errorbar(x, rows["mean"], errors if has else None, color=look[0], marker=look[1], label=label, **options)


def log_ticks(ax: Axes, values: Sequence[float] | pd.Series, words: Sequence[str] | None = None) -> None:
    """Make the x axis logarithmic, with a tick for each value that was measured."""
    ticks = sorted(set(values))
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(ticks, words or [f"{value:g}" for value in ticks])


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Make the x axis that of training images; a number that would touch the one before it is not written."""
    sizes = sorted(set(sizes))
    words, written = [], 0.0
    for size in sizes:
        fits = not written or math.log(size / written) > 0.05 * math.log(sizes[-1] / sizes[0])
        written = size if fits else written
        words.append(f"{size:,}" if fits else "")
    log_ticks(ax, sizes, words)
    ax.set_xlabel("training images (number, log scale)")


def name_ends(ax: Axes) -> None:
    """Write each line's label where it ends, to the right of the axes, none over another.

    A line that ends before the others is named there. Called last, when the axes have their limits.
    """
    lines = [line for line in ax.lines if not line.get_label().startswith("_")]
    reach = max(line.get_xdata()[-1] for line in lines)
    for line in lines:
        if line.get_xdata()[-1] < 0.8 * reach:
            ax.annotate(line.get_label(), line.get_xydata()[-1], (8, 0), textcoords="offset points", va="center",
                        color=line.get_color(), fontsize=9)  # fmt: skip
    lines = [line for line in lines if line.get_xdata()[-1] >= 0.8 * reach]
    lines.sort(key=lambda line: line.get_ydata()[-1])
    low, high = ax.get_ylim()
    stacked = (high - low) / 16 * np.arange(len(lines))
    # Labels that touch share the mean of their distances: the least squares under the order.
    heights = isotonic_regression(np.array([line.get_ydata()[-1] for line in lines]) - stacked).x + stacked
    for line, height in zip(lines, heights.clip(low + stacked, high - stacked[::-1]), strict=True):
        ax.annotate(line.get_label(), (1.01, height), xycoords=ax.get_yaxis_transform(), color=line.get_color(),
                    va="center", fontsize=9)  # fmt: skip


def plot_training_curves(table: pd.DataFrame, ax: Axes | None = None, x: str = "samples") -> Axes:
    """Draw accuracy while training, each line named at its right end (Table 3).

    `table` has a row per evaluation: model, seed, step, test_accuracy (0…1), and samples or seconds as `x` says.
    """
    words = {"samples": "training images seen (thousands)", "seconds": "training time (s)"}
    if x not in words:
        raise ValueError(f"x={x!r}: expected one of {', '.join(words)}")
    mean = table.groupby(["model", "step"])[x].transform("mean")
    ax = plot_curves(table.assign(**{x: mean / (1000 if x == "samples" else 1)}), ax, x=x, y="test_accuracy",
                     bounds=(0, 1))  # fmt: skip
    ax.set(xlabel=words[x], xlim=(0, None))
    accuracy_axis(ax)
    name_ends(ax)
    return ax


def plot_accuracy_by_hours(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw accuracy against hours of one core: a line for each arm and seed, named by its arm and last accuracy.

    `table` has a row per evaluation: arm, seed, core_hours, test_accuracy (0…1).
    """
    ax, arms = ax or plt.gca(), list(dict.fromkeys(table["arm"]))
    for (arm, _), rows in table.groupby(["arm", "seed"], sort=False):
        colour, marker = own_looks(len(arms))[arms.index(arm)]
        name = f"{arm}: {100 * rows['test_accuracy'].iloc[-1]:.1f} %"
        ax.plot(rows["core_hours"], rows["test_accuracy"], marker=marker, markersize=4, color=colour, label=name)
    ax.set(xlabel="hours of one core, pre-training included", xlim=(0, None))
    accuracy_axis(ax)
    name_ends(ax)
    return ax


def plot_schedules(schedules: Mapping[str, Callable[[int], float]], n_steps: int, ax: Axes | None = None) -> Axes:
    """Draw the learning rate at every step 0 … n_steps−1, a line for each schedule by name."""
    ax = ax or plt.gca()
    for (name, rate), line in zip(schedules.items(), ("-", "--", ":", "-."), strict=False):
        ax.plot(range(n_steps), [rate(step) for step in range(n_steps)], line, label=name)
    ax.set(xlabel="training step", ylabel="learning rate", xlim=(0, n_steps), ylim=(0, None))
    ax.legend()
    return ax


def plot_histories(table: pd.DataFrame, ax: Axes | None = None, y: str = "val_accuracy") -> Axes:
    """Draw one run per training-set size, pale to dark from few to many images; its best evaluation is marked.

    `table` has a row per evaluation of a single model and seed: n_train, step, and `y`: val_accuracy (0…1) or
    train_loss (nats).
    """
    ax, sizes = ax or plt.gca(), sorted(table["n_train"].unique())
    for size, shade in zip(sizes, np.linspace(0.25, 0.95, len(sizes)), strict=True):
        rows = table[table["n_train"] == size].dropna(subset=[y])
        best = [rows[y].to_numpy().argmax()] if y == "val_accuracy" else []
        ax.plot(rows["step"], rows[y], color=plt.get_cmap("viridis_r")(shade), label=f"{size:,}", marker="o",
                markevery=best, markersize=7)  # fmt: skip
    _learning_axes(ax, y)
    ax.legend(title="training images", fontsize=9, title_fontsize=9)
    return ax


def plot_learning(table: pd.DataFrame, ax: Axes | None = None, y: str = "val_accuracy") -> Axes:
    """Draw runs on one training set, by model: `table` has a row per evaluation, with model, seed, step and `y`.

    `y` is val_accuracy (0…1) or train_loss (nats).
    """
    ax = plot_curves(table.dropna(subset=[y]), ax, x="step", y=y, bounds=(0, math.inf))
    _learning_axes(ax, y)
    ax.set_ylim(0, None)
    ax.legend(fontsize=9)
    return ax


def _learning_axes(ax: Axes, y: str) -> None:
    ax.set(xlabel="training step", xlim=(0, None))
    if y == "val_accuracy":
        accuracy_axis(ax, "validation accuracy (%)")
    else:
        ax.set(ylabel="training loss (nats)", ylim=(0, None))


def plot_data_scaling(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw test accuracy against the number of training images, each line named at its right end (Fig. 3, 4).

    `table` has a row per run: model, n_train, seed, test_accuracy (0…1).
    """
    ax = plot_curves(table, ax, x="n_train", y="test_accuracy", bounds=(0, 1))
    size_axis(ax, table["n_train"].tolist())
    accuracy_axis(ax)
    name_ends(ax)
    return ax


def plot_who_wins(table: pd.DataFrame, ax: Axes | None = None, by: str = "world") -> Axes:
    """Draw ViT − ResNet in percentage points against the number of images, a named line for each value of `by`.

    `table` has a row per n_train and seed: difference (0…1), and the column `by`; without it there is one line.
    """
    ax, alone = ax or plt.gca(), by not in table
    paper_line(ax, 0)
    rows = table.assign(**{by: "ViT − ResNet"} if alone else {}, points=100 * table["difference"])
    looks = {"ViT − ResNet": (COLOURS["green"], "D")} if alone else None
    plot_curves(rows, ax, x="n_train", y="points", hue=by, looks=looks)
    size_axis(ax, table["n_train"].tolist())
    ax.set_ylabel("ViT − ResNet (percentage points)")
    if not alone:
        name_ends(ax)
    return ax


def plot_compute_scaling(
    table: pd.DataFrame, frontiers: Mapping[str, Sequence[Frontier]], ax: Axes | None = None, y: str = "few_shot"
) -> Axes:
    """Draw accuracy against training compute: runs small, means of the seeds large, a band for each frontier (Fig. 5).

    `table` has a row per run: model, seed, steps, flops, and `y` (0…1). `frontiers` holds, for every family as
    `family` names it, one frontier per seed: their mean is the line, the band goes from the lowest to the highest.
    A family without runs is left out. Of a family's models the largest has filled marks, the others hollow ones.
    """
    ax, named = ax or plt.gca(), labels(table["model"])
    for name, fits in frontiers.items():
        colour, marker = FAMILIES[name]
        rows = table[table["model"].map(family) == name]
        ax.scatter(rows["flops"], rows[y], s=8, color=colour, alpha=0.6, zorder=3)
        models = rows.groupby("model")["flops"].max().sort_values().index
        for model in models:
            mean = rows[rows["model"] == model].groupby("steps")[["flops", y]].mean()
            face = colour if model == models[-1] else "white"
            ax.scatter(mean["flops"], mean[y], s=45, label=named[model], marker=marker, facecolor=face,
                       edgecolor=colour, linewidth=1.5, zorder=4)  # fmt: skip
        if fits:
            x = np.geomspace(min(low for _, (low, _) in fits), max(high for _, (_, high) in fits), 40)
            drawn = np.array([[at(flops) for flops in x] for at, _ in fits])
            ax.plot(x, drawn.mean(axis=0), color=colour, linewidth=1.5)
            ax.fill_between(x, drawn.min(axis=0), drawn.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    ax.set_xscale("log")
    wide = table["flops"].max() > 50 * table["flops"].min()  # so many decades that their labels alone have room
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(3, 3)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("training compute (FLOPs, log scale)")
    accuracy_axis(ax, "accuracy (%)")
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_speeds(table: pd.DataFrame, ax: Axes | None = None, y: str = "images_per_second") -> Axes:
    """Draw images per second against input size: median of the rounds, a band from slowest to fastest (Fig. 12).

    `table` has a row per round: model, image_size (pixels), and `y`: images_per_second or largest_batch.
    """
    ax = ax or plt.gca()
    words = {"images_per_second": "inference (images per second, log scale)"}
    ax.set_ylabel(words.get(y, "largest batch (images, log scale)"))
    if table.empty:
        ax.text(0.5, 0.5, "not measured on this system", ha="center", color=MUTED, transform=ax.transAxes)
        return ax
    plot_curves(table, ax, x="image_size", y=y, estimator="median", errorbar=("pi", 100))
    ax.collections[-1].set_visible(y == "images_per_second" or table.groupby(["model", "image_size"]).size().max() > 1)
    log_ticks(ax, table["image_size"])
    _log_values(ax)
    ax.set(xlabel="input size (pixels a side, log scale)", ylabel=words.get(y, "largest batch (images, log scale)"))
    ax.legend()
    return ax


def _log_values(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())


def plot_resolutions(runs: pd.DataFrame, means: pd.DataFrame, ax: Axes | None = None, patch_size: int = 8) -> Axes:
    """Draw accuracy by side of the image: a thin line for every seed, the mean with its interval next to it (§3.2).

    `runs` has a row per run: model, seed, image_size (pixels), test_accuracy (0…1); `means` one per model and
    image_size: mean, low, high. Below each side stands the number of patches of `patch_size` pixels.
    """
    ax, named = ax or plt.gca(), labels(means["model"])
    for (_, model), rows in runs.sort_values("image_size").groupby(["seed", "model"]):
        colour, marker = FAMILIES[family(model)]
        ax.plot(rows["image_size"], rows["test_accuracy"], color=colour, marker=marker, markersize=4, linewidth=0.8,
                alpha=0.6)  # fmt: skip
    for i, (model, rows) in enumerate(means.groupby("model", sort=False), 1):
        right = rows["image_size"] + 0.025 * i * runs["image_size"].max()
        plot_points(ax, right, rows, FAMILIES[family(model)], named[model], markersize=7)
    sides = sorted(means["image_size"].unique())
    ax.set_xticks(sides, [f"{side} px\n{(side // patch_size) ** 2} patches" for side in sides])
    ax.set_xlabel("image side in fine-tuning")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best")
    return ax


def plot_few_shots(means: pd.DataFrame, ax: Axes | None = None, chance: float | None = None) -> Axes:
    """Draw few-shot accuracy by images per class, with intervals; untrained weights dashed, chance in grey (§4.1).

    `means` has a row per model, weights ("pre-trained" or another word) and shots: mean, low, high (0…1).
    """
    ax, named = ax or plt.gca(), labels(means["model"])
    for i, ((model, weights), rows) in enumerate(means.groupby(["model", "weights"], sort=False)):
        line = {"linestyle": "-"} if weights == "pre-trained" else {"linestyle": "--", "fillstyle": "none"}
        x = rows["shots"] * 1.04 ** (i - 1.5)  # next to each other, so that no interval hides another
        plot_points(ax, x, rows, FAMILIES[family(model)], f"{named[model]}, {weights}", **line)
    if chance is not None:
        ax.axhline(chance, color=MUTED, linewidth=1.0, zorder=1)
    log_ticks(ax, means["shots"])
    ax.set_xlabel("images per class (number, log scale)")
    accuracy_axis(ax, "few-shot accuracy (%)", cut=True)
    ax.legend(loc="upper left", fontsize=9)
    return ax


def plot_rates(trials: pd.DataFrame, ax: Axes | None = None, published: tuple[float, float] | None = None) -> Axes:
    """Draw held-out accuracy by learning rate, a line per model and arm (mean of the seeds); the best is ringed.

    `trials` has a row per trial: model, arm, learning_rate, held_out_accuracy (0…1). `published` (lowest, highest) is
    shaded: the learning rates of Table 4.
    """
    ax, named = ax or plt.gca(), labels(trials["model"])
    if published is not None:
        ax.axvspan(*published, color=MUTED, alpha=0.2, linewidth=0, label="Table 4's learning rates")
    dashes, looks = {"scratch": (4, 2), "1.5x": (5, 1.5, 1, 1.5), "2x": (1, 1.5)}, {}
    for model, arm in zip(trials["model"], trials["arm"], strict=True):
        looks[f"{named[model]}, {arm}"] = (*FAMILIES[family(model)], dashes.get(arm, ""))
    trials = trials.assign(line=trials["model"].map(named) + ", " + trials["arm"])
    plot_curves(trials, ax, x="learning_rate", y="held_out_accuracy", hue="line", looks=looks, errorbar=None)
    for line, rows in trials.groupby("line"):
        mean = rows.groupby("learning_rate")["held_out_accuracy"].mean()
        ax.plot(mean.idxmax(), mean.max(), color=looks[line][0], **RING)
    ax.set_xscale("log")
    ax.set_xlabel("learning rate for a batch of 512 (log scale)")
    accuracy_axis(ax, "held-out accuracy (%)")
    ax.legend(fontsize=8, handlelength=4)
    return ax


def plot_epochs(rows: pd.DataFrame, ax: Axes | None = None, y: str = "test_accuracy") -> Axes:
    """Draw accuracy by epoch of fine-tuning; from scratch dashed.

    `rows` has a row per evaluation: model, arm ("scratch" or another word), seed, epoch, and `y`, test_accuracy or
    share (of the final one, both 0…1).
    """
    named, scratch = labels(rows["model"]), rows["arm"] == "scratch"
    rows = rows.assign(line=rows["model"].map(named) + scratch.map({True: ", from scratch", False: ""}))
    looks = {}
    for line, model, dashed in zip(rows["line"], rows["model"], scratch, strict=True):
        looks[line] = (*FAMILIES[family(model)], (4, 2) if dashed else "")
    ax = plot_curves(rows, ax, x="epoch", y=y, hue="line", looks=looks, bounds=(0, 1 if y == "test_accuracy" else 9))
    ax.set_xlabel("epochs of fine-tuning")
    ax.set_xticks(np.unique(rows["epoch"]))
    accuracy_axis(ax, "test accuracy (%)" if y == "test_accuracy" else "share of the final accuracy (%)")
    ax.legend(loc="lower right", fontsize=9)
    return ax


def plot_cases(
    means: pd.DataFrame, ax: Axes | None = None, x: str = "case", hue: str = "optimizer", label: str = "accuracy (%)"
) -> Axes:
    """Draw means with intervals side by side for each case: by pre-training (§4.1), by optimiser (Table 7).

    `means` has a row for each `x` and `hue`, in the order in which they are drawn: mean, low, high (0…1; low and high
    NaN where there is no interval). Of models the colours are their families'.
    """
    ax, names = ax or plt.gca(), list(dict.fromkeys(means[hue]))
    places = {case: place for place, case in enumerate(dict.fromkeys(means[x]))}
    named = labels(names) if hue == "model" else dict(zip(names, names, strict=True))
    for i, (name, look) in enumerate(zip(names, own_looks(len(names)), strict=True)):
        rows = means[means[hue] == name]
        look = FAMILIES[family(name)] if hue == "model" else look
        plot_points(ax, rows[x].map(places) + 0.16 * (i - (len(names) - 1) / 2), rows, look, named[name], markersize=7)
    ax.set_xticks(range(len(places)), list(places))
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.grid(axis="x", visible=False)
    accuracy_axis(ax, label, cut=True)
    ax.legend(loc="best")
    return ax


def plot_head_rates(means: pd.DataFrame, ax: Axes | None = None, at: float | None = None) -> Axes:
    """Draw accuracy by learning rate, a line with intervals for each head; the chosen rate is ringed (Fig. 9).

    `means` has a row for each arm and learning_rate: mean, low, high (0…1), and chosen, whether it is the best on
    validation images. `at`: a learning rate to mark.
    """
    ax, arms = ax or plt.gca(), list(dict.fromkeys(means["arm"]))
    for i, (arm, look) in enumerate(zip(arms, own_looks(len(arms)), strict=True)):
        rows = means[means["arm"] == arm].sort_values("learning_rate")
        x = rows["learning_rate"] * 1.03 ** (i - (len(arms) - 1) / 2)  # so that no interval hides another
        plot_points(ax, x, rows, look, arm, linestyle="-")
        best = rows["chosen"].to_numpy(dtype=bool)
        ax.plot(x[best], rows["mean"][best], color=look[0], **RING)
    ax.plot([], [], color=MUTED, label="chosen on validation images", **RING)
    if at is not None:
        paper_line(ax, at, vertical=True)
    log_ticks(ax, means["learning_rate"])
    ax.set_xlabel("learning rate (log scale)")
    accuracy_axis(ax, cut=True)
    ax.legend(loc="best")
    return ax


def plot_heads_by_length(means: pd.DataFrame, panels: np.ndarray, at: float | None = None) -> None:
    """Draw `plot_head_rates` in a panel for each length of training (steps), the shortest first."""
    for ax, (steps, rows) in zip(panels, means.groupby("steps"), strict=True):
        plot_head_rates(rows, ax, at).set_title(f"{steps:,} steps")
    for ax in panels[1:]:
        ax.set_ylabel("")


def plot_shapes(means: pd.DataFrame, ax: Axes | None = None, base: str | None = "base", by: str = "dimension") -> Axes:
    """Draw accuracy against the FLOPs of a forward pass (Fig. 8, 13), a line from `base` along each dimension.

    `means` has a row for each shape: the column `by`, flops (for one image), mean, low, high (0…1). Without a `base`
    there are no lines.
    """
    ax, start = ax or plt.gca(), means[means[by] == base]
    names = [name for name in dict.fromkeys(means[by]) if name != base]
    for name, look in zip(names, own_looks(len(names)), strict=True):
        own = means[means[by] == name].sort_values("flops")
        if base is not None:
            line = pd.concat([start, own])
            ax.plot(line["flops"], line["mean"], color=look[0], linewidth=1.5)
        plot_points(ax, own["flops"], own, look, str(name))
    if len(start):
        plot_points(ax, start["flops"], start, (COLOURS["black"], "*"), str(base), markersize=9)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("FLOPs of a forward pass (millions, log scale)")
    accuracy_axis(ax, cut=True)
    legend_above(ax)
    return ax


def plot_forward_times(times: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw milliseconds of a forward pass by the tokens along a side (Fig. 13 right).

    `times` has columns arm, tokens (along a side) and milliseconds.
    """
    ax = plot_curves(times, ax, x="tokens", y="milliseconds", hue="arm", errorbar=None)
    sides = sorted(times["tokens"].unique().tolist())
    log_ticks(ax, sides, [f"{side} × {side}" for side in sides])
    _log_values(ax)
    ax.set(xlabel="grid of patches (log scale)", ylabel="forward pass (ms, log scale)")
    ax.legend(loc="best", fontsize=9)
    return ax


def plot_comparisons(data: pd.DataFrame, xlabel: str, ax: Axes | None = None, colour: str = "blue") -> Axes:
    """Draw differences from zero in percentage points, one under the other, each a dot with its interval.

    `data` is indexed by what is compared, from the top down: mean, low, high (NaN where there is no interval).
    `colour` "grey" is the paper's.
    """
    ax, drawn, places = ax or plt.gca(), COLOURS.get(colour, MUTED), np.arange(len(data))
    paper_line(ax, 0, vertical=True)
    errors = np.abs(data[["low", "high"]].to_numpy(dtype=float).T - data["mean"].to_numpy())
    has = np.isfinite(errors).all(axis=0)
    ax.errorbar(data["mean"][has], places[has], xerr=errors[:, has], color=drawn, linestyle="none", capsize=4)
    ax.plot(data["mean"], places, linestyle="none", marker="D" if drawn == MUTED else "o", color=drawn)
    ax.set_yticks(places, list(data.index))
    ax.set(ylim=(max(len(data), 1) - 0.5, -0.5), xlabel=xlabel)
    ax.grid(axis="y", visible=False)
    return ax


def plot_arms(finals: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw accuracy after fine-tuning: a dot for each seed, a bar at the mean, arms under each other (App. B.1.2).

    `finals` has columns arm, seed and test_accuracy (0…1).
    """
    ax, arms = ax or plt.gca(), list(dict.fromkeys(finals["arm"]))
    for place, arm in enumerate(arms):
        values = 100 * finals.loc[finals["arm"] == arm, "test_accuracy"]
        colour = COLOURS["blue" if arm.startswith("masked") else "vermilion" if arm != "scratch" else "black"]
        ax.scatter(values, np.full(len(values), place), s=20, color=colour, alpha=0.5)
        ax.plot([values.mean()] * 2, [place - 0.28, place + 0.28], color=colour, linewidth=2.5)
    ax.set_yticks(range(len(arms)), arms)
    ax.set(xlabel="test accuracy after fine-tuning (%)", ylim=(len(arms) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    return ax
