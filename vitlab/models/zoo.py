"""Name → model: Table 1, lab sizes for a CPU, and any timm name; models with weights, and their sizes and FLOPs."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitlab import paths
from vitlab.data.datasets import pictures
from vitlab.models import variants
from vitlab.models import weights as files
from vitlab.models.vit import ViT
from vitlab.models.weights import save as save  # `zoo.save` and `zoo.load` go together

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
# One body per size: with a stem of stride P / 4, "BiT-Lab-Ti/P" does as many FLOPs as "Lab-Ti/P", within 15 %.
BIT_SIZES: dict[str, dict[str, Any]] = {
    "BiT-Lab-Mu": {"width": 8, "layers": (1, 1)},
    "BiT-Lab-Ti": {"width": 16, "layers": (1, 1, 1, 1)},
    "BiT-Lab-S": {"width": 32, "layers": (1, 1, 1)},
    "BiT-Lab-M": {"width": 40, "layers": (1, 1, 1)},
    "BiT-Lab-B": {"width": 64, "layers": (1, 1, 1, 1)},
    "BiT-Mu": {"width": 8, "layers": (1, 1, 1)},  # these four match the ViTs' parameters too, within a factor of two
    "BiT-Ti": {"width": 16, "layers": (1, 1, 2)},
    "BiT-S": {"width": 24, "layers": (1, 2, 2)},
    "BiT-M": {"width": 32, "layers": (1, 2, 2)},
}
# Channels of a hybrid's ResNet. As in the paper's R50+ViT-B, the ResNet does about as much as the ViT where the
# sequence is short ("/16" at 32 px, the paper's "/32"), and about a third where it is long ("/8"); R+Lab-Mu does more.
HYBRIDS: dict[str, dict[str, Any]] = {
    **{f"R+Lab-{size}": {"width": n} for size, n in {"Mu": 8, "Ti": 8, "S": 16, "M": 16, "B": 32}.items()},
    # those of `compute_scaling`: behind a ResNet of 32 channels and more, or, marked C, convolutions without norms
    "R+Mu": {"width": 32, "layers": (1,)},
    "R+Ti": {"width": 32, "layers": (1, 1)},
    "C+Mu": {"width": 12, "layers": (), "depth": 1},  # one block less: the convolutions do as much
    "C+Ti": {"width": 24, "layers": (), "depth": 3},
}
SIZES = (*VIT_SIZES, *BIT_SIZES, *HYBRIDS)
BUNDLED = {name: f"{name}.safetensors" for name in ("lab", "lab-masked", "lab-world")}  # in data/
clean = partial(re.sub, r"[^\w./+:@ -]", "?")  # a name from a file or a user, for HTML, Markdown and mathtext
MAX_IMAGE_SIZE = 4096  # pixels a side, the paper's largest is 518: a ViT makes room for the position of every patch
CROP = 256 / 224  # larger images are cut down to the middle 224 of 256 where a model says nothing else


@dataclass(frozen=True)
class Pretrained:
    """A model in eval mode, and what is needed to use it."""

    model: nn.Module
    name: str
    source: str  # where the weights came from, in words
    image_size: tuple[int, int]  # height, width in pixels
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel, for values in [0, 1]
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    about: Mapping[str, Any] = field(default_factory=dict)  # what was saved with them
    crop: float = CROP  # side that larger images are resized to, over that of their middle, which the model sees
    squash: bool = False  # resize both sides so, whatever the shape
    interpolation: str = "bicubic"  # or "bilinear"

    @classmethod
    def of(cls, model: nn.Module, name: str, source: str, about: Mapping[str, Any]) -> Pretrained:
        """Take image size, crop and normalisation from a model of ours or timm's; ours are made for [-1, 1]."""
        name = clean(name)
        published = getattr(model, "pretrained_cfg", None) or {}  # timm's
        size = getattr(getattr(model, "patch_embed", None), "img_size", None) or published.get("input_size", ())[1:]
        size = size or getattr(getattr(model, "config", None), "image_size", None)
        if not size:
            raise ValueError(f"{name} does not tell its image size: it has no patch_embed.img_size in pixels; set it")
        found = cls(model, name, source, tuple(size) if isinstance(size, Sequence) else (size, size), about=about)
        read: dict[str, Any] = {key: tuple(published[key]) for key in ("mean", "std") if key in published}
        if "crop_pct" in published:
            read |= {"crop": 1 / published["crop_pct"], "squash": published["crop_mode"] == "squash"}
            read["interpolation"] = "bilinear" if published["interpolation"] == "bilinear" else "bicubic"
        return dataclasses.replace(found, **read)

    def prepare(self, images: Any) -> Float[Tensor, "B 3 h w"]:
        """Resize, crop and normalise photographs for this model (§4.1): uint8 [B 3 H W], or as `datasets.pictures`.

        Images of another size are resized (antialiased) until they just cover the model's, or `crop` times that if they
        are larger than that, and cut to it around the centre.
        """
        if not isinstance(images, Tensor):
            return torch.cat([self.prepare(each) for each in pictures(images)])
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(
                f"images are {images.dtype} {list(images.shape)}, but uint8 [batch, 3, height, width] with "
                "values 0 to 255 is expected; `prepare` does the scaling and normalising itself"
            )
        x, (height, width) = images.float(), self.image_size
        rows, cols = x.shape[2:]
        if (rows, cols) != (height, width):
            room = min(rows / height, cols / width)  # how many times larger than needed the image is
            crop = self.crop if room > self.crop else 1.0
            # fractions of a pixel are cut off, and halves rounded to even, as torchvision does
            size = [int(height * crop + 1e-6), int(width * crop + 1e-6)]
            if not self.squash:
                scale = max(size[0] / rows, size[1] / cols)
                size = [max(height, int(rows * scale + 1e-6)), max(width, int(cols * scale + 1e-6))]
            x = F.interpolate(x, size, mode=self.interpolation, antialias=True).clamp(0, 255)
            top, left = round((size[0] - height) / 2), round((size[1] - width) / 2)
            x = x[:, :, top : top + height, left : left + width]
        mean, std = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (self.mean, self.std))
        return (x / 255 - mean) / std


