# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 12 · Ledger and method
#
# **Every claim of the paper that was tested, in one picture; how a verdict is reached; and five planted fakes that you
# learn to catch.**
#
# The verdicts are of the committed evidence, whatever was run last. All numbers stand in `docs/ledger.md`.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports.

# %%
import math

import numpy as np
import pandas as pd
import scipy.stats
import torch

from vitlab import claims, plots
from vitlab.claims import Estimate, report, rules
from vitlab.claims.claims import ALL
from vitlab.claims.verdicts import above, judge
from vitlab.models import zoo
from vitlab.studies.statistics import crossing, mean_interval

page = claims.begin("12_ledger_and_method", PRESET, SEED)

# %% [markdown]
# A square is a claim: C01 to C21 of the paper, L01 and L02 of later work.

# %%
found = [(name, each.short, str(rules.verdict(name).ruling.verdict)) for name, each in ALL.items()]
verdicts = pd.DataFrame(found, columns=["claim", "short", "verdict"])
counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts["verdict"].value_counts().items())
alt = f"A square for each claim, C01 to C21, L01 and L02, with its name; the colour says: {counts}."
with plots.figure(page, "verdicts", alt=alt, figsize=(11.5, 3)) as ax:
    plots.plot_verdicts(verdicts, ax)
print(report.findings())

# %% [markdown]
# We observe that what is a property of the model holds (its equations, its filters, its positions), while what depends on
# scale holds in part. *Not reproduced* means that the effect is not there at our scale, not that the paper is wrong: our
# models are tens to thousands of times smaller. Under which condition the effect is there, or what it would take:

# %%
open_claims = verdicts[verdicts["verdict"] != "reproduced"].set_index("claim")
conditions = open_claims.assign(condition=[ALL[name].condition for name in open_claims.index])
left = {"selector": "th", "props": "text-align: left"}
conditions.style.set_properties(**{"text-align": "left"}).set_table_styles([left])

# %% [markdown]
# ## How a verdict is reached
#
# 1. A **rule** is written down, dated and committed before the runs: which difference, above which bound.
# 2. A **pilot** shows the effect's spread, and that no hyper-parameter that was chosen is the smallest or largest tried.
# 3. A **plan** says how many seeds. All run; none is added to narrow an interval.
# 4. Each difference is **paired by seed**: both models learn from the same images. Its 95 % t interval makes a condition
#    *hold* (the whole interval is on the right side), *fail* (none of it is) or stay *undecided*. Fewer than five seeds
#    decide nothing.
# 5. All conditions hold: **reproduced**. Some: **partly**. None, or one that the rest needs fails: **not reproduced**.
#    Where the intervals allow more than one of these: **inconclusive**.
#
# Negative results stay, and so do the dates of rules that changed (`docs/LOG.md`). A rule at work on made-up seeds:

# %%
rng = np.random.default_rng(SEED)
for words, truth in {"a clear lead": 3.0, "a lead within the noise": 0.4}.items():
    lead = Estimate.of(rng.normal(truth, 1.0, size=6), "points")
    print(f"{words}: {lead}: {judge(above(lead, margin=1.0)).verdict}")

# %% [markdown]
# ## How often is an interval right?
#
# A 95 % interval promises to hold the truth 95 times in 100. Does it? Draw seeds from a distribution whose mean is known,
# make the interval, count. The *bootstrap* resamples the seeds; Student's *t* takes their spread.

# %%
def bootstrap(values):
    samples = np.random.default_rng(0).choice(values, (500, len(values))).mean(axis=1)
    return np.quantile(samples, [0.025, 0.975])


def coverage(interval, n, truth=0.7):
    rng = np.random.default_rng(0)
    made = [interval(rng.normal(truth, 0.02, n)) for _ in range(500)]
    return np.mean([low <= truth <= high for low, high in made])


covered = {
    name: {f"{n} seeds": coverage(make, n) for n in (3, 5, 10)}
    for name, make in {"bootstrap": bootstrap, "Student's t": mean_interval}.items()
}
pd.DataFrame(covered).T.style.format("{:.0%}")

# %% [markdown]
# With a handful of seeds the bootstrap's interval is too narrow; all ours are t intervals. Where some seeds never left
# chance the mean describes neither group, and no interval is given.
#
# ### 1 · Pairs (★★, 15 min)
#
# *Importance: pairing is worth more than seeds.* Write the 95 % t interval of the mean difference twice: from the pairs,
# and as if the two groups had nothing to do with each other (equal variances).
#
# <details><summary>Hint</summary>Pairs: the differences, n − 1 degrees of freedom. Groups: pooled variance s², 2n − 2
# degrees of freedom, standard error √(2 s² / n).</details>
#
# *Expected output: the paired interval is the narrower one. Common bug: ddof=0.*

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
print(np.round(paired_interval(a, b), 3), np.round(unpaired_interval(a, b), 3))

