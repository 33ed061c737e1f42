# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 04 · How much data does a ViT need?
#
# **Claim (C03).** With little pre-training data a ResNet is ahead; with much data ViT overtakes it.
# Also **C04**: larger ViTs need more data than smaller ones. **C05**: ViT's few-shot accuracy keeps rising with data.
#
# Paper: §4.3, Fig. 3 and 4, Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021.
#
# | preset | what runs | time on 2 CPU cores |
# |---|---|---|
# | `smoke` | three tiny sets, a handful of steps | seconds |
# | `quick` | three sizes × three models × three seeds | two minutes, once; then seconds |
# | `full` | a thousand to 256,000 images of 100 classes, ViT and ResNet in two sizes and a hybrid, five seeds | hours; its runs are the committed evidence, shown at every preset |

# %% [markdown]
# ## What you will learn
#
# - how to set up a data-scaling study: nested sets, one recipe for all sizes, stopping early on a set of its own;
# - why the set that stops the training must not be the set that the number comes from;
# - how to find where two noisy curves cross, and to say how sure that is, or that they do not cross;
# - what a paired comparison is worth when there are only a few seeds.
#
# **Prerequisites.** Notebook 02 (training, ViT and ResNet of matched compute), 03 (few-shot accuracy); the t interval.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# One cell of imports. `page` is this execution: its figures and numbers go to `figures/out/<preset>/04_data_scaling`.

# %%
import dataclasses
import math

import numpy as np
import pandas as pd
import scipy.stats
import torch

from vitlab import claims, plots, widgets
from vitlab.claims import Estimate
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World, with_difficulty
from vitlab.models import zoo
from vitlab.studies import runner, table, tables
from vitlab.studies.statistics import coverage, crossing, crossing_interval, differences
from vitlab.studies.statistics import differences_by_family, failed_starts, mean_interval
from vitlab.models.zoo import multiply_adds
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe

# %% [markdown]
# The settings of this preset, as they stand in the table of studies: the pair of equal compute that is compared, another
# ViT, and the world they learn.

# %%
page = claims.begin("04_data_scaling", PRESET, SEED)
base = table.preset("data_scaling", PRESET).base
models, sizes_here = (table.axis("data_scaling", PRESET, name) for name in ("model", "n_train"))
vit, resnet = models[:2]
side = base["image_size"]
world = with_difficulty(World(base["n_classes"], side), base["difficulty"])

# %% [markdown]
# ## Prediction
#
# **The paper** pre-trains on ImageNet (1.3 million images), ImageNet-21k (14 million) and JFT (300 million), and on subsets
# of JFT of 9, 30, 90 and 300 million. With the smallest, ResNets of equal compute are ahead and ViTs overfit more; from
# about 90 million on, ViTs are ahead (Fig. 4). The reason given: a convolution has locality built in, which helps when data
# are few; with enough data it is better to learn the structure oneself.
#
# **We expect** the first half here too, from the reason given. The second half may well fail: our models are hundreds to
# thousands of times smaller than the paper's, our largest set a thousand times (at `quick` ten thousand and more), and our
# world is simpler than photographs.
#
# **Decision rules, fixed before the run.** All differences are paired by seed, with a 95 % t interval over the seeds. A
# condition holds where the whole interval does, fails where the whole interval does not, and is undecided otherwise, as it
# is with fewer than five seeds. Less than 1 percentage point is no difference. Where undecided conditions leave the verdict
# open it is *inconclusive*, and the notebook says how many seeds would decide.
#
# **C03**: let $D$ be the test accuracy of the ViT minus that of the ResNet. *(a)* The ResNet is ahead with little data: at
# the smallest size $D$ is below zero. *(b)* ViT overtakes: at the largest size $D$ is above zero, and at some smaller size
# it is below. *Reproduced* if both hold, *partly reproduced* if one holds and one fails, *not reproduced* if both fail.
#
# **C04**: let $L$ be the accuracy of the larger ViT minus that of the smaller. *Reproduced* if $L$ grows from the smallest
# set to the largest and the larger ViT is behind at the smallest; *partly* if only the growth holds; *not* if $L$ does not
# grow.
#
# **C05**: few-shot accuracy of the ViT's frozen features, ten images of each of ten classes that pre-training has not seen.
# *Reproduced* if its slope per tenfold data is above zero, and so is the step to the largest set; *partly* if only the
# slope is; *not* if the slope is not.

