"""Finished runs of a study as one committed archive: what is kept, and what notebooks read."""

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
    pd.testing.assert_frame_equal(there.table[table.columns], table)


def test_publishing_again_elsewhere_keeps_what_was_published(folders, monkeypatch):
    planned, folder = real_subsets.planned_runs("smoke"), "real_subsets"
    runner.run_all(real_subsets.run_one, planned[:2], runner.run_folder(folder, "smoke"), jobs=1)
    assert publish.main(["runs", folder, "--preset", "smoke"]) == 0
    monkeypatch.setenv("VITLAB_FIGURES", str(folders / "another machine"))
    runner.run_all(real_subsets.run_one, planned[1:3], runner.run_folder(folder, "smoke"), jobs=1)
    assert publish.main(["runs", folder, "--preset", "smoke"]) == 0
    there = published.read(folder, "smoke")
    assert there.about["runs"] == 3 and there.table["learning_rate"].nunique() == 2


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
