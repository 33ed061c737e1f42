# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 11 · Design choices
#
# **What could have been built otherwise: how patches are told where they are, what the head reads,
# which optimiser trains the ResNets, in which direction a ViT grows, and whether every patch has to
# look at every other.**
#
# Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: appendix D, Table 7 and 8, Fig. 8 to
# 10 and 13. Claims C09 and C16 to C19. At `quick` two cells of Table 8 are trained live, three seeds
# each: a minute, once. The runs of `full` take hours and are committed.
#
# **Prerequisites**: notebooks 01 (the model), 02 (training) and 07 (position embeddings).

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports. `study` is this execution.

# %%
import itertools

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from vitlab import claims, plots
from vitlab.models import zoo
from vitlab.models.variants import AxialAttention
from vitlab.models.vit import Attention
from vitlab.models.zoo import forward_flops
from vitlab.claims.rules import AHEAD, EQUAL, lead
from vitlab.data.datasets import world_splits
from vitlab.studies import run as functions
from vitlab.studies import runner, tables
from vitlab.studies import table as studies
from vitlab.studies.statistics import summary

study = claims.begin("11_more_choices", PRESET, SEED)

# %% [markdown]
# ## Prediction
#
# Every variant is tried with the same number of learning rates, and reported at its own best, chosen
# by validation images.

# %%
print(f"a lead of less than {AHEAD:g} point is none")
print(f"a difference is none where its whole interval is within ±{EQUAL:g} points")

# %% [markdown]
# **C09, position embeddings** (D.4). *The paper* (ViT-B/16, 5-shot on ImageNet): without any it is
# almost three points worse; all others are within a third of a point. *Rule*: 1-D is ahead of none in
# every task; *(a)* 2-D and relative are equal to 1-D; *(b)* in every block is equal to the stem.
#
# **C16, class token or global average pooling** (GAP; D.3). *The paper*: GAP was much worse at first,
# only because of the learning rate. *Rule*: class token − GAP, each at its best rate, is no
# difference.
#
# **C17, Adam or SGD for ResNets** (D.1). *The paper*: pre-trained with Adam, they fine-tune better,
# on average by 0.5 (R50) and 0.3 points (R152x2). *Rule*, for each of ours: Adam − SGD, averaged over
# the target sets, is above −1 point.
#
# **C18, shapes** (D.2). *The paper*: depth helps most, width least; smaller patches help without a
# parameter more. *Rule*, by the slope of accuracy over the logarithm of the FLOPs: *(a)* depth's is
# above each other's; *(b)* width's is below each other's; *(c)* the patch's is above zero.
#
# **C19, axial attention** (D.6). *The paper*: better than full attention, and costlier. *Rule*: *(a)*
# axial − full attention of the same depth is above zero; *(b)* it takes more FLOPs.
#
# Which of the five do you expect to hold for models a thousand times smaller?

# %% [markdown]
# ## Idea
#
# ### Without positions a ViT sees a bag of patches
#
# Attention is a weighted mean over tokens, and a mean does not know an order. With nothing added to
# the patches' embeddings, the logits are the same for any order of the patches:

# %%
images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(SEED))
patches = images.unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3)  # [B 3 N 8 8]
order = torch.randperm(16, generator=torch.Generator().manual_seed(SEED))
moved = patches[:, :, order].unflatten(2, (4, 4)).transpose(3, 4).reshape(images.shape)
for name in ("none", "1d", "2d", "relative"):
    model = zoo.create("Lab-Mu/8", positions=name, seed=SEED).eval()
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(SEED))
    with torch.no_grad():
        change = (model(images) - model(moved)).abs().max().item()
    print(f"{name:9} logits change by {change:.1e} when the patches are shuffled")
    assert (change < 1e-5) is (name == "none")

# %% [markdown]
# ### 1-D, 2-D, relative
#
# *1-D* is Eq. 1: a learned vector for each place in the sequence. *2-D* learns a vector $X_c$ of
# length $D/2$ for each column and $Y_r$ for each row; a patch gets $[X_c; Y_r]$.