# %% [markdown]
# ## Idea
#
# ### Nested sets
#
# Image $i$ of the world is a fixed picture, so a set of $n$ images is simply the first $n$: each set contains the
# smaller ones, and two sizes never differ in the images that both have. Each seed draws images of its own. Validation and
# test images have numbers far beyond, and are never trained on.

# %%
small, large = (world_splits(world, n, n_validation=40, n_test=40, draw=SEED) for n in (20, 60))
assert torch.equal(large.train.images[:20], small.train.images)  # nested
assert torch.equal(large.test.images, small.test.images)  # the same test for all
together = torch.cat([s.images.flatten(1) for s in (large.train, large.validation, large.test)])
assert len(together.unique(dim=0)) == len(together)  # no picture in two sets, none twice

shown = [image.permute(1, 2, 0).numpy() for image in small.train.images[:8]]
alt = "Eight painted images of the world, each over its class."
with plots.figure(page, "pictures", alt=alt, figsize=(9, 1.6)) as ax:
    plots.plot_pictures({"": shown}, ax, captions=[small.train.classes[k] for k in small.train.labels[:8]])
    ax.set_title("The first images of every training set of this seed")

# %% [markdown]
# ### Sets larger than a training sees
#
# Every run sees the same number of samples at most. Where the set is larger than that, each image is seen once or never,
# and only those that are seen need to be painted: a random choice from the whole set.

# %%
seen = world_splits(world, n_train=1_000_000, n_validation=4, n_test=4, draw=SEED, n_seen=100).train
assert (
    len(seen) == 100 and len(seen.images.flatten(1).unique(dim=0)) == 100
)  # of a million, none twice
sizes = ", ".join(f"{size:,}" for size in sorted(sizes_here))
print(f"at most {base['steps'] * base['batch_size']:,} samples a run; sizes: {sizes} images")

# %% [markdown]
# ### Matched compute
#
# ViT and ResNet cost about the same multiply-adds for each image. The second ViT is another size, for C04.

# %%
cost = {name: multiply_adds(name, side) for name in models}
for name, n in cost.items():
    print(f"{name:<14} {n / 1e6:6.2f} million multiply-adds per image")
assert max(cost[vit], cost[resnet]) / min(cost[vit], cost[resnet]) < 1.2

# %% [markdown]
# ### Stopping early
#
# A small set is soon memorized: the training loss goes to zero while the validation accuracy stands still or falls. So, as
# in the paper, the weights of the best validation accuracy are kept. With patience $p$, training ends when $p$ evaluations
# in a row have brought no new best. The rule in the open, and what the loop does:


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
# If $D$ ends at or below zero, or never was below, there is no crossing, and `None` says so. It must be able to say so:
# a method that always finds a crossing finds one in noise.

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
# A 95 % interval promises to hold the truth 95 times in 100. Whether it does can be simulated: draw seeds from a
# distribution whose mean is known, make the interval, count. Three kinds of seeds: all learn; 15 in 100 never start to
# learn; all learn, and what is wanted is where two curves cross. Resampling a handful of seeds, the bootstrap, gives too
# narrow an interval. Student's t does not, but no interval of the mean is right where some seeds have learned and some have
# not: runs that stay at chance while others are far above it are counted and reported, and no interval is given. For a
# crossing, the means at all sizes are drawn many times from their t distribution; the middle 95 % of these draws' crossings
# are its interval.


# %%
def bootstrap(values):
    draws = np.random.default_rng(0).choice(values, (500, len(values))).mean(axis=1)
    return np.quantile(draws, [0.025, 0.975])


def learned(n):
    return lambda rng: rng.normal(0.7, 0.02, n)


def some_fail(n):
    return lambda rng: np.where(rng.random(n) < 0.15, 0.1, rng.normal(0.7, 0.02, n))


def differences_of(n):  # of seeds at three sizes, whose mean crosses where D does
    return lambda rng: D + rng.normal(0, 0.02, (n, 1)) + rng.normal(0, 0.02, (n, 3))


def careful(values):  # of the runs that start, and none where one did not
    failed = failed_starts(values, n_images=2_000, chance=0.1)
    return None if failed.any() else mean_interval(values)


