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
# | `quick` | three sizes × three models × three seeds, and regularisation tuned for each size | two minutes, once; then seconds |
# | `rehearsal` | a thousand to a million images, three families in two sizes | about an hour |
# | `full` | the same with larger models, each image of the million seen | for a GPU |

# %% [markdown]
# ## What you will learn
#
# - how to set up a data-scaling study: nested sets, one recipe for all sizes, stopping early on a set of its own;
# - why the set that stops the training must not be the set that the number comes from;
# - how to find where two noisy curves cross, and to say how sure that is, or that they do not cross;
# - what a paired comparison is worth when there are only a few seeds.
#
# **Prerequisites.** Notebook 02 (training, ViT and BiT of matched compute), 03 (few-shot accuracy); the t interval.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
REAL = ""  # real sets to evaluate features on, as "digits cifar10"; empty: those that are there

# %% [markdown]
# One cell of imports. `study` is this execution: what it finds goes to `figures/<preset>/04_data_scaling`.

# %%
import dataclasses
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.stats
import torch
from IPython.display import Markdown, display

from vitlab import plots, widgets
from vitlab.data.loader import batches
from vitlab.data.world import World, with_difficulty
from vitlab.experiments import data_scaling, frozen, ledger, scaling, scaling_sweeps, small_data
from vitlab.experiments.scaling_statistics import crossing, crossing_interval, differences, slope_per_decade
from vitlab.models import zoo
from vitlab.training.loop import train
from vitlab.training.recipe import Recipe
from vitlab.training.pretrain import multiply_adds, world_splits

# %% [markdown]
# The settings of this preset: the pair of equal compute that is compared, another ViT, and the world they learn.

# %%
study = ledger.study("04_data_scaling", PRESET, SEED, real=REAL or scaling.real_sets())
settings = data_scaling.SETTINGS[PRESET]
recipe, side = settings.setting.recipe, settings.setting.image_size
vit, bit = settings.pair
other_vit = next(model for model in settings.models if plots.family(model) == "ViT" and model != vit)
world = dataclasses.replace(with_difficulty(World(), settings.setting.difficulty), image_size=side)

# %% [markdown]
# ## Prediction
#
# **The paper** pre-trains on ImageNet (1.3 million images), ImageNet-21k (14 million) and JFT (300 million), and on subsets of
# JFT of 9, 30, 90 and 300 million. With the smallest, ResNets of equal compute are ahead and ViTs overfit more; from about 90
# million on, ViTs are ahead (Fig. 4). The reason given: a convolution has locality built in, which helps when data
# are few; with enough data it is better to learn the structure oneself.
#
# **We expect** the first half here too, from the reason given. The second half may well fail: our models are a thousand times
# smaller than the paper's, our sets ten thousand times, and our world is simpler than photographs.
#
# **Decision rules, fixed before the run.** Let $D$ be the test accuracy of ViT minus that of BiT, paired by seed, with its 95 % t
# interval. *(a)* The ResNet is ahead with little data: at the smallest size the whole interval is below zero.
# *(b)* ViT overtakes: at the largest size the whole interval is above zero, and the mean was below zero at some smaller size.
# **C03** is *reproduced* if both hold, *partly reproduced* if one does, *not reproduced* if neither does.
#
# **C04**: let $L$ be the accuracy of the larger ViT minus that of the smaller. Its growth from the smallest set to the largest,
# paired by seed, has an interval: *reproduced* if that is above zero and the larger ViT is behind at the smallest set (mean),
# *partly reproduced* if only the growth is, otherwise *not reproduced*.
#
# **C05**: few-shot accuracy of the ViT's frozen features, ten images of each of ten classes that pre-training has not seen,
# per tenfold data. *Reproduced* if the 95 % interval over the seeds is above zero, and so is the mean step to the largest set;
# *partly* if only the slope is; otherwise *not reproduced*.

# %% [markdown]
# ## Idea
#
# ### Nested sets
#
# Image $i$ of the world is a fixed picture, so a set of $n$ images is simply the first $n$: each set contains the
# smaller ones, and a difference between two sizes is never a difference in luck with the images both have. Each seed draws images
# of its own. Validation and test images are numbered far beyond, and never trained on.

# %%
small, large = (world_splits(world, n, n_validation=40, n_test=40, draw=SEED) for n in (20, 60))
assert torch.equal(large.train.images[:20], small.train.images)  # nested
assert torch.equal(large.test.images, small.test.images)  # the same test for all
together = torch.cat([s.images.flatten(1) for s in (large.train, large.validation, large.test)])
assert len(together.unique(dim=0)) == len(together)  # no picture in two sets, none twice

