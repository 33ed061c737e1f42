"""The logit lens and the causal check on models whose answers are known."""

import pytest
import timm
import torch

from vitlab.analysis.lens import greyed, kept_probability, logit_lens
from vitlab.models import zoo


def test_the_class_token_after_the_last_block_is_the_models_answer():
    model, images = zoo.create("Lab-Mu/8", n_classes=7, seed=1).eval(), torch.randn(2, 3, 32, 32)
    torch.nn.init.normal_(model.head.weight)
    found = logit_lens(model, images)
    assert found.shape == (2, len(model.blocks), 17, 7)
    assert torch.allclose(found[:, -1, 0], model(images), atol=1e-5)
    with pytest.raises(ValueError, match="more than one token"):
        pooled = zoo.create("Lab-Mu/8", pool="gap", seed=1)
        torch.nn.init.normal_(pooled.head.weight)
        logit_lens(pooled.eval(), images)


@pytest.mark.parametrize("name", ["resnet18", "deit_tiny_distilled_patch16_224", "vit_tiny_patch16_224"])
def test_a_model_without_one_head_for_one_token_is_refused(name):
    model = timm.create_model(name, num_classes=0 if name.startswith("vit") else 3).eval()
    with pytest.raises(ValueError, match="give a ViT classifier with a class token"):
        logit_lens(model, torch.zeros(1, 3, 224, 224))


def test_a_patch_that_decides_matters_and_others_do_not():
    class OfOnePatch(torch.nn.Module):
        def forward(self, x):  # the logit of class 1 is the mean of the first of 2 × 2 patches
            return torch.stack([torch.zeros(len(x)), 9 * x[:, :, :4, :4].mean((1, 2, 3))], 1)

    images, maps = torch.zeros(3, 3, 8, 8), torch.tensor([[[0.7, 0.1], [0.15, 0.05]]]).expand(3, 2, 2)
    images[:, :, :4, :4] = 1
    assert torch.equal(greyed(images, maps, 0.25)[:, :, 4:], images[:, :, 4:])
    assert torch.allclose(greyed(images, maps, 0.25)[:, :, :4, :4], torch.tensor(0.25))
    assert (kept_probability(OfOnePatch(), images, maps, 0.25) < 0.95).all()
    assert torch.allclose(kept_probability(OfOnePatch(), images, maps, 0.25, largest=False), torch.ones(3))
