# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 01 · The Vision Transformer from scratch
#
# **A Vision Transformer is a linear projection of image patches, a class token, learned position
# embeddings and a plain Transformer encoder: four equations are the whole model.**
#
# Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021: §3.1, Equations 1–4; Table 1;
# Appendix A, Equations 5–8. Claims C01 (sizes) and C02 (the equations are the whole model). Half a
# minute at `quick`.

# %% [markdown]
# ## What you will learn
#
# - how an image becomes a sequence of tokens
# - the whole model in a few lines, equal to timm's
# - how many parameters and operations each part of a ViT takes, by formula
#
# **Prerequisites**: matrix products, softmax, and enough PyTorch to read `x @ w`.

# %% [markdown]
# The parameters.

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports. `study` is this execution.

# %%
import math

import pandas as pd
import seaborn as sns
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from vitlab import claims, plots
from vitlab.data.loader import to_float
from vitlab.data.world import World, scene
from vitlab.studies import checks
from vitlab.models import zoo
from vitlab.models.vit import ViT, ViTConfig

study = claims.begin("01_vit_in_sixty_lines", PRESET, SEED)

# %% [markdown]
# ## Prediction
#
# **The paper** gives the sizes of three models (Table 1) and writes the whole model in four
# equations, with attention in four more. Do you expect anything in the model that they do not say?
#
# **C01** (ViT-B/16, L/16 and H/14 at 224 px, 1000 classes, linear head). Each count equals our
# formula and timm's model, and is within 1 % of Table 1; the sequence has 197 tokens. Without these:
# *not reproduced*. If also each count, rounded to millions, is Table 1's: *reproduced*, else
# *partly*.
#
# **C02**. With every weight drawn at random, the largest difference of any logit is at most 1e-5,
# against *timm*'s class and against Equations 1–8 in plain float64 numpy. And every *control*, the
# equations with one thing changed, differs by more.

# %% [markdown]
# ## Idea
#
# Each step is a few lines of plain PyTorch, then compared with the package's module with the same
# weights. All are drawn at random, biases included: a part that is zero could hide a mistake.

# %%
sizes = {"dim": 64, "depth": 3, "n_heads": 4, "mlp_dim": 256}
config = ViTConfig(image_size=224, patch_size=16, n_classes=10, **sizes)
model = checks.randomise(ViT(config), seed=SEED).eval().requires_grad_(False)
w = model.state_dict()

images, labels, _ = scene(World(image_size=224, seed=SEED), torch.tensor([13, 19]))
x = to_float(images)


