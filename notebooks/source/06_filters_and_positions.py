# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 06 · Embedding filters
#
# **Claim (C11).** The principal components of a trained patch embedding look like a basis for the
# fine structure within a patch.
#
# Paper: §4.5 and Fig. 7 left, Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021. Runs in
# seconds; nothing is trained.

# %% [markdown]
# ## What you will learn
#
# - that the patch embedding is a bank of small colour pictures, and how to look at it through its
#   principal components;
# - which axis of the matrix holds the samples of a PCA, and what the transposed matrix gives;
# - how to tell structure from noise, with untrained models as the control;
# - why the bootstrap fails for principal components.
#
# **Prerequisites.** Notebook 01 (the patch embedding, Eq. 1); principal component analysis; a Fourier
# spectrum.

# %% [markdown]
# ## Parameters
#
# `WEIGHTS`: `"lab"` (a small ViT trained on photographs: first to predict hidden patches, then with
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
import torch
from sklearn.decomposition import PCA

from vitlab import claims, plots
from vitlab.analysis import filters
from vitlab.studies import measure
from vitlab.models import zoo

study = claims.begin("06_filters_and_positions", PRESET, SEED, weights=WEIGHTS)

# %% [markdown]
# ## Prediction
#
# **The paper** shows the first 28 principal components of ViT-L/32's filters and says that they
# resemble plausible basis functions for a low-dimensional representation of the fine structure within
# each patch. It gives no number. What would you measure?
#
# **We expect** two things. *Smoothness*: a basis for pictures begins with low spatial frequencies, so
# that the mean share of the components' energy at or below a quarter of a cycle per pixel is above
# that of white noise and of untrained filters. *Low dimension*: the components explain more of the
# variance than those of untrained filters do; few filters make this hard to show, since even noise is
# explained in good part by its own components.
#
# **Decision rule** (how to read it: notebook 00). Each holds if its whole 95 % interval over the
# filters lies above every untrained model (and, for the first, above white noise).

# %% [markdown]
# ## Idea
#
# Eq. 1 projects a flattened patch $\mathbf{x}_p \in \mathbb{R}^{3P^2}$ to $D$ numbers:
# $\mathbf{x}_p\mathbf{E}$, $\mathbf{E} \in \mathbb{R}^{3P^2 \times D}$. So every one of the $D$
# columns of $\mathbf{E}$ is a colour picture of $P \times P$ pixels, and the embedding's number $d$
# says how much of picture $d$ is in the patch. PyTorch stores the transpose, $W$ of shape
# $D \times 3 \times P \times P$, one *filter* a row.

# %%
trained = zoo.load(WEIGHTS)
W = filters.embedding_filters(trained.model)
D, channels, P, Q = W.shape
assert channels == 3
assert (W.flatten(1) @ torch.ones(3 * P * Q)).shape == (D,)  # a patch goes in, D numbers come out
print(f"{trained.name}: {D} filters of {P} × {Q} pixels")

# %% [markdown]
# Single filters are not unique: what comes after can undo any rotation of the $D$ numbers that leaves
# their mean alone. So the paper looks at the **principal components**, the orthogonal pictures
# $\mathbf{c}_1, \mathbf{c}_2 …$ along which the filters vary most. The $D$ filters are the samples,
# the $3P^2$ pixel values are the variables:
#
# $$W - \bar W = U S V^\top, \qquad \mathbf{c}_k = \text{row } k \text{ of } V^\top, \qquad \text{explained}_k = \frac{s_k^2}{\sum_j s_j^2}.$$

# %%
n = measure.n_components(W)
samples = W.flatten(1).double()  # [D, 3·P·P]: one filter a row
centred = samples - samples.mean(dim=0)  # minus the mean filter
_, s, Vt = torch.linalg.svd(centred, full_matrices=False)
explained_open = (s**2 / (s**2).sum())[:n]
components_open = Vt[:n]
assert components_open.shape == (n, 3 * P * Q)
gram = components_open @ components_open.T
assert torch.allclose(gram, torch.eye(n).double(), atol=1e-6)  # an orthonormal basis
print(f"{n} components explain {100 * explained_open.sum():.1f} % of the variance of {D} filters")

