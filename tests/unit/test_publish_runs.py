"""Finished runs of a study as one committed table: what is kept, and what notebooks read."""

import pandas as pd
import pytest

from vitlab import files
from vitlab.experiments import real_subsets
from vitlab.ledger import published
from vitlab.publish import __main__ as publish
from vitlab.sweep import runner


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where results of this machine and the references lie, both empty."""
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    return tmp_path


def test_what_is_finished_is_published_and_read_again(folders):
    planned = real_subsets.planned_runs("smoke")
    table = runner.run_all(real_subsets.run_one, planned[:3], runner.run_folder("real_subsets", "smoke"), jobs=1)
    assert publish.main(["runs", "real_subsets", "--preset", "smoke"]) == 0
    there = published.read("real_subsets", "smoke")
    assert (there.about["runs"], there.about["planned"]) == (3, len(planned))
    assert str(there).startswith(f"real_subsets at smoke: 3 of {len(planned)} planned runs, 20")
    pd.testing.assert_frame_equal(there.table, table.reset_index(drop=True), rtol=1e-5, check_dtype=False)


def test_the_same_rows_give_the_same_bytes(tmp_path):
    table = pd.DataFrame({"seed": [0, 1], "accuracy": [1 / 3, 0.5]})
    first = published.write("x", "full", table, 2, 2, tmp_path).read_bytes()
    assert published.write("x", "full", table, 2, 2, tmp_path).read_bytes() == first
    assert published.read("x", folder=tmp_path).table["accuracy"].tolist() == [0.333333, 0.5]
    assert "all 2 runs" in str(published.read("x", folder=tmp_path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["real_subsets", "--preset", "smoke"], "has no finished run"),
        ([], "name the studies"),
        (["who_winz"], "unknown experiment 'who_winz'"),
        (["lab_weights"], "does not list its runs"),
    ],
)
def test_what_cannot_be_published_is_said(folders, capsys, arguments, words):
    assert publish.main(["runs", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (folders / "reference").exists()