# %% [markdown]
# ### 2 · Find the bug: the set that stops is the set that reports (★★, 10 min)
#
# *Importance: early stopping on the test set is a result out of nothing.* A model that knows nothing is right in half of
# the images of a two-class test. It is evaluated twenty times on 100 images; the code below reports the best. Repair it
# with a second set of images.
#
# <details><summary>Hint</summary>Choose by one array, report the other.</details>
#
# *Expected output: about 0.59 with the bug, 0.50 without.*

# %%
validation, test = rng.binomial(100, 0.5, size=(2, 4_000, 20)) / 100  # [studies, evaluations] each


def reported_with_a_bug(validation, test):
    return test.max(axis=1)


def reported(validation, test):
    ### BEGIN SOLUTION
    return test[np.arange(len(test)), validation.argmax(axis=1)]
    ### END SOLUTION


means = [each(validation, test).mean() for each in (reported_with_a_bug, reported)]
print(f"with the bug {means[0]:.3f}, repaired {means[1]:.3f}")
assert means[0] > 0.58 and abs(means[1] - 0.5) < 0.005 and len(reported(validation, test)) == 4_000
one_hot, numbered = np.eye(20), np.arange(400.0).reshape(20, 20)  # study k is best at evaluation k
assert np.array_equal(reported(one_hot, numbered), numbered.diagonal())

# %% [markdown]
# ## Planted fakes
#
# Five results that look like findings. Each comes with a naive check that believes it. Write the check that catches the
# fake and still believes the honest result next to it.
#
# ### 3 · A cherry-picked head (★★, 10 min)
#
# *Importance: a ViT-B has 144 heads; the best of them is good by chance.* `excess` [heads, images] is a head's attention on
# the object minus the object's area. Say whether some head finds objects.
#
# <details><summary>Hint</summary>Choose the head on half of the images, judge it on the other half.</details>
#
# *Expected output: none; `honest` passes and `noise` does not. Common bug: to judge on all images after choosing on half.*

# %%
noise = np.random.default_rng(1).normal(0, 0.1, (144, 20))  # the fake: heads that know nothing
honest = noise + 0.2 * (np.arange(144) == 7)[:, None]


def naive_head(excess):
    return mean_interval(excess[excess.mean(axis=1).argmax()])[0] > 0


def finds_objects(excess):
    ### BEGIN SOLUTION
    best = excess[:, ::2].mean(axis=1).argmax()
    return mean_interval(excess[best, 1::2])[0] > 0
    ### END SOLUTION


assert naive_head(noise) and naive_head(honest)
assert finds_objects(honest) and not finds_objects(noise)

# %% [markdown]
# ### 4 · A probe that leaks (★, 10 min)
#
# *Importance: folders are copied, files renamed.* Train and test images have different names, and some are the same images.
# Say whether the two sets are disjoint.
#
# <details><summary>Hint</summary>Compare the bytes, not the names.</details>
#
# *Expected output: none; `clean` is disjoint and `leaky` is not. Common bug: comparing in order, image 1 with image 1.*

# %%
train = torch.randint(256, (50, 3, 8, 8), generator=torch.Generator().manual_seed(1)).byte()
clean = torch.randint(256, (20, 3, 8, 8), generator=torch.Generator().manual_seed(2)).byte()
leaky = torch.cat([clean[:15], train[[3, 9, 27, 40, 41]]])  # the fake


def naive_disjoint(train, test):
    return not any(torch.equal(a, b) for a, b in zip(train, test, strict=False))


def disjoint(train, test):
    ### BEGIN SOLUTION
    seen = {image.numpy().tobytes() for image in train}
    return not any(image.numpy().tobytes() in seen for image in test)
    ### END SOLUTION


assert naive_disjoint(train, leaky)
assert disjoint(train, clean) and not disjoint(train, leaky)

# %% [markdown]
# ### 5 · A map that an untrained model has too (★★, 10 min)
#
# *Importance: photographers put objects in the centre.* Maps [images, 8, 8] of a trained and of an untrained model, masks of
# the objects. Say whether training made the maps follow the objects.
#
# <details><summary>Hint</summary>Pair the two models image by image.</details>
#
# *Expected output: none; `follows` passes and `fake` does not. Common bug: a comparison with the area, which any map with a
# bright centre passes.*

