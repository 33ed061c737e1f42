# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 04 · How much data does a ViT need?
#
# **Claim (C03).** With little pre-training data a ResNet is ahead; with much data ViT overtakes it. Also **C04**:
# larger ViTs need more data than smaller ones. **C05**: ViT's few-shot accuracy keeps rising with data.
#
# Paper: §4.3, Fig. 3 and 4, Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021. The runs that decide, a
# thousand to 256,000 images of 100 classes, took days and are committed. At `quick` you add a point of your own to
# their curves: two models, a minute and a half of one core, once.

# %% [markdown]
# ## What you will learn
#
# - how to set up a data-scaling study: nested sets, one recipe for all sizes, early stopping;
# - why the set that stops the training must not be the set that the number comes from;
# - how to find where two noisy curves cross, or that they do not.
#
# **Prerequisites.** Notebooks 02 (matched compute) and 03 (few-shot accuracy); the t interval.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports.

# %%
import dataclasses
import math

import numpy as np
import pandas as pd
import scipy.stats
import torch

from vitlab import claims, plots
from vitlab.claims import Estimate
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World, with_difficulty
from vitlab.models import zoo
from vitlab.plots.style import FAMILIES
from vitlab.studies import runner, table, tables
from vitlab.studies.statistics import crossing, mean_interval, paired
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

# %% [markdown]
# The settings of the published runs, and their pairs of a ViT and a ResNet of equal compute. `page` is this execution.

# %%
page = claims.begin("04_data_or_inductive_bias", PRESET, SEED)
base = table.preset("data_scaling", "full").base
world = with_difficulty(World(base["n_classes"], base["image_size"]), base["difficulty"])
PAIRS = {"Ti/8": ("Lab-Ti/8", "BiT-Lab-Ti/8"), "Mu/8": ("Lab-Mu/8", "BiT-Lab-Mu/8")}

# %% [markdown]
# ## Prediction
#
# **The paper** pre-trains on subsets of JFT of 9 to 300 million images. With the smallest, ResNets of equal compute are
# ahead and ViTs overfit more; from about 90 million on, ViTs are ahead (Fig. 4). The reason given is inductive bias: a
# convolution has locality built in, which helps when data are few; with enough data it is better to learn it.
#
# **Here** models and sets are thousands of times smaller, and the world is synthetic. Which half of the claim do you
# expect to survive?
#
# **Decision rules** (how to read them: notebook 00). **C03**: test accuracy of the ViT minus that of the ResNet is
# *(a)* below zero with the fewest images; *(b)* above zero with the most, and below zero with some smaller number.
# **C04**: the larger ViT's lead over the smaller grows from the fewest images to the most (or *not reproduced*); with
# the fewest it is behind. **C05**: ten-shot accuracy on classes that pre-training has not seen has a slope per tenfold
# data above zero (or *not reproduced*); so has the step to the largest set.

# %% [markdown]
# ## Idea
#
# ### Nested sets
#
# Image $i$ of the world is always the same, so a set of $n$ images is the first $n$: each set contains the smaller ones.
# Each seed draws images of its own. Validation and test images are never trained on.

# %%
small, large = (world_splits(world, n, n_validation=40, n_test=40, draw=SEED) for n in (20, 60))
assert torch.equal(large.train.images[:20], small.train.images)  # nested
assert torch.equal(large.test.images, small.test.images)  # the same test for all
together = torch.cat([s.images.flatten(1) for s in (large.train, large.validation, large.test)])
assert len(together.unique(dim=0)) == len(together)  # no picture in two sets, none twice

shown = [image.permute(1, 2, 0).numpy() for image in small.train.images[:8]]
alt = "Eight synthetic images of the world, each over its class."
with plots.figure(page, "pictures", alt=alt, figsize=(9, 1.6)) as ax:
    plots.plot_pictures({"": shown}, ax, captions=[small.train.classes[k] for k in small.train.labels[:8]])
    ax.set_title("The first images of every training set of this seed")

