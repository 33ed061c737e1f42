"""This run's figures and numbers beside those of a ViT that was really trained on ImageNet (Fig. 6, 7, 10, 11, 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vitlab import paths
from vitlab.ledger.study import Study

FOLDER = "imagenet"  # in figures/reference, beside the presets
_MISSING = (
    "There is no reference of a ViT trained on ImageNet for this notebook in `figures/reference/imagenet`: "
    "`python -m vitlab.publish imagenet` makes it."
)


def beside_imagenet(
    study: Study, figure: str, more: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType({})
) -> tuple[dict[str, Path], str]:
    """The pictures of one figure, this run's and the reference's, by title; and the numbers of both in words.

    `study` has concluded its verdict. `more` are further things to tell, by name: each makes words of a result.json,
    once of this run's and once of the reference's. Without a reference there is no picture, and the words say how to
    make one.

    >>> from vitlab import ledger
    >>> pictures, words = beside_imagenet(ledger.begin("99_nothing", "smoke", 0), "lines")
    >>> len(pictures), words[:41]
    (0, 'There is no reference of a ViT trained on')
    """
    folder = paths.reference_dir(FOLDER) / study.notebook
    try:
        there = paths.read_json(folder / "result.json")
    except FileNotFoundError:
        return {}, _MISSING
    here = paths.read_json(study.folder / "result.json")
    name = there["weights"]["name"]
    pictures = {
        f"this run: {plain_name(study.parameters['weights'])}": study.folder / f"{figure}.png",
        f"{name}, trained on ImageNet": folder / f"{figure}.png",
    }
    about = there["weights"].get("about")
    told = [in_words(here, there, f"`{name}`"), *([f"`{name}` is {about}."] if about else [])]
    told += [f"{what}: {words(here)} here; {words(there)} there." for what, words in more.items()]
    if not all(path.is_file() for path in pictures.values()):
        return {}, " ".join(told)
    return pictures, " ".join(told)


def in_words(here: Mapping[str, Any], there: Mapping[str, Any], name: str) -> str:
    """Every number that two results have in common, and the verdicts, in a sentence; `name` is that of the second.

    >>> row = {"claim": "C11", "metric": "share", "value": 0.5, "unit": "", "verdict": "reproduced"}
    >>> in_words({"results": [row]}, {"results": [row | {"value": 0.25, "verdict": "inconclusive"}]}, "timm's")
    "Here and in timm's: share 0.50 and 0.25. C11 is reproduced here and inconclusive there."
    """
    second = {(entry["claim"], entry["metric"]): entry for entry in there["results"]}
    numbers, verdicts = [], {}
    for entry in here["results"]:
        other = second.get((entry["claim"], entry["metric"]))
        if other is not None:
            largest = max(abs(entry["value"]), abs(other["value"]))
            digits = 2 if largest < 2 else 1 if largest < 20 else 0
            numbers.append(f"{entry['metric']} {_number(entry, digits)} and {_number(other, digits)}")
            verdicts[entry["claim"]] = (entry["verdict"], other["verdict"])
    if not numbers:
        return f"This run and {name} have no number in common."
    told = [f"{claim} is {ours} here and {theirs} there." for claim, (ours, theirs) in verdicts.items()]
    return " ".join([f"Here and in {name}: {'; '.join(numbers)}.", *told])


def _number(entry: Mapping[str, Any], digits: int) -> str:
    value = round(entry["value"], digits) + 0.0  # −0 becomes 0
    return f"{value:.{digits}f} {entry['unit']}".strip().replace("-", "−")


def plain_name(weights: str) -> str:
    """Weights as they are called, without the place of a file.

    >>> plain_name("vit_tiny_patch16_224@weights/tiny.safetensors"), plain_name("weights/mine.safetensors")
    ('vit_tiny_patch16_224', 'mine')
    """
    name = weights.partition("@")[0]
    return Path(name).stem if name.endswith(".safetensors") else name