# %% [markdown]
# Each kind 500 times, with 3, 5 and 10 seeds. What is wanted is 95 % everywhere.

# %%
where = lambda values: crossing_interval(sizes, values, draws=400)[0]  # noqa: E731
cases = {
    "all learn: bootstrap": (bootstrap, learned, 0.7),
    "all learn: Student's t": (mean_interval, learned, 0.7),
    "15 % never start: Student's t": (mean_interval, some_fail, 0.85 * 0.7 + 0.15 * 0.1),
    "15 % never start: no interval where one did": (careful, some_fail, 0.7),
    "crossing: Student's t of the means": (where, differences_of, n_star),
}
covered = {
    name: {f"{n} seeds": coverage(make, draw(n), truth, 500) for n in (3, 5, 10)}
    for name, (make, draw, truth) in cases.items()
}
pd.DataFrame(covered).T.style.format("{:.0%}").set_caption("how often a 95 % interval is right")

# %% [markdown]
# ## Experiment
#
# Learning rate and weight decay are chosen once, at the middle size so that neither end is favoured, and then serve all
# sizes. All models had the same trials, judged on validation images, with seeds that no run below uses: for `quick` every
# setting with three, for `full` every setting with one and the best three with two more. (The hybrid of `full` in this
# notebook, R+Lab-Ti/16, has no trials of `full`: it takes the setting that `quick` chose.) What is chosen is high and
# steady: the mean of the seeds minus their standard deviation. The table has this score in %, the chosen trial bold.

# %%
trials = tables.trials("data_scaling", PRESET if PRESET == "full" else "quick")
if PRESET == "full":  # the settings with all three seeds
    trials = trials.groupby(["model", "weight_decay", "learning_rate"]).filter(lambda rows: len(rows) == 3)
score = tables.scores(trials, ["model", "weight_decay", "learning_rate"])
wide = 100 * score.unstack("learning_rate")
best = wide.groupby("model").transform("max").max(axis=1)  # over both settings
bold = lambda row: np.where(row == best[row.name], "font-weight: bold", "")  # noqa: E731
wide.style.format("{:.1f}", na_rep="").apply(bold, axis=1)

# %% [markdown]
# One call. Every run is stored when it ends; called again, it reads what is there. One recipe serves all sizes, as in Fig.
# 4: what differs is the models, and not how well each set's regularisation was chosen. Training stops early.

# %% tags=["long"]
live = runner.run("data_scaling", PRESET, SEED)
runs, histories, shots = (take(live) for take in (tables.accuracies, tables.histories, tables.few_shots))
runs.head()

# %% [markdown]
# The runs of `full` take hours. They are committed as evidence and read here, all seeds together: the claims are judged by
# them, and the live runs show how it is done.

# %%
by_full, where_from = tables.evidence("data_scaling"), tables.about("data_scaling")
print(where_from)

# %% [markdown]
# How the ViT of the first seed learned, by size of its training set. Left the training loss, right the validation accuracy
# with the evaluation that was kept.

# %%
one = histories[(histories["model"] == vit) & (histories["seed"] == histories["seed"].min())]
alt = "Training loss and validation accuracy of the ViT against steps for each size; dots mark "
alt += "the kept weights."
with plots.figure(page, "early_stopping", 1, 2, alt=alt, figsize=(9.5, 3.8)) as (left, right):
    plots.plot_histories(one, left, y="train_loss")
    plots.plot_histories(one, right)
    left.set_title("Training images")
    right.set_title("Validation images")
    right.get_legend().remove()

# %% [markdown]
# The smallest set is memorized: its training loss goes to zero, and the validation accuracy hardly rises after that. The
# largest is still being learned when the steps run out; there it is the compute, not the data, that sets the limit. The
# table has the mean over the seeds of each model at each size, with its generalization gap: training minus test accuracy
# (the former on a few hundred training images), what was learned about the training images and not about the world.

# %%
shown = runs.groupby(["n_train", "model"], sort=True)[
    ["test_accuracy", "train_accuracy", "best_step", "last_step"]
].mean()
shown[["test_accuracy", "train_accuracy"]] *= 100
shown["generalization gap"] = shown["train_accuracy"] - shown["test_accuracy"]
shown.style.format(precision=1)

