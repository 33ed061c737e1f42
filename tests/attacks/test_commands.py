"""Generated command lines: whatever is asked for is done, or refused in a line that begins with `vitlab: `."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from attacks import outcomes
from attacks.outcomes import LONG, REFUSED, RIGHT

pytestmark = pytest.mark.slow
TRIES = 320  # of the bounded run
SECONDS = 20.0  # for one command

NUMBERS = ("-1", "0", "1", "2", "0.5", "nan", "inf", "-inf", "1e300", "1e-300", str(10**20), "9" * 5000, "", "foo")
NUMBERS += ("(1,2)", "(1, nan)", "None", "true", "١", "1_0", " 1", "0x10", "[1", "{}", "(" * 300, "\udcff", "1,2", "7")
NAMES = ("", " ", "foo", "Lab-Mu/8", "data_scaling", "smoke", "world", "..", "../../etc", "a\nb", "ünï", "\udcff", "-")
NAMES += ("x" * 5000, "%s%n", "--", "$(id)", "08", "paper", "hf-hub:", "local-dir:/etc", "hf-hub:a/b", "NaN", "adam")
PATHS = ("missing", "plain", "empty", "pipe.png", "null", "full", "with space", "new\nline", "ünï", "", "out")
PATHS += ("x" * 300, "plain/below", "pics", "torn", "pipes", ".", "..", "~", "notebook.ipynb", "\udcff", "/proc/none")
PATHS += ("lfs.safetensors", "torn.npz", "digits", "cifar10")
MODELS = ("Lab-Mu/" + "9" * 5000, "Lab-Mu/0", "Lab-Mu/-1", "Lab-Mu/3", "BiT-Lab-Mu/8", "lab-mu/8", "R+Lab-Mu/8")
PRESETS = ("quick", "paper", "gpu", "huge", "", "../..", "SMOKE", "smoke ", "\udcff")
SCHEDULERS = ("tcp://127.0.0.1:1", "tcp://127.0.0.1", "127.0.0.1:1", "", "tcp://", "tcp://:0", "tls://127.0.0.1:1")
SCHEDULERS += ("tcp://127.0.0.1:99999", "tcp://[::1", "inproc://1", "ucx://127.0.0.1:1", "\udcff", "foo://a:1")
VARIABLES = ("VITLAB_JOBS", "VITLAB_DEVICE", "VITLAB_DATA", "VITLAB_FIGURES", "VITLAB_SCHEDULER", "VITLAB_TORCH")
SMALL = {"steps": "2", "batch_size": "4", "image_size": "8", "eval_every": "2", "workers": "0"}
NOTEBOOK_VALUES = [("SEED", value) for value in NUMBERS] + [("WEIGHTS", value) for value in (*PATHS, *NAMES)]
OTHERS = ("IMAGES", "REAL", "DATA", "RETRAIN", "foo", "")
NOTEBOOK_VALUES += [(name, value) for name in OTHERS for value in (*PATHS, *NAMES)]
COMMANDS = ("train",) * 8 + ("run",) * 3 + ("experiment",) * 2 + ("full", "exercises") * 2 + ("report", "copy")


class Words:
    """Draws the words of a command line: most are as they should be, so that one that is not is read at all."""

    def __init__(self, pick: random.Random) -> None:
        self.pick, self.words = pick, [pick.choice(COMMANDS) if pick.random() < 0.96 else pick.choice(NAMES)]
        getattr(self, self.words[0], self.any)()
        if pick.random() < 0.05:
            self.words.insert(pick.randrange(len(self.words) + 1), pick.choice([*NUMBERS, *NAMES, "--plan", "--jobs"]))

    def some(self, good: Sequence[str], odd: Sequence[str], chance: float = 0.2) -> str:
        """A good value, mostly."""
        return self.pick.choice(odd if self.pick.random() < chance else good)

    def perhaps(self, chance: float, option: str, values: Sequence[str] = ()) -> None:
        """An option and its value, perhaps."""
        if self.pick.random() < chance:
            self.words += [option, self.pick.choice(values)] if values else [option]

    def any(self) -> None:
        self.words += self.pick.sample([*NAMES, *NUMBERS], self.pick.choice((0, 0, 1, 2)))

    def train(self) -> None:
        from vitlab.training import session

        self.words += [self.some(["Lab-Mu/8"], [*MODELS, *NAMES]), self.some(["digits", "pics"], [*PATHS, *NAMES])]
        settings = dict(SMALL)
        names = [name for name in session.DEFAULTS if name not in ("compile", "workers")]  # these take minutes
        for name in self.pick.sample(names, self.pick.choice((0, 1, 1, 1, 2))):
            settings[name] = self.some(NUMBERS, [*NAMES, "inception", "cosine", "bf16", "tanh"])
        odd = [*NAMES, "foo=1", "=1", "steps", "STEPS=1", "workers=-1", "workers=nan", "compile=2", "compile="]
        self.perhaps(0.06, "--set", odd)
        self.words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self.perhaps(0.1, "--save-every", NUMBERS)
        self.perhaps(0.1, "--out", PATHS)
        self.perhaps(0.05, "--like", ["ImageNet", *NAMES])
        self.perhaps(0.05, "--parallel", ["fsdp", "ddp", *NAMES])
        self.perhaps(0.2, "--plan")
        self.perhaps(0.1, "--restart")

    def common(self) -> None:
        self.words += ["--preset", self.some(["smoke"], PRESETS, 0.1)]
        self.perhaps(0.6, "--set", [f"{name}={value}" for name, value in NOTEBOOK_VALUES])
        self.perhaps(0.15, "--jobs", NUMBERS)
        self.perhaps(0.15, "--scheduler", SCHEDULERS)

    def run(self) -> None:
        known = ["01", "8", "09_attention_rollout"]
        self.words += [self.some(known, NAMES) for _ in range(self.pick.choice((0, 1, 1, 2)))]
        self.common()

    def experiment(self) -> None:
        self.words += [self.some(["data_scaling", "speed", "training_curves", "rollout_masks", "transfer"], NAMES, 0.1)]
        self.common()
        self.perhaps(0.3, "--seed", NUMBERS)
        self.perhaps(0.3, "--plan")

    def full(self) -> None:
        self.words += [self.some(["speed", "lab", "model_checks"], ["cifar10", *NAMES]), "--preset", "smoke"]
        self.perhaps(0.3, "--preset", PRESETS)
        self.perhaps(0.6, "--minutes", NUMBERS)
        self.perhaps(0.3, "--jobs", NUMBERS)

    def report(self) -> None:
        self.perhaps(0.8, "--preset", ["quick", *PRESETS])

    def copy(self) -> None:
        self.words += [self.some([path for path in PATHS if path != ".."], NUMBERS)]

    def exercises(self) -> None:
        self.words += [self.some(["check"], NAMES, 0.05), *self.pick.sample(PATHS, self.pick.choice((0, 1, 1, 2)))]
        self.perhaps(0.2, "--seconds", NUMBERS)
        self.perhaps(0.2, "--memory", NUMBERS)


def command(pick: random.Random) -> tuple[list[str], dict[str, str]]:
    """A command line, and variables of its environment."""
    values = [value for value in (*NUMBERS, *NAMES, *PATHS, *SCHEDULERS) if len(value) < 400]
    values = [value for value in values if value and ".." not in value]  # empty: the checkout's own figures
    variables = {name: pick.choice(values) for name in pick.sample(VARIABLES, pick.choice((0, 0, 0, 0, 0, 0, 0, 1)))}
    return Words(pick).words, variables


_PLACES = {"home", "tmp", "figures", "here", "printed", "said"}
ROOT = Path(__file__).resolve().parents[2]


def _simulate() -> None:
    """Leave out what takes minutes once a command line has been accepted: kernels, probes, and the runs of studies."""
    import pandas as pd

    from vitlab import experiments
    from vitlab.cli import execute, full, plan

    found = experiments.find

    def find(name: str) -> Callable:
        return functools.wraps(found(name))(lambda **settings: pd.DataFrame({"value": [1]}))

    def executed(path: Path, values: dict, out: Path, environment: dict | None = None) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, out)

    experiments.find, execute.execute = find, executed
    execute.side_by_side = execute._one_by_one  # in processes of their own notebooks would be executed after all
    plan.probe = lambda config: {"step": 1.0, "image": 1.0}
    full.piece = lambda *arguments: 0


def attempt(words: list[str], variables: dict[str, str]) -> str:
    """Run a command in this folder; says how it ended."""
    here, before = Path.cwd(), _tracked()
    os.environ.update(variables)
    with open(here.parent / "printed", "w+b") as printed, open(here.parent / "said", "w+b") as said:
        status = _status(words, printed.fileno(), said.fileno())
        text = Path(said.name).read_text(errors="replace")
    strange = [str(path) for path, stamp in _tracked().items() if before.get(path) != stamp]
    strange += sorted({path.name for path in here.parent.iterdir()} - _PLACES)
    tried = re.findall(r"cannot write into (/.+?) \(", text)
    strange += [path for path in tried if not path.startswith(str(here.parent)) and path not in words]
    return _judged(status, text, strange)


def _status(words: list[str], out: int, err: int) -> int | str:
    """The exit status of the command line, or the exception that left it; what it prints goes to two files."""
    from vitlab.cli.main import main

    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(each, "w", errors="strict", closefd=False) for each in (1, 2))  # noqa: SIM115
    try:
        return main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else f"SystemExit: {end.code}"
    except BaseException:  # noqa: BLE001
        return traceback.format_exc(limit=-3)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(UnicodeError):
                stream.flush()


def _judged(status: int | str, said: str, strange: list[str]) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    if strange:
        return f"wrote {strange[:5]}"
    if status not in (0, 1, 2, 3):
        return f"ended with {status}"
    if "Traceback" in said:
        return f"status {status} and a traceback: {said[-600:]}"
    if status in (0, 3):
        return RIGHT
    if lines and (lines[0].startswith("usage: vitlab") or all(line.startswith("vitlab: ") for line in lines)):
        return REFUSED
    return f"status {status}, where every line was to begin with 'vitlab: ': {said[-600:]!r}"


def _tracked() -> dict[Path, int]:
    """When each of the repository's files was changed, and the names in its main folders."""
    places = (ROOT, *(ROOT / name for name in ("data", "vitlab", "notebooks", "docs", "figures", "tests")))
    found = [path for place in places if place.is_dir() for path in place.iterdir() if path.is_file()]
    return {path: path.stat().st_mtime_ns for path in found}


