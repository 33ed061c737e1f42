# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 00 · Start here
#
# **A paper from 2020 said that an image, cut into patches and read like a sentence, is all a Transformer needs to
# recognise it, if only it sees enough images. vitlab is a laboratory to check that, claim by claim, on your machine.**
#
# Paper: A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021
# ([arXiv:2010.11929](https://arxiv.org/abs/2010.11929)). All sections; this notebook tests no claim itself.
#
# | preset | what changes here | time on 2 CPU cores |
# |---|---|---|
# | `smoke`, `quick`, `full` | whose results the ledger shows | about 10 s |

# %% [markdown]
# ## What you will learn
#
# - the paper in one picture;
# - which notebook tests which claim, what it needs, and how to run it with settings of your own;
# - what has been found so far, and how to read a verdict;
# - what the pictures look like that the models here learn from.
#
# You need Python and some idea of what a neural network is. The words of the trade are in the glossary below.

# %% [markdown]
# The parameters. Every notebook has such a cell; papermill and `vitlab run` replace its values.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# What this notebook uses, and the place where its figures go.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown, display

from vitlab import files, notebooks, plots
from vitlab.data.loader import to_float
from vitlab.data.world import HELD_OUT, World, image_set, scene, with_difficulty
from vitlab.experiments import ledger, report
from vitlab.experiments.claims import CLAIMS
from vitlab.experiments.presets import PRESETS
from vitlab.models.vit import ViT, ViTConfig

study = ledger.study("00_start_here", PRESET, SEED)

# %% [markdown]
# ## The paper in one picture
#
# An image is cut into patches. Each patch, flattened, goes through one learned matrix $E$ and becomes a *token*: a
# vector. A learned vector for its place is added. A *class token*, which belongs to no patch, stands in front. The
# tokens go through $L$ blocks, in which they look at each other (*attention*) and are each worked on (*MLP*). The answer
# is read from the class token. Notebook 01 builds all of it.

# %%
patch_size = 32
model = ViT(ViTConfig(image_size=96, patch_size=patch_size, dim=16, depth=1, n_heads=1, mlp_dim=16), seed=SEED)
images, labels, _ = scene(World(image_size=96, seed=SEED), torch.tensor([19]))
with torch.no_grad():
    patches = model.patch_embed(to_float(images))
    tokens = torch.cat([model.cls_token, patches], dim=1) + model.pos_embed  # Eq. 1

with plots.style():
    fig, ax = plt.subplots(figsize=(10.5, 4.6))
    picture = images[0].permute(1, 2, 0).numpy()
    plots.plot_model(picture, patch_size, tokens[0].numpy(), f"class {labels.item()}", ax)
    alt = "An image, its nine patches in a row, a column of colours for each patch's token and one for the class "
    alt += "token, the encoder above them, and the head that reads the class from the class token."
    ledger.save_figure(study, fig, "paper", alt=alt)

# %% [markdown]
# After the paper's Fig. 1. Every column of colours is a token, a column of numbers; those shown are of a model that has
# learned nothing, and its class token is still near zero. Nothing here is specific to images
# but the cut into patches, and that is the paper's point: no convolution, no pyramid, no neighbourhoods.
#
# ## The map
#
# Each notebook takes one part of the paper, says beforehand what would confirm and what would refute its claims, runs an
# experiment and ends with a verdict. They can be read in any order.

# %%
chapters = """00|start here: the ledger, what runs where|all|
01|the Vision Transformer from scratch|§3.1, Table 1, App. A|C01 C02
02|training|§4.1, Table 3|
03|transfer|§3.2, Table 2, 4, few-shot|C08 C21
04|data scaling|§4.3, Fig. 3, 4|C03 C04 C05
05|compute scaling|§4.4, Fig. 5, 12|C06 C07 C20
06|embedding filters|§4.5, Fig. 7 left|C11
07|position embeddings|§4.5, Fig. 7 centre, Fig. 10, Table 8|C09 C10
08|attention distance|§4.5, Fig. 7 right, Fig. 11|C12 C13
09|attention rollout|§4.5, Fig. 6, 14|C14
10|masked patch prediction|§4.6|C15
11|design choices|App. D, Fig. 8, 9, 13, Table 7|C16 C17 C18 C19"""
here = {path.stem[:2]: path.name for path in notebooks.all_notebooks()}
lines = ["| | notebook | paper | claims |", "|---|---|---|---|"]
for number, subject, paper, claims in (line.split("|") for line in chapters.splitlines()):
    link = f"[{subject}]({here[number]})" if number in here else f"{subject} *(to come)*"
    lines.append(f"| {number} | {link} | {paper} | {claims} |")
