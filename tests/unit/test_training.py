"""Training: the schedules and AdamW by hand, early stopping, divergence, and resuming as if nothing had happened."""

import dataclasses
import json
import math
import random
import signal
import traceback

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from weights import apart

from vitlab.data import datasets as training
from vitlab.data.datasets import digits_splits, subset, world_splits
from vitlab.data.loader import ImageSet, batches
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.models.zoo import multiply_adds
from vitlab.training import checkpoint, cores, interrupts, processes
from vitlab.training.divergence import DivergedError
from vitlab.training.evaluate import evaluate, untrained_row
from vitlab.training.loop import train
from vitlab.training.optim import optimizer_for
from vitlab.training.recipe import Recipe
from vitlab.training.schedule import LINEAR_END, learning_rate

TINY = World(image_size=8)


# ---- schedule ----


@pytest.mark.parametrize(
    "decay, step, rate",
    [
        ("constant", 0, 0.0),  # the warm-up begins at 0
        ("constant", 1, 0.025),
        ("constant", 4, 0.1),
        ("constant", 11, 0.1),
        ("linear", 2, 0.05),  # the decay has not begun: half of base
        ("linear", 4, 0.1),
        ("linear", 8, (0.1 + LINEAR_END) / 2),  # half way from 4 to 12
        ("linear", 10, 0.1 / 4 + LINEAR_END * 3 / 4),
        ("cosine", 4, 0.1),
        ("cosine", 8, 0.05),  # cos(π / 2) = 0
        ("cosine", 6, 0.05 * (1 + math.sqrt(0.5))),  # cos(π / 4)
    ],
)
def test_schedules_by_hand(decay, step, rate):
    found = learning_rate(step, base=0.1, total=12, warmup=4, decay=decay)
    assert found == pytest.approx(rate, rel=1e-12, abs=1e-15)


def test_without_a_warmup_the_first_rate_is_the_base():
    assert learning_rate(0, base=0.3, total=5, warmup=0, decay="linear") == 0.3


@pytest.mark.parametrize("warmup", [-1, 10, 11])
def test_a_warmup_that_fills_the_run_is_refused(warmup):
    with pytest.raises(ValueError, match=f"warmup is {warmup} of 10 steps"):
        learning_rate(0, base=0.1, total=10, warmup=warmup, decay="cosine")


def test_an_unknown_decay_is_refused():
    with pytest.raises(ValueError, match="'exponential'.*'linear', 'cosine', 'constant'"):
        learning_rate(0, base=0.1, total=10, warmup=0, decay="exponential")


# ---- the update ----


class Line(nn.Module):
    """Logits (w · mean pixel, 0): one parameter, a matrix [1, 1], so that weight decay acts on it."""

    def __init__(self, w: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[w]]))

    def forward(self, images):
        z = images.mean(dim=(1, 2, 3), keepdim=False)[:, None] @ self.weight
        return torch.cat([z, torch.zeros_like(z)], 1)


def constant(value: float, n: int = 4, label: int = 0):
    """The same batch at every step."""
    return lambda step: (torch.full((n, 3, 2, 2), value), torch.full((n,), label))


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


def test_the_whole_gradient_is_clipped_to_its_norm():
    big = [Line(0.5), Line(0.5)]
    for model, clip in zip(big, (None, 1e-12), strict=True):
        # At 1e-12 Adam's epsilon (1e-8) is the larger: the step all but vanishes.
        train(model, constant(2.0), Recipe(steps=1, learning_rate=0.1, weight_decay=0.0, grad_clip=clip))
    assert big[0].weight.item() == pytest.approx(0.6, abs=1e-6)  # Adam's first step is the learning rate
    assert big[1].weight.item() == pytest.approx(0.5, abs=1e-4)


def test_sgd_by_hand_on_one_parameter():
    model, w, velocity = Line(0.5), 0.5, 0.0
    train(model, constant(2.0), Recipe(steps=3, optimizer="sgd", learning_rate=0.1, decay="constant", momentum=0.8,
                                       weight_decay=0.0, grad_clip=0.5))  # fmt: skip
    for _ in range(3):
        gradient = max(-2.0 / (1 + math.exp(2.0 * w)), -0.5)  # clipped: it begins at -0.54
        velocity = 0.8 * velocity + gradient
        w -= 0.1 * velocity
    assert model.weight.item() == pytest.approx(w, rel=1e-5)