def assert_same(ours, theirs):
    """Equal shapes, and no number further apart than 1e-5."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    print(f"{tuple(ours.shape)}: largest difference {(ours - theirs).abs().max():.1e}")


# %% [markdown]
# ### Step 1 · An image becomes a sequence (Eq. 1, left half)
#
# An image $x \in \mathbb{R}^{C \times H \times W}$ is cut into $N = HW / P^2$ patches, and each is
# flattened to a vector of $P^2 C$ numbers:

# %%
B, C, H, W = x.shape
P = config.patch_size
patches = x.reshape(B, C, H // P, P, W // P, P)  # split rows and columns: [B C rows P cols P]
patches = patches.permute(0, 2, 4, 1, 3, 5)  # [B rows cols C P P]
patches = patches.reshape(B, -1, C * P * P)  # [B N C·P·P], row by row

assert patches.shape == (B, H * W // P**2, P**2 * C)
assert_same(patches, F.unfold(x, kernel_size=P, stride=P).transpose(1, 2))

# %% [markdown]
# `F.unfold`, PyTorch's own, gives the same. Below with patches twice as wide.

# %%
picture = images[0].permute(1, 2, 0).numpy()
alt = "An image of the world, and beside it its 49 patches, numbered row by row."
with plots.figure(study, "patches", 1, 2, alt=alt, figsize=(9.2, 4.5)) as axes:
    axes[0].imshow(picture)
    axes[0].set_axis_off()
    axes[0].set_title("image")
    plots.plot_grid(picture, len(picture) // 32, axes[1], numbered=True)
    axes[1].set_title("patches of 32 px, in their order")

# %% [markdown]
# Two patches one above the other are a whole row apart in the sequence: nothing in it says which
# patches are neighbours, and the model has to learn it.
#
# Then each patch is projected by one matrix, $x_p E$ with $E \in \mathbb{R}^{(P^2 C) \times D}$. A
# convolution whose stride equals its kernel size cuts and projects in one step.

# %%
# The convolution's kernels, flattened: [C·P·P D]
E = w["patch_embed.proj.weight"].reshape(config.dim, -1).T
embedded = patches @ E + w["patch_embed.proj.bias"]

assert_same(embedded, model.patch_embed(x))

# %% [markdown]
# ### Step 2 · Class token and position embeddings (Eq. 1)
#
# $$z_0 = [x_\mathrm{class};\; x_p^1 E;\; \dots;\; x_p^N E] + E_\mathrm{pos}, \qquad
# E_\mathrm{pos} \in \mathbb{R}^{(N+1) \times D}$$
#
# One learned vector, the class token, is put in front; the head will read its output. Then a learned
# position embedding is added to every token.

# %%
class_token = w["cls_token"].expand(B, -1, -1)
z0 = torch.cat([class_token, embedded], dim=1) + w["pos_embed"]

assert z0.shape == (B, config.n_patches + 1, config.dim)
print(f"{H} px, patches of {P} px: {config.n_patches} patches + class token = {z0.shape[1]} tokens")

# %% [markdown]
# ### Step 3 · Attention by hand (Eq. 5–7)
#
# $$A = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt{D_h}}\right), \qquad \mathrm{SA}(z) = A v$$
#
# Two tokens, $D_h = 4$, and nearly all numbers are zero. The query of token 1 is $(2, 0, 0, 0)$ and
# the key of token 2 is $(\ln 3, 0, 0, 0)$. The only score that is not zero is $2 \ln 3 / \sqrt 4 =
# \ln 3$: token 1 attends with weights $\frac{1}{4}$ and $\frac{3}{4}$, token 2 to both alike.

# %%
q = torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 0]])
k = torch.tensor([[0.0, 0, 0, 0], [math.log(3), 0, 0, 0]])
v = torch.tensor([[0.0, 0, 0, 0], [4.0, 0, 0, 0]])

attn = (q @ k.T / math.sqrt(4)).softmax(dim=-1)  # a row per query; rows sum to 1
out = attn @ v
print("A =", attn)
print("first column of A v =", out[:, 0])

torch.testing.assert_close(attn, torch.tensor([[1 / 4, 3 / 4], [1 / 2, 1 / 2]]))
torch.testing.assert_close(out[:, 0], torch.tensor([3.0, 2.0]))
torch.testing.assert_close(out, F.scaled_dot_product_attention(q[None], k[None], v[None])[0])

# %% [markdown]
# Each output is the mean of the two values, 0 and 4, weighted by a row of $A$. The fused function of
# the last line, which the package uses, gives the same without keeping $A$ in memory.
#
# ### Step 4 · Several heads (Eq. 8)
#
# Each head works on its own $D_h = D / h$ columns of $q$, $k$ and $v$. The heads' outputs are
# concatenated, and one more matrix projects them:
# $\mathrm{MSA}(z) = [\mathrm{SA}_1(z); \dots; \mathrm{SA}_h(z)]\, U$.


# %%
def attention(z, w, n_heads):
    """[B T D] → [B T D], one head after the other; `w` holds one block's weights."""
    qkv = z @ w["attn.qkv.weight"].T + w["attn.qkv.bias"]
    q, k, v = qkv.chunk(3, dim=-1)
    heads = []
    for columns in torch.arange(z.shape[-1]).chunk(n_heads):  # of this head
        scores = q[..., columns] @ k[..., columns].transpose(1, 2) / math.sqrt(len(columns))
        heads.append(scores.softmax(dim=-1) @ v[..., columns])
    return torch.cat(heads, dim=-1) @ w["attn.proj.weight"].T + w["attn.proj.bias"]


