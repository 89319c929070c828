"""Keys: who may read them, and who is let in."""

import pytest

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
    assert sorted(path.name for path in keys.folder().iterdir()) == ["allowed"]


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
    with pytest.raises(ValueError, match="cannot be printed"):
        keys.allow("ab" * 32, "x\n" + "cd" * 32)
