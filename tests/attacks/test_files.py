"""Files that were cut off or have a flipped bit: what was written is read, or the file is refused by its name.

Of a format that carries a checksum (checkpoints, stored runs, .npz), another value than was written is a failure; of
one that carries none (weights alone, pictures, notebooks, result.json), another value is to be expected, and what
counts is that nothing crashes, hangs or takes the memory. CIFAR's batches are left out: torchvision compares their MD5.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attacks import outcomes
from attacks.outcomes import LONG, REFUSED, RIGHT

pytestmark = pytest.mark.slow
CUTS, FLIPS = 64, 64  # of each file, in the bounded run
SECONDS = 10.0  # for reading one file


@dataclass(frozen=True)
class Format:
    """A file that is read: where it lies in its folder, how it is read, and whether a change in it must be seen."""

    name: str
    path: str  # in the folder
    read: Callable[[Path], Any]  # given the folder; the value, which can be compared, or an error that names `named`
    checked: bool  # carries a checksum
    named: str = ""  # what the error has to name; the file, unless it is said otherwise


def _weights(folder: Path) -> Any:
    from vitlab.models import zoo

    path = next(folder.glob("weights.*"))
    loaded = zoo.load(path if path.suffix == ".safetensors" else f"ViT-B/16@{path}")
    return {name: value.numpy().tobytes() for name, value in loaded.model.state_dict().items()}


def _arrays(folder: Path) -> Any:
    from vitlab.models import weights

    state, metadata = weights.read(folder / "weights.npz")
    return {name: value.numpy().tobytes() for name, value in state.items()}, metadata


def _checkpoint(folder: Path) -> Any:
    import torch

    from vitlab.training import checkpoint

    found = checkpoint.newest(folder)
    written = io.BytesIO()
    torch.save(found.rest, written)
    return {name: value.numpy().tobytes() for name, value in found.weights.items()}, written.getvalue()


def _run(folder: Path) -> Any:
    from vitlab.sweep import results

    found = results.read(folder / "run.json", {"size": 1})
    if found is None:  # moved aside, with a word: the run is done again
        if not (folder / "run.corrupt").exists():
            raise AssertionError("gone, and not kept as corrupt")
        raise ValueError(f"{folder / 'run.json'} is corrupt")
    return found


def _report(folder: Path) -> Any:
    from vitlab.ledger import report

    return report.build(folder, folder / "reference", "quick", ["01_vit"])


def _pictures(folder: Path) -> Any:
    from vitlab.data import datasets, folders

    opened = folders.open_folder(folder, image_size=8)
    folders.check_headers(opened)
    next(iter(opened.chunks(4)))
    return datasets.load(folder, image_size=8).images.numpy().tobytes()


def _notebook(folder: Path) -> Any:
    from vitlab.exercises import check

    return check.hand_in(folder / "01_mine.ipynb")


def _exported(folder: Path) -> Any:
    from vitlab.models import zoo

    return {name: value.numpy().tobytes() for name, value in zoo.load(folder).model.state_dict().items()}


FORMATS = (
    Format("weights.safetensors", "weights.safetensors", _weights, checked=False),
    Format("weights.npz", "weights.npz", _arrays, checked=True),
    Format("checkpoint: weights", "step_00000003/model.safetensors", _checkpoint, checked=True, named="step_00000003"),
    Format("checkpoint: the rest", "step_00000003/resume.pt", _checkpoint, checked=True, named="step_00000003"),
    Format("checkpoint: sums", "step_00000003/sha256.json", _checkpoint, checked=True, named="step_00000003"),
    Format("stored run", "run.json", _run, checked=True),
    Format("result.json", "01_vit/result.json", _report, checked=False),
    Format("picture.png", "ant/1.png", _pictures, checked=False),
    Format("picture.jpg", "ant/1.jpg", _pictures, checked=False),
    Format("picture.bmp", "ant/1.bmp", _pictures, checked=False),
    Format("notebook", "01_mine.ipynb", _notebook, checked=False),
    Format("export: config.json", "config.json", _exported, checked=False, named="copy"),  # the folder
)


def whole(root: Path) -> dict[str, Path]:
    """A folder for each format, with the file as it was written."""
    import numpy as np
    from PIL import Image

    from vitlab import paths
    from vitlab.models import weights, zoo
    from vitlab.sweep import presets, results
    from vitlab.training import checkpoint

    folders = {each.name: root / each.name.replace(":", "").replace(" ", "_") for each in FORMATS}
    for each in FORMATS:
        (folders[each.name] / each.path).parent.mkdir(parents=True)
    model = zoo.create("Lab-Mu/8", image_size=8, n_classes=2)
    zoo.save(folders["weights.safetensors"] / "weights.safetensors", model, "Lab-Mu/8", {"steps": 3})
    np.savez(folders["weights.npz"] / "weights.npz", **_released())
    for name in ("weights", "the rest", "sums"):
        rest = {"step": 3, "rows": [{"loss": 0.5}], "optimizer": {"state": model.state_dict()}}
        checkpoint.save(folders[f"checkpoint: {name}"], model, model.state_dict(), rest, name="Lab-Mu/8")
    rows = [{"step": step, "accuracy": 0.1 * step} for step in range(20)]
    paths.write_json(folders["stored run"] / "run.json", results.result(presets.check, {"size": 1}, rows, 0.5))
    shutil.copy(next(paths.reference_dir("quick").glob("01_*/result.json")), folders["result.json"] / "01_vit")
    for ending in ("png", "jpg", "bmp"):
        Image.effect_noise((24, 20), 60).convert("RGB").save(folders[f"picture.{ending}"] / "ant" / f"1.{ending}")
    cells = [{"cell_type": "markdown", "source": ["# 01 · ViT\\n", "text"]}, {"cell_type": "code", "source": "x = 1"}]
    (folders["notebook"] / "01_mine.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    weights.save_for_hf(folders["export: config.json"], model)
    return folders


def _released() -> dict[str, Any]:
    """The arrays of a very small ViT under the names of the authors' release."""
    import numpy as np

    draw = np.random.default_rng(0)
    dim, heads = 8, 2
    block, attention = "Transformer/encoderblock_0", "MultiHeadDotProductAttention_1"
    shapes = {"embedding/kernel": (4, 4, 3, dim), "embedding/bias": (dim,), "cls": (1, 1, dim)}
    shapes |= {"Transformer/posembed_input/pos_embedding": (1, 5, dim), "head/kernel": (dim, 3), "head/bias": (3,)}
    shapes |= {f"{block}/{attention}/{part}/kernel": (dim, heads, dim // heads) for part in ("query", "key", "value")}
    shapes |= {f"{block}/{attention}/{part}/bias": (heads, dim // heads) for part in ("query", "key", "value")}
    shapes |= {f"{block}/MlpBlock_3/Dense_0/kernel": (dim, 16), f"{block}/MlpBlock_3/Dense_0/bias": (16,)}
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def damaged(kind: Format, source: Path, written: bytes, good: Any) -> str:
    """Read a copy of a folder whose one file holds other bytes; says how it ended."""
    box = Path(tempfile.mkdtemp(dir=Path.cwd()))
    shutil.copytree(source, box / "copy")
    (box / "copy" / kind.path).write_bytes(written)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = kind.read(box / "copy")
    except (ValueError, OSError, RuntimeError) as error:
        named = kind.named or Path(kind.path).name
        return REFUSED if named in str(error) else f"{type(error).__name__} that does not name {named}: {error!s:.300}"
    finally:
        shutil.rmtree(box, ignore_errors=True)
    return RIGHT if value == good or not kind.checked else "another value than was written, and no word of it"


def lots() -> Iterator[outcomes.Lot]:
    """For each format a lot of files cut off, and one of flipped bits; then in the long run more bits, and more."""
    root = Path(tempfile.mkdtemp(prefix="vitlab-attack-"))
    folders = whole(root)
    good = {each.name: each.read(folders[each.name]) for each in FORMATS}
    number = itertools.count()
    for kind in FORMATS:
        content = (folders[kind.name] / kind.path).read_bytes()
        ends = sorted({len(content) * k // CUTS for k in range(CUTS)})
        yield next(number), [_one(kind, folders, good, content[:end], f"cut at {end}") for end in ends]
    for _ in itertools.count() if LONG else range(1):
        for kind in FORMATS:
            content, chosen = (folders[kind.name] / kind.path).read_bytes(), next(number)
            draw = outcomes.draw(chosen)
            places = [draw.randrange(8 * len(content)) for _ in range(FLIPS)]
            yield chosen, [_one(kind, folders, good, _flipped(content, at), f"bit {at} flipped") for at in places]


def _one(kind: Format, folders: dict[str, Path], good: dict[str, Any], content: bytes, how: str) -> outcomes.Try:
    what = f"{kind.name} of {len(content):,} bytes, {how}"
    return what, partial(damaged, kind, folders[kind.name], content, good[kind.name])


def _flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def test_damaged_files_are_refused_by_name(attack):
    attack("files")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    outcomes.count("files", lots(), SECONDS)
