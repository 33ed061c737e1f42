"""What is run: every study as data, by preset (§4; hyper-parameters from the trials in figures/evidence/trials.csv)."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

Config = dict[str, Any]

# Kind of run → version of its function in `run.py`, raised by hand when numbers move: committed rows are then stale.
VERSION = {"scaling": 1, "design": 1, "subsets": 1, "curves": 1, "transfer": 1, "masked": 1, "local_heads": 1}
VERSION |= {"adapted": 1, "distances": 1, "rollout": 1, "checks": 1, "speed": 2}
PRESETS = {
    "smoke": "the tests: every line runs, no number counts",
    "quick": "a laptop, offline: what a chapter trains live, seconds to two minutes each",
    "full": "recomputes the evidence: hours, resumed where it stopped, on any device",
}


class Preset(NamedTuple):
    """One size of a study: what all its runs share, the cases that it compares, and how many seeds each case has."""

    base: Config
    cases: tuple[Config, ...] = ({},)
    seeds: int = 1


class Study(NamedTuple):
    """A study: which function of `run.py` does its runs, real data that `full` must have, and its sizes by preset."""

    kind: str
    needs: tuple[str, ...]
    presets: dict[str, Preset]


STUDIES: dict[str, Study] = {
    name: Study(kind, tuple(needs.split()), {})
    for name, kind, needs in (
        ("data_scaling", "scaling", "cifar10 imagenette"),  # by training images, matched pairs (§4.3, Fig. 3, 4)
        ("data_scaling_large", "scaling", ""),  # the same with larger pairs and sets, for a GPU: `--scale large`
        ("compute_scaling", "scaling", "cifar10 imagenette"),  # accuracy by training compute (§4.4, Fig. 5, Table 6)
        ("head_rates", "design", ""),  # class token and average pooling, each at its best rate (Fig. 9; C16)
        ("vit_shapes", "design", ""),  # a ViT scaled along one dimension at a time (App. D.2, Fig. 8; C18)
        ("axial_attention", "design", ""),  # axial and full, equal depth, parameters, FLOPs (App. D.6, Fig. 13; C19)
        ("position_variants", "design", "cifar10"),  # kinds and places, where they matter (App. D.4, Table 8; C09)
        ("longer_positions", "design", "cifar10"),  # until every seed has left chance, relative longest (App. D.4; C09)
        ("resnet_optimizers", "design", "cifar10"),  # Adam and SGD before equal fine-tuning (App. D.1, Table 7; C17)
        ("training_curves", "curves", ""),  # the three families on the world, sample by sample (§4.1, Table 3)
        ("real_subsets", "subsets", "cifar10"),  # ViT and ResNet from scratch on parts of real sets (§4.3, Fig. 4)
        ("transfer", "transfer", "imagenette cifar10"),  # fine-tuning at three resolutions (§3.2, Table 4; C08, C21)
        ("masked_pretraining", "masked", "imagenette cifar10"),  # scratch, masked, supervised, then alike (§4.6; C15)
        ("local_heads", "local_heads", "imagenette"),  # heads and positions while a ViT trains (§4.5; C10, L01, L02)
        ("hybrid_heads", "local_heads", "imagenette"),  # the same of a hybrid, masked, all photographs (Fig. 7; C13)
        ("learnt_filters", "local_heads", "imagenette"),  # the ViTs of that, from small filters (Fig. 7 left; C11)
        ("adapted", "adapted", "imagenette cifar10"),  # given weights on 1,000 images a task (§4.2, Table 2, Fig. 2)
        ("real_distances", "distances", "imagenette"),  # of every head of two ViTs trained on ImageNet (Fig. 7 right)
        ("rollout", "rollout", ""),  # attention rollout and the world's masks (Fig. 6)
        ("real_rollout", "rollout", "imagenette"),  # the same of ViTs trained on ImageNet, on photographs with boxes
        ("checks", "checks", ""),  # our ViT against Table 1, timm and Eq. 1–8
        ("speed", "speed", ""),  # images per second and largest batch (Fig. 12)
    )
}


def study(name: str) -> Study:
    """Look a study up; raises ValueError, with the names there are, for another."""
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}: choose one of {', '.join(STUDIES)}")
    return STUDIES[name]


def preset(name: str, size: str) -> Preset:
    """Look up a study's preset; raises ValueError for an unknown study, or a preset that it does not have."""
    found = study(name).presets
    if size not in found:
        raise ValueError(f"the study {name} has no preset {size!r}: choose one of {', '.join(found)}")
    return found[size]


