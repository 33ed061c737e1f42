"""Masked patch prediction by hand: colours, corruptions, what has a gradient, a constant predictor, resume."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from weights import apart

from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches, to_float
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.training import masked
from vitlab.training.loop import train
from vitlab.training.masked import COLOURS, KEPT, MaskedPrediction, MaskedViT, Target, plans
from vitlab.training.recipe import Recipe

SPLITS = world_splits(World(image_size=16), 40, 8, 20)
ALL = list(Target)


def model(name="Lab-Mu/4", target=Target.MEAN_COLOUR, seed=0):
    return MaskedViT(zoo.create(name, image_size=16, seed=seed), target)


def objective(target=Target.MEAN_COLOUR, patch_size=4):
    return MaskedPrediction(target, 0.5, patch_size)


def pictures(n=6):
    return to_float(SPLITS.train.images[:n])


def some_plans(n=6, n_patches=16):
    return plans(n, n_patches, 0.5, np.random.default_rng(0))


# ---- known answers ----


@pytest.mark.parametrize(
    "colour, code",
    [
        ((31, 31, 31), 0),  # the last byte of the first eighth
        ((32, 0, 0), 64),
        ((255, 255, 255), 511),
        ((100, 160, 20), 3 * 64 + 5 * 8 + 0),
    ],
)
def test_colours_of_three_bits_by_hand(colour, code):
    image = torch.tensor(colour, dtype=torch.uint8).reshape(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert masked.colour_codes(to_float(image), 4).tolist() == [[code] * 4]


def test_colour_is_of_the_mean_and_patches_go_row_by_row():
    image = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    image[0, :, 0, 2] = 128  # one pixel of four in the second patch: mean 32, level 1
    image[0, :, 2:, :2] = 255  # all of the third
    assert masked.colour_codes(to_float(image), 2).tolist() == [[0, 64 + 8 + 1, 511, 0]]


def test_patches_are_those_of_the_patch_embedding():
    vit = zoo.create("Lab-Mu/4", image_size=16)
    cut = masked.patches_of(pictures(), 4).flatten(2)  # [B N 3·P·P]
    linear = F.linear(cut, vit.patch_embed.proj.weight.flatten(1), vit.patch_embed.proj.bias)
    torch.testing.assert_close(linear, vit.patch_embed(pictures()))


def test_shares_of_the_three_corruptions():
    plan = some_plans(4000)
    own = torch.arange(16).expand_as(plan)
    corrupted = plan != KEPT
    assert (corrupted.sum(1) == 8).all()  # half of every image
    kinds = plan[corrupted], own[corrupted]
    shares = [(kinds[0] == 16), (kinds[0] != 16) & (kinds[0] != kinds[1]), kinds[0] == kinds[1]]
    for share, wanted in zip(shares, (0.8, 0.1, 0.1), strict=True):
        assert share.double().mean().item() == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / 32_000))
    assert corrupted.double().mean(0).sub(0.5).abs().max() < 4 * 0.5 / math.sqrt(4000)  # every place alike
    others = kinds[0][shares[1]] - kinds[1][shares[1]]
    assert len(others.remainder(16).unique()) == 15  # any other patch


@pytest.mark.parametrize("target", ALL)
def test_no_gradient_from_patches_that_are_not_corrupted(target):
    """The loss does not change with what would be predicted there: the targets of kept patches do not enter."""
    net, plan, images = model(target=target), some_plans(), pictures()
    torch.nn.init.normal_(net.predict.weight, generator=torch.Generator().manual_seed(0))
    seen = {}
    forward = lambda *inputs: seen.setdefault("out", net(*inputs))  # noqa: E731
    loss = objective(target).loss(forward, images, plan)
    assert len(seen["out"]) == (plan != KEPT).sum() == 6 * 8
    kept = (plan == KEPT).reshape(6, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
    other = torch.where(kept, -images, images)  # other pixels where nothing is predicted
    assert torch.equal(loss, objective(target).loss(lambda *_: seen["out"], other, plan))
    swapped = objective(target).loss(lambda *_: seen["out"], torch.where(kept, images, -images), plan)
    assert not torch.equal(loss, swapped)


def test_loss_of_a_constant_predictor_is_the_entropy_of_the_colours():
    net, images = model(), to_float(SPLITS.train.images)
    plan = some_plans(len(images))
    codes = masked.colour_codes(images, 4)[plan != KEPT]
    shares = torch.bincount(codes, minlength=COLOURS).double() / len(codes)
    with torch.no_grad():
        net.predict.bias.copy_(shares.clamp(min=1e-30).log())  # the weight is zero: it says the same everywhere
    entropy = -(shares[shares > 0] * shares[shares > 0].log()).sum().item()
    assert objective().loss(net, images, plan).item() == pytest.approx(entropy, rel=1e-5)
    assert model()(images, plan).unique().tolist() == [0.0]  # untrained: all colours alike,
    assert objective().loss(model(), images, plan).item() == pytest.approx(math.log(512), rel=1e-6)


@pytest.mark.parametrize("target", ALL)
def test_a_perfect_predictor_is_right(target):
    plan, images = some_plans(), pictures()
    wanted = objective(target)._wanted(images, plan)
    if target is Target.PIXELS:
        assert objective(target).loss(lambda *_: wanted, images, plan) == 0
        return
    logits = 100 * F.one_hot(wanted.flatten(), COLOURS).float().reshape(48, -1)
    assert logits.shape[1] == model(target=target).predict.out_features
    assert objective(target).loss(lambda *_: logits, images, plan).item() == pytest.approx(0, abs=1e-6)


def test_evaluation_counts_every_corrupted_patch():
    net = model()
    found = objective().evaluate(net, SPLITS.test, "fp32")
    assert found["loss"] == pytest.approx(math.log(512), rel=1e-6)
    assert found == objective().evaluate(net, SPLITS.test, "fp32")  # the plans are always the same
    pixels = objective(Target.PIXELS).evaluate(model(target=Target.PIXELS), SPLITS.test, "fp32")
    assert pixels["accuracy"] == pytest.approx(0)  # zero everywhere explains nothing


# ---- the hybrid: pixels are hidden ----


def test_pixels_of_a_hybrid_are_gone_and_all_else_is_there():
    net = MaskedViT(zoo.create("R+Lab-Mu/8", image_size=32))
    assert net.on_pixels and net.mask.shape == (3, 8, 8)
    images, plan = torch.rand(2, 3, 32, 32), torch.full((2, 16), KEPT)
    assert torch.equal(masked.corrupt_pixels(images, net.mask, plan), images)
    plan[0, 5] = 16  # second row, second column
    hidden = masked.corrupt_pixels(images, net.mask, plan)
    assert (hidden[0, :, 8:16, 8:16] == 0).all() and torch.equal(hidden[1], images[1])
    hidden[0, :, 8:16, 8:16] = images[0, :, 8:16, 8:16]
    assert torch.equal(hidden, images)


# ---- training ----


def fed(seed=3):
    return masked.batches(batches(SPLITS.train, 8, seed), 8, 16, 0.5, seed)


@pytest.mark.parametrize("target", ALL)
def test_prediction_learns(target):
    net = model(target=target)
    recipe = Recipe(steps=60, batch_size=8, learning_rate=3e-3, eval_every=20)
    rows = train(net, fed(), recipe, validation=SPLITS.test, objective=objective(target))
    untrained = objective(target).evaluate(model(target=target), SPLITS.test, "fp32")
    assert rows[-1]["val_loss"] < 0.95 * untrained["loss"] and rows[-1]["val_accuracy"] > untrained["accuracy"]
    assert net.mask.abs().max() > 0


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["Lab-Mu/4", "R+Lab-Mu/4"])
def test_training_goes_on_to_the_same_bits(tmp_path, name):
    recipe = Recipe(steps=4, batch_size=8, eval_every=2)
    how = {"validation": SPLITS.test, "objective": objective(), "name": name, "save_every": 1}

    def killing(step, *part):
        if step == 3:
            raise Killed
        return fed()(step, *part)

    whole = model(name)
    train(whole, fed(), recipe, **how, folder=tmp_path / "whole")
    with pytest.raises(Killed):
        train(model(name), killing, recipe, **how, folder=tmp_path / "killed")
    resumed = model(name)
    train(resumed, fed(), recipe, **how, folder=tmp_path / "killed")
    assert apart(whole.state_dict(), resumed.state_dict()) == 0
    kept = [zoo.load(tmp_path / folder / "model.safetensors") for folder in ("whole", "killed")]
    assert kept[0].name == name and apart(kept[0].model.state_dict(), whole.vit.state_dict()) == 0
    assert apart(kept[0].model.state_dict(), kept[1].model.state_dict()) == 0
    with pytest.raises(ValueError, match="another training: objective was"):
        train(model(name), fed(), recipe, **how | {"objective": objective(Target.PIXELS)}, folder=tmp_path / "whole")


# ---- bad input ----


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan, 0.01])
def test_shares_that_cannot_be_are_refused(share):
    with pytest.raises(ValueError, match="expected"):
        plans(4, 16, share, np.random.default_rng(0))


def test_prediction_needs_patches_and_a_vit():
    with pytest.raises(ValueError, match="a grid of 1 patch has nothing to predict from"):
        plans(4, 1, 0.5, np.random.default_rng(0))
    with pytest.raises(ValueError, match="BiT has no patches to mask"):
        MaskedViT(zoo.create("BiT-Lab-Mu/8"))
    with pytest.raises(ValueError, match="Linear has no patches to mask"):
        MaskedViT(nn.Linear(2, 2))
