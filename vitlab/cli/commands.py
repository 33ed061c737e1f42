"""What each command of the command line does, from its options to its exit status (every section of the paper)."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Nothing here may import at the top what takes long, as torch and pandas do: what was mistyped is said at once.

_MOST = 1e6  # seconds, minutes or GB: what is above means nothing, and overflows clocks and limits


def _settings(options: argparse.Namespace) -> dict[str, str]:
    for setting in options.settings:
        if "=" not in setting or setting.startswith("="):
            raise ValueError(f"--set {setting}: expected KEY=VALUE, as in --set SEED=1")
    return dict(setting.split("=", 1) for setting in options.settings)


def _set_where(options: argparse.Namespace) -> None:
    """Where runs are done, as the variables that the runner reads: the notebooks' kernels inherit them."""
    from vitlab.sweep import scheduler

    _check_jobs(options.jobs)
    if options.jobs is not None:
        os.environ.update(VITLAB_JOBS=str(options.jobs), VITLAB_SCHEDULER="")
    if options.scheduler is not None:
        os.environ["VITLAB_SCHEDULER"] = scheduler.checked_address(options.scheduler) or ""


def _check_writable(*folders: Path) -> None:
    """Raises OSError where one of these folders, all below the figures folder, cannot be written into."""
    from vitlab import paths

    for folder in folders:
        paths.check_writable(folder)


def _check_number(name: str, value: float) -> None:
    if not 0 < value <= _MOST:
        raise ValueError(f"--{name} {value:g}: expected a number above 0, at most {_MOST:,.0f}")


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs {jobs}: expected the number of worker processes, 1 or more")


def _check_lab(command: str) -> None:
    """Raises ModuleNotFoundError, with what to install, where the extra `lab` is missing."""
    wanted = ("papermill", "ipykernel", "matplotlib", "seaborn")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f'{command} needs {", ".join(missing)}, not installed here: pip install "vitlab[lab]"'
        )


def run(options: argparse.Namespace) -> int:
    """Execute notebooks, then write the report."""
    from vitlab import notebooks, paths
    from vitlab.cli import execute, values
    from vitlab.sweep import cluster, presets

    _check_lab("run")
    preset = presets.check_runnable(options.preset)
    _set_where(options)
    settings = _settings(options)
    if any(key.upper() == "PRESET" for key in settings):
        raise ValueError("--set PRESET=…: choose the preset with --preset")
    chosen = [notebooks.find(which) for which in options.notebooks] or notebooks.all_notebooks()
    if not chosen:
        notebooks.find("00")  # raises: there are none here
    wanted = list(dict.fromkeys(chosen))
    elsewhere = bool(os.environ.get("VITLAB_SCHEDULER"))
    chosen_settings = values.checked(notebooks.check_settings(wanted, settings), elsewhere)
    figures = paths.figures_dir() / options.preset
    _check_writable(figures, figures / "runs", *(figures / path.stem for path in wanted))
    with cluster.connected() as there:
        executor = execute.side_by_side if preset.two_at_a_time else None
        if there:
            executor = partial(_on_cluster, there, paths.figures_dir())
        failures = execute.run(wanted, options.preset, chosen_settings, executor)
    report = _write_report(options.preset)
    if failures:
        print(f"vitlab: {len(failures)} of {len(wanted)} notebooks failed: {', '.join(failures)}", file=sys.stderr)
    print(report)
    return 1 if failures else 0


