"""Models by name: names, settings, seeds, sizes; what is saved comes back; preparing photographs."""

import dataclasses
import json
import resource
import time

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from weights import randomise

import vitlab
from vitlab import paths
from vitlab.models import zoo
from vitlab.models.zoo import Pretrained


def photographs(height: int, width: int, count: int = 2) -> torch.Tensor:
    """Random pictures with detail down to a few pixels, uint8 [B 3 H W]."""
    generator = torch.Generator().manual_seed(2)
    coarse = torch.rand(count, 3, height // 3, width // 3, generator=generator) * 255
    return nn.functional.interpolate(coarse, (height, width), mode="bilinear").to(torch.uint8)


def test_every_name_can_be_built_in_any_case():
    for name in zoo.names():
        assert zoo.parse(name.upper()) == zoo.parse(name.lower()) == zoo.parse(name)
        with torch.device("meta"):
            config = zoo.create(name).config
        assert (config.image_size, config.n_classes) == ((224, 1000) if name.startswith("ViT") else (32, 10))


def test_a_size_by_hand():
    """Lab-Ti/8 at 32 px: 16 patches of 192 numbers, D = 64, four blocks with M = 4 D, ten classes."""
    embedding, positions, norm, head = 192 * 64 + 64, 64 + 17 * 64, 2 * 64, 64 * 10 + 10
    n_parameters = sum(parameter.numel() for parameter in zoo.create("Lab-Ti/8").parameters())
    assert n_parameters == embedding + positions + 4 * (12 * 64**2 + 13 * 64) + norm + head
    dense, attention = 17 * 12 * 64**2, 2 * 17**2 * 64
    assert zoo.multiply_adds("Lab-Ti/8", 32) == 16 * 192 * 64 + 4 * (dense + attention) + 64 * 10


@pytest.mark.parametrize(("model", "giga"), [("ViT-B/32", 4.41), ("vit_small_patch16_224", 4.6), ("resnet50", 4.1)])
def test_multiply_adds_of_known_models(model, giga):
    assert zoo.multiply_adds(model, 224, 1000) == pytest.approx(giga * 1e9, rel=0.02)


def test_settings_reach_the_model():
    config = zoo.create("Lab-Ti/4", n_classes=3, image_size=16, head="tanh", dropout=0.1).config
    assert (config.n_classes, config.image_size, config.head, config.dropout) == (3, 16, "tanh", 0.1)
    assert zoo.create("BiT-Lab-Ti", n_classes=3, image_size=16).config.n_classes == 3
    model = zoo.create("test_vit", n_classes=3, image_size=32, dropout=0.1)
    assert model.num_classes == 3 and model.patch_embed.img_size == (32, 32) and model.pos_drop.p == 0.1


@pytest.mark.parametrize("name", ["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Mu/8", "test_vit"])
def test_the_seed_alone_determines_the_weights(name):
    before = torch.get_rng_state()
    first = zoo.create(name, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        second, other = zoo.create(name, seed=3).state_dict(), zoo.create(name, seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    more_classes = zoo.create(name, seed=3, n_classes=9).state_dict()
    assert name == "test_vit" or all(torch.equal(first[k], more_classes[k]) for k in first if not k.startswith("head"))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Lab-Ti/8", {"image_size": 4104}, "image_size 4104 is too large; models here take up to 4096 pixels a side"),
        ("test_vit", {"image_size": 10**20}, "too large; models here take up to 4096 pixels a side"),
        ("BiT-Lab-Ti/5", {}, "no ResNet here goes with a patch of 5; use 2, 4, 8, 12, 16"),
        ("BiT-Lab-Ti/8", {"dropout": 0.1}, "dropout=0.1 is not for BiT-Lab-Ti/8, which takes image_size, n_classes"),
        ("test_vit", {"head": "tanh"}, "head='tanh' is not for test_vit, which takes dropout, image_size, n_classes"),
        ("R+Lab-Mu/8", {"placed": "shared"}, "placed='shared' is not for R.Lab-Mu/8.*leave it out"),
        ("crossvit_9_240", {"image_size": 96}, "crossvit_9_240 takes no images of 96 px .*leave it out"),
        ("vit_tiny_patch16_224.bogus", {}, "Invalid pretrained tag .bogus."),
        ("resnet10t", {"dropout": 0.1}, "timm's resnet10t does not take these settings .dropout."),
    ],
)
def test_settings_a_model_does_not_have(name, settings, message):
    with pytest.raises(ValueError, match=message):
        zoo.create(name, **settings)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Lab-Ty/8", "nearest: .*Lab-Ti/8"),
        ("vit_tinny_patch16_224", "nearest: .*vit_tiny_patch16_224"),
        ("Lab-Ti/" + "9" * 5000, "model 'Lab-Ti/999.* is unknown"),
        ("hf-hub:a/b/c", "must be in the form 'repo_name' or 'namespace/repo_name': 'a/b/c'"),
        ("local-dir:/etc", "there is no /etc/config.json"),
        ("local-dir:" + "x" * 5000, "there is no xxx"),
        ("a\0b", "model .* is unknown"),
    ],
)
def test_names_that_are_none(name, message):
    for function in (zoo.create, zoo.load):
        with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
            function(name)
        assert len(str(error.value)) < 1200


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Lab-Ti/8", {"n_classes": 5, "image_size": 64, "head": "tanh", "dropout": 0.1}),
        ("BiT-Lab-Ti/4", {"n_classes": 5}),
        ("R+Lab-Mu/8", {"pool": "gap"}),
        ("test_vit", {"n_classes": 5, "image_size": 32}),
    ],
)
def test_what_is_saved_comes_back(tmp_path, name, settings):
    path, model = tmp_path / "model.safetensors", randomise(zoo.create(name, **settings))
    zoo.save(path, model, name, {"steps": 12, "data": "digits"})
    found = zoo.load(path)
    assert (found.name, found.about, found.source) == (name, {"steps": 12, "data": "digits"}, str(path))
    assert found.image_size == (settings.get("image_size", 32),) * 2
    assert not found.model.training
    size = found.image_size[0]
    assert torch.equal(found.model(torch.ones(1, 3, size, size)), model(torch.ones(1, 3, size, size)))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_file_of_version_0_1_with_stochastic_depth_is_read(tmp_path):
    model = zoo.create("Lab-Mu/8")
    record = {"model": "Lab-Mu/8", "class": "ViT", "config": dataclasses.asdict(model.config) | {"drop_path": 0.1}}
    save_file(model.state_dict(), tmp_path / "old.safetensors", {"vitlab": json.dumps(record | {"about": {}})})
    assert zoo.load(tmp_path / "old.safetensors").model.config == model.config


