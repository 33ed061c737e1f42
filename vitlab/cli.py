"""The command line: run notebooks and studies, train, report, look around, check exercises."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import vitlab

# Nothing here may import at the top what takes long, as torch and pandas do: `vitlab --help` answers at once.

_EPILOG = """\
presets: smoke (the tests'), quick (a laptop, offline; the default), full (the evidence: hours, resumable)
examples:
  vitlab run                          every notebook at the preset quick, then figures/out/quick/REPORT.md
  vitlab run 02 08 --set SEED=1       two notebooks with another seed
  vitlab analyse vit_small_patch16_224 my-photographs    distances, rollout, positions, filters of any ViT
  vitlab study data_scaling --preset full --plan    what it would take; starts nothing
  vitlab study all --preset full --minutes 30       half an hour of everything; again until nothing is left
  vitlab exercises check mine.ipynb   which exercises of your copy of a notebook are solved
variables: VITLAB_FIGURES, VITLAB_DATA, VITLAB_JOBS, VITLAB_SCHEDULER (of dask: docs/cluster.md), VITLAB_DEVICE
  (cpu or cuda); VITLAB_DEBUG=1 shows the traceback of every error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 good, 1 a failure, 2 not begun, 3 more to do, 130 Ctrl-C.

    141, as of a process that SIGPIPE ends: nobody reads on what it prints (`vitlab recipes | head -1`).
    """
    for stream in (sys.stdout, sys.stderr):  # on a terminal of ASCII, ≤ is a question mark and no error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        try:
            return options.function(options)
        finally:
            sys.stdout.flush()  # what is still kept back fails here, and not as the interpreter ends
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:  # a training's own says how to resume
        print(f"vitlab: {str(interrupt) or 'stopped; finished results are kept'}", file=sys.stderr)
        return 130
    except Exception as error:
        import linecache

        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        file = trace.tb_frame.f_code.co_filename if trace else ""
        raised = linecache.getline(file, trace.tb_lineno if trace else 0).strip().startswith("raise ")
        ours = raised and Path(file).is_relative_to(Path(vitlab.__file__).parent)  # meant for the user
        if os.environ.get("VITLAB_DEBUG") or not ours:
            raise
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        print(f"vitlab: {' '.join(text.split())}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vitlab", description=vitlab.__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"vitlab {vitlab.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(function, words):
        added = commands.add_parser(function.__name__, help=words)
        added.set_defaults(function=function)
        return added

    preset = {"default": "quick", "help": "smoke, quick or full; default: quick"}
    settings = {"action": "append", "default": [], "metavar": "KEY=VALUE", "dest": "settings"}

    added = command(run, "execute notebooks, then write the report")
    added.add_argument("notebooks", nargs="*", metavar="NN", help="numbers or names; none = all that changed")
    added.add_argument("--preset", **preset)
    added.add_argument("--set", **settings, help="set a parameter")
    added.add_argument("--jobs", type=int, metavar="N", help="notebooks at a time; default: 2")

    added = command(train, "train a model by name; under torchrun, on several GPUs or machines")
    added.add_argument("model", metavar="MODEL", help="such as Lab-Ti/8, ViT-B/16, or a timm name")
    words = "world or world-300, photographs, digits, cifar10, imagenette …, or a folder with train/ and test/"
    added.add_argument("data", metavar="DATA", help=words)
    words = "default: figures/out/training/MODEL-DATA; a killed run is resumed there"
    added.add_argument("--out", metavar="FOLDER", help=words)
    added.add_argument("--like", metavar="DATA", help="Table 3's recipe for MODEL on JFT, IN-21k or ImageNet")
    added.add_argument("--set", **settings, help="such as steps=5000, or objective=masked: predict hidden patches")
    for name in ("epochs", "steps", "lr", "batch"):
        as_setting = {"dest": "settings", "action": "append", "type": f"{name}={{}}".format}
        added.add_argument(f"--{name}", metavar="N", help=f"as --set {name}=N", **as_setting)
    added.add_argument("--save-every", type=int, metavar="STEPS", help="between checkpoints; default: a minute")
    added.add_argument("--plan", action="store_true", help="check everything, say what it would take, and stop")

    added = command(analyse, "run every analysis of a ViT on your images: tables (CSV) and a figure")
    added.add_argument("model", metavar="MODEL", help="whatever vitlab.load takes: lab, a timm name, a file, NAME@FILE")
    added.add_argument("images", metavar="IMAGES", help="a picture, or a folder of them")
    added.add_argument("--out", metavar="FOLDER", help="default: figures/out/analyses/MODEL")

    added = command(gallery, "draw the analyses of several ViTs on the same images: one page, one table (CSV)")
    added.add_argument("models", nargs="+", metavar="MODEL", help="as for analyse")
    added.add_argument("--images", required=True, metavar="FOLDER", help="a picture, or a folder of them")
    added.add_argument("--out", metavar="FOLDER", help="default: figures/out/gallery")

    added = command(study, "do the runs of studies that are missing, in as many pieces as it takes")
    added.add_argument("names", nargs="+", metavar="NAME", help="such as data_scaling; all = every study")
    added.add_argument("--preset", **preset)
    added.add_argument("--seed", type=int, default=0, help="not 0: a replication, with other seeds; default: 0")
    added.add_argument("--jobs", type=int, metavar="N", help="worker processes; default: one per processor")
    added.add_argument("--minutes", type=float, help="stop after so long, exit status 3; default: until all is done")
    added.add_argument("--plan", action="store_true", help="list runs, those done, and hours, and stop")
    added.add_argument("--scale", choices=["large"], help="larger models and sets, for a GPU: data_scaling has them")

    command(report, "build REPORT.md from the results that are there").add_argument("--preset", **preset)
    command(doctor, "what is installed, found, and possible here")
    command(recipes, "the paper's training settings: Tables 3 and 4")
    added = command(copy, "put a copy of the notebooks and exercises into a folder of yours")
    added.add_argument("folder", metavar="FOLDER", help="they go to FOLDER/notebooks; run them from FOLDER")

    added = command(exercises, "check: which exercises of your copy of a notebook are solved")
    added.add_argument("what", choices=["check"])
    words = "notebooks in which you solved exercises, or folders of hand-ins"
    added.add_argument("files", nargs="+", metavar="FILE", help=words)
    added.add_argument("--csv", metavar="FILE", help="write the table there: a row a file, a column an exercise")
    added.add_argument("--seconds", type=float, default=60, help="time limit of one exercise; default: 60")
    return parser


def _pairs(options: argparse.Namespace) -> dict[str, str]:
    for setting in options.settings:
        if "=" not in setting or setting.startswith("="):
            raise ValueError(f"--set {setting}: expected KEY=VALUE, as in --set SEED=1")
    return dict(setting.split("=", 1) for setting in options.settings)


def _check(preset: str = "quick", jobs: int | None = None, lab: str = "", **numbers: float | None) -> None:
    """Raise for a preset that there is not, a number out of range, or, for the command `lab`, missing packages."""
    import importlib.util

    if preset not in ("smoke", "quick", "full"):
        raise ValueError(f"unknown preset {preset!r}: choose one of smoke, quick, full")
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs {jobs}: expected a whole number, 1 or more")
    for name, value in numbers.items():
        if value is not None and not 0 < value <= 1e6:
            raise ValueError(f"--{name} {value:g}: expected a number above 0, at most 1,000,000")
    wanted = ("papermill", "ipykernel", "matplotlib", "seaborn") if lab else ()
    if missing := [name for name in wanted if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(f'{lab} needs {", ".join(missing)}: add the extra "lab" (docs/install.md)')


def run(options: argparse.Namespace) -> int:
    """Execute notebooks, of all those that have changed, then write the report."""
    _check(options.preset, options.jobs, lab="run")
    from vitlab import notebooks, paths

    numbers = options.notebooks or [path.stem for path in notebooks.all_notebooks()] or ["00"]
    chosen = list(dict.fromkeys(map(notebooks.find, numbers)))
    settings = notebooks.check_settings(chosen, _pairs(options))
    paths.check_writable(paths.out_dir(options.preset))
    for path, name in ((each, name) for each in chosen for name in settings[each] if name.endswith("WEIGHTS")):
        from vitlab.studies import measure  # takes seconds

        measure.load_for(path.stem, settings[path][name], name)
    of_all = chosen if not options.notebooks else []
    kept = [each for each in of_all if notebooks.unchanged(each, settings[each], options.preset)]
    if kept:
        print(f"unchanged: {', '.join(each.stem for each in kept)} (run by number, they run again)")
    failures = notebooks.run([each for each in chosen if each not in kept], options.preset, settings, options.jobs)
    report(options)
    if failures:
        print(f"vitlab: {len(failures)} of {len(chosen)} notebooks failed: {', '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


def report(options: argparse.Namespace) -> int:
    """Write the report on the results that are there."""
    _check(options.preset)
    from vitlab import paths
    from vitlab.claims import report

    paths.check_writable(paths.out_dir(options.preset))
    print(report.write(options.preset))
    return 0


def train(options: argparse.Namespace) -> int:
    """Train a model by name, or say what it would take."""
    from vitlab import notebooks, paths
    from vitlab.settings import default_device
    from vitlab.training import session

    if options.save_every is not None and options.save_every < 1:
        raise ValueError(f"--save-every {options.save_every}: expected a number of steps, 1 or more")
    given = {key.lower(): text for key, text in _pairs(options).items()}
    values = {key: notebooks.parse(key, text, session.DEFAULTS.get(key)) for key, text in given.items()}
    chosen = session.session(options.model, options.data, options.like, values)
    if options.plan:
        model, _, prepared = session.prepare(chosen, default_device())
        print(session.describe(chosen, model, len(prepared["validation"].classes)))
        return 0
    name = f"{options.model}-{Path(options.data).name}".replace("/", "_")
    folder = Path(options.out) if options.out else paths.figures_dir() / "training" / name
    paths.check_writable(folder, "--out FOLDER" if options.out else "--out FOLDER or VITLAB_FIGURES=FOLDER")
    session.run(chosen, folder, save_every=options.save_every)
    return 0


def analyse(options: argparse.Namespace) -> int:
    """Write the tables and the figure of every analysis of a model on images."""
    import importlib.util

    from vitlab import overview, paths

    folder = Path(options.out or paths.figures_dir() / "analyses" / Path(options.model.partition("@")[0]).name)
    paths.check_writable(folder, "--out FOLDER")
    found = overview.analyse(options.model, options.images)
    made = found.to_csv(folder)
    if importlib.util.find_spec("matplotlib"):  # of the extra "lab"
        made.append(folder / "overview.png")
        found.plot().savefig(made[-1], dpi=100)
    print(f"{found.pretrained.name} ({found.pretrained.source}), {found.rollout['image'].max()} images")
    print(*(f"no {table}: {why}" for table, why in found.left_out.items()), *made, sep="\n")
    return 0


def gallery(options: argparse.Namespace) -> int:
    """Write a page and a table of several models' analyses on the same images."""
    _check(lab="gallery")
    from vitlab import overview, paths

    paths.check_writable(folder := Path(options.out or paths.figures_dir() / "gallery"), "--out FOLDER")
    print(*overview.gallery(options.models, options.images, folder), sep="\n")
    return 0


def study(options: argparse.Namespace) -> int:
    """Do the missing runs of studies, or say what they would take; 3 where there is more to do."""
    import time

    from vitlab import paths
    from vitlab.studies import runner, table

    _check(options.preset, options.jobs, minutes=options.minutes)
    of_all = [name for name, each in table.STUDIES.items() if options.preset in each.presets and "_large" not in name]
    names = of_all if options.names == ["all"] else options.names
    names = [f"{name}_{options.scale}" if options.scale else name for name in names]
    for name in names:
        table.preset(name, options.preset)
    if options.plan or options.scale:
        planned = runner.plan(names, options.preset, options.seed)
        print(planned.to_string(index=False, float_format="{:.1f}".format, na_rep="?"))
        todo, n_runs, hours = (planned[name].sum() for name in ("todo", "runs", "hours"))
        print(f"{todo:,} of {n_runs:,} runs to do, {hours:.1f} hours of one core or accelerator", flush=True)
    if options.plan:
        return 0
    paths.check_writable(paths.out_dir(options.preset))
    end, left = None if options.minutes is None else time.monotonic() + 60 * options.minutes, 0
    for name in names:
        minutes = None if end is None else max(0.0, end - time.monotonic()) / 60
        rows = runner.run(name, options.preset, options.seed, options.jobs or (1 if options.scale else None), minutes)
        done, planned = rows.attrs.get("done", 0), len(table.runs(name, options.preset, options.seed))
        left += planned - done
        print(f"{name}: {done} of {planned} runs done", flush=True)
    print(f"{left:,} runs left: the same command does them" if left else "complete")
    return 3 if left else 0


def recipes(options: argparse.Namespace) -> int:
    """Print the paper's training settings."""
    import pandas as pd

    from vitlab.training.paper import TABLE_3, TABLE_4

    pretraining = pd.DataFrame(TABLE_3).assign(steps=[f"{row.recipe().steps:,}" for row in TABLE_3])
    print(f"Table 3: pre-training, Adam\n{pretraining.to_string(index=False, na_rep='-')}\n")
    print(f"Table 4: fine-tuning, SGD with momentum 0.9\n{pd.DataFrame(TABLE_4).to_string(index=False)}")
    return 0


def copy(options: argparse.Namespace) -> int:
    """Copy the notebooks that come with vitlab, and their exercises, into FOLDER/notebooks."""
    from vitlab import paths

    folder = paths.own(options.folder)
    paths.check_writable(folder, "vitlab copy FOLDER")
    source, target = paths.shipped() / "notebooks", folder / "notebooks"
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} is there already: remove it, or give another folder")
    if not (source / "00_start_here.ipynb").is_file():
        raise FileNotFoundError(f"no notebooks in {source}: install vitlab's wheel, or clone the repository")
    left_out = shutil.ignore_patterns("source", "colab", "__pycache__", ".*")  # sources are for maintainers
    shutil.copytree(source, target, ignore=left_out)
    print(f"{len(list(target.glob('*.ipynb')))} notebooks are in {target}, their exercises in {target / 'exercises'}")
    print(f"next:  cd {shlex.quote(str(target.parent))}")
    print("       jupyter lab notebooks/00_start_here.ipynb    or    vitlab run 08")
    return 0


