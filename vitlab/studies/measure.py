"""Measures of given weights next to untrained controls: filters, features, positions, distance, rollout (§4.5)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitlab import paths
from vitlab.analysis import filters as filter_analysis
from vitlab.analysis import positions as position_analysis
from vitlab.analysis.attention import grid_size, n_prefix_tokens, patch_stride, read_weights, reduce_attention
from vitlab.analysis.distance import DISTANCE_COLUMNS, HEAD_COLUMNS, depth_trend, head_reducer, head_spread
from vitlab.analysis.lens import kept_probability, logit_lens
from vitlab.analysis.masks import area_share, mass_inside, pointing_chance, pointing_hit
from vitlab.analysis.rollout import rollout_reducer
from vitlab.data import datasets
from vitlab.data.loader import ImageSet
from vitlab.data.world import HELD_OUT, World, image_set
from vitlab.models import zoo
from vitlab.models.weights import check_plain
from vitlab.models.zoo import Pretrained
from vitlab.settings import default_device
from vitlab.studies import tables
from vitlab.studies.statistics import summary

N_COMPONENTS = 28  # Fig. 7 left shows 4 × 7
POSITION_MEASURES = ("rank correlation", "row excess", "column excess")
CROPS = "crops"  # of the photographs that come with the dependencies
SIZES: dict[str, dict[str, dict[str, int]]] = {  # preset → measure → numbers of images, controls
    preset: {"filters": few} | {"distances": {"n_images": n} | controls, "rollout": {"n_images": 2 * n} | controls}
    for preset, n, few, controls in (
        ("smoke", 8, {"n_untrained": 3}, {"n_controls": 1}),
        ("quick", 32, {}, {"n_controls": 1}),
        ("full", 128, {}, {}),
    )
}


# --- images -----------------------------------------------------------------------------------------------------------
def image_source(pretrained: Pretrained) -> str:
    """Name images like those that a lab model was trained on, "crops" or "world"; for other models "photographs"."""
    if "Lab-" not in pretrained.name:
        return "photographs"
    trainings = pretrained.about.get("trainings", [{"data": "world"}])
    return "world" if trainings[-1]["data"].startswith("world") else CROPS


def load_pictures(pretrained: Pretrained, images: str, count: int, seed: int = 0) -> list[Tensor]:
    """Load at most `count` pictures [3 H W] of bytes, for `pretrained.prepare`.

    `images`: "world", held-out images at the model's size; "crops" of that size from three photographs' test parts;
    "photographs" whole; or a data set, of whose test images `seed` draws some.
    """
    side = max(pretrained.image_size)
    if images == "world":
        return list(world_at(pretrained.image_size, count, seed).images)
    if images == CROPS:
        return list(datasets.photograph_set(count, side, seed=seed).images)
    if images == "photographs":
        return [picture for _, picture in datasets.photographs(limit=count)]
    available = datasets.load(images, "test", image_size=side).images
    return list(available[torch.randperm(len(available), generator=torch.Generator().manual_seed(seed))[:count]])


def world_at(size: tuple[int, int], count: int, seed: int = 0) -> ImageSet:
    """Make held-out images of the world with their masks, (height, width) pixels: the middle of a square."""
    side = max(size)
    square = image_set(World(image_size=side), count, HELD_OUT + seed * count)
    top, left = (side - size[0]) // 2, (side - size[1]) // 2
    kept = (..., slice(top, top + size[0]), slice(left, left + size[1]))
    return ImageSet(square.images[kept], square.labels, square.classes, cast(Tensor, square.masks)[kept])  # has masks


def load_for(chapter: str, weights: str, name: str = "WEIGHTS") -> Pretrained:
    """Load the model that a chapter's parameter names; ValueError, with what the chapter needs, for one without it."""
    pretrained, needed = zoo.load(weights), "attention between all tokens, one matrix a head, in every block"
    vit, pixels = pretrained.model, torch.randint(256, (1, 3, *pretrained.image_size), generator=torch.Generator())
    try:
        with torch.no_grad():
            x = pretrained.prepare(pixels.byte())
            if chapter.startswith("01"):
                needed = "Eq. 1–4 and no more (class token, learned positions, plain blocks, a linear head)"
                check_plain(vit, x)
            elif chapter.startswith("06"):
                needed = "filters over RGB pixels and a learned position for each patch"
                filter_analysis.embedding_filters(vit), position_analysis.position_similarity(vit)
            else:
                both_maps(vit, x)
            if name == "WORLD_WEIGHTS" and (n := logit_lens(vit, x).shape[-1]) != World.n_classes:
                raise ValueError(f"this one tells {n} classes apart, not the world's {World.n_classes}")
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:  # of any model's code
        needed += " (take vit_tiny_patch16_224)" if name == "WEIGHTS" else ", and a head for one token (take lab-world)"
        raise ValueError(f"{name}={weights} is not for chapter {chapter[:2]}: it needs {needed}; {error}") from None
    return pretrained