with plots.style():
    fig, ax = plt.subplots(figsize=(9, 1.6))
    shown = [image.permute(1, 2, 0).numpy() for image in small.train.images[:8]]
    plots.plot_captioned(shown, [small.train.classes[k] for k in small.train.labels[:8]], ax)
    ax.set_title("The first images of every training set of this seed")
    ledger.save_figure(study, fig, "pictures", alt="Eight painted images of the world, each over its class.")
    plt.show()

# %% [markdown]
# ### A set that is not seen whole
#
# Every run sees the same number of samples at most. Where the set is larger than that, each image is seen once or never, and
# only those that are seen need to be painted: a random choice from the whole set.

# %%
seen = world_splits(world, n_train=1_000_000, n_validation=4, n_test=4, draw=SEED, n_seen=100).train
assert len(seen) == 100 and len(seen.images.flatten(1).unique(dim=0)) == 100  # of a million, none twice
print(f"at most {recipe.samples:,} samples a run; sizes: {', '.join(f'{size:,}' for size in settings.sizes)} images")

# %% [markdown]
# ### Matched compute
#
# ViT and ResNet cost about the same multiply-adds for each image. The second ViT is another size, for C04.

# %%
cost = {name: multiply_adds(name, side) for name in settings.models}
for name, n in cost.items():
    print(f"{name:<14} {n / 1e6:6.2f} million multiply-adds per image")
assert max(cost[vit], cost[bit]) / min(cost[vit], cost[bit]) < 1.2

# %% [markdown]
# ### Stopping early
#
# A small set is soon learned by heart: the training loss goes to zero while the validation accuracy stands still or falls. So, as in the
# paper, the weights of the best validation accuracy are kept. With patience $p$, training ends when $p$ evaluations in a row
# have brought no new best. The rule in the open, and what the loop does:

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
on = Recipe(steps=24, batch_size=16, learning_rate=5e-3, eval_every=1)  # never stops early
feed = batches(tiny.train, on.batch_size, seed=SEED)
to_the_end = train(zoo.create("Lab-Ti/2", image_size=8, seed=SEED), feed, on, validation=tiny.validation)
stopped = train(zoo.create("Lab-Ti/2", image_size=8, seed=SEED), feed, dataclasses.replace(on, patience=4),
                validation=tiny.validation)  # fmt: skip
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
assert math.isclose(n_star, 1_000 * 10**0.25)  # a quarter of the way from −0.05 to 0.15, on a logarithmic axis
assert crossing(sizes, -np.abs(D)) is None  # never ahead
assert crossing(sizes, np.abs(D)) is None  # always ahead: nothing was overtaken
print(f"crossing at {n_star:,.0f} images")

# %% [markdown]
# ## Experiment
#
# Learning rate and weight decay are chosen once, at the middle size so that neither end is favoured, and then serve
# all sizes. All models had the same trials, with a seed of their own, judged on validation images
# (`data_scaling.sweep` makes those of `quick` again). Their validation accuracy in %, the chosen trial bold:

# %%
trials = pd.DataFrame(
    [
        {"model": model, "weight decay": decay, "learning rate": rate, "accuracy": 100 * accuracy}
        for model, found in scaling_sweeps.SWEEP.items()
        for (rate, decay), accuracy in found.items()
    ]
)
assert trials.groupby("model").size().nunique() == 1  # as many trials for all
wide = trials.pivot(index=["model", "weight decay"], columns="learning rate", values="accuracy")
best = wide.groupby("model").transform("max").max(axis=1)  # over both settings
wide.style.format("{:.1f}").apply(lambda row: np.where(row == best[row.name], "font-weight: bold", ""), axis=1)

# %% [markdown]
# One call. Every run is stored when it ends; called again, it reads what is there. The arm `same` has one recipe for all sizes
# (Fig. 4); in `tuned`, weight decay and label smoothing of the pair are chosen at every size by trials of its own, as in
# Fig. 3. A size's own choice replaces the shared one only where it was better by more than the noise of a trial.

# %%
table = data_scaling.data_scaling(PRESET, seed=SEED, real=REAL)
same, tuned = (table[table["arm"] == arm] for arm in ("same", "tuned"))
runs, histories, shots = scaling.outcomes(same), scaling.histories(same), scaling.few_shots(same)
runs.head()

