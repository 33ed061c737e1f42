# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 08 · Mean attention distance
#
# **In the lowest blocks some heads attend to neighbouring patches and others to the whole image; with
# depth, attention distance grows.**
#
# Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 7 (right), Fig. 11,
# App. D.7. Claims C12, C13; of later work L01, L02.  Twenty seconds at `quick`; a model at 224
# pixels takes longer.

# %% [markdown]
# ## What you will learn
#
# - what "how far a head looks" means, in pixels, and how to compute it from the attention matrix
# - why two programs that treat the class token differently disagree about the same head
# - how to tell what training did from what the architecture does by itself
#
# **Prerequisites**: self-attention as in notebook 01; means, rank correlation, confidence intervals.

# %% [markdown]
# `WEIGHTS`: `"lab"` (a small ViT trained on photographs: first to predict hidden patches, then with
# labels), `"lab-masked"` (the same before labels), `"lab-world"` (of synthetic images), a timm name
# such as `"vit_base_patch16_224"`, or a `.safetensors` file. `IMAGES`: `"crops"` (cut-outs of three
# photographs), `"photographs"`, `"world"`, or the name or folder of a data set; `"auto"` takes what
# the model was trained on. `HYBRID`: a hybrid to compare with; `"auto"` takes `"lab-hybrid"`, which
# was trained like `"lab"`, for that.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"
IMAGES = "auto"
HYBRID = "auto"

# %% [markdown]
# Imports. `study` is this execution.

# %%
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown

from vitlab import claims, plots
from vitlab.analysis.attention import attention_maps, grid_size, n_prefix_tokens, patch_stride
from vitlab.analysis.distance import attention_distance, local_share, pixel_distances
from vitlab.studies import measure, tables
from vitlab.models import zoo
from vitlab.widgets import viewer

chosen = {"weights": WEIGHTS, "images": IMAGES, "hybrid": HYBRID}
study = claims.begin("07_attention_distance", PRESET, SEED, **chosen)
pretrained = zoo.load(WEIGHTS)
if HYBRID == "auto":
    HYBRID = "lab-hybrid" if WEIGHTS == "lab" else ""
IMAGES = measure.image_source(pretrained) if IMAGES == "auto" else IMAGES
print(f"{pretrained.name}, input {pretrained.image_size} px, images: {IMAGES}")
print(f"hybrid to compare with: {HYBRID or 'none was trained like this model'}")

# %% [markdown]
# ## Prediction
#
# **The paper** (Fig. 7 right): in the first block the heads' distances range from a few pixels to
# most of the image; in the upper half of the blocks all are large. The lab models have few blocks and
# coarse grids. What do you expect of them?
#
# **Decision rules** (how to read them: notebook 00), from intervals over images. **C12** has two
# parts. *Growth*: the *trend*, the rank correlation of a block's distance with its number, is above 0
# and above untrained models'. *Variety*: the *spread*, the largest minus the smallest distance of a
# block's heads, is larger in the first block than in the last, and than in untrained models. **C13**:
# a head is *local* where its distance is below half that of attention spread evenly over the patches.
# The share of local heads in the lowest third of the blocks, hybrid minus ViT, is below 0, where 5
# points are no difference.
#
# **Beyond the paper**, from intervals over seeds. **L01** (Raghu et al. 2021): with labels alone, of
# 300 and of 1,000 photographs, less than 5 % of the heads of the lower half of the blocks end local.
# **L02** (Park et al. 2023): masked prediction makes more of them local than labels do, by more than 5
# points, for each number of photographs.

# %% [markdown]
# ## Idea
#
# Let $A$ be a head's attention after the softmax, and $d_{ij}$ the distance in pixels between the
# patches $i$ and $j$. Prefix tokens (the class token) have no place in the image: their rows and
# columns are dropped. The head's mean attention distance over $N$ patches is
#
# $$ \bar d = \frac1N \sum_{i=1}^{N} \sum_{j=1}^{N} A_{ij}\, d_{ij}. $$
#
# The *stride* is the number of pixels from one patch to the next:


# %%
def open_distance(attn, grid, stride, n_prefix):
    place = torch.cartesian_prod(*map(torch.arange, grid)) * torch.tensor(stride).float()
    d = (place[:, None] - place).norm(dim=-1)  # [patches patches], pixels
    between_patches = attn[:, :, n_prefix:, n_prefix:]
    return (between_patches * d).sum(-1).mean(-1)  # [images heads]


