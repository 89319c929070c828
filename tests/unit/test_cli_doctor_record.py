# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor --record`: what is stored, what is refused, what a failure leaves."""

import pytest

import dgkit
from dgkit.cli import main


def test_a_recording_of_this_machine_can_be_judged_and_is_never_overwritten(tmp_path, capsys):
    path = tmp_path / "here.snap"
    assert main(["doctor", "--record", str(path), "--word", "x"]) == 0
    out = capsys.readouterr().out
    assert f"dgkit doctor --from {path}" in out
    assert "pseudonyms" in out
    before = path.read_bytes()
    assert main(["doctor", "--from", str(path)]) in (0, 1, 5, 6)
    assert capsys.readouterr().out.startswith("recorded on ")
    assert main(["doctor", "--record", str(path)]) == 2
    assert "File exists" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_recording_that_fails_leaves_no_file(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dgkit.doctor.api.store", stopped)
    with pytest.raises(KeyboardInterrupt):
        dgkit.doctor.record(tmp_path / "here.snap")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "args",
    [
        ["--record", "-"],
        ["--record", "x.snap", "kernel"],
        ["--record", "x.snap", "--from", "y.snap"],
        ["--word", "x"],
    ],
)
def test_what_makes_no_sense_with_a_recording_is_a_usage_error(args, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *args]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
