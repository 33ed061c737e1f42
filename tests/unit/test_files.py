"""Files are written whole or not at all, whatever happens to their writer."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from vitlab import disk, files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def python(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=files.ROOT)


def test_folders_follow_their_variables_except_the_reference(monkeypatch, tmp_path):
    monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path / "f"))
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path / "d"))
    assert files.figures_dir() == tmp_path / "f"
    assert files.data_dir() == tmp_path / "d"
    assert files.reference_dir("quick") == files.ROOT / "figures" / "reference" / "quick"
    monkeypatch.delenv("VITLAB_FIGURES")
    monkeypatch.setenv("VITLAB_DATA", "")
    assert files.figures_dir() == files.ROOT / "figures"
    assert files.data_dir() == files.ROOT / "data" / "downloads"


def test_without_a_checkout_nothing_is_written_among_installed_packages(monkeypatch, tmp_path):
    monkeypatch.delenv("VITLAB_FIGURES", raising=False)
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    monkeypatch.setattr(files, "ROOT", tmp_path / "site-packages")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert files.figures_dir() == tmp_path / "work" / "figures"
    assert files.data_dir() == tmp_path / "work" / "data" / "downloads"
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "pyproject.toml").touch()  # it is a checkout after all
    assert files.figures_dir() == tmp_path / "site-packages" / "figures"


def test_writing_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "new" / "x.txt"
    for text in ("first", "second"):
        with files.writing(target) as temporary:
            assert temporary.parent == target.parent and temporary.suffix == ".txt"
            temporary.write_text(text)
        assert target.read_text() == text
    assert names(target.parent) == ["x.txt"]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_an_error_while_writing_leaves_the_old_file_whole(tmp_path, error):
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(type(error)), files.writing(target) as temporary:
        temporary.write_text("ne")
        raise error
    assert target.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_body_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(OSError, match="nothing written for .*x.txt"), files.writing(tmp_path / "x.txt"):
        pass


def test_a_full_disk_is_named_and_the_old_file_kept(tmp_path, monkeypatch):
    target = tmp_path / "x.json"
    files.write_json(target, [1])

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"disk full while writing .*x\.json: free space and run again") as caught:
        files.write_json(target, [2])
    assert caught.value.errno == errno.ENOSPC
    assert files.read_json(target) == [1]
    assert names(tmp_path) == ["x.json"]


def test_a_library_that_words_the_full_disk_in_its_own_class_is_understood(tmp_path):
    with pytest.raises(OSError, match="disk full while writing"), files.writing(tmp_path / "w") as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError("I/O error: No space left on device (os error 28)")
    assert names(tmp_path) == []


def test_a_write_beyond_the_limit_of_the_system(tmp_path):
    code = (
        "import resource, sys; from vitlab import files\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (4096, {resource.RLIM_INFINITY}))\n"
        "files.write_json(sys.argv[1], list(range(10000)))"
    )
    target = tmp_path / "x.json"
    files.write_json(target, "old")
    process = python(code, target)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "disk full while writing" in err
    assert files.read_json(target) == "old" and names(tmp_path) == ["x.json"]


@pytest.mark.slow
def test_what_a_killed_writer_left_is_swept_and_a_living_writers_file_is_not(tmp_path):
    code = (
        "import sys, time; from vitlab import files\n"
        "with files.writing(sys.argv[1]) as t:\n"
        "    t.write_text('half'); print('writing', flush=True); time.sleep(60)"
    )
    process = python(code, tmp_path / "x.txt")
    process.stdout.readline()
    files.write_json(tmp_path / "y.json", 1)
    assert len(names(tmp_path)) == 2 and names(tmp_path)[0].startswith(".partial-")
    os.kill(process.pid, signal.SIGKILL)
    for _ in range(100):  # a zombie until it is waited for, and dead already
        files.write_json(tmp_path / "y.json", 2)
        if names(tmp_path) == ["y.json"]:
            break
        time.sleep(0.05)
    assert names(tmp_path) == ["y.json"]
    process.communicate()


def test_sweep_leaves_other_machines_files_a_day_and_strangers_names_for_ever(tmp_path):
    foreign = tmp_path / ".partial-00000000-1-00000000-x.txt"
    stranger = tmp_path / ".partial-mine.txt"
    foreign.touch(), stranger.touch()
    assert files.sweep(tmp_path) == []
    os.utime(foreign, (time.time() - 2 * 24 * 3600,) * 2)
    assert files.sweep(tmp_path) == [foreign]
    assert names(tmp_path) == [stranger.name]


@pytest.mark.parametrize("lag", [5, 60, 1800])
def test_a_living_writers_file_stays_where_the_file_servers_clock_lags(tmp_path, lag):
    mine = files.beside(tmp_path / "x.txt")
    mine.touch()
    os.utime(mine, (psutil.Process().create_time() - lag,) * 2)
    assert files.sweep(tmp_path) == [] and mine.exists()
    os.utime(mine, (psutil.Process().create_time() - 2 * 3600,) * 2)  # its writer had this process's number before
    assert files.sweep(tmp_path) == [mine]


@pytest.fixture
def unwritable(tmp_path):
    """A folder that this process may read and not write into; root, who may everything, is nobody for a while."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o555)
    if os.getuid() == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(os.getuid())
    folder.chmod(0o755)


