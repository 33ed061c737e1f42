"""For maintainers: the finished runs of studies are packed into the archives that are committed (all sections)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from vitlab import experiments
from vitlab.ledger import published
from vitlab.sweep import runner


def publish(studies: Sequence[str], preset: str, seed: int = 0) -> list[Path]:
    """Pack each study's finished runs at a preset; of runs under way, those that are finished.

    Raises:
        ValueError: no study is named, one there is not, one that does not list its runs, or one without a finished run.
    """
    if not studies:
        raise ValueError("name the studies whose runs are published, such as who_wins")
    done = []
    for name in studies:
        module = importlib.import_module(experiments.find(name).__module__)
        if not hasattr(module, "planned_runs"):
            raise ValueError(f"{name} does not list its runs, so there is no archive of them")
        planned = module.planned_runs(preset, seed)
        finished = runner.finished_of_preset(module.run_one, planned, preset)
        done.append(published.write(name, preset, finished, len(planned)))
    return done
