"""Trains the bundled lab weights that notebooks 06–10 look at, and writes their model cards (§3.1, §4.1, §4.6)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

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


@dataclass(frozen=True)
class StudyConfig:
    """One preset: for the name of each bundled model its trainings, of which each goes on from the one before."""

    trainings: dict[str, tuple[Session, ...]]


def _config(masked: Session, labels: Session, world: Session, vit: str, hybrid: str) -> StudyConfig:
    """The ViT and the hybrid are trained alike, by masked prediction and then with labels."""
    ours, twin = (tuple(dataclasses.replace(each, model=model) for each in (masked, labels)) for model in (vit, hybrid))
    return StudyConfig({"lab": ours, "lab-masked": ours[:1], "lab-hybrid": twin, "lab-world": (world,)})


_MASKED = Session(
    "",
    "imagenette",
    Recipe(steps=6_400, batch_size=32, learning_rate=1.5e-3, warmup_steps=300, eval_every=320, precision="bf16"),
    CROPPED,
    image_size=96,
    objective="masked",
)
_LABELS = Session(
    "",
    "imagenette",
    Recipe(
        steps=1_500,
        batch_size=128,
        learning_rate=1e-3,
        warmup_steps=100,
        label_smoothing=0.1,
        eval_every=150,
        precision="bf16",
    ),
    CROPPED,
    image_size=96,
)
_WORLD = Session(
    "Lab-S/8",
    "world",
    Recipe(steps=4_500, batch_size=64, learning_rate=1e-3, warmup_steps=400, eval_every=300, precision="bf16"),
    image_size=96,
    head="tanh",
)
CONFIGS = {
    "smoke": _config(
        Session("", "photographs", Recipe(steps=4, batch_size=16, warmup_steps=2), objective="masked"),
        Session("", "digits", Recipe(steps=4, batch_size=16, warmup_steps=2)),
        Session("Lab-Ti/8", "world", Recipe(steps=8, batch_size=16, warmup_steps=2), head="tanh"),
        "Lab-Ti/8",
        "R+Lab-Ti/8",
    ),
    "full": _config(_MASKED, _LABELS, _WORLD, "Lab-M/8", "R+Lab-M/8"),
}


def lab_weights(preset: str = "full", seed: int = 0, folder: Path | None = None, which: str = "lab") -> pd.DataFrame:
    """Train one of the bundled models; returns the rows of its last training (see `training.loop.train`).

    `which`: "lab-masked", a ViT that predicts hidden patches of photographs; "lab", the same with labels afterwards;
    "lab-hybrid", its twin with a ResNet in front, trained alike; "lab-world", a smaller ViT of the painted world. Its
    weights (safetensors, with their history) and their card are written into `folder`, by default
    figures/out/<preset>/lab_weights, beside a folder for each training. The committed weights, those of `full`, are
    copied to data/. A killed training is resumed, a finished one not repeated.

    Raises ValueError for other names, FileNotFoundError where the photographs are missing (see `datasets.load`).
    """
    trainings = _trainings(which, preset)
    folder = Path(folder) if folder else paths.out_dir(preset) / "lab_weights"
    done: list[dict[str, Any]] = []
    rows: list[dict] = []
    for each in trainings:
        recipe = dataclasses.replace(each.recipe, seed=seed)
        last = dataclasses.replace(each, recipe=recipe, weights=done[-1]["weights"] if done else "")
        training = folder / f"{each.model}-{each.data}-{each.objective}".replace("/", "_")
        rows = session.run(last, training, save_every=50)
        done.append({"session": last, "row": rows[-1], "weights": str(training / checkpoint.WEIGHTS)})
    made = store.made_by()
    provenance = {"git": {"revision": made["commit"]}, "versions": {"torch": made["torch"]}, "device": made["device"]}
    provenance |= {"created": made["date"], "wall_s": round(sum(one["row"]["seconds"] for one in done), 2)}
    about = {
        "which": which,
        "preset": preset,
        "trainings": [_told(**one) for one in done],
        "provenance": provenance,
    }
    loaded = zoo.load(done[-1]["weights"])
    if last.objective == "labels":
        test = session.prepare(last, default_device())[2]
        about["held_out"] = evaluate(loaded.model, test) | {"n": len(test)}
    zoo.save(folder / zoo.BUNDLED[which], loaded.model, loaded.name, about)
    with paths.writing((folder / zoo.BUNDLED[which]).with_suffix(".md")) as path:
        path.write_text(model_card(which, loaded.name, about), encoding="utf-8")
    return pd.DataFrame(rows)


def _trainings(which: str, preset: str) -> tuple[Session, ...]:
    if preset not in CONFIGS:
        raise ValueError(f"preset {preset!r}: choose one of {', '.join(CONFIGS)}")
    config = CONFIGS[preset]
    if which not in config.trainings:
        raise ValueError(f"which={which!r}: expected one of {', '.join(config.trainings)}")
    return config.trainings[which]


def _told(session: Session, row: dict, weights: str) -> dict[str, Any]:
    """A training as plain values: what it was on, how, and what its evaluation gave."""
    result = {name: row[name] for name in ("val_accuracy", "val_loss", "seconds", "flops", "peak_memory_gb")}
    return _described(session) | {"result": result}


def _described(session: Session) -> dict[str, Any]:
    parts = {"recipe": dataclasses.asdict(session.recipe), "augmentation": dataclasses.asdict(session.augmentation)}
    kept = ("model", "data", "image_size", "head", "objective", "target", "masked")
    return {name: getattr(session, name) for name in kept} | parts


_DATA = {
    "imagenette": "Imagenette (9,469 photographs of ten classes of ImageNet, short side 128 pixels; fast.ai)",
    "photographs": "crops of three photographs that come with the dependencies",
    "digits": "scikit-learn's digits",
    "world": "the painted world (`vitlab.data.world`), no image of which is seen twice",
}
_WHAT = {
    "lab": "the small Vision Transformer that notebooks 06–09 look at",
    "lab-masked": "the same ViT as `lab`, before its training with labels",
    "lab-hybrid": "the hybrid that goes with `lab`: as large an encoder behind a ResNet, trained in the same two steps",
    "lab-world": "a narrower ViT, trained on images whose objects have masks (notebook 09)",
}


def model_card(which: str, model: str, about: dict) -> str:
    """The model card as Markdown, from what the weights' own metadata says."""
    made, trainings = about["provenance"], about["trainings"]
    last = trainings[-1]
    unseen = "knows ten classes only" if last["data"] == "imagenette" else "has never seen a photograph"
    if last["objective"] == "masked":
        unseen = "was trained without labels and has no classifier"
    steps = "\n".join(f"{number}. {_training_told(each)}" for number, each in enumerate(trainings, 1))
    return f"""# {zoo.BUNDLED[which]}

**What it is.** {model} of `vitlab.models.zoo`, images of {last["image_size"]} × {last["image_size"]} pixels:
{_WHAT[which]}.

**Trained** {"in two steps, the second from the first's weights" if len(trainings) > 1 else "once"}:

{steps}

**Result.** {_result_told(about)}

**Made by** `vitlab.studies.bundled.lab_weights("{about["preset"]}", which="{which}")`, commit
{made["git"]["revision"][:12]}, torch {made["versions"]["torch"]}, {made["device"]}, {made["wall_s"] / 60:.0f} minutes
of training. The file's metadata holds all of this.

**Use it** to look at what a trained ViT does (`WEIGHTS = "{which}"`). **Do not use it** to recognise photographs: it
{unseen}. Licence: Apache-2.0, as the project; none of the images is in it.
"""


