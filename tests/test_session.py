"""`vitlab train`: recipes of the paper and the lab, what is refused before it begins, the command from end to end."""

import dataclasses
import itertools
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.cli import main
from vitlab.models import zoo
from vitlab.paths import ROOT
from vitlab.training import paper, session

CPU = torch.device("cpu")


def test_the_paper_s_recipe_comes_from_table_3():
    chosen = session.session("ViT-B/16", "my-photographs", like="imagenet")
    assert dataclasses.replace(chosen.recipe, eval_every=0) == paper.TABLE_3[-1].recipe()
    assert chosen.dropout == 0.1 and chosen.head == "tanh"
    assert chosen.image_size == 224 and chosen.augmentation.crop == "inception" and chosen.augmentation.flip


def test_the_lab_s_recipe_is_derived_for_its_batch_and_steps():
    chosen = session.session("Lab-Ti/8", "digits", settings={"batch_size": 256, "steps": 500, "mixup": 0.2})
    assert dataclasses.replace(chosen.recipe, eval_every=0) == paper.lab(paper.TABLE_3[-1].recipe(), 256, 128_000)
    assert chosen.recipe.warmup_steps == 50 and chosen.augmentation.mixup == 0.2


@pytest.mark.parametrize(
    "settings, eval_every", [({}, 100), ({"steps": 61}, 7), ({"steps": 4}, 1), ({"eval_every": 0}, 0)]
)
def test_a_training_is_evaluated_ten_times_unless_told_otherwise(settings, eval_every):
    assert session.session("Lab-Ti/8", "digits", settings=settings).recipe.eval_every == eval_every


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("ViT-B/16", "x", "CIFAR-10"), r"Table 3 has no ViT-B/16 on CIFAR-10; it has ViT-B/16, ViT-B/32 on JFT;"),
        (("Lab-Ti/8", "world", None, {"zzz": 1}), r"no setting zzz; there are: epochs, steps, batch_size"),
        (("Lab-Ti/8", "world", None, {"learn_rate": 1}), r"no setting learn_rate; did you mean learning_rate\?"),
        (("Lab-Ti/8", "world", None, {"epochs": 1}), r"world has no epochs, for no image comes twice; give steps"),
        (("Lab-Ti/8", "digits", None, {"epochs": 1, "steps": 2}), r"epochs is 1; expected .* no steps next to it"),
        (("Lab-Ti/8", "world-30", None, {"flip": True}), r"world-30 is not augmented"),
        (("Lab-Ti/8", "world", None, {"steps": 0}), r"steps is 0; expected a whole number"),
        (("Lab-Ti/8", "digits", None, {"epochs": 1, "batch_size": 0}), r"batch_size is 0; expected a whole number"),
        (("Lab-Ti/8", "digits", None, {"objective": "masked", "mixup": 0.1}), r"masked prediction mixes no images"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        session.session(*arguments)


# ---- the command ----


def command(tmp_path, data="digits", *more, **settings):
    settings = {"steps": 4, "batch_size": 8, "eval_every": 4} | settings
    named = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return ["train", "Lab-Mu/8", str(data), "--out", str(tmp_path / "out"), *named, *more]


@pytest.mark.slow
def test_the_command_trains_tells_how_it_goes_and_leaves_weights(tmp_path, capsys):
    assert main(command(tmp_path, steps=8, eval_every=2)) == 0
    plan, *lines = capsys.readouterr().out.split("\nstep ")
    assert re.match(r"Lab-Mu/8 \([\d,]+ parameters\) on digits, 32 px, 10 classes\n8 steps of 8 = 64 images, ", plan)
    assert len(lines) == 4
    for number, line in enumerate(lines[:-1]):
        wanted = rf"{2 + 2 * number} of 8: loss \d\.\d{{3}}, accuracy \d+\.\d %, [\d,]+ images/s, about \d\d:\d\d left"
        assert re.fullmatch(wanted, line)
    weights = tmp_path / "out" / "model.safetensors"
    assert re.search(rf"\ntrained for \d\d:\d\d; weights in {weights}\n$", lines[-1])
    assert zoo.load(weights).name == "Lab-Mu/8"


@pytest.mark.slow
def test_a_finished_training_says_that_it_is(tmp_path, capsys):
    # learning rate 0 learns nothing: the second evaluation is no better than the first, whose weights are kept
    arguments = command(tmp_path, steps=6, eval_every=2, patience=1, learning_rate=0)
    assert main(arguments) == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    weights = tmp_path / "out" / "model.safetensors"
    before = weights.read_bytes()
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"finished before, nothing to do; weights in {weights}"
    assert weights.read_bytes() == before


@pytest.mark.slow
def test_no_training_is_taken_for_another(tmp_path, capsys):
    changed = {"dropout": 0.3, "head": "tanh", "image_size": 16, "crop": "inception", "area": "0.5,1", "flip": "true"}
    changed |= {"mixup": 0.8, "learning_rate": 0.002, "steps": 8}
    assert main(command(tmp_path)) == 0
    weights = tmp_path / "out/model.safetensors"
    before = weights.read_bytes()
    assert main(command(tmp_path, **changed)) == 2
    message = capsys.readouterr().err
    assert all(re.search(rf"of another training: .*\b{name} was .* and is ", message) for name in changed)
    assert "--out" in message and weights.read_bytes() == before


def photographs(root):
    """A folder of eight pictures of two classes."""
    generator = np.random.default_rng(0)
    for split, kind, number in itertools.product(("train", "test"), "ab", range(2)):
        path = root / split / kind / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    return root


@pytest.mark.slow
def test_a_test_image_that_cannot_be_read_is_named_and_mended(tmp_path, capsys):
    root = photographs(tmp_path / "pics")
    bad = root / "test/b/1.bmp"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:500])  # the header is good: it is found when the model is evaluated
    assert main(command(tmp_path, root, "--save-every", "3", workers=0)) == 2
    assert f"{bad} cannot be read" in capsys.readouterr().err
    bad.write_bytes(whole)
    assert main(command(tmp_path, root, workers=0)) == 0
    assert "\nresumed after step 3 of 4\nstep 4 of 4: loss " in capsys.readouterr().out


