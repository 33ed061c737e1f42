"""Maps against object masks: coverage, mass inside, the pointing game, and masks and maps that are none."""

import pytest
import torch

from vitlab.analysis.masks import area_share, mass_inside, patch_coverage, pointing_chance, pointing_hit


def test_masks_known_answers():
    masks = torch.zeros(3, 4, 8, dtype=torch.bool)
    masks[0, :, :4] = True  # the left half
    masks[1, :2, :3] = True  # 6 of the 8 pixels of the upper left patch of 2 x 4
    assert area_share(masks).tolist() == [0.5, 0.1875, 0.0]
    assert patch_coverage(masks, (2, 2))[1].tolist() == [[0.75, 0.0], [0.0, 0.0]]
    maps = torch.tensor([[[4.0, 1.0], [2.0, 1.0]]] * 3)
    assert mass_inside(maps, masks).tolist() == [0.75, 0.375, 0.0]
    assert mass_inside(torch.ones(3, 2, 2), masks).tolist() == area_share(masks).tolist()
    assert pointing_hit(maps, masks).tolist() == [True, True, False]
    assert pointing_hit(maps.flip(2), masks).tolist() == [False, False, False]
    assert pointing_chance(masks, (2, 2)).tolist() == [0.5, 0.25, 0.0]


def test_maps_of_whole_numbers_known_answers():
    masks = torch.tensor([[[True, True, True, False]]])
    for dtype in (torch.int64, torch.uint8, torch.float16, torch.float64):
        maps = torch.tensor([[[1, 1]]], dtype=dtype)  # 1 and half of the other: 1.5 of 2
        assert mass_inside(maps, masks).tolist() == [0.75]
        assert pointing_hit(maps, masks).tolist() == [True]


def test_masks_of_another_size_and_masks_that_are_not_bool():
    maps, grey = torch.ones(1, 2, 2), torch.zeros(1, 4, 4, dtype=torch.uint8)  # as a picture of a mask has it
    with pytest.raises(ValueError, match="masks of 5 x 4 pixels given for a grid of 2 x 2"):
        mass_inside(maps, torch.ones(1, 5, 4, dtype=torch.bool))
    for call in (area_share, lambda m: pointing_hit(maps, m), lambda m: pointing_chance(m, (2, 2))):
        with pytest.raises(ValueError, match=r"masks are torch.uint8, expected torch.bool, True on the object"):
            call(grey)


def test_maps_that_are_negative_or_not_finite():
    maps, masks = torch.ones(3, 2, 2), torch.ones(3, 4, 4, dtype=torch.bool)
    broken = maps.clone()
    broken[1, 0, 1] = float("nan")
    for measure in (mass_inside, pointing_hit):
        with pytest.raises(ValueError, match="from -1 to -1, expected 0 or more"):
            measure(-maps, masks)
        with pytest.raises(ValueError, match="from nan to nan, expected 0 or more"):
            measure(broken, masks)
