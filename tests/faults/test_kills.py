"""`kill -9` at random moments: a training goes on from its last checkpoint and ends with the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children, and this system cannot fork")
def test_trainings_killed_at_random_points_end_with_the_same_bits(tmp_path):
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), "24", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] >= 20 and len(found["ends"]) >= 6
    assert len(set(found["ends"])) == 1, found
    assert len(set(found["steps"])) > 5, f"the kills did not come at different points: {found['steps']}"
    assert not list(tmp_path.glob("*/checkpoints/.partial*")), "what a killed writer left was not removed"
