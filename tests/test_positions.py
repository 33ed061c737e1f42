"""Position embeddings: hand-made similarity maps, what they show, and the tables of models."""

import pytest
import timm
import torch
from torch import Tensor

from vitlab.analysis.positions import (
    distance_correlation,
    position_embeddings,
    position_grid,
    position_similarity,
    row_column_excess,
)
from vitlab.models.vit import ViT, ViTConfig


def noise(n: int, dim: int = 6) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0))


def isotropic(rows: int, cols: int, width: float = 3.0) -> Tensor:
    """Similarity that depends on the distance alone."""
    y, x = torch.arange(rows).repeat_interleave(cols), torch.arange(cols).repeat(rows)
    d2 = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    return torch.exp(-d2 / (2 * width**2)).reshape(rows, cols, rows, cols)


class TestKnownAnswers:
    def test_cosine_map_of_hand_made_embeddings_known_answers(self):
        pos = torch.tensor([[1.0, 0], [0, 2], [-3, 0], [1, 1], [5, 0], [0, -1]])  # two rows, three columns
        found = position_similarity(pos, (2, 3))
        half = 0.5**0.5
        torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 0, -1], [half, 1, 0]]))
        torch.testing.assert_close(found[1, 2], torch.tensor([[0.0, -1, 0], [-half, 0, 1]]))

    def test_distance_correlation_known_answers(self):
        assert distance_correlation(isotropic(5, 7)) == pytest.approx(1.0, abs=1e-6)
        assert distance_correlation(-isotropic(5, 7)) == pytest.approx(-1.0, abs=1e-6)
        assert abs(distance_correlation(position_similarity(noise(144, 200), (12, 12)))) < 0.05

    def test_row_column_excess_known_answers(self):
        row = torch.eye(6)[:, None, :, None].expand(6, 6, 6, 6)  # alike in one row, whatever the distance
        assert row_column_excess(row) == (pytest.approx(1.0), pytest.approx(0.0))
        assert row_column_excess(row.permute(1, 0, 3, 2)) == (pytest.approx(0.0), pytest.approx(1.0))
        assert max(abs(excess) for excess in row_column_excess(isotropic(8, 8))) < 0.03  # nearness is no excess


class TestModels:
    def test_prefix_is_dropped_from_the_front(self):
        model = ViT(ViTConfig(image_size=32, patch_size=8, dim=16, depth=1, n_heads=2, mlp_dim=16, n_classes=2))
        assert position_embeddings(model).equal(model.pos_embed[0, 1:])
        assert position_grid(model) == (4, 4)
        assert not position_embeddings(model).requires_grad

    @pytest.mark.parametrize(
        ("name", "dropped"),
        [
            ("vit_tiny_patch16_224", 1),
            ("deit_tiny_distilled_patch16_224", 2),
            ("deit3_small_patch16_224", 0),  # its position embeddings leave the class token out
            ("vit_small_patch14_reg4_dinov2", 0),
            ("vit_base_patch16_siglip_224", 0),
            ("vit_tiny_r_s16_p8_224", 1),
        ],
    )
    def test_timm(self, name, dropped):
        model = timm.create_model(name, depth=1, embed_dim=32, num_heads=2, num_classes=0)
        rows, cols = position_grid(model)
        assert position_embeddings(model).equal(model.pos_embed[0, dropped:])
        assert len(position_embeddings(model)) == rows * cols

    def test_rectangle_and_four_dimensions(self):
        model = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=(32, 64))
        assert position_grid(model) == (2, 4)
        flexible = timm.create_model("naflexvit_base_patch16_gap", depth=1, num_classes=0)
        assert position_embeddings(flexible).equal(flexible.embeds.pos_embed.reshape(-1, 768))

    def test_table_with_its_dimension_first(self):
        model = timm.create_model("pit_ti_224", num_classes=0)
        with pytest.raises(ValueError, match=r"position embeddings \[1, 64, 27, 27\] for 27 x 27 patches"):
            position_embeddings(model)

    @pytest.mark.parametrize(
        "name", ["beit_base_patch16_224", "vit_relpos_small_patch16_224", "vit_small_patch16_dinov3"]
    )
    def test_without_absolute_positions(self, name):
        with pytest.raises(ValueError, match="no learned absolute position embeddings"):
            position_embeddings(timm.create_model(name, depth=1))


def test_similarity_is_not_rounded_under_autocast():
    pos = noise(16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = position_similarity(pos, (4, 4))
    assert found.dtype == torch.float32
    assert found.equal(position_similarity(pos, (4, 4)))


def test_embeddings_and_similarities_that_say_nothing():
    with pytest.raises(ValueError, match=r"pos has shape \[17, 6\], expected \[16, D\] for 4 x 4"):
        position_similarity(noise(17), (4, 4))
    for value in (0.0, float("nan")):
        with pytest.raises(ValueError, match="zero or not finite"):
            position_similarity(torch.full((4, 3), value), (2, 2))