# %% [markdown]
# The same from `vitlab` and from scikit-learn; both make a component's largest entry positive, since
# its sign is free:

# %%
components, explained = filters.filter_components(W, n)
cosine = (components.flatten(1).double() * components_open).sum(dim=1)
assert torch.allclose(cosine.abs(), torch.ones(n).double(), atol=1e-5)
assert torch.allclose(explained.double(), explained_open, atol=1e-5)

pca = PCA(n, svd_solver="full").fit(samples.numpy())
cosine = (pca.components_ * components.flatten(1).numpy()).sum(axis=1)
assert np.allclose(np.abs(cosine), 1, atol=1e-5)
assert np.allclose(pca.explained_variance_ratio_, explained, atol=1e-5)

# %% [markdown]
# The picture of Fig. 7 left. The components are *sorted* by the variance they explain, row by row.
# Each is *contrast-normalised* on its own: its lowest value becomes 0 and its highest 1, over the
# three channels together. (The paper does not say how it scales.) Next to it the **control**: the
# same model with fresh random weights.

# %%
untrained = zoo.load(WEIGHTS, untrained=True, seed=SEED)
noise, _ = filters.filter_components(filters.embedding_filters(untrained.model), n)
alt = (
    f"Two grids of {n} small colour pictures, the principal components of trained and of untrained "
)
alt += "filters, sorted by the variance they explain."
size = {"figsize": (11, 4.4), "width_ratios": [1.7, 1]}
with plots.figure(study, "components", 1, 2, alt=alt, **size) as axes:
    grids = {"Trained": components, "Untrained": noise}
    for ax, (title, pictures) in zip(axes, grids.items(), strict=True):
        tiles = 255 * filters.filter_tiles(pictures).permute(0, 2, 3, 1)  # [n 3 P P] → [n P P 3]
        rows = {str(1 + k): tiles[k : k + 7].byte().numpy() for k in range(0, len(tiles), 7)}
        plots.plot_pictures(rows, ax)
        ax.set_xlabel(f"Components 1–{len(tiles)}, row by row")
        ax.set_title(f"{title}, patches of {P} × {Q} pixels")

# %% [markdown]
# The untrained grid shows noise: independent colours in every pixel. The trained one has what noise
# does not have: neighbouring pixels of similar colour (blobs, bars, waves), a direction, and pairs of
# opposed colours. The contrast hides how much a component counts: the last tile is as bright as the
# first and explains a fraction of its variance.

# %% [markdown]
# ## How others get this wrong
#
# `PCA(28).fit_transform(E)` on $\mathbf{E}$ as Eq. 1 writes it, $3P^2 \times D$, also returns an
# array of $3P^2 \times 28$, which reshapes into 28 fine-looking tiles. But there the *pixels* are
# the samples. What gets subtracted is then not the mean filter but each filter's own mean over its
# pixels, so that uniform brightness, the lowest frequency, can never appear; and the results are
# scores, scaled by the variance, not unit pictures. There is no error message.

# %%
scores = PCA(n, svd_solver="full").fit_transform(samples.numpy().T)  # pixels as samples
wrong = scores.T  # [n, 3·P·P]
unit = torch.from_numpy(wrong / np.linalg.norm(wrong, axis=1, keepdims=True))
overlap = (components.flatten(1).double() @ unit.T).abs().diag()  # |cosine|, right with wrong
print(f"|cosine| of component k with transposed component k: {overlap[:7].numpy().round(3)}")
length = components[0].norm(), np.linalg.norm(wrong[0])
print("length of component 1: right {:.3f}, transposed {:.3f}".format(*length))
means = components.mean((1, 2, 3)).abs().max(), np.abs(wrong.mean(axis=1)).max()
print("largest |mean| of a component's pixels: right {:.4f}, transposed {:.1e}".format(*means))

# %% [markdown]
# Where the filters hold little brightness the two are nearly the same pictures, so that the mistake
# is hard to notice; a mean of zero in every component gives it away. On filters that differ *only*
# in brightness it is plain: twelve flat filters of different grey, and a little noise.

