# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 09 · Attention rollout
#
# **Followed back through all blocks, the attention of the class token falls on the object that is
# classified.**
#
# Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 6, Fig. 14, App. D.8;
# the method is Abnar and Zuidema's (2020). Claim C14. Half a minute at `quick`; a model at 224 px
# takes longer.

# %% [markdown]
# ## What you will learn
#
# - how the attention of many blocks becomes one map, and why the identity matrix stands for the
#   skip connections
# - how to measure what the picture shows: the map's mass inside an object mask, against three
#   controls
# - which mistake makes wrong maps that look as convincing
#
# **Prerequisites**: self-attention as in notebook 01; matrix products; confidence intervals.

# %% [markdown]
# `WEIGHTS` are for photographs: `"lab"` (a small ViT that was trained on photographs), a timm name
# such as `"vit_base_patch16_224"`, or a safetensors file. `WORLD_WEIGHTS` are for synthetic images,
# whose objects have exact masks: `"lab-world"` was trained on them.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"
WORLD_WEIGHTS = "lab-world"

# %% [markdown]
# Imports. `study` is this execution.

# %%
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from scipy.stats import spearmanr
from torch.utils.flop_counter import FlopCounterMode

from vitlab import claims, plots, widgets
from vitlab.analysis.attention import attention_maps, grid_size, n_prefix_tokens, reads_class_token
from vitlab.analysis.masks import area_share, mass_inside
from vitlab.analysis.rollout import attention_rollout, overlay
from vitlab.data import datasets
from vitlab.studies import measure
from vitlab.models import zoo
from vitlab.widgets import viewer

chosen = {"weights": WEIGHTS, "world_weights": WORLD_WEIGHTS}
study = claims.begin("08_where_it_looks", PRESET, SEED, **chosen)
of_photographs, of_world = zoo.load(WEIGHTS), zoo.load(WORLD_WEIGHTS)
for what, model in (("photographs", of_photographs), ("the world", of_world)):
    print(f"{what}: {model.name}, input {model.image_size} px")

# %% [markdown]
# ## Prediction
#
# **The paper** (Fig. 6, Fig. 14) shows photographs in which rollout is bright on the object. It gives
# no number. The images of the world come with masks, so that it can be measured: *mass − area* is the
# share of the rollout's mass inside the mask of the labelled object, minus the share of the image
# that the object covers. A map that is independent of the object scores 0 on average. What do you
# expect of an untrained model?
#
# **Decision rule** (how to read it: notebook 00), from intervals over images:
#
# 1. *mass − area* of the trained model is above 0;
# 2. so is its difference to untrained models;
# 3. and its difference to the same score with **another image's mask**: a map that is merely bright
#    in the middle, where objects are more often, gains nothing there.
#
# Without the first, or without both others, the claim is *not reproduced*.

# %% [markdown]
# ## Idea
#
# Average each block's attention over its heads to $\bar A_l$. The skip connection adds the block's
# input to the output of attention; rollout gives both the same weight:
# $\hat A_l = \tfrac12 \bar A_l + \tfrac12 I$. Multiply from the last block to the first,
#
# $$ R = \hat A_L \hat A_{L-1} \cdots \hat A_1 . $$
#
# Row $i$ of $R$ says how much of token $i$'s final state comes from each input token, if nothing but
# attention mixed tokens. The class token's row, without its own entry, is the map:


# %%
def open_rollout(maps, grid, n_prefix):
    rolled = torch.eye(maps[0].shape[-1])
    for attn in maps:  # first block first
        mixed = attn.mean(1) + torch.eye(attn.shape[-1])  # [images tokens tokens]
        mixed = mixed / mixed.sum(-1, keepdim=True)
        rolled = mixed @ rolled
    return rolled, rolled[:, 0, n_prefix:].unflatten(-1, grid)


# %% [markdown]
# Six images of the world. The package carries only the class token's row, from the last block down: a
# row vector times a matrix, in place of a matrix times a matrix. The result must be the same.

# %%
world = measure.world_at(of_world.image_size, 6, SEED)
x = of_world.prepare(world.images)  # [images 3 height width]
with torch.inference_mode():
    maps = attention_maps(of_world.model, x)
grid, n_prefix = grid_size(of_world.model, x), n_prefix_tokens(of_world.model)
rolled, rollout = open_rollout(maps, grid, n_prefix)
assert rolled.shape == maps[0][:, 0].shape and rollout.shape == (6, *grid)
assert torch.allclose(rolled.sum(-1), torch.ones(()), atol=1e-4)
if reads_class_token(of_world.model):
    assert torch.allclose(rollout, attention_rollout(of_world.model, x), atol=1e-6)