def test_label_smoothing_by_hand():
    model = Line(0.5)
    rows = train(model, constant(2.0), Recipe(steps=1, label_smoothing=0.2, learning_rate=0.1))
    right, wrong = math.log1p(math.exp(-1.0)), math.log1p(math.exp(1.0))  # logits 1 and 0
    assert rows[0]["train_loss"] == pytest.approx(0.9 * right + 0.1 * wrong, rel=1e-6)


def test_the_moving_average_of_the_weights_is_what_is_evaluated_and_kept():
    weights, seen = [], []

    def feed(step):
        weights.append(model.weight.item())
        return constant(2.0)(step)

    model = Line(0.5)
    recipe = Recipe(steps=4, learning_rate=0.1, decay="constant", ema_decay=0.75, eval_every=2)
    validation = ImageSet(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8), torch.tensor([0]), ("a", "b"))
    rows = train(model, feed, recipe, validation=validation, report=lambda row: seen.append(model.weight.item()))
    weights.append(seen[-1])  # after the last update, before the average is put in its place
    average = weights[1]  # it begins as the weights after the first update
    for w in weights[1:]:
        average = 0.75 * average + 0.25 * w
    assert model.weight.item() == pytest.approx(average, rel=1e-6) != pytest.approx(seen[-1], rel=1e-3)
    assert rows[-1]["val_loss"] == pytest.approx(math.log1p(math.exp(-average)), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("accumulate", [2, 16])
def test_a_batch_in_parts_is_the_whole_batch(accumulate, dtype, bound):
    feed = batches(world_splits(TINY, 64, 4, 4).train, 16, seed=5)

    def exact(*which):
        images, labels = feed(*which)
        return images.to(dtype), labels

    models = [zoo.create("Lab-Ti/2", image_size=8, seed=3).to(dtype) for _ in range(2)]
    recipe = Recipe(steps=20, batch_size=16, learning_rate=1e-3, warmup_steps=2)
    whole, parts = (
        train(model, exact, dataclasses.replace(recipe, accumulate=n))
        for model, n in zip(models, (1, accumulate), strict=True)
    )
    assert parts[0]["train_loss"] == pytest.approx(whole[0]["train_loss"], rel=1e-5)
    assert 0 < apart(models[0].state_dict(), models[1].state_dict()) < bound


@pytest.mark.slow
def test_bf16_trains_with_weights_of_full_precision():
    feed = batches(world_splits(TINY, 64, 4, 4).train, 16, seed=5)
    full, mixed = (zoo.create("Lab-Ti/2", image_size=8, seed=3) for _ in range(2))
    recipe = Recipe(steps=3, batch_size=16, learning_rate=1e-3)
    losses = [train(m, feed, dataclasses.replace(recipe, precision=p))[0]["train_loss"]
              for m, p in ((full, "fp32"), (mixed, "bf16"))]  # fmt: skip
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=2e-2)
    assert {p.dtype for p in mixed.parameters()} == {torch.float32}


def test_only_matrices_and_kernels_decay():
    for name in ("Lab-Ti/2", "BiT-Lab-Ti/2"):
        model = zoo.create(name, image_size=8)
        groups = optimizer_for(model, Recipe(steps=1, weight_decay=0.3)).param_groups
        decayed, free = (group["params"] for group in groups)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        assert len(decayed) + len(free) == len(names)
        assert all(parameter.ndim >= 2 for parameter in decayed)
        spared = {names[id(parameter)] for parameter in free if parameter.ndim >= 2}
        assert spared <= {"pos_embed", "cls_token"}


