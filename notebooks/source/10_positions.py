# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 10 · Positions: none, 1-D, 2-D, relative
#
# **Claim (C09).** A ViT without position embeddings is clearly worse; 1-D, 2-D and relative ones are equal, wherever
# they are added.
#
# Table 8 of the paper compares them for ViT-B/16 on ImageNet; here they are compared on three small tasks.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports, and the committed runs, each variant at the better of two learning rates: 1,600 steps on two synthetic tasks, 400
# on CIFAR-10, and longer ones for 1-D and *relative*.

# %%
import itertools

import numpy as np
import pandas as pd
import torch
from torch import nn

from vitlab import claims, plots
from vitlab.claims.rules import lead
from vitlab.data.datasets import world_splits
from vitlab.data.loader import batches
from vitlab.data.world import World, with_cues, with_difficulty
from vitlab.models import zoo
from vitlab.plots.style import COLOURS, MUTED, REFERENCE
from vitlab.studies import tables
from vitlab.studies.table import TABLE_8
from vitlab.training.loop import evaluate, train
from vitlab.training.recipe import Recipe

page = claims.begin("10_positions", PRESET, SEED)
runs = [tables.evidence(name) for name in ("longer_positions", "position_variants")]
runs = tables.chosen(pd.concat(runs, ignore_index=True), ["task", "arm", "steps"])
best = runs[runs["steps"] == runs["task"].map(lambda task: 400 if task == "cifar10" else 1_600)]
BASE, LOOK = "1-D, stem", {"arrangement": "blue o", "contour": "orange s", "cifar10": "green ^"}

# %% [markdown]
# All of Table 8 after 1,600 steps (CIFAR-10: 400): every variant's accuracy minus that of 1-D embeddings at the stem, with
# 95 % intervals; grey diamonds are the paper's.

# %%
def plot_gaps(runs, arms, ax):
    """Draw each variant's difference from the base by task, from the top down."""
    ax.axvline(0, **REFERENCE)
    for shift, (task, rows) in enumerate(runs.groupby("task", sort=False)):
        (colour, marker), gaps = LOOK[task].split(), [lead(rows, arm, BASE) for arm in arms]
        x = np.array([each.value for each in gaps])
        ends = np.array([each.interval or (each.value,) * 2 for each in gaps])
        how = {"fmt": marker, "color": COLOURS[colour], "capsize": 3, "label": task}
        ax.errorbar(x, np.arange(len(arms)) + 0.2 * shift - 0.2, None, np.abs(ends.T - x), **how)
    ax.set_yticks(range(len(arms)), arms)
    ax.set(ylim=(len(arms) - 0.5, -0.5), xlabel=f"accuracy − that of {BASE} (points)")


arms = [arm for arm in TABLE_8 if arm != BASE]
alt = "Accuracy of each kind and place of position embeddings minus 1-D at the stem: three tasks, "
alt += "and in grey the paper's. None is far behind, relative second, the others near zero."
with plots.figure(page, "positions", alt=alt, figsize=(9, 4.6)) as ax:
    plot_gaps(best, arms, ax)
    paper = [100 * (TABLE_8[arm] - TABLE_8[BASE]) for arm in arms]
    ax.scatter(paper, range(len(arms)), 30, MUTED, marker="D", zorder=4, label="the paper, Table 8")
    worst = [lead(rows, "none", BASE).value for _, rows in best.groupby("task", sort=False)]
    ax.set_title(f"Without positions: {-max(worst):.0f} to {-min(worst):.0f} points lost")
    ax.legend()
    ax.figure.supxlabel(tables.about("longer_positions"), fontsize=8, color=MUTED)

# %% [markdown]
# We observe that *none* is behind in every task. Tables of one or two dimensions, added once or in every block, lie
# within about two points of each other; *relative* embeddings lag behind them.
#
# ## Prediction
#
# Why is *none* so near on CIFAR-10, and so far where only the arrangement of parts tells the class? And would *relative*
# catch up in longer trainings?
#
# <details><summary>How it is decided</summary>
#
# 1-D is ahead of none in every task by more than a point, else the claim is not reproduced; 2-D and relative are equal to
# 1-D, and other places to the stem, where the whole interval of the difference is within two points, each pair in the
# longest trainings of both. See chapter 12.
#
# </details>
#
# ## Without positions a ViT sees a bag of patches
#
# Attention is a weighted mean over tokens, and a mean knows no order. With nothing added to the patches' embeddings the
# logits are the same for any order of the patches:

# %%
images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(SEED))
patches = images.unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3)  # [B 3 N 8 8]
order = torch.randperm(16, generator=torch.Generator().manual_seed(SEED))
moved = patches[:, :, order].unflatten(2, (4, 4)).transpose(3, 4).reshape(images.shape)
for kind in ("none", "1d", "2d", "relative"):
    model = zoo.create("Lab-Mu/8", positions=kind, seed=SEED).eval()
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(SEED))
    with torch.no_grad():
        change = (model(images) - model(moved)).abs().max().item()
    print(f"{kind:9} logits change by {change:.1e} when the patches are shuffled")
    assert (change < 1e-5) is (kind == "none")