# %% [markdown]
# Every run sees the same number of samples at most. Of a set larger than that, only a random choice is ever rendered:

# %%
seen = world_splits(world, n_train=1_000_000, n_validation=4, n_test=4, draw=SEED, n_seen=100).train
assert len(seen) == 100 == len(seen.images.flatten(1).unique(dim=0))  # of a million, none twice
counts = sorted({run["n_train"] for run in table.runs("data_scaling", "full")})
sizes = ", ".join(f"{size:,}" for size in counts)
print(f"at most {base['steps'] * base['batch_size']:,} samples a run; sizes: {sizes} images")

# %% [markdown]
# ### Matched compute
#
# ViT and ResNet of a pair cost about the same multiply-adds for each image. There are two pairs, for C04.

# %%
for pair in PAIRS.values():
    vit, resnet = (zoo.multiply_adds(name, base["image_size"]) for name in pair)
    assert max(vit, resnet) / min(vit, resnet) < 1.2
    print(f"{' and '.join(pair):<27} {vit / 1e6:.2f} and {resnet / 1e6:.2f} million multiply-adds per image")

# %% [markdown]
# ### Stopping early
#
# A small set is soon memorized: the validation accuracy stands still or falls. So, as in the paper, the weights of the
# best validation accuracy are kept. With patience $p$, training ends when $p$ evaluations in a row bring no new best:

# %%
def stop_in_the_open(accuracies, patience):
    """(evaluation that is kept, evaluation after which training ends), counted from 0."""
    best = 0
    for i, accuracy in enumerate(accuracies):
        if accuracy > accuracies[best]:
            best = i
        if i - best >= patience:
            return best, i
    return best, len(accuracies) - 1


tiny = world_splits(World(image_size=8), n_train=30, n_validation=60, n_test=60, draw=SEED)
whole = Recipe(steps=24, batch_size=16, learning_rate=5e-3, eval_every=1)  # never stops early
patient = dataclasses.replace(whole, patience=4)
feed = batches(tiny.train, whole.batch_size, seed=SEED)
to_the_end, stopped = (
    train(zoo.create("Lab-Ti/2", image_size=8, seed=SEED), feed, each, validation=tiny.validation)
    for each in (whole, patient)
)
best, end = stop_in_the_open([row["val_accuracy"] for row in to_the_end], patience=4)
assert len(stopped) == end + 1
assert max(row["val_accuracy"] for row in stopped) == to_the_end[best]["val_accuracy"]
print(f"kept evaluation {best + 1}, stopped after {end + 1} of {len(to_the_end)}")

# %% [markdown]
# ### Where two curves cross
#
# Between the last size $n_i$ with $D_i \le 0$ and the next, the straight line over $\log n$ is zero at
#
# $$\log n^* = \log n_i + \frac{D_i}{D_i - D_{i+1}}\,(\log n_{i+1} - \log n_i).$$
#
# If $D$ ends at or below zero, or never was below, there is no crossing, and `None` says so: a method that always finds
# a crossing finds one in noise.

# %%
sizes, D = np.array([100, 1_000, 10_000]), np.array([-0.2, -0.05, 0.15])
i = np.flatnonzero(D <= 0)[-1]
share = D[i] / (D[i] - D[i + 1])
n_star = math.exp(math.log(sizes[i]) + share * (math.log(sizes[i + 1]) - math.log(sizes[i])))
assert math.isclose(n_star, crossing(sizes, D))
assert math.isclose(n_star, 1_000 * 10**0.25)  # a quarter of a decade
assert crossing(sizes, -np.abs(D)) is None  # never ahead
assert crossing(sizes, np.abs(D)) is None  # always ahead: nothing was overtaken
print(f"crossing at {n_star:,.0f} images")

# %% [markdown]
# ### How often is an interval right?
#
# A 95 % interval promises to hold the truth 95 times in 100. To see whether it does, draw seeds from a distribution
# whose mean is known, make the interval, count. The *bootstrap* resamples the seeds; Student's *t* takes their spread.

