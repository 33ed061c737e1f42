"""Augmentation: every image as a loop over images would make it, and the same random numbers for any slice."""

import dataclasses
import math

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from vitlab.data.augment import Augmentation, Draws, boxes, crop_and_resize, draw, mix, shift_and_flip


def pictures(n: int, height: int = 9, width: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=generator)


# ---- the random numbers ----


def test_numbers_depend_on_seed_and_step_alone():
    kind = Augmentation(crop="inception", flip=True, mixup=0.4)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = draw(kind, 16, seed=3, step=5)
    assert torch.equal(torch.get_rng_state(), state)  # the global random state has no part in it
    others = [draw(kind, 16, seed, step) for seed, step in ((3, 6), (4, 5), (5, 3))]
    again = draw(kind, 16, seed=3, step=5)
    assert torch.equal(first.position, again.position) and torch.equal(first.shape, again.shape)
    assert torch.equal(first.flip, again.flip) and first.weight == again.weight
    assert all(not torch.equal(first.position, other.position) for other in others)
    assert len({first.weight, *(other.weight for other in others)}) == 4


def test_neighbouring_seeds_and_steps_do_not_repeat_each_other():
    """seed × 1,000,003 + step, for one, would give (0, 1000003) and (1, 0) the same numbers."""
    kind = Augmentation(crop="pad")
    pairs = [(0, 1_000_003), (1, 0), (0, 0), (0, 1), (1, 1), (2**32, 0), (0, 2**32)]
    assert len({tuple(draw(kind, 4, *pair).position.flatten().tolist()) for pair in pairs}) == len(pairs)


def test_flipping_does_not_change_where_is_cropped():
    plain, flipping = (draw(Augmentation(crop="inception", flip=f), 8, 0, 0) for f in (False, True))
    assert torch.equal(plain.shape, flipping.shape) and torch.equal(plain.position, flipping.position)
    assert not plain.flip.any() and flipping.flip.any()


def test_mixup_weights_follow_their_beta_distribution():
    weights = [draw(Augmentation(mixup=0.3), 2, 0, step).weight for step in range(2000)]
    assert stats.kstest(weights, stats.beta(0.3, 0.3).cdf).pvalue > 1e-3
    assert draw(Augmentation(), 2, 0, 0).weight == 1.0


def test_inception_shapes_cover_the_areas_and_aspects_asked_for():
    kind = Augmentation(crop="inception", area=(0.05, 1.0), aspect=(0.5, 2.0))
    area, aspect = draw(kind, 20_000, 0, 0).shape[:, 0].unbind(-1)
    assert stats.kstest(area, stats.uniform(0.05, 0.95).cdf).pvalue > 1e-3
    assert stats.kstest(aspect.log2(), stats.uniform(-1, 2).cdf).pvalue > 1e-3


# ---- boxes ----


def given(shapes: list[list[tuple[float, float]]], positions: list[tuple[float, float]]) -> Draws:
    """Numbers chosen by hand."""
    return Draws(
        flip=torch.zeros(len(shapes), dtype=torch.bool),
        position=torch.tensor(positions, dtype=torch.float64),
        shape=torch.tensor(shapes, dtype=torch.float64),
        weight=1.0,
    )


def test_known_boxes():
    drawn = given(
        [
            [(0.25, 1.0), (1.0, 1.0)],  # sides √128 = 11.3
            [(0.5, 1.0), (1.0, 1.0)],
            [(0.99, 4.0), (0.125, 1.0)],  # the first would be 45 wide
            [(0.125, 4.0), (1.0, 1.0)],
            [(1.0, 4.0), (1.0, 0.25)],  # neither fits: the whole image
        ],
        [(0.0, 0.0), (0.999, 0.5), (0.999, 0.999), (0.5, 0.25), (0.7, 0.7)],
    )
    wanted = [[0, 0, 11, 11], [0, 8, 16, 16], [8, 24, 8, 8], [6, 4, 4, 16], [0, 0, 16, 32]]
    assert boxes(drawn, 16, 32).tolist() == wanted
    assert torch.cat([boxes(drawn[i : i + 1], 16, 32) for i in range(5)]).tolist() == wanted


def test_boxes_lie_within_the_image_and_reach_every_edge():
    found = boxes(draw(Augmentation(crop="inception"), 5000, 0, 0), 12, 20)
    top, left, height, width = found.unbind(-1)
    assert (found[:, :2] >= 0).all() and (found[:, 2:] >= 1).all()
    assert (top + height <= 12).all() and (left + width <= 20).all()
    assert (top == 0).any() and (left == 0).any() and (top + height == 12).any() and (left + width == 20).any()


# ---- pixels ----