def _training_told(training: dict) -> str:
    recipe, crop = training["recipe"], training["augmentation"]
    how = "with labels"
    if training["objective"] == "masked":
        how = f"by masked patch prediction (App. B.1.2; {training['masked']:.0%} hidden, target {training['target']})"
    low, high = crop["area"]
    images = [f"random crops of {low:.0%} to {high:.0%} of the area"] * (crop["crop"] != "none")
    images += ["half of them flipped"] * crop["flip"] + [f"mixup {crop['mixup']}"] * (crop["mixup"] > 0)
    smoothing = f", label smoothing {recipe['label_smoothing']}" if recipe["label_smoothing"] else ""
    return (
        f"On {_DATA[training['data']]}, {how}: {recipe['steps'] * recipe['batch_size']:,} views"
        f"{', '.join(['', *images])}. AdamW, {recipe['steps']:,} steps of {recipe['batch_size']}, "
        f"learning rate {recipe['learning_rate']}, {recipe['warmup_steps']} steps of warm-up, {recipe['decay']} decay, "
        f"weight decay {recipe['weight_decay']}, gradient norm clipped at {recipe['grad_clip']}{smoothing}, "
        f"{recipe['precision']}, seed {recipe['seed']}; {training['result']['seconds'] / 60:.0f} minutes."
    )


def _result_told(about: dict) -> str:
    if "held_out" not in about:
        accuracy = about["trainings"][-1]["result"]["val_accuracy"]
        return f"Of the hidden patches of test photographs {accuracy:.1%} get the right one of 512 colours."
    accuracy, n = about["held_out"]["accuracy"], about["held_out"]["n"]
    low, high = stats.binomtest(round(accuracy * n), n).proportion_ci(method="wilson")
    return (
        f"Accuracy on {n:,} test images that no training saw: {accuracy:.1%} (95 % interval {low:.1%} to {high:.1%})."
    )