# %%
def bootstrap(values):
    draws = np.random.default_rng(0).choice(values, (500, len(values))).mean(axis=1)
    return np.quantile(draws, [0.025, 0.975])


def coverage(interval, n, truth=0.7):
    rng = np.random.default_rng(0)
    found = [interval(rng.normal(truth, 0.02, n)) for _ in range(500)]
    return np.mean([low <= truth <= high for low, high in found])


covered = {
    name: {f"{n} seeds": coverage(make, n) for n in (3, 5, 10)}
    for name, make in {"bootstrap": bootstrap, "Student's t": mean_interval}.items()
}
pd.DataFrame(covered).T.style.format("{:.0%}").set_caption("how often a 95 % interval is right")

# %% [markdown]
# With a handful of seeds the bootstrap's interval is too narrow: all ours are t intervals. Where a run failed to start,
# the seeds are a mixture of two outcomes whose mean neither covers: we say so, and give none.
#
# ## Experiment
#
# Learning rate and weight decay are chosen once, at the middle size, and then serve all sizes, as in Fig. 4. All models
# had the same trials, judged on validation images, with seeds that no other run uses. For the smaller sets of Fig. 3
# the paper tunes the regularisation; `few_images` does so for the larger pair. What was chosen, with its validation
# accuracy in %:

# %%
tried = {"16,000": tables.trials("data_scaling"), "1,000": tables.trials("few_images")}
tried = pd.concat(tried, names=["images"]).reset_index("images")
tried = tried[~tried["model"].str.startswith("R+")]  # of the pairs, without the hybrids
setting = ["learning_rate", "weight_decay"]
chosen = tables.chosen(tried, ["images", "model"], setting).groupby(["images", "model", *setting], sort=False)
accuracy = (100 * chosen["validation_accuracy"].mean()).rename("validation accuracy").reset_index(setting)
accuracy.style.format({"learning_rate": "{:g}", "weight_decay": "{:g}", "validation accuracy": "{:.1f}"})

# %% [markdown]
# Tuned for few images, the ResNet takes a far stronger weight decay and a smaller rate.
#
# Now your run: the smaller pair on 1,000 images, by the recipe of the published runs, with a seed that they do not
# have. Called again, it is read.

# %% tags=["long"]
yours = tables.accuracies(runner.run("data_scaling", PRESET, SEED))
yours.groupby(["n_train", "model"])[["test_accuracy", "train_accuracy", "best_step", "last_step"]].mean()

# %% [markdown]
# And the evidence, by which the claims are judged:

# %%
rows, where_from = tables.evidence("data_scaling"), tables.about("data_scaling")
runs, shots = tables.accuracies(rows), tables.few_shots(rows)
print(where_from)

# %% [markdown]
# ## Figure
#
# Left the accuracy on images that no model was trained on; your run has open markers. Right the few-shot accuracy of
# frozen features on other classes, ten images each: Fig. 4's measure.

# %%
def on_other_classes(shots):
    """Few-shot accuracy on ten classes of the world that pre-training has not seen, as a test accuracy."""
    return shots[shots["target"] == "world"].rename(columns={"accuracy": "test_accuracy"})


alt = "Accuracy of ViTs, ResNets and a hybrid against the number of training images, lines with 95 % intervals: "
alt += "left on held-out images, with open markers for the live run, right few-shot on other classes."
with plots.figure(page, "full", 1, 2, alt=alt, figsize=(11, 4.2)) as (left, right):
    plots.plot_accuracy(runs, left, "n_train").set_title("Held-out images")
    plots.plot_accuracy(on_other_classes(shots), right, "n_train").set_title("Other classes, few-shot")
    right.set(xlabel="pre-training images (number, log scale)", ylabel="10-shot accuracy (%)")
    for model, mine in yours.groupby("model"):
        colour, marker = FAMILIES[plots.family(model)]
        look = {"s": 90, "marker": marker, "facecolor": "white", "edgecolor": colour, "linewidth": 2, "zorder": 5}
        left.scatter(mine["n_train"], mine["test_accuracy"], **look)
    left.figure.suptitle(where_from)