Markdown("\n".join(lines))

# %% [markdown]
# The claims themselves, as we test them:

# %%
Markdown("\n".join(f"- **{claim.id}** {claim.statement} *({claim.where})*" for claim in CLAIMS.values()))

# %% [markdown]
# ## What runs where
#
# Every experiment comes in four sizes, called presets. No GPU and no data set is needed for the first two. In the
# largest, the paper's own, settings are shown and checked, and need a cluster to run.

# %%
Markdown("\n".join(
    ["| preset | what it is for | time | needs |", "|---|---|---|---|"]
    + [f"| `{p.name}` | {p.purpose} | {p.time} | {p.hardware} |" for p in PRESETS.values()]
))  # fmt: skip

# %% [markdown]
# ### How to run it, and how to change it
#
# **In JupyterLab**: `make lab`, open a notebook, change the cell of parameters, *Run All*.
#
# **From a shell**, all of it or some notebooks, with parameters of your own:
#
# ```sh
# make run                                   # every notebook at the preset quick, then a report
# vitlab run 02 08 --preset smoke            # two of them, quickly
# vitlab run 08 --set WEIGHTS=vit_base_patch16_224 --set SEED=1
# vitlab experiment model_checks             # an experiment alone: a table, no Jupyter
# vitlab doctor                              # what is installed, and what can run here
# papermill 08_attention_distance.ipynb out.ipynb -p PRESET smoke -p SEED 1
# ```
#
# The program `vitlab` lies in `.venv/bin`. Results go to `figures/<preset>/`: for each notebook its figures, its
# `result.json` and the executed notebook, and for all of them `REPORT.md`. What was computed once is not computed
# again; a run that was stopped goes on where it was. Four variables of the shell matter: `VITLAB_FIGURES` (another
# place for results), `VITLAB_DATA` (your own images), `VITLAB_JOBS` (how many processes), `VITLAB_DEBUG` (long errors).

# %% [markdown]
# ## The ledger
#
# Every verdict stands in a `result.json`. For each notebook we take your own result at this preset, from `figures/`, and
# where there is none the reference: the one that comes with the project. The last column says which. A run of the
# whole collection comes to this notebook first: run it again afterwards to see all that was found.

# %%
sources = [
    (f"figures/{PRESET}", files.figures_dir() / PRESET),
    (f"figures/reference/{PRESET}", files.reference_dir(PRESET)),
    ("figures/reference/quick", files.reference_dir("quick")),
]
results = {}  # notebook → whose, result
for whose, folder in sources:
    for notebook, result in report.read_results(folder)[0].items():
        results.setdefault(notebook, (whose, result))
found = [
    {**entry, "notebook": notebook[:2], "from": whose}
    for notebook, (whose, result) in sorted(results.items())
    for entry in result["results"]
]
found = pd.DataFrame(
    found, columns=["claim", "metric", "value", "interval", "unit", "n", "verdict", "notebook", "from"]
)
found = found.sort_values(["claim", "metric"], ignore_index=True)
found["value"] = [f"{report.number(value)} {unit}".strip() for value, unit in zip(found.value, found.unit, strict=True)]
found["interval"] = [f"{report.number(i[0])} … {report.number(i[1])}" if i else "" for i in found.interval]
with pd.option_context("display.max_colwidth", 80, "display.max_rows", 100):
    display(found.drop(columns="unit") if len(found) else Markdown("No results yet. Make some: `vitlab run`"))

# %% [markdown]
# The same, claim by claim. A claim can be measured in several numbers, each with a verdict of its own.