# %%
generator = torch.Generator().manual_seed(SEED)
flat = torch.linspace(-1, 1, 12)[:, None, None, None] * torch.ones(3, 8, 8)
flat = flat + 0.05 * torch.randn(flat.shape, generator=generator)
right = filters.filter_components(flat, 1)[0][0]
turned = PCA(1, svd_solver="full").fit_transform(flat.flatten(1).numpy().T)[:, 0]
white = np.full(turned.size, turned.size**-0.5)  # the flat picture, of norm 1
flatness = abs(right.flatten().numpy() @ white)
flatness_turned = abs(turned @ white) / np.linalg.norm(turned)
print(f"|cosine| with a flat picture: right {flatness:.3f}, transposed {flatness_turned:.3f}")
assert flatness > 0.99 > 0.1 > flatness_turned

# %% [markdown]
# ## Experiment
#
# One call: the components of the trained filters, of the trained filters with one group left out at a
# time (for the interval), and of models with fresh weights (the control). A row is one component of
# one model; `replicate` 0 is the trained model as it is.

# %%
table = measure.filters(WEIGHTS, **measure.SIZES[PRESET]["filters"], seed=SEED)
table.head()

# %% [markdown]
# The interval comes from a *jackknife*: leave a group of filters out, see how the number moves. The
# usual bootstrap would be wrong here: a filter drawn twice is variance that few components explain,
# whatever the filters are. On pure noise, where other draws tell the true value:

# %%
draw = torch.Generator().manual_seed(SEED)
pure = torch.randn(W.shape, generator=draw)


def explained_by_all(sample):
    return filters.filter_components(sample, n)[1].sum().item()


again = [explained_by_all(torch.randn(W.shape, generator=draw)) for _ in range(5)]
resamples = (torch.randint(len(pure), (len(pure),), generator=draw) for _ in range(5))
boot = [explained_by_all(pure[resample]) for resample in resamples]
print(f"explained by {n} components:")
print(f"other draws of noise  {min(again):.3f}–{max(again):.3f}")
print(f"bootstrap of one draw {min(boot):.3f}–{max(boot):.3f}")

# %% [markdown]
# ## Figure
#
# Left, the variance explained; right, the spectrum, component by component.

# %%
white_noise = filters.white_noise_share((P, Q))
alt = "Left: variance explained by the first components of trained and untrained filters. Right: "
alt += "share of each component's energy in low spatial frequencies, with the level of white noise."
with plots.figure(study, "spectrum", 1, 2, alt=alt, figsize=(9, 3.8)) as (left, right_ax):
    plots.plot_components(table, "explained", left)
    plots.plot_components(table, "low_frequency", right_ax, white_noise)

# %% [markdown]
# Grey is what random initialisation gives; the dotted line is white noise. Blue above grey on the
# left means that the filters share fewer directions than chance would give them; on the right it
# means smooth components. Blue *below* grey on the right would be a component finer than noise, such
# as a checkerboard: published models have some.

# %% [markdown]
# ## Verdict

# %%
measures = measure.compare_filters(table)
limits = measures.control_high.clip(lower=[white_noise, 0])
claims.show(study, "C11", live={
    f"{name}, {trained.name}": claims.Estimate(row.value, row.low, row.high, D, counted="filters")
    for name, row in measures.iterrows()
})
measures.assign(limit=limits).round(4)

# %% [markdown]
# ## Next to a ViT that was trained on ImageNet
#
# The same notebook, run once with the weights of a ViT-Ti/16: its figure under this run's. Patches of
# 16 pixels have room for longer waves, and for more different ones. The explained variances do not
# compare, since 28 components are a larger share of fewer, smaller filters.

# %%
plots.show_pictures(claims.imagenet(study, "components"))

# %% [markdown]
# ## Exercises
#
# ### 1 · How many are enough? (★, 5 minutes)
#
# How many components are needed to explain at least 90 % of the variance of the filters?
# Call the number `enough`.
#
# <details><summary>Hint</summary>The variance along each component is an eigenvalue of the filters'
# covariance; the shares are already in <code>s</code>, for all components. <code>cumsum</code>,
# then count.</details>

# %%
### BEGIN SOLUTION
shares = s**2 / (s**2).sum()
enough = int((shares.cumsum(0) < 0.9).sum()) + 1
### END SOLUTION
assert enough == PCA(0.9, svd_solver="full").fit(samples.numpy()).n_components_
enough

