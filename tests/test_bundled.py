"""The bundled weights are what their card says, and the experiment that makes them runs."""

import pytest

from tools.weights import TRAININGS, lab_weights
from vitlab import paths
from vitlab.data import datasets
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.training.loop import evaluate

PRESENT = [which for which in zoo.BUNDLED if (paths.bundled_dir() / zoo.BUNDLED[which]).exists()]


def test_every_bundled_model_is_there():
    assert list(zoo.BUNDLED) == PRESENT == list(TRAININGS["full"])


@pytest.mark.slow
@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_bundled_weights_do_what_their_card_says(which):
    """On today's images: weights and data have not drifted apart."""
    lab = zoo.load(which)
    last = lab.about["trainings"][-1]
    if last["objective"] == "masked":
        pytest.skip("its head is not kept")
    if last["data"] == "world":
        test = image_set(World(image_size=last["image_size"]), 160, HELD_OUT)
    elif last["data"] in datasets.NAMES and datasets.present(last["data"]):
        test = datasets.load(last["data"], "test", image_size=last["image_size"])
    else:
        pytest.skip(f"{last['data']} is not here")
    found = evaluate(lab.model, test)["accuracy"]
    assert found == pytest.approx(lab.about["held_out"]["accuracy"], abs=0.08)  # 160 of 2,000 images: ± 5 %
    assert lab.about["held_out"]["n"] >= 2_000


@pytest.mark.parametrize("which", zoo.BUNDLED)
def test_the_card_says_what_the_weights_say_of_themselves(which):
    path, about = paths.bundled_dir() / zoo.BUNDLED[which], zoo.load(which).about
    assert path.stat().st_size < 12e6
    card, made = path.with_suffix(".md").read_text(encoding="utf-8"), about["provenance"]
    last = about.get("held_out", {"accuracy": about["trainings"][-1]["result"]["val_accuracy"]})
    said = [f"{last['accuracy']:.1%}", f"python -m tools.weights {which}`", made["git"]["revision"][:12]]
    said += [f"{made['wall_s'] / 60:.0f} min", *([f"{last['n']:,} test images"] if "n" in last else [])]
    for training in about["trainings"]:
        recipe = training["recipe"]
        said.append(f"{recipe['steps']:,} steps of {recipe['batch_size']}, learning rate {recipe['learning_rate']}")
        said.append(f"{recipe['precision']}, seed {recipe['seed']}; {training['result']['seconds'] / 60:.0f} minutes")
    assert not [each for each in said if each not in card]


def test_a_smoke_training_makes_weights_that_load(tmp_path):
    rows = lab_weights("lab-world", "smoke", seed=1, folder=tmp_path)
    made = zoo.load(tmp_path / "lab-world.safetensors")
    assert rows["step"].iloc[-1] == 8 and made.name == "Lab-Ti/8" and made.about["which"] == "lab-world"
    assert made.about["trainings"][0]["recipe"]["seed"] == 1 and made.about["held_out"]["n"] == 2_000
    again = lab_weights("lab-world", "smoke", seed=1, folder=tmp_path)  # finished: nothing is trained again
    assert again["seconds"].tolist() == rows["seconds"].tolist()
