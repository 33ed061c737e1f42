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
# Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 6, Fig. 14, App. D.8; the
# method is Abnar and Zuidema's (2020). Claim C14. 20 seconds at `quick`; a model at 224 pixels takes
# minutes.

# %% [markdown]
# ## What you will learn
#
# - how the attention of many blocks becomes one map, and why the identity matrix stands for the skip
#   connections
# - how to measure what the picture shows: the map's mass inside an object mask, against three
#   controls
# - which mistakes in circulating code make wrong maps that look as convincing
#
# **Prerequisites**: self-attention as in notebook 01; matrix products; confidence intervals.

# %% [markdown]
# Two models are looked at. `WEIGHTS` is for photographs: `"lab"` (a small ViT that was trained on
# photographs), a timm name such as `"vit_base_patch16_224"`, or the path of a safetensors file.
# `WORLD_WEIGHTS` is for synthetic images, whose objects have exact masks: `"lab-world"` was trained
# on them; any other weights are out of their domain there.

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
import torch
from scipy.stats import spearmanr
from torch.utils.flop_counter import FlopCounterMode

from vitlab import claims, plots, widgets
from vitlab.analysis.attention import attention_maps, grid_size, n_prefix_tokens, reads_class_token
from vitlab.analysis.masks import area_share, mass_inside
from vitlab.analysis.rollout import attention_rollout, gradient_rollout
from vitlab.analysis.rollout import last_block_attention, overlay
from vitlab.data import datasets
from vitlab.studies import measure
from vitlab.models import zoo
from vitlab.widgets import viewer

chosen = {"weights": WEIGHTS, "world_weights": WORLD_WEIGHTS}
study = claims.begin("09_attention_rollout", PRESET, SEED, **chosen)
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
# with the image: where rollout is low, the picture is dark. (We leave a share `FLOOR` of the
# brightness everywhere, so that one sees what rollout passes over.)


# %%
FLOOR = 0.25  # brightness where rollout is 0; the paper's is 0


def lit_by(trained, images, size):
    """Row → weights [images height width]: rollout, last block's attention, untrained rollout."""
    control = zoo.load(
        WEIGHTS if trained is of_photographs else WORLD_WEIGHTS, untrained=True, seed=SEED
    )
    rows = measure.both_maps(trained.model, images)
    rows["untrained"] = measure.both_maps(control.model, images)["rollout"]
    return {row: overlay(rolled, size).numpy() for row, rolled in rows.items()}


BELOW = (
    "below each the image lit by the trained model's rollout, by its last block's attention, and "
)
BELOW += "by an untrained model's rollout."


# %% [markdown]
# Six images that no training has seen, the labelled object outlined; below the trained model's
# rollout, its last block's raw attention, and the rollout of an untrained model:

# %%
pictures = measure.view(of_world, list(world.images)).numpy()  # [images height width 3]
alt = f"Six images of the world, the labelled object outlined; {BELOW}"
size = {"figsize": (10, 6.75), "squeeze": False}
with plots.figure(study, "world", 4, len(x), alt=alt, **size) as axes:
    lit = lit_by(of_world, x, pictures.shape[1:3])
    plots.plot_overlays(pictures, lit, axes, world.masks.numpy(), FLOOR)

# %% [markdown]
# What lies outside the outlines should be dark. The untrained model lights almost everything.

# %% [markdown]
# The first of these images in the viewer. Row $i$ of $R$ belongs to token $i$, so every patch has a
# rollout of its own: point at one to see it. "All heads" shows the attention that was multiplied.

# %%
title = f"{of_world.name}: rollout of every token"
viewer.view(of_world, world.images[0], show="rollout", title=title, fit=True)

# %% [markdown]
# ### See it: photographs
#
# Photographs that come with the dependencies, and those in `photos/` of the folder `VITLAB_DATA`
# names. The lab model has no class for a pagoda, a flower or a portrait. What is bright says from
# which patches its class token has gathered, not that it recognizes the object.

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

