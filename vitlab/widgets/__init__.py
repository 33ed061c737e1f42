"""What a reader of the notebooks turns, plays and points at: explorers, films, the viewer, a live training."""

from vitlab.widgets.controls import Explorer, choice
from vitlab.widgets.explorers import occlusion
from vitlab.widgets.film import Film, training_film
from vitlab.widgets.live import watch
