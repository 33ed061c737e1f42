"""vitlab: "An Image Is Worth 16x16 Words" (Dosovitskiy et al., ICLR 2021) as a working laboratory."""

import importlib
import operator
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
