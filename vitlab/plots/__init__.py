"""Every figure's drawing: arrays and tables in, axes out, in one colour-blind-safe style."""

from vitlab.plots.attention import (
    plot_attention_distances,
    plot_by_samples,
    plot_head_maps,
    plot_heads,
    plot_maps_compared,
    plot_mass_against_area,
    plot_overlay,
    plot_overlays,
    plot_prefix_mass,
    plot_query,
)
from vitlab.plots.curves import (
    plot_accuracy_by_hours,
    plot_arms,
    plot_cases,
    plot_comparisons,
    plot_compute_scaling,
    plot_data_scaling,
    plot_epochs,
    plot_heads_by_length,
    plot_resolutions,
    plot_schedules,
    plot_shapes,
    plot_speeds,
    plot_training_curves,
    plot_who_wins,
)
from vitlab.plots.pictures import (
    plot_corruption,
    plot_cost,
    plot_differences,
    plot_grid,
    plot_model,
    plot_parameter_shares,
    plot_patch_costs,
    plot_patches,
    plot_pictures,
    plot_probabilities,
    plot_scenes,
    plot_verdicts,
    show_pictures,
)
from vitlab.plots.style import MUTED, family, figure, labels, legend_below, sizes_table, style
from vitlab.plots.weights import (
    plot_components,
    plot_filter_grid,
    plot_maps,
    plot_measure_by_photographs,
    plot_measures,
    plot_similarity_curves,
    plot_similarity_grid,
)
