"""For maintainers: the front page's picture, the lab's ViT above one that was trained on ImageNet (Fig. 6, 7, 10, 11).

    python -m vitlab.publish hero --weights NAME@FILE --about "where they come from, in words"

Filters, position embeddings and rollout are those of the weights; the attention distances are those that notebook 08
measured of the same weights, as committed. The photograph comes with scikit-learn.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vitlab import paths
from vitlab.ledger.beside import FOLDER
from vitlab.ledger.origin import provenance
from vitlab.publish import imagenet
from vitlab.publish.front import HERO
from vitlab.publish.reference import refuse_paths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from vitlab.models.zoo import Pretrained

OURS = "lab"
PHOTOGRAPH = "china"  # of scikit-learn: a temple, against the sky
TITLES = ("filters", "positions", "distance", "photograph", "rollout")
_COMPONENTS, _COLUMNS = 16, 4  # of the filters: a square
_EVERY = 2  # position embeddings: of so many rows and columns of patches, one
_FLOOR = 0.15  # brightness where the rollout is 0
_SIDE = 336  # pixels of the photograph
_DPI, _COLOURS, _LARGEST = 150, 224, 300_000  # bytes
# In pixels of the picture, which is shown at half its size and at a quarter: a square, its left sides, its rows' tops.
_SQUARE, _SIZE, _LEFT, _TOP = 268, (1600, 628), (56, 338, 742, 1034, 1322), (58, 350)
_AXIS = 34  # of a square with axes, what the numbers under it take
_POINTS = {"title": 20, "name": 20, "label": 17, "tick": 16}
_ALT = """\
Two rows of pictures: above, the lab's ViT; below, a ViT-Ti/16 that was trained on ImageNet. Principal components of the
embedding filters: coarse shades and noise above, waves and spots of opposed colours below. Maps of position similarity:
a bright spot at each patch's own place, with a cross through it below. Mean attention distance of every head by block,
larger in late blocks than in early ones. A photograph of a temple before a pale sky, and the same darkened where
attention rollout is small: nearly all of the sky above, parts of it below, the temple least."""
_CAPTION = """\
*Above: `{ours}`, {millions:.1f} million parameters, {ours_about}. Below: {real_about}. Principal components of the
filters, similarity of position embeddings, mean attention distance of each head, and where attention rollout looks.*"""


def hero(weights: str, about: str = "") -> list[Path]:
    """Draw the picture and write it with its record, hero.json; `weights` are NAME@FILE or a name, in words `about`.

    Raises:
        ValueError: notebook 08's committed distances are of other weights, or the picture has more than 300 kB.
    """
    from vitlab.experiments.subjects import pictures_hash
    from vitlab.models import zoo
    from vitlab.plots.style import style

    started, picture = time.perf_counter(), photograph()
    models = {name: zoo.load(name) for name in (OURS, weights)}
    told = [imagenet.what(OURS, about_ours(models[OURS])), imagenet.what(weights, about)]
    heads = _distances(told)
    with style():
        figure = draw(models[OURS], models[weights], heads, picture)
    content = png(figure)
    if len(content) > _LARGEST:
        raise ValueError(f"the picture has {len(content):,} bytes, more than {_LARGEST:,}: fewer colours, or smaller")
    record = {
        "alt": " ".join(_ALT.split()),
        "caption": caption(told),
        "photograph": PHOTOGRAPH,
        "provenance": provenance(time.perf_counter() - started, pictures_hash([picture])),
        "sha256": hashlib.sha256(content).hexdigest(),
        "weights": told,
    }
    refuse_paths(str(record), "the record of the picture")
    with paths.writing(HERO) as temporary:
        temporary.write_bytes(content)
    paths.write_json(HERO.with_suffix(".json"), record)
    return [HERO, HERO.with_suffix(".json")]


def about_ours(pretrained: Pretrained) -> str:
    """How the lab's ViT was trained, in words, from what its weights say of themselves.

    >>> from vitlab.models import zoo
    >>> about_ours(zoo.load("lab"))
    'trained here in 93 minutes on 1 CPU thread, on photographs of Imagenette'
    """
    made, trainings = pretrained.about["provenance"], pretrained.about["trainings"]
    data = " and ".join(dict.fromkeys(training["data"].capitalize() for training in trainings))
    threads = f"{made['threads']} CPU thread{'s' if made['threads'] > 1 else ''}"
    return f"trained here in {made['wall_s'] / 60:.0f} minutes on {threads}, on photographs of {data}"


def caption(told: list[dict[str, Any]]) -> str:
    """What the picture shows, in words that begin with the two models; `told` are ours and the other, as of `what`."""
    ours, real = told
    words = {"ours": ours["name"], "ours_about": ours["about"], "real_about": real["about"] or real["name"]}
    return " ".join(_CAPTION.format(millions=ours["parameters"] / 1e6, **words).split())


def photograph() -> Tensor:
    """The photograph [3 H W] of bytes."""
    from vitlab.data import datasets

    return dict(datasets.photographs(sample=False))[PHOTOGRAPH]


def _distances(told: list[dict[str, Any]]) -> list[pd.DataFrame]:
    """Of both models the trained heads' distances that notebook 08 measured, as committed."""
    folders = [paths.reference_dir("quick"), paths.reference_dir(FOLDER)]
    results = [paths.read_json(folder / "08_attention_distance" / "result.json") for folder in folders]
    measured = [results[0]["parameters"]["weights"], results[1]["weights"]["sha256"]]
    if measured != [told[0]["name"], told[1]["sha256"]]:
        raise ValueError(
            f"notebook 08's committed distances are of {measured}, not of {told[0]['name']} and {told[1]['sha256']}: "
            "run `vitlab run 08` and `python -m vitlab.publish imagenet` with the same weights first"
        )
    tables = [pd.DataFrame(result["table"]) for result in results]
    return [table[table["model"] == "trained"] for table in tables]