def _on_cluster(there: Any, figures: Path, work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """Notebooks side by side, one on each worker, which does its runs too; into our figures folder."""
    from vitlab.sweep import cluster

    # A kernel that asked for the scheduler would wait for workers that wait for kernels.
    environment = {"VITLAB_FIGURES": str(figures), "VITLAB_JOBS": "1", "VITLAB_SCHEDULER": ""}
    paths = [path for path, *_ in tasks]
    work = partial(_executed_there, work, environment=environment)
    return cluster.completed_in_folder(there, figures, paths, work, tasks)


def _executed_there(work: Callable[..., Any], task: Any, environment: dict[str, str]) -> Any:
    """One notebook on a worker, whose kernel ends where nobody waits for it."""
    from vitlab.sweep import cluster

    return work(task, environment=environment, abandoned=cluster.abandonment())


def report(options: argparse.Namespace) -> int:
    """Write the report on the results that are there."""
    print(_write_report(options.preset))
    return 0


def _write_report(preset: str) -> Path:
    from vitlab import notebooks, paths
    from vitlab.ledger import report
    from vitlab.sweep import presets

    _check_writable(paths.figures_dir() / presets.check(preset).name)
    return report.write(preset, [path.stem for path in notebooks.all_notebooks()])


def train(options: argparse.Namespace) -> int:
    """Train a model by name, or say what it would take."""
    from vitlab import notebooks, paths
    from vitlab.training import session

    if options.save_every < 1:
        raise ValueError(f"--save-every {options.save_every}: expected a number of steps, 1 or more")
    given = {key.lower(): text for key, text in _settings(options).items()}
    values = {key: notebooks.parse(key, text, session.DEFAULTS.get(key)) for key, text in given.items()}
    if options.objective is not None:
        values["objective"] = options.objective
    chosen = session.session(options.model, options.data, options.like, values)
    if options.plan:
        print(session.plan(chosen))
        return 0
    name = f"{options.model}-{Path(options.data).name}".replace("/", "_")
    folder = Path(options.out) if options.out else paths.figures_dir() / "training" / name
    paths.check_writable(folder, "--out FOLDER" if options.out else "--out FOLDER or VITLAB_FIGURES=FOLDER")
    how = {"parallel": options.parallel, "save_every": options.save_every, "restart": options.restart}
    session.run(chosen, folder, **how)
    return 0


def recipes(options: argparse.Namespace) -> int:
    """Print the paper's training settings."""
    from vitlab.evaluation.fewshot import FewShot
    from vitlab.training import paper

    print(paper.tables())
    print(f"\nFew-shot: regularised least squares on frozen features\n{FewShot()}")
    return 0


def exercises(options: argparse.Namespace) -> int:
    """Say which exercises of a reader's notebooks are solved; 1 where one is not, 2 where a file cannot be read."""
    from vitlab.exercises import check

    _check_lab("exercises")
    _check_number("seconds", options.seconds)
    _check_number("memory", options.memory)
    status = 0
    for path in options.files:
        words, one = check.checked(path, options.seconds, int(options.memory * 2**30))
        print(words, file=sys.stderr if one == 2 else sys.stdout, flush=True)
        status = max(status, one)
    return status


def doctor(options: argparse.Namespace) -> int:
    """Say what is installed, found and possible here."""
    from vitlab.cli import doctor

    print(doctor.describe())
    return 0


def copy(options: argparse.Namespace) -> int:
    """Copy the notebooks into a folder, and say what can be done there."""
    from vitlab.cli import copies

    made = copies.copy(options.folder)
    print(f"{len(list(made.glob('*.ipynb')))} notebooks are in {made}, their exercises in {made / 'exercises'}")
    print(f"next:  cd {shlex.quote(str(made.parent))}")
    print("       jupyter lab notebooks/00_start_here.ipynb    or    vitlab run 08")
    return 0


def experiment(options: argparse.Namespace) -> int:
    """Run one experiment without Jupyter, or say what it would take."""
    from vitlab import experiments, paths
    from vitlab.sweep import presets

    presets.check_runnable(options.preset)
    _set_where(options)
    if options.plan:
        from vitlab.cli import plan

        listing, _ = plan.parts_of(options.name)
        settings = _own_settings(experiments.find(options.name), _settings(options), listing)
        print(plan.in_words(plan.planned(options.name, options.preset, options.seed, **settings)))
        return 0
    function = experiments.find(options.name)
    values = _own_settings(function, _settings(options))
    figures = paths.figures_dir() / options.preset
    path = figures / "experiments" / f"{options.name}.csv"
    _check_writable(path.parent, figures / "runs")
    table = function(preset=options.preset, seed=options.seed, jobs=options.jobs, **values)
    with paths.writing(path) as temporary:
        table.to_csv(temporary, index=False)
    print(table.to_string(index=False, max_rows=60, max_colwidth=40))  # a packed position map has thousands of letters
    print(path)
    return 0


def full(options: argparse.Namespace) -> int:
    """Run every experiment in pieces of time; 3 where there is more to do."""
    from vitlab.cli import full

    _check_jobs(options.jobs)
    if options.minutes is not None:
        _check_number("minutes", options.minutes)
    if options.plan:
        print(full.describe(options.parts, options.preset, options.seed))
        return 0
    return full.run(options.parts, options.preset, options.minutes, options.jobs, options.seed)


def _own_settings(function: Any, texts: dict[str, str], listing: Any = None) -> dict[str, Any]:
    """The settings given for an experiment, as the types of its defaults; `listing`: of its runs, for a plan."""
    from vitlab import notebooks

    known, taken, values = _defaults(function), _defaults(listing or function), {}
    for key, text in texts.items():
        name = key.lower()
        if name not in known:
            there = ", ".join(known) or "none"
            raise ValueError(f"--set {key}: {function.__name__} has no such setting. There are: {there}")
        if name not in taken:
            there = ", ".join(taken) or "none"
            raise ValueError(
                f"--set {key}: {function.__name__} has this setting, but --plan does not take it. It takes: {there}"
            )
        values[name] = notebooks.parse(key, text, known[name])
    return values


def _defaults(function: Any) -> dict[str, Any]:
    """The settings of an experiment's own, with their defaults."""
    import inspect

    declared = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    return {name: value for name, value in declared.items() if name not in ("preset", "seed", "jobs", "folder")}