# %% [markdown]
# Turn the knob (this takes a kernel; nothing is trained again, the runs are stored). From the smallest set to the largest,
# watch whether the curves on the right still rise where they end, and compare the generalization gaps in the sentence with
# the distance between the models on the left.

# %%
widgets.data_sizes(runs, histories)

# %% [markdown]
# ## Figure
#
# First the runs of `full`: equal samples for every size, 100 classes. Left the accuracy on images of the world that no
# model was trained on, in the middle the paired difference, right the few-shot accuracy on other classes, Fig. 4's measure.


# %%
def paired(runs, preset, models=(vit, resnet)):
    """First model − second (ViT − ResNet of the pair), with what tells runs that never left chance."""
    there = table.preset("data_scaling", preset).base
    return differences(runs, *models, there["n_test"], chance=1 / there["n_classes"])


def as_tests(rows):
    """The same rows for what draws or compares test accuracies."""
    return rows.rename(columns={"accuracy": "test_accuracy"})


def other_classes(shots):
    """Few-shot accuracy on ten classes of the world that pre-training has not seen."""
    return shots[shots["target"] == "world"]


def paired_on_other_classes(shots, preset, models=(vit, resnet)):
    there = table.preset("data_scaling", preset).base
    return differences(as_tests(other_classes(shots)), *models, there["n_frozen"], chance=1 / 10)


PAIR = ("Lab-Ti/8", "BiT-Lab-Ti/8")  # of `full`
pretrained_on = "pre-training images (number, log scale)"  # where accuracy is that of other images

# %% [markdown]
# The evidence of all seeds.

# %%
full_runs, full_shots = tables.accuracies(by_full), tables.few_shots(by_full)
alt = "Runs of full: test accuracy of ViT and ResNet against the number of training images, their "
alt += "difference in points with 95 % intervals, and few-shot accuracy on other classes."
with plots.figure(page, "full", 1, 3, alt=alt, figsize=(14, 4.2)) as panels:
    plots.plot_data_scaling(full_runs, panels[0])
    plots.plot_who_wins(paired(full_runs, "full", PAIR), panels[1])
    plots.plot_data_scaling(as_tests(other_classes(full_shots)), panels[2])
    panels[2].set(xlabel=pretrained_on, ylabel="10-shot accuracy (%)")
    for ax, title in zip(panels, ("Held-out images", "ViT-Ti/8 − ResNet-Ti/8", "Other classes"), strict=True):
        ax.set_title(title)
    panels[0].figure.suptitle(where_from)

# %% [markdown]
# The two measures need not agree. Held-out images ask how well the classes of pre-training were learned; few-shot accuracy,
# which Fig. 4 has, asks how much of what was learned serves classes that were not there. Where a ResNet leads in the one
# and a ViT in the other, who wins depends on what is asked. The differences in points:


# %%
def in_words(gap):
    means = 100 * gap.groupby("n_train")["difference"].mean()
    return ", ".join(f"{value:+.1f} at {size:,} images" for size, value in means.items())


full_gap = paired(full_runs, "full", PAIR)
print(f"{full_gap['seed'].nunique()} seeds")
print(f"held-out images:         ViT − ResNet {in_words(full_gap)}")
print(f"few-shot, other classes: ViT − ResNet {in_words(paired_on_other_classes(full_shots, 'full', PAIR))}")

# %% [markdown]
# Two questions about that. Is it so of smaller models too? The second ViT of the study, with the ResNet of its compute, is
# drawn beside the pair of above. And is it the recipe? One recipe serves all numbers of images, as in Fig. 4; for the
# smaller sets of Fig. 3 the paper tunes the regularisation. `few_images` does so for the larger pair with 1,000 images:
# learning rate and weight decay chosen anew, fourteen settings with one seed and the best three with two more, alike for
# both models; then the five seeds of above. In the figure it is the point that is alone.


# %%
PAIRS = {"Ti/8": ("Lab-Ti/8", "BiT-Lab-Ti/8"), "Mu/8": ("Lab-Mu/8", "BiT-Lab-Mu/8")}
TUNED = {"Ti/8, tuned": PAIRS["Ti/8"]}