@pytest.mark.slow
def test_training_is_the_same_steps_written_out():
    splits = world_splits(TINY, 50, 4, 4)
    recipe = Recipe(steps=4, batch_size=20, learning_rate=2e-3, warmup_steps=2, weight_decay=0.5, grad_clip=0.1)
    ours, plain = (zoo.create("Lab-Ti/2", image_size=8, seed=3) for _ in range(2))
    feed = batches(splits.train, 20, seed=5)
    train(ours, feed, recipe)
    matrices = [p for n, p in plain.named_parameters() if p.ndim >= 2 and n not in ("pos_embed", "cls_token")]
    others = [p for n, p in plain.named_parameters() if p.ndim < 2 or n in ("pos_embed", "cls_token")]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": others, "weight_decay": 0}])
    for step, rate in enumerate((0.0, 1e-3, 2e-3, 1e-3)):
        for group in optimizer.param_groups:
            group["lr"] = rate
        images, labels = feed(step)
        optimizer.zero_grad()
        F.cross_entropy(plain(images), labels).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        optimizer.step()
    for (name, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


# ---- rows, early stopping, divergence ----


def test_rows_are_evaluations_with_the_rate_that_was_used():
    rows = train(Line(0.0), constant(1.0), Recipe(steps=5, batch_size=4, warmup_steps=2, eval_every=2))
    assert [row["step"] for row in rows] == [2, 4, 5]
    assert [row["samples"] for row in rows] == [8, 16, 20]
    rates = [learning_rate(s, base=1e-3, total=5, warmup=2, decay="cosine") for s in (1, 3, 4)]
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates)
    assert rows[0]["train_loss"] == pytest.approx(math.log(2), rel=1e-3)
    assert rows[0]["seconds"] <= rows[-1]["seconds"]


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


def zeros(n: int) -> ImageSet:
    return ImageSet(torch.zeros(n, 3, 2, 2, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64), ("a", "b"))


def stop_after(accuracies, patience):
    model, weights = Scripted(accuracies), []
    recipe = Recipe(steps=len(accuracies), eval_every=1, learning_rate=0.1, patience=patience)
    rows = train(
        model, constant(1.0), recipe, validation=zeros(10), report=lambda row: weights.append(model.weight.item())
    )
    return [row["val_accuracy"] for row in rows], weights.index(model.weight.item())


def test_training_stops_when_patience_is_over_and_goes_back_to_the_best():
    seen, best = stop_after([0.1, 0.5, 0.4, 0.5, 0.3, 0.9, 0.9], patience=3)
    assert seen == pytest.approx([0.1, 0.5, 0.4, 0.5, 0.3])  # three without anything above 0.5
    assert best == 1  # the first of the two that are equally good


def test_a_new_best_in_time_keeps_training():
    seen, best = stop_after([0.1, 0.5, 0.4, 0.6, 0.3, 0.4], patience=3)
    assert len(seen) == 6 and best == 3


def test_without_patience_the_last_weights_stay():
    seen, kept = stop_after([0.9, 0.1, 0.1], patience=None)
    assert len(seen) == 3 and kept == 2


def test_patience_needs_evaluations_and_a_validation_set():
    with pytest.raises(ValueError, match="eval_every is 0"):
        Recipe(steps=2, patience=1)
    with pytest.raises(ValueError, match="no validation set"):
        train(Line(0.0), constant(1.0), Recipe(steps=2, eval_every=1, patience=1))


@pytest.mark.parametrize("settings", [{"steps": 0}, {"steps": 3, "batch_size": 0}])
def test_an_empty_recipe_is_refused(settings):
    with pytest.raises(ValueError, match=f"{list(settings)[-1]} is 0; expected a whole number from 1"):
        Recipe(**settings)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_says_where(poison):
    def feed(step):
        return constant(poison if step == 3 else 1.0)(step)

    with pytest.raises(DivergedError, match=r"by step 4 at learning rate 0\.05;.*lower the learning rate"):
        train(Line(0.1), feed, Recipe(steps=9, learning_rate=0.05, decay="constant"))


def test_a_compiled_model_is_what_trains_and_the_weights_keep_their_names(tmp_path, monkeypatch):
    calls = []

    def compiled(module):
        wrapper = nn.Sequential(module)  # like torch.compile's, it would put a prefix to the names
        wrapper.register_forward_hook(lambda *_: calls.append(1))
        return wrapper

    monkeypatch.setattr(torch, "compile", compiled)
    train(Line(0.5), constant(1.0), Recipe(steps=3, compile=True), folder=tmp_path)
    assert len(calls) == 3 and list(checkpoint.newest(tmp_path / "checkpoints").weights) == ["weight"]


