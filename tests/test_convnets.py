"""ResNet (BiT) and hybrid: compute matched to the ViT's, BiT's ingredients, timm's patch embedding, errors."""

import math

import pytest
import torch
from timm.layers import HybridEmbed, StdConv2d
from torch import nn
from weights import randomise

from vitlab.models import zoo
from vitlab.models.convnets import BiT, BiTConfig, Conv2d, Hybrid, HybridConfig
from vitlab.models.vit import ViT
from vitlab.models.zoo import forward_flops, multiply_adds

RESNET = BiTConfig(width=8, layers=(1, 2), stem_stride=2, image_size=16, n_classes=4)
BODY = {"image_size": 16, "patch_size": 4, "dim": 16, "depth": 2, "n_heads": 2, "mlp_dim": 32, "n_classes": 4}
HYBRID = HybridConfig(**BODY, width=8, layers=(1, 2), stem_stride=2)


def images(side: int = 16, count: int = 4) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


# compute


@pytest.mark.parametrize(
    ("patch", "pixels", "sizes"), [(8, 32, "Ti S M B"), (4, 32, "Ti S"), (8, 64, "M"), (2, 8, "Ti B")]
)
def test_the_resnets_compute_is_the_vits(patch, pixels, sizes):
    for size in (f"Lab-{each}" for each in sizes.split()):
        ours, vits = (multiply_adds(f"{family}{size}/{patch}", pixels) for family in ("BiT-", ""))
        assert ours == pytest.approx(vits, rel=0.15)


def test_the_resnets_share_of_a_hybrids_compute_is_the_papers():
    # Table 6, exaFLOPs of R50+ViT-B and ViT-B after 7 epochs: it adds 93 % at a stride of 32 and 22 % at 16
    for size in ("Lab-Ti", "Lab-B"):
        for stride, of_paper, factor in ((16, 106 / 55 - 1, 1.4), (8, 274 / 224 - 1, 1.7)):
            added = multiply_adds(f"R+{size}/{stride}", 32) / multiply_adds(f"{size}/{stride}", 32) - 1
            assert of_paper / factor < added < of_paper * factor


def test_flops_by_hand():
    model = BiT(BiTConfig(width=8, layers=(1,), stem_stride=1, image_size=8, n_classes=2))
    stem, block, head = 64 * 9 * 3 * 8, 2 * 64 * 9 * 8 * 8, 8 * 2
    assert forward_flops(model, torch.zeros(1, 3, 8, 8)) == 2 * (stem + block + head)
    stem, stage_1 = 16**2 * 9 * 3 * 8, 16**2 * 2 * 9 * 8 * 8
    stage_2 = 8**2 * (9 * 8 * 16 + 9 * 16 * 16 + 8 * 16)  # two convolutions and the 1 × 1 next to them
    stage_3 = 4**2 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) + 4**2 * 2 * 9 * 32 * 32  # two blocks: stage 4's is here
    resnet, convs = stem + stage_1 + stage_2 + stage_3, 9 * (16**2 * 3 * 24 + 8**2 * 24 * 48 + 4**2 * 48 * 96)
    for name, flops in ("R+Lab-Ti/8", resnet + 4**2 * 32 * 64), ("C+Ti/8", convs + 4**2 * 96 * 64):
        assert forward_flops(zoo.create(name).patch_embed, torch.zeros(1, 3, 32, 32)) == 2 * flops


# the ResNet


def test_neither_the_scale_of_weights_nor_the_batch_nor_the_layout_matters():
    model = randomise(BiT(RESNET)).train()  # GroupNorm, not BatchNorm
    before = model(images())
    torch.testing.assert_close(model(images()[:1]), before[:1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(images().contiguous(memory_format=torch.channels_last)), before)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.mul_(3).add_(1)
            elif isinstance(module, nn.GroupNorm):
                assert module.num_channels == 8 * module.num_groups
    torch.testing.assert_close(model(images()), before, atol=1e-3, rtol=1e-3)


def test_a_1_x_1_convolution_with_a_stride_equals_timms():
    ours, theirs = Conv2d(8, 16, kernel_size=1, stride=2), StdConv2d(8, 16, kernel_size=1, stride=2)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 8, 7, 7)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("model", [BiT(RESNET), Hybrid(HYBRID), zoo.create("C+Mu/4", image_size=16, n_classes=4)])
def test_a_new_model_gives_zero_logits_and_learns(model):
    labels, losses = torch.arange(4), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(images()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(4), abs=1e-5) and losses[-1] < 0.5 * losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


# the hybrid


@pytest.mark.parametrize(
    ("stride", "stem_stride", "layers"),
    [(32, 4, (1, 1, 1, 1)), (16, 2, (1, 1, 1, 1)), (8, 2, (1, 1, 2)), (12, 3, (1, 1, 2)), (2, 1, (1, 3))],
)
def test_the_resnet_of_a_stride(stride, stem_stride, layers):
    with torch.device("meta"):
        model = zoo.create(f"R+Lab-Mu/{stride}", image_size=2 * stride)
    assert (model.config.stem_stride, model.config.layers) == (stem_stride, layers)
    assert model.patch_embed.backbone.config.stride == stride and model.patch_embed.grid_size == (2, 2)


def test_tokens_are_timms_hybrid_embeddings():
    ours = randomise(Hybrid(HYBRID)).patch_embed

    class Features(BiT):
        forward = BiT.forward_features

    backbone = Features(RESNET)
    backbone.head = nn.Identity()
    theirs = HybridEmbed(backbone, img_size=16, embed_dim=16, feature_size=(4, 4), feature_ratio=4).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert torch.equal(theirs(images()), ours(images()))
    assert (theirs.grid_size, theirs.feat_ratio()) == (ours.grid_size, ours.patch_size[0])


def test_after_the_embedding_it_is_the_vit():
    model = randomise(Hybrid(HYBRID))
    tokens = model.patch_embed(images())

    class Given(nn.Module):
        grid_size, patch_size = (4, 4), (4, 4)

        def forward(self, x):
            return tokens

    vit = ViT(HYBRID, patch_embed=Given()).eval()
    vit.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("patch_embed.")})
    assert torch.equal(vit(images()), model(images())) and model(images()).any()


def test_each_part_draws_its_own_weights():
    first, other = (zoo.create("R+Lab-B/8", seed=seed).state_dict() for seed in (3, 4))
    parts = ["patch_embed.backbone.stem.weight", "patch_embed.proj.weight", "pos_embed"]
    assert not any(torch.equal(first[part], other[part]) for part in parts)
    correlation = torch.corrcoef(torch.stack([first[part].flatten()[:800] for part in parts]))
    assert (correlation - torch.eye(3)).abs().max() < 0.15
    assert first["patch_embed.proj.weight"].std().item() == pytest.approx(128**-0.5, rel=0.02)  # LeCun's


# errors


def test_images_that_do_not_fit():
    with pytest.raises(ValueError, match="image_size 7 is too small for a total stride of 16"):
        BiTConfig(width=8, layers=(1, 1, 1, 1), stem_stride=2, image_size=7)
    with pytest.raises(ValueError, match=r"\(4, 3, 20, 20\) given, but this model takes \[batch, 3, 16, 16\]"):
        Hybrid(HYBRID)(images(20))
    with pytest.raises(ValueError, match=r"this model takes \[batch, 3, H, W\], 4 pixels a side or more"):
        BiT(RESNET)(torch.zeros(2, 3, 3, 32))