def by_pair(runs, shots, pairs=PAIRS):
    """ViT − ResNet of each of the pairs, by measure."""
    rows_of = {"held-out images": (paired, runs), "few-shot, other classes": (paired_on_other_classes, shots)}
    return {
        measure: pd.concat(gap(rows, "full", models).assign(pair=name) for name, models in pairs.items())
        for measure, (gap, rows) in rows_of.items()
    }


# %% [markdown]
# All three in one figure.

# %%
few = tables.evidence("few_images")
leads = by_pair(full_runs, full_shots)
tuned = by_pair(tables.accuracies(few), tables.few_shots(few), TUNED)
alt = "ViT minus ResNet in points against the number of images, with intervals, a line for the larger "
alt += "pair, one for the smaller, and a point for the larger with a recipe tuned for 1,000 images; "
alt += "left on held-out images, right few-shot on other classes."
with plots.figure(page, "full_pairs", 1, 2, alt=alt, figsize=(11, 4.2)) as panels:
    for ax, (measure, rows) in zip(panels, leads.items(), strict=True):
        both = pd.concat([rows, tuned[measure]])
        plots.plot_who_wins(both, ax, by="pair").set_title(measure.capitalize())
        ax.set_xlabel(pretrained_on)
    panels[0].figure.suptitle(f"{where_from}; {tables.about('few_images')}")

# %% [markdown]
# The same in numbers; *growth* is from the fewest images to the most, of the seeds that have both.


# %%
lines = {}
for measure, rows in leads.items():
    for pair, each in rows.groupby("pair", sort=False):
        wide = 100 * each.pivot(index="seed", columns="n_train", values="difference")
        columns = {f"{size:,}": wide[size] for size in wide} | {"growth": wide.iloc[:, -1] - wide.iloc[:, 0]}
        lines[pair, measure] = {name: Estimate.of(each.dropna(), "points") for name, each in columns.items()}
pd.DataFrame(lines).T.style.set_caption(where_from)

# %% [markdown]
# Of the smaller pair the order is the paper's. On held-out images the ResNet leads by 13.7 points [11.9, 15.5] with 1,000
# images, and by 3.55 [2.65, 4.45] with 256,000. Few-shot, Fig. 4's measure, the two are not told apart with 1,000 images, and
# with 256,000 the ViT is ahead by 4.12 points [3.34, 4.91]. Of the larger pair the ViT leads where images are fewest, for the
# ResNet fails there: all these models are right on every one of their 1,000 training images, and of the held-out ones the
# larger ResNet then tells half as many as the smaller. The comparison of pairs was not planned: it was made when the runs
# were known. The rule below is about the larger pair, with one recipe.
#
# What the recipe has to do with it: both recipes in numbers, of the same five seeds with the same 1,000 images.


# %%
def in_numbers(rows):
    """Of the larger pair with the fewest images, by measure: accuracy of each in %, and their difference in points."""
    rows = rows[rows["n_train"].eq(1_000) & rows["model"].isin(PAIR) & rows["seed"].lt(5)]
    few_shot = as_tests(other_classes(tables.few_shots(rows)))
    found = {}
    for measure, each in {"held-out images": tables.accuracies(rows), "few-shot, other classes": few_shot}.items():
        percent = 100 * each.pivot(index="seed", columns="model", values="test_accuracy")
        found[measure] = {name: Estimate.of(percent[name], "%") for name in PAIR}
        found[measure]["ViT − ResNet"] = Estimate.of(percent[PAIR[0]] - percent[PAIR[1]], "points")
    return found


lines = {}
for chosen_with, study, rows in (("16,000", "data_scaling", by_full), ("1,000", "few_images", few)):
    lines |= {(measure, f"{chosen_with} images"): line for measure, line in in_numbers(rows).items()}
    for config in table.runs(study, "full")[:2]:
        rate, decay = config["learning_rate"], config["weight_decay"]
        print(f"chosen with {chosen_with} images: {config['model']:<12} rate {rate:g}, decay {decay:g}")
pd.DataFrame(lines).T.rename_axis(["", "recipe chosen with"]).style.set_caption(tables.about("few_images"))

# %% [markdown]
# Where those settings lie among the others: validation accuracy in % of every trial with the first seed.

