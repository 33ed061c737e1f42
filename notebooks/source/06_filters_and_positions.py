# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 06 · Filters and positions
#
# **Claims.** The principal components of a trained patch embedding look like a basis for the fine structure within a patch
# (C11), and position embeddings encode two dimensions (C10).
#
# Fig. 7 left and centre show both for ViT-L. `WEIGHTS` is a bundled model (`"lab"`, `"lab-masked"`, `"lab-world"`), a timm
# name such as `"vit_base_patch16_224"`, or a file; the chapter looks at whatever it names.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"

# %% [markdown]
# Imports, and the model: its filters $W$, and one position embedding for each patch of its grid.

# %%
import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from vitlab import claims, paths, plots
from vitlab.analysis import filters, positions
from vitlab.data import datasets
from vitlab.models import zoo
from vitlab.plots.style import as_png
from vitlab.studies import measure, tables
from vitlab.widgets.film import Film, Frame

page = claims.begin("06_filters_and_positions", PRESET, SEED, weights=WEIGHTS)
trained = measure.load_for(page.notebook, WEIGHTS)
untrained = zoo.load(WEIGHTS, untrained=True, seed=SEED)
W = filters.embedding_filters(trained.model)
D, channels, P, Q = W.shape
n = measure.n_components(W)
components, explained = filters.filter_components(W, n)
noise, _ = filters.filter_components(filters.embedding_filters(untrained.model), n)
print(f"{trained.name}: {D} filters of {P} × {Q} pixels")

# %% [markdown]
# The components, sorted by the variance that they explain; next to them those of the same model with fresh weights, the
# control. Each tile is scaled on its own.

# %%
alt = f"Two grids of {n} pictures: sorted principal components of trained and untrained filters."
size = {"figsize": (11, 4.4), "width_ratios": [1.7, 1]}
with plots.figure(page, "components", 1, 2, alt=alt, **size) as axes:
    banks = {"Trained": components, "Untrained": noise}
    for ax, (words, pictures) in zip(axes, banks.items(), strict=True):
        share = filters.low_frequency_share(pictures).mean().item()
        tiles = 255 * filters.filter_tiles(pictures).permute(0, 2, 3, 1)  # [n 3 P P] → [n P P 3]
        rows = {str(1 + k): tiles[k : k + 7].byte().numpy() for k in range(0, len(tiles), 7)}
        plots.plot_pictures(rows, ax)
        ax.set_title(f"{words}: {share:.0%} in low frequencies")

# %% [markdown]
# The same for a ViT-Ti/16 that others trained on ImageNet-21k and ImageNet, above this run's:

# %%
of_imagenet = paths.shipped() / "figures/reference/imagenet" / page.notebook
places = {"ViT-Ti/16, trained on ImageNet": of_imagenet, f"this run: {WEIGHTS}": page.folder}
plots.show_pictures({title: next(at.glob("components.*")) for title, at in places.items()})

# %% [markdown]
# Untrained components are noise: independent colours in every pixel. Trained ones have what noise does not have:
# neighbouring pixels of similar colour, directions, pairs of opposed colours. Patches of 16 px have room for longer waves.
#
# ## Prediction
#
# What would you measure to tell a basis for pictures from noise? And what should position embeddings look like if nobody
# told the model which patches are neighbours?
#
# <details><summary>How it is decided</summary>
#
# C11, over five trainings by masked prediction, of filters that start small: the components' share of energy in low
# frequencies and the variance that they explain are above what they were in any of the five before it, by whole
# intervals. C10, over ten trainings by masked prediction: rank correlation of similarity with nearness (above 0.3), row
# excess and column excess are above every control: untrained tables, and trained ones shuffled. See chapter 12.
#
# </details>
#
# ## A bank of pictures
#
# Eq. 1 projects a flattened patch to $D$ numbers. Each number is the product of the patch with one *filter*, a colour
# picture of $P \times P$ pixels. What follows can undo any rotation of the $D$ numbers, so single filters are not unique;
# the directions along which they vary most are. Filters are the samples, pixels the variables:
#
# $$W - \bar W = U S V^\top, \qquad \mathbf{c}_k = \text{row } k \text{ of } V^\top, \qquad \text{explained}_k = s_k^2 / \sum_j s_j^2.$$