# %% [markdown]
# The distance of *uniform attention*, equal to all tokens, follows from the grid alone; here on the
# paper's, 14 × 14 patches of 16 pixels. With a class token, 1/197 of every row falls on it. In mode
# **"paper"** the rows stay as they are once its column is dropped: its share counts as distance 0. In
# mode **"renormalized"** the rows are made to sum to 1 again.

# %%
with_class, patches_only = (torch.full((1, 1, n, n), 1 / n) for n in (197, 196))
papers = open_distance(with_class, (14, 14), 16, 1).item()
renormalized = open_distance(patches_only, (14, 14), 16, 0).item()
oneself = open_distance(torch.eye(197)[None, None], (14, 14), 16, 1).item()
print(f'uniform attention, mode "paper":          {papers:.2f} px')
print(f'uniform attention, mode "renormalized":   {renormalized:.2f} px')
print(f"attention to oneself alone, either mode:  {oneself:.2f} px")

# %% [markdown]
# Now an image and the model of this run. `attention_maps` returns one matrix per block,
# `[image, head, query, key]`; every row is a distribution.

# %%
source = "photographs" if IMAGES == "crops" else IMAGES  # a whole one, to look at
picture = measure.load_pictures(pretrained, source, 1, SEED)[0]
x = pretrained.prepare(picture[None])  # [1 3 height width]
with torch.inference_mode():
    maps = attention_maps(pretrained.model, x)
grid, n_prefix = grid_size(pretrained.model, x), n_prefix_tokens(pretrained.model)
stride = patch_stride(pretrained.model)  # pixels, down and across
n_tokens = n_prefix + grid[0] * grid[1]
assert maps[0].shape == (1, maps[0].shape[1], n_tokens, n_tokens)
for attn in maps:
    assert torch.allclose(attn.sum(-1), torch.ones(()), atol=1e-4)
    ours = open_distance(attn, grid, stride, n_prefix)
    assert torch.allclose(ours, attention_distance(attn, grid, stride, n_prefix), atol=1e-3)
print(f"{len(maps)} blocks of {maps[0].shape[1]} heads")
print(f"{grid[0]} × {grid[1]} patches, {n_prefix} prefix token(s)")

# %% [markdown]
# ### See it
#
# Point at a patch, or tap it: all maps show the attention from there, of every head of every block.
# Which heads attend to neighbouring patches wherever you point, and which always to the same place?
# The viewer needs no kernel.

# %%
viewer.view(pretrained, picture, title=f"{pretrained.name}: attention of every head", fit=True)

# %% [markdown]
# ## Experiment
#
# Every head of every block, on every image, in both modes; then the same for models of this
# architecture that were never trained. The evidence is of 128 images, as in the paper.

# %%
table = measure.distances(WEIGHTS, IMAGES, **measure.SIZES[PRESET]["distances"], seed=SEED)
table[["model", "image", "block", "head", "distance_px", "renormalized_px", "prefix_mass"]].head()

# %% [markdown]
# ## Figure
#
# The paper's dot plot, in mode "paper"; a thin line joins the blocks' means. The dashed line is
# uniform attention.

# %%
heads, image_px = measure.head_summary(table), pretrained.image_size[1]
uniform_px = pixel_distances(grid, stride).mean().item()  # mode "renormalized"
uniform_paper = uniform_px * (n_tokens - n_prefix) / n_tokens
alt = "Mean attention distance of every head over its block's number, mode 'paper', for the trained "
alt += "model and untrained controls, with the distance of uniform attention as a dashed line."
with plots.figure(study, "attention_distance", alt=alt, figsize=(7.6, 4.8)) as ax:
    plots.plot_attention_distances(heads, ax, uniform=uniform_paper, image_px=image_px)
    plots.legend_below([ax])

# %% [markdown]
# The untrained models lie in a narrow band near the dashed line, in every block: what the dots do
# beyond it is an effect of training. Dots below are heads that attend to near patches (or to the
# class token, see below); dots above are heads whose attention gathers where most queries are far
# away, such as the border.

# %% [markdown]
# ### Two modes, and the class token
#
# Left, mode "renormalized": the distance of the attention that is on patches. Right, the share of
# attention that goes to the class token, on which the modes differ.

# %%
alt = "Left: attention distance in mode 'renormalized', per head and block. Right: the share of "
alt += "attention that goes to the class token."
with plots.figure(study, "renormalized_and_class_token", 1, 2, alt=alt, figsize=(10, 4.2)) as axes:
    options = {"column": "renormalized_px", "uniform": uniform_px, "image_px": image_px}
    plots.plot_attention_distances(heads, axes[0], **options)
    axes[0].set_ylabel(f"renormalized distance (px of {image_px})")
    plots.plot_by_block(heads, "prefix_mass", axes[1])
    axes[1].set(ylabel="attention to the class token", ylim=(0, None))
    plots.legend_below(axes)