# %% [markdown]
# How the ViT of the first seed learned, by size of its training set. Left the training loss, right the validation accuracy
# with the evaluation that was kept.

# %%
one = histories[(histories["model"] == vit) & (histories["seed"] == histories["seed"].min())]
with plots.style():
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    plots.plot_histories(one, left, y="train_loss")
    plots.plot_histories(one, right)
    left.set_title("Training images")
    right.set_title("Validation images")
    right.get_legend().remove()
    ledger.save_figure(
        study, fig, "early_stopping",
        alt="Training loss and validation accuracy of the ViT against steps for each size; dots mark the kept weights.",
    )  # fmt: skip
    plt.show()

# %% [markdown]
# The smallest set is learned by heart: its training loss goes to zero, and what the validation accuracy still gains it gains from
# the falling learning rate. The largest is still being learned when the steps run out; there it is the compute, not the data, that
# sets the limit. How much each run learned by heart is in the table: training minus test accuracy is the part that is not
# knowledge about the world.

# %%
shown = runs.groupby(["n_train", "model"], sort=True)[["test_accuracy", "train_accuracy", "best_step", "last_step"]].mean()
shown[["test_accuracy", "train_accuracy"]] *= 100
shown["learned by heart"] = shown["train_accuracy"] - shown["test_accuracy"]
shown.style.format(precision=1)

# %% [markdown]
# Turn the knob (this takes a kernel; nothing is trained again, the runs are stored). From the smallest set to the largest,
# watch whether the curves on the right still rise where they end, and compare the last number of the sentence, what was
# learned by heart, with the distance between the models on the left.

# %%
widgets.data_sizes(runs, histories)

# %% [markdown]
# ## Figure
#
# Fig. 4's and Fig. 3's kind side by side, and who is ahead.

# %%
gap, tuned_gap = (differences(found, vit, bit) for found in (runs, scaling.outcomes(tuned)))
with plots.style():
    fig, panels = plt.subplots(1, 3, figsize=(14, 4.2))
    plots.plot_data_scaling(runs, panels[0])
    plots.plot_data_scaling(scaling.outcomes(tuned), panels[1])
    plots.plot_family_difference(gap, panels[2])
    titles = ("One recipe for all sizes", "Regularisation tuned for each size", f"{vit} − {bit}, one recipe")
    for ax, title in zip(panels, titles, strict=True):
        ax.set_title(title)
    panels[1].set_ylim(panels[0].get_ylim())
    ledger.save_figure(
        study, fig, "data_scaling",
        alt="Left and middle: test accuracy of the models against training-set size, log axis, bands over seeds, with one "
        "recipe and with tuned regularisation. Right: ViT minus BiT in points with 95 % intervals and a line at zero.",
    )  # fmt: skip
    plt.show()

# %% [markdown]
# Left and middle, the mean of the seeds, a band from the worst to the best, and every seed as a point; guessing is 10 %. Right, the
# paired difference: below the dashed line the ResNet is ahead, above it the ViT. The intervals rest on few seeds and are wide for it;
# where one spans the dashed line, that size does not say who is ahead.
#
# What frozen features are worth elsewhere, as in Fig. 4: ten images a class, on classes of the world that pre-training has not
# seen, and on real images.

# %%
targets = list(shots["target"].unique())
names = {frozen.NEAR: "the world's other classes"}
with plots.style():
    fig, panels = plt.subplots(1, len(targets), figsize=(4.8 * len(targets), 4.0), squeeze=False)
    for ax, target in zip(panels[0], targets, strict=True):
        plots.plot_data_scaling(shots[shots["target"] == target].rename(columns={"accuracy": "test_accuracy"}), ax)
        ax.set(title=names.get(target, target), ylabel=f"{scaling.SHOTS}-shot accuracy (%)")
    ledger.save_figure(
        study, fig, "few_shot",
        alt="Few-shot accuracy of frozen features against the size of the training set, a panel for each target set, "
        "a line with a band over seeds for each model.",
    )  # fmt: skip
    plt.show()
probes = scaling.probes(same).groupby(["target", "n_train", "model"])["accuracy"].mean().mul(100).unstack()
probes.style.format("{:.1f}").set_caption("Linear probe on the same features, accuracy in %")

