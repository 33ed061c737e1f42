"""Convolutions trained on several threads: a strided 1 × 1 one corrupted memory where they did not divide the batch."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MODELS = ("R+Lab-Ti/8", "R+Lab-Ti/16", "R+Lab-Mu/8", "BiT-Lab-Mu/8")
LONG = os.environ.get("ATTACKS") == "long"  # all threads and batches, each in a process of its own


def trained(threads: int, trainings: list[str]) -> list[str]:
    """The trainings that came to their end; fails where the process was killed by a signal."""
    command = [sys.executable, str(Path(__file__).with_name("convolutions.py")), str(threads), *trainings]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    code = process.returncode
    what = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    assert code == 0, f"{threads} threads, {trainings}: {what} after {process.stdout!r}: {process.stderr[-2000:]}"
    return process.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "trainings"),
    [(3, [f"{model}:{batch}" for model in MODELS for batch in (25, 64)]), (6, ["R+Lab-Ti/16:64"])],
)
def test_threads_that_do_not_divide_the_batch(threads, trainings):
    assert trained(threads, trainings) == trainings


if LONG:

    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [25, 60, 64, 100])
    @pytest.mark.parametrize("threads", range(1, 9))
    @pytest.mark.parametrize("model", MODELS)
    def test_every_number_of_threads_and_batch(model, threads, batch):
        assert trained(threads, [f"{model}:{batch}"]) == [f"{model}:{batch}"]
