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


@pytest.mark.slow
def test_smoke_goes_from_hidden_patches_to_labels(tmp_path):
    rows = lab_weights("smoke", seed=1, folder=tmp_path, which="lab")
    assert rows["step"].iloc[-1] == 4
    made = zoo.load(tmp_path / "lab.safetensors")
    masked, labels = made.about["trainings"]
    assert (masked["objective"], labels["objective"]) == ("masked", "labels")
    assert made.name == "Lab-Ti/8" and labels["recipe"]["seed"] == 1
    again = lab_weights("smoke", seed=1, folder=tmp_path, which="lab")  # finished: nothing is trained again
    assert again["seconds"].tolist() == rows["seconds"].tolist()
    before = lab_weights("smoke", seed=1, folder=tmp_path, which="lab-masked")
    assert before["seconds"].tolist() != rows["seconds"].tolist()
    first, second = (zoo.load(tmp_path / f"{which}.safetensors").model for which in ("lab-masked", "lab"))
    moved = (first.blocks[0].attn.qkv.weight - second.blocks[0].attn.qkv.weight).abs().max()
    fresh = zoo.create("Lab-Ti/8", seed=1).blocks[0].attn.qkv.weight
    assert 0 < moved < (fresh - second.blocks[0].attn.qkv.weight).abs().max()
