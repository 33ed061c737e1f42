# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 07 · Position embeddings
#
# **Claim (C10).** Position embeddings are learned as a list that says nothing of a grid, and come to
# encode two dimensions: those of near patches are similar, and so are those of one row or column.
#
# Paper: §4.5, Fig. 7 centre and Fig. 10; §3.2 for the resizing; Dosovitskiy et al., *An Image is
# Worth 16x16 Words*, ICLR 2021. Runs in seconds; nothing is trained.

# %% [markdown]
# ## What you will learn
#
# - to make and read the grid of grids of Fig. 7 centre, and two mistakes in it that raise no error
# - to measure nearness, row and column structure, next to controls
# - what becomes of the table when the image grows (§3.2), on which libraries do not agree
#
# **Prerequisites.** Notebook 01 (Eq. 1); cosine similarity; rank correlation.

# %% [markdown]
# `WEIGHTS`: `"lab"` (a small ViT trained on photographs, first to predict hidden patches, then with
# labels), `"lab-masked"` (the same before labels), `"lab-world"` (a smaller one, of synthetic
# images), a timm name such as `"vit_base_patch16_224"`, or a `.safetensors` file.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"

# %% [markdown]
# Imports. `study` is this execution.

# %%
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from scipy import ndimage

from vitlab import claims, plots
from vitlab.analysis import positions
from vitlab.studies import measure, tables
from vitlab.studies.tables import position_map
from vitlab.models import zoo
from vitlab.models.adapt import CONVENTIONS, resize_positions

study = claims.begin("07_position_embeddings", PRESET, SEED, weights=WEIGHTS)

# %% [markdown]
# ## Prediction
#
# **The paper** says of ViT-L/32 that closer patches tend to have more similar position embeddings,
# and that patches in the same row or column have similar ones. It gives no number.
#
# **We expect** that it depends on the task. To fill in a hidden patch, which is how the lab model's
# training began, a model has to know its neighbours. To tell classes apart it may be enough to tell
# middle from edge. What do you expect to see?
#
# **Decision rule** (how to read it: notebook 00). The rank correlation of similarity with nearness;
# the *row excess*, by how much two patches of a row are more similar than two others equally far
# apart; and the *column excess*. Over trainings by masked prediction, each lies above every control,
# and the rank correlation above 0.3, by convention a medium one.
#
# **Controls**: untrained models; the trained table with its patches shuffled; and shuffled within
# square *rings* around the middle, the strictest: a table that encodes only middle and edge has a
# top row of similar patches, and so a row excess, without encoding rows.

# %% [markdown]
# ## Idea
#
# Eq. 1 adds a learned vector to every token, $\mathbf{z}_0 = [\mathbf{x}_\text{class};
# \mathbf{x}_p^1\mathbf{E}; …; \mathbf{x}_p^N\mathbf{E}] + \mathbf{E}_{pos}$, with $\mathbf{E}_{pos}
# \in \mathbb{R}^{(N+1) \times D}$. Nothing in the model says that patches 9 and 10, two rows of a
# table, are neighbours. The class token's row comes **first**.

# %%
trained = zoo.load(WEIGHTS)
rows, cols = positions.position_grid(trained.model)
pos = positions.position_embeddings(trained.model)  # the patches' rows only
N, D = pos.shape
assert rows * cols == N
print(f"{trained.name}: {rows} × {cols} patches, {D} numbers each")

# %% [markdown]
# For every patch $i$, the cosine of the angle between its embedding and every other:
#
# $$S_{ij} = \frac{\mathbf{e}_i \cdot \mathbf{e}_j}{\lVert\mathbf{e}_i\rVert \lVert\mathbf{e}_j\rVert} \in [-1, 1].$$
#
# Row $i$ of $S$, folded into the grid, is one tile; the tiles stand where their patches stand.

# %%
unit = pos / pos.norm(dim=1, keepdim=True)
S = (unit @ unit.T).reshape(rows, cols, rows, cols)  # [N N] → grid of grids
assert S.shape == (rows, cols, rows, cols)
assert torch.allclose(S, positions.position_similarity(pos, (rows, cols)), atol=1e-6)
assert torch.allclose(S.reshape(N, N).diagonal(), torch.ones(N), atol=1e-5)  # with itself: 1

