# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 07 · How far heads look
#
# **Claim (C12).** In the lowest blocks some heads attend to neighbouring patches and others to the whole image; with depth,
# attention distance grows. And (C13): a hybrid, whose convolutions look near already, has fewer heads that do.
#
# Fig. 7 right and 11 of the paper. `WEIGHTS` is a bundled model, a timm name or a file; `IMAGES` is `"crops"`,
# `"photographs"`, `"world"` or a data set; `"auto"` fits the model.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"
IMAGES = "auto"

# %% [markdown]
# Imports, and committed measurements of two ViTs.

# %%
import numpy as np
import pandas as pd
import seaborn as sns
import torch

import vitlab
from vitlab import claims, paths, plots
from vitlab.analysis.attention import attention_maps, grid_size, n_prefix_tokens, patch_stride
from vitlab.analysis.distance import attention_distance, pixel_distances
from vitlab.plots.style import FAMILIES
from vitlab.studies import measure, tables
from vitlab.widgets import viewer

page = claims.begin("07_attention_distance", PRESET, SEED, weights=WEIGHTS, images=IMAGES)
pretrained = measure.load_for(page.notebook, WEIGHTS)
IMAGES = measure.image_source(pretrained) if IMAGES == "auto" else IMAGES
real = tables.evidence("real_distances")

# %% [markdown]
# Real ViTs first: a dot is a head, its mean attention distance over 128 photographs, by block. Left a ViT-Ti/16 that saw
# ImageNet-21k, then ImageNet-1k; right a DeiT-Ti/16 that saw ImageNet-1k alone. Attention to the class token counts as
# distance 0; the titles also give the nearest head without it. Dashed: attention spread evenly.

# %%
NAMES = {
    "vit_tiny_patch16_224": "ViT-Ti/16, 14 million images",
    "deit_tiny_patch16_224": "DeiT-Ti/16, 1.3 million images",
}
alt = "Mean attention distance of every head by block number, for two ViTs trained on ImageNet."
with plots.figure(page, "imagenet", 1, 2, alt=alt, figsize=(11, 4.4), sharey=True) as axes:
    for ax, (name, rows) in zip(axes, real.groupby("weights", sort=False), strict=True):
        heads = measure.head_summary(rows)
        plots.plot_attention_distances(heads, ax, uniform=tables.uniform_px(224, 16), image_px=224)
        first = heads[(heads["model"] == "trained") & (heads["block"] == 1)]
        near, patches = first.sort_values("distance_px").iloc[0][["distance_px", "renormalized_px"]]
        words = f"block 1: nearest head {near:.0f} px, {patches:.0f} without the class token"
        ax.set_title(f"{NAMES[name.partition('@')[0]]}\n{words}")
        ax.label_outer()
    plots.legend_below(axes)

# %% [markdown]
# Low blocks have near and far heads, late blocks far ones. Untrained models (crosses) lie at the dashed line. The nearest dot
# on the left attends mostly to the class token. Does more pre-training data make lower heads more local?

# %%
modes = ["distance_px", "renormalized_px"]
px = real[real["model"] == "trained"].groupby(["weights", "block"])[modes].mean()
more, less = (px.loc[name] for name in real["weights"].unique())
for words, blocks in {"block 1": [1], "blocks 2 to 4": [2, 3, 4]}.items():
    gap, bare = (more - less).loc[blocks].mean()
    answer = "yes" if max(gap, bare) < 0 else "no"
    print(f"{words}: {answer} ({gap:+.1f} px, without the class token {bare:+.1f})")

