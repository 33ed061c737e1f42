"""Notebooks 06–09 with a ViT of ImageNet, taken over as a reference: what is kept, and that no place is shown."""

import hashlib
import json
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from vitlab import paths
from vitlab.models import zoo
from vitlab.publish import __main__ as publish
from vitlab.publish import imagenet

TOLD = {"name": "vit_tiny", "about": "timm's", "parameters": 5, "sha256": "0" * 16}


def executed(folder, weights="vit_tiny@/elsewhere/model.safetensors", note=""):
    """What an execution leaves: a small figure, a photograph of many colours, both as SVG too, and a result."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "large.png")
    Image.new("RGB", (8, 8), "red").save(folder / "small.png")
    figures = {
        name: {"png": f"{name}.png", "svg": f"{name}.svg", "alt": "A.", "sha256": "x"} for name in ("large", "small")
    }
    for name in figures:
        (folder / f"{name}.svg").write_text("<svg/>")
    results = [{"claim": "C12", "note": note}]
    result = {"parameters": {"weights": weights, "seed": 0}, "figures": figures, "results": results}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "notebook.ipynb").write_text("{}")
    return folder


def test_pictures_and_numbers_are_kept_and_nothing_else(tmp_path):
    old = tmp_path / "reference" / "old.png"
    old.parent.mkdir()
    old.write_text("of an earlier run")
    target = imagenet.take_over(executed(tmp_path / "run"), tmp_path / "reference", TOLD)
    assert sorted(path.name for path in target.iterdir()) == ["large.png", "result.json", "small.png"]
    result = paths.read_json(target / "result.json")
    assert result["weights"] == TOLD and result["parameters"] == {"weights": "vit_tiny", "seed": 0}
    assert all("svg" not in figure for figure in result["figures"].values())
    assert result["figures"]["small"]["sha256"] == hashlib.sha256((target / "small.png").read_bytes()).hexdigest()


def test_figures_and_numbers_of_other_trainings_stay_behind(tmp_path):
    run = executed(tmp_path / "run")
    result = paths.read_json(run / "result.json")
    result["figures"]["local_shares"] = result["figures"]["small"]
    result["results"] += [{"claim": "L01"}, {"claim": "C10"}]
    paths.write_json(run / "result.json", result)
    kept = paths.read_json(imagenet.take_over(run, tmp_path / "reference", TOLD) / "result.json")
    assert sorted(kept["figures"]) == ["large", "small"]
    assert [entry["claim"] for entry in kept["results"]] == ["C12", "C10"]


def test_the_reference_has_nothing_of_trainings_of_ours():
    ours = {"L01", "L02"}
    for path in sorted(paths.reference_dir("imagenet").glob("*/result.json")):
        result = paths.read_json(path)
        assert not ours & {entry["claim"] for entry in result["results"]}, path
        assert all("training" not in figure["alt"] for figure in result["figures"].values()), path


def test_large_pictures_get_a_palette_and_small_ones_stay(tmp_path):
    run = executed(tmp_path / "run")
    target = imagenet.take_over(run, tmp_path / "reference", TOLD)
    assert (target / "small.png").read_bytes() == (run / "small.png").read_bytes()
    assert (target / "large.png").stat().st_size < 0.5 * (run / "large.png").stat().st_size
    with Image.open(target / "large.png") as image:
        assert image.mode == "P" and image.size == (400, 400)


@pytest.mark.parametrize("note", [f"in {paths.ROOT}", "read from /elsewhere/model.safetensors"])
def test_a_place_of_this_machine_is_refused(tmp_path, note):
    run = executed(tmp_path / "run", note=note)
    with pytest.raises(ValueError, match="print names, not places"):
        imagenet.take_over(run, tmp_path / "reference", TOLD, "/elsewhere/model.safetensors")
    assert not (tmp_path / "reference").exists()


def test_weights_are_told_by_name_and_by_their_values(tmp_path):
    hashes = []
    for seed, folder in ((0, "a"), (0, "b"), (1, "c")):
        path = tmp_path / folder / "model.safetensors"
        zoo.save(path, zoo.create("Lab-Mu/8", seed=seed), "Lab-Mu/8", {"folder": folder})
        told = imagenet.what(str(path), "ours")
        assert (told["name"], told["about"]) == ("model", "ours") and str(tmp_path) not in str(told)
        assert told["parameters"] == sum(p.numel() for p in zoo.create("Lab-Mu/8").state_dict().values())
        hashes.append(told["sha256"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_one_command_runs_the_notebooks_and_takes_them_over(tmp_path, figures, monkeypatch, capsys):
    calls = []

    def run(command, env):
        calls.append((command[3:], env["VITLAB_FIGURES"]))
        executed(figures / "imagenet" / "smoke" / "09_attention_rollout", weights="lab-world")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    assert publish.main(["imagenet", "09", "--weights", "lab-world", "--preset", "smoke", "--about", "ours"]) == 0
    settings = ["--set", "WEIGHTS=lab-world", "--set", "WORLD_WEIGHTS=lab-world"]
    assert calls == [(["run", "09", "--preset", "smoke", *settings], str(figures / "imagenet"))]
    result = paths.read_json(tmp_path / "reference" / "imagenet" / "09_attention_rollout" / "result.json")
    assert result["weights"]["name"] == "lab-world" and result["weights"]["about"] == "ours"
    monkeypatch.setattr(subprocess, "run", lambda command, env: SimpleNamespace(returncode=1))
    assert publish.main(["imagenet", "09", "--weights", "lab-world", "--preset", "smoke"]) == 2
    assert "nothing was taken over" in capsys.readouterr().err


def test_only_a_notebook_with_two_models_is_given_both(figures, monkeypatch):
    commands = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, env: commands.append(command) or SimpleNamespace(returncode=1)
    )
    for which in (["06"], ["06", "09"]):
        with pytest.raises(ValueError, match="failed"):
            imagenet.imagenet("lab-world", which=which)
    assert [any("WORLD_WEIGHTS" in part for part in command) for command in commands] == [False, True]
