"""Training: the schedules and AdamW by hand, early stopping, divergence, and resuming as if nothing had happened."""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vitlab.data.loader import ImageSet, batches
from vitlab.data.world import HELD_OUT, World
from vitlab.models import zoo
from vitlab.training import loop
from vitlab.training import pretrain as training
from vitlab.training.checkpoint import load_resume_state, save_resume_state
from vitlab.training.loop import DivergedError, Recipe, adamw, evaluate, train
from vitlab.training.pretrain import digits_splits, multiply_adds, pretrain, subset, world_splits
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


def test_only_matrices_and_kernels_decay():
    for name in ("Lab-Ti/2", "BiT-Lab-Ti/2"):
        model = zoo.create(name, image_size=8)
        decayed, free = (group["params"] for group in adamw(model, Recipe(steps=1, weight_decay=0.3)).param_groups)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        assert len(decayed) + len(free) == len(names)
        assert all(parameter.ndim >= 2 for parameter in decayed)
        spared = {names[id(parameter)] for parameter in free if parameter.ndim >= 2}
        assert spared <= {"pos_embed", "cls_token"}


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
    with pytest.raises(ValueError, match="both must be at least 1"):
        Recipe(**settings)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_says_where(poison):
    def feed(step):
        return constant(poison if step == 3 else 1.0)(step)

    with pytest.raises(DivergedError, match=r"by step 4 at learning rate 0\.05;.*lower the learning rate"):
        train(Line(0.1), feed, Recipe(steps=9, learning_rate=0.05, decay="constant"))


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
    assert [{**row, "seconds": 0} for row in rows] == [{**row, "seconds": 0} for row in wanted]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged == rows


def test_a_finished_run_is_not_trained_again(tmp_path):
    model, recipe = Line(0.0), Recipe(steps=3)
    train(model, constant(1.0), recipe, folder=tmp_path)
    again = Line(5.0)
    rows = train(again, lambda step: pytest.fail("a batch was asked for"), recipe, folder=tmp_path)
    assert again.weight.item() == model.weight.item() and len(rows) == 1


def test_the_state_of_another_recipe_is_refused(tmp_path):
    train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path)
    with pytest.raises(ValueError, match=r"another recipe: learning_rate was 0.001 and is 0.5; .*another folder"):
        train(Line(0.0), constant(1.0), Recipe(steps=3, learning_rate=0.5), folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a state", b"PK\x03\x04 truncated"])
def test_a_corrupt_state_is_refused_by_name(tmp_path, content):
    (tmp_path / "resume.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"resume\.pt is no resume state.*delete it"):
        train(Line(0.0), constant(1.0), Recipe(steps=3), folder=tmp_path)


def test_a_truncated_state_is_refused(tmp_path):
    path = tmp_path / "resume.pt"
    save_resume_state(path, {"w": torch.ones(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match="no resume state"):
        load_resume_state(path)


def test_a_file_of_other_tensors_is_no_state(tmp_path):
    torch.save({"weight": torch.ones(3)}, tmp_path / "resume.pt")
    with pytest.raises(ValueError, match="it holds something else"):
        load_resume_state(tmp_path / "resume.pt")


def test_code_in_a_state_is_refused_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was_run"), "w"))

    torch.save({"step": Evil()}, tmp_path / "resume.pt")
    with pytest.raises(ValueError, match="no resume state"):
        load_resume_state(tmp_path / "resume.pt")
    assert not (tmp_path / "was_run").exists()


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
    images = world_splits(TINY, 20, 10, 10).train
    part = subset(images, torch.arange(5, 9))
    assert torch.equal(part.labels, images.labels[5:9]) and part.classes == images.classes
    assert torch.equal(part.masks, images.masks[5:9])


@pytest.mark.parametrize("name", ["Lab-Ti/2", "BiT-Lab-Ti/2"])
def test_the_first_loss_is_that_of_knowing_nothing(name):
    splits = world_splits(TINY, 40, 20, 10)
    _, rows = pretrain(name, splits.train, Recipe(steps=1, batch_size=8), seed=0, watch=splits.validation)
    assert rows[0]["val_loss"] == pytest.approx(math.log(10), abs=1e-6)  # the head starts at zero


def test_a_seed_is_a_run_and_another_is_another():
    splits = world_splits(TINY, 40, 20, 10)

    def run(seed):
        model, _ = pretrain("Lab-Ti/2", splits.train, Recipe(steps=3, batch_size=8), seed=seed, watch=splits.test)
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_multiply_adds_by_hand():
    # Lab-Ti/8 at 32 px: 16 patches of 192 numbers, 17 tokens, dim 64, depth 4, MLP 256, 10 classes.
    embed, head = 16 * 192 * 64, 64 * 10
    block = 17 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 17 * 17 * 64
    assert multiply_adds("Lab-Ti/8", 32) == embed + 4 * block + head


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
    assert torch.zeros(1, device=loop.default_device()).item() == 0