@pytest.fixture
def two_cores():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.slow
def test_parts_side_by_side_are_parts_one_after_the_other(two_cores):
    feed = batches(world_splits(TINY, 64, 4, 4).train, 16, seed=5)
    recipe = Recipe(steps=5, batch_size=16, learning_rate=1e-3, warmup_steps=2)
    threaded, again, parts = (zoo.create("Lab-Ti/2", image_size=8, seed=3) for _ in range(3))
    rows = train(threaded, feed, recipe)
    train(again, feed, recipe)
    torch.set_num_threads(1)
    wanted = train(parts, feed, dataclasses.replace(recipe, accumulate=2))
    assert rows[0]["train_loss"] == pytest.approx(wanted[0]["train_loss"], rel=1e-5)
    assert apart(threaded.state_dict(), parts.state_dict()) < 1e-5
    assert apart(threaded.state_dict(), again.state_dict()) == 0  # whichever thread was first


def test_only_models_of_matrix_products_without_chance_go_side_by_side(two_cores):
    images = torch.zeros(2, 3, 8, 8)

    def threads(model):
        with cores.side_by_side(model.train(), lambda: images) as pool:
            return pool and pool._max_workers

    assert threads(zoo.create("Lab-Ti/2", image_size=8)) == 2
    assert threads(zoo.create("Lab-Ti/2", image_size=8, dropout=0.1)) is None
    assert threads(zoo.create("BiT-Lab-Ti/2", image_size=8)) is None
    torch.set_num_threads(1)
    assert threads(zoo.create("Lab-Ti/2", image_size=8)) is None


def test_an_error_in_a_thread_is_the_training_s(two_cores):
    class Failing(Line):
        def forward(self, images):
            if self.training and len(images) > 2:
                raise RuntimeError("the second half is bad")
            return super().forward(images)

    with pytest.raises(RuntimeError, match="the second half is bad"):
        train(Failing(0.5), constant(1.0, n=8), Recipe(steps=2, batch_size=8))


def test_rows_tell_flops_speed_and_memory():
    model = zoo.create("Lab-Ti/2", image_size=8)
    feed = batches(world_splits(TINY, 64, 4, 4).train, 16, seed=5)
    first, last = train(model, feed, Recipe(steps=4, batch_size=16, eval_every=2))
    assert last["flops"] == 3 * 2 * multiply_adds("Lab-Ti/2", 8) * 64 == 2 * first["flops"]
    assert last["images_per_second"] == pytest.approx(32 / (last["seconds"] - first["seconds"]))
    assert 0.05 < last["peak_memory_gb"] < 50


class Large(nn.Module):
    """A model for which there is memory for so many images at once."""

    def __init__(self, room):
        super().__init__()
        self.line, self.room = Line(0.5), room

    def forward(self, images):
        if len(images) > self.room:
            raise torch.OutOfMemoryError("out of memory: tried to allocate 3 GiB")
        return self.line(images)


def test_out_of_memory_says_what_fits():
    def feed(step, start=0, stop=16):
        return constant(1.0, n=stop - start)(step)

    recipe = Recipe(steps=2, batch_size=16)
    with pytest.raises(MemoryError, match=r"16 images at once do not fit.*3 GiB.*4 at once do: set accumulate=4"):
        train(Large(5), feed, recipe)
    train(Large(5), feed, dataclasses.replace(recipe, accumulate=4))  # and it does
    with pytest.raises(MemoryError, match=r"8 images at once do not fit.*a single one does not either"):
        train(Large(0), feed, dataclasses.replace(recipe, accumulate=2))


def test_another_error_stays_what_it_is():
    def feed(step):
        raise RuntimeError("the camera is off")

    with pytest.raises(RuntimeError, match="the camera is off"):
        train(Line(0.0), feed, Recipe(steps=2))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"batch_size": 10, "accumulate": 3}, "batch of 10 cannot be cut into 3 equal parts"),
        ({"optimizer": "adagrad"}, "optimizer is 'adagrad'; expected one of 'adam', 'sgd'"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0"),
        ({"ema_decay": 0.0}, "ema_decay is 0.0"),
        ({"grad_clip": 0.0}, "grad_clip is 0.0; expected a finite number above 0, or None"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Recipe(steps=2, **settings)


# ---- evaluation ----


def test_evaluation_counts_the_last_partial_batch_exactly():
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1])  # 7 images in batches of 3: 3, 3, 1
    images = ImageSet(torch.full((7, 3, 2, 2), 255, dtype=torch.uint8), labels, ("a", "b"))
    model = Line(1.0).train()
    found = evaluate(model, images, batch_size=3)
    assert found["accuracy"] == 5 / 7  # class 0 for every white image
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    assert found["loss"] == pytest.approx((5 * right + 2 * wrong) / 7, rel=1e-6)
    assert model.training  # as it was