trained = heads[heads["model"] == "trained"]
worst = trained.loc[(trained["renormalized_px"] - trained["distance_px"]).idxmax()]
Markdown(
    f"The modes differ most for head {worst['head']:.0f} of block {worst['block']:.0f}: "
    f'{worst["distance_px"]:.1f} px in mode "paper", {worst["renormalized_px"]:.1f} px in mode '
    f'"renormalized". It pays {worst["prefix_mass"]:.0%} of its attention to prefix tokens.'
)

# %% [markdown]
# A head with a short distance in mode "paper" may be *local*, or it may attend to the class token.
# Only the second panel tells the two apart, so the distance should never be shown without it.
#
# ## Verdict
#
# ### C12: growth and variety
#
# The verdict is that of `lab`, and its interval covers other images, not other trainings. Under it
# the quantities of the rule for this run.

# %%
per_image = measure.contrasts(table)
unit = {"trend": "", "trend − untrained": ""}  # and of all others:
px = f"px of {image_px}"
numbers = {name: claims.Estimate.of(per_image[name], unit.get(name, px), "images") for name in per_image}
claims.show(study, "C12", live={"trend": numbers["trend"], "spread of block 1": numbers["spread, first"]})
pd.Series(numbers, name="mean over images").map(str).to_frame()

# %% [markdown]
# ### C13: the hybrid
#
# The hybrid's tokens come out of a ResNet, which has mixed neighbouring pixels already: it needs
# fewer heads that do. We compare a hybrid with the same transformer, trained on the same data in
# the same steps. Heads below the dotted line are local.

# %%
if HYBRID:
    hybrid, lines = zoo.load(HYBRID), {"uniform": uniform_paper, "local": uniform_px / 2}
    hybrid_table = measure.distances(HYBRID, IMAGES, **measure.SIZES[PRESET]["distances"], seed=SEED)
    assert grid_size(hybrid.model, hybrid.prepare(picture[None])) == grid
    alt = "Mean attention distance of every head over its block's number, for the ViT on the left "
    alt += "and the hybrid on the right, with untrained controls and the limit of local heads."
    shape = {"figsize": (10.5, 4.6), "sharey": True}
    with plots.figure(study, "hybrid", 1, 2, alt=alt, **shape) as axes:
        names = plots.labels([pretrained.name, hybrid.name]).values()
        hybrid_heads = measure.head_summary(hybrid_table)
        for ax, name, dots in zip(axes, names, (heads, hybrid_heads), strict=True):
            plots.plot_attention_distances(dots, ax, image_px=image_px, **lines)
            ax.set_title(name)
        axes[1].set_ylabel("")
        plots.legend_below(axes)

# %% [markdown]
# The one head of `lab` that is local owes it to its attention to the class token: in mode
# "renormalized" C13 would not be reproduced.

# %%
live = {}
if HYBRID:
    shares = [measure.local_share_in_low_blocks(each, uniform_px / 2) for each in (hybrid_table, table)]
    live = {"hybrid − ViT": claims.Estimate.of(100 * (shares[0] - shares[1]), "points", "images")}
claims.show(study, "C13", live=live)

# %% [markdown]
# ### How local heads come about (beyond the paper)
#
# The same small ViT is trained on photographs of Imagenette by masked prediction (notebook 10) and
# by labels, always for 96,000 samples. Every head's distance is measured on the way; the band is a
# 95 % interval over seeds.

# %%
rows, where_from = tables.evidence("local_heads"), tables.about("local_heads")
print(where_from)
rows = rows[rows["data"] != "photographs"]
counts, shares = sorted(rows["n_train"].unique()), tables.looks(rows)
alt = "Share of local heads over the images seen, for masked prediction and for labels: one panel for "
alt += "each number of training photographs."
shape = {"figsize": (3.2 * len(counts), 3.4), "sharey": True, "squeeze": False}
with plots.figure(study, "local_shares", 1, len(counts), alt=alt, **shape) as axes:
    for ax, count in zip(axes[0], counts, strict=True):
        plots.plot_by_samples(shares[shares["n_train"] == count], ax)
        ax.set_title(f"{count:,} photographs")
        ax.label_outer()
    axes[0, 0].set_ylim(-0.02, 1.02)