def view(pretrained: Pretrained, pictures: Sequence[Tensor], side: int = 160) -> Float[Tensor, "B H W 3"]:
    """Cut pictures [3 H W] of bytes as the model sees them, values 0…1: at a whole multiple of its size near `side`."""
    height, width = pretrained.image_size
    room = min(min(picture.shape[1] / height, picture.shape[2] / width) for picture in pictures)
    times = max(1, min(round(side / max(height, width)), int(room / pretrained.crop)))
    size = times * height, times * width
    larger = dataclasses.replace(pretrained, image_size=size, mean=(0.0,) * 3, std=(1.0,) * 3)
    return torch.cat([larger.prepare(picture[None]) for picture in pictures]).clamp(0, 1).permute(0, 2, 3, 1)


def _models(weights: str, n_controls: int, seed: int) -> Iterator[tuple[dict[str, Any], Pretrained]]:
    """Load the trained model and its untrained controls, each with what names it."""
    yield {"model": "trained", "model_seed": seed}, zoo.load(weights)
    for k in range(seed, seed + n_controls):
        yield {"model": "untrained", "model_seed": k}, zoo.load(weights, untrained=True, seed=k)


# --- filters (Fig. 7 left) --------------------------------------------------------------------------------------------
def n_components(known: Float[Tensor, "D 3 P Q"]) -> int:
    """Number of components to analyse: the paper's 28, or fewer where the filters do not have as many."""
    return max(1, min(N_COMPONENTS, known[0].numel(), len(known) - 1))


def filters(weights: str = "lab", n_untrained: int = 20, seed: int = 0) -> pd.DataFrame:
    """Measure spectrum and variance of the first principal components of a model's embedding filters.

    Rows: model ("trained", "untrained"), replicate (0; of the untrained ones 1, 2 …), component (from 1), explained
    (share of the filters' variance), low_frequency (share of the energy at up to a quarter of a cycle per pixel).
    Raises ValueError for a model without RGB filters (a hybrid).
    """
    known, parts = filter_analysis.embedding_filters(zoo.load(weights).model), []
    samples, n = [("trained", 0, known)], n_components(known)
    for k in range(1, n_untrained + 1):
        fresh = zoo.load(weights, untrained=True, seed=seed * n_untrained + k - 1).model
        samples.append(("untrained", k, filter_analysis.embedding_filters(fresh)))
    for model, replicate, sample in samples:
        components, explained = filter_analysis.filter_components(sample, n)
        about = {"model": model, "replicate": replicate, "component": range(1, n + 1)}
        measured = {"explained": explained, "low_frequency": filter_analysis.low_frequency_share(components)}
        parts.append(pd.DataFrame(about | {name: values.tolist() for name, values in measured.items()}))
    return pd.concat(parts, ignore_index=True)


# --- positions (Fig. 7 centre) ----------------------------------------------------------------------------------------
def rings(grid: tuple[int, int]) -> Int[Tensor, " N"]:
    """Number each patch by how far it is from the edge of the grid, in patches; 0 is the outermost ring."""
    rows, cols = grid
    y, x = torch.arange(rows)[:, None].expand(rows, cols), torch.arange(cols).expand(rows, cols)
    return torch.stack([y, rows - 1 - y, x, cols - 1 - x]).amin(dim=0).flatten()


