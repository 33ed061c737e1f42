"""Training: the schedules and the updates by hand, early stopping, divergence, Ctrl-C, resuming to the same bits."""

import dataclasses
import itertools
import json
import math
import random
import signal

import pytest
import torch
from torch import nn
from weights import apart

from vitlab.data.datasets import world_splits
from vitlab.data.loader import ImageSet, batches
from vitlab.data.world import World
from vitlab.models import zoo
from vitlab.training import checkpoint, distributed
from vitlab.training.loop import DivergedError, Stopped, evaluate, train
from vitlab.training.recipe import LINEAR_END, Recipe, learning_rate, optimizer_for

TINY = World(image_size=8)


class Line(nn.Module):
    """Logits (w · mean pixel, 0): one parameter, a matrix [1, 1], so that weight decay acts on it."""

    def __init__(self, w: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[w]]))

    def forward(self, images):
        z = images.mean(dim=(1, 2, 3), keepdim=False)[:, None] @ self.weight
        return torch.cat([z, torch.zeros_like(z)], 1)


def constant(value: float, n: int = 4):
    """The same batch of class 0 at every step."""
    return lambda step: (torch.full((n, 3, 2, 2), value), torch.zeros(n, dtype=torch.int64))


def tiny_vit(**settings):
    return zoo.create("Lab-Ti/2", image_size=8, seed=3, **settings)


def tiny_feed():
    return batches(world_splits(TINY, 64, 4, 4).train, 16, seed=5)


# ---- schedule ----


@pytest.mark.parametrize(
    "decay, step, rate",
    [
        ("constant", 0, 0.0),  # the warm-up begins at 0
        ("constant", 11, 0.1),
        ("linear", 2, 0.05),  # the decay has not begun: half of base
        ("linear", 4, 0.1),
        ("linear", 10, 0.1 / 4 + LINEAR_END * 3 / 4),
        ("cosine", 8, 0.05),  # cos(π / 2) = 0
        ("cosine", 6, 0.05 * (1 + math.sqrt(0.5))),  # cos(π / 4)
    ],
)
def test_schedules_by_hand(decay, step, rate):
    found = learning_rate(step, base=0.1, total=12, warmup=4, decay=decay)
    assert found == pytest.approx(rate, rel=1e-12, abs=1e-15)


# ---- the update ----


def test_adamw_by_hand_on_one_parameter():
    model, w = Line(0.5), 0.5
    recipe = Recipe(steps=3, learning_rate=0.1, decay="linear", weight_decay=0.2, betas=(0.8, 0.9), grad_clip=None)
    train(model, constant(2.0), recipe)
    m = v = 0.0
    for t in range(1, 4):
        rate = LINEAR_END + (0.1 - LINEAR_END) * (1 - (t - 1) / 3)
        gradient = -2.0 / (1 + math.exp(2.0 * w))  # of log(1 + e^{-2w})
        m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
        w = w * (1 - rate * 0.2)
        w -= rate * (m / (1 - 0.8**t)) / (math.sqrt(v / (1 - 0.9**t)) + 1e-8)
    assert model.weight.item() == pytest.approx(w, rel=1e-5)


def test_sgd_by_hand_on_one_parameter():
    model, w, velocity = Line(0.5), 0.5, 0.0
    recipe = Recipe(steps=3, optimizer="sgd", learning_rate=0.1, decay="constant", momentum=0.8, weight_decay=0.0)
    train(model, constant(2.0), dataclasses.replace(recipe, grad_clip=0.5))
    for _ in range(3):
        gradient = max(-2.0 / (1 + math.exp(2.0 * w)), -0.5)  # clipped: it begins at -0.54
        velocity = 0.8 * velocity + gradient
        w -= 0.1 * velocity
    assert model.weight.item() == pytest.approx(w, rel=1e-5)


