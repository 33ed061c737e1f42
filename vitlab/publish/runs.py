"""For maintainers: the finished runs of studies become the tables that are committed (all sections)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from vitlab import experiments
from vitlab.ledger import published
from vitlab.sweep import runner


def publish(studies: Sequence[str], preset: str, seed: int = 0) -> list[Path]:
    """Write a table of each study's finished runs at a preset; of runs under way, those that are finished.

    Raises:
        ValueError: no study is named, one there is not, one that does not list its runs, or one without a finished run.
    """
    if not studies:
        raise ValueError("name the studies whose runs are published, such as who_wins")
    done = []
    for name in studies:
        module = importlib.import_module(experiments.find(name).__module__)
        if not hasattr(module, "planned_runs"):
            raise ValueError(f"{name} does not list its runs, so there is no table of them")
        planned = module.planned_runs(preset, seed)
        folder = runner.run_folder(name, preset)
        stored = {path.name: path for path in folder.parent.glob("*/*.json")}  # studies may share a folder of runs
        paths = [path for path in runner.paths_of(module.run_one, planned, folder) if path.name in stored]
        where = stored[paths[0].name].parent if paths else folder
        table = runner.stored(module.run_one, planned, where)
        done.append(published.write(name, preset, table, len(paths), len(planned)))
    return done