def test_evaluation_switches_dropout_off():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(12, 2)).train()
    assert evaluate(model, zeros(50)) == evaluate(model, zeros(50))


# ---- resuming ----


class Killed(Exception):
    pass


def without_clock(rows):
    clock = ("seconds", "images_per_second", "peak_memory_gb")
    return [{key: value for key, value in row.items() if key not in clock} for row in rows]


def dropping(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 10))


@pytest.mark.parametrize("patience", [None, 3])
@pytest.mark.parametrize("kill_at", [3, 4, 11])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, kill_at, patience):
    splits = world_splits(TINY, 40, 20, 4)
    recipe = Recipe(steps=12, batch_size=16, warmup_steps=2, eval_every=3, patience=patience, learning_rate=1e-2)
    feed = batches(splits.train, 16, seed=1)

    def killing(step):
        if step == kill_at:
            raise Killed
        return feed(step)

    whole = dropping(0)
    wanted = train(whole, feed, recipe, validation=splits.validation)
    with pytest.raises(Killed):
        train(dropping(0), killing, recipe, validation=splits.validation, folder=tmp_path, save_every=2)
    resumed = dropping(7)  # other weights: all must come from the state
    torch.manual_seed(99)
    rows = train(resumed, feed, recipe, validation=splits.validation, folder=tmp_path, save_every=2)
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert without_clock(rows) == without_clock(wanted)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged == rows


def test_a_finished_run_is_not_trained_again(tmp_path):
    model, recipe = Line(0.0), Recipe(steps=3)
    train(model, constant(1.0), recipe, folder=tmp_path)
    again = Line(5.0)
    rows = train(again, lambda step: pytest.fail("a batch was asked for"), recipe, folder=tmp_path)
    assert again.weight.item() == model.weight.item() and len(rows) == 1


def test_the_weights_of_a_run_are_loaded_by_the_zoo(tmp_path):
    model = zoo.create("Lab-Ti/2", image_size=8)
    feed = batches(world_splits(TINY, 32, 4, 4).train, 16, seed=5)
    train(model, feed, Recipe(steps=2, batch_size=16), folder=tmp_path, name="Lab-Ti/2")
    for path in (tmp_path, tmp_path / "checkpoints" / "step_00000002"):
        found = zoo.load(path / "model.safetensors")
        assert found.about == {"step": 2}
        assert torch.equal(found.model(feed(0)[0]), model(feed(0)[0]))


def test_a_run_may_go_on_in_other_parts(tmp_path):
    splits = world_splits(TINY, 32, 4, 4)
    feed, recipe = batches(splits.train, 16, seed=5), Recipe(steps=4, batch_size=16)

    def killing(step):
        if step == 2:
            raise Killed
        return feed(step)

    with pytest.raises(Killed):
        train(zoo.create("Lab-Ti/2", image_size=8), killing, recipe, folder=tmp_path, save_every=1)
    train(zoo.create("Lab-Ti/2", image_size=8), feed, dataclasses.replace(recipe, accumulate=2), folder=tmp_path)


def test_dropout_does_not_go_on_in_other_parts(tmp_path):
    feed = batches(world_splits(TINY, 32, 4, 4).train, 16, seed=5)
    recipe, parts = Recipe(steps=2, batch_size=16), Recipe(steps=2, batch_size=16, accumulate=2)

    def model():
        return zoo.create("Lab-Ti/2", image_size=8, dropout=0.1)

    whole, cut = (model(), model())
    train(whole, feed, recipe, folder=tmp_path)
    train(cut, feed, parts)
    assert apart(whole.state_dict(), cut.state_dict()) > 1e-4  # each way to cut a batch draws other numbers
    with pytest.raises(ValueError, match=r"accumulate was 1 and is 2, and this model draws random numbers \(dropout\)"):
        train(model(), feed, parts, folder=tmp_path)


