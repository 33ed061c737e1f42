"""Position embeddings: hand-made similarity maps, resizing against scipy and timm, and prefix handling."""

import math

import numpy as np
import pytest
import timm
import torch
from scipy import ndimage
from timm.layers import resample_abs_pos_embed
from torch import Tensor

from vitlab.analysis.positions import (
    distance_correlation,
    position_embeddings,
    position_grid,
    position_similarity,
    row_column_excess,
)
from vitlab.models.adapt import CONVENTIONS, resize_positions
from vitlab.models.vit import ViT, ViTConfig

SHAPES = [((7, 7), (12, 12)), ((7, 7), (4, 4)), ((3, 5), (8, 6)), ((4, 6), (2, 13)), ((2, 3), (2, 7))]
GRIDS = [
    pytest.param(old, new, id=f"{'square' if old[0] == old[1] else 'rectangle'}-{old[0]}x{old[1]}-to-{new[0]}x{new[1]}")
    for old, new in SHAPES
]


def noise(n: int, dim: int = 6) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0))


def axis_weights(old: int, new: int, convention: str) -> Tensor:
    """One axis's interpolation as a matrix [new old], written out from the definitions in float64."""
    mode = CONVENTIONS[convention]
    scale = old / new
    centres = (torch.arange(new, dtype=torch.float64) + 0.5) * scale - 0.5
    if mode["align_corners"]:
        centres = torch.arange(new, dtype=torch.float64) * ((old - 1) / (new - 1) if new > 1 else 0)
    if mode.get("antialias"):  # the kernel is as wide as what it shrinks, and has nothing beyond the edge
        x = (torch.arange(old) - centres[:, None]) / max(scale, 1)
        weights = torch.where(x.abs() < 2, cubic(x.abs(), -0.5), 0)
        return weights / weights.sum(1, keepdim=True)
    reach = 2 if mode["mode"] == "bicubic" else 1
    weights = torch.zeros(new, old, dtype=torch.float64)
    for row, centre in enumerate(centres.tolist()):
        centre = max(centre, 0) if reach == 1 else centre
        for column in range(math.floor(centre) - reach + 1, math.floor(centre) + reach + 1):
            x = torch.tensor(abs(column - centre), dtype=torch.float64)
            share = cubic(x, -0.75) if reach == 2 else (1 - x).clamp_min(0)
            weights[row, min(max(column, 0), old - 1)] += share  # the edge is repeated
    return weights


def cubic(x: Tensor, a: float) -> Tensor:
    """Keys's convolution kernel of distances x ≥ 0; torch has a = -0.75, and -0.5 with antialiasing."""
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return torch.where(x <= 1, near, torch.where(x < 2, far, 0.0))


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

    @pytest.mark.parametrize(("old", "new"), GRIDS)
    def test_resize_equals_scipy_zoom_known_answers(self, old, new):
        pos = noise(old[0] * old[1])
        zoom = (new[0] / old[0], new[1] / old[1], 1)
        wanted = ndimage.zoom(pos.reshape(*old, -1).numpy(), zoom, order=1).reshape(new[0] * new[1], -1)
        assert np.abs(resize_positions(pos, old, new).numpy() - wanted).max() <= 1e-5

    @pytest.mark.parametrize(("old", "new"), GRIDS)
    def test_resize_equals_timm_known_answers(self, old, new):
        pos = noise(old[0] * old[1])
        for convention, options in (
            ("timm", {}),
            ("timm-npz", {"interpolation": "bilinear", "antialias": False}),
            ("hf", {"antialias": False}),
        ):
            wanted = resample_abs_pos_embed(pos[None], list(new), list(old), num_prefix_tokens=0, **options)[0]
            torch.testing.assert_close(resize_positions(pos, old, new, convention), wanted, atol=1e-5, rtol=0)

    @pytest.mark.parametrize(
        ("old", "new"), [((7, 7), (3, 1)), ((7, 1), (9, 1)), ((7, 2), (5, 1)), ((1, 7), (1, 3)), ((7, 7), (1, 1))]
    )
    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_narrow_grids_equal_a_resize_of_each_axis_in_turn_known_answers(self, old, new, convention):
        pos = noise(old[0] * old[1])
        wanted = torch.einsum(
            "yr,xc,rcd->yxd",
            axis_weights(old[0], new[0], convention),
            axis_weights(old[1], new[1], convention),
            pos.double().reshape(*old, -1),
        )
        found = resize_positions(pos, old, new, convention)
        torch.testing.assert_close(found.double(), wanted.flatten(0, 1), atol=1e-5, rtol=0)

    def test_aligned_corners_keep_corners_known_answers(self):
        pos = noise(49)
        for convention in ("paper", "torchvision"):
            large = resize_positions(pos, (7, 7), (13, 13), convention)
            torch.testing.assert_close(large.reshape(13, 13, -1)[::2, ::2].reshape(49, -1), pos, atol=1e-5, rtol=0)

    def test_distance_correlation_known_answers(self):
        assert distance_correlation(isotropic(5, 7)) == pytest.approx(1.0, abs=1e-6)
        assert distance_correlation(-isotropic(5, 7)) == pytest.approx(-1.0, abs=1e-6)
        random = position_similarity(noise(144, 200), (12, 12))
        assert abs(distance_correlation(random)) < 0.05

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

    @pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "naflexvit_base_patch16_gap"])
    def test_editing_them_leaves_the_model_as_it_was(self, name):
        model = timm.create_model(name, depth=1, embed_dim=48, num_heads=2, num_classes=0)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        position_embeddings(model).zero_()
        assert all(value.equal(before[key]) for key, value in model.state_dict().items())

    def test_table_with_its_dimension_first(self):
        model = timm.create_model("pit_ti_224", num_classes=0)  # [1, 64, 27, 27]
        for read in (position_grid, position_embeddings):
            with pytest.raises(ValueError, match=r"\[1, 64, 27, 27\]: the dimension .* expected \[1, 27, 27, D\]"):
                read(model)
        model.pos_embed = torch.nn.Parameter(torch.zeros(1, 9, 9, 64))
        with pytest.raises(ValueError, match=r"\[1, 9, 9, 64\]; expected \[1, 27, 27, D\] for 27 x 27 patches"):
            position_grid(model)

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_is_widened_and_double_stays(dtype):
    pos, wide = noise(16).to(dtype), torch.promote_types(dtype, torch.float32)
    found = position_similarity(pos, (4, 4))
    assert found.dtype == wide
    assert found.equal(position_similarity(pos.to(wide), (4, 4)))
    of_dtype = found.to(dtype)  # what was stored in half precision
    assert distance_correlation(of_dtype) == distance_correlation(of_dtype.to(wide))
    assert row_column_excess(of_dtype) == row_column_excess(of_dtype.to(wide))


