"""The ResNet (BiT): compute matched to the ViT of its name, BiT's ingredients, sizes and errors."""

import pytest
import torch
from timm.layers import GroupNormAct, StdConv2d
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab.models.convnets import BiT, BiTConfig
from vitlab.models.zoo import create

TINY = BiTConfig(width=8, layers=(1, 2), stem_stride=2, image_size=16, n_classes=5)


def flops(name: str, size: int) -> int:
    model = create(name, image_size=size).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


def images(size: int = 16) -> torch.Tensor:
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", ["Lab-Ti", "Lab-S", "Lab-M", "Lab-B"])
@pytest.mark.parametrize(("patch", "pixels"), [(4, 32), (8, 32), (8, 64), (2, 8)])
def test_compute_is_the_vits(size, patch, pixels):
    assert flops(f"BiT-{size}/{patch}", pixels) == pytest.approx(flops(f"{size}/{patch}", pixels), rel=0.15)


def test_flops_of_one_convolution_by_hand():
    model = BiT(BiTConfig(width=8, layers=(1,), stem_stride=1, image_size=8, n_classes=2))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 8, 8))
    stem, block, head = 64 * 9 * 3 * 8, 2 * 64 * 9 * 8 * 8, 8 * 2
    assert counter.get_total_flops() == 2 * (stem + block + head)


def test_it_is_made_of_bits_parts():
    model = create("BiT-Lab-S/8")
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    assert all(isinstance(conv, StdConv2d) for conv in convolutions)
    assert all(isinstance(norm, GroupNormAct) and norm.num_channels == 8 * norm.num_groups for norm in norms)
    assert not [m for m in model.modules() if isinstance(m, nn.MaxPool2d | nn.modules.batchnorm._BatchNorm)]


def test_convolutions_do_not_feel_the_scale_and_mean_of_their_weights():
    model = BiT(TINY).eval()
    nn.init.normal_(model.head.fc.weight, generator=torch.Generator().manual_seed(1))
    before = model(images())
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, StdConv2d):
                module.weight.mul_(3).add_(1)
    torch.testing.assert_close(model(images()), before, atol=1e-3, rtol=1e-3)


def test_images_of_a_batch_do_not_feel_each_other():
    model = BiT(TINY).train()  # GroupNorm, not BatchNorm
    nn.init.normal_(model.head.fc.weight, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(images())[:1], model(images()[:1]), atol=1e-5, rtol=1e-5)


def test_features_head_and_forward_belong_together():
    model = BiT(TINY).eval()
    nn.init.normal_(model.head.fc.weight, generator=torch.Generator().manual_seed(1))
    features = model.forward_features(images())
    assert features.shape == (4, 16, 4, 4)
    representation = model.forward_head(features, pre_logits=True)
    torch.testing.assert_close(representation, features.mean(dim=(2, 3)))
    torch.testing.assert_close(model(images()), model.head.fc(representation))


@pytest.mark.parametrize(("name", "size"), [("BiT-Lab-Ti/4", 8), ("BiT-Lab-B/2", 8), ("BiT-Lab-Ti/8", 64)])
def test_small_and_large_images(name, size):
    model = create(name, image_size=size)
    side = size // model.config.stride
    assert side >= 1
    assert model.forward_features(images(size)).shape[2:] == (side, side)
    assert model(images(size)).shape == (4, 10)


def test_a_new_model_gives_zero_logits_and_learns():
    model = BiT(TINY)
    assert not model(images()).any()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    labels = torch.arange(4)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(images()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_weights_depend_on_the_seed_alone():
    state = torch.get_rng_state()
    first = BiT(TINY, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again, other = BiT(TINY, seed=5).state_dict(), BiT(TINY, seed=6).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["stem.weight"], other["stem.weight"])


def test_the_layout_of_the_input_does_not_matter():
    model = BiT(TINY)
    nn.init.normal_(model.head.fc.weight, generator=torch.Generator().manual_seed(1))
    channels_last = images().contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(channels_last), model(images()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 20}, "width 20 is not a multiple of 8; use 16 or 24"),
        ({"width": 4}, "width 4 is not a multiple of 8; use 8"),
        ({"layers": ()}, "at least one block for every stage"),
        ({"layers": (1, 0)}, "at least one block for every stage"),
        ({"n_classes": 0}, "n_classes 0 is not possible"),
        ({"image_size": 7, "layers": (1, 1, 1, 1)}, "image_size 7 is too small for a total stride of 16"),
    ],
)
def test_a_configuration_says_what_is_wrong_with_it(changes, message):
    with pytest.raises(ValueError, match=message):
        BiTConfig(**{"width": 8, "layers": (1, 1), **changes})


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (2, 3, 3, 32)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"this model takes \[batch, 3, H, W\], 4 pixels a side or more"):
        BiT(TINY)(torch.zeros(shape))
