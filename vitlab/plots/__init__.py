"""Every figure's drawing: arrays in, axes out, in one colour-blind-safe style (the paper's figures and appendix D)."""

from vitlab.plots.attention import (
    plot_attention_distances,
    plot_comparisons,
    plot_maps_compared,
    plot_mass_against_area,
    plot_overlay,
    plot_overlay_rows,
    plot_prefix_mass,
    plot_query_attention,
)
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
from vitlab.plots.model import (
    plot_differences,
    plot_flops,
    plot_model,
    plot_parameter_shares,
    plot_patches,
    plot_tokens,
)
from vitlab.plots.style import COLOURS, MUTED, paper_line, style
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
    "paper_line",
    "plot_attention_distances",
    "plot_captioned",
    "plot_comparisons",
    "plot_confusion",
    "plot_data_scaling",
    "plot_differences",
    "plot_explained_variance",
    "plot_family_difference",
    "plot_filter_grid",
    "plot_flops",
    "plot_histories",
    "plot_low_frequencies",
    "plot_maps",
    "plot_maps_compared",
    "plot_mass_against_area",
    "plot_measures",
    "plot_model",
    "plot_overlay",
    "plot_overlay_rows",
    "plot_parameter_shares",
    "plot_patches",
    "plot_prefix_mass",
    "plot_query_attention",
    "plot_resize_differences",
    "plot_scenes",
    "plot_schedules",
    "plot_similarity_curves",
    "plot_similarity_grid",
    "plot_tokens",
    "plot_training_curves",
    "plot_verdicts",
    "style",
]
