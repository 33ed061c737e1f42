"""The world is a pure function of (world, index), and its parts do what their names say."""

import dataclasses

import pytest
import torch

from vitlab.data.world import (
    CUES,
    HARMONICS,
    HELD_OUT,
    World,
    class_looks,
    contour_radius,
    latents,
    looks,
    noise_sheet,
    object_looks,
    scene,
    stream,
    uniform,
    with_cues,
    with_difficulty,
)


def test_known_answers_image_is_a_function_of_its_index():
    """Any order, any batch, any chunk: the same bytes."""
    indices = torch.tensor([7, 0, 123_456_789, HELD_OUT + 5, 2**33])
    images, labels, masks = scene(World(), indices)
    for i, index in enumerate(indices):
        alone, label, mask = scene(World(), index[None])
        assert torch.equal(alone[0], images[i]) and torch.equal(mask[0], masks[i]) and label[0] == labels[i]
    backwards, _, _ = scene(World(), indices.flip(0), chunk=2)
    assert torch.equal(backwards.flip(0), images)


def test_latents_are_where_the_mask_is_how_large_and_how_many_objects_stand_around():
    alone = World(image_size=64, distractors=0.0, occlusion=0.0, stretch=0.0)
    index = torch.arange(200)
    told, masks = latents(alone, index), scene(alone, index)[2].float()
    centre = (masks.sum(1) * torch.arange(64)).sum(1) / masks.sum((1, 2))
    for name, seen in (("column", centre), ("size", masks.sum((1, 2)))):
        assert torch.corrcoef(torch.stack([told[name].float(), seen]))[0, 1] > 0.85
        assert set(told[name].tolist()) == set(range(8))
    assert not told["count"].any()
    crowded = latents(dataclasses.replace(alone, distractors=1.0), index)
    assert crowded["count"].eq(2).all() and crowded["column"].equal(told["column"])
    turned = dataclasses.replace(alone, rotation=0.0)  # at the middle of the range an object stands upright
    upright = index[told["angle"].eq(3) | told["angle"].eq(4)]
    differ = [(scene(alone, which)[2] != scene(turned, which)[2]).float().mean() for which in (upright, index)]
    assert differ[0] < 0.6 * differ[1]


HARD = with_cues(with_difficulty(World(), 2.0), "texture", "arrangement")
PINNED = [  # sums of the bytes of three images and of their masks
    (World(), 0, [326616, 320431, 383350], [321, 339, 355]),
    (World(300, 64, seed=1), HELD_OUT, [1371410, 1560708, 1328797], [1599, 1590, 1548]),
    (HARD, 123456789, [325829, 258279, 515813], [180, 177, 348]),
]


