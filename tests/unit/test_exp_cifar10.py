"""CIFAR-10 within a budget: on made-up images in its place, for the real ones are not there in the tests."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vitlab.experiments import cifar10
from vitlab.experiments.trials import stored_trials


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    for split, count in (("train", 8), ("test", 5)):
        for name in ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"):
            folder = tmp_path / "cifar10" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))


@pytest.mark.slow
def test_both_families_train_within_the_preset(made_up, tmp_path):
    assert cifar10.finished("smoke", folder=tmp_path / "runs").empty
    table = cifar10.cifar10("smoke", jobs=1, folder=tmp_path / "runs")
    pd.testing.assert_frame_equal(cifar10.finished("smoke", folder=tmp_path / "runs"), table)
    config = cifar10.CONFIGS["smoke"]
    assert set(table["model"]) == {model for model, _ in config.steps}
    for _, run in table.groupby("model"):
        assert run["step"].tolist() == [0, 1, 2, 3, 4] and run["samples"].iloc[-1] == 4 * config.batch_size
        assert run["test_accuracy"].between(0, 1).all() and run["flops"].iloc[-1] > 0


def test_both_families_were_tuned_by_the_same_trials():
    trials = stored_trials("cifar10").set_index(["model", "learning_rate"])["held_out_accuracy"]
    families = {bit: {key for key in trials.index if key[0].startswith("BiT") == bit} for bit in (False, True)}
    assert families[False] == {(model.removeprefix("BiT-"), rate) for model, rate in families[True]}
    vit, bit = cifar10.best()
    assert trials[vit] == max(trials[key] for key in families[False])
    assert trials[bit] == max(trials[key] for key in families[True])
    assert list(cifar10.CONFIGS["quick"].steps) == [vit, bit]


def test_equal_budgets_are_equal_times():
    seconds = [
        steps * cifar10.BATCH / cifar10.SPEED[model] for (model, _), steps in cifar10.CONFIGS["quick"].steps.items()
    ]
    assert seconds == pytest.approx([590, 590], abs=0.5)


@pytest.mark.parametrize("steps", [4, 10, 11458])
def test_no_run_is_evaluated_twice_at_its_end(monkeypatch, made_up, steps):
    asked = []
    monkeypatch.setattr(cifar10, "train", lambda *args, **options: asked.append(args[2]) or [])
    cifar10.run_one(cifar10._planned_run(cifar10.CONFIGS["smoke"], ("Lab-Ti/8", 1e-3), steps, seed=0))
    at = [step for step in range(1, steps + 1) if step == steps or step % asked[0].eval_every == 0]
    assert len(at) <= 10 and (len(at) == 1 or at[-1] - at[-2] > 0.9 * asked[0].eval_every)


def test_without_the_images_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path / "empty"))
    with pytest.raises(RuntimeError, match=r"no cifar10 \(train\).*VITLAB_DATA"):
        cifar10.cifar10("smoke", jobs=1, folder=tmp_path / "runs")