def test_a_training_is_kept_before_an_evaluation_that_fails(tmp_path):
    class Broken(ImageSet):
        def chunks(self, batch_size):
            raise OSError("no such image")

    splits = world_splits(TINY, 32, 4, 4)
    feed, recipe = batches(splits.train, 16, seed=5), Recipe(steps=3, batch_size=16)
    models = [zoo.create("Lab-Ti/2", image_size=8) for _ in range(3)]
    broken = Broken(splits.test.images, splits.test.labels, splits.test.classes)
    with pytest.raises(OSError, match="no such image"):
        train(models[0], feed, recipe, validation=broken, folder=tmp_path)
    assert checkpoint.newest(tmp_path / "checkpoints").rest["step"] == 3

    def none(step, *part):
        raise AssertionError("trained again")

    found = train(models[1], none, recipe, validation=splits.test, folder=tmp_path)
    wanted = train(models[2], feed, recipe, validation=splits.test)
    assert apart(models[1].state_dict(), models[2].state_dict()) == 0
    assert [{k: row[k] for k in ("step", "val_loss", "train_loss")} for row in found] == [
        {k: row[k] for k in ("step", "val_loss", "train_loss")} for row in wanted
    ]


def test_two_trainings_do_not_share_a_folder(tmp_path):
    def feed(step):
        with pytest.raises(RuntimeError, match=r"another process is training in .*give another folder"):
            train(Line(0.0), constant(1.0), Recipe(steps=1), folder=tmp_path)
        return constant(1.0)(step)

    train(Line(0.0), feed, Recipe(steps=1), folder=tmp_path)


def test_a_divergence_names_the_last_checkpoint_and_it_is_finite(tmp_path):
    def feed(step):
        return constant(float("nan") if step == 5 else 1.0)(step)

    recipe = Recipe(steps=9, learning_rate=0.05)
    with pytest.raises(DivergedError, match=r"by step 6 .*The last checkpoint is .*step_00000004"):
        train(Line(0.1), feed, recipe, folder=tmp_path, save_every=2)
    assert checkpoint.newest(tmp_path / "checkpoints").weights["weight"].isfinite().all()


def test_weights_that_are_no_numbers_are_never_saved(tmp_path):
    class Exploding(Line):
        def forward(self, images):
            return super().forward(images) + torch.sqrt(self.weight - self.weight).sum()  # loss finite, gradient NaN

    with pytest.raises(DivergedError, match="a weight became NaN or infinite by step 1"):
        train(Exploding(0.1), constant(1.0), Recipe(steps=1, grad_clip=None), folder=tmp_path)
    assert checkpoint.newest(tmp_path / "checkpoints") is None


def test_the_state_of_another_recipe_is_refused(tmp_path):
    train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path)
    with pytest.raises(ValueError, match=r"another training: learning_rate was 0.001 and is 0.5. .*another folder"):
        train(Line(0.0), constant(1.0), Recipe(steps=3, learning_rate=0.5), folder=tmp_path)
    with pytest.raises(ValueError, match=r"another training: structure of the model was '\w+' and is '\w+'"):
        dropping = Line(0.0)
        dropping.dropout = nn.Dropout(0.1)  # the same weights, another training
        train(dropping, constant(1.0), Recipe(steps=3), folder=tmp_path)
    with pytest.raises(ValueError, match=r"another training: images was None and is 'digits'"):
        train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path, identity={"images": "digits"})


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path):
    train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path)
    newest = checkpoint.newest(tmp_path / "checkpoints")
    before = {name: value for name, value in newest.rest.items() if name != "format"}
    checkpoint.save(tmp_path / "checkpoints", Line(0.0), newest.weights, before)
    with pytest.raises(
        ValueError, match=r"step_00000003 was written by an older version .*delete the folder .*another"
    ):
        train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path)


