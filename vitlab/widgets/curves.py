"""Number of training images → curves of runs that are stored already (§4.3, Fig. 3, 4)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from vitlab import plots
from vitlab.widgets.knobs import Knob, Knobs, knobs


def data_sizes(runs: pd.DataFrame, histories: pd.DataFrame) -> Knobs:
    """Knobs: number of training images, and what is drawn over the steps → all models' curves at that size.

    Args:
        runs: a row per run: model, n_train, seed, test_accuracy and train_accuracy (0…1).
        histories: a row per evaluation of a run: model, n_train, seed, step, val_accuracy (0…1), train_loss (nats).

    Raises:
        ValueError: there is no run.

    >>> run = {"model": "Lab-Ti/8", "n_train": 50, "seed": 0}
    >>> runs = pd.DataFrame([run | {"test_accuracy": 0.4, "train_accuracy": 0.9}])
    >>> histories = pd.DataFrame([run | {"step": step, "val_accuracy": 0.4, "train_loss": 1.0} for step in (1, 2)])
    >>> data_sizes(runs, histories).picture()[1]
    'Learned from 50 images (mean of 1 seed): ViT-Ti/8 gets 40.0% of the test images right and 90.0% of its own: a
    generalization gap of 50.0 points.'
    """
    if runs.empty:
        raise ValueError("no runs given, expected a row for each; run the experiment first")
    shown = {"validation accuracy": "val_accuracy", "training loss": "train_loss"}

    def draw(n_train: int, over_steps: str) -> tuple[Figure, str]:
        figure = Figure(figsize=(9, 3.6))
        left, right = figure.subplots(1, 2)
        plots.plot_data_scaling(runs, left)
        left.axvline(n_train, color=plots.MUTED, linestyle="--", linewidth=1.2, zorder=1)
        plots.plot_learning(histories[histories["n_train"] == n_train], right, y=shown[over_steps])
        right.set_title(f"{n_train:,} training images")
        return figure, _in_words(runs[runs["n_train"] == n_train], n_train)

    sizes = sorted(runs["n_train"].unique().tolist())
    return knobs(
        draw,
        "Curves by number of training images",
        n_train=Knob("training images", sizes, sizes[0]),
        over_steps=Knob("over the steps", list(shown), "validation accuracy"),
    )


def worlds(runs: pd.DataFrame, differences: pd.DataFrame) -> Knobs:
    """Knob: what tells the classes, and how many there are → both families' curves there, and who is ahead.

    Args:
        runs: a row per run: world (in words), model (a ViT and a ResNet), n_train, seed, test_accuracy (0…1).
        differences: ViT − ResNet, a row per world, n_train and seed: difference (0…1).

    Raises:
        ValueError: there is no run.

    >>> run = {"world": "contour, 10 classes", "n_train": 50, "seed": 0}
    >>> both = {"Lab-Ti/8": 0.1, "BiT-Lab-Ti/8": 0.4}
    >>> runs = pd.DataFrame([run | {"model": model, "test_accuracy": value} for model, value in both.items()])
    >>> worlds(runs, pd.DataFrame([run | {"difference": -0.3}])).picture()[1]
    'Contour, 10 classes: ViT minus ResNet is -30.0 points at 50 images.'
    """
    if runs.empty:
        raise ValueError("no runs given, expected a row for each; run the experiment first")

    def draw(world: str) -> tuple[Figure, str]:
        figure = Figure(figsize=(10, 3.8))
        left, right = figure.subplots(1, 2)
        here = differences[differences["world"] == world]
        plots.plot_data_scaling(runs[runs["world"] == world], left)
        plots.plot_who_wins(here, right)
        left.set_title(world)
        means = 100 * here.groupby("n_train")["difference"].mean()
        parts = ", ".join(f"{mean:+.1f} points at {n:,}" for n, mean in means.items())
        return figure, f"{world.capitalize()}: ViT minus ResNet is {parts} images."

    named = list(dict.fromkeys(runs["world"]))
    return knobs(draw, "Who wins when", world=Knob("classes told by", named, named[0]))


def _in_words(runs: pd.DataFrame, n_train: int) -> str:
    n_seeds, named = runs["seed"].nunique(), plots.labels(runs["model"])
    means = runs.groupby("model", sort=False)[["test_accuracy", "train_accuracy"]].mean()
    models = "; ".join(
        f"{named[model]} gets {test:.1%} of the test images right and {train:.1%} of its own: "
        f"a generalization gap of {100 * (train - test):.1f} points"
        for model, test, train in means.itertuples()
    )
    return f"Learned from {n_train:,} images (mean of {n_seeds} seed{'s' * (n_seeds > 1)}): {models}."