# %% [markdown]
# ### Which rollout? Variants side by side
#
# "Attention rollout" in other people's figures is often something else. The paper takes the *mean*
# over heads and keeps everything. Circulating code offers the *maximum* or *minimum* over heads and a
# *discard ratio*: in every block, the smallest entries are set to 0. The last block's *raw attention*
# is no rollout at all. *Gradient-weighted* rollout (Chefer et al. 2021) weights attention with the
# gradient of one class's logit and keeps what is positive: it explains a class.


# %%
def variants(model, images):
    """Method → map [images rows cols]; the paper's first."""
    rolled = {
        "rollout\n(the paper's)": attention_rollout(model, images),
        "maximum\nover heads": attention_rollout(model, images, head_fusion="max"),
        "minimum\nover heads": attention_rollout(model, images, head_fusion="min"),
        "mean, 90 %\ndiscarded": attention_rollout(model, images, discard_ratio=0.9),
        "last block,\nraw": last_block_attention(model, images),
    }
    try:
        rolled["gradient\nweighted"] = gradient_rollout(model, images)
    except ValueError as reason:  # a model without a classifier has no class to explain
        print(f"gradient-weighted rollout left out: {reason}")
    return rolled


methods = variants(of_world.model, x)
paper = next(iter(methods))
if reads_class_token(of_world.model):
    assert torch.allclose(methods[paper], rollout, atol=1e-6)

# %% [markdown]
# The image, the paper's rollout smooth and patch by patch (all that the smooth picture knows), then
# the variants. Two images of the world with its model, then photographs with theirs.


# %%
def drawn(trained, images, size):
    """Method → weights [images height width]; the paper's twice, smooth and patch by patch."""
    rolled = variants(trained.model, images)
    by_patch = overlay(rolled[paper], size, smooth=False)
    smooth = {name: overlay(each, size) for name, each in rolled.items()}
    ordered = {paper: smooth[paper], "the same,\npatch by patch": by_patch, **smooth}
    return {name: weights.numpy() for name, weights in ordered.items()}


of_two = drawn(of_world, x[:2], pictures.shape[1:3])
of_four = drawn(of_photographs, x_photographs[:4], views.shape[1:3])
both = [name for name in of_two if name in of_four]  # without a classifier one is left out
count = len(of_four[paper])
alt = "Images of the world and photographs, one a row; beside each the image lit by the paper's "
alt += "rollout, smooth and patch by patch, and by variants: maximum and minimum over heads, "
alt += "discarding, raw attention of the last block, gradient-weighted."
options = {"figsize": (1.35 * (1 + len(both)), 1.35 * (2 + count) + 0.4), "squeeze": False}
with plots.figure(study, "variants", 2 + count, 1 + len(both), alt=alt, **options) as axes:
    plots.plot_overlays(pictures[:2], {n: of_two[n] for n in both}, axes[:2], floor=FLOOR, across=True)
    plots.plot_overlays(views[:count], {n: of_four[n] for n in both}, axes[2:], floor=FLOOR, across=True)

# %% [markdown]
# Maximum and minimum answer another question (what *any* head, or *every* head, looks at), and
# discarding makes a map look sharp by construction, whatever the model has learned. How far each is
# from the paper's, and how much of it lies on the object:


# %%
def beside_the_papers(maps_of_method):
    pairs = zip(maps_of_method.flatten(1), methods[paper].flatten(1), strict=True)
    mass = mass_inside(maps_of_method, world.masks) - area_share(world.masks)
    peak = maps_of_method.amax((1, 2)) / maps_of_method.mean((1, 2))
    return {
        "rank correlation with the paper's": np.mean([spearmanr(a, b).statistic for a, b in pairs]),
        "largest patch / mean patch": peak.mean().item(),
        "mass − area (points)": 100 * mass.mean().item(),
    }


rows = {name.replace("\n", " "): beside_the_papers(each) for name, each in methods.items()}
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# The variant alone changes these numbers, with the same model and images: a figure has to name it. A
# map with a high peak is not a better map: the second column grows with discarding, which knows
# nothing of the object.
#
# Move the controls (this takes a kernel). With the mean over heads, discard more and more: the peak
# grows; does the share on the object grow with it? Then take the maximum and the minimum.

