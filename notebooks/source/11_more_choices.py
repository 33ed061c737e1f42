# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 11 · Four more choices
#
# **What the head reads, which optimizer trains the ResNets, in which direction a ViT grows, and whether every patch has
# to look at every other (C16 to C19).** The paper's appendix D tries each; here each has a figure and a hundred words.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports. Nothing is trained live here: the committed runs took days.

# %%
import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from vitlab import claims, plots
from vitlab.claims import rules
from vitlab.models import zoo
from vitlab.models.variants import AxialAttention
from vitlab.models.vit import Attention
from vitlab.plots.curves import log_ticks, plot_curves
from vitlab.studies import tables
from vitlab.studies.statistics import summary

page = claims.begin("11_more_choices", PRESET, SEED)

# %% [markdown]
# ## Class token or global average pooling (C16)
#
# Both heads at the same learning rates (left; the one that validation images choose is ringed), and at the best one in
# trainings of three lengths (right).

# %%
heads = tables.evidence("head_rates")
best = tables.chosen(heads, ["steps", "arm"])
leads = {n: rules.lead(rows, "class token", "GAP").value for n, rows in best.groupby("steps")}
alt = "Test accuracy with intervals, a line for the class token and one for GAP: left by learning "
alt += "rate after 2,000 steps, the chosen rate ringed; right at the best rate by number of steps."
with plots.figure(page, "heads", 1, 2, alt=alt, figsize=(11, 4), sharey=True) as axes:
    plots.plot_rates(heads[heads["steps"] == 2_000], best[best["steps"] == 2_000], axes[0])
    axes[0].set_title(f"2,000 steps: the class token leads by {leads[2_000]:.1f} points")
    plot_curves(best, axes[1], x="steps", y="test_accuracy", hue="arm", bounds=(0, 1))
    log_ticks(axes[1], best["steps"])
    axes[1].set(xlabel="training steps (log scale)", ylabel="")
    said = ", ".join(f"{n:,} steps {round(lead, 1) + 0:.1f}" for n, lead in leads.items())
    axes[1].set_title(f"Its lead: {said}")

# %% [markdown]
# The paper found pooling much worse at first, "only because of the learning rate". Here both heads are best at the same
# rate, and it is length that closes the gap: pooling takes longer to learn, and after 8,000 steps both end alike.

# %%
claims.show(page, "C16")

# %% [markdown]
# ### Prediction
#
# For the other three, write down what you expect: is Adam worse than SGD for a ResNet that is fine-tuned later? Which
# dimension of a ViT pays best? Is axial attention worth its FLOPs?
#
# <details><summary>How they are decided</summary>
#
# C17: Adam − SGD after fine-tuning, from filters rescaled to the size of fresh ones, is above −1 point for each ResNet. C18:
# depth's slope over log FLOPs is above, width's below every other's, and smaller patches help. C19: axial − full attention
# of equal depth is above zero, at more FLOPs. Each variant has as many trials and is reported at its own best rate. See
# chapter 12.
#
# </details>
#
# ### 1 · The mean of the patches (★, 5 min)
#
# *Importance: an off-by-one that costs accuracy in silence.* Global average pooling is over the *patches*. Write it for a
# model whose first `n_prefix` tokens are not patches.
#
# <details><summary>Hint</summary>By how many tokens does the mean divide?</details>
#
# *Expected output: none. Common bug: to average the class token in.*

# %%
def patch_mean(tokens, n_prefix):
    """[B T D] → [B D]."""
    ### BEGIN SOLUTION
    return tokens[:, n_prefix:].mean(dim=1)
    ### END SOLUTION