def test_a_folder_that_cannot_be_written_into_is_named_with_the_way_out(tmp_path, unwritable):
    for folder in (unwritable, unwritable / "quick" / "08"):
        with pytest.raises(
            PermissionError, match=rf"cannot write into {folder} \(Permission denied\): choose .* --out"
        ):
            disk.check_writable(folder, "--out FOLDER")
        with pytest.raises(
            PermissionError, match=rf"cannot write into {folder} \(Permission denied\): .*VITLAB_FIGURES"
        ):
            files.write_json(folder / "x.json", 1)
        with (
            pytest.raises(
                PermissionError, match=rf"cannot write into {folder} \(Permission denied\): .*VITLAB_FIGURES"
            ),
            files.lock(folder),
        ):
            pass
    os.seteuid(os.getuid())
    assert names(unwritable) == []


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "quick"):
        with pytest.raises(OSError, match=rf"cannot write into {folder} \(Not a directory\): choose another folder"):
            disk.check_writable(folder)
        with pytest.raises(OSError, match=rf"cannot write into {folder} .*VITLAB_FIGURES"):
            files.write_json(folder / "x.json", 1)
    assert names(tmp_path) == ["file"]


def test_a_folder_is_looked_at_and_not_made(tmp_path):
    disk.check_writable(tmp_path / "new" / "folder")
    assert names(tmp_path) == []


def test_an_error_of_the_body_about_another_file_passes_through(tmp_path):
    with pytest.raises(PermissionError, match="elsewhere"), files.writing(tmp_path / "x.txt"):
        raise PermissionError(errno.EACCES, "no", "/elsewhere/data.png")


def test_json_is_sorted_indented_and_without_nan(tmp_path):
    path = tmp_path / "x.json"
    files.write_json(path, {"b": 1.5, "a": "é"})
    assert path.read_text(encoding="utf-8") == '{\n "a": "é",\n "b": 1.5\n}\n'
    for bad in ({"a": float("nan")}, [float("inf")], {"a": {1, 2}}):
        with pytest.raises(ValueError, match=r"cannot write .*x\.json: .*finite numbers"):
            files.write_json(path, bad)
    assert files.read_json(path) == {"a": "é", "b": 1.5}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"])
def test_a_corrupt_json_file_is_named(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json is not valid JSON .*remove the file and run again"):
        files.read_json(path)


HOLD = (
    "import sys, time; from vitlab import files\n"
    "with files.lock(sys.argv[1], sys.argv[2]):\n"
    "    print('held', flush=True); time.sleep(float(sys.argv[3]))"
)


def test_a_lock_keeps_others_out_and_says_once_what_it_waits_for(tmp_path, capfd):
    process = python(HOLD, tmp_path, "", 1.0)
    process.stdout.readline()
    with files.lock(tmp_path, wait=False) as held:
        assert not held
    assert capfd.readouterr().err == ""
    with files.lock(tmp_path) as held:
        assert held and process.wait(timeout=10) == 0
    assert capfd.readouterr().err.splitlines() == [f"vitlab: waiting for another process that works on {tmp_path}"]
    assert names(tmp_path) == []
    process.communicate()


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    process = python(HOLD, tmp_path, "run", 60)
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert names(tmp_path) == [".run.lock"]
    with files.lock(tmp_path, "run", wait=False) as held:
        assert held
    assert names(tmp_path) == []


def test_many_processes_count_to_their_number_under_one_lock(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from vitlab import files\n"
        "count = Path(sys.argv[1]) / 'count'\n"
        "for _ in range(20):\n"
        "    with files.lock(sys.argv[1]):\n"
        "        now = int(count.read_text()); time.sleep(0.001); count.write_text(str(now + 1))"
    )
    (tmp_path / "count").write_text("0")
    processes = [python(code, tmp_path) for _ in range(4)]
    for process in processes:
        assert process.wait(timeout=60) == 0
        process.communicate()
    assert (tmp_path / "count").read_text() == "80"
    assert names(tmp_path) == ["count"]


def test_nothing_else_than_what_is_written_is_replaced(tmp_path):
    file, pipe = tmp_path / "notes.txt", tmp_path / "pipe"
    file.write_text("mine")
    os.mkfifo(pipe)
    for path in (file, pipe):
        with pytest.raises(OSError, match="is no folder, and one is to be written there"), files.writing_folder(path):
            raise AssertionError("begun")
    for path in (tmp_path, pipe):
        with pytest.raises(OSError, match="is no file, and one is to be written there"), files.writing(path):
            raise AssertionError("begun")
    assert file.read_text() == "mine" and pipe.is_fifo()