# %%
model = zoo.create("Lab-Mu/8", positions="2d", seed=SEED)
rows, columns = model.patch_embed.grid_size
X, Y = model.stem_positions.pos_embed_x[0], model.stem_positions.pos_embed_y[0]  # [columns D/2]
table = [torch.cat([X[c], Y[r]]) for r in range(rows) for c in range(columns)]  # row by row
assert torch.equal(torch.stack(table), model.position_table()[0, 1:])  # after the class token's

# %% [markdown]
# *Relative* embeddings belong to no patch but to an offset: for a query at place $p_q$ of the
# sequence and a key at $p_k$, the query's dot product with the embedding $r_{p_q - p_k}$ is added
# to the logit:
#
# $$ \text{logit}_{qk} = \frac{\mathbf{q} \cdot \mathbf{k} + \mathbf{q} \cdot \mathbf{r}_{p_q - p_k}}{\sqrt{D_h}}. $$

# %%
attention = zoo.create("Lab-Mu/8", positions="relative", seed=SEED).blocks[0].attn
N, r = rows * columns, attention.offsets.pos_embed_offsets  # r [2N - 1, D_h]: first offset N - 1
q, k, v = torch.randn(3, 1, 2, 1 + N, r.shape[1])  # [B heads T D_h]: the class token, then the patches
bias = torch.zeros(1, 2, 1 + N, 1 + N)  # nothing is added in pairs with the class token
for p_q, p_k in itertools.product(range(N), range(N)):
    offset = r[N - 1 - (p_q - p_k)]
    bias[..., 1 + p_q, 1 + p_k] = q[:, :, 1 + p_q] @ offset / r.shape[1] ** 0.5
logits = q @ k.mT / r.shape[1] ** 0.5 + bias
assert torch.allclose(logits.softmax(dim=-1) @ v, attention.attend(q, k, v), atol=1e-6)

# %% [markdown]
# Each can be added at the *stem* (once, before the first block), in *every block* with tables of its
# own, or in every block from one *shared* table: the cells of Table 8.
#
# ### Axial attention
#
# Attention within the rows of the grid, then a block within its columns: every patch reaches every
# other in two steps.

# %%
full = Attention(8, n_heads=2, dropout=0.0)
axial = AxialAttention(full, grid=(3, 4), axis="rows")  # the same weights
x = torch.randn(2, 12, 8)
with torch.no_grad():
    by_rows = [full(row) for row in x.reshape(2, 3, 4, 8).unbind(1)]  # each row is a sequence
    assert torch.allclose(axial(x), torch.stack(by_rows, 1).flatten(1, 2), atol=1e-6)
    columns_last = x.reshape(2, 3, 4, 8).transpose(1, 2)
    by_columns = torch.stack([full(column) for column in columns_last.unbind(1)], 2)
    axial = AxialAttention(full, grid=(3, 4), axis="columns")
    assert torch.allclose(axial(x), by_columns.flatten(1, 2), atol=1e-6)

# %% [markdown]
# ## 1 · Position embeddings (C09)
#
# Objects of the world with one cue alone, the *arrangement*: discs that are alike in all classes
# stand at other places in each. Two objects of each of four classes:

# %%
first = studies.runs("position_variants", PRESET, SEED)[0]
in_world = functions.world_of(first, first["task"])
shown = world_splits(in_world, 40, 0, first["n_test"], draw=first["seed"]).test
kinds = min(4, len(shown.classes))
chosen = [torch.where(shown.labels == kind)[0][:2] for kind in range(kinds)]
some = [shown.images[number].permute(1, 2, 0).numpy() for number in torch.cat(chosen)]
captions = [f"class {kind}" for kind in range(kinds) for _ in range(2)]
alt = "Synthetic objects with dark and bright discs, two of each of a few classes: the discs' places "
alt += "tell the class."
with plots.figure(study, "task", alt=alt, figsize=(9, 1.9)) as ax:
    plots.plot_pictures({"": some}, ax, captions=captions)

# %% [markdown]
# A patch on its own does tell something: where a disc is cut by its edge. So *none* need not be at
# chance. What it cannot know is which patch is where.
#
# Two variants are trained live, on the same images in the same order. Next to them the evidence: the
# arrangement with ten times as many images and harder; *contour*, where the outline alone tells the
# classes; and the photographs of CIFAR-10. Test accuracy in %, mean of the seeds:

# %% tags=["long"]
here = runner.run("position_variants", PRESET, SEED)
here = here[here["task"] == first["task"]]
short, longer = (tables.evidence(name) for name in ("position_variants", "longer_positions"))
photographs = short[short["task"] == "cifar10"]
best = tables.chosen(pd.concat([longer, photographs], ignore_index=True))
accuracy = {f"this run, {here['seed'].nunique()} seeds": here.groupby("arm")["test_accuracy"].mean()}
for (task, steps), each in best.groupby(["task", "steps"], sort=False):
    accuracy[f"{task}, {steps:,} steps"] = each.groupby("arm")["test_accuracy"].mean()
accuracy["Table 8: ImageNet, 5-shot"] = pd.Series(studies.TABLE_8)
shown = 100 * pd.DataFrame(accuracy).reindex(list(studies.TABLE_8))
shown.style.format("{:.1f}", na_rep="–")

# %% [markdown]
# The evidence as differences from 1-D at the stem, with intervals; in grey the paper's Table 8. Left
# of the dashed line is worse than 1-D.

# %%
BASE = "1-D, stem"  # that the others are compared with


def from_base(runs, task):
    """Every variant's difference from 1-D at the stem on one task, in points, with its interval."""
    rows = runs[runs["task"] == task]
    found = {arm: lead(rows, arm, BASE) for arm in studies.TABLE_8 if arm != BASE}
    columns = {arm: (each.value, *(each.interval or (np.nan, np.nan))) for arm, each in found.items()}
    return pd.DataFrame(columns, index=["mean", "low", "high"]).T


paper = 100 * (pd.Series(studies.TABLE_8).drop(BASE) - studies.TABLE_8[BASE])
paper = pd.DataFrame({"mean": paper, "low": np.nan, "high": np.nan})
points = f"difference from {BASE}\n(percentage points)"
alt = "Accuracy of each kind and place of position embeddings minus that of 1-D at the stem, in "
alt += "points: ours with intervals, a panel for each task, and in grey the paper's Table 8."
with plots.figure(study, "positions", 1, 3, alt=alt, figsize=(14, 3.6)) as axes:
    for ax, task in zip(axes, best["task"].unique(), strict=True):
        plots.plot_comparisons(paper, points, ax, "grey")
        plots.plot_comparisons(from_base(best, task), points, ax).set_title(task)
print(f"{tables.about('longer_positions')}; on CIFAR-10 {tables.about('position_variants')}")

# %% [markdown]
# *None* is behind 1-D in all three tasks, far behind where the arrangement or the contour tells the
# class, and about as far as in the paper on CIFAR-10: most of what tells these photographs apart is
# within the patches. *2-D* and tables in every block end with 1-D in the two tasks of the world, and
# a point or two ahead of it on CIFAR-10; *relative* lies between *none* and 1-D.

# %% [markdown]
# ### The maps (Fig. 10)
#
# The maps of notebook 07 after these trainings; of relative embeddings a tile shows how similar the
# embedding of each offset is to that of offset 0.

# %%
cells = [("arrangement", BASE), *(("cifar10", arm) for arm in (BASE, "2-D, stem", "relative"))]
alt = "Similarity maps of position embeddings, a grid of grids each: 1-D of the arrangement; 1-D, "
alt += "2-D and relative of CIFAR-10."
with plots.figure(study, "maps", 1, len(cells), alt=alt, figsize=(14, 3.9)) as axes:
    for ax, (task, arm) in zip(axes, cells, strict=True):
        plots.plot_similarity_grid(tables.position_maps(best, task)[arm], ax, colorbar=False)
        ax.set(title=f"{arm}: {task}", xlabel="", ylabel="", xticks=[], yticks=[])

# %% [markdown]
# A map of 2-D embeddings has rows and columns by construction; in that of 1-D embeddings all that
# there is was learned, and depends on the task.
#
# ### What longer trainings change
#
# The two tasks of the world after 400 steps, too (a dot without an interval: single trainings never
# left chance):