@pytest.mark.parametrize("pad", [1, 4, 8])
def test_shifts_are_crops_of_the_reflected_image(pad):
    images = pictures(200)
    drawn = draw(Augmentation(crop="pad", pad=pad, flip=True), 200, 0, 0)
    found = shift_and_flip(images, drawn, pad)
    assert found.dtype == torch.uint8
    corners = (drawn.position * (2 * pad + 1)).long()
    assert corners.unique().tolist() == list(range(2 * pad + 1))  # every shift occurs
    for image, corner, flip, result in zip(images, corners, drawn.flip, found, strict=True):
        wide = F.pad(image.double(), (pad,) * 4, mode="reflect")
        crop = wide[:, corner[0] : corner[0] + 9, corner[1] : corner[1] + 9]
        assert torch.equal(result.double(), crop.flip(-1) if flip else crop)


def test_images_need_not_be_square():
    images = pictures(3, 4, 6)
    drawn = draw(Augmentation(flip=True), 3, 0, 0)
    drawn.flip[:] = torch.tensor([True, False, True])
    wanted = torch.stack([images[0].flip(-1), images[1], images[2].flip(-1)])
    assert torch.equal(shift_and_flip(images, drawn, 0), wanted)


@pytest.mark.parametrize("size, new", [((9, 9), None), ((7, 12), None), ((1, 5), None), ((9, 9), 6), ((7, 12), 16)])
def test_resized_crops_are_each_images_crop_resized(size, new):
    images = pictures(60, *size).float()
    drawn = draw(Augmentation(crop="inception", flip=True), 60, 0, 0)
    found = crop_and_resize(images, drawn, new)
    for image, box, flip, result in zip(images, boxes(drawn, *size), drawn.flip, found, strict=True):
        top, left, height, width = box.tolist()
        crop = image.double()[None, :, top : top + height, left : left + width]
        wanted = F.interpolate(crop, (new, new) if new else size, mode="bilinear", align_corners=False)[0]
        torch.testing.assert_close(result.double(), wanted.flip(-1) if flip else wanted, rtol=0, atol=1e-3)  # of 255


# ---- mixup ----


def mixture_of(weight: float) -> Draws:
    """Numbers chosen by hand, of a batch that is only mixed."""
    return dataclasses.replace(draw(Augmentation(), 1, 0, 0), weight=weight)


def test_mixtures_and_their_labels_by_hand():
    images = torch.tensor([0.0, 1.0, -1.0]).reshape(3, 1, 1, 1).expand(3, 3, 1, 1)
    found, labels = mix(images, torch.tensor([0, 2, 2]), mixture_of(0.75), 3)
    assert found[:, 0, 0, 0].tolist() == [0.25, 0.5]
    assert labels.tolist() == [[0.75, 0.0, 0.25], [0.0, 0.0, 1.0]]


def test_mixture_labels_sum_to_one_and_cost_the_mixture_of_losses():
    images, labels = pictures(9).float(), torch.arange(9) % 4
    _, mixture = mix(images, labels, mixture_of(0.3), 4)
    torch.testing.assert_close(mixture.sum(-1), torch.ones(8))
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    wanted = 0.3 * F.cross_entropy(logits, labels[:-1]) + 0.7 * F.cross_entropy(logits, labels[1:])
    torch.testing.assert_close(F.cross_entropy(logits, mixture), wanted)


def test_crops_and_flips_do_not_depend_on_what_is_mixed():
    kind = Augmentation(crop="inception", flip=True)
    plain, more = draw(kind, 8, 0, 3), draw(dataclasses.replace(kind, mixup=0.4), 8, 0, 3)
    for name in ("flip", "position", "shape"):
        assert torch.equal(getattr(plain, name), getattr(more, name))


# ---- settings ----


@pytest.mark.parametrize(
    "values, message",
    [
        ({"crop": "centre"}, "crop is 'centre'.*'none', 'pad', 'inception'"),
        ({"pad": 0}, "pad is 0"),
        ({"mixup": -0.1}, r"mixup is -0\.1"),
        ({"mixup": math.nan}, "mixup is nan"),
        ({"area": (0.0, 1.0)}, r"area is \(0\.0, 1\.0\)"),
        ({"area": (0.5, 0.2)}, r"area is \(0\.5, 0\.2\)"),
        ({"area": (0.5, 1.2)}, r"area is \(0\.5, 1\.2\)"),
        ({"aspect": (2.0, 0.5)}, r"aspect is \(2\.0, 0\.5\)"),
    ],
)
def test_settings_that_mean_nothing_are_refused(values, message):
    made = object.__new__(Augmentation)  # as a user makes it, whose annotations nobody checks
    for name, default in vars(Augmentation()).items():
        object.__setattr__(made, name, values.get(name, default))
    with pytest.raises(ValueError, match=message):
        made.__post_init__()


def test_a_pad_that_reflects_past_the_image_is_refused():
    with pytest.raises(ValueError, match="pad is 9 but the images have 9×9 pixels"):
        shift_and_flip(pictures(2), draw(Augmentation(crop="pad", pad=9), 2, 0, 0), 9)
