"""The model that a file written by `zoo.save` describes, built only where the file's own tensors bear it out."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitlab.models import hub, limits
from vitlab.models.variants import Variant, VariantConfig
from vitlab.models.vit import ViT, ViTConfig


def described(
    text: str, path: Path, seed: int, state: Mapping[str, Tensor]
) -> tuple[Callable[[], nn.Module], nn.Module, dict[str, Any]]:
    """The model that `text`, in the file at `path`, describes: what builds it, its shapes, and the whole description.

    It has no more blocks than the file has tensors; its shapes are for the caller to compare. No network is asked.

    Raises:
        ValueError: for a description that cannot be used.
    """
    try:
        record = json.loads(text)
        settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in record["config"].items()}
        record["model"], record["about"]  # must be there too
        settings.pop("drop_path", None)  # of stochastic depth: in files of version 0.1, without effect on the logits
        limits.check_depth(settings, state, path)
        limits.check_image_size(settings)
        build = _builder(record["class"], record["model"], settings, seed)
        return build, limits.shapes(build), record
    except (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} says it is vitlab's, but its description cannot be used ({why}); it may be of another version"
        ) from error


def _builder(kind: str, name: str, settings: dict[str, Any], seed: int) -> Callable[[], nn.Module]:
    if kind == "ViT":
        return partial(ViT, ViTConfig(**settings), seed)
    if kind == "Variant":
        return partial(Variant, VariantConfig(**settings), seed)
    if kind == "BiT":
        from vitlab.models.resnet import BiT, BiTConfig  # brings timm, which takes seconds

        return partial(BiT, BiTConfig(**settings), seed)
    if kind == "Hybrid":
        from vitlab.models.hybrid import Hybrid, HybridConfig

        return partial(Hybrid, HybridConfig(**settings), seed)
    return partial(hub.build, hub.spelled(hub.cached(name)), settings, seed)
