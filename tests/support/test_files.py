"""Files are written whole or not at all; errors name the file and what to do; killed writers leave nothing."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import DataError, FileAccessError, MissingFileError, ProgramError
from minigraph.support import atomic_files as files

pytestmark = pytest.mark.usefixtures("new_scope")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Whole or not at all


def test_an_error_while_writing_leaves_the_old_files(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    files.write_files({first: [b"old"], second: [b"old"]})

    def failing():
        yield b"new"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.write_files({first: [b"new"], second: failing()})
    assert contents(tmp_path) == {"first": b"old", "second": b"old"}


def test_an_interrupt_between_two_files_waits_until_both_are_in_place(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    files.write_files({first: [b"old"], second: [b"old"]})
    replace, calls = os.replace, []

    def interrupted(*paths):
        replace(*paths)
        calls.append(paths)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_files({first: [b"new"], second: [b"new"]})
    assert contents(tmp_path) == {"first": b"new", "second": b"new"}


def test_what_goes_wrong_in_a_block_that_writes_is_the_blocks_own(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, files.replacing(tmp_path / "file"):
        (tmp_path / "other").read_bytes()
    assert not isinstance(caught.value, DataError)
    assert contents(tmp_path) == {}


@pytest.mark.skipif(os.name == "nt", reason="links need privileges there")
def test_a_link_stays_a_link_to_what_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    for text in (b"old", b"new"):
        files.write_files({tmp_path / "link": [text]})
        assert (tmp_path / "far" / "file").read_bytes() == text
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_permissions_are_those_that_writing_would_leave(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    files.write_files({tmp_path / "new": [b""]})
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    files.write_files({tmp_path / "new": [b"again"]})
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


# Errors


def saved(folder, **options):
    main = fluid.Program()
    main.global_block().create_parameter("w", [2], "float32")
    fluid.global_scope().var("w").get_tensor().set(np.ones(2, "float32"))
    return main


SAVES = {
    "save": lambda main, path: fluid.save(main, path),
    "save_vars": lambda main, path: fluid.io.save_persistables(None, path.parent, main, filename=path.name),
    "save of a state": lambda main, path: fluid.save({"w": np.ones(2)}, path),
    "a trace": lambda main, path: fluid.profiler.Profile().save_trace(path),
}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
@pytest.mark.parametrize(
    "number, hint",
    [
        (errno.ENOSPC, "Free space for it, or save elsewhere."),
        (errno.EDQUOT, "Free space for it, or save elsewhere."),
        (errno.EACCES, "accessible to you, or save elsewhere."),
        (errno.EROFS, "is read-only: save elsewhere."),
        (errno.EIO, "can be written"),
    ],
)
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_an_error_of_the_system_names_the_file_the_line_and_what_to_do(
    save, number, hint, function, tmp_path, monkeypatch
):
    main = saved(tmp_path)

    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, failing)
    with pytest.raises(FileAccessError) as caught:
        save(main, tmp_path / "file")
    assert f"cannot write '{tmp_path / 'file'}" in caught.value.message
    assert os.strerror(number) in caught.value.message
    assert hint in caught.value.hint
    assert Path(caught.value.site.filename) == Path(__file__)
    assert caught.value.errno == caught.value.__cause__.errno == number
    assert contents(tmp_path) == {}


def test_a_disk_that_gets_full_while_a_file_is_written_is_an_error_of_minigraph(tmp_path):
    resource = pytest.importorskip("resource", reason="Windows has no limits of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    files.write_files({tmp_path / "saved": [b"old"]})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(FileAccessError, match=f"cannot write '{tmp_path / 'saved'}'") as first:
            fluid.save({"w": np.zeros(1000)}, tmp_path / "saved")
        with pytest.raises(FileAccessError, match="report") as second, files.replacing(tmp_path / "report") as partial:
            partial.write_bytes(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert first.value.errno == second.value.errno == errno.EFBIG
    assert "Free space for it" in first.value.hint
    assert contents(tmp_path) == {"saved": b"old"}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
def test_a_folder_in_the_place_of_a_file_is_an_error_before_anything_is_written(save, tmp_path):
    main = saved(tmp_path)
    for suffix in ("", ".pdparams", ".pdopt"):
        (tmp_path / f"file{suffix}").mkdir()
    with pytest.raises(FileAccessError, match="Is a directory") as caught:
        save(main, tmp_path / "file")
    assert "give the path of a file" in caught.value.hint
    assert contents(tmp_path) == {}


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name in ("file/net", "file/folder/net"):
        with pytest.raises(FileAccessError, match="cannot write") as caught:
            fluid.save(saved(tmp_path), tmp_path / name)
        assert "is a file, not a folder" in caught.value.hint


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are others there")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o400)
    monkeypatch.setattr(os, "access", lambda path, mode: bool(os.stat(path).st_mode & 0o200))  # also for root
    with pytest.raises(FileAccessError, match="Permission denied"):
        fluid.save({"w": np.ones(2)}, tmp_path / "file")
    assert contents(tmp_path) == {"file": b"old"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_device_is_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to("/dev/full")
    for path in ("/dev/full", tmp_path / "link"):
        with pytest.raises(FileAccessError, match="it is a device, not a file"):
            fluid.save({"w": np.ones(2)}, path)


@pytest.mark.parametrize("name", ["\0", "a\0b"])
def test_a_path_with_a_zero_is_an_error(name, tmp_path):
    with pytest.raises(ProgramError, match="must end in the name of a file"):
        fluid.save({"w": np.ones(2)}, f"{tmp_path}/{name}")


def test_a_name_too_long_is_an_error_and_a_long_one_of_wide_letters_is_not(tmp_path):
    with pytest.raises(FileAccessError, match="too long"):
        fluid.save({"w": np.ones(2)}, tmp_path / ("w" * 300))
    name = "权" * 80
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        pytest.skip("names of files are ASCII in this locale")
    fluid.save({"w": np.ones(2)}, tmp_path / name)
    assert list(contents(tmp_path)) == [name]


def test_reading_names_the_file_the_line_and_what_to_do(tmp_path):
    with pytest.raises(FileAccessError, match=f"cannot read '{tmp_path}'") as caught:
        fluid.load(tmp_path)
    assert Path(caught.value.site.filename) == Path(__file__)
    assert isinstance(caught.value.__cause__, IsADirectoryError)
    with pytest.raises(MissingFileError):
        fluid.load(tmp_path / "missing")


# Killed writers

WRITER = """
import os, signal, sys
from pathlib import Path
from minigraph.support import atomic_files as files
def chunks():
    yield b"half"
    print("writing", flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
files.write_files({Path(sys.argv[1]): chunks()})
"""
ROOT = Path(__file__).parents[2]


def writer(path, what):
    command = [sys.executable, "-c", WRITER, str(path), what]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="whether a process runs is not asked there")
def test_the_next_save_removes_what_ended_writers_left_and_nothing_else(tmp_path):
    users = [
        ".minigraph-tmp",
        "a.minigraph-tmp",
        ".a.0123.minigraph-tmp",
        ".a.part",
        ".a.0011223344556677.minigraph-tmp.bak",
    ]
    for name in users:
        (tmp_path / name).write_bytes(b"mine")
    ended = writer(tmp_path / "net", "killed")
    ended.communicate()
    (left_over,) = set(contents(tmp_path)) - set(users)
    machine = left_over.split(".")[2].split("-")[0]
    strange = [
        left_over.replace(machine, "deadbeef" if machine != "deadbeef" else "0"),
        ".net.0011223344556677.minigraph-tmp",
    ]
    for name in strange:
        (tmp_path / name).write_bytes(b"of another machine")
    running = writer(tmp_path / "other", "running")
    (live,) = set(contents(tmp_path)) - {*users, *strange, left_over}

    files.write_files({tmp_path / "net": [b"whole"]})
    assert set(contents(tmp_path)) == {*users, *strange, live, "net"}

    a_month_ago = time.time() - 30 * 24 * 3600
    for name in (*users, *strange, live):
        os.utime(tmp_path / name, (a_month_ago, a_month_ago))
    with files.replacing(tmp_path / "net") as partial:
        partial.write_bytes(b"again")
        os.utime(partial, (a_month_ago, a_month_ago))
        files.write_files({tmp_path / "third": [b"whole"]})
    assert set(contents(tmp_path)) == {*users, live, "net", "third"}

    running.communicate("")
    assert set(contents(tmp_path)) == {*users, "net", "third", "other"}
    assert contents(tmp_path)["other"] == b"half"


def test_a_file_with_the_number_of_this_process_from_an_earlier_one_is_removed(tmp_path):
    with files.replacing(tmp_path / "net") as partial:
        name = partial.name.replace(partial.name.split("-")[2][:8], "00000000")
        (tmp_path / name).write_bytes(b"from before the last restart")
        files.write_files({tmp_path / "net": [b"whole"]})
        assert not (tmp_path / name).exists() and partial.exists()