# %% [markdown]
# Held-out images ask how well the classes were learned, few-shot accuracy how much of that serves others. How far
# seeds lie apart (chance is 1 %), and the generalization gap, training minus test accuracy, in %:

# %%
cells = runs.groupby(["n_train", "model"])
spread = 100 * cells["test_accuracy"].agg(["mean", "std", "min"])
gap = 100 * (cells["train_accuracy"].mean() - cells["test_accuracy"].mean())
spread.assign(**{"generalization gap": gap, "seeds": cells.size()}).style.format(precision=1)

# %% [markdown]
# The smallest set is memorized. At the largest size the gap is nearly closed: there compute, not data, sets the limit.
#
# Both pairs, and the larger one with its recipe for 1,000 images:

# %%
def leads(rows):
    """ViT − ResNet of each pair that is there, by measure."""
    found = {}
    few_shot = on_other_classes(tables.few_shots(rows))
    for measure, each in {"held-out images": tables.accuracies(rows), "few-shot, other classes": few_shot}.items():
        of_pairs = {pair: paired(each, "model", *models, at=["n_train"]) for pair, models in PAIRS.items()}
        found[measure] = pd.concat(of_pairs, names=["pair"]).reset_index()
    return found


both, few = leads(rows), leads(tables.evidence("few_images"))
both = {measure: pd.concat([both[measure], few[measure].replace("Ti/8", "Ti/8, tuned")]) for measure in both}
alt = "ViT minus ResNet in points against the number of images, with intervals, a line for the larger pair, one for "
alt += "the smaller, and a point for the larger, tuned for 1,000 images; left held-out images, right few-shot."
with plots.figure(page, "full_pairs", 1, 2, alt=alt, figsize=(11, 4.2)) as panels:
    for ax, (measure, each) in zip(panels, both.items(), strict=True):
        plots.plot_who_wins(each, ax, by="pair").set_title(measure.capitalize())
    panels[0].figure.suptitle(f"{where_from}; {tables.about('few_images')}")

# %% [markdown]
# In numbers; *growth* is from the fewest images to the most, of the seeds that have both.

# %%
lines = {}
for measure, each in both.items():
    for pair, of_pair in each.groupby("pair", sort=False):
        wide = 100 * of_pair.pivot(index="seed", columns="n_train", values="difference")
        columns = {f"{size:,}": wide[size] for size in wide}
        if len(columns) > 1:
            columns["growth"] = wide.iloc[:, -1] - wide.iloc[:, 0]
        lines[pair, measure] = {name: Estimate.of(of_size.dropna(), "points") for name, of_size in columns.items()}
pd.DataFrame(lines).T.style.format(na_rep="").set_caption(where_from)

# %% [markdown]
# Of the smaller pair the order is the paper's: the ResNet's lead shrinks with more images and, few-shot, the ViT
# overtakes. Of the larger pair it is the reverse: with the fewest images the ViT is ahead, for there the ResNet overfits
# (it tells fewer held-out images than the smaller ResNet). About half of that lead was the recipe; the other half stays.
#
# ## Verdict

# %%
vit, resnet = yours["model"].unique()[:2]
live = 100 * paired(yours, "model", vit, resnet, at=["n_train"])
claims.show(page, "C03", live={
    f"{vit} − {resnet} at {size:,} images": Estimate.of(each, "points") for size, each in live.groupby("n_train")
})

# %% [markdown]
# Where the curves of the larger pair cross, if they do:

# %%
of_pair = both["held-out images"].query("pair == 'Ti/8'")
wide = of_pair.pivot(index="seed", columns="n_train", values="difference").dropna()
sizes, mean = wide.columns.to_numpy(), wide.mean().to_numpy()
print(f"ViT overtakes at: {crossing(sizes, mean)}; ResNet overtakes at: {crossing(sizes, -mean):,.0f} images")
low, high = np.transpose([mean_interval(-wide[size]) for size in sizes])  # of the ResNet's lead, at each size
print(f"95 % interval of the latter: {crossing(sizes, high):,.0f} to {crossing(sizes, low):,.0f}")