# %% [markdown]
# First a table whose picture is known: one-hot codes of row and column. Two patches share both codes,
# one, or none, so the similarity is 1, ½ or 0: a cross in every tile.

# %%
row_code = torch.eye(rows).repeat_interleave(cols, dim=0)  # [N rows]
col_code = torch.eye(cols).repeat(rows, 1)  # [N cols]
hand_made = torch.cat([row_code, col_code], dim=1)
cross = positions.position_similarity(hand_made, (rows, cols))
expected = torch.zeros(rows, cols)
expected[0], expected[:, 0], expected[0, 0] = 0.5, 0.5, 1.0
assert torch.allclose(cross[0, 0], expected)

# %% [markdown]
# Trained, untrained, and the hand-made cross, in the layout and on the colour scale of the paper:

# %%
untrained = zoo.load(WEIGHTS, untrained=True, seed=SEED)
random = positions.position_similarity(positions.position_embeddings(untrained.model), (rows, cols))
maps = {"Trained": S, "Untrained": random, "Made by hand:\nrow and column codes": cross}
names = list(maps)
alt = "Three grids of grids of cosine similarity: trained position embeddings, untrained ones, and "
alt += "a cross in every tile."
size = {"mosaic": [[names[0], names[1]], [names[0], names[2]]], "width_ratios": [2.3, 1]}
with plots.figure(study, "similarity", alt=alt, figsize=(10.5, 7.2), **size) as axes:
    for title, similarity in maps.items():
        plots.plot_similarity_grid(similarity.numpy(), axes[title], colorbar=title == names[0])
        axes[title].set_title(title)
    for title in names[1:]:  # small: on the grid of the large one, with fewer numbers
        axes[title].set(xlabel="", ylabel="", xticks=[], yticks=[])

# %% [markdown]
# Untrained, every patch is similar to itself alone. In the trained picture look for a bright spot
# around each patch's own place (nearness), a bright row or column through it, and bright patches on
# the opposite edge, which nearness does not explain.

# %% [markdown]
# ## How others get this wrong
#
# **`[:-1]` instead of `[1:]`.** A circulating snippet drops the *last* row of the stored table to
# get rid of the class token, which is the *first*. The number of rows is right and nothing fails,
# but every patch is taken for the next one.
#
# **Dot product instead of cosine.** Its range has no bounds, and a patch with a long vector looks
# similar to everything.

# %%
stored = getattr(trained.model, "pos_embed", pos[None]).flatten(1, -2)[0].detach()
if len(stored) == N:  # a model without a class token's row: a stand-in for it
    stored = torch.cat([pos.mean(dim=0, keepdim=True), stored])
shifted = positions.position_similarity(stored[:N], (rows, cols))  # the snippet's [:-1]
dot = pos @ pos.T
versions = {"cosine, [1:]": S, "cosine, [:-1]": shifted, "dot product, [1:]": dot.reshape(S.shape)}


def described(similarity):
    row, column = positions.row_column_excess(similarity)
    most_similar = similarity.reshape(N, N).argmax(1)
    return {
        "rank correlation": positions.distance_correlation(similarity),
        "row excess": row,
        "column excess": column,
        "patches most similar to another": int((most_similar != torch.arange(N)).sum()),
    }


pd.DataFrame({name: described(each) for name, each in versions.items()}).T.round(3)

# %% [markdown]
# The tile of the first patch in the second row, framed, in all three versions (the dot product
# divided by its largest value), and what the shift changes:

# %%
second = min(1, rows - 1)
tiles = {name: (each / each.max())[second, 0].numpy() for name, each in versions.items()}
shift = "second\nminus first"
tiles[shift] = tiles["cosine, [:-1]"] - tiles["cosine, [1:]"]
alt = "One tile of the similarity map three times, right, shifted by one patch, and as a dot product, "
alt += "with its patch framed; and the difference that the shift makes."
with plots.figure(study, "wrong", 1, 2, alt=alt, figsize=(11, 3.3), width_ratios=[3.24, 1]) as axes:
    difference = {shift: tiles.pop(shift)}
    plots.plot_maps(tiles, axes[0], cmap="viridis", patch=(second, 0))
    plots.plot_maps(difference, axes[1], cmap="RdBu_r", patch=(second, 0))
    axes[0].set_ylabel(f"Tile of patch\n(row {second + 1}, column 1)")

# %% [markdown]
# In the second tile the framed square is again the brightest, but what surrounds it belongs to the
# last patch of the *first* row, at the other end of the picture.

# %% [markdown]
# ## Experiment
#
# The three quantities for the trained table, for it with one group of dimensions left out at a time (a
# jackknife, as in notebook 06), and for the controls; `limit` is what the rule asks of the interval:

# %%
table = measure.positions(WEIGHTS, **measure.SIZES[PRESET]["positions"], seed=SEED)
measures = measure.compare_positions(table)
least = pd.Series({"rank correlation": 0.3}).reindex(measures.index)
measures["limit"] = measures["control_high"].combine(least, np.fmax)
measures.round(4)

# %% [markdown]
# ## Over several trainings
#
# The same small ViT (80 pixels, 10 × 10 patches), trained with several seeds by masked prediction and
# by labels on 300 to 9,469 photographs of Imagenette. The maps at the end, of each kind's first seed:

# %%
published, where_from = tables.evidence("local_heads"), tables.about("local_heads")
print(where_from)
evaluations = published[(published["kind"] == "evaluation") & (published["data"] != "photographs")]
counts = sorted(evaluations["n_train"].unique())
ends = evaluations[evaluations["samples"] == evaluations["samples"].max()].sort_values("seed")
firsts = ends.drop_duplicates(["objective", "n_train"]).set_index(["objective", "n_train"])
kinds = [(objective, n) for objective in ("masked", "labels") for n in counts]
alt = "Position maps at the end of training, above by masked prediction and below by labels, "
alt += "one column for each number of photographs."
with plots.figure(study, "maps_of_trainings", 2, len(counts), alt=alt, figsize=(12.4, 6.6)) as axes:
    for kind, ax in zip(kinds, axes.flat, strict=True):
        plots.plot_similarity_grid(position_map(firsts.similarity[kind]), ax, colorbar=False)
        ax.set(title="{}, {:,} photographs".format(*kind), xlabel="", ylabel="")

# %% [markdown]
# The three measures, a dot for each training, with the range of their controls in grey:

# %%
several = measure.position_trainings(published)
alt = "Rank correlation, row excess and column excess of the position maps against the number "
alt += "of training photographs, for masked prediction and for labels, next to their controls."
with plots.figure(study, "trainings", 1, 3, alt=alt, figsize=(11, 4)) as axes:
    for ax, (quantity, each) in zip(axes, several.groupby("measure", sort=False), strict=True):
        plots.plot_measure_by_photographs(each, ax)
        ax.set_title(quantity)
    plots.legend_below(axes)

# %% [markdown]
# Masked prediction puts all three measures above every control, on few photographs as on many. With
# labels rows stand out and columns do not. A likely reason: in photographs the row says what to
# expect, sky or ground, and left is like right.

# %% [markdown]
# ## Verdict
#
# Over the trainings by masked prediction on all photographs; then the one table of this run, with
# intervals over its dimensions.

# %%
claims.show(study, "C10", live={
    f"{name}, {trained.name}": claims.Estimate(row.value, row.low, row.high, D, counted="dimensions")
    for name, row in measures.iterrows()
    if np.isfinite(row.low)
})

# %% [markdown]
# The same figure for a ViT-Ti/16 that was trained on ImageNet, with its grid of 14 × 14 patches,
# under this run's:

# %%
plots.show_pictures(claims.imagenet(study, "similarity"))