def test_from_train_to_the_loss_is_one_frame():
    """`train` calls the update and the update the loss: a traceback from a model shows the loop as it is written."""
    functions = []

    class Traced(Line):
        def forward(self, images):
            functions[:] = [f.name for f in traceback.extract_stack() if f.filename.endswith("training/loop.py")]
            return super().forward(images)

    train(Traced(0.5), constant(1.0), Recipe(steps=1))
    assert functions == ["train", "_update", "_loss"]


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    train(dropping_here := nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 2)),
          constant(1.0), Recipe(steps=2))  # fmt: skip
    torch.manual_seed(1)
    train(dropping_here, constant(1.0), Recipe(steps=2))
    assert torch.equal(torch.rand(3), wanted)


def test_dropout_is_drawn_from_the_recipe_s_seed_alone():
    def trained(global_seed, seed):
        model = dropping(0)
        torch.manual_seed(global_seed)
        train(model, batches(world_splits(TINY, 16, 1, 1).train, 16, seed=0), Recipe(steps=2, seed=seed))
        return model[1].weight.detach()

    assert torch.equal(trained(1, seed=5), trained(2, seed=5))
    assert not torch.equal(trained(1, seed=5), trained(1, seed=6))


# ---- interrupts ----


def interrupting(feed, *steps):
    """Batches during whose making, at these steps, somebody presses Ctrl-C."""

    def made(step):
        if step in steps:
            signal.raise_signal(signal.SIGINT)
        return feed(step)

    return made


