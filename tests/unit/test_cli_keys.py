# SPDX-License-Identifier: Apache-2.0
"""`dgkit keys`: pairs are made once, kept secret, listed and let in."""

import json
import stat

import pytest

from dgkit.cli import main


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def public_of(capsys, *args):
    assert main(["keys", "make", *args]) == 0
    return capsys.readouterr().out.strip()


def test_make_prints_the_public_key_alone_on_stdout(capsys, home):
    assert main(["keys", "make", "lab"]) == 0
    out, err = capsys.readouterr()
    assert bytes.fromhex(out.strip())
    assert f"dgkit keys allow {out.strip()}" in err
    secret = home / "dgkit" / "keys" / "lab.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text().strip() not in out + err


def test_a_pair_that_is_there_is_kept(capsys, home):
    public_of(capsys, "lab")
    before = (home / "dgkit" / "keys" / "lab.secret").read_text()
    assert main(["keys", "make", "lab"]) == 2
    assert "which is kept" in capsys.readouterr().err
    assert (home / "dgkit" / "keys" / "lab.secret").read_text() == before


def test_list_shows_own_keys_and_those_let_in(capsys):
    mine, other = public_of(capsys, "mine"), public_of(capsys, "other")
    assert main(["keys", "allow", other]) == 0
    assert main(["keys", "allow", "ab" * 32, "--name", "friend"]) == 0
    capsys.readouterr()
    assert main(["keys", "list"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("mine (own)", "other (own, allowed)", "friend (allowed)"))
    assert mine in text
    assert main(["keys", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["other"] == {"name": "other", "public": other, "own": True, "allowed": True}
    assert rows["friend"]["own"] is False


def test_list_without_keys_says_how_to_make_one(capsys):
    assert main(["keys", "list"]) == 0
    assert "dgkit keys make" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["", "xyz", "ab" * 31])
def test_what_is_no_key_is_not_let_in(key, capsys):
    assert main(["keys", "allow", key]) == 2
    assert "64 hex digits" in capsys.readouterr().err


def test_a_name_that_could_leave_the_folder_is_refused(capsys):
    assert main(["keys", "make", "../evil"]) == 2
    assert "key name" in capsys.readouterr().err


def test_remove_lets_a_key_in_no_more(capsys):
    assert main(["keys", "allow", "ab" * 32, "--name", "friend"]) == 0
    assert main(["keys", "remove", "ab" * 32]) == 0
    assert "no longer allowed: friend" in capsys.readouterr().out
    assert main(["keys", "remove", "ab" * 32]) == 2
    assert "is not an allowed key" in capsys.readouterr().err
    assert main(["keys", "list"]) == 0
    assert "friend" not in capsys.readouterr().out