def test_label_smoothing_by_hand():
    rows = train(Line(0.5), constant(2.0), Recipe(steps=1, label_smoothing=0.2, learning_rate=0.1))
    right, wrong = math.log1p(math.exp(-1.0)), math.log1p(math.exp(1.0))  # logits 1 and 0
    assert rows[0]["train_loss"] == pytest.approx(0.9 * right + 0.1 * wrong, rel=1e-6)


def test_a_batch_in_parts_is_the_whole_batch():
    feed = tiny_feed()

    def exact(*which):
        images, labels = feed(*which)
        return images.double(), labels

    recipe, models = Recipe(steps=4, batch_size=16, learning_rate=1e-3, warmup_steps=2), []
    for parts in (1, 2, 16):
        models.append(zoo.create("Lab-Mu/4", image_size=8, seed=3).double())
        train(models[-1], exact, dataclasses.replace(recipe, accumulate=parts))
        assert parts == 1 or 0 < apart(models[0].state_dict(), models[-1].state_dict()) < 1e-12


@pytest.mark.parametrize("name", ["Lab-Ti/2", "BiT-Lab-Ti/2"])
def test_only_matrices_and_kernels_decay(name):
    model = zoo.create(name, image_size=8)
    decayed, free = (g["params"] for g in optimizer_for(model, Recipe(steps=1, weight_decay=0.3)).param_groups)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert len(decayed) + len(free) == len(names)
    assert all(parameter.ndim >= 2 for parameter in decayed)
    assert {names[id(parameter)] for parameter in free if parameter.ndim >= 2} <= {"pos_embed", "cls_token"}


def test_in_bf16_weights_are_of_full_precision_and_attention_is_not_fused_meanwhile():
    seen, full, mixed = [], tiny_vit(), tiny_vit()
    mixed.blocks[1].attn.fused_attn = False  # as somebody may have set it, for hooks

    def fused():
        return [block.attn.fused_attn for block in mixed.blocks]

    def feed(step):
        seen.append(any(fused()))
        return tiny_feed()(step)

    recipe = Recipe(steps=2, batch_size=16, learning_rate=1e-3)
    exact = train(full, tiny_feed(), recipe)[0]["train_loss"]
    found = train(mixed, feed, dataclasses.replace(recipe, precision="bf16"))[0]["train_loss"]
    assert exact != found == pytest.approx(exact, rel=2e-2)
    assert {parameter.dtype for parameter in mixed.parameters()} == {torch.float32}
    assert not any(seen) and fused() == [True, False, True, True]


def test_weights_of_a_compiled_model_keep_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", nn.Sequential)  # like torch.compile, it would put a prefix to the names
    train(Line(0.5), constant(1.0), Recipe(steps=3, compile=True), folder=tmp_path)
    assert list(checkpoint.newest(tmp_path / "checkpoints").weights) == ["weight"]


# ---- rows, evaluation, early stopping ----


def test_rows_are_evaluations_with_the_rate_that_was_used():
    rows = train(Line(0.0), constant(1.0), Recipe(steps=5, batch_size=4, warmup_steps=2, eval_every=2))
    assert [(row["step"], row["samples"]) for row in rows] == [(2, 8), (4, 16), (5, 20)]
    rates = [learning_rate(s, base=1e-3, total=5, warmup=2, decay="cosine") for s in (1, 3, 4)]
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates)
    assert rows[0]["train_loss"] == pytest.approx(math.log(2), rel=1e-3)
    assert 0 < rows[0]["seconds"] < rows[-1]["seconds"]


def test_evaluation_counts_the_last_partial_batch_exactly():
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1])  # 7 images in batches of 3: 3, 3, 1
    images = ImageSet(torch.full((7, 3, 2, 2), 255, dtype=torch.uint8), labels, ("a", "b"))
    model = Line(1.0).train()
    found = evaluate(model, images, batch_size=3)
    assert found["accuracy"] == 5 / 7  # class 0 for every white image
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    assert found["loss"] == pytest.approx((5 * right + 2 * wrong) / 7, rel=1e-6)
    assert model.training  # as it was


