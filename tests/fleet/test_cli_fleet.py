# SPDX-License-Identifier: Apache-2.0
"""`dgkit fleet`: its tables, its JSON, its exit codes."""

import json
import socket
from unittest.mock import Mock

import pytest

from dgkit.cli import main
from dgkit.doctor import Verdict

QUICK = ["--sizes", "64,4K", "--count", "50", "--seconds", "0.01"]


def test_demo_starts_software_pairs_and_sweeps_them(capfd):
    assert main(["fleet", "demo", "--pairs", "2", *QUICK, "--ops", "write"]) == 0
    out = capfd.readouterr().out
    assert "Fleet of 2 pairs: 2 software DPU" in out
    assert "4 KiB" in out
    assert "No stragglers." in out


@pytest.mark.parametrize("folder", [True, False])
def test_a_sweep_that_is_interrupted_says_what_is_kept(
    folder, client, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("dgkit.fleet.Sweep.wait", Mock(side_effect=KeyboardInterrupt))
    command = ["fleet", "sweep", "--scheduler", client.scheduler.address, *QUICK]
    assert main([*command, *(["--folder", str(tmp_path)] if folder else [])]) == 130
    words = f"of 12 rows are in {tmp_path}; the same command with --resume continues"
    assert (words if folder else "rows were measured; --folder") in capsys.readouterr().err
    monkeypatch.undo()
    if folder:
        assert main([*command, "--folder", str(tmp_path), "--resume"]) == 0


def test_sweep_writes_its_rows_and_resumes(client, tmp_path, capsys):
    address = client.scheduler.address
    command = ["fleet", "sweep", "--scheduler", address, *QUICK, "--folder", str(tmp_path / "f")]
    assert main([*command, "--json", str(tmp_path / "one.json")]) == 0
    assert main(command) == 1
    assert (
        "dgkit: " + str(tmp_path / "f") + " has files of this sweep: continue it with"
        in capsys.readouterr().err
    )
    assert main([*command, "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "dgkit fleet sweep"
    assert len(found["pairs"]) == 3
    assert len(found["rows"]) == 12
    assert found["rows"] == json.loads((tmp_path / "one.json").read_text())["rows"]
    assert found["failures"] == []


def test_a_failure_is_said_and_is_the_exit_code(client, monkeypatch, capsys):
    def fail(*_):
        raise ValueError("broken for this test")

    monkeypatch.setattr("dgkit.fleet.pair_measurement.measure_session", fail)
    command = ["fleet", "sweep", "--scheduler", client.scheduler.address, *QUICK]
    assert main(command) == 1
    assert "write, auto: ValueError: broken for this test" in capsys.readouterr().err


def test_doctor_judges_each_machine_once(client, tmp_path, capsys):
    path = tmp_path / "found.json"
    command = ["fleet", "doctor", "--scheduler", client.scheduler.address, "--goal", "laptop"]
    code = main([*command, "--json", str(path)])
    assert capsys.readouterr().out.startswith("1 ")
    found = json.loads(path.read_text())
    assert found["kind"] == "dgkit fleet doctor"
    assert len(found["diagnoses"]) == 1
    assert found["verdict"] in map(str, Verdict)
    assert code == {"ok": 0, "fail": 1, "warn": 5, "unknown": 6}[found["verdict"]]


def test_an_address_where_something_else_listens_is_no_scheduler(monkeypatch, capsys):
    monkeypatch.setattr("dgkit.fleet.demo_cluster._CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert main(["fleet", "doctor", "--scheduler", address]) == 4
    assert f"no Dask scheduler answers at {address}: no answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--scheduler", "tcp://127.0.0.1:1"], 4, "no Dask scheduler answers at tcp://127.0.0.1:1"),
        (["--scheduler", "tcp://192.0.2.7:8786"], 4, "tcp://192.0.2.7:8786 is reachable without"),
        (["--scheduler", "tcp://192.0.2.7:8786", "--insecure"], 4, "no Dask scheduler answers"),
        (["--scheduler", "foo://127.0.0.1:1"], 2, "'foo://127.0.0.1:1' is not an address such as"),
        (["--scheduler", "nonsense"], 2, "'nonsense' is not an address such as tls://head:8786"),
        (["--scheduler", "tcp://127.0.0.1:1", "--resume"], 2, "--resume needs --folder"),
        ([], 2, "--scheduler"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(words, code, message, monkeypatch, capsys):
    monkeypatch.setattr("dgkit.fleet.demo_cluster._CONNECT_S", 1.0)
    assert main(["fleet", "sweep", *words]) == code
    assert message in capsys.readouterr().err