# %% [markdown]
# Guessing is 10 % here too. The linear probe sees hundreds of images a target and is the easier of the two measures.
#
# ## Verdict
#
# The rules from above, in code; the tuned arm goes through the same.

# %%
def c03(gap):
    """Verdict of the rule, the sizes' mean and interval, the crossing, its interval and how many resamples have one."""
    at = gap.groupby("n_train")[["difference", "low", "high"]].mean()
    matrix = gap.pivot(index="seed", columns="n_train", values="difference").to_numpy()  # [seeds, sizes]
    where = crossing(at.index.to_numpy(), at["difference"].to_numpy())
    resnet_first = bool(at["high"].iloc[0] < 0)
    vit_overtakes = bool(at["low"].iloc[-1] > 0) and where is not None
    verdict = ("not reproduced", "partly reproduced", "reproduced")[resnet_first + vit_overtakes]
    return verdict, at, where, *crossing_interval(at.index.to_numpy(), matrix, seed=SEED)


verdict, at, *cross = c03(gap)
tuned_verdict, tuned_at, *tuned_cross = c03(tuned_gap)
both = pd.concat({"one recipe": 100 * at, "tuned": 100 * tuned_at}, axis=1)
both.round(1).rename(columns=lambda name: f"{name} (points)", level=1)

# %% [markdown]
# Where the curves cross, in words:

# %%
def crossing_words(at, where, interval, found_in):
    reverse = crossing(at.index.to_numpy(), -at["difference"].to_numpy())  # the ResNet overtakes: not what the paper says
    words = f"no crossing up to {at.index[-1]:,} images"
    if where is not None:
        words = f"ViT overtakes at about {where:,.0f} images"
    elif reverse is not None:
        words = f"no crossing of the paper's kind; the other way round, the ResNet overtakes at about {reverse:,.0f} images"
    if interval is not None:
        words += f"; ViT overtakes in {found_in:.0%} of the bootstrap's resamples, 95 % of those at {interval[0]:,.0f} … {interval[1]:,.0f}"
    return words


print(f"one recipe: {crossing_words(at, *cross)}")
print(f"tuned: {crossing_words(tuned_at, *tuned_cross)}")

# %% [markdown]
# Both ends of both arms go into the ledger, with where they cross, if they do. The verdict is that of the first arm; the second
# says whether tuning changes it.

# %%
n = gap["seed"].nunique()
note = f"{vit} and {bit} from scratch on our painted world, its held-out images; at most {recipe.samples:,} samples a run; {{}}. "
note += "The paper: hundreds of millions of photographs, few-shot and fine-tuned accuracy on ImageNet"
for arm, rows, words in (("", at, crossing_words(at, *cross)), (", tuned", tuned_at, crossing_words(tuned_at, *tuned_cross))):
    for end, row in (("smallest", rows.iloc[0]), ("largest", rows.iloc[-1])):
        ledger.record(
            study, claim="C03", metric=f"ViT − BiT at the {end} set ({row.name:,} images){arm}",
            value=100 * row["difference"], interval=(100 * row["low"], 100 * row["high"]), n=n,
            unit="points", verdict=tuned_verdict if arm else verdict, note=note.format(words), table=runs,
        )  # fmt: skip
    display(Markdown(f"**C03{arm}: {tuned_verdict if arm else verdict}.** ViT − BiT: {100 * rows['difference'].iloc[0]:+.1f} points at "
                     f"{rows.index[0]:,} images, {100 * rows['difference'].iloc[-1]:+.1f} at {rows.index[-1]:,} (n = {n} seeds); {words}."))  # fmt: skip
if cross[0] is not None:
    ledger.record(study, claim="C03", metric="training images where the curves cross", value=cross[0], interval=cross[1],
                  n=n, unit="images", verdict=verdict, note="bootstrap over seeds")  # fmt: skip

# %% [markdown]
# **C04**, the size of the ViT against the size of the set: how much the larger one gains on the smaller from the smallest set
# to the largest.