class Scripted(nn.Module):
    """A model whose accuracy is written down beforehand: one entry for every evaluation."""

    def __init__(self, accuracies):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self.accuracies = iter(accuracies)

    def forward(self, images):
        if self.training:
            return self.weight * images.mean(dim=(1, 2, 3))[:, None] * torch.tensor([[1.0, -1.0]])
        if len(images) == 1:  # a look at what a forward pass costs
            return torch.zeros(1, 2)
        right = round(next(self.accuracies) * len(images))
        logits = torch.zeros(len(images), 2)
        logits[:, 1] = torch.arange(len(images)) >= right
        return logits


@pytest.mark.parametrize(
    "accuracies, patience, n_rows, best",
    [
        ([0.1, 0.5, 0.4, 0.5, 0.3, 0.9, 0.9], 3, 5, 1),  # three without anything above 0.5; of two equal ones the first
        ([0.1, 0.5, 0.4, 0.6, 0.3, 0.4], 3, 6, 3),  # a new best in time
        ([0.9, 0.1, 0.1], None, 3, 2),  # the last weights stay
    ],
)
def test_training_stops_when_patience_is_over_and_goes_back_to_the_best(accuracies, patience, n_rows, best):
    model, weights = Scripted(accuracies), []
    recipe = Recipe(steps=len(accuracies), eval_every=1, learning_rate=0.1, patience=patience)
    zeros = ImageSet(torch.zeros(10, 3, 2, 2, dtype=torch.uint8), torch.zeros(10, dtype=torch.int64), ("a", "b"))
    watch = {"validation": zeros, "report": lambda row: weights.append(model.weight.item())}
    rows = train(model, constant(1.0), recipe, **watch)
    assert [row["val_accuracy"] for row in rows] == pytest.approx(accuracies[:n_rows])
    assert weights.index(model.weight.item()) == best


# ---- refused, diverged ----


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"patience": 1}, "eval_every is 0"),
        ({"warmup_steps": 2}, "warmup is 2 of 2 steps"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Recipe(**{"steps": 2} | settings)


def test_a_training_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="no validation set"):
        train(Line(0.0), constant(1.0), Recipe(steps=2, eval_every=1, patience=1))
    with pytest.raises(ValueError, match="batch of 10 cannot be cut into equal parts .* with accumulate=3"):
        train(Line(0.0), constant(1.0), Recipe(steps=2, batch_size=10, accumulate=3))


def test_a_loss_that_is_no_number_stops_and_names_a_checkpoint_that_is_finite(tmp_path):
    def feed(step):
        return constant(math.nan if step == 5 else 1.0)(step)

    recipe = Recipe(steps=9, learning_rate=0.05, decay="constant")
    words = r"by step 6 at learning rate 0\.05; lower the learning rate.* The last checkpoint is .*step_00000004"
    with pytest.raises(DivergedError, match=words):
        train(Line(0.1), feed, recipe, folder=tmp_path, save_every=2)
    assert checkpoint.newest(tmp_path / "checkpoints").weights["weight"].isfinite().all()


def test_a_checkpoint_is_written_every_minute(tmp_path, monkeypatch):
    clock = itertools.count(step=25)  # seconds between two looks at it
    monkeypatch.setattr("vitlab.training.loop.time.monotonic", lambda: next(clock))
    seen = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, model, rest, name: seen.append(rest["step"]))
    train(Line(0.1), constant(1.0), Recipe(steps=7), folder=tmp_path)
    assert seen == [3, 6, 7]