print(f"{len(maps)} blocks of {maps[0].shape[1]} heads → one map of {grid[0]} × {grid[1]} patches")

# %% [markdown]
# ### See it: the world
#
# As in the paper, the map is enlarged to the image's size, divided by its maximum, and multiplied
# with the image: where rollout is low, the picture is dark.


# %%
FLOOR = 0.25  # brightness where rollout is 0; the paper's is 0


def lit_by(trained, images, size):
    """Row → weights [images height width]: rollout, last block's attention, untrained rollout."""
    weights = WEIGHTS if trained is of_photographs else WORLD_WEIGHTS
    control = zoo.load(weights, untrained=True, seed=SEED)
    rows = measure.both_maps(trained.model, images)
    rows["untrained"] = measure.both_maps(control.model, images)["rollout"]
    return {row: overlay(rolled, size).numpy() for row, rolled in rows.items()}


BELOW = "below each the image lit by the trained model's rollout, by its last block's attention, "
BELOW += "and by an untrained model's rollout."


# %% [markdown]
# Six held-out images, the labelled object outlined; below the trained model's rollout, its last
# block's raw attention, and an untrained model's rollout:

# %%
pictures = measure.view(of_world, list(world.images)).numpy()  # [images height width 3]
alt = f"Six images of the world, the labelled object outlined; {BELOW}"
size = {"figsize": (10, 6.75), "squeeze": False}
with plots.figure(study, "world", 4, len(x), alt=alt, **size) as axes:
    lit = lit_by(of_world, x, pictures.shape[1:3])
    plots.plot_overlays(pictures, lit, axes, world.masks.numpy(), FLOOR)

# %% [markdown]
# What lies outside the outlines should be dark; the untrained model lights almost everything.
#
# The first of these images in the viewer. Row $i$ of $R$ belongs to token $i$, so every patch has a
# rollout of its own: point at one to see it. "All heads" shows the attention that was multiplied.

# %%
title = f"{of_world.name}: rollout of every token"
viewer.view(of_world, world.images[0], show="rollout", title=title, fit=True)

# %% [markdown]
# ### See it: photographs
#
# Of the dependencies, and of `photos/` in the folder that `VITLAB_DATA` names. What is bright says
# from which patches the class token has gathered, not that the model recognizes the object: `lab`
# has no class for a pagoda, a flower or a portrait.

# %%
photographs = datasets.photographs(limit=6, sample=False)
names, taken = zip(*photographs, strict=True)
x_photographs = torch.cat([of_photographs.prepare(picture[None]) for picture in taken])
views = measure.view(of_photographs, taken).numpy()
alt = f"Photographs ({', '.join(names)}); {BELOW}"
width = 1.75 if len(taken) > 3 else 2.5  # inches a picture
size = {"figsize": (width * len(taken) + 0.3, 4 * width), "squeeze": False}
with plots.figure(study, "photographs", 4, len(taken), alt=alt, **size) as axes:
    lit = lit_by(of_photographs, x_photographs, views.shape[1:3])
    plots.plot_overlays(views, lit, axes, floor=FLOOR)

# %% [markdown]
# One tends to see an object in any bright spot. The masks make it a measurement.
#
# ### Which rollout? Variants side by side
#
# "Attention rollout" in other people's figures is often something else. The paper takes the *mean*
# over heads and keeps everything. Circulating code offers the *maximum* over heads and a *discard
# ratio*: in every block, the smallest entries are set to 0.


# %%
methods = {
    "the paper's": attention_rollout(of_world.model, x),
    "maximum\nover heads": attention_rollout(of_world.model, x, head_fusion="max"),
    "mean, 90 %\ndiscarded": attention_rollout(of_world.model, x, discard_ratio=0.9),
}
alt = "Images of the world; below each the image lit by the paper's rollout and by its variants: "
alt += "maximum over heads, discarding."
size = {"figsize": (10, 1.7 * (1 + len(methods))), "squeeze": False}
with plots.figure(study, "variants", 1 + len(methods), len(x), alt=alt, **size) as axes:
    lit = {name: overlay(each, pictures.shape[1:3]).numpy() for name, each in methods.items()}
    plots.plot_overlays(pictures, lit, axes, world.masks.numpy(), FLOOR)

# %% [markdown]
# The maximum answers another question (what *any* head looks at), and discarding makes a map look
# sharp by construction, whatever the model has learned. How far each is from the paper's, and how
# much of it lies on the object:


# %%
def compare_with_paper(maps_of_method):
    pairs = zip(maps_of_method.flatten(1), methods["the paper's"].flatten(1), strict=True)
    mass = mass_inside(maps_of_method, world.masks) - area_share(world.masks)
    peak = maps_of_method.amax((1, 2)) / maps_of_method.mean((1, 2))
    return {
        "rank correlation with the paper's": np.mean([spearmanr(a, b).statistic for a, b in pairs]),
        "largest patch / mean patch": peak.mean().item(),
        "mass − area (points)": 100 * mass.mean().item(),
    }


compared = {name.replace("\n", " "): compare_with_paper(each) for name, each in methods.items()}
pd.DataFrame(compared).T.round(2)

# %% [markdown]
# The variant alone changes these numbers, with the same model and images: a figure has to name it.
# A high peak makes no better map: it grows with discarding, which knows nothing of the object.
#
# ## Experiment
#
# Held-out images of the world with exact masks of the visible part of the object; trained model and
# untrained controls; rollout and the last block's attention; the image's own mask and another
# image's.

# %%
table = measure.rollout(WORLD_WEIGHTS, **measure.SIZES[PRESET]["rollout"], seed=SEED)
table[["model", "method", "image", "mass", "area", "shuffled_mass", "shuffled_area"]].head()

# %% [markdown]
# ## Figure
#
# Left, every image: the share of rollout mass on the object over the object's share of the image.
# Right, the means as mass − area; the lower three are differences paired by image.

# %%
pairs = measure.per_image(table)
means = measure.compare_rollout(pairs)
first_models = (table["model"] == "trained") | (table["model_seed"] == SEED)
shown = table[(table["method"] == "rollout") & first_models]
alt = "Left: share of rollout mass on the object over the object's area, one dot per image, trained "
alt += "and untrained. Right: mean mass minus area of the trained model, of untrained ones and with "
alt += "another image's mask, and the paired differences, with intervals."
with plots.figure(study, "mass_on_object", 1, 2, alt=alt, figsize=(10, 4.2)) as axes:
    colours = {"trained": "C0", "untrained": plots.MUTED}
    sns.scatterplot(shown, x="area", y="mass", hue="model", style="model", palette=colours, ax=axes[0])
    axes[0].axline((0, 0), slope=1, color=plots.MUTED, linestyle="--", label="mass = area")
    axes[0].set(xlabel="share of the image that is object", ylabel="share of rollout mass on it")
    axes[0].legend()
    points = 100 * means.set_index("what")[["mean", "low", "high"]]
    plots.plot_comparisons(points, "mass − area (percentage points)", axes[1])

# %% [markdown]
# Dots above the dashed line are images whose object gets more of the mass than its area. The second
# and third row on the right need no knowledge of the object: untrained attention favours patches of
# high contrast, and most objects are near the middle. The next two rows are what was learned beyond
# them. The last compares rollout with the last block's raw attention.
#
# ## Verdict

# %%
own = pairs[pairs["method"] == "rollout"]
excess = claims.Estimate.of(100 * own["trained"], "points", "images")
claims.show(study, "C14", live={"rollout mass on the object minus its area": excess})

# %% [markdown]
# The interval covers other images, not other trainings. And mass on the object is not yet *use* of
# it: rollout knows nothing of values, MLPs or the head.
#
# Whether a place is used can be tested by hiding it. Move the square over the object (this takes a
# kernel): where does the probability of the answer fall most, and is rollout bright there?

# %%
widgets.occlusion(of_world, world.images[0], world.classes)

# %% [markdown]
# ### Next to a ViT that was trained on ImageNet
#
# The same notebook, run once with the weights of a ViT-Ti/16: its photographs under this run's.

# %%
plots.show_pictures(claims.imagenet(study, "photographs"))

# %% [markdown]
# ## How others get this wrong
#
# **Rows divided without `keepdim`.** `a / a.sum(-1)` divides column $j$ by the sum of row $j$. With
# the paper's mean over heads the mistake changes nothing, because every row of $\bar A + I$ sums to
# 2. It matters when sums differ, as after taking the maximum over heads, and more so after
# discarding small attention. The largest difference of a patch on the six images, as a share of the
# map's maximum:


# %%
def rollout_of_one(fused, keepdim):  # fused [blocks tokens tokens], of one image
    row = torch.eye(fused.shape[-1])[0]
    for attn in fused.flip(0):
        mixed = attn + torch.eye(attn.shape[-1])
        row = row @ (mixed / mixed.sum(-1, keepdim=keepdim))
    return row[n_prefix:].reshape(grid).numpy()


def largest_difference(right, wrong):
    return np.abs(right / right.max() - wrong / wrong.max()).max()


