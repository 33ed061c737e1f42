"""The world is a pure function of (world, index), and its parts do what their names say."""

import dataclasses

import pytest
import torch

from vitlab.data import looks
from vitlab.data import world as w
from vitlab.data.draws import uniform
from vitlab.data.noise import noise_sheet
from vitlab.data.world import HELD_OUT, World, scene


def test_known_answers_image_is_a_function_of_its_index():
    """Any order, any batch, any chunk: the same bytes."""
    indices = torch.tensor([7, 0, 123_456_789, HELD_OUT + 5, 2**33])
    images, labels, masks = scene(World(), indices)
    for i, index in enumerate(indices):
        alone, label, mask = scene(World(), index[None])
        assert torch.equal(alone[0], images[i]) and torch.equal(mask[0], masks[i]) and label[0] == labels[i]
    backwards, _, _ = scene(World(), indices.flip(0), chunk=2)
    assert torch.equal(backwards.flip(0), images)


def test_pinned_world():
    """The world must not drift: bundled weights and reference results stand on these very images."""
    images, _, masks = scene(World(), torch.arange(8))
    assert images.double().mean().item() == pytest.approx(PINNED_MEAN, abs=0.01)
    assert masks.double().mean().item() == pytest.approx(PINNED_MASK, abs=0.001)


PINNED_MEAN, PINNED_MASK = 119.1045, 0.338989


def test_other_threads_same_images():
    threads = torch.get_num_threads()
    one, _, _ = scene(World(image_size=64), torch.arange(40))
    torch.set_num_threads(2 if threads == 1 else 1)
    try:
        two, _, _ = scene(World(image_size=64), torch.arange(40))
    finally:
        torch.set_num_threads(threads)
    assert (one.int() - two.int()).abs().max() <= 1


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


def test_contour_known_answers():
    """Clenshaw's recurrence equals the Fourier series, and no contour folds through its centre."""
    coefficients = looks.contour_coefficients(uniform(0, torch.arange(200), 2 * len(looks.HARMONICS), purpose=9))
    theta = torch.linspace(0, 2 * torch.pi, 90)
    cosine, sine = (f(theta).expand(200, 1, 90) for f in (torch.cos, torch.sin))
    radius = looks.contour_radius(coefficients, cosine, sine)[:, 0]
    angles = torch.tensor(looks.HARMONICS) * theta[:, None]
    cosines, sines = coefficients[:, None, 0], coefficients[:, None, 1]
    series = 1 + (cosines * torch.cos(angles) + sines * torch.sin(angles)).sum(-1)
    assert (radius - series).abs().max() < 1e-5
    assert radius.min() > 0.3


def test_contours_vary_widely():
    """Every harmonic is the strongest of many contours, and dominates some."""
    coefficients = looks.contour_coefficients(uniform(0, torch.arange(2000), 2 * len(looks.HARMONICS), purpose=9))
    power = coefficients.square().sum(-2)
    share = power / power.sum(-1, keepdim=True)
    strongest = torch.bincount(share.argmax(1), minlength=len(looks.HARMONICS))
    assert (strongest > 2000 / len(looks.HARMONICS) / 2).all()
    assert 0.1 < (share.amax(1) > 0.8).double().mean() < 0.6


def test_parts_stand_on_the_object_and_differ_by_class_alone_in_place():
    """Dark and bright discs lie at the arrangement's points; the parts of all classes look alike."""
    bare = w.with_cues(w.with_difficulty(World(n_classes=5, image_size=128), 0.0), "contour", "arrangement")
    images, labels, masks = scene(bare, torch.arange(5))
    at = w.class_looks(bare).arrangement[labels]  # in object radii, which are 0.7 half frames at no strength
    pixel = ((at * 0.7 + 1) * 64).long()
    for image, mask, points in zip(images, masks, pixel, strict=True):
        for part, (x, y) in enumerate(points):
            assert mask[y, x]
            wanted = 20 if part % 2 == 0 else 235
            near = torch.cat([points[:part], points[part + 1 :]]).sub(points[part]).abs().amax(1).min() < 20
            assert near or (image[:, y, x].int() - wanted).abs().max() < 5


@pytest.mark.parametrize("cue", looks.CUES)
def test_a_cue_of_zero_tells_nothing_and_of_one_all(cue):
    """The look of the labelled object: of class 3 the same in all images, or of no class."""
    silent = dict.fromkeys(looks.CUES, 0.0)
    alone = World(n_classes=4, **(silent | {cue: 1.0}))
    shown, _ = w._instances(alone, torch.arange(3, 200, 4))
    own = getattr(shown, cue)[:, 2]
    assert (own - getattr(w.class_looks(alone), cue)[3]).abs().max() < 1e-6
    for other in set(looks.CUES) - {cue}:
        values = getattr(shown, other)[:, 2]
        assert values.flatten(1).std(0).min() > 0.02
        assert torch.isfinite(values).all()


