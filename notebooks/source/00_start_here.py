# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 00 · Start here
#
# **The Vision Transformer paper of 2020 says that a plain Transformer, fed with the patches of an
# image as if they were words, recognizes images as well as the best convolutional networks, if it is
# pre-trained on enough of them. vitlab tests what the paper claims, one claim at a time, on your
# machine.**
#
# Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*,
# ICLR 2021 ([arXiv:2010.11929](https://arxiv.org/abs/2010.11929)): all sections. Half a minute
# at `quick`.

# %% [markdown]
# The parameters. Every notebook has such a cell; papermill and `vitlab run` replace its values.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports. `study` is this execution: its figures go to `figures/out/<preset>/`.

# %%
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown

from vitlab import claims, notebooks, plots
from vitlab.claims import report
from vitlab.claims.claims import ALL
from vitlab.data.loader import to_float
from vitlab.data.world import HELD_OUT, World, image_set, scene
from vitlab.data.world import with_cues, with_difficulty
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models import zoo
from vitlab.studies.table import PRESETS

study = claims.begin("00_start_here", PRESET, SEED)

# %% [markdown]
# ## The paper in one picture
#
# An image is cut into patches. Each patch is flattened and projected by one learned matrix $E$ to a
# vector, its *token*. A learned *class token*, which belongs to no patch, is put in front of the
# sequence, and a learned position embedding is added to every token. The tokens go through $L$
# encoder blocks: in each, *attention* mixes information between tokens, and an *MLP* works on every
# token by itself. The head reads the class token. Notebook 01 builds all of it.

# %%
patch_size = 32
sizes = {"image_size": 96, "patch_size": patch_size, "dim": 16, "depth": 1, "n_heads": 1}
model = ViT(ViTConfig(**sizes, mlp_dim=16), seed=SEED)
images, _, _ = scene(World(image_size=96, seed=SEED), torch.tensor([19]))
with torch.no_grad():
    patches = model.patch_embed(to_float(images))
    tokens = torch.cat([model.cls_token, patches], dim=1) + model.pos_embed  # Eq. 1

picture = images[0].permute(1, 2, 0).numpy()
alt = "An image, its nine patches in a row, a column of colours for each patch's token and one for "
alt += "the class token, the encoder above them, and the head that reads the class token."
with plots.figure(study, "paper", alt=alt, figsize=(10.5, 4.6)) as ax:
    plots.plot_model(picture, patch_size, tokens[0].numpy(), "scores", ax)

# %% [markdown]
# After the paper's Fig. 1: every column of colours is a token. Cutting the image into patches is
# the only step that is specific to images: the encoder has no convolution, no pooling and no notion
# of which patches are neighbours. It has hardly any inductive bias for images, and that is the
# paper's point.
#
# ## The notebooks
#
# Each tests claims of the paper, by rules stated before the run. Read them in any order.

# %%
chapters = """00|start here: the ledger, what runs where|all|
01|the Vision Transformer from scratch|§3.1, Table 1, App. A|C01 C02
02|training|§4.1, Table 3|
03|transfer|§3.2, Table 2, 4, few-shot|C08 C21
04|data scaling|§4.3, Fig. 3, 4|C03 C04 C05
05|compute scaling|§4.4, Fig. 5, 12|C06 C07 C20
06|embedding filters|§4.5, Fig. 7 left|C11
07|position embeddings|§4.5, Fig. 7 centre, Fig. 10|C10
08|attention distance|§4.5, Fig. 7 right, Fig. 11|C12 C13 L01 L02
09|attention rollout|§4.5, Fig. 6, 14|C14
10|masked patch prediction|§4.6|C15
11|design choices|App. D, Table 7, 8, Fig. 8, 9, 10, 13|C09 C16 C17 C18 C19"""
here = {path.stem[:2]: path.name for path in notebooks.all_notebooks()}
lines = ["| | notebook | paper | claims |", "|---|---|---|---|"]
for number, subject, paper, tested in (line.split("|") for line in chapters.splitlines()):
    lines.append(f"| {number} | [{subject}]({here[number]}) | {paper} | {tested} |")
Markdown("\n".join(lines))

# %% [markdown]
# ## How to run it, and how to change it
#
# Every experiment comes in three sizes, called *presets*. None needs a GPU. `smoke` and `quick`
# download nothing; at `full` some studies need photographs (Imagenette, CIFAR-10) in the folder that
# `VITLAB_DATA` names.

# %%
lines = ["| preset | what it is for |", "|---|---|"]
lines += [f"| `{preset}` | {purpose} |" for preset, purpose in PRESETS.items()]
Markdown("\n".join(lines))

