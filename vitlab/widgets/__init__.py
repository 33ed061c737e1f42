"""What a reader of the notebooks turns, plays and points at: explorers, films, the viewer, a live training."""

from vitlab.widgets.controls import Explorer, choice, read_picture
from vitlab.widgets.explorers import (
    distance_modes,
    head_rates,
    masking,
    occlusion,
    patch_sizes,
    position_kinds,
    position_resizing,
    rollout_variants,
)
from vitlab.widgets.film import Film, shapes_film, training_film
from vitlab.widgets.live import watch