def test_without_arrangement_there_are_no_parts():
    plain, parted = (scene(w.with_cues(World(), *cues), torch.arange(40))[0] for cues in (("contour",), looks.CUES))
    assert not torch.equal(plain, parted)
    hidden = dataclasses.replace(World(), arrangement=1e-9)  # parts, wherever they are drawn
    assert not torch.equal(scene(World(), torch.arange(40))[0], scene(hidden, torch.arange(40))[0])


def test_the_cues_do_not_move_the_objects():
    """Classes by contour or by texture: poses, backgrounds and other objects are the same, so cues can be compared."""
    _, before = w._instances(World(), torch.arange(50))
    _, after = w._instances(World(texture=0.0, colour=0.0), torch.arange(50))
    for field in dataclasses.fields(before):
        assert torch.equal(torch.as_tensor(getattr(before, field.name)), torch.as_tensor(getattr(after, field.name)))


def test_background_has_a_one_over_f_spectrum():
    sheet = noise_sheet(0)[0]
    power = torch.fft.rfft2(sheet).abs() ** 2
    f = (torch.fft.fftfreq(1024)[:, None] ** 2 + torch.fft.rfftfreq(1024)[None] ** 2).sqrt()
    band = [power[(f > lo) & (f <= 2 * lo)].mean().log2() for lo in (0.02, 0.04, 0.08, 0.16)]
    slopes = torch.stack(band).diff()  # amplitude 1/f: power falls by a factor of 4 an octave
    assert (slopes + 2).abs().max() < 0.15


def test_no_strength_no_variation():
    """With every strength at 0 the pictures of one class differ in colours and texture phase alone."""
    still = w.with_difficulty(World(n_classes=4), 0.0)
    _, labels, masks = scene(still, torch.arange(40))
    for k in range(4):
        assert (masks[labels == k] == masks[labels == k][0]).all()


@pytest.mark.parametrize("strength", ["position", "rotation", "scale", "stretch"])
def test_pose_strengths_move_the_mask(strength):
    still = w.with_difficulty(World(n_classes=4), 0.0)
    moved = dataclasses.replace(still, **{strength: 1.0})
    assert not torch.equal(scene(moved, torch.arange(8))[2], scene(still, torch.arange(8))[2])


def test_occlusion_hides_a_part_never_the_whole():
    free = dataclasses.replace(World(), occlusion=0.0)
    hidden = dataclasses.replace(World(), occlusion=1.0)
    before, after = (scene(x, torch.arange(600))[2].flatten(1).sum(1).double() for x in (free, hidden))
    assert (after <= before).all()
    assert 0.05 < 1 - (after.sum() / before.sum()) < 0.5
    assert (after > 0).double().mean() > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_chunk_moves_the_rounding_of_few_bytes_and_nothing_else(chunk):
    indices = torch.arange(1500)
    (images, labels, masks), (others, same_labels, same_masks) = (
        scene(World(), indices, chunk=chunk) for chunk in (None, chunk)
    )
    apart = (images.int() - others.int()).abs()
    assert apart.max() <= 1 and (apart > 0).double().mean() < 2e-5
    assert labels.equal(same_labels) and (masks != same_masks).double().mean() < 1e-5


@pytest.mark.slow
def test_the_object_cannot_leave_the_frame():
    masks = scene(World(position=4.0), torch.arange(2000))[2]
    assert masks.flatten(1).any(1).all()  # where position moved objects out, 2,450 masks of 4,000 were empty
    within, edge = (scene(World(position=position), torch.arange(50))[0] for position in (1.0, 4.0))
    assert within.equal(edge)


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


def test_labels_are_balanced_and_sets_nested():
    small, large = w.image_set(World(), 50), w.image_set(World(), 100)
    assert torch.equal(large.images[:50], small.images)
    assert torch.bincount(large.labels).tolist() == [10] * 10


def test_same_scene_at_another_resolution():
    """Twice the pixels show the same scene: averaged down they look alike, so resolution can be studied."""
    fine, _, fine_masks = scene(World(image_size=64), torch.arange(30))
    coarse, _, masks = scene(World(image_size=32), torch.arange(30))
    down = torch.nn.functional.avg_pool2d(fine.float(), 2)
    assert (down - coarse.float()).abs().mean() < 12
    assert (torch.nn.functional.avg_pool2d(fine_masks[:, None].float(), 2)[:, 0] - masks.float()).abs().mean() < 0.02


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        ({"contour": 1.5}, "contour is 1.5"),
        (dict.fromkeys(looks.CUES, 0.0), "all cues are 0"),
        ({"n_classes": 1}, "n_classes"),
        ({"image_size": 4}, "image_size"),
        ({"image_size": 10**20}, "1024"),
        ({"scale": -1.0}, "scale"),
    ],
)
def test_bad_worlds_are_refused(bad, names):
    with pytest.raises(ValueError, match=names):
        World(**bad)


def test_negative_index_is_refused():
    with pytest.raises(ValueError, match="-3"):
        scene(World(), torch.tensor([-3]))


def test_the_noise_is_the_same_whatever_the_number_of_threads():
    """It is made once in a process: whoever painted first would decide for all the runs that follow."""
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            found.append(noise_sheet.__wrapped__(0))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
