"""Attention distance: the values known in closed form, both modes, hybrids, rectangles and bad input."""

import pytest
import timm
import torch
from torch import Tensor

from vitlab.analysis.attention import attention_maps
from vitlab.analysis.distance import (
    attention_distance,
    depth_trend,
    distance_and_mass,
    head_reducer,
    head_spread,
    mean_attention_distance,
    pixel_distances,
)

SMALL = {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2, "num_classes": 0}


def uniform(n_tokens: int) -> Tensor:
    return torch.full((1, 1, n_tokens, n_tokens), 1 / n_tokens)


def random_attention(n_tokens: int, batch: int = 2, heads: int = 3) -> Tensor:
    return (3 * torch.randn(batch, heads, n_tokens, n_tokens, generator=torch.Generator().manual_seed(0))).softmax(-1)


class TestKnownAnswers:
    @pytest.mark.parametrize(
        ("grid", "mode", "pixels"),
        [
            pytest.param((14, 14), "renormalized", 116.49, id="224px-renormalized-116.49px"),
            pytest.param((14, 14), "paper", 115.90, id="224px-paper-115.90px"),
            pytest.param((24, 24), "renormalized", 200.0, id="384px-renormalized-200.0px"),
        ],
    )
    def test_uniform_attention_known_answers(self, grid, mode, pixels):
        found = attention_distance(uniform(1 + grid[0] * grid[1]), grid, 16, n_prefix=1, mode=mode)
        assert found.item() == pytest.approx(pixels, abs=0.05 if pixels == 200 else 0.005)

    @pytest.mark.parametrize("mode", ["paper", "renormalized"])
    @pytest.mark.parametrize("n_prefix", [0, 1, 2, 5])
    def test_identity_is_zero_known_answers(self, mode, n_prefix):
        attn = torch.eye(n_prefix + 12).expand(2, 3, -1, -1)
        assert attention_distance(attn, (3, 4), 16, n_prefix, mode).eq(0).all()

    def test_half_class_mass_is_58_2_px_known_answers(self):
        attn = torch.full((1, 1, 197, 197), 0.5 / 196)
        attn[..., 0] = 0.5
        assert attention_distance(attn, (14, 14), 16, 1).item() == pytest.approx(58.2, abs=0.05)
        assert attention_distance(attn, (14, 14), 16, 1, "renormalized").item() == pytest.approx(116.49, abs=0.005)
        assert head_reducer((14, 14), 16, 1)(0, attn)[..., 2].item() == pytest.approx(0.5)

    def test_one_patch_to_the_right_known_answers(self):
        shift = torch.eye(4)[[1, 2, 3, 3]].reshape(1, 1, 4, 4)  # the last looks at itself
        assert attention_distance(shift, (1, 4), 16, 0).item() == pytest.approx(12.0)
        assert attention_distance(shift, (4, 1), (8, 99), 0).item() == pytest.approx(6.0)

    def test_pixel_distances_known_answers(self):
        table = pixel_distances((2, 3), (3, 4))
        assert table[0].tolist() == [0, 4, 8, 3, 5, pytest.approx(73**0.5)]
        assert table.equal(table.T)

    def test_quantities_of_the_claims_known_answers(self):
        rising = torch.arange(12.0).reshape(1, 4, 3)
        assert depth_trend(rising).tolist() == [1.0]
        assert depth_trend(rising.flip(1)).tolist() == [-1.0]
        assert depth_trend(torch.ones(1, 4, 3)).isnan().all()
        assert head_spread(rising).tolist() == [[2.0] * 4]


def test_class_mass_is_distance_zero_only_in_the_papers_mode():
    attn = random_attention(10)
    paper, renormalized = (attention_distance(attn, (3, 3), 16, 1, mode) for mode in ("paper", "renormalized"))
    assert (paper < renormalized).all()
    # With the same mass on the class token in every row, the two differ by that factor exactly.
    attn[..., 0], attn[..., 1:] = 0.3, 0.7 * attn[..., 1:] / attn[..., 1:].sum(-1, keepdim=True)
    paper, renormalized = (attention_distance(attn, (3, 3), 16, 1, mode) for mode in ("paper", "renormalized"))
    torch.testing.assert_close(paper, 0.7 * renormalized)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "vit_tiny_r_s16_p8_224"])
@pytest.mark.parametrize("mode", ["paper", "renormalized"])
def test_model_equals_its_maps(name, mode):
    side = 64 if "_r_" in name else 32
    model = timm.create_model(name, **{**SMALL, "img_size": side}).eval()
    images = torch.randn(3, 3, side, side)
    stride = 32 if "_r_" in name else 16  # a hybrid's total stride, in pixels of the input
    found, mass = distance_and_mass(model, images, mode)
    for block, attn in enumerate(attention_maps(model, images)):
        n_prefix = attn.shape[-1] - 4
        wanted = attention_distance(attn, (2, 2), stride, n_prefix, mode)
        torch.testing.assert_close(found[:, block], wanted, rtol=1e-5, atol=1e-4)
        on_prefix = attn[..., n_prefix:, :n_prefix].sum(-1).mean(-1)
        torch.testing.assert_close(mass[:, block], on_prefix, rtol=1e-5, atol=1e-6)
    assert found.equal(mean_attention_distance(model, images, mode))


class TestBadInput:
    @pytest.mark.parametrize(("grid", "n_prefix"), [((14, 13), 1), ((14, 14), 0), ((14, 14), 2), ((7, 7), 1)])
    def test_grid_or_prefix_that_does_not_fit(self, grid, n_prefix):
        with pytest.raises(ValueError, match=r"attn has shape \[1, 1, 197, 197\], expected \[batch, heads"):
            attention_distance(uniform(197), grid, 16, n_prefix)

    def test_attention_that_is_none(self):
        attn = uniform(10)
        attn[0, 0, 3, 4] = float("nan")
        with pytest.raises(ValueError, match="attn holds NaN"):
            attention_distance(attn, (3, 3), 16, 1)
        for grid, by in (((14, 14), "0.0050[78]"), ((24, 24), "0.00173")):
            cut = uniform(1 + grid[0] * grid[1])[..., 1:, 1:]  # the class column was cut off before
            with pytest.raises(ValueError, match=f"sum differs from 1 by {by}"):
                attention_distance(cut, grid, 16, 0)

    def test_mode(self):
        with pytest.raises(ValueError, match="'renormalised' given, expected 'paper' or 'renormalized'"):
            attention_distance(uniform(4), (2, 2), 16, 0, "renormalised")