# %%
missing = [{"claim": claim, "verdict": "not yet"} for claim in CLAIMS if claim not in set(found.claim)]
verdicts = pd.concat([found[["claim", "verdict"]], pd.DataFrame(missing, columns=["claim", "verdict"])])
verdicts = verdicts.sort_values("claim", kind="stable", ignore_index=True)
with plots.style():
    fig, ax = plt.subplots(figsize=(9, 2.6))
    plots.plot_verdicts(verdicts, ax)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.verdict.value_counts().items())
    ledger.save_figure(study, fig, "verdicts", alt=f"The verdicts by claim, C01 to C21: {counts}.")

# %% [markdown]
# ### How to read a verdict
#
# - **reproduced**: our number meets the rule that the notebook's *prediction* fixed before the run.
# - **partly reproduced**: it meets a weaker rule, also fixed beforehand; the note says in what it falls short.
# - **not reproduced**: it fails both. That is a finding about our scale as well as about the claim.
# - **not testable at this scale**: what the claim needs (more data, a larger model) cannot be had at this preset, or the
#   interval is so wide that either answer would fit.
#
# The *interval* says how far the number may move by chance, *n* on how many independent runs, images or models
# it rests. The models here are thousands of times smaller than the paper's, and see made-up images: "reproduced" means
# that the effect shows at our scale too, "not reproduced" that it does not, not that the paper is wrong.

# %% [markdown]
# ## The world
#
# The paper's models learn from hundreds of millions of photographs that were never published. In their place stands a
# *world*: made-up images, endless in number, painted when they are asked for. A class is a closed contour with a
# surface texture. Each image puts one object of its class somewhere, turned, scaled, lit, before a background with the
# statistics of natural images, behind or in front of others. Because the world knows where its object is, it also gives a
# *mask*. Difficulty is a factor on all these variations: here from none to one and a half times the default.

# %%
world = World(image_size=64, seed=SEED)
strengths = (0.0, 0.5, 1.0, 1.5)
rows = [scene(with_difficulty(world, strength), torch.arange(8)) for strength in strengths]
images = torch.stack([images for images, _, _ in rows]).permute(0, 1, 3, 4, 2).numpy()
masks = torch.stack([masks for _, _, masks in rows]).numpy()

with plots.style():
    fig, ax = plt.subplots(figsize=(9, 4.9))
    plots.plot_scenes(images, masks, [f"difficulty\n{strength:g}" for strength in strengths], ax)
    ax.set_title("one image of each of eight classes; the outline is the mask")
    alt = "Images of the world, a column per class, a row per difficulty: from clean objects in the middle to "
    alt += "turned, shaded and partly hidden ones among others. An outline marks the labelled object."
    ledger.save_figure(study, fig, "world", alt=alt)

# %% [markdown]
# In the first row every class shows its contour and its texture, in the middle of an empty frame. Further down
# the object moves, turns and changes its colours, others hide parts of it, and the mask follows what can be seen.
# Image number $i$ is always the same image, on every machine, and its class is $i$ modulo the number of classes.

# %% [markdown]
# ## Glossary
#
# | word | meaning |
# |---|---|
# | patch | a square piece of the image, P × P pixels |
# | token | the vector of width D that stands for a patch; what the encoder works on |
# | class token | a token that belongs to no patch; the answer is read from it |
# | position embedding | a learned vector for each place in the sequence, added to its token |
# | attention | each token takes a weighted mean of the tokens' values; the weights, A, come from queries and keys |
# | head (of attention) | one of several attentions side by side, each on its own D / h columns |
# | block, layer | attention, then an MLP, each with a LayerNorm before it and a sum around it; L of them |
# | MLP | two matrices with a bend (GELU) between, applied to each token alone |
# | encoder | all the blocks |
# | head (of the model) | the last layer or two: from the class token to a logit per class |
# | logits | the scores of the classes, before the softmax |
# | pre-training, fine-tuning | learning much from a large set; then a little more on a small one |
# | few-shot | a linear answer fitted to a frozen model, with a few images per class |
# | inductive bias | what a model takes for granted: a convolution, that near pixels belong together |
# | BiT | the paper's ResNet: GroupNorm, weight-standardised convolutions |
# | rollout | attention multiplied through all blocks: what the class token has looked at |
# | world | our made-up images: endless, labelled, with masks |
# | preset | a size of the whole collection: smoke, quick, full, paper |
# | claim, verdict, ledger | a sentence of the paper; what we found about it; the list of both |