def test_the_untrained_control_is_fresh_everywhere(tmp_path):
    path = tmp_path / "model.safetensors"
    zoo.save(path, randomise(zoo.create("Lab-Ti/8", n_classes=5)), "Lab-Ti/8", {"steps": 12})
    control = zoo.load(path, untrained=True, seed=3)
    fresh = zoo.create("Lab-Ti/8", n_classes=5, seed=3).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in control.model.state_dict().items())
    assert control.about == {} and control.source.startswith("fresh weights, seed 3")


def test_bundled_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "bundled_dir", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file .*lab.safetensors"):
        zoo.load("lab")
    zoo.save(tmp_path / zoo.BUNDLED["lab"], zoo.create("Lab-S/8", image_size=64), "Lab-S/8", {})
    assert zoo.load("Lab").image_size == (64, 64)


@pytest.mark.parametrize("record", ["{", "[]", "{}", '{"model": "x", "class": "ViT", "config": {"a": 1}, "about": {}}'])
def test_a_description_that_cannot_be_used(tmp_path, record):
    path = tmp_path / "model.safetensors"
    save_file(zoo.create("Lab-Ti/8").state_dict(), path, {"vitlab": record})
    with pytest.raises(ValueError, match=r"model.safetensors says it is vitlab's, but its description cannot be used"):
        zoo.load(path)


GIANT = {"dim": 64, "depth": 4, "n_heads": 4, "mlp_dim": 256, "image_size": 32, "patch_size": 8, "n_classes": 10}
RESNET = {"width": 8, "layers": (1, 1), "stem_stride": 2, "image_size": 32, "n_classes": 10}


@pytest.mark.parametrize(
    ("kind", "name", "config"),
    [
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "mlp_dim": 10**30}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 10**9}),
        ("BiT", "BiT-Lab-Ti/8", RESNET | {"layers": (1, 10**9)}),
        ("timm", "vit_huge_patch14_clip_224", {"n_classes": 10}),
        ("timm", "test_vit", {"n_classes": 10, "image_size": (160_000, 160_000)}),
    ],
)
def test_a_small_file_that_describes_a_giant_is_refused_before_it_is_built(tmp_path, kind, name, config):
    path, record = tmp_path / "model.safetensors", {"model": name, "class": kind, "config": config, "about": {}}
    save_file({"pos_embed": torch.zeros(1)}, path, {"vitlab": json.dumps(record)})
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match=r"model\.safetensors (says it is vitlab's, but|does not fit the model)"):
        zoo.load(path)
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def prepared(images: torch.Tensor, size: tuple[int, int], **changes) -> torch.Tensor:
    return Pretrained(nn.Identity(), "none", "nowhere", size, **changes).prepare(images)