tokens = torch.tensor([[[100.0, 0.0], [1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]])  # class token first
assert torch.equal(patch_mean(tokens, 1), torch.tensor([[2.0, 4.0]]))
pooled = zoo.create("Lab-Mu/8", pool="gap", seed=3).eval()
seen = pooled.forward_features(torch.randn(2, 3, 32, 32))
assert torch.allclose(pooled.forward_head(seen, pre_logits=True), patch_mean(seen, 0), atol=1e-6)

# %% [markdown]
# ### 2 · Tuned alike (★★, 15 min)
#
# *Importance: one variant tuned and the other not is the commonest unfair comparison.* From accuracies on validation and
# test images, [variants, rates, seeds] each, compute the mean test accuracy of variant 0 minus that of variant 1, each at
# the rate with its highest mean validation accuracy.
#
# <details><summary>Hint</summary>Mean over seeds first, then <code>argmax</code> over rates.</details>
#
# *Expected output: none. Common bug: the rate with the best test accuracy, which makes leads out of noise.*

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
generator = np.random.default_rng(0)  # two equal variants, tuned by noise: no difference
noise = [fair_difference(*generator.normal(size=(2, 2, 6, 3))) for _ in range(3_000)]
assert abs(np.mean(noise)) < 0.05

# %% [markdown]
# ## Adam or SGD for ResNets (C17)
#
# ResNets were designed with SGD, and the paper pre-trains them with Adam. Is that fair to them? Two of ours, each optimizer
# at the best of its rates, then fine-tuned alike; in grey the paper's Table 7, mean of five data sets.
#
# *Alike* is harder than it looks. A weight-standardised filter computes the same whatever its size, but a step of
# fine-tuning turns a large one less, and the optimizers may leave filters of different sizes. So each is fine-tuned twice:
# as trained, and with filters rescaled to the size of fresh ones.

# %%
TABLE_7 = {"R50": (0.89330, 0.88786), "R152x2": (0.94014, 0.93722)}  # means of its rows: Adam, SGD
gaps = {f"the paper, {name}": 100 * (adam - sgd) for name, (adam, sgd) in TABLE_7.items()}
judged = rules.verdict("C17").numbers
kernels = {"Adam − SGD": "rescaled", "the same with filters as trained": "as trained"}
asked = [(*name.split(", "), estimate) for name, estimate in judged.items()]  # what, model, how much
mine = {f"{model}, {kernels[what]}": each for what, model, each in asked if what in kernels}
points = pd.DataFrame({"mean": pd.Series(gaps), "low": np.nan, "high": np.nan})
found = pd.DataFrame({n: (e.value, *e.interval) for n, e in mine.items()}, index=points.columns).T
alt = "Adam minus SGD after fine-tuning, in points: the paper's ResNets grey, ours with intervals."
with plots.figure(page, "optimizers", alt=alt, figsize=(8, 2.8)) as ax:
    rows, label = pd.concat([points, found]), "accuracy after fine-tuning, Adam − SGD (points)"
    plots.plot_comparisons(points.reindex(rows.index), label, ax, "grey")
    plots.plot_comparisons(found.reindex(rows.index), label, ax)
    lost = [-mine[f"ResNet-Ti/8, {each}"].value for each in ("as trained", "rescaled")]
    ax.set_title("The larger ResNet loses {:.1f} points by Adam, rescaled {:.1f}".format(*lost))

# %% [markdown]
# In pre-training no difference shows. After fine-tuning the larger ResNet is behind by Adam, and most of that is the
# size of its filters, which says nothing of what it learnt: a comparison by fine-tuning also compares how weights of two
# sizes take the same steps. What is left is CIFAR-10's alone; on the digits both end level.

# %%
claims.show(page, "C17")

# %% [markdown]
# ## Which shape spends FLOPs best? (C18)
#
# From one base, one dimension at a time: depth, width, the MLP's width, the patch size; and the first three together.

# %%
shapes = tables.evidence("vit_shapes")
slopes = tables.slopes(shapes).groupby("dimension")["slope"].mean().drop("all").sort_values()
alt = "Test accuracy against FLOPs on a log scale: from the base a line along each dimension."
with plots.figure(page, "shapes", alt=alt, figsize=(7.5, 4.4)) as ax:
    plots.plot_shapes(summary(shapes, ["dimension", "arm", "flops"]), ax)
    ax.set_title(f"{slopes.index[-1].capitalize()} pays best, {slopes.index[0]} least")
ends = shapes.groupby(["dimension", "arm"], sort=False)[["train_loss", "test_accuracy"]].mean()
print("Training loss over the last tenth, and test accuracy:", ends.round(3).to_string(), sep="\n")

# %% [markdown]
# Every deeper or wider shape fits the training images better than the base, and hardly one tests better; deeper ones test
# worse. With 64,000 images, each seen 16 times, what a shape adds goes into fitting them: here images are the limit, not
# shape. Smaller patches, well ahead in shorter trainings, end level with the base.

# %%
claims.show(page, "C18")

# %% [markdown]
# ## Axial attention (C19)
#
# Attention within the rows of the grid, then a block within its columns: every patch reaches every other in two steps.

# %%
full, x = Attention(8, n_heads=2, dropout=0.0), torch.randn(2, 12, 8)
with torch.no_grad():
    by_rows = [full(row) for row in x.reshape(2, 3, 4, 8).unbind(1)]  # each row is a sequence
    rows = AxialAttention(full, grid=(3, 4), axis="rows")  # the same weights
    assert torch.allclose(rows(x), torch.stack(by_rows, 1).flatten(1, 2), atol=1e-6)

by_variant = summary(tables.evidence("axial_attention"), ["arm", "flops"])
ahead = rules.verdict("C19").numbers["axial − full, same depth"]
alt = "Test accuracy by FLOPs of axial attention and full of the same depth, parameters or FLOPs."
with plots.figure(page, "axial", alt=alt, figsize=(7.5, 4)) as ax:
    plots.plot_shapes(by_variant, ax, base=None, by="arm")
    ax.set_title(f"Axial attention is {ahead.value:.1f} points ahead of full of the same depth")

# %% [markdown]
# The axial ViT is ahead of full attention of equal depth and of equal FLOPs; against one of equal parameters, twice as deep,
# five seeds do not decide. It takes a training that is long enough: after half as many steps it was behind in our pilots.

# %%
claims.show(page, "C19")

# %% [markdown]
# ### 3 · Attention within the rows (★★★, 20 min)
#
# *Importance: most efficient attentions are a reshape and a batched product.* Write the first half of axial attention for
# one image and one head: `q`, `k`, `v` are [N D_h], patches row by row, `grid` is (rows, columns).
#
# <details><summary>Hint</summary>Fold N into rows × columns; logits are [rows, query, key].</details>
#
# *Expected output: none. Common bug: softmax over the queries.*

# %%
def attention_within_rows(q, k, v, grid):
    ### BEGIN SOLUTION
    q, k, v = (each.reshape(*grid, -1) for each in (q, k, v))  # [rows columns D_h]
    logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5  # [rows query key]
    return (logits.softmax(dim=-1) @ v).flatten(0, 1)
    ### END SOLUTION


q, k, v = 3 * torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
ours = attention_within_rows(q, k, v, (2, 3))
for row in (slice(0, 3), slice(3, 6)):  # by another library's kernel, row by row
    theirs = F.scaled_dot_product_attention(*(each[None, row] for each in (q, k, v)))[0]
    assert torch.allclose(ours[row], theirs, atol=1e-5)

# %% [markdown]
# **Verdicts** are above, each under its figure. **How others get this wrong.** *Equal FLOPs taken for equal time*: where a
# line of patches is short, products are too small to fill a processor. *Shapes compared at one short length*: the larger
# has not converged.
#
# **Open questions.** Which shape wins where each image is seen once? Does the axial ViT's lead last when all have converged?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: App. D, Table 7, Fig. 8, 9, 13.
# - X. Zhai et al., *Scaling Vision Transformers*, CVPR 2022.
