"""Finds the notebooks by number and executes them from first to last cell (every section of the paper)."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from vitlab import files

_NAME = re.compile(r"(\d\d)_[a-z0-9_]+\.ipynb")
_BAR = re.compile(r"\s*([^\n|]*:)?\s*\d+%\|")
_PROGRESS = re.compile(r"\[\d+/\d+\] ")  # the lines of experiments.runner
Task = tuple[Path, dict[str, Any], Path]  # a notebook, what to set in it, and where its execution goes
Outcome = tuple[str, str]  # "done" and the time, or what happened instead and why
Outcomes = Callable[[Callable[[Task], Outcome], Sequence[Task]], Iterable[tuple[Task, Outcome]]]


def notebooks_dir() -> Path:
    """Folder of the notebooks in the checkout.

    >>> notebooks_dir().name
    'notebooks'
    """
    return files.ROOT / "notebooks"


def all_notebooks() -> list[Path]:
    """Every notebook, in the order of the numbers.

    >>> all(path.suffix == ".ipynb" for path in all_notebooks())
    True
    """
    return sorted(path for path in notebooks_dir().glob("*.ipynb") if _NAME.fullmatch(path.name))


def find(which: str | int) -> Path:
    """The notebook with a number ("08", "8", 8) or a name ("08_attention_distance", "attention_distance").

    Raises:
        ValueError: there is no such notebook; the message lists those there are.
        FileNotFoundError: there are no notebooks: the package was installed without its checkout.
    """
    known = all_notebooks()
    if not known:
        raise FileNotFoundError(f"no notebooks in {notebooks_dir()}: run vitlab from a checkout of the repository")
    wanted = str(which).removesuffix(".ipynb")
    for path in known:
        number, _, slug = path.stem.partition("_")
        if wanted in (path.stem, slug) or wanted.isdecimal() and int(wanted) == int(number):
            return path
    raise ValueError(f"unknown notebook {str(which)!r}: choose from {', '.join(path.stem for path in known)}")


def parameters(path: Path | str) -> dict[str, Any]:
    """Names and default values that a notebook's cell tagged `parameters` sets; empty without such a cell.

    Raises:
        ValueError: the file is no notebook, or a parameter is not set to a plain number, string or boolean.
    """
    notebook, found = files.read_json(path), {}
    for cell in notebook.get("cells", ()):
        if "parameters" not in cell.get("metadata", {}).get("tags", ()):
            continue
        for node in ast.parse("".join(cell["source"])).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and getattr(node, "value", None) is not None:
                found[target.id] = _literal(node.value, target.id, path)
    return found


def _literal(node: ast.expr, name: str, path: Path | str) -> Any:
    with contextlib.suppress(ValueError):
        value = ast.literal_eval(node)
        if value is None or isinstance(value, str | bool | int | float):
            return value
    raise ValueError(f"{path}: parameter {name} must be set to a plain number, string, boolean or None")


def parse(name: str, text: str, default: Any) -> Any:
    """A value given on the command line, as the type of its default.

    Raises:
        ValueError: the text is no such value.

    >>> parse("SEED", "3", 0), parse("RATE", "1e-3", 0.1), parse("RETRAIN", "yes", False)
    (3, 0.001, True)
    >>> parse("SEED", "three", 0)
    Traceback (most recent call last):
    ValueError: SEED=three: expected a whole number, as its default 0
    """
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    kind = next((kind for kind in (bool, int, float, str) if isinstance(default, kind)), None)
    try:
        if kind is bool:
            return words[text.lower()]
        if kind is not None:
            return kind(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"{name}={text}: expected {expected}, as its default {default!r}") from None
    with contextlib.suppress(ValueError, SyntaxError):  # a default of None says nothing about the type
        return ast.literal_eval(text)
    return text


def check_settings(paths: Sequence[Path], settings: Mapping[str, str]) -> dict[Path, dict[str, Any]]:
    """What to set in each notebook, from the texts given for all of them; checked before anything runs.

    A key may be written in lower case; a notebook that does not have it runs without.

    Raises:
        ValueError: a key that none of the notebooks has (the message lists what each has), or a value that
            does not fit the default's type.
    """
    known = {path: parameters(path) for path in paths}
    chosen: dict[Path, dict[str, Any]] = {path: {} for path in paths}
    for key, text in settings.items():
        name = key.upper()
        having = [path for path in paths if name in known[path]]
        if not having:
            there = "; ".join(f"{path.stem}: {', '.join(known[path]) or 'none'}" for path in paths)
            raise ValueError(f"--set {key}={text}: no chosen notebook has a parameter {name}. There are {there}")
        for path in having:
            chosen[path][name] = parse(name, text, known[path][name])
    return chosen


def run(
    paths: Sequence[Path],
    preset: str,
    settings: Mapping[Path, Mapping[str, Any]],
    outcomes: Outcomes | None = None,
) -> list[str]:
    """Execute notebooks into the preset's figures folder; returns what went wrong.

    One after the other in this process, or by `outcomes(execute one, all)`, which yields them as they end. A notebook
    that fails does not stop the others. Two processes never execute into one folder at a time: the second waits.
    Prints a line for each notebook with its time.
    """
    tasks, failures = [_task(path, preset, settings.get(path, {})) for path in paths], []
    for (path, _, _), (word, message) in (outcomes or _one_by_one)(executed, tasks):
        if word != "done":
            failures.append(message if path.stem in message else f"{path.stem} {word}: {message}")
            print(f"vitlab: {failures[-1]}", file=sys.stderr, flush=True)
        print(f"{path.stem}: {message if word == 'done' else word}", flush=True)
    return failures


def _task(path: Path, preset: str, settings: Mapping[str, Any]) -> Task:
    values = dict(settings) | ({"PRESET": preset} if "PRESET" in parameters(path) else {})
    return path, values, files.figures_dir() / preset / path.stem / "notebook.ipynb"


def _one_by_one(work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
    return ((task, work(task)) for task in tasks)


def executed(task: Task, environment: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    """Execute one notebook, while nobody else executes into its folder, and say how it went.

    `environment`: variables that its kernel has beside this process's.
    """
    path, values, out = task
    started = time.perf_counter()
    try:
        with files.lock(out.parent):
            execute(path, values, out, environment)
    except RuntimeError as error:
        return f"failed after {time.perf_counter() - started:.1f} s", str(error)
    return "done", f"{time.perf_counter() - started:.1f} s"


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
    with files.writing(out) as temporary, _kernel_environment(out, environment):
        try:
            papermill.execute_notebook(
                path,
                temporary,
                parameters=dict(values),
                kernel_name="python3",
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


@contextlib.contextmanager
def _kernel_environment(out: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Environment in which "python3" is this very interpreter, whatever kernels the machine has."""
    from ipykernel.kernelspec import get_kernel_dict

    folder = files.beside(out.with_name("kernel"))
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    try:
        kernel = get_kernel_dict()  # its command begins with sys.executable
        kernel["argv"] = [*kernel["argv"], "--IPKernelApp.log_level=50"]  # its own talk is of no use here
        spec.write_text(json.dumps(kernel))
        changes = {
            "JUPYTER_PATH": _prepended("JUPYTER_PATH", str(folder)),
            "PYTHONPATH": _prepended("PYTHONPATH", str(files.ROOT)),
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
    lines = [line.strip() for line in error.source.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    message = " ".join(f"{error.ename}: {error.evalue}".split())
    return f"{path.stem} stopped in cell [{error.exec_count}] ({first[:60]}): {message}"


def _keep(partial: Path, failed: Path) -> None:
    if partial.exists():
        with files.writing(failed) as temporary:
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