# %% [markdown]
# ### 1 · Find the bug: a patch's position for the class token (★, 10 min)
#
# *Importance: shapes are right, nothing fails.* The table's first row is the class token's: here every patch is told it
# is where its predecessor is. Correct it, with the class token in front, as in Eq. 1.
#
# ```python
# def sequence(patches, cls, pos_table):  # [B N D], [1 1 D], [1 1+N D]
#     return torch.cat([patches, cls.expand(len(patches), -1, -1)], dim=1) + pos_table
# ```
#
# <details><summary>Hint</summary>Which row of the table belongs to which token?</details>
#
# *Expected output: none. Common bug: to reorder the table in place of the tokens, which pre-trained weights forbid.*

# %%
def sequence(patches, cls, pos_table):
    ### BEGIN SOLUTION
    return torch.cat([cls.expand(len(patches), -1, -1), patches], dim=1) + pos_table
    ### END SOLUTION


model = zoo.create("Lab-Mu/8", seed=3).eval()
nn.init.normal_(model.cls_token, generator=torch.Generator().manual_seed(3))
tokens = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(4))
assert torch.equal(sequence(tokens, model.cls_token, model.pos_embed), model.sequence(tokens))

# %% [markdown]
# ## The kinds
#
# *1-D* is Eq. 1: a learned vector for each place in the sequence. *2-D* learns half a vector $X_c$ for each column and
# half a vector $Y_r$ for each row, and a patch gets $[X_c; Y_r]$. *Relative* embeddings belong to an offset: for a query
# at place $p_q$ and a key at $p_k$, the query's product with $r_{p_q - p_k}$ is added to the logit.

# %%
model = zoo.create("Lab-Mu/8", positions="2d", seed=SEED)
rows, columns = model.patch_embed.grid_size
X, Y = model.stem_positions.pos_embed_x[0], model.stem_positions.pos_embed_y[0]  # [columns D/2]
places = [torch.cat([X[c], Y[r]]) for r in range(rows) for c in range(columns)]  # row by row
assert torch.equal(torch.stack(places), model.position_table()[0, 1:])  # after the class token's

attention = zoo.create("Lab-Mu/8", positions="relative", seed=SEED).blocks[0].attn
N, r = rows * columns, attention.offsets.pos_embed_offsets  # r [2N - 1, D_h]: first offset N - 1
q, k, v = torch.randn(3, 1, 2, 1 + N, r.shape[1])  # [B heads T D_h], class token first
bias = torch.zeros(1, 2, 1 + N, 1 + N)  # nothing is added in pairs with the class token
for p_q, p_k in itertools.product(range(N), range(N)):
    bias[..., 1 + p_q, 1 + p_k] = q[:, :, 1 + p_q] @ r[N - 1 - (p_q - p_k)] / r.shape[1] ** 0.5
logits = q @ k.mT / r.shape[1] ** 0.5 + bias
assert torch.allclose(logits.softmax(dim=-1) @ v, attention.attend(q, k, v), atol=1e-6)

# %% [markdown]
# ### 2 · Where the dropout goes (★, 5 min)
#
# *Importance: a detail of §4.1 that ports get wrong.* The paper drops out directly *after adding* positions to the
# patches' embeddings. Write it: `x` [B T D], `pos` [1 T D], `drop` a module.
#
# <details><summary>Hint</summary>What is dropped is the sum.</details>
#
# *Expected output: none. Common bug: dropout of the embeddings alone; then the positions always arrive.*

# %%
def embedded(x, pos, drop):
    ### BEGIN SOLUTION
    return drop(x + pos)
    ### END SOLUTION


drop = nn.Dropout(0.5).train()
x, pos = torch.full((4, 50, 8), 3.0), torch.full((1, 50, 8), 4.0)
assert set(embedded(x, pos, drop).unique().tolist()) == {0.0, 14.0}  # all, doubled, or none
assert torch.equal(embedded(x, pos, drop.eval()), x + pos)

# %% [markdown]
# ### 3 · How many numbers (★, 5 min)
#
# *Importance: the kinds differ in size more than in accuracy.* For a grid of `rows` × `columns`, width `dim` and heads of
# `head_dim`, count the learned numbers of one table of each kind, the class token's row included where there is one (1-D
# and 2-D).
#
# <details><summary>Hint</summary>N patches have 2N − 1 offsets; heads share a table.</details>
#
# *Expected output: the three counts for ViT-B/16. Common bug: N² offsets.*

# %%
def numbers(rows, columns, dim, head_dim):
    """(1-D, 2-D, relative)"""
    ### BEGIN SOLUTION
    n = rows * columns
    return (1 + n) * dim, dim + (rows + columns) * dim // 2, (2 * n - 1) * head_dim
    ### END SOLUTION


