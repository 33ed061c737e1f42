"""Executes notebooks from first to last cell, in fresh kernels of this Python (every section of the paper)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from vitlab import paths
from vitlab.notebooks import has_cell, parameters

_BAR = re.compile(r"\s*([^\n|]*:)?\s*\d+%\|")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"Cell In\s?\[(?P<cell>\d+)\], line (?P<line>\d+)")  # of a traceback of IPython's
_PROGRESS = re.compile(r"\[\d+/\d+\] ")  # the lines of sweep.runner
_LOOK = 1.0  # seconds between looks whether somebody still waits for a notebook
Task = tuple[Path, dict[str, Any], Path]  # a notebook, what to set in it, and where its execution goes
Outcome = tuple[str, str]  # "done" and the time, or what happened instead and why
Executor = Callable[[Callable[[Task], Outcome], Sequence[Task]], Iterable[tuple[Task, Outcome]]]


def run(
    paths: Sequence[Path],
    preset: str,
    settings: Mapping[Path, Mapping[str, Any]],
    executor: Executor | None = None,
) -> dict[str, str]:
    """Execute notebooks into the preset's figures folder; returns what went wrong, by the notebooks' names.

    One after the other in this process, or by `executor(execute one, all)`, such as `side_by_side`, which yields them
    as they end. A notebook that fails does not stop the others. Two processes never execute into one folder at a time:
    the second waits. Prints a line for each notebook with its time, and what went wrong.
    """
    tasks, failures = [_task(path, preset, settings.get(path, {})) for path in paths], {}
    for (path, _, _), (word, message) in (executor or _one_by_one)(executed, tasks):
        if word != "done":
            failures[path.stem] = message if path.stem in message else f"{path.stem} {word}: {message}"
            print(f"vitlab: {failures[path.stem]}", file=sys.stderr, flush=True)
        print(f"{path.stem}: {message if word == 'done' else word}", flush=True)
    return failures


def _task(path: Path, preset: str, settings: Mapping[str, Any]) -> Task:
    values = dict(settings) | ({"PRESET": preset} if "PRESET" in parameters(path) else {})
    return path, values, paths.figures_dir() / preset / path.stem / "notebook.ipynb"


def _one_by_one(work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
    return ((task, work(task)) for task in tasks)


def side_by_side(work: Callable[..., Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
    """Notebooks two at a time, each in a process of its own, with half of the processors and of the runs at a time.

    So one computes while the other imports and draws. Those with a cell tagged `long` begin first, so that none of them
    is alone at the end. Those with a cell tagged `timed` come last, with nothing beside them. Where runs are done one
    at a time, so are notebooks.
    """
    from vitlab.sweep import runner, workers

    timed = [task for task in tasks if has_cell(task[0], "timed")]
    others = sorted((task for task in tasks if task not in timed), key=lambda task: not has_cell(task[0], "long"))
    if len(others) < 2 or (jobs := runner.default_jobs()) < 2:
        yield from _one_by_one(work, tasks)
        return
    half = str((jobs + 1) // 2)
    environment = {"VITLAB_JOBS": half, "OMP_NUM_THREADS": half, "MKL_NUM_THREADS": half}
    yield from workers.completed(partial(_executed_beside, work, environment), others, 2)
    yield from _one_by_one(work, timed)


def _executed_beside(work: Callable[..., Outcome], environment: Mapping[str, str], task: Task, wait: bool) -> Outcome:
    return work(task, environment)


def executed(
    task: Task,
    environment: Mapping[str, str] = MappingProxyType({}),
    abandoned: Callable[[], bool] | None = None,
) -> Outcome:
    """Execute one notebook, while nobody else executes into its folder, and say how it went.

    `environment`: variables that its kernel has beside this process's. `abandoned` is asked every second whether nobody
    waits for the outcome any more; then the kernel is killed, which must be the only one of this process.
    """
    path, values, out = task
    started = time.perf_counter()
    try:
        with paths.lock(out.parent), _killed_when(abandoned) if abandoned else _killed_at_interrupt():
            execute(path, values, out, environment)
    except RuntimeError as error:
        return f"failed after {time.perf_counter() - started:.1f} s", str(error)
    return "done", f"{time.perf_counter() - started:.1f} s"


def _kill_kernels() -> None:
    """Kill the kernels that this process has started; the workers of a kernel end with it."""
    import psutil

    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("ipykernel" in word for word in child.cmdline()):
                child.kill()


@contextlib.contextmanager
def _killed_at_interrupt() -> Iterator[None]:
    """In the body, an interrupt kills the kernel first: asked to end, it and its workers would print their tracebacks.

    SIGTERM likewise; what is half written goes then too. A signal that is ignored still is. Outside the main thread,
    which alone receives signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    usual = {number: each for number, each in handlers.items() if callable(each) or each is signal.SIG_DFL}

    def interrupted(number: int, frame: Any) -> None:
        # Of nbclient's tasks that are cut off, asyncio would report what they raise when this process ends, and
        # nbclient, by the logger it was given, that the kernel died.
        for name in ("asyncio", "papermill", "traitlets"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        _kill_kernels()
        handler = usual[signal.Signals(number)]
        if not callable(handler):  # the system's own, which ends this process
            sys.exit(128 + number)
        handler(number, frame)

    for number in usual:
        signal.signal(number, interrupted)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _killed_when(abandoned: Callable[[], bool]) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK):
            if abandoned():
                _kill_kernels()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def execute(
    path: Path, values: Mapping[str, Any], out: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Execute one notebook in a fresh kernel of this Python, in the notebook's own folder, into `out`.

    `out` appears when the last cell has run. When a cell fails, `out` stays what it was, and the partial
    execution is kept beside it as `notebook.failed.ipynb`.

    Raises:
        RuntimeError: a cell failed, or the kernel died; the message names notebook, cell and error.
    """
    import papermill

    failed = out.with_suffix(".failed.ipynb")
    with paths.writing(out) as temporary, _kernel_environment(out, environment):
        try:
            papermill.execute_notebook(
                path,
                temporary,
                parameters=dict(values),
                kernel_name="python3",
                engine_name=_saving_once(),
                cwd=path.parent,
                progress_bar=False,
                stdout_file=SimpleNamespace(write=_echo_progress, flush=sys.stdout.flush),
            )
            _strip(temporary)
        except papermill.PapermillExecutionError as error:
            _keep(temporary, failed)
            raise RuntimeError(f"{_where(path, error)}; as far as it came: {failed}") from error
        except RuntimeError as error:  # DeadKernelError is one, and a kernel that does not start raises one
            _keep(temporary, failed)
            raise RuntimeError(
                f"{path.stem} stopped: its kernel was killed, most likely because memory ran out, or did not "
                f"start ({error}); as far as it came: {failed}"
            ) from error
    failed.unlink(missing_ok=True)


def _saving_once() -> str:
    """The name of papermill's own engine, but for saving: at the end, not twice a cell, which takes seconds in all."""
    from papermill.engines import NBClientEngine, papermill_engines

    class SavingOnce(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            path, nb_man.output_path = nb_man.output_path, None
            try:
                return super().execute_managed_notebook(nb_man, kernel_name, **options)
            finally:
                nb_man.output_path = path

    papermill_engines.register("saving once", SavingOnce)
    return "saving once"


@contextlib.contextmanager
def _kernel_environment(out: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Environment in which "python3" is this very interpreter, whatever kernels the machine has."""
    from ipykernel.kernelspec import get_kernel_dict

    folder = paths.partial(out.with_name("kernel"))
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    try:
        kernel = get_kernel_dict()  # its command begins with sys.executable
        kernel["argv"] = [*kernel["argv"], "--IPKernelApp.log_level=50"]  # its own talk is of no use here
        spec.write_text(json.dumps(kernel))
        changes = {
            "JUPYTER_PATH": _prepended("JUPYTER_PATH", str(folder)),
            "PYTHONPATH": _prepended("PYTHONPATH", str(paths.ROOT)),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "TQDM_DISABLE": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            **more,
        }
        before = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepended(variable: str, entry: str) -> str:
    return os.pathsep.join(part for part in (entry, os.environ.get(variable)) if part)


def _echo_progress(text: str) -> None:
    for line in text.splitlines():
        if _PROGRESS.match(line):
            print(f"  {line}", flush=True)


def _where(path: Path, error: Any) -> str:
    """The cell, the line of it that was running, and the error."""
    lines = error.source.splitlines()
    frames = (_FRAME.search(_COLOUR.sub("", text)) for text in error.traceback)
    at = next((int(found["line"]) for found in frames if found and int(found["cell"]) == error.exec_count), 0)
    line = f", line {at} ({lines[at - 1].strip()[:80]})" if 0 < at <= len(lines) else ""
    message = " ".join(f"{error.ename}: {error.evalue}".split())
    return f"{path.stem} stopped in cell [{error.exec_count}]{line}: {message}"


def _keep(partial: Path, failed: Path) -> None:
    if partial.exists():
        with paths.writing(failed) as temporary:
            shutil.copyfile(partial, temporary)
            _strip(temporary)


def _strip(path: Path) -> None:
    """Take out what differs between two executions though nothing else does: times, paths, versions."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    for metadata in (notebook.metadata, *(cell.metadata for cell in notebook.cells)):
        metadata.pop("papermill", None)
        metadata.pop("execution", None)
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _is_bar(output)]
    shown = (output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))
    if not any("application/vnd.jupyter.widget-view+json" in data for data in shown):
        notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, path)


def _is_bar(output: Mapping[str, Any]) -> bool:
    """Whether an output is a progress bar; a widget's stands at 0 % for ever once the kernel has gone."""
    shown = output.get("data", {}).get("text/plain", "") or output.get("text", "")
    return output.get("name") != "stdout" and _BAR.match(shown) is not None