# %% [markdown]
# ## Second part: another resolution (§3.2)
#
# Fine-tuning on larger images keeps the patch size, so there are more patches than embeddings. The
# paper interpolates the table bilinearly in two dimensions, with the corners of the two grids
# aligned: new row $i$ of $R'$ samples the old rows at $u_i = i\,\frac{R - 1}{R' - 1}$. Three ways to
# write it:

# %%
new = (max(2, round(1.5 * rows)), max(2, round(1.5 * cols)))
picture = pos.T.reshape(1, D, rows, cols)  # every dimension is a picture
opened = F.interpolate(picture, size=new, mode="bilinear", align_corners=True)[0].flatten(1).T
assert opened.shape == (new[0] * new[1], D)
ours = resize_positions(pos, (rows, cols), new, "paper")
scale = (new[0] / rows, new[1] / cols, 1)
zoomed = ndimage.zoom(pos.reshape(rows, cols, D).numpy(), scale, order=1)
assert torch.allclose(ours, opened, atol=1e-6)
assert np.abs(zoomed.reshape(-1, D) - ours.numpy()).max() < 1e-5 * max(1, pos.abs().max())

# %% [markdown]
# Libraries differ in how the two grids are aligned, in the interpolation kernel (bilinear, bicubic),
# and in whether they smooth. Each convention's relative difference from the paper's, for the same
# table and, as the worst case, for one of white noise:

# %%
noise = torch.randn(pos.shape, generator=torch.Generator().manual_seed(SEED))
differences = pd.DataFrame(index=pd.Index(CONVENTIONS, name="convention"))
for kind, values in {f"{trained.name}'s table": pos, "white noise": noise}.items():
    paper = resize_positions(values, (rows, cols), new, "paper")
    resized = [resize_positions(values, (rows, cols), new, name) for name in CONVENTIONS]
    differences[kind] = [((each - paper).norm() / paper.norm()).item() for each in resized]
differences.round(3)

# %% [markdown]
# "timm-npz" differs from the paper by the alignment alone, "torchvision" by the kernel alone: the
# kernel matters more. ("timm" and "hf" smooth as well.) The smoother a table is, the less the
# convention matters. To reproduce a fine-tuning, use the same one: `vitlab` uses the paper's unless
# another is named.

# %% [markdown]
# ## Exercises
#
# ### 1 · Neighbours (★, 5 minutes)
#
# Write `neighbour_similarity(S)`: the mean similarity over all pairs one step apart in a row, and
# over all pairs one step apart in a column.
#
# <details><summary>Hint</summary>The maps of neighbours are <code>S[:, :-1, :, 1:]</code>; of
# those, take the entries with equal rows and equal columns. <code>torch.einsum("ijij->ij",
# …)</code> takes a diagonal.</details>

# %%
def neighbour_similarity(S):
    ### BEGIN SOLUTION
    along_row = torch.einsum("ijij->ij", S[:, :-1, :, 1:])
    along_column = torch.einsum("ijij->ij", S[:-1, :, 1:, :])
    return along_row.mean().item(), along_column.mean().item()
    ### END SOLUTION


# On a 2 × 3 grid, a made-up similarity that tells the pair: 12 for patches 1 and 2, either way.
i, j = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
pairs = (10 * torch.minimum(i, j) + torch.maximum(i, j)).reshape(2, 3, 2, 3)
pairs[0, 2, 1, 0] = pairs[1, 0, 0, 2] = 1000  # patches 2 and 3: neighbours in the table alone
assert neighbour_similarity(pairs) == (23.0, 14.0)  # means of 01 12 34 45, and of 03 14 25
print("trained, along a row and a column: {:.2f} {:.2f}".format(*neighbour_similarity(S)))

# %% [markdown]
# ### 2 · Find two bugs (★★, 10 minutes)
#
# Correct this function. `stored` is the whole table, class token included.
#
# ```python
# def map_of(stored, grid):
#     pos = stored[:-1]
#     return (pos @ pos.T).reshape(*grid, *grid)
# ```
#
# <details><summary>Hint</summary>Which row of the table is no patch? And what if one embedding is
# three times as long as another of the same direction?</details>

