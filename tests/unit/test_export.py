"""Weights move both ways between us and timm: files, folders, and logits equal to the bit."""

import pytest
import timm
import torch

from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.weights import as_timm, save_for_hf, timm_arguments


def trained(**changes):
    config = {"image_size": 48, "patch_size": 8, "dim": 128, "depth": 3, "n_heads": 2, "mlp_dim": 320, "n_classes": 7}
    model = ViT(ViTConfig(**config | changes))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))


def test_a_checkpoint_of_ours_is_loaded_by_timm(tmp_path, images):
    model, path = trained(), tmp_path / "model.safetensors"
    zoo.save(path, model, "ViT-B/8", {})
    theirs = timm.create_model("vit_base_patch16_224", checkpoint_path=str(path), **timm_arguments(model)).eval()
    assert torch.equal(theirs(images), model(images))


def test_a_checkpoint_of_timms_is_loaded_by_us(tmp_path, images):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", img_size=48, num_classes=5).eval()
    save_file(theirs.state_dict(), tmp_path / "vit_tiny.safetensors")
    ours = zoo.load(tmp_path / "vit_tiny.safetensors").model
    assert isinstance(ours, ViT) and torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("pool", ["class", "gap"])
def test_as_timm_gives_the_same_logits_to_the_bit(pool, images):
    model = trained(pool=pool)
    assert torch.equal(as_timm(model)(images), model(images))


@pytest.mark.parametrize("pool", ["class", "gap"])
def test_a_folder_is_read_by_timm_and_by_us(tmp_path, pool, images):
    model = trained(pool=pool)
    folder = save_for_hf(tmp_path / "folder", model)
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    assert torch.equal(theirs(images), model(images))
    found = zoo.load(folder)
    assert torch.equal(found.model(images), model(images))
    assert found.image_size == (48, 48) and {*found.mean, *found.std} == {0.5}


@pytest.mark.parametrize(
    "model, words",
    [
        (lambda: trained(head="tanh"), "no hidden layer before its head"),
        (lambda: zoo.create("R+Lab-Ti/8"), "a Hybrid has no counterpart in timm"),
    ],
)
def test_what_timm_has_no_class_for_is_refused(tmp_path, model, words):
    with pytest.raises(ValueError, match=words):
        save_for_hf(tmp_path / "folder", model())
    assert not (tmp_path / "folder").exists()


def test_a_damaged_description_of_a_shared_model_is_refused_with_the_folder(tmp_path):
    folder = save_for_hf(tmp_path / "shared", zoo.create("Lab-Mu/8"))
    config = tmp_path / "shared" / "config.json"
    config.write_text(config.read_text().replace('"token"', '"tokem"'))
    with pytest.raises(ValueError, match=r"shared does not take these settings.*pooling"):
        zoo.load(folder)