# %% [markdown]
# ### 2 · Find the bug (★★, 10 minutes)
#
# This function circulates. Correct it, so that the first component of the grey filters from above
# is the flat picture.
#
# ```python
# def components_of(weights, count):          # weights [D 3 P P]
#     E = weights.flatten(1).T                # [3·P·P, D], as in Eq. 1
#     E = E - E.mean(dim=0)
#     U, S, _ = torch.linalg.svd(E, full_matrices=False)
#     return (U * S)[:, :count].T.unflatten(1, weights.shape[1:])
# ```
#
# <details><summary>Hint</summary>Over what does <code>mean(dim=0)</code> average here? And should a
# component's length depend on its variance?</details>


# %%
def components_of(weights, count):
    ### BEGIN SOLUTION
    rows = weights.flatten(1)  # one filter a row
    rows = rows - rows.mean(dim=0)  # the mean filter
    _, _, axes = torch.linalg.svd(rows, full_matrices=False)
    return axes[:count].unflatten(1, weights.shape[1:])
    ### END SOLUTION


first_two = components_of(flat, 2)
assert first_two.shape == (2, 3, 8, 8)
assert torch.allclose(first_two.flatten(1).norm(dim=1), torch.ones(2), atol=1e-4)  # unit pictures
assert first_two[0].std() < 0.1 * first_two[0].mean().abs()  # flat
# A picture added to every filter changes no variance.
same = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1))
assert torch.allclose(components_of(flat + same, 1).abs(), first_two[:1].abs(), atol=1e-4)

# %% [markdown]
# ### 3 · Brightness and colour (★★, 15 minutes)
#
# Fig. 7 has grey components and colourful ones. Write `brightness_share(components)`: the share of
# each component's energy that is the same in all three channels; the rest is colour set against
# colour.
#
# <details><summary>Hint</summary>At each pixel, project the three channel values onto the direction
# (1, 1, 1)/√3. In white noise a third of the energy lies along any one of three
# directions.</details>


# %%
def brightness_share(components):
    ### BEGIN SOLUTION
    grey = components.mean(dim=1)  # [n P P]; along (1, 1, 1)/√3 the energy is 3 · mean²
    return 3 * grey.square().sum((1, 2)) / components.square().sum((1, 2, 3))
    ### END SOLUTION


grey_wave = torch.linspace(-1, 1, 8).expand(1, 3, 8, 8)
red_against_green = torch.tensor([1.0, -1.0, 0.0])[None, :, None, None] * torch.ones(1, 3, 8, 8)
red = torch.tensor([1.0, 0.0, 0.0])[None, :, None, None] * grey_wave  # one channel of three
three = torch.cat([5 * grey_wave, red_against_green, red])
assert torch.allclose(brightness_share(three), torch.tensor([1, 0, 1 / 3]), atol=1e-6)
shares = [brightness_share(each).mean() for each in (components, noise)]
print("brightness: trained {:.2f}, untrained {:.2f}".format(*shares))

# %% [markdown]
# ### 4 · A basis (★★★, 20 minutes)
#
# If the components are a basis, filters can be rebuilt from a few. Write `rebuild(samples, count)`:
# the mean filter plus the projection of each centred filter on the first `count` components. The
# error it leaves must be the variance that these components do not explain.
#
# <details><summary>Hint</summary>With the orthonormal rows C of the right singular vectors, the
# projection is <code>(X − mean) Cᵀ C</code>.</details>


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
# ## Summary
#
# - The patch embedding is a bank of colour filters. Its principal components, filters as samples and
#   the mean filter subtracted, are what Fig. 7 left shows.
# - Structure is energy in low spatial frequencies and variance explained, always against untrained
#   models: with few filters, noise alone gives curves that look like a result.
# - Transposing the matrix, or bootstrapping the filters, changes the answer with no error message.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - B. Olshausen, D. Field, *Emergence of simple-cell receptive field properties by learning a sparse
#   code for natural images*, Nature 381, 1996: why oriented filters are what one expects of pictures.
# - J. Shao, D. Tu, *The Jackknife and Bootstrap*, Springer, 1995.
