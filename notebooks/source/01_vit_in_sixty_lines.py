# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 01 · A ViT in sixty lines
#
# **Claim (C02).** A linear projection of image patches, a class token, learned position embeddings and a plain Transformer
# encoder: four equations are the whole model.
#
# §3.1, Eq. 1–8 and Table 1 of the paper. You write the model here, load trained weights into it and ask it about a
# photograph. `WEIGHTS` is a bundled model, a timm name such as `"vit_tiny_patch16_224"`, or a file: a plain ViT with a head.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0
WEIGHTS = "lab"

# %% [markdown]
# Imports.

# %%
import math

import pandas as pd
import seaborn as sns
import timm
import torch
import torch.nn.functional as F
from torch import nn

from vitlab import claims, plots
from vitlab.data import datasets
from vitlab.models import zoo
from vitlab.studies import checks, measure

page = claims.begin("01_vit_in_sixty_lines", PRESET, SEED, weights=WEIGHTS)
trained = measure.load_for(page.notebook, WEIGHTS)
taken = [picture for _, picture in datasets.photographs(limit=2, sample=False)]
x = torch.cat([trained.prepare(picture[None]) for picture in taken])  # [2 3 H W]
views = measure.view(trained, taken).numpy()

# %% [markdown]
# A photograph as the model gets it: patches, row by row.

# %%
side = x.shape[-1] // trained.model.patch_embed.patch_size[0]
alt = f"A photograph, and next to it the same cut into {side} × {side} patches."
with plots.figure(page, "patches", 1, 2, alt=alt, figsize=(9.2, 4.7)) as axes:
    axes[0].imshow(views[0])
    axes[0].set_axis_off()
    axes[0].set_title("photograph")
    plots.plot_grid(views[0], side, axes[1], numbered=side < 8)
    axes[1].set_title(f"{side * side} patches: a sequence")

# %% [markdown]
# Two patches one above the other are a whole row apart in the sequence. Nothing in it says which patches are neighbours.
#
# ## Prediction
#
# How many lines of PyTorch do you expect? And is there anything in the model that the paper's equations do not say?
#
# <details><summary>How it is decided</summary>
#
# C02: with all weights random, logits differ from timm's class and from Eq. 1–8 in float64 numpy by at most 1e-5, and every
# control, the equations with one thing changed, by more. C01: parameters equal timm's and a formula's, round to Table 1's 86,
# 307 and 632 million, and the sequence has 197 tokens. See chapter 12.
#
# </details>
#
# ## Attention
#
# Each token asks (query $q$), offers (key $k$) and tells (value $v$), three linear maps of itself. A head works on its own
# $D_h = D / h$ columns (Eq. 5–8):
#
# $$A = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt{D_h}}\right), \qquad \mathrm{SA}(z) = A v, \qquad
# \mathrm{MSA}(z) = [\mathrm{SA}_1(z); \dots; \mathrm{SA}_h(z)]\, U.$$

# %%
class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, z):  # [B T D]
        B, T, D = z.shape
        qkv = self.qkv(z).reshape(B, T, 3, self.n_heads, D // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B heads T D_h]
        z = F.scaled_dot_product_attention(q, k, v)  # softmax(q kᵀ / √D_h) v
        return self.proj(z.transpose(1, 2).reshape(B, T, D))

# %% [markdown]
# By hand, two tokens and $D_h = 4$: the only score that is not zero is $2 \ln 3 / \sqrt 4 = \ln 3$, so token 1 attends with
# weights ¼ and ¾, and token 2 to both alike.

# %%
q = torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 0]])
k = torch.tensor([[0.0, 0, 0, 0], [math.log(3), 0, 0, 0]])
v = torch.tensor([[0.0, 0, 0, 0], [4.0, 0, 0, 0]])
A = (q @ k.T / math.sqrt(4)).softmax(dim=-1)  # a row for each query
assert torch.allclose(A, torch.tensor([[1 / 4, 3 / 4], [1 / 2, 1 / 2]]))
assert torch.allclose(A @ v, F.scaled_dot_product_attention(q[None], k[None], v[None])[0])
print((A @ v)[:, 0])

