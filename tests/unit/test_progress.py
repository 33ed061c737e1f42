"""What is said of a training while it runs: on a terminal, in a pipe, and how times are worded."""

import contextlib
import io
import re

import pytest

from vitlab.training.progress import in_lines, in_words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def trained(stream: io.StringIO, pause: float, start: int = 0) -> str:
    """What a training of four steps of 16 images says, evaluated after steps 2 and 4, each batch in two parts."""
    with contextlib.redirect_stdout(stream), in_lines(4, 16, pause) as (watch, report):
        batches = watch(lambda step, first, last: (step, first, last))
        for step in range(start, 4):
            assert [batches(step, 0, 8), batches(step, 8, 16)] == [(step, 0, 8), (step, 8, 16)]
            if step % 2:
                report({"step": step + 1, "train_loss": 2 / step, "val_accuracy": 0.25, "images_per_second": 80})
    return stream.getvalue()


def test_in_a_pipe_each_evaluation_is_a_line():
    lines = trained(io.StringIO(), pause=60).split("\n")
    assert lines == [
        "step 2 of 4: loss 2.000, accuracy 25.0 %, 80 images/s, about 1 second left",
        "step 4 of 4: loss 0.667, accuracy 25.0 %, 80 images/s",
        "",
    ]


def test_between_evaluations_a_line_says_how_far_the_training_is():
    lines = trained(io.StringIO(), pause=0).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"step {step} of 4" for step in (1, 2, 3, 4)]
    for line in (lines[0], lines[2]):  # the loss is known at an evaluation alone
        assert re.fullmatch(r"step \d of 4: [\d,]+ images/s, about 1 second left", line)


def test_on_a_terminal_that_line_is_written_over_and_evaluations_stay(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    text = trained(Terminal(), pause=0)
    first, second, end = text.split("\n")
    assert end == "" and [len(line.split("\r")) for line in (first, second)] == [2, 2]
    for line in (first, second):
        over, stays = line.split("\r")
        assert len(over) < 70 and len(stays) >= len(over) and "loss" not in over and "loss" in stays


def test_what_is_broken_off_on_a_terminal_ends_its_line():
    stream = Terminal()
    with contextlib.redirect_stdout(stream), pytest.raises(KeyboardInterrupt), in_lines(4, 16, 0) as (watch, _):
        for step in range(4):
            watch(lambda step: step)(step)
        raise KeyboardInterrupt
    said = stream.getvalue()
    assert said.endswith("\n") and said.rstrip(" \n").endswith(" left")  # spaces wipe what was longer


def test_a_training_that_goes_on_says_from_where():
    assert trained(io.StringIO(), pause=60, start=2).splitlines()[0] == "going on after step 2 of 4"


@pytest.mark.parametrize("seconds", [0, 1.49, 30, 89.9, 90, 3_600, 86_400, 1e7])
def test_words_for_a_time_are_right_to_a_third(seconds):
    count, unit = in_words(seconds).split()
    size = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}[unit.removesuffix("s")]
    assert unit.endswith("s") == (count != "1")
    assert abs(int(count) * size - seconds) <= max(1, seconds / 3)