def test_weights_that_are_no_numbers_are_never_saved(tmp_path):
    class Exploding(Line):
        def forward(self, images):
            return super().forward(images) + torch.sqrt(self.weight - self.weight).sum()  # loss finite, gradient NaN

    with pytest.raises(DivergedError, match="the norm of the weights became nan by step 1"):
        train(Exploding(0.1), constant(1.0), Recipe(steps=1, grad_clip=None), folder=tmp_path)
    assert checkpoint.newest(tmp_path / "checkpoints") is None


# ---- the cores of one CPU ----


@pytest.fixture
def two_cores():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.slow
def test_parts_side_by_side_are_parts_one_after_the_other(two_cores):
    recipe = Recipe(steps=5, batch_size=16, learning_rate=1e-3, warmup_steps=2)
    threaded, again, parts = (tiny_vit() for _ in range(3))
    rows = train(threaded, tiny_feed(), recipe)
    train(again, tiny_feed(), recipe)
    torch.set_num_threads(1)
    wanted = train(parts, tiny_feed(), dataclasses.replace(recipe, accumulate=2))
    assert rows[0]["train_loss"] == pytest.approx(wanted[0]["train_loss"], rel=1e-5)
    assert apart(threaded.state_dict(), parts.state_dict()) < 1e-5
    assert apart(threaded.state_dict(), again.state_dict()) == 0  # whichever thread was first


def test_only_models_of_matrix_products_without_chance_go_side_by_side(two_cores):
    def images():
        return torch.zeros(2, 3, 8, 8)

    assert distributed.core_pool(tiny_vit(), images)._max_workers == 2
    assert distributed.core_pool(tiny_vit(dropout=0.1), images) is None
    assert distributed.core_pool(zoo.create("BiT-Lab-Ti/2", image_size=8), images) is None
    torch.set_num_threads(1)
    assert distributed.core_pool(tiny_vit(), images) is None


# ---- resuming ----


class Killed(Exception):
    pass


def killing(feed, at):
    """Batches of which one is never made."""

    def made(step, *part):
        if step == at:
            raise Killed
        return feed(step, *part)

    return made


def interrupting(feed, at):
    """Batches during whose making, at this step, somebody presses Ctrl-C."""

    def made(step):
        if step == at:
            signal.raise_signal(signal.SIGINT)
        return feed(step)

    return made


def without_clock(rows):
    clock = ("seconds", "images_per_second", "peak_memory_gb")
    return [{key: value for key, value in row.items() if key not in clock} for row in rows]


def dropping(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 10))