# %% [markdown]
# ## Prediction, experiment, verdict
#
# Every notebook after this one has these three parts: what the paper says and what would refute it, one call that runs the
# experiment, and a verdict by the rule fixed before. This one claims nothing, so it only writes down what it has shown.

# %%
ledger.finish(study)
print(f"claims with a verdict: {found.claim.nunique()} of {len(CLAIMS)}; numbers behind them: {len(found)}")

# %% [markdown]
# ## Exercises
#
# Exercises stand in every notebook; each checks itself. In `notebooks/exercises/` the solutions are taken out.
#
# ### Exercise 1 · How long is the sequence? (★, 2 minutes)
#
# The paper fine-tunes at 384 px, still with patches of 16 px. How many tokens go into the encoder, class token included?
#
# <details><summary>Hint</summary>How many patches fit along one side? Then square, and add one.</details>

# %%
### BEGIN SOLUTION
n_tokens = (384 // 16) ** 2 + 1
### END SOLUTION

numbers = np.arange(384 * 384).reshape(384, 384)  # the first pixel of every patch, counted
assert n_tokens == numbers[::16, ::16].size + 1

# %% [markdown]
# ### Exercise 2 · The same image again (★★, 5 minutes)
#
# An experiment that cannot be repeated proves little. Show that image 1234 of a world is the same alone, in a batch, and
# in a batch in another order; and set `label` to its class without painting it.
#
# <details><summary>Hint</summary><code>scene(world, indices)</code> takes any indices in any order, as a tensor of whole numbers,
# and gives images, labels and masks.</details>

# %%
small = World(n_classes=7, image_size=32, seed=5)
### BEGIN SOLUTION
alone = scene(small, torch.tensor([1234]))[0][0]
batch = scene(small, torch.arange(1230, 1240))[0][4]
reversed_batch = scene(small, torch.arange(1239, 1229, -1))[0][5]
label = 1234 % 7
### END SOLUTION

painted = image_set(small, 1, start=1234)
assert torch.equal(alone, painted.images[0]) and label == painted.labels.item()
assert torch.equal(alone, batch) and torch.equal(alone, reversed_batch)

# %% [markdown]
# ### Exercise 3 · Find the bug: a test that is too easy (★★, 5 minutes)
#
# A student trains on `image_set(small, 500)` and tests on the images after a round number:
#
# ```python
# test = image_set(small, 200, start=400)
# ```
#
# The accuracy is wonderful. Why? Make a `test` of the first 200 images that no training, however long, will ever have seen.
#
# <details><summary>Hint</summary>Which indices are in both sets? And which will be, when the training set grows? The
# world keeps a range of indices apart for this: <code>HELD_OUT</code>.</details>

# %%
train = image_set(small, 500)
### BEGIN SOLUTION
test = image_set(small, 200, start=HELD_OUT)
### END SOLUTION

seen = {image.numpy().tobytes() for image in train.images}
assert len(test) == 200 and not any(image.numpy().tobytes() in seen for image in test.images)
assert torch.equal(test.images[0], scene(small, torch.tensor([2**40]))[0][0])

# %% [markdown]
# ## Summary
#
# - A Vision Transformer is a sequence of patches, a class token and an ordinary encoder.
# - Each notebook tests claims of the paper by rules fixed beforehand; the ledger keeps what was found.
# - Where the paper has a large private data set we have a world: endless, repeatable, with masks.
#
# Go on with notebook 01, which builds the model, or with any other on the map.
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021.
# - H. Kataoka et al., *Pre-training without Natural Images*, ACCV 2020 (FractalDB); *Replacing Labeled Real-image
#   Datasets with Auto-generated Contours*, CVPR 2022. Learning from images made by formulas.
# - A. Lee, D. Mumford, J. Huang, *Occlusion Models for Natural Images*, IJCV 2001; M. Baradad et al., *Learning to See by
#   Looking at Noise*, NeurIPS 2021. Why overlapping objects before 1/f noise look natural.