def test_images_of_the_right_size_are_only_scaled():
    images = photographs(20, 30)
    assert torch.equal(prepared(images, (20, 30)), (images.float() / 255 - 0.5) / 0.5)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (images[0, 2, 3, 4].item() / 255 - 0.3) / 0.6
    assert prepared(images, (20, 30), mean=mean, std=std)[0, 2, 3, 4].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(300, 400), (1000, 260)])
def test_large_images_are_resized_and_cropped_as_timm_does(shape):
    images = photographs(*shape, count=1)
    picture = Image.fromarray(images[0].permute(1, 2, 0).numpy())
    half = (0.5, 0.5, 0.5)
    transform = timm.data.create_transform(
        (3, 224, 224), interpolation="bicubic", crop_pct=224 / 256, mean=half, std=half
    )
    torch.testing.assert_close(prepared(images, (224, 224))[0], transform(picture), atol=2.5 / 127.5, rtol=0)


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "resnet18", "vit_base_patch16_siglip_224", "swin_tiny_patch4_window7_224"]
)
def test_the_crop_is_the_models_own(name):
    config = timm.get_pretrained_cfg(name).to_dict()
    model = nn.Identity()
    model.pretrained_cfg = config
    picture = Image.fromarray(photographs(300, 400, count=1)[0].permute(1, 2, 0).numpy())
    expected = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config))(picture)
    found = Pretrained.of(model, name, "", {}).prepare(picture)[0]
    tolerance = 2.5 / 255 / min(config["std"])
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("shape", [(10, 10), (10, 17), (33, 32), (32, 90), (36, 36), (37, 37), (500, 31), (64, 64)])
def test_any_size_becomes_the_models(shape):
    assert prepared(photographs(*shape), (32, 32)).shape == (2, 3, 32, 32)
    assert prepared(photographs(*shape), (24, 48)).shape == (2, 3, 24, 48)


def test_what_is_cropped():
    def ramp(width: int) -> torch.Tensor:  # grey value = column, 0 at the left edge and 250 at the right
        return torch.linspace(0, 250, width).round().to(torch.uint8).expand(1, 3, width, width).contiguous()

    def span(width: int) -> float:  # share of the picture's width that is left
        values = (prepared(ramp(width), (32, 32)) * 0.5 + 0.5) * 255 / 250
        return (values.max() - values.min()).item()

    assert span(36) == pytest.approx(1, abs=0.05)  # a little larger: all of it
    assert span(64) == pytest.approx(224 / 256, abs=0.05)  # much larger: its middle
    assert prepared(ramp(64), (32, 32)).mean().item() == pytest.approx(125 / 127.5 - 1, abs=0.01)


def test_only_uint8_colour_images_are_taken():
    grey, single = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(3, 8, 8, dtype=torch.uint8)
    for images in (torch.zeros(2, 3, 8, 8), grey, single):
        with pytest.raises(ValueError, match=r"but uint8 \[batch, 3, height, width\] with values 0 to 255 is expected"):
            prepared(images, (8, 8))


def test_the_first_call_takes_images_as_people_have_them(tmp_path):
    array = photographs(60, 42)[0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(array)
    picture.save(tmp_path / "a.png")
    picture.convert("RGBA").save(tmp_path / "b.png")
    lab = vitlab.load("lab")
    x = lab.prepare(torch.from_numpy(array).permute(2, 0, 1)[None])
    for given in (tmp_path / "a.png", picture, array, array[None], [picture], str(tmp_path / "b.png")):
        assert torch.equal(vitlab.prepare(lab, given), x)
    assert torch.equal(vitlab.prepare(lab, tmp_path), x.repeat(2, 1, 1, 1))
    for wrong in (array / 255, array.transpose(2, 0, 1), 7, "none.png"):
        with pytest.raises((ValueError, FileNotFoundError), match="expected a path|cannot be read"):
            vitlab.prepare(lab, wrong)
    assert {"load", "attention_rollout", "few_shot"} <= set(dir(vitlab))
    assert vitlab.attention_distance(lab.model, x).shape == (1, 6, 4)
    assert (
        vitlab.position_similarity(lab.model).shape == (12,) * 4 and len(vitlab.filter_components(lab.model)[0]) == 28
    )
    assert "filters" in dir(vitlab.analysis) and vitlab.analysis.filters.low_frequency_share
    with pytest.raises(AttributeError, match="it offers load"):
        vitlab.lead
    with pytest.raises(AttributeError, match="it offers adapt, convnets"):
        vitlab.models.resnets
