# SPDX-License-Identifier: Apache-2.0
"""Keys: who may read them, and who is let in."""

import errno
import fcntl
import os
import resource
import subprocess
from contextlib import contextmanager

import pytest
from support.processes.agents import python

from dgkit.errors import AccessDenied, PeerRefused
from dgkit.wire import keys


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_a_pair_is_stored_so_that_only_its_owner_reads_the_secret():
    pair = keys.make("lab")
    assert keys.load("lab") == pair
    assert (keys.folder() / "lab.secret").stat().st_mode & 0o777 == 0o600
    assert keys.folder().stat().st_mode & 0o777 == 0o700
    assert pair.secret not in repr(pair)


def test_a_name_is_used_once():
    keys.make("lab")
    with pytest.raises(FileExistsError):
        keys.make("lab")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65])
def test_a_name_that_could_leave_the_folder_is_refused(name):
    with pytest.raises(ValueError, match="key name"):
        keys.make(name)
    with pytest.raises(ValueError, match="key name"):
        keys.load(name)


def test_a_missing_pair_says_how_to_make_one():
    with pytest.raises(PeerRefused, match="dgkit keys make default"):
        keys.load()


def test_a_missing_pair_names_those_that_there_are():
    keys.make("me")
    keys.make("lab")
    with pytest.raises(PeerRefused, match=r"--keys NAME.*stored: lab, me\)"):
        keys.load()