def runs(name: str, size: str, seed: int = 0) -> list[Config]:
    """List every run of a study at a preset, seed by seed; `seed` shifts all seeds by hundreds (a replication).

    Seeds count from 0, or from the preset's own `seed`.

    >>> len(runs("data_scaling", "full")), runs("data_scaling", "smoke", seed=1)[0]["seed"]
    (60, 100)
    """
    chosen = preset(name, size)
    cases = [{**chosen.base, **case} for case in chosen.cases]
    return [config | {"seed": config.get("seed", 0) + 100 * seed + s} for s in range(chosen.seeds) for config in cases]


def _cases(names: str, *rows: tuple) -> tuple[Config, ...]:
    """Make cases of a table: the names of its columns, and its rows."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def _grid(*parts: dict[str, tuple] | tuple[Config, ...]) -> tuple[Config, ...]:
    """Combine: of a dictionary every value of every key, of a tuple of cases every case."""
    axes = [_cases(" ".join(p), *itertools.product(*p.values())) if isinstance(p, dict) else p for p in parts]
    return tuple({k: v for each in chosen for k, v in each.items()} for chosen in itertools.product(*axes))


# --- scaling: data, compute, classes (§4.3, §4.4; C03 to C07) ---------------------------------------------------------
SIZES = (256_000, 64_000, 16_000, 4_000, 1_000)  # numbers of training images


def _length(base: Config, steps: int) -> Config:
    """A training of another length by the same recipe: warm-up and evaluations shrink with it."""
    shorter = {name: max(1, base[name] * steps // base["steps"]) for name in ("warmup_steps", "eval_every")}
    return {"steps": steps} | shorter


# Ends early where validation accuracy rises no more; measured on `n_test` other images, few-shot on classes `at_once`.
_SCALING = {"label_smoothing": 0.0, "difficulty": 0.5, "cue": "mixed", "real": "digits", "finetuning_steps": 0}
_AT_SMOKE = _SCALING | {"batch_size": 16, "precision": "fp32", "image_size": 16, "n_classes": 10, "n_frozen": 200}
_AT_SMOKE |= {"steps": 6, "warmup_steps": 2, "eval_every": 2, "patience": 2, "n_validation": 32, "n_test": 64}
_AT_SMOKE |= {"learning_rate": 2e-3, "weight_decay": 0.1, "at_once": "10 20"}
_AT_FULL = _SCALING | {"batch_size": 128, "precision": "fp32", "image_size": 32, "n_classes": 100, "weight_decay": 0.3}
_AT_FULL |= {"steps": 8_000, "warmup_steps": 400, "eval_every": 250, "patience": 8, "n_validation": 1_000}
_AT_FULL |= {"n_test": 2_000, "n_sets": 12, "n_frozen": 500, "real": "digits cifar10 imagenette"}
_ON_REAL: Config = {"finetuning_n_images": 2_000, "finetuning_steps": 150, "finetuning_batch_size": 128}
_ON_REAL |= {"finetuning_learning_rate": "3e-4 1e-3 3e-3"}

_MATCHED, _AMONG = _cases("model learning_rate", ("Lab-Mu/8", 8e-3), ("BiT-Mu/8", 16e-3)), {"at_once": "10 100"}
_LARGER = _ON_REAL | {"model": "Lab-Ti/8", "learning_rate": 4e-3, "finetuning_steps": 0}  # for C04
_BY_DATA = (  # large sets first: no long run comes last; fine-tuned are the models of most images
    *_grid({"n_train": SIZES[:1]}, (_AMONG | _ON_REAL,), _MATCHED),
    *_grid({"n_train": SIZES[1:-1]}, (_AMONG,), _MATCHED),
    *_grid({"n_train": SIZES[-1:]}, (_AMONG,), (_MATCHED[0], _MATCHED[1] | {"weight_decay": 10.0})),
    *_grid({"n_train": (256_000, 1_000)}, (_LARGER,)),
)
STUDIES["data_scaling"].presets.update(
    smoke=Preset(_AT_SMOKE, _grid({"n_train": (64, 32, 16), "model": ("Lab-Ti/4", "BiT-Lab-Ti/4", "Lab-Mu/4")}), 2),
    full=Preset(_AT_FULL, _BY_DATA, seeds=5),
)
_LARGE = _AT_FULL | {"batch_size": 1_024, "precision": "bf16", "n_classes": 1_000, "real": ""}
_ENDS_FIRST = {"n_train": (4_000_000, 10_000, 1_000_000, 100_000)}
_VITS, _RESNETS = (  # untried: rates that are guesses from the small models', each with half and double
    _grid({"learning_rate": (r, r / 2, 2 * r)}, _ENDS_FIRST, {"model": (f + "S/8", f + "M/4", f + "M/8", f + "S/4")})
    for f, r in (("Lab-", 2e-3), ("BiT-", 8e-3))
)
STUDIES["data_scaling_large"].presets.update(
    smoke=Preset(_AT_SMOKE, _grid({"n_train": (64, 16), "model": ("Lab-S/8", "BiT-S/8")})),
    full=Preset(_LARGE, tuple(case for pair in zip(_VITS, _RESNETS, strict=True) for case in pair)),
)
_TUNED = {  # by length, the best of trials; of Lab-Mu and BiT-Mu 8,000 steps are runs of `data_scaling`
    8_000: {"R+Mu/8": 4e-3, "C+Mu/8": 4e-3},
    2_000: {"Lab-Mu/8": 16e-3, "BiT-Mu/8": 32e-3, "R+Mu/8": 8e-3, "C+Mu/8": 16e-3},
    500: {"Lab-Mu/8": 8e-3, "BiT-Mu/8": 64e-3, "R+Mu/8": 4e-3, "C+Mu/8": 16e-3},
    125: {"Lab-Mu/8": 16e-3, "C+Mu/8": 8e-3},
}
_TRIED = tuple(_length(_AT_FULL, n) | {"model": m, "learning_rate": r} for n in _TUNED for m, r in _TUNED[n].items())
STUDIES["compute_scaling"].presets.update(
    smoke=Preset(_AT_SMOKE | {"n_train": 64}, _grid(({}, _length(_AT_SMOKE, 3)), {"model": tuple(_TUNED[500])}), 2),
    full=Preset(_AT_FULL | {"n_train": 256_000}, _TRIED, seeds=5),
)

# --- design choices (App. D; C09, C16 to C19) -------------------------------------------------------------------------
_DESIGN = {"image_size": 32, "optimizer": "adam", "weight_decay": 0.1, "precision": "bf16", "difficulty": 0.5}
_DESIGN |= {"batch_size": 128, "n_validation": 1_000, "n_test": 2_000}
_MIXED = _DESIGN | {"task": "mixed", "steps": 2_000, "n_train": 64_000}

_HEADS = _cases("arm pool", ("class token", "class"), ("GAP", "gap"))
_RATES = [(500, rate) for rate in (4e-3, 8e-3, 16e-3)] + [(2_000, rate) for rate in (2e-3, 4e-3, 8e-3)]
_RATES += [(8_000, 8e-3)]  # of pilots, the best of four
STUDIES["head_rates"].presets["full"] = Preset(
    _MIXED | {"model": "Lab-Ti/8", "n_classes": 100}, _grid(_HEADS, _cases("steps learning_rate", *_RATES)), seeds=5
)

_SHAPES = _cases(  # of ViTs by the dimension in which they leave the base; each at the pilots' best rate
    "dimension depth dim mlp_dim model learning_rate",
    ("base", 2, 32, 64, "Lab-Mu/8", 24e-3),
    ("depth", 4, 32, 64, "Lab-Mu/8", 6e-3),
    ("depth", 8, 32, 64, "Lab-Mu/8", 6e-3),
    ("width", 2, 48, 64, "Lab-Mu/8", 12e-3),
    ("width", 2, 72, 64, "Lab-Mu/8", 12e-3),
    ("MLP width", 2, 32, 208, "Lab-Mu/8", 12e-3),
    ("MLP width", 2, 32, 496, "Lab-Mu/8", 12e-3),
    ("patch size", 2, 32, 64, "Lab-Mu/4", 24e-3),
    ("all", 4, 48, 96, "Lab-Mu/8", 12e-3),
)
_NAMED = "{depth} blocks, {dim} wide, MLP {mlp_dim}, {model}"
STUDIES["vit_shapes"].presets["full"] = Preset(
    _MIXED | {"n_classes": 300, "n_heads": 2, "steps": 8_000, "eval_every": 800},
    tuple(each | {"arm": _NAMED.format(**each)} for each in _SHAPES),
    seeds=5,
)

_ATTENTIONS = _cases(
    "arm depth attention",
    ("axial", 2, "axial"),
    ("full, same depth", 2, "full"),
    ("full, equal parameters", 4, "full"),
    ("full, equal FLOPs", 3, "full"),
)
_AXIAL = _MIXED | {"n_classes": 300, "model": "Lab-Mu/4", "pool": "gap", "learning_rate": 12e-3}
_AXIAL |= {"steps": 4_000, "precision": "fp32", "eval_every": 400}
STUDIES["axial_attention"].presets["full"] = Preset(_AXIAL, _ATTENTIONS, seeds=5)

TABLE_8 = {  # its cells (ViT-B/16, 5-shot accuracy on ImageNet, 0…1); relative embeddings act in every block
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
_TASKS = _cases("task difficulty", ("arrangement", 0.3), ("contour", 0.05))
_CIFAR10 = {"task": "cifar10", "difficulty": 0.0}
_TWO_RATES = {"learning_rate": (3e-3, 1e-2)}
_P_BASE = _DESIGN | {"model": "Lab-Mu/4", "precision": "fp32", "n_classes": 10}
_P_FULL = _P_BASE | {"steps": 400, "n_train": 40_000}
_P_SMOKE = _P_BASE | {"task": "arrangement", "difficulty": 0.1, "learning_rate": 4e-3, "image_size": 16, "n_classes": 3}
_P_SMOKE |= {"steps": 3, "batch_size": 8, "n_train": 24, "n_validation": 12, "n_test": 12}
STUDIES["position_variants"].presets.update(
    smoke=Preset(_P_SMOKE, _POSITIONS, 2),
    full=Preset(_P_FULL, _grid((*_TASKS, _CIFAR10), _POSITIONS, _TWO_RATES), 5),
)
_1D_AND_RELATIVE = (_POSITIONS[1], _POSITIONS[-1])
_LATE = _grid(_TASKS, _1D_AND_RELATIVE, {"steps": (6_400,), "learning_rate": (1e-2,)})  # of pilots, the best rates
_LATE += _grid((_CIFAR10,), _1D_AND_RELATIVE, {"learning_rate": (3e-3,)})
STUDIES["longer_positions"].presets["full"] = Preset(
    _P_FULL | {"steps": 1_600}, (*_grid(_TASKS, _POSITIONS, _TWO_RATES), *_LATE), seeds=5
)

_OPTIMIZERS = _MIXED | {"precision": "fp32", "n_classes": 100, "targets": "digits cifar10", "finetuning_steps": 150}
_OPTIMIZERS |= {"finetuning_n_images": 2_000, "finetuning_batch_size": 64, "finetuning_rates": "0.03 0.1 0.3 1.0 3.0"}
_TUNED_APART = _cases(  # each optimiser at its best rate and with its own decay: that of Table 3, and that of BiT
    "arm model optimizer weight_decay learning_rate",
    ("BiT-Lab-Ti/8, adam", "BiT-Lab-Ti/8", "adam", 0.1, 16e-3),
    ("BiT-Lab-Ti/8, sgd", "BiT-Lab-Ti/8", "sgd", 1e-4, 0.3),
    ("BiT-Lab-Mu/8, adam", "BiT-Lab-Mu/8", "adam", 0.1, 64e-3),
    ("BiT-Lab-Mu/8, sgd", "BiT-Lab-Mu/8", "sgd", 1e-4, 1.0),
)
STUDIES["resnet_optimizers"].presets["full"] = Preset(_OPTIMIZERS, _TUNED_APART, seeds=5)

# --- from scratch, transfer, masked prediction (§3.2, §4.1, §4.6; C08, C15, C21, L01, L02) ----------------------------
_FAMILIES = _cases("model learning_rate", ("Lab-Ti/8", 4e-3), ("BiT-Lab-Ti/8", 16e-3), ("R+Lab-Ti/8", 4e-3))
_CURVES = {"precision": "fp32", "tuning": False, "data": "world", "image_size": 32, "weight_decay": 0.1}
_FEW = {"steps": 6, "batch_size": 16, "warmup_steps": 2, "eval_every": 3, "n_train": 64, "n_test": 60}
_LONG = {"steps": 450, "batch_size": 128, "warmup_steps": 45, "eval_every": 45, "n_train": 30_000, "n_test": 2_000}
STUDIES["training_curves"].presets.update(
    smoke=Preset(_CURVES | _FEW, _FAMILIES, 2), full=Preset(_CURVES | _LONG, _FAMILIES, 5)
)

_SUBSETS = [("cifar10", n) for n in (500, 2_000, 8_000, 49_000)] + [("digits", n) for n in (100, 400, 1_300)]
_BOTH = {"model": ("Lab-Ti/8", "BiT-Lab-Ti/8"), "learning_rate": (5e-4, 2e-3, 8e-3)}
STUDIES["real_subsets"].presets["full"] = Preset(
    {"steps": 1_000, "n_test": 1_000, "image_size": 32, "batch_size": 128, "precision": "bf16"},
    _grid(_cases("source n_train", *_SUBSETS), _BOTH),
    seeds=5,
)


def _finetunings(target: str, *rates: str) -> Config:
    """Learning rates to try at 1x, 1.5x, 2x and from scratch: for batches of 512, as in Table 4."""
    return {f"rates {target} {arm}": rate for arm, rate in zip(("1x", "1.5x", "2x", "scratch"), rates, strict=True)}


_TRANSFER = {"epochs": 6, "finetuning_batch": 32, "n_near": 1_000, "n_test": 2_000}
_TRANSFER_SMOKE = _TRANSFER | {"source": "world", "targets": "digits", "difficulty": 1.0, "precision": "fp32"}
_TRANSFER_SMOKE |= {"steps": 4, "batch_size": 16, "warmup_steps": 1, "image_size": 16, "n_source": 64, "epochs": 2}
_TRANSFER_SMOKE |= {"n_train": 400, "n_test": 100, "n_near": 300, "finetuning_batch": 100}
_TRANSFER_SMOKE |= _finetunings("digits", "1.0 3.0", "1.0", "1.0", "1.0")
_TRANSFER_FULL = _TRANSFER | {"targets": "imagenette cifar10", "steps": 1_500, "batch_size": 64, "warmup_steps": 75}
_TRANSFER_FULL |= {"precision": "bf16", "image_size": 64, "n_source": 0, "difficulty": 0.5, "n_train": 2_500}
_VIT_64, _BIT_64 = _cases("model learning_rate", ("Lab-Ti/8", 2e-3), ("BiT-Lab-Ti/8", 6e-3))
_TUNED_VIT = _finetunings("imagenette", "0.3", "1.0", "0.3", "1.0") | _finetunings("cifar10", "0.3", "", "", "1.0")
_TUNED_BIT = _finetunings("imagenette", "1.0", "0.3", "1.0", "1.0") | _finetunings("cifar10", "3.0", "", "", "1.0")
_UNTUNED = _finetunings("imagenette", "1.0", "1.0", "1.0", "") | _finetunings("cifar10", "1.0", "", "", "")
STUDIES["transfer"].presets.update(
    smoke=Preset(_TRANSFER_SMOKE, _cases("model learning_rate", ("Lab-Ti/8", 4e-3), ("BiT-Lab-Ti/8", 16e-3)), seeds=2),
    full=Preset(
        _TRANSFER_FULL,
        (
            {"source": "imagenette"} | _VIT_64 | _TUNED_VIT,
            {"source": "imagenette"} | _BIT_64 | _TUNED_BIT,
            {"source": "world-300"} | _VIT_64 | _UNTUNED,
            {"source": "world-300"} | _BIT_64 | _UNTUNED,
        ),
        seeds=9,
    ),
)

_BODY = {"image_size": 64, "patch_size": 8, "dim": 96, "depth": 4, "n_heads": 4}
_MASKED = _BODY | {"finetuned_on": "imagenette", "n_train": 0, "n_test": 0, "finetuning_steps": 600}
_MASKED |= {"finetuning_batch": 64, "finetuning_warmup": 60, "eval_every": 100, "rates": "0.0005 0.0015"}
_BY_MASKING, _BY_LABELS = (6_000, 16, 3e-3), (1_500, 64, 1e-3)  # as many samples
_ARMS = _cases(
    "arm objective data target steps batch_size learning_rate",
    ("scratch", "none", "", "", 0, 1, 0.0),
    ("masked, mean-colour", "masked", "imagenette", "mean-colour", *_BY_MASKING),
    ("masked, downsized", "masked", "imagenette", "downsized", *_BY_MASKING),
    ("masked, pixels", "masked", "imagenette", "pixels", *_BY_MASKING),
    ("world", "labels", "world", "", *_BY_LABELS),
    ("cifar10", "labels", "cifar10", "", *_BY_LABELS),
    ("masked on world", "masked", "world", "mean-colour", *_BY_MASKING),
    ("masked on cifar10", "masked", "cifar10", "mean-colour", *_BY_MASKING),
    ("masked on pink noise", "masked", "pink noise", "mean-colour", *_BY_MASKING),
    ("masked on white noise", "masked", "white noise", "mean-colour", *_BY_MASKING),
)
_AT = {"masked on pink noise": {"rates": "0.0015"}, "masked on white noise": {"rates": "0.005"}}  # the pilots' best
_LONGER = _cases(  # 2,100 steps are the samples of masking and 600 steps; 3,600 those of masking and 2,100 steps
    "arm objective finetuning_steps finetuning_warmup eval_every",
    ("scratch, as long", "none", 2_100, 210, 350),
    ("scratch, 3,600 steps", "none", 3_600, 360, 600),
    ("masked, 2,100 steps", "masked", 2_100, 210, 350),
)
_FIRST = {arm["objective"]: arm for arm in _ARMS[:2]}
STUDIES["masked_pretraining"].presets["full"] = Preset(
    _MASKED | {"precision": "bf16"},
    (
        *(arm | _AT.get(arm["arm"], {}) for arm in _ARMS),
        *(_FIRST[each["objective"]] | each | {"rates": "0.0015"} for each in _LONGER),
    ),
    seeds=5,
)

_LOCAL = {"target": "mean-colour", "share": 0.5, "batch_size": 16, "decay": "constant"}
_CROPS = {"objective": "masked", "data": "photographs", "n_train": 0}
_LOCAL_SMOKE = _LOCAL | _CROPS | {"image_size": 16, "patch_size": 4, "dim": 32, "depth": 2, "n_heads": 2, "steps": 6}
_LOCAL_SMOKE |= {"batch_size": 8, "learning_rate": 1.5e-3, "warmup_steps": 2, "decay": "cosine", "eval_every": 2}
_LOCAL_SMOKE |= {"precision": "fp32", "n_watched": 4, "n_test": 8}
_LOCAL_QUICK = _LOCAL | _CROPS | {"image_size": 32, "patch_size": 4, "dim": 64, "depth": 4, "n_heads": 4, "steps": 800}
_LOCAL_QUICK |= {"learning_rate": 4e-3, "warmup_steps": 100, "eval_every": 40, "precision": "fp32"}
_LOCAL_QUICK |= {"n_watched": 32, "n_test": 128}
_LOCAL_FULL = _LOCAL | _BODY | {"image_size": 80, "steps": 6_000, "warmup_steps": 300, "eval_every": 300}
_LOCAL_FULL |= {"precision": "bf16", "n_watched": 128, "n_test": 500}
_LEARNT = _cases("objective learning_rate", ("masked", 4e-3), ("labels", 1e-3))
_PHOTOGRAPHS = {"data": ("imagenette",), "n_train": (300, 1_000, 3_000, 9_469)}
STUDIES["local_heads"].presets.update(
    smoke=Preset(_LOCAL_SMOKE, seeds=2),
    quick=Preset(_LOCAL_QUICK),
    full=Preset(_LOCAL_FULL, (_CROPS | {"learning_rate": 4e-3}, *_grid(_LEARNT, _PHOTOGRAPHS)), 5),
)
_HYBRID = _LOCAL_FULL | _LEARNT[0] | {"data": "imagenette", "n_train": 9_469, "width": 16}
STUDIES["hybrid_heads"].presets["full"] = Preset(_HYBRID, seeds=5)
_SMALL_START = _LOCAL_FULL | _LEARNT[0] | {"data": "imagenette", "n_train": 9_469, "embed_scale": 1 / 8}
STUDIES["learnt_filters"].presets["full"] = Preset(_SMALL_START | {"precision": "fp32", "eval_every": 3_000}, seeds=5)

# --- measures of given weights (§3.1, §4.5, App. D.5; C01, C02, C11 to C14, C20) --------------------------------------
# Real ViTs, trained by others: ImageNet-21k and then 1k, and 1k alone; the study runs in the folder of these files.
_TINY = {"vit_tiny_patch16_224": "vit_tiny_patch16_224_in1k", "deit_tiny_patch16_224": "deit_tiny_patch16_224"}
REAL = tuple(f"{name}@{folder}/model.safetensors" for name, folder in _TINY.items())
_BEGUN = _cases("weights untrained rate", ("lab", True, 1.0), ("lab", False, 0.3), ("lab-world", False, 1.0))
_BEGUN += _cases("weights untrained rate", *((name, False, 0.3) for name in REAL))  # rates: of trials on CIFAR-10
_PHOTOS = {"image_size": (96,), "epochs": (4,), "target": ("cifar10", "imagenette", "digits")}
_SYNTHETIC = {"image_size": (64,), "epochs": (16,), "target": ("column", "size", "angle", "count")}
STUDIES["adapted"].presets["full"] = Preset(
    {"n_train": 1_000, "n_test": 500, "finetuning_batch": 32, "precision": "fp32"},
    (*_grid(_PHOTOS, _BEGUN), *_grid(_SYNTHETIC, _BEGUN, {"rate": (1.0,)})),  # that rate: of trials on "column"
    seeds=3,
)
for _name, _base, _cases_of in (
    ("real_distances", {"images": "imagenette-boxes", "n_images": 128, "n_controls": 2}, _grid({"weights": REAL})),
    ("rollout", {"weights": "lab-world", "n_images": 256, "n_controls": 2}, ({},)),
    ("real_rollout", {"images": "imagenette-boxes", "n_images": 500, "n_controls": 1}, _grid({"weights": REAL})),
    ("checks", {"preset": "quick"}, ({},)),
    ("speed", {"preset": "quick"}, ({},)),
):
    STUDIES[_name].presets["full"] = Preset(_base, _cases_of)