# %% [markdown]
# ### 1 · Find the bugs (★★, 10 min)
#
# *Importance: a model with such mistakes still learns something, so nobody notices.* Wrong in two places; correct it.
#
# ```python
# def attention_weights(q, k, n_heads):
#     """q, k [T D] → A [heads, query, key]"""
#     T, D = q.shape
#     q = q.reshape(T, n_heads, D // n_heads).transpose(0, 1)
#     k = k.reshape(T, n_heads, D // n_heads).transpose(0, 1)
#     return (q @ k.transpose(1, 2) / math.sqrt(D)).softmax(dim=1)
# ```
#
# <details><summary>Hint</summary>Which sums must be 1? How long are the vectors whose product is a score?</details>
#
# *Expected output: none. Common bug: √D of the whole width.*

# %%
def attention_weights(q, k, n_heads):
    """q, k [T D] → A [heads, query, key]"""
    ### BEGIN SOLUTION
    T, D = q.shape
    q, k = (each.reshape(T, n_heads, D // n_heads).transpose(0, 1) for each in (q, k))
    return (q @ k.transpose(1, 2) / math.sqrt(D // n_heads)).softmax(dim=-1)
    ### END SOLUTION


zeros = torch.zeros(2, 4)  # the example as the first of two heads
two = attention_weights(torch.cat([q, zeros], dim=1), torch.cat([k, zeros], dim=1), n_heads=2)
assert torch.allclose(two[0], A) and torch.allclose(two[1], torch.full((2, 2), 1 / 2))

# %% [markdown]
# ## Block and model
#
# A block lets tokens look at each other, then each think for itself, with LayerNorm before and a skip connection around both
# (Eq. 2, 3). The model puts the class token in front of the projected patches and adds positions (Eq. 1); the head reads the
# class token (Eq. 4).

# %%
class Block(nn.Module):
    def __init__(self, dim, n_heads, mlp_dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, n_heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, mlp_dim), "fc2": nn.Linear(mlp_dim, dim)})

    def forward(self, z):
        z = z + self.attn(self.norm1(z))  # Eq. 2
        return z + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(z))))  # Eq. 3

# %% [markdown]
# A convolution whose stride is its kernel's size cuts patches and projects them in one step:

# %%
class ViT(nn.Module):
    def __init__(self, image_size, patch_size, dim, depth, n_heads, mlp_dim, n_classes):
        super().__init__()
        n_patches = (image_size // patch_size) ** 2
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, dim, patch_size, patch_size)})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + n_patches, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, n_heads, mlp_dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):  # [B 3 H W]
        patches = self.patch_embed.proj(x).flatten(2).transpose(1, 2)  # [B N D]
        z = torch.cat([self.cls_token.expand(len(x), -1, -1), patches], 1) + self.pos_embed  # Eq. 1
        return self.head(self.norm(self.blocks(z))[:, 0])  # Eq. 4

# %% [markdown]
# That is all. The names are timm's, so timm's weights fit, and the logits must be the same numbers:

# %%
ours = ViT(224, 16, dim=192, depth=12, n_heads=3, mlp_dim=768, n_classes=1000).eval()
theirs = timm.create_model("vit_tiny_patch16_224").eval()
for parameter in theirs.parameters():  # all at random: a part that is zero could hide a mistake
    nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(parameter.numel()))
ours.load_state_dict(theirs.state_dict())
images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(SEED))
with torch.no_grad():
    assert torch.equal(ours(images), theirs(images))  # to the last bit
print(f"{images.shape[-1]} px, patches of 16 px: {ours.pos_embed.shape[1]} tokens")

# %% [markdown]
# ## Ask it about a photograph
#
# The class above, with trained weights. `lab` knows ten classes, and what it sees may be none of them; a timm model of ImageNet
# knows a thousand. Classes whose names are unknown have numbers.

