# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 08 · Where it looks
#
# **Claim (C14).** Followed back through all blocks, the attention of the class token falls on the object that is classified.
#
# Fig. 6 and 14 of the paper show it on photographs, by *attention rollout* (Abnar and Zuidema, 2020), and give no number.
# `WEIGHTS` are for photographs: a bundled model, a timm name or a file; `WORLD_WEIGHTS` for synthetic images, whose objects
# have exact masks.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"
WORLD_WEIGHTS = "lab-world"

# %% [markdown]
# Imports.

# %%
import numpy as np
import seaborn as sns
import torch

from vitlab import claims, plots, widgets
from vitlab.analysis.attention import attention_maps, grid_size, n_prefix_tokens
from vitlab.analysis.lens import greyed, kept_probability, logit_lens
from vitlab.analysis.masks import patch_coverage
from vitlab.analysis.rollout import attention_rollout, overlay
from vitlab.data import datasets
from vitlab.models import zoo
from vitlab.plots.style import COLOURS, MUTED
from vitlab.studies import measure, tables
from vitlab.widgets import viewer

page = claims.begin("08_where_it_looks", PRESET, SEED, weights=WEIGHTS, world_weights=WORLD_WEIGHTS)
of_photographs = measure.load_for(page.notebook, WEIGHTS)
of_world = measure.load_for(page.notebook, WORLD_WEIGHTS, "WORLD_WEIGHTS")

# %% [markdown]
# Photographs, and over them the rollout of a trained model and of one that was never trained: bright where much of what the
# class token has gathered comes from.

# %%
names, taken = zip(*datasets.photographs(limit=3, sample=False), strict=True)
x = torch.cat([of_photographs.prepare(picture[None]) for picture in taken])
views = measure.view(of_photographs, taken).numpy()  # [images height width 3]
control = zoo.load(WEIGHTS, untrained=True, seed=SEED)
rows = {"photograph": None, of_photographs.name: attention_rollout(of_photographs.model, x)}
rows["untrained"] = attention_rollout(control.model, x)
alt = f"Photographs ({', '.join(names)}); below each, heat maps of rollout, trained and untrained."
size = {"figsize": (9, 8.6), "squeeze": False}
with plots.figure(page, "photographs", 3, len(views), alt=alt, **size) as axes:
    for line, (words, maps) in zip(axes, rows.items(), strict=True):
        for ax, picture, k in zip(line, views, range(len(views)), strict=True):
            ax.imshow(picture)
            if maps is not None:
                heat = overlay(maps[k : k + 1], picture.shape[:2])[0].numpy()
                ax.imshow(heat, cmap="inferno", alpha=0.75 * heat)
            ax.set(xticks=[], yticks=[], ylabel=words if k == 0 else "")

# %% [markdown]
# One tends to see an object in any bright spot. What is bright says from which patches the class token has gathered, not that
# the model recognizes the object: `lab` has no class for a pagoda, a flower or a portrait. It is brightest at the pagoda's foot, the flower's rim, the flag,
# and the untrained map may look better to you. So we measure.
#
# ## Prediction
#
# *Mass − area* is the share of the map inside the object's mask, minus the share of the image that the object covers. A map
# that knows nothing scores 0 on average, if objects were anywhere. Are they? What would an untrained model score?
#
# <details><summary>How it is decided</summary>
#
# By intervals over images: mass − area is above 0, and so are its differences to untrained models and to the same score with
# *another image's mask*. Without the first, or without both others, the claim is not reproduced. See chapter 12.
#
# </details>
#
# ## Rollout
#
# Average each block's attention over its heads to $\bar A{}_l$. The skip connection adds a block's input to its output;
# rollout gives both the same weight, $\hat A{}_l = \tfrac{1}{2} \bar A{}_l + \tfrac{1}{2} I$, and multiplies:
# $R = \hat A{}_L \cdots \hat A{}_1$. The class token's row, without its own entry, is the map:

