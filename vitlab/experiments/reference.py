"""Every experiment that wants a GPU, one after the other, in pieces of minutes (§4.1 to §4.4, Tables 2, 5, 6).

    python -m vitlab.experiments.reference --plan                what `full` would take; starts nothing
    python -m vitlab.experiments.reference --minutes 9           go on for nine minutes; again, until it is "complete"
    python -m vitlab.experiments.reference --preset rehearsal    the same at a CPU's size
    python -m vitlab.experiments.reference data_scaling speed    some parts only

Needs the package alone, no Jupyter. Whatever is finished is stored in figures/<preset> and never done again, and a
training under way keeps a checkpoint of every minute there: a piece that is cut off, or killed, loses no more than
that of each. The exit status: 0 when all is there, 3 when there is more to do, 1 when a part failed.

The figures are made where there is a Jupyter, from the stored runs: copy figures/full there, then

    VITLAB_DEVICE=cuda VITLAB_TORCH=2.11 vitlab run 02 03 04 05 --preset full    # the GPU's version of torch
    python -m vitlab.authoring reference 02 03 04 05 --preset full
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vitlab import experiments, files
from vitlab.data import datasets
from vitlab.experiments import presets, workers

MORE, FAILED = 3, 1  # exit status


@dataclass(frozen=True)
class Part:
    """An experiment of the reference, with settings of its own."""

    experiment: str
    settings: Mapping[str, str] = field(default_factory=dict)
    data: str | None = None  # a set that it cannot do without

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.settings.get("which", self.experiment)


# What others need comes first, then what is short.
PARTS = (
    Part("lab_weights", {"which": "lab"}),
    Part("lab_weights", {"which": "lab-hybrid"}),
    Part("speed"),
    Part("cifar10", data="cifar10"),
    Part("data_scaling"),
    Part("compute_scaling"),
    Part("small_data"),
    Part("training_curves"),
    Part("transfer"),
)


def chosen(names: Sequence[str], preset: str) -> list[Part]:
    """The parts called so, in the order of `PARTS`; without names all that can be done at this preset, with this data.

    Raises:
        ValueError: a part there is not, or one that cannot be done and was asked for by name.

    >>> [part.name for part in chosen(["speed", "lab"], "full")]
    ['lab', 'speed']
    """
    presets.check_runnable(preset)
    known = {part.name: part for part in PARTS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no part {', '.join(unknown)}: choose among {', '.join(known)}")
    wanted = [part for part in PARTS if not names or part.name in names]
    absent = {part.name: reason for part in wanted if (reason := _impossible(part, preset))}
    if names and absent:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    return [part for part in wanted if part.name not in absent]


def _impossible(part: Part, preset: str) -> str:
    """Why a part cannot be done; empty where it can."""
    settings = importlib.import_module(f"vitlab.experiments.{part.experiment}").SETTINGS
    if preset not in settings:
        return f"has no preset {preset!r}"
    if part.data and not datasets.present(part.data):
        return f"needs {part.data}, which is not in {files.data_dir()} ($VITLAB_DATA)"
    return ""


def do(part: Part, preset: str, jobs: int | None) -> None:
    """One part from beginning to end, or what of it is not stored; raises what the experiment raises."""
    experiments.find(part.experiment)(preset=preset, jobs=jobs, **part.settings)


def piece(parts: Sequence[Part], preset: str, minutes: float, jobs: int | None = None) -> int:
    """Do parts in a process of its own until all are done or the time is over; returns the exit status.

    The process is killed when the time is over, and ends with this one; its workers end with it. What they have
    stored stays.
    """
    process = multiprocessing.get_context("spawn").Process(target=_life, args=(parts, preset, jobs))
    process.start()
    try:
        process.join(60 * minutes)
        return MORE if process.is_alive() else process.exitcode
    finally:
        process.kill()
        process.join()


def _life(parts: Sequence[Part], preset: str, jobs: int | None) -> None:
    threading.Thread(target=workers.follow_parent, daemon=True).start()
    sys.exit(here(parts, preset, jobs))


def here(parts: Sequence[Part], preset: str, jobs: int | None = None) -> int:
    """Do parts in this process, one after the other; a part that fails does not end the others."""
    failures = []
    for number, part in enumerate(parts, 1):
        started = time.perf_counter()
        print(f"[part {number}/{len(parts)}] {part.name} at {preset}", flush=True)
        try:
            do(part, preset, jobs)
        except (ArithmeticError, MemoryError, OSError, RuntimeError, ValueError) as error:
            failures.append(part.name)
            print(f"vitlab: {part.name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{part.name}: there, after {time.perf_counter() - started:.0f} s of this piece", flush=True)
    if failures:
        print(f"vitlab: failed: {', '.join(failures)}; what was finished is stored", file=sys.stderr)
    return FAILED if failures else 0


def describe(parts: Sequence[Part], preset: str) -> str:
    """The plans of all parts that can be planned, one below the other, and the names of the others."""
    from vitlab.experiments import plan

    names = plan.plannable()
    texts = [plan.describe(part.experiment, preset) for part in parts if part.experiment in names]
    others = [part.name for part in parts if part.experiment not in names]
    return "\n\n".join([*texts, *([f"not planned: {', '.join(others)}"] if others else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    parser.add_argument("--preset", default="full")
    parser.add_argument("--minutes", type=float, default=9.0, help="end after so long (default 9)")
    parser.add_argument("--jobs", type=int, help="runs at once (default: one per core, four on a GPU)")
    parser.add_argument("--plan", action="store_true", help="say what it would take and start nothing")
    options = parser.parse_args(arguments)
    try:
        parts = chosen(options.parts, options.preset)
    except ValueError as error:
        parser.error(str(error))
    if options.plan:
        print(describe(parts, options.preset))
        return 0
    status = piece(parts, options.preset, options.minutes, options.jobs)
    folder = files.figures_dir() / options.preset
    words = {0: f"complete: {folder}", MORE: "there is more to do: run this again"}
    print(words.get(status, f"ended with status {status}: see above; what was finished is in {folder}"), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
