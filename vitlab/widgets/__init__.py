"""Knobs to turn in the notebooks, each with a still picture where no kernel is there to follow (§3.1 to §4.5)."""

from vitlab.widgets.curves import data_sizes, worlds
from vitlab.widgets.design import head_rates, position_kinds, shapes_film
from vitlab.widgets.film import Film, training_film
from vitlab.widgets.knobs import Knob, Knobs, Upload, knobs
from vitlab.widgets.maps import distance_modes, position_resizing, rollout_variants
from vitlab.widgets.masking import masking
from vitlab.widgets.occlusion import occlusion
from vitlab.widgets.pictures import picture_from
from vitlab.widgets.tokens import Cost, cost, patch_sizes

__all__ = [
    "Cost",
    "Film",
    "Knob",
    "Knobs",
    "Upload",
    "cost",
    "data_sizes",
    "distance_modes",
    "head_rates",
    "knobs",
    "masking",
    "occlusion",
    "patch_sizes",
    "picture_from",
    "position_kinds",
    "position_resizing",
    "rollout_variants",
    "shapes_film",
    "training_film",
    "worlds",
]