def weights_of_block(w, number):
    start = f"blocks.{number}."
    return {name.removeprefix(start): value for name, value in w.items() if name.startswith(start)}


assert_same(attention(z0, weights_of_block(w, 0), config.n_heads), model.blocks[0].attn(z0))

# %% [markdown]
# ### Step 5 · A block (Eq. 2 and 3)
#
# $$z' = \mathrm{MSA}(\mathrm{LN}(z)) + z, \qquad z'' = \mathrm{MLP}(\mathrm{LN}(z')) + z'$$
#
# LayerNorm shifts and scales the numbers of each token to mean 0 and variance 1, then applies a
# learned gain and bias. The MLP is two dense layers with a GELU between them. The MLP works on each
# token by itself.


# %%
def layer_norm(z, gain, bias):
    centred = z - z.mean(dim=-1, keepdim=True)
    variance = (centred**2).mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(variance + 1e-6) * gain + bias  # the ε of the authors' code


def mlp(z, w):
    hidden = z @ w["mlp.fc1.weight"].T + w["mlp.fc1.bias"]
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))  # GELU
    return hidden @ w["mlp.fc2.weight"].T + w["mlp.fc2.bias"]


def block(z, w, n_heads):
    z = z + attention(layer_norm(z, w["norm1.weight"], w["norm1.bias"]), w, n_heads)
    return z + mlp(layer_norm(z, w["norm2.weight"], w["norm2.bias"]), w)


assert_same(block(z0, weights_of_block(w, 0), config.n_heads), model.blocks[0](z0))

# %% [markdown]
# ### Step 6 · The whole model (Eq. 1–4)
#
# After $L$ blocks comes one more LayerNorm; the output is that of the class token, $y =
# \mathrm{LN}(z_L^0)$. A linear head turns $y$ into a logit for each class.

# %%
z = z0
for number in range(config.depth):
    z = block(z, weights_of_block(w, number), config.n_heads)
y = layer_norm(z, w["norm.weight"], w["norm.bias"])[:, 0]
logits = y @ w["head.weight"].T + w["head.bias"]

assert_same(logits, model(x))
print("logits of the first image:", [round(value, 3) for value in logits[0].tolist()])

# %% [markdown]
# ### Step 7 · Where the parameters are (Table 1)
#
# All shapes are known, so the number of parameters is a formula. We compare it with a real model on
# PyTorch's `meta` device, which keeps shapes without numbers.