# %%
def open_rollout(maps, grid, n_prefix):
    rolled = torch.eye(maps[0].shape[-1])
    for attn in maps:  # first block first
        mixed = attn.mean(1) + torch.eye(attn.shape[-1])  # [images tokens tokens]
        rolled = mixed / mixed.sum(-1, keepdim=True) @ rolled
    return rolled, rolled[:, 0, n_prefix:].unflatten(-1, grid)


world = measure.world_at(of_world.image_size, 64, SEED)  # images, and masks of the objects
x_world = of_world.prepare(world.images)
maps = attention_maps(of_world.model, x_world)
grid, n_prefix = grid_size(of_world.model, x_world), n_prefix_tokens(of_world.model)
rolled, rollout = open_rollout(maps, grid, n_prefix)
assert torch.allclose(rollout, attention_rollout(of_world.model, x_world), atol=1e-5)
print(f"{len(maps)} blocks of {maps[0].shape[1]} heads → one map of {grid[0]} × {grid[1]} patches")

# %% [markdown]
# Every token has a row of its own: point at a patch of a synthetic image to see its rollout; "All heads" shows the attention
# that was multiplied.

# %%
title = f"{of_world.name}: rollout of every token"
viewer.view(of_world, world.images[0], show="rollout", title=title, fit=True)

# %% [markdown]
# ### 1 · Only one row is wanted (★★, 15 min)
#
# *Importance: T³ a block becomes T².* Compute the class token's row of $R$ without a product of two matrices.
#
# <details><summary>Hint</summary>A row vector from the left: which block comes first?</details>
#
# *Expected output: none. Common bug: first block first.*

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


sharp = torch.randn(4, 3, 2, 17, 17, generator=torch.Generator().manual_seed(SEED))
sharp = sharp.mul(3).softmax(-1).unbind(0)
assert torch.allclose(class_row(sharp), open_rollout(sharp, (4, 4), 1)[0][:, 0], atol=1e-6)

# %% [markdown]
# ### 2 · Find two bugs: discarding (★★, 15 min)
#
# *Importance: it makes maps look sharp, whatever the model has learned, and does so for one image of a batch.* Circulating
# code sets the smallest entries of each image's attention to 0. Correct it.
#
# ```python
# def discard(fused, ratio):  # [images tokens tokens]
#     flat = fused.view(len(fused), -1)
#     lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
#     flat[0, lowest] = 0
#     return fused
# ```
#
# <details><summary>Hint</summary><code>scatter</code> writes along an axis, row by row. And <code>view</code> shares its
# numbers.</details>
#
# *Expected output: none. Common bug: the argument is changed.*

# %%
def discard(fused, ratio):
    ### BEGIN SOLUTION
    flat = fused.flatten(1)
    lowest = flat.topk(int(ratio * flat.shape[1]), dim=1, largest=False).indices
    return flat.scatter(1, lowest, 0.0).view_as(fused)
    ### END SOLUTION


given = torch.tensor([[[0.1, 0.2], [0.3, 0.4]], [[0.8, 0.7], [0.6, 0.5]]])
before = given.clone()
assert torch.equal(discard(given, 0.5), torch.tensor([[[0, 0], [0.3, 0.4]], [[0.8, 0.7], [0, 0]]]))
assert torch.equal(given, before)  # the argument is unchanged

# %% [markdown]
# ## Experiment: objects with exact masks
#
# Held-out synthetic images; a dot each. Right, the means, and what is left after each control.

# %%
table = measure.rollout(WORLD_WEIGHTS, **measure.SIZES[PRESET]["rollout"], seed=SEED)
pairs = measure.per_image(table)
means = measure.compare_rollout(pairs).set_index("what")[["mean", "low", "high"]]
one = (table["model"] == "trained") | (table["model_seed"] == SEED)
shown = table[(table["method"] == "rollout") & one]
alt = "Left: share of rollout mass on the object over the object's area, a dot an image, trained "
alt += "and untrained. Right: mean mass minus area of trained and untrained models and with "
alt += "another image's mask, and differences."
with plots.figure(page, "mass_on_object", 1, 2, alt=alt, figsize=(10.5, 4.2)) as axes:
    colours = {"trained": COLOURS["blue"], "untrained": MUTED}
    look = {"hue": "model", "style": "model", "palette": colours}
    sns.scatterplot(shown, x="area", y="mass", ax=axes[0], **look)
    axes[0].axline((0, 0), slope=1, color=MUTED, linestyle="--", label="mass = area")
    axes[0].set(xlabel="share of the image that is object", ylabel="share of rollout mass on it")
    axes[0].legend()
    plots.plot_comparisons(100 * means, "mass − area (points)", axes[1])
    beyond = 100 * means.loc["trained − untrained", "mean"]
    axes[1].set_title(f"{beyond:+.0f} points beyond untrained models")

