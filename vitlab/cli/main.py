"""The command line: run notebooks, build the report, look around, run one experiment without Jupyter."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import vitlab

# Nothing here may import at the top what takes long, as torch and pandas do: `vitlab --help` answers at once.

_EPILOG = """\
presets: smoke (the tests'), quick (a laptop, offline), full (a night on two CPU cores: the evidence),
  gpu (written for one GPU, not run yet), paper (shown, not run from here)
examples:
  vitlab run                          every notebook at the preset quick, then figures/quick/REPORT.md
  vitlab run 02 08 --set SEED=1       two notebooks with another seed
  vitlab experiment data_scaling --preset smoke
  vitlab full --minutes 30            every experiment at the preset full, half an hour of it; again until "complete"
  vitlab experiment data_scaling --preset full --plan    what it would take; starts nothing
  vitlab experiment data_scaling --preset full --scheduler tcp://host:8786    on a cluster: docs/cluster.md
  vitlab exercises check mine.ipynb   which exercises of your copy of a notebook are solved
variables: VITLAB_FIGURES, VITLAB_DATA, VITLAB_JOBS, VITLAB_SCHEDULER, VITLAB_DEVICE (cpu or cuda), VITLAB_TORCH
  (2.11: its results are read); VITLAB_DEBUG=1 shows the traceback of every error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 good, 1 a failure, 2 not begun, 3 more to do, 130 Ctrl-C.

    >>> main(["report", "--preset", "huge"])
    2
    """
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt as interrupt:  # a training's own says how to go on
        print(f"vitlab: {str(interrupt) or 'stopped; finished results are kept'}", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("VITLAB_DEBUG") or not _is_ours(error):
            raise
        print(f"vitlab: {_words(error)}", file=sys.stderr)
        return 2


def _is_ours(error: Exception) -> bool:
    """Whether the error was raised by a `raise` in vitlab: then its words are meant for the user."""
    import linecache

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    path = Path(trace.tb_frame.f_code.co_filename)
    inside = path.is_relative_to(Path(vitlab.__file__).parent)
    return inside and linecache.getline(str(path), trace.tb_lineno).strip().startswith("raise ")


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vitlab",
        description=vitlab.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vitlab {vitlab.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    run = commands.add_parser("run", help="execute notebooks, then write the report")
    run.add_argument("notebooks", nargs="*", metavar="NN", help="numbers or names; none = all")
    _add_common(run)
    run.set_defaults(command=_run)

    report = commands.add_parser("report", help="build REPORT.md from the results that are there")
    report.add_argument("--preset", default="quick", help="default: quick")
    report.set_defaults(command=_report)

    train = commands.add_parser("train", help="train a model by name; under torchrun, on several GPUs or machines")
    train.add_argument("model", metavar="MODEL", help="such as Lab-Ti/8, ViT-B/16, or a timm name")
    train.add_argument("data", metavar="DATA", help="world, digits, cifar10 …, or a folder with train/ and test/")
    train.add_argument(
        "--out", metavar="FOLDER", help="default: figures/training/MODEL-DATA; a killed run goes on there"
    )
    train.add_argument("--like", metavar="DATA", help="Table 3's recipe for MODEL on JFT, IN-21k or ImageNet")
    train.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="as steps=5000")
    train.add_argument(
        "--parallel",
        default="ddp",
        choices=("ddp", "fsdp"),
        help="under torchrun: the whole model in every process, or a shard of it; default: ddp",
    )
    train.add_argument("--save-every", type=int, default=500, metavar="STEPS", help="between checkpoints; default: 500")
    train.add_argument("--restart", action="store_true", help="from step 0: removes an older training from the folder")
    train.add_argument("--plan", action="store_true", help="check everything, say what it would take, and stop")
    train.set_defaults(command=_train)

    recipes = commands.add_parser("recipes", help="the paper's training settings: Tables 3 and 4, few-shot")
    recipes.set_defaults(command=_recipes)

    exercises = commands.add_parser("exercises", help="check: which exercises of your copy of a notebook are solved")
    exercises.add_argument("what", choices=["check"])
    exercises.add_argument("files", nargs="+", metavar="FILE", help="notebooks in which you solved exercises")
    exercises.add_argument("--seconds", type=float, default=60, help="for one exercise; default: 60")
    exercises.add_argument("--memory", type=float, default=4, metavar="GB", help="for one exercise; default: 4")
    exercises.set_defaults(command=_exercises)

    doctor = commands.add_parser("doctor", help="what is installed, found, and possible here")
    doctor.set_defaults(command=_doctor)

    experiment = commands.add_parser("experiment", help="run one experiment without Jupyter")
    experiment.add_argument("name", metavar="NAME")
    experiment.add_argument("--seed", type=int, default=0, help="default: 0")
    experiment.add_argument("--plan", action="store_true", help="list runs, FLOPs, hours and memory, and stop")
    _add_common(experiment)
    experiment.set_defaults(command=_experiment)

    full = commands.add_parser("full", help="run every experiment at the preset full, in as many pieces as it takes")
    full.add_argument("parts", nargs="*", metavar="PART", help="such as data_scaling, speed, lab; none = all")
    full.add_argument("--preset", default="full", help="default: full")
    full.add_argument("--minutes", type=float, help="stop after so long, exit status 3; default: go on to the end")
    full.add_argument("--jobs", type=int, metavar="N", help="worker processes; default: one per processor")
    full.add_argument("--plan", action="store_true", help="list runs, FLOPs, hours and memory, and stop")
    full.set_defaults(command=_full)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="quick", help="smoke, quick, full or gpu; default: quick")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="set a parameter"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=int, metavar="N", help="worker processes; default: one per processor")
    where.add_argument("--scheduler", metavar="ADDRESS", help="of dask, tcp://host:port: its workers do the work")


def _settings(options: argparse.Namespace) -> dict[str, str]:
    for setting in options.settings:
        if "=" not in setting or setting.startswith("="):
            raise ValueError(f"--set {setting}: expected KEY=VALUE, as in --set SEED=1")
    return dict(setting.split("=", 1) for setting in options.settings)


def _set_where(options: argparse.Namespace) -> None:
    """Where runs are done, as the variables that the runner reads: the notebooks' kernels inherit them."""
    from vitlab.sweep import cluster

    if options.jobs is not None:
        if options.jobs < 1:
            raise ValueError(f"--jobs {options.jobs}: expected the number of worker processes, 1 or more")
        os.environ.update(VITLAB_JOBS=str(options.jobs), VITLAB_SCHEDULER="")
    if options.scheduler is not None:
        os.environ["VITLAB_SCHEDULER"] = cluster.checked_address(options.scheduler) or ""


def _check_lab(command: str) -> None:
    """Raises ModuleNotFoundError, with what to install, where the extra `lab` is missing."""
    wanted = ("papermill", "ipykernel", "matplotlib", "seaborn")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f'{command} needs {", ".join(missing)}, not installed here: pip install "vitlab[lab]"'
        )


