"""The trials by which the scaling studies' rates were chosen at `quick`, and the choice (§4.3: tuned baselines)."""

from __future__ import annotations

from vitlab.experiments.scaling import Rates, finer_rates

# Validation accuracy of every trial: all models the same trials, on the same 2,000 images (a middle size, for one
# recipe serves all sizes) with the recipe of "quick" and a seed that no experiment uses. Learning rate, weight decay.
# `data_scaling.sweep` makes both tables again.
SWEEP: dict[str, dict[tuple[float, float], float]] = {
    "Lab-Ti/8": {
        (1e-3, 0.1): 0.564,
        (2e-3, 0.1): 0.624,
        (4e-3, 0.1): 0.634,
        (8e-3, 0.1): 0.588,
        (16e-3, 0.1): 0.492,
        (32e-3, 0.1): 0.314,
        (1e-3, 1.0): 0.576,
        (2e-3, 1.0): 0.700,
        (4e-3, 1.0): 0.662,
        (8e-3, 1.0): 0.624,
        (16e-3, 1.0): 0.572,
        (32e-3, 1.0): 0.538,
    },
    "BiT-Lab-Ti/8": {
        (1e-3, 0.1): 0.494,
        (2e-3, 0.1): 0.658,
        (4e-3, 0.1): 0.752,
        (8e-3, 0.1): 0.794,
        (16e-3, 0.1): 0.690,
        (32e-3, 0.1): 0.522,
        (1e-3, 1.0): 0.500,
        (2e-3, 1.0): 0.686,
        (4e-3, 1.0): 0.680,
        (8e-3, 1.0): 0.806,
        (16e-3, 1.0): 0.470,
        (32e-3, 1.0): 0.460,
    },
    "Lab-Mu/8": {
        (1e-3, 0.1): 0.498,
        (2e-3, 0.1): 0.554,
        (4e-3, 0.1): 0.596,
        (8e-3, 0.1): 0.632,
        (16e-3, 0.1): 0.600,
        (32e-3, 0.1): 0.416,
        (1e-3, 1.0): 0.510,
        (2e-3, 1.0): 0.560,
        (4e-3, 1.0): 0.624,
        (8e-3, 1.0): 0.640,
        (16e-3, 1.0): 0.628,
        (32e-3, 1.0): 0.592,
    },
    "BiT-Lab-Ti/16": {
        (1e-3, 0.1): 0.564,
        (2e-3, 0.1): 0.638,
        (4e-3, 0.1): 0.696,
        (8e-3, 0.1): 0.674,
        (16e-3, 0.1): 0.716,
        (32e-3, 0.1): 0.638,
        (1e-3, 1.0): 0.604,
        (2e-3, 1.0): 0.646,
        (4e-3, 1.0): 0.634,
        (8e-3, 1.0): 0.628,
        (16e-3, 1.0): 0.738,
        (32e-3, 1.0): 0.610,
    },
    "R+Lab-Mu/16": {
        (1e-3, 0.1): 0.378,
        (2e-3, 0.1): 0.520,
        (4e-3, 0.1): 0.674,
        (8e-3, 0.1): 0.490,
        (16e-3, 0.1): 0.358,
        (32e-3, 0.1): 0.284,
        (1e-3, 1.0): 0.380,
        (2e-3, 1.0): 0.508,
        (4e-3, 1.0): 0.676,
        (8e-3, 1.0): 0.548,
        (16e-3, 1.0): 0.286,
        (32e-3, 1.0): 0.204,
    },
    "R+Lab-Ti/16": {
        (1e-3, 0.1): 0.368,
        (2e-3, 0.1): 0.430,
        (4e-3, 0.1): 0.568,
        (8e-3, 0.1): 0.336,
        (16e-3, 0.1): 0.196,
        (32e-3, 0.1): 0.104,
        (1e-3, 1.0): 0.364,
        (2e-3, 1.0): 0.442,
        (4e-3, 1.0): 0.448,
        (8e-3, 1.0): 0.296,
        (16e-3, 1.0): 0.218,
        (32e-3, 1.0): 0.102,
    },
    "R+Lab-Ti/8": {
        (1e-3, 0.1): 0.382,
        (2e-3, 0.1): 0.386,
        (4e-3, 0.1): 0.346,
        (8e-3, 0.1): 0.596,
        (16e-3, 0.1): 0.150,
        (32e-3, 0.1): 0.154,
        (1e-3, 1.0): 0.386,
        (2e-3, 1.0): 0.430,
        (4e-3, 1.0): 0.528,
        (8e-3, 1.0): 0.482,
        (16e-3, 1.0): 0.202,
        (32e-3, 1.0): 0.232,
    },
}
# The same for the second panel, where regularisation is chosen for every size: weight decay, label smoothing.
REGULARISED: dict[tuple[str, int], dict[tuple[float, float], float]] = {
    ("Lab-Ti/8", 12_000): {
        (0.1, 0.0): 0.670,
        (0.1, 0.1): 0.696,
        (1.0, 0.0): 0.720,
        (1.0, 0.1): 0.684,
        (3.0, 0.0): 0.710,
        (3.0, 0.1): 0.726,
    },
    ("BiT-Lab-Ti/8", 12_000): {
        (0.1, 0.0): 0.798,
        (0.1, 0.1): 0.512,
        (1.0, 0.0): 0.530,
        (1.0, 0.1): 0.584,
        (3.0, 0.0): 0.690,
        (3.0, 0.1): 0.314,
    },
    ("Lab-Ti/8", 2_000): {
        (0.1, 0.0): 0.624,
        (0.1, 0.1): 0.666,
        (1.0, 0.0): 0.700,
        (1.0, 0.1): 0.682,
        (3.0, 0.0): 0.702,
        (3.0, 0.1): 0.680,
    },
    ("BiT-Lab-Ti/8", 2_000): {
        (0.1, 0.0): 0.794,
        (0.1, 0.1): 0.748,
        (1.0, 0.0): 0.806,
        (1.0, 0.1): 0.808,
        (3.0, 0.0): 0.498,
        (3.0, 0.1): 0.720,
    },
    ("Lab-Ti/8", 300): {
        (0.1, 0.0): 0.510,
        (0.1, 0.1): 0.508,
        (1.0, 0.0): 0.534,
        (1.0, 0.1): 0.538,
        (3.0, 0.0): 0.558,
        (3.0, 0.1): 0.568,
    },
    ("BiT-Lab-Ti/8", 300): {
        (0.1, 0.0): 0.620,
        (0.1, 0.1): 0.566,
        (1.0, 0.0): 0.614,
        (1.0, 0.1): 0.672,
        (3.0, 0.0): 0.770,
        (3.0, 0.1): 0.706,
    },
}


def swept() -> dict[str, Rates]:
    """The rates that were best in `SWEEP`."""
    return {model: Rates(*max(trials, key=trials.get)) for model, trials in SWEEP.items()}


def regularised() -> dict[tuple[str, int], Rates]:
    """For each model and size of `REGULARISED` the regularisation that was best there, at the model's learning rate."""
    shared, found = swept(), {}
    for (model, size), trials in REGULARISED.items():
        rate = shared[model].learning_rate
        found[model, size] = finer_rates(shared[model], {Rates(rate, *key): score for key, score in trials.items()})
    return found
