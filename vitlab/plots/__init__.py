"""Every figure's drawing: arrays in, axes out, in one colour-blind-safe style (the paper's figures and appendix D)."""

from vitlab.plots.attention import (
    legend_below,
    mark_patch,
    plot_attention_distances,
    plot_prefix_mass,
    plot_query_attention,
)
from vitlab.plots.beside import plot_pictures, show_pictures
from vitlab.plots.collection import plot_scenes, plot_verdicts
from vitlab.plots.curves import (
    plot_captioned,
    plot_confusion,
    plot_data_scaling,
    plot_family_difference,
    plot_histories,
    plot_schedules,
    plot_training_curves,
)
from vitlab.plots.families import family, labels, sizes_table
from vitlab.plots.heads import plot_head_maps
from vitlab.plots.knobs import (
    plot_grid,
    plot_learning,
    plot_mass_and_distance,
    plot_patch_costs,
    plot_probabilities,
)
from vitlab.plots.masked import (
    plot_arms,
    plot_corruption,
    plot_distances_by_views,
    plot_heads,
    plot_local_shares,
    plot_losses_by_views,
    plot_pictures,
)
from vitlab.plots.model import (
    plot_differences,
    plot_flops,
    plot_model,
    plot_parameter_shares,
    plot_patches,
    plot_tokens,
)
from vitlab.plots.rollout import (
    plot_comparisons,
    plot_maps_compared,
    plot_mass_against_area,
    plot_overlay,
    plot_overlay_rows,
    plot_overlays_beside,
)
from vitlab.plots.scaling import plot_causes, plot_compute_scaling, plot_largest_batches, plot_speeds
from vitlab.plots.style import COLOURS, MUTED, figure, paper_line, style
from vitlab.plots.transfer import plot_epochs, plot_few_shots, plot_rates, plot_resolutions
from vitlab.plots.weights import (
    plot_explained_variance,
    plot_filter_grid,
    plot_low_frequencies,
    plot_maps,
    plot_measures,
    plot_resize_differences,
    plot_similarity_curves,
    plot_similarity_grid,
)

__all__ = [
    "COLOURS",
    "MUTED",
    "family",
    "figure",
    "labels",
    "legend_below",
    "mark_patch",
    "paper_line",
    "plot_arms",
    "plot_attention_distances",
    "plot_captioned",
    "plot_causes",
    "plot_comparisons",
    "plot_compute_scaling",
    "plot_confusion",
    "plot_corruption",
    "plot_data_scaling",
    "plot_differences",
    "plot_distances_by_views",
    "plot_epochs",
    "plot_explained_variance",
    "plot_family_difference",
    "plot_few_shots",
    "plot_filter_grid",
    "plot_flops",
    "plot_grid",
    "plot_head_maps",
    "plot_heads",
    "plot_histories",
    "plot_largest_batches",
    "plot_learning",
    "plot_local_shares",
    "plot_losses_by_views",
    "plot_low_frequencies",
    "plot_maps",
    "plot_maps_compared",
    "plot_mass_against_area",
    "plot_mass_and_distance",
    "plot_measures",
    "plot_model",
    "plot_overlay",
    "plot_overlay_rows",
    "plot_overlays_beside",
    "plot_parameter_shares",
    "plot_patch_costs",
    "plot_patches",
    "plot_pictures",
    "plot_prefix_mass",
    "plot_probabilities",
    "plot_query_attention",
    "plot_rates",
    "plot_resize_differences",
    "plot_resolutions",
    "plot_scenes",
    "plot_schedules",
    "plot_similarity_curves",
    "plot_similarity_grid",
    "plot_speeds",
    "plot_tokens",
    "plot_training_curves",
    "plot_verdicts",
    "show_pictures",
    "sizes_table",
    "style",
]