# %% [markdown]
# The runs of `full` are committed as the *evidence*. Notebooks draw it and judge the claims by it, at
# every preset; what trains live shows how a number comes about.
#
# **In JupyterLab**: `make lab`, open a notebook, change the cell of parameters, *Run All*. **From a
# shell** (the program `vitlab` is in `.venv/bin`):
#
# ```sh
# make run                                   # every notebook at the preset quick, then a report
# vitlab run 08 --set SEED=1 --set WEIGHTS=vit_base_patch16_224   # downloads these weights once
# vitlab study data_scaling --preset smoke   # a study without its notebook: prints a table
# vitlab doctor                              # what is installed, and what can run here
# ```
#
# Results go to `figures/out/<preset>/`. Finished runs are kept, and interrupted ones resume.

# %% [markdown]
# ## The models
#
# Three families are compared: the ViT, the ResNet that the paper compares it with (BiT), and the
# hybrid, a ResNet whose last feature map is the input of a ViT. Those with the same ending (Mu, Ti,
# S, M, B) take about as many floating-point operations (FLOPs). The number after the slash is the
# patch size in pixels, or the stride that matches it.

# %%
rows = []
for name in (f"{size}/8" for size in zoo.SIZES if not size.startswith("ViT-")):
    model = zoo.create(name)
    layers, n_parameters = getattr(model.config, "layers", ()), sum(p.numel() for p in model.parameters())
    row = {"model": name, "in legends": plots.labels([name])[name], "residual blocks": sum(layers)}
    row |= {key: getattr(model.config, key, 0) for key in ("width", "dim", "depth", "n_heads")}
    rows.append(row | {"parameters": n_parameters, "MFLOPs": round(2 * zoo.multiply_adds(name, 32) / 1e6, 1)})
pd.DataFrame(rows).set_index("model")

# %% [markdown]
# For images of 32 × 32 pixels and ten classes; a multiply-add counts as two FLOPs. *Width* is the
# number of channels of a ResNet's first stage, *dim* the length of a token in an encoder.

# %% [markdown]
# ## The ledger
#
# Every verdict is of the committed evidence, pooled over seeds. All numbers: `docs/ledger.md`.

# %%
print(report.findings())
found = {name: str(claims.verdict(name).ruling.verdict) for name in ALL}
verdicts = pd.DataFrame(
    {"claim": name, "short": claim.short, "verdict": found[name]} for name, claim in ALL.items()
)
alt = "A square for each of the claims C01 to C21, L01 and L02, with its name; the colour says: "
alt += ", ".join(f"{count} {verdict}" for verdict, count in verdicts["verdict"].value_counts().items())
with plots.figure(study, "verdicts", alt=f"{alt}.", figsize=(11.5, 3)) as ax:
    plots.plot_verdicts(verdicts, ax)
Markdown(report.readme_table("../"))

# %% [markdown]
# Where a claim is not simply *reproduced*, the condition is the result:

# %%
lines = ["| claim | where the effect is, or what it would take | notebook, figure |", "|---|---|---|"]
for name, claim in ALL.items():
    if found[name] != "reproduced":
        lines.append(f"| **{name}** {claim.short} | {claim.condition} | {claim.notebook[:2]}, *{claim.figure}* |")
Markdown("\n".join(lines))

# %% [markdown]
# ### How to read a verdict
#
# Every notebook states its decision rule before the run (`docs/LOG.md` dates those that changed
# later). A rule has one or more conditions, such as "the difference is above 0". Differences are
# *paired by seed*: both models learn from the same images in the same order. The *interval* is a 95
# % t interval over *n* seeds (or images). A condition *holds* if the whole interval lies on its
# side of the bound, *fails* if it lies on the other side or within a margin that was stated as "no
# difference", and is *undecided* otherwise. Fewer than five seeds decide nothing.
#
# - **reproduced**: all conditions hold.
# - **partly reproduced**: some hold and others fail.
# - **not reproduced**: all fail, or one fails without which the others say nothing.
# - **inconclusive**: the intervals allow more than one of these.
#
# The models are tens to thousands of times smaller than the paper's, and most learn from synthetic
# images. *Not reproduced* means that the effect is not there at our scale, not that the paper is
# wrong.

# %% [markdown]
# ## The world
#
# The paper's largest models were pre-trained on 303 million photographs that were never published.
# In their place stands the *world*: an unlimited supply of synthetic images, rendered on demand. A
# class is a closed contour with a texture and two colours. Each image shows one object of its class
# at a random position, rotation, size and lighting, among others, and comes with the object's
# *mask*. The *difficulty* scales all these variations: 0 is none, 1 is the default.


# %%
def rendered(worlds, indices):
    """Images of these numbers in several worlds, their masks, [world, image, height, width, …]."""
    rows = [scene(each, indices) for each in worlds]
    images = torch.stack([images for images, _, _ in rows]).permute(0, 1, 3, 4, 2)
    return images.numpy(), torch.stack([masks for _, _, masks in rows]).numpy()


