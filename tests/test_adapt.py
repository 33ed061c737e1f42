"""A new head and another grid: what is kept, what is zero, positions resized as the authors, timm and scipy do."""

import numpy as np
import pytest
import timm
import torch
from scipy import ndimage
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn
from weights import randomise

from vitlab.models import zoo
from vitlab.models.adapt import CONVENTIONS, resize_positions, with_new_head

GRIDS = [((7, 7), (12, 12)), ((7, 7), (4, 4)), ((3, 5), (8, 6)), ((4, 6), (2, 13))]


def noise(n: int, dim: int = 6) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_positions_are_resized_as_scipy_and_timm_do(old, new):
    pos = noise(old[0] * old[1])
    zoom = (new[0] / old[0], new[1] / old[1], 1)
    wanted = ndimage.zoom(pos.reshape(*old, -1).numpy(), zoom, order=1).reshape(new[0] * new[1], -1)
    assert np.abs(resize_positions(pos, old, new).numpy() - wanted).max() <= 1e-5
    bilinear = {"interpolation": "bilinear", "antialias": False}
    for convention, options in (("timm", {}), ("timm-npz", bilinear), ("hf", {"antialias": False})):
        wanted = resample_abs_pos_embed(pos[None], list(new), list(old), num_prefix_tokens=0, **options)[0]
        torch.testing.assert_close(resize_positions(pos, old, new, convention), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_column_is_resized_as_a_row_and_prefix_tokens_are_kept(convention):
    pos = noise(9)
    row = resize_positions(pos, (1, 7), (1, 4), convention, n_prefix=2)
    torch.testing.assert_close(resize_positions(pos, (7, 1), (4, 1), convention, n_prefix=2), row)
    assert torch.equal(row[:2], pos[:2]) and resize_positions(pos, (1, 7), (1, 7), convention, n_prefix=2) is pos
    constant = resize_positions(torch.full((12, 2), 2.5), (3, 4), (5, 1), convention)
    torch.testing.assert_close(constant, torch.full((5, 2), 2.5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4, 4), (5, 5)), r"pos has shape \[17, 6\], expected \[16, D\] for 4 x 4 patches; prefix tokens come first"),
        (((1, 17), (3, 3), "keras"), "convention 'keras' given, expected one of paper, timm"),
        (((1, 17), (0, 3)), r"new grid \(0, 3\) given, expected at least 1 x 1"),
    ],
)
def test_what_cannot_be_resized(arguments, message):
    with pytest.raises(ValueError, match=message):
        resize_positions(noise(17), *arguments)


@pytest.mark.parametrize("name", ["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"])
def test_everything_but_the_head_is_kept_and_the_head_is_zero(name):
    model, images = randomise(zoo.create(name)), torch.randn(2, 3, 32, 32)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    new = with_new_head(model, 7)
    assert new(images).equal(torch.zeros(2, 7)) and new.forward_features(images).equal(model.forward_features(images))
    assert all(torch.equal(new.state_dict()[key], before[key]) for key in before if not key.startswith("head."))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_the_hidden_layer_of_the_pretraining_head_goes():
    new = with_new_head(randomise(zoo.create("Lab-Ti/8", head="tanh")), 3)
    assert not [key for key in new.state_dict() if key.startswith("pre_logits")] and new.config.head == "linear"


def test_larger_images_have_positions_of_the_papers_convention():
    ours = randomise(zoo.create("Lab-Ti/8", n_classes=5))
    timms = randomise(timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=5))
    for model, side in ((ours, 48), (timms, 96)):
        new = with_new_head(model, 3, image_size=side)
        old = model.pos_embed[0].detach()
        zoomed = ndimage.zoom(old[1:].reshape(4, 4, -1).numpy(), (6 / 4, 6 / 4, 1), order=1)
        assert torch.equal(new.pos_embed[0, 0], old[0])  # the class token's
        found = new.pos_embed[0, 1:].detach().reshape(6, 6, -1)
        torch.testing.assert_close(found, torch.from_numpy(zoomed), atol=1e-5, rtol=0)
        assert new(torch.randn(2, 3, side, side)).equal(torch.zeros(2, 3))
    images = torch.randn(1, 3, 48, 48)
    resnet = randomise(zoo.create("BiT-Lab-Ti/8"))
    assert with_new_head(resnet, 3, image_size=48).forward_features(images).equal(resnet.forward_features(images))


def test_both_heads_of_a_distilled_deit_are_new():
    settings = {"img_size": 32, "embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 5}
    model = randomise(timm.create_model("deit_tiny_distilled_patch16_224", **settings))
    new = with_new_head(model, 7, image_size=48)
    assert new(torch.randn(2, 3, 48, 48)).equal(torch.zeros(2, 7))
    assert (new.head.out_features, new.head_dist.out_features, model.num_classes) == (7, 7, 5)


def test_a_model_whose_head_is_not_known_is_refused():
    with pytest.raises(ValueError, match="a DataParallel is no model of ours or timm's.*give `model.module`"):
        with_new_head(nn.DataParallel(zoo.create("Lab-Mu/8")), 3)
    with pytest.raises(ValueError, match="n_classes is 0; a head needs at least 1"):
        with_new_head(zoo.create("Lab-Mu/8"), 0)
