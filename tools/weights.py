"""For maintainers: trains the bundled lab weights that notebooks 06–10 look at (§3.1, §4.1, §4.6).

python -m tools.weights lab    or lab-masked, lab-world; what it writes is copied to data/ by hand, where a card says
                               how each was made
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from vitlab import paths
from vitlab.data.augment import Augmentation
from vitlab.models import zoo
from vitlab.settings import default_device
from vitlab.studies import store
from vitlab.training import checkpoint, session
from vitlab.training.loop import evaluate
from vitlab.training.recipe import Recipe
from vitlab.training.session import Session

CROPPED = Augmentation(crop="inception", area=(0.35, 1.0), flip=True)  # of photographs


def _trainings(masked: Session, labels: Session, world: Session) -> dict[str, tuple]:
    """List each model's trainings: a ViT by masked prediction, and then with labels; another on the world."""
    return {"lab": (masked, labels), "lab-masked": (masked,), "lab-world": (world,)}


EMBED_SCALE = 1 / 8  # of LeCun's, at the start of masked prediction: else what looks like noise in the filters stays
_MASKED = Recipe(6_400, 32, learning_rate=1.5e-3, warmup_steps=300, eval_every=320)
_LABELS = Recipe(  # gentle: at 1e-3 no local head is left
    900, 128, learning_rate=3e-4, warmup_steps=90, label_smoothing=0.1, eval_every=150
)
_WORLD = Recipe(4_500, 64, learning_rate=1e-3, warmup_steps=400, eval_every=300, precision="bf16")
_FEW = Recipe(4, 16, warmup_steps=2)
TRAININGS = {  # preset → name of a bundled model → its trainings, of which each starts from the one before
    "smoke": _trainings(
        Session("Lab-Ti/8", "photographs", _FEW, objective="masked"),
        Session("Lab-Ti/8", "digits", _FEW),
        Session("Lab-Ti/8", "world", dataclasses.replace(_FEW, steps=8), head="tanh"),
    ),
    "full": _trainings(
        Session("Lab-M/8", "imagenette", _MASKED, CROPPED, image_size=96, objective="masked"),
        Session("Lab-M/8", "imagenette", _LABELS, CROPPED, image_size=96),
        Session("Lab-S/8", "world", _WORLD, image_size=96, head="tanh"),
    ),
}


def small_start(each: Session, path: Path) -> str:
    """Write the fresh weights of a masked training with its patch embedding at `EMBED_SCALE`; returns the path."""
    model = zoo.create(each.model, image_size=each.image_size, seed=each.recipe.seed)
    with torch.no_grad():
        model.patch_embed.proj.weight.mul_(EMBED_SCALE)
    zoo.save(path, model, each.model, {})
    return str(path)


def lab_weights(which: str, preset: str = "full", seed: int = 0, folder: Path | None = None) -> pd.DataFrame:
    """Train one of the bundled models; returns the rows of its last training (see `training.loop.train`).

    `which`: "lab-masked", a ViT that predicts hidden patches of photographs; "lab", the same with labels afterwards;
    "lab-world", a smaller ViT of the synthetic world. Its weights (safetensors, which say how they were made) are
    written into `folder`, by default figures/out/<preset>/lab_weights, next to a folder for each training. A killed
    training is resumed, a finished one not repeated.
    """
    folder = folder or paths.out_dir(preset) / "lab_weights"
    weights = ""
    trainings: list[dict[str, Any]] = []
    for each in TRAININGS[preset][which]:
        last = dataclasses.replace(each, recipe=dataclasses.replace(each.recipe, seed=seed), weights=weights)
        training = folder / f"{each.model}-{each.data}-{each.objective}".replace("/", "_")
        kept = ("model", "data", "image_size", "head", "objective", "target", "masked")
        about = {name: getattr(last, name) for name in kept}
        if each.objective == "masked":
            last = dataclasses.replace(last, weights=small_start(last, training.with_suffix(".start.safetensors")))
            about["embed_scale"] = EMBED_SCALE
        rows = session.run(last, training, save_every=50)
        weights = str(training / checkpoint.WEIGHTS)
        about |= {"recipe": dataclasses.asdict(last.recipe), "augmentation": dataclasses.asdict(last.augmentation)}
        measured = ("val_accuracy", "val_loss", "seconds", "flops")
        trainings.append(about | {"result": {name: rows[-1][name] for name in measured}})
    made, wall_s = store.made_by(), round(sum(each["result"]["seconds"] for each in trainings), 2)
    provenance = {"git": {"revision": made["commit"]}, "versions": {"torch": made["torch"]}, "device": made["device"]}
    provenance |= {"created": made["date"], "wall_s": wall_s}
    about = {"which": which, "preset": preset, "trainings": trainings, "provenance": provenance}
    loaded = zoo.load(weights)
    if last.objective == "labels":
        test = session.prepare(last, default_device())[2]["validation"]
        about["held_out"] = evaluate(loaded.model, test) | {"n": len(test)}
    zoo.save(folder / zoo.BUNDLED[which], loaded.model, loaded.name, about)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(lab_weights(sys.argv[1]).tail(1).to_string())
