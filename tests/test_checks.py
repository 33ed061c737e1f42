"""Counts and logits of our ViT: known numbers, and that the comparison sees what differs."""

import numpy as np
import pytest
import torch

from vitlab.models.vit import ViT, ViTConfig
from vitlab.studies import checks
from vitlab.studies.checks import DEVIATIONS, equations

SMALL = ViTConfig(24, 8, dim=24, depth=2, n_heads=3, mlp_dim=40, n_classes=5)
KNOWN = {"ViT-B/16": 86_567_656, "ViT-L/16": 304_326_632, "ViT-H/14": 632_045_800}  # 224 px, 1000 classes


@pytest.fixture(scope="module")
def table():
    return checks.model_checks("smoke")


def compute(model, images, deviation):
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return equations(weights, images.numpy(), model.config.n_heads, deviation)


def test_counts_are_table_1s(table):
    for model, count in KNOWN.items():
        rows = table[(table.check == "parameters") & (table.model == model)].set_index("against")
        assert (rows.ours == count).all() and rows.theirs["timm"] == rows.theirs["formula"] == count
        assert abs(rows.theirs["paper"] / count - 1) < 0.01
    tokens = table[table.check == "tokens"].set_index("model").ours
    assert tokens.to_dict() == {"ViT-B/16": 197, "ViT-L/16": 197, "ViT-H/14": 257}
    work = table[table.check == "FLOPs"]
    assert (work.difference / work.theirs < 0.02).all()  # Table 6, which rounds to whole exaFLOPs


def test_logits_are_equal_and_deviations_are_seen(table):
    logits = table[table.check == "logits"]
    assert (logits.ours > 0.1).all()  # something to compare
    assert (logits.difference <= 1e-5).all()
    assert (logits[logits.against.str.contains("float64")].difference <= 1e-12).all()
    assert (table[table.check == "deviation"].groupby("part").difference.max() > 1e-5).all()


@pytest.mark.parametrize("changes", [{}, {"head": "tanh"}, {"pool": "gap"}, {"patch_size": 12}], ids=str)
def test_formula_and_count_agree(changes):
    model = ViT(ViTConfig(**{**vars(SMALL), **changes}))
    assert sum(checks.parameter_parts(model.config).values()) == sum(p.numel() for p in model.parameters())


def test_random_weights_leave_no_part_silent_and_follow_the_seed():
    one, same, other = (checks.randomise(ViT(SMALL), seed).state_dict() for seed in (0, 0, 1))
    for name in one:
        assert (one[name] != 0).all() and torch.equal(one[name], same[name]), name
        assert not torch.equal(one[name], other[name]), name


def test_equations_of_a_model_by_hand():
    """No blocks' worth of anything: zero weights leave LN(class token + position) times the head."""
    weights = {name: np.zeros(value.shape) for name, value in ViT(SMALL).state_dict().items()}
    weights["cls_token"][..., 0], weights["norm.weight"][:], weights["norm.bias"][:] = 23.0, 1.0, 0.5
    weights["head.weight"][2, 0], weights["head.bias"][:] = 2.0, 0.25
    logits = equations(weights, np.ones((1, 3, 24, 24)), n_heads=3)
    # The token is (23, 0, …, 0), 24 numbers: mean 23/24, variance 23²/24 − mean² = 23³/24².
    first = (23 - 23 / 24) / np.sqrt(23**3 / 24**2 + 1e-6) + 0.5
    np.testing.assert_allclose(logits, [[0.25, 0.25, 2 * first + 0.25, 0.25, 0.25]], rtol=1e-12)


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_every_deviation_is_the_change_it_says(deviation):
    """Our model with the same one thing changed agrees with the deviating equations."""
    images = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0)).double()
    model = checks.randomise(ViT(SMALL), seed=0).eval().double().requires_grad_(False)
    expected = compute(model, images, deviation)
    for block in model.blocks:
        if deviation == "LayerNorm ε 1e-5":
            block.norm1.eps = block.norm2.eps = model.norm.eps = 1e-5
        if deviation == "GELU by tanh":
            block.mlp.act = torch.nn.GELU(approximate="tanh")
        if deviation == "scores / √D":
            block.attn.fused_attn, block.attn.scale = False, SMALL.dim**-0.5
        if deviation == "norm after the sum":
            block.forward = lambda x, b=block: b.norm2((y := b.norm1(x + b.attn(x))) + b.mlp(y))
    if deviation == "no positions":
        model.pos_embed.zero_()
    np.testing.assert_allclose(model(images).numpy(), expected, rtol=0, atol=1e-12)
