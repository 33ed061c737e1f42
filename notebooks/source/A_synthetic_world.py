# ---
# jupyter:
#   jupytext: {text_representation: {extension: .py, format_name: percent}}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A · The synthetic world
#
# **An unlimited supply of images whose classes, masks and difficulty are known exactly: what stands here for the 303 million
# photographs that the paper's largest models saw and nobody else can.**

# %% tags=["parameters"]
PRESET = "quick"
SEED = 0

# %% [markdown]
# Imports.

# %%
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vitlab import claims, plots
from vitlab.data.world import CUES, HELD_OUT, World, image_set, scene, with_cues, with_difficulty

page = claims.begin("A_synthetic_world", PRESET, SEED)


def rendered(worlds, indices):
    """Images [world, image, height, width, 3] of these numbers, and the masks of their objects."""
    made = [scene(each, indices) for each in worlds]
    images = torch.stack([images for images, _, _ in made]).permute(0, 1, 3, 4, 2)
    return images.numpy(), torch.stack([masks for _, _, masks in made]).numpy()

# %% [markdown]
# A class is a closed contour with a texture and two colours. Each image shows one object of its class at a random position,
# rotation, size and lighting, before noise, behind and beside others. The **difficulty** scales all these variations.

# %%
world, strengths = World(image_size=64, seed=SEED), (0.0, 0.5, 1.0, 1.5)
images, masks = rendered([with_difficulty(world, each) for each in strengths], torch.arange(8))
alt = "Images of the world, a column a class, a row a difficulty: from centred objects on an empty "
alt += "background to rotated, shaded and partly hidden ones. Outlines mark the masks."
with plots.figure(page, "world", alt=alt, figsize=(9, 4.9)) as ax:
    plots.plot_scenes(images, masks, [f"difficulty\n{each:g}" for each in strengths], ax)
    covered = masks[2].mean()
    ax.set_title(f"One image of each of eight classes; objects cover {covered:.0%} at difficulty 1")

# %% [markdown]
# The outline is the object's **mask**, of what can be seen of it. It is what chapter 08 compares attention with.
#
# ## Every image has a number
#
# Image $i$ of a world is the same on every machine, and its class is $i$ modulo the number of classes. So a set of $n$
# images is the first $n$ and contains every smaller one, a seed is a range of numbers, and test images are a range that no
# training reaches.

# %%
first, again = (scene(world, number)[0] for number in (torch.arange(8), torch.arange(8)))
assert torch.equal(first, again)
assert int(scene(world, torch.tensor([1_234]))[1]) == 1_234 % world.n_classes
print(f"test images begin at number {HELD_OUT:,}")

# %% [markdown]
# ### 1 · Find the bug: a test that is too easy (★★, 5 min)
#
# *Importance: overlapping ranges are the leak of synthetic data.* A student trains on the first 500 images and tests on
# `image_set(small, 200, start=400)`. Make a set `test` of the first 200 images that no training set will ever contain.
#
# <details><summary>Hint</summary>Which numbers are in both? One constant above says where test images begin.</details>
#
# *Expected output: none. Common bug: start=500, which a larger training set contains.*

# %%
small = World(n_classes=7, image_size=32, seed=5)
train = image_set(small, 500)
### BEGIN SOLUTION
test = image_set(small, 200, start=HELD_OUT)
### END SOLUTION

seen = {image.numpy().tobytes() for image in train.images}
assert len(test) == 200 and not any(image.numpy().tobytes() in seen for image in test.images)
assert torch.equal(test.images[0], scene(small, torch.tensor([2**40]))[0][0])

# %% [markdown]
# ## Four cues
#
# Four things can tell classes apart: contour, texture, colour, and the *arrangement* of parts (discs that are alike in all
# classes; only their places differ). Texture and colour are local: one patch shows them. Contour and arrangement are
# global. Which of them would a ViT without position embeddings miss?

