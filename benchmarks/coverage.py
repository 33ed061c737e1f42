"""Which of timm's image models the capture sees into: every one is captured and checked, or refused with a reason.

Models are randomly initialised and given small images, so nothing is downloaded; those above 100M parameters
are built with two blocks. For each one the output must be equal to the last bit before, during and after
capture, and where a model can also compute its attention in the open (`fused_attn = False`) both ways must
give the same matrices.

    python benchmarks/coverage.py                 # one per family and size; about 200 models
    python benchmarks/coverage.py vit_tiny_patch16_224 swin_tiny_patch4_window7_224
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections.abc import Iterator

import timm
import torch
from torch import Tensor, nn

from vitlab.analysis.attention import attention_maps, patch_stride, reduce_attention

FAMILIES = ("vit_", "deit", "beit", "eva", "aimv2", "flexivit", "naflexvit", "vitamin", "samvit", "test_vit")
OTHERS = (  # neighbours that have attention of another kind, or none: they must be refused, not half captured
    "cait_xxs24_224",
    "coat_lite_tiny",
    "convit_tiny",
    "convmixer_768_32",
    "crossvit_9_240",
    "hiera_tiny_224",
    "levit_128s",
    "maxvit_pico_rw_256",
    "mixer_s32_224",
    "mvitv2_tiny",
    "pit_ti_224",
    "resnet18",
    "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window8_256",
    "tnt_s_patch16_224",
    "twins_svt_small",
    "volo_d1_224",
    "xcit_nano_12_p16_224",
)
LARGE = 100_000_000  # parameters above which two blocks stand for all


def names() -> list[str]:
    """One name per family and size: of names that differ in the image size alone, the first."""
    chosen: dict[str, str] = {}
    for name in timm.list_models():
        if name.startswith(FAMILIES):
            chosen.setdefault(re.sub(r"_\d{3}$", "", name), name)
    return [*chosen.values(), *OTHERS]


def build(name: str) -> tuple[nn.Module, Tensor, str]:
    """The model with random weights, two small images for it, and a note on how it was made smaller."""
    with torch.device("meta"):
        full = timm.create_model(name, num_classes=10)
    options, notes = {}, []
    if sum(p.numel() for p in full.parameters()) > LARGE and hasattr(full, "blocks"):
        options["depth"] = 2
        if "sapiens2" in name:  # lists its key and value heads block by block
            heads = full.blocks[0].attn.num_heads
            options["num_kv_heads"] = (heads, heads // 2)
    size = full.pretrained_cfg["input_size"][-2:]
    try:
        side = 4 * max(patch_stride(full))
        model = timm.create_model(name, num_classes=10, img_size=side, **options)
        size = (side, side)
        notes.append(f"{side} px")
    except (ValueError, TypeError, AssertionError, RuntimeError):
        model = timm.create_model(name, num_classes=10, **options)
    return model, torch.randn(2, 3, *size), ", ".join(notes)


def open_coded_difference(model: nn.Module, images: Tensor, maps: list[Tensor]) -> float:
    """Largest difference from the matrices the model's own open code forms; NaN where it has none."""
    switched = [m for m in model.modules() if getattr(m, "fused_attn", None) is True]
    if not switched:
        return float("nan")
    for module in switched:
        module.fused_attn = False
    try:
        opened = attention_maps(model, images)
    finally:
        for module in switched:
            module.fused_attn = True
    return max((a - b).abs().max().item() for a, b in zip(maps, opened, strict=True))


def examine(name: str) -> tuple[str, str]:
    """("captured", what) or ("refused", why); anything else raises AssertionError or the model's own error."""
    torch.manual_seed(0)
    model, images, note = build(name)
    model.train()
    modes = [m.training for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    before = _output(model, images)
    try:
        maps = attention_maps(model, images)
    except ValueError as error:
        assert "cannot capture" in str(error) or "is no plain ViT" in str(error), error
        verdict, what = "refused", str(error).split(": ", 1)[1]
    else:
        outputs: list[Tensor] = []
        handle = model.register_forward_hook(lambda module, args, output: outputs.append(output))
        reduce_attention(model, images, {"nothing": lambda block, attn: None}, by_heads=True)
        handle.remove()
        assert len(maps) == len(model.blocks) > 0
        assert torch.equal(before, outputs[0]), "the output changed during capture"
        difference = open_coded_difference(model, images, maps)
        assert not difference > 1e-5, f"the open-coded attention differs by {difference:.1e}"
        agrees = "" if math.isnan(difference) else f", open-coded {difference:.0e}"
        verdict, what = "captured", f"{len(maps)} x {list(maps[0].shape)}{agrees}; {note}"
    assert modes == [m.training for m in model.modules()], "training modes were not restored"
    after_hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    assert hooks == after_hooks, "hooks were left behind"
    assert torch.equal(before, _output(model, images)), "the output changed after capture"
    return verdict, what


def _output(model: nn.Module, images: Tensor) -> Tensor:
    """Output of a plain forward in evaluation mode; modules' modes are put back."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    with torch.no_grad():
        output = model(images)
    for module, training in modes:
        module.training = training
    return output


def table(selected: list[str]) -> Iterator[tuple[str, str]]:
    """Print a line per model; yield (name, verdict), the verdict "failed" with an error that is no refusal."""
    for name in selected:
        start = time.perf_counter()
        try:
            verdict, what = examine(name)
        except Exception as error:  # noqa: BLE001 - one model's failure must not hide the others
            verdict, what = "FAILED", f"{type(error).__name__}: {error}"
        print(f"{verdict:9} {name:44} {time.perf_counter() - start:5.1f} s  {what}", flush=True)
        yield name, verdict


def main() -> int:
    """Examine the models named on the command line, or all; exit status 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="timm architectures; none: one per family and size")
    warnings.simplefilter("ignore")
    found = list(table(parser.parse_args().names or names()))
    counts = {verdict: sum(v == verdict for _, v in found) for verdict in ("captured", "refused", "FAILED")}
    print(f"{len(found)} architectures: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return int(counts["FAILED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