# %%
short = tables.chosen(short)
of_world = longer["task"].unique()
alt = "Accuracy without positions, with 2-D and with relative ones minus 1-D, in points, after 400 "
alt += "and after 1,600 steps, in two tasks."
with plots.figure(study, "positions_longer", 1, len(of_world), alt=alt, figsize=(11, 3.4)) as axes:
    for ax, task in zip(axes, of_world, strict=True):
        by_steps = {"400 steps": from_base(short, task), "1,600 steps": from_base(best, task)}
        kinds = itertools.product(("none", "2-D, stem", "relative"), by_steps)
        gaps = {f"{kind}, {steps}": by_steps[steps].loc[kind] for kind, steps in kinds}
        plots.plot_comparisons(pd.DataFrame(gaps).T, points, ax).set_title(task)

# %% [markdown]
# After 400 steps what is compared is how soon a training has found out where things are. Two
# differences stay: *none*, which cannot know which patch is where, and what is left of *relative*'s
# lag. In the verdict the longer trainings decide:

# %%
claims.show(study, "C09")

# %% [markdown]
# ## 2 · Class token or global average pooling (C16)
#
# Both heads are trained at the same learning rates, in a short training and in one four times as
# long.

# %%
heads, where = tables.evidence("head_rates"), tables.about("head_rates")
keys = ["steps", "arm", "learning_rate"]
best = tables.chosen(heads, keys[:2])[keys].drop_duplicates()
by_rate = summary(heads, keys).merge(best, how="left", indicator="chosen")
by_rate["chosen"] = by_rate["chosen"] == "both"
n_lengths = by_rate["steps"].nunique()
alt = "Test accuracy by learning rate with intervals, a line for the class token and one for "
alt += "GAP, a panel for each length of training; the rate chosen on validation images is ringed."
shape = {"figsize": (5 * n_lengths + 1, 4), "sharey": True, "squeeze": False}
with plots.figure(study, "heads", 1, n_lengths, alt=alt, **shape) as axes:
    for ax, (steps, rows) in zip(axes[0], by_rate.groupby("steps"), strict=True):
        plots.plot_rates(rows, ax).set_title(f"{steps:,} steps")
        ax.label_outer()
print(where)

# %% [markdown]
# Both heads are best at the same rate: here the distance is not one that tuning explains. After the
# short training they are far apart, after the long one, which is judged, much closer: GAP takes
# longer to learn.

# %%
claims.show(study, "C16")

# %% [markdown]
# ## 3 · Adam or SGD for ResNets (C17)
#
# ResNets were designed with SGD, and the paper pre-trains them with Adam. Is the comparison with ViT
# fair? Ours: two ResNets, each optimiser with its own grid of learning rates, then fine-tuned with
# SGD and momentum at the rate that is best on held-out images.

# %%
table, where = tables.evidence("resnet_optimizers"), tables.about("resnet_optimizers")
print(where)
for arm, rows in tables.chosen(table).groupby("arm", sort=False):
    tried = ", ".join(f"{rate:g}" for rate in sorted(table.loc[table["arm"] == arm, "learning_rate"].unique()))
    rate, reached = rows["learning_rate"].iloc[0], rows["test_accuracy"].mean()
    print(f"{arm}: best learning rate {rate:g} of {tried}; pre-trained to {reached:.1%}")

# %% [markdown]
# The paper's Table 7 and ours:

# %%
SETS = ["ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"]
table_7 = {  # fine-tuned accuracy
    ("R50", "Adam"): (0.7754, 0.9767, 0.8607, 0.9111, 0.9426),
    ("R50", "SGD"): (0.7824, 0.9746, 0.8517, 0.9100, 0.9206),
    ("R152x2", "Adam"): (0.8497, 0.9906, 0.9205, 0.9537, 0.9862),
    ("R152x2", "SGD"): (0.8437, 0.9907, 0.9106, 0.9479, 0.9932),
}
cases = [
    {"case": f"{model}\n{data}", "optimizer": name, "mean": value, "low": np.nan, "high": np.nan}
    for (model, name), values in table_7.items()
    for data, value in zip(SETS, values, strict=True)
]
ours = tables.chosen(table, ["task", "arm", "target"])
ours = summary(ours, ["model", "target", "optimizer"], "fine_tuned")
ours["case"] = ours["model"].map(plots.labels(ours["model"])) + "\n" + ours["target"]
ours["optimizer"] = ours["optimizer"].map({"adam": "Adam", "sgd": "SGD"})
alt = "Fine-tuned accuracy of ResNets that were pre-trained with Adam and with SGD: the paper's "
alt += "Table 7 by model and data set, and ours with intervals."
shape = {"figsize": (14, 3.6), "width_ratios": [2, 1]}
with plots.figure(study, "optimizers", 1, 2, alt=alt, **shape) as (left, right):
    plots.plot_cases(pd.DataFrame(cases), left).set_title("the paper, Table 7")
    plots.plot_cases(ours, right).set_title("ours")
    for ax in (left, right):
        ax.tick_params(axis="x", labelsize=8)

