"""Augmentation: every image as a loop over images would make it, and the same random numbers for any slice."""

import dataclasses

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from vitlab.data.augment import Augmentation, Draws, boxes, crop_and_resize, draw, mix, shift_and_flip


def pictures(n: int, height: int = 9, width: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=generator)


def test_neighbouring_seeds_and_steps_do_not_repeat_each_other():
    """seed × 1,000,003 + step, for one, would give (0, 1000003) and (1, 0) the same numbers."""
    kind = Augmentation(crop="pad")
    pairs = [(0, 1_000_003), (1, 0), (0, 0), (0, 1), (1, 1), (2**32, 0), (0, 2**32)]
    assert len({tuple(draw(kind, 4, *pair).position.flatten().tolist()) for pair in pairs}) == len(pairs)


def test_mixup_weights_follow_their_beta_distribution():
    weights = [draw(Augmentation(mixup=0.3), 2, 0, step).weight for step in range(200)]
    assert stats.kstest(weights, stats.beta(0.3, 0.3).cdf).pvalue > 1e-3
    assert draw(Augmentation(), 2, 0, 0).weight == 1.0


def test_inception_shapes_cover_the_areas_and_aspects_asked_for():
    kind = Augmentation(crop="inception", area=(0.05, 1.0), aspect=(0.5, 2.0))
    area, aspect = draw(kind, 5000, 0, 0).shape[:, 0].unbind(-1)
    assert stats.kstest(area, stats.uniform(0.05, 0.95).cdf).pvalue > 1e-3
    assert stats.kstest(aspect.log2(), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_known_boxes():
    shapes = [
        [(0.25, 1.0), (1.0, 1.0)],  # sides √128 = 11.3
        [(0.5, 1.0), (1.0, 1.0)],
        [(0.99, 4.0), (0.125, 1.0)],  # the first would be 45 wide
        [(0.125, 4.0), (1.0, 1.0)],
        [(1.0, 4.0), (1.0, 0.25)],  # neither fits: the whole image
    ]
    positions = [(0.0, 0.0), (0.999, 0.5), (0.999, 0.999), (0.5, 0.25), (0.7, 0.7)]
    numbers = [torch.tensor(each, dtype=torch.float64) for each in (positions, shapes)]
    drawn = Draws(torch.zeros(5, dtype=torch.bool), *numbers, weight=1.0)
    wanted = [[0, 0, 11, 11], [0, 8, 16, 16], [8, 24, 8, 8], [6, 4, 4, 16], [0, 0, 16, 32]]
    assert boxes(drawn, 16, 32).tolist() == wanted
    assert torch.cat([boxes(drawn[i : i + 1], 16, 32) for i in range(5)]).tolist() == wanted


def test_boxes_lie_within_the_image_and_reach_every_edge():
    found = boxes(draw(Augmentation(crop="inception"), 5000, 0, 0), 12, 20)
    top, left, height, width = found.unbind(-1)
    assert (found[:, :2] >= 0).all() and (found[:, 2:] >= 1).all()
    assert (top + height <= 12).all() and (left + width <= 20).all()
    assert (top == 0).any() and (left == 0).any() and (top + height == 12).any() and (left + width == 20).any()


@pytest.mark.parametrize("pad", [1, 8])
def test_shifts_are_crops_of_the_reflected_image(pad):
    images = pictures(100)
    drawn = draw(Augmentation(crop="pad", pad=pad, flip=True), 100, 0, 0)
    found = shift_and_flip(images, drawn, pad)
    assert found.dtype == torch.uint8
    corners = (drawn.position * (2 * pad + 1)).long()
    assert corners.unique().tolist() == list(range(2 * pad + 1))  # every shift occurs
    for image, corner, flip, result in zip(images, corners, drawn.flip, found, strict=True):
        wide = F.pad(image.double(), (pad,) * 4, mode="reflect")
        crop = wide[:, corner[0] : corner[0] + 9, corner[1] : corner[1] + 9]
        assert torch.equal(result.double(), crop.flip(-1) if flip else crop)


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


def test_mixtures_and_their_labels_by_hand():
    images = torch.tensor([0.0, 1.0, -1.0]).reshape(3, 1, 1, 1).expand(3, 3, 1, 1)
    drawn = dataclasses.replace(draw(Augmentation(), 1, 0, 0), weight=0.75)
    found, labels = mix(images, torch.tensor([0, 2, 2]), drawn, 3)
    assert found[:, 0, 0, 0].tolist() == [0.25, 0.5]
    assert labels.tolist() == [[0.75, 0.0, 0.25], [0.0, 0.0, 1.0]]

    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    wanted = 0.75 * F.cross_entropy(logits, torch.tensor([0, 2])) + 0.25 * F.cross_entropy(logits, torch.tensor([2, 2]))
    torch.testing.assert_close(F.cross_entropy(logits, labels), wanted)
