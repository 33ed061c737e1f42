"""The command line: run notebooks, build the report, look around, run one experiment without Jupyter."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import vitlab

# Nothing here may import at the top what takes long, as torch and pandas do: `vitlab --help` answers at once.

_EPILOG = """\
presets: smoke (the tests'), quick (a laptop, offline), full (the evidence: about 22 hours on two CPU
  cores, by estimate), gpu (written for one GPU, not run yet), paper (shown, not run from here)
examples:
  vitlab run                          every notebook at the preset quick, then figures/out/quick/REPORT.md
  vitlab run 02 08 --set SEED=1       two notebooks with another seed
  vitlab experiment data_scaling --preset smoke
  vitlab full --minutes 30            every experiment at the preset full, half an hour of it; again until "complete"
  vitlab experiment data_scaling --preset full --plan    what it would take; starts nothing
  vitlab experiment data_scaling --preset full --scheduler tcp://host:8786    on a cluster: docs/cluster.md
  vitlab exercises check mine.ipynb   which exercises of your copy of a notebook are solved
variables: VITLAB_FIGURES, VITLAB_DATA, VITLAB_JOBS, VITLAB_SCHEDULER, VITLAB_DEVICE (cpu or cuda), VITLAB_TORCH
  (such as 2.11: read the stored runs of that torch); VITLAB_DEBUG=1 shows the traceback of every error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 good, 1 a failure, 2 not begun, 3 more to do, 130 Ctrl-C.

    141, as of a process that SIGPIPE ends: nobody reads on what it prints (`vitlab recipes | head -1`).

    >>> main(["report", "--preset", "huge"])
    2
    """
    for stream in (sys.stdout, sys.stderr):  # on a terminal of ASCII, ≤ is a question mark and no error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        try:
            return _done(arguments)
        finally:
            print(end="", flush=True)  # what is still kept back fails here, and not as the interpreter ends
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        return 141


def _done(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        from vitlab.cli import commands

        return getattr(commands, options.command)(options)
    except KeyboardInterrupt as interrupt:  # a training's own says how to go on
        print(f"vitlab: {str(interrupt) or 'stopped; finished results are kept'}", file=sys.stderr)
        return 130
    except Exception as error:
        from vitlab.cli import errors

        if (line := errors.told(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 2


def _nobody_reads() -> bool:
    """Whether the reader of what is printed has gone; if so, what is printed from now on goes nowhere."""
    try:
        print(flush=True)  # another pipe may be the broken one
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


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
    run.set_defaults(command="run")

    report = commands.add_parser("report", help="build REPORT.md from the results that are there")
    report.add_argument("--preset", default="quick", help="default: quick")
    report.set_defaults(command="report")

    train = commands.add_parser("train", help="train a model by name; under torchrun, on several GPUs or machines")
    train.add_argument("model", metavar="MODEL", help="such as Lab-Ti/8, ViT-B/16, or a timm name")
    train.add_argument(
        "data",
        metavar="DATA",
        help="world or world-300, photographs, digits, cifar10, imagenette …, or a folder with train/ and test/",
    )
    train.add_argument(
        "--out", metavar="FOLDER", help="default: figures/training/MODEL-DATA; a killed run goes on there"
    )
    train.add_argument("--like", metavar="DATA", help="Table 3's recipe for MODEL on JFT, IN-21k or ImageNet")
    train.add_argument(
        "--objective", choices=("labels", "masked"), help="masked: predict hidden patches; default: labels"
    )
    train.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="such as steps=5000"
    )
    train.add_argument(
        "--parallel",
        default="ddp",
        choices=("ddp", "fsdp"),
        help="under torchrun: the whole model in every process, or a shard of it; default: ddp",
    )
    train.add_argument("--save-every", type=int, default=500, metavar="STEPS", help="between checkpoints; default: 500")
    train.add_argument("--restart", action="store_true", help="from step 0: removes an older training from the folder")
    train.add_argument("--plan", action="store_true", help="check everything, say what it would take, and stop")
    train.set_defaults(command="train")

    recipes = commands.add_parser("recipes", help="the paper's training settings: Tables 3 and 4, few-shot")
    recipes.set_defaults(command="recipes")

    exercises = commands.add_parser("exercises", help="check: which exercises of your copy of a notebook are solved")
    exercises.add_argument("what", choices=["check"])
    exercises.add_argument("files", nargs="+", metavar="FILE", help="notebooks in which you solved exercises")
    exercises.add_argument("--seconds", type=float, default=60, help="time limit of one exercise; default: 60")
    exercises.add_argument(
        "--memory", type=float, default=4, metavar="GB", help="memory limit of one exercise; default: 4"
    )
    exercises.set_defaults(command="exercises")

    doctor = commands.add_parser("doctor", help="what is installed, found, and possible here")
    doctor.set_defaults(command="doctor")

    copy = commands.add_parser("copy", help="put a copy of the notebooks and exercises into a folder of yours")
    copy.add_argument("folder", metavar="FOLDER", help="they go to FOLDER/notebooks; run them from FOLDER")
    copy.set_defaults(command="copy")

    experiment = commands.add_parser("experiment", help="run one experiment without Jupyter")
    experiment.add_argument("name", metavar="NAME")
    experiment.add_argument("--seed", type=int, default=0, help="default: 0")
    experiment.add_argument("--plan", action="store_true", help="list runs, FLOPs, hours and memory, and stop")
    _add_common(experiment)
    experiment.set_defaults(command="experiment")

    full = commands.add_parser("full", help="run every experiment at the preset full, in as many pieces as it takes")
    full.add_argument("parts", nargs="*", metavar="PART", help="such as data_scaling, speed, lab; none = all")
    full.add_argument("--preset", default="full", help="default: full")
    full.add_argument("--minutes", type=float, help="stop after so long, exit status 3; default: go on to the end")
    full.add_argument("--jobs", type=int, metavar="N", help="worker processes; default: one per processor")
    full.add_argument(
        "--seed", type=int, default=0, help="not 0: a second draw of the studies, with other seeds; default: 0"
    )
    full.add_argument("--plan", action="store_true", help="list runs, FLOPs, hours and memory, and stop")
    full.set_defaults(command="full")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="quick", help="smoke, quick, full or gpu; default: quick")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="set a parameter"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=int, metavar="N", help="worker processes; default: one per processor")
    where.add_argument("--scheduler", metavar="ADDRESS", help="of dask, tcp://host:port: its workers do the work")


if __name__ == "__main__":
    sys.exit(main())
