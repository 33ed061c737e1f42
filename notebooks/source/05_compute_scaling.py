# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 05 · What does compute buy, and how fast is it spent?
#
# **Claims.** **C07**: ViT reaches a ResNet's accuracy with 2 to 4 times less compute. **C06**: hybrids are ahead of ViT at
# small compute, and the gap vanishes at large. **C20**: ViT is as fast as a comparable ResNet and uses memory more efficiently.
#
# Paper: §4.4, Fig. 5, Table 6 and App. D.5, Fig. 12, Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021.
#
# | preset | what runs | time on 2 CPU cores |
# |---|---|---|
# | `smoke` | six models, a handful of steps | seconds |
# | `quick` | three families × two sizes × two lengths × three seeds, then speed | a minute or two, once; then seconds |
# | `rehearsal` | three lengths, a million images | about half an hour, after notebook 04's |
# | `full` | larger models, ten thousand steps | for a GPU |

# %% [markdown]
# ## What you will learn
#
# - how to count the FLOPs of any model by one method, and what a published count means;
# - what a frontier is, how to fit one, and how to read a horizontal distance between two;
# - why equal FLOPs are not equal seconds, and how to time models so that the machine's mood does not decide;
# - how to find the largest batch that fits, and live through running out of memory.
#
# **Prerequisites.** Notebook 02 (the three families), 04 (paired seeds).

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# One cell of imports. `study` is this execution: what it finds goes to `figures/<preset>/05_compute_scaling`.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown, display

from vitlab import plots
from vitlab.experiments import compute_scaling, data_scaling, ledger, scaling, speed
from vitlab.experiments.largest_batch import largest
from vitlab.experiments.scaling_statistics import advantages, compute_factor, fitted_frontier, frontier
from vitlab.models import zoo
from vitlab.training.cost import forward_flops
from vitlab.training.pretrain import multiply_adds

study = ledger.study("05_compute_scaling", PRESET, SEED, real=scaling.real_sets())
settings = compute_scaling.SETTINGS[PRESET]
side = data_scaling.SETTINGS[PRESET].setting.image_size

# %% [markdown]
# ## Prediction
#
# **The paper** trains seven ResNets, six ViTs and five hybrids on JFT for 7 or 14 epochs, and draws transfer accuracy against the
# exaFLOPs of pre-training (Fig. 5, Table 6). ViT uses 2 to 4 times less compute than a ResNet for equal accuracy; hybrids are slightly
# ahead of ViT at small compute, and the difference vanishes for the largest. Fig. 12: ViTs are as fast as comparable
# ResNets, and hold larger batches.
#
# **We expect** C07 to fail here: its compute is a billion times ours, and notebook 04 says who is ahead where little is trained.
# Hybrids should lie between the families, if anything ahead of ViT at the smallest compute. Memory should come out as in the
# paper: it is a matter of architecture. Speed depends on the device: a CPU has no units made for large matrix products.
#
# **Decision rules, fixed before the run.** Accuracy is few-shot accuracy of frozen features on the world's other classes
# (transfer, as in the paper). For each seed and family a straight line is fitted to the frontier, in logit(accuracy) over
# log(FLOPs), level beyond the frontier's last point: there more compute was spent and bought nothing.
#
# **C07**: the compute that BiT needs over that of ViT for equal accuracy, with its 95 % t interval over the seeds (as a logarithm).
# *Reproduced* if the interval is above 1 and the mean at least 2; *partly* if only the interval is above 1; else *not reproduced*.
#
# **C06**: hybrid minus ViT on the lines, at the least and the most compute both spent. *Reproduced* if the interval at the least is above
# zero and the difference at the most is smaller, with an interval of that decline above zero; *partly* if only the first holds;
# else *not reproduced*.
#
# **C20**: *(a)* ViT's images per second are within a factor of 1.5 of BiT's at every input size (median of the rounds); *(b)* its
# largest batch is larger at every input size. *Reproduced* if both hold, *partly* if one does, else *not reproduced*.

