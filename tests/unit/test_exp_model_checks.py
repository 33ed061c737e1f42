"""Counts and logits of our ViT: known numbers, and that the comparison sees what differs."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitlab.experiments import model_checks as checks
from vitlab.experiments.plain_vit import DEVIATIONS, Reading, equations
from vitlab.models.vit import ViT, ViTConfig

pytestmark = pytest.mark.slow

SMALL = ViTConfig(24, 8, dim=24, depth=2, n_heads=3, mlp_dim=40, n_classes=5)
KNOWN = {"ViT-B/16": 86_567_656, "ViT-L/16": 304_326_632, "ViT-H/14": 632_045_800}  # 224 px, 1000 classes


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return checks.model_checks("smoke", seed=0, folder=tmp_path_factory.mktemp("runs"))


def bare(model, images, reading=Reading()):  # noqa: B008
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return equations(weights, images.numpy(), model.config.n_heads, reading)


def test_the_table_has_a_row_per_comparison_and_no_gap(table):
    assert list(table.columns) == checks.COLUMNS
    assert set(table.check) == {"parameters", "part", "tokens", "FLOPs", "logits", "deviation"}
    assert table.drop(columns="seed").notna().all(axis=None)
    assert (table.difference >= 0).all() and (table.ours > 0).all()
    assert table.seed.notna().tolist() == table.check.isin(["logits", "deviation"]).tolist()


@pytest.mark.parametrize("model, count", KNOWN.items())
def test_parameters_of_table_1(table, model, count):
    rows = table[(table.check == "parameters") & (table.model == model)].set_index("against")
    assert (rows.ours == count).all()
    assert rows.theirs["timm"] == rows.theirs["formula"] == count
    assert abs(rows.theirs["paper"] / count - 1) < 0.01


def test_the_parts_are_the_whole(table):
    parts = table[table.check == "part"]
    assert (parts.difference == 0).all()
    assert parts.groupby("model").ours.sum().to_dict() == KNOWN


def test_tokens_and_work(table):
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


def test_another_seed_gives_other_draws_and_a_rerun_computes_nothing(table, tmp_path, monkeypatch, capsys):
    def smaller(name):
        return checks.StudyConfig((), ("plain",), n_seeds=1, n_images=1)

    monkeypatch.setattr(checks, "CONFIGS", {"smoke": smaller("smoke")})
    first = checks.model_checks("smoke", seed=0, folder=tmp_path)
    again = checks.model_checks("smoke", seed=0, folder=tmp_path)
    assert first.equals(again) and "were finished before" in capsys.readouterr().out
    other = checks.model_checks("smoke", seed=7, folder=tmp_path)
    assert set(other.seed) == {7} and not np.isclose(first.ours, other.ours).any()
    assert len(list(tmp_path.glob("*.json"))) == 4
    assert all(json.loads(path.read_text())["rows"] for path in tmp_path.glob("*.json"))


def test_a_preset_that_does_not_run_here_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        checks.model_checks("huge", folder=tmp_path)
    with pytest.raises(ValueError, match="is not run from here"):
        checks.model_checks("paper", folder=tmp_path)


@pytest.mark.parametrize("changes", [{}, {"head": "tanh"}, {"pool": "gap"}, {"patch_size": 12}], ids=str)
def test_formula_and_count_agree(changes):
    config = ViTConfig(**{**vars(SMALL), **changes})
    model = ViT(config)
    assert checks.counted_parts(model) == checks.parameter_parts(config)
    assert sum(checks.counted_parts(model).values()) == sum(p.numel() for p in model.parameters())


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


@pytest.mark.parametrize("name", [name for name in checks.ARCHITECTURES if "224" not in name])
def test_equations_are_our_model_in_float64(name):
    model = checks.randomise(ViT(checks.ARCHITECTURES[name]), seed=3).eval().double().requires_grad_(False)
    side = model.config.image_size
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0)).double()
    np.testing.assert_allclose(bare(model, images), model(images).numpy(), rtol=0, atol=1e-12)


def test_every_deviation_is_the_change_it_says(monkeypatch):
    """Our model with the same one thing changed agrees with the deviating equations."""

    def changed(deviation):
        model = checks.randomise(ViT(SMALL), seed=0).eval().double().requires_grad_(False)
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
        return model

    images = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0)).double()
    straight = checks.randomise(ViT(SMALL), seed=0).eval().double()
    for deviation, reading in DEVIATIONS.items():
        np.testing.assert_allclose(
            bare(straight, images, reading), changed(deviation)(images).numpy(), rtol=0, atol=1e-12
        )


def test_timm_twin_is_a_model_of_its_own():
    model = checks.randomise(ViT(SMALL), seed=0).eval().requires_grad_(False)
    twin, images = checks._timm_twin(model), torch.randn(2, 3, 24, 24)
    assert type(twin).__module__.startswith("timm.")
    twin.head.bias.data += 1
    assert F.l1_loss(twin(images), model(images)).item() == pytest.approx(1, abs=1e-5)
    assert checks._timm_twin(ViT(ViTConfig(**{**vars(SMALL), "head": "tanh"}))) is None