# %% [markdown]
# **C04**, the size of the ViT against the size of the set, and **C05**, what ten times the data bring to the ViT's
# few-shot accuracy.

# %%
claims.show(page, "C04")
claims.show(page, "C05")
if PRESET == "smoke":
    print("Preset smoke trains for a handful of steps: its numbers mean nothing.")

# %% [markdown]
# **How we differ from the paper.**
#
# - A synthetic world instead of photographs, with half the strength of its variations; small models, one recipe.
# - At the largest size each image is seen once: that point is limited by the steps as much as by the images.
#
# ### Photographs and digits, from scratch
#
# `real_subsets` trains the larger pair on parts of real sets, each model at its best learning rate for that size.

# %%
on_parts = tables.chosen(tables.evidence("real_subsets"), ["source", "n_train", "model"])
alt = "ViT minus ResNet in points against the number of real training images, a line with intervals for each set."
with plots.figure(page, "real_subsets", alt=alt, figsize=(9, 4.6)) as ax:
    found = paired(on_parts, "model", *PAIRS["Ti/8"], at=["source", "n_train"]).reset_index()
    plots.plot_who_wins(found, ax, by="source").set_title(tables.about("real_subsets"))

# %% [markdown]
# Accuracy on 1,000 test images, and the learning rate that was chosen:

# %%
shown = on_parts.groupby(["source", "n_train", "model"]).agg(
    accuracy=("test_accuracy", "mean"), rate=("learning_rate", "first"), seeds=("seed", "size")
)
shown.style.format({"accuracy": "{:.1%}", "rate": "{:g}"})

# %% [markdown]
# On the digits the ResNet's lead shrinks with the data, as in the paper, until both are near the ceiling. On CIFAR-10
# the ResNet is ahead at every size, and more photographs do not bring the ViT nearer: in the paper it takes millions.

# %% [markdown]
# ## Exercises
#
# ### 1 · Where do they cross? (★, 5 min)
#
# ViT − ResNet is −8 points at 1,000 images and +2 points at 100,000. Where does the straight line over $\log n$ cross zero?
# And if the second were −1 (`None`, if it crosses nowhere between the two sizes)?
#
# <details><summary>Hint</summary>Which part of the way from −8 to +2 is 0? The way is two decades long.</details>

# %%
cross, no_cross = 0.0, 0.0
### BEGIN SOLUTION
cross = 1_000 * 100**0.8
no_cross = None
### END SOLUTION
line_through = np.poly1d(np.polyfit([3, 5], [-8, 2], 1))  # over log10 of the size
assert math.isclose(math.log10(cross), line_through.roots[0], rel_tol=1e-9)
assert no_cross is crossing([1_000, 100_000], [-8, -1])

# %% [markdown]
# ### 2 · Find the bug: the set that stops is the set that reports (★★, 15 min)
#
# A model that has learned nothing is right in half of the images of a two-class test. It is evaluated twenty times on 100
# images, each time right by chance. `reported_with_a_bug` keeps the best evaluation, and reports it. How much too high is
# that? Repair it with a second set of images.
#
# <details><summary>Hint</summary>Choose by one column, report the other.</details>

# %%
generator = np.random.default_rng(SEED)
validation, test = (
    generator.binomial(100, 0.5, size=(2, 4_000, 20)) / 100
)  # [studies, evaluations] each


def reported_with_a_bug(validation, test):
    return test.max(axis=1)


def reported(validation, test):
    ### BEGIN SOLUTION
    return test[np.arange(len(test)), validation.argmax(axis=1)]
    ### END SOLUTION


