"""The bundled weights are what their card says, and the experiment that makes them runs."""

import pytest

from vitlab import files
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.experiments.lab_weights import CONFIGS, lab_weights, model_card
from vitlab.models import zoo
from vitlab.training.evaluate import evaluate


@pytest.mark.slow
@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_bundled_weights_do_what_their_card_says(which):
    """On images of today's world: weights and world have not drifted apart."""
    lab = zoo.load(which)
    world = World(**lab.about["world"])
    assert world == CONFIGS["full"].world and lab.name == CONFIGS["full"].models[which]
    found = evaluate(lab.model, image_set(world, 500, HELD_OUT))["accuracy"]
    assert found == pytest.approx(lab.about["held_out"]["accuracy"], abs=0.04)  # 500 of the 5000 images: ± 2.6 %
    assert found > 0.8


@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_card_is_the_one_made_from_the_weights(which):
    lab = zoo.load(which)
    name = zoo.BUNDLED[which]
    card = (files.bundled_dir() / name).with_suffix(".md").read_text(encoding="utf-8")
    assert card == model_card(name, lab.name, lab.about)


def test_the_twins_differ_in_their_patch_embedding_only():
    vit, hybrid = (zoo.load(which) for which in zoo.BUNDLED)
    recipe = vit.about["recipe"]  # the older one, which names fewer settings
    assert recipe == {name: hybrid.about["recipe"][name] for name in recipe}
    assert vit.about["world"] == hybrid.about["world"]
    shapes = [{key: value.shape for key, value in each.model.state_dict().items()} for each in (vit, hybrid)]
    transformer = [{key: shape for key, shape in each.items() if "patch_embed" not in key} for each in shapes]
    assert transformer[0] == transformer[1]
    with pytest.raises(ValueError, match="which='laboratory': expected one of lab, lab-hybrid"):
        lab_weights("smoke", which="laboratory")


@pytest.mark.parametrize("which, name", [("lab", "Lab-Ti/8"), ("lab-hybrid", "R+Lab-Ti/8")])
def test_smoke_writes_weights_that_load_and_a_card(tmp_path, which, name):
    rows = lab_weights("smoke", seed=1, folder=tmp_path, which=which)
    recipe = CONFIGS["smoke"].recipe
    assert rows["step"].iloc[-1] == recipe.steps
    made = zoo.load(tmp_path / zoo.BUNDLED[which])
    assert made.name == name and made.about["recipe"]["seed"] == 1
    card = (tmp_path / zoo.BUNDLED[which]).with_suffix(".md").read_text(encoding="utf-8")
    assert f"{recipe.samples:,} images" in card
    again = lab_weights("smoke", seed=1, folder=tmp_path, which=which)  # finished: nothing is trained again
    assert again["seconds"].tolist() == rows["seconds"].tolist()
