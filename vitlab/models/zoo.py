"""Name → model: Table 1, lab sizes for a CPU, and any timm name; and models with weights, by name or file."""

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitlab.models import described, hub, limits, variants
from vitlab.models import weights as weights_file
from vitlab.models.pretrained import Pretrained, pretrained
from vitlab.models.vit import ViT

VIT_SIZES: dict[str, dict[str, int]] = {
    # Table 1
    "ViT-B": {"dim": 768, "depth": 12, "n_heads": 12, "mlp_dim": 3072, "image_size": 224, "n_classes": 1000},
    "ViT-L": {"dim": 1024, "depth": 24, "n_heads": 16, "mlp_dim": 4096, "image_size": 224, "n_classes": 1000},
    "ViT-H": {"dim": 1280, "depth": 32, "n_heads": 16, "mlp_dim": 5120, "image_size": 224, "n_classes": 1000},
    # lab sizes: a laptop's CPU trains them on 32-pixel images
    "Lab-Mu": {"dim": 32, "depth": 2, "n_heads": 2, "mlp_dim": 128, "image_size": 32, "n_classes": 10},
    "Lab-Ti": {"dim": 64, "depth": 4, "n_heads": 4, "mlp_dim": 256, "image_size": 32, "n_classes": 10},
    "Lab-S": {"dim": 96, "depth": 6, "n_heads": 4, "mlp_dim": 384, "image_size": 32, "n_classes": 10},
    "Lab-M": {"dim": 128, "depth": 6, "n_heads": 4, "mlp_dim": 512, "image_size": 32, "n_classes": 10},
    "Lab-B": {"dim": 192, "depth": 8, "n_heads": 6, "mlp_dim": 768, "image_size": 32, "n_classes": 10},
}
# One body per size, as for the ViT, whose body stays when its patch changes: with a stem of stride P / 4,
# "BiT-Lab-Ti/P" does as many FLOPs as "Lab-Ti/P", within 15 %. Of the bodies that do, shallow ones at high
# resolution learned best in short trainings.
BIT_SIZES: dict[str, dict[str, Any]] = {
    "BiT-Lab-Mu": {"width": 8, "layers": (1, 1)},
    "BiT-Lab-Ti": {"width": 16, "layers": (1, 1, 1, 1)},
    "BiT-Lab-S": {"width": 32, "layers": (1, 1, 1)},
    "BiT-Lab-M": {"width": 40, "layers": (1, 1, 1)},
    "BiT-Lab-B": {"width": 64, "layers": (1, 1, 1, 1)},
}
# Channels of a hybrid's ResNet (models/hybrid.py). As in the paper's R50+ViT-B, the ResNet does about as much as the
# ViT where the sequence is short ("/16" at 32 px, the paper's "/32"), and about a third where it is long ("/8").
# R+Lab-Mu has the narrowest ResNet there can be, and does twice the FLOPs of Lab-Mu/8.
HYBRID_WIDTHS = {"R+Lab-Mu": 8, "R+Lab-Ti": 8, "R+Lab-S": 16, "R+Lab-M": 16, "R+Lab-B": 32}
_LONGEST_PATCH = 4  # digits
# Name → file in data/.
BUNDLED = {name: f"{name}.safetensors" for name in ("lab", "lab-masked", "lab-hybrid", "lab-world")}
_SIZES = (*VIT_SIZES, *BIT_SIZES, *HYBRID_WIDTHS)
_FILE_ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".npz", ".h5")
_HEADS = ("head.weight", "head.fc.weight", "fc.weight", "classifier.weight")  # whose rows are the classes


def names() -> tuple[str, ...]:
    """The names `create` knows beside timm's, with the usual patch sizes; any other may be written.

    >>> "ViT-B/16" in names(), "Lab-Ti/8" in names(), "BiT-Lab-Ti/4" in names(), "R+Lab-Ti/16" in names()
    (True, True, True, True)
    """
    patches = {"ViT-B": (16, 32), "ViT-L": (16, 32), "ViT-H": (14,)} | dict.fromkeys(HYBRID_WIDTHS, (8, 16))
    return tuple(f"{size}/{p}" for size in _SIZES for p in patches.get(size, (4, 8)))


