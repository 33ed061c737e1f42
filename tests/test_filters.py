"""Embedding filters: PCA against scikit-learn, display scaling, spectra, and models without RGB filters."""

import numpy as np
import pytest
import timm
import torch
from sklearn.decomposition import PCA
from torch import Tensor
from weights import check_a_copy

from vitlab.analysis.filters import (
    embedding_filters,
    filter_components,
    filter_tiles,
    low_frequency_share,
    white_noise_share,
)
from vitlab.analysis.positions import position_embeddings
from vitlab.models.vit import ViT, ViTConfig


def random_filters(count: int = 60, side: int = 4) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    scale = torch.linspace(3, 0.1, 3 * side**2)
    return (torch.randn(count, 3 * side**2, generator=draw) * scale + 5).reshape(count, 3, side, side)


class TestKnownAnswers:
    def test_pca_equals_scikit_learn_sign_included_known_answers(self):
        filters = random_filters()
        pca = PCA(28, svd_solver="full").fit(filters.flatten(1).double().numpy())
        components, explained = filter_components(filters)
        np.testing.assert_allclose(components.flatten(1), pca.components_, atol=1e-5)  # sign included
        np.testing.assert_allclose(explained, pca.explained_variance_ratio_, atol=1e-6)

    def test_pca_filters_are_the_samples_and_are_centred_known_answers(self):
        # All filters share a large offset and vary along one picture only: it is the one component.
        picture = torch.zeros(3, 4, 4)
        picture[0, 1, 2], picture[2, 3, 3] = -3.0, 4.0
        amounts = torch.linspace(-1, 1, 20)
        components, explained = filter_components(100 + amounts[:, None, None, None] * picture, n=1)
        torch.testing.assert_close(components[0], picture / 5, atol=1e-4, rtol=0)
        assert explained.item() == pytest.approx(1.0)

    def test_pca_sign_is_fixed_known_answers(self):
        filters = random_filters()
        components = filter_components(filters)[0].flatten(1)
        assert (components.gather(1, components.abs().argmax(1, keepdim=True)) > 0).all()
        torch.testing.assert_close(filter_components(-filters)[0].flatten(1), components, atol=1e-4, rtol=0)
        torch.testing.assert_close(filter_components(filters.flip(0))[0].flatten(1), components, atol=1e-4, rtol=0)

    def test_tiles_known_answers(self):
        components = torch.zeros(2, 3, 2, 2)
        components[0, 0], components[0, 1], components[0, 2] = -1.0, 1.0, 0.0  # channels are not scaled apart
        tiles = filter_tiles(components)
        assert tiles[0, :, 0, 0].tolist() == [0.0, 1.0, 0.5]
        assert tiles[1].eq(0.5).all()

    @pytest.mark.parametrize(("cycles", "share"), [(0, 1.0), (1, 1.0), (2, 1.0), (3, 0.0), (4, 0.0)])
    def test_waves_lie_below_or_above_the_cutoff_known_answers(self, cycles, share):
        wave = torch.cos(2 * torch.pi * cycles * torch.arange(8) / 8)
        assert low_frequency_share(wave.expand(1, 3, 8, 8)).item() == pytest.approx(share, abs=1e-6)
        assert low_frequency_share(wave[:, None].expand(1, 3, 8, 8)).item() == pytest.approx(share, abs=1e-6)

    def test_white_noise_known_answers(self):
        noise = torch.randn(400, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        assert white_noise_share((8, 8)) == 13 / 64  # points of the 8 x 8 spectrum within 2 of the origin
        assert low_frequency_share(noise).mean().item() == pytest.approx(13 / 64, abs=0.01)


class TestModels:
    def test_our_vit(self):
        model = ViT(ViTConfig(image_size=32, patch_size=8, dim=16, depth=1, n_heads=2, mlp_dim=16, n_classes=2))
        filters = embedding_filters(model)
        assert filters.equal(model.patch_embed.proj.weight)
        assert not filters.requires_grad

    def test_linear_projection_has_its_channels_last(self):
        model = timm.create_model("naflexvit_base_patch16_gap", depth=1, num_classes=0)
        patch = torch.randn(1, 3, 16, 16)
        tokens = model.embeds.proj(patch.permute(0, 2, 3, 1).flatten(1))[0] - model.embeds.proj.bias
        torch.testing.assert_close((embedding_filters(model) * patch).sum((1, 2, 3)), tokens, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("read", [embedding_filters, position_embeddings])
    @pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "naflexvit_base_patch16_gap"])
    def test_editing_them_leaves_the_model_as_it_was(self, name, read):
        check_a_copy(read, timm.create_model(name, depth=1, embed_dim=48, num_heads=2, num_classes=0))

    @pytest.mark.parametrize("name", ["vit_tiny_r_s16_p8_224", "xcit_nano_12_p16_224", "resnet18"])
    def test_without_rgb_filters(self, name):
        options = {"depth": 1} if name != "resnet18" else {}
        with pytest.raises(ValueError, match="no RGB filters|no patch embedding"):
            embedding_filters(timm.create_model(name, **options))


@pytest.mark.parametrize("n", [0, 49])
def test_number_of_components(n):
    with pytest.raises(ValueError, match=f"n {n} given, expected 1…48"):
        filter_components(random_filters(), n)
    with pytest.raises(ValueError, match=r"expected 1…10 for filters \[10, 3, 4, 4\]"):
        filter_components(random_filters(10))