def _run(options: argparse.Namespace) -> int:
    from vitlab import files, notebooks
    from vitlab.cli import execute, values
    from vitlab.sweep import cluster, presets

    _check_lab("run")
    presets.check_runnable(options.preset)
    _set_where(options)
    settings = _settings(options)
    if any(key.upper() == "PRESET" for key in settings):
        raise ValueError("--set PRESET=…: choose the preset with --preset")
    chosen = [notebooks.find(which) for which in options.notebooks] or notebooks.all_notebooks()
    if not chosen:
        notebooks.find("00")  # raises: there are none here
    paths = list(dict.fromkeys(chosen))
    elsewhere = bool(os.environ.get("VITLAB_SCHEDULER"))
    chosen_settings = values.checked(notebooks.check_settings(paths, settings), elsewhere)
    with cluster.connected() as there:
        executor = partial(_on_cluster, there, files.figures_dir()) if there else None
        failures = execute.run(paths, options.preset, chosen_settings, executor)
    report = _write_report(options.preset)
    if failures:
        print(f"vitlab: {len(failures)} of {len(paths)} notebooks failed: {', '.join(failures)}", file=sys.stderr)
    print(report)
    return 1 if failures else 0


def _on_cluster(there: Any, figures: Path, work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """Notebooks side by side, one on each worker, which does its runs too; into our figures folder."""
    from vitlab.sweep import cluster

    # A kernel that asked for the scheduler would wait for workers that wait for kernels.
    environment = {"VITLAB_FIGURES": str(figures), "VITLAB_JOBS": "1", "VITLAB_SCHEDULER": ""}
    paths = [path for path, *_ in tasks]
    return cluster.completed_in_folder(there, figures, paths, partial(work, environment=environment), tasks)


def _report(options: argparse.Namespace) -> int:
    print(_write_report(options.preset))
    return 0


def _write_report(preset: str) -> Path:
    from vitlab import notebooks
    from vitlab.ledger import report

    return report.write(preset, [path.stem for path in notebooks.all_notebooks()])


def _train(options: argparse.Namespace) -> int:
    from vitlab import files, notebooks
    from vitlab.training import session

    given = {key.lower(): text for key, text in _settings(options).items()}
    values = {key: notebooks.parse(key, text, session.DEFAULTS.get(key)) for key, text in given.items()}
    chosen = session.session(options.model, options.data, options.like, values)
    if options.plan:
        print(session.plan(chosen))
        return 0
    name = f"{options.model}-{Path(options.data).name}".replace("/", "_")
    folder = Path(options.out) if options.out else files.figures_dir() / "training" / name
    how = {"parallel": options.parallel, "save_every": options.save_every, "restart": options.restart}
    session.run(chosen, folder, **how)
    return 0


def _recipes(options: argparse.Namespace) -> int:
    from vitlab.evaluation.fewshot import FewShot
    from vitlab.training import paper

    print(paper.tables())
    print(f"\nFew-shot: regularised least squares on frozen features\n{FewShot()}")
    return 0


def _exercises(options: argparse.Namespace) -> int:
    from vitlab.exercises import check

    _check_lab("exercises")
    for name in ("seconds", "memory"):
        if not 0 < getattr(options, name) < float("inf"):
            raise ValueError(f"--{name} {getattr(options, name):g}: expected a number above 0")
    handed_in = [check.hand_in(path) for path in options.files]
    unsolved = 0
    for each in handed_in:
        outcomes = check.check(each, options.seconds, int(options.memory * 2**30))
        print(check.describe(each, outcomes), flush=True)
        unsolved += sum(outcome.status != "solved" for outcome in outcomes)
    return 1 if unsolved else 0


def _doctor(options: argparse.Namespace) -> int:
    from vitlab.cli import doctor

    print(doctor.describe())
    return 0


def _experiment(options: argparse.Namespace) -> int:
    from vitlab import experiments, files
    from vitlab.sweep import presets

    presets.check_runnable(options.preset)
    _set_where(options)
    if options.plan:
        from vitlab.cli import plan

        listing, _ = plan.parts_of(options.name)
        print(plan.describe(options.name, options.preset, options.seed, **_own_settings(listing, _settings(options))))
        return 0
    function = experiments.find(options.name)
    values = _own_settings(function, _settings(options))
    table = function(preset=options.preset, seed=options.seed, jobs=options.jobs, **values)
    path = files.figures_dir() / options.preset / "experiments" / f"{options.name}.csv"
    with files.writing(path) as temporary:
        table.to_csv(temporary, index=False)
    print(table.to_string(index=False, max_rows=60))
    print(path)
    return 0


def _full(options: argparse.Namespace) -> int:
    from vitlab.cli import full

    if options.plan:
        print(full.describe(full.chosen(options.parts, options.preset), options.preset))
        return 0
    return full.run(options.parts, options.preset, options.minutes, options.jobs)


def _own_settings(function: Any, texts: dict[str, str]) -> dict[str, Any]:
    """The settings given for an experiment, as the types of its defaults; `**settings` takes any other."""
    import inspect

    from vitlab import notebooks

    declared = inspect.signature(function).parameters.values()
    known = {each.name: each.default for each in declared if each.kind is not each.VAR_KEYWORD}
    for common in ("preset", "seed", "jobs", "folder"):
        known.pop(common, None)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in declared)
    values = {}
    for key, text in texts.items():
        name = key.lower()
        if name not in known and not takes_any:
            there = ", ".join(known) or "none"
            raise ValueError(f"--set {key}: {function.__name__} has no such setting. There are: {there}")
        values[name] = notebooks.parse(key, text, known.get(name))
    return values


if __name__ == "__main__":
    sys.exit(main())
