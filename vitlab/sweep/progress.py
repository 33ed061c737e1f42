"""What has become of the runs of a sweep: a line for each as it ends, and an error where some have failed (§4)."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitlab.sweep import results, workers

Task = tuple[Path, dict[str, Any]]  # where a run's result goes, and its configuration


@dataclass
class Sweep:
    """The runs of one call of `run_all`: which there are, which are done, which have failed."""

    name: str
    paths: dict[Path, dict[str, Any]]  # where each run's result goes, with its configuration
    done: dict[Path, dict[str, Any]]  # the results that are stored
    failed: dict[Path, str] = field(default_factory=dict)  # what failed, in words

    @property
    def missing(self) -> list[Task]:
        """The runs that are neither done nor failed."""
        return [each for each in self.paths.items() if each[0] not in self.done and each[0] not in self.failed]

    def enter(self, task: Task, outcome: workers.Outcome) -> None:
        """Note what became of a run, and say it in a line.

        Raises:
            RuntimeError: the disk is full: nothing that follows could be stored.
        """
        (path, config), (word, message) = task, outcome
        if word == "busy":
            return
        if word == "done" and (result := results.read(path, config)):
            self.done[path] = result
            print(
                f"[{len(self.done)}/{len(self.paths)}] {self.name} {_named(config, self._varying)}: {message}",
                flush=True,
            )
            return
        self.failed[path] = f"{self.name} {_named(config, list(config))}: {message}"
        print(f"vitlab: failed: {self.failed[path]}", file=sys.stderr, flush=True)
        if f"[Errno {errno.ENOSPC}]" in message:
            self.check()

    def check(self) -> None:
        """Raise RuntimeError where runs have failed."""
        if not self.failed:
            return
        first, more = next(iter(self.failed.values())), len(self.failed) - 1
        raise RuntimeError(
            f"{len(self.failed)} of {len(self.paths)} runs failed: {first}"
            f"{f' (and {more} more, named above)' if more else ''}; the {len(self.done)} finished ones are stored, "
            "running again goes on from them"
        )

    @functools.cached_property
    def _varying(self) -> list[str]:
        """The settings that set the runs apart, by which each is named; all of them where there is one run."""
        first, *others = self.paths.values()
        return [key for key in first if any(other.get(key) != first[key] for other in others)] or list(first)


def _named(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    return " ".join(f"{key}={config[key]}" for key in keys if key in config)
