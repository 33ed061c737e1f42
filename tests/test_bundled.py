"""The bundled weights are what their card says, and the experiment that makes them runs."""

import pytest
import torch

from vitlab import paths
from vitlab.data import datasets
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.studies.bundled import CONFIGS, lab_weights, model_card
from vitlab.training.loop import evaluate

PRESENT = [which for which in zoo.BUNDLED if (paths.bundled_dir() / zoo.BUNDLED[which]).exists()]


def test_every_bundled_model_is_there():
    assert list(zoo.BUNDLED) == PRESENT == list(CONFIGS["full"].trainings)


@pytest.mark.slow
@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_bundled_weights_do_what_their_card_says(which):
    """On today's images: weights and data have not drifted apart."""
    lab = zoo.load(which)
    last = lab.about["trainings"][-1]
    if last["objective"] == "masked":
        pytest.skip("its head is not kept")
    if last["data"] == "world":
        test = image_set(World(image_size=last["image_size"]), 500, HELD_OUT)
    elif last["data"] in datasets.NAMES and datasets.present(last["data"]):
        test = datasets.load(last["data"], "test", image_size=last["image_size"])
    else:
        pytest.skip(f"{last['data']} is not here")
    found = evaluate(lab.model, test)["accuracy"]
    assert found == pytest.approx(lab.about["held_out"]["accuracy"], abs=0.04)  # 500 of 2,000 images: ± 2.6 %
    assert lab.about["held_out"]["n"] >= 2_000


@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_card_is_the_one_made_from_the_weights(which):
    lab = zoo.load(which)
    path = paths.bundled_dir() / zoo.BUNDLED[which]
    assert path.stat().st_size < 12e6
    assert path.with_suffix(".md").read_text(encoding="utf-8") == model_card(which, lab.name, lab.about)


@pytest.mark.parametrize("preset", CONFIGS)
def test_the_hybrid_is_trained_as_the_vit(preset):
    vit, hybrid = (CONFIGS[preset].trainings[which] for which in ("lab", "lab-hybrid"))
    assert CONFIGS[preset].trainings["lab-masked"] == vit[:1]
    for ours, twins in zip(vit, hybrid, strict=True):
        assert f"R+{ours.model}" == twins.model
        assert vars(ours) | {"model": ""} == vars(twins) | {"model": ""}


def test_names_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match="which='laboratory': expected one of lab, lab-masked, lab-hybrid, lab-world"):
        lab_weights("smoke", which="laboratory")


@pytest.mark.slow
def test_smoke_goes_from_hidden_patches_to_labels(tmp_path):
    rows = lab_weights("smoke", seed=1, folder=tmp_path, which="lab")
    assert rows["step"].iloc[-1] == 4
    made = zoo.load(tmp_path / "lab.safetensors")
    masked, labels = made.about["trainings"]
    assert (masked["objective"], labels["objective"]) == ("masked", "labels")
    assert made.name == "Lab-Ti/8" and labels["recipe"]["seed"] == 1
    card = (tmp_path / "lab.md").read_text(encoding="utf-8")
    assert "by masked patch prediction (App. B.1.2; 50% hidden" in card and "64 views" in card
    again = lab_weights("smoke", seed=1, folder=tmp_path, which="lab")  # finished: nothing is trained again
    assert again["seconds"].tolist() == rows["seconds"].tolist()
    before = lab_weights("smoke", seed=1, folder=tmp_path, which="lab-masked")
    assert before["seconds"].tolist() != rows["seconds"].tolist()
    first, second = (zoo.load(tmp_path / f"{which}.safetensors").model for which in ("lab-masked", "lab"))
    moved = (first.blocks[0].attn.qkv.weight - second.blocks[0].attn.qkv.weight).abs().max()
    fresh = zoo.create("Lab-Ti/8", seed=1).blocks[0].attn.qkv.weight
    assert 0 < moved < (fresh - second.blocks[0].attn.qkv.weight).abs().max()


@pytest.mark.parametrize("which, model", [("lab-hybrid", "R+Lab-Ti/8"), ("lab-world", "Lab-Ti/8")])
def test_smoke_writes_weights_that_load_and_a_card(tmp_path, which, model):
    lab_weights("smoke", seed=1, folder=tmp_path, which=which)
    made = zoo.load(tmp_path / zoo.BUNDLED[which])
    assert made.name == model and all(torch.isfinite(p).all() for p in made.model.parameters())
    assert "Licence: Apache-2.0" in (tmp_path / f"{which}.md").read_text(encoding="utf-8")
