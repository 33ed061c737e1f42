"""How a try of an attack may end: with the right answer or with a refusal in words. Anything else is a failure.

`python -m attacks.test_NAME` (with `tests` on the path) does the tries of one attack in children of that process,
without the checks of types that the tests install and users do not have, and prints a line of JSON. A try that crashes
its child, or hangs, is a failure, and another child goes on with the next one. Each child has a new folder to itself,
its working directory, in which there is some of everything; where Linux can refuse it, it writes nowhere else. Nothing
that tries are given names a file or a device outside: as root, a function that replaces its target replaces /dev/null.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

LONG = os.environ.get("ATTACKS") == "long"
MINUTES = float(os.environ.get("ATTACKS_MINUTES", "60"))  # of each attack, in the long run
SEED = int(os.environ.get("ATTACKS_SEED") or (date.today().toordinal() if LONG else 0))
ONLY = os.environ.get("ATTACKS_ONLY")  # the number of the one lot to repeat, as a failure names it
MEMORY = 3 * 2**30  # bytes that the tries of one child may take beside what it starts with
KINDS = RIGHT, REFUSED, FAILED = "right", "refused", "failed"
Try = tuple[str, Callable[[], str]]  # what it is, in words; and what does it, which returns how it ended
Lot = tuple[int, list[Try]]  # its number, and the tries that one child does


def draw(number: int) -> random.Random:
    """The random numbers of one lot, the same whatever lots come before it."""
    return random.Random(f"{SEED}:{number}")


def tried(tries: Sequence[Try], seconds: float) -> Iterator[str]:
    """How each of the tries ended, in order; `seconds`: for one of them."""
    done = 0
    while done < len(tries):
        for answer in _in_a_child(tries[done:], seconds):
            done += 1
            yield answer


def _in_a_child(tries: Sequence[Try], seconds: float) -> Iterator[str]:
    """The answers of one child, up to the try that ended it."""
    with tempfile.TemporaryDirectory(prefix="vitlab-attack-", ignore_cleanup_errors=True) as folder:
        yield from _in_a_child_at(Path(folder).resolve(), tries, seconds)


def _in_a_child_at(box: Path, tries: Sequence[Try], seconds: float) -> Iterator[str]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        _do(box, tries, write)
    os.close(write)
    try:
        given, text = 0, b""
        while given < len(tries):
            if not select.select([read], [], [], seconds)[0]:
                yield f"no answer after {seconds:g} s"
                return
            piece = os.read(read, 2**16)
            *lines, text = (text + piece).split(b"\n")
            given += len(lines)
            yield from map(json.loads, lines)
            if not piece:
                yield _end_of(child)
                return
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _do(box: Path, tries: Sequence[Try], write: int) -> None:
    """Do the tries in a folder and write a line for each; never returns."""
    try:
        furnish(box)
        _confine(box)
        _limit_memory()
        for _, work in tries:
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001 (what is not foreseen is a failure, in words)
                answer = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps(answer[:1500]).encode() + b"\n")
    finally:
        os._exit(0)


def furnish(box: Path) -> None:
    """Make the folder that tries happen in, and go there: images, notebooks, and what is neither."""
    from PIL import Image

    for name in ("home", "tmp", "figures", "here/empty", "here/with space", "here/out"):
        (box / name).mkdir(parents=True)
    os.chdir(box / "here")
    for folder, split, label in itertools.product(("pics", "torn", "pipes"), ("train", "test"), ("ant", "bee")):
        path = Path(folder, split, label, "1.png")
        path.parent.mkdir(parents=True)
        Image.effect_noise((12, 10), 60).convert("RGB").save(path)
    Path("torn/test/ant/2.png").write_bytes(Path("torn/test/ant/1.png").read_bytes()[:60])
    os.mkfifo("pipes/test/ant/2.png")
    os.mkfifo("pipe.png")
    os.symlink(os.devnull, "null")
    os.symlink("/dev/full", "full")
    Path("plain").write_text("neither a folder nor a notebook\n")
    Path("lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    Path("torn.npz").write_bytes(b"PK\x03\x04" + bytes(60))
    Path("notebook.ipynb").write_text('{"cells": [{"cell_type": "code"}], "nbformat": 4}')
    result = box / "figures" / "quick" / "01_vit" / "result.json"
    result.parent.mkdir(parents=True)
    result.write_text('{"results": [{"claim": "C99"}]}')
    places = {"HOME": "home", "TMPDIR": "tmp", "VITLAB_FIGURES": "figures", "VITLAB_DATA": "here"}
    os.environ.update({name: str(box / place) for name, place in places.items()})
    tempfile.tempdir = str(box / "tmp")


def _confine(box: Path) -> None:
    """Let the kernel refuse this process to write elsewhere, but not to start others, as it does for exercises."""
    from vitlab.exercises import confine

    if confine.kernel()["files"]:
        confine._call("prctl", confine._NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        confine._write_only(str(box))


def _limit_memory() -> None:
    import resource

    sizes = Path("/proc/self/statm")
    if sizes.exists():  # elsewhere there is no limit
        limit = int(sizes.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _end_of(child: int) -> str:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"the process ended with exit status {os.WEXITSTATUS(status)}"


def count(attack: str, lots: Iterator[Lot], seconds: float) -> None:
    """Do all the lots, or in the long run those that the time allows, and print the tally; `seconds`: for one try."""
    tally, failures, until = dict.fromkeys(KINDS, 0), [], time.monotonic() + 60 * MINUTES
    for number, tries in lots:
        if ONLY is not None and number != int(ONLY):
            continue
        for (name, _), answer in zip(tries, tried(tries, seconds), strict=True):
            kind = answer if answer in (RIGHT, REFUSED) else FAILED
            tally[kind] += 1
            if kind == FAILED:
                which = f"{'ATTACKS=long ' if LONG else ''}ATTACKS_SEED={SEED} ATTACKS_ONLY={number}"
                again = f"{which} python -m pytest tests/attacks/test_{attack}.py"
                failures.append(f"{name}\n    {answer}\n    again: {again}")
                print(failures[-1], file=sys.stderr, flush=True)
        if ONLY is not None or LONG and time.monotonic() > until:
            break
    print(json.dumps({"attack": attack, **tally, "failures": failures}))


def run(attack: str) -> dict:
    """The tally of an attack, done in a process of its own."""
    tests = Path(__file__).parent.parent
    paths = [str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", f"attacks.test_{attack}"]
    limit = 60 * MINUTES + 600 if LONG else 300
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, env=environment, cwd=tests.parent)
    assert done.returncode == 0, f"the attack {attack} itself ended with status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def in_words(attack: str, tally: dict) -> str:
    """One line: how many tries there were, and how they ended.

    >>> in_words("attacks", {"right": 1930, "refused": 2882, "failed": 0})
    'attacks: 4,812 tries: 1,930 right, 2,882 refused, 0 anything else'
    """
    right, refused, failed = (tally[kind] for kind in KINDS)
    total = right + refused + failed
    return f"{attack}: {total:,} tries: {right:,} right, {refused:,} refused, {failed:,} anything else"