mean = torch.stack([attn.mean(1) for attn in maps], dim=1)  # [images blocks tokens tokens]
largest = torch.stack([attn.amax(1) for attn in maps], dim=1)
limit = largest.flatten(2).quantile(0.9, dim=2)[..., None, None]  # of each image's block
fusions = {"mean": mean, "max": largest, "max, 90 % discarded": largest * (largest > limit)}
for name, each in fusions.items():
    both = [[rollout_of_one(fused, keepdim) for keepdim in (True, False)] for fused in each]
    worst = max(both, key=lambda pair: largest_difference(*pair))
    print(f"{name:20} {largest_difference(*worst):.2f}")


# %% [markdown]
# The last of these on the image where it changes the map most. The difference is the wrong map minus
# the right one; the patch that differs most is framed.

# %%
alt = "Rollout of one image with the maximum over heads and 90 % discarded: the right map, the one "
alt += "with rows normalised without keepdim, and their difference."
right, wrong = (each / each.max() for each in worst)
place = divmod(int(np.abs(wrong - right).argmax()), right.shape[1])
with plots.figure(study, "mistakes", alt=alt, figsize=(9.4, 3.2)) as ax:
    three = {"right": right, "wrong": wrong, "difference": wrong - right}
    plots.plot_maps(three, ax, "RdBu_r", place)

# %% [markdown]
# Without the right map next to it the wrong one cannot be recognized. A test with the mean over heads
# and nothing discarded passes on both programs.
#
# **One item of a batch.** Another mistake, in how attention is discarded, treats only the first image
# of a batch: exercise 5.

# %% [markdown]
# ## Exercises
#
# ### 1 · Uniform attention, by hand (★, 10 minutes)
#
# In every block each token attends to all $T$ tokens equally. What is the class token's rollout for
# one *other* token after $L$ blocks?
#
# <details><summary>Hint</summary>With $U$ the matrix of entries $1/T$, $U U = U$, so a product of
# $L$ factors $\tfrac12 I + \tfrac12 U$ is again a mixture of $I$ and $U$. The weight of $I$ halves
# in each block.</details>


# %%
def uniform_rollout(n_tokens, n_blocks):
    ### BEGIN SOLUTION
    return (1 - 0.5**n_blocks) / n_tokens
    ### END SOLUTION


assert np.isclose(uniform_rollout(5, 1), 0.1)  # by hand: half of a fifth
for n_blocks in (1, 2, 12):
    product, _ = open_rollout([torch.full((1, 1, 5, 5), 1 / 5)] * n_blocks, (2, 2), 1)
    assert np.isclose(uniform_rollout(5, n_blocks), product[0, 0, 1].item(), rtol=1e-5)

# %% [markdown]
# ### 2 · Find the bug: which axis? (★★, 10 minutes)
#
# `mixed / mixed.sum(-1)` on a batch `[images, tokens, tokens]` either fails or, when the sizes
# happen to fit, scales the wrong axis. Write the step that adds the identity and makes every row
# sum to 1, for any attention.
#
# <details><summary>Hint</summary><code>keepdim=True</code> keeps the summed axis, with length
# 1.</details>


# %%
def with_skip(fused):
    """[images tokens tokens] → the same shape, rows that sum to 1."""
    ### BEGIN SOLUTION
    mixed = fused + torch.eye(fused.shape[-1])
    return mixed / mixed.sum(-1, keepdim=True)
    ### END SOLUTION


# Rows with different sums; as many images as tokens, so that the wrong version does not fail.
uneven = torch.rand(4, 4, 4, generator=torch.Generator().manual_seed(0))
assert torch.allclose(with_skip(uneven).sum(-1), torch.ones(4, 4))
by_hand = with_skip(torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]))
assert torch.allclose(by_hand, torch.tensor([[[0.5, 0.5], [0.0, 1.0]]]))

# %% [markdown]
# ### 3 · Only one row is wanted (★★, 15 minutes)
#
# The product of $T \times T$ matrices costs $T^3$ per block, but the map is one row of it. Compute
# the class token's row with $T^2$ per block.
#
# <details><summary>Hint</summary>$e_0^\top \hat A_L$ is a row vector. Multiply it with
# $\hat A_{L-1}$, and so on: which block comes first?</details>


# %%
def class_row(maps):
    """Maps [images heads tokens tokens], first block first → [images tokens]."""
    ### BEGIN SOLUTION
    identity = torch.eye(maps[0].shape[-1])
    row = identity[:1].repeat(len(maps[0]), 1, 1)
    for attn in reversed(maps):
        mixed = attn.mean(1) + identity
        row = row @ (mixed / mixed.sum(-1, keepdim=True))
    return row[:, 0]
    ### END SOLUTION