# %%
tried = tables.trials("few_images")
tried = tried[tried["seed"] == 9_997].set_index(["model", "weight_decay", "learning_rate"])
wide = tried["validation_accuracy"].mul(100).unstack().style.format("{:.1f}", na_rep="")
wide.format_index("{:g}", level="weight_decay").format_index("{:g}", axis=1)

# %% [markdown]
# Tuned for 1,000 images the ResNet has ten times the weight decay and a fourth of the rate, and tells 30.1 % of the
# held-out images instead of 20.6 %; the ViT, tuned as well, 38.2 % instead of 35.9 %. The ViT's lead on held-out images
# is halved, from 15.3 points [10.9, 19.6] to 8.2 [7.6, 8.7], and few-shot it falls from 16.7 to 9.5. So half of the
# ViT's lead was the recipe. The other half stays: ViT-Ti/8 is ahead of this ResNet with few images even where both are
# tuned for them, and the smaller ResNet, with a recipe chosen at 16,000 images, is ahead of both on held-out images.
# The best settings have neither the least nor the most of the decays that were tried. Label smoothing and dropout, the
# other two of the paper's, were not tuned. The study was planned when the runs above were known; the verdict does not
# use it.
#
# How far seeds lie apart, by which one sees whether the recipes are stable: held-out accuracy in %, of every model and
# size. The hyper-parameters were chosen at 16,000 images. Chance is 1 %, and no run has stayed there.

# %%
final = 100 * full_runs.groupby(["n_train", "model"])["test_accuracy"].agg(["mean", "std", "min"])
final.assign(seeds=full_runs.groupby(["n_train", "model"]).size()).style.format(precision=1)

# %% [markdown]
# The same models on real images, which none of them was pre-trained on: ten images a class with frozen features,
# and after fine-tuning all weights for 150 steps on at most 5,000 images of the set, at one learning rate for all models,
# which was not tuned.

# %%
measures = {"10-shot": full_shots, "fine-tuned": tables.fine_tuned(by_full)}
panels_of = [(name, rows, target) for target in ("cifar10", "digits") for name, rows in measures.items()]
alt = "Accuracy on CIFAR-10 and on the digits, few-shot and fine-tuned, against the number of "
alt += "pre-training images, a line with a 95 % interval for each model."
with plots.figure(page, "full_real", 1, 4, alt=alt, figsize=(17, 4.0)) as panels:
    for ax, (name, rows, target) in zip(panels, panels_of, strict=True):
        plots.plot_data_scaling(as_tests(rows[rows["target"] == target]), ax)
        ax.set(title=f"{target}, {name}", xlabel=pretrained_on, ylabel=f"{name} accuracy (%)")

# %% [markdown]
# Fine-tuned, ResNet-Ti/8 is ahead of both ViTs in the mean on both sets at every number of pre-training images; the
# smaller ResNet is behind both on CIFAR-10. There ResNet-Ti/8 gains nine points from 1,000 to 16,000 images and nothing from
# there on, and the ViTs gain little. With frozen features on CIFAR-10 the intervals of ResNet-Ti/8 and the two ViTs overlap
# from 4,000 images on. The hybrid's setting is the one that `quick` chose: that it is last with frozen features may be due
# to that.
#
# Now the live run, and who is ahead in it.

# %%
gap = paired(runs, PRESET)
alt = "Left: test accuracy of the models against training-set size, log axis, bands for the 95 % "
alt += "intervals. Right: ViT minus ResNet in points with 95 % intervals and a line at zero."
with plots.figure(page, "data_scaling", 1, 2, alt=alt, figsize=(10, 4.2)) as (left, right):
    plots.plot_data_scaling(runs, left)
    plots.plot_who_wins(gap, right)
    left.set_title(f"Held-out images, {PRESET}")
    right.set_title("ViT − ResNet")

# %% [markdown]
# Left, the mean of the seeds, a band for its 95 % interval, and every seed as a point; guessing is 10 %. Right, the paired
# difference: below the dashed line the ResNet is ahead, above it the ViT. The intervals rest on few seeds and are wide for
# it; where one spans the dashed line, that size does not say who is ahead.
#
# What frozen features are worth elsewhere, as in Fig. 4: ten images a class, on classes of the world that pre-training has
# not seen, and on real images.