@pytest.mark.parametrize("patience", [None, 3])
def test_a_stopped_run_ends_with_the_same_bits(tmp_path, patience):
    splits = world_splits(TINY, 40, 20, 4)
    recipe = Recipe(steps=12, batch_size=16, warmup_steps=2, eval_every=3, patience=patience, learning_rate=1e-2)
    feed = batches(splits.train, 16, seed=1)
    whole = dropping(0)
    wanted = train(whole, feed, recipe, validation=splits.validation)
    first, second = sorted(random.sample(range(len(wanted) * 3 - 1), 2))
    for seed, stop in ((0, first), (7, second)):  # who goes on has other weights: all must come from the checkpoint
        words = rf"stopped after step {stop + 1}; its checkpoint is .*step_{stop + 1:08d}: "
        with pytest.raises(interrupts.Stopped, match=words) as found:
            train(dropping(seed), interrupting(feed, stop), recipe, validation=splits.validation, folder=tmp_path)
        assert found.value.step == stop + 1 == checkpoint.newest(tmp_path / "checkpoints").rest["step"]
        assert without_clock(found.value.rows) == without_clock(wanted[: (stop + 1) // 3])
        assert not (tmp_path / "model.safetensors").exists()
    resumed = dropping(8)
    rows = train(resumed, feed, recipe, validation=splits.validation, folder=tmp_path)
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert without_clock(rows) == without_clock(wanted)


def test_an_interrupt_in_the_last_step_leaves_a_run_that_only_has_to_be_ended(tmp_path):
    recipe, model = Recipe(steps=3), Line(0.0)
    with pytest.raises(interrupts.Stopped, match="stopped after step 3"):
        train(model, interrupting(constant(1.0), 2), recipe, folder=tmp_path)
    assert not model.training
    rows = train(again := Line(5.0), lambda step: pytest.fail("a batch was asked for"), recipe, folder=tmp_path)
    assert rows[-1]["step"] == 3 and again.weight.item() == model.weight.item()
    assert (tmp_path / "model.safetensors").exists()


def test_a_second_interrupt_does_not_wait():
    def feed(step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second interrupt waited")

    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as found:
        train(Line(0.0), feed, Recipe(steps=1))
    assert not isinstance(found.value, interrupts.Stopped)
    assert signal.getsignal(signal.SIGINT) is usual


def test_an_interrupt_without_a_folder_says_that_nothing_is_kept():
    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(interrupts.Stopped, match="stopped after step 2; there is no folder, so nothing was saved"):
        train(Line(0.0), interrupting(constant(1.0), 1), Recipe(steps=3))
    assert signal.getsignal(signal.SIGINT) is usual


def test_an_interrupt_after_the_last_look_is_not_lost():
    with pytest.raises(KeyboardInterrupt), interrupts.waiting(processes.Group()) as asked:
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set()


def test_one_of_several_processes_does_not_stop_on_its_own():
    with pytest.raises(KeyboardInterrupt), interrupts.waiting(processes.Group(rank=0, size=2)):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt waited")


# ---- pretrain ----


def test_the_three_sets_share_no_image_and_smaller_sets_are_heads_of_larger_ones():
    small, large = world_splits(TINY, 20, 10, 10), world_splits(TINY, 40, 10, 10)
    assert torch.equal(large.train.images[:20], small.train.images)
    assert torch.equal(large.test.images, small.test.images)
    every = torch.cat([part.images.flatten(1) for part in (large.train, large.validation, large.test)])
    assert len(every.unique(dim=0)) == len(every)
    other = world_splits(TINY, 20, 10, 10, draw=1)
    assert not torch.equal(other.train.images, small.train.images)
    assert torch.equal(other.test.images, small.test.images)


def test_held_out_digits_are_neither_trained_on_nor_tested_on():
    tuning, whole = digits_splits(hold_out=True), digits_splits()
    assert len(tuning.train) + len(tuning.validation) == len(whole.train) == 1437
    assert whole.validation is None and torch.equal(whole.test.images, tuning.test.images)
    seen = {image.numpy().tobytes() for image in tuning.train.images}
    assert not seen & {image.numpy().tobytes() for image in tuning.validation.images}
    assert torch.equal(digits_splits(n_train=20).train.images, whole.train.images[:20])


def test_a_subset_keeps_labels_classes_and_masks():
    images = image_set(TINY, 20, 0)
    part = subset(images, torch.arange(5, 9))
    assert torch.equal(part.labels, images.labels[5:9]) and part.classes == images.classes
    assert torch.equal(part.masks, images.masks[5:9])


@pytest.mark.parametrize("name", ["Lab-Ti/2", "BiT-Lab-Ti/2"])
def test_the_first_loss_is_that_of_knowing_nothing(name):
    splits = world_splits(TINY, 40, 20, 10)
    row = untrained_row(zoo.create(name, image_size=8), splits.validation)
    assert row["val_loss"] == pytest.approx(math.log(10), abs=1e-6)  # the head starts at zero


def test_a_seed_is_a_run_and_another_is_another():
    splits = world_splits(TINY, 40, 20, 10)

    def run(seed):
        model = zoo.create("Lab-Ti/2", image_size=8, seed=seed)
        train(model, batches(splits.train, 8, seed), Recipe(steps=3, batch_size=8, seed=seed))
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_multiply_adds_by_hand():
    # Lab-Ti/8 at 32 px: 16 patches of 192 numbers, 17 tokens, dim 64, depth 4, MLP 256, 10 classes.
    embed, head = 16 * 192 * 64, 64 * 10
    block = 17 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 17 * 17 * 64
    assert multiply_adds("Lab-Ti/8", 32) == embed + 4 * block + head


@pytest.mark.parametrize(
    "model, giga",
    [
        ("ViT-B/16", 17.58),  # 12 · (197 · 12 · 768² + 2 · 197² · 768) + 196 · 768² + 768 · 1000, in 10⁹
        ("ViT-B/32", 4.41),
        ("resnet50", 4.1),  # the number that is quoted for 224 px
        ("vit_tiny_patch16_224", 1.26),
    ],
)
def test_multiply_adds_of_known_models(model, giga):
    assert multiply_adds(model, 224, 1000) == pytest.approx(giga * 1e9, rel=0.02)


def test_no_draw_reaches_the_held_out_images(monkeypatch):
    asked, one = [], world_splits(TINY, 1, 1, 1).train
    monkeypatch.setattr(training, "_painted", lambda world, count, start: asked.append((start, count)) or one)
    for draw in (0, 1, 65_535, 65_536, 10**9 + 7):
        world_splits(TINY, training.DRAW, 1000, 1000, draw)
    assert all(start >= HELD_OUT or start + count <= HELD_OUT for start, count in asked)
    assert asked[0][0] == asked[9][0] != asked[3][0]
    with pytest.raises(ValueError, match="a draw of the world has"):
        world_splits(TINY, training.DRAW + 1, 1, 1)


def test_default_device_is_one_torch_can_use():
    assert torch.zeros(1, device=processes.default_device()).item() == 0
