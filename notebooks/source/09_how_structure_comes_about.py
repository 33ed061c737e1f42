# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 09 · How structure comes about
#
# **Claims.** A ViT that fills in hidden patches learns by itself that images have two dimensions, and its lower heads become
# local (L01, L02); what it has learned is worth something to a classifier (C15).
#
# §4.6 of the paper tries masked patch prediction. `TARGET` is what is predicted: `"mean-colour"` (the paper's choice),
# `"downsized"` or `"pixels"`; `MASKED` is the share of patches that are hidden.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
TARGET = "mean-colour"
MASKED = 0.5

# %% [markdown]
# Imports, and the committed trainings.

# %%
import math
from types import SimpleNamespace

import numpy as np
import seaborn as sns
import torch
from torch.nn import functional as F

from vitlab import claims, plots, widgets
from vitlab.data import datasets
from vitlab.data.loader import to_float
from vitlab.models.vit import ViT, ViTConfig
from vitlab.studies import run as functions
from vitlab.studies import runner, tables
from vitlab.studies import table as studies
from vitlab.studies.statistics import paired
from vitlab.training import masked
from vitlab.training.masked import MaskedPrediction, MaskedViT, colour_codes, corrupted, filled

page = claims.begin("09_how_structure_comes_about", PRESET, SEED, target=TARGET, masked=MASKED)
evidence = tables.evidence("local_heads")

# %% [markdown]
# **The film of a training**: press *Play*. Left, every head's attention distance, by block; in the middle the similarity of
# position embeddings; right, the distances over the images seen. Below the dotted line a head is *local*.

# %%
def film(run, title, pictures=None):
    """The film of one training of `local_heads`, from its rows."""
    run = run[run["samples"].isin(run["samples"].unique()[::2])]  # every second evaluation
    side, patch = (int(run[name].iloc[0]) for name in ("image_size", "patch_size"))
    looks = tables.looks(run).itertuples()
    maps = {row.samples: tables.position_map(row.similarity) for row in looks}
    far = tables.uniform_px(side, patch)  # attention spread evenly
    scale = {"uniform": far, "limit": far / 2, "image_px": side}
    return widgets.training_film(tables.heads(run), maps, pictures=pictures, title=title, **scale)


published = evidence[evidence["data"] == "photographs"]
film(published[published["seed"] == published["seed"].min()], "Heads come about")

# %% [markdown]
# We observe that one head of block 1 comes near early, that the map becomes two-dimensional, and that head after head follows.
# A head can look at its neighbours only as far as the position embeddings say which patches those are.
#
# ## Prediction
#
# Would the same happen with labels in place of hidden patches? With 300 photographs, or with ten thousand?
#
# <details><summary>How it is decided</summary>
#
# A head is local below half the distance of even attention. L01: of 300 and of 1,000 photographs with labels fewer than 5 %
# of the lower blocks' heads are local. L02: masked prediction makes more of them local than labels, on each number of
# photographs. C15: masked prediction and its fine-tuning are ahead of training from scratch on as many samples by more than
# a point, and labels of the same images ahead of masked prediction. See chapter 12.
#
# </details>
#
# ## Labels do not make heads local
#
# The same small ViT, trained on 300 to 9,469 photographs by masked prediction and by labels, always for as many samples:

# %%
rows = evidence[evidence["data"] != "photographs"]
counts, shares = sorted(rows["n_train"].unique()), tables.looks(rows)
alt = "Share of local heads over the images seen, for masked prediction and for labels: one panel "
alt += "for each number of training photographs. Masked rises to most heads, labels stay at zero."
size = {"figsize": (12.8, 3.4), "sharey": True}
with plots.figure(page, "local_shares", 1, len(counts), alt=alt, **size) as axes:
    for ax, count in zip(axes, counts, strict=True):
        here = shares[shares["n_train"] == count]
        end = here[here["samples"] == here["samples"].max()].groupby("objective")["local"].mean()
        plots.plot_by_samples(here, ax)
        told = f"masked {end['masked']:.0%}, labels {end['labels']:.0%}"
        ax.set_title(f"{count:,}: {told}", fontsize=11)
        ax.label_outer()
    axes[0].set_ylim(-0.02, 1.02)

# %% [markdown]
# To say what a hidden patch looked like it helps to look next to it; to tell ten classes apart it need not. This is what
# Raghu et al. saw in ViTs that were pre-trained on too few images, and Park et al. in masked ones.

# %%
claims.show(page, "L01")
claims.show(page, "L02")

# %% [markdown]
# ### 1 · From when on is a head local? (★★, 15 min)
#
# *Importance: an onset needs a definition before it is measured.* From distances [evaluation, head], return the number (from
# 0) of the first evaluation from which on some head, not always the same, is below `limit`; `None` if there is none.
#
# <details><summary>Hint</summary>Go backwards, as long as some head is local.</details>
#
# *Expected output: none. Common bug: the first evaluation below the limit, which may be a single dip.*

