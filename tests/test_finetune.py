"""Fine-tuning: how the learning rate is chosen, twice the resolution, another normalization; the paper's tables."""

import dataclasses

import pytest
import timm
import torch

from vitlab.data.datasets import world_splits
from vitlab.data.loader import ImageSet
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.models.zoo import Pretrained
from vitlab.training import paper
from vitlab.training.finetune import finetune, split
from vitlab.training.loop import DivergedError
from vitlab.training.recipe import Recipe

TINY = World(image_size=8)


def few(rate):
    return Recipe(steps=3, batch_size=8, optimizer="sgd", learning_rate=rate, weight_decay=0.0)


def test_the_rate_is_the_best_on_held_out_images_and_then_all_are_used(monkeypatch):
    seen = []

    def scripted(model, feed, recipe, *, validation):
        accuracy = {0.001: 0.5, 0.01: 0.8, 0.03: 0.8}.get(recipe.learning_rate, 0.0)
        if recipe.learning_rate == 1.0:
            raise DivergedError("no number")
        seen.append((recipe.learning_rate, len(validation)))
        return [{"val_accuracy": accuracy}]

    monkeypatch.setattr("vitlab.training.finetune.train", scripted)
    splits = world_splits(TINY, 40, 4, 6)
    model, rates = zoo.create("Lab-Ti/2", image_size=8), (0.03, 1.0, 0.01, 0.001)
    found = finetune(model, splits.train, few, rates, held_out=0.25, watch=splits.test)
    assert found.learning_rate == 0.01 and found.trials == {0.001: 0.5, 0.01: 0.8, 0.03: 0.8}
    assert seen == [(0.001, 10), (0.01, 10), (0.03, 10), (0.01, 6)]
    with pytest.raises(DivergedError, match=r"every learning rate of \(1.0, 1.0\) diverges; try lower ones"):
        finetune(model, splits.train, few, (1.0, 1.0))


def test_held_out_images_are_a_random_share_that_is_not_trained_on():
    images = world_splits(TINY, 40, 1, 1).train
    rest, apart = split(images, 0.1, seed=3)
    assert (len(rest), len(apart)) == (36, 4)
    assert len(torch.cat([rest.images, apart.images]).flatten(1).unique(dim=0)) == 40
    assert not torch.equal(split(images, 0.1, seed=4)[1].images, apart.images)
    with pytest.raises(ValueError, match="a held-out share of 0.0 of 40 images leaves none"):
        split(images, 0.0, seed=0)


@pytest.mark.slow
def test_finetuning_at_twice_the_resolution_learns_and_leaves_the_source_alone():
    images = world_splits(World(image_size=16), 60, 4, 60).train
    source = zoo.create("Lab-Mu/4", image_size=8)
    before = {key: value.clone() for key, value in source.state_dict().items()}
    recipe = dataclasses.replace(few(0.05), steps=30, batch_size=30, eval_every=10)
    found = finetune(source, images, lambda rate: recipe, (0.05,), watch=images)
    assert found.model.pos_embed.shape[1] == 17 and source.pos_embed.shape[1] == 5
    assert [row["step"] for row in found.rows] == [0, 10, 20, 30] and found.trials == {}
    assert found.rows[0]["val_accuracy"] == pytest.approx(0.1, abs=0.02)  # a zero head says class 0
    assert found.rows[-1]["val_loss"] < found.rows[0]["val_loss"] - 0.05
    assert all(torch.equal(value, before[key]) for key, value in source.state_dict().items())


def test_another_normalization_is_that_of_the_pretrained_model():
    model = timm.create_model("test_vit", num_classes=4).eval()
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    side = model.patch_embed.img_size[0]
    images = ImageSet(torch.randint(0, 256, (8, 3, side, side), dtype=torch.uint8), torch.arange(8) % 2, ("a", "b"))
    seen = []
    found = Pretrained(model, "test_vit", "fresh", (side, side), mean, std)
    model.patch_embed.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))  # copied with the model
    finetune(found, images, few, (0.01,), watch=images)
    torch.testing.assert_close(seen[0], found.prepare(images.images), atol=1e-5, rtol=1e-5)


# ---- the tables ----


def test_tables_3_and_4_are_the_papers():
    row = next(r for r in paper.TABLE_3 if "ViT-L/16" in r.models and r.data == "IN-21k")
    assert (row.epochs, row.learning_rate, row.decay) == ((30, 90), 1e-3, "linear")
    assert (row.weight_decay, row.dropout) == (0.03, 0.1)
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