# %% [markdown]
# Untrained attention favours patches of high contrast and scores above 0 without having learned anything; so does a map with
# another image's mask, since objects are near the middle. What is left after both was learned.
#
# ## Real photographs with boxes
#
# The same for ViTs trained on ImageNet, on 500 photographs whose boxes people drew (committed measurements).
# *Hit*: the share of photographs whose largest patch lies in the box; *chance*: that of a patch drawn at random.

# %%
real = tables.evidence("real_rollout")
real["name"] = real["weights"].str.partition("@")[0]
mine = real[(real["method"] == "rollout") & real["mass"].notna()]
scores = mine.groupby(["name", "model"], sort=False)[["mass", "area", "hit", "chance"]].mean()
scores.style.format("{:.2f}")

# %% [markdown]
# On real photographs, where boxes cover nearly half of the image, the mass in the box is hardly above its area, and the largest
# patch of an untrained model hits the box as often. Does rollout mark nothing, then? Ask what happens when its patches are taken
# away.
#
# ## A causal check
#
# Grey the quarter of the patches that rollout marks most, and ask how much of the answer's probability is left; then the same
# for random patches, and for those it marks least.

# %%
kept = real[real["kept_largest"].notna()].set_index("name")
kept = kept[["kept_largest", "kept_random", "kept_least"]]
kept.columns = ["largest by rollout", "random", "least by rollout"]
left = kept.groupby(level=0, sort=False).mean()
alt = "Probability left with a quarter of the patches greyed: largest by rollout, random, least."
with plots.figure(page, "causal", alt=alt, figsize=(8, 3.4)) as ax:
    tidy = kept.melt(ignore_index=False, var_name="greyed", value_name="left").reset_index()
    look = {"hue": "name", "linestyle": "none", "errorbar": ("ci", 95), "dodge": 0.3}
    sns.pointplot(tidy, x="left", y="greyed", n_boot=200, seed=SEED, ax=ax, **look)
    first = left.mean()
    ax.set(xlabel="probability left, as a share of what it was", ylabel="", xlim=(0, None))
    told = f"{first.iloc[0]:.0%} is left, without random ones {first.iloc[1]:.0%}"
    ax.set_title(f"Without rollout's largest patches {told}")
    ax.legend(fontsize=9)

# %% [markdown]
# So rollout does mark what the answer needs, better than chance, although it does not mark the object's box: parts of an object
# may be enough, and context counts. The same on this run's synthetic images, in calls that you can change:

# %%
share = 0.25
noise = torch.rand(rollout.shape, generator=torch.Generator().manual_seed(SEED))
ways = {"largest": (rollout, True), "random": (noise, True), "least": (rollout, False)}
for words, (each, largest) in ways.items():
    left = kept_probability(of_world.model, x_world, each, share, largest).mean()
    print(f"{words:8} {left:.0%} of the answer's probability is left")

# %% [markdown]
# ### 3 · A deletion curve (★★, 15 min)
#
# *Importance: one share is one point; a curve cannot be picked.* Return the mean probability left for each share greyed.
#
# <details><summary>Hint</summary><code>greyed</code> and <code>kept_probability</code> take the share.</details>
#
# *Expected output: a falling row of numbers. Common bug: the probability of the new answer in place of the old one.*

# %%
def deletion_curve(model, images, maps, shares):
    ### BEGIN SOLUTION
    return [kept_probability(model, images, maps, share).mean().item() for share in shares]
    ### END SOLUTION


