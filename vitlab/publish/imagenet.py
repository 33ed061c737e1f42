"""For maintainers: notebooks 06–09 with a ViT that was really trained on ImageNet, as a reference (Fig. 6, 7, 10, 11).

On a machine with a network the weights are a timm name and are downloaded; without one, NAME@FILE:

    python -m vitlab.publish imagenet --weights vit_tiny_patch16_224

Of the photographs only those are drawn that come with the dependencies and those of photos/ in $VITLAB_DATA, which have
to be free; distances are averaged over whatever 08 finds there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from vitlab import notebooks, paths
from vitlab.ledger.beside import FOLDER, plain_name
from vitlab.publish.reference import refuse_paths

WEIGHTS = "vit_tiny_patch16_224"  # timm's ViT-Ti/16
NOTEBOOKS = ("06", "07", "08", "09")
_PARAMETERS = ("weights", "world_weights")  # of the notebooks, that name the model
# What 07 and 08 show of the trainings of `local_heads`, whatever WEIGHTS are: nothing of these weights.
_OF_TRAININGS = ("maps_of_trainings", "trainings", "local_shares", "heads_coming_about", "L01", "L02")
_LARGEST = 300_000  # bytes of a picture that is committed as it is; with a palette it has a third of them
_RUN = "import sys; from vitlab.cli.main import main; sys.exit(main(sys.argv[1:]))"


def imagenet(weights: str = WEIGHTS, preset: str = "quick", about: str = "", which: Sequence[str] = ()) -> list[Path]:
    """Run notebooks 06–09, or `which` of them, with these weights, and take the results over; returns their folders.

    They run into figures/imagenet and go from there to figures/reference/imagenet: result.json and the PNG files, with
    what the weights are (`name`, `about`, the hash of what was loaded) in place of where they lie.

    Raises:
        ValueError: a notebook failed, or a result shows a path of this machine.
    """
    chosen = [notebooks.find(name).stem for name in which or NOTEBOOKS]
    figures = paths.figures_dir() / FOLDER
    settings = [f"{name}={weights}" for name in ("WEIGHTS", "WORLD_WEIGHTS") if name == "WEIGHTS" or _has_world(chosen)]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-c", _RUN, "run", *(stem[:2] for stem in chosen), "--preset", preset, *options]
    if subprocess.run(command, env={**os.environ, "VITLAB_FIGURES": str(figures)}).returncode:
        raise ValueError(f"a notebook failed with the weights {weights}: see above; nothing was taken over")
    told, place = what(weights, about), weights.partition("@")[2]
    return [take_over(figures / preset / stem, paths.reference_dir(FOLDER) / stem, told, place) for stem in chosen]


def _has_world(chosen: Sequence[str]) -> bool:
    """Whether a notebook is among them that looks at a second model, of images with masks."""
    return any("WORLD_WEIGHTS" in notebooks.parameters(notebooks.find(stem)) for stem in chosen)


def what(weights: str, about: str = "") -> dict[str, Any]:
    """What weights are, without a place of this machine: name, words, number of parameters, hash of the values.

    >>> what("lab-world")["parameters"] > 500_000
    True
    """
    from vitlab.models import zoo  # brings torch, which takes seconds
    from vitlab.models.weights import values_hash

    state = zoo.load(weights).model.state_dict()
    count = sum(tensor.numel() for tensor in state.values())
    return {"name": plain_name(weights), "about": about, "parameters": count, "sha256": values_hash(state)}


def take_over(results: Path, target: Path, weights: dict[str, Any], place: str = "") -> Path:
    """Copy a notebook's result.json and PNG files into `target`, which has nothing else afterwards; returns it.

    What a notebook shows of other trainings stays behind. The result says what `weights` were used, not at which
    `place` on this machine; large pictures get a palette.

    Raises:
        ValueError: the result still shows a path of this machine.
    """
    result = paths.read_json(results / "result.json")
    result["weights"] = weights
    result["parameters"] |= {name: weights["name"] for name in _PARAMETERS if name in result["parameters"]}
    result["figures"] = {name: figure for name, figure in result["figures"].items() if name not in _OF_TRAININGS}
    result["results"] = [entry for entry in result["results"] if entry["claim"] not in _OF_TRAININGS]
    for figure in result["figures"].values():
        figure.pop("svg", None)
    text = json.dumps(result)
    refuse_paths(text, str(results / "result.json"))
    if place and place in text:
        raise ValueError(f"{results / 'result.json'} shows where the weights lie, {place}: print names, not places")
    with paths.writing(target, folder=True) as folder:
        for figure in result["figures"].values():
            name, content = figure["png"], small(results / figure["png"])
            (folder / name).write_bytes(content)
            figure["sha256"] = hashlib.sha256(content).hexdigest()
        paths.write_json(folder / "result.json", result)
    return target


def small(path: Path) -> bytes:
    """The bytes of a PNG file, with a palette where it has more than 300 kB."""
    content = path.read_bytes()
    if len(content) <= _LARGEST:
        return content
    from vitlab.plots.png import with_palette  # brings matplotlib

    with Image.open(path) as image:
        return with_palette(image)