one, two, offsets = numbers(rows, columns, 32, r.shape[1])
assert one == zoo.create("Lab-Mu/8").pos_embed.numel() and offsets == r.numel()
assert two == 32 + X.numel() + Y.numel()
print(numbers(14, 14, 768, 64))

# %% [markdown]
# ## Experiment
#
# In this task every class has the same discs in other places: only the arrangement tells them apart. Change `KINDS`, the
# number of images or the steps.

# %% tags=["long"]
KINDS = ("none", "1d")
steps, n_train = {"smoke": (3, 32)}.get(PRESET, (160, 4_000))
world = with_difficulty(with_cues(World(10, 24), "arrangement"), 0.1)
splits = world_splits(world, n_train, n_validation=0, n_test=500, draw=SEED)
yours = {}
for kind in KINDS:
    model = zoo.create("Lab-Mu/4", n_classes=10, image_size=24, positions=kind, seed=SEED)
    recipe = Recipe(steps, batch_size=64, learning_rate=8e-3, warmup_steps=steps // 10)
    train(model, batches(splits.train, recipe.batch_size, SEED), recipe)
    yours[kind] = evaluate(model, splits.test)["accuracy"]
    print(f"{kind:9} {yours[kind]:.1%}")

# %% [markdown]
# What *none* still knows is what is inside one patch: a disc that a patch's edge cuts. Which patch is where, it cannot
# know. That is also why it comes near on CIFAR-10: much of what tells those photographs apart is texture and colour.
#
# ## What longer trainings change
#
# The same differences by the number of steps; *relative* has the longest trainings:

# %%
alt = "Accuracy of none, 2-D and relative minus that of 1-D, in points, by training steps, a line a task."
with plots.figure(page, "positions_longer", 1, 3, alt=alt, figsize=(12, 3.4), sharex=True) as axes:
    for ax, kind in zip(axes, ("none", "2-D, stem", "relative"), strict=True):
        ax.axhline(0, **REFERENCE)
        for task, rows in runs.groupby("task", sort=False):
            by_steps = [(s, each) for s, each in rows.groupby("steps") if kind in set(each["arm"])]
            gaps = [lead(each, kind, BASE) for _, each in by_steps]
            half = [0 if each.interval is None else each.half_width for each in gaps]
            colour, marker = LOOK[task].split()
            how = {"color": COLOURS[colour], "marker": marker, "capsize": 3, "label": task}
            ax.errorbar([s for s, _ in by_steps], [each.value for each in gaps], half, **how)
        ax.set(xscale="log", xlabel="steps", title=f"{kind.partition(',')[0]} − 1-D")
        ax.set_xticks((400, 1_600, 6_400), ("400", "1,600", "6,400"))
        ax.minorticks_off()
    axes[0].set_ylabel("accuracy (points)")
    axes[-1].legend()

# %% [markdown]
# After 400 steps what is compared is how soon a training finds out where things are. Longer ones leave *none* behind,
# which cannot find out, and bring the two tables together. *Relative* catches up where the arrangement of parts tells the
# class, but not on CIFAR-10, where its lag grows: it knows how far patches are apart, and not where they are.
#
# **The maps** (Fig. 10): similarity of each patch's embedding to all others; of relative ones, of each offset's to that
# of offset 0.

# %%
cells = [("arrangement", BASE), *(("cifar10", arm) for arm in (BASE, "2-D, stem", "relative"))]
alt = "Similarity maps of position embeddings, a grid of grids each: 1-D of the arrangement; 1-D, "
alt += "2-D and relative of CIFAR-10."
with plots.figure(page, "maps", 1, len(cells), alt=alt, figsize=(14, 3.9)) as axes:
    for ax, (task, arm) in zip(axes, cells, strict=True):
        plots.plot_similarity_grid(tables.position_maps(best, task)[arm], ax, colorbar=False)
        ax.set(title=f"{arm}: {task}", xlabel="", ylabel="", xticks=[], yticks=[])

# %% [markdown]
# 2-D embeddings have rows and columns by construction; in 1-D ones all structure is learned, and depends on the task.
#
# ## Verdict

# %%
claims.show(page, "C09")

# %% [markdown]
# **How others get this wrong.** *Rows of the 2-D table swapped with columns*: on a square grid nothing fails, and nothing
# is worse; test with 2 × 3 patches. *A comparison after a short training*, which ranks kinds by how soon they start.
#
# **Open questions.** Is it the two blocks that make *relative* lag? Do rotary embeddings, which are relative and need no
# table, lag too? What happens to each kind when images grow after training?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: App. D.4, Table 8, Fig. 10.
# - P. Shaw, J. Uszkoreit, A. Vaswani, *Self-Attention with Relative Position Representations*, NAACL 2018.