def create(
    name: str,
    *,
    n_classes: int | None = None,
    image_size: int | None = None,
    head: str | None = None,
    dropout: float | None = None,
    pool: str | None = None,
    positions: str | None = None,
    placed: str | None = None,
    attention: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """A model with fresh weights, drawn from `seed` alone.

    `name` is one of Table 1 ("ViT-L/16"; 224 px and 1000 classes unless said otherwise), a lab size
    ("Lab-Ti/8"; 32 px, 10 classes), the ResNet of the same compute ("BiT-Lab-Ti/8"; "BiT-Lab-Ti" is short
    for a patch of 4), a lab-size hybrid ("R+Lab-Ti/16": the ResNet's total stride, as in the paper's
    "R50+ViT-B/16"), or any name of timm's. Upper and lower case are the same.

    A ViT has the options of App. D: `pool`, "class" or "gap" (a hybrid has it too); `positions`, "none", "1d", "2d" or
    "relative"; `placed`, "stem", "every block" or "shared"; `attention`, "full" or "axial"; see `variants`.

    Raises:
        ValueError: for an unknown name (the nearest are named), or a setting the model does not have; also for images
            larger than `limits.MAX_IMAGE_SIZE`.

    >>> create("lab-ti/8", n_classes=3).head
    Linear(in_features=64, out_features=3, bias=True)
    """
    settings = {"n_classes": n_classes, "image_size": image_size, "head": head, "dropout": dropout, "pool": pool}
    settings |= {"positions": positions, "placed": placed, "attention": attention}
    return _build(name, {key: value for key, value in settings.items() if value is not None}, seed)


def _build(name: str, settings: dict[str, Any], seed: int) -> nn.Module:
    limits.check_image_size(settings)
    size, patch = _parse(name)
    if size in VIT_SIZES:
        return variants.build({"patch_size": patch} | VIT_SIZES[size] | settings, seed)
    settings = variants.without_defaults(settings, name)
    if size in BIT_SIZES:
        return _build_bit(size, patch, settings, seed)
    if size in HYBRID_WIDTHS:
        return _build_hybrid(size, patch, settings, seed)
    return hub.build(hub.spelled(name, names()), settings, seed)


def _parse(name: str) -> tuple[str, int]:
    """Size and patch size of a name of ours, in our spelling, ("Lab-Ti", 8) for "lab-ti/8"; else ("", 0)."""
    size, _, patch = name.partition("/")
    spelling = {known.lower(): known for known in _SIZES}.get(size.lower(), "")
    if patch.isdecimal() and len(patch) <= _LONGEST_PATCH and spelling:
        return spelling, int(patch)
    return (spelling, 4) if spelling in BIT_SIZES and patch == "" else ("", 0)


def _build_bit(size: str, patch: int, settings: dict[str, Any], seed: int) -> nn.Module:
    from vitlab.models.resnet import BiT, BiTConfig  # brings timm, which takes seconds

    if patch != 2 and (patch < 4 or patch % 4):
        raise ValueError(f"{size}/{patch} has no stem to match a ViT's patch of {patch}; use 2, 4, 8, 12, 16 …")
    if settings.get("head", "linear") != "linear" or settings.get("dropout", 0.0):
        raise ValueError(f"{size} has a linear head and no dropout (Table 3); leave out head and dropout")
    if "pool" in settings:
        raise ValueError(f"pool {settings['pool']!r} is not for {size}, which has no class token; leave it out")
    body = dict(BIT_SIZES[size])
    if patch == 2:  # the stem cannot be finer than a pixel, so twice the width makes up for it
        body["width"] *= 2
    kept = {key: value for key, value in settings.items() if key in ("n_classes", "image_size")}
    return BiT(BiTConfig(**body, stem_stride=max(1, patch // 4), **kept), seed)


def _build_hybrid(size: str, stride: int, settings: dict[str, Any], seed: int) -> nn.Module:
    from vitlab.models.hybrid import Hybrid, HybridConfig, resnet_of_stride  # brings timm

    vit = VIT_SIZES[size.removeprefix("R+")] | settings
    stem_stride, layers = resnet_of_stride(stride)
    config = HybridConfig(patch_size=stride, width=HYBRID_WIDTHS[size], layers=layers, stem_stride=stem_stride, **vit)
    return Hybrid(config, seed)


def save(
    path: Path | str,
    model: nn.Module,
    name: str,
    about: Mapping[str, Any],
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model's weights with what `load` needs to build it again, whole or not at all.

    `name` is what `create` made it from; `about` is anything of JSON's worth telling about the weights; `state` is the
    state dict where it is not the model's own (averaged weights, or gathered from several processes).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save(path, create("Lab-Ti/8"), "Lab-Ti/8", {"steps": 100})
    >>> load(path).name, load(path).about
    ('Lab-Ti/8', {'steps': 100})
    """
    from safetensors.torch import save as to_bytes

    from vitlab import paths

    config: Any = getattr(model, "config", None)
    kind = type(model).__name__ if dataclasses.is_dataclass(config) else "timm"
    settings = dataclasses.asdict(config) if kind != "timm" else hub.settings_of(model)
    record = {"model": name, "class": kind, "config": settings, "about": dict(about)}
    tensors = {key: value.detach().cpu().contiguous() for key, value in (state or model.state_dict()).items()}
    with paths.writing(path) as temporary:
        temporary.write_bytes(to_bytes(tensors, {"vitlab": json.dumps(record, sort_keys=True)}))


def load(weights: Path | str, *, untrained: bool = False, seed: int = 0) -> Pretrained:
    """A model with its weights, in eval mode.

    `weights` is one of

    - "lab": the weights that come with the project;
    - "ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32" or "ViT-H/14": the paper's own, pre-trained on ImageNet-21k and
      published without a head, which is zero here, as at the start of fine-tuning;
    - a timm name, or a hub name "hf-hub:OWNER/MODEL"; these and the paper's are downloaded, or come from the local
      Hugging Face cache;
    - a path to a safetensors file: one that `save` wrote, or a ViT under timm's names, whose architecture is then read
      from the shapes with heads taken to be 64 wide; or to an .npz file of the authors' release, which tells its heads;
    - "NAME@FILE": either kind of file for any name `create` knows (an .npz of a hybrid needs one); a file without a
      head gives the models of ours a zero head;
    - a folder that timm's `save_for_hf` wrote (config.json and model.safetensors), also as "local-dir:FOLDER".

    With `untrained` the same architecture comes with fresh weights drawn from `seed`: the control.

    Raises:
        FileNotFoundError: when there is no such file or folder.
        ConnectionError: within three seconds, when weights would have to be downloaded and cannot be.
        ValueError: for an unknown name, a file that cannot be read, or one that holds something else.
    """
    text = str(weights)
    name, _, file = text.partition("@")
    if text.lower() in BUNDLED:
        loaded = _from_file(_bundled(text.lower()), untrained, seed)
        loaded = dataclasses.replace(loaded, source=f"data/{BUNDLED[text.lower()]}")  # the same on every machine
    elif os.path.isdir(os.path.expanduser(text)):  # unlike pathlib's, False for what can be no path
        loaded = dataclasses.replace(_from_name(f"{hub.FOLDER_PREFIX}{text}", untrained, seed), name=text)
    elif file and not text.startswith(hub.PREFIXES) and not os.path.isfile(text):
        loaded = _from_named_file(name, Path(os.path.expanduser(file)), untrained, seed)
    elif text.endswith(_FILE_ENDINGS) or os.path.isfile(text):
        loaded = _from_file(Path(os.path.expanduser(text)), untrained, seed)
    else:
        loaded = _from_name(text, untrained, seed)
    loaded.model.eval()
    if untrained:
        return dataclasses.replace(loaded, source=f"fresh weights, seed {seed}, for {loaded.source}", about={})
    return loaded


def _bundled(name: str) -> Path:
    from vitlab import paths

    path = paths.bundled_dir() / BUNDLED[name]
    if not path.is_file():
        raise FileNotFoundError(
            f"the weights {name!r} should be at {path} and are not; restore the file with git, or give "
            "a path to a .safetensors file or a timm name instead"
        )
    return path


def _from_file(path: Path, untrained: bool, seed: int) -> Pretrained:
    state, metadata = weights_file.read(path)
    if "vitlab" in metadata:
        build, shapes, record = described.described(metadata["vitlab"], path, seed, state)
        name, about, source = record["model"], record["about"], str(path)
        hint = "it was changed after it was written"
    else:
        config = weights_file.vit_config(state, path, metadata.get("n_heads"))
        name = path.parent.name if path.stem == "model" else path.stem  # as hubs lay folders out
        build, about = partial(ViT, config, seed), {}
        shapes = limits.shapes(build)
        assumed = "" if "n_heads" in metadata else f" of {weights_file.HEAD_DIM} (assumed)"
        source = f"{path}, read as a ViT with {config.n_heads} heads{assumed}"
        hint = weights_file.named_hint(path)
    difference = weights_file.difference(shapes, state)
    if difference:
        raise ValueError(f"{path} does not fit the model it seems to hold: {difference}; {hint}")
    model = build()
    if not untrained:
        model.load_state_dict(state)
    return pretrained(model, name, source, about)


def _from_named_file(name: str, path: Path, untrained: bool, seed: int) -> Pretrained:
    state, metadata = weights_file.read(path)
    ours, note = bool(_parse(name)[0]), ""
    heads = [state[key] for key in _HEADS if key in state]
    settings: dict[str, Any] = {"n_classes": heads[0].shape[0]} if heads else {}
    if "pre_logits.fc.weight" in state and ours:
        settings["head"] = "tanh"
    elif "pre_logits.fc.weight" in state:
        state, note = weights_file.without_pre_logits(state, path), ", without the layer before its zero head"
    limits.check_depth(hub.folder_settings(name), state, path)
    shapes = limits.shapes(partial(_build, name, settings, seed))
    side, positions = weights_file.grid_side(state), getattr(shapes, "pos_embed", None)
    if side and positions is not None and positions.shape != state["pos_embed"].shape:
        settings["image_size"] = side * hub.patch_stride(shapes)  # the file's is not the usual one
        shapes = limits.shapes(partial(_build, name, settings, seed))
    known: dict[str, Tensor] = {}
    if ours and not heads:
        note = ", which holds no head: it is zero"
        known = {key: value for key, value in shapes.state_dict().items() if key.startswith("head.")}
    if not ours and state.keys() != shapes.state_dict().keys():
        state = hub.converted(hub.spelled(name), state, settings) or state
    difference = weights_file.difference(shapes, known | state, metadata.get("n_heads"))
    if difference:
        raise ValueError(f"{path} does not fit {name}: {difference}")
    model = _build(name, settings, seed)
    if not untrained:
        model.load_state_dict(model.state_dict() | state)  # a head that the file has not stays as it is
    return pretrained(model, name, f"{path}{note}", {})


def _from_name(name: str, untrained: bool, seed: int) -> Pretrained:
    if untrained and not name.startswith(hub.PREFIXES):
        return pretrained(_build(name, {}, seed), name, name, {})
    size, patch = _parse(name)
    if size:
        return _from_paper(f"{size}/{patch}", name, seed)
    build_name, path, source = hub.published(hub.spelled(name, names()))
    loaded = _from_named_file(build_name, path, untrained, seed)
    return dataclasses.replace(loaded, name=name, source=source)


def _from_paper(name: str, asked: str, seed: int) -> Pretrained:
    if name not in hub.PAPERS_OWN:
        raise ValueError(
            f"there are no published weights for {asked}: use 'lab', a file ({asked}@FILE), one of "
            f"{', '.join(hub.PAPERS_OWN)}, a timm name such as 'vit_base_patch16_224.orig_in21k', or untrained=True"
        )
    _, path, where = hub.published(hub.PAPERS_OWN[name], asked)
    loaded = _from_named_file(name, path, False, seed)
    note = loaded.source.removeprefix(str(path))  # on the head
    source = f"the paper's own weights, pre-trained on ImageNet-21k, {where}{note}"
    return dataclasses.replace(loaded, name=asked, source=source)