# %% [markdown]
# In the paper Adam is ahead on average. Here the two pre-train the larger ResNet equally well, and
# still its weights from SGD end higher after fine-tuning, above all on CIFAR-10. Equal accuracy in
# pre-training is not equal worth for transfer.

# %%
claims.show(study, "C17")

# %% [markdown]
# ## 4 · Which shape spends FLOPs best? (C18)
#
# From one base model, one dimension at a time: depth, width, the MLP's width, the patch size; and the
# first three together. The paper's base has 8 blocks of width 1,024 and patches of 32 px; ours:

# %%
where = tables.about("vit_shapes")
by_shape = tables.chosen(tables.evidence("vit_shapes"), ["task", "dimension", "arm"])
names = {"arm": "shape", "flops": "million FLOPs", "train_loss": "training loss (nats)"}
costs = by_shape.groupby(["dimension", "arm"], sort=False)[["parameters", "flops", "train_loss"]].mean()
costs = costs.assign(flops=costs["flops"] / 1e6).reset_index().rename(columns=names)
costs.style.format(precision=2, thousands=",").format("{:,.0f}", ["parameters"]).hide()

# %% [markdown]
# Smaller patches make the sequence longer and the model no larger. The dimensions end at different
# FLOPs: the rule therefore compares slopes.

# %%
ours = summary(by_shape, ["dimension", "arm", "flops"])
alt = "Test accuracy against FLOPs on a log scale: from the base model a line along each of "
alt += "depth, width, MLP width, patch size, and all of the first three."
with plots.figure(study, "shapes", alt=alt, figsize=(7.5, 4.4)) as ax:
    plots.plot_shapes(ours, ax).set_title(where)

# %% [markdown]
# The steeper a line, the more a doubling of the FLOPs brings along that dimension:

# %%
claims.show(study, "C18")

# %% [markdown]
# Smaller patches help most, with fewer parameters; width comes next. Four times the depth costs
# accuracy, and so does a wider MLP. This is not overfitting: by the table, their training loss is
# above the base's; they have not been trained long enough.
#
# ## 5 · Axial attention (C19)
#
# Each block of an axial model is two, so it has about twice the parameters of full attention *of the
# same depth*. Of full attention with *equal parameters* it needs fewer FLOPs, the more patches the
# fewer. In millions:

# %%
def million_flops(side, **options):
    """FLOPs of a forward pass for one image of side × side patches, in millions."""
    shape = {"model": "Lab-Mu/4", "n_classes": 10, "image_size": 4 * side, "seed": 0, "pool": "gap"}
    model = functions.variant_of(shape | options)
    return forward_flops(model, torch.zeros(1, 3, 4 * side, 4 * side)) / 1e6


costs = pd.DataFrame(index=pd.Index([4, 8, 16, 32], name="patches along a side"))
costs["axial"] = [million_flops(side, depth=2, attention="axial") for side in costs.index]
costs["full, equal parameters"] = [million_flops(side, depth=4) for side in costs.index]
costs["axial, % of full"] = 100 * costs["axial"] / costs["full, equal parameters"]
costs.style.format("{:,.0f}")

# %% [markdown]
# The paper's comparison is between *axial* and *full, same depth*:

# %%
where = tables.about("axial_attention")
by_variant = summary(tables.chosen(tables.evidence("axial_attention")), ["arm", "flops"])
alt = "Test accuracy against FLOPs of axial attention, and of full attention of the same depth, of "
alt += "equal parameters and of equal FLOPs."
with plots.figure(study, "axial", alt=alt, figsize=(7.5, 4)) as ax:
    plots.plot_shapes(by_variant, ax, base=None, by="arm").set_title(where)

# %% [markdown]
# The four are not told apart: near the ceiling of this task neither axes nor more blocks bring what
# could be seen.

# %%
claims.show(study, "C19")

# %% [markdown]
# **How we differ from the paper.** Models a thousand times smaller, a synthetic world in place of
# JFT-300M and ImageNet, short trainings. C09 is accuracy on held-out images of the task itself. Our
# axial models have no class token; in relative attention it is at no offset from any patch.

# %% [markdown]
# ## How others get this wrong
#
# **One variant tuned, the other not.** With made-up curves of equal height and different best rates:

# %%
rates = np.geomspace(1e-3, 1.6e-2, 5)
first_variant = 0.8 - 0.1 * np.log2(rates / 2e-3) ** 2
second_variant = 0.8 - 0.1 * np.log2(rates / 8e-3) ** 2
shared = first_variant.argmax()
print(f"both at the best rate of the first: {first_variant[shared] - second_variant[shared]:+.2f}")
print(f"each at its own: {first_variant.max() - second_variant.max():+.2f}")

# %% [markdown]
# **Equal FLOPs taken for equal time.** Where a line of patches is short, the products are too small
# to fill a processor: axial attention saves FLOPs there and no time.
#
# **Rows of the 2-D table swapped with columns.** On a square grid nothing fails, and nothing is
# worse. On another it is an error, which is why the tests use 2 × 3 patches.

# %% [markdown]
# ## Exercises
#
# ### 1 · Where the dropout goes (★, 5 minutes)
#
# The paper drops out *directly after adding* positions to the patches' embeddings. Write it: `x`
# [B T D], `pos` [1 T D], `drop` a module.
#
# <details><summary>Hint</summary>What is dropped is the sum. If only the embeddings are dropped, the
# positions always arrive.</details>

# %%
def embedded(x, pos, drop):
    ### BEGIN SOLUTION
    return drop(x + pos)
    ### END SOLUTION


drop = nn.Dropout(0.5).train()
x, pos = torch.full((4, 50, 8), 3.0), torch.full((1, 50, 8), 4.0)
out = embedded(x, pos, drop)
assert set(out.unique().tolist()) == {0.0, 14.0}  # all of a number, doubled, or none of it
assert 0.4 < (out == 0).double().mean() < 0.6
assert torch.equal(embedded(x, pos, drop.eval()), x + pos)

# %% [markdown]
# ### 2 · Find the bug: a patch's position for the class token (★, 10 minutes)
#
# The table's first row is the class token's: here every patch is told it is where its predecessor is.
#
# ```python
# def sequence(patches, cls, pos_table):  # [B N D], [1 1 D], [1 1+N D]
#     return torch.cat([patches, cls.expand(len(patches), -1, -1)], dim=1) + pos_table
# ```
#
# Correct it, with the class token in front, as in Eq. 1.
#
# <details><summary>Hint</summary>Which row of the table belongs to which token?</details>

# %%
def sequence(patches, cls, pos_table):
    ### BEGIN SOLUTION
    return torch.cat([cls.expand(len(patches), -1, -1), patches], dim=1) + pos_table
    ### END SOLUTION


model = zoo.create("Lab-Mu/8", seed=3).eval()
nn.init.normal_(model.cls_token, generator=torch.Generator().manual_seed(3))
embedded_patches = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(4))
whole = sequence(embedded_patches, model.cls_token, model.pos_embed)
assert torch.equal(whole, model.sequence(embedded_patches))

# %% [markdown]
# ### 3 · The mean of the patches (★, 5 minutes)
#
# Global average pooling is over the *patches*. Write it for a model whose first `n_prefix` tokens
# are not patches.
#
# <details><summary>Hint</summary>Where do the prefix tokens stand? And by how many tokens does a
# mean divide?</details>

# %%
def patch_mean(tokens, n_prefix):
    """[B T D] → [B D]."""
    ### BEGIN SOLUTION
    return tokens[:, n_prefix:].mean(dim=1)
    ### END SOLUTION