# %%
IMAGENETTE = ["cassette player", "chain saw", "church", "English springer", "French horn"]
IMAGENETTE += ["garbage truck", "gas pump", "golf ball", "parachute", "tench"]
state, blocks = trained.model.state_dict(), trained.model.blocks
n_classes, D = state["head.weight"].shape
shape = {"dim": D, "depth": len(blocks), "n_heads": blocks[0].attn.num_heads}
shape |= {"mlp_dim": len(state["blocks.0.mlp.fc1.weight"]), "n_classes": n_classes}
mine = ViT(x.shape[-1], x.shape[-1] // side, **shape).eval()
mine.load_state_dict(state)
with torch.no_grad():
    chances, difference = mine(x).softmax(-1), (mine(x) - trained.model(x)).abs().max().item()
assert difference == 0  # to the last bit again

# %% [markdown]
# What its training says of the classes, and the five that it finds most probable:

# %%
last = trained.about.get("trainings", [{}])[-1]  # empty for a model that was not trained here
names = [f"class {k}" for k in range(n_classes)]
if (last.get("data"), last.get("objective")) == ("imagenette", "labels"):
    names = IMAGENETTE
elif n_classes == 1000 and not trained.about:
    names = [timm.data.ImageNetInfo().index_to_description(k).split(",")[0] for k in range(1000)]
has_classifier = bool(state["head.weight"].any())
alt = "Two photographs, each next to bars of the five most probable classes."
with plots.figure(page, "answers", 2, 2, alt=alt, figsize=(9, 5.4), width_ratios=[1, 1.6]) as axes:
    for (left, right), view, probabilities in zip(axes, views, chances, strict=True):
        left.imshow(view)
        left.set_axis_off()
        top = probabilities.topk(5)
        right.barh([names[k] for k in top.indices], 100 * top.values)
        right.invert_yaxis()
        right.set(xlabel="probability (%)", xlim=(0, 100))
        answer = names[top.indices[0]] if has_classifier else "its head is zero, so it knows none"
        right.set_title(f"{trained.name}, {n_classes} classes: {answer}")

# %% [markdown]
# We observe that a softmax always answers: where no class fits, the nearest look wins, with confidence.
#
# ### 2 · Without position embeddings, order is lost (★★, 15 min)
#
# *Importance: it is what positions are for.* Write `logits_of(model, x, order)`: the logits when the embedded patches come in
# the order `order` and no positions are added.
#
# <details><summary>Hint</summary>The last three lines of <code>forward</code>, with <code>patches[:, order]</code>.</details>
#
# *Expected output: none. Common bug: the class token is shuffled too.*

# %%
def logits_of(model, x, order):
    ### BEGIN SOLUTION
    patches = model.patch_embed.proj(x).flatten(2).transpose(1, 2)[:, order]
    z = torch.cat([model.cls_token.expand(len(x), -1, -1), patches], dim=1)
    return model.head(model.norm(model.blocks(z))[:, 0])
    ### END SOLUTION


with torch.no_grad():
    shuffled = torch.randperm(196, generator=torch.Generator().manual_seed(1))
    straight, mixed = (logits_of(ours, images, order) for order in (torch.arange(196), shuffled))
    without = torch.func.functional_call(ours, {"pos_embed": 0 * ours.pos_embed}, images)
assert torch.allclose(straight, without, atol=1e-3) and torch.allclose(mixed, without, atol=1e-3)
assert (ours(images) - straight).abs().max() > 1e-2

# %% [markdown]
# ## What it weighs and costs
#
# All shapes are known, so parameters and floating-point operations (FLOPs) are formulas.

# %%
def parameter_parts(D, L, M, P, K=1000, side=224):
    """Parameters of each part; D width, L blocks, M hidden width of the MLP, P patch, K classes."""
    N = (side // P) ** 2
    return {
        "patch embedding": P * P * 3 * D + D,
        "class token, positions": D + (N + 1) * D,
        "attention": L * 4 * (D * D + D),  # q, k, v and the projection
        "MLP": L * ((D * M + M) + (M * D + D)),
        "LayerNorm": (2 * L + 1) * 2 * D,
        "head": D * K + K,
    }


SIZES = {"ViT-B/16": (768, 12, 3072, 16), "ViT-L/16": (1024, 24, 4096, 16)}
SIZES["ViT-H/14"] = (1280, 32, 5120, 14)
counts = pd.DataFrame({name: parameter_parts(*size) for name, size in SIZES.items()})
for name in SIZES:
    with torch.device("meta"):  # shapes without numbers
        assert counts[name].sum() == sum(p.numel() for p in zoo.create(name).parameters())
share = (counts.loc["MLP"] / counts.sum()).min()
alt = "Stacked bars of the parameters of ViT-B/16, L/16 and H/14 by part."
with plots.figure(page, "parameters", alt=alt, figsize=(8, 3)) as ax:
    (counts / 1e6).T.plot.barh(stacked=True, ax=ax).invert_yaxis()
    ax.set(xlabel="parameters (millions)", title=f"MLPs hold at least {share:.0%} of parameters")
    ax.legend(loc="upper right", fontsize=9)

# %% [markdown]
# Half the patch size means four times the tokens and a little more than four times the FLOPs: the dense layers, linear in the
# number of tokens, still outweigh attention, which is partly quadratic.
#
# ### 3 · What one image costs (★★, 15 min)
#
# *Importance: Fig. 5 and Table 6 are in FLOPs.* Write the FLOPs of all matrix products of a forward pass; an m × n by n × p
# product takes 2 m n p.
#
# <details><summary>Hint</summary>Patches: 2 N · 3P² · D. A block: 2 T (4 D² + 2 D M), and 4 T² D for q kᵀ and A v.</details>
#
# *Expected output: GFLOPs of ViT-B/16. Common bug: the head for every token.*

# %%
def flops(D, L, M, P, K=1000, side=224):
    ### BEGIN SOLUTION
    N = (side // P) ** 2
    T = N + 1
    return 2 * N * 3 * P * P * D + L * (2 * T * (4 * D * D + 2 * D * M) + 4 * T * T * D) + 2 * D * K
    ### END SOLUTION


with torch.device("meta"):
    counted = zoo.forward_flops(zoo.create("ViT-B/16").eval(), torch.empty(1, 3, 224, 224))
assert flops(*SIZES["ViT-B/16"]) == counted
print(f"{flops(*SIZES['ViT-B/16']) / 1e9:.1f} GFLOP")

# %% [markdown]
# ### 4 · Which ViT-L has 307 million parameters? (★★, 10 min)
#
# *Importance: a table that does not say what it counts.* Among the patch sizes from 8 px up that divide 224, find the one for
# which a ViT-L with a head for 1,000 classes has 307 million parameters when rounded.
#
# <details><summary>Hint</summary><code>parameter_parts(1024, 24, 4096, P)</code></details>
#
# *Expected output: none. Common bug: to expect 16.*

# %%
patch = 0
### BEGIN SOLUTION
divisors = [P for P in range(8, 57) if 224 % P == 0]
totals = {P: sum(parameter_parts(1024, 24, 4096, P).values()) for P in divisors}
(patch,) = [P for P in divisors if round(totals[P] / 1e6) == 307]
### END SOLUTION
assert 224 // patch == 7 and 3 * 1024 * patch**2 == 3 * 1024**2  # the 7 × 7 grid of Fig. 7

# %% [markdown]
# ## Experiment
#
# Many draws of weights and architectures: logits against timm's class and against the equations in float64 numpy, and the
# equations with one thing changed, which must be noticed.

# %%
table = checks.model_checks(PRESET, seed=SEED)
logits = table[table["check"].isin(["logits", "deviation"])].copy()
logits["model"] = logits["check"].map({"logits": "same model", "deviation": "one thing changed"})
logits["label"] = logits["part"].where(logits["check"] == "deviation", logits["against"])
alt = "Largest differences of logits, to timm, the equations and each control; dashed: tolerance."
with plots.figure(page, "logits", alt=alt, figsize=(8, 3.8)) as ax:
    sns.stripplot(logits, x="difference", y="label", hue="model", jitter=False, alpha=0.7, ax=ax)
    ax.axvline(1e-5, color="grey", linestyle="--", label="tolerance 1e-5")
    ax.set_xscale("symlog", linthresh=1e-17)  # has a place for no difference at all
    ax.set(xlim=(-4e-18, 10), xlabel="largest difference of any logit", ylabel="")
    ax.set_xticks([0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1])
    least = logits.loc[logits["check"] == "deviation", "difference"].min()
    ax.set_title(f"Any other reading of the equations moves a logit by {least:.0e} or more")
    ax.legend(loc="lower left")

# %% [markdown]
# ## Verdict

# %%
claims.show(page, "C01")
largest = table[table["check"] == "logits"].groupby("against")["difference"].max()
live = {f"largest difference of {trained.name}'s logits": claims.Estimate.exact(difference)}
live["of random weights, to timm's class"] = claims.Estimate.exact(largest["timm"])
claims.show(page, "C02", live=live)

# %% [markdown]
# **How others get this wrong.** The ε of LayerNorm (PyTorch's default is 1e-5, the authors' 1e-6); GELU by tanh; $\sqrt D$ in
# place of $\sqrt{D_h}$; the norm after the sum, as in the first Transformer. None raises an error, and each is an orange dot above.
#
# **Open questions.** What would change if the class token came last? Could the head read the mean of the patches (chapter 11)?
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §3.1, App. A, Table 1.
# - A. Vaswani et al., *Attention Is All You Need*, NeurIPS 2017.
