# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 00 · Start here
#
# **A plain Transformer, fed with the patches of an image as if they were words, recognizes images as well as the best
# convolutional networks, if it is pre-trained on enough of them.** So says the paper of Dosovitskiy et al.,
# [*An Image is Worth 16x16 Words*](https://arxiv.org/abs/2010.11929). These chapters test it, claim by claim.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports.

# %%
import numpy as np
import torch
from IPython.display import Markdown
from PIL import Image

import vitlab
from vitlab import claims, notebooks, paths, plots
from vitlab.claims import report
from vitlab.claims.claims import ALL
from vitlab.data.loader import to_float
from vitlab.data.world import World, scene
from vitlab.models.vit import ViT, ViTConfig

page = claims.begin("00_start_here", PRESET, SEED)

# %% [markdown]
# ## The paper in one picture
#
# An image is cut into patches. One learned matrix makes a vector of each, its *token*. A learned *class token* is put in
# front, a learned position is added to every token, and encoder blocks let the tokens look at each other (*attention*).
# The head reads the class token.

# %%
model = ViT(ViTConfig(96, 32, dim=16, depth=1, n_heads=1, mlp_dim=16), seed=SEED)
images, _, _ = scene(World(image_size=96, seed=SEED), torch.tensor([19]))
with torch.no_grad():
    patches = model.patch_embed(to_float(images))
    tokens = torch.cat([model.cls_token, patches], dim=1) + model.pos_embed  # Eq. 1
alt = "An image, its nine patches in a row, a column of colours for each patch's token and one for "
alt += "the class token, the encoder above them, and the head that reads the class token."
with plots.figure(page, "paper", alt=alt, figsize=(10.5, 4.6)) as ax:
    plots.plot_model(images[0].permute(1, 2, 0).numpy(), 32, tokens[0].numpy(), "scores", ax)

# %% [markdown]
# Nothing but the cutting is made for images: no convolution, no pooling, no notion of which patches are neighbours. The
# encoder has hardly any inductive bias for images, and that is the paper's point.
#
# ## The chapters
#
# A picture of each. Read them in any order; 01 and 09 if you read only two.

# %%
PICTURES = {
    "01": "patches.jpg", "02": "accuracy_by_samples.png", "03": "full.png",
    "04": "full.png", "05": "full.png", "06": "components.png", "07": "attention_distance.png",
    "08": "photographs.jpg", "09": "film.png", "10": "positions.png", "11": "shapes.png",
    "12": "verdicts.png", "A": "cues.jpg",
}
folder = paths.shipped() / "figures" / "reference"
names = {path.stem.partition("_")[0]: path.stem for path in notebooks.all_notebooks()}
shown = {names[k]: folder / names[k] / picture for k, picture in PICTURES.items() if k in names}
alt = f"A small picture of each chapter: {', '.join(shown).replace('_', ' ')}."
with plots.figure(page, "chapters", 3, 5, alt=alt, figsize=(13, 7)) as axes:
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (name, path) in zip(axes.flat, shown.items(), strict=False):
        ax.set_title(name.replace("_", " "), fontsize=11)
        if path.exists():
            ax.imshow(Image.open(path).convert("RGB"), interpolation="antialiased")

# %% [markdown]
# What each claims, and what was found:

# %%
print(report.findings())
lines = ["| chapter | claim | verdict |", "|---|---|---|"]
for path in notebooks.all_notebooks():
    for name in (name for name, claim in ALL.items() if claim.notebook == path.stem):
        link = f"[{path.stem.replace('_', ' ')}]({path.name})"
        lines += [f"| {link} | {name} {ALL[name].short} | {claims.verdict(name).ruling.verdict} |"]
Markdown("\n".join(lines))

# %% [markdown]
# ## Your turn
#
# Load a ViT and ask it everything. `lab` is bundled; a name of timm's, a file or a module of yours do as well. By block:
# how far its heads look in pixels, their attention to the class token, the length of its tokens.

# %%
vit = vitlab.load("lab")
found = vitlab.analyse(vit, scene(World(image_size=96, seed=SEED), torch.arange(4))[0])
found.heads.groupby("block")[["distance_px", "prefix_mass", "token_norm"]].mean().round(2)

# %% [markdown]
# **A student** goes 01, 02, 04, 06, 07, 09. **A researcher** with a model of her own: `vitlab analyse MODEL IMAGES`, then 06 to
# 08 with `WEIGHTS`. **A teacher**: `docs/teaching.md`, and the exercises without solutions in `notebooks/exercises`.
# Presets: `smoke` tests that all runs, `quick` is a laptop's, `full` recomputes the evidence in hours.
#
# ### 1 · How long is the sequence? (★, 2 min)
#
# The paper fine-tunes at 384 px, still with patches of 16 px. How many tokens go into the encoder, class token included?
#
# <details><summary>Hint</summary>How many patches fit along one side?</details>

# %%
n_tokens = 0
### BEGIN SOLUTION
n_tokens = (384 // 16) ** 2 + 1
### END SOLUTION
numbers = np.arange(384 * 384).reshape(384, 384)  # the first pixel of every patch, counted
assert n_tokens == numbers[::16, ::16].size + 1

# %% [markdown]
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021.
