"""For maintainers: this machine's results become the reference that is committed and shown (all sections)."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab import notebooks, paths
from vitlab.publish.source import from_source, read, sources, write

if TYPE_CHECKING:
    from nbformat import NotebookNode


def reference(folder: Path, preset: str, which: Sequence[str] = ()) -> list[Path]:
    """Make this machine's results of a preset the reference, and (quick) its outputs the notebooks' own.

    Everything is checked before anything is written.

    Raises:
        ValueError: a notebook has not run to its end, was run from another source or with other parameters
            than its defaults, wrote to stderr, or shows a path of this machine.
    """
    chosen = [notebooks.find(name) for name in which] or [folder / f"{path.stem}.ipynb" for path in sources(folder)]
    executed = {}
    for path in chosen:
        results = paths.figures_dir() / preset / path.stem
        if not has_run(results):
            raise ValueError(f"{path.stem} has not run to its end at preset {preset}: vitlab run {path.stem[:2]}")
        executed[path] = with_outputs(folder / "source" / f"{path.stem}.py", results / "notebook.ipynb", PRESET=preset)
        for shown in (results / "result.json", *results.glob("*.svg")):
            refuse_paths(shown.read_text(encoding="utf-8"), str(shown))
    for path, notebook in executed.items():
        _copy_results(paths.figures_dir() / preset / path.stem, paths.reference_dir(preset) / path.stem)
        if preset == "quick":
            write(notebook, path)
    return list(executed)


def has_run(folder: Path) -> bool:
    """Whether the results in a notebook's folder are of an execution that came to its end, the last one.

    A notebook that fails, or is killed, may have entered results before that: they are newer than the last whole
    execution, which is written when all cells have run.

    >>> has_run(Path("nothing of this name"))
    False
    """
    result, executed = folder / "result.json", folder / "notebook.ipynb"
    if not result.exists() or not executed.exists() or (folder / "notebook.failed.ipynb").exists():
        return False
    return result.stat().st_mtime_ns <= executed.stat().st_mtime_ns


def with_outputs(source: Path, executed: Path, **parameters: object) -> NotebookNode:
    """The notebook of a source with the outputs of an execution of it, with these parameters and else the defaults.

    Raises:
        ValueError: it was run from another source or with other parameters, wrote to stderr, or shows a path.
    """
    wanted, done = from_source(source), read(executed)
    defaults = notebooks.parameters(executed) | parameters
    for cell in [cell for cell in done.cells if "injected-parameters" in cell.metadata.get("tags", ())]:
        done.cells.remove(cell)
        for name, value in _assigned(cell.source):
            if defaults.get(name) != value:
                expected = f"expected {defaults[name]!r}" if name in parameters else "a reference is run as it stands"
                raise ValueError(f"{source.stem} was run with {name} = {value!r}: {expected}")
    if [cell.source for cell in done.cells] != [cell.source for cell in wanted.cells]:
        raise ValueError(f"{source.stem} has changed since it was run: vitlab run {source.stem[:2]}")
    count = 0
    for cell, other in zip(done.cells, wanted.cells, strict=True):
        if other.cell_type != "code":
            continue
        count += 1
        other.outputs, other.execution_count = cell.outputs, count
        for output in other.outputs:
            if output.get("name") == "stderr":
                raise ValueError(f"{source.stem}, cell [{count}] wrote to stderr: {output.text.strip()[:200]}")
            if "execution_count" in output:
                output.execution_count = count
            refuse_paths(str(dict(output)), f"{source.stem}, cell [{count}]")
    if "widgets" in done.metadata:
        wanted.metadata["widgets"] = done.metadata["widgets"]
    return wanted


def _assigned(text: str) -> Iterator[tuple[str, Any]]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.literal_eval(node.value)


def refuse_paths(text: str, where: str) -> None:
    """Raises ValueError where a text shows the checkout's place or the home folder; `where` names the text."""
    for path in (paths.ROOT, Path.home()):
        if len(path.parts) > 1 and re.search(rf"{re.escape(str(path))}(?![\w-])", text):
            raise ValueError(f"{where} shows a path of this machine, {path}: print names, not places")


def _copy_results(results: Path, target: Path) -> None:
    wanted = [path for pattern in ("*.png", "*.svg", "result.json") for path in sorted(results.glob(pattern))]
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name not in {path.name for path in wanted}:
            old.unlink()
    for path in wanted:
        with paths.writing(target / path.name) as temporary:
            shutil.copyfile(path, temporary)
