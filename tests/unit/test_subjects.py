"""What the analyses look at: pictures to show, and which hybrid is a model's twin by what the weights say."""

import numpy as np
import pytest
import torch

from vitlab.experiments import subjects
from vitlab.models import zoo
from vitlab.models.zoo import Pretrained


def trained_on(*steps):
    return {"trainings": [{"data": data, "objective": objective} for data, objective in steps]}


@pytest.fixture
def hybrid(tmp_path, monkeypatch):
    """A bundled hybrid of 32 pixels that was trained by masked prediction on photographs, then with their labels."""
    model, about = zoo.create("R+Lab-Mu/8"), trained_on(("imagenette", "masked"), ("imagenette", "labels"))
    zoo.save(tmp_path / zoo.BUNDLED[subjects.HYBRID], model, "R+Lab-Mu/8", about)
    monkeypatch.setattr(paths, "bundled_dir", lambda: tmp_path)


def vit(*steps, name="Lab-Mu/8", size=32):
    about = trained_on(*steps) if steps else {}
    return Pretrained(torch.nn.Identity(), name, "nowhere", (size, size), about=about)


def test_the_twin_is_the_hybrid_that_was_trained_alike(hybrid):
    assert subjects.twin(vit(("imagenette", "masked"), ("imagenette", "labels"))) == "lab-hybrid"


@pytest.mark.parametrize(
    "other",
    [
        vit(),  # weights of others say nothing
        vit(("imagenette", "masked")),  # before the labels
        vit(("world", "masked"), ("world", "labels")),
        vit(("imagenette", "labels"), ("imagenette", "labels")),
        vit(("imagenette", "masked"), ("imagenette", "labels"), size=48),  # another grid
        vit(("imagenette", "masked"), ("imagenette", "labels"), name="Lab-Ti/8"),  # another transformer
        vit(("imagenette", "masked"), ("imagenette", "labels"), name="R+Lab-Mu/8"),  # the hybrid itself
    ],
)
def test_any_other_has_no_twin(hybrid, other):
    assert subjects.twin(other) == ""


def test_views_are_cut_as_the_model_is_given_them():
    model = vit()
    picture = torch.arange(200).repeat(160, 1).to(torch.uint8).repeat(3, 1, 1)  # brighter from left to right
    seen, given = subjects.views(model, [picture], side=96), model.prepare(picture[None])[0] * 0.5 + 0.5
    assert seen.shape == (1, 96, 96, 3) and given.shape == (3, 32, 32)
    small = seen[0].reshape(32, 3, 32, 3, 3).mean((1, 3))
    np.testing.assert_allclose(small, given.permute(1, 2, 0), atol=0.02)


def test_views_have_no_more_pixels_than_the_pictures():
    small, large = (torch.zeros(3, side, side, dtype=torch.uint8) for side in (32, 400))
    assert subjects.views(vit(), [small]).shape == (1, 32, 32, 3)
    assert subjects.views(vit(), [large]).shape == (1, 160, 160, 3)
    assert subjects.views(vit(), [large, torch.zeros(3, 80, 90, dtype=torch.uint8)]).shape == (2, 64, 64, 3)


def test_the_picture_to_show_is_whole_where_the_model_is_given_crops():
    assert subjects.picture_of(vit(), "crops").shape == (3, 427, 640)
    assert subjects.picture_of(vit(), "world").shape == (3, 32, 32)