@pytest.mark.parametrize(
    "end, patience", [("killed at 4", None), ("killed at 11", 3), ("stopped", None), ("stopped", 3)]
)
def test_a_run_that_was_killed_or_stopped_ends_with_the_same_bits(tmp_path, end, patience):
    splits = world_splits(TINY, 40, 20, 4)
    recipe = Recipe(steps=12, batch_size=16, warmup_steps=2, eval_every=3, patience=patience, learning_rate=1e-2)
    feed, whole, resumed = batches(splits.train, 16, seed=1), dropping(0), dropping(7)
    wanted = train(whole, feed, recipe, validation=splits.validation)
    how = {"validation": splits.validation, "folder": tmp_path, "save_every": 2}
    if end == "stopped":
        first, second = sorted(random.sample(range(len(wanted) * 3 - 1), 2))
        for seed, stop in ((0, first), (9, second)):  # other weights: all must come from the checkpoint
            words = rf"stopped after step {stop + 1}; its checkpoint is .*step_{stop + 1:08d}: run the same again"
            with pytest.raises(Stopped, match=words) as found:
                train(dropping(seed), interrupting(feed, stop), recipe, **how)
            assert found.value.step == stop + 1 == checkpoint.newest(tmp_path / "checkpoints").rest["step"]
            assert without_clock(found.value.rows) == without_clock(wanted[: (stop + 1) // 3])
            assert not (tmp_path / "model.safetensors").exists()
    else:
        with pytest.raises(Killed):
            train(dropping(0), killing(feed, int(end.split()[-1])), recipe, **how)
    torch.manual_seed(99)
    rows = train(resumed, feed, recipe, **how)
    assert apart(whole.state_dict(), resumed.state_dict()) == 0
    assert without_clock(rows) == without_clock(wanted)
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == rows


def test_a_run_with_all_its_steps_only_has_to_be_ended(tmp_path):
    recipe, model, again = Recipe(steps=3), Line(0.0), Line(5.0)
    with pytest.raises(Stopped, match="stopped after step 3"):
        train(model, interrupting(constant(1.0), 2), recipe, folder=tmp_path)
    rows = train(again, lambda *_: pytest.fail("a batch was asked for"), recipe, folder=tmp_path)
    assert len(rows) == 1 and again.weight.item() == model.weight.item() and not model.training
    assert (tmp_path / "model.safetensors").exists()


def test_interrupts_without_a_folder_and_a_second_one_that_does_not_wait():
    def feed(step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second interrupt waited")

    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as found:
        train(Line(0.0), feed, Recipe(steps=1))
    assert not isinstance(found.value, Stopped)
    with pytest.raises(Stopped, match="stopped after step 2; without a folder nothing is kept"):
        train(Line(0.0), interrupting(constant(1.0), 1), Recipe(steps=3))
    assert signal.getsignal(signal.SIGINT) is usual


def test_a_run_may_resume_in_other_parts_but_for_dropout(tmp_path):
    feed, recipe, parts = tiny_feed(), Recipe(steps=2, batch_size=16), Recipe(steps=2, batch_size=16, accumulate=2)
    with pytest.raises(Killed):
        train(tiny_vit(), killing(feed, 1), recipe, folder=tmp_path / "plain", save_every=1)
    assert train(tiny_vit(), feed, parts, folder=tmp_path / "plain")[-1]["step"] == 2
    whole, cut = tiny_vit(dropout=0.1), tiny_vit(dropout=0.1)
    train(whole, feed, recipe, folder=tmp_path / "dropout")
    train(cut, feed, parts)
    assert apart(whole.state_dict(), cut.state_dict()) > 1e-4  # each way to cut a batch draws other numbers
    with pytest.raises(ValueError, match="another training: accumulate was 1 and is 2"):
        train(tiny_vit(dropout=0.1), feed, parts, folder=tmp_path / "dropout")


def test_two_trainings_do_not_share_a_folder(tmp_path):
    def feed(step):
        with pytest.raises(RuntimeError, match=r"another process is training in .*give another folder"):
            train(Line(0.0), constant(1.0), Recipe(steps=1), folder=tmp_path)
        return constant(1.0)(step)

    train(Line(0.0), feed, Recipe(steps=1), folder=tmp_path)


def test_the_state_of_another_training_is_refused(tmp_path):
    def again(model, **more):
        train(model, constant(1.0), Recipe(steps=3), folder=tmp_path, **more)

    again(Line(0.0))
    with pytest.raises(ValueError, match=r"another training: images was None and is 'digits'"):
        again(Line(0.0), identity={"images": "digits"})
    dropping = Line(0.0)
    dropping.dropout = nn.Dropout(0.1)  # the same weights, another training
    with pytest.raises(ValueError, match=r"another training: structure of the model was '\w+' and is '\w+'"):
        again(dropping)


# ---- random draws ----


def test_dropout_is_drawn_from_the_recipe_s_seed_alone_and_the_global_state_is_left():
    def trained(global_seed, seed):
        model = dropping(0)
        torch.manual_seed(global_seed)
        train(model, tiny_feed(), Recipe(steps=2, batch_size=16, seed=seed))
        drawn = torch.rand(3)
        torch.manual_seed(global_seed)
        assert torch.equal(torch.rand(3), drawn)
        return model[1].weight.detach()

    assert torch.equal(trained(1, seed=5), trained(2, seed=5))
    assert not torch.equal(trained(1, seed=5), trained(1, seed=6))