# %% [markdown]
# Against the full product, on blocks that differ, so that a loop in the wrong direction is caught;
# and PyTorch counts the operations.

# %%
draw = torch.Generator().manual_seed(SEED)
sharp = [torch.randn(3, 2, 17, 17, generator=draw).mul(3).softmax(-1) for _ in range(4)]
with FlopCounterMode(display=False) as counter:
    row = class_row(sharp)
assert torch.allclose(row, open_rollout(sharp, (4, 4), 1)[0][:, 0], atol=1e-6)
# blocks, images, two operations for each pair of tokens
assert counter.get_total_flops() <= 4 * 3 * 2 * 17**2

# %% [markdown]
# ### 4 · Does it grow with depth? (★★★, 20 minutes)
#
# Roll out only the first $k$ blocks, for every $k$, and compute the mean share of mass on the
# object over the images. Where does the object appear in this model's `maps`?
#
# <details><summary>Hint</summary><code>open_rollout(maps[:k], grid, n_prefix)</code> gives the
# maps, <code>mass_inside</code> the share of each.</details>


# %%
def mass_by_depth(maps, grid, n_prefix, masks):
    """A list of length L: mean mass on the object after the first k blocks."""
    ### BEGIN SOLUTION
    rollouts = [open_rollout(maps[:k], grid, n_prefix)[1] for k in range(1, len(maps) + 1)]
    return [mass_inside(rolled, masks).mean().item() for rolled in rollouts]
    ### END SOLUTION


# %% [markdown]
# Two blocks by hand: a class token and 2 × 2 patches that attend to themselves; the class token
# attends to patch 1 in the first block and to patch 4 in the second. After two blocks patch 1 has ½
# · ½ and patch 4 has ½.

# %%
first, second = (torch.eye(5).repeat(2, 1, 1, 1) for _ in range(2))  # [images heads tokens tokens]
first[:, :, 0] = torch.eye(5)[1]
second[:, :, 0] = torch.eye(5)[4]
object_masks = torch.zeros(2, 4, 4, dtype=torch.bool)
object_masks[0, :2, :2] = True  # patch 1 in the first image, patches 1 and 2 in the second
object_masks[1, :2] = True
assert np.allclose(mass_by_depth([first, second], (2, 2), 1, object_masks), [1, 1 / 3])
assert np.allclose(mass_by_depth([second, first], (2, 2), 1, object_masks), [0, 2 / 3])
assert np.allclose(mass_by_depth([first, second, first], (2, 2), 1, ~object_masks)[:2], [0, 2 / 3])

# %% [markdown]
# ### 5 · Find two bugs: discarding (★★, 15 minutes)
#
# Before the blocks are multiplied, circulating code sets the smallest entries of each image's
# attention to 0:
#
# ```python
# def discard(fused, ratio):  # [images tokens tokens]
#     flat = fused.view(len(fused), -1)
#     lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
#     flat[0, lowest] = 0
#     return fused
# ```
#
# In a batch, entries of all images are set to 0 in the first, and none in the others; and the
# function changes its argument. Correct both.
#
# <details><summary>Hint</summary><code>scatter</code> writes along an axis, row by row. And
# <code>view</code> shares its numbers with what it is a view of.</details>


# %%
def discard(fused, ratio):
    ### BEGIN SOLUTION
    flat = fused.flatten(1)
    lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
    return flat.scatter(1, lowest, 0.0).view_as(fused)
    ### END SOLUTION


given = torch.tensor([[[0.1, 0.2], [0.3, 0.4]], [[0.8, 0.7], [0.6, 0.5]]])
before = given.clone()
by_hand = torch.tensor([[[0.0, 0.0], [0.3, 0.4]], [[0.8, 0.7], [0.0, 0.0]]])
assert torch.equal(discard(given, 0.5), by_hand)
assert torch.equal(given, before)  # the argument is unchanged
assert torch.equal(discard(given, 0.25).eq(0).sum((1, 2)), torch.tensor([1, 1]))
batch = torch.rand(5, 7, 7, generator=torch.Generator().manual_seed(SEED))
assert torch.equal(discard(batch, 0.9)[3], discard(batch[3:4], 0.9)[0])  # alone as in a batch

# %% [markdown]
# ## Summary
#
# - Rollout is the product of all blocks' attention, each averaged with the identity; the class
#   token's row is the map.
# - A mask and three controls make the picture a measurement that can fail: area, untrained weights,
#   another image's mask.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - S. Abnar, W. Zuidema. *Quantifying Attention Flow in Transformers.* ACL 2020, arXiv:2005.00928.
