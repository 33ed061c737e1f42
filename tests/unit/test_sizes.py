"""Sizes of the lab models: hand counts, and the table that shows them."""

import pytest
import torch

from vitlab.models import zoo
from vitlab.plots.families import sizes_table


def test_vit_counts_by_hand():
    """Lab-Ti/8 at 32 px: 16 patches of 192 numbers, D = 64, four blocks with M = 4 D, ten classes."""
    size = zoo.size_of("Lab-Ti/8")
    embedding, positions, norm, head = 192 * 64 + 64, 64 + 17 * 64, 2 * 64, 64 * 10 + 10
    assert size.parameters == embedding + positions + 4 * (12 * 64**2 + 13 * 64) + norm + head
    dense, attention = 2 * 17 * 12 * 64**2, 2 * 2 * 17**2 * 64
    assert size.flops == 2 * 16 * 192 * 64 + 4 * (dense + attention) + 2 * 64 * 10
    assert (size.dim, size.depth, size.n_heads, size.resnet_widths, size.resnet_depth) == (64, 4, 4, (), 0)


def test_resnet_and_hybrid_have_their_parts():
    resnet, hybrid = zoo.size_of("BiT-Lab-Ti/8"), zoo.size_of("R+Lab-Ti/8")
    assert (resnet.resnet_widths, resnet.resnet_depth) == ((16, 32, 64, 128), 4)
    assert (resnet.dim, resnet.depth, resnet.n_heads) == (0, 0, 0)
    assert (hybrid.resnet_widths, hybrid.resnet_depth) == ((8, 16, 32), 4)
    assert (hybrid.dim, hybrid.depth, hybrid.n_heads) == (64, 4, 4)


def test_every_size_of_every_family_is_in_the_table():
    named = [row.split(" | ")[:2] for row in sizes_table(zoo.lab_sizes()).splitlines()[2:]]
    expected = [
        [f"| `{prefix}Lab-{size}/8`", f"{label}-{size}/8"]
        for prefix, label in (("", "ViT"), ("BiT-", "ResNet"), ("R+", "hybrid"))
        for size in ("Mu", "Ti", "S", "M", "B")
    ]
    assert named == expected


def test_a_model_of_timms_is_refused():
    with pytest.raises(ValueError, match="expected a name of ours"):
        zoo.size_of("vit_tiny_patch16_224", image_size=224)


def test_flops_count_a_multiply_add_as_two_wherever_the_model_is():
    layer = torch.nn.Conv2d(3, 7, kernel_size=4, stride=4)
    assert zoo.forward_flops(layer, torch.zeros(1, 3, 16, 16)) == 2 * 16 * (3 * 4 * 4) * 7
    assert layer.training
    model, images = zoo.create("Lab-Ti/8"), torch.zeros(1, 3, 32, 32)
    assert zoo.forward_flops(model, images) == zoo.forward_flops(model.to("meta"), images.to("meta"))
