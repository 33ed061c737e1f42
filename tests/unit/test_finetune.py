"""Fine-tuning: what is kept, what is new, how the learning rate is chosen; from our weights and from timm's."""

import dataclasses

import pytest
import timm
import torch
from scipy import ndimage

from vitlab.data.datasets import world_splits
from vitlab.data.loader import ImageSet
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.models.adapt import with_new_head
from vitlab.models.zoo import Pretrained
from vitlab.training import paper
from vitlab.training.divergence import DivergedError
from vitlab.training.finetune import finetune, split
from vitlab.training.recipe import Recipe

TINY = World(image_size=8)


def trained(name, **settings):
    """Fresh weights, with nothing left at the zero or one it started with."""
    model = zoo.create(name, **settings)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


@pytest.mark.parametrize("name", ["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"])
def test_everything_but_the_head_is_kept_and_the_head_is_zero(name):
    model = trained(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    new = with_new_head(model, 7)
    assert new(torch.randn(2, 3, 32, 32)).equal(torch.zeros(2, 7))
    kept = [key for key in before if not key.startswith("head.")]
    assert kept and all(torch.equal(new.state_dict()[key], before[key]) for key in kept)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_both_heads_of_a_distilled_deit_are_new():
    torch.manual_seed(0)
    settings = {"img_size": 32, "embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 5}
    model, images = timm.create_model("deit_tiny_distilled_patch16_224", **settings).eval(), torch.randn(2, 3, 32, 32)
    new = with_new_head(model, 7, image_size=48)
    assert new(torch.randn(2, 3, 48, 48)).equal(torch.zeros(2, 7))
    assert (new.head.out_features, new.head_dist.out_features, model.num_classes) == (7, 7, 5)
    assert not new.head.weight.any() and not new.head_dist.weight.any()
    assert with_new_head(model, 7).forward_features(images).equal(model.forward_features(images))


def test_the_hidden_layer_of_the_pretraining_head_goes():
    new = with_new_head(trained("Lab-Ti/8", head="tanh"), 3)
    assert not [key for key in new.state_dict() if key.startswith("pre_logits")] and new.config.head == "linear"


def test_features_are_those_of_before_at_the_same_resolution():
    model, images = trained("Lab-Ti/8"), torch.randn(2, 3, 32, 32)
    assert with_new_head(model, 3).forward_features(images).equal(model.forward_features(images))


@pytest.mark.parametrize("name", ["Lab-Ti/8", "R+Lab-Ti/8"])
@pytest.mark.parametrize("size", [48, 64, 16])
def test_positions_are_resized_as_the_authors_code_does(name, size):
    model = trained(name)
    new, rows = with_new_head(model, 3, image_size=size), size // 8
    old = model.pos_embed[0].detach()
    assert torch.equal(new.pos_embed[0, 0], old[0])  # the class token's
    zoomed = ndimage.zoom(old[1:].reshape(4, 4, -1).numpy(), (rows / 4, rows / 4, 1), order=1)
    torch.testing.assert_close(new.pos_embed[0, 1:].detach().reshape(rows, rows, -1), torch.from_numpy(zoomed),
                               atol=1e-5, rtol=0)  # fmt: skip
    assert new(torch.zeros(1, 3, size, size)).shape == (1, 3)


def test_a_resnet_takes_larger_images_as_it_is():
    model = trained("BiT-Lab-Ti/8")
    new = with_new_head(model, 3, image_size=48)
    images = torch.randn(1, 3, 48, 48)
    assert new.forward_features(images).equal(model.forward_features(images))


def test_timms_models_get_a_zero_head_and_positions_of_the_papers_convention():
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=5).eval()
    new = with_new_head(model, 3, image_size=96)
    assert new(torch.randn(2, 3, 96, 96)).equal(torch.zeros(2, 3))
    old = model.pos_embed[0, 1:].detach().reshape(4, 4, -1).numpy()
    zoomed = torch.from_numpy(ndimage.zoom(old, (6 / 4, 6 / 4, 1), order=1)).reshape(36, -1)
    torch.testing.assert_close(new.pos_embed[0, 1:].detach(), zoomed, atol=1e-5, rtol=0)
    other = with_new_head(model, 3, image_size=96, convention="timm")
    assert not torch.allclose(other.pos_embed, new.pos_embed, atol=1e-4)
    assert model.head.out_features == 5 and model.patch_embed.grid_size == (4, 4)


def few(rate):
    return Recipe(steps=3, batch_size=8, optimizer="sgd", learning_rate=rate, weight_decay=0.0)


def test_the_rate_is_the_best_on_held_out_images_and_then_all_are_used(monkeypatch):
    seen = []

    def scripted(source, images, recipe, seed, watch, augmentation, convention):
        accuracy = {0.001: 0.5, 0.01: 0.8, 0.03: 0.8}.get(recipe.learning_rate, 0.0)
        if recipe.learning_rate == 1.0:
            raise DivergedError("no number")
        seen.append((recipe.learning_rate, len(images), len(watch)))
        return torch.nn.Identity(), [{"val_accuracy": accuracy}]

    monkeypatch.setattr("vitlab.training.finetune._one", scripted)
    splits = world_splits(TINY, 40, 4, 6)
    found = finetune(zoo.create("Lab-Ti/2", image_size=8), splits.train, few, (0.03, 1.0, 0.01, 0.001),
                     held_out=0.25, watch=splits.test)  # fmt: skip
    assert found.learning_rate == 0.01 and found.trials == {0.001: 0.5, 0.01: 0.8, 0.03: 0.8}
    assert seen == [(0.001, 30, 10), (0.01, 30, 10), (0.03, 30, 10), (0.01, 40, 6)]


def test_when_every_rate_diverges_it_is_said(monkeypatch):
    def diverging(*arguments):
        raise DivergedError("no number")

    monkeypatch.setattr("vitlab.training.finetune._one", diverging)
    with pytest.raises(DivergedError, match=r"every learning rate of \(1.0, 2.0\) diverges; try lower ones"):
        finetune(zoo.create("Lab-Ti/2"), world_splits(TINY, 10, 1, 1).train, few, (1.0, 2.0))


def test_held_out_images_are_a_random_share_that_is_not_trained_on():
    images = world_splits(TINY, 40, 1, 1).train
    rest, apart = split(images, 0.1, seed=3)
    assert (len(rest), len(apart)) == (36, 4)
    every = torch.cat([rest.images, apart.images]).flatten(1)
    assert len(every.unique(dim=0)) == 40
    assert not torch.equal(split(images, 0.1, seed=4)[1].images, apart.images)
    with pytest.raises(ValueError, match="a held-out share of 0.0 of 40 images leaves none"):
        split(images, 0.0, seed=0)


@pytest.mark.slow
def test_finetuning_learns_and_leaves_the_source_alone():
    splits = world_splits(TINY, 200, 4, 60)
    source = trained("Lab-Ti/2", image_size=8)
    before = {key: value.clone() for key, value in source.state_dict().items()}
    recipe = dataclasses.replace(few(0.05), steps=30, batch_size=50, eval_every=10)
    found = finetune(source, splits.train, lambda rate: dataclasses.replace(recipe, learning_rate=rate), (0.05,),
                     watch=splits.train)  # fmt: skip
    assert [row["step"] for row in found.rows] == [0, 10, 20, 30] and found.trials == {}
    assert found.rows[0]["val_accuracy"] == pytest.approx(0.1, abs=0.02)  # a zero head says class 0
    assert found.rows[-1]["val_loss"] < found.rows[0]["val_loss"] - 0.05
    assert all(torch.equal(value, before[key]) for key, value in source.state_dict().items())


def test_another_normalisation_is_that_of_the_pretrained_model():
    model = timm.create_model("test_vit", num_classes=4).eval()
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    side = model.patch_embed.img_size[0]
    images = ImageSet(torch.randint(0, 256, (8, 3, side, side), dtype=torch.uint8), torch.arange(8) % 2, ("a", "b"))
    seen = []
    found = Pretrained(model, "test_vit", "fresh", (side, side), mean, std)
    model.patch_embed.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))  # copied with the model
    finetune(found, images, few, (0.01,), watch=images)
    wanted = found.prepare(images.images)
    torch.testing.assert_close(seen[0], wanted, atol=1e-5, rtol=1e-5)


