"""Our ViT as timm's, and as the folder in which models are shared on hubs (weights move both ways)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from vitlab import paths
from vitlab.models.vit import ViT

_BODY = "vit_base_patch16_224"  # any of timm's plain ViTs: every size in it is given


def timm_arguments(model: ViT) -> dict[str, Any]:
    """What makes timm's plain VisionTransformer the architecture of `model`.

    Raises:
        ValueError: for a model that timm's class cannot be: a hybrid, or one with the pre-training head's hidden layer.

    >>> from vitlab.models import zoo
    >>> timm_arguments(zoo.create("Lab-Ti/8"))["embed_dim"]
    64
    """
    if type(model) is not ViT:
        raise ValueError(f"a {type(model).__name__} has no counterpart in timm; only the plain ViT can be exported")
    config = model.config
    if config.head != "linear":
        raise ValueError(
            "timm's ViT has no hidden layer before its head (head='tanh'); put a new head on with "
            "models.transfer.with_new_head, or export after fine-tuning"
        )
    return {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.n_heads,
        "mlp_ratio": config.mlp_dim / config.dim,
        "num_classes": config.n_classes,
        "class_token": config.pool == "class",
        "global_pool": "token" if config.pool == "class" else "avg",
        "fc_norm": False,
    }


def as_timm(model: ViT) -> nn.Module:
    """timm's model with the same weights: the same logits to the bit.

    Raises ValueError as `timm_arguments`.

    >>> from vitlab.models import zoo
    >>> type(as_timm(zoo.create("Lab-Ti/8"))).__name__
    'VisionTransformer'
    """
    import timm

    theirs = timm.create_model(_BODY, **timm_arguments(model))
    theirs.load_state_dict(model.state_dict())
    return theirs.train(model.training)


def save_for_hf(folder: Path | str, model: ViT) -> Path:
    """Write the folder (config.json, model.safetensors) that timm and hubs read, whole or not at all.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` and `zoo.load("FOLDER")` give the model back.

    Raises ValueError as `timm_arguments`.

    >>> import tempfile
    >>> from vitlab.models import zoo
    >>> folder = save_for_hf(Path(tempfile.mkdtemp()) / "lab", zoo.create("Lab-Ti/8"))
    >>> sorted(path.name for path in folder.iterdir()), zoo.load(folder).model.embed_dim
    (['config.json', 'model.safetensors'], 64)
    """
    from timm.models import save_for_hf as timms

    theirs, arguments = as_timm(model), timm_arguments(model)
    side = model.config.image_size
    data = {"input_size": (3, side, side), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
    with paths.writing(folder, folder=True) as temporary:
        timms(theirs, str(temporary), model_args=arguments, data_config=data, safe_serialization=True)
    return Path(folder)
