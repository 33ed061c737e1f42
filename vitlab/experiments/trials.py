"""The trials by which a study's hyper-parameters were chosen beforehand, stored beside it as JSON (§4.1: tuning)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from vitlab import paths

TRIAL_SEED = 9_999  # of weights, order and images: no study uses it
TRIAL_SEEDS = (9_997, 9_998, TRIAL_SEED)  # where a choice must not rest on one draw


def stored_trials(study: str, table: str = "trials") -> pd.DataFrame:
    """A table of <study>_trials.json, one row for each trial; the file says in `about` how the trials were made.

    >>> stored_trials("cifar10_best").loc[0, ["model", "held_out_accuracy"]].to_dict()
    {'model': 'Lab-M/4', 'held_out_accuracy': 0.6146}
    """
    stored = paths.read_json(Path(__file__).with_name(f"{study}_trials.json"))[table]
    return pd.DataFrame(stored["rows"], columns=stored["columns"])