def test_a_key_that_was_removed_is_let_in_no_more():
    keys.allow("ab" * 32, "laptop")
    keys.allow("cd" * 32, "desk")
    assert keys.remove("AB" * 32) == "laptop"
    assert keys.allowed() == {"cd" * 32: "desk"}
    assert (keys.folder() / "allowed").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="is not an allowed key"):
        keys.remove("ab" * 32)
    assert sorted(path.name for path in keys.folder().iterdir()) == [".lock", "allowed"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_secret_that_others_can_read_is_refused(mode):
    keys.make("lab")
    (keys.folder() / "lab.secret").chmod(mode)
    with pytest.raises(AccessDenied, match="chmod 600"):
        keys.load("lab")


def test_a_folder_that_others_can_write_is_refused():
    keys.folder().chmod(0o770)
    with pytest.raises(AccessDenied, match="chmod 700"):
        keys.folder()


def test_an_allow_list_that_others_can_write_is_refused():
    keys.allow("ab" * 32, "laptop")
    (keys.folder() / "allowed").chmod(0o666)
    with pytest.raises(AccessDenied, match="chmod 600"):
        keys.allowed()


def test_a_damaged_secret_is_refused():
    keys.make("lab")
    (keys.folder() / "lab.secret").write_text("no key\n")
    with pytest.raises(ValueError, match="is not a key"):
        keys.load("lab")


def test_a_secret_that_is_a_pipe_is_refused_at_once():
    os.mkfifo(keys.folder() / "lab.secret", 0o600)
    with pytest.raises(OSError, match="not a regular file"):
        keys.load("lab")


def test_an_allow_list_that_is_no_text_is_named():
    (keys.folder() / "allowed").write_bytes(bytes(range(128, 256)))
    for use in (keys.allowed, keys.listing, lambda: keys.allow("ab" * 32)):
        with pytest.raises(ValueError, match="allowed is not UTF-8 text"):
            use()


def test_listing_shows_own_pairs_and_those_that_are_let_in():
    pair = keys.make("lab")
    keys.allow(pair.public.upper(), "myself")
    keys.allow("cd" * 32, "laptop")
    keys.allow("cd" * 32, "laptop again")
    assert keys.listing() == [
        keys.KeyInfo("lab", pair.public, own=True, allowed=True),
        keys.KeyInfo("laptop", "cd" * 32, own=False, allowed=True),
    ]


@pytest.mark.parametrize("key", ["", "xyz", "ab" * 31, "gg" * 32])
def test_what_is_no_public_key_is_not_let_in(key):
    with pytest.raises(ValueError, match="64 hex digits"):
        keys.allow(key)


def test_a_name_with_a_line_break_is_not_written_to_the_list():
    with pytest.raises(ValueError, match="at most 64 printable characters"):
        keys.allow("ab" * 32, "x\n" + "cd" * 32)


CHANGES = """
import sys
from dgkit.wire import keys
for key in sys.argv[2:]:
    if sys.argv[1] == "make":
        keys.make(key[:8])
    else:
        getattr(keys, sys.argv[1])(key)
"""


def test_changes_by_several_processes_at_the_same_time_are_all_kept():
    old, new = ([f"{i:04x}" * 16 for i in range(start, start + 60)] for start in (0, 1000))
    for key in [*old, "ff" * 32]:
        keys.allow(key)
    work = [("remove", old[i::3]) for i in range(3)]
    work += [("allow", new[i::2]) for i in range(2)] + [("make", ["ab" * 32, "cd" * 32])]
    processes = [subprocess.Popen(python(CHANGES, what, *which)) for what, which in work]
    assert [process.wait(60) for process in processes] == [0] * len(work)
    assert set(keys.allowed()) == {*new, "ff" * 32}
    assert [keys.load(name).name for name in ("abababab", "cdcdcdcd")] == ["abababab", "cdcdcdcd"]


@pytest.mark.parametrize("change", [keys.allow, keys.remove])
def test_a_change_waits_for_the_lock_and_then_says_who_may_hold_it(change, monkeypatch):
    keys.allow("ab" * 32)
    monkeypatch.setattr(keys, "_LOCK_S", 0.05)
    with (keys.folder() / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccessDenied, match=r"another process holds .*\.lock"):
            change("ab" * 32)
    change("ab" * 32)


def test_the_last_pair_that_is_discarded_takes_the_folder_with_it():
    keys.make("one")
    keys.make("two")
    keys.discard("one")
    assert sorted(path.suffix or path.name for path in keys.folder().iterdir()) == [
        ".lock",
        ".public",
        ".secret",
    ]
    folder = keys.folder()
    with (folder / ".lock").open("w") as held:  # as one who waits, while the file is removed
        keys.discard("two")
        assert not folder.exists()
        fcntl.flock(held, fcntl.LOCK_EX)
        keys.allow("ab" * 32)  # by a new lock, not that of a file that is gone
    keys.discard("two")
    assert keys.allowed()


@contextmanager
def full_disk():
    """Every write to a file fails in this process (EFBIG; SIGXFSZ is ignored by Python)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents():
    paths = (path for path in keys.folder().iterdir() if path.name != ".lock")
    return {path.name: path.read_text() for path in paths}


@pytest.mark.parametrize("change", [keys.allow, keys.remove])
def test_a_full_disk_leaves_the_list_as_it_was(change):
    keys.allow("ab" * 32, "laptop")
    keys.allow("ef" * 32, "desk")
    before = contents()
    with full_disk(), pytest.raises(OSError, match="File too large"):
        change("cd" * 32 if change is keys.allow else "ab" * 32)
    assert contents() == before


def test_a_full_disk_that_shows_at_fsync_leaves_the_list_as_it_was(monkeypatch):
    keys.allow("ab" * 32, "laptop")
    before = contents()

    def full(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keys.remove("ab" * 32)
    assert contents() == before


def test_what_a_killed_process_left_is_replaced():
    keys.allow("ab" * 32)
    (keys.folder() / ".allowed.part").write_text("half a line")
    keys.allow("cd" * 32)
    assert list(keys.allowed()) == ["ab" * 32, "cd" * 32]
    assert ".allowed.part" not in contents()


def test_a_last_line_without_newline_keeps_its_name_and_what_follows():
    path = keys.folder() / "allowed"
    path.write_text("# by hand\n" + "ab" * 32 + " laptop")
    path.chmod(0o600)
    keys.allow("cd" * 32, "desk")
    assert keys.allowed() == {"ab" * 32: "laptop", "cd" * 32: "desk"}
    keys.remove("cd" * 32)
    assert path.read_text() == "# by hand\n" + "ab" * 32 + " laptop\n"


def test_a_full_disk_leaves_no_part_of_a_pair():
    with full_disk(), pytest.raises(OSError, match="File too large"):
        keys.make("lab")
    assert contents() == {}
    keys.make("lab")


def test_a_full_disk_at_the_second_file_leaves_no_part_of_a_pair(monkeypatch):
    synced = []
    real = os.fsync

    def full(fd):
        synced.append(fd)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keys.make("lab")
    assert contents() == {}


def test_a_public_key_whose_secret_is_lost_is_replaced_by_a_new_pair():
    first = keys.make("lab")
    (keys.folder() / "lab.secret").unlink()
    assert keys.listing() == []
    with pytest.raises(PeerRefused, match="dgkit keys make lab"):
        keys.load("lab")
    second = keys.make("lab")
    assert keys.load("lab") == second != first


def test_a_secret_whose_public_key_is_lost_is_kept_and_gives_it_again():
    pair = keys.make("lab")
    (keys.folder() / "lab.public").unlink()
    with pytest.raises(FileExistsError):
        keys.make("lab")
    assert keys.load("lab") == pair
    assert [row.public for row in keys.listing()] == [pair.public]


def test_two_files_of_different_pairs_are_refused():
    keys.make("lab")
    (keys.folder() / "lab.public").write_text(keys.make("other").public + "\n")
    with pytest.raises(ValueError, match="is not the public key of"):
        keys.load("lab")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277, 0o777])
def test_the_folder_and_its_files_have_their_modes_under_any_umask(tmp_path, monkeypatch, mask):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    before = os.umask(mask)
    try:
        pair = keys.make("lab")
        keys.allow("ab" * 32)
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in [keys.folder(), *keys.folder().iterdir(), *keys.folder().parents]
    }
    assert {modes[name] for name in ("keys", "dgkit", "config", "home")} == {0o700}
    assert {modes[name] for name in ("lab.secret", "allowed", ".lock")} == {0o600}
    assert modes["lab.public"] == 0o644
    assert keys.load("lab") == pair


@pytest.fixture
def reads(monkeypatch):
    """Files of allowed keys that were read."""
    done, read = [], keys._keys_in
    monkeypatch.setattr(keys, "_keys_in", lambda fd: done.append(fd) or read(fd))
    return done


def test_a_list_that_has_settled_is_not_read_again_and_each_change_is_seen(monkeypatch, reads):
    monkeypatch.setattr(keys, "_SETTLED_NS", -1)
    listed, where = keys.AllowedKeys(), keys.folder()
    assert listed.read() == {}
    keys.allow("ab" * 32, "one")
    for _ in range(3):
        assert listed.read() == {"ab" * 32: "one"}
    assert len(reads) == 1
    path = where / "allowed"
    with path.open("r+") as file:  # in place, of the same size
        file.write("cd" * 32)
    assert listed.read() == {"cd" * 32: "one"}
    for each, mode in ((path, 0o600), (where, 0o700)):
        each.chmod(0o777)
        with pytest.raises(AccessDenied, match="is writable by other users"):
            listed.read()
        each.chmod(mode)
    keys.remove("cd" * 32)
    assert listed.read() == {}
    path.unlink()
    assert listed.read() == {}


def test_a_list_that_has_just_changed_is_read_again(reads):
    keys.allow("ab" * 32)
    listed = keys.AllowedKeys()
    for _ in range(3):
        listed.read()
    assert len(reads) == 3
