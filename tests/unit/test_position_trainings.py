"""C10's measures over several trainings: known maps, their controls, and the interval over trainings."""

import math

import pandas as pd
import pytest
import torch

from vitlab.analysis import positions
from vitlab.experiments import position_trainings
from vitlab.experiments.position_similarity import rings
from vitlab.experiments.watching import packed

SIDE = 6
MEASURES = ["rank correlation", "row excess", "column excess"]


def table_of(make, seeds=3, objective="masked", n_train=100):
    """Rows as `local_heads` has them, of trainings whose position table `make(seed)` gives."""
    rows = []
    for seed in range(seeds):
        similarity = positions.position_similarity(make(seed), (SIDE, SIDE))
        row, column = positions.row_column_excess(similarity)
        end = {"nearness": positions.distance_correlation(similarity), "row_excess": row, "column_excess": column}
        start = dict.fromkeys(end, 0.0)
        kind = {"kind": "evaluation", "objective": objective, "data": "imagenette", "n_train": n_train, "seed": seed}
        rows += [kind | start | {"samples": 0, "similarity": None}]
        rows += [kind | end | {"samples": 80, "similarity": packed(similarity)}]
    return pd.DataFrame(rows)


def noisy(table, seed, size=0.05):
    return torch.cat([table, size * torch.randn(len(table), 32, generator=torch.Generator().manual_seed(seed))], 1)


def cross(seed):
    """Codes of the row and of the column, as the paper's map suggests."""
    steps = torch.arange(SIDE).float()
    bumps = torch.exp(-((steps[:, None] - steps) ** 2) / 4)
    return noisy(torch.cat([bumps.repeat_interleave(SIDE, 0), bumps.repeat(SIDE, 1)], 1), seed)


def ring_code(seed):
    """A code of how far a patch is from the edge, and of nothing else."""
    return noisy(torch.eye(SIDE)[rings((SIDE, SIDE))], seed)


class TestOfTrainings:
    def test_the_values_are_those_of_the_last_evaluation(self):
        found = position_trainings.of_trainings(table_of(cross), n_shuffled=2)
        assert list(found.columns) == [
            *position_trainings.KIND,
            *("seed", "measure", "value", "control_low", "control_high"),
        ]
        assert len(found) == 3 * 3
        expected = positions.row_column_excess(positions.position_similarity(cross(1), (SIDE, SIDE)))
        one = found[found["seed"] == 1].set_index("measure")["value"]
        assert (one["row excess"], one["column excess"]) == pytest.approx(expected)

    def test_rows_and_columns_stand_above_every_control(self):
        found = position_trainings.of_trainings(table_of(cross), n_shuffled=20)
        assert (found["value"] > found["control_high"]).all()

    def test_a_code_of_middle_and_edge_has_a_row_excess_and_its_controls_have_it_too(self):
        found = position_trainings.of_trainings(table_of(ring_code), n_shuffled=20).set_index("measure")
        excess = found.loc["row excess"]
        assert (excess["value"] > 0.03).all()
        assert (excess["value"] < excess["control_high"] + 0.02).all()

    def test_the_start_is_a_control(self):
        table = table_of(cross, seeds=1)
        table.loc[table["samples"] == 0, "nearness"] = 0.99
        found = position_trainings.of_trainings(table, n_shuffled=2).set_index("measure")
        assert found.loc["rank correlation", "control_high"] == 0.99

    def test_the_same_shuffles_every_time(self):
        table = table_of(cross, seeds=1)
        first, second = (position_trainings.of_trainings(table, n_shuffled=3) for _ in range(2))
        pd.testing.assert_frame_equal(first, second)

    @pytest.mark.parametrize("spoil", ["start", "map"])
    def test_what_is_missing_is_named(self, spoil):
        table = table_of(cross, seeds=1)
        if spoil == "start":
            table = table[table["samples"] > 0]
        else:
            table["similarity"] = None
        with pytest.raises(ValueError, match="no evaluation at step 0, or no position map at its end"):
            position_trainings.of_trainings(table)


class TestCompare:
    def test_the_interval_is_students_t_over_the_trainings(self):
        values = [0.2, 0.3, 0.7]
        rows = [(0, "row excess", value, -value, value / 10) for value in values]
        columns = ["seed", "measure", "value", "control_low", "control_high"]
        found = position_trainings.compare(pd.DataFrame(rows, columns=columns)).loc["row excess"]
        half = 4.302653 * 0.264575 / math.sqrt(3)  # t of 2 degrees of freedom, the standard deviation by hand
        assert (found["value"], found["n"]) == (pytest.approx(0.4), 3)
        assert (found["low"], found["high"]) == (
            pytest.approx(0.4 - half, abs=1e-4),
            pytest.approx(0.4 + half, abs=1e-4),
        )
        assert (found["control_low"], found["control_high"]) == (-0.7, pytest.approx(0.07))

    def test_one_training_has_no_interval(self):
        found = position_trainings.compare(position_trainings.of_trainings(table_of(cross, seeds=1), n_shuffled=1))
        assert list(found.index) == MEASURES
        assert found["low"].isna().all()