# %%
samples = W.flatten(1).double()  # [D, 3·P·P]: one filter a row
centred = samples - samples.mean(dim=0)  # minus the mean filter
_, s, Vt = torch.linalg.svd(centred, full_matrices=False)
assert torch.allclose((s**2 / (s**2).sum())[:n], explained.double(), atol=1e-5)
cosine = (components.flatten(1).double() * Vt[:n]).sum(dim=1)
assert torch.allclose(cosine.abs(), torch.ones(n).double(), atol=1e-5)  # the sign is free
pca = PCA(n, svd_solver="full").fit(samples.numpy())  # scikit-learn's
assert np.allclose(pca.explained_variance_ratio_, explained, atol=1e-5)
print(f"{n} components explain {100 * explained.sum():.1f} % of the variance of {D} filters")

# %% [markdown]
# ### 1 · A basis (★★, 15 min)
#
# *Importance: a basis is what things can be rebuilt from.* Write `rebuild(samples, count)`: the mean filter plus the
# projection of each centred filter on the first `count` components.
#
# <details><summary>Hint</summary>With orthonormal rows C the projection is <code>(X − mean) Cᵀ C</code>.</details>
#
# *Expected output: none; the error is the variance not explained. Common bug: the mean is not added back.*

# %%
def rebuild(samples, count):
    ### BEGIN SOLUTION
    mean = samples.mean(dim=0)
    basis = torch.linalg.svd(samples - mean, full_matrices=False)[2][:count]
    return mean + (samples - mean) @ basis.T @ basis
    ### END SOLUTION


for count in (1, n):
    left_over = (samples - rebuild(samples, count)).square().sum() / centred.square().sum()
    assert abs(left_over - (1 - pca.explained_variance_ratio_[:count].sum())) < 1e-6

# %% [markdown]
# ## Patches from components
#
# Move the slider. Above, patches of photographs; below, the mean colour of each plus the projection of the rest, its fine
# structure, on the first $k$ components of the trained filters, the rows of $V^\top$, and of fresh ones.

# %%
taken = [picture for _, picture in datasets.photographs(limit=2, sample=False)]
patches = measure.view(trained, taken, side=1).unfold(1, P, P).unfold(2, Q, Q).flatten(0, 2)
colour = patches.mean(dim=(2, 3), keepdim=True)  # patches [n 3 P Q], values 0…1
fine = (patches - colour).flatten(1).double()
some = fine.norm(dim=1).argsort(descending=True)[:64:8]  # of much contrast
fresh = filters.embedding_filters(untrained.model).flatten(1).double()
Ft = torch.linalg.svd(fresh - fresh.mean(dim=0), full_matrices=False)[2]
most, frames = min(D - 1, len(Vt)), []  # with the mean taken off, D filters span D − 1 directions
for k in [0, *(2**e for e in range(20) if 2**e < most), most]:
    rows = {"patch": fine, "trained": fine @ Vt[:k].T @ Vt[:k], "fresh": fine @ Ft[:k].T @ Ft[:k]}
    _, held, other = (f"{x.square().sum() / fine.square().sum():.0%}" for x in rows.values())
    words = f"{k} of {most} components hold {held} of the fine structure, fresh ones {other}"
    for name, each in rows.items():
        each = 255 * (colour + each.view_as(patches)).clamp(0, 1)
        rows[name] = each[some].byte().movedim(1, 3).numpy()
    with plots.style():
        figure = Figure(figsize=(8.6, 3.1), layout="constrained")
        plots.plot_pictures(rows, figure.subplots()).set_title(words)
    frames.append(Frame(f"k = {k}", as_png(figure, 128), f"{words}."))
Film("Patches from components", "components", frames)

# %% [markdown]
# We observe for `lab` that 16 components hold more than half of the fine structure, as many fresh ones 8 %. They are sorted by
# the filters' variance, not by the pixels': in the ViT-Ti of ImageNet the waves that photographs are full of come late. Filters
# fewer than a patch's values cannot give all of it back.
#
# ### 2 · Find the bug: the transposed matrix (★★, 10 min)
#
# *Importance: it circulates, and returns fine-looking tiles.* Correct this function, so that the first component of twelve
# grey filters is the flat picture.
#
# ```python
# def components_of(weights, count):          # weights [D 3 P P]
#     E = weights.flatten(1).T                # [3·P·P, D], as in Eq. 1
#     E = E - E.mean(dim=0)
#     U, S, _ = torch.linalg.svd(E, full_matrices=False)
#     return (U * S)[:, :count].T.unflatten(1, weights.shape[1:])
# ```
#
# <details><summary>Hint</summary>Over what does <code>mean(dim=0)</code> average here? Should a component's length depend
# on its variance?</details>
#
# *Expected output: none. Common bug: pixels as samples; then uniform brightness can never appear.*