def exercises(options: argparse.Namespace) -> int:
    """Say which exercises of notebooks are solved; 1 where one is not, 2 where a file cannot be checked."""
    _check(lab="exercises", seconds=options.seconds)
    from vitlab import exercises

    return exercises.check_all(options.files, options.seconds, options.csv)


def doctor(options: argparse.Namespace) -> int:
    """Say what is installed, found and possible here."""
    import importlib.metadata
    import platform

    import psutil
    import torch

    from vitlab import notebooks, paths
    from vitlab.data import datasets

    versions = {each.name: each.version for each in importlib.metadata.distributions()}
    wanted = "torch torchvision timm numpy pandas scikit-learn matplotlib jupyterlab ipywidgets papermill"
    absent = 'not installed: of the extra "lab", for the notebooks'
    numbers = " ".join(path.stem.split("_")[0] for path in notebooks.all_notebooks()) or "none"
    sets = {name: datasets.present(name) for name in datasets.TORCHVISION}
    sets["photos"] = (paths.data_dir() / "photos").is_dir()
    found = {
        f"vitlab {vitlab.__version__}": [f"notebooks in {notebooks.notebooks_dir()}: {numbers}"]
        + [f"figures go to {paths.figures_dir()}"],
        f"python {platform.python_version()}, {platform.platform()}": [sys.executable]
        + [f"{name} {versions.get(name, absent)}" for name in wanted.split()],
        f"{os.cpu_count()} processors, torch uses {torch.get_num_threads()} threads": [
            f"memory {psutil.virtual_memory().available / 2**30:.1f} GiB available",
            *(f"GPU {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())),
        ],
        f"data sets in {paths.data_dir()} (VITLAB_DATA=FOLDER for a copy of your own, a folder a set)": [
            f"{name} {'found' if there else 'not found'}" for name, there in sets.items()
        ],
        "variables": [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("VITLAB", "HF"))],
    }
    for heading, lines in found.items():
        print("\n  ".join([heading, *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