# %% [markdown]
# In every training by hidden patches, on few photographs as on many, heads become local. Labels of
# the same photographs leave every head near uniform attention to the end. A likely reason: to say
# what a hidden patch looked like, it helps to look next to it; to tell ten classes apart, it need
# not.

# %%
claims.show(study, "L01")
claims.show(study, "L02")

# %% [markdown]
# ### Next to a ViT that was trained on ImageNet
#
# The same notebook, run once with the weights of a ViT-Ti/16 at 224 pixels. Distances are in pixels
# of each model's own images.

# %%
plots.show_pictures(claims.imagenet(study, "attention_distance"))

# %% [markdown]
# ## How others get this wrong
#
# Two mistakes raise no error. Blocks are stacked in the order of their *names*, `blocks.10` before
# `blocks.2`: exercise 2. And the class token is dropped from the wrong end. It is token 0; `[:-1]`
# removes the last patch and takes the class token for the patch in the top left corner, and every
# patch for the one after it:

# %%
right, wrong = [], []
for attn in maps:
    right.append(open_distance(attn, grid, stride, n_prefix)[0])
    kept = slice(0, n_tokens - n_prefix)
    wrong.append(open_distance(attn[:, :, kept, kept], grid, stride, 0)[0])
error = torch.stack(wrong) - torch.stack(right)  # [blocks heads]
print(f"error of single heads: {error.min():+.1f} … {error.max():+.1f} px")

# %% [markdown]
# ## Exercises
#
# ### 1 · Half of the attention on the class token (★, 5 minutes)
#
# A head gives half of its attention to the class token and spreads the rest evenly over the
# patches. Given the distance of a head that attends to the *patches* evenly, what is its distance
# in each mode?
#
# <details><summary>Hint</summary>In mode "paper" the class token's share counts as distance 0. In
# mode "renormalized" rows are divided by what is on patches.</details>


# %%
def half_on_class(uniform_over_patches):
    """Returns (distance in mode "paper", distance in mode "renormalized")."""
    ### BEGIN SOLUTION
    return uniform_over_patches / 2, uniform_over_patches
    ### END SOLUTION


half = torch.full((1, 1, 197, 197), 0.5 / 196)  # the paper's grid
half[..., 0] = 0.5
modes = ("paper", "renormalized")
by_matrix = [attention_distance(half, (14, 14), 16, 1, mode).item() for mode in modes]
assert np.allclose(half_on_class(by_matrix[1]), by_matrix, rtol=1e-4)
assert np.allclose(half_on_class(116.49), (58.245, 116.49))

# %% [markdown]
# ### 2 · Find the bug: a dictionary's order (★★, 10 minutes)
#
# A widely copied tool stacks attention in the order of `sorted(names)`. Write the order that is
# meant: that of the block numbers, for any number of blocks.
#
# <details><summary>Hint</summary><code>sorted</code> takes a <code>key</code>; the number stands
# between the dots.</details>


# %%
def in_block_order(names):
    ### BEGIN SOLUTION
    return sorted(names, key=lambda name: int(name.split(".")[1]))
    ### END SOLUTION


for n_blocks in (8, 24, 120):
    meant = [f"blocks.{block}.attn" for block in range(n_blocks)]
    shuffled = list(np.random.default_rng(0).permutation(meant))  # so that luck does not help
    assert in_block_order(shuffled) == meant

# %% [markdown]
# ### 3 · A head that attends one patch to the right (★★, 15 minutes)
#
# Build the attention matrix `[1, 1, patches, patches]` (no class token) of a head that puts
# everything on the right-hand neighbour, and on the patch itself in the last column. Predict its
# distance before you run it.
#
# <details><summary>Hint</summary>Row by row, patch <code>i</code> has its right-hand neighbour at
# <code>i + 1</code>, unless <code>i % cols == cols - 1</code>.</details>


# %%
def looks_right(rows, cols):
    ### BEGIN SOLUTION
    patch = torch.arange(rows * cols)
    neighbour = torch.where(patch % cols == cols - 1, patch, patch + 1)
    return torch.eye(rows * cols)[neighbour][None, None]
    ### END SOLUTION


assert looks_right(2, 3)[0, 0].argmax(-1).tolist() == [1, 2, 2, 4, 5, 5]
for rows, cols in ((2, 2), (3, 5), (14, 14)):
    matrix = looks_right(rows, cols)
    assert matrix.shape == (1, 1, rows * cols, rows * cols) and (matrix.sum(-1) == 1).all()
    # All but one column move by one patch.
    distance = attention_distance(matrix, (rows, cols), 16, 0).item()
    assert np.isclose(distance, 16 * (cols - 1) / cols)