# %%
targets = list(shots["target"].unique())
names = {"world": "the world's other classes"}
alt = (
    "Few-shot accuracy of frozen features against the size of the training set, a panel for each "
    "target set, a line with a band for the 95 % interval of each model."
)
shape = {"figsize": (4.8 * len(targets), 4.0), "squeeze": False}
with plots.figure(page, "few_shot", 1, len(targets), alt=alt, **shape) as panels:
    for ax, target in zip(panels[0], targets, strict=True):
        plots.plot_data_scaling(as_tests(shots[shots["target"] == target]), ax)
        ax.set(title=names.get(target, target), ylabel="10-shot accuracy (%)")
        ax.set_xlabel(pretrained_on)
probes = tables.probes(live).groupby(["target", "n_train", "model"])["accuracy"].mean()
probes.mul(100).unstack().style.format("{:.1f}").set_caption("Linear probe on the same features, accuracy in %")

# %% [markdown]
# Guessing is 10 % here too. The linear probe sees hundreds of images a target and is the easier of the two measures.
#
# ## Verdict
#
# By the rules from above, from the evidence of all seeds (`vitlab.claims.rules.c03`), with what the few-shot measure says
# next to it; this run's own difference stands under it.

# %%
claims.show(page, "C03", live={
    f"ViT − ResNet at {size:,} images": Estimate.of(100 * each["difference"], "points")
    for size, each in gap.groupby("n_train")
})

# %% [markdown]
# Where the curves of the larger pair cross, if they do, by the seeds that have all sizes. An interval that is open to one
# side says that the crossing may lie beyond the sizes.

# %%
wide = 100 * full_gap.pivot(index="seed", columns="n_train", values="difference").dropna()
sizes, mean = wide.columns.to_numpy(), wide.mean().to_numpy()
print(f"ViT overtakes at: {crossing(sizes, mean)}; ResNet overtakes at: {crossing(sizes, -mean):,.0f} images")
print("95 % interval of the latter:", *(f"{bound:,.0f}" for bound in crossing_interval(sizes, -wide.to_numpy())[0]))

# %% [markdown]
# **C04**, the size of the ViT against the size of the set: how much the larger one gains on the smaller from the smallest
# set to the largest. And **C05**: what ten times the data bring to the ViT's few-shot accuracy, one slope for each seed. The
# margin of 1 point makes a condition fail where its whole interval lies below 1 point; a rise whose interval lies above zero
# and reaches beyond 1 point counts, even if its mean is smaller.

# %%
claims.show(page, "C04")
claims.show(page, "C05")
if PRESET == "smoke":
    print("Preset smoke trains for a handful of steps: its numbers mean nothing.")

# %% [markdown]
# **How we differ from the paper.** A painted world instead of photographs, with half the strength of its variations (at
# full strength short trainings hardly get off the ground, and the size of the set then says nothing); small models, one
# recipe. The verdicts are those of `full`: 2,000 steps, five seeds; the live run at `quick` has 192 steps and three seeds.
# At the largest size of `full` each image is seen once and the training loss still falls when the steps run out: that point
# is limited by the steps as much as by the images.
#
# **What rounding alone moves.** The same runs on another machine, or with the sums of a training step taken in another
# order, differ by rounding, and after a few hundred steps by points: in an earlier version of this study the growth of C04
# came out between +5 and +6 points on two machines, its interval above zero once and across it another time. Three seeds
# that happen to agree make a narrow interval. This is why fewer than five seeds decide nothing here.
#
# ### Who wins when?
#
# Whether a ViT or a ResNet is ahead depends on more than the number of images. `who_wins` trains both in worlds whose
# classes are told by one cue alone (texture, which a single patch shows; contour or arrangement, which are global) or by
# several together (*mixed* in the figure), and with few classes or many. `real_subsets` trains both from scratch on ever
# larger parts of real sets, each with the best of the same learning rates. Both belong to the preset `full`; at other
# presets the runs that were published are drawn, and the figure's title says how many of those planned they are.


# %%
by_world = tables.by_world(tables.evidence("who_wins"))
leads = differences_by_family(by_world, "world")
alt = "ViT minus ResNet in points against the number of training images, a line with intervals "
alt += "for each world; above zero the ViT is ahead."
with plots.figure(page, "who_wins", alt=alt, figsize=(9, 4.6)) as ax:
    plots.plot_who_wins(leads, ax)
    ax.set_title(tables.about("who_wins"))