@pytest.mark.parametrize("world, start, sums, areas", PINNED)
def test_known_answers_the_world_does_not_drift(world, start, sums, areas):
    """Bundled weights and committed evidence stand on these very images; another processor rounds a few otherwise."""
    images, labels, masks = scene(world, start + torch.arange(3))
    assert (images.long().sum((1, 2, 3)) - torch.tensor(sums)).abs().max() <= 4
    assert (masks.sum((1, 2)) - torch.tensor(areas)).abs().max() <= 1
    assert labels.tolist() == [(start + i) % world.n_classes for i in range(3)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_gpu_paints_the_same_images():
    cpu, _, cpu_masks = scene(World(), torch.arange(500))
    gpu, _, gpu_masks = scene(World(), torch.arange(500), device="cuda")
    assert (cpu.int() - gpu.cpu().int()).abs().max() <= 1
    assert (cpu_masks != gpu_masks.cpu()).float().mean() < 1e-4


def test_hash_is_uniform_and_uncorrelated():
    u = uniform(0, torch.arange(20_000), 8, purpose=2).double()
    assert (u.mean(0) - 0.5).abs().max() < 0.01
    assert (u.var(0) - 1 / 12).abs().max() < 0.002
    assert (torch.corrcoef(u.T) - torch.eye(8)).abs().max() < 0.03
    assert torch.corrcoef(torch.stack([u[:-1, 0], u[1:, 0]]))[0, 1].abs() < 0.03  # neighbours differ
    assert not torch.equal(u[:, 0], uniform(1, torch.arange(20_000), 8, purpose=2)[:, 0].double())


def test_known_answers_contours():
    """Clenshaw's recurrence equals the Fourier series; no contour folds through its centre, and they vary widely."""
    coefficients = looks(uniform(0, torch.arange(2000), 36, purpose=9))["contour"]
    theta = torch.linspace(0, 2 * torch.pi, 90)
    cosine, sine = (f(theta).expand(2000, 1, 90) for f in (torch.cos, torch.sin))
    radius = contour_radius(coefficients, cosine, sine)[:, 0]
    angles = torch.tensor(HARMONICS) * theta[:, None]
    cosines, sines = coefficients[:, None, 0], coefficients[:, None, 1]
    series = 1 + (cosines * torch.cos(angles) + sines * torch.sin(angles)).sum(-1)
    assert (radius - series).abs().max() < 1e-5
    assert radius.min() > 0.3
    power = coefficients.square().sum(-2)
    share = power / power.sum(-1, keepdim=True)
    strongest = torch.bincount(share.argmax(1), minlength=len(HARMONICS))
    assert (strongest > 2000 / len(HARMONICS) / 2).all()  # every harmonic is the strongest of many
    assert 0.1 < (share.amax(1) > 0.8).double().mean() < 0.6  # and dominates some


def test_parts_stand_on_the_object_at_the_arrangements_points():
    bare = with_cues(with_difficulty(World(n_classes=5, image_size=128), 0.0), "contour", "arrangement")
    images, labels, masks = scene(bare, torch.arange(5))
    at = class_looks(bare)["arrangement"][labels]  # in object radii, which are 0.7 half frames at no strength
    pixel = ((at * 0.7 + 1) * 64).long()
    for image, mask, points in zip(images, masks, pixel, strict=True):
        for part, (x, y) in enumerate(points):
            assert mask[y, x]
            wanted = 20 if part % 2 == 0 else 235
            near = torch.cat([points[:part], points[part + 1 :]]).sub(points[part]).abs().amax(1).min() < 20
            assert near or (image[:, y, x].int() - wanted).abs().max() < 5
    assert not torch.equal(images, scene(with_cues(bare, "contour"), torch.arange(5))[0])


@pytest.mark.parametrize("cue", CUES)
def test_a_cue_of_zero_tells_nothing_and_of_one_all(cue):
    """The look of the labelled object: of class 3 the same in all images, or of no class."""
    alone = with_cues(World(n_classes=4), cue)
    shown = object_looks(alone, torch.arange(3, 200, 4))
    assert (shown[cue][:, 2] - class_looks(alone)[cue][3]).abs().max() < 1e-6
    for other in set(CUES) - {cue}:
        assert shown[other][:, 2].flatten(1).std(0).min() > 0.02


def test_the_cues_do_not_move_the_objects():
    """Classes by contour or by texture: poses and other objects are the same, so cues can be compared."""
    plain, recoloured = (scene(world, torch.arange(50))[2] for world in (World(), World(texture=0.0, colour=0.0)))
    assert torch.equal(plain, recoloured)


def test_background_has_a_one_over_f_spectrum():
    power = torch.fft.rfft2(noise_sheet(0)[0]).abs() ** 2
    f = (torch.fft.fftfreq(1024)[:, None] ** 2 + torch.fft.rfftfreq(1024)[None] ** 2).sqrt()
    band = [power[(f > lo) & (f <= 2 * lo)].mean().log2() for lo in (0.02, 0.04, 0.08, 0.16)]
    slopes = torch.stack(band).diff()  # amplitude 1/f: power falls by a factor of 4 an octave
    assert (slopes + 2).abs().max() < 0.15


def test_threads_change_no_noise_and_hardly_an_image():
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            found.append((noise_sheet.__wrapped__(0), scene(World(), torch.arange(70))[0].int()))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    (one, few), (two, more) = found
    assert torch.equal(one, two) and (few - more).abs().max() <= 1


def test_no_strength_no_variation_and_each_pose_moves_the_mask():
    """With every strength at 0 the pictures of one class differ in colours and texture phase alone."""
    still = with_difficulty(World(n_classes=4), 0.0)
    _, labels, masks = scene(still, torch.arange(40))
    for k in range(4):
        assert (masks[labels == k] == masks[labels == k][0]).all()
    for strength in ("position", "rotation", "scale", "stretch"):
        assert not torch.equal(scene(dataclasses.replace(still, **{strength: 1.0}), torch.arange(40))[2], masks)


def test_occlusion_hides_a_part_never_the_whole():
    free, hidden = (dataclasses.replace(World(), occlusion=share) for share in (0.0, 1.0))
    before, after = (scene(x, torch.arange(200))[2].flatten(1).sum(1).double() for x in (free, hidden))
    assert (after <= before).all()
    assert 0.05 < 1 - (after.sum() / before.sum()) < 0.5
    assert (after > 0).double().mean() > 0.99


def test_mask_is_where_the_object_is():
    """Recolouring the class changes pixels under the mask and (but for the antialiased rim) nowhere else."""
    base = dataclasses.replace(World(image_size=64), colour=0.0, lighting=0.0)
    images, _, masks = scene(base, torch.arange(20))
    recoloured, _, _ = scene(dataclasses.replace(base, colour=1.0), torch.arange(20))  # the class's colours
    changed = (images.int() - recoloured.int()).abs().amax(1) > 2
    interior = -torch.nn.functional.max_pool2d(-masks[:, None].float(), 3, 1, 1)[:, 0] > 0
    near = torch.nn.functional.max_pool2d(masks[:, None].float(), 5, 1, 2)[:, 0] > 0
    assert changed[interior].double().mean() > 0.95
    assert changed[~near].double().mean() < 0.005


@pytest.mark.parametrize("size", [9, 32, 33])
def test_slices_of_the_stream_are_the_batch_cut_up(size):
    """At 32 and 33 pixels a few bytes depend on how many images are rendered at once (14, 15, 38 to 41 and 91)."""
    batch = stream(World(image_size=size), 100)
    images, labels = batch(0)
    for start, stop in [(15, 16), (14, 16), (91, 98), (39, 40), (0, 50), (50, 100), (99, 100)]:
        found, own = batch(0, start, stop)
        assert torch.equal(found, images[start:stop]) and torch.equal(own, labels[start:stop])
    assert torch.equal(stream(World(image_size=size), 100, start=100)(0, 30, 40)[0], batch(1, 30, 40)[0])


def test_worlds_and_indices_that_mean_nothing_are_refused():
    for bad, names in [
        ({"contour": 1.5}, "contour is 1.5; a cue lies in 0…1"),
        (dict.fromkeys(CUES, 0.0), "all cues are 0"),
        ({"n_classes": 1}, "n_classes is 1"),
        ({"n_classes": 9_999_999}, "n_classes is 9999999; expected a whole number from 2 to 100,000"),
        ({"image_size": 4}, "image_size is 4"),
        ({"scale": -1.0}, "scale is -1.0; a strength lies in 0…4"),
    ]:
        with pytest.raises(ValueError, match=names):
            World(**bad)
    with pytest.raises(ValueError, match="unknown cues"):
        with_cues(World(), "shape")
    with pytest.raises(ValueError, match="-3"):
        scene(World(), torch.tensor([-3]))
