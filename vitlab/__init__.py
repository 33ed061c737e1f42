"""vitlab: "An Image Is Worth 16x16 Words" (Dosovitskiy et al., ICLR 2021) as a working laboratory."""

import functools
import importlib
import operator
import pkgutil
from typing import Any

__version__ = "0.3.0"
_OFFERED = {  # what `vitlab.NAME` is, imported on first use
    "load": "models.zoo:load",
    "create": "models.zoo:create",
    "prepare": "models.zoo:Pretrained.prepare",
    "attention_maps": "analysis.attention:attention_maps",
    "attention_distance": "analysis.distance:mean_attention_distance",
    "attention_rollout": "analysis.rollout:attention_rollout",
    "position_similarity": "analysis.positions:position_similarity",
    "filter_components": "analysis.filters:filter_components",
    "few_shot": "probes:few_shot",
    "analyse": "overview:analyse",
    "pretrain": "training.loop:train",
    "finetune": "training.finetune:finetune",
}


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module 'vitlab' has no attribute {name!r}; it offers {', '.join(_OFFERED)}")
    module, _, attribute = _OFFERED[name].partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(f"vitlab.{module}"))


def __dir__() -> list[str]:
    return [*_OFFERED, "__version__"]


def _module(package: str, names: list[str], name: str) -> Any:
    if name not in names:
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}")


for _each in (
    "analysis",
    "data",
    "models",
    "studies",
    "training",
):  # which offer their modules as vitlab does the above
    _part = importlib.import_module(f"vitlab.{_each}")
    _names = [each.name for each in pkgutil.iter_modules(_part.__path__)]
    vars(_part).update(__getattr__=functools.partial(_module, _part.__name__, _names), __dir__=_names.copy)
