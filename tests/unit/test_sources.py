"""What is read of vitlab's sources and kept for the next process: the same answers as from the sources themselves."""

import ast
import json
import os
import sys

import pytest

from vitlab.evaluation.probe import linear_probe
from vitlab.sweep import identity, sources


def forget() -> None:
    """As in a new process."""
    sources._read.cache_clear()
    sources._kept.cache_clear()
    sources._NEW.clear()


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file in which what was read is kept; of a folder that is not there yet."""
    monkeypatch.setattr(sources, "_KEPT", tmp_path / "caches" / "sources.json")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    forget()
    yield sources._KEPT
    forget()


def no_parser(monkeypatch) -> None:
    def refused(*_, **__):
        raise AssertionError("a source was parsed")

    monkeypatch.setattr(ast, "parse", refused)


def test_the_next_process_parses_nothing_and_finds_the_same(kept, monkeypatch):
    first = identity.code_hash(linear_probe)
    names = identity.import_closure(linear_probe)
    assert kept.exists()
    forget()
    no_parser(monkeypatch)
    assert identity.code_hash(linear_probe) == first
    assert identity.import_closure(linear_probe) == names
    assert identity.defines(names[0], "no such function") is False


def test_an_edited_source_is_parsed_though_its_time_and_size_are_the_same(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "_OWN", tmp_path / "vitlab" / "sweep" / "sources.py")
    own = tmp_path / "vitlab" / "sweep" / "sources.py"
    own.parent.mkdir(parents=True)
    own.write_text("x = 1\n")
    first = sources.read(own)
    sources.keep()
    forget()
    time = own.stat().st_mtime_ns
    own.write_text("x = 2\n")
    os.utime(own, ns=(time, time))
    assert sources.read(own).hash != first.hash == sources.source_hash("x = 1\n")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"by": "another version", "modules": {}}',
        '{"by": "BY", "modules": {"KEY": ["a hash alone"]}}',
        '{"by": "BY", "modules": null}',
    ],
)
def test_what_is_damaged_or_of_another_version_is_read_anew(kept, content):
    expected = identity.code_hash(linear_probe)
    by, key = sources._reader(), next(iter(json.loads(kept.read_text())["modules"]))
    forget()
    kept.write_text(content.replace("BY", by).replace("KEY", key))
    assert identity.code_hash(linear_probe) == expected
    assert len(json.loads(kept.read_text())["modules"]) > 1


def test_where_nothing_can_be_written_nothing_is_kept(kept, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    expected = identity.code_hash(linear_probe)
    assert not kept.exists()
    forget()
    kept.parent.parent.joinpath("file").write_text("in the way")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sources, "_KEPT", kept.parent.parent / "file" / "sources.json")
    assert identity.code_hash(linear_probe) == expected


def test_old_versions_do_not_gather_for_ever(kept, monkeypatch):
    identity.code_hash(linear_probe)
    known = json.loads(kept.read_text())
    forget()
    old = {f"{number:064}": next(iter(known["modules"].values())) for number in range(sources._MOST)}
    kept.write_text(json.dumps(known | {"modules": old}))
    identity.code_hash(linear_probe)
    assert json.loads(kept.read_text())["modules"].keys() == known["modules"].keys()