# %%
larger, smaller = sorted((vit, other_vit), key=cost.get, reverse=True)
lead = differences(runs, larger, smaller).pivot(index="seed", columns="n_train", values="difference")  # [seeds, sizes]
growth = 100 * (lead.iloc[:, -1] - lead.iloc[:, 0])
low, high = ledger.mean_interval(growth)
behind_first = bool(lead.iloc[:, 0].mean() < 0)
verdict_c04 = ("not reproduced", "partly reproduced", "reproduced")[(low > 0) * (1 + behind_first)]
means = ", ".join(f"{100 * value:+.1f} at {size:,}" for size, value in lead.mean().items())
ledger.record(
    study, claim="C04", metric=f"growth of {larger} − {smaller} from {lead.columns[0]:,} to {lead.columns[-1]:,} images",
    value=growth.mean(), interval=(low, high), n=len(growth), unit="points", verdict=verdict_c04,
    note=f"{larger} − {smaller}: {means} images (points of accuracy on held-out images of the world)",
)  # fmt: skip
display(Markdown(f"**C04: {verdict_c04}.** {larger} − {smaller}: {means} images; growth {growth.mean():+.1f} points [{low:.1f}, {high:.1f}] "
                 f"(n = {len(growth)} seeds)."))  # fmt: skip

# %% [markdown]
# And **C05**: what ten times the data bring to the ViT's few-shot accuracy, one slope for each seed.

# %%
near = shots[(shots["model"] == vit) & (shots["target"] == frozen.NEAR)].sort_values("n_train")
curves = near.pivot(index="seed", columns="n_train", values="accuracy")
slopes = [100 * slope_per_decade(curves.columns.to_numpy(), row.to_numpy()) for _, row in curves.iterrows()]
low, high = ledger.mean_interval(slopes)
last_step = 100 * (curves.iloc[:, -1] - curves.iloc[:, -2]).mean()
verdict_c05 = ("not reproduced", "partly reproduced", "reproduced")[(low > 0) * (1 + bool(last_step > 0))]
ledger.record(
    study, claim="C05", metric=f"{scaling.SHOTS}-shot accuracy of {vit} per tenfold data, {curves.columns[0]:,} to {curves.columns[-1]:,} images",
    value=np.mean(slopes), interval=(low, high), n=len(slopes), unit="points", verdict=verdict_c05,
    note=f"frozen features on the world's other classes; the last step brings {last_step:+.1f} points; the paper: ImageNet",
)  # fmt: skip
display(Markdown(f"**C05: {verdict_c05}.** {np.mean(slopes):+.1f} points per tenfold data [{low:.1f}, {high:.1f}] "
                 f"(n = {len(slopes)} seeds), {last_step:+.1f} in the last step."))  # fmt: skip
if PRESET == "smoke":
    display(Markdown("*(`smoke` trains for a handful of steps: its numbers and verdicts mean nothing.)*"))

# %% [markdown]
# **How we differ from the paper.** A painted world instead of photographs, with half the strength of its variations
# (at full strength these short trainings hardly get off the ground, and the size of the set then says nothing); one pair
# of small models; few seeds; a few hundred steps.
#
# **An earlier look.** The same runs at `quick`, before the sums of a training step were taken in another order, gave +5.2 points
# [−1.9, 12.3] for the growth of C04, "not reproduced". The rule is the same; rounding alone has turned the verdict. Three
# seeds that happen to agree make a narrow interval: believe C04 when more of them do.
#
# ### Is it the world, the tuning, or the truth?
#
# While the world was being built, an untuned first trial on a version of it without rotation and position showed no advantage of the
# ResNet at 500 images. `small_data` asks what that was: 500 images from three worlds and from real sets, both families with
# one usual learning rate and with the best of the same trials, and one case with four times the steps. It runs at the preset
# `rehearsal` and above; our results are in `figures/reference/rehearsal/04_data_scaling`.

# %%
if PRESET in small_data.SETTINGS:
    causes = small_data.differences(small_data.chosen(small_data.small_data(PRESET, seed=SEED)))
    with plots.style():
        fig, ax = plt.subplots(figsize=(8, 4.2))
        plots.plot_causes(causes, ax)
        ax.set_title(f"{small_data.MODELS[0]} − {small_data.MODELS[1]} on {small_data.SETTINGS[PRESET].n_train} images")
        ledger.save_figure(
            study, fig, "small_data",
            alt="ViT minus BiT on few images, in points, for each world and real set, untuned and tuned, with intervals.",
        )  # fmt: skip
        plt.show()
    for (source, steps), rows in causes[causes["arm"] == "tuned"].groupby(["source", "steps"]):
        ledger.record(
            study, claim="C03", metric=f"ViT − BiT on few images: {source}, {steps} steps, tuned",
            value=100 * rows["difference"].mean(), interval=ledger.mean_interval(100 * rows["difference"]), n=len(rows),
            unit="points", verdict=verdict, note="what the outcome depends on; the verdict is that of the main study",
        )  # fmt: skip
