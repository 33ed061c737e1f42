"""Cost of the attention analyses: time and memory against the plain forward, keeping every map, and two peers.

Every row is a ratio of interleaved pairs in one run: plain, ours, plain, ours … and the median of the pairs'
ratios, so that other load on the machine meets both. Memory is the allocator's own record, peak above what
was there before. The peers are optional: see `peers.py`.

    python benchmarks/analysis.py                                   # ViT-B/16 at 224 px, batch 8
    python benchmarks/analysis.py --vit-explain path/of/its/clone   # its rows too
    python benchmarks/analysis.py --model vit_tiny_patch16_224 --pairs 20
    python benchmarks/analysis.py --model vit_large_patch16_384 --batch 4 --images 32 --resident
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from pathlib import Path

import peers
import timm
import torch
from timing import paired, seconds
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from vitlab.analysis.attention import (
    attention_maps,
    grid_size,
    n_prefix_tokens,
    patch_stride,
    read_weights,
    reduce_attention,
)
from vitlab.analysis.distance import distance_and_mass, head_reducer, mean_attention_distance
from vitlab.analysis.rollout import attention_rollout, rollout_reducer


def plain(model: nn.Module, images: Tensor) -> None:
    """The forward alone, with fused attention."""
    with torch.no_grad():
        model(images)


def one_pass(model: nn.Module, images: Tensor) -> None:
    """Distance, rollout and prefix mass of every image from one forward."""
    grid, n_prefix = grid_size(model, images), n_prefix_tokens(model)
    update, finish = rollout_reducer(grid, n_prefix, read_weights(model, images))
    reducers = {
        "heads": head_reducer(grid, patch_stride(model), n_prefix),  # both modes, and the mass
        "rollout": update,
    }
    reduce_attention(model, images, reducers, by_heads=True)
    finish()


def rollout_keeping_maps(model: nn.Module, images: Tensor) -> Tensor:
    """Rollout as most tools have it: fused attention off, a hook on its dropout, all maps, matrices multiplied."""
    kept, handles = [], []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda m, i, attn: kept.append(attn)))
    with torch.no_grad():
        model(images)
    for block, handle in zip(model.blocks, handles, strict=True):
        block.attn.fused_attn = True
        handle.remove()
    return peers.usual_rollout(kept, grid_size(model, images), n_prefix_tokens(model))


def peak_bytes(call: Callable[[], object]) -> int:
    """Largest amount of tensor memory that was allocated at once during the call, above the start."""
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        call()
    events = [event for event in prof.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def time_and_memory(model: nn.Module, images: Tensor, pairs: int) -> None:
    """Print the table of ratios and of memory."""
    ours = {
        "distance + rollout + mass": lambda: one_pass(model, images),
        "distance and mass": lambda: distance_and_mass(model, images),
        "rollout": lambda: attention_rollout(model, images),
    }
    print(f"{'':28}{'plain s':>9}{'ours s':>9}{'ratio':>8}")
    for name, call in ours.items():
        print("{:28}{:9.3f}{:9.3f}{:8.3f}".format(name, *paired(lambda: plain(model, images), call, pairs)))
    print(f"{'':28}{'kept s':>9}{'ours s':>9}{'ratio':>8}")
    keeping = paired(lambda: rollout_keeping_maps(model, images), ours["rollout"], pairs)
    print("{:28}{:9.3f}{:9.3f}{:8.3f}".format("rollout, maps kept / ours", *keeping))
    difference = (rollout_keeping_maps(model, images) - attention_rollout(model, images)).abs().max().item()
    print(f"largest difference of the two rollouts {difference:.1e}")

    n_tokens = n_prefix_tokens(model) + grid_size(model, images)[0] * grid_size(model, images)[1]
    of_one_block = 4 * len(images) * model.blocks[0].attn.num_heads * n_tokens**2
    base = peak_bytes(lambda: plain(model, images))
    print(f"\npeak memory (MB): plain forward {base / 1e6:.1f}, attention of one block {of_one_block / 1e6:.1f}")
    for name, call in (*ours.items(), ("rollout, maps kept", lambda: rollout_keeping_maps(model, images))):
        extra = peak_bytes(call) - base
        print(f"{name:28}{extra / 1e6:9.1f} MB more, {extra / of_one_block:6.2f} blocks' attention")


def beside_hf(model: nn.Module, images: Tensor, pairs: int, many: Tensor) -> None:
    """Print the rows against Hugging Face: the same weights, `output_attentions=True`, and what people do then."""
    print("\nHugging Face transformers, attn_implementation='eager', output_attentions=True")
    try:
        twin = peers.hf_twin(model)
    except ImportError as error:
        return print(error)
    grid, (stride, _), n_prefix = grid_size(model, images), patch_stride(model), n_prefix_tokens(model)

    def theirs(part: Tensor) -> tuple[Tensor, Tensor]:
        maps = peers.hf_maps(twin, part)
        return peers.usual_rollout(maps, grid, n_prefix), peers.usual_distance(maps, grid, stride, n_prefix)

    print(f"{'':28}{'ours s':>9}{'HF s':>9}{'HF/ours':>9}")
    rows = {
        "rollout": (
            lambda: attention_rollout(model, images),
            lambda: peers.usual_rollout(peers.hf_maps(twin, images), grid, n_prefix),
        ),
        "distance + rollout": (lambda: one_pass(model, images), lambda: theirs(images)),
    }
    for name, (ours, calls) in rows.items():
        print("{:28}{:9.3f}{:9.3f}{:9.3f}".format(name, *paired(ours, calls, pairs)))
    apart = max(
        (a - b).abs().max().item()
        for a, b in zip(attention_maps(model, images), peers.hf_maps(twin, images), strict=True)
    )
    rollout, distance = theirs(images)
    print(f"largest difference: attention {apart:.1e}, rollout picture "
          f"{peers.largest_difference(attention_rollout(model, images), rollout):.1e}, distance "
          f"{peers.relative(mean_attention_distance(model, images), distance):.1e} of the largest")  # fmt: skip
    extra = [peak_bytes(call) / 1e6 for call in rows["distance + rollout"]]
    print(f"peak memory (MB), forward included: ours {extra[0]:.1f}, HF {extra[1]:.1f}")
    in_batches("HF", theirs, model, many, len(images))


def beside_vit_explain(model: nn.Module, images: Tensor, pairs: int, many: Tensor, folder: Path | None) -> None:
    """Print the rows against vit-explain's rollout, one image at a time as it needs, and where it is not right."""
    print("\nvit-explain, VITAttentionRollout, image by image")
    if folder is None:
        return print("skipped: --vit-explain takes the folder of a clone of github.com/jacobgil/vit-explain")
    try:
        explain = peers.vit_explain(model, folder)
    except ImportError as error:
        return print(error)
    print(f"{'':28}{'ours s':>9}{'theirs s':>9}{'theirs/ours':>12}")
    ours, theirs = (lambda: attention_rollout(model, images)), (lambda: peers.one_by_one(explain, images))
    print("{:28}{:9.3f}{:9.3f}{:12.3f}".format("rollout, mean over heads", *paired(ours, theirs, pairs)))
    print(
        f"peak memory (MB), forward included: ours {peak_bytes(ours) / 1e6:.1f}, theirs {peak_bytes(theirs) / 1e6:.1f}"
    )
    for fusion, ratio in (("mean", 0.0), ("max", 0.0), ("min", 0.0), ("mean", 0.9)):
        pictures = peers.one_by_one(peers.vit_explain(model, folder, fusion, ratio), images)
        right = attention_rollout(model, images, head_fusion=fusion, discard_ratio=ratio)
        apart = peers.largest_difference(pictures, right)
        print(f"{fusion} over heads, discard {ratio:.1f}: pictures differ by {apart:.1e} of their maximum")
    print(f"given the batch of {len(images)} at once: {peers.what_it_says(lambda: explain(images))}")
    for block in explain.model.blocks:
        block.attn.fused_attn = True
    print(f"given the model as timm builds it, attention fused: {peers.what_it_says(lambda: explain(images[:1]))}")
    for block in explain.model.blocks:
        block.attn.fused_attn = False
    in_batches("vit-explain", lambda part: peers.one_by_one(explain, part), model, many, len(images))