class TestResize:
    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_prefix_is_kept_and_same_size_is_the_same(self, convention):
        pos = noise(2 + 12)
        large = resize_positions(pos, (3, 4), (6, 5), convention, n_prefix=2)
        assert large.shape == (2 + 30, 6)
        assert large[:2].equal(pos[:2])
        assert large[2:].equal(resize_positions(pos[2:], (3, 4), (6, 5), convention))
        assert resize_positions(pos, (3, 4), (3, 4), convention, n_prefix=2).equal(pos)

    def test_conventions_differ_on_noise(self):
        pos = noise(14 * 14, 64)
        paper = resize_positions(pos, (14, 14), (24, 24))
        for convention in set(CONVENTIONS) - {"paper"}:
            other = resize_positions(pos, (14, 14), (24, 24), convention)
            assert 0.2 < (other - paper).norm() / paper.norm() < 0.5

    def test_half_precision(self):
        pos = noise(16).half()
        found = resize_positions(pos, (4, 4), (6, 6), "timm")
        assert found.dtype == torch.float16
        wanted = resize_positions(pos.float(), (4, 4), (6, 6), "timm")
        torch.testing.assert_close(found.float(), wanted, atol=2e-3, rtol=1e-3)


class TestBadInput:
    def test_grid_that_does_not_fit(self):
        with pytest.raises(ValueError, match=r"pos has shape \[17, 6\], expected \[16, D\] for 4 x 4"):
            position_similarity(noise(17), (4, 4))
        with pytest.raises(ValueError, match=r"pos has shape \[17, 6\], expected \[16, D\]"):
            resize_positions(noise(17), (4, 4), (5, 5))

    def test_values(self):
        with pytest.raises(ValueError, match="zero or not finite"):
            position_similarity(torch.zeros(4, 3), (2, 2))
        with pytest.raises(ValueError, match="zero or not finite"):
            position_similarity(torch.full((4, 3), float("nan")), (2, 2))

    def test_names_and_sizes(self):
        with pytest.raises(ValueError, match="'keras' given, expected one of paper, timm"):
            resize_positions(noise(4), (2, 2), (3, 3), "keras")
        with pytest.raises(ValueError, match="expected at least 1 x 1"):
            resize_positions(noise(4), (2, 2), (0, 3))
        with pytest.raises(ValueError, match="at least 3 patches"):
            distance_correlation(torch.ones(1, 2, 1, 2))


def test_equal_similarities_have_no_rank():
    with pytest.raises(ValueError, match=r"same similarity, 1\.000"):
        distance_correlation(torch.ones(2, 3, 2, 3))
