"""Finished runs of a study as one committed archive: what is kept, and what notebooks read."""

import contextlib
import shutil

import pandas as pd
import pytest

from vitlab import paths
from vitlab.experiments import real_subsets
from vitlab.ledger import published
from vitlab.publish import __main__ as publish
from vitlab.publish import carry, runs
from vitlab.sweep import committed, results, runner


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


def test_the_provenance_of_an_archive_is_of_the_checkout_before_it_is_written(folders, monkeypatch):
    """Else a clean checkout would be called dirty: the archive is a tracked file."""
    path = committed.archive("a study", "smoke")
    monkeypatch.setattr(published, "provenance", lambda: {"dirty": path.exists()})
    assert published.write("a study", "smoke", {"a.json": {"rows": []}}, planned=1) == path and path.exists()
    assert published.record("a study", "smoke")["provenance"] == {"dirty": False}


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


# ---- committed runs of older code ----

AN_EDIT = "\n_NOT_USED = 1\n"  # that changes every key and no number
ANOTHER_NUMBER = """
_before = run_one


def run_one(config):
    rows = _before(config)
    rows[0]["test_accuracy"] += 2**-40
    return rows
"""


PLANNED = real_subsets.planned_runs("smoke")[:4]  # as many as the tests need


def planned(preset="smoke", seed=0):
    return PLANNED


@pytest.fixture
def carried(folders, monkeypatch):
    """The study's runs, committed as an older code named them which differs by `edit`; then what `carry` returns."""
    older = folders / "older"
    shutil.copytree(paths.ROOT / "vitlab", older / "vitlab")  # with what Python compiled, for its process
    monkeypatch.setattr(real_subsets, "planned_runs", planned)
    (older / "pyproject.toml").touch()
    monkeypatch.setattr(carry, "_checkout", lambda revision: contextlib.nullcontext(older))
    runner.run_all(real_subsets.run_one, planned()[:3], runner.run_folder("real_subsets", "smoke"), jobs=1)
    assert publish.main(["runs", "real_subsets", "--preset", "smoke"]) == 0
    path = committed.archive("real_subsets", "smoke")
    monkeypatch.setenv("VITLAB_FIGURES", str(folders / "another machine"))

    def attempt(edit):
        with open(older / "vitlab" / "experiments" / "real_subsets.py", "a") as file:
            file.write(edit)
        runs = committed.read(path).values()
        task = {"module": "vitlab.experiments.real_subsets", "committed": planned()[:3], "compared": []}
        keys = carry._computed(older, task)["keys"]
        committed.write(path, {f"{key}.json": run for key, run in zip(keys, runs, strict=True)})
        before = path.read_bytes()
        return publish.main(["carry", "real_subsets", "--preset", "smoke"]), before

    return path, attempt


@pytest.mark.slow
def test_runs_of_older_code_are_carried_over_where_both_codes_compute_the_same(carried):
    path, attempt = carried
    before = [result["rows"] for result in committed.read(path).values()]
    made = published.record("real_subsets", "smoke")["provenance"]
    status, archive = attempt(AN_EDIT)
    assert status == 0 and path.read_bytes() != archive
    there = published.read("real_subsets", "smoke")
    [note] = there.about["carried"]
    assert there.about["provenance"] == made  # when and by what they were made
    assert note["runs"] == 3 and note["compared"] == len(planned()) + 1
    found = runner.stored(real_subsets.run_one, planned(), "nowhere")
    pd.testing.assert_frame_equal(found, there.table[found.columns])
    kept = committed.read(path).values()
    assert [result["rows"] for result in kept] == before and all(map(results.is_whole, kept))
    assert all(result["carried_from"] for result in kept)
    archive = path.read_bytes()
    assert publish.main(["carry", "real_subsets", "--preset", "smoke"]) == 0
    assert path.read_bytes() == archive  # they are today's
    assert publish.main(["runs", "real_subsets", "--preset", "smoke"]) == 0
    assert published.record("real_subsets", "smoke")["carried"] == [note]  # stays said


@pytest.mark.slow
def test_nothing_is_carried_over_where_a_number_has_changed(carried, capsys):
    path, attempt = carried
    status, archive = attempt(ANOTHER_NUMBER)
    assert status == 2 and path.read_bytes() == archive
    assert "test_accuracy of row 0 is" in (said := capsys.readouterr().err) and "by the older code" in said


def test_runs_of_another_torch_are_not_carried_over(carried, capsys):
    path, _ = carried
    runs = enumerate(committed.read(path).values())
    committed.write(path, {f"{number}.json": results.with_checksum({**run, "torch": "1.0"}) for number, run in runs})
    assert publish.main(["carry", "real_subsets", "--preset", "smoke"]) == 2
    assert "has runs of torch 1.0" in capsys.readouterr().err


@pytest.mark.slow
def test_code_that_fails_is_said(carried):
    _, attempt = carried
    with pytest.raises(ValueError, match=r"a run with the code in .*older failed"):
        attempt("\nraise ImportError\n")


@pytest.mark.slow
def test_runs_that_the_revision_did_not_compute_are_not_carried_over(carried, capsys):
    path, _ = carried
    committed.write(path, {f"{number}.json": run for number, run in enumerate(committed.read(path).values())})
    assert publish.main(["carry", "real_subsets", "--preset", "smoke", "--revision", "abc"]) == 2
    assert "abc has not the code that computed the runs" in capsys.readouterr().err


@pytest.mark.parametrize("studies, words", [([], "name the studies"), (["who_wins"], "has no committed run")])
def test_what_cannot_be_carried_over_is_said(folders, capsys, studies, words):
    assert publish.main(["carry", *studies, "--preset", "smoke"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.skipif(not (paths.ROOT / ".git").exists(), reason="needs a clone")
def test_a_revision_is_checked_out_and_goes():
    with carry._checkout("HEAD") as place:
        assert (place / "vitlab" / "files.py").exists()
    assert not place.exists()
    with pytest.raises(ValueError, match="no checkout of revision 'no such one'"), carry._checkout("no such one"):
        pass


def test_packed_texts_are_committed_of_a_trainings_end_alone_and_of_crops_whole():
    rows = [{"samples": at, "similarity": "map", "loss": 1.0} for at in (0, 9)] + [{"samples": 9, "block": 1}]
    of_photographs = runs.short({"config": {"data": "imagenette"}, "rows": rows, "sha256": "of all"})
    assert [row.get("similarity") for row in of_photographs["rows"]] == [None, "map", None]
    assert [row.get("loss") for row in of_photographs["rows"]] == [1.0, 1.0, None] and results.is_whole(of_photographs)
    for config in ({"data": "photographs"}, {"data": "imagenette"}):
        whole = {"config": config, "rows": rows if "photo" in config["data"] else [{"loss": 1.0}], "sha256": "of all"}
        assert runs.short(whole) == whole
