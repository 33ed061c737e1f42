"""Every figure's drawing: arrays and tables in, axes out, in one colour-blind-safe style."""

from vitlab.plots.attention import (
    mark_patch,
    plot_attention_distances,
    plot_by_block,
    plot_by_samples,
    plot_head_maps,
    plot_heads,
)
from vitlab.plots.curves import (
    plot_accuracy,
    plot_comparisons,
    plot_compute_scaling,
    plot_epochs,
    plot_rates,
    plot_shapes,
    plot_speeds,
)
from vitlab.plots.pictures import (
    plot_corruption,
    plot_grid,
    plot_model,
    plot_pictures,
    plot_probabilities,
    plot_scenes,
    plot_verdicts,
    show_pictures,
)
from vitlab.plots.style import MUTED, family, figure, labels, legend_below, style
from vitlab.plots.weights import plot_components, plot_maps, plot_measure_by_photographs, plot_similarity_grid
