"""The sizes every experiment comes in, from the tests' to the paper's own (paper §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Preset:
    """One size of the whole collection."""

    name: str
    purpose: str
    time: str  # what to expect, in words
    hardware: str
    runs_here: bool = True  # False: settings are shown and validated, a cluster runs them
    two_at_a_time: bool = False  # notebooks, as they take minutes at most; one that takes hours has all processors

    def __str__(self) -> str:
        return self.name


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "smoke",
                "the tests: every line runs, no number counts",
                "≤ 20 s a notebook",
                "2 CPU cores",
                two_at_a_time=True,
            ),
            Preset(
                "quick",
                "a laptop, offline: the claims at lab scale",
                "≤ 15 min in all",
                "2 CPU cores, 4 GB",
                two_at_a_time=True,
            ),
            Preset(
                "full",
                "the evidence: larger sets, more seeds, resumable",
                "about 22 hours (estimated)",
                "2 CPU cores with bfloat16, 4 GB; some studies Imagenette and CIFAR-10",
            ),
            Preset("gpu", "larger worlds and models; written for a GPU, not run yet", "about an hour", "one GPU"),
            Preset(
                "paper",
                "the paper's own settings, shown and validated",
                "thousands of TPU core-days",
                "the paper's data (ImageNet-21k or JFT) and a cluster",
                runs_here=False,
            ),
        )
    }
)


def check(name: str) -> Preset:
    """The preset called `name`.

    Raises:
        ValueError: there is no such preset; the message lists those there are.

    >>> check("quick").hardware
    '2 CPU cores, 4 GB'
    >>> check("quik")
    Traceback (most recent call last):
    ValueError: unknown preset 'quik': choose one of smoke, quick, full, gpu, paper
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def check_runnable(name: str) -> Preset:
    """The preset called `name`, if one machine can run it.

    Raises:
        ValueError: unknown preset, or one that needs a cluster; the message says what it needs.

    >>> check_runnable("paper")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: preset 'paper' is not run from here: it needs the paper's data ...
    """
    preset = check(name)
    if not preset.runs_here:
        ready = ", ".join(p.name for p in PRESETS.values() if p.runs_here)
        raise ValueError(
            f"preset {name!r} is not run from here: it needs {preset.hardware} and {preset.time}; the "
            f"notebooks show its settings, torchrun launches them. Run one of {ready} instead"
        )
    return preset


def choose(settings: Mapping[str, T], preset: str) -> T:
    """The settings of an experiment at a preset that one machine can run.

    Raises:
        ValueError: as `check_runnable`, or the experiment does not come in this size; the message says in which.

    >>> choose({"smoke": 1, "quick": 2}, "gpu")
    Traceback (most recent call last):
    ValueError: this experiment has no preset 'gpu': choose one of smoke, quick
    """
    name = check_runnable(preset).name
    if name not in settings:
        raise ValueError(f"this experiment has no preset {name!r}: choose one of {', '.join(settings)}")
    return settings[name]