def shuffle_within(groups: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """Draw a permutation of N elements that keeps each within its group."""
    order = torch.empty_like(groups)
    for group in groups.unique():
        members = (groups == group).nonzero().flatten()
        order[members] = members[torch.randperm(len(members), generator=generator)]
    return order


def position_measures(similarity: Float[Tensor, "rows cols rows cols"]) -> dict[str, float]:
    """Measure a similarity map: those of `POSITION_MEASURES` that its grid has, by name."""
    values = position_analysis.distance_correlation(similarity), *position_analysis.row_column_excess(similarity)
    return {name: value for name, value in zip(POSITION_MEASURES, values, strict=True) if math.isfinite(value)}


def position_trainings(rows: pd.DataFrame, n_shuffled: int = 20) -> pd.DataFrame:
    """Measure every training's position map at its end, with its controls, from rows of the study local_heads.

    Rows: objective, data, n_train, seed, measure, value, control_low and control_high: of the embeddings before the
    training, and of the trained ones with patches shuffled `n_shuffled` times, and as often within rings.
    """
    names = dict(zip(POSITION_MEASURES, ("nearness", "row_excess", "column_excess"), strict=True))
    kind = ["objective", "data", "n_train", "seed"]
    looks = rows[(rows["kind"] == "evaluation") & (rows["data"] != "photographs")].sort_values("samples", kind="stable")
    found = []
    for at, run in looks.groupby(kind, sort=False):
        start, end = run.iloc[0], run.iloc[-1]
        similarity = torch.from_numpy(tables.position_map(end["similarity"])).float()
        groups = rings((similarity.shape[0], similarity.shape[1]))
        flat = similarity.reshape(len(groups), len(groups))
        generator, controls = torch.Generator().manual_seed(int(at[-1])), {name: [start[names[name]]] for name in names}
        for within in (torch.zeros_like(groups), groups):
            for _ in range(n_shuffled):
                order = shuffle_within(within, generator)
                for name, value in position_measures(flat[order][:, order].reshape(similarity.shape)).items():
                    controls[name].append(value)
        for name, column in names.items():
            found.append((*at, name, end[column], min(controls[name]), max(controls[name])))
    return pd.DataFrame(found, columns=[*kind, "measure", "value", "control_low", "control_high"])


# --- attention distance (Fig. 7 right) --------------------------------------------------------------------------------
def distances(
    weights: str = "lab", images: str = "auto", n_images: int = 128, n_controls: int = 2, seed: int = 0
) -> pd.DataFrame:
    """Measure the attention distance of every head in both modes, and its mass on prefix tokens, image by image.

    `images`: as in `load_pictures`; "auto": as `image_source` says. Rows: model ("trained", "untrained"), model_seed,
    image, block and head (from 1), distance_px and renormalized_px (pixels of the model's input), prefix_mass (0…1).
    """
    parts, trained = [], zoo.load(weights)
    pictures = load_pictures(trained, image_source(trained) if images == "auto" else images, n_images, seed)
    prepared = torch.cat([trained.prepare(picture[None]) for picture in pictures])
    for about, pretrained in _models(weights, n_controls, seed):
        model = pretrained.model.to(default_device())
        grid = grid_size(model, prepared[:1])
        reducers = {"heads": head_reducer(grid, patch_stride(model), n_prefix_tokens(model))}
        batches = (part.to(default_device()) for part in prepared.split(32))
        found = [reduce_attention(model, batch, reducers, by_heads=True)["heads"] for batch in batches]
        values = torch.cat([torch.stack(each, 1).cpu() for each in found]).numpy()  # [images blocks heads 3]
        image, block, head = (axis.ravel() for axis in np.indices(values.shape[:3]))
        columns: dict[str, Any] = {"image": image, "block": block + 1, "head": head + 1}
        columns |= {name: [round(float(x), 5) for x in values[..., k].ravel()] for k, name in enumerate(HEAD_COLUMNS)}
        parts.append(pd.DataFrame(about | columns))
    return pd.concat(parts, ignore_index=True)


def head_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Average every head over images in both modes, the dots of Fig. 7 right, with the interval of mode "paper".

    Rows: model, model_seed, block, head, distance_px, renormalized_px, prefix_mass, low, high (of distance_px), n.
    """
    keys = ["model", "model_seed", "block", "head"]
    means = table.groupby(keys, sort=False)[[*HEAD_COLUMNS]].mean()
    return means.join(summary(table, keys, "distance_px").set_index(keys)[["low", "high", "n"]]).reset_index()


def contrasts(table: pd.DataFrame, mode: str = "paper") -> pd.DataFrame:
    """Compute what decides C12, a row an image, of the trained model and with the untrained ones' mean subtracted.

    Columns: "trend" (Spearman's correlation of distance with depth), "trend − untrained", "spread, first" (largest
    minus smallest head of block 1, pixels), "spread, first − last" (block), "spread, first − untrained".
    """
    parts, order = [], ["image", "block", "head"]
    for (model, _), group in table.groupby(["model", "model_seed"], sort=False):
        ordered, shape = group.sort_values(order), tuple(group[order].nunique())
        values = torch.tensor(ordered[DISTANCE_COLUMNS[mode]].to_numpy(float)).reshape(shape)
        spreads = head_spread(values)
        columns = {"trend": depth_trend(values).nan_to_num(0.0), "first": spreads[:, 0], "last": spreads[:, -1]}
        parts.append(pd.DataFrame({name: each.numpy() for name, each in columns.items()}).assign(model=model))
    means = pd.concat(parts).rename_axis("image").groupby(["model", "image"]).mean()
    trained, more = means.loc["trained"], means.loc["trained"] - means.loc["untrained"]
    found = {"trend": trained["trend"], "trend − untrained": more["trend"], "spread, first": trained["first"]}
    found |= {"spread, first − last": trained["first"] - trained["last"], "spread, first − untrained": more["first"]}
    return pd.DataFrame(found)


# --- rollout (Fig. 6, 14) ---------------------------------------------------------------------------------------------
def boxed(folder: str, count: int) -> ImageSet:
    """Read photographs of 224 px with their boxes as masks; FOLDER/boxes.csv has a line a box: file, corners in px."""
    place = paths.data_dir() / folder
    boxes = pd.read_csv(place / "boxes.csv").groupby("file")[["x0_224", "y0_224", "x1_224", "y1_224"]]
    names = sorted(boxes.groups)[:: max(1, len(boxes) // count)][:count]
    masks = torch.zeros(len(names), 224, 224, dtype=torch.bool)
    for mask, name in zip(masks, names, strict=True):
        for left, top, right, bottom in boxes.get_group(name).round().astype(int).to_numpy():
            mask[top:bottom, left:right] = True
    images = torch.cat([part for name in names for part in datasets.pictures(place / name)])
    return ImageSet(images, torch.zeros(len(names), dtype=torch.long), ("",), masks)


def causes(about: dict, pretrained: Pretrained, images: Tensor, share: float = 0.25) -> pd.DataFrame:
    """Measure `kept_probability` with rollout's largest, smallest, and random patches greyed: a row an image."""
    model, parts = pretrained.model.to(default_device()), []
    for part in images.split(32):
        maps = both_maps(model, part)["rollout"]
        noise = torch.rand(maps.shape, generator=torch.Generator().manual_seed(0)).to(maps)
        kept = [kept_probability(model, part, each, share, largest) for each, largest in
                ((maps, True), (maps, False), (noise, True))]  # fmt: skip
        parts.append(torch.stack(kept, 1).cpu())
    columns = ["kept_largest", "kept_least", "kept_random"]
    found = pd.DataFrame(torch.cat(parts).numpy().round(6), columns=columns)
    return found.assign(**about, method="rollout", image=range(len(found)))


def rollout(
    weights: str = "lab", n_images: int = 256, n_controls: int = 2, seed: int = 0, images: str = "world"
) -> pd.DataFrame:
    """Measure how much of the rollout, and of the last block's raw attention, lies on the object of the world's images.

    Rows: model ("trained", "untrained"), model_seed, method ("rollout", "last block"), image; mass inside the exact
    mask and the mask's area (shares, 0…1), shuffled_mass and shuffled_area with the mask of another image, hit (of the
    pointing game, 0 or 1) and chance (of a random patch to hit).
    """
    rows = []
    for about, pretrained in _models(weights, n_controls, seed):
        pictures = world_at(pretrained.image_size, n_images, seed) if images == "world" else boxed(images, n_images)
        model, masks = pretrained.model.to(default_device()), cast(Tensor, pictures.masks)
        mean, std = (torch.tensor(each)[:, None, None] for each in (pretrained.mean, pretrained.std))
        if images == "world":
            prepared = torch.cat([pretrained.prepare(part) for part in pictures.images.split(32)])
        else:  # whole, as the boxes are
            prepared = (pictures.images / 255 - mean) / std
        parts = [both_maps(model, part.to(default_device())) for part in prepared.split(32)]
        if images != "world" and about["model"] == "trained":
            rows.append(causes(about, pretrained, prepared))
        others = masks.roll(-1, 0)  # the next image's, whose class is another
        for method in ("rollout", "last block"):
            maps = torch.cat([part[method] for part in parts]).cpu()
            columns = {"mass": mass_inside(maps, masks), "area": area_share(masks)}
            columns |= {"shuffled_mass": mass_inside(maps, others), "shuffled_area": area_share(others)}
            chance = pointing_chance(masks, (maps.shape[1], maps.shape[2]))
            columns |= {"hit": pointing_hit(maps, masks).float(), "chance": chance}
            found = {name: [round(value, 6) for value in values.tolist()] for name, values in columns.items()}
            rows.append(pd.DataFrame(about | {"method": method, "image": range(len(maps))} | found))
    return pd.concat(rows, ignore_index=True)


def both_maps(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Compute rollout and the last block's attention from where the head reads, [B rows cols] each, in one forward."""
    grid, n_prefix, read = grid_size(model, images), n_prefix_tokens(model), read_weights(model, images)
    update, finish = rollout_reducer(grid, n_prefix, read)

    def rows(block: int, attn: Tensor) -> Tensor | None:
        if block < len(model.blocks) - 1:
            return None
        return (read[:, None, None].to(attn) @ attn)[:, :, 0, n_prefix:]  # [B h patches]

    found = reduce_attention(model, images, {"rollout": update, "last block": rows}, by_heads=True)["last block"]
    return {"rollout": finish(), "last block": found[-1].mean(1).unflatten(-1, grid)}


def per_image(table: pd.DataFrame) -> pd.DataFrame:
    """Subtract areas and chance, a row a method and image, with the untrained controls averaged.

    Columns: trained, untrained (mass − area), shuffled (trained, by another image's mask), trained_hit (hit − chance).
    """
    excess = table.assign(
        trained=table["mass"] - table["area"],
        shuffled=table["shuffled_mass"] - table["shuffled_area"],
        trained_hit=table["hit"] - table["chance"],
    )
    means = excess.groupby(["model", "method", "image"], sort=False)[["trained", "shuffled", "trained_hit"]].mean()
    return means.loc["trained"].assign(untrained=means.loc["untrained", "trained"]).reset_index()


def compare_rollout(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average the quantities that decide C14 over images, with 95 % intervals: what, mean, low, high (shares), n."""
    own, last = (pairs[pairs["method"] == each].set_index("image").sort_index() for each in ("rollout", "last block"))
    quantities = {
        "trained": own["trained"],
        "untrained": own["untrained"],
        "another image's mask": own["shuffled"],
        "trained − untrained": own["trained"] - own["untrained"],
        "trained − another mask": own["trained"] - own["shuffled"],
        "rollout − last block": own["trained"] - last["trained"],
    }
    return summary(pd.DataFrame(quantities).melt(var_name="what"), ["what"], "value")
