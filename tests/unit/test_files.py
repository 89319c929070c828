# SPDX-License-Identifier: Apache-2.0
"""Files that other users may have prepared, and atomic writes."""

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from dgkit.cli.demo_run import Source
from dgkit.cli.json_file import output_file, write_document
from dgkit.doca_trace import functions
from dgkit.doca_trace.trace_file import read_trace
from dgkit.doctor.collect.snapshot import Snapshot
from dgkit.errors import NativeError
from dgkit.files import read_limited, read_regular, replace_file, write_new
from dgkit.gpu_initiated import compiler
from dgkit.teach import hints, student_notebook
from dgkit.testbed import images
from dgkit.wire import keys


def _replaced_by_json(path):
    write_document(path, "dgkit bench", {})


def _saved_snapshot(path):
    Snapshot(source="synthetic: a test", readings={}).save(path)


WRITERS = [lambda path: replace_file(path, b"new"), _replaced_by_json, _saved_snapshot]


@pytest.mark.parametrize("write", WRITERS)
def test_a_symbolic_link_at_the_file_or_beside_it_is_not_followed(write, tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("mine")
    (tmp_path / ".file.part").symlink_to(victim)
    write(path)
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(OSError, match="not a regular file") as caught:
        write(path)
    assert caught.value.filename == str(path)
    assert victim.read_text() == "mine"
    assert path.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "victim"]


@pytest.mark.parametrize("linked", [False, True], ids=["itself", "by a link"])
def test_results_are_written_to_a_pipe_which_stays_one(linked, tmp_path):
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:  # as /dev/fd/63 of a shell's >(program) is
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        _replaced_by_json(path)
        assert reader.read().startswith(b"{")
    assert pipe.is_fifo()
    assert path.is_symlink() == linked
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(path, b"new")


def test_results_for_a_full_device_or_a_closed_folder_name_it(tmp_path):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        _replaced_by_json(Path("/dev/full"))
    with pytest.raises(click.UsageError, match="its folder does not exist"):
        output_file(str(tmp_path / "none/file"))


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_names_it(write, tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_new_file_has_its_mode_whatever_the_umask_is_and_replaces_none(tmp_path):
    path, before = tmp_path / "file", os.umask(0o277)
    try:
        write_new(path, b"first", 0o640)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"


UNREADABLE = Path("/proc/self/mem")  # its first byte is not mapped: EIO


def _fill(path, folder):
    (folder / "file").write_bytes(b"x")
    source = Source(folder / "file")
    source._path = path
    source.read_into(memoryview(bytearray(1)), lambda *_: None)


@pytest.mark.parametrize("read", [
    _fill,
    lambda path, _: read_trace(path, functions.load()),
    lambda path, _: student_notebook.load(path),
    lambda path, _: read_limited(path, 1),
])  # fmt: skip
def test_an_error_while_a_file_is_read_names_the_file(read, tmp_path):
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read(UNREADABLE, tmp_path)


def test_a_file_without_an_end_and_one_that_would_block_are_no_notebooks(tmp_path):
    os.mkfifo(tmp_path / hints.FILE)
    for path in (tmp_path / hints.FILE, Path("/dev/zero")):
        with pytest.raises(OSError, match=f"not a regular file: '{path}'"):
            student_notebook.load(path)
    assert hints.shown(tmp_path / "lab.ipynb") == {}


def test_no_more_than_the_limit_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"abcd")
    assert read_limited(tmp_path / "file", 4) == b"abcd"
    for read in (read_limited, read_regular):
        with pytest.raises(ValueError, match="file has more than 3 bytes, the limit"):
            read(tmp_path / "file", 3)


@pytest.mark.parametrize("home", ["/proc/none", __file__])
@pytest.mark.parametrize(
    ("variable", "use"),
    [
        ("XDG_CONFIG_HOME", lambda: keys.make("a")),
        ("XDG_CACHE_HOME", lambda: compiler.compile_program("")),
        ("XDG_CACHE_HOME", lambda: ExitStack().enter_context(images.in_use())),
    ],
    ids=["keys", "kernel", "images"],
)
def test_where_a_folder_cannot_be_made_the_error_says_what_to_set(monkeypatch, home, variable, use):
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", home)
    said = f"cannot create the folder {home}/.*set {variable} to a folder that you may write to"
    with pytest.raises(NativeError, match=said):
        use()
