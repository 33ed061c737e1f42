"""Every notebook has the parts a reader relies on, and the committed pair says the same thing twice."""

import re

import nbformat
import pytest

from tools.notebooks import check
from vitlab import notebooks, paths

ALL = notebooks.all_notebooks()
EACH = pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def test_pairs_and_exercises_are_in_step():
    assert check() == []


@EACH
def test_parts_a_reader_relies_on(path):
    """In order; 00, 12 and A argue no claim. What measures this machine's speed is tagged `timed`."""
    cells = read(path).cells
    parts = [r"^# ", r"PRESET = ", r"^### 1 · ", r"[Rr]eferences"]
    if path.stem[:2] not in ("00", "12", "A_"):
        parts[2:2] = [r"[Pp]rediction"] + ([] if path.stem.startswith("02") else [r"[Vv]erdict"])
    text = "\n".join(cell.source for cell in cells)
    assert [part for part in parts if not re.search(part, text, re.MULTILINE)] == []
    parameters = notebooks.parameters(path)
    assert parameters["PRESET"] == "quick" and isinstance(parameters["SEED"], int)
    assert all(isinstance(value, str | bool | int | float) for value in parameters.values())
    for before, cell in zip([None, *cells], cells, strict=False):
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= 25, cell.source[:80]
            assert before is not None and before.cell_type == "markdown", cell.source[:80]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert bool(re.search(r"speed\.measure\(", code)) == bool(notebooks.tagged(path, "timed"))


@EACH
def test_committed_outputs_are_clean(path):
    """Executed at quick, figures inside, no stderr, no error, no place of somebody's machine."""
    notebook = read(path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = sum(bool({"image/png", "image/jpeg"} & set(output.get("data", {}))) for output in outputs)
    saved = len(paths.read_json(paths.ROOT / f"figures/reference/{path.stem}/result.json")["figures"])
    assert shown >= saved > 0, f"{saved} figures are saved, {shown} are shown: not executed, or figures lost"
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)
    assert not re.search(r"/(home|Users|root)/\w", str(outputs))
    assert notebook.metadata.kernelspec.name == "python3" and notebook.metadata.kernelspec.language == "python"