# %% [markdown]
# So what Raghu et al. (2021) say of lower heads holds here for the first block only. Two models are two dots, and their
# recipes differ too.
#
# ## Prediction
#
# What do you expect of a ViT with a fifth of their parameters, patches of 8 px and a grid of 12 × 12?
#
# <details><summary>How it is decided</summary>
#
# C12, over ten trainings by masked prediction, growth: the rank correlation of a block's distance with its number is above zero
# and above that before the training. Variety: heads of block 1 differ more than the last block's and than before. C13, over
# five trainings of each by masked prediction: in the lowest third of the blocks the mean distance is longer in hybrids, with the
# class token at distance 0 and without it. What is surely below 0.1 or a tenth of a patch is no difference ([chapter 12](12_ledger_and_method.ipynb)).
#
# </details>
#
# ## A receptive field that is learned
#
# $A$ is a head's attention after the softmax, $d_{ij}$ the distance in pixels between patches $i$ and $j$. The class token
# has no place: its row and column are dropped.
#
# $$ \bar d = \frac1N \sum_{i=1}^{N} \sum_{j=1}^{N} A_{ij}\, d_{ij}. $$
#
# In mode **"paper"** what a row gave to the class token counts as distance 0; in mode **"renormalized"** the rows are made to
# sum to 1 again. For even attention on the paper's grid:

# %%
def open_distance(attn, grid, stride, n_prefix):
    place = torch.cartesian_prod(*map(torch.arange, grid)) * torch.tensor(stride).float()
    d = (place[:, None] - place).norm(dim=-1)  # [patches patches], pixels
    return (attn[:, :, n_prefix:, n_prefix:] * d).sum(-1).mean(-1)  # [images heads]


with_class, patches_only = (torch.full((1, 1, n, n), 1 / n) for n in (197, 196))
print(f'mode "paper":        {open_distance(with_class, (14, 14), 16, 1).item():.2f} px')
print(f'mode "renormalized": {open_distance(patches_only, (14, 14), 16, 0).item():.2f} px')

# %% [markdown]
# ### 1 · A head that attends one patch to the right (★★, 15 min)
#
# *Importance: a known answer before any model.* Build the attention matrix [1, 1, patches, patches] of a head that puts
# everything on the right-hand neighbour, and on the patch itself in the last column.
#
# <details><summary>Hint</summary>Patch i has its right-hand neighbour at i + 1, unless i % cols == cols − 1.</details>
#
# *Expected output: none. Common bug: the end of a row looks at the start of the next.*

# %%
def looks_right(rows, cols):
    ### BEGIN SOLUTION
    patch = torch.arange(rows * cols)
    neighbour = torch.where(patch % cols == cols - 1, patch, patch + 1)
    return torch.eye(rows * cols)[neighbour][None, None]
    ### END SOLUTION


assert looks_right(2, 3)[0, 0].argmax(-1).tolist() == [1, 2, 2, 4, 5, 5]
for down, across in ((2, 2), (3, 5), (14, 14)):  # all but one column move by one patch
    distance = attention_distance(looks_right(down, across), (down, across), 16, 0).item()
    assert np.isclose(distance, 16 * (across - 1) / across)

# %% [markdown]
# ### 2 · Find three bugs (★★, 15 min)
#
# *Importance: all three occur in public code; on a square grid the numbers look sensible.* This is meant to be the
# paper's distance of each head; correct it.
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
# <details><summary>Hint</summary>Where is the class token? Which mode is the paper's? How long is a row?</details>
#
# *Expected output: none. Common bug: only two of them.*

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
sides = [(1, 0), (0, 0), (1, 0), (1, 1), (0, 1), (1, 1)]  # from each patch to the second one
by_hand = np.mean([0.5 * 10 * np.hypot(*side) for side in sides])
assert np.isclose(distance_of(narrow, (2, 3), 10).item(), by_hand)
even = torch.full((1, 1, 197, 197), 1 / 197)
assert np.isclose(distance_of(even, (14, 14), 16).item(), 115.90, atol=0.01)

# %% [markdown]
# ## See it
#
# Point at a patch, or tap it: all maps show the attention from there. Which heads attend to neighbours wherever you point,
# and which always to the same place? The viewer needs no kernel.

