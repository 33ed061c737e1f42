"""Finished runs that are committed: nothing that an archive holds is run again, and a damaged one is named."""

import importlib
import io
import tarfile

import pytest
import sweeps

from vitlab.cli import doctor
from vitlab.data import datasets
from vitlab.sweep import committed, identity, runner
from vitlab.sweep.checksums import with_checksum


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Three configurations, of which the first two were run on another machine and are committed."""
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / "reference" / preset)
    (tmp_path / "log").touch()
    wanted = [{"size": size, "log": str(tmp_path / "log")} for size in (1, 2, 3)]
    elsewhere = runner.paths_of(sweeps.logged, wanted[:2], tmp_path / "elsewhere")
    runner.run_all(sweeps.logged, wanted[:2], tmp_path / "elsewhere", jobs=1)
    results = {path.name: result for path, result in runner.finished(elsewhere).items()}
    committed.write(committed.archive("sizes", "full"), results)
    return wanted


def log(folder):
    return (folder / "log").read_text().split()


def test_what_is_committed_is_not_run_again(packed, tmp_path):
    table = runner.run_all(sweeps.logged, packed, tmp_path / "here", jobs=1)
    assert log(tmp_path) == ["1", "2", "3"]  # each once, on one machine or the other
    assert table["size"].tolist() == [1, 1, 2, 2, 3, 3]
    assert len(list((tmp_path / "here").glob("*.json"))) == 1
    alone = runner.run_all(sweeps.logged, packed, tmp_path / "alone", jobs=1)
    assert alone.equals(table) and log(tmp_path) == ["1", "2", "3", "3"]


def test_what_other_code_made_is_run_again(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "code_hash", lambda function=None: "other")
    runner.run_all(sweeps.logged, packed, tmp_path / "here", jobs=1)
    assert log(tmp_path) == ["1", "2", "1", "2", "3"]


def test_settings_are_those_of_the_committed_run_where_there_is_one(packed):
    wanted = [{**config, "size": config["size"] + 10} for config in packed]
    changed = [runner.committed_with(sweeps.logged, [config], {"size": n})[0] for n, config in enumerate(wanted, 2)]
    assert [config["size"] for config in changed] == [2, 12, 13]  # of sizes 2, 3 and 4 only 2 is committed
    assert [config["size"] for config in wanted] == [11, 12, 13]


@pytest.mark.parametrize(
    ("study", "name"),
    [
        ("data_scaling", "real"),
        ("compute_scaling", "real"),
        ("world_classes", "real"),
        ("resnet_optimizers", "targets"),
    ],
)
def test_runs_committed_with_cifar10_are_planned_where_it_is_absent(study, name, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "reference_dir", lambda preset: tmp_path / preset)
    module = importlib.import_module(f"vitlab.experiments.{study}")

    def planned(cifar10):
        monkeypatch.setattr(datasets, "present", lambda name: cifar10)
        return module.planned_runs("full")

    with_it, without = planned(True), planned(False)
    assert {run[name] for run in with_it} == {"digits cifar10"} and {run[name] for run in without} == {"digits"}
    names = [path.name for path in runner.paths_of(module.run_one, with_it[:2], "")]
    committed.write(committed.archive(study, "full"), {name: with_checksum({}) for name in names})
    assert planned(False) == [*with_it[:2], *without[2:]] and planned(True) == with_it


def test_a_corrupt_file_does_not_hide_the_committed_run_of_its_name(packed, tmp_path, capsys):
    path = next(iter(runner.paths_of(sweeps.logged, packed, tmp_path / "here")))
    path.parent.mkdir()
    path.write_text("{}")
    table = runner.run_all(sweeps.logged, packed, tmp_path / "here", jobs=1)
    assert log(tmp_path) == ["1", "2", "3"] and table["size"].tolist() == [1, 1, 2, 2, 3, 3]
    assert path.with_suffix(".corrupt").read_text() == "{}" and not path.exists()
    assert "is corrupt, moved aside: " in capsys.readouterr().err


def test_an_archive_gives_back_what_was_packed_in_the_same_bytes(packed, tmp_path):
    path = committed.archive("sizes", "full")
    results = committed.read(path)
    assert [result["config"] for result in results.values()] == packed[:2]
    committed.write(tmp_path / "again.txz", results)
    assert (tmp_path / "again.txz").read_bytes() == path.read_bytes()


def test_no_committed_archive_is_over_2_megabytes():
    sizes = {path.name: path.stat().st_size for path in committed.archives()}
    assert sizes and [name for name, size in sizes.items() if size > 2_000_000] == []


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:60] + b"\xff" + data[61:]])
def test_a_damaged_archive_is_named_and_nothing_is_run(packed, tmp_path, damage):
    path = committed.archive("sizes", "full")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="sizes.txz is damaged .*: restore the committed file"):
        runner.run_all(sweeps.logged, packed, tmp_path / "here", jobs=1)
    assert log(tmp_path) == ["1", "2"]


@pytest.mark.parametrize("change", [{"rows": [{"accuracy": 1.0}]}, {"sha256": None}])
def test_a_committed_run_whose_checksum_does_not_fit_is_named_and_not_used(packed, tmp_path, change):
    path = committed.archive("sizes", "full")
    results = committed.read(path)
    name = list(results)[1]
    committed.write(path, results | {name: results[name] | change})
    words = f"sizes.txz is damaged \\({name}: its checksum does not fit.*: restore the committed file"
    with pytest.raises(ValueError, match=words):
        committed.read(path)
    with pytest.raises(ValueError, match=words):
        runner.run_all(sweeps.logged, packed, tmp_path / "here", jobs=1)
    assert log(tmp_path) == ["1", "2"]


def test_an_archive_of_what_are_no_results_is_named(packed):
    path = committed.archive("sizes", "full")
    with tarfile.open(path, "w:xz") as packed:
        member = tarfile.TarInfo("list.json")
        member.size = 2
        packed.addfile(member, io.BytesIO(b"[]"))
    with pytest.raises(ValueError, match=r"sizes.txz is damaged \(list.json: its checksum does not fit"):
        committed.read(path)


def test_the_doctor_counts_committed_runs_and_those_of_older_code(packed, tmp_path):
    path = committed.archive("sizes", "full")
    assert (
        f"  2 in {path}, 0.0 MiB: 2 of older code (kept, not used)\n" in doctor.describe()
    )  # a test's, no code of vitlab
    results = committed.read(path)
    name, result = next(iter(results.items()))
    committed.write(path, {name: result | {"rows": []}})
    assert f"  {path} is damaged ({name}: its checksum does not fit" in doctor.describe()
    path.write_bytes(b"no archive")
    assert f"  {path} is damaged (Input format not supported by decoder): restore" in doctor.describe()
