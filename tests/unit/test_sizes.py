"""Sizes of the lab models: hand counts, and the table that shows them."""

import pytest

from vitlab.models import sizes
from vitlab.plots.families import sizes_table


def test_vit_counts_by_hand():
    """Lab-Ti/8 at 32 px: 16 patches of 192 numbers, D = 64, four blocks with M = 4 D, ten classes."""
    size = sizes.size_of("Lab-Ti/8")
    embedding, positions, norm, head = 192 * 64 + 64, 64 + 17 * 64, 2 * 64, 64 * 10 + 10
    assert size.parameters == embedding + positions + 4 * (12 * 64**2 + 13 * 64) + norm + head
    dense, attention = 2 * 17 * 12 * 64**2, 2 * 2 * 17**2 * 64
    assert size.flops == 2 * 16 * 192 * 64 + 4 * (dense + attention) + 2 * 64 * 10
    assert (size.dim, size.depth, size.n_heads, size.resnet_widths, size.resnet_depth) == (64, 4, 4, (), 0)


def test_resnet_and_hybrid_have_their_parts():
    resnet, hybrid = sizes.size_of("BiT-Lab-Ti/8"), sizes.size_of("R+Lab-Ti/8")
    assert (resnet.resnet_widths, resnet.resnet_depth) == ((16, 32, 64, 128), 4)
    assert (resnet.dim, resnet.depth, resnet.n_heads) == (0, 0, 0)
    assert (hybrid.resnet_widths, hybrid.resnet_depth) == ((8, 16, 32), 4)
    assert (hybrid.dim, hybrid.depth, hybrid.n_heads) == (64, 4, 4)


def test_every_size_of_every_family_is_in_the_table():
    named = [row.split(" | ")[:2] for row in sizes_table(sizes.lab_sizes()).splitlines()[2:]]
    expected = [
        [f"| `{prefix}Lab-{size}/8`", f"{label}-{size}/8"]
        for prefix, label in (("", "ViT"), ("BiT-", "ResNet"), ("R+", "hybrid"))
        for size in ("Mu", "Ti", "S", "B")
    ]
    assert named == expected


def test_a_model_of_timms_is_refused():
    with pytest.raises(ValueError, match="expected a name of ours"):
        sizes.size_of("vit_tiny_patch16_224", image_size=224)
