"""Every notebook runs at `smoke` from first cell to last, silently, and leaves a whole result with figures behind."""

import base64
import json

import nbformat
import numpy as np
import pytest
from PIL import Image

from vitlab import notebooks
from vitlab.claims.claims import ALL as CLAIMS

ALL = notebooks.all_notebooks()


def test_the_collection_is_there():
    assert [path.stem.partition("_")[0] for path in ALL] == [*(f"{number:02}" for number in range(13)), "A"]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_runs_at_smoke(path, figures):
    notebooks.execute(path, {"SEED": 1}, "smoke")
    folder = figures / "smoke" / path.stem
    executed = nbformat.read(folder / "notebook.ipynb", as_version=4)
    shown = set()  # pictures in the cells, with their words
    for output in (output for cell in executed.cells for output in cell.get("outputs", ())):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", f"{path.stem} wrote to stderr: {output.text[:300]}"
        data = output.get("data", {})
        assert "application/vnd.jupyter.widget-view+json" not in data, "a control where nobody can turn it"
        for kind in {"image/png", "image/jpeg"} & set(data):
            shown.add((output.metadata[kind]["alt"], base64.b64decode(data[kind])))
    result = json.loads((folder / "result.json").read_text())
    assert (result["preset"], result["seed"], result["notebook"]) == ("smoke", 1, path.stem)
    assert set(result["claims"]) == {name for name, claim in CLAIMS.items() if claim.notebook == path.stem}
    for number in result["live"].values():
        assert number["interval"] is None or number["interval"][0] <= number["interval"][1]
    assert result["figures"]
    for figure in result["figures"].values():
        assert len(figure["alt"]) > 20
        assert (figure["alt"], (folder / figure["file"]).read_bytes()) in shown
        picture = np.asarray(Image.open(folder / figure["file"]).convert("L"))
        assert picture.std() > 2.5, f"{figure['file']} is blank"
    assert list(folder.glob(".partial-*")) == []
