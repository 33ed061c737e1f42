"""Features before the logits: of our models, of timm's, in any batches, with modes put back; and bad input."""

import pytest
import timm
import torch
from torch import nn

from vitlab.data.loader import ImageSet, to_float
from vitlab.evaluation.features import as_arrays, features
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.zoo import Pretrained


def images(n: int, side: int = 32) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(n) % 3, tuple("abc"))


def randomised(model: nn.Module) -> nn.Module:
    """Heads start at zero; here every weight says something."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


SMALL_HYBRID = {"img_size": 64, "depth": 1, "embed_dim": 32, "num_heads": 2}
MODELS = {
    "ours": lambda: zoo.create("Lab-Ti/8"),
    "ours, tanh": lambda: zoo.create("Lab-Ti/8", head="tanh"),
    "ours, gap": lambda: ViT(ViTConfig(32, 8, dim=16, depth=1, n_heads=2, mlp_dim=32, n_classes=5, pool="gap")),
    "ours, BiT": lambda: zoo.create("BiT-Lab-Ti/8"),
    "timm ViT": lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1),
    "timm hybrid": lambda: timm.create_model("vit_tiny_r_s16_p8_224", **SMALL_HYBRID),
    "timm ResNet": lambda: timm.create_model("resnet10t"),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_of_the_features_is_the_logits_known_answers(name):
    model, set_ = randomised(MODELS[name]()), images(5, 64 if "hybrid" in name else 32)
    found, labels = features(model, set_, batch_size=2)
    head = model.head if hasattr(model, "head") else model.fc
    last = next(layer for layer in reversed([head, *head.modules()]) if isinstance(layer, nn.Linear | nn.Conv2d))
    weight = last.weight.flatten(1)  # BiT's last layer is a 1 × 1 convolution
    with torch.inference_mode():
        logits = model.eval()(to_float(set_.images))
        torch.testing.assert_close(found @ weight.T + last.bias, logits, rtol=1e-4, atol=1e-5)
    assert found.dtype == torch.float32 and labels.equal(set_.labels)
    assert logits.std() > 0.01  # the comparison says something


def test_the_tanh_layer_is_part_of_the_representation():
    model = randomised(zoo.create("Lab-Ti/8", head="tanh"))
    found, _ = features(model, images(4))
    with torch.inference_mode():
        before = model.forward_features(to_float(images(4).images))[:, 0]
        torch.testing.assert_close(found, torch.tanh(model.pre_logits.fc(before)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_batches_do_not_matter(batch_size):
    model = randomised(zoo.create("BiT-Lab-Ti/8"))
    found, _ = features(model, images(7), batch_size)
    torch.testing.assert_close(found, features(model, images(7), 7)[0], rtol=1e-4, atol=1e-5)


def test_eval_mode_inside_and_every_mode_put_back():
    model = randomised(zoo.create("Lab-Ti/8", dropout=0.5)).train()
    model.blocks[1].eval()  # as where a part is frozen
    before = [module.training for module in model.modules()]
    first, second = features(model, images(3))[0], features(model, images(3))[0]
    assert first.equal(second)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(RuntimeError, match="broken"):
        features(model, images(3), prepare=lambda part: (_ for _ in ()).throw(RuntimeError("broken")))
    assert [module.training for module in model.modules()] == before


def test_prepare_is_the_models_own():
    lab = Pretrained.of(timm.create_model("resnet10t"), "resnet10t", "nowhere", {})  # ImageNet's mean and std
    set_ = images(2, side=lab.image_size[0])
    found, _ = features(lab.model, set_, prepare=lab.prepare)
    with torch.inference_mode():
        x = lab.model.eval().forward_features(lab.prepare(set_.images))
        torch.testing.assert_close(found, x.mean((2, 3)), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, features(lab.model, set_)[0], rtol=1e-3)


class TestBadInput:
    def test_model_or_batch_size(self):
        with pytest.raises(ValueError, match="Sequential has no features before the logits"):
            features(nn.Sequential(nn.Flatten(), nn.Linear(3072, 2)), images(2))
        with pytest.raises(ValueError, match="batch_size is 0"):
            features(zoo.create("Lab-Ti/8"), images(2), 0)

    def test_a_model_without_pooling(self):
        model = timm.create_model("resnet10t", num_classes=0, global_pool="")
        with pytest.raises(ValueError, match=r"ResNet gives features of shape \[2, 512, 1, 1\], but \[batch, dim\]"):
            features(model, images(2))

    def test_arrays(self):
        with pytest.raises(ValueError, match=r"train: features of shape \[3, 2\] but 2 labels"):
            as_arrays(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), "train")
        with pytest.raises(ValueError, match=r"test: features of shape \[0, 2\]"):
            as_arrays(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "test")
        values = torch.zeros(4, 2)
        values[2, 1], values[3, 0] = float("nan"), float("inf")
        with pytest.raises(ValueError, match="features of 2 of 4 images are NaN or infinite, image 2 first"):
            as_arrays(values, torch.zeros(4, dtype=torch.int64), "train")