# %%
def local_from(distances, limit):
    ### BEGIN SOLUTION
    found = None
    for number in reversed(range(len(distances))):
        if min(distances[number]) >= limit:
            break
        found = number
    return found
    ### END SOLUTION


assert local_from([[16, 16], [16, 7], [16, 6], [5, 16]], 8) == 1
assert local_from([[16, 16], [7, 16], [16, 16], [5, 16]], 8) == 3
assert local_from([[7, 16], [16, 16]], 8) is None
assert local_from([[7, 16], [16, 6]], 8) == 0

# %% [markdown]
# ## What is hidden, what is asked
#
# Of the hidden patches 80 % get one learned vector in place of their embedding, the *mask*, 10 % another patch's embedding,
# and 10 % stay. To be predicted is the patch's mean colour in 3 bits a channel: one of 512.

# %%
side, cell = 96, 8  # pixels: of the crop, of a patch
crop = datasets.photographs(side, limit=1)[0][1][None]  # bytes [1 3 96 96]
n = (side // cell) ** 2
plan = masked.plans(1, n, MASKED, np.random.default_rng(SEED))  # −1 kept, n mask, else a patch
codes = colour_codes(to_float(crop), cell)  # [1 patches], 0…511
in_colours = filled(crop, torch.full_like(plan, n), masked.colours_of(codes[0])[:, None, None])


def pixels(picture):
    return picture.permute(1, 2, 0).numpy()


alt = "A photograph; with half of its patches hidden; every patch in its mean colour, one of 512."
with plots.figure(page, "hidden", 1, 3, alt=alt, figsize=(9.5, 3.5)) as axes:
    plots.plot_grid(pixels(crop[0]), side // cell, axes[0]).set_title("photograph")
    hidden = pixels(corrupted(crop, plan)[0])
    plots.plot_corruption(hidden, plan[0].numpy(), axes[1]).set_title("hidden")
    plots.plot_grid(pixels(in_colours[0]), side // cell, axes[2]).set_title("what is asked")

# %% [markdown]
# Embeddings are replaced *before* class token and positions are added: the encoder knows where a hidden patch is, not what it
# was. The cross-entropy is averaged over the hidden patches alone, $\mathcal{L} = -\frac{1}{|C|} \sum_{i \in C} \log p_i(k_i)$:

# %%
def open_codes(images, side):  # bytes [B 3 H W] → [B patches]
    means = F.avg_pool2d(images.double(), side)  # [B 3 rows columns]
    red, green, blue = (means // 32).long().flatten(2).unbind(1)
    return 64 * red + 8 * green + blue


def open_loss(model, images, plan):  # bytes [B 3 H W], [B patches]
    vit, n_patches = model.vit, plan.shape[1]
    x = vit.patch_embed(to_float(images))  # [B patches D]
    own = (plan < 0) | (plan == n_patches)
    moved = x[torch.arange(len(x))[:, None], torch.where(own, torch.arange(n_patches), plan)]
    x = torch.where((plan == n_patches)[..., None], model.mask, moved)
    z = torch.cat([vit.cls_token.expand(len(x), -1, -1), x], dim=1) + vit.pos_embed  # Eq. 1
    logits = model.predict(vit.norm(vit.blocks(z))[:, 1:][plan != -1])
    return F.cross_entropy(logits, open_codes(images, model.patch_size)[plan != -1])


small = MaskedViT(ViT(ViTConfig(32, 8, dim=32, depth=2, n_heads=2, mlp_dim=64, n_classes=10), SEED))
few = datasets.photograph_set(8, 32).images
few_plan = masked.plans(8, 16, MASKED, np.random.default_rng(1))
assert math.isclose(open_loss(small, few, few_plan).item(), math.log(512), rel_tol=1e-5)  # uniform
for parameter in (small.predict.weight, small.mask):  # so that something depends on the images
    torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(SEED))
theirs = MaskedPrediction(patch_size=8).loss(small, to_float(few), few_plan)
assert torch.allclose(open_loss(small, few, few_plan), theirs, atol=1e-5)

# %% [markdown]
# ### 2 · What guessing costs (★, 10 min)
#
# *Importance: a loss says something only next to that of not looking.* Return the mean cross-entropy in nats of the best
# predictor that gives every patch the same probabilities, for a list of codes.
#
# <details><summary>Hint</summary>The best probabilities are the frequencies; the loss is the entropy.</details>
#
# *Expected output: the level on our photographs, below ln 512 = 6.24. Common bug: log of a frequency of zero.*

# %%
def best_constant_loss(codes):
    ### BEGIN SOLUTION
    _, counts = np.unique(codes, return_counts=True)
    p = counts / counts.sum()
    return float(-(p * np.log(p)).sum())
    ### END SOLUTION


assert math.isclose(best_constant_loss([3, 3, 5, 5]), math.log(2))
assert math.isclose(best_constant_loss(list(range(512))), math.log(512))
looking_away = best_constant_loss(open_codes(datasets.photograph_set(200, 32).images, 4).flatten())
print(f"{looking_away:.2f} nats")

# %% [markdown]
# ### 3 · Find three bugs (★★★, 20 min)
#
# *Importance: it raises no error, and it falls nicely in training.* This is meant to be the paper's loss; correct it:
#
# ```python
# def masked_loss(tokens, weight, images, plan, side):
#     # tokens [B 1+N D] of the encoder, class token first; weight [512 D]; images in bytes;
#     # plan [B N]: −1 where a patch was kept
#     means = F.avg_pool2d(images.float(), side)
#     red, green, blue = (means / 255 * 7).round().long().flatten(2).unbind(1)
#     codes = 64 * red + 8 * green + blue
#     logits = tokens[:, :-1] @ weight.T
#     return F.cross_entropy(logits.flatten(0, 1), codes.flatten())
# ```
#
# <details><summary>Hint</summary>Which patches count? Where does the class token stand? Which bytes belong to level
# 0?</details>
#
# *Expected output: none. Common bug: the loss over all patches, most of which can be copied.*

# %%
def masked_loss(tokens, weight, images, plan, side):
    ### BEGIN SOLUTION
    means = F.avg_pool2d(images.float(), side)
    red, green, blue = (means / 32).floor().long().flatten(2).unbind(1)
    codes = 64 * red + 8 * green + blue
    logits = tokens[:, 1:] @ weight.T
    return F.cross_entropy(logits[plan != -1], codes[plan != -1])
    ### END SOLUTION


# Two patches of 2 × 2 pixels, black and white; class token first. The white one is hidden.
black_white = torch.zeros(1, 3, 2, 4, dtype=torch.uint8)
black_white[..., 2:] = 250
tokens = torch.tensor([[[5.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]]])  # class, black, white
weight = torch.zeros(512, 3)
weight[511, 2] = 1.0  # only the white patch's token says "white"
alone = masked_loss(tokens, weight, black_white, torch.tensor([[-1, 2]]), 2).item()
assert math.isclose(alone, math.log(511 + math.e**2) - 2, rel_tol=1e-5)
both = masked_loss(tokens, weight, black_white, torch.tensor([[0, 0]]), 2).item()
assert math.isclose(both, (alone + math.log(512)) / 2, rel_tol=1e-5)
of_grey = torch.zeros(512, 3)
of_grey[73, 2] = 1.0  # bytes of 60 are level 1 of each channel
grey = torch.full((1, 3, 2, 4), 60, dtype=torch.uint8)
level = masked_loss(tokens, of_grey, grey, torch.tensor([[-1, 2]]), 2).item()
assert math.isclose(level, alone, rel_tol=1e-5)

# %% [markdown]
# ## Experiment
#
# Your own training, on crops of a few photographs, a minute and a half; called again it is read. Change `TARGET` or
# `MASKED` above, and it trains anew.

# %% tags=["long"]
table = runner.run("local_heads", PRESET, SEED, settings={"target": TARGET, "share": MASKED})
of_crops = (table["objective"] == "masked") & (table["data"] == "photographs")
one = table[of_crops & (table["seed"] == table["seed"].min())]
body, rows = SimpleNamespace(**studies.preset("local_heads", PRESET).base), tables.looks(one)
columns = ["samples", "loss", "accuracy", "nearness", "local"]
rows[columns].iloc[[0, -1]].style.format(precision=2).hide()

# %% [markdown]
# Its film, with what it makes of three crops that it never saw:

# %%
n_patches = (body.image_size // body.patch_size) ** 2
crops = datasets.photograph_set(body.n_test, body.image_size).images
crops = functions.most_varied(crops[: body.n_watched])
crop_plan = functions.shown_plan(n_patches, MASKED)
n_hidden, predicted = int((crop_plan > masked.KEPT).sum()), {}
for row in rows.itertuples():
    patches = torch.tensor(tables.guessed(row.guesses, n_hidden))
    predicted[row.samples] = [pixels(each) for each in filled(crops, crop_plan, patches)]
film(one, "Your training", predicted)

# %% [markdown]
# Four moments of it side by side, and the predictions at the end:

# %%
moments = rows["samples"].iloc[np.linspace(0, len(rows) - 1, 4).round()].unique()
far = tables.uniform_px(body.image_size, body.patch_size)
alt = "Four moments of a training: attention distance of heads by block; below, the position map."
with plots.figure(page, "film", 2, len(moments), alt=alt, figsize=(11.5, 5.2)) as axes:
    for samples, upper, lower in zip(moments, *axes, strict=True):
        seen = tables.heads(one).query(f"samples == {samples}")
        plots.plot_heads(seen, upper, uniform=far, limit=far / 2, image_px=body.image_size)
        upper.set(title=f"{samples:,} images", ylabel="" if samples else "distance (px)")
        similarity = tables.position_map(rows.set_index("samples").similarity[samples])
        plots.plot_similarity_grid(similarity, lower, colorbar=False)
        lower.set(xlabel="", ylabel="")
pictures = {"hidden": [pixels(each) for each in corrupted(crops, crop_plan)]}
pictures["predicted"] = predicted[rows["samples"].max()]
pictures["the crop"] = [pixels(each) for each in crops]
alt = "Held-out crops in rows: with hidden patches, as predicted at the end, and as they are."
with plots.figure(page, "predictions", alt=alt, figsize=(6.8, 5.2)) as ax:
    plots.plot_pictures(pictures, ax)

# %% [markdown]
# The neighbours' mean colour is the best simple guess, and a local head is what that takes.
#
# ## What it is worth (C15)
#
# From the committed runs. Left: pre-trained on 96,000 samples in each way, or on none, and fine-tuned alike on 38,400 of ten
# classes of photographs, each dot a seed. Right: masked prediction first, or not, by the samples of all trainings together;
# bars are a standard deviation over seeds.

# %%
finals = tables.masked_finals(tables.evidence("masked_pretraining"))
finals["accuracy"] = 100 * finals["test_accuracy"]
alike = finals[finals["samples"] == finals["samples"].min()]
alike = alike.replace({"world": "labels of world", "cifar10": "labels of cifar10"})
order = alike.groupby("arm")["accuracy"].mean().sort_values().index[::-1]
longer = finals[finals["arm"].str.startswith(("scratch", "masked,"))]
longer = longer[~longer["arm"].isin(["masked, downsized", "masked, pixels"])]
first = longer["arm"].str.startswith("masked").map({True: "masked prediction", False: "nothing"})
longer = longer.assign(first=first, all=(longer["samples"] + 96_000 * (first != "nothing")) / 1_000)
alt = "Left: test accuracy of every variant, the best first, each dot a seed, lines the means. "
alt += "Right: accuracy by thousands of samples, with masked prediction first and without."
with plots.figure(page, "arms", 1, 2, alt=alt, figsize=(12, 4)) as (left, right):
    how = {"data": alike, "x": "accuracy", "y": "arm", "order": order, "ax": left}
    sns.stripplot(**how, jitter=False, alpha=0.5)
    sns.pointplot(**how, errorbar=None, linestyle="none", marker="|")
    left.set(xlabel="test accuracy on photographs (%)", ylabel="", title="Fine-tuned alike")
    look = {"hue": "first", "style": "first", "markers": True, "dashes": False, "errorbar": "sd"}
    sns.lineplot(longer, x="all", y="accuracy", ax=right, err_style="bars", **look)
    right.set(xlabel="samples of all trainings (thousands)", ylabel="test accuracy (%)")
    pair = "masked, mean-colour", "scratch, as long"
    over = 100 * paired(finals, "arm", *pair).mean()
    right.legend(title="at first")
    right.set_title(f"On 134,400 samples: masked − scratch {over:+.1f} points")

# %% [markdown]
# In the paper masking brings 2 points and labels of JFT 4 more. Here it brings twelve points to a short fine-tuning, and more
# than labels of the same images. But it is also a training on 96,000 samples: a ViT that gets as many labelled ones from the
# start is ahead, and in longer trainings the two come level. It is not a warm start alone: of *white noise* nothing can be
# predicted, and what comes of it is worse than a fresh start; *pink noise*, as smooth as photographs and with nothing in it,
# gives a third of the gain.
#
# ## Verdict

# %%
claims.show(page, "C15")

# %% [markdown]
# **How others get this wrong.** *The loss over all patches*: a predictor that copies what it sees is right on every patch
# that was kept. *The mask put in after the positions are added*: no hidden token knows where it is, and all get the same
# prediction. *Rounding to the nearest level*: nine levels in place of eight. *Patches drawn with replacement*: 39 % are
# hidden where half was meant.
#
# **Open questions.** How long must both trainings be until masked prediction pays? What is the smallest share of hidden
# patches that makes heads local? Do labels of 1,000 classes?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, §4.6, App. B.1.2.
# - M. Raghu et al., *Do Vision Transformers See Like Convolutional Neural Networks?*, NeurIPS 2021.
# - N. Park et al., *What Do Self-Supervised Vision Transformers Learn?*, ICLR 2023.
# - K. He et al., *Masked Autoencoders Are Scalable Vision Learners*, CVPR 2022.