print(
    f"with the bug {reported_with_a_bug(validation, test).mean():.3f}, "
    f"repaired {reported(validation, test).mean():.3f}"
)
assert reported_with_a_bug(validation, test).mean() > 0.58  # knowledge out of nothing
assert abs(reported(validation, test).mean() - 0.5) < 0.005  # chance, as it should be
assert reported(validation, test).shape == (4_000,)
one_hot, numbered = np.eye(20), np.arange(400.0).reshape(20, 20)  # study k is best at evaluation k
assert np.array_equal(reported(one_hot, numbered), numbered.diagonal())

# %% [markdown]
# ### 3 · Pairs (★★, 15 min)
#
# Both families of a seed learn from the same images, so a lucky draw lifts both. Write the 95 % t interval of the mean
# difference twice: `paired_interval(a, b)` from the pairs, and `unpaired_interval(a, b)` as if the two groups had nothing
# to do with each other (equal variances). Which one is narrower here, and when is it not?
#
# <details><summary>Hint</summary>Pairs: the t interval of the differences, n − 1 degrees of freedom. Groups: pooled
# variance, 2n − 2 degrees of freedom, standard error √(2 s² / n).</details>


# %%
def paired_interval(a, b):
    ### BEGIN SOLUTION
    d = a - b
    half = scipy.stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / math.sqrt(len(d))
    return d.mean() - half, d.mean() + half
    ### END SOLUTION


def unpaired_interval(a, b):
    ### BEGIN SOLUTION
    n, pooled = len(a), (a.var(ddof=1) + b.var(ddof=1)) / 2
    half = scipy.stats.t.ppf(0.975, 2 * n - 2) * math.sqrt(2 * pooled / n)
    return (a - b).mean() - half, (a - b).mean() + half
    ### END SOLUTION


a, b = np.array([0.52, 0.58, 0.49, 0.61]), np.array([0.50, 0.55, 0.48, 0.57])
assert np.allclose(paired_interval(a, b), scipy.stats.ttest_rel(a, b).confidence_interval(0.95))
assert np.allclose(unpaired_interval(a, b), scipy.stats.ttest_ind(a, b).confidence_interval(0.95))
print(f"paired {np.round(paired_interval(a, b), 3)}")
print(f"unpaired {np.round(unpaired_interval(a, b), 3)}")

# %% [markdown]
# ### 4 · How sure is a crossing of three seeds? (★★★, 20 min)
#
# The bootstrap draws seeds with replacement. From three seeds it can make few different samples. Count them (order does not
# matter), and list the crossings (`crossing`, `None` where there is none) of the means of these samples, for three made-up
# seeds at 100, 1,000 and 10,000 images.
#
# <details><summary>Hint</summary><code>itertools.combinations_with_replacement</code>.</details>

# %%
made_up = np.array(
    [[-0.10, -0.02, 0.05], [-0.06, 0.01, 0.03], [-0.08, -0.04, -0.01]]
)  # [seeds, sizes]
n_samples, crossings = 0, []
### BEGIN SOLUTION
from itertools import combinations_with_replacement

samples = list(combinations_with_replacement(range(3), 3))
n_samples = len(samples)
crossings = [crossing([100, 1_000, 10_000], made_up[list(s)].mean(axis=0)) for s in samples]
### END SOLUTION
assert n_samples == math.comb(3 + 3 - 1, 3) == len(crossings)
assert crossings.count(None) >= 1  # the third seed alone never crosses
found = [c for c in crossings if c is not None]
assert 100 < min(found) < max(found) <= 10_000
print(
    f"{n_samples} different samples, {crossings.count(None)} without a crossing, "
    f"others from {min(found):,.0f} to {max(found):,.0f}"
)

# %% [markdown]
# ## Summary
#
# - A scaling study is nested sets, one recipe, early stopping on images that do not report, several seeds, pairs.
# - "No crossing up to N" is a result. So is a crossing, if its interval is closed, and that is usually wide.
# - An interval is worth what its coverage is: simulate it before you trust it.
# - Who is ahead depends on the number of images, the size of the models, the recipe, and what is asked.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - A. Kolesnikov et al., *Big Transfer (BiT): General Visual Representation Learning*, ECCV 2020.
# - B. Efron, R. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall, 1993.
