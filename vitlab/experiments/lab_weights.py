"""Trains the bundled lab weights that notebooks 06–09 analyse, and writes their model cards (§3.1, §4.1)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vitlab import files, ledger
from vitlab.data.world import HELD_OUT, World, image_set, stream
from vitlab.models import zoo
from vitlab.sweep import presets
from vitlab.training.evaluate import evaluate
from vitlab.training.loop import train
from vitlab.training.processes import default_device
from vitlab.training.recipe import Recipe


@dataclass(frozen=True)
class StudyConfig:
    """One preset: a ViT and a hybrid that differs in the patch embedding only, which world, for how long."""

    models: dict[str, str]  # name of the bundled weights → model
    world: World
    recipe: Recipe
    n_held_out: int  # images of the final evaluation; as many others follow the training


_BUNDLED = StudyConfig(  # an hour for each on a CPU core
    {"lab": "Lab-S/8", "lab-hybrid": "R+Lab-S/8"},
    World(n_classes=10, image_size=64),
    Recipe(steps=4000, batch_size=128, learning_rate=1e-3, warmup_steps=400, eval_every=250),
    5000,
)
CONFIGS = {
    "smoke": StudyConfig(
        {"lab": "Lab-Ti/8", "lab-hybrid": "R+Lab-Ti/8"},
        World(image_size=32),
        Recipe(steps=8, batch_size=16, warmup_steps=2),
        50,
    ),
    "quick": dataclasses.replace(_BUNDLED, recipe=Recipe(steps=200, warmup_steps=20, eval_every=100), n_held_out=1000),
    "full": _BUNDLED,
    # A grid of 14 × 14 patches, as the paper's at 224 px. Written for one large GPU; not run yet.
    "gpu": dataclasses.replace(
        _BUNDLED,
        world=World(n_classes=10, image_size=112),
        recipe=Recipe(
            steps=20_000, batch_size=256, learning_rate=1e-3, warmup_steps=2_000, eval_every=1_000, precision="bf16"
        ),
    ),
}


def lab_weights(
    preset: str = "quick", seed: int = 0, jobs: int | None = None, folder: Path | None = None, which: str = "lab"
) -> pd.DataFrame:
    """Pre-train on the endless world; returns the training's rows (see `training.loop.train`).

    `which`: "lab", the ViT, or "lab-hybrid", its twin with a ResNet in front. Writes weights (safetensors, with their
    history), their card and the log into `folder`, by default figures/<preset>/<which>. The committed weights are
    those of `full`, copied to data/. It is one training, whatever `jobs`. A killed training is
    resumed.

    Raises ValueError for weights that are neither.
    """
    config = presets.choose(CONFIGS, preset)
    if which not in config.models:
        raise ValueError(f"which={which!r}: expected one of {', '.join(config.models)}")
    folder = Path(folder) if folder else files.figures_dir() / preset / which.replace("-", "_")
    world, named = config.world, config.models[which]
    device = default_device()
    model = zoo.create(named, n_classes=world.n_classes, image_size=world.image_size, head="tanh", seed=seed).to(device)
    recipe = dataclasses.replace(config.recipe, seed=seed)
    validation = image_set(world, config.n_held_out, HELD_OUT + config.n_held_out, device)  # not those of the card
    rows = train(
        model,
        stream(world, recipe.batch_size, device),
        recipe,
        validation=validation,
        folder=folder,
        save_every=250,
        identity=dataclasses.asdict(world),
        report=lambda row: print(f"step {row['step']}: held-out accuracy {row['val_accuracy']:.3f}", flush=True),
    )
    held_out = evaluate(model, image_set(world, config.n_held_out, HELD_OUT, device))
    about = {
        "world": dataclasses.asdict(world),
        "recipe": dataclasses.asdict(recipe),
        "held_out": held_out | {"n": config.n_held_out},
        "preset": preset,
        "provenance": ledger.provenance(rows[-1]["seconds"]),
    }
    name = zoo.BUNDLED[which]
    zoo.save(folder / name, model, named, about)
    with files.writing((folder / name).with_suffix(".md")) as path:
        path.write_text(model_card(name, named, about), encoding="utf-8")
    return pd.DataFrame(rows)


def model_card(name: str, model: str, about: dict) -> str:
    """The model card as Markdown, from what the weights' own metadata says."""
    world, recipe, held_out, made = about["world"], about["recipe"], about["held_out"], about["provenance"]
    accuracy, n = held_out["accuracy"], held_out["n"]
    margin = 1.96 * math.sqrt(accuracy * (1 - accuracy) / n)
    strengths = ", ".join(f"{key} {value}" for key, value in sorted(world.items()) if isinstance(value, float))
    hybrid = name == zoo.BUNDLED["lab-hybrid"]
    what = "the hybrid twin of the small Vision Transformer" if hybrid else "the small Vision Transformer"
    of, use = (" --set which=lab-hybrid", "lab-hybrid") if hybrid else ("", "lab")
    preset = "full" if about["preset"] == "rehearsal" else about["preset"]  # its name when the weights were made
    return f"""# {name}

**What it is.** {model} of `vitlab.models.zoo` for {world["image_size"]}-pixel images, with the paper's tanh
pre-training head (§3.1): {what} that notebooks 06–09 look at.

**Trained on** the procedural world (`vitlab.data.world`): {world["n_classes"]} classes, world seed {world["seed"]},
strengths {strengths}. {recipe["steps"] * recipe["batch_size"]:,} images, none seen twice; no photograph, no person,
nothing downloaded.

**Recipe.** AdamW, {recipe["steps"]} steps of {recipe["batch_size"]} images, learning rate {recipe["learning_rate"]},
{recipe["warmup_steps"]} steps of warm-up, {recipe["decay"]} decay, weight decay {recipe["weight_decay"]}, gradient
norm clipped at {recipe["grad_clip"]}, no dropout, seed {recipe["seed"]}.

**Result.** Held-out accuracy {accuracy:.1%} ± {margin:.1%} (95 %, {n} images the training never saw; chance is
{1 / world["n_classes"]:.0%}).

**Made by** `vitlab experiment lab_weights --preset {preset}{of}`; code {made["code_hash"][:12]}, torch
{made["versions"]["torch"]}, {made["device"]}, {made["wall_s"] / 60:.0f} minutes of training on
{made["threads"]} thread(s). The file's metadata holds all of this.

**Use it** to look at what a trained ViT does (`WEIGHTS = "{use}"`). **Do not use it** to recognise photographs: it has
never seen one. Licence: Apache-2.0, as the project.
"""
