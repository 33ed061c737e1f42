"""A training that is watched: lines, charts, stopping and resuming (in JupyterLab: tests/browser)."""

import random
import re
import signal

import pytest
import torch
from torch import nn

from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.training import checkpoint
from vitlab.training.loop import DivergedError, train
from vitlab.training.recipe import Recipe
from vitlab.widgets.live import chart, watch

pytestmark = pytest.mark.slow

SPLITS = world_splits(World(image_size=8), 48, 20, 4)


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 10))


def feed(stop_at: int | None = None, size: int = 16):
    made = batches(SPLITS.train, size, seed=1)

    def interrupted(step):
        if step == stop_at:
            signal.raise_signal(signal.SIGINT)
        return made(step)

    return interrupted


# ---- lines ----


@pytest.mark.parametrize(
    "eval_every, epoch, wanted",
    [
        (1, 48, [3, 6, 9, 10]),  # three steps an epoch; the last step always speaks
        (1, 40, [3, 5, 8, 10]),  # 48, 80, 128 images: the first rows with 1, 2, 3 whole epochs
        (4, 16, [4, 8, 10]),  # four epochs between two rows: one line for each row
        (0, 48, [10]),
    ],
)
def test_a_script_prints_a_line_per_epoch(capsys, eval_every, epoch, wanted):
    rows = watch(model(), feed(), Recipe(steps=10, batch_size=16, eval_every=eval_every), epoch=epoch)
    printed = capsys.readouterr()
    found = [
        re.match(r"step (\d+) of 10: loss (\d\.\d{3}), [\d,]+ images/s", line) for line in printed.out.splitlines()
    ]
    assert [int(match[1]) for match in found] == wanted
    losses = {row["step"]: f"{row['train_loss']:.3f}" for row in rows}
    assert [match[2] for match in found] == [losses[step] for step in wanted]
    assert re.search(r", trained for \d\d:\d\d\n$", printed.out) and not printed.err
    assert all(" left" in line for line in printed.out.splitlines()[1:-1])  # of two rows there is a speed


# ---- stopping and resuming ----


def test_stopped_and_run_again_is_as_never_stopped(tmp_path, capsys):
    recipe = Recipe(steps=12, batch_size=16, eval_every=3, learning_rate=1e-2)
    whole, parts = model(), model(7)
    wanted = train(whole, feed(), recipe, validation=SPLITS.validation)
    stop = random.randrange(11)
    again = {"validation": SPLITS.validation, "folder": tmp_path}
    rows = watch(model(), feed(stop), recipe, **again)
    message = f"stopped at step {stop + 1} of 12; run the cell again to resume"
    assert capsys.readouterr().out.splitlines()[-1] == message
    assert checkpoint.newest(tmp_path / "checkpoints").rest["step"] == stop + 1
    assert [row["step"] for row in rows] == [step for step in (3, 6, 9) if step <= stop + 1]
    rows = watch(parts, feed(), recipe, **again)
    assert [row["train_loss"] for row in rows] == [row["train_loss"] for row in wanted]
    for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_an_error_of_the_training_is_the_caller_s():
    with pytest.raises(DivergedError, match="by step 1 "):
        watch(model(), lambda step: (torch.full((4, 3, 8, 8), torch.nan), torch.zeros(4).long()), Recipe(steps=2))


# ---- the chart ----


def test_the_chart_shows_the_rows():
    rows = [
        {"step": 5, "train_loss": 2.0, "val_loss": 2.1, "val_accuracy": 0.25},
        {"step": 10, "train_loss": 1.0, "val_loss": 3.5, "val_accuracy": 0.75},
    ]
    loss, accuracy = chart(rows, steps=40).axes
    assert [line.get_xydata().tolist() for line in loss.lines] == [[[5, 2.0], [10, 1.0]], [[5, 2.1], [10, 3.5]]]
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["training", "held out"]
    assert loss.get_ylim()[0] == 0 and 3.5 < loss.get_ylim()[1] < 4
    assert accuracy.get_ylim() == (0, 1)
    assert accuracy.lines[0].get_xydata().tolist() == [[5, 0.25], [10, 0.75]]
    assert accuracy.yaxis.get_major_formatter()(0.75) == "75" and accuracy.get_ylabel() == "held-out accuracy (%)"
    assert all(ax.get_xlim() == (0, 40) and ax.get_xlabel() == "training step" for ax in (loss, accuracy))
    assert len(chart([{name: row[name] for name in ("step", "train_loss")} for row in rows], steps=40).axes) == 1