# %% [markdown]
# The means in numbers: how many of the held-out images each of them tells, in %.

# %%
order = list(by_world["world"].unique())
means = by_world.pivot_table(index=["world", "n_train"], columns="model", values="test_accuracy")
(100 * means.loc[order]).rename_axis(columns=None).style.format("{:.1f}")

# %% [markdown]
# What the five seeds of `full` say:
#
# - Where **one cue** tells ten classes, texture, contour or arrangement (colour alone was not tried), the ResNet is ahead
#   at every size: by 12 to 16 points with textures, by 27 to 80 with contours or arrangements. On contours the ViT never
#   starts: with 8,000 images and more it stays at chance even on the images that it is trained on.
# - With **several cues** and ten classes the ResNet leads by 3 to 4 points at every size.
# - With several cues and **100 classes** the ViT is ahead by 14.6 points [11.8, 17.3] with 1,000 images. With 8,000 and
#   with 64,000 the intervals span zero.
#
# The paper's crossing, the ResNet ahead with few images and the ViT with many, is in none of these worlds. The ViT is ahead
# only where there are many classes and few images. Three reservations. The models are those of the larger pair above. The
# trainings have 1,000 steps; after the 2,000 of the study above, in the same world of 100 classes, the ResNet is ahead from
# 4,000 images on. And the learning rates were chosen in that world: another one may let the ViT start on contours.
#
# Turn the knob: one world, both families' curves and their difference.

# %%
widgets.worlds(by_world, leads)

# %% [markdown]
# The same on real images, without any pre-training: the ViT's and the ResNet's best learning rate was chosen for every
# set and size by the same trials, so that neither is held back by the other's.

# %%
on_parts = tables.chosen(tables.evidence("real_subsets"), ["source", "n_train", "model"])
leads = differences_by_family(on_parts, "source")
alt = "ViT minus ResNet in points against the number of real training images, a line with "
alt += "intervals for each set."
with plots.figure(page, "real_subsets", alt=alt, figsize=(9, 4.6)) as ax:
    plots.plot_who_wins(leads, ax, by="source")
    ax.set_title(tables.about("real_subsets"))

# %% [markdown]
# Accuracy on 1,000 test images in %, mean over the seeds, and the learning rate that was chosen:

# %%
shown = on_parts.groupby(["source", "n_train", "model"]).agg(
    accuracy=("test_accuracy", "mean"), rate=("learning_rate", "first"), seeds=("seed", "size")
)
shown["accuracy"] *= 100
shown.unstack("model").style.format("{:.1f}", subset=["accuracy"])

# %% [markdown]
# On the digits the ResNet's lead shrinks with the data, as in the paper: from 5.4 points [3.2, 7.6] with 100 images over 2.1
# [0.4, 3.7] with 400 to none with 1,300, where both are right in 98 of 100 images: that near the ceiling, more images
# could hardly bring the ViT ahead.
#
# On parts of CIFAR-10 the ResNet is ahead at every size, by 12 to 16 points with intervals that leave no doubt, and a
# hundred times as many photographs do not bring the ViT nearer: there is no crossing up to 49,000. In the paper it takes
# millions. Two reservations. Every training has 1,000 steps of 128 images, so that the largest part is seen fewer than
# three times; both families would go on learning there. And some best rates are at an edge of the grid: the ResNet's is the
# largest of the three at every size, the ViT's the smallest at 500 images. From 2,000 images on the ViT's is inside the
# grid, so that a wider one could only lengthen the ResNet's lead there.

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
# - Who is ahead depends on what tells the classes, on how many there are, on the number of images and on the size of the
#   models. With 100 classes the ViT of the larger pair is ahead with 1,000 images and the ResNet with 4,000 and more: the
#   reverse of the paper's order. Of the smaller pair the ResNet leads by ever less, and few-shot the ViT overtakes: the
#   paper's order.
# - With fixed compute the largest sets are limited by steps, not by images: a curve that flattens, or falls, there says
#   nothing about the data.
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021: §4.3,
#   Fig. 3, 4, Table 5.
# - A. Kolesnikov et al., *Big Transfer (BiT): General Visual Representation Learning*, ECCV 2020.
# - B. Efron, R. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall, 1993.
