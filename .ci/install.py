"""Builds .venv from requirements.lock, for the Makefile (standard library only).

usage: python .ci/install.py .venv/.installed-KEY

KEY changes with the lock, with pyproject.toml and with the checkout's place. The file named is there exactly
when the environment is whole; `.venv/.incomplete` stands for as long as one is being built, so that an
installation that was killed is seen and begun again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
# A lock with hashes cannot hold the project itself; setuptools, which builds it, is in the lock.
# A path in a .pth file: with setuptools' own finder each start of Python takes a tenth of a second more.
PROJECT = ["install", "--no-deps", "--no-build-isolation", "-C", "editable_mode=compat", "-e", "."]
# Held while an installation runs (.venv/.lock is taken: uv locks it itself), and there until it is complete.
GUARD, MARKER = ".installing", ".incomplete"
# Imported once, so that they are compiled once, and not by several tests or kernels at a time.
IMPORTED = "timm seaborn sklearn.linear_model scipy.stats ipywidgets jupytext papermill nbclient ipykernel.kernelapp"
IMPORTED += " jupyterlab.labapp hypothesis distributed sphinx myst_nb nbgrader"
SPARE = 2**30  # bytes; with less left on the disk, files may have been written in part


def main(stamp: Path) -> None:
    """Waits for any other installation into the same folder, then installs unless that one has done it."""
    venv = stamp.parent.absolute()
    stamp = venv / stamp.name
    if venv.is_symlink() and not venv.is_dir():
        refuse_link(venv)
    venv.mkdir(exist_ok=True)
    with open(venv / GUARD, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another installation into {venv}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        if not stamp.exists():
            install(venv, stamp)


def install(venv: Path, stamp: Path) -> None:
    """Makes or updates the environment; the marker of an unfinished one becomes the stamp in one step."""
    marker = venv / MARKER
    whole = usable(venv) and not marker.exists()
    if venv.is_symlink() and not whole:  # what would be emptied is somebody's
        refuse_link(venv)
    marker.touch()
    for old in venv.glob(".installed-*"):
        old.unlink()
    if whole:
        say(f"bringing {venv} up to date with {LOCK.name}")
    else:
        clear(venv)
        say(f"making {venv} with Python {sys.version.split()[0]} (with CUDA, on Linux, about 6 GB)")
        if not run([sys.executable, "-m", "venv", venv]):
            raise SystemExit(f"vitlab: {sys.executable} -m venv failed (the reason stands above)")
    if not install_by_uv(venv):
        say("uv did not do it (the reason stands above); trying pip with the same lock, which is slower")
        if not install_by_pip(venv):
            if whole and shutil.disk_usage(venv).free > SPARE:
                marker.unlink()  # no network, say: nothing was changed, so nothing need be made anew
            raise SystemExit(f"vitlab: {venv} is not complete (the reason stands above); run make again")
    hide_nbgrader(venv)
    once = "import contextlib, importlib, sys\nfor name in sys.argv[1:]:\n with contextlib.suppress(Exception):"
    run([venv / "bin" / "python", "-W", "ignore", "-c", f"{once} importlib.import_module(name)", *IMPORTED.split()])
    marker.rename(stamp)


def refuse_link(venv: Path) -> NoReturn:
    """Ends with what to do about a link that leads to no environment of this checkout."""
    raise SystemExit(
        f"vitlab: {venv} is a link to {venv.resolve()}, not to an environment of this checkout; "
        "remove the link and run make again"
    )


def hide_nbgrader(venv: Path) -> None:
    """Disables nbgrader's buttons in JupyterLab: it is here for the tests, and teachers use it as a command.

    What somebody has set for JupyterLab's side stays; the server's side yields to jupyter_server_config.json.
    """
    settings = venv / "etc" / "jupyter"
    page, server = settings / "labconfig" / "page_config.json", settings / "jupyter_server_config.d"
    known = json.loads(page.read_text()) if page.exists() else {}
    known.setdefault("disabledExtensions", {}).setdefault("@jupyter/nbgrader", True)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps(known, indent=2) + "\n")
    if (server / "nbgrader.json").exists():
        enabled = json.loads((server / "nbgrader.json").read_text())["ServerApp"]["jpserver_extensions"]
        disabled = {"ServerApp": {"jpserver_extensions": dict.fromkeys(enabled, False)}}
        (server / "vitlab.json").write_text(json.dumps(disabled, indent=2) + "\n")  # read after nbgrader.json


def install_by_uv(venv: Path) -> bool:
    """uv as the lock pins it, then everything by uv; False where it has no wheel for this platform."""
    wanted = venv / "uv.txt"
    wanted.write_text(locked("uv", LOCK.read_text()) + "\n")
    install = [*pip(venv), "install", "--quiet", "--only-binary", ":all:", "--require-hashes"]
    if not run([*install, "-r", wanted]):
        return False
    os.environ.update(UV_PYTHON_DOWNLOADS="never", VIRTUAL_ENV=str(venv))
    os.environ.pop("UV_SYSTEM_PYTHON", None)  # some build machines set it; it would win over VIRTUAL_ENV
    uv = [venv / "bin" / "uv", "pip"]
    return run([*uv, "sync", "--require-hashes", LOCK]) and run([*uv, *PROJECT])


def install_by_pip(venv: Path) -> bool:
    """The same lock by pip, uv left out of it."""
    text = LOCK.read_text()
    wanted = venv / "requirements.txt"
    wanted.write_text(text.replace(locked("uv", text), ""))
    return run([*pip(venv), "install", "--require-hashes", "-r", wanted]) and run([*pip(venv), *PROJECT])


def pip(venv: Path) -> list:
    """The pip of an environment."""
    return [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]


def locked(name: str, lock: str) -> str:
    """The lines of one package in a lock: its pin and its hashes."""
    block = re.search(rf"^{re.escape(name)}==.*(?:\n[ \t]+.*)*", lock, re.MULTILINE)
    if block is None:
        raise SystemExit(f"vitlab: {LOCK.name} holds no {name}; `make lock` writes it anew")
    return block.group()


def usable(venv: Path) -> bool:
    """Whether there is an environment with pip that runs here and was made for this very place."""
    activate = venv / "bin" / "activate"
    if not activate.exists() or str(venv) not in activate.read_text():
        return False
    return run([venv / "bin" / "python", "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"])


def clear(venv: Path) -> None:
    """Empties the folder, except for the guard that is held and the marker of an unfinished installation."""
    for path in venv.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in {GUARD, MARKER}:
            path.unlink()


def run(command: list) -> bool:
    """Runs a command in the checkout; whether it succeeded."""
    try:
        return subprocess.run([str(part) for part in command], cwd=ROOT).returncode == 0
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return False


def say(message: str) -> None:
    """One line on stderr, at once."""
    print(f"vitlab: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    try:
        main(Path(sys.argv[1]))
    except KeyboardInterrupt:
        raise SystemExit("\nvitlab: interrupted; the next make begins the installation again") from None
