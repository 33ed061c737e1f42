"""The hybrid: the paper's two kinds and their compute, timm's patch embedding beside ours, files, analyses, errors."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import save_file
from timm.layers import HybridEmbed
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab.analysis import capture, distance, filters, geometry
from vitlab.models import zoo
from vitlab.models.convnets import BiTConfig, Hybrid, HybridConfig, resnet_of_stride
from vitlab.models.vit import ViT
from vitlab.models.zoo import multiply_adds

TINY = HybridConfig(
    image_size=16,
    patch_size=4,
    dim=16,
    depth=2,
    n_heads=2,
    mlp_dim=32,
    n_classes=4,
    width=8,
    layers=(1, 2),
    stem_stride=2,
)


def images(side: int = 16, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def randomised(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


# the paper's two kinds


@pytest.mark.parametrize(
    ("stride", "stem_stride", "layers"),
    [
        (32, 4, (1, 1, 1, 1)),
        (16, 2, (1, 1, 1, 1)),
        (8, 2, (1, 1, 2)),
        (4, 1, (1, 1, 2)),
        (12, 3, (1, 1, 2)),
        (2, 1, (1, 3)),
    ],
)
def test_the_resnet_of_a_stride(stride, stem_stride, layers):
    assert resnet_of_stride(stride) == (stem_stride, layers)
    assert BiTConfig(width=8, layers=layers, stem_stride=stem_stride, image_size=stride).stride == stride


def test_without_stage_4_the_sequence_is_four_times_as_long_and_the_layers_as_many():
    both = short, long = zoo.create("R+Lab-Ti/16"), zoo.create("R+Lab-Ti/8")
    assert (short.config.n_patches, long.config.n_patches) == (4, 16)
    stages = [[len(stage.blocks) for stage in model.patch_embed.backbone.stages] for model in both]
    assert stages == [[1, 1, 1, 1], [1, 1, 2]]
    assert [model.patch_embed.proj.in_channels for model in both] == [64, 32]


@pytest.mark.parametrize("size", ["Lab-Ti", "Lab-S", "Lab-B"])
def test_the_resnets_share_of_the_compute_is_the_papers(size):
    # Table 6, exaFLOPs of R50+ViT-B and ViT-B after 7 epochs: it adds 93 % at a stride of 32 and 22 % at 16
    for stride, of_paper, factor in ((16, 106 / 55 - 1, 1.4), (8, 274 / 224 - 1, 1.7)):
        added = multiply_adds(f"R+{size}/{stride}", 32) / multiply_adds(f"{size}/{stride}", 32) - 1
        assert of_paper / factor < added < of_paper * factor


def test_multiply_adds_of_the_embedding_by_hand():
    embed = zoo.create("R+Lab-Ti/8").patch_embed.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        embed(torch.zeros(1, 3, 32, 32))
    stem, stage_1 = 16**2 * 9 * 3 * 8, 16**2 * 2 * 9 * 8 * 8
    stage_2 = 8**2 * (9 * 8 * 16 + 9 * 16 * 16 + 8 * 16)  # two convolutions and the 1 × 1 beside them
    stage_3 = 4**2 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) + 4**2 * 2 * 9 * 32 * 32  # two blocks: stage 4's is here
    projection = 4**2 * 32 * 64
    assert counter.get_total_flops() == 2 * (stem + stage_1 + stage_2 + stage_3 + projection)


# the model


def test_tokens_are_timms_hybrid_embeddings():
    ours = randomised(Hybrid(TINY)).patch_embed

    class Features(type(ours.backbone)):
        forward = type(ours.backbone).forward_features

    backbone = Features(TINY.resnet)
    backbone.head = nn.Identity()
    theirs = HybridEmbed(backbone, img_size=16, embed_dim=16, feature_size=(4, 4), feature_ratio=4).eval()
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs(images()), ours(images()))
    assert (theirs.grid_size, theirs.feat_ratio()) == (ours.grid_size, ours.patch_size[0])


def test_after_the_embedding_it_is_the_vit():
    model = randomised(Hybrid(TINY))
    tokens = model.patch_embed(images())

    class Given(nn.Module):
        grid_size, patch_size = (4, 4), (4, 4)

        def forward(self, x):
            return tokens

    vit = ViT(TINY, patch_embed=Given()).eval()
    vit.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("patch_embed.")})
    assert torch.equal(vit(images()), model(images())) and model(images()).any()


def test_patches_come_row_by_row():
    model = randomised(Hybrid(TINY))
    features = model.patch_embed.backbone.forward_features(images())
    weight, bias = model.patch_embed.proj.weight[:, :, 0, 0], model.patch_embed.proj.bias
    expected = torch.stack([features[:, :, i // 4, i % 4] @ weight.T + bias for i in range(16)], dim=1)
    torch.testing.assert_close(model.patch_embed(images()), expected, atol=1e-5, rtol=1e-5)


def test_a_fresh_model_says_nothing_and_learns():
    model = Hybrid(TINY)
    assert not model(images()).any()
    batch, labels = images(count=4), torch.arange(4)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(4), abs=1e-5) and losses[-1] < 0.2 * losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_seed_alone_determines_the_weights():
    before = torch.get_rng_state()
    first = zoo.create("R+Lab-Ti/8", seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        second, other = zoo.create("R+Lab-Ti/8", seed=3).state_dict(), zoo.create("R+Lab-Ti/8", seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    for part in ("patch_embed.backbone.stem.weight", "patch_embed.proj.weight", "pos_embed"):
        assert not torch.equal(first[part], other[part])


def test_parts_draw_numbers_of_their_own():
    model = zoo.create("R+Lab-B/8")
    stem, positions = model.patch_embed.backbone.stem.weight.flatten()[:800], model.pos_embed.flatten()[:800]
    assert abs(torch.corrcoef(torch.stack([stem, positions]))[0, 1]) < 0.15


def test_the_projection_has_lecuns_variance():
    weight = zoo.create("R+Lab-B/8").patch_embed.proj.weight  # 192 × 128 numbers
    assert weight.std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert not zoo.create("R+Lab-B/8").patch_embed.proj.bias.any()


def test_on_the_meta_device_there_are_only_shapes():
    with torch.device("meta"):
        model = zoo.create("R+Lab-S/16")
    assert all(parameter.is_meta for parameter in model.parameters())
    shapes = {key: value.shape for key, value in zoo.create("R+Lab-S/16").state_dict().items()}
    assert shapes == {key: value.shape for key, value in model.state_dict().items()}


def test_another_resolution_is_another_grid_and_nothing_else():
    model = randomised(zoo.create("R+Lab-Ti/8"))
    larger = type(model)(dataclasses.replace(model.config, image_size=48))
    assert (larger.patch_embed.grid_size, larger.config.image_size) == ((6, 6), 48)
    state, wanted = model.state_dict(), larger.state_dict()
    assert [key for key in state if state[key].shape != wanted[key].shape] == ["pos_embed"]
    larger.load_state_dict(state | {"pos_embed": wanted["pos_embed"]})
    assert larger.forward_features(images(48)).shape == (2, 37, 64)


# names and files


def test_settings_reach_the_model():
    model = zoo.create("r+lab-ti/4", n_classes=3, image_size=8, head="tanh", dropout=0.1)
    config = model.config
    assert (config.n_classes, config.image_size, config.head, config.dropout) == (3, 8, "tanh", 0.1)
    assert model(images(8)).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("R+Lab-Ti/8", {"n_classes": 5, "image_size": 64, "head": "tanh", "dropout": 0.1}), ("R+Lab-S/16", {})],
)
def test_what_is_saved_comes_back(tmp_path, name, settings):
    path, model = tmp_path / "model.safetensors", randomised(zoo.create(name, **settings))
    zoo.save(path, model, name, {"steps": 12})
    found = zoo.load(path)
    side = settings.get("image_size", 32)
    assert (found.name, found.about, found.image_size) == (name, {"steps": 12}, (side, side))
    assert found.model.config == model.config and isinstance(found.model, Hybrid)
    assert torch.equal(found.model(images(side)), model(images(side)))
    control = zoo.load(path, untrained=True, seed=3).model.state_dict()
    fresh = zoo.create(name, seed=3, **settings).state_dict()
    assert all(torch.equal(control[key], fresh[key]) for key in fresh)


def test_a_named_file_of_another_image_size(tmp_path):
    model = randomised(zoo.create("R+Lab-Ti/8", n_classes=3, image_size=48))
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    found = zoo.load(f"R+Lab-Ti/8@{tmp_path / 'm.safetensors'}")
    assert found.model.config == model.config
    assert torch.equal(found.model(images(48)), model(images(48)))
    with pytest.raises(ValueError, match=r"is a hybrid.*NAME@.*'R\+Lab-Ti/8'"):
        zoo.load(tmp_path / "m.safetensors")


# the analyses


def test_attention_distance_is_in_pixels_of_the_image():
    model = zoo.create("R+Lab-Ti/8", n_classes=3)
    for block in model.blocks:
        nn.init.zeros_(block.attn.qkv.weight)  # every token looks everywhere alike
    batch = images(32)
    assert geometry.patch_stride(model) == (8, 8) and geometry.grid_size(model, batch) == (4, 4)
    for attn in capture.attention_maps(model, batch):
        found = distance.attention_distance(attn, (4, 4), geometry.patch_stride(model), geometry.n_prefix_tokens(model))
        centres = [(8 * row, 8 * column) for row in range(4) for column in range(4)]
        expected = sum(math.dist(a, b) for a in centres for b in centres) / 16 / 17  # one token in 17 is the class
        torch.testing.assert_close(found, torch.full((2, 4), expected))


def test_a_hybrid_has_no_rgb_filters():
    with pytest.raises(ValueError, match="Hybrid's patch embedding is a ResNetEmbed: it projects features, not pixels"):
        filters.embedding_filters(zoo.create("R+Lab-Ti/8"))


# errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 8}, "patch_size 8 is not the total stride of a ResNet .*use patch_size=4"),
        ({"image_size": 18}, "image_size 18 is not divisible by patch_size 4; use 16 or 20"),
        ({"width": 12}, "width 12 is not a multiple of 8"),
        ({"layers": ()}, "layers .* is not possible"),
        ({"n_heads": 3}, "dim 16 is not divisible by n_heads 3"),
    ],
)
def test_configurations_that_are_not_possible(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.parametrize("stride", [1, 3, 6, 10])
def test_strides_that_no_resnet_has(stride):
    with pytest.raises(ValueError, match=f"no ResNet here has a total stride of {stride}; use 2, 4, 8"):
        zoo.create(f"R+Lab-Ti/{stride}")


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3, 20, 20\) given, but this model takes \[batch, 3, 16, 16\]"):
        Hybrid(TINY)(images(20))


def test_there_are_no_published_weights():
    with pytest.raises(ValueError, match=r"no published weights for R\+Lab-Ti/8: use 'lab', a file \(R\+Lab-Ti/8@FILE"):
        zoo.load("R+Lab-Ti/8")