# %%
y, x = np.mgrid[:8, :8] - 3.5
places = np.random.default_rng(3).normal(0, 1, (2, 60, 1, 1))
masks = (x - places[0]) ** 2 + (y - places[1]) ** 2 < 6
centred = np.exp(-(x**2 + y**2) / 12) + np.random.default_rng(4).uniform(0, 0.1, (2, 60, 8, 8))
untrained, fake = centred / centred.sum((2, 3), keepdims=True)
follows = (untrained + masks / masks.sum((1, 2), keepdims=True)) / 2  # the honest one


def naive_map(trained, untrained, masks):
    return mean_interval((trained * masks).sum((1, 2)) - masks.mean((1, 2)))[0] > 0


def learned(trained, untrained, masks):
    ### BEGIN SOLUTION
    return mean_interval(((trained - untrained) * masks).sum((1, 2)))[0] > 0.01
    ### END SOLUTION


assert naive_map(fake, untrained, masks) and naive_map(follows, untrained, masks)
assert learned(follows, untrained, masks) and not learned(fake, untrained, masks)

# %% [markdown]
# ### 6 · A class token dropped from the wrong end (★★, 10 min)
#
# *Importance: shapes are right and maps are shifted by a patch.* `extract(tokens)` should return the patches' tokens of
# `lab`, [B 1+N D] → [B N D]. Check it by what it does, not by its shape: changing the pixels of patch k must change row k.
#
# <details><summary>Hint</summary>Change one patch of the image and look which row of the first embedding moves.</details>
#
# *Expected output: none; `[:, 1:]` passes and `[:, :-1]` does not. Common bug: to ask whether one row moves, not which.*

# %%
lab = zoo.load("lab").model
side, patch = lab.patch_embed.grid_size[0], lab.patch_embed.patch_size[0]


@torch.no_grad()
def tokens_of(image):
    """Tokens before the first block, [1 1+N D], the class token first."""
    return lab.sequence(lab.patch_embed(image))


def naive_extract(extract):
    return extract(tokens_of(torch.zeros(1, 3, 96, 96))).shape[1] == side**2

# %% [markdown]
# Your check:

# %%
def extracts_patches(extract):
    ### BEGIN SOLUTION
    image = torch.zeros(1, 3, 96, 96)
    for k in (0, side, side**2 - 1):
        row, column, changed = k // side * patch, k % side * patch, image.clone()
        changed[..., row : row + patch, column : column + patch] = 1
        moved = (extract(tokens_of(changed)) - extract(tokens_of(image))).abs().sum(2)[0]
        if moved.nonzero().flatten().tolist() != [k]:
            return False
    return True
    ### END SOLUTION


assert naive_extract(lambda tokens: tokens[:, :-1])  # the fake
assert extracts_patches(lambda tokens: tokens[:, 1:])
assert not extracts_patches(lambda tokens: tokens[:, :-1])

# %% [markdown]
# ### 7 · A crossing in noise (★★, 10 min)
#
# *Importance: two equal curves cross somewhere.* `leads` [seeds, sizes] is ViT − ResNet. Say whether the ViT is behind with
# little data and ahead with much.
#
# <details><summary>Hint</summary>An interval at each end.</details>
#
# *Expected output: none; `crossed` passes and `equal` does not. Common bug: to ask for the crossing of the means.*

# %%
sizes, rng = [1_000, 10_000, 100_000], np.random.default_rng(14)
equal = rng.normal(0, 2, (5, 3)) + [-0.8, 0, 0.8]  # the fake: within the noise
crossed = rng.normal(0, 1, (5, 3)) + [-6, 0, 5]


def naive_crossing(leads):
    return crossing(sizes, leads.mean(axis=0)) is not None


def crosses(leads):
    ### BEGIN SOLUTION
    return mean_interval(leads[:, 0])[1] < 0 < mean_interval(leads[:, -1])[0]
    ### END SOLUTION


assert naive_crossing(equal) and naive_crossing(crossed)
assert crosses(crossed) and not crosses(equal)

# %% [markdown]
# **How others get this wrong.** A single seed; a best seed; a baseline tuned less; a test set that chose the model; a figure
# whose untrained control was never drawn. Each is one line of code away from being right.
#
# **Open questions.** How many of your field's claims have a decision rule? Which of our verdicts would you overturn, and
# with which run?
#
# ## References
#
# - X. Bouthillier et al., *Accounting for Variance in Machine Learning Benchmarks*, MLSys 2021.
# - J. Adebayo et al., *Sanity Checks for Saliency Maps*, NeurIPS 2018.
# - R. Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical Precipice*, NeurIPS 2021.