tokens = torch.tensor([[[100.0, 0.0], [1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]])  # class token first
assert torch.equal(patch_mean(tokens, 1), torch.tensor([[2.0, 4.0]]))
assert torch.equal(patch_mean(tokens[:, 1:], 0), torch.tensor([[2.0, 4.0]]))
pooled = zoo.create("Lab-Mu/8", pool="gap", seed=3).eval()
seen = pooled.forward_features(torch.randn(2, 3, 32, 32))
assert torch.allclose(pooled.forward_head(seen, pre_logits=True), patch_mean(seen, 0), atol=1e-6)

# %% [markdown]
# ### 4 · Tuned alike (★★, 15 minutes)
#
# From accuracies on validation and on test images, [variants, rates, seeds] each, compute the mean
# test accuracy of variant 0 minus that of variant 1, each at the rate with its highest mean
# validation accuracy. Nothing may be chosen by the test images.
#
# <details><summary>Hint</summary>Mean over the seeds first; then <code>argmax</code> over the rates,
# for each variant.</details>

# %%
def fair_difference(validation, test):
    ### BEGIN SOLUTION
    best = validation.mean(axis=2).argmax(axis=1)
    first, second = (test[k, rate].mean() for k, rate in enumerate(best))
    return float(first - second)
    ### END SOLUTION


validation = np.array([[[0.5, 0.6], [0.8, 0.7], [0.2, 0.3]], [[0.1, 0.9], [0.4, 0.4], [0.6, 0.7]]])
test = np.array([[[0.9, 0.9], [0.6, 0.8], [0.1, 0.1]], [[0.2, 0.2], [0.3, 0.3], [0.6, 0.5]]])
assert abs(fair_difference(validation, test) - (0.70 - 0.55)) < 1e-12
generator = np.random.default_rng(0)  # two variants that are the same, tuned by noise: no difference
noise = [fair_difference(*generator.normal(size=(2, 2, 6, 3))) for _ in range(3_000)]
assert abs(np.mean(noise)) < 0.05
curves = np.stack([first_variant, second_variant])[:, :, None]  # from above: equally good
assert abs(fair_difference(curves, curves)) < 1e-12

# %% [markdown]
# ### 5 · Attention within the rows (★★★, 20 minutes)
#
# Write axial attention's first half for one image and one head: `q`, `k`, `v` are [N D_h], patches
# row by row, `grid` is (rows, columns). Every row is a sequence of its own.
#
# <details><summary>Hint</summary>Fold N into rows × columns; then a batched product gives logits
# [rows, query, key]. Over which axis do a query's shares add up to one?</details>

# %%
def attention_within_rows(q, k, v, grid):
    ### BEGIN SOLUTION
    q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))  # [rows columns D_h]
    logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5  # [rows query key]
    return (logits.softmax(dim=-1) @ v).flatten(0, 1)
    ### END SOLUTION


generator = torch.Generator().manual_seed(0)
q, k, v = (3 * torch.randn(6, 4, generator=generator) for _ in range(3))
ours = attention_within_rows(q, k, v, (2, 3))
for row in (slice(0, 3), slice(3, 6)):  # by another library's kernel, row by row
    theirs = F.scaled_dot_product_attention(*(each[None, row] for each in (q, k, v)))[0]
    assert torch.allclose(ours[row], theirs, atol=1e-5)
ones = attention_within_rows(q, k, torch.ones(6, 4), (2, 3))
assert torch.allclose(ones, torch.ones(6, 4), atol=1e-5)  # shares of each query add up to one

# %% [markdown]
# ## Summary
#
# - A ViT without positions is a function of a bag of patches; any of the paper's embeddings ends that.
# - A design choice is compared fairly where everything else is equal and every variant is tuned
#   alike, by images that are not reported.
# - FLOPs, parameters and time are three costs: smaller patches cost FLOPs and no parameters.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - P. Shaw, J. Uszkoreit, A. Vaswani. *Self-Attention with Relative Position Representations.* NAACL
#   2018, arXiv:1803.02155.
# - X. Zhai et al. *Scaling Vision Transformers.* CVPR 2022, arXiv:2106.04560.