# %%
widgets.rollout_variants(
    pictures,
    maps,
    grid,
    n_prefix,
    world.masks,
    class_token=reads_class_token(of_world.model),
)

# %% [markdown]
# ## Experiment
#
# Held-out images of the world with exact masks of the visible part of the object; trained model and
# untrained controls; rollout and the last block's attention; the image's own mask and another
# image's.

# %%
table = measure.rollout(WORLD_WEIGHTS, **measure.SIZES[PRESET]["rollout"], seed=SEED)
table[["model", "method", "image", "mass", "area", "shuffled_mass", "hit", "chance"]].head()

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
alt = (
    "Left: share of rollout mass on the object over the object's area, one dot per image, trained "
)
alt += (
    "and untrained. Right: mean mass minus area of the trained model, of untrained ones and with "
)
alt += "another image's mask, and the paired differences, with intervals."
with plots.figure(study, "mass_on_object", 1, 2, alt=alt, figsize=(10, 4.2)) as axes:
    plots.plot_mass_against_area(shown, axes[0])
    points = 100 * means.set_index("what")[["mean", "low", "high"]]
    plots.plot_comparisons(points, "mass − area (percentage points)", axes[1])

# %% [markdown]
# Dots above the dashed line are images whose object gets more of the mass than its area. The second
# and third row on the right need no knowledge of the object: untrained attention favours patches of
# high contrast, and another image's object is, like most, near the middle. The next two rows are what
# was learned beyond them. In the last, rollout puts more on the object than the last block's raw
# attention does.

# %% [markdown]
# The pointing game asks only whether the patch of the highest value is mostly object:

# %%
share = table.groupby(["model", "method"], sort=False)[["mass", "area", "hit", "chance"]].mean()
share.rename(columns={"hit": "pointing hits", "chance": "hits by chance"}).round(3)

# %% [markdown]
# Mass and pointing need not agree: a map may put most of its mass on the object and have its one
# highest patch in the background; in large models such patches hold information about the whole image
# (Darcet et al. 2024).

# %% [markdown]
# ## Verdict

# %%
own = pairs[pairs["method"] == "rollout"]
excess = claims.Estimate.of(100 * own["trained"], "points", "images")
claims.show(study, "C14", live={"rollout mass on the object minus its area": excess})

# %% [markdown]
# The interval covers other images, not other trainings. And mass on the object is not yet *use* of
# the object: rollout knows nothing of values, MLPs or the head.
#
# Whether a place is used can be tested by hiding it. Move the square from a corner over the object
# (this takes a kernel): where does the probability of the answer fall most, and is rollout bright
# there? Compare with a square of the same size elsewhere.

# %%
widgets.occlusion(of_world, world.images[0], world.classes)

# %% [markdown]
# ### Next to a ViT that was trained on ImageNet
#
# The same notebook, run once with the weights of a ViT-Ti/16: its photographs under this run's. The
# synthetic world is out of that model's domain: there rollout puts hardly more weight on the object
# than its area.

# %%
plots.show_pictures(claims.imagenet(study, "photographs"), under=True)

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


def apart(right, wrong):
    return np.abs(right / right.max() - wrong / wrong.max()).max()


# %% [markdown]
# The same for every image, with three ways to make one matrix of the heads':

# %%
mean, largest = (
    torch.stack([fuse(attn, dim=1) for attn in maps], dim=1) for fuse in (torch.mean, torch.amax)
)  # [images blocks tokens tokens]
ninety = int(0.9 * largest[0, 0].numel())
limit = largest.flatten(2).kthvalue(ninety, dim=2).values[..., None, None]  # of each image's block
fusions = {
    "mean": mean,
    "max": largest,
    "max, 90 % discarded": largest * (largest > limit),
}
versions = {
    name: [[rollout_of_one(fused, keepdim) for keepdim in (True, False)] for fused in each]
    for name, each in fusions.items()
}
for name, pairs_of in versions.items():
    print(f"{name:20} {max(apart(*pair) for pair in pairs_of):.2f}")