# %%
def components_of(weights, count):
    ### BEGIN SOLUTION
    rows = weights.flatten(1)  # one filter a row
    rows = rows - rows.mean(dim=0)  # the mean filter
    _, _, axes = torch.linalg.svd(rows, full_matrices=False)
    return axes[:count].unflatten(1, weights.shape[1:])
    ### END SOLUTION


flat = torch.linspace(-1, 1, 12)[:, None, None, None] * torch.ones(3, 8, 8)  # differ in brightness
flat = flat + 0.05 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(SEED))
first_two = components_of(flat, 2)
assert first_two.shape == (2, 3, 8, 8)
assert torch.allclose(first_two.flatten(1).norm(dim=1), torch.ones(2), atol=1e-4)  # unit pictures
assert first_two[0].std() < 0.1 * first_two[0].mean().abs()  # flat

# %% [markdown]
# ## Structure or noise?
#
# Left, the variance explained; right, the share of low frequencies, component by component. Grey is what fresh weights give.

# %%
table = measure.filters(WEIGHTS, **measure.SIZES[PRESET]["filters"], seed=SEED)
sums = table.groupby(["model", "replicate"]).agg({"low_frequency": "mean", "explained": "sum"})
white = filters.white_noise_share((P, Q))
alt = "Left: variance explained by the first components of trained and untrained filters. Right: "
alt += "share of each component's energy in low spatial frequencies, with the level of white noise."
with plots.figure(page, "spectrum", 1, 2, alt=alt, figsize=(10, 3.8)) as (left, right):
    plots.plot_components(table, "explained", left)
    plots.plot_components(table, "low_frequency", right, white)
    most = sums.loc["untrained", "low_frequency"].max()
    told = f"{sums.low_frequency['trained', 0]:.0%} on average, untrained at most {most:.0%}"
    right.figure.suptitle(f"In low frequencies: {told}")

# %% [markdown]
# Much of what looks like noise in trained filters is the initialisation: where weight decay is weak, what a filter started with
# is still in it. `lab-world` started at the usual scale, the other two at an eighth of it. What is left of the start:

# %%
for name in ("lab-world", "lab-masked", "lab"):
    both = [zoo.load(name, untrained=fresh).model for fresh in (False, True)]
    ends = [filters.embedding_filters(each).flatten() for each in both]
    near = torch.nn.functional.cosine_similarity(*ends, dim=0).item()
    print(f"{name}: cosine of the filters with those it started from {near:.2f}")

# %% [markdown]
# ## A map that nobody drew
#
# Eq. 1 adds a learned vector to every token. Nothing says that patches 12 and 13, the end of one row and the start of the
# next, are no neighbours. The picture of Fig. 7 centre is the cosine of every patch's embedding with every other's, [N N],
# folded into a grid of grids: tile $(i, j)$ belongs to patch $(i, j)$. The number in a title is the rank correlation with nearness.

# %%
rows, cols = positions.position_grid(trained.model)
pos = positions.position_embeddings(trained.model)  # [N D] without the class token's row, the first
unit = pos / pos.norm(dim=1, keepdim=True)
S = (unit @ unit.T).reshape(rows, cols, rows, cols)
assert torch.allclose(S, positions.position_similarity(pos, (rows, cols)), atol=1e-6)
of_row, of_column = torch.eye(rows).repeat_interleave(cols, dim=0), torch.eye(cols).repeat(rows, 1)
codes = torch.cat([of_row, of_column], dim=1)
cross = positions.position_similarity(codes, (rows, cols))  # 1 here, ½ in row and column, else 0
assert torch.allclose(cross[0, 0, 0, 1:], torch.full((cols - 1,), 0.5)) and cross[0, 0, 1, 1] == 0
maps = {"Trained": S, "Untrained": positions.position_similarity(untrained.model)}
maps |= {"Row and column codes": cross}
nearness = [positions.distance_correlation(each) for each in maps.values()]
alt = "Grids of grids of cosine similarity: positions trained and untrained, a cross in every tile."
with plots.figure(page, "similarity", 1, 3, alt=alt, figsize=(13, 4.8)) as axes:
    for ax, (words, each), r in zip(axes, maps.items(), nearness, strict=True):
        plots.plot_similarity_grid(each.numpy(), ax, colorbar=False)
        ax.set(title=f"{words}: {r:z.2f}", xlabel="", ylabel="", xticks=[], yticks=[])