# %% [markdown]
# ### 4 · How many heads are local? (★★★, 20 minutes)
#
# C13 compares the share of local heads of a hybrid and a ViT. Write that share per block for the
# trained model, from a table such as `heads`, calling a head local if its distance is below a
# limit. Then look at `heads` with `uniform_px / 2` as the limit: does the answer change with the
# column `renormalized_px`?
#
# <details><summary>Hint</summary>Take the trained model's rows, compare the column with the limit,
# then group by <code>block</code> and take the mean.</details>


# %%
def share_local(heads, column, limit):
    """A list: for each block, the share of the trained model's heads below the limit."""
    ### BEGIN SOLUTION
    trained = heads[heads["model"] == "trained"]
    return (trained[column] < limit).groupby(trained["block"]).mean().tolist()
    ### END SOLUTION


made = pd.DataFrame(
    {
        "model": ["trained"] * 4 + ["untrained"] * 2,
        "block": [1, 1, 1, 2, 1, 2],
        "distance_px": [10.0, 51.0, 80.0, 125.0, 90.0, 90.0],
        "renormalized_px": [90.0] * 6,
    }
)
assert np.allclose(share_local(made, "distance_px", 58.2), [2 / 3, 0])  # counted by hand
assert np.allclose(share_local(made, "renormalized_px", 58.2), [0, 0])
px = 100 * torch.rand(1, 6, 4, generator=torch.Generator().manual_seed(0))  # [images blocks heads]
blocks = np.repeat(range(1, 7), 4)
many = pd.DataFrame({"model": "trained", "block": blocks, "distance_px": px.flatten().numpy()})
assert np.allclose(share_local(many, "distance_px", 40.0), local_share(px, 40.0)[0])  # the package's

# %% [markdown]
# ### 5 · Find three bugs (★★, 15 minutes)
#
# This is meant to be the distance of the paper's figure. It raises no error, and on a square grid
# the numbers look sensible. Each of its three mistakes has been seen in public code.
#
# ```python
# def distance_of(attn, grid, patch):  # attn [images heads tokens tokens], one class token
#     between = attn[..., :-1, :-1]
#     between = between / between.sum(-1, keepdim=True)
#     number = torch.arange(grid[0] * grid[1])
#     place = torch.stack([number // grid[0], number % grid[0]], dim=1) * float(patch)
#     return (between * torch.cdist(place, place)).sum(-1).mean(-1)
# ```
#
# <details><summary>Hint</summary>Where does the class token stand? Which mode is the paper's? And
# how long is a row of patches on a grid of <code>grid[0]</code> rows?</details>


# %%
def distance_of(attn, grid, patch):
    ### BEGIN SOLUTION
    between = attn[..., 1:, 1:]
    number = torch.arange(grid[0] * grid[1])
    place = torch.stack([number // grid[1], number % grid[1]], dim=1) * float(patch)
    return (between * torch.cdist(place, place)).sum(-1).mean(-1)
    ### END SOLUTION


# 2 × 3 patches of 10 px; every token attends to the class token and to the second patch.
narrow = torch.zeros(1, 1, 7, 7)
narrow[..., [0, 2]] = 0.5
# From each patch to the second one: patches across, and down or up.
sides = [(1, 0), (0, 0), (1, 0), (1, 1), (0, 1), (1, 1)]
by_hand = np.mean([0.5 * 10 * np.hypot(*side) for side in sides])
assert np.isclose(distance_of(narrow, (2, 3), 10).item(), by_hand)
even = torch.full((2, 3, 197, 197), 1 / 197)
assert distance_of(even, (14, 14), 16).shape == (2, 3)
assert np.allclose(distance_of(even, (14, 14), 16), 115.90, atol=0.01)  # uniform, in mode "paper"

# %% [markdown]
# ## Summary
#
# - Attention distance is the transformer's counterpart of a receptive field, but learned, and
#   different in every head.
# - Untrained attention is close to uniform in every block.
# - Predicting hidden patches makes heads of the lowest blocks local even on a few hundred
#   photographs, labels of these do not.
# - Attention to the class token counts as distance 0 in the paper's figure: show its share next to
#   the distance.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - M. Raghu et al. *Do Vision Transformers See Like Convolutional Neural Networks?* NeurIPS 2021,
#   arXiv:2108.08810: the same measure, as a function of the amount of training data.
# - N. Park et al. *What Do Self-Supervised Vision Transformers Learn?* ICLR 2023, arXiv:2305.00729.