world = World(image_size=64, seed=SEED)
strengths = (0.0, 0.5, 1.0, 1.5)
worlds = [with_difficulty(world, strength) for strength in strengths]
images, masks = rendered(worlds, torch.arange(8))

alt = "Images of the world, a column per class, a row per difficulty: from centred objects on an "
alt += "empty background to rotated, shaded and partly hidden ones. Outlines mark the masks."
with plots.figure(study, "world", alt=alt, figsize=(9, 4.9)) as ax:
    plots.plot_scenes(images, masks, [f"difficulty\n{strength:g}" for strength in strengths], ax)
    ax.set_title("one image of each of eight classes; the outline is the mask")

# %% [markdown]
# With rising difficulty others hide parts of the object; the mask covers what can be seen. Image
# number $i$ is the same on every machine, and its class is $i$ modulo the number of classes.
#
# There are four *cues* that tell classes apart: contour, texture, colour, and the arrangement of
# parts (discs that are alike in all classes; only their places differ). Texture is local: a single
# patch shows it. Contour and arrangement are global. Below, a row for each cue alone: eight images of
# *one* class, which have nothing but that cue in common.

# %%
cues = ("contour", "texture", "colour", "arrangement")
of_class = torch.arange(0, 8 * world.n_classes, world.n_classes)  # eight images of class 0
told_by = [with_difficulty(with_cues(world, cue), 0.3) for cue in cues]
images, masks = rendered(told_by, of_class)
alt = "Images of one class in four worlds, a row each: told by contour alone, by texture alone, by "
alt += "colour alone, and by the arrangement of dark and bright discs alone."
with plots.figure(study, "cues", alt=alt, figsize=(9, 4.9)) as ax:
    plots.plot_scenes(images, masks, [f"{cue}\nalone" for cue in cues], ax)
    ax.set_title("eight images of one class; what they share is the cue")
claims.finish(study)

# %% [markdown]
# ## Exercises
#
# Every exercise checks your answer. The copies in `notebooks/exercises/` come without the
# solutions.
#
# ### 1 · How long is the sequence? (★, 2 minutes)
#
# The paper fine-tunes at 384 px, still with patches of 16 px. How many tokens go into the encoder,
# class token included? Set `n_tokens`.
#
# <details><summary>Hint</summary>How many patches fit along one side? Then square, and add
# one.</details>

# %%
### BEGIN SOLUTION
n_tokens = (384 // 16) ** 2 + 1
### END SOLUTION

numbers = np.arange(384 * 384).reshape(384, 384)  # the first pixel of every patch, counted
assert n_tokens == numbers[::16, ::16].size + 1

# %% [markdown]
# ### 2 · The same image again (★★, 5 minutes)
#
# Show that image 1234 of the world `small` is the same in three renderings. Set `alone` to the
# image rendered by itself, `batch` to the same image taken out of a batch with others, and
# `reversed_batch` to it taken out of that batch in reversed order; each is one image, [3, 32, 32].
# Set `label` to its class without rendering it.
#
# <details><summary>Hint</summary><code>scene(world, indices)</code> takes a tensor of integers in
# any order, and returns images, labels and masks.</details>

# %%
small = World(n_classes=7, image_size=32, seed=5)
### BEGIN SOLUTION
alone = scene(small, torch.tensor([1234]))[0][0]
batch = scene(small, torch.arange(1230, 1240))[0][4]
reversed_batch = scene(small, torch.arange(1239, 1229, -1))[0][5]
label = 1234 % 7
### END SOLUTION

by_number = image_set(small, 1, start=1234)
assert torch.equal(alone, by_number.images[0]) and label == by_number.labels.item()
assert torch.equal(alone, batch) and torch.equal(alone, reversed_batch)

# %% [markdown]
# ### 3 · Find the bug: a test that is too easy (★★, 5 minutes)
#
# A student trains on `image_set(small, 500)` and tests on images that start at a round number:
#
# ```python
# test = image_set(small, 200, start=400)
# ```
#
# The accuracy is suspiciously high. Why? Make a `test` set of 200 images that no training set,
# however large, will ever contain: the first 200 of the indices that are kept for testing.
#
# <details><summary>Hint</summary>Which indices are in both sets? The world keeps a range of indices
# for testing, from <code>HELD_OUT</code> on.</details>

# %%
train = image_set(small, 500)
### BEGIN SOLUTION
test = image_set(small, 200, start=HELD_OUT)
### END SOLUTION

seen = {image.numpy().tobytes() for image in train.images}
assert len(test) == 200 and not any(image.numpy().tobytes() in seen for image in test.images)
assert torch.equal(test.images[0], scene(small, torch.tensor([2**40]))[0][0])

# %% [markdown]
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - H. Kataoka et al. *Pre-training without Natural Images.* ACCV 2020 (FractalDB): pre-training on
#   images that are rendered from formulas.
