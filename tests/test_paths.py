"""Files are written whole or not at all; folders are where their variables say; one thread is one thread."""

import errno
import os
import subprocess
import sys

import pytest
import torch

from vitlab import paths, settings


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_folders_follow_their_variables_except_what_is_committed(monkeypatch, tmp_path):
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "f"))
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path / "d"))
    assert paths.out_dir("quick") == tmp_path / "f" / "quick" and paths.data_dir() == tmp_path / "d"
    assert paths.evidence_dir() == paths.ROOT / "figures" / "evidence"
    monkeypatch.delenv("VITLAB_FIGURES")
    monkeypatch.setenv("VITLAB_DATA", "")
    assert paths.figures_dir() == paths.ROOT / "figures" / "out"
    assert paths.data_dir() == paths.ROOT / "data" / "downloads"


def test_a_home_of_nobody_and_a_link_in_a_circle_stay_as_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("VITLAB_DATA", "~nobody_here/sets")
    assert paths.data_dir().parts[-2:] == ("~nobody_here", "sets")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert not os.path.exists(paths.own(tmp_path / "a"))


def test_without_a_checkout_nothing_is_written_among_installed_packages(monkeypatch, tmp_path):
    monkeypatch.delenv("VITLAB_FIGURES", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path / "site-packages")
    copied = tmp_path / "work" / "notebooks"
    (copied / "deep").mkdir(parents=True)
    monkeypatch.chdir(copied / "deep")
    assert paths.figures_dir() == copied / "deep" / "figures" / "out"
    (copied / "00_start_here.ipynb").touch()
    assert paths.figures_dir() == tmp_path / "work" / "figures" / "out"


def test_writing_replaces_the_whole_file_or_leaves_the_old_one(tmp_path):
    target = tmp_path / "new" / "x.txt"
    for text in ("first", "second"):
        with paths.writing(target) as temporary:
            assert temporary.parent == target.parent and temporary.suffix == ".txt"
            temporary.write_text(text)
        assert target.read_text() == text
    with pytest.raises(KeyboardInterrupt), paths.writing(target) as temporary:
        temporary.write_text("ha")
        raise KeyboardInterrupt
    assert target.read_text() == "second" and names(target.parent) == ["x.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    for name in ("a", "b"):
        with paths.writing(tmp_path / "pair", folder=True) as temporary:
            (temporary / name).write_text("1")
        assert names(tmp_path / "pair") == [name]
    with pytest.raises(ArithmeticError), paths.writing(tmp_path / "pair", folder=True):
        raise ArithmeticError
    assert names(tmp_path) == ["pair"] and names(tmp_path / "pair") == ["b"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("file write: No space left on device")]
)
def test_a_full_disk_is_named_and_the_old_file_kept(tmp_path, error):
    target = tmp_path / "x.json"
    paths.write_json(target, [1])
    words = "disk full while writing .*x.json: free space and run again"
    with pytest.raises(OSError, match=words) as caught, paths.writing(target):
        raise error
    assert caught.value.errno == errno.ENOSPC and paths.read_json(target) == [1] and names(tmp_path) == ["x.json"]


def test_a_place_that_cannot_be_written_into_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write into .*file.*choose another folder with --out FOLDER"):
        paths.check_writable(tmp_path / "file" / "figures", "--out FOLDER")
    with pytest.raises(OSError, match="file"), paths.writing(tmp_path / "file/x"):
        pass
    paths.check_writable(tmp_path / "new" / "folder")
    assert names(tmp_path) == ["file"]


def test_json_that_is_none_names_its_file(tmp_path):
    paths.write_json(tmp_path / "x.json", {"b": 1, "a": [0.5, None, "ü"]})
    assert paths.read_json(tmp_path / "x.json") == {"a": [0.5, None, "ü"], "b": 1}
    (tmp_path / "x.json").write_bytes(b"")
    with pytest.raises(ValueError, match="x.json is not valid JSON"):
        paths.read_json(tmp_path / "x.json")


def test_a_lock_excludes_other_processes_and_dies_with_its_holder(tmp_path):
    code = "import sys, time; from vitlab import paths\n"
    code += "with paths.lock(sys.argv[1]):\n print(1, flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=paths.ROOT) as other:
        assert other.stdout.readline() == b"1\n"
        with paths.lock(tmp_path, wait=False) as held, paths.lock(tmp_path, "another") as free:
            assert (held, free) == (False, True)
        other.kill()
        other.wait()
    with paths.lock(tmp_path) as held:
        assert held
    assert names(tmp_path) == []


def test_threads_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ArithmeticError), settings.one_thread():
            assert torch.get_num_threads() == 1
            raise ArithmeticError
        assert torch.get_num_threads() == 2
        assert settings.mapped(abs, [-1, 2, -3]) == [1, 2, 3]
    finally:
        torch.set_num_threads(before)
