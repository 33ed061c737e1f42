"""For maintainers: committed runs of older code become today's where both codes compute the same, to the bit (§4).

An edit that cannot change a number, such as a better message, gives every run another key all the same: it covers all
the code that a run imports (see `sweep.identity`). To run all of them anew would take days. Instead, runs are done with
the older code and with today's, one after the other on the same machine: all of the study at smoke, and the quickest
of its committed ones.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from vitlab import experiments, paths
from vitlab.ledger import published
from vitlab.sweep import committed, identity, results

_TIMES = ("seconds",)  # columns that differ between any two executions of a run
# What a process of either code does: the keys of the committed runs by that code, and the rows of those to compare.
_WORKER = """
import importlib, json, sys
from vitlab import settings
from vitlab.sweep import identity, results
task = json.load(sys.stdin)
module = importlib.import_module(task["module"])
keys = [identity.run_key(module.run_one, config) for config in task["committed"]]
rows = []
for config in task["compared"] if keys == task.get("keys", keys) else []:
    with settings.one_thread():
        rows.append(results.checked(module.run_one(dict(config)), config))
json.dump({"keys": keys, "rows": rows}, open(sys.argv[1], "w"))
"""
Result = dict[str, Any]


def carry(studies: Sequence[str], preset: str, revision: str = "") -> list[Path]:
    """Carry the committed runs of each study that are of older code over to today's, where both compute the same.

    `revision`: of git, with the older code; that of the archive's provenance by default.

    Raises:
        ValueError: no study is named, one has no committed run, or has runs of another torch or device; the revision
            has not the code of the runs, or a number has changed. Nothing is written of a study then.
    """
    if not studies:
        raise ValueError("name the studies whose committed runs are carried over, such as head_rates")
    modules = {study: importlib.import_module(experiments.find(study).__module__) for study in studies}
    for study in studies:
        if not committed.draws(study, preset):
            raise ValueError(f"{study} at {preset} has no committed run: python -m vitlab.publish runs {study}")
    draws = [(study, seed) for study in studies for seed in committed.draws(study, preset)]
    return [path for study, seed in draws for path in _carried(study, modules[study], preset, seed, revision)]


def _carried(study: str, module: ModuleType, preset: str, seed: int, revision: str) -> list[Path]:
    path = committed.archive(study, preset, seed)
    there, made_by = committed.read(path), identity.made_by(module.run_one)
    keys = {name: identity.run_key(module.run_one, result["config"], **made_by) for name, result in there.items()}
    old = {name: result for name, result in there.items() if name != f"{keys[name]}.json"}
    if not old:
        return []
    for result in old.values():
        if (result["torch"], result["device"]) != (made_by["torch"], made_by["device"]):
            raise ValueError(
                f"{path} has runs of torch {result['torch']} on {result['device']}, here is {made_by['torch']} on "
                f"{made_by['device']}: only what other code has computed is carried over"
            )
    revision = revision or published.record(study, preset, seed)["provenance"]["git"]["revision"]
    quickest = min(old.values(), key=lambda result: result["wall_s"])
    compared = [*module.planned_runs("smoke"), quickest["config"]]
    task = {"module": module.__name__, "committed": [result["config"] for result in old.values()], "compared": compared}
    old_keys = [Path(name).stem for name in old]
    with _checkout(revision) as older:
        before = _computed(older, task | {"keys": old_keys})
    if before["keys"] != old_keys:
        raise ValueError(f"{revision} has not the code that computed the runs of {path}: name one with --revision")
    for config, *rows in zip(compared, before["rows"], _computed(paths.ROOT, task)["rows"], strict=True):
        _check_equal(config, *rows)
    carried = {name: results.with_checksum({**result, "carried_from": name}) for name, result in old.items()}
    of_today = {f"{keys[name]}.json": result for name, result in (there | carried).items()}
    note = {"runs": len(old), "compared": len(compared), "revision": revision}
    return [published.carry(study, preset, of_today, note, seed)]


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """A revision of the project in a folder of its own, which goes afterwards."""
    git = ["git", "-C", str(paths.ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "older"
        made = subprocess.run([*git, "add", "--detach", place, revision], capture_output=True, text=True)
        if made.returncode:
            raise ValueError(f"no checkout of revision {revision!r}: {made.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", place], check=True, capture_output=True)


def _computed(checkout: Path, task: Result) -> Result:
    """What a process gives that runs `_WORKER` with the code of a checkout."""
    folders = {"VITLAB_FIGURES": paths.figures_dir(), "VITLAB_DATA": paths.data_dir()}
    environment = os.environ | {name: str(folder) for name, folder in folders.items()} | {"PYTHONPATH": str(checkout)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-c", _WORKER, str(out)]
        done = subprocess.run(command, input=json.dumps(task), text=True, cwd=checkout, env=environment)
        if done.returncode:
            raise ValueError(f"a run with the code in {checkout} failed; what it said is above")
        return paths.read_json(out)


def _check_equal(config: Result, before: list[Result], now: list[Result]) -> None:
    """Raise ValueError where a run has not the rows that it has by the older code, naming the first that differs."""
    if len(before) != len(now):
        raise ValueError(f"{config} has {len(now)} rows, and {len(before)} by the older code: run the study again")
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        for column in dict.fromkeys([*old, *new]):
            if column not in _TIMES and old.get(column) != new.get(column):
                raise ValueError(
                    f"{config}: {column} of row {number} is {new.get(column)!r}, and {old.get(column)!r} by the older "
                    "code: the edit has changed a number; run the study again"
                )
