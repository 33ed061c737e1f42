"""Finds notebooks, sets their parameters, and executes them in fresh kernels of this Python."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from vitlab import paths


def notebooks_dir() -> Path:
    """Return the folder of the notebooks that are run: in the checkout, or in the copy of them that we are in."""
    return paths.home() / "notebooks"


def all_notebooks() -> list[Path]:
    """List every notebook, in the order of the numbers."""
    named = re.compile(r"(\d\d|[A-Z])_[a-z0-9_]+")
    return sorted(path for path in notebooks_dir().glob("*.ipynb") if named.fullmatch(path.stem))


def find(which: str | int) -> Path:
    """Find the notebook with a number ("07", "7", 7) or a name ("07_attention_distance", "attention_distance")."""
    known = all_notebooks()
    if not known:
        raise FileNotFoundError(f"no notebooks in {notebooks_dir()}: `vitlab copy FOLDER` makes some; run vitlab there")
    wanted = str(which).removesuffix(".ipynb")
    for path in known:
        number, _, name = path.stem.partition("_")
        if wanted in (path.stem, name, number) or wanted.isdecimal() and wanted.zfill(2) == number:
            return path
    raise ValueError(f"unknown notebook {str(which)!r}: choose from {', '.join(path.stem for path in known)}")


def tagged(path: Path | str, tag: str) -> list[str]:
    """Return the sources of a notebook's cells with a tag: `parameters`, `long` (training), `timed` (speed)."""
    cells = paths.read_json(path)["cells"]
    return ["".join(cell["source"]) for cell in cells if tag in cell["metadata"].get("tags", ())]


def parameters(path: Path | str) -> dict[str, Any]:
    """Return names and default values that a notebook's cell tagged `parameters` sets; empty without such a cell."""
    nodes = [node for node in ast.parse("\n".join(tagged(path, "parameters"))).body if isinstance(node, ast.Assign)]
    return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in nodes}