# %%
of_class = torch.arange(0, 8 * world.n_classes, world.n_classes)  # eight images of class 0
images, masks = rendered([with_difficulty(with_cues(world, cue), 0.3) for cue in CUES], of_class)
alt = "Images of one class in four worlds, a row each: told by one cue alone."
with plots.figure(page, "cues", alt=alt, figsize=(9, 4.9)) as ax:
    plots.plot_scenes(images, masks, [f"{cue}\nalone" for cue in CUES], ax)
    ax.set_title("Eight images of one class: what they share is the cue")

# %% [markdown]
# Everything but the cue is drawn anew for each image. Chapter 10 uses contour and arrangement alone, for there a patch must
# know where it is.
#
# ## How hard is it?
#
# A linear probe on raw pixels tells how much of a cue can be read without learning any features. At difficulty 0 objects
# stand still; then they move:

# %%
n_train, n_test = {"smoke": (40, 40)}.get(PRESET, (1_000, 500))
read = {}
for cue in CUES:
    for factor in (0.0, 0.3, 1.0):
        made = with_difficulty(with_cues(World(10, 16), cue), factor)
        sets = image_set(made, n_train), image_set(made, n_test, start=HELD_OUT)
        (x, y), (test_x, test_y) = ((s.images.flatten(1) / 255, s.labels) for s in sets)
        fitted = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200)).fit(x, y)
        read[cue, factor] = fitted.score(test_x, test_y)
shown = pd.Series(read).unstack()
shown.columns.name = "difficulty"
shown.style.format("{:.0%}").format_index("{:g}", axis=1)

# %% [markdown]
# Chance is 10 %. While objects stand still, raw pixels tell where parts are and which colour, and hardly contour or texture,
# since all else changes from image to image. As objects move, turn and hide, all but colour falls to chance: from there on
# a model must learn features.
#
# ### 2 · Area of a mask (★, 5 min)
#
# *Importance: attention on an object means something only against the object's area.* From masks [B, height, width] (bool)
# return the share of each image that is object.
#
# <details><summary>Hint</summary>A mean of booleans needs another type first.</details>
#
# *Expected output: the smallest and largest share. Common bug: one number for the whole batch.*

# %%
def area(masks):
    ### BEGIN SOLUTION
    return masks.float().mean(dim=(1, 2))
    ### END SOLUTION


_, _, masks = scene(world, torch.arange(16))
assert torch.allclose(area(masks), torch.tensor([m.sum().item() / m.numel() for m in masks]))
print(f"{area(masks).min():.0%} to {area(masks).max():.0%}")

# %% [markdown]
# ### 3 · A world of your own (★★, 10 min)
#
# *Importance: a study starts with the question that its data can answer.* Make a `mine` of 5 classes and 48 px in which
# texture alone tells the class and nothing hides the object: no occlusion, no distractors.
#
# <details><summary>Hint</summary><code>with_cues</code>, and the fields of <code>World</code>.</details>
#
# *Expected output: none. Common bug: to set texture=1 and leave the other cues on.*

# %%
mine = None
### BEGIN SOLUTION
mine = with_cues(World(n_classes=5, image_size=48, occlusion=0.0, distractors=0.0), "texture")
### END SOLUTION
assert (mine.n_classes, mine.image_size, mine.occlusion, mine.distractors) == (5, 48, 0.0, 0.0)
assert [getattr(mine, cue) for cue in CUES] == [float(cue == "texture") for cue in CUES]

# %% [markdown]
# ## What it can stand for, and what not
#
# It can show how a model spends data: whether it overfits, which cue it uses, where it looks, how structure comes about.
# It cannot say how much a photograph is worth: textures are simple, shapes few, and no object has a meaning. Wherever
# photographs decide, the chapters use CIFAR-10 and Imagenette, or models that others trained on ImageNet.
#
# **Open questions.** Which cue would a convolution prefer to a ViT? What is the least variety with which local heads form?
#
# ## References
#
# - H. Kataoka et al., *Pre-training without Natural Images*, ACCV 2020.
# - R. Geirhos et al., *ImageNet-trained CNNs are biased towards texture*, ICLR 2019.