def test_a_head_needs_classes():
    with pytest.raises(ValueError, match="n_classes is 0"):
        with_new_head(zoo.create("Lab-Ti/8"), 0)


# ---- the tables ----


def test_tables_3_and_4_are_the_papers():
    row = next(r for r in paper.TABLE_3 if "ViT-L/16" in r.models and r.data == "IN-21k")
    assert (row.epochs, row.learning_rate, row.decay, row.weight_decay, row.dropout) == (
        (30, 90),
        1e-3,
        "linear",
        0.03,
        0.1,
    )
    scratch = next(r for r in paper.TABLE_3 if r.data == "ImageNet")
    assert (scratch.learning_rate, scratch.decay, scratch.weight_decay, scratch.grad_clip) == (3e-3, "cosine", 0.3, 1.0)
    assert scratch.recipe().steps == round(300 * 1_281_167 / 4096 + 0.5)
    assert {r.steps for r in paper.TABLE_4} == {500, 2_500, 10_000, 20_000}
    tuned = next(r for r in paper.TABLE_4 if r.data == "CIFAR-10")
    assert tuned.learning_rates == (0.001, 0.003, 0.01, 0.03) and tuned.held_out == 0.02
    recipe = tuned.recipe(0.03)
    assert (recipe.optimizer, recipe.momentum, recipe.weight_decay, recipe.grad_clip) == ("sgd", 0.9, 0.0, 1.0)


def test_the_lab_s_rules():
    adam = paper.lab(paper.TABLE_3[0].recipe(), batch_size=1024, samples=1024 * 1000)
    assert adam.learning_rate == pytest.approx(8e-4 / 2) and adam.steps == 1000  # √(1024 / 4096)
    assert adam.warmup_steps == int(1000 * 10_000 / paper.TABLE_3[0].recipe().steps)
    sgd = paper.lab(paper.TABLE_4[0].recipe(0.03), batch_size=128, samples=12_800)
    assert sgd.learning_rate == pytest.approx(0.03 / 4) and sgd.warmup_steps == 0
    with pytest.raises(ValueError, match="100 images make no batch of 128"):
        paper.lab(paper.TABLE_3[0].recipe(), 128, 100)


def test_a_row_has_its_epochs_only():
    with pytest.raises(ValueError, match=r"epochs is 8; for ViT-L/16 on JFT it is in \(7, 14\)"):
        paper.TABLE_3[2].recipe(epochs=8)


def test_a_new_head_for_a_wrapped_model_says_what_to_give():
    with pytest.raises(ValueError, match=r"a DataParallel is no model of ours or timm's.* give `model.module`"):
        with_new_head(torch.nn.DataParallel(zoo.create("Lab-Mu/8")), 3)