else:
    print(f"not run at {PRESET!r}: it comes in {', '.join(small_data.SETTINGS)}")

# %% [markdown]
# ## Exercises
#
# ### 1 · Where do they cross? (★, 5 min)
#
# ViT − BiT is −8 points at 1,000 images and +2 points at 100,000. Where do the straight lines over $\log n$ cross? And
# if the second were −1?
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
# A model that has learned nothing is right in half of the images of a two-class test. It is evaluated twenty times on 100 images,
# each time right by chance. `reported_with_a_bug` keeps the best evaluation, and reports it. How much too high is that? Repair it
# with a second set of images.
#
# <details><summary>Hint</summary>Choose by one column, report the other.</details>

# %%
generator = np.random.default_rng(SEED)
validation, test = generator.binomial(100, 0.5, size=(2, 4_000, 20)) / 100  # [studies, evaluations] each


def reported_with_a_bug(validation, test):
    return test.max(axis=1)


def reported(validation, test):
    ### BEGIN SOLUTION
    return test[np.arange(len(test)), validation.argmax(axis=1)]
    ### END SOLUTION


print(f"with the bug {reported_with_a_bug(validation, test).mean():.3f}, repaired {reported(validation, test).mean():.3f}")
assert reported_with_a_bug(validation, test).mean() > 0.58  # knowledge out of nothing
assert abs(reported(validation, test).mean() - 0.5) < 0.005  # chance, as it should be
assert reported(validation, test).shape == (4_000,)

# %% [markdown]
# ### 3 · Pairs (★★, 15 min)
#
# Both families of a seed learn from the same images, so a lucky draw lifts both. Write the 95 % t interval of the mean
# difference twice: from the pairs, and as if the two groups had nothing to do with each other (equal variances). Which one is
# narrower here, and when is it not?
#
# <details><summary>Hint</summary>Pairs: the t interval of the differences, n − 1 degrees of freedom. Groups: pooled variance,
# 2n − 2 degrees of freedom, standard error √(2 s² / n).</details>

# %%
def paired(a, b):
    ### BEGIN SOLUTION
    d = a - b
    half = scipy.stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / math.sqrt(len(d))
    return d.mean() - half, d.mean() + half
    ### END SOLUTION


def unpaired(a, b):
    ### BEGIN SOLUTION
    n, pooled = len(a), (a.var(ddof=1) + b.var(ddof=1)) / 2
    half = scipy.stats.t.ppf(0.975, 2 * n - 2) * math.sqrt(2 * pooled / n)
    return (a - b).mean() - half, (a - b).mean() + half
    ### END SOLUTION


a, b = np.array([0.52, 0.58, 0.49, 0.61]), np.array([0.50, 0.55, 0.48, 0.57])
assert np.allclose(paired(a, b), scipy.stats.ttest_rel(a, b).confidence_interval(0.95))
assert np.allclose(unpaired(a, b), scipy.stats.ttest_ind(a, b).confidence_interval(0.95))
print(f"paired {np.round(paired(a, b), 3)}, unpaired {np.round(unpaired(a, b), 3)}")

# %% [markdown]
# ### 4 · How sure is a crossing of three seeds? (★★★, 20 min)
#
# The bootstrap draws seeds with replacement. From three seeds it can make few different samples. Count them (order does not
# matter), and list the crossings they give for three made-up seeds.
#
# <details><summary>Hint</summary><code>itertools.combinations_with_replacement</code>.</details>

# %%
made_up = np.array([[-0.10, -0.02, 0.05], [-0.06, 0.01, 0.03], [-0.08, -0.04, -0.01]])  # [seeds, sizes]
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
print(f"{n_samples} different samples, {crossings.count(None)} without a crossing, others from {min(found):,.0f} to {max(found):,.0f}")

# %% [markdown]
# ## Summary
#
# - A scaling study is nested sets, one recipe, early stopping on images that do not report, several seeds, pairs.
# - "No crossing up to N" is a result. So is a crossing, if most resamples have one, and its interval is usually wide.
# - With fixed compute the largest sets are limited by steps, not by images: a curve that flattens, or falls, there says
#   nothing about the data.
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021: §4.3,
#   Fig. 3, 4, Table 5.
# - A. Kolesnikov et al., *Big Transfer (BiT): General Visual Representation Learning*, ECCV 2020.
# - B. Efron, R. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall, 1993.
