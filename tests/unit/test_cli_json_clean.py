# SPDX-License-Identifier: Apache-2.0
"""`--json [FILE]` of all commands, and `dgkit clean`."""

import json

import pytest

from dgkit.cli import main


def test_json_goes_to_a_file_and_nothing_to_stdout(tmp_path, capsys):
    file = tmp_path / "checks.json"
    for _ in range(2):  # the second replaces it
        assert main(["doctor", "--list", "--json", str(file)]) == 0
        assert json.loads(file.read_text())[0]["name"]
    assert capsys.readouterr().out == ""
    assert main(["doctor", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())


@pytest.mark.parametrize("command", [["demo"], ["doctor", "--list"], ["info"]])
def test_json_does_not_overwrite_a_file_that_was_meant_as_an_argument(tmp_path, capsys, command):
    data = tmp_path / "data.bin"
    data.write_bytes(b"mine")
    assert main([*command, "--json", str(data)]) == 2
    assert "exists and is not JSON; an argument stands before --json" in capsys.readouterr().err
    assert data.read_bytes() == b"mine"


def test_a_check_after_json_is_not_taken_for_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json", "peermem"]) == 2
    assert "this is a check; CHECKs stand before --json" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_clean_removes_what_is_made_again_and_keys_only_if_told(tmp_path, capsys, monkeypatch):
    kept = {}
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        kept[variable] = tmp_path / variable / "dgkit/file"
        kept[variable].parent.mkdir(parents=True)
        kept[variable].write_bytes(bytes(2048))
        (tmp_path / variable / "other").touch()
    monkeypatch.setattr("dgkit.testbed.running", lambda: None)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert main(["clean"]) == 1
    assert all(file.exists() for file in kept.values())
    assert main(["clean", "--yes"]) == 0
    assert [name for name, file in kept.items() if file.exists()] == [
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ]
    assert "2 KiB" in capsys.readouterr().out
    assert main(["clean", "--all", "--yes"]) == 0
    assert main(["clean"]) == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")
    assert all((tmp_path / name / "other").exists() for name in kept)


def test_the_old_name_of_quick_works_and_names_the_new_one(capsys):
    assert main(["doctor", "--fast", "--list"]) == 0
    assert "--fast is called --quick" in capsys.readouterr().err
