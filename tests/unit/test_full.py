"""A full run goes in pieces: nothing is lost between them, nothing is run twice, no process is left behind."""

import dataclasses
import os
import subprocess
import sys
import time

import pandas as pd
import pytest

from vitlab import experiments
from vitlab.cli import full, main
from vitlab.data import datasets
from vitlab.experiments import cifar10_best, lab_weights, transfer
from vitlab.models import zoo
from vitlab.publish import second
from vitlab.sweep import committed, runner
from vitlab.sweep.checksums import with_checksum

pytestmark = pytest.mark.slow


def test_every_experiment_is_a_part_and_each_part_has_a_name_of_its_own():
    assert {part.experiment for part in full.PARTS} == set(experiments.names())
    names = [part.name for part in full.PARTS]
    assert len(names) == len(set(names))


def test_transfer_asks_for_every_set_that_its_runs_load():
    (part,) = (part for part in full.PARTS if part.name == "transfer")
    config = transfer.CONFIGS["full"]
    assert set(part.data) == {*config.sources, *config.targets} & {*datasets.NAMES}


@pytest.fixture
def nothing_committed(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "no reference" / preset)


def test_what_cannot_be_done_is_left_out_or_said(monkeypatch, tmp_path, nothing_committed):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    assert "cifar10_best" not in [part.name for part in full.chosen([], "full")]
    with pytest.raises(ValueError, match="cifar10_best: needs cifar10, not found in"):
        full.chosen(["cifar10_best"], "full")
    (tmp_path / "cifar10").mkdir()
    assert datasets.present("cifar10")
    assert "cifar10_best" in [part.name for part in full.chosen([], "full")]
    with pytest.raises(ValueError, match="transfer: needs imagenette, not found in"):
        full.chosen(["transfer"], "full")
    (tmp_path / "cifar10").rmdir()
    (tmp_path / "imagenette").mkdir()
    with pytest.raises(ValueError, match="transfer: needs cifar10, not found in"):
        full.chosen(["transfer"], "full")
    with pytest.raises(ValueError, match="no part sped: choose among embedding_filters, "):
        full.chosen(["sped"], "full")
    with pytest.raises(ValueError, match="who_wins: has no preset 'quick'"):
        full.chosen(["who_wins"], "quick")
    with pytest.raises(ValueError, match="needs the paper's data"):
        full.chosen([], "paper")
    with pytest.raises(ValueError, match="speed: has no second draw: --seed 1 is for head_rates, "):
        full.chosen(["speed"], "full", seed=1)


def test_parts_that_lack_their_data_are_named_before_the_plan(monkeypatch, tmp_path, nothing_committed, capsys):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    monkeypatch.setattr(full, "PARTS", tuple(part for part in full.PARTS if part.name in ("speed", "cifar10_best")))
    assert main.main(["full", "--plan"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "not planned: speed",
        "",
        f"left out: cifar10_best needs cifar10, not found in {tmp_path} ($VITLAB_DATA)",
    ]


def test_a_part_whose_runs_are_all_stored_needs_no_data(monkeypatch, tmp_path, nothing_committed):
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    runs = cifar10_best.planned_runs("full")
    for stored in (1, 2):
        paths = runner.paths_of(cifar10_best.run_one, runs[:stored], "")
        packed = {path.name: with_checksum({"config": config}) for path, config in paths.items()}
        committed.write(committed.archive("cifar10_best", "full"), packed)
        assert ("cifar10_best" in [part.name for part in full.chosen([], "full")]) == (stored == len(runs))


def test_bundled_models_are_trained_again_where_they_are_named(monkeypatch):
    bundled = {part.name for part in full.PARTS if part.experiment == "lab_weights"}
    assert bundled == set(zoo.BUNDLED)
    monkeypatch.setattr(datasets, "present", lambda name: True)
    assert not bundled & {part.name for part in full.chosen([], "full")}
    assert bundled <= {part.name for part in full.chosen([], "smoke")}  # trainings that nobody has bundled
    assert [part.name for part in full.chosen(["lab", "speed"], "full")] == ["speed", "lab"]
    lab = lab_weights.CONFIGS["full"].trainings["lab"]
    longer = dataclasses.replace(lab[1], recipe=dataclasses.replace(lab[1].recipe, steps=lab[1].recipe.steps + 1))
    monkeypatch.setitem(lab_weights.CONFIGS["full"].trainings, "lab", (lab[0], longer))
    assert bundled & {part.name for part in full.chosen([], "full")} == {"lab"}


def test_a_part_that_fails_does_not_end_the_others(monkeypatch, capsys):
    done = []

    def do(part, preset, jobs, seed):
        done.append(part.name)
        if part.name == "speed":
            raise RuntimeError("1 of 4 runs failed")

    monkeypatch.setattr(full, "do", do)
    parts = full.chosen(["speed", "training_curves"], "full")
    assert full.here(parts, "full") == full.FAILED
    assert done == ["speed", "training_curves"]
    captured = capsys.readouterr()
    assert (
        "speed failed: RuntimeError: 1 of 4 runs failed" in captured.err and "training_curves: complete" in captured.out
    )


@pytest.mark.parametrize("error", [KeyError("arm"), TypeError("unhashable"), ModuleNotFoundError("no timm")])
def test_a_part_that_fails_unforeseen_shows_where_and_the_others_are_done(monkeypatch, capsys, error):
    def do(part, preset, jobs, seed):
        if part.name == "speed":
            raise error

    monkeypatch.setattr(full, "do", do)
    assert full.here(full.chosen(["speed", "training_curves"], "full"), "full") == full.FAILED
    captured = capsys.readouterr()
    assert "training_curves: complete" in captured.out
    assert "Traceback" in captured.err and "raise error" in captured.err
    assert f"speed failed: {type(error).__name__}: {error}" in captured.err


def test_what_a_part_says_itself_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(full, "do", lambda *_: full.chosen(["sped"], "full"))
    assert full.here(full.chosen(["speed"], "full"), "full") == full.FAILED
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("vitlab: speed failed: ValueError: no part sped: choose among")
    assert last == "vitlab: failed: speed; what was finished is stored"


def alive(text: str) -> list[str]:
    """Command lines of running processes that hold a text."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if text in line and "ps -eo" not in line]


def stored(folder):
    """Name and time of the finished runs; one that is being written has a dot before it."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*.json")}


