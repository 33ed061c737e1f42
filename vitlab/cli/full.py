"""The runs of every experiment at preset `full`, one part after the other, in pieces of time (§3.1, §4.1 to §4.5).

Behind `vitlab full`. Finished runs are stored in figures/<preset> and never repeated, and a training under way keeps a
checkpoint of every minute there: a piece that is cut off, or killed, loses no more than that of each training.
With another seed than 0, the studies that have a second draw are drawn anew (see `second_draw`), and nothing else.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

from vitlab import experiments, paths
from vitlab.cli import errors
from vitlab.data import datasets
from vitlab.experiments import lab_weights, second_draw
from vitlab.sweep import presets, runner, workers

if TYPE_CHECKING:
    from vitlab.cli import plan

MORE, FAILED = 3, 1  # exit status


@dataclass(frozen=True)
class Part:
    """An experiment, with settings of its own."""

    experiment: str
    settings: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()  # data sets that it needs
    claims: str = ""  # those that its runs decide, with blanks between

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.settings.get("which", self.experiment)


# Long parts last: whoever has little time has most of the parts soon.
PARTS = (
    Part("embedding_filters"),
    Part("position_similarity"),
    Part("attention_distances"),
    Part("rollout_masks"),
    Part("speed"),
    Part("training_curves"),
    Part("axial_attention", claims="C19"),
    Part("head_rates", claims="C16"),
    Part("resnet_optimizers", claims="C17"),
    Part("vit_shapes", claims="C18"),
    Part("position_variants"),
    Part("longer_positions", claims="C09"),
    Part("more_positions"),
    Part("real_subsets"),
    Part("world_classes"),
    Part("who_wins"),
    Part("few_images"),
    Part("data_scaling", claims="C03 C04 C05"),
    Part("more_seeds"),
    Part("compute_scaling", claims="C06 C07"),
    Part("local_heads", claims="C10 L01 L02"),
    Part("transfer", data=("imagenette", "cifar10"), claims="C08 C21"),
    Part("more_transfers", data=("imagenette",)),
    Part("masked_pretraining", data=("imagenette",), claims="C15"),
    Part("cifar10_best", data=("cifar10",)),
    Part("lab_weights", {"which": "lab-masked"}, data=("imagenette",)),
    Part("lab_weights", {"which": "lab"}, data=("imagenette",)),
    Part("lab_weights", {"which": "lab-hybrid"}, data=("imagenette",)),
    Part("lab_weights", {"which": "lab-world"}),
)


def chosen(names: Sequence[str], preset: str, seed: int = 0) -> list[Part]:
    """The parts with these names, in the order of `PARTS`; without names all that preset, seed and data allow.

    Models that are bundled with their weights are trained again only where they are named.

    Raises:
        ValueError: a name that no part has, or a named part that this preset, seed or data does not allow.

    >>> [part.name for part in chosen(["speed", "lab-world"], "full")]
    ['speed', 'lab-world']
    """
    presets.check_runnable(preset)
    known = {part.name: part for part in PARTS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no part {', '.join(unknown)}: choose among {', '.join(known)}")
    wanted = _wanted(names, preset)
    absent = {part.name: reason for part in wanted if (reason := _impossible(part, preset, seed))}
    if names and absent:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    return [part for part in wanted if part.name not in absent]


def _wanted(names: Sequence[str], preset: str) -> list[Part]:
    return [part for part in PARTS if (part.name in names if names else not _is_bundled(part, preset))]


def _impossible(part: Part, preset: str, seed: int) -> str:
    """Why a part cannot be done; empty where it can."""
    return _undefined(part, preset, seed) or _lacking(part, preset, seed)


def _undefined(part: Part, preset: str, seed: int) -> str:
    if preset not in _study(part).CONFIGS:
        return f"has no preset {preset!r}"
    if seed and part.experiment not in second_draw.STUDIES:
        return f"has no second draw: --seed {seed} is for {', '.join(second_draw.STUDIES)}"
    return ""


def _lacking(part: Part, preset: str, seed: int) -> str:
    """The data that a part needs and that are not here; empty where all of its runs are stored, which need none."""
    needs = _needs(part)
    return "" if needs and _all_stored(part, preset, seed) else needs


def _needs(part: Part) -> str:
    absent = [name for name in part.data if not datasets.present(name)]
    return f"needs {' and '.join(absent)}, not found in {paths.data_dir()} ($VITLAB_DATA)" if absent else ""


def _all_stored(part: Part, preset: str, seed: int) -> bool:
    study = _study(part)
    if not hasattr(study, "planned_runs"):
        return False
    try:
        draw = second_draw.planned_runs(part.experiment, preset, seed) if seed else study.planned_runs(preset)
    except ValueError:  # no run of the first draw is committed
        return False
    return len(runner.finished_of_preset(study.run_one, draw, preset)) == len(draw)


def _study(part: Part) -> ModuleType:
    return importlib.import_module(f"vitlab.experiments.{part.experiment}")


def _is_bundled(part: Part, preset: str) -> bool:
    if part.experiment != "lab_weights" or preset not in lab_weights.CONFIGS:
        return False
    return lab_weights.is_bundled(part.settings["which"], preset)


def do(part: Part, preset: str, jobs: int | None, seed: int = 0) -> None:
    """One part from beginning to end, or what of it is not stored; raises what the experiment raises."""
    if seed:
        second_draw.draw(part.experiment, preset, seed, jobs)
    else:
        experiments.find(part.experiment)(preset=preset, jobs=jobs, **part.settings)


def piece(
    parts: Sequence[Part], preset: str, minutes: float | None = None, jobs: int | None = None, seed: int = 0
) -> int:
    """Do parts in a process of its own until all are done or the time is over; returns the exit status.

    The process is killed after so many minutes (None: never), and ends with this one; its worker processes end with
    it. What they have stored stays.
    """
    process = multiprocessing.get_context("spawn").Process(target=_life, args=(parts, preset, jobs, seed))
    process.start()
    try:
        process.join(None if minutes is None else 60 * minutes)
        return MORE if process.exitcode is None else process.exitcode
    finally:
        process.kill()
        process.join()


def _life(parts: Sequence[Part], preset: str, jobs: int | None, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    threading.Thread(target=workers.follow_parent, daemon=True).start()
    sys.exit(here(parts, preset, jobs, seed))


def here(parts: Sequence[Part], preset: str, jobs: int | None = None, seed: int = 0) -> int:
    """Do parts in this process, one after the other; a part that fails, in whatever way, does not end the others."""
    failures = []
    for number, part in enumerate(parts, 1):
        started = time.perf_counter()
        draw = f", seed {seed}" if seed else ""
        print(f"[part {number}/{len(parts)}] {part.name} at {preset}{draw}", flush=True)
        try:
            do(part, preset, jobs, seed)
        except Exception as error:
            failures.append(part.name)
            if errors.told(error) is None:
                traceback.print_exception(error)
            print(f"vitlab: {part.name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{part.name}: complete after {time.perf_counter() - started:.0f} s", flush=True)
    if failures:
        print(f"vitlab: failed: {', '.join(failures)}; what was finished is stored", file=sys.stderr)
    return FAILED if failures else 0


def describe(names: Sequence[str], preset: str, seed: int = 0) -> str:
    """The plans of the parts with these names (none: all) that list their runs beforehand, then their hours in one
    table, and the others' names.

    Raises ValueError as `chosen`.
    """
    from vitlab.cli import plan

    parts, plannable = chosen(names, preset, seed), plan.plannable()
    plans = []
    for part in (part for part in parts if part.experiment in plannable):
        runs = second_draw.planned_runs(part.experiment, preset, seed) if seed else None
        plans.append((part, plan.planned(part.experiment, preset, seed, runs)))
    texts = [plan.in_words(each) for _, each in plans] + ([_hours(plans)] if plans else [])
    others = [part.name for part in parts if part.experiment not in plannable]
    texts += [f"not planned: {', '.join(others)}"] if others else []
    return "\n\n".join([*texts, *_left_out(names, parts, preset, seed)])


def _left_out(names: Sequence[str], parts: Sequence[Part], preset: str, seed: int) -> list[str]:
    """A line for each part that is wanted and not among the chosen `parts`, for want of data."""
    rest = [part for part in _wanted(names, preset) if part not in parts]
    return [f"left out: {part.name} {_needs(part)}" for part in rest if not _undefined(part, preset, seed)]


def _hours(plans: Sequence[tuple[Part, plan.Plan]]) -> str:
    """A row for each part, and what all of them take, and those by which claims are judged."""
    rows = [
        f"{part.name:20} {part.claims:14} {each.n_runs:5} {each.n_stored:7}"
        f" {each.hours_taken:6.2f} {each.hours_in_all:6.2f} {each.hours_to_do:6.2f}"
        for part, each in plans
    ]
    judged = [each for part, each in plans if part.claims]
    sums = [
        f"{words}: {sum(each.hours_in_all for each in chosen):.1f} hours in all, "
        f"{sum(each.hours_to_do for each in chosen):.1f} to do; what is stored took "
        f"{sum(each.hours_taken for each in chosen):.1f}"
        for words, chosen in (("parts with claims", judged), ("all planned parts", [each for _, each in plans]))
    ]
    head = f"{'part':20} {'claims':14} {'runs':>5} {'stored':>7} {'took':>6} {'hours':>6} {'to do':>6}"
    about = "took: stored runs, wherever they ran and whatever ran beside them; hours: all runs, here, by short tries"
    return "\n".join([head, *rows, *sums, about])


def run(names: Sequence[str], preset: str, minutes: float | None = None, jobs: int | None = None, seed: int = 0) -> int:
    """Do the parts with these names (none: all) for at most so many minutes; returns the exit status.

    0: all is stored; 3: there is more to do; 1: a part failed.

    Raises:
        ValueError: as `chosen`.
        OSError: the figures folder cannot be written into.
    """
    parts, folder = chosen(names, preset, seed), paths.figures_dir() / preset
    paths.check_writable(folder / "runs")
    for line in _left_out(names, parts, preset, seed):
        print(line, flush=True)
    status = piece(parts, preset, minutes, jobs, seed)
    words = {0: f"complete: {folder}", MORE: "there is more to do: run this again"}
    print(words.get(status, f"ended with status {status}: see above; what was finished is in {folder}"), flush=True)
    return status