# %%
picture = measure.load_pictures(pretrained, IMAGES.replace("crops", "photographs"), 1, SEED)[0]
x = pretrained.prepare(picture[None])  # [1 3 height width]
model = pretrained.model
maps = attention_maps(model, x)  # a block each: [image, head, query, key]
where = grid_size(model, x), patch_stride(model), n_prefix_tokens(model)
for attn in maps:
    assert torch.allclose(open_distance(attn, *where), attention_distance(attn, *where), atol=1e-3)
viewer.view(pretrained, picture, title=f"{pretrained.name}: attention of every head", fit=True)

# %% [markdown]
# ## Experiment
#
# Every head on many images, trained and untrained: mode "paper", mode "renormalized", and the class token's share of
# attention, on which the two differ.

# %%
table = measure.distances(WEIGHTS, IMAGES, **measure.SIZES[PRESET]["distances"], seed=SEED)
heads, image_px = measure.head_summary(table), pretrained.image_size[1]
lines = {"uniform": pixel_distances(*where[:2]).mean().item(), "image_px": image_px}
most = heads.loc[heads["model"] == "trained", "prefix_mass"].max()
alt = "Attention distance of every head by block, both modes; the class token's share of attention."
with plots.figure(page, "attention_distance", 1, 3, alt=alt, figsize=(14, 4.4)) as axes:
    plots.plot_attention_distances(heads, axes[0], **lines)
    plots.plot_attention_distances(heads, axes[1], column="renormalized_px", **lines)
    plots.plot_by_block(heads, "prefix_mass", axes[2])
    axes[0].set_title(f'{pretrained.name}, mode "paper"')
    axes[1].set(title='mode "renormalized"', ylabel="")
    axes[2].set(title=f"class token: up to {most:.0%}", ylabel="share of attention", ylim=(0, None))
    plots.legend_below(axes)

# %% [markdown]
# A short distance in mode "paper" may mean a local head, or one that attends to the class token; only the third panel tells
# them apart. In `lab` it is local heads: all of block 1, hardly one above. `lab-masked`, before the labels, has more of them, up to
# the last block: how local heads come about is in [chapter 09](09_how_structure_comes_about.ipynb).

# %% [markdown]
# ## Outlier tokens
#
# ViTs may park global information in a few patches, whose tokens become many times longer (*registers*, Darcet et al. 2024);
# attention maps are unreadable there. `vitlab.analyse` measures the mean length of a block's patch tokens and the longest:
# here of the ViTs above (from `vitlab gallery`) and of this run's model. Rings: above five times the mean.

# %%
gallery = pd.read_csv(paths.shipped() / "figures/reference/gallery/heads.csv")
parts = [gallery.query("model.str.contains('_tiny_')"), vitlab.analyse(pretrained, x).heads]
both = pd.concat([parts[0], parts[1].assign(model=pretrained.name)])
norms = both.groupby(["model", "block"], sort=False)[["token_norm", "largest_norm"]].first()
ratio = norms["largest_norm"] / norms["token_norm"]
alt = "Mean and longest patch token by block."
with plots.figure(page, "norms", alt=alt, figsize=(8, 3.8)) as ax:
    for k, name in enumerate(norms.index.unique("model")):
        ax.plot(norms.loc[name, "largest_norm"], f"C{k}o-", label=name.partition("_patch")[0])
        ax.plot(norms.loc[name, "token_norm"], f"C{k}:")
        ax.plot(norms.loc[name, "largest_norm"][ratio[name] > 5], f"C{k}o", ms=12, fillstyle="none")
    ax.set(xlabel="block (1 = first)", ylabel="L2 norm: longest, mean (dotted)", yscale="log")
    name = ratio.idxmax()[0].partition(",")[0]
    ax.set_title(f"{name}: longest token up to {ratio.max():.0f} times the mean")
    plots.legend_below(ax)