def test_a_piece_ends_in_time_with_its_processes_and_the_next_goes_on(tmp_path, monkeypatch, capfd):
    """Cut off in the middle of a part, again and again until it is there: no run is made twice."""
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path))
    parts = full.chosen(["vit_shapes"], "smoke")
    runs = tmp_path / "smoke" / "runs" / "vit_shapes"
    started = time.perf_counter()
    assert full.piece(parts, "smoke", minutes=0.01) == full.MORE  # it has not even imported torch
    assert time.perf_counter() - started < 30
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vitlab.cli.main", "full", "vit_shapes", "--preset", "smoke"]
    with subprocess.Popen([*command, "--minutes", "5"], env=environment) as process:
        while len(stored(runs)) < 2 and process.poll() is None:
            time.sleep(0.02)
        process.terminate()  # as a scheduler does when the time of a job is over
    first = stored(runs)
    assert len(first) >= 2
    time.sleep(0.5)
    assert not alive(str(tmp_path)) and not alive("vitlab.cli.main full vit_shapes")
    assert full.piece(parts, "smoke", minutes=5) == 0
    second = stored(runs)
    assert first.items() < second.items()
    capfd.readouterr()
    assert main.main(["full", "vit_shapes", "--preset", "smoke"]) == 0
    assert "complete: " in capfd.readouterr().out
    assert second == stored(runs)


def test_the_plan_names_every_part_and_adds_up_its_hours(monkeypatch, capsys):
    from vitlab.cli import plan

    trainings = pd.DataFrame({"runs": [4], "stored": [1], "seconds": [1800.0], "flops": [1], "model_bytes": [1]})
    table = trainings.assign(image_bytes=1)

    def planned(name, preset, seed, runs):
        return plan.Plan(name, preset, 4, 1, 3600.0, table, at_once=2, stops_early=False, where="cpu", free_bytes=None)

    monkeypatch.setattr(plan, "planned", planned)
    assert main.main(["full", "--plan"]) == 0
    words = capsys.readouterr().out
    parts = full.chosen([], "full")
    assert all(part.name in words for part in parts)
    listed = [part for part in parts if part.experiment in plan.plannable()]
    judged = [part for part in listed if part.claims]
    assert f"parts with claims: {len(judged)}.0 hours in all, {0.75 * len(judged):.1f} to do; what" in words
    hours = f"all planned parts: {len(listed)}.0 hours in all, {0.75 * len(listed):.1f} to do"
    assert f"{hours}; what is stored took {0.5 * len(listed):.1f}" in words


def test_claims_of_the_parts_are_those_that_a_second_draw_decides():
    by_part = {part.experiment: set(part.claims.split()) for part in full.PARTS if part.claims}
    by_claim = {claim: drawn.study for claim, drawn in second.DRAWN.items() if drawn.study}
    assert {claim: study for study, claims in by_part.items() for claim in claims if claim in by_claim} == by_claim


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_time_that_is_none_is_refused(minutes, capsys):
    assert main.main(["full", "speed", "--minutes", minutes]) == 2
    assert "expected a number above 0" in capsys.readouterr().err
