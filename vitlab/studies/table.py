"""What is run: every study as data, by preset (§4; hyper-parameters from the trials in figures/evidence/trials.csv)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]

# Kind of run → version of its function in `run.py`; raised by hand when a change moves numbers, which makes the
# committed rows of the kind stale.
VERSION = {
    "scaling": 1,
    "design": 1,
    "subsets": 1,
    "curves": 1,
    "transfer": 1,
    "masked": 1,
    "local_heads": 1,
    "cifar10": 1,
    "filters": 1,
    "positions": 1,
    "distances": 1,
    "rollout": 1,
    "checks": 1,
    "speed": 1,
}
PRESETS = {
    "smoke": "the tests: every line runs, no number counts",
    "quick": "a laptop, offline: what a chapter trains live, seconds to two minutes each",
    "full": "recomputes the evidence: hours, resumed where it stopped, on any device",
}


@dataclass(frozen=True)
class Preset:
    """One size of a study: what all its runs share, the cases that it compares, and how many seeds each case has."""

    base: Config
    cases: tuple[Config, ...]
    seeds: int


@dataclass(frozen=True)
class Study:
    """A study: which function of `run.py` does its runs, and its sizes by preset."""

    kind: str
    title: str
    presets: dict[str, Preset]
    needs: tuple[str, ...] = ()  # real data sets that `full` cannot do without


def study(name: str) -> Study:
    """Look a study up.

    Raises ValueError where there is none of this name; the message lists those there are.
    """
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}: choose one of {', '.join(STUDIES)}")
    return STUDIES[name]


def preset(name: str, size: str) -> Preset:
    """Look up a study's preset.

    Raises ValueError for an unknown study or a preset that it does not have.
    """
    found = study(name).presets
    if size not in found:
        raise ValueError(f"the study {name} has no preset {size!r}: choose one of {', '.join(found)}")
    return found[size]


def runs(name: str, size: str, seed: int = 0) -> list[Config]:
    """List every run of a study at a preset, seed by seed; `seed` shifts all seeds by hundreds (a replication).

    >>> len(runs("data_scaling", "full")), runs("data_scaling", "smoke", seed=1)[0]["seed"]
    (125, 100)
    """
    chosen = preset(name, size)
    return [
        chosen.base | {key: value for key, value in case.items() if key != "seeds"} | {"seed": 100 * seed + s}
        for s in range(max(case.get("seeds", chosen.seeds) for case in chosen.cases))
        for case in chosen.cases
        if s < case.get("seeds", chosen.seeds)
    ]


def axis(name: str, size: str, key: str) -> list[Any]:
    """List the values that a configuration's `key` takes in a study, in the order of its cases.

    >>> axis("data_scaling", "smoke", "n_train")
    [64, 32, 16]
    """
    chosen = preset(name, size)
    return list(dict.fromkeys((chosen.base | case)[key] for case in chosen.cases))


def _grid(*parts: dict[str, tuple] | tuple[Config, ...]) -> tuple[Config, ...]:
    """Combine: of a dictionary every value of every key, of a tuple of cases every case."""
    axes = [
        [dict(zip(part, values, strict=True)) for values in itertools.product(*part.values())]
        if isinstance(part, dict)
        else part
        for part in parts
    ]
    return tuple({k: v for each in chosen for k, v in each.items()} for chosen in itertools.product(*axes))


def _tuned(values: dict[str, tuple[float, float]], *models: str) -> tuple[Config, ...]:
    rates = ({"learning_rate": values[m][0], "weight_decay": values[m][1]} for m in models)
    return tuple({"model": model} | rate for model, rate in zip(models, rates, strict=True))


# --- scaling: data, compute, cues, classes (§4.3, §4.4; C03 to C07) ---------------------------------------------------
# Learning rate and weight decay of each model, the best of its trials at the middle size; they serve all sizes.
_QUICK = {
    "Lab-Ti/8": (4e-3, 1.0),
    "BiT-Lab-Ti/8": (8e-3, 0.1),
    "Lab-Mu/8": (32e-3, 1.0),
    "BiT-Lab-Mu/8": (32e-3, 0.1),
    "R+Lab-Ti/16": (4e-3, 1.0),
    "R+Lab-Mu/16": (4e-3, 1.0),
}
_FULL = {
    "Lab-Ti/8": (8e-3, 1.0),
    "BiT-Lab-Ti/8": (16e-3, 1.0),
    "Lab-Mu/8": (16e-3, 0.1),
    "BiT-Lab-Mu/8": (32e-3, 0.1),
    "R+Lab-Ti/16": (4e-3, 1.0),  # of `quick`, as the next two: they have no trials of their own
    "R+Lab-Ti/8": (4e-3, 1.0),
    "R+Lab-Mu/8": (4e-3, 1.0),
}
_SMOKE = dict.fromkeys(
    ("Lab-Ti/4", "BiT-Lab-Ti/4", "Lab-Mu/4", "BiT-Lab-Mu/4", "R+Lab-Ti/16", "R+Lab-Ti/8"), (2e-3, 0.1)
)
# Training stops early where the validation accuracy no longer rises; accuracies are of `n_test` other images.
_SCALING = {"label_smoothing": 0.0, "difficulty": 0.5, "cue": "mixed", "real": "digits", "finetuning_steps": 0}
_AT_SMOKE = _SCALING | {"batch_size": 16, "precision": "fp32", "image_size": 16, "n_classes": 10, "n_frozen": 200}
_AT_SMOKE |= {"steps": 6, "warmup_steps": 2, "eval_every": 2, "patience": 2, "n_validation": 32, "n_test": 64}
_AT_QUICK = _SCALING | {"batch_size": 64, "precision": "fp32", "image_size": 32, "n_classes": 10, "n_frozen": 500}
_AT_QUICK |= {"steps": 192, "warmup_steps": 19, "eval_every": 24, "patience": 4, "n_validation": 500, "n_test": 1_000}
_AT_FULL = _SCALING | {"batch_size": 128, "precision": "bf16", "image_size": 32, "n_classes": 100, "n_frozen": 1_000}
_AT_FULL |= {
    "steps": 2_000,
    "warmup_steps": 100,
    "eval_every": 100,
    "patience": 8,
    "n_validation": 1_000,
    "n_test": 2_000,
}
_ON_REAL = {"real": "digits cifar10", "finetuning_n_images": 5_000, "finetuning_steps": 150}
_ON_REAL |= {"finetuning_batch_size": 128, "finetuning_learning_rate": 1e-3}


def _length(base: Config, steps: int) -> Config:
    """A shorter training by the same recipe: warm-up and evaluations shrink with it."""
    warmup, interval = (base[name] * steps // base["steps"] for name in ("warmup_steps", "eval_every"))
    return {"steps": steps, "warmup_steps": warmup, "eval_every": max(1, interval)}


def _data(base: Config, models: tuple[Config, ...], sizes: tuple[int, ...], seeds: int) -> Preset:
    return Preset(base, _grid({"n_train": sizes}, models), seeds)  # large sets first: no long run comes last


def _compute(base: Config, models: tuple[Config, ...], steps: tuple[int, ...], n_train: int, seeds: int) -> Preset:
    return Preset(base | {"n_train": n_train}, _grid(tuple(_length(base, each) for each in steps), models), seeds)


_WORLDS = (("texture", 10), ("contour", 10), ("arrangement", 10), ("mixed", 10), ("mixed", 100))
_SMALL = _AT_SMOKE | {"eval_every": 3, "patience": None, "n_validation": 20, "n_test": 40}
_PAIR, _PAIR_4 = _tuned(_FULL, "Lab-Ti/8", "BiT-Lab-Ti/8"), _tuned(_SMOKE, "Lab-Ti/4", "BiT-Lab-Ti/4")
_SCALING_STUDIES = {
    "data_scaling": Study(
        "scaling",
        "accuracy by number of training images: ViT, ResNet (BiT), hybrid (§4.3, Fig. 3, 4)",
        {
            "smoke": _data(_AT_SMOKE, _tuned(_SMOKE, "Lab-Ti/4", "BiT-Lab-Ti/4", "Lab-Mu/4"), (64, 32, 16), 2),
            "quick": _data(_AT_QUICK, _tuned(_QUICK, "Lab-Ti/8", "BiT-Lab-Ti/8", "Lab-Mu/8"), (12_000, 2_000, 300), 3),
            "full": _data(
                _AT_FULL | _ON_REAL,
                _tuned(_FULL, "Lab-Ti/8", "BiT-Lab-Ti/8", "Lab-Mu/8", "BiT-Lab-Mu/8", "R+Lab-Ti/16"),
                (256_000, 64_000, 16_000, 4_000, 1_000),
                5,
            ),
        },
    ),
    "compute_scaling": Study(
        "scaling",
        "accuracy by training compute: ViT, ResNet (BiT), hybrid (§4.4, Fig. 5, Table 6)",
        {
            "smoke": _compute(_AT_SMOKE, _tuned(_SMOKE, *_SMOKE), (6, 3), 64, 2),
            "quick": _compute(_AT_QUICK, _tuned(_QUICK, *_QUICK), (192, 48), 12_000, 3),
            "full": _compute(
                _AT_FULL | _ON_REAL,
                _tuned(_FULL, *(model for model in _FULL if model != "R+Lab-Ti/16")),
                (2_000, 350, 60),
                256_000,
                9,
            ),
        },
    ),
    "few_images": Study(
        "scaling",
        "the pair of data_scaling on 1,000 images, each with the rate and decay that serve so few (Fig. 3)",
        {
            "smoke": Preset(
                _AT_SMOKE | {"n_train": 16, "weight_decay": 3.0, "learning_rate": 4e-3},
                ({"model": "Lab-Ti/4"}, {"model": "BiT-Lab-Ti/4"}),
                2,
            ),
            "full": Preset(
                _AT_FULL | {"n_train": 1_000},
                _tuned({"Lab-Ti/8": (4e-3, 3.0), "BiT-Lab-Ti/8": (4e-3, 10.0)}, "Lab-Ti/8", "BiT-Lab-Ti/8"),
                5,
            ),
        },
    ),
    "who_wins": Study(
        "scaling",
        "ViT and ResNet by what tells the classes (cue), their number, and the number of images (§4.3)",
        {
            "smoke": Preset(
                _SMALL | {"n_classes": 4}, _grid({"n_train": (64, 16), "cue": ("contour", "mixed")}, _PAIR_4), 2
            ),
            "full": Preset(
                _AT_FULL | {"steps": 1_000, "patience": None, "n_frozen": 500},
                _grid(
                    {"n_train": (64_000, 8_000, 1_000)},
                    tuple({"cue": cue, "n_classes": n} for cue, n in _WORLDS),
                    _PAIR,
                ),
                5,
            ),
        },
    ),
    "world_classes": Study(
        "scaling",
        "pre-training on synthetic worlds of more and more classes, then real images; n_train 0: none (§4.1, Table 5)",
        {
            "smoke": Preset(
                _SMALL
                | {"finetuning_n_images": 60, "finetuning_steps": 3}
                | {"finetuning_batch_size": 16, "finetuning_learning_rate": 1e-3},
                _grid(tuple({"n_classes": n, "n_train": size} for n, size in ((8, 64), (2, 64), (2, 0))), _PAIR_4),
                2,
            ),
            "full": Preset(
                _AT_FULL | _ON_REAL | {"eval_every": 500, "patience": None, "finetuning_steps": 780},
                _grid(
                    tuple({"n_classes": n, "n_train": 256_000} for n in (1_000, 100, 10))
                    + ({"n_classes": 10, "n_train": 0},),
                    _PAIR,
                ),
                5,
            ),
        },
    ),
}

# --- design choices (App. D; C09, C16 to C19) -------------------------------------------------------------------------
_DESIGN = {"image_size": 32, "optimizer": "adam", "weight_decay": 0.1, "precision": "bf16", "difficulty": 0.5}
_DESIGN |= {"batch_size": 128, "n_validation": 1_000, "n_test": 2_000}
_DESIGN_SMOKE = _DESIGN | {"image_size": 16, "precision": "fp32", "batch_size": 8, "steps": 3, "n_classes": 10}
_DESIGN_SMOKE |= {"n_train": 24, "n_validation": 12, "n_test": 20}
_HEADS = ({"arm": "class token", "pool": "class"}, {"arm": "GAP", "pool": "gap"})


def _rates(steps: int, *rates: float) -> tuple[Config, ...]:
    return tuple({"steps": steps, "learning_rate": rate} for rate in rates)


def _axial(**depths: int) -> tuple[Config, ...]:
    names = {"axial": "axial", "plain": "full, same depth"}
    names |= {"parameters": "full, equal parameters", "flops": "full, equal FLOPs"}
    return tuple(
        {"arm": names[each], "depth": depth, "attention": "axial" if each == "axial" else "full"}
        for each, depth in depths.items()
    )


def _shapes(rates: dict[str, tuple[float, ...]], shapes: dict[str, tuple[tuple[int, ...], ...]]) -> tuple[Config, ...]:
    """Cases of shapes (depth, dim, mlp_dim, patch_size, n_heads) by the dimension in which they leave the base."""
    return tuple(
        {"dimension": dimension, "arm": f"{depth} blocks, {dim} wide, MLP {mlp_dim}, /{patch}"}
        | {"model": f"Lab-Ti/{patch}", "learning_rate": rate}
        | {"depth": depth, "dim": dim, "mlp_dim": mlp_dim, "n_heads": n_heads}
        for dimension, each in shapes.items()
        for (depth, dim, mlp_dim, patch, n_heads), rate in itertools.product(each, rates[dimension])
    )


# The cells of Table 8 (ViT-B/16, 5-shot accuracy on ImageNet, 0…1). Relative embeddings act in every block.
TABLE_8 = {
    "none": 0.61382,
    "1-D, stem": 0.64206,
    "1-D, every block": 0.63964,
    "1-D, shared": 0.64292,
    "2-D, stem": 0.64001,
    "2-D, every block": 0.64046,
    "2-D, shared": 0.64022,
    "relative": 0.64032,
}
_POSITIONS = tuple(
    {"arm": arm, "positions": kind.replace("-D", "d"), "placed": place or default}
    for arm in TABLE_8
    for kind, _, place in [arm.partition(", ")]
    for default in ["every block" if kind == "relative" else "stem"]
)
_TASKS = ({"task": "arrangement", "difficulty": 0.3}, {"task": "contour", "difficulty": 0.05})
_REAL_TASK = {"task": "cifar10", "difficulty": 0.0}
_P_BASE = _DESIGN | {"model": "Lab-Mu/4", "precision": "fp32", "n_classes": 10}
_P_FULL = _P_BASE | {"steps": 400, "n_train": 40_000}
_P_SMOKE = _DESIGN_SMOKE | {"model": "Lab-Mu/4", "task": "arrangement", "difficulty": 0.1, "n_classes": 3, "n_test": 12}
_P_SMOKE |= {"learning_rate": 4e-3}
# Table 7: fine-tuned accuracy (0…1) by model and data set, of Adam and of SGD.
TABLE_7 = {
    ("R50", "ImageNet"): (0.7754, 0.7824),
    ("R50", "CIFAR-10"): (0.9767, 0.9746),
    ("R50", "CIFAR-100"): (0.8607, 0.8517),
    ("R50", "Pets"): (0.9111, 0.9100),
    ("R50", "Flowers"): (0.9426, 0.9206),
    ("R152x2", "ImageNet"): (0.8497, 0.8437),
    ("R152x2", "CIFAR-10"): (0.9906, 0.9907),
    ("R152x2", "CIFAR-100"): (0.9205, 0.9106),
    ("R152x2", "Pets"): (0.9537, 0.9479),
    ("R152x2", "Flowers"): (0.9862, 0.9932),
}


def _optimizers(model: str, seeds: int, adam: tuple[float, ...], sgd: tuple[float, ...]) -> tuple[Config, ...]:
    """Both optimisers for a model, each with as many rates and its own decay: that of Table 3, and that of BiT."""
    return tuple(
        {"arm": f"{model}, {optimizer}", "model": model, "optimizer": optimizer, "learning_rate": rate}
        | {"weight_decay": decay, "seeds": seeds}
        for optimizer, decay, rates in (("adam", 0.1, adam), ("sgd", 1e-4, sgd))
        for rate in rates
    )


_DESIGN_STUDIES = {
    "head_rates": Study(
        "design",
        "class token and global average pooling, each at its best learning rate, by length (Fig. 9; C16)",
        {
            "smoke": Preset(
                _DESIGN_SMOKE | {"task": "mixed", "model": "Lab-Mu/4"},
                _grid(_HEADS, _rates(2, 1e-3, 4e-3) + _rates(3, 1e-3, 4e-3)),
                2,
            ),
            "full": Preset(
                _DESIGN | {"task": "mixed", "model": "Lab-Ti/8", "n_classes": 100, "n_train": 64_000},
                _grid(_HEADS, _rates(500, 4e-3, 8e-3, 16e-3) + _rates(2_000, 2e-3, 4e-3, 8e-3)),
                8,
            ),
        },
    ),
    "vit_shapes": Study(
        "design",
        "a ViT scaled along one dimension at a time (App. D.2, Fig. 8; C18)",
        {
            "smoke": Preset(
                _DESIGN_SMOKE | {"task": "mixed"},
                _shapes(
                    dict.fromkeys(("base", "depth", "width", "MLP width", "patch size", "all"), (4e-3,)),
                    {
                        "base": ((1, 16, 32, 8, 2),),
                        "depth": ((2, 16, 32, 8, 2),),
                        "width": ((1, 24, 32, 8, 2),),
                        "MLP width": ((1, 16, 64, 8, 2),),
                        "patch size": ((1, 16, 32, 4, 2),),
                        "all": ((2, 24, 48, 8, 2),),
                    },
                ),
                2,
            ),
            "full": Preset(
                _DESIGN | {"task": "mixed", "n_classes": 300, "steps": 2_000, "n_train": 64_000},
                _shapes(
                    {
                        "base": (4e-3, 8e-3),
                        "depth": (4e-3, 8e-3),
                        "width": (2e-3, 4e-3),
                        "MLP width": (2e-3, 4e-3),
                        "patch size": (4e-3, 8e-3),
                        "all": (2e-3, 4e-3),
                    },
                    {
                        "base": ((2, 64, 128, 8, 4),),
                        "depth": ((4, 64, 128, 8, 4), (8, 64, 128, 8, 4)),
                        "width": ((2, 96, 128, 8, 4), (2, 144, 128, 8, 4)),
                        "MLP width": ((2, 64, 384, 8, 4), (2, 64, 896, 8, 4)),
                        "patch size": ((2, 64, 128, 4, 4),),
                        "all": ((3, 80, 160, 8, 4), (4, 96, 192, 8, 4)),
                    },
                ),
                5,
            ),
        },
    ),
    "axial_attention": Study(
        "design",
        "axial and full attention of equal depth, parameters and FLOPs (App. D.6, Fig. 13; C19)",
        {
            "smoke": Preset(
                _DESIGN_SMOKE | {"task": "contour", "model": "Lab-Mu/4", "pool": "gap", "learning_rate": 4e-3},
                _axial(axial=1, plain=1, parameters=2, flops=2),
                2,
            ),
            "full": Preset(
                _DESIGN
                | {"task": "mixed", "difficulty": 0.3, "n_classes": 100, "steps": 2_000, "n_train": 51_200}
                | {"model": "Lab-Mu/4", "pool": "gap"},
                _grid(_axial(axial=2, plain=2, parameters=4, flops=3), {"learning_rate": (2e-3, 6e-3)}),
                5,
            ),
        },
    ),
    "position_variants": Study(
        "design",
        "position embeddings by kind and place, on tasks that need them (App. D.4, Table 8; C09)",
        {
            "smoke": Preset(_P_SMOKE, _POSITIONS, 2),
            "quick": Preset(
                _P_BASE
                | {"task": "arrangement", "difficulty": 0.1, "learning_rate": 8e-3, "image_size": 24}
                | {"steps": 160, "batch_size": 64, "n_train": 4_000, "n_validation": 200, "n_test": 1_000},
                _POSITIONS,
                5,
            ),
            "full": Preset(_P_FULL, _grid((*_TASKS, _REAL_TASK), _POSITIONS, {"learning_rate": (3e-3, 1e-2)}), 5),
        },
        needs=("cifar10",),
    ),
    "longer_positions": Study(
        "design",
        "the same four times as long, until every seed has left chance (App. D.4; C09)",
        {
            "smoke": Preset(_P_SMOKE | {"steps": 12}, _POSITIONS, 2),
            "full": Preset(_P_FULL | {"steps": 1_600}, _grid(_TASKS, _POSITIONS, {"learning_rate": (3e-3, 1e-2)}), 5),
        },
    ),
    "resnet_optimizers": Study(
        "design",
        "ResNets (BiT) pre-trained with Adam and with SGD, fine-tuned alike (App. D.1, Table 7; C17)",
        {
            "smoke": Preset(
                _DESIGN_SMOKE
                | {"task": "mixed", "targets": "digits", "finetuning_n_images": 40, "finetuning_steps": 3}
                | {"finetuning_batch_size": 8, "finetuning_rates": "0.03 0.1"},
                _optimizers("BiT-Lab-Mu/4", 2, (1e-3, 4e-3), (0.03, 0.1)),
                2,
            ),
            "full": Preset(
                _DESIGN
                | {"task": "mixed", "n_classes": 100, "steps": 2_000, "n_train": 64_000, "targets": "digits cifar10"}
                | {"finetuning_n_images": 2_000, "finetuning_steps": 150, "finetuning_batch_size": 64}
                | {"finetuning_rates": "0.1 0.3 1.0 3.0"},
                _optimizers("BiT-Lab-Mu/8", 9, (32e-3, 64e-3, 128e-3, 256e-3), (0.3, 0.5, 1.0, 3.0))
                + _optimizers("BiT-Lab-Ti/8", 5, (8e-3, 16e-3, 32e-3), (0.1, 0.3, 1.0)),
                9,
            ),
        },
        needs=("cifar10",),
    ),
}

# --- from scratch, transfer, masked prediction (§3.2, §4.1, §4.6; C08, C15, C21, L01, L02) ----------------------------
_DIGITS = tuple({"data": "digits", "model": m, "image_size": 8} for m in ("Lab-Ti/2", "BiT-Lab-Ti/2", "R+Lab-Ti/2"))
_DIGITS = _grid(_DIGITS, ({"learning_rate": 4e-3, "weight_decay": 1.0, "n_test": 360},))
_WORLD = tuple(
    {"data": "world", "model": model, "image_size": 32, "learning_rate": rate, "weight_decay": 0.1}
    for model, rate in (("Lab-Ti/8", 4e-3), ("BiT-Lab-Ti/8", 16e-3), ("R+Lab-Ti/8", 4e-3))
)


def _curves(digits: Config, world: Config, seeds: int) -> Preset:
    cases = _grid(_WORLD, (world,)) + _grid(_DIGITS, (digits,))  # the long runs first
    return Preset({"precision": "fp32", "tuning": False}, cases, seeds)


_FEW = {"steps": 6, "batch_size": 16, "warmup_steps": 2, "eval_every": 3, "n_train": 64}
_ALL_DIGITS = {"batch_size": 64, "eval_every": 50, "n_train": 1_437}
_MANY = {"batch_size": 128, "n_train": 30_000, "n_test": 2_000}
# Learning rates of fine-tuning are for batches of 512, as in Table 4.
_ARMS = ("1x", "1.5x", "2x", "scratch")


def _finetunings(target: str, *rates: str) -> Config:
    return {f"rates {target} {arm}": rate for arm, rate in zip(_ARMS, rates, strict=True)}


_TRANSFER = {"epochs": 6, "finetuning_batch": 32, "n_near": 1_000, "n_test": 2_000}
_FROM_WORLD = ({"model": "Lab-Ti/8", "learning_rate": 4e-3}, {"model": "BiT-Lab-Ti/8", "learning_rate": 16e-3})
_VIT_64, _BIT_64 = ({"model": "Lab-Ti/8", "learning_rate": 2e-3}, {"model": "BiT-Lab-Ti/8", "learning_rate": 6e-3})
_UNTUNED = _finetunings("imagenette", "1.0", "1.0", "1.0", "") | _finetunings("cifar10", "1.0", "", "", "")
_M_BASE = {"image_size": 64, "patch_size": 8, "dim": 96, "depth": 4, "n_heads": 4}
_TINY = {"image_size": 16, "patch_size": 4, "dim": 32, "depth": 2, "n_heads": 2}


def _pretrainings(photographs: str, labels: tuple[str, ...], samples: int, masked: int, supervised: int) -> tuple:
    """From scratch, masked with each target, with labels, and masked on the labels' images; all see as many samples."""

    def masks(arm: str, data: str, target: str) -> Config:
        size = {"steps": samples // masked, "batch_size": masked, "learning_rate": 3e-3}
        return {"arm": arm, "objective": "masked", "data": data, "target": target} | size

    steps = {"steps": samples // supervised, "batch_size": supervised, "learning_rate": 1e-3}
    nothing = {"steps": 0, "batch_size": 1, "learning_rate": 0.0}
    return (
        {"arm": "scratch", "objective": "none", "data": "", "target": ""} | nothing,
        *(masks(f"masked, {target}", photographs, target) for target in ("mean-colour", "downsized", "pixels")),
        *({"arm": data, "objective": "labels", "data": data, "target": ""} | steps for data in labels),
        *(masks(f"masked on {data}", data, "mean-colour") for data in labels),
    )


_HEADS_AT = {"target": "mean-colour", "share": 0.5}
_LOCAL = _HEADS_AT | {"batch_size": 16, "decay": "constant"}
_CROPS = {"objective": "masked", "data": "photographs", "n_train": 0}
_CIFAR = {"tuning": False, "pretraining_rate": 1.5e-3, "weight_decay": 0.1, "label_smoothing": 0.1, "image_size": 32}
_CIFAR |= {"learning_rate": 1e-3}
_OTHER_STUDIES = {
    "training_curves": Study(
        "curves",
        "training curves of the three families on the digits and the world (§4.1, Table 3)",
        {
            "smoke": _curves(_FEW, _FEW | {"n_test": 60}, 2),
            "quick": _curves(
                _ALL_DIGITS | {"steps": 400, "warmup_steps": 40},
                _MANY | {"steps": 270, "warmup_steps": 27, "eval_every": 27},
                3,
            ),
            "full": _curves(
                _ALL_DIGITS | {"steps": 600, "warmup_steps": 60},
                _MANY | {"steps": 450, "warmup_steps": 45, "eval_every": 45},
                5,
            ),
        },
    ),
    "real_subsets": Study(
        "subsets",
        "ViT and ResNet from scratch on parts of real sets, each at its best rate (§4.3, Fig. 4)",
        {
            "smoke": Preset(
                {"source": "digits", "steps": 4, "n_test": 60, "image_size": 16, "batch_size": 16, "precision": "fp32"},
                _grid({"n_train": (32, 64), "model": ("Lab-Ti/4", "BiT-Lab-Ti/4"), "learning_rate": (1e-3, 4e-3)}),
                2,
            ),
            "full": Preset(
                {"steps": 1_000, "n_test": 1_000, "image_size": 32, "batch_size": 128, "precision": "bf16"},
                _grid(
                    tuple({"source": "cifar10", "n_train": n} for n in (500, 2_000, 8_000, 49_000))
                    + tuple({"source": "digits", "n_train": n} for n in (100, 400, 1_300)),
                    {"model": ("Lab-Ti/8", "BiT-Lab-Ti/8"), "learning_rate": (5e-4, 2e-3, 8e-3)},
                ),
                5,
            ),
        },
        needs=("cifar10",),
    ),
    "transfer": Study(
        "transfer",
        "pre-training, fine-tuning at three resolutions, few-shot and linear probe (§3.2, Table 4; C08, C21)",
        {
            "smoke": Preset(
                _TRANSFER
                | {"source": "world", "targets": "digits", "steps": 4, "batch_size": 16, "warmup_steps": 1}
                | {"precision": "fp32", "image_size": 16, "n_source": 64, "difficulty": 1.0, "epochs": 2}
                | {"n_train": 400, "n_test": 100, "n_near": 300, "finetuning_batch": 100}
                | _finetunings("digits", "1.0 3.0", "1.0", "1.0", "1.0"),
                _FROM_WORLD,
                2,
            ),
            "quick": Preset(
                _TRANSFER
                | {"source": "world", "targets": "digits", "steps": 200, "batch_size": 128, "warmup_steps": 20}
                | {"precision": "fp32", "image_size": 32, "n_source": 10_000, "difficulty": 1.0, "n_train": 1_000},
                (
                    _FROM_WORLD[0] | _finetunings("digits", "1.0", "3.0", "3.0", "1.0"),
                    _FROM_WORLD[1] | _finetunings("digits", "3.0", "", "", "1.0"),
                ),
                3,
            ),
            "full": Preset(
                _TRANSFER
                | {"targets": "imagenette cifar10", "steps": 1_500, "batch_size": 64, "warmup_steps": 75}
                | {"precision": "bf16", "image_size": 64, "n_source": 0, "difficulty": 0.5, "n_train": 2_500},
                (
                    {"source": "imagenette"}
                    | _VIT_64
                    | _finetunings("imagenette", "0.3", "1.0", "0.3", "1.0")
                    | _finetunings("cifar10", "0.3", "", "", "1.0"),
                    {"source": "imagenette"}
                    | _BIT_64
                    | _finetunings("imagenette", "1.0", "0.3", "1.0", "1.0")
                    | _finetunings("cifar10", "3.0", "", "", "1.0"),
                    {"source": "world-300"} | _VIT_64 | _UNTUNED,
                    {"source": "world-300"} | _BIT_64 | _UNTUNED,
                ),
                9,
            ),
        },
        needs=("imagenette", "cifar10"),
    ),
    "masked_pretraining": Study(
        "masked",
        "from scratch, masked and supervised pre-training, fine-tuned alike (§4.6; C15)",
        {
            "smoke": Preset(
                _TINY
                | {"finetuned_on": "digits", "n_train": 60, "n_test": 40, "finetuning_steps": 4, "finetuning_batch": 16}
                | {"finetuning_warmup": 1, "eval_every": 2, "rates": "0.001 0.003", "precision": "fp32"},
                _pretrainings("photographs", ("world",), 32, 8, 16),
                2,
            ),
            "full": Preset(
                _M_BASE
                | {"finetuned_on": "imagenette", "n_train": 0, "n_test": 0, "finetuning_steps": 600}
                | {"finetuning_batch": 64, "finetuning_warmup": 60, "eval_every": 100}
                | {"rates": "0.0005 0.0015", "precision": "bf16"},
                _pretrainings("imagenette", ("world", "cifar10"), 96_000, 16, 64),
                5,
            ),
        },
        needs=("imagenette", "cifar10"),
    ),
    "local_heads": Study(
        "local_heads",
        "how local heads come about: every head and the position map while a ViT trains (§4.5, §4.6; C10, L01, L02)",
        {
            "smoke": Preset(
                _HEADS_AT
                | _TINY
                | {"steps": 6, "batch_size": 8, "learning_rate": 1.5e-3, "warmup_steps": 2, "decay": "cosine"}
                | {"eval_every": 2, "precision": "fp32", "n_watched": 4, "n_test": 8},
                (_CROPS,),
                2,
            ),
            "quick": Preset(
                _LOCAL
                | {"image_size": 32, "patch_size": 4, "dim": 64, "depth": 4, "n_heads": 4, "steps": 800}
                | {"learning_rate": 4e-3, "warmup_steps": 100, "eval_every": 40, "precision": "fp32"}
                | {"n_watched": 32, "n_test": 128},
                (_CROPS,),
                3,
            ),
            "full": Preset(
                _LOCAL
                | _M_BASE
                | {"image_size": 80, "steps": 6_000, "warmup_steps": 300, "eval_every": 300, "precision": "bf16"}
                | {"n_watched": 128, "n_test": 500},
                (
                    _CROPS | {"learning_rate": 4e-3},
                    *_grid(
                        (
                            {"objective": "masked", "learning_rate": 4e-3},
                            {"objective": "labels", "learning_rate": 1e-3},
                        ),
                        {"data": ("imagenette",), "n_train": (300, 1_000, 3_000, 9_469)},
                    ),
                ),
                5,
            ),
        },
        needs=("imagenette",),
    ),
    "cifar10_best": Study(
        "cifar10",
        "CIFAR-10 by the best small ViT in an hour of one core: masked first, or a hybrid (§3.1, §4.6)",
        {
            "smoke": Preset(
                _CIFAR
                | {"model": "Lab-Mu/8", "batch_size": 16, "mixup": 0.5, "data": "digits", "precision": "fp32"}
                | {"n_train": 60, "n_test": 40},
                (
                    {"pretraining": "scratch", "pretraining_steps": 0, "steps": 4},
                    {"pretraining": "masked", "pretraining_steps": 2, "steps": 2},
                    {"pretraining": "world", "pretraining_steps": 2, "steps": 2},
                ),
                1,
            ),
            "full": Preset(
                _CIFAR
                | {"batch_size": 64, "mixup": 0.0, "data": "cifar10", "precision": "bf16"}
                | {"n_train": None, "n_test": None},
                (
                    {"model": "R+Lab-M/8", "pretraining": "scratch", "pretraining_steps": 0, "steps": 64_687},
                    {"model": "Lab-M/4", "pretraining": "masked", "pretraining_steps": 15_778, "steps": 15_778},
                ),
                1,
            ),
        },
        needs=("cifar10",),
    ),
}

# --- measures of given weights (§3.1, §4.5, App. D.5; C01, C02, C11 to C14, C20) --------------------------------------
_MEASURES = {
    "filters": Study(
        "filters",
        "principal components of embedding filters (Fig. 7 left)",
        {"full": Preset({"weights": "lab", "n_untrained": 20, "n_groups": 24}, ({},), 1)},
    ),
    "positions": Study(
        "positions",
        "similarity of position embeddings (Fig. 7 centre)",
        {"full": Preset({"weights": "lab", "n_untrained": 20, "n_shuffled": 100, "n_groups": 24}, ({},), 1)},
    ),
    "distances": Study(
        "distances",
        "mean attention distance of every head (Fig. 7 right)",
        {
            "full": Preset(
                {"images": "crops", "n_images": 128, "n_controls": 2}, _grid({"weights": ("lab", "lab-hybrid")}), 1
            )
        },
    ),
    "rollout": Study(
        "rollout",
        "attention rollout and the world's masks (Fig. 6)",
        {"full": Preset({"weights": "lab-world", "n_images": 256, "n_controls": 2}, ({},), 1)},
    ),
    "checks": Study(
        "checks",
        "our ViT against Table 1, timm and Eq. 1–8",
        {"full": Preset({"preset": "quick"}, ({},), 1)},
    ),
    "speed": Study(
        "speed",
        "images per second and largest batch (Fig. 12)",
        {"full": Preset({"preset": "quick"}, ({},), 1)},
    ),
}
STUDIES = _SCALING_STUDIES | _DESIGN_STUDIES | _OTHER_STUDIES | _MEASURES