def draw(ours: Pretrained, real: Pretrained, heads: list[pd.DataFrame], picture: Tensor) -> Figure:
    """The picture: a row for each of the two models, a column for each of `TITLES`."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(_SIZE[0] / _DPI, _SIZE[1] / _DPI), layout="none")
    lower = [_AXIS if title == "distance" else 0 for title in TITLES]
    axes = [[_square(figure, left, top, below) for left, below in zip(_LEFT, lower, strict=True)] for top in _TOP]
    for row, name, model, dots in zip(axes, ("lab (ours)", "ViT-Ti/16"), (ours, real), heads, strict=True):
        _weights(model, row[0], row[1])
        _heads(dots, model.image_size[1], row[2])
        _looks(model, picture, row[3], row[4])
        row[0].set_ylabel(name, fontsize=_POINTS["name"], fontweight="bold")
    for ax, title in zip(axes[0], TITLES, strict=True):
        ax.set_title(title, fontsize=_POINTS["title"], pad=8)
    return figure


def _square(figure: Figure, left: int, top: int, below: int) -> Axes:
    """Axes in a square with this left upper corner, which leave so many pixels `below`."""
    width, height = _SIZE
    bottom = 1 - (top + _SQUARE - below) / height
    return figure.add_axes((left / width, bottom, _SQUARE / width, (_SQUARE - below) / height))


def _weights(model: Pretrained, left: Axes, right: Axes) -> None:
    """Fig. 7 left and centre: filters' components, and similarity of every second patch's position embedding."""
    from vitlab.analysis import filters, positions
    from vitlab.plots.weights import plot_filter_grid, plot_similarity_grid

    components, _ = filters.filter_components(filters.embedding_filters(model.model), _COMPONENTS)
    plot_filter_grid(filters.filter_tiles(components).permute(0, 2, 3, 1).numpy(), left, columns=_COLUMNS)
    table = positions.position_embeddings(model.model)
    similarity = positions.position_similarity(table, positions.position_grid(model.model))
    plot_similarity_grid(similarity[_EVERY // 2 :: _EVERY, _EVERY // 2 :: _EVERY].numpy(), right, colorbar=False)
    for ax in (left, right):
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")


def _heads(heads: pd.DataFrame, image_px: int, ax: Axes) -> None:
    """Fig. 7 right, in a small square: few ticks, large dots."""
    from vitlab.plots.attention import plot_attention_distances

    plot_attention_distances(heads, ax, image_px=image_px, legend=False)
    depth = int(heads["block"].max())
    ax.set(ylim=(0, 1.1 * heads["high"].max()), xlabel="")
    ax.set_xticks([1, depth], ["block 1", str(depth)])
    ax.get_xticklabels()[0].set_horizontalalignment("left")
    ax.yaxis.get_major_locator().set_params(nbins=4, integer=True)
    ax.set_ylabel(f"px of {image_px}", fontsize=_POINTS["label"])
    ax.tick_params(labelsize=_POINTS["tick"])


def _looks(model: Pretrained, picture: Tensor, left: Axes, right: Axes) -> None:
    """Fig. 6: the photograph as the model sees it, and lit by rollout."""
    import torch

    from vitlab.analysis.rollout import attention_rollout, overlay
    from vitlab.experiments.subjects import views
    from vitlab.plots.rollout import plot_overlay

    seen = views(model, [picture], _SIDE)[0].numpy()
    with torch.inference_mode():
        weight = overlay(attention_rollout(model.model, model.prepare(picture[None])), seen.shape[:2])[0].numpy()
    plot_overlay(seen, None, left)
    plot_overlay(seen, weight, right, _FLOOR)


def png(figure: Figure) -> bytes:
    """The figure as a PNG with a palette."""
    import io

    import matplotlib.pyplot as plt
    from PIL import Image

    from vitlab.plots.png import as_png, with_palette

    figure.set_dpi(_DPI)
    content = with_palette(Image.open(io.BytesIO(as_png(figure))), _COLOURS)
    plt.close(figure)
    return content