@pytest.mark.slow
def test_an_interrupt_says_how_to_resume(tmp_path, capsys, monkeypatch):
    whole = session.prepare

    def interrupted(*given):
        model, feed, others = whole(*given)

        def stopped(step, *part):
            if step == 2:
                signal.raise_signal(signal.SIGINT)
            return feed(step, *part)

        return model, stopped, others

    with monkeypatch.context() as patch:
        patch.setattr(session, "prepare", interrupted)
        assert main(command(tmp_path)) == 130
    saved = tmp_path / "out" / "checkpoints" / "step_00000003"
    message = f"vitlab: stopped after step 3; its checkpoint is {saved}: run the same again to resume\n"
    assert capsys.readouterr().err == message
    assert main(command(tmp_path)) == 0
    assert "\nresumed after step 3 of 4\nstep 4 of 4: " in capsys.readouterr().out


def test_the_command_plans_and_refuses(tmp_path, capsys):
    assert main(["train", "Lab-Ti/8", "digits", "--epochs", "3", "--batch", "100", "--lr", "0.01", "--plan"]) == 0
    said = capsys.readouterr().out  # of 1,437 digits
    assert "44 steps of 100 = 4,400 images" in said and "learning_rate=0.01" in said
    assert main(["train", "Lab-Ti/8", "digits", "--plan"]) == 0
    assert "1,000 steps of 128 = 128,000 images" in capsys.readouterr().out
    assert main(["train", "Lab-Ti/8", "digits", "--set", "steps=many"]) == 2
    assert "steps=many: expected a whole number" in capsys.readouterr().err
    assert main(["train", "ViT-B/16", "nowhere", "--like", "ImageNet"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(command(tmp_path, "digits", "--save-every", "0")) == 2
    assert capsys.readouterr().err == "vitlab: --save-every 0: expected a number of steps, 1 or more\n"
    assert not (tmp_path / "out").exists()


REFUSED = {
    "learning_rate=-0.1": "learning_rate is -0.1; expected a finite number",
    "label_smoothing=nan": "label_smoothing is nan; expected a number",
    "eval_every=-1": "eval_every is -1; expected a whole number",
    "mixup=inf": "mixup is inf; expected a finite number",
    "workers=-1": "workers is -1; expected a whole number",
    "objective=none": "objective is 'none'; expected one of 'labels', 'masked'",
    "betas=0.9,1": "betas is (0.9, 1); expected a tuple of two numbers, each a number of at least 0, less than 1",
    "momentum=1": "momentum is 1.0; expected a number of at least 0, less than 1",
    "decay=exponential": "decay is 'exponential'; expected one of 'linear', 'cosine', 'constant'",
    "grad_clip=-1": "grad_clip is -1.0; expected a finite number above 0, or None",
    "warmup_steps=1000": "warmup is 1000 of 1000 steps",
    "accumulate=0": "accumulate is 0; expected a whole number from 1",
    "batch_size=-5": "batch_size is -5; expected a whole number",
    "seed=99999999999999999999": "seed is 99999999999999999999; expected a whole number",
    "dropout=2": "dropout is 2.0; expected a number of at least 0, less than 1",
    "head=round": "head 'round' is unknown; use 'linear' or 'tanh'",
    "target=colours": "target is 'colours'; expected one of 'mean-colour', 'downsized', 'pixels'",
    "masked=0": "masked is 0.0; expected a share above 0 and up to 1",
    "patience=0": "patience is 0; expected a whole number, 1 or more, or None",
    "area=(nan, 1)": "area is '(nan, 1)'; expected two fractions",
    "area=(0.1, 0.5, 1)": "area is (0.1, 0.5, 1); expected two fractions",
    "aspect=(1, 1e999)": "aspect is (1, inf); expected two ratios",
}
EACH = """
import sys
from vitlab.cli import main
for setting in sys.argv[1:]:
    main(["train", "Lab-Ti/8", "digits", "--set", setting])
"""


@pytest.mark.slow
def test_a_setting_that_means_nothing_is_refused_before_anything_is_written(figures):
    # in a process of its own: here, annotations are checked
    done = subprocess.run([sys.executable, "-c", EACH, *REFUSED], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
    for words, line in zip(REFUSED.values(), done.stderr.splitlines(), strict=True):
        assert line.startswith(f"vitlab: {words}")
    assert not figures.exists()


# ---- fine-tuning by `weights=`: from there, under a new head, and nothing that does not fit ----


def prepare(tmp_path, model="Lab-Ti/8", data="digits", seed=3, **given):
    """Prepare a training that begins with weights of a Lab-Ti/8 of four classes."""
    zoo.save(tmp_path / "start.safetensors", zoo.create("Lab-Ti/8", n_classes=4, seed=seed), "Lab-Ti/8", {})
    given = {"weights": str(tmp_path / "start.safetensors"), "steps": 1, "batch_size": 4} | given
    return session.prepare(session.session(model, data, settings=given), CPU)


def test_the_model_begins_with_them_at_another_size_under_a_head_of_zeros(tmp_path):
    model, *_ = prepare(tmp_path, image_size=48)
    start = zoo.load(tmp_path / "start.safetensors").model
    assert torch.equal(model.blocks[0].attn.qkv.weight, start.blocks[0].attn.qkv.weight)
    assert model.pos_embed.shape == (1, 37, 64) and model.head.out_features == 10
    assert not model.head.weight.any()
    model, *_ = prepare(tmp_path, data="photographs", objective="masked")
    assert torch.equal(model.vit.pos_embed, start.pos_embed)


@pytest.mark.parametrize(
    "model, given, words",
    [
        ("Lab-Mu/8", {}, r"are of Lab-Ti/8, but the model to train is Lab-Mu/8: name Lab-Ti/8, or give weights of"),
        ("Lab-Ti/8", {"head": "tanh", "dropout": 0.1}, r"bring their architecture; leave out head, dropout"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, model, given, words):
    with pytest.raises(ValueError, match=words):
        prepare(tmp_path, model, **given)