# %%
def map_of(stored, grid):
    ### BEGIN SOLUTION
    pos = stored[1:]
    pos = pos / pos.norm(dim=1, keepdim=True)
    return (pos @ pos.T).reshape(*grid, *grid)
    ### END SOLUTION


lengths = torch.linspace(0.5, 3, 6)[:, None]
two_codes = torch.cat([torch.eye(2).repeat_interleave(3, dim=0), torch.eye(3).repeat(2, 1)], dim=1)
answer = map_of(torch.cat([torch.ones(1, 5), lengths * two_codes]), (2, 3))
assert torch.allclose(answer[0, 0], torch.tensor([[1.0, 0.5, 0.5], [0.5, 0.0, 0.0]]), atol=1e-6)
assert torch.allclose(answer[1, 2], torch.tensor([[0.0, 0.0, 0.5], [0.5, 0.5, 1.0]]), atol=1e-6)

# %% [markdown]
# ### 3 · Build a table (★★, 15 minutes)
#
# Make a table `bumps`, a row for each patch of a grid of 6 × 5, in which *only nearness* counts: no
# row excess, no column excess, and the farther the less similar.
#
# <details><summary>Hint</summary>Give patch i the values of a Gaussian bump around it, at all
# points of a fine grid that reaches well beyond the picture: two such vectors overlap by a function
# of the distance alone.</details>

# %%
height, width = 6, 5
### BEGIN SOLUTION
y = torch.arange(height).repeat_interleave(width)[:, None].float()
x = torch.arange(width).repeat(height)[:, None].float()
line = torch.arange(-10, 17, 0.5)
point_y, point_x = line.repeat_interleave(len(line)), line.repeat(len(line))
bumps = torch.exp(-((y - point_y) ** 2 + (x - point_x) ** 2) / (2 * 2.0**2))
### END SOLUTION
near = positions.position_similarity(bumps, (height, width))
assert torch.allclose(near[0, 0, 3, 4], near[0, 0, 4, 3], atol=1e-4)  # equally far: 3-4-5 triangles
assert torch.allclose(near[0, 0, 5, 0], near[0, 0, 3, 4], atol=1e-4)
assert positions.distance_correlation(near) > 0.99
assert max(abs(excess) for excess in positions.row_column_excess(near)) < 0.1

# %% [markdown]
# ### 4 · Resize by hand (★★★, 20 minutes)
#
# Write the paper's resizing as two small matrices: `weights(old, new)` of shape `[new, old]` holds
# the shares with which each new place takes from the old ones, so that the resized picture is
# `weights(R, R′) @ picture @ weights(C, C′).T`.
#
# <details><summary>Hint</summary>Place <code>u = i (old − 1) / (new − 1)</code> lies between two
# old places; each counts as <code>1 − distance</code>, and nothing farther than 1 counts: <code>(1
# − |u − j|).clamp(min=0)</code>.</details>

# %%
def weights(old, new):
    ### BEGIN SOLUTION
    place = torch.linspace(0, old - 1, new)
    return (1 - (place[:, None] - torch.arange(old)).abs()).clamp(min=0)
    ### END SOLUTION


assert torch.equal(weights(2, 3), torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
square = torch.randn(7, 5, generator=torch.Generator().manual_seed(SEED))
by_hand = weights(7, 12) @ square @ weights(5, 8).T
assert np.allclose(by_hand, ndimage.zoom(square.numpy(), (12 / 7, 8 / 5), order=1), atol=1e-5)

# %% [markdown]
# ## Summary
#
# - The picture of Fig. 7 centre is the matrix of cosines [N N], reshaped to a grid of grids, without
#   the class token's row, the first of the table.
# - Nearness, rows and columns are three findings, each measured against untrained and shuffled
#   tables. Labels alone teach a small ViT rows and no columns, masked prediction both.
# - A resized table depends on the library. The paper's way is bilinear with aligned corners.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - N. Mantel, *The detection of disease clustering and a generalized regression approach*, Cancer
#   Research 27, 1967: shuffling the places as a test of similarity against distance.
