"""A valid call of every public function of the packages that people call from notebooks and scripts of their own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = ("analysis", "evaluation", "models", "data", "ledger", "sweep", "plots")
# Left out, each with its reason; a name that ends in a dot is a whole module.
LEFT_OUT = {
    "analysis.tap.": "the inside of capture, which is attacked through what captures",
    "data.augment.draw": "given a batch's own numbers by the loader; so are the functions of Draws below",
    "data.augment.boxes": "as draw",
    "data.augment.shifted": "as draw",
    "data.augment.resized_crops": "as draw",
    "data.augment.mixed": "as draw",
    "evaluation.fewshot.classifiers": "the inside of few_shot, which has checked what it is given",
    "evaluation.fewshot.ridge_weights": "as classifiers",
    "evaluation.probe.logistic_regression": "the inside of linear_probe, which has checked what it is given",
    "data.draws.": "the painting of the world, which is attacked through scene",
    "data.looks.": "as draws",
    "data.painting.": "as draws",
    "models.weights.": "attacked with files, in test_files, and by name through zoo and the command line",
    "models.zoo.build": "the inside of create and load",
    "models.zoo.build_timm": "the inside of create and load",
    "models.zoo.check_depth": "the inside of create and load",
    "models.zoo.check_image_size": "the inside of create and load",
    "models.zoo.load_file": "the inside of create and load",
    "models.zoo.load_named": "the inside of create and load",
    "models.zoo.make_shapes": "the inside of create and load",
    "models.zoo.parse": "the inside of create and load",
    "models.zoo.rebuild": "the inside of create and load",
    "models.zoo.spell": "the inside of create and load",
    "models.adapt.resize_weight": "the inside of with_new_head",
    "models.vit.check_images": "the inside of models' forward",
    "models.vit.nearest_multiples": "the inside of what checks and fills a model",
    "models.vit.lecun_normal_": "as nearest_multiples",
    "models.vit.take": "the inside of Attention",
    "models.variants.transpose_grid": "the inside of AxialAttention, which has checked what it is given",
    "data.images.opened": "the inside of read_image",
    "ledger.origin.": "says what is installed; takes nothing that can be wrong",
    "ledger.study.": "writes a notebook's results; what is read of them is attacked in test_files",
    "ledger.beside.": "reads results of our own; what is read of them is attacked in test_files",
    "ledger.published.": "as beside",
    "ledger.entries.": "reads what report.read_results has checked",
    "ledger.second.": "as entries",
    "ledger.pooling.": "takes two Estimates, which have checked themselves",
    "ledger.conditions.": "as entries",
    "ledger.report.write": "writes; build makes the same text",
    "sweep.committed.": "packs runs of our own; damaged archives: tests/unit/test_committed",
    "sweep.cluster.": "needs a scheduler: tests/unit/test_cluster",
    "sweep.scheduler.": "as cluster",
    "sweep.identity.": "takes functions of vitlab itself",
    "sweep.sources.": "reads sources of vitlab itself; what was kept of them: tests/unit/test_sources",
    "sweep.runner.": "attacked by kills, in test_kills",
    "sweep.workers.": "as runner",
    "plots.attention.legend_above": "takes axes",
    "plots.attention.legend_below": "takes axes",
    "plots.attention.mark_patch": "takes axes",
    "plots.beside.": "shows pictures that were saved",
    "plots.lines.": "takes axes and tables of runs",
    "plots.png.": "takes figures",
    "plots.style.": "takes axes",
}

# Answers that are not finite by their docstrings; and what is not refused in words, by its beginning, and why it may.
NOT_FINITE = ("analysis.distance.depth_trend", "analysis.masks.mass_inside", "analysis.positions.row_column_excess")
ACCEPTED = {
    "evaluation.fewshot.few_shot(settings=n_seeds: 1": "takes as long as so many draws take",
    "ledger.intervals.coverage(repeats=1": "takes as long as so many samples take",
    "data.world.class_names(world=n_classes: 1": "takes as long as so many names take",
    "data.world.scene(indices=torch.": "torch's words; a check would make every stored run one of older code",
    "models.adapt.resize_positions(pos=a scalar": "torch's words; as scene",
    "sweep.results.read(path='pipe.png'": "waits for a pipe under a run's name, which nobody has there; as scene",
}


def public() -> dict[str, Callable[..., Any]]:
    """Every public function by its name below `vitlab`, such as "data.world.scene"; without figures, left to eyes."""
    found = {}
    for package in (importlib.import_module(f"vitlab.{name}") for name in PACKAGES):
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(each.name)
            for name, value in vars(module).items():
                full = f"{each.name.removeprefix('vitlab.')}.{name}"
                own = inspect.isfunction(inspect.unwrap(value)) and value.__module__ == each.name
                named = own and not name.startswith(("_", "plot_"))
                if named and full not in LEFT_OUT and f"{full.rpartition('.')[0]}." not in LEFT_OUT:
                    found[full] = value
    return found


def calls() -> dict[str, tuple[Any, ...]]:
    """The arguments that each function must have, in their order; classes that check what they are given stand last."""
    import numpy as np
    import torch
    from PIL import Image

    from vitlab.data.augment import Augmentation
    from vitlab.data.folders import FolderSet
    from vitlab.data.loader import ImageSet
    from vitlab.data.world import World
    from vitlab.evaluation.fewshot import FewShot
    from vitlab.ledger.estimate import Estimate
    from vitlab.ledger.verdicts import given, judge
    from vitlab.models import zoo
    from vitlab.sweep import presets

    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="vitlab-attack-"))
    for name in ("ant", "bee"):
        (folder / "pics" / name).mkdir(parents=True)
        Image.effect_noise((12, 10), 60).convert("RGB").save(folder / "pics" / name / "1.png")
    files = tuple(map(str, sorted((folder / "pics").rglob("*.png"))))
    pictures = FolderSet(files, torch.tensor([0, 1]), ("ant", "bee"), 8)
    photo = Image.effect_noise((12, 10), 60).convert("RGB")
    model = zoo.create("Lab-Mu/4", image_size=8, n_classes=3)
    images, attn = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 5, 5).softmax(-1)
    grid, maps, masks = (2, 2), torch.rand(2, 2, 2), torch.rand(2, 8, 8) > 0.5
    distances, similarity = torch.rand(2, 3, 4) * 10, torch.rand(3, 3, 3, 3)
    positions = torch.rand(4, 6)
    features, labels = torch.randn(12, 4), torch.arange(12) % 3
    samples = ImageSet((images * 255).byte(), torch.tensor([0, 1]), ("a", "b"))
    world, augmentation, indices = World(image_size=8), Augmentation(), torch.arange(3)
    estimate, fact = Estimate(1.0, 0.5, 1.5, 5), given(True, "it holds")
    bytes_ = np.zeros((2, 3, 8, 8, 3), np.uint8)
    row, config = [{"accuracy": 0.5}], {"size": 1}
    return {
        "analysis.capture.attention_maps": (model, images),
        "analysis.capture.reduce_attention": (model, images, {"mean": lambda block, attn: attn.mean()}),
        "analysis.capture.stream_attention": (model, images, lambda block, heads, attn: None),
        "analysis.capture.attention_gradients": (model, images),
        "analysis.distance.pixel_distances": (grid, 4),
        "analysis.distance.attention_distance": (attn, grid, 4, 1),
        "analysis.distance.prefix_mass": (attn, 1),
        "analysis.distance.distance_reducer": (grid, 4, 1),
        "analysis.distance.mass_reducer": (1,),
        "analysis.distance.mean_attention_distance": (model, images),
        "analysis.distance.distance_and_mass": (model, images),
        "analysis.distance.depth_trend": (distances,),
        "analysis.distance.head_spread": (distances,),
        "analysis.distance.local_share": (distances, 5.0),
        "analysis.filters.embedding_filters": (model,),
        "analysis.filters.filter_components": (torch.randn(9, 3, 4, 4), 3),
        "analysis.filters.filter_tiles": (torch.randn(3, 3, 4, 4),),
        "analysis.filters.low_frequency_share": (torch.randn(3, 3, 4, 4),),
        "analysis.filters.white_noise_share": (grid,),
        "analysis.geometry.n_prefix_tokens": (model,),
        "analysis.geometry.has_class_token": (model,),
        "analysis.geometry.reads_class_token": (model,),
        "analysis.geometry.patch_stride": (model,),
        "analysis.geometry.grid_size": (model, images),
        "analysis.geometry.patch_embedding": (model,),
        "analysis.geometry.check_module": (model,),
        "analysis.geometry.check_model": (model,),
        "analysis.geometry.check_images": (model, images),
        "analysis.geometry.image_batches": (model, images, 2),
        "analysis.geometry.check_shape": (maps, "maps", "batch", "rows", "columns"),
        "analysis.geometry.check_attention": (attn, grid, 1),
        "analysis.geometry.check_rows": (attn, "attn"),
        "analysis.masks.patch_coverage": (masks, grid),
        "analysis.masks.mass_inside": (maps, masks),
        "analysis.masks.area_share": (masks,),
        "analysis.masks.pointing_hit": (maps, masks),
        "analysis.masks.pointing_chance": (masks, grid),
        "analysis.positions.position_grid": (model,),
        "analysis.positions.position_embeddings": (model,),
        "analysis.positions.position_similarity": (positions, grid),
        "analysis.positions.distance_correlation": (similarity,),
        "analysis.positions.row_column_excess": (similarity,),
        "analysis.rollout.attention_rollout": (model, images),
        "analysis.rollout.rollout_from_maps": ([attn, attn], grid),
        "analysis.rollout.rollout_reducer": (grid, 1, True),
        "analysis.rollout.rollout_matrix": ([attn, attn],),
        "analysis.rollout.class_attention": (attn, grid),
        "analysis.rollout.last_block_attention": (model, images),
        "analysis.rollout.gradient_rollout": (model, images, torch.tensor([0, 2])),
        "analysis.rollout.overlay": (maps, (8, 8)),
        "evaluation.features.features": (model, samples),
        "evaluation.features.as_arrays": (features, labels, "train"),
        "evaluation.fewshot.few_shot": (features, labels, features, labels, 3, FewShot((2,), n_seeds=1)),
        "evaluation.fewshot.draw": (labels.numpy(), 3, 2, 0),
        "evaluation.probe.linear_probe": (features, labels, features, labels),
        "models.convnets.resnet_of_stride": (16,),
        "models.adapt.resize_positions": (positions, grid, (3, 3)),
        "models.adapt.check_fit": (positions, grid),
        "models.zoo.size_of": ("Lab-Mu/8",),
        "models.zoo.lab_sizes": (),
        "models.zoo.forward_flops": (model, images),
        "models.zoo.multiply_adds": ("Lab-Mu/8", 32),
        "models.adapt.with_new_head": (model, 5, 12),
        "models.zoo.names": (),
        "models.zoo.create": ("Lab-Mu/4", 3, 8, "tanh", 0.1, "gap", "2d", "shared", "axial", 7),
        "models.variants.build": (dataclasses.asdict(model.config) | {"positions": "2d"}, 7),
        "models.zoo.load": ("lab",),
        "data.augment.check_shift": (1, 8, 8),
        "data.datasets.load": (folder / "pics", "train", 8),
        "data.datasets.present": ("digits",),
        "data.datasets.listing": (folder / "pics", "train"),
        "data.datasets.photographs": (8, 1),
        "data.folders.open_folder": (folder / "pics", "train", 8),
        "data.folders.check_headers": (pictures,),
        "data.folders.content_hash": (pictures,),
        "data.folders.batches": (pictures, 2, 0, "cpu", augmentation, 0),
        "data.images.check_image_size": (8,),
        "data.images.read_image": (Path(files[0]), 8),
        "data.images.upright": (photo,),
        "data.images.fitted": (photo, 8),
        "data.loader.content_hash": (samples,),
        "data.photographs.stream": (32, 4),
        "data.photographs.image_set": (4, 32),
        "data.photographs.names": (),
        "data.loader.check_batch_size": (2,),
        "data.loader.slice_of": (4, 1, 3),
        "data.loader.rows_of": (4, 1, 3, augmentation),
        "data.loader.to_float": (samples.images,),
        "data.loader.epoch_order": (5, 0, 1),
        "data.loader.shuffled": (5, 2, 0),
        "data.loader.batches": (samples, 2, 0, "cpu", augmentation),
        "data.noise.noise_sheet": (0,),
        "data.world.with_difficulty": (world, 0.5),
        "data.world.with_cues": (world, "contour"),
        "data.world.class_looks": (world,),
        "data.world.scene": (world, indices),
        "data.world.image_set": (world, 3),
        "data.world.class_names": (world,),
        "data.world.stream": (world, 2),
        "ledger.claims.check": ("C01",),
        "ledger.estimate.counting": (3, "seeds"),
        "ledger.estimate.finite": ("value", 1.0),
        "ledger.estimate.seeds_needed": (1.0, 0.5),
        "ledger.estimate.seeds_to_decide": (1.0, 0.5),
        "ledger.intervals.mean_interval": ([1.0, 2.0, 4.0],),
        "ledger.intervals.jackknife_interval": (1.0, [0.9, 1.0, 1.2]),
        "ledger.intervals.failed_starts": ([0.7, 0.1, 0.6], 500, 0.1),
        "ledger.intervals.coverage": (lambda x: (0.0, 1.0), lambda generator: generator.normal(size=3), 0.5, 3),
        "ledger.report.agreement": ({"verdict": "reproduced", "value": 1.0, "interval": [0, 2]}, None),
        "ledger.report.read_results": (folder,),
        "ledger.report.build": (folder, folder, "quick", ["01_vit"]),
        "ledger.report.number": (0.5,),
        "ledger.report.table_line": ("a claim", "a number"),
        "ledger.report.with_table": ("<!-- ledger:begin -->\n<!-- ledger:end -->", "table"),
        "ledger.verdicts.above": (estimate, 0.0),
        "ledger.verdicts.below": (estimate, 2.0),
        "ledger.verdicts.within": (estimate, 3.0),
        "ledger.verdicts.given": (True, "it holds"),
        "ledger.verdicts.all_of": (fact, fact),
        "ledger.verdicts.any_of": (fact, fact),
        "ledger.verdicts.judge": (fact, fact),
        "ledger.verdicts.not_testable": ("one hour is too short",),
        "ledger.verdicts.line": ("C01", judge(fact), {"tokens": estimate}),
        "sweep.checksums.with_checksum": (config,),
        "sweep.checksums.is_whole": (config,),
        "sweep.presets.check": ("quick",),
        "sweep.presets.check_runnable": ("quick",),
        "sweep.presets.choose": ({"quick": 1}, "quick"),
        "sweep.results.result": (presets.check, config, row, 0.5),
        "sweep.results.unseeded": (config,),
        "sweep.results.checked": (row, config),
        "sweep.results.read": (Path("run.json"), config),
        "sweep.results.table": ([(config, {"rows": row, "columns": ["accuracy"], "wall_s": 1.0})],),
        "plots.collection.mosaic": (bytes_, 1),
        "plots.families.family": ("Lab-Mu/8",),
        "plots.families.labels": (["Lab-Mu/8"],),
        "plots.families.sizes_table": ([zoo.size_of("Lab-Mu/8")],),
        "plots.model.spread_patches": (bytes_[0, 0], 4, 1),
        "data.augment.Augmentation": ("inception", 1, (0.1, 1.0), (0.75, 1.3), True, 0.2),
        "data.folders.FolderSet": (files, torch.tensor([0, 1]), ("ant", "bee"), 8),
        "data.loader.ImageSet": (samples.images, samples.labels, samples.classes),
        "data.world.World": (10, 8, 0, 1.0, 0.5, 0.6, 0.1, 0.8, 0.15, 0.6, 0.5, 0.6, 0.6, 0.4, 0.25),
        "evaluation.fewshot.FewShot": ((1, 5), (1.0,), 3, 100.0),
        "evaluation.probe.Probe": ((0.1, 1.0), 0.2, 1000),
        "ledger.estimate.Estimate": (1.0, 0.5, 1.5, 5),
        "models.convnets.HybridConfig": (32, 8, 32, 2, 2, 64, 10, "linear", "class", 0.0, 8, (1, 1), 2),
        "models.convnets.BiTConfig": (8, (1, 1), 2, 32, 10),
        "models.variants.VariantConfig": (32, 8, 32, 2, 2, 64, 10, "linear", "gap", 0.0, "2d", "shared", "axial"),
        "models.vit.ViTConfig": (32, 8, 32, 2, 2, 64, 10, "linear", "class", 0.0),
    }