def lots() -> Iterator[outcomes.Lot]:
    """One command a lot, for each changes the process that it runs in."""
    for number in itertools.count() if LONG else range(TRIES):
        words, variables = command(outcomes.draw(number))
        shown = " ".join([*(f"{key}={value!r}" for key, value in variables.items()), "vitlab", shlex.join(words)])
        shown = f"{shown:.1500}".encode("utf-8", "backslashreplace").decode()
        yield number, [(shown, partial(attempt, words, variables))]


def test_every_command_line_is_done_or_refused_in_words(attack):
    tally = attack("commands")
    assert LONG or outcomes.ONLY or tally[RIGHT] > 20 and tally[REFUSED] > 200, "the pools are no longer a mixture"


def _warm() -> None:
    """Import all that commands import, in the process from which they are forked: each would take seconds for it."""
    import timm  # noqa: F401
    import torch

    from vitlab.cli import commands, doctor, execute, plan  # noqa: F401
    from vitlab.evaluation import fewshot  # noqa: F401
    from vitlab.exercises import check  # noqa: F401
    from vitlab.ledger import report  # noqa: F401
    from vitlab.training import session

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        session.run(session.session("Lab-Mu/8", "digits", settings={"steps": 1, "image_size": 8}), Path(folder))


if __name__ == "__main__":
    _warm()
    _simulate()
    outcomes.count("commands", lots(), SECONDS)