# %% [markdown]
# Untrained, every patch is similar to itself alone. Trained, look for a bright spot around each patch's place, a row or a
# column through it, and the opposite edge. The ViT-Ti/16 of ImageNet, with 14 × 14 patches, above this run's:

# %%
plots.show_pictures({title: next(at.glob("similarity.*")) for title, at in places.items()})

# %% [markdown]
# ### 3 · Find two bugs: the map (★★, 10 min)
#
# *Importance: both are in public code.* Correct this function. `stored` is the whole table, class token included.
#
# ```python
# def map_of(stored, grid):
#     pos = stored[:-1]
#     return (pos @ pos.T).reshape(*grid, *grid)
# ```
#
# <details><summary>Hint</summary>Which row is no patch? What if one embedding is three times as long?</details>
#
# *Expected output: none. Common bug: to normalise before dropping the row, which is harmless, and to forget one of the two.*

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
# ### 4 · Neighbours (★, 10 min)
#
# *Importance: a number to go with the picture.* Write `neighbour_similarity(S)`: the mean similarity over all pairs one step
# apart in a row, and over all pairs one step apart in a column.
#
# <details><summary>Hint</summary>The maps of right neighbours are <code>S[:, :-1, :, 1:]</code>;
# <code>torch.einsum("ijij->ij", …)</code> takes a diagonal.</details>
#
# *Expected output: the two means. Common bug: the last patch of a row and the first of the next.*

# %%
def neighbour_similarity(S):
    ### BEGIN SOLUTION
    along_row = torch.einsum("ijij->ij", S[:, :-1, :, 1:])
    along_column = torch.einsum("ijij->ij", S[:-1, :, 1:, :])
    return along_row.mean().item(), along_column.mean().item()
    ### END SOLUTION


i, j = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")  # a 2 × 3 grid, made up
pairs = (10 * torch.minimum(i, j) + torch.maximum(i, j)).reshape(2, 3, 2, 3)
pairs[0, 2, 1, 0] = pairs[1, 0, 0, 2] = 1000  # patches 2 and 3: neighbours in the table alone
assert neighbour_similarity(pairs) == (23.0, 14.0)  # means of 01 12 34 45, and of 03 14 25
print("trained, along a row and a column: {:.2f} {:.2f}".format(*neighbour_similarity(S)))

# %% [markdown]
# ## Nearness, rows, columns
#
# Three findings, each against its controls (grey), in trainings of a small ViT by masked prediction and by labels:

# %%
several = measure.position_trainings(tables.evidence("local_heads"))
alt = "Rank correlation, row excess and column excess of position maps against the number of "
alt += "training photographs, for masked prediction and for labels, next to their controls."
with plots.figure(page, "trainings", 1, 3, alt=alt, figsize=(11, 4)) as axes:
    for ax, (quantity, each) in zip(axes, several.groupby("measure", sort=False), strict=True):
        plots.plot_measure_by_photographs(each, ax)
        most = each[each["n_train"] == each["n_train"].max()].groupby("objective")["value"].mean()
        told = f"masked {most['masked']:.2f}, labels {most['labels']:.2f}"
        ax.set_title(f"{quantity}\n{told}", fontsize=11)
    plots.legend_below(axes)

# %% [markdown]
# Masked prediction puts all three above every control. With labels rows stand out and columns do not: in photographs the
# row says what to expect, sky or ground, and left is like right. Chapter 09 shows how this comes about.
#
# ## Verdict

# %%
names = {"low_frequency": "low-frequency share", "explained": "explained variance"}
live = {f"{words}, {trained.name}": claims.Estimate.exact(sums[name]["trained", 0]) for name, words in names.items()}
claims.show(page, "C11", live=live)
by_row, by_column = positions.row_column_excess(S)
of_this = {"rank correlation": nearness[0], "row excess": by_row, "column excess": by_column}
live = {f"{name}, {trained.name}": claims.Estimate.exact(x) for name, x in of_this.items()}
claims.show(page, "C10", live=live)

# %% [markdown]
# **How others get this wrong.** The two bugs above; a *bootstrap over filters*, in which a filter drawn twice is variance that
# few components explain, so that even noise looks low-dimensional; and a map without its untrained control.
#
# **Open questions.** Which components would a ViT of satellite pictures have? Do positions of a ViT trained on words' places
# in a page show columns?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §4.5, Fig. 7, 10.
# - B. Olshausen, D. Field, *Emergence of simple-cell receptive field properties*, Nature 381, 1996.
# - M. Raghu et al., *Do Vision Transformers See Like Convolutional Neural Networks?*, NeurIPS 2021.