# %% [markdown]
# **One item of a batch.** A much copied implementation discards the smallest attention with
# `flat[0, indices] = 0`, where `indices` belong to the whole batch. Only in the first image is
# attention set to 0, at the indices of all images, so that its map depends on the others in its
# batch:


# %%
def without_smallest(fused, ratio, index):
    flat = fused.flatten(1).clone()
    lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
    flat[index(len(flat)), lowest] = 0
    return flat.view_as(fused)


def discarding(maps, index):
    row = torch.eye(maps[0].shape[-1])[None, :1].repeat(len(maps[0]), 1, 1)
    for attn in reversed(maps):
        mixed = without_smallest(attn.mean(1), 0.5, index) + torch.eye(attn.shape[-1])
        row = row @ (mixed / mixed.sum(-1, keepdim=True))
    return row[0, 0, n_prefix:].reshape(grid).numpy()


right = discarding(maps, lambda n: torch.arange(n)[:, None])
alone = discarding([attn[:1] for attn in maps], lambda n: 0)
wrong = discarding(maps, lambda n: 0)
for where, rolled_wrongly in (("alone", alone), (f"among {len(x)}", wrong)):
    print(f"wrong code, image 0 {where:8} differs by {apart(right, rolled_wrongly):.2g}")

# %% [markdown]
# Both in pictures: the first mistake on the image where it changes the map most, the second on the
# first image, the only one that it treats at all. The difference is the wrong map minus the right
# one, blue where the wrong map is lower, red where it is higher. The patch that differs most is
# framed.

# %%
alt = (
    "Two mistakes: rows normalised without keepdim, and discarding in item 0 of a batch only. For "
)
alt += "each the right map, the wrong one, and their difference."
labels = ("no keepdim\n(max over heads,\n90 % discarded)", "item 0 only\n(half discarded)")
with plots.figure(study, "mistakes", 2, 3, alt=alt, figsize=(9.4, 6.4)) as axes:
    worst = max(versions["max, 90 % discarded"], key=lambda pair: apart(*pair))
    plots.plot_maps_compared(*worst, axes[0])
    plots.plot_maps_compared(right, wrong, axes[1])
    for ax, label in zip(axes[:, 0], labels, strict=True):
        place = {"transform": ax.transAxes, "rotation": 90, "ha": "right", "va": "center"}
        ax.text(-0.08, 0.5, label, **place)

# %% [markdown]
# Without the right map next to it a wrong one cannot be recognized. A test with one image, or with
# the mean over heads and nothing discarded, passes on both programs.

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
assert (
    counter.get_total_flops() <= 4 * 3 * 2 * 17**2
)  # blocks, images, two operations for each pair

# %% [markdown]
# ### 4 · Does it grow with depth? (★★★, 20 minutes)
#
# Roll out only the first $k$ blocks, for every $k$, and compute the mean share of mass on the
# object over the images. Then call it with this model's `maps` and `world.masks`: where does the
# object appear?
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
# attends to patch 1 in the first block and to patch 4 in the second. After one block all mass on
# patches is on patch 1; after two, patch 1 has ½ · ½ and patch 4 has ½.

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
# function changes its argument, so that a second call gives another answer. Correct both.
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
# - With the paper's mean over heads a normalisation mistake changes nothing; with every other fusion
#   it does.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - S. Abnar, W. Zuidema. *Quantifying Attention Flow in Transformers.* ACL 2020, arXiv:2005.00928.
# - H. Chefer, S. Gur, L. Wolf. *Generic Attention-model Explainability for Interpreting Bi-Modal and
#   Encoder-Decoder Transformers.* ICCV 2021, arXiv:2103.15679: gradient-weighted rollout.
# - J. Zhang et al. *Top-down Neural Attention by Excitation Backprop.* ECCV 2016, arXiv:1608.00507:
#   the pointing game.
# - T. Darcet et al. *Vision Transformers Need Registers.* ICLR 2024, arXiv:2309.16588: bright patches
#   that are no object.