def in_batches(name: str, theirs: Callable[[Tensor], object], model: nn.Module, many: Tensor, batch: int) -> None:
    """Print the time of many images, once each: all three quantities by us, what the peer does by the peer."""
    ours = seconds(lambda: [one_pass(model, part) for part in many.split(batch)])
    peer = seconds(lambda: [theirs(part) for part in many.split(batch)])
    print(
        f"{len(many)} images in batches of {batch}: distance + rollout + mass by us {ours:.1f} s, {name} {peer:.1f} s"
    )


def resident(model: nn.Module, images: Tensor, batch: int) -> None:
    """Print the process's peak resident memory after distance, mass and rollout of many images."""
    took = seconds(lambda: [one_pass(model, part) for part in images.split(batch)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{len(images)} images in batches of {batch}: {took:.1f} s, peak resident {peak / 1e9:.2f} GB")


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224", help="timm name, randomly initialised")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=32, help="for the timing of many, and with --resident")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resident", action="store_true", help="only the process's peak memory")
    parser.add_argument("--vit-explain", type=Path, default=None, help="folder of a clone of jacobgil/vit-explain")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = timm.create_model(arguments.model).eval()
    for block in model.blocks:  # fresh weights attend almost uniformly, where any two rollouts look alike
        nn.init.normal_(block.attn.qkv.weight, std=1.4 / model.embed_dim**0.5)
    size = model.patch_embed.img_size
    many = torch.randn(arguments.images, 3, *size)
    images = many[: arguments.batch]
    print(f"{arguments.model}, images of {size[0]} x {size[1]}, batch {len(images)}, {arguments.threads} threads")
    if arguments.resident:
        resident(model, many, arguments.batch)
    else:
        time_and_memory(model, images, arguments.pairs)
        beside_hf(model, images, arguments.pairs, many)
        beside_vit_explain(model, images, arguments.pairs, many, arguments.vit_explain)


if __name__ == "__main__":
    main()
