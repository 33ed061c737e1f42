"""Does attention rollout fall on the object? Its mass inside the world's object masks (§4.5, Fig. 6, 14, App. D.8)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from torch import Tensor

from vitlab.analysis.capture import grid_size, n_prefix_tokens, reduce_attention
from vitlab.analysis.geometry import reads_class_token
from vitlab.analysis.masks import area_share, mass_inside, pointing_chance, pointing_hit
from vitlab.analysis.rollout import rollout_reducer
from vitlab.experiments.subjects import pictures_hash, weights_hash, world_at
from vitlab.ledger.intervals import mean_interval
from vitlab.models import zoo
from vitlab.sweep import presets, runner
from vitlab.training.processes import default_device


@dataclass(frozen=True)
class StudyConfig:
    """One preset: numbers of images and of untrained control models."""

    n_images: int
    n_controls: int
    batch_size: int = 32


CONFIGS = {"smoke": StudyConfig(16, 1), "quick": StudyConfig(256, 2), "full": StudyConfig(512, 5)}


def rollout_masks(
    preset: str = "quick",
    seed: int = 0,
    jobs: int | None = None,
    folder: Path | None = None,
    *,
    weights: str = "lab",
) -> pd.DataFrame:
    """How much of the rollout, and of the last block's raw attention, lies on the object, per model and image.

    The images are held-out ones of the world, painted at the model's size, with exact masks of the visible part of
    the labelled object.

    Args:
        seed: which images, and of the untrained controls' fresh weights.
        jobs: worker processes; None: in this process, because a run takes less time than starting a worker.
        weights: whatever `zoo.load` takes.

    Returns:
        One row per model ("trained", "untrained"), `model_seed`, `image` and method ("rollout", "last block"):
        `mass` inside the mask and the mask's `area` (shares, 0…1), `shuffled_mass` and `shuffled_area` with the mask
        of another image, `hit` (pointing game, 0 or 1) and `chance` (of a random patch to hit).

    Raises:
        ValueError: an unknown preset, weights that cannot be used, or a model whose attention cannot be had.
    """
    config = presets.choose(CONFIGS, preset)
    size = zoo.load(weights).image_size
    common = {
        "weights": weights,
        "weights_hash": weights_hash(weights),
        "data_hash": pictures_hash(list(world_at(size, config.n_images, seed).images)),
        "n_images": config.n_images,
        "batch_size": config.batch_size,
        "seed": seed,
    }
    models = [("trained", seed), *(("untrained", seed + k) for k in range(config.n_controls))]
    configs = [{**common, "model": model, "model_seed": model_seed} for model, model_seed in models]
    folder = folder or runner.run_folder("rollout_masks", preset)
    return runner.run_all(run_one, configs, folder, 1 if jobs is None else jobs)


def run_one(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Rollout and last-block attention of one model against the masks of all images."""
    untrained = config["model"] == "untrained"
    pretrained = zoo.load(config["weights"], untrained=untrained, seed=config["model_seed"])
    pictures = world_at(pretrained.image_size, config["n_images"], config["seed"])
    model = pretrained.model.to(default_device())
    parts = [
        both_maps(model, pretrained.prepare(part).to(default_device()))
        for part in pictures.images.split(config["batch_size"])
    ]
    rows, masks = [], cast(Tensor, pictures.masks)  # the world's images have them
    for method in ("rollout", "last block"):
        maps = torch.cat([part[method] for part in parts]).cpu()
        rows += _rows(method, maps, masks)
    return rows


def both_maps(model: torch.nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Rollout and the last block's attention from where the head reads, [B rows cols] each, from one forward.

    >>> import timm
    >>> maps = both_maps(timm.create_model("test_vit"), torch.zeros(1, 3, 160, 160))
    >>> {name: tuple(each.shape) for name, each in maps.items()}
    {'rollout': (1, 10, 10), 'last block': (1, 10, 10)}
    """
    grid, n_prefix, class_token = grid_size(model, images), n_prefix_tokens(model), reads_class_token(model)
    update, finish = rollout_reducer(grid, n_prefix, class_token)

    def class_rows(block: int, attn: Tensor) -> Tensor | None:
        if block < len(model.blocks) - 1:
            return None
        rows = attn[:, :, :1] if class_token else attn[:, :, n_prefix:]
        return rows[..., n_prefix:].mean(2)  # [B h patches], h: the heads of this call

    by_block = reduce_attention(model, images, {"rollout": update, "last block": class_rows}, by_heads=True)
    return {"rollout": finish(), "last block": by_block["last block"][-1].mean(1).unflatten(-1, grid)}


def _rows(method: str, maps: Tensor, masks: Tensor) -> list[dict[str, Any]]:
    """One row per image. The other image's mask is the next image's, whose class is another."""
    others = masks.roll(-1, 0)
    columns = {
        "mass": mass_inside(maps, masks),
        "area": area_share(masks),
        "shuffled_mass": mass_inside(maps, others),
        "shuffled_area": area_share(others),
        "hit": pointing_hit(maps, masks).float(),
        "chance": pointing_chance(masks, (maps.shape[1], maps.shape[2])),
    }
    return [
        {"method": method, "image": image} | {name: round(values[image].item(), 6) for name, values in columns.items()}
        for image in range(len(maps))
    ]


def per_image(table: pd.DataFrame) -> pd.DataFrame:
    """One row per method and image, with the untrained controls averaged, for paired comparisons.

    Columns, as differences of shares: `trained` and `untrained` (mass − area), `shuffled` (the trained model's with
    another image's mask), and for the pointing game `hit` − `chance` as `trained_hit`, `untrained_hit`.
    """
    excess = pd.DataFrame(
        {
            **{name: table[name] for name in ("model", "method", "image")},
            "excess": table["mass"] - table["area"],
            "shuffled": table["shuffled_mass"] - table["shuffled_area"],
            "hit": table["hit"] - table["chance"],
        }
    )
    means = excess.groupby(["model", "method", "image"], sort=False).mean()
    trained, untrained = means.loc["trained"], means.loc["untrained"]
    differences = pd.DataFrame(
        {
            "trained": trained["excess"],
            "untrained": untrained["excess"],
            "shuffled": trained["shuffled"],
            "trained_hit": trained["hit"],
            "untrained_hit": untrained["hit"],
        }
    )
    return differences.reset_index()


def comparisons(pairs: pd.DataFrame, method: str = "rollout", seed: int = 0) -> pd.DataFrame:
    """Means over images of the quantities that decide claim C14, with 95 % intervals; named in `what`, in shares.

    The first three are a model's or a control's mass − area; the differences after them are paired by image.
    """
    own = pairs[pairs["method"] == method].sort_values("image").reset_index(drop=True)
    last = pairs[pairs["method"] == "last block"].sort_values("image").reset_index(drop=True)
    quantities = {
        "trained": own["trained"],
        "untrained": own["untrained"],
        "another image's mask": own["shuffled"],
        "trained − untrained": own["trained"] - own["untrained"],
        "trained − another mask": own["trained"] - own["shuffled"],
        "rollout − last block": own["trained"] - last["trained"],
    }
    rows = []
    for what, values in quantities.items():
        low, high = mean_interval(values.to_numpy()) or (values.mean(),) * 2
        rows.append({"what": what, "mean": values.mean(), "low": low, "high": high, "n": len(values)})
    return pd.DataFrame(rows)