curve = deletion_curve(of_world.model, x_world, rollout, (0.1, 0.3, 0.6))
pair = x_world, greyed(x_world, rollout, 0.3)
whole, part = (of_world.model(each).softmax(-1).detach() for each in pair)
answer = whole.argmax(1, keepdim=True)
ratio = part.gather(1, answer) / whole.gather(1, answer)
assert np.isclose(curve[1], ratio.mean().item(), rtol=1e-4)
print([round(each, 2) for each in curve])

# %% [markdown]
# ## A logit lens
#
# The head reads the class token after the last block. Nothing forbids to ask it about every token after every block: which
# class would each answer? The share of tokens whose answer is right, by block:

# %%
answers = logit_lens(of_world.model, x_world).argmax(-1)  # [image, block, token]
right = (answers == world.labels[:, None, None]).double()
on = patch_coverage(world.masks, grid).flatten(1) > 0.5  # patches that are mostly object
lines = {"class token": right[:, :, 0].mean(0)}
for words, which in {"patches on the object": on, "patches off it": ~on}.items():
    lines[words] = (right[:, :, n_prefix:] * which[:, None]).sum((0, 2)) / which.sum()
alt = "Share of tokens with the right answer by block: class token, patches on the object, off it."
with plots.figure(page, "lens", alt=alt, figsize=(7.5, 3.6)) as ax:
    for words, line in lines.items():
        ax.plot(range(1, len(line) + 1), 100 * line, marker="o", label=words)
    ax.axhline(100 / len(world.classes), color=MUTED, linestyle="--", label="chance")
    ax.set(xlabel="block", ylabel="right answers (%)", xticks=range(1, len(maps) + 1))
    ax.set_title(f"After the last block the class token is right in {lines['class token'][-1]:.0%}")
    ax.legend()

# %% [markdown]
# The class token knows the answer after two blocks, and many patches do, off the object no less than on it: attention has spread
# it over the image. So the place of a token says little of what it knows, which is one reason why maps mislead. Hide patches
# yourself (this takes a kernel):

# %%
widgets.occlusion(of_world, world.images[0], world.classes)

# %% [markdown]
# ## Verdict

# %%
own = pairs[pairs["method"] == "rollout"]
excess = claims.Estimate.of(100 * own["trained"], "points", "images")
claims.show(page, "C14", live={f"rollout mass − area of the object, {of_world.name}": excess})

# %% [markdown]
# ## How others get this wrong
#
# **Rows divided without `keepdim`.** `a / a.sum(-1)` divides column $j$ by the sum of row $j$. With the mean over heads nothing
# changes, since every row of $\bar A + I$ sums to 2; with the *maximum* over heads, which circulating code offers, it does:

# %%
def last_step(attn, keepdim):  # one block's maximum over heads, with the skip
    mixed = attn.amax(1)[0] + torch.eye(attn.shape[-1])
    return (mixed / mixed.sum(-1, keepdim=keepdim))[0, n_prefix:].reshape(grid).numpy()


both = {"right": last_step(maps[-1], True), "wrong": last_step(maps[-1], False)}
both = {words: each / each.max() for words, each in both.items()}
apart = both["wrong"] - both["right"]
both["5 × the difference"] = 5 * apart
place = divmod(int(np.abs(apart).argmax()), grid[1])
alt = "The last block's row of one image: right, without keepdim, and five times the difference."
with plots.figure(page, "mistakes", alt=alt, figsize=(9.4, 3.2)) as ax:
    plots.plot_maps(both, ax, "RdBu_r", place)
    ax.set_title(f"A missing keepdim moves a patch by {np.abs(apart).max():.0%} of the maximum")

# %% [markdown]
# Without the right map next to it the wrong one cannot be recognized. **Discarding** (exercise 2) makes any map look sharp.
#
# **Open questions.** Which object parts are enough? Would a map by gradients leave less? Does the outlier token of chapter 07
# stand out in rollout?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 6, 14, App. D.8.
# - S. Abnar, W. Zuidema, *Quantifying Attention Flow in Transformers*, ACL 2020.
# - V. Petsiuk et al., *RISE: Randomized Input Sampling for Explanation*, BMVC 2018: deletion curves.