def parse(name: str, text: str, default: Any) -> Any:
    """Read a value given on the command line as the type of its default.

    >>> parse("SEED", "3", 0), parse("RATE", "1e-3", 0.1), parse("RETRAIN", "yes", False)
    (3, 0.001, True)
    """
    if default is None or isinstance(default, tuple):  # says nothing about the type, or not what is in it
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
        return text
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return words[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
        raise ValueError(f"{name}={text}: expected {expected}, as its default {default!r}") from None


def check_settings(chosen: Sequence[Path], settings: Mapping[str, str]) -> dict[Path, dict[str, Any]]:
    """Return what to set in each notebook that has the parameter, from texts; ValueError where none has it.

    A file or folder (of weights, of images) is given by its whole path, for kernels run in another folder.
    """
    known = {path: parameters(path) for path in chosen}
    values: dict[Path, dict[str, Any]] = {path: {} for path in chosen}
    for key, text in settings.items():
        name = key.upper()
        having = [path for path in chosen if name in known[path]]
        if not having or name == "PRESET":
            there = "; ".join(f"{path.stem}: {', '.join(known[path]) or 'none'}" for path in chosen)
            why = "choose the preset with --preset" if having else f"no chosen notebook has a parameter {name}"
            raise ValueError(f"--set {key}={text}: {why}. There are {there}")
        head, at, file = text.rpartition("@")  # NAME@FILE
        if file and os.path.exists(paths.own(file)):
            text = f"{head}{at}{paths.own(file)}"
        for path in having:
            values[path][name] = parse(name, text, known[path][name])
    return values


def unchanged(path: Path, values: Mapping[str, Any], preset: str) -> bool:
    """Tell whether a result has these settings and is newer than notebook, package, evidence, weights and own data."""
    out = paths.out_dir(preset) / path.stem / "notebook.ipynb"
    there = out.exists() and not out.with_suffix(".failed.ipynb").exists()
    if not there or paths.read_json(out)["metadata"].get("vitlab", {}).get("settings") != dict(values):
        return False
    folders = (Path(__file__).parent, paths.evidence_dir(), paths.bundled_dir(), paths.data_dir())
    files = [path, *(each for folder in folders for each in folder.rglob("*") if each.suffix != ".pyc")]
    files += [Path(value) for value in values.values() if isinstance(value, str) and os.path.exists(value)]
    return out.stat().st_mtime > max(each.lstat().st_mtime for each in files if each.is_file())


def run(
    chosen: Sequence[Path], preset: str, settings: Mapping[Path, Mapping[str, Any]], jobs: int | None = None
) -> dict[str, str]:
    """Execute notebooks into `paths.out_dir(preset)`; returns what went wrong, by the notebooks' names.

    `jobs` at a time (default: two), each in a kernel with its share of the processors. Those with a cell tagged `long`
    begin first; those with a cell tagged `timed` come last, alone. A failure does not stop the others.
    """
    n_processors, failures = int(os.environ.get("VITLAB_JOBS") or os.cpu_count() or 1), {}
    timed = [path for path in chosen if tagged(path, "timed")]
    others = sorted((path for path in chosen if path not in timed), key=lambda path: not tagged(path, "long"))
    for group, n in ((others, min(jobs or min(2, n_processors), len(others) or 1)), (timed, 1)):
        share = str(max(1, n_processors // n))
        wanted = {"OMP_NUM_THREADS": share, "OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin starve on a busy machine
        threads = {"VITLAB_JOBS": share} | {name: os.environ.get(name, value) for name, value in wanted.items()}
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            waiting = {pool.submit(execute, path, settings[path], preset, threads): path for path in group}
            try:
                for future in concurrent.futures.as_completed(waiting):
                    name = waiting[future].stem
                    if (error := future.exception()) is None:
                        print(f"{name}: {future.result():.1f} s", flush=True)
                    else:
                        failures[name] = str(error)
                        print(f"{name}: failed\nvitlab: {error}", file=sys.stderr, flush=True)
            except BaseException:  # an interrupt: kernels and what they have started end at once
                pool.shutdown(wait=False, cancel_futures=True)
                while not all(future.done() for future in waiting):  # again for a kernel that was just starting
                    for child in psutil.Process().children(recursive=True):
                        with contextlib.suppress(psutil.Error):
                            child.kill()
                    time.sleep(0.1)
                raise
    return failures


def execute(path: Path, values: Mapping[str, Any], preset: str, environment: Mapping[str, str] | None = None) -> float:
    """Execute one notebook in a kernel of this Python, in the notebook's folder; returns the seconds it took.

    The result, out/<preset>/<notebook>/notebook.ipynb, appears when the last cell has run. When a cell fails (a
    RuntimeError), the partial execution is kept next to it as notebook.failed.ipynb. A second process waits.
    """
    import nbformat
    from nbclient.exceptions import CellExecutionError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    out, started, message = paths.out_dir(preset) / path.stem / "notebook.ipynb", time.perf_counter(), ""
    failed = out.with_suffix(".failed.ipynb")
    given = dict(values) | ({"PRESET": preset} if "PRESET" in parameters(path) else {})
    notebook = parameterize_notebook(load_notebook_node(str(path)), given, kernel_name="python3", language="python")
    notebook.metadata.setdefault("vitlab", {})["settings"] = dict(values)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with paths.lock(out.parent):
        try:
            run_cells(notebook, path.parent, environment or {})
        except CellExecutionError as error:
            number = max(cell.get("execution_count") or 0 for cell in notebook.cells)
            message = f" in cell [{number}]: {' '.join(f'{error.ename}: {error.evalue}'.split())}"
        except RuntimeError as error:
            message = f": its kernel was killed, most likely because memory ran out, or did not start ({error})"
        if "application/vnd.jupyter.widget-view+json" not in str(notebook.cells):
            notebook.metadata.pop("widgets", None)  # the state of widgets that none of the outputs shows
        with paths.writing(failed if message else out) as temporary:
            nbformat.write(notebook, temporary)
    if message:
        raise RuntimeError(f"{path.stem} stopped{message}; as far as it came: {failed}")
    failed.unlink(missing_ok=True)
    return time.perf_counter() - started


def run_cells(notebook: Any, folder: Path | str, environment: Mapping[str, str], **options: Any) -> None:
    """Execute the cells in place, by a kernel of this Python and this vitlab, in `folder`; `options` are nbclient's."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    path = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
    fixed = {"PYTHONPATH": path, "MPLBACKEND": "module://matplotlib_inline.backend_inline", "TQDM_DISABLE": "1"}
    environment = {**os.environ, **fixed, "PYDEVD_DISABLE_FILE_VALIDATION": "1", **environment}
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=50"],
        record_timing=False,
        coalesce_streams=True,  # what is printed line by line is one output
        **{"timeout": None} | options,
    )
    asyncio.run(client.async_execute(cleanup_kc=True, env=environment))  # which closes this thread's loop as well
