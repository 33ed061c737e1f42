"""A training that is watched: lines, charts, stopping and resuming; in a script, in batch, and in a live kernel."""

import json
import os
import queue
import random
import re
import signal
import time

import pytest
import torch
from torch import nn

from vitlab import paths
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.training import checkpoint
from vitlab.training.divergence import DivergedError
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe
from vitlab.widgets.live import chart, draw_png, watch

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
        (4, None, [4, 8, 10]),
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
    assert re.search(r", trained for \d+ seconds?\n$", printed.out) and not printed.err


def test_the_time_left_is_told_from_the_second_row_on(capsys):
    watch(model(), feed(), Recipe(steps=4, batch_size=16, eval_every=1))
    first, second, third, last = capsys.readouterr().out.splitlines()
    assert "left" not in first + last
    assert second.endswith("about 1 second left") and third.endswith("about 1 second left")


@pytest.mark.parametrize("epoch", [0, -3])
def test_an_epoch_of_no_images_is_refused(epoch):
    with pytest.raises(ValueError, match=f"epoch is {epoch}; expected the number of training images"):
        watch(model(), feed(), Recipe(steps=1), epoch=epoch)


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


def test_without_a_folder_a_stop_says_that_it_cannot_go_on(capsys):
    assert watch(model(), feed(2), Recipe(steps=5, batch_size=16)) == []
    assert capsys.readouterr().out == "stopped at step 3 of 5; without a folder it cannot resume\n"


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
    without = [{name: row[name] for name in ("step", "train_loss")} for row in rows]
    assert len(chart(without, steps=40).axes) == 1


def test_a_drawing_of_many_rows_is_quick():
    rows = [{"step": n, "train_loss": 2.0, "val_loss": 2.1, "val_accuracy": n / 999} for n in range(1, 1_000)]
    times = []
    for _ in range(4):
        start = time.thread_time()  # of this thread alone: other work on the machine does not count
        draw_png(rows, 1_000)
        times.append(time.thread_time() - start)
    assert min(times) < 0.3, times


# ---- in a kernel ----

SET_UP = """
import time
from pathlib import Path
import torch
from torch import nn
from vitlab.data.loader import batches
from vitlab.data.world import World
from vitlab.training.loop import train
from vitlab.data.datasets import world_splits
from vitlab.training.recipe import Recipe
from vitlab.widgets.live import watch

torch.set_num_threads(1)
splits = world_splits(World(image_size=8), 48, 20, 4)
made = batches(splits.train, 16, seed=1)
recipe = Recipe(steps=300, batch_size=16, eval_every=5)
slow = 0.0

def feed(step):
    time.sleep(slow)
    return made(step)

def new():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))

def go_on(folder):
    global trained
    trained = new()
    return watch(trained, feed, recipe, validation=splits.validation, folder=Path(folder), epoch=1_600)
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


class Kernel:
    """A kernel of this Python; cells are sent to it as a front end sends them."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code, live, until=None, seconds=90):
        """What the kernel says while it runs `code`, interrupted after the first message that `until` holds of."""
        sent = self.client.execute(code, allow_stdin=live)
        said, stop = [], time.monotonic() + seconds
        while time.monotonic() < stop:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            said.append((message["msg_type"], message["content"]))
            if until and until(*said[-1]):
                self.manager.interrupt_kernel()
                until = None
            if said[-1] == ("status", {"execution_state": "idle"}):
                return said
        raise TimeoutError(said[-3:])


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    class Ours(KernelManager):
        @property
        def kernel_spec(self):
            return KernelSpec(**get_kernel_dict())

    manager = Ours()
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    environment.pop("MPLBACKEND", None)
    manager.start_kernel(env=environment, cwd=tmp_path_factory.mktemp("kernel"))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    found = Kernel(manager, client)
    assert [kind for kind, _ in found.run(SET_UP, live=False)] == ["status", "execute_input", "status"]
    yield found
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def of(said, kind):
    return [content for each, content in said if each == kind]


def pictures(said):
    shown = of(said, "display_data") + of(said, "update_display_data")
    return [content["data"] for content in shown if "image/png" in content["data"]]


@pytest.mark.slow
def test_in_batch_lines_and_one_picture_are_left(kernel, tmp_path):
    said = kernel.run(f"rows = go_on({str(tmp_path)!r})", live=False)
    assert {kind for kind, _ in said} == {"status", "execute_input", "stream", "display_data"}
    assert {content["name"] for content in of(said, "stream")} == {"stdout"}
    lines = "".join(content["text"] for content in of(said, "stream")).splitlines()
    assert [re.match(r"step (\d+) of 300: ", line)[1] for line in lines] == ["100", "200", "300"]
    assert len(pictures(said)) == len(of(said, "display_data")) == 1
    assert pictures(said)[0]["text/plain"] == f"Loss and accuracy while training. {lines[-1]}"


@pytest.mark.slow
def test_a_live_training_is_shown_stopped_and_resumes(kernel, tmp_path):
    cell = f"rows = go_on({str(tmp_path)!r})"
    start, drawn = time.monotonic(), []

    def enough(kind, content):
        drawn.extend(["image/png"] * ("image/png" in content.get("data", {})))
        return len(drawn) == 3

    kernel.run("slow = 0.1", live=True)  # long enough for three pictures on a busy machine
    said = kernel.run(cell, live=True, until=enough)
    taken = time.monotonic() - start
    assert of(said, "stream") == of(said, "error") == []
    assert 3 <= len(pictures(said)) <= taken / 0.5 + 2
    assert len(of(said, "display_data")) == 2, "the button's place and the chart's"
    assert WIDGET in of(said, "display_data")[0]["data"] and of(said, "comm_close")
    left = of(said, "update_display_data")[-1]["data"]
    step = int(re.fullmatch(r"stopped at step (\d+) of 300; run the cell again to resume", left["text/plain"])[1])
    assert list(left) == ["text/plain"] and 10 <= step < 300
    assert checkpoint.newest(tmp_path / "checkpoints").rest["step"] == step
    first = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])

    said = kernel.run(f"slow = 0.0\n{cell}", live=True)
    assert "step 300 of 300" in of(said, "update_display_data")[-1]["data"]["text/plain"]
    assert first == json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    check = """
whole = new()
wanted = train(whole, feed, recipe, validation=splits.validation)
weights = zip(whole.state_dict().values(), trained.state_dict().values())
print(all(torch.equal(a, b) for a, b in weights), len(rows) == len(wanted))
"""
    said = kernel.run(check, live=True)
    assert "".join(content["text"] for content in of(said, "stream")) == "True True\n"