# %%
def parameter_parts(D, L, M, P, K=1000, side=224):
    """Parameters of each part; D width, L blocks, M hidden width of the MLP, P patch, K classes."""
    N = (side // P) ** 2
    return {
        "patch embedding": P * P * 3 * D + D,
        "class token, positions": D + (N + 1) * D,
        "attention": L * (3 * (D * D + D) + (D * D + D)),  # q, k, v and the projection
        "MLP": L * ((D * M + M) + (M * D + D)),
        "LayerNorm": (2 * L + 1) * 2 * D,
        "head": D * K + K,
    }


SIZES = {
    "ViT-B/16": (768, 12, 3072, 16),
    "ViT-L/16": (1024, 24, 4096, 16),
    "ViT-H/14": (1280, 32, 5120, 14),
}
for name, size in SIZES.items():
    with torch.device("meta"):
        counted = sum(p.numel() for p in zoo.create(name).parameters())
    assert sum(parameter_parts(*size).values()) == counted
    print(f"{name}: {counted:,} parameters")

# %% [markdown]
# The shares of the parts in each model:

# %%
counts = pd.DataFrame({name: parameter_parts(*size) for name, size in SIZES.items()})
alt = "Stacked bars for ViT-B/16, L/16 and H/14: about two thirds of the parameters are in the "
alt += "MLPs, one third is in attention, and little in everything else."
with plots.figure(study, "parameters", alt=alt, figsize=(8, 3.4)) as ax:
    (100 * counts / counts.sum()).T.plot.barh(stacked=True, ax=ax).invert_yaxis()
    ax.set_xlabel("share of the parameters (%)")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

# %% [markdown]
# With $M = 4D$ a block has $8 D^2$ parameters in the MLP and $4 D^2$ in attention; all other parts
# are a small share.

# %% [markdown]
# ### Step 8 · What one image costs
#
# The patch size sets the length of the sequence, and with it the number of floating-point operations
# (FLOPs). The product of an $m \times n$ and an $n \times p$ matrix takes $2mnp$ of them; the sum over
# all products is a second formula, which must agree with PyTorch's counter.


# %%
def flops(D, L, M, P, K=1000, side=224):
    """FLOPs of the matrix products for one image; a multiply-add counts as two."""
    N = (side // P) ** 2
    T = N + 1
    dense = 2 * T * (4 * D * D + 2 * D * M)  # q, k, v, projection; MLP
    attention = 2 * 2 * T * T * D  # all pairs of tokens: q kᵀ and A v
    return 2 * N * (P * P * 3) * D + L * (dense + attention) + 2 * D * K


with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
    zoo.create("ViT-B/16").eval()(torch.empty(1, 3, 224, 224))

assert flops(*SIZES["ViT-B/16"]) == counter.get_total_flops()
print(f"ViT-B/16, one image: {counter.get_total_flops() / 1e9:.1f} GFLOP")

# %% [markdown]
# The paper's Table 6 gives the FLOPs of whole pre-trainings. Divided by images, epochs and three
# forward passes a step (the backward pass takes two), each gives the FLOPs for one image: the
# crosses next to our formula.

# %%
costs = []
for name, (D, L, M, _) in {name[:5]: size for name, size in SIZES.items()}.items():
    for P in (8, 14, 16, 28, 32, 56):
        epochs, exaflops = checks.PAPER_TRAINING.get(f"{name}/{P}", (1, math.nan))
        cost = {"model": name, "patch_size": P, "tokens": (224 // P) ** 2 + 1}
        cost["gflops"] = flops(D, L, M, P) / 1e9
        cost["paper"] = exaflops * 1e9 / (3 * epochs * checks.JFT_IMAGES)
        costs.append(cost)
costs = pd.DataFrame(costs)
alt = "Number of tokens, and FLOPs for one image, over the patch size: when it doubles, "
alt += "both fall about four times. The paper's five published values lie on the lines."
with plots.figure(study, "cost", 1, 2, alt=alt, figsize=(9.2, 3.8)) as axes:
    of_all = costs["model"] == "ViT-B"  # tokens are the same for all sizes of model
    for ax, rows, y in zip(axes, (costs[of_all], costs), ("tokens", "gflops"), strict=True):
        sns.lineplot(rows, x="patch_size", y=y, hue="model", style="model", markers=True, ax=ax)
        ax.set(xscale="log", yscale="log", xlabel="patch size P (px)")
        ax.set_xticks(costs["patch_size"].unique(), costs["patch_size"].unique())
        ax.minorticks_off()
    axes[0].get_legend().remove()
    axes[0].set_yticks(costs["tokens"].unique(), costs["tokens"].unique())
    axes[0].set_ylabel("tokens in the sequence")
    axes[1].set_ylabel("work for one image (GFLOP)")
    axes[1].plot("patch_size", "paper", "x", data=costs, color=plots.MUTED, ms=11, mew=2)

# %% [markdown]
# Half the patch size means four times the tokens and a little more than four times the FLOPs: the
# dense layers, linear in the number of tokens, still outweigh attention, which is partly quadratic.

# %% [markdown]
# ## Experiment
#
# The same for more models: counts against formula, timm and paper; logits against timm's class and
# the equations in float64 numpy, also with one thing changed at a time.

# %%
table = checks.model_checks(PRESET, seed=SEED)
table.groupby(["check", "against"])["difference"].agg(["count", "max"])

# %% [markdown]
# The counts: ours, then those of formula, paper and timm, where there are any.

# %%
counts = table[table["check"].isin(["parameters", "tokens", "FLOPs"])]
index = ["check", "model", "ours", "unit"]
counts = counts.pivot(index=index, columns="against", values="theirs").reset_index()


def as_text(cell):
    return cell if isinstance(cell, str) else "" if pd.isna(cell) else f"{cell:,.9g}"


counts.map(as_text)

# %% [markdown]
# ## Figure
#
# A dot is the largest difference of logits in one draw of weights and images.

# %%
logits = table[table["check"].isin(["logits", "deviation"])].copy()
logits["control"] = logits["check"] == "deviation"
logits["label"] = logits["part"].where(logits["control"], logits["against"])
logits = logits.sort_values("control", kind="stable")
alt = "Largest differences of logits on a logarithmic axis, against timm and the equations, and "
alt += "for each control, the equations with one thing changed; a dashed line is the tolerance."
with plots.figure(study, "logits", alt=alt, figsize=(8, 4.2)) as ax:
    plots.plot_differences(logits, tolerance=1e-5, ax=ax)

# %% [markdown]
# Round dots are the same model by other means. Diamonds are the controls: to the right of the
# dashed line they are noticed.
#
# ## Verdict
#
# ### C01: the sizes

# %%
claims.show(study, "C01")

# %% [markdown]
# ### C02: the equations

# %%
logits = table[table["check"] == "logits"].groupby("against")["difference"].max()
names = {"timm": "timm's class", "equations": "Equations 1–8 in float64 numpy"}
claims.show(study, "C02", live={
    f"largest logit difference to {words}": claims.Estimate.exact(logits[name]) for name, words in names.items()
})

# %% [markdown]
# The model is the paper's. (The ε in LayerNorm comes from the authors' code; the text does not give
# it.) Table 1 remains unexplained: one reading gives its three numbers, ViT-B/16, L/32 and H/14
# with the head's hidden layer and without the classifier.

# %% [markdown]
# ## Exercises
#
# ### 1 · ViT-S by hand (★, 5 minutes)
#
# ViT-S/16 has width 384, 12 blocks, MLPs of hidden width 1536, and patches of 16 at 224 px; take
# 1000 classes. Set `answer` to the number of its parameters, without building a model.
#
# <details><summary>Hint</summary>Per block: 4 D² + 4 D for attention, 8 D² + 5 D for the MLP, 4 D
# for the two LayerNorms. Do not forget the last LayerNorm, the class token and the
# head.</details>

# %%
### BEGIN SOLUTION
D = 384
per_block = (4 * D**2 + 4 * D) + (8 * D**2 + 5 * D) + 4 * D
answer = (768 * D + D) + D + 197 * D + 12 * per_block + 2 * D + (1000 * D + 1000)
### END SOLUTION

assert answer == 22_050_664  # what timm reports for vit_small_patch16_224

# %% [markdown]
# ### 2 · Which ViT-L has 307 million parameters? (★★, 10 minutes)
#
# Among the patch sizes from 8 px up that divide 224, find the one for which a ViT-L with a linear
# head for 1000 classes has 307 million parameters when rounded, and set `patch` to it.
#
# <details><summary>Hint</summary><code>parameter_parts(1024, 24, 4096, P)</code> gives the
# counts.</details>

# %%
### BEGIN SOLUTION
divisors = [P for P in range(8, 57) if 224 % P == 0]
sizes = {P: sum(parameter_parts(1024, 24, 4096, P).values()) for P in divisors}
(patch,) = [P for P, count in sizes.items() if round(count / 1e6) == 307]
### END SOLUTION

grid = 224 // patch
assert grid == 7  # the 7 × 7 grid of the paper's Fig. 7
assert 3 * 1024 * patch**2 == 3 * 1024**2  # the projection then has 3 D² parameters

# %% [markdown]
# ### 3 · Without position embeddings, order is lost (★★, 15 minutes)
#
# Without position embeddings the model cannot know where a patch was: shuffling the patches must
# leave the logits as they are. Show it: write `logits_of(order, positions)`, the logits of `x` when
# its patches come in the order `order`, with position embeddings or without.
#
# <details><summary>Hint</summary>Begin with <code>embedded[:, order]</code>, add the class token
# and the position embeddings (or not), then apply <code>model.blocks</code>,
# <code>model.norm</code> and <code>model.head</code>.</details>


# %%
def logits_of(order, positions):
    ### BEGIN SOLUTION
    z = torch.cat([class_token, embedded[:, order]], dim=1)
    z = z + w["pos_embed"] * positions
    return model.head(model.norm(model.blocks(z))[:, 0])
    ### END SOLUTION


straight = torch.arange(config.n_patches)
shuffled = torch.randperm(config.n_patches, generator=torch.Generator().manual_seed(1))
without = torch.func.functional_call(model, {"pos_embed": torch.zeros_like(w["pos_embed"])}, x)
assert torch.allclose(logits_of(straight, True), model(x), rtol=0, atol=1e-5)
assert torch.allclose(logits_of(straight, False), without, rtol=0, atol=1e-5)
assert torch.allclose(logits_of(shuffled, False), without, rtol=0, atol=1e-5)
assert (logits_of(shuffled, True) - logits_of(straight, True)).abs().max() > 1e-2

# %% [markdown]
# ### 4 · Find the bugs (★★, 10 minutes)
#
# This raises no error, but it is wrong in two places. A model trained with such mistakes still
# learns something, so nobody notices.
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
# Correct it. The check is the example of step 3 as the first of two heads; the second head has only
# zeros.
#
# <details><summary>Hint</summary>Which sums must be 1? And what is the length of the vectors whose
# product is a score?</details>


# %%
def attention_weights(q, k, n_heads):
    """q, k [T D] → A [heads, query, key]"""
    ### BEGIN SOLUTION
    T, D = q.shape
    head_dim = D // n_heads
    q = q.reshape(T, n_heads, head_dim).transpose(0, 1)
    k = k.reshape(T, n_heads, head_dim).transpose(0, 1)
    return (q @ k.transpose(1, 2) / math.sqrt(head_dim)).softmax(dim=-1)
    ### END SOLUTION


zeros = torch.zeros(2, 4)
attn = attention_weights(torch.cat([q, zeros], dim=1), torch.cat([k, zeros], dim=1), n_heads=2)
assert torch.allclose(attn[0], torch.tensor([[1 / 4, 3 / 4], [1 / 2, 1 / 2]]))
assert torch.allclose(attn[1], torch.full((2, 2), 1 / 2))

# %% [markdown]
# ### 5 · Two kinds of head (★, 5 minutes)
#
# For pre-training, the paper's head has a hidden layer of width D with a tanh. For fine-tuning, the
# whole head is replaced by one linear layer that is initialized to zero (§3.1, §3.2). How many more
# parameters does the first head have than the second, at width `D`? Write `extra(D)`. And which
# logits does the fine-tuning head give before the first step? Set `first_logit`.
#
# <details><summary>Hint</summary>The hidden layer is a dense layer from D to D, with its
# bias.</details>


# %%
def extra(D):
    ### BEGIN SOLUTION
    return D * D + D
    ### END SOLUTION


### BEGIN SOLUTION
first_logit = 0.0
### END SOLUTION

small = dict(image_size=32, patch_size=8, dim=48, depth=1, n_heads=4, mlp_dim=96, n_classes=5)
linear, tanh = (ViT(ViTConfig(**small, head=head)) for head in ("linear", "tanh"))
difference = sum(p.numel() for p in tanh.parameters()) - sum(p.numel() for p in linear.parameters())
assert extra(48) == difference and extra(768) == 590_592
assert (linear(torch.randn(4, 3, 32, 32)) == first_logit).all()

# %% [markdown]
# ## Summary
#
# - A ViT is a projection of patches, a class token, position embeddings and encoder blocks with the
#   LayerNorm before attention and MLP.
# - Two thirds of the parameters are in the MLPs, one third in attention. The patch size sets the
#   number of operations, and hardly changes the number of parameters.
#
# ## References
#
# - A. Dosovitskiy et al., ICLR 2021, as above.
# - A. Vaswani et al. *Attention Is All You Need.* NeurIPS 2017: the encoder, there with LayerNorm
#   after the residual sum.