# %% [markdown]
# ## Idea
#
# ### Counting FLOPs, one method for all
#
# torch counts while the model runs: every matrix product and convolution, a multiply-add as two FLOPs; norms, GELUs and
# softmax as none. Published numbers ("17.6 G" for ViT-B/16, "4.1 G" for a ResNet-50) are multiply-adds. By hand, for a ViT with
# $T = N + 1$ tokens, the patch embedding and $L$ blocks of four $D \times D$ projections, an MLP of width $M$ and two products of attention:
#
# $$N \cdot 3P^2 D + L\,(4TD^2 + 2TDM + 2T^2D) + DK.$$

# %%
def vit_multiply_adds(image_size, patch_size, dim, depth, mlp_dim, n_classes):
    n = (image_size // patch_size) ** 2
    t = n + 1
    blocks = depth * (4 * t * dim**2 + 2 * t * dim * mlp_dim + 2 * t**2 * dim)
    return n * 3 * patch_size**2 * dim + blocks + dim * n_classes


by_hand = vit_multiply_adds(224, 16, 768, 12, 3072, 1000)
with torch.device("meta"):  # shapes without numbers: there is nothing to compute where only sizes are asked for
    counted = {name: multiply_adds(name, 224, n_classes=1000) for name in ("ViT-B/16", "resnet50")}
assert counted["ViT-B/16"] == by_hand
assert math.isclose(counted["ViT-B/16"], 17.58e9, rel_tol=0.02) and math.isclose(counted["resnet50"], 4.1e9, rel_tol=0.02)
print({name: f"{n / 1e9:.2f} G multiply-adds at 224 px" for name, n in counted.items()})

# %% [markdown]
# The models of this study, by the same method. A training step costs three forward passes: one forward, two backward.

# %%
costs = pd.DataFrame({
    "family": {name: plots.family(name) for name in settings.models},
    "million multiply-adds": {name: multiply_adds(name, side) / 1e6 for name in settings.models},
    "parameters": {name: sum(p.numel() for p in zoo.create(name, image_size=side).parameters()) for name in settings.models},
})  # fmt: skip
layer = torch.nn.Linear(3, 5)
assert forward_flops(layer, torch.zeros(7, 3)) == 2 * 7 * 3 * 5
costs.style.format({"million multiply-adds": "{:.2f}", "parameters": "{:,}"})

# %% [markdown]
# ### A frontier, and a distance
#
# A family's frontier are the runs that no other one of it beats: cheaper and as accurate, or as cheap and more accurate. The rule in
# the open, on a few made-up runs:

# %%
def frontier_in_the_open(flops, accuracy):
    kept = []
    for i in range(len(flops)):
        others = [j for j in range(len(flops)) if (flops[j], accuracy[j]) != (flops[i], accuracy[i])]
        beaten = any(flops[j] <= flops[i] and accuracy[j] >= accuracy[i] for j in others)
        kept.append(not beaten)
    return kept


made_up = [1e12, 2e12, 4e12, 4e12], [0.2, 0.35, 0.5, 0.3]
assert frontier_in_the_open(*made_up) == frontier(*made_up).tolist() == [True, True, True, False]

# %% [markdown]
# Through the frontier goes a straight line in $\operatorname{logit}(a) = \log\frac{a}{1-a}$ over $\log_{10} C$: an accuracy cannot pass 1, its
# logit can grow for ever. If family B's line lies a distance $\delta$ to the right of A's, B needs $10^\delta$ times the compute. Where the
# lines are not parallel, $\delta$ is averaged over the accuracies that both families reach.

# %%
flops = np.array([1e12, 1e13, 1e14])
accuracy = 1 / (1 + np.exp(-(np.log10(flops) - 13)))
line_a, line_b = fitted_frontier(flops, accuracy), fitted_frontier(3 * flops, accuracy)
assert math.isclose(line_a.slope, 1.0) and math.isclose(line_a.at(1e13), 0.5)
assert math.isclose(compute_factor(line_a, line_b), 3.0)  # B is three times as expensive everywhere
print(f"B needs {compute_factor(line_a, line_b):.1f} times the compute of A")

# %% [markdown]
# ### The largest batch
#
# Double until it does not fit, then halve the interval between the last that did and the first that did not. Trying means running out of
# memory, on purpose. On a GPU that is an exception, and life goes on. On a CPU it would take the machine along, so
# there a process of its own tries, which the system allows a few megabytes and no more.

# %%
def largest_in_the_open(fits):
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


for limit in (0, 1, 37, 1000):
    fits = range(1, limit + 1).__contains__  # as a device on which `limit` images fit
    assert largest_in_the_open(fits) == limit == largest(fits, precision=0)

# %% [markdown]
# ## Experiment
#
# Every model is trained for every length, with a schedule of its own for each length (a point in the middle of a longer run would be a run
# that was stopped too early). Rates are those that notebook 04 chose, by the same trials for all models; the longest runs are
# notebook 04's on its largest set, and made once for both.

# %%
table = compute_scaling.compute_scaling(PRESET, seed=SEED)
points = compute_scaling.points(table)
points["family"] = points["model"].map(plots.family)
points.groupby(["model", "steps"], sort=False)[["flops", "test_accuracy", "few_shot"]].mean()

# %% [markdown]
# One line per family and seed; where a seed's cheapest run is its best, the line is level.

# %%
def lines(points, value):
    groups = points.groupby(["family", "seed"])
    return {key: fitted_frontier(rows["flops"], rows[value]) for key, rows in groups}


few_shot, in_distribution = (lines(points, value) for value in ("few_shot", "test_accuracy"))

# %% [markdown]
# ## Figure
#
# Left the measure of the verdicts: transfer to classes that were not trained on. Right, for comparison, accuracy on unseen images of the
# classes that were.

# %%
def drawn(found):
    families = ("ViT", "BiT", "hybrid")
    return {name: [(line.at, (line.flops[0], line.spent)) for (f, _), line in found.items() if f == name] for name in families}


with plots.style():
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    plots.plot_compute_scaling(points, drawn(few_shot), left)
    plots.plot_compute_scaling(points, drawn(in_distribution), right, y="test_accuracy")
    left.set(title="Other classes, few-shot", ylabel=f"{scaling.SHOTS}-shot accuracy (%)")
    right.set(title="Trained classes, unseen images", ylabel="test accuracy (%)")
    ledger.save_figure(
        study, fig, "compute_scaling",
        alt="Accuracy against training FLOPs on a log axis for ViT, ResNet and hybrid: runs, means and fitted frontiers "
        "with bands over the seeds; few-shot on other classes left, test accuracy right.",
    )  # fmt: skip
    plt.show()

# %% [markdown]
# Small points are runs, large ones the mean of a model and length; a line is the mean of the seeds' frontiers, its band their range.
# Two curves are compared along the horizontal: how much more compute the one needs for the other's accuracy.

# %%
seeds = sorted(points["seed"].unique())


def paired(compare, first, second, found=few_shot):
    """What `compare` says of two families' lines, for every seed in which they can be compared."""
    both = [(found[first, s], found[second, s]) for s in seeds]
    return [value for pair in both if (value := compare(*pair)) is not None]


logs = np.log10(paired(compute_factor, "ViT", "BiT"))
differences = 100 * np.array(paired(advantages, "hybrid", "ViT")).reshape(-1, 2)  # [seeds, least and most compute]
print(f"BiT's compute over ViT's, a seed each: {np.round(10**logs, 2)}")
print(f"hybrid − ViT at the least and at the most compute, points:\n{differences.round(1)}")

# %% [markdown]
# Speed, on this device, one core of it: all models by turns in every round, so that a slow moment is everybody's; and the largest batch.

# %%
timings = speed.speed(PRESET, seed=SEED)
speeds, batches = speed.speeds(timings), speed.batches(timings)
with plots.style():
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    plots.plot_speeds(speeds, left)
    plots.plot_largest_batches(batches, right)
    left.set_title("Speed")
    right.set_title("Memory")
    ledger.save_figure(
        study, fig, "speed",
        alt="Left: images per second of inference against input size for ViT, ResNet and hybrid, log axes, with the range of "
        "the rounds. Right: largest batch against input size.",
    )  # fmt: skip
    plt.show()

# %% [markdown]
# Equal FLOPs at one input size do not mean equal speed, and tokens make the ViT's attention grow with the fourth power of the side, everything
# else with the square. The memory of a forward pass is the largest pair of activations alive at once: a ResNet's is its first
# feature map at nearly full resolution, a ViT's the hidden layer of one MLP.
#
# ## Verdict
#
# **C07**, the horizontal distance.

# %%
def interval(values):
    return ledger.mean_interval(values) if len(values) > 1 else None


note = (
    f"{', '.join(settings.models)}; {settings.steps[0]} and {settings.steps[-1]} steps, few-shot accuracy on the world's other "
    "classes. The paper: up to thousands of exaFLOPs on JFT-300M"
)
if len(logs) == 0:
    verdict = "not testable at this scale"
    display(Markdown(f"**C07: {verdict}.** No seed has accuracies that both families reach."))
else:
    bounds = interval(logs) or (logs[0], logs[0])
    factor, low, high = (float(10**value) for value in (logs.mean(), *bounds))
    verdict = ("not reproduced", "partly reproduced", "reproduced")[(low > 1) * (1 + (factor >= 2))]
    ledger.record(study, claim="C07", metric="compute of BiT over that of ViT for equal accuracy", value=factor,
                  interval=(low, high) if len(logs) > 1 else None, n=len(logs), unit="×", verdict=verdict, note=note, table=points)  # fmt: skip
    display(Markdown(f"**C07: {verdict}.** For equal accuracy BiT needs {factor:.2f} times the compute of ViT [{low:.2f}, {high:.2f}] "
                     f"(n = {len(logs)} of {len(seeds)} seeds)."))  # fmt: skip

# %% [markdown]
# **C06**, the hybrid's advantage at both ends of the compute that both families spent.

# %%
if len(differences) < 2:
    verdict = "not testable at this scale"
    display(Markdown(f"**C06: {verdict}.** Fewer than two seeds in which both families spent as much."))
else:
    ends = [(column.mean(), interval(column)) for column in differences.T]
    decline = interval(differences[:, 0] - differences[:, 1])
    verdict = ("not reproduced", "partly reproduced", "reproduced")[(ends[0][1][0] > 0) * (1 + (decline[0] > 0))]
    for where, (mean, bounds) in zip(("least", "most"), ends, strict=True):
        ledger.record(study, claim="C06", metric=f"hybrid − ViT at the {where} compute both spent", value=mean, interval=bounds,
                      n=len(differences), unit="points", verdict=verdict, note=note, table=points)  # fmt: skip
    (small, low), (large, high) = ends
    display(Markdown(f"**C06: {verdict}.** Hybrid − ViT: {small:+.1f} points [{low[0]:.1f}, {low[1]:.1f}] at the least compute, "
                     f"{large:+.1f} [{high[0]:.1f}, {high[1]:.1f}] at the most (n = {len(differences)} seeds)."))  # fmt: skip

# %% [markdown]
# **C20**, the first ViT of the timings beside the ResNet of its compute. The ratio of speeds is taken within each round.

# %%
names = list(dict.fromkeys(speeds["model"]))
vit = next(name for name in names if plots.family(name) == "ViT")
bit = next(name for name in names if name != vit and plots.family(name) != "hybrid")
rate = speeds.pivot(index=["round", "image_size"], columns="model", values="images_per_second")
ratio = np.log(rate[vit] / rate[bit]).unstack()  # [rounds, sizes]
by_size = np.exp(ratio.median())
mean, bounds = math.exp(ratio.to_numpy().mean()), np.exp(ledger.mean_interval(ratio.mean(axis=1)))
comparable = bool(by_size.between(1 / 1.5, 1.5).all())
held = batches.pivot(index="image_size", columns="model", values="largest_batch")
memory = held[vit] / held[bit] if len(held) else pd.Series(dtype=float)
larger = bool(len(memory) and (memory > 1).all())
verdict = ("not reproduced", "partly reproduced", "reproduced")[comparable + larger]
print("ViT / BiT, images per second:", by_size.round(2).to_dict(), " largest batch:", memory.round(2).to_dict())

# %% [markdown]
# Both numbers go into the ledger: a mean over the rounds for speed, over the input sizes for memory.

# %%
sizes = f"{by_size.index[0]} to {by_size.index[-1]} px"
note = f"{vit} and {bit}, inference on one core or one GPU, {sizes}"
ledger.record(study, claim="C20", metric="images per second, ViT over BiT, geometric mean over input sizes", value=mean, interval=bounds,
              n=len(ratio), unit="×", verdict=verdict, note=note + f"; by size {by_size.round(2).to_dict()}", table=points)  # fmt: skip
if len(memory):
    logs = np.log(memory)
    ledger.record(study, claim="C20", metric="largest batch, ViT over BiT, geometric mean over input sizes", value=math.exp(logs.mean()),
                  interval=np.exp(ledger.mean_interval(logs)), n=len(memory), unit="×", verdict=verdict, note=note, table=points)  # fmt: skip
display(Markdown(f"**C20: {verdict}.** Speed of ViT over BiT {mean:.2f} [{bounds[0]:.2f}, {bounds[1]:.2f}] (n = {len(ratio)} rounds), "
                 f"{'within' if comparable else 'not within'} a factor of 1.5 at every size; largest batch "
                 f"{'larger at every size' if larger else 'not larger at every size'} ({memory.round(2).to_dict()})."))  # fmt: skip
if PRESET == "smoke":
    display(Markdown("*(`smoke` trains for a handful of steps: its numbers and verdicts mean nothing.)*"))

# %% [markdown]
# **How we differ from the paper.** A painted world and classes of the same kind instead of photographs and five transfer sets; two sizes of each
# family over little more than a decade of compute, where the paper has two decades; the frontier of a seed is two to four points.
# Batches of inference on a CPU core instead of a TPU core; there, matrix products are what the hardware is made for.

# %% [markdown]
# ## Exercises
#
# ### 1 · Table 6 from Table 1 (★, 10 min)
#
# ViT-L/32 was trained for 7 epochs on JFT (300 million images) at 224 px. How many exaFLOPs (10¹⁸) is that, at three forward passes a step
# and two FLOPs a multiply-add? Table 6 says 196.
#
# <details><summary>Hint</summary><code>vit_multiply_adds</code>, with a head of 18,291 classes; then times 2, 3, images and epochs.</details>

# %%
exaflops = 0.0
### BEGIN SOLUTION
exaflops = vit_multiply_adds(224, 32, 1024, 24, 4096, 18_291) * 2 * 3 * 300e6 * 7 / 1e18
### END SOLUTION
assert math.isclose(exaflops, 196, rel_tol=0.03)

# %% [markdown]
# ### 2 · Find the bug: multiply-adds or FLOPs? (★★, 10 min)
#
# A colleague compares the ViT's training with a ResNet's: his ViT is counted by torch (FLOPs), his ResNet comes from a paper's table
# ("4.1 GFLOPs", which are multiply-adds). He finds that a ViT needs four times the compute for equal accuracy. Repair the comparison.
#
# <details><summary>Hint</summary>A published "GFLOPs" of a ResNet-50 is 4.1; torch's counter says 8.2.</details>

# %%
vit_flops, resnet_published, epochs_vit, epochs_resnet = 2 * 17.58e9, 4.1e9, 7, 15


def ratio_with_a_bug(vit_flops, resnet_published):
    return vit_flops * epochs_vit / (resnet_published * epochs_resnet)


def compute_ratio(vit_flops, resnet_published):
    ### BEGIN SOLUTION
    return vit_flops * epochs_vit / (2 * resnet_published * epochs_resnet)
    ### END SOLUTION


assert math.isclose(ratio_with_a_bug(vit_flops, resnet_published), 4.0, rel_tol=0.01)
assert math.isclose(compute_ratio(vit_flops, resnet_published), 2.0, rel_tol=0.01)
assert math.isclose(compute_ratio(2.0, 1.0), epochs_vit / epochs_resnet)  # a ViT of 1 multiply-add is 2 FLOPs

# %% [markdown]
# ### 3 · A distance that depends on where you look (★★, 15 min)
#
# Two families' lines in logit(accuracy) over log10(compute): A is $-13 + 1.0\,x$, B is $-16 + 1.2\,x$. How many times A's compute does B need
# at 50 %, and at 90 %? Is one number for both honest?
#
# <details><summary>Hint</summary>Solve both lines for $x$ at logit 0 and at logit $\log 9$.</details>

# %%
def factor_at(accuracy):
    ### BEGIN SOLUTION
    logit = math.log(accuracy / (1 - accuracy))
    return 10 ** ((logit + 16) / 1.2 - (logit + 13) / 1.0)
    ### END SOLUTION


x = np.linspace(10, 18, 800_001)  # an independent look: where do the lines pass the accuracy?
for target in (0.5, 0.9):
    passes = [x[np.searchsorted(1 / (1 + np.exp(-(a + b * x))), target)] for a, b in ((-13, 1.0), (-16, 1.2))]
    assert math.isclose(factor_at(target), 10 ** (passes[1] - passes[0]), rel_tol=1e-3)
print(f"{factor_at(0.5):.2f} times at 50 %, {factor_at(0.9):.2f} at 90 %")

# %% [markdown]
# ### 4 · When does attention take over? (★★★, 15 min)
#
# Of a ViT's multiply-adds, those of the two products of attention grow with $T^2$. From which number of tokens on are they more than half
# of a block, for an MLP of four times the width? At which input size is that for ViT-B/16?
#
# <details><summary>Hint</summary>$2T^2D = 4TD^2 + 2TD\cdot 4D$.</details>

# %%
tokens, pixels = 0, 0
### BEGIN SOLUTION
tokens = 6 * 768
pixels = 16 * math.ceil(math.sqrt(tokens))
### END SOLUTION
excess = [2 * t**2 * 768 - (4 * t * 768**2 + 2 * t * 768 * 3072) for t in (tokens - 1, tokens)]
assert excess[0] < 0 == excess[1]  # attention's share minus the rest
assert (pixels // 16) ** 2 >= tokens > (pixels // 16 - 1) ** 2 and pixels % 16 == 0
print(f"{tokens:,} tokens, {pixels} px")

# %% [markdown]
# ## Summary
#
# - One counter for all models, or the comparison is between counters; FLOPs are two for each multiply-add.
# - Compare frontiers along the compute axis, say over which accuracies, and give the interval over seeds.
# - FLOPs are not seconds and not bytes: time models by turns, and find the largest batch by running out of memory, safely.
#
# ## References
#
# - A. Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale*, ICLR 2021: §4.4, Fig. 5,
#   Table 6, App. D.5, Fig. 12.
# - A. Kolesnikov et al., *Big Transfer (BiT): General Visual Representation Learning*, ECCV 2020.
# - M. Dehghani et al., *The Efficiency Misnomer*, ICLR 2022: FLOPs, parameters and speed disagree.