# %% [markdown]
# In the ViT-Ti/16, late blocks have outliers: on nearly every photograph the four corner patches. In DeiT-Ti/16 and `lab`
# no token stands out.
#
# ### 3 · Half of the attention on the class token (★, 5 min)
#
# *Importance: the modes differ by more than most findings.* A head gives half of its attention to the class token and spreads
# the rest evenly over patches. Given the distance of even attention, what is its distance in each mode?
#
# <details><summary>Hint</summary>In which mode does the class token's share count as distance 0?</details>
#
# *Expected output: none. Common bug: the two the wrong way round.*

# %%
def half_on_class(uniform_over_patches):  # returns (mode "paper", mode "renormalized")
    ### BEGIN SOLUTION
    return uniform_over_patches / 2, uniform_over_patches
    ### END SOLUTION


half = torch.full((1, 1, 197, 197), 0.5 / 196)  # the paper's grid
half[..., 0] = 0.5
modes = "paper", "renormalized"
by_matrix = [attention_distance(half, (14, 14), 16, 1, mode).item() for mode in modes]
assert np.allclose(half_on_class(by_matrix[1]), by_matrix, rtol=1e-4)

# %% [markdown]
# ## The hybrid (C13)
#
# Ten ViTs and five hybrids (a small ResNet, then the same transformer), trained alike by masked prediction of photographs. A
# dot is a head of the lowest third of the blocks in one training. Dashed: attention spread evenly.

# %%
low, colours = tables.low_heads(), {name: FAMILIES[name][0] for name in ("ViT", "hybrid")}
ways = {"distance_px": 'mode "paper": class token at distance 0', "patches_px": 'mode "renormalized"'}
alt = "Attention distance of heads in blocks 1 and 2 of ten ViTs and five hybrids, in both modes."
with plots.figure(page, "hybrid", 1, 2, alt=alt, figsize=(10.5, 4), sharey=True) as axes:
    for ax, (column, words) in zip(axes, ways.items(), strict=True):
        look = {"hue": "arm", "palette": colours, "dodge": True, "size": 3}
        sns.swarmplot(low, x="block", y=column, ax=ax, **look)
        mean = low.groupby("arm")[column].mean()
        ax.axhline(tables.uniform_px(80, 8), color="grey", linestyle="--")
        ax.set_title(f"{words}\nhybrid {mean['hybrid']:.0f} px, ViT {mean['ViT']:.0f} px")
        ax.set(ylabel="distance, px of 80", ylim=(-1, 50))
        ax.legend(loc="lower right")

# %% [markdown]
# The hybrids predict hidden patches as well as the ViTs do, within a point or two. In block 2 nearly all of their heads attend as
# far as attention spread evenly, in block 1 about half; the dot at 0 on the left gives its attention to the class token. What the
# ViTs' near heads do, the ResNet has done already. The verdict pairs the five seeds that both have.
#
# ## Verdict
#
# C12 rests on ten trainings by masked prediction (chapter 09). In them distance grows with depth, but all heads of block 1 are
# near, as they are in `lab`: the variety of the lowest block, which the ViTs of ImageNet have, is missing.

# %%
found, px = measure.contrasts(table), f"px of {image_px}"
live = {f"trend, {pretrained.name}": claims.Estimate.of(found["trend"], "", "images")}
spread = claims.Estimate.of(found["spread, first"], px, "images")
live[f"spread of block 1, {pretrained.name}"] = spread
claims.show(page, "C12", live=live)
claims.show(page, "C13")

# %% [markdown]
# **How others get this wrong.** Class token dropped from the wrong end, rows normalised in silence, grids taken for square;
# blocks stacked by *name*, `blocks.10` before `blocks.2`.
#
# **Open questions.** Does the nearest head matter to the answer, or is it a leftover? Do registers bring short distances back?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 7, 11, App. D.7.
# - M. Raghu et al., *Do Vision Transformers See Like Convolutional Neural Networks?*, NeurIPS 2021.
# - T. Darcet et al., *Vision Transformers Need Registers*, ICLR 2024.