def names() -> tuple[str, ...]:
    """List the names `create` knows besides timm's, with the usual patch sizes; any other may be written."""
    patches = {"ViT-B": (16, 32), "ViT-L": (16, 32), "ViT-H": (14,)} | dict.fromkeys(HYBRIDS, (8, 16))
    return tuple(f"{size}/{p}" for size in SIZES for p in patches.get(size, (4, 8)))


def create(name: str, *, seed: int = 0, **settings: Any) -> nn.Module:
    """Make a model with fresh weights, drawn from `seed` alone.

    `name` is one of Table 1 ("ViT-L/16"; 224 px and 1000 classes unless said otherwise), a lab size ("Lab-Ti/8"; 32 px,
    10 classes), the ResNet of the same compute ("BiT-Lab-Ti/8"; "BiT-Lab-Ti" for a patch of 4), a lab-size hybrid
    ("R+Lab-Ti/16": the total stride, as in the paper's "R50+ViT-B/16"), or any name of timm's. Case does not matter.

    Settings are `n_classes` and `image_size`; but for our ResNets `dropout`; of a ViT or hybrid `head`, "linear" or
    "tanh", and `pool`, "class" or "gap"; of a ViT `positions`, `placed` and `attention`, see `variants.VariantConfig`.

    Raises ValueError for an unknown name (the nearest are named), and a setting that the model does not have.

    >>> create("lab-ti/8", n_classes=3).head
    Linear(in_features=64, out_features=3, bias=True)
    """
    if settings.get("image_size", 1) > MAX_IMAGE_SIZE:
        raise ValueError(
            f"image_size {settings['image_size']} is too large; models here take up to {MAX_IMAGE_SIZE} pixels a side"
        )
    size, patch = parse(name)
    if size in VIT_SIZES:
        return variants.build({"patch_size": patch} | VIT_SIZES[size] | settings, seed)
    takes = {"n_classes", "image_size"} | ({"dropout"} if size not in BIT_SIZES else set())
    takes |= {"head", "pool"} if size in HYBRIDS else set()
    if refused := [f"{key}={value!r}" for key, value in settings.items() if key not in takes]:
        raise ValueError(
            f"{', '.join(refused)} is not for {name}, which takes {', '.join(sorted(takes))}: only the ViTs of this "
            "project, such as Lab-Ti/8, have all settings; leave it out"
        )
    if not size:
        if side := settings.get("image_size"):
            sides = (side, side) if isinstance(side, int) else tuple(side)
            shapes = make_shapes(partial(build_timm, spell(name), settings, seed)).eval()
            try:
                with contextlib.suppress(NotImplementedError):  # of an operator that cannot be tried without numbers
                    shapes(torch.empty(1, 3, *sides, device="meta"))
            except (AssertionError, RuntimeError) as error:
                raise ValueError(f"timm's {name} takes no images of {side} px ({error}); leave it out") from error
        return build_timm(spell(name), settings, seed)
    if patch != 2 and (patch < 4 or patch % 4):
        raise ValueError(
            f"{size}/{patch} cannot be: no ResNet here goes with a patch of {patch}; use 2, 4, 8, 12, 16 …"
        )
    from vitlab.models import convnets  # brings timm, which takes seconds

    if size in HYBRIDS:
        # As the paper's ResNet-50: four stages, or, for a sequence four times as long, no stage 4, whose blocks are put
        # into stage 3. The stem's stride is 2 at a total of 16 and 8, half the paper's.
        n_stages = 2 if patch == 2 else 3 if patch % 16 else 4
        own = {"layers": (1,) * (n_stages - 1) + (5 - n_stages,)} | HYBRIDS[size]
        own |= {"patch_size": patch, "stem_stride": patch // 2 ** max(len(own["layers"]) - 1, 0)}
        vit = VIT_SIZES[f"Lab-{size[2:].removeprefix('Lab-')}"]
        return convnets.Hybrid(convnets.HybridConfig(**vit | own | settings), seed)
    body = dict(BIT_SIZES[size])
    if patch == 2:  # the stem cannot be finer than a pixel, so twice the width makes up for it
        body["width"] *= 2
    return convnets.BiT(convnets.BiTConfig(**body, stem_stride=max(1, patch // 4), **settings), seed)


def parse(name: str) -> tuple[str, int]:
    """Split a name of ours into size and patch size, ("Lab-Ti", 8) for "lab-ti/8"; ("", 0) for any other."""
    size, _, patch = name.partition("/")
    spelling = {known.lower(): known for known in SIZES}.get(size.lower(), "")
    if patch.isdecimal() and len(patch) <= 4 and spelling:
        return spelling, int(patch)
    return (spelling, 4) if spelling in BIT_SIZES and patch == "" else ("", 0)


def spell(name: str) -> str:
    """Give a name of timm's in its spelling, one of the hub or a folder as it is; name what is near to any other."""
    import timm

    for spelling in (name, name.lower()):
        if spelling.startswith(files.PREFIXES) or timm.is_model(spelling):
            return spelling
    known = {candidate.lower(): candidate for candidate in (*timm.list_models(), *names())}
    near = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.5)
    hint = f"nearest: {', '.join(known[match] for match in near)}" if near else f"known: {', '.join(names())}"
    raise ValueError(f"model {name!r:.80} is unknown; {hint}; any name of timm.list_models() will do as well")


def build_timm(name: str, settings: dict[str, Any], seed: int, **arguments: Any) -> nn.Module:
    """Make timm's model, its fresh weights drawn from `seed` alone; `arguments` go to timm as they are."""
    import timm

    if name.startswith(files.PREFIXES):
        name = f"{files.FOLDER_PREFIX}{files.folder_of(name)}"
    renamed = {"n_classes": "num_classes", "image_size": "img_size"}
    arguments |= {renamed[key]: settings[key] for key in renamed if key in settings}
    if "dropout" in settings:
        arguments |= dict.fromkeys(("proj_drop_rate", "pos_drop_rate"), settings["dropout"])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            return timm.create_model(name, **arguments)
        except (AssertionError, RuntimeError, TypeError, ZeroDivisionError) as error:  # as of a damaged config.json
            if "'img_size'" in str(error):  # a ResNet, say, that takes images of any size
                del arguments["img_size"]
                return build_timm(name, {k: v for k, v in settings.items() if k != "image_size"}, seed, **arguments)
            raise ValueError(f"timm's {name} does not take these settings ({', '.join(settings)}): {error}") from error


def load(weights: Path | str | nn.Module, *, untrained: bool = False, seed: int = 0) -> Pretrained:
    """Load a model with its weights, in eval mode.

    `weights` is one of

    - "lab" or another of `BUNDLED`: weights that come with the project;
    - "ViT-B/16" or another of `weights.PAPERS_OWN`: the paper's, of ImageNet-21k, published without head: zero here;
    - a timm name, or "hf-hub:OWNER/MODEL"; these and the paper's are downloaded, or come from Hugging Face's cache;
    - a path to a file that `save` wrote, or to an .npz file of the authors' release;
    - "NAME@FILE": such a file, or any safetensors, for a name `create` knows; without a head our models get a zero one;
    - a folder that timm's `save_for_hf` wrote (config.json and model.safetensors), also as "local-dir:FOLDER";
    - a model that you have made: it is taken as it is, and `source` says what was read off it.

    With `untrained` the same architecture comes with fresh weights drawn from `seed`: the control.

    Raises FileNotFoundError, ConnectionError where a download fails, ValueError for a name or file that will not do.
    """
    if isinstance(weights, nn.Module):
        if untrained:
            raise ValueError("untrained=True makes a model by its name: give that, or a module with fresh weights")
        read = Pretrained.of(weights, type(weights).__name__, "", {})
        sides = "{} x {}".format(*read.image_size)
        said = f"a module of yours, for images of {sides} px, normalised by mean {read.mean} and std {read.std}"
        return dataclasses.replace(read, source=said)
    text = str(weights)
    path = Path(os.path.expanduser(text))
    asked = f"{files.FOLDER_PREFIX}{path}" if text and os.path.isdir(path) else text  # os's: False for what is no path
    name, _, file = asked.partition("@")
    if text.lower() in BUNDLED:
        path = paths.bundled_dir() / BUNDLED[text.lower()]
        loaded = dataclasses.replace(load_file(path, untrained, seed), source=f"data/{path.name}")  # wherever it lies
    elif os.path.isfile(path) or (not file and path.suffix in (".safetensors", ".npz", ".pt", ".pth", ".bin")):
        loaded = load_file(path, untrained, seed)
    elif file and not asked.startswith(files.PREFIXES):
        path = Path(os.path.expanduser(file))
        loaded = load_named(name, path, str(path), untrained, seed)
    elif untrained and not asked.startswith(files.PREFIXES):
        loaded = Pretrained.of(create(text, seed=seed), text, text, {})
    else:
        size, patch = parse(asked)
        ours = f"{size}/{patch}" if size else ""
        if ours and ours not in files.PAPERS_OWN:
            raise ValueError(
                f"there are no published weights for {asked}: use 'lab', a file ({asked}@FILE), one of "
                f"{', '.join(files.PAPERS_OWN)}, a timm name such as 'vit_base_patch16_224.orig_in21k', or "
                "untrained=True"
            )
        name, path, source = files.find(files.PAPERS_OWN[ours] if ours else spell(asked))
        if ours:
            name, source = ours, f"the paper's own weights, pre-trained on ImageNet-21k, {source}"
        loaded = dataclasses.replace(load_named(name, path, source, untrained, seed), name=text)
    loaded.model.eval()
    if untrained:
        return dataclasses.replace(loaded, source=f"fresh weights, seed {seed}, for {loaded.source}", about={})
    return loaded


def load_file(path: Path, untrained: bool, seed: int) -> Pretrained:
    """Load a file whose architecture is its own to tell: one that `save` wrote, or of the authors' release."""
    state, metadata = files.read(path)
    if "vitlab" in metadata:
        try:
            record = json.loads(metadata["vitlab"])
            name, about, source, make = record["model"], record["about"], str(path), maker(record, seed, len(state))
            shapes = make_shapes(make)
        except (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} says it is vitlab's, but its description cannot be used ({type(error).__name__}: {error}); "
                "it may be of another version"
            ) from error
    elif "n_heads" in metadata and "head.weight" in state:
        config = files.vit_config(state, int(metadata["n_heads"]))
        name, about, source = path.stem, {}, f"{path}, read as a ViT with {config.n_heads} heads"
        make = partial(ViT, config, seed)
        shapes = make_shapes(make)
    else:
        raise ValueError(
            f"{path} does not tell its architecture, or has no head; name it with NAME@{path}, where NAME is timm's or "
            "this project's"
        )
    if difference := files.difference(shapes, state):
        raise ValueError(f"{path} does not fit the model that it says it holds: {difference}; it was changed")
    model = make()
    if not untrained:
        model.load_state_dict(state)
    return Pretrained.of(model, name, source, about)


def maker(record: Mapping[str, Any], seed: int, n_tensors: int) -> Callable[[], nn.Module]:
    """Give what makes the model that a file of `save` describes; raises many errors for a damaged description."""
    settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in record["config"].items()}
    settings.pop("drop_path", None)  # of stochastic depth: in files of version 0.1, without effect on the logits
    for key in ("depth", "depths", "layers"):
        value = settings.get(key, 0)
        if (sum(value) if isinstance(value, tuple) else value) > n_tensors:  # to build them takes for ever
            raise ValueError(f"{key} is {value}, but there are {n_tensors} tensors: it was made up")
    kind = record["class"]
    if kind == "timm":
        return partial(build_timm, spell(record["model"]), settings, seed)
    module: Any = variants  # which has the ViT too
    if kind in ("BiT", "Hybrid"):
        from vitlab.models import convnets as module  # brings timm, which takes seconds
    return partial(getattr(module, kind), getattr(module, f"{kind}Config")(**settings), seed)


def make_shapes(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a model on PyTorch's meta device: its shapes without memory for its weights."""
    with torch.device("meta"):
        return make()


def load_named(name: str, path: Path, source: str, untrained: bool, seed: int) -> Pretrained:
    """Load a file into the architecture of a name: its number of classes and image size are the file's."""
    ours = bool(parse(name)[0])
    if (n_classes := files.big_vision_classes(path)) is not None and not ours:
        model = build_timm(spell(name), {"n_classes": n_classes}, seed)
        try:
            if not untrained:
                model.load_pretrained(str(path))  # timm knows big_vision's names
        except (AssertionError, AttributeError, KeyError, RuntimeError) as error:
            raise ValueError(f"{path} does not fit {name}: {error}") from error
        return Pretrained.of(model, name, source, {})
    state, metadata = files.read(path)
    state = files.plain(state)
    if types := {str(each.dtype).removeprefix("torch.") for each in state.values() if each.dtype.itemsize < 4}:
        source += f", converted from {', '.join(sorted(types))}"
    heads = [state[key] for key in ("head.weight", "head.fc.weight", "fc.weight", "classifier.weight") if key in state]
    settings: dict[str, Any] = {"n_classes": len(torch.atleast_1d(heads[0]))} if heads else {}
    settings |= {"head": "tanh"} if "pre_logits.fc.weight" in state and ours else {}
    options: dict[str, Any] = {}

    def build(seed: int = 0) -> nn.Module:
        return create(name, seed=seed, **settings) if ours else build_timm(spell(name), settings, seed, **options)

    shapes = make_shapes(build)
    if not ours and files.PATCHES in state:
        options = files.timm_options(state, shapes)
        if not any(key.startswith(shapes.pretrained_cfg["classifier"]) for key in state):
            settings["n_classes"] = 0
        shapes = make_shapes(build)
    if side := files.image_side(state, shapes):
        settings["image_size"] = side  # the file's is not the usual one
        shapes = make_shapes(build)
    fitting = dict(state)
    if ours and not heads:
        source += ", which holds no head: it is zero"
        fitting |= {key: value for key, value in shapes.state_dict().items() if key.startswith("head.")}
    if not ours and state.keys() != shapes.state_dict().keys():  # another project's keys, say OpenCLIP's: timm may know
        # timm drops a head whose width is not the published one, unless told
        overlay = {"state_dict": state} | ({"num_classes": heads[0].shape[0]} if heads else {})
        try:
            theirs = build_timm(spell(name), settings, 0, pretrained=True, pretrained_cfg_overlay=overlay, **options)
            state = fitting = theirs.state_dict()
        except (KeyError, RuntimeError):
            pass
    if difference := files.difference(shapes, fitting, metadata.get("n_heads")):
        raise ValueError(f"{path} does not fit {name}: {difference}")
    model = build(seed)
    if not untrained:
        model.load_state_dict(model.state_dict() | state)  # a head that the file has not stays as it is
    return Pretrained.of(model, name, source, {})


@torch.no_grad()
def forward_flops(model: nn.Module, images: Tensor) -> int:
    """Count the FLOPs of a forward pass while it runs; a multiply-add is two, norms and GELUs are none."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import

    training = model.training
    model.eval()
    with FlopCounterMode(display=False) as counter:
        model(images)
    model.train(training)
    return counter.get_total_flops()


def multiply_adds(name: str, image_size: int, n_classes: int = 10) -> int:
    """Count the multiply-adds of one image's forward pass: 1 multiply-add is 2 FLOPs.

    >>> multiply_adds("Lab-Ti/8", 32)
    3687552
    """
    model = create(name, n_classes=n_classes, image_size=image_size)
    return forward_flops(model, torch.zeros(1, 3, image_size, image_size)) // 2
