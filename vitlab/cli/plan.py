"""What an experiment would take, before it starts: runs, FLOPs, hours and memory, from a short probe (§4.4, Fig. 5)."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from vitlab import experiments, settings
from vitlab.data.loader import ImageSet, batches
from vitlab.data.world import World
from vitlab.experiments import design_runs
from vitlab.models import zoo
from vitlab.sweep import cluster, identity, runner
from vitlab.training import cost
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe

# What the cost of a run depends on, nearly; the options of a ViT are there where a study varies them.
_GROUP = ("model", "image_size", "batch_size", "steps")
_LONG = 0.1  # seconds of a step, from which on the rest of a batch is reckoned and not tried
_BYTES_A_PIXEL = 4  # of an image in memory: three colours and the mask
Config = dict[str, Any]


def plannable() -> tuple[str, ...]:
    """The experiments that can be planned: their modules have the functions `planned_runs(preset, seed)` and `run_one`.

    >>> "runner" in plannable()
    False
    """
    folder = Path(experiments.__file__).parent
    return tuple(name for name in experiments.names() if identity.defines(folder / f"{name}.py", "planned_runs"))


def parts_of(name: str) -> tuple[Callable[..., list[Config]], runner.Run]:
    """The functions of an experiment that list its runs and that do one: `planned_runs` and `run_one`.

    Raises:
        ValueError: it has none; the message names the experiments that have.
    """
    module = importlib.import_module(experiments.find(name).__module__)
    if not hasattr(module, "planned_runs"):
        there = ", ".join(plannable()) or "(none here)"
        raise ValueError(f"{name} cannot be planned: it does not list its runs beforehand. These do: {there}")
    return module.planned_runs, module.run_one


def trainings_of(name: str) -> Callable[[Config], list[Config]]:
    """What gives the trainings of one run of an experiment: `trainings` of its module, else the run is one training.

    >>> len(trainings_of("who_wins")({"model": "Lab-Ti/8"}))
    1
    """
    module = importlib.import_module(experiments.find(name).__module__)
    return getattr(module, "trainings", lambda config: [config])


def groups(configs: Sequence[Config], finished: Sequence[bool], probed: Mapping[str, dict[str, float]]) -> pd.DataFrame:
    """One row for the runs of one model, image size, batch and number of steps, and of equal options of a ViT.

    Columns: these, runs, stored (of them), flops (of training, a run: three forward passes an image, a
    multiply-add as two), seconds (a run, training and evaluation), model_bytes (weights, gradients, optimiser,
    activations of a batch), image_bytes (the images of the largest run). `probed`: what `probe` gave, by `label`.
    """
    rows = []
    for label, members in _grouped(configs).items():
        first, found = configs[members[0]], probed[label]
        samples = first["steps"] * first["batch_size"]
        forward, fixed, per_image = _counted(first)
        rows.append(
            {name: first[name] for name in _costs(first)}
            | {
                "runs": len(members),
                "stored": sum(finished[i] for i in members),
                "flops": 3 * forward * samples,
                "seconds": found["step"] * first["steps"] + found["image"] * _n_evaluated(first),
                "model_bytes": fixed + per_image * first["batch_size"],
                "image_bytes": max(_n_held(configs[i]) for i in members) * _BYTES_A_PIXEL * first["image_size"] ** 2,
            }
        )
    return pd.DataFrame(rows)


def _grouped(configs: Sequence[Config]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i, config in enumerate(configs):
        found.setdefault(" ".join(str(config[name]) for name in _costs(config)), []).append(i)
    return found


def _costs(config: Config) -> list[str]:
    return [*_GROUP, *(name for name in design_runs.OPTIONS if name in config)]


def _recipe(config: Config, steps: int, batch_size: int) -> Recipe:
    return Recipe(steps, batch_size, precision=config.get("precision", "fp32"), eval_every=1)


def _model(config: Config) -> torch.nn.Module:
    return design_runs.model_of({"n_classes": World().n_classes, "seed": 0} | config)


def _counted(config: Config) -> tuple[int, int, int]:
    """FLOPs of a forward pass; bytes of the model in training, and of each image of a batch."""
    model, side = _model(config), config["image_size"]
    forward = zoo.forward_flops(model, torch.zeros(1, 3, side, side))
    recipe = _recipe(config, config["steps"], config["batch_size"])
    return forward, *cost.training_bytes(model, torch.zeros(2, 3, side, side), recipe)


def _n_evaluated(config: Config) -> int:
    """Images that go forward only, in a run that does not stop early: validation, and the test and as many again."""
    times = config["steps"] // (config.get("eval_every") or config["steps"]) + 1
    return times * config.get("n_validation", 0) + 2 * config.get("n_test", 0)


def _n_held(config: Config) -> int:
    """Images in memory: no more than are seen."""
    seen = min(config.get("n_train", 0), config["steps"] * config["batch_size"])
    return seen + config.get("n_validation", 0) + config.get("n_test", 0)


def probe(config: Config) -> dict[str, float]:
    """Seconds of a training step of a run on this device ("step"), and of evaluating an image ("image").

    Trains on ever larger parts of a batch until a step is long enough to measure; the rest of the batch is reckoned
    from the last two. Takes a second or two.

    >>> found = probe({"model": "Lab-Ti/8", "image_size": 16, "batch_size": 4, "steps": 9})
    >>> 0 < found["image"] < found["step"] < 10
    True
    """
    model, whole = _model(config).to(default_device()), config["batch_size"]
    with settings.one_thread():
        part, taken = 1, _seconds_a_step(model, config, 1)
        rate = taken
        while part < whole and taken < _LONG:
            more = min(2 * part, whole)
            longer = _seconds_a_step(model, config, more)
            rate = max(longer - taken, 0.0) / (more - part)
            part, taken = more, longer
    step = taken + rate * (whole - part)
    return {"step": step, "image": step / whole / 3}


def _seconds_a_step(model: torch.nn.Module, config: Config, n_images: int) -> float:
    side, device = config["image_size"], default_device()
    pixels = torch.randint(256, (n_images, 3, side, side), dtype=torch.uint8, device=device)
    world = World()
    classes = tuple(str(k) for k in range(world.n_classes))
    images = ImageSet(pixels, torch.arange(n_images, device=device) % world.n_classes, classes)
    rows = train(model, batches(images, n_images, 0, device), _recipe(config, 4, n_images))
    times = [row["seconds"] for row in rows]  # the first is longer: FLOPs are counted, memory is fetched
    return statistics.median(b - a for a, b in zip(times, times[1:], strict=False))


@dataclass(frozen=True)
class Plan:
    """What of an experiment there is to do, and what it takes on the device where it would run."""

    name: str
    preset: str
    n_runs: int
    n_stored: int
    seconds_taken: float  # by the stored runs together, whatever machine they ran on
    table: pd.DataFrame  # as `groups` has it: a run may be several trainings
    at_once: int
    stops_early: bool
    where: str  # device, torch and scheduler
    free_bytes: int | None  # None: elsewhere

    def hours(self, trainings: pd.Series) -> float:
        """Of so many trainings of each row of the table, `at_once` side by side."""
        longest = self.table.loc[trainings > 0, "seconds"].max() if (trainings > 0).any() else 0.0
        return max((trainings * self.table["seconds"]).sum() / self.at_once, longest) / 3600

    @property
    def hours_taken(self) -> float:
        """By the stored runs, had they run as many at once as here."""
        return self.seconds_taken / self.at_once / 3600

    @property
    def hours_to_do(self) -> float:
        """Of the runs that are not stored."""
        return self.hours(self.table["runs"] - self.table["stored"])

    @property
    def hours_in_all(self) -> float:
        """Of all runs, as if none was stored."""
        return self.hours(self.table["runs"])


def planned(name: str, preset: str, seed: int = 0, configs: Sequence[Config] | None = None, **settings: Any) -> Plan:
    """What `run_all` would do in this process, its processes, or on a scheduler, measured there by short tries.

    Of these runs, or of all that the experiment lists with its settings.

    Raises:
        ValueError: the experiment does not list its runs beforehand.
        RuntimeError, ConnectionError: as `cluster.connected`.
    """
    listing, run = parts_of(name)
    configs = listing(preset, seed, **settings) if configs is None else configs
    with cluster.connected(run) as there:
        made_by = there.made_by if there else identity.made_by(run)
        there_are = runner.finished_of_preset(run, configs, preset, made_by)
        finished = [path.name in there_are for path in runner.paths_of(run, configs, "", made_by)]
        if not there:
            identity.check_device()
        trainings = list(map(trainings_of(name), configs))
        parts = [each for run_of in trainings for each in run_of]
        probed = _probed(parts, there)
    stored = [done for run_of, done in zip(trainings, finished, strict=True) for _ in run_of]
    return Plan(
        name,
        preset,
        len(configs),
        sum(finished),
        sum(result["wall_s"] for result in there_are.values()),
        groups(parts, stored, probed),
        there.n_slots if there else runner.default_jobs(),
        any(config.get("patience") is not None for config in configs),
        f"{made_by['device']}, torch {made_by['torch']}" + (f", {there.address}" if there else ""),
        None if there else cost.free_bytes(default_device()),
    )


def _probed(configs: Sequence[Config], there: cluster.Cluster | None) -> dict[str, dict[str, float]]:
    chosen = {label: configs[members[0]] for label, members in _grouped(configs).items()}
    if there is None:
        return {label: probe(config) for label, config in chosen.items()}
    found: dict[str, dict[str, float]] = {}

    # The time is part of the key: a probe that somebody else has under way is of another moment.
    labels = {f"probe-{label}-{time.time_ns()}": label for label in chosen}

    def keep(key: str, value: dict[str, float]) -> tuple[str, str]:
        found[labels[key]] = value
        return "done", ""

    sent = {key: chosen[label] for key, label in labels.items()}
    for key, (word, message) in cluster.completed(there, probe, keep, sent):
        if word != "done":
            raise RuntimeError(f"the probe of {labels[key]} failed: {message}")
    return found


def in_words(plan: Plan) -> str:
    """A plan as `vitlab experiment NAME --plan` prints it: what kinds of trainings there are, hours and memory."""
    table, free, at_once = plan.table, plan.free_bytes, plan.at_once
    flops = ((table["runs"] - table["stored"]) * table["flops"]).sum()
    held = (table["model_bytes"] + table["image_bytes"]).max()
    shown = table.assign(
        flops=table["flops"].map("{:.3g}".format),
        seconds=table["seconds"].map("{:.3g}".format),
        **{"model GB": (table["model_bytes"] / 1e9).round(3), "images GB": (table["image_bytes"] / 1e9).round(3)},
    ).drop(columns=["model_bytes", "image_bytes"])
    room = "" if free is None else f"; {free / 1e9:.1f} GB free here"
    short = "" if free is None or held * at_once <= free else ": TOO MUCH, take fewer jobs"
    bound = "at most" if plan.stops_early else "about"
    return (
        f"{plan.name} at {plan.preset}: {plan.n_runs} runs, {plan.n_stored} of them stored; {plan.where}\n\n"
        f"{shown.to_string(index=False)}\n\n"
        f"to do: {plan.n_runs - plan.n_stored} runs, {bound} {flops:.3g} training FLOPs and "
        f"{plan.hours_to_do:.2g} hours, {at_once} at once\n"
        f"memory: up to {held / 1e9:.2g} GB a run, {held * at_once / 1e9:.2g} GB together{room}{short}\n"
        "flops, seconds and GB are of one run; painting images, what an experiment measures of a trained model, and "
        "the process itself come on top"
    )
